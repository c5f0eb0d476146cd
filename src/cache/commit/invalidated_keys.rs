//! Sends a transaction's changes to Redis clients that track entries of table caches (CLIENT TRACKING).
//!
//! The rules, which the model `tracking` in `crates/coherence` checks:
//!
//! - Keys are invalidated after the commit is visible. Otherwise a client that reads the key before the commit would
//!   keep the old row. They are invalidated before the marks are undone, and so before a copy of the new row exists,
//!   and before COMMIT returns.
//! - Whether any client tracks keys is checked when the keys are invalidated, not when a row is written: a client that
//!   starts tracking later reads the committed row.
//! - Rolled-back changes are not sent. A change under a savepoint does not count until the savepoint is released.
//!   Savepoints are recorded only while a client tracks keys; otherwise every marked key counts as final. A client that
//!   starts tracking before the commit may get too many invalidations, never too few.

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

/// The largest number of keys of one cache that a transaction remembers one by one. With more keys it marks the whole
/// cache.
pub(super) const MAX_KEYS: usize = 10_000;
/// The largest number of keys that are invalidated one by one. With more keys the whole cache is invalidated, because
/// the ring has room for about ten thousand keys.
const MOST_KEYS: usize = 1000;
/// The largest number of remembered changes under an open savepoint. Further changes count as final at once.
const MOST_OPEN: usize = 10_000;
/// The interval between two checks of a reader that waits for other transactions to notify clients.
const LOOK: Duration = Duration::from_micros(20);
/// The longest wait for other transactions to notify clients. The wait is limited because a process that notifies may
/// be halted.
const LONGEST: Duration = Duration::from_secs(1);
/// The nesting level outside any savepoint.
const OUTERMOST: i32 = 1;

/// How a key is to be marked.
#[derive(Clone, Copy)]
pub struct Note {
    /// Whether the change voids a lease on the key; an expiry does not.
    pub voids_lease: bool,
    /// True once no savepoint can roll the change back.
    pub stands: bool,
    /// The client that made the change; 0 if no client or several clients did.
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

/// A change that a savepoint may roll back: of a key, or of a whole cache.
pub type Change = (u32, Option<Box<[u8]>>);

/// Changes under open savepoints.
#[derive(Default)]
pub struct Open(Savepoints<Vec<Change>>);

impl Open {
    /// Returns whether a change that is noted now is final. If it is not, remembers the change.
    #[inline]
    pub fn stands(&mut self, tier: &Tier, relation: u32, key: Option<&[u8]>) -> bool {
        !tier.is_tracked()
            || fault::on(Fault::SavepointInvalidates)
            || self.is_outermost(relation, key)
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

    /// Merges a released savepoint into its parent, and returns the changes that are now final.
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

    /// Drops the changes of a savepoint that was rolled back.
    pub fn roll_back(&mut self, level: i32) {
        drop(self.0.roll_back(level));
    }
}

/// Sends the invalidations of a table cache's keys to tracking clients. Allocates nothing and raises no error.
pub fn record_keys(tier: &Tier, relation: u32, notes: &Notes) {
    let Some(slot) = slot_of(tier, relation) else {
        return;
    };
    let standing = || notes.iter().filter(|(_, note)| note.stands);
    if notes.len() > MOST_KEYS && standing().count() > MOST_KEYS {
        return tier.record_rows(slot);
    }
    for (key, note) in standing() {
        tier.record_row(slot, key, note.author);
    }
}

/// Sends the invalidation of a whole table cache to tracking clients.
pub fn record_cache(tier: &Tier, relation: u32) {
    if let Some(slot) = slot_of(tier, relation) {
        tier.record_rows(slot);
    }
}

/// Waits until every committed transaction that this transaction may have read from has notified clients, because a
/// reply must not reach a client before the invalidations. Called at the end of a transaction that has read. The wait
/// takes microseconds, because the other transactions are already committed.
pub fn wait_for_visible() {
    let Some(tier) = tier().filter(|tier| tier.is_tracked() && !fault::on(Fault::BackDoesNotWait))
    else {
        return;
    };
    if undo_marks::lower_decided() || tier.prepared().any() {
        undo_marks::wait_for_others();
    }
    let pending_invalidations = &tier.control().pending_invalidations;
    if !pending_invalidations.any() {
        return;
    }
    let decided = Decided::now();
    let began = Instant::now();
    for announced in pending_invalidations
        .all()
        .filter(|announced| decided.is(announced.xid))
    {
        while pending_invalidations.stands(announced) && began.elapsed() < LONGEST {
            sleep(LOOK);
        }
    }
}

/// Finds the slot of a cache. The slot is looked up after the commit, because the cache may have had no slot when it
/// was marked, and a reader may have assigned one later.
fn slot_of(tier: &Tier, relation: u32) -> Option<u32> {
    slots::find(tier, CacheId::of(Oid::from_u32(relation)))
}
