//! Tests that the store evicts as well as textbook policies with the same bytes.
//!
//! The hit rate must be within 1.5 points of textbook S3-FIFO and above LRU on zipf, and no history of value sizes may
//! lower it permanently. The loads are small; `examples/hit_rates.rs` measures at full scale.
//!
//! The textbook caches are simulated without a data structure. They charge an entry its key, its value and 56 bytes,
//! the size of a header and an index slot in any cache. Only the store pays for all other bookkeeping.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

mod sim;

use pgcache_store::Params;
use sim::policies::{Lru, S3Fifo, Sieve};
use sim::simulated_store::{KEY_BYTES, Tier};
use sim::{Cache, hit_rate, traces};

const SIZE: usize = 16 << 20;
const HEADER: usize = 56;

struct Rates {
    store: f64,
    lru: f64,
    s3_fifo: f64,
    sieve: f64,
}

fn rates<I: Iterator<Item = u64>>(warm_up: usize, value: usize, trace: impl Fn() -> I) -> Rates {
    let textbook =
        |cache: &mut dyn Cache| hit_rate(cache, warm_up, trace(), |_| KEY_BYTES + value + HEADER);
    let mut tier = Tier::new(Params::new(SIZE, 0));
    let rates = Rates {
        store: hit_rate(&mut tier, warm_up, trace(), |_| KEY_BYTES + value),
        lru: textbook(&mut Lru::new(SIZE)),
        s3_fifo: textbook(&mut S3Fifo::textbook(SIZE)),
        sieve: textbook(&mut Sieve::new(SIZE)),
    };
    let Rates {
        store,
        lru,
        s3_fifo,
        sieve,
    } = rates;
    println!("store {store:.2} LRU {lru:.2} S3-FIFO {s3_fifo:.2} SIEVE {sieve:.2}");
    rates
}

fn near_textbook(rates: &Rates) {
    let Rates { store, s3_fifo, .. } = rates;
    assert!(
        store + 1.5 >= *s3_fifo,
        "store {store:.2}, S3-FIFO {s3_fifo:.2}"
    );
}

#[test]
fn zipf_is_above_lru_and_near_textbook_s3_fifo() {
    for skew in [0.8, 1.0, 1.2] {
        let rates = rates(500_000, 512, || traces::zipf(3, 300_000, skew, 1_000_000));
        near_textbook(&rates);
        assert!(
            rates.store > rates.lru,
            "store {:.2}, LRU {:.2}",
            rates.store,
            rates.lru
        );
    }
}

#[test]
fn zipf_of_mixed_sizes_is_near_textbook_s3_fifo() {
    let size =
        |key: u64| [40, 200, 700, 1_500, 3_000, 9_000, 60_000][(traces::mix(key) % 7) as usize];
    let trace = || traces::zipf(5, 20_000, 0.9, 400_000);
    let mut tier = Tier::new(Params::new(SIZE, 0));
    let store = hit_rate(&mut tier, 200_000, trace(), |key| KEY_BYTES + size(key));
    let textbook = |cache: &mut dyn Cache| {
        hit_rate(cache, 200_000, trace(), |key| {
            KEY_BYTES + size(key) + HEADER
        })
    };
    let s3_fifo = textbook(&mut S3Fifo::textbook(SIZE));
    let lru = textbook(&mut Lru::new(SIZE));
    println!("store {store:.2} LRU {lru:.2} S3-FIFO {s3_fifo:.2}");
    assert!(
        store + 1.5 >= s3_fifo,
        "store {store:.2}, S3-FIFO {s3_fifo:.2}"
    );
}

#[test]
fn scans_do_not_push_the_hot_set_out() {
    let rates = rates(500_000, 512, || {
        traces::zipf_with_scans(4, 150_000, 1_000_000)
    });
    near_textbook(&rates);
    assert!(
        rates.store > rates.lru + 2.0,
        "store {:.2}, LRU {:.2}",
        rates.store,
        rates.lru
    );
}

