//! Hit rates of the store beside LRU, S3-FIFO and SIEVE with the same bytes and no overhead.
//!
//! `cargo run --release -p pgcache-store --example hit_rate [limit]`: `limit` alone runs the two
//! workloads of the workloads of `bench/hit_rate` at full scale (2 GiB and 100 MiB); without it the
//! traces run as well.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for the terminal, run by hand"
)]

#[path = "../tests/sim/mod.rs"]
mod sim;

use pgcache_store::Params;
use sim::policies::{Lru, S3Fifo, Sieve};
use sim::tier::{KEY_BYTES, Tier};
use sim::{Cache, hit_rate, traces};

fn contestants(size: usize) -> Vec<(&'static str, Box<dyn Cache>)> {
    vec![
        ("store", Box::new(Tier::new(params(size)))),
        ("LRU", Box::new(Lru::new(size))),
        ("S3-FIFO", Box::new(S3Fifo::textbook(size))),
        ("SIEVE", Box::new(Sieve::new(size))),
    ]
}

/// Parameters from the environment, for experiments: SMALL, GHOST, PROMOTE, SLOT, PARTITIONS.
fn params(size: usize) -> Params {
    let number = |name: &str, default: u32| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let stock = Params::new(size, number("PARTITIONS", 0));
    Params {
        bytes_per_slot: number("SLOT", stock.bytes_per_slot),
        small_percent: number("SMALL", stock.small_percent),
        ghost_percent: number("GHOST", stock.ghost_percent),
        promote_hits: number("PROMOTE", stock.promote_hits),
        ..stock
    }
}

fn compare<I: Iterator<Item = u64>>(
    name: &str,
    size: usize,
    warm_up: usize,
    value: usize,
    trace: impl Fn() -> I,
) {
    print!("{name:44}");
    let only = std::env::var("ONLY").ok();
    for (policy, mut cache) in contestants(size) {
        if only.as_deref().is_some_and(|only| only != policy) {
            continue;
        }
        let rate = hit_rate(&mut *cache, warm_up, trace(), |_| KEY_BYTES + value);
        print!("  {policy} {rate:5.2}");
    }
    println!();
}

fn main() {
    let limit_only = std::env::args().nth(1).as_deref() == Some("limit");
    compare(
        "2 GiB, 525,312-byte values",
        2 << 30,
        65_408,
        525_312,
        || traces::hot_and_cold(1, 16_352, 2 * 65_408),
    );
    compare(
        "100 MiB, 512-byte values",
        100 << 20,
        4 * 819_200,
        512,
        || traces::hot_and_cold(2, 819_200, 8 * 819_200),
    );
    if limit_only {
        return;
    }
    for skew in [0.8, 1.0, 1.2] {
        compare(
            &format!("zipf {skew}, 32 MiB, 512-byte values"),
            32 << 20,
            2_000_000,
            512,
            || traces::zipf(3, 600_000, skew, 4_000_000),
        );
    }
    compare(
        "zipf 1.0, 32 MiB, 37-byte values",
        32 << 20,
        2_000_000,
        37,
        || traces::zipf(3, 2_000_000, 1.0, 6_000_000),
    );
    compare(
        "zipf 1.0 with scans, 32 MiB, 512-byte values",
        32 << 20,
        2_000_000,
        512,
        || traces::zipf_with_scans(4, 300_000, 4_000_000),
    );
    compare("loop of 1.25 x the size", 32 << 20, 400_000, 512, || {
        traces::looping(80_000, 1_000_000)
    });
}
