//! Tests the bounds and reserves of caches that share a tier, with seeded loads.
//!
//! A cache must keep to its bound, the writes of other caches must leave it its reserve, and both must hold as soon as
//! a rank changes.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

use std::alloc;
use std::ptr::NonNull;

use pgcache_store::{
    Cursor, EntryEvent, GetOutcome, Key, Layout, Ledger, NO_DEADLINE, NewEntry, Params, Rank,
    Region, RemovalCause, SET_ROUNDS, SetOutcome,
};

/// The sum and the limits of one cache, which the caller of the store keeps.
#[derive(Clone, Copy)]
struct Share {
    bytes: u64,
    most: u64,
    reserve: u64,
}

struct Shares([Share; 4]);

impl Ledger for Shares {
    fn report(&mut self, event: EntryEvent) {
        let bytes = &mut self.0[event.cache as usize].bytes;
        match event.removed {
            None => *bytes += event.bytes,
            Some(_) => *bytes -= event.bytes,
        }
    }

    fn has_ranks(&self) -> bool {
        self.0
            .iter()
            .any(|share| share.most < u64::MAX || share.reserve > 0)
    }

    fn rank(&self, cache: u32) -> Rank {
        let Share {
            bytes,
            most,
            reserve,
        } = self.0[cache as usize];
        match bytes {
            _ if bytes > most => Rank::OverBound,
            _ if bytes <= reserve => Rank::Reserved,
            _ => Rank::Plain,
        }
    }
}

struct Tier {
    base: NonNull<u8>,
    shape: alloc::Layout,
    region: Region,
    shares: Shares,
    value: Vec<u8>,
    buffer: Vec<u8>,
}

impl Tier {
    fn new(size: usize) -> Tier {
        let layout = Layout::with(Params::new(size, 0)).unwrap();
        let shape = alloc::Layout::from_size_align(layout.region_bytes(), 4096).unwrap();
        // SAFETY: the layout's size is not zero; only this region uses the memory until `drop`.
        let (base, region) = unsafe {
            let base = NonNull::new(alloc::alloc_zeroed(shape)).unwrap();
            (base, Region::init(base, &layout))
        };
        let share = Share {
            bytes: 0,
            most: u64::MAX,
            reserve: 0,
        };
        Tier {
            base,
            shape,
            region,
            shares: Shares([share; 4]),
            value: vec![7; 1 << 20],
            buffer: vec![0; 1 << 20],
        }
    }

    fn arena(&self) -> u64 {
        self.region.layout().arena_bytes() as u64
    }

    fn bytes(&self, cache: u32) -> u64 {
        self.shares.0[cache as usize].bytes
    }

    fn set(&mut self, cache: u32, number: u64, length: usize) {
        let (name, hash) = name(cache, number);
        let key = Key {
            hash,
            cache,
            bytes: name.as_bytes(),
        };
        let new = NewEntry {
            version: 1,
            deadline: NO_DEADLINE,
            kind: 0,
            negative: false,
            value: &self.value[..length],
        };
        let home = self.region.partition_of(hash);
        let mut grant = self.region.grant();
        for _ in 0..SET_ROUNDS {
            // SAFETY: one thread, and this `PartitionMut` ends before the next one begins.
            let mut partition = unsafe { self.region.partition_mut(home, &mut self.shares) };
            match partition.set(&key, &new, 0, &mut grant) {
                SetOutcome::Stored { .. } => return,
                SetOutcome::TooLarge => panic!("too large"),
                SetOutcome::NeedPages { pages, victim } => {
                    // SAFETY: one thread, and the home's `PartitionMut` is no longer used.
                    unsafe { self.region.partition_mut(victim, &mut self.shares) }
                        .reclaim(pages, 0, &mut grant);
                }
            }
        }
        panic!("a write failed for want of space");
    }

