//! Marks, as they are undone: by the transaction that has set them, or, where that was prepared, by
//! whoever meets them once it is decided.
//!
//! Which changes are marked when, and how, is `cache::commit`. A prepared transaction's marks belong to
//! a record in shared memory (`pg::shmem::prepared`). They are lowered after COMMIT PREPARED and
//! ROLLBACK PREPARED, by PREPARE TRANSACTION, by the worker, and by those who would copy, lease or store
//! an entry: then these ask again, from the beginning. After a restart there are no records, and
//! [`super::unproven`] takes their place.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgcache_store::PartitionMut;

use super::{leases, load_token};
use crate::cache::tier::slots;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::marks::RoleNumber;
use crate::pg::shmem::prepared::{Item, Record};
use crate::pg::shmem::tier::{Tier, tier};

/// How often somebody who waits for others looks again, and for how long: one of them may be halted.
const LOOK: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_secs(10);

/// What is to be undone after the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `slot`: its cache's, or [`NO_SLOT`]; a record does not keep it, as nothing is undone there. `raised`: under
    /// whose number it is counted, or that something else keeps readers off.
    Key {
        hash: u64,
        slot: u32,
        voids_lease: bool,
        raised: Option<RoleNumber>,
    },
    /// The leases of a whole cache.
    Leases(CacheId),
    Cache(u32),
    /// A cache in which nothing is filled in, leased or stored meanwhile: unnamed keys of it are removed, or
    /// more than there is room for. Its copies stay, as each removed row's went by itself.
    Pending(u32),
    /// A transaction that has stored loaded values in a cache's table. Only of a prepared one, as the
    /// next ones: a session keeps its own elsewhere.
    Stores(CacheId),
    /// Entries are removed by the commit because their source changes.
    Outdated(CacheId),
    DroppedByCommit(CacheId),
    DroppedByAbort(CacheId),
    /// Rows of a table cache, told as all of them to who asks for its changes: their keys are in no record.
    Told(CacheId),
}

/// Of a key whose cache has no slot.
pub const NO_SLOT: u32 = u32::MAX;

/// How a transaction has ended, where that is known.
pub type Outcome = Option<bool>;

impl Mark {
    /// Undoes it. Raises no error, and allocates nothing.
    pub fn undo(&self, tier: &Tier, committed: Outcome) {
        match *self {
            Mark::Key { hash, .. } => {
                let number = tier.region().partition_of(hash);
                let voided = tier.change(number, |partition| self.undo_key(tier, partition));
                if voided {
                    leases::wake_waiting(tier, hash);
                }
            }
            Mark::Leases(cache) => leases::void_all(tier, cache),
            Mark::Cache(number) => {
                let slot = tier.slot(number);
                if !fault::on(Fault::CacheKeepsVersion) {
                    tier.renew_version(number);
                }
                slot.pending_writers.fetch_sub(1, SeqCst);
            }
            Mark::Pending(number) => {
                tier.slot(number).pending_writers.fetch_sub(1, SeqCst);
            }
            Mark::Stores(cache) => tier.stores(cache).end(),
            Mark::Outdated(cache) if committed != Some(false) => {
                load_token::note_removal(tier, cache);
            }
            Mark::DroppedByCommit(cache) if committed != Some(false) => slots::free(tier, cache),
            Mark::DroppedByAbort(cache) if committed != Some(true) => slots::free(tier, cache),
            Mark::Told(cache)
                if committed != Some(false)
                    && tier.is_tracked()
                    && !fault::on(Fault::RecordTellsNothing) =>
            {
                if let Some(slot) = slots::find(tier, cache) {
                    tier.tell_rows(slot);
                }
            }
            Mark::Outdated(_)
            | Mark::DroppedByCommit(_)
            | Mark::DroppedByAbort(_)
            | Mark::Told(_) => {}
        }
    }

