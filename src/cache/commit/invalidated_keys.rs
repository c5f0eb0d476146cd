//! What of a transaction's changes is told to clients of the Redis protocol that keep entries of table
//! caches (CLIENT TRACKING).
//!
//! Guards, as the model in `crates/coherence` (`tracking`) has it:
//!
//! - Told is after the commit is visible: who reads in between would keep the old row. And it is told
//!   before marks are undone, so before there is a copy of the new row, and before COMMIT returns.
//! - Whether anybody asks is looked at then, not when a row is written: who begins to ask later reads
//!   what is visible.
//! - Of what was rolled back nothing is told. What was noted under a savepoint does not stand until that
//!   is released. This is kept while somebody asks; else all that is marked stands, which tells too much
//!   to who begins to ask before the commit, and never too little.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::cache::lease::undo_marks;
use crate::cache::model::savepoints::Savepoints;
use crate::cache::tier::slots;
use crate::pg::events;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction::Decided;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::ring;
use crate::pg::shmem::tier::{Tier, tier};

/// Keys of one cache that a transaction remembers one by one; past that, the whole cache is marked.
pub(super) const MAX_KEYS: usize = 10_000;
/// More keys of a cache are told as all of it: the ring has room for some ten thousand.
const MOST_KEYS: usize = 1000;
/// So many changes under open savepoints are remembered; what comes beyond stands at once.
const MOST_OPEN: usize = 10_000;
/// How often a reader looks whether others have told, and for how long: one of them may be halted.
const LOOK: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_secs(1);
/// The nesting level outside of any savepoint.
const OUTERMOST: i32 = 1;

/// What is remembered of a key that is to be marked.
#[derive(Clone, Copy)]
pub struct Note {
    /// Expiry does not.
    pub voids_lease: bool,
    /// No savepoint can take it back.
    pub stands: bool,
    /// The client whose doing it is, or 0.
    author: u64,
}

impl Note {
    pub fn new(voids_lease: bool, stands: bool) -> Note {
        Note {
            voids_lease,
            stands,
            author: ring::author(),
        }
    }

    pub fn join(&mut self, later: Note) {
        self.voids_lease |= later.voids_lease;
        self.stands |= later.stands;
        if self.author != later.author {
            self.author = 0;
        }
    }
}

/// The keys of a cache that are to be marked.
pub type Notes = HashMap<Box<[u8]>, Note>;

/// A change that a savepoint may take back: of a key, or of all of a cache.
pub type Change = (u32, Option<Box<[u8]>>);

/// Changes under savepoints that are open.
#[derive(Default)]
pub struct Open(Savepoints<Vec<Change>>);

impl Open {
    /// Whether a change that is noted now stands. Where it does not it is remembered.
    #[inline]
    pub fn stands(&mut self, tier: &Tier, relation: u32, key: Option<&[u8]>) -> bool {
        !tier.is_tracked() || fault::on(Fault::SavepointTold) || self.is_outermost(relation, key)
    }

    #[cold]
    fn is_outermost(&mut self, relation: u32, key: Option<&[u8]>) -> bool {
        let level = events::nesting_level();
        if level <= OUTERMOST {
            return true;
        }
        let changes = self.0.at(level);
        if changes.len() >= MOST_OPEN {
            return true;
        }
        let key = key.map(|key| memory::copy(key).into_boxed_slice());
        memory::push(changes, (relation, key));
        false
    }

    /// The savepoint of this level was released: what stands by that.
    pub fn release(&mut self, level: i32) -> Vec<Change> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.0.release(level);
        match level - 1 <= OUTERMOST {
            true => std::mem::take(&mut self.0).into_one(),
            false => Vec::new(),
        }
    }

    /// The savepoint of this level was rolled back.
    pub fn roll_back(&mut self, level: i32) {
        drop(self.0.roll_back(level));
    }
}

/// Tells of keys of a table cache. Allocates nothing, raises nothing.
pub fn tell_keys(tier: &Tier, relation: u32, notes: &Notes) {
    let Some(slot) = slot_of(tier, relation) else {
        return;
    };
    let standing = || notes.iter().filter(|(_, note)| note.stands);
    if notes.len() > MOST_KEYS && standing().count() > MOST_KEYS {
        return tier.tell_rows(slot);
    }
    for (key, note) in standing() {
        tier.tell_row(slot, key, note.author);
    }
}

/// Tells that any row of a table cache may have changed.
pub fn tell_cache(tier: &Tier, relation: u32) {
    if let Some(slot) = slot_of(tier, relation) {
        tier.tell_rows(slot);
    }
}

/// Waits until whoever has committed what this transaction may have read has told of it: a reply must not
/// come before that. At the end of a transaction that has read; takes microseconds, as it waits for no commit.
pub fn wait_for_visible() {
    let Some(tier) = tier().filter(|tier| tier.is_tracked() && !fault::on(Fault::BackDoesNotWait))
    else {
        return;
    };
    if undo_marks::lower_decided() || tier.prepared().any() {
        undo_marks::wait_for_others();
    }
    let telling = &tier.control().telling;
    if !telling.any() {
        return;
    }
    let decided = Decided::ask();
    let began = Instant::now();
    for announced in telling.all().filter(|announced| decided.is(announced.xid)) {
        while telling.stands(announced) && began.elapsed() < LONGEST {
            sleep(LOOK);
        }
    }
}

/// Looked for now: a reader may have given the cache its slot since it was marked without one.
fn slot_of(tier: &Tier, relation: u32) -> Option<u32> {
    slots::find(tier, CacheId::of(Oid::from_u32(relation)))
}