    fn get(&mut self, cache: u32, number: u64) -> bool {
        let (name, hash) = name(cache, number);
        let key = Key {
            hash,
            cache,
            bytes: name.as_bytes(),
        };
        // SAFETY: one thread, no `PartitionMut` alive.
        let partition = unsafe { self.region.partition(self.region.partition_of(hash)) };
        let found = partition.get(&key, 0, |_| true, &mut self.buffer);
        matches!(found, GetOutcome::Hit(_))
    }

    fn clear(&mut self, cache: u32) {
        for id in 0..self.region.layout().partitions() {
            // SAFETY: one thread, and this `PartitionMut` ends before the next one begins.
            let mut partition = unsafe { self.region.partition_mut(id, &mut self.shares) };
            partition.sweep(&mut Cursor::default(), u32::MAX, |entry| {
                match entry.header().cache == cache {
                    true => pgcache_store::Verdict::Remove(RemovalCause::Cleared),
                    false => pgcache_store::Verdict::Keep,
                }
            });
        }
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this shape; the region ends with `self`.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.shape) }
    }
}

fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

fn name(cache: u32, number: u64) -> (String, u64) {
    let hash = mix(mix(number) ^ u64::from(cache));
    (format!("{number:016x}"), hash)
}

const SESSIONS: u32 = 1;
const NEIGHBOUR: u32 = 2;
const SEEDS: [u64; 2] = [1, 0xFEED];

/// The load of a neighbouring cache.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Writes each key once.
    Once,
    /// Writes each key, and reads it twice soon after.
    Read,
    /// Writes a skewed working set twice as large as the tier.
    Skewed,
}

const LOADS: [Load; 3] = [Load::Once, Load::Read, Load::Skewed];

fn write(tier: &mut Tier, cache: u32, load: Load, seed: u64, at: u64, length: usize) {
    let number = match load {
        Load::Once | Load::Read => seed.wrapping_mul(1 << 32).wrapping_add(at),
        Load::Skewed => {
            let all = tier.arena() * 2 / (length as u64 + 64);
            let random = mix(seed ^ at);
            match random % 5 {
                0 => mix(random) % all,
                _ => mix(random) % (all / 5),
            }
        }
    };
    if !tier.get(cache, number) {
        tier.set(cache, number, length);
    }
    if matches!(load, Load::Read) {
        let earlier = number.wrapping_sub(mix(at) % 64);
        tier.get(cache, number);
        tier.get(cache, earlier);
    }
}

/// Returns the percentage of this many sessions that the tier still has, without counting reads.
fn kept(tier: &mut Tier, sessions: u64) -> f64 {
    let kept = (0..sessions)
        .filter(|&number| {
            let (name, hash) = name(SESSIONS, number);
            let key = Key {
                hash,
                cache: SESSIONS,
                bytes: name.as_bytes(),
            };
            // SAFETY: one thread, no `PartitionMut` alive.
            let partition = unsafe { tier.region.partition(tier.region.partition_of(hash)) };
            partition.peek(&key).is_some()
        })
        .count();
    kept as f64 * 100.0 / sessions as f64
}

/// Stores sessions that fill this percentage of the tier, then lets a neighbour write ten times the tier. Returns the
/// percentage of sessions that the tier still has.
fn flood(load: Load, seed: u64, percent: u64, length: usize, reserved: bool) -> f64 {
    let mut tier = Tier::new(8 << 20);
    let session = 320;
    let sessions = tier.arena() * percent / 100 / session;
    for number in 0..sessions {
        tier.set(SESSIONS, number, 250);
    }
    if reserved {
        tier.shares.0[SESSIONS as usize].reserve = tier.bytes(SESSIONS);
    }
    let writes = tier.arena() * 10 / (length as u64 + 64);
    for at in 0..writes {
        write(&mut tier, NEIGHBOUR, load, seed, at, length);
    }
    let kept = kept(&mut tier, sessions);
    println!("{load:?}, {length} bytes, {percent} %: {kept:.1} % of the sessions are kept");
    kept
}