/// A loop's hit rate falls by more than the share of missing bytes, so in this test the textbook cache gets only the
/// bytes of the store's arena.
#[test]
fn a_loop_larger_than_the_tier_still_hits() {
    let trace = || traces::looping(36_000, 700_000);
    let mut tier = Tier::new(Params::new(SIZE, 0));
    let arena = tier.region.layout().arena_bytes();
    let store = hit_rate(&mut tier, 300_000, trace(), |_| KEY_BYTES + 512);
    let s3_fifo = hit_rate(&mut S3Fifo::textbook(arena), 300_000, trace(), |_| {
        KEY_BYTES + 512 + 48
    });
    let lru = hit_rate(&mut Lru::new(arena), 300_000, trace(), |_| {
        KEY_BYTES + 512 + 48
    });
    println!("store {store:.2} LRU {lru:.2} S3-FIFO {s3_fifo:.2}");
    assert!(
        store + 1.5 >= s3_fifo,
        "store {store:.2}, S3-FIFO {s3_fifo:.2}"
    );
    assert!(lru < 1.0 && store > 50.0);
}

/// Runs the memory-limit workload: the data are 4 times the limit, and 20 % of the keys get 80 % of the gets.
#[test]
fn small_values_under_a_memory_limit_reach_seventy_percent() {
    let size = 25 << 20;
    let keys = 4 * size as u64 / 512;
    let mut tier = Tier::new(Params::new(size, 0));
    let trace = traces::hot_and_cold(2, keys, 8 * keys as usize);
    let rate = hit_rate(&mut tier, 4 * keys as usize, trace, |_| KEY_BYTES + 512);
    println!("{rate:.2}");
    assert!(rate >= 70.0, "{rate:.2}");
}

/// Runs the memory-limit workload with 513 KiB values, at an eighth of the size: a partition still holds tens of
/// values.
#[test]
fn large_values_under_a_memory_limit_reach_their_aim() {
    let size = 256 << 20;
    let keys = 4 * size as u64 / 525_312;
    let mut tier = Tier::new(Params::new(size, 8));
    let trace = traces::hot_and_cold(1, keys, 8 * keys as usize);
    let rate = hit_rate(&mut tier, 4 * keys as usize, trace, |_| KEY_BYTES + 525_312);
    println!("{rate:.2}");
    assert!(rate >= 76.0, "{rate:.2}");
}

#[test]
fn a_shift_of_sizes_and_back_costs_less_than_two_points() {
    let small = |tier: &mut Tier, seed| {
        let trace = traces::zipf(seed, 400_000, 0.9, 2_400_000);
        hit_rate(tier, 2_000_000, trace, |_| KEY_BYTES + 100)
    };
    let fresh = small(&mut Tier::new(Params::new(SIZE, 0)), 7);
    let mut tier = Tier::new(Params::new(SIZE, 0));
    small(&mut tier, 6);
    let large = traces::zipf(8, 100, 0.7, 3_000).map(|key| key + (1 << 32));
    let during = hit_rate(&mut tier, 1_500, large, |_| KEY_BYTES + 500 * 1024);
    let after = small(&mut tier, 7);
    println!("fresh {fresh:.2}, large {during:.2}, after {after:.2}");
    assert!(during > 20.0, "large values found no room: {during:.2}");
    assert!(after + 2.0 >= fresh, "fresh {fresh:.2}, after {after:.2}");
}

#[test]
fn sizes_mixed_for_long_do_not_lower_the_rate() {
    let size = |key: u64| [60, 600, 2_500, 30_000, 300_000][(traces::mix(key) % 5) as usize];
    let part = |tier: &mut Tier, seed| {
        hit_rate(tier, 0, traces::zipf(seed, 3_000, 0.9, 40_000), |key| {
            KEY_BYTES + size(key)
        })
    };
    let mut tier = Tier::new(Params::new(SIZE, 0));
    let rates: Vec<f64> = (0..8).map(|seed| part(&mut tier, seed)).collect();
    println!("{rates:.2?}");
    assert!(rates[7] + 1.5 >= rates[1], "{rates:.2?}");
}
