//! What a transaction has changed, and how the hot tier learns of it: mark before the commit, unmark
//! after it. ARCHITECTURE.md, "Coherence", says why this is enough.
//!
//! - **Record**: every changed row's key goes to `keys`, every table that changed as a whole to
//!   `tables`, before the statement ends.
//! - **Mark** (before commit): the entries go, `pend` and `ver` of their stripes rise; of a whole cache
//!   `pend` rises and the version changes. From here on nobody fills an old row in.
//! - **Unmark** (after commit or abort): `ver` rises again, `pend` falls; of a cache the version
//!   changes before `pend` falls.
//!
//! Nothing here can fail between mark and unmark: it takes locks of the tier, one at a time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Key as HotKey, Why};
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::sweeping::Sweeping;
use super::{depend, hot, leases, slots, walk, watch};
use crate::error::Error;
use crate::pg::events::{self, Moment, Observer};
use crate::pg::memory;
use crate::pg::pause::{self, Window};
use crate::pg::tier::{Tier, tier};
use crate::pg::transaction;

/// Keys of one cache that a transaction remembers one by one; past that, the whole cache is marked.
const MAX_KEYS: usize = 10_000;

/// What the present transaction has done.
#[derive(Default)]
struct Transaction {
    /// Some table cache was written, or may have been.
    wrote: bool,
    /// Relations were made, altered or truncated: there may be files that an abort removes.
    new_files: bool,
    /// By relation; for each key whether its lease is voided, which expiry does not do.
    keys: HashMap<u32, HashMap<Box<[u8]>, bool>>,
    tables: HashMap<u32, Extent>,
    /// Caches all of whose leases are voided.
    removals: Vec<u64>,
    created: Vec<Nested>,
    dropped: Vec<Nested>,
    databases: Vec<Oid>,
    marks: Vec<Mark>,
    /// Marks were made: what is recorded from now on is marked at once.
    marked: bool,
}

/// How a table changed as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Its rows.
    Rows,
    /// Its definition or triggers: nothing may be filled until somebody has verified them.
    Definition,
}

/// A relation and the savepoint level at which something happened to it.
#[derive(Clone, Copy)]
struct Nested {
    relation: u32,
    level: i32,
}

/// Something to undo after the end of the transaction.
enum Mark {
    Key {
        hash: u64,
        voids: bool,
    },
    /// The leases of a whole cache, by its owner.
    Leases(u64),
    Cache(u32),
    /// A key of a memory cache that nobody may store.
    Fence(u64),
    /// A memory cache in which nobody may store anything.
    FencedCache(u32),
    /// A writer whose cache has no slot, because all are taken.
    Global,
}

thread_local! {
    static TRANSACTION: ManuallyDrop<RefCell<Transaction>> = ManuallyDrop::default();
}

/// Makes this module hear of changes; called when the library is loaded.
pub fn register() {
    events::observe(Observer {
        row: |relation, key, change| {
            watch::note(relation, key, change);
            note_key(relation, key);
        },
        truncated: |relation| {
            watch::note_clear(relation);
            note_table(relation, Extent::Rows);
        },
        depended_on: depend::note,
        depended_on_all: depend::note_all,
        altered: |relation| note_table(relation, Extent::Definition),
        created: |relation| {
            with(|t| {
                t.new_files = true;
                t.created.push(nested(relation));
            });
        },
        dropped: |relation| {
            with(|t| t.dropped.push(nested(relation)));
            note_table(relation, Extent::Definition);
        },
        database_dropped: |database| with(|t| t.databases.push(database)),
        transaction: at_moment,
    });
}

fn with<R>(use_it: impl FnOnce(&mut Transaction) -> R) -> R {
    TRANSACTION.with(|transaction| use_it(&mut transaction.borrow_mut()))
}

fn nested(relation: Oid) -> Nested {
    Nested {
        relation: relation.to_u32(),
        level: events::nesting_level(),
    }
}

/// Notes that the row of a key has changed, or was to be removed and is not there, or will have been worth
/// nothing when we commit.
pub fn note_key(relation: Oid, key: &[u8]) {
    with(|transaction| {
        transaction.wrote = true;
        let Some(tier) = tier() else {
            return;
        };
        if transaction.marked {
            let voids = !Sweeping::is_on();
            return transaction.mark_keys(tier, relation.to_u32(), [(key, voids)].into_iter());
        }
        transaction.note_key(relation.to_u32(), key);
    });
}

/// Notes that many rows of a cache are removed, and which is not known one by one: its leases are void.
pub fn note_removal(relation: Oid) {
    with(|transaction| {
        transaction.removals.push(slots::owner_of(relation));
    });
}

