//! Tests loads that once misled an eviction policy, on the store, LRU and S3-FIFO.
//!
//! The store must keep a loop that fits in the tier, whatever load came before, and its hit rate must never be more
//! than three points below S3-FIFO's. The textbook caches get as many bytes as the store's arena and charge as much for
//! an entry, so that only the policies differ. `examples/replay.rs` replays recorded traces.

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
use sim::file::{Op, Request, replay};
use sim::mortal::Mortal;
use sim::policies::{Lru, S3Fifo};
use sim::simulated_store::{KEY_BYTES, Tier};
use sim::traces::{self, mix};
use sim::{Cache, hit_rate, patterns};

const SIZE: usize = 8 << 20;
/// The bytes of an entry in the store: its header of 40 bytes, key and value fill eight granules.
const ENTRY: usize = 512;
const VALUE: usize = ENTRY - 40 - KEY_BYTES;

fn tier() -> Tier {
    Tier::new(Params::new(SIZE, 0))
}

fn arena() -> usize {
    tier().region.layout().arena_bytes()
}

/// The number of entries that the tier holds.
fn room() -> u64 {
    (arena() / ENTRY) as u64
}

struct Rates {
    store: f64,
    lru: f64,
    s3_fifo: f64,
}

fn rates<I: Iterator<Item = u64>>(name: &str, warm_up: usize, trace: impl Fn() -> I) -> Rates {
    let textbook = |cache: &mut dyn Cache| hit_rate(cache, warm_up, trace(), |_| ENTRY);
    let rates = Rates {
        store: hit_rate(&mut tier(), warm_up, trace(), |_| KEY_BYTES + VALUE),
        lru: textbook(&mut Lru::new(arena())),
        s3_fifo: textbook(&mut S3Fifo::textbook(arena())),
    };
    rates.print(name);
    rates
}

impl Rates {
    fn print(&self, name: &str) {
        let Rates {
            store,
            lru,
            s3_fifo,
        } = self;
        println!("{name:36} store {store:.2} LRU {lru:.2} S3-FIFO {s3_fifo:.2}");
    }

    /// Checks the store's hit rate against S3-FIFO's. `over` is the minimum number of points above S3-FIFO; a negative
    /// number allows points below it.
    fn beside_s3_fifo(&self, over: f64) {
        let Rates { store, s3_fifo, .. } = self;
        assert!(*store >= s3_fifo + over, "{store:.2}, S3-FIFO {s3_fifo:.2}");
    }

    fn beside_lru(&self, over: f64) {
        let Rates { store, lru, .. } = self;
        assert!(*store >= lru + over, "{store:.2}, LRU {lru:.2}");
    }
}

type Trace = Box<dyn Iterator<Item = u64>>;

/// Returns loads that may precede a test's loop. The loop uses none of their keys.
fn histories() -> Vec<(&'static str, Trace)> {
    let room = room();
    let keys = room as usize * 8;
    vec![
        ("nothing", Box::new(std::iter::empty())),
        ("zipf", Box::new(traces::zipf(1, keys, 1.0, 400_000))),
        ("steep zipf", Box::new(traces::zipf(2, keys, 1.3, 400_000))),
        ("entries hit often", Box::new(patterns::each(room, 5))),
        (
            "a loop that fits",
            Box::new(traces::looping(room, 10 * room as usize)),
        ),
        (
            "a loop that does not",
            Box::new(traces::looping(room * 3 / 2, 200_000)),
        ),
        ("a scan", Box::new(0..10 * room)),
        (
            "two classes",
            Box::new(traces::hot_and_cold(3, 4 * room, 400_000)),
        ),
        ("churn", Box::new(patterns::churn(4, 5, 3_000.0, 300_000))),
        ("bursts", Box::new(patterns::bursts(5, keys, 300_000))),
    ]
}

/// Returns the hit rate of each pass of a loop over this many keys, after one of the `histories`.
fn passes_after(history: Trace, keys: u64, passes: u64) -> Vec<f64> {
    let mut tier = tier();
    hit_rate(&mut tier, 0, history, |_| KEY_BYTES + VALUE);
    let looping = || traces::looping(keys, keys as usize).map(|key| key + (1 << 50));
    (0..passes)
        .map(|_| hit_rate(&mut tier, 0, looping(), |_| KEY_BYTES + VALUE))
        .collect()
}

