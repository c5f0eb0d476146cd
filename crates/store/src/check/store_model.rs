//! Runs the store beside a model: a `HashMap` with deadlines, stripes, and sums for each cache.
//!
//! The store must return exactly the values that were stored, and report every entry that it loses. Property tests and
//! the fuzz target both call `run` with a list of [`Op`]. This file is not part of a release build.

use std::collections::{BTreeMap, HashMap};
use std::vec;
use std::vec::Vec;

use super::op::{Op, length, name};
use super::testing::{Memory, hash};
use crate::{
    Cursor, EntryEvent, GetOutcome, Grant, Key, Ledger, NO_DEADLINE, NewEntry, Params,
    PartitionMut, Rank, RemovalCause, SET_ROUNDS, SetOutcome, Verdict,
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    version: u64,
    deadline: i64,
    kind: u8,
    negative: bool,
    value: Vec<u8>,
}

/// The sums of all reports to the ledger.
#[derive(Default)]
struct LedgerSums {
    bytes: BTreeMap<u32, i64>,
    entries: BTreeMap<u32, i64>,
    /// The sum of the deadlines.
    deadlines: BTreeMap<u32, i128>,
    /// The number of entries that were evicted or expired since the model's last check.
    lost: usize,
    /// The rank of each cache; `Plain` by default.
    ranks: [Rank; 3],
}

impl Ledger for LedgerSums {
    fn report(&mut self, event: EntryEvent) {
        self.note(event);
    }

    fn has_ranks(&self) -> bool {
        self.ranks != [Rank::Plain; 3]
    }

    fn rank(&self, cache: u32) -> Rank {
        self.ranks[cache as usize % 3]
    }
}

impl LedgerSums {
    fn note(&mut self, event: EntryEvent) {
        let sign = if event.removed.is_none() { 1 } else { -1 };
        *self.bytes.entry(event.cache).or_default() += sign * event.bytes as i64;
        *self.entries.entry(event.cache).or_default() += sign;
        *self.deadlines.entry(event.cache).or_default() +=
            i128::from(sign) * i128::from(event.deadline);
        self.lost += usize::from(
            event.removed == Some(RemovalCause::Evicted)
                || event.removed == Some(RemovalCause::Expired),
        );
    }
}

struct Model<'m> {
    memory: &'m Memory,
    stored: HashMap<(u32, Vec<u8>), Stored>,
    epochs: HashMap<(u32, u32), u64>,
    sums: LedgerSums,
    grant: Grant<'m>,
    now: i64,
    writes: u64,
}

/// Runs the operations, and compares every result with the model. Validates the whole region at each `Check` and at the
/// end.
pub fn run(params: Params, ops: &[Op]) {
    let memory = Memory::with(params);
    let mut model = Model {
        memory: &memory,
        stored: HashMap::new(),
        epochs: HashMap::new(),
        sums: LedgerSums::default(),
        grant: memory.region.grant(),
        now: 1_000,
        writes: 0,
    };
    for op in ops {
        model.step(*op);
    }
    model.check();
    model.grant = memory.region.grant();
    memory.region.validate(0, hash);
}

impl<'m> Model<'m> {
    fn step(&mut self, op: Op) {
        match op {
            Op::Set { key, size, ttl } => self.set(key, size, ttl),
            Op::Get { key } => self.get(key),
            Op::Remove { key } => self.remove(key),
            Op::Touch { key, ttl } => self.touch(key, ttl),
            Op::Swap { key, size } => self.swap(key, size),
            Op::Mark { key } => self.mark(key),
            Op::MarkToRenew { key } => self.mark_to_renew(key),
            Op::Renew { key } => self.renew(key),
            Op::Advance { by } => self.now += i64::from(by),
            Op::Expire { partition, slots } => self.expire(partition, slots),
            Op::ClearCache { cache } => self.clear_cache(cache),
            Op::Reserve { pages } => {
                self.grant
                    .fill(u32::from(pages) % (self.memory.region.layout.pages / 4));
            }
            Op::Release => self.grant = self.memory.region.grant(),
            Op::Reclaim { partition, pages } => self.reclaim(partition, pages),
            Op::Vacate { partition } => self.with(u32::from(partition), |part| {
                part.vacate_page();
            }),
            Op::Compact { partition } => {
                self.with(u32::from(partition), |part| while part.compact() {});
            }
            Op::Rank { cache, rank } => {
                let ranks = [Rank::OverBound, Rank::Plain, Rank::Reserved];
                self.sums.ranks[usize::from(cache % 3)] = ranks[usize::from(rank % 3)];
            }
            Op::Check => self.check(),
        }
    }

    fn with<T>(&mut self, partition: u32, act: impl FnOnce(&mut PartitionMut) -> T) -> T {
        let region = &self.memory.region;
        // SAFETY: one thread, one `PartitionMut` at a time.
        act(&mut unsafe { region.partition_mut(partition, &mut self.sums) })
    }