/// Removes entries of a memory cache and keeps them from being stored until the transaction has ended.
pub fn fence<'k>(tier: &Tier, slot: u32, owner: u64, keys: impl Iterator<Item = &'k [u8]>) {
    with(|transaction| {
        let mut all_fenced = false;
        for bytes in keys {
            let key = HotKey {
                hash: hot::hash(tier, owner, bytes),
                cache: slot,
                bytes,
            };
            // The fence first: what is stored before it stands is removed after it.
            if !all_fenced && tier.control().fences.raise(key.hash) {
                transaction.marks.push(Mark::Fence(key.hash));
            } else if !all_fenced {
                all_fenced = true;
                transaction.fence_cache(tier, slot);
            }
            transaction.mark_key(tier, &key, true);
        }
    });
}

/// The same for all entries of a memory cache.
pub fn fence_all(tier: &Tier, slot: u32, owner: u64) {
    with(|transaction| {
        transaction.fence_cache(tier, slot);
        transaction.void_all(tier, owner);
    });
    tier.slot(slot).version.store(tier.new_version(), SeqCst);
    let version = tier.slot(slot).version.load(SeqCst);
    walk::remove_entries(tier, slot, Why::Invalidated, |entry| {
        entry.header().version < version
    });
}

fn note_table(relation: Oid, extent: Extent) {
    with(|transaction| {
        transaction.new_files = true;
        transaction.wrote |= extent == Extent::Rows;
        let Some(tier) = tier() else {
            return;
        };
        if transaction.marked {
            return transaction.mark_table(tier, relation.to_u32(), extent);
        }
        transaction.note_extent(relation.to_u32(), extent);
    });
}

fn at_moment(moment: Moment) {
    if moment == Moment::BeforeCommit {
        depend::at_commit();
        watch::at_commit();
    }
    depend::at_moment(moment);
    watch::at_moment(moment);
    match moment {
        Moment::BeforePrepare if depend::has_noted() || with(|t| t.touched_a_cache()) => {
            ErrorReport::from(Error::PreparedWrite).report(PgLogLevel::ERROR);
        }
        Moment::BeforePrepare => {}
        Moment::BeforeCommit => {
            with(Transaction::mark);
            pause::at(Window::MarkToVisible);
        }
        Moment::Committed => {
            pause::at(Window::VisibleToUnmark);
            with(|t| t.end(true));
            leases::end(true);
        }
        Moment::Aborted => {
            let new_files = with(|t| {
                let new_files = t.new_files;
                t.end(false);
                new_files
            });
            leases::end(false);
            flush_abort_of(new_files);
        }
        Moment::SubCommitted { level } => {
            with(|t| t.raise(level));
            leases::raise(level);
        }
        Moment::SubAborted { level } => {
            with(|t| t.forget(level));
            leases::forget(level);
            flush_abort_of(with(|t| t.new_files));
        }
    }
}

/// Here the abort is recorded, and the files are still there.
fn flush_abort_of(new_files: bool) {
    if new_files {
        transaction::flush_abort();
    }
}

impl Transaction {
    fn note_key(&mut self, relation: u32, key: &[u8]) {
        if self.tables.contains_key(&relation) {
            return;
        }
        let keys = self.keys.entry(relation).or_default();
        let voids = !Sweeping::is_on();
        match keys.get_mut(key) {
            Some(known) => *known |= voids,
            None => {
                if keys.try_reserve(1).is_err() {
                    memory::exhausted(keys.len() * 2 * size_of::<Box<[u8]>>());
                }
                keys.insert(memory::copy(key).into_boxed_slice(), voids);
            }
        }
        if keys.len() > MAX_KEYS {
            self.note_extent(relation, Extent::Rows);
        }
    }

    /// Whether the transaction changed something that the tier knows of, or a cache's rows. Definitions
    /// of other relations may change in a transaction that is prepared.
    fn touched_a_cache(&self) -> bool {
        let has_slot = |&relation: &u32| {
            tier().is_some_and(|tier| {
                slots::find(tier, slots::owner_of(Oid::from_u32(relation))).is_some()
            })
        };
        self.wrote || self.tables.keys().any(has_slot)
    }

    fn note_extent(&mut self, relation: u32, extent: Extent) {
        self.keys.remove(&relation);
        let known = self.tables.entry(relation).or_insert(extent);
        if extent == Extent::Definition {
            *known = extent;
        }
    }

    fn fence_cache(&mut self, tier: &Tier, slot: u32) {
        self.marks.push(Mark::FencedCache(slot));
        tier.slot(slot).pend.fetch_add(1, SeqCst);
    }

    fn mark(&mut self) {
        let Some(tier) = tier() else {
            return;
        };
        self.marked = true;
        for owner in std::mem::take(&mut self.removals) {
            self.void_all(tier, owner);
        }
        for (relation, extent) in std::mem::take(&mut self.tables) {
            self.mark_table(tier, relation, extent);
        }
        for (relation, keys) in std::mem::take(&mut self.keys) {
            let keys = keys.iter().map(|(key, &voids)| (key.as_ref(), voids));
            self.mark_keys(tier, relation, keys);
        }
    }

