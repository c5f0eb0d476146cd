//! Prints hit rates of the store and of textbook policies over the same traces.
//!
//! `cargo run --release -p pgcache-store --example hit_rates -- policies [limit]` compares the store with LRU, S3-FIFO
//! and SIEVE, which have the same number of bytes and no overhead. `limit` runs only the two workloads of the benchmark
//! `hit_rate` at full scale (2 GiB and 100 MiB); without `limit` the traces run as well.
//!
//! `... -- sizes [MiB [from:to:step ...]]` measures many sizes of value, in a tier of this many MiB (default: 64);
//! without ranges, sizes from 64 bytes to 1 MiB. It shows whether any size wastes memory, or worsens the choice of the
//! entry to evict. The data are four times the tier, 20 % of the keys get 80 % of the gets, and a miss sets. A first
//! pass of four gets for each key warms up the tier, and the second pass is counted. It prints one line for each size,
//! separated by tabs: bytes, hit rate, share of the tier that entries fill, runs moved for every thousand sets.
//!
//! `... -- sizes MiB from/to ...` fills a tier with values of one size in two passes, and then switches to keys with
//! values of another size (or the same). It prints one line for each pair: the hit rate of the third pass with the new
//! values, in this tier and in a tier that was empty.

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
use sim::simulated_store::{KEY_BYTES, Tier};
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

/// The default ranges of sizes. Each step is smaller than the holes that the sizes in its range can leave.
const SWEEP: [&str; 7] = [
    "64:1024:64",
    "1152:3072:128",
    "3200:12288:64",
    "12416:40960:256",
    "41984:131072:2048",
    "139264:524288:16384",
    "525312:1048576:32704",
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rest = words.get(1..).unwrap_or_default();
    match words.first().map(String::as_str) {
        Some("policies") => policies(rest == ["limit"]),
        Some("sizes") => sizes(rest),
        _ => usage(),
    }
}

fn usage() {
    eprintln!("usage: hit_rates policies [limit] | sizes [MiB [from:to:step | from/to ...]]");
    std::process::exit(2);
}

fn policies(limit_only: bool) {
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

fn sizes(words: &[String]) {
    let Some(mib) = words.first().map_or(Some(64), |text| text.parse().ok()) else {
        return usage();
    };
    let mut ranges: Vec<String> = words.iter().skip(1).cloned().collect();
    if ranges.is_empty() {
        ranges.extend(SWEEP.map(String::from));
    }
    let pairs: Vec<_> = ranges.iter().filter_map(|text| pair(text)).collect();
    if !pairs.is_empty() {
        println!("from\tto\thit_rate\tin_an_empty_tier");
        for (old, new) in pairs {
            take_over(mib << 20, old, new);
        }
        return;
    }
    println!("bytes\thit_rate\tfilled\tmoved_per_1000_sets");
    for value in ranges.iter().flat_map(|text| range(text)) {
        measure(mib << 20, value);
    }
}

fn pair(text: &str) -> Option<(usize, usize)> {
    let (old, new) = text.split_once('/')?;
    Some((old.parse().ok()?, new.parse().ok()?))
}

fn take_over(size: usize, old: usize, new: usize) {
    let mut tier = Tier::new(Params::new(size, 0));
    sim::passes(&mut tier, size, old, 7..9, 1 << 32);
    let taken = sim::passes(&mut tier, size, new, 1..4, 0);
    let empty = sim::passes(&mut Tier::new(Params::new(size, 0)), size, new, 1..4, 0);
    println!("{old}\t{new}\t{taken:.2}\t{empty:.2}");
}

fn range(text: &str) -> impl Iterator<Item = usize> + use<> {
    let mut parts = text.split(':').map(|part| part.parse().unwrap_or(64));
    let from = parts.next().unwrap_or(64);
    let to = parts.next().unwrap_or(from);
    (from..=to).step_by(parts.next().unwrap_or(64).max(1))
}

fn measure(size: usize, value: usize) {
    let mut tier = Tier::new(Params::new(size, 0));
    let pass = 4 * (4 * size / value);
    let trace = traces::hot_and_cold(1, pass as u64 / 4, 2 * pass);
    let rate = hit_rate(&mut tier, pass, trace, |_| KEY_BYTES + value);
    let (usage, stats) = (tier.region.usage(), tier.region.stats());
    println!(
        "{value}\t{rate:.2}\t{:.2}\t{:.1}",
        100.0 * usage.entries as f64 / usage.region as f64,
        1000.0 * stats.moved as f64 / stats.sets as f64,
    );
}