/// The first of twenty passes misses everything in any cache. The store may take four more passes to evict the entries
/// of the former load.
#[test]
fn a_loop_that_fits_is_kept_after_any_history() {
    for percent in [50, 80, 97, 99] {
        for (name, history) in histories() {
            let passes = passes_after(history, room() * percent / 100, 20);
            let later = passes[5..].iter().sum::<f64>() / 15.0;
            let all = passes.iter().sum::<f64>() / 20.0;
            println!(
                "{percent} % of the tier after {name}: {all:.1}, from the sixth pass on {later:.1}"
            );
            assert!(later >= 90.0, "after {name}: {passes:.1?}");
            assert!(all >= 75.0, "after {name}: {passes:.1?}");
        }
    }
}

/// The index is laid out for small entries (two granules each), so ghosts find free slots.
#[test]
fn a_loop_of_small_values_is_kept_as_well() {
    let params = Params::new(SIZE, 0).expecting(KEY_BYTES + 37);
    let mut tier = Tier::new(params);
    let keys = (tier.region.layout().arena_bytes() / 128 * 9 / 10) as u64;
    let history = traces::zipf(13, 8 * keys as usize, 1.0, 600_000);
    hit_rate(&mut tier, 0, history, |_| KEY_BYTES + 37);
    let looping = traces::looping(keys, 12 * keys as usize).map(|key| key + (1 << 50));
    let rate = hit_rate(&mut tier, 6 * keys as usize, looping, |_| KEY_BYTES + 37);
    println!("small values: {rate:.1}");
    assert!(rate >= 90.0, "{rate:.1}");
}

/// The keys and values have an eighth of the expected size, so the entries fill the index before the memory, and no
/// ghost finds a slot. The textbook S3-FIFO holds as many entries as the index has slots.
#[test]
fn a_full_index_keeps_loops_and_favourites() {
    const SMALL: usize = KEY_BYTES + 8;
    let layout = *tier().region.layout();
    let slots = u64::from(layout.slots() * layout.partitions());
    let favourites = |length| traces::zipf(14, slots as usize * 8, 0.9, length);

    let store = hit_rate(&mut tier(), 300_000, favourites(900_000), |_| SMALL);
    let mut textbook = S3Fifo::textbook(slots as usize * 64);
    let s3_fifo = hit_rate(&mut textbook, 300_000, favourites(900_000), |_| 64);
    println!("full index, zipf: store {store:.2} S3-FIFO {s3_fifo:.2}");
    assert!(store >= s3_fifo - 2.0, "{store:.2}, S3-FIFO {s3_fifo:.2}");

    for percent in [70, 95] {
        let mut tier = tier();
        hit_rate(&mut tier, 0, favourites(300_000), |_| SMALL);
        let keys = slots * percent / 100;
        let looping = traces::looping(keys, 16 * keys as usize).map(|key| key + (1 << 50));
        let rate = hit_rate(&mut tier, 8 * keys as usize, looping, |_| SMALL);
        println!("full index, a loop over {percent} % of it: {rate:.1}");
        assert!(rate >= 75.0, "{percent} % of the index: {rate:.1}");
    }
}

#[test]
fn a_loop_that_does_not_fit_hits_more_than_under_s3_fifo() {
    let keys = room() * 5 / 4;
    let rates = rates("loop, 1.25 times the tier", 5 * keys as usize, || {
        traces::looping(keys, 15 * keys as usize)
    });
    rates.beside_s3_fifo(3.0);
    rates.beside_lru(70.0);
}

#[test]
fn loops_of_several_programs_hit_more_than_under_s3_fifo() {
    let rates = rates("multi", 0, || patterns::multi(room() * 2, 500, 500_000));
    rates.beside_s3_fifo(0.3);
    rates.beside_lru(20.0);
}

#[test]
fn scans_leave_the_hot_set() {
    let keys = room() as usize * 4;
    let rates = rates("zipf with scans", 200_000, || {
        traces::zipf_with_scans(4, keys, 600_000)
    });
    rates.beside_s3_fifo(0.0);
    rates.beside_lru(5.0);
}