    fn on_key<T>(&mut self, key: u16, act: impl FnOnce(&mut PartitionMut, &Key) -> T) -> T {
        let (cache, bytes) = name(key);
        let key = Key {
            hash: hash(cache, &bytes),
            cache,
            bytes: &bytes,
        };
        self.with(self.memory.region.partition_of(key.hash), |part| {
            act(part, &key)
        })
    }

    fn next_value(&mut self, key: u16, size: u32, ttl: u8) -> Stored {
        self.writes += 1;
        let seed = (self.writes as usize) * 31 + usize::from(key);
        Stored {
            version: self.writes,
            deadline: if ttl > 200 {
                NO_DEADLINE
            } else {
                self.now + i64::from(ttl)
            },
            kind: key as u8,
            negative: size.is_multiple_of(50),
            value: (0..length(size))
                .map(|i| (i * 7 + i / 251 + seed) as u8)
                .collect(),
        }
    }

    fn set(&mut self, key: u16, size: u32, ttl: u8) {
        let next = self.next_value(key, size, ttl);
        self.store(key, next);
    }

    fn store(&mut self, key: u16, next: Stored) {
        let region = &self.memory.region;
        let (cache, bytes) = name(key);
        let at = Key {
            hash: hash(cache, &bytes),
            cache,
            bytes: &bytes,
        };
        let Stored {
            version,
            deadline,
            kind,
            negative,
            ref value,
        } = next;
        let new = NewEntry {
            version,
            deadline,
            kind,
            negative,
            value,
        };
        let (now, mut grant) = (self.now, region.grant());
        for _ in 0..SET_ROUNDS {
            let home = region.partition_of(at.hash);
            match self.with(home, |part| part.set(&at, &new, now, &mut grant)) {
                SetOutcome::Stored { .. } => {
                    self.stored.insert((cache, bytes), next);
                    return;
                }
                SetOutcome::NeedPages { pages, victim } => {
                    self.with(victim, |part| part.reclaim(pages, now, &mut grant));
                }
                SetOutcome::TooLarge => {
                    assert!(
                        value.len() > region.layout().max_value(bytes.len()),
                        "it would fit"
                    );
                    return;
                }
            }
        }
        panic!("a write of {} bytes failed for want of space", value.len());
    }

    fn get(&mut self, key: u16) {
        let now = self.now;
        let mut buffer = vec![0; if cfg!(miri) { 9_000 } else { 200_000 }];
        let found = self.on_key(key, |part, key| part.get(key, now, |_| true, &mut buffer));
        let expected = self.stored.get(&name(key));
        match (found, expected) {
            (GetOutcome::Hit(header), Some(stored)) => {
                assert!(now < stored.deadline, "an expired value was served");
                assert_eq!(
                    buffer[..header.value_len as usize],
                    stored.value[..],
                    "the value"
                );
                assert_eq!(header.version, stored.version);
                assert_eq!(
                    (header.kind, header.negative),
                    (stored.kind, stored.negative)
                );
                assert_eq!(header.deadline, stored.deadline);
            }
            (GetOutcome::Miss, Some(stored)) => {
                assert!(
                    now >= stored.deadline || self.sums.lost > 0,
                    "a live value was not found"
                );
            }
            (GetOutcome::Miss, None) => {}
            (found, expected) => panic!("{found:?} where {expected:?} was stored"),
        }
    }

    fn remove(&mut self, key: u16) {
        let removed = self.on_key(key, |part, key| part.remove(key, RemovalCause::Cleared));
        let expected = self.stored.get(&name(key));
        assert!(removed.is_none() || removed.map(|h| h.version) == expected.map(|s| s.version));
        if removed.is_some() {
            self.stored.remove(&name(key));
        }
    }

    fn touch(&mut self, key: u16, ttl: u8) {
        let deadline = self.now + i64::from(ttl);
        if self.on_key(key, |part, key| part.touch(key, deadline)) {
            self.stored
                .get_mut(&name(key))
                .expect("touched what was stored")
                .deadline = deadline;
        }
    }

    fn swap(&mut self, key: u16, size: u32) {
        let Some(stored) = self.stored.get(&name(key)).cloned() else {
            return;
        };
        let same = self.on_key(key, |part, key| {
            part.peek(key)
                .map(|entry| (entry.value_equals(&stored.value), entry.value_equals(b"no")))
        });
        if let Some(equal) = same {
            assert_eq!(equal, (true, stored.value == b"no"), "comparing in place");
            self.set(key, size, 255);
        }
    }

    fn raised(&mut self, key: u16) -> u64 {
        let (cache, bytes) = name(key);
        let hash = hash(cache, &bytes);
        let number = (hash >> 12) as u32 & (self.memory.region.layout.stripes - 1);
        let place = (self.memory.region.partition_of(hash), number);
        let epoch = self.epochs.entry(place).or_default();
        *epoch += 1;
        *epoch
    }