#[test]
fn a_neighbours_writes_leave_a_reserve_alone() {
    for seed in SEEDS {
        for load in LOADS {
            for (percent, length) in [
                (10, 100),
                (30, 100),
                (48, 100),
                (30, 2_000),
                (48, 8_000),
                (48, 100_000),
                (10, 300_000),
                (30, 1_000_000),
                (48, 1_000_000),
            ] {
                let kept = flood(load, seed, percent, length, true);
                assert!(kept >= 90.0, "{load:?} {percent} {length}: {kept:.1} %");
            }
        }
    }
}

#[test]
fn a_neighbours_large_values_leave_a_reserve_of_large_values_alone() {
    for load in LOADS {
        for length in [100, 100_000, 1_000_000] {
            let mut tier = Tier::new(16 << 20);
            let sessions = tier.arena() * 48 / 100 / 100_000;
            for number in 0..sessions {
                tier.set(SESSIONS, number, 99_900);
            }
            tier.shares.0[SESSIONS as usize].reserve = tier.bytes(SESSIONS);
            for at in 0..tier.arena() * 10 / (length as u64 + 64) {
                write(&mut tier, NEIGHBOUR, load, 1, at, length);
            }
            let kept = kept(&mut tier, sessions);
            assert!(kept >= 90.0, "{load:?} {length}: {kept:.1} %");
        }
    }
}

#[test]
fn a_flood_that_fills_the_index_leaves_a_reserve_alone() {
    for load in LOADS {
        let mut tier = Tier::new(8 << 20);
        let layout = *tier.region.layout();
        let slots = u64::from(layout.slots() * layout.partitions());
        let sessions = slots * 4 / 10;
        for number in 0..sessions {
            tier.set(SESSIONS, number, 8);
        }
        tier.shares.0[SESSIONS as usize].reserve = tier.bytes(SESSIONS);
        for at in 0..slots * 10 {
            write(&mut tier, NEIGHBOUR, load, 1, at, 8);
        }
        assert!(
            tier.bytes(NEIGHBOUR) < tier.arena() / 2,
            "the index is full"
        );
        let kept = kept(&mut tier, sessions);
        println!("{load:?}: {kept:.1} %");
        assert!(kept >= 90.0, "{load:?}: {kept:.1} %");
    }
}

/// A value that is too large for the rest of the tier takes room from the reserve, because no write fails for want of
/// space. The value takes no more than it needs.
#[test]
fn a_value_longer_than_the_rest_of_the_tier_takes_room_from_a_reserve() {
    let mut tier = Tier::new(8 << 20);
    tier.value.resize(4 << 20, 7);
    let sessions = tier.arena() * 65 / 100 / 320;
    for number in 0..sessions {
        tier.set(SESSIONS, number, 250);
    }
    tier.shares.0[SESSIONS as usize].reserve = tier.bytes(SESSIONS);
    let length = tier.arena() * 45 / 100;
    for number in 0..10 {
        tier.set(NEIGHBOUR, number, length as usize);
    }
    assert!(tier.bytes(NEIGHBOUR) >= length, "the last one is stored");
    let kept = kept(&mut tier, sessions);
    assert!(
        (75.0..90.0).contains(&kept),
        "{kept:.1} % of the sessions are left"
    );
}

#[test]
fn without_a_reserve_a_flood_takes_unread_sessions() {
    let kept = flood(Load::Read, 1, 30, 100, false);
    assert!(kept < 50.0, "{kept:.1} %");
}

/// Returns the maximum and the minimum number of bytes that a bounded cache held in the second half of its writes, in
/// percent of its bound.
fn bounded(load: Load, seed: u64, per_mille: u64, length: usize) -> (f64, f64) {
    let mut tier = Tier::new(8 << 20);
    let bound = tier.arena() * per_mille / 1000;
    tier.shares.0[SESSIONS as usize].most = bound;
    let others = tier.arena() / 512;
    for at in 0..others {
        tier.set(NEIGHBOUR, at, 400);
    }
    let (mut least, mut most) = (u64::MAX, 0);
    let writes = bound * 10 / (length as u64 + 64);
    for at in 0..writes {
        write(&mut tier, SESSIONS, load, seed, at, length);
        if at % 4 == 0 {
            tier.set(NEIGHBOUR, others + at, 400);
        }
        if at > writes / 2 {
            most = most.max(tier.bytes(SESSIONS));
            least = least.min(tier.bytes(SESSIONS));
        }
    }
    let percent = |bytes: u64| bytes as f64 * 100.0 / bound as f64;
    let (least, most) = (percent(least), percent(most));
    println!("{load:?}, {length} bytes, {per_mille} per mille: {least:.1} to {most:.1} %");
    (least, most)
}