    /// Undoes the mark of a key under its partition's lock; returns whether a lease was voided.
    pub fn undo_key(&self, tier: &Tier, partition: &mut PartitionMut) -> bool {
        let Mark::Key {
            hash,
            voids_lease,
            raised,
            ..
        } = *self
        else {
            return false;
        };
        partition.renew(hash);
        if let Some(role) = raised {
            let number = tier.region().partition_of(hash);
            tier.marks().of(number).lower(hash, role);
        }
        voids_lease && leases::void(tier, hash)
    }

    /// The mark as a record keeps it.
    pub fn item(&self) -> Item {
        let (kind, number, value) = match *self {
            Mark::Key {
                hash,
                voids_lease,
                raised,
                ..
            } => {
                let role = raised.map_or(0, |role| role.number() << 2 | 2);
                (0, role | u32::from(voids_lease), hash)
            }
            Mark::Leases(cache) => (1, 0, cache.bits()),
            Mark::Cache(number) => (2, number, 0),
            Mark::Pending(number) => (3, number, 0),
            Mark::Stores(cache) => (4, 0, cache.bits()),
            Mark::Outdated(cache) => (5, 0, cache.bits()),
            Mark::DroppedByCommit(cache) => (6, 0, cache.bits()),
            Mark::DroppedByAbort(cache) => (7, 0, cache.bits()),
            Mark::Told(cache) => (8, 0, cache.bits()),
        };
        Item {
            kind,
            number,
            value,
        }
    }

    fn of(item: Item) -> Option<Mark> {
        let Item {
            kind,
            number,
            value,
        } = item;
        let cache = CacheId::from_bits(value);
        Some(match kind {
            0 => Mark::Key {
                hash: value,
                slot: NO_SLOT,
                voids_lease: number & 1 != 0,
                raised: (number & 2 != 0).then(|| RoleNumber::of(number >> 2)),
            },
            1 => Mark::Leases(cache),
            2 => Mark::Cache(number),
            3 => Mark::Pending(number),
            4 => Mark::Stores(cache),
            5 => Mark::Outdated(cache),
            6 => Mark::DroppedByCommit(cache),
            7 => Mark::DroppedByAbort(cache),
            8 => Mark::Told(cache),
            _ => return None,
        })
    }
}

/// Undoes the marks of a record, unless somebody else does or has.
pub fn lower(tier: &Tier, record: Record, committed: impl FnOnce() -> Outcome) -> bool {
    // Half of a record would be undone by nobody else.
    session::uninterrupted(|| {
        let records = tier.prepared();
        let committed = committed();
        let taken = records.take(record);
        if taken {
            while let Some(item) = records.pop(record) {
                if let Some(mark) = Mark::of(item) {
                    mark.undo(tier, committed);
                }
            }
            records.free(record);
        }
        taken
    })
}

/// Waits until nobody is lowering a record any more: what they tell is told before COMMIT PREPARED
/// returns. They wait for nothing, so it is a matter of microseconds. Not to be cancelled: the commit
/// stands.
pub fn wait_for_others() {
    let Some(tier) = tier() else {
        return;
    };
    let began = Instant::now();
    while tier.prepared().any_taken() && began.elapsed() < LONGEST {
        sleep(LOOK);
    }
}

/// Undoes the marks of all prepared transactions that are decided; whether there were any. Under no
/// lightweight lock. Whoever goes on from here takes a new token, and then a new snapshot.
pub fn lower_decided() -> bool {
    let Some(tier) = tier() else {
        return false;
    };
    if !tier.prepared().any()
        || !transaction::can_ask_for_decided()
        || fault::on(Fault::RecordNotLowered)
    {
        return false;
    }
    let decided = transaction::Decided::ask();
    let mut lowered = false;
    for record in tier.prepared().standing() {
        if decided.is(record.xid) {
            lowered |= lower(tier, record, || transaction::outcome(record.xid));
        }
    }
    lowered
}
