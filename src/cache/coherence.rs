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
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::Key as HotKey;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::{hot, slots};
use crate::error::Error;
use crate::pg::events::{self, Moment, Observer};
use crate::pg::memory;
use crate::pg::pause::{self, Window};
use crate::pg::tier::{Tier, tier};

/// Keys of one cache that a transaction remembers one by one; past that, the whole cache is marked.
const MAX_KEYS: usize = 10_000;

/// What the present transaction has done.
#[derive(Default)]
struct Transaction {
    /// Some table cache was written, or may have been.
    wrote: bool,
    keys: HashMap<u32, HashSet<Box<[u8]>>>,
    tables: HashMap<u32, Extent>,
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
    Key(u64),
    Cache(u32),
    /// A writer whose cache has no slot, because all are taken.
    Global,
}

thread_local! {
    static TRANSACTION: ManuallyDrop<RefCell<Transaction>> = ManuallyDrop::default();
}

/// Makes this module hear of changes; called when the library is loaded.
pub fn register() {
    events::observe(Observer {
        row: note_row,
        truncated: |relation| note_table(relation, Extent::Rows),
        altered: |relation| note_table(relation, Extent::Definition),
        created: |relation| with(|t| t.created.push(nested(relation))),
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

fn note_row(relation: Oid, key: &[u8]) {
    with(|transaction| {
        transaction.wrote = true;
        let Some(tier) = tier() else {
            return;
        };
        if transaction.marked {
            return transaction.mark_keys(tier, relation.to_u32(), [key].into_iter());
        }
        transaction.note_key(relation.to_u32(), key);
    });
}

fn note_table(relation: Oid, extent: Extent) {
    with(|transaction| {
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
    match moment {
        Moment::BeforePrepare if with(|t| t.touched_a_cache()) => {
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
        }
        Moment::Aborted => with(|t| t.end(false)),
        Moment::SubCommitted { level } => with(|t| t.raise(level)),
        Moment::SubAborted { level } => with(|t| t.forget(level)),
    }
}

impl Transaction {
    fn note_key(&mut self, relation: u32, key: &[u8]) {
        if self.tables.contains_key(&relation) {
            return;
        }
        let keys = self.keys.entry(relation).or_default();
        if !keys.contains(key) {
            if keys.try_reserve(1).is_err() {
                memory::exhausted(keys.len() * 2 * size_of::<Box<[u8]>>());
            }
            keys.insert(memory::copy(key).into_boxed_slice());
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

    fn mark(&mut self) {
        let Some(tier) = tier() else {
            return;
        };
        self.marked = true;
        for (relation, extent) in std::mem::take(&mut self.tables) {
            self.mark_table(tier, relation, extent);
        }
        for (relation, keys) in std::mem::take(&mut self.keys) {
            self.mark_keys(tier, relation, keys.iter().map(AsRef::as_ref));
        }
    }

    /// Definitions are noted of any relation, rows of caches only: a relation without a slot whose
    /// definition changes has no entries, and one that gets a slot later begins suspended.
    fn mark_table(&mut self, tier: &Tier, relation: u32, extent: Extent) {
        let owner = slots::owner_of(Oid::from_u32(relation));
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

    fn mark_keys<'k>(&mut self, tier: &Tier, relation: u32, keys: impl Iterator<Item = &'k [u8]>) {
        let owner = slots::owner_of(Oid::from_u32(relation));
        // The slot first: whoever gets one later finds the stripes or the global pair marked.
        let slot = self.slot_or_global(tier, owner);
        for bytes in keys {
            let key = HotKey {
                hash: hot::hash(tier, owner, bytes),
                cache: slot.unwrap_or(u32::MAX),
                bytes,
            };
            memory::push(&mut self.marks, Mark::Key(key.hash));
            tier.change(tier.region().partition_of(key.hash), |partition| {
                partition.mark(&key)
            });
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
            Mark::Key(hash) => {
                tier.change(tier.region().partition_of(hash), |partition| {
                    partition.unmark(hash)
                });
            }
            Mark::Cache(number) => {
                let slot = tier.slot(number);
                slot.version.store(tier.new_version(), SeqCst);
                slot.pend.fetch_sub(1, SeqCst);
            }
            Mark::Global => {
                tier.control().global_epoch.fetch_add(1, SeqCst);
                tier.control().global_pend.fetch_sub(1, SeqCst);
            }
        }
    }
}
