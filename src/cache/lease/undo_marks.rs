//! Undoes marks. The transaction that set the marks undoes them itself; if it was prepared, the first session that
//! finds the marks after its decision does so.
//!
//! `cache::commit` decides which changes are marked, when and how. The marks of a prepared transaction are in a record
//! in shared memory (`pg::shmem::prepared`). A record is lowered after COMMIT PREPARED and ROLLBACK PREPARED, by
//! PREPARE TRANSACTION, by the worker, and by a session that wants to copy, lease or store an entry, which then starts
//! over. A restart loses the records; [`super::unverified_after_restart`] replaces them.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgcache_store::PartitionMut;

use crate::cache::lease::{leases, load_token};
use crate::cache::tier::slots;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::prepared::{Item, Record};
use crate::pg::shmem::tier::{Tier, tier};

/// The interval between two checks of a session that waits for other sessions to lower records.
const LOOK: Duration = Duration::from_micros(50);
/// The longest wait for other sessions to lower records. The wait is limited because a session that lowers a record may
/// be halted.
const LONGEST: Duration = Duration::from_secs(10);

/// One step to undo after the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A marked key. `slot` is the slot of its cache, or [`NO_SLOT`]. A record omits the slot, because undoing does not
    /// need it. `raised` is the role for which the mark is counted. None means that another mark keeps readers off
    /// instead.
    Key {
        hash: u64,
        slot: u32,
        voids_lease: bool,
        raised: Option<u32>,
    },
    /// The leases of a whole cache.
    Leases(CacheId),
    Cache(u32),
    /// A cache in which nothing is filled in, leased or stored while the mark is set, because the transaction removes
    /// rows with unknown keys, or more keys than fit. The cache's copies stay, because each removed row removes its own
    /// copy.
    Pending(u32),
    /// A cache in whose table the transaction has stored loaded values. This variant and the variants below are used
    /// only for a prepared transaction; a session keeps its own stores in `held`.
    Stores(CacheId),
    /// A cache whose entries the commit removes because their source changes.
    Outdated(CacheId),
    DroppedByCommit(CacheId),
    DroppedByAbort(CacheId),
    /// A table cache whose rows changed. Tracking clients are notified as if all rows had changed, because the record
    /// contains no keys.
    Invalidated(CacheId),
}

/// The slot in the mark of a key whose cache has no slot.
pub const NO_SLOT: u32 = u32::MAX;

/// The outcome of a transaction: true if it committed, false if it rolled back, None if the outcome is unknown.
pub type Outcome = Option<bool>;

