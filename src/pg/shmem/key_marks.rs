//! Marks on keys in shared memory: the hashes of the keys that a committing transaction has changed, until its
//! commit is visible.
//!
//! A hash covers database, relation and key, so a mark on one key affects no other key and no other cache, and needs
//! no slot. `cache::commit::changes` decides when marks are raised and lowered.
//!
//! Access rules:
//!
//! 1. The marks of partition `i` change only under lock `i` of the hot tier, held exclusively, together with the
//!    removal of the entry. A reader whose decision depends on a mark holds this lock, too.
//! 2. Each role has a limited share of a partition's places, counted by the exact role. If the share or the places are
//!    used up, the caller raises `pending_writers` of the whole cache instead. Then no session fills in a copy of any
//!    of its keys; copies that exist stay valid, because the cache's version is unchanged.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::role_counts::RoleCounts;

/// The part of the hot tier's bytes that the marks take: one in 128.
const PARTS: usize = 128;
/// The minimum number of places of a partition.
const LEAST: usize = 1024;
/// The number of places after each of a key's two homes in which its marks may be: two cache lines.
const REACH: usize = 16;
/// The share of a role: one in eight places. If four roles use up their shares, half of the places stay free. A
/// simulation of this state finds one home full for one key in 300, and both homes full for one key in 30,000.
const SHARES: usize = 8;
/// The word of a key whose own word is 0, because 0 means that a place is free.
const INSTEAD_OF_ZERO: u64 = 1;
/// A bit that is set in all words of a key when a caller requests a second mark while the first exists. In a hash this
/// bit only chooses the partition, so a word can use it.
const MET: u64 = 1 << 63;

#[repr(C, align(64))]
struct Head {
    raised: AtomicU32,
    by_role: RoleCounts,
}

/// The number of places of each partition.
#[derive(Clone, Copy)]
pub struct Shape {
    partitions: usize,
    each: usize,
}

impl Shape {
    /// Computes the shape for a tier of this size and number of partitions.
    pub fn of(size: usize, partitions: u32) -> Shape {
        let partitions = partitions as usize;
        let each = size / PARTS / size_of::<u64>() / partitions;
        Shape {
            partitions,
            each: each.next_power_of_two().max(LEAST),
        }
    }

    /// Bytes of shared memory that the marks take.
    pub fn bytes(self) -> usize {
        self.partitions * (size_of::<Head>() + self.each * size_of::<AtomicU64>())
    }
}

/// All marks of the server.
pub struct Marks {
    heads: &'static [Head],
    places: &'static [AtomicU64],
    each: usize,
}

impl Marks {
    /// # Safety
    /// `memory` is 64-byte aligned, zeroed before its first use, and holds `shape.bytes()`.
    pub unsafe fn attach(memory: *mut u8, shape: Shape) -> Marks {
        // SAFETY: both arrays lie one after the other in the memory; atomics of any bits are valid.
        unsafe {
            let places = memory.add(shape.partitions * size_of::<Head>());
            Marks {
                heads: std::slice::from_raw_parts(memory.cast(), shape.partitions),
                places: std::slice::from_raw_parts(places.cast(), shape.partitions * shape.each),
                each: shape.each,
            }
        }
    }

    /// Returns the marks of one partition. The caller follows access rule 1.
    #[inline]
    pub fn of(&self, partition: u32) -> Part<'_> {
        let from = partition as usize * self.each;
        Part {
            head: &self.heads[partition as usize],
            places: &self.places[from..from + self.each],
        }
    }

    /// Returns the number of marks. Reads without locks, for tests and monitoring.
    pub fn standing(&self) -> u64 {
        let raised = |head: &Head| u64::from(head.raised.load(Relaxed));
        self.heads.iter().map(raised).sum()
    }
}

/// The marks of a partition, under its lock.
pub struct Part<'m> {
    head: &'m Head,
    places: &'m [AtomicU64],
}

impl<'m> Part<'m> {
    /// Marks a hash. Returns false if no place is free or the role has used up its share.
    pub fn raise(&self, hash: u64, role: u32) -> bool {
        let met = match self.meet(hash) {
            true => MET,
            false => 0,
        };
        let Some(place) = self.near(hash).find(|place| place.load(Relaxed) == 0) else {
            return false;
        };
        if !self.head.by_role.take(role, self.places.len() / SHARES) {
            return false;
        }
        place.store(word(hash) | met, SeqCst);
        self.head
            .raised
            .store(self.head.raised.load(Relaxed) + 1, SeqCst);
        true
    }

    /// Removes one mark of a hash. Each transaction that marks the same key has its own mark.
    pub fn lower(&self, hash: u64, role: u32) {
        if let Some(place) = self.standing(hash).next() {
            place.store(0, SeqCst);
            self.head.by_role.give_back(role);
            let raised = self.head.raised.load(Relaxed);
            self.head.raised.store(raised.saturating_sub(1), SeqCst);
        }
    }

    /// Returns whether a mark exists on this hash.
    #[inline]
    pub fn stands(&self, hash: u64) -> bool {
        self.head.raised.load(SeqCst) > 0 && self.standing(hash).next().is_some()
    }

    /// Records that a caller requests another mark on a hash, so that its marks no longer count as alone. Returns
    /// whether the hash has any mark.
    pub fn meet(&self, hash: u64) -> bool {
        let mut any = false;
        if self.head.raised.load(Relaxed) == 0 {
            return any;
        }
        for place in self.standing(hash) {
            place.store(word(hash) | MET, SeqCst);
            any = true;
        }
        any
    }

    /// Returns whether a hash has a mark, and no caller requested a second mark while this mark existed. Marks of one
    /// hash cannot be distinguished, so none of several overlapping marks counts as alone, not even the last that is
    /// left.
    pub fn is_alone(&self, hash: u64) -> bool {
        let first = self.standing(hash).next();
        first.is_some_and(|place| place.load(SeqCst) & MET == 0)
    }

    fn standing(&self, hash: u64) -> impl Iterator<Item = &'m AtomicU64> {
        let wanted = word(hash);
        self.near(hash)
            .filter(move |place| place.load(SeqCst) & !MET == wanted)
    }

    /// Returns the places of both homes. Other bits of the hash choose the partition and the first bucket.
    fn near(&self, hash: u64) -> impl Iterator<Item = &'m AtomicU64> {
        let places = self.places;
        let homes = [(hash >> 8) as usize, (hash >> 36) as usize];
        homes.into_iter().flat_map(move |home| {
            (0..REACH).map(move |step| &places[home.wrapping_add(step) & (places.len() - 1)])
        })
    }
}

/// Returns the word that represents a hash within its partition.
fn word(hash: u64) -> u64 {
    (hash & !MET).max(INSTEAD_OF_ZERO)
}
