//! What get and set cost and how they scale, without SQL: threads over one region, a lock a partition.
//!
//! `cargo run --release -p pgcache-store --example scaling [seconds per line]`. The lock is `std`'s RwLock; its share
//! is the processor time of the same loop with locks only, over the time with the store's work.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pgcache_store::{Change, Found, Key, NO_DEADLINE, Params, Record, Region, Set};
use sim::tier::Tier;
use sim::traces::{Random, mix};

const KEYS: u64 = 1_000_000;
const VALUE: [u8; 37] = [b'v'; 37];

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Get,
    Set,
    /// The lock alone, shared or exclusive.
    LockShared,
    LockExclusive,
    /// Batches of 32 keys: buckets, entries, then gets.
    GetPrefetched,
}

fn name(number: u64) -> [u8; 16] {
    let mut bytes = *b"key:000000000000";
    let mut rest = number;
    for at in (4..16).rev() {
        bytes[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

fn get(region: &Region, locks: &[RwLock<()>], number: u64, buffer: &mut [u8]) -> bool {
    let name = name(number);
    let key = Key {
        hash: mix(number),
        cache: 1,
        bytes: &name,
    };
    let home = region.partition_of(key.hash);
    let _lock = locks[home as usize].read().unwrap();
    // SAFETY: lock `home` is held shared.
    let partition = unsafe { region.partition(home) };
    matches!(
        partition.get(&key, 0, |header| header.version == 1, buffer),
        Found::Hit(_)
    )
}

fn set(region: &Region, locks: &[RwLock<()>], number: u64) {
    let name = name(number);
    let key = Key {
        hash: mix(number),
        cache: 1,
        bytes: &name,
    };
    let record = Record {
        version: 1,
        xid: 0,
        deadline: NO_DEADLINE,
        kind: 0,
        negative: false,
        value: &VALUE,
    };
    let home = region.partition_of(key.hash);
    let mut ledger = |_: Change| {};
    let mut grant = region.grant();
    loop {
        let lock = locks[home as usize].write().unwrap();
        // SAFETY: lock `home` is held exclusively.
        let answer =
            unsafe { region.partition_mut(home, &mut ledger) }.set(&key, &record, 0, &mut grant);
        drop(lock);
        let Set::NeedPages { pages, victim } = answer else {
            return;
        };
        let _lock = locks[victim as usize].write().unwrap();
        // SAFETY: lock `victim` is held exclusively, `home` is not held.
        unsafe { region.partition_mut(victim, &mut ledger) }.reclaim(pages, 0, &mut grant);
    }
}

fn turn(
    region: &Region,
    locks: &[RwLock<()>],
    work: Work,
    random: &mut Random,
    buffer: &mut [u8],
) -> u64 {
    let number = random.below(KEYS);
    let lock = &locks[region.partition_of(mix(number)) as usize];
    match work {
        Work::Get => std::hint::black_box(get(region, locks, number, buffer)).into(),
        Work::Set => {
            set(region, locks, number);
            1
        }
        Work::LockShared => u64::from(std::hint::black_box(lock.read()).is_ok()),
        Work::LockExclusive => u64::from(std::hint::black_box(lock.write()).is_ok()),
        Work::GetPrefetched => {
            let numbers: [u64; 32] = std::array::from_fn(|_| random.below(KEYS));
            numbers
                .iter()
                .for_each(|number| region.prefetch_buckets(mix(*number)));
            numbers
                .iter()
                .for_each(|number| region.prefetch_entry(mix(*number)));
            numbers
                .iter()
                .map(|number| u64::from(get(region, locks, *number, buffer)))
                .sum()
        }
    }
}

/// Time this thread has been on a processor, from Linux; other load on the machine does not count.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0)
}

/// Millions of operations a second in all, and processor nanoseconds for one.
fn measure(
    region: &Region,
    locks: &[RwLock<()>],
    work: Work,
    threads: u64,
    time: Duration,
) -> (f64, f64) {
    let (stop, done, busy) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, done, busy) = (&stop, &done, &busy);
            scope.spawn(move || {
                let (mut random, mut buffer, mut count) = (Random::new(thread), [0; 64], 0u64);
                let began = on_cpu();
                while !stop.load(Relaxed) {
                    for _ in 0..64 {
                        turn(region, locks, work, &mut random, &mut buffer);
                    }
                    count += if work == Work::GetPrefetched {
                        64 * 32
                    } else {
                        64
                    };
                }
                done.fetch_add(count, Relaxed);
                busy.fetch_add(on_cpu() - began, Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Relaxed);
    });
    let seconds = start.elapsed().as_secs_f64();
    let done = done.load(Relaxed) as f64;
    (done / seconds / 1e6, busy.load(Relaxed) as f64 / done)
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    for (label, size) in [("all fit", 256 << 20), ("a quarter fits", 40 << 20)] {
        let tier = Tier::new(Params::new(size, 64));
        let region = &tier.region;
        let locks: Vec<RwLock<()>> = (0..region.layout().partitions())
            .map(|_| RwLock::new(()))
            .collect();
        (0..KEYS).for_each(|number| set(region, &locks, number));
        println!(
            "{label}: 1 M keys, 37-byte values, 64 partitions, {} MiB",
            size >> 20
        );
        println!("threads   get M/s   ns  lock%   set M/s   ns  lock%   get by 32, ns");
        for threads in [1, 2, 4, 8] {
            let run = |work| measure(region, &locks, work, threads, time);
            let (get, set, batch) = (run(Work::Get), run(Work::Set), run(Work::GetPrefetched));
            let (shared, exclusive) = (run(Work::LockShared), run(Work::LockExclusive));
            println!(
                "{threads:7} {:9.2} {:4.0} {:5.0} {:10.2} {:4.0} {:5.0} {:10.0}",
                get.0,
                get.1,
                100.0 * shared.1 / get.1,
                set.0,
                set.1,
                100.0 * exclusive.1 / set.1,
                batch.1
            );
        }
    }
}