#[test]
fn favourites_by_zipf_hit_more_than_under_s3_fifo() {
    for skew in [0.7, 0.9, 1.1] {
        let keys = room() as usize * 10;
        let rates = rates(&format!("zipf {skew}"), 300_000, || {
            traces::zipf(6, keys, skew, 900_000)
        });
        rates.beside_s3_fifo(0.0);
        rates.beside_lru(0.5);
    }
}

#[test]
fn a_load_four_times_the_tier_hits_more_than_under_s3_fifo() {
    let keys = room() * 4;
    let rates = rates("two classes", 4 * keys as usize, || {
        traces::hot_and_cold(7, keys, 8 * keys as usize)
    });
    rates.beside_s3_fifo(0.0);
    rates.beside_lru(8.0);
}

#[test]
fn short_lived_keys_hit_as_often_as_with_s3_fifo() {
    for young in [300.0, 3_000.0] {
        rates("churn", 100_000, || patterns::churn(8, 3, young, 500_000)).beside_s3_fifo(-1.5);
    }
}

#[test]
fn moving_favourites_hit_as_often_as_with_s3_fifo() {
    let keys = room() as usize * 8;
    for pace in [50, 500] {
        let rates = rates(&format!("drift, a key every {pace}"), 200_000, || {
            patterns::drift(9, keys, 0.9, pace, 600_000)
        });
        rates.beside_s3_fifo(-1.5);
        rates.beside_lru(0.0);
    }
}

#[test]
fn bursts_leave_the_hot_set() {
    let keys = room() as usize * 8;
    let rates = rates("bursts", 200_000, || patterns::bursts(10, keys, 600_000));
    rates.beside_s3_fifo(-0.5);
    rates.beside_lru(0.0);
}

#[test]
fn opened_files_hit_as_often_as_with_s3_fifo() {
    let keys = room() as usize * 4;
    let rates = rates("sessions", 100_000, || {
        patterns::sessions(11, keys / 4, keys, 0.6, 600_000)
    });
    rates.beside_s3_fifo(-1.0);
}

/// LRU wins here, because the key that was read last is read next. Loops of several programs need the opposite policy.
#[test]
fn a_zigzag_is_lost_to_lru() {
    let keys = room() * 5 / 4;
    let rates = rates("zigzag", 0, || patterns::zigzag(keys, 20 * keys as usize));
    assert!(
        rates.lru > rates.store,
        "LRU {:.2}, {:.2}",
        rates.lru,
        rates.store
    );
    rates.beside_s3_fifo(-3.0);
}

/// Returns a load of sessions and tokens. The store sweeps every ten seconds, and the textbook caches check deadlines
/// at each read. A third of the keys live for a minute, a third for an hour, and a third forever; some are overwritten
/// and some deleted. The load has 500 requests a second.
fn mortal_load() -> Vec<Request> {
    let keys = room() as usize * 6;
    let favourites = traces::zipf(12, keys, 0.9, 900_000);
    let request = |(turn, key): (usize, u64)| Request {
        key,
        size: VALUE,
        op: match mix(turn as u64) % 40 {
            0 => Op::Set,
            1 => Op::Delete,
            _ => Op::Get,
        },
        ttl: [Some(60), Some(3_600), None][(mix(key) % 3) as usize].map(|ttl| ttl * 1_000_000),
        now: turn as i64 * 2_000,
    };
    favourites.enumerate().map(request).collect()
}

#[test]
fn entries_with_deadlines_hit_more_than_under_s3_fifo() {
    let load = mortal_load();
    let rate = |cache: &mut dyn Cache, weight: fn(usize) -> usize| {
        replay(cache, &load, load.len() / 3, weight)
    };
    let rates = Rates {
        store: rate(&mut tier(), |size| KEY_BYTES + size),
        lru: rate(&mut Mortal::new(Lru::new(arena())), |_| ENTRY),
        s3_fifo: rate(&mut Mortal::new(S3Fifo::textbook(arena())), |_| ENTRY),
    };
    rates.print("deadlines");
    rates.beside_s3_fifo(1.0);
    rates.beside_lru(3.0);
}