    fn mark(&mut self, key: u16) {
        let epoch = self.on_key(key, |part, key| part.mark(key));
        let gone = self.on_key(key, |part, key| part.peek(key).is_none());
        assert!(gone, "a marked key has no entry");
        if self.stored.remove(&name(key)).is_some() && self.sums.lost > 0 {
            self.check_losses_by_scan();
        }
        assert_eq!(epoch, self.raised(key));
    }

    fn mark_to_renew(&mut self, key: u16) {
        let Some(stored) = self.stored.get_mut(&name(key)) else {
            return;
        };
        let version = std::mem::take(&mut stored.version);
        let hidden = self.on_key(key, |part, key| part.mark_to_renew(key, version));
        let left = self.on_key(key, |part, key| part.peek(key).map(|entry| entry.header()));
        assert_eq!(left.map(|header| header.version), hidden.then_some(0));
        self.raised(key);
    }

    fn renew(&mut self, key: u16) {
        let epoch = self.on_key(key, |part, key| part.renew(key.hash));
        assert_eq!(epoch, self.raised(key));
    }

    fn expire(&mut self, partition: u8, slots: u16) {
        let now = self.now;
        let partition = u32::from(partition) & (self.memory.region.layout.partitions - 1);
        self.with(partition, |part| {
            part.sweep(&mut Cursor::default(), u32::from(slots), |entry| {
                match now >= entry.header().deadline {
                    true => Verdict::Remove(RemovalCause::Expired),
                    false => Verdict::Keep,
                }
            });
        });
    }

    fn clear_cache(&mut self, cache: u8) {
        let cache = u32::from(cache) % 3;
        for partition in 0..self.memory.region.layout.partitions {
            let mut cursor = Cursor::default();
            let judge = |entry: &crate::EntryRef| match entry.header().cache == cache {
                true => Verdict::Remove(RemovalCause::Invalidated),
                false => Verdict::Keep,
            };
            while !self
                .with(partition, |part| part.sweep(&mut cursor, 100, judge))
                .done
            {}
        }
        self.check_losses_by_scan();
        assert!(
            !self.stored.keys().any(|key| key.0 == cache),
            "the cache is empty"
        );
    }

    fn reclaim(&mut self, partition: u8, pages: u8) {
        let now = self.now;
        let mut grant = self.memory.region.grant();
        let partition = u32::from(partition) & (self.memory.region.layout.partitions - 1);
        self.with(partition, |part| {
            part.reclaim(u32::from(pages % 40), now, &mut grant)
        });
    }

    /// Returns the version, bytes and deadline of every entry in the store, by cache and key.
    fn present(&mut self) -> HashMap<(u32, Vec<u8>), (u64, i64, i64)> {
        let mut present = HashMap::new();
        for id in 0..self.memory.region.layout.partitions {
            self.with(id, |part| {
                part.scan(&mut Cursor::default(), u32::MAX, |entry| {
                    let header = entry.header();
                    let mut key = vec![0; header.key_len as usize];
                    entry.copy_key(&mut key);
                    let bytes = entry.allocation().granules() as i64 * 64;
                    let entry = (header.version, bytes, header.deadline);
                    present.insert((header.cache, key), entry).is_none()
                })
            });
        }
        present
    }

    /// Removes from the model the entries that the store has lost; every entry in the store must be in the model.
    fn check_losses_by_scan(&mut self) {
        let present = self.present();
        for (key, (version, _, _)) in &present {
            assert_eq!(
                Some(*version),
                self.stored.get(key).map(|stored| stored.version),
                "{key:?}"
            );
        }
        self.stored.retain(|key, _| present.contains_key(key));
        self.sums.lost = 0;
        for cache in 0..3 {
            let of_cache = || present.iter().filter(|entry| entry.0.0 == cache);
            let (count, bytes) =
                of_cache().fold((0, 0), |sum, entry| (sum.0 + 1, sum.1 + entry.1.1));
            let deadlines: i128 = of_cache().map(|entry| i128::from(entry.1.2)).sum();
            assert_eq!(
                self.sums.deadlines.get(&cache).copied().unwrap_or(0),
                deadlines,
                "deadlines of {cache}"
            );
            assert_eq!(
                self.sums.bytes.get(&cache).copied().unwrap_or(0),
                bytes,
                "bytes of {cache}"
            );
            assert_eq!(
                self.sums.entries.get(&cache).copied().unwrap_or(0),
                count,
                "entries"
            );
        }
    }

    fn check(&mut self) {
        let (before, lost) = (self.stored.len(), self.sums.lost);
        self.check_losses_by_scan();
        assert!(
            before - self.stored.len() <= lost,
            "more was lost than was reported"
        );
        self.memory.region.validate(self.grant.pages(), hash);
    }
}