impl Mark {
    /// Undoes the mark. Raises no error, and allocates nothing.
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
            Mark::Invalidated(cache)
                if committed != Some(false)
                    && tier.is_tracked()
                    && !fault::on(Fault::RecordInvalidatesNothing) =>
            {
                if let Some(slot) = slots::find(tier, cache) {
                    tier.record_rows(slot);
                }
            }
            Mark::Outdated(_)
            | Mark::DroppedByCommit(_)
            | Mark::DroppedByAbort(_)
            | Mark::Invalidated(_) => {}
        }
    }

    /// Undoes the mark of a key under its partition's lock. Returns whether a lease was voided.
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
        let marks = tier.marks().of(tier.region().partition_of(hash));
        match raised {
            Some(role) => marks.lower(hash, role),
            // A concurrent set that has marked the key must publish nothing, so note the overlap of the two marks.
            None => drop(marks.meet(hash)),
        }
        voids_lease && leases::void(tier, hash)
    }

    /// Returns the mark as an item of a record.
    pub fn item(&self, tier: &Tier) -> Item {
        let of_cache = |part: u32, number: u32, cache: Option<CacheId>| Item {
            kind: WHOLE | 1 << (part + FLAGS),
            number,
            value: cache.map_or(0, CacheId::bits),
        };
        let of_slot = |part, number| of_cache(part, number, tier.cache_of(number).load(SeqCst));
        match *self {
            Mark::Key {
                hash,
                voids_lease,
                raised,
                ..
            } => Item {
                kind: KEY
                    | u32::from(voids_lease) << FLAGS
                    | u32::from(raised.is_some()) << (FLAGS + 1),
                number: raised.unwrap_or(0),
                value: hash,
            },
            Mark::Invalidated(cache) => of_cache(0, NO_SLOT, Some(cache)),
            Mark::Outdated(cache) => of_cache(1, NO_SLOT, Some(cache)),
            Mark::Leases(cache) => of_cache(2, NO_SLOT, Some(cache)),
            Mark::Cache(number) => of_slot(3, number),
            Mark::Pending(number) => of_slot(4, number),
            Mark::Stores(cache) => of_cache(5, NO_SLOT, Some(cache)),
            Mark::DroppedByCommit(cache) => of_cache(6, NO_SLOT, Some(cache)),
            Mark::DroppedByAbort(cache) => of_cache(7, NO_SLOT, Some(cache)),
        }
    }

    /// Returns the marks of an item in the order in which they must be undone: clients are notified first, leases are
    /// voided before the cache may be filled again, and the slot is freed last.
    fn all_of(item: Item) -> impl Iterator<Item = Mark> {
        let (number, cache) = (item.number, CacheId::from_bits(item.value));
        let flag = move |flag: u32| item.kind & 1 << (flag + FLAGS) != 0;
        let is_key = item.kind & ((1 << FLAGS) - 1) == KEY;
        let key = is_key.then(|| Mark::Key {
            hash: item.value,
            slot: NO_SLOT,
            voids_lease: flag(0),
            raised: flag(1).then_some(number),
        });
        let parts = [
            Mark::Invalidated(cache),
            Mark::Outdated(cache),
            Mark::Leases(cache),
            Mark::Cache(number),
            Mark::Pending(number),
            Mark::Stores(cache),
            Mark::DroppedByCommit(cache),
            Mark::DroppedByAbort(cache),
        ];
        let parts = (0..).zip(parts).filter(move |(part, _)| flag(*part));
        let parts = parts.map(|(_, mark)| mark);
        key.into_iter().chain(parts.filter(move |_| !is_key))
    }
}

/// An item of this kind is the mark of a key.
const KEY: u32 = 1;
/// An item of this kind is the marks of a whole cache.
const WHOLE: u32 = 2;
const FLAGS: u32 = 8;

/// Joins two items of the same cache into one. Returns None if they do not fit into one item.
pub fn joined(known: Item, item: Item) -> Option<Item> {
    let number = match (known.number, item.number) {
        (one, two) if one == two => one,
        (one, NO_SLOT) | (NO_SLOT, one) => one,
        _ => return None,
    };
    let joins = known.value == item.value && !fault::on(Fault::WholeMarksNotJoined);
    joins.then_some(Item {
        kind: known.kind | item.kind,
        number,
        value: item.value,
    })
}

/// Undoes the marks of a record. Returns false if another session is undoing them or has undone them.
pub fn lower(tier: &Tier, record: Record, committed: impl FnOnce() -> Outcome) -> bool {
    // An interrupt could leave a record half undone, and no other session would undo the rest.
    session::uninterrupted(|| {
        let records = tier.prepared();
        let committed = committed();
        let taken = records.take(record);
        if taken {
            loop {
                match records.pop(record) {
                    Some(item) => Mark::all_of(item).for_each(|mark| mark.undo(tier, committed)),
                    None if tier.assigning(|| records.remove_piece(record)) => {}
                    None => break,
                }
            }
            records.free(record);
        }
        taken
    })
}

/// Waits until no session is lowering a record, so that clients are notified before COMMIT PREPARED returns. Lowering a
/// record waits for nothing, so the wait takes microseconds. It cannot be cancelled, because the transaction is already
/// committed.
pub fn wait_for_others() {
    let Some(tier) = tier() else {
        return;
    };
    let began = Instant::now();
    while tier.prepared().any_taken() && began.elapsed() < LONGEST {
        sleep(LOOK);
    }
}

/// Undoes the marks of all prepared transactions that are decided. Returns whether it undid any. The caller holds no
/// LWLock, and takes a new token and then a new snapshot before it continues.
pub fn lower_decided() -> bool {
    let Some(tier) = tier() else {
        return false;
    };
    if !tier.prepared().any()
        || !transaction::can_read_decided()
        || fault::on(Fault::RecordNotLowered)
    {
        return false;
    }
    let decided = transaction::Decided::now();
    let mut lowered = false;
    for record in tier.prepared().standing() {
        if decided.is(record.xid) {
            lowered |= lower(tier, record, || transaction::outcome(record.xid));
        }
    }
    lowered
}