#[test]
fn a_bounded_cache_stays_within_its_bound() {
    for seed in SEEDS {
        for load in LOADS {
            for (per_mille, length) in [
                (50, 100),
                (250, 100),
                (500, 100),
                (100, 1_000),
                (300, 2_000),
            ] {
                let (_, most) = bounded(load, seed, per_mille, length);
                assert!(most <= 105.0, "{load:?} {per_mille} {length}: {most:.1} %");
            }
        }
    }
}

#[test]
fn a_cache_alone_in_the_tier_keeps_to_its_bound() {
    let mut tier = Tier::new(8 << 20);
    let bound = tier.arena() / 10;
    tier.shares.0[SESSIONS as usize].most = bound;
    for number in 0..100_000 {
        tier.set(SESSIONS, number, 100);
        assert!(tier.bytes(SESSIONS) <= bound + bound / 20);
    }
    assert!(tier.bytes(SESSIONS) >= bound * 9 / 10, "the bound is used");
}

#[test]
fn a_bound_that_is_lowered_or_lifted_counts_from_the_next_write_on() {
    let mut tier = Tier::new(8 << 20);
    for number in 0..20_000 {
        tier.set(SESSIONS, number, 250);
        tier.set(NEIGHBOUR, number, 100);
    }
    let bound = tier.bytes(SESSIONS) / 2;
    tier.shares.0[SESSIONS as usize].most = bound;
    let excess = bound / 320;
    for number in 0..excess * 3 {
        tier.set(SESSIONS, 1_000_000 + number, 250);
    }
    assert!(tier.bytes(SESSIONS) <= bound + bound / 20);
    tier.shares.0[SESSIONS as usize].most = u64::MAX;
    for number in 0..20_000 {
        tier.set(SESSIONS, 2_000_000 + number, 250);
    }
    assert!(tier.bytes(SESSIONS) > bound * 3 / 2, "the bound is gone");
}

#[test]
fn a_reserve_that_is_lifted_protects_no_more() {
    let mut tier = Tier::new(8 << 20);
    let sessions = tier.arena() * 3 / 10 / 320;
    for number in 0..sessions {
        tier.set(SESSIONS, number, 250);
    }
    tier.shares.0[SESSIONS as usize].reserve = tier.bytes(SESSIONS);
    let writes = tier.arena() * 4 / 192;
    for at in 0..writes {
        write(&mut tier, NEIGHBOUR, Load::Read, 1, at, 100);
    }
    assert!(kept(&mut tier, sessions) > 90.0);
    tier.shares.0[SESSIONS as usize].reserve = 0;
    for at in writes..writes * 4 {
        write(&mut tier, NEIGHBOUR, Load::Read, 1, at, 100);
    }
    assert!(kept(&mut tier, sessions) < 50.0);
    tier.clear(SESSIONS);
    assert_eq!(tier.bytes(SESSIONS), 0);
}

#[test]
fn a_cache_within_its_reserve_grows_at_the_cost_of_other_caches() {
    let mut tier = Tier::new(8 << 20);
    let others = tier.arena() / 192;
    for at in 0..others * 2 {
        write(&mut tier, NEIGHBOUR, Load::Read, 1, at, 100);
    }
    let reserve = tier.arena() * 4 / 10;
    tier.shares.0[SESSIONS as usize].reserve = reserve;
    let sessions = reserve / 320;
    for number in 0..sessions {
        tier.set(SESSIONS, number, 250);
    }
    assert!(kept(&mut tier, sessions) > 95.0);
}