    /// Leases of the whole cache are void now, and those that begin before the commit is visible after it.
    fn void_all(&mut self, tier: &Tier, owner: u64) {
        self.marks.push(Mark::Leases(owner));
        leases::void_all(tier, owner);
    }

    /// Definitions are noted of any relation, rows of caches only: a relation without a slot whose
    /// definition changes has no entries, and one that gets a slot later begins suspended.
    fn mark_table(&mut self, tier: &Tier, relation: u32, extent: Extent) {
        let owner = slots::owner_of(Oid::from_u32(relation));
        self.void_all(tier, owner);
        let slot = match extent {
            Extent::Rows => self.slot_or_global(tier, owner),
            Extent::Definition => slots::find(tier, owner),
        };
        let Some(number) = slot else {
            return;
        };
        let slot = tier.slot(number);
        if slot.memory.load(SeqCst) != 0 {
            return; // its entries do not come from a table
        }
        self.marks.push(Mark::Cache(number));
        slot.pend.fetch_add(1, SeqCst);
        if extent == Extent::Definition {
            slot.suspended.store(1, SeqCst);
        }
        slot.version.store(tier.new_version(), SeqCst);
    }

    fn mark_keys<'k>(
        &mut self,
        tier: &Tier,
        relation: u32,
        keys: impl Iterator<Item = (&'k [u8], bool)>,
    ) {
        let owner = slots::owner_of(Oid::from_u32(relation));
        // The slot first: whoever gets one later finds the stripes or the global pair marked.
        let slot = self.slot_or_global(tier, owner);
        for (bytes, voids) in keys {
            let key = HotKey {
                hash: hot::hash(tier, owner, bytes),
                cache: slot.unwrap_or(u32::MAX),
                bytes,
            };
            self.mark_key(tier, &key, voids);
        }
    }

    fn mark_key(&mut self, tier: &Tier, key: &HotKey, voids: bool) {
        let hash = key.hash;
        memory::push(&mut self.marks, Mark::Key { hash, voids });
        let voided = tier.change(tier.region().partition_of(hash), |partition| {
            partition.mark(key);
            voids && leases::void(tier, hash)
        });
        if voided {
            leases::wake_waiting(tier, hash);
        }
    }

    /// The slot of a cache that was written; without a free one, the global pair is marked instead.
    fn slot_or_global(&mut self, tier: &Tier, owner: u64) -> Option<u32> {
        slots::assign_or(tier, owner, || {
            tier.control().global_pend.fetch_add(1, SeqCst);
            tier.control().global_epoch.fetch_add(1, SeqCst);
            self.marks.push(Mark::Global);
        })
    }

    fn end(&mut self, committed: bool) {
        let ended = std::mem::take(self);
        let Some(tier) = tier() else {
            return;
        };
        for mark in &ended.marks {
            mark.undo(tier);
        }
        let gone = if committed {
            ended.dropped
        } else {
            ended.created
        };
        for Nested { relation, .. } in gone {
            slots::free(tier, slots::owner_of(Oid::from_u32(relation)));
        }
        if committed {
            for database in ended.databases {
                slots::free_database(tier, database);
            }
        }
    }

    /// A savepoint was released.
    fn raise(&mut self, level: i32) {
        for nested in self.created.iter_mut().chain(&mut self.dropped) {
            nested.level = nested.level.min(level - 1);
        }
    }

    /// A savepoint was rolled back. Keys stay: marking too much costs a miss, too little the truth.
    fn forget(&mut self, level: i32) {
        self.dropped.retain(|nested| nested.level < level);
        self.created.retain(|nested| {
            let stays = nested.level < level;
            if let (false, Some(tier)) = (stays, tier()) {
                slots::free(tier, slots::owner_of(Oid::from_u32(nested.relation)));
            }
            stays
        });
    }
}

impl Mark {
    fn undo(&self, tier: &Tier) {
        match *self {
            Mark::Key { hash, voids } => {
                let voided = tier.change(tier.region().partition_of(hash), |partition| {
                    partition.unmark(hash);
                    voids && leases::void(tier, hash)
                });
                if voided {
                    leases::wake_waiting(tier, hash);
                }
            }
            Mark::Leases(owner) => leases::void_all(tier, owner),
            Mark::Cache(number) => {
                let slot = tier.slot(number);
                slot.version.store(tier.new_version(), SeqCst);
                slot.pend.fetch_sub(1, SeqCst);
            }
            Mark::Fence(hash) => tier.control().fences.lower(hash),
            Mark::FencedCache(number) => {
                tier.slot(number).pend.fetch_sub(1, SeqCst);
            }
            Mark::Global => {
                tier.control().global_epoch.fetch_add(1, SeqCst);
                tier.control().global_pend.fetch_sub(1, SeqCst);
            }
        }
    }
}
