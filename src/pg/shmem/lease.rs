//! Lease records in shared memory. A record says which session computes the entry of a key, and until when.
//!
//! `cache::lease` defines the meaning of a lease. This file holds the records, and the condition variables on which
//! sessions wait for the end of a lease.
//!
//! Access rules:
//!
//! 1. The records of partition `i` change only under lock `i` of the hot tier, held exclusively; a read holds the lock
//!    shared or exclusively. So a writer that changes an entry and voids its lease does both in one step.
//! 2. A record is free when its id is 0. A hash has at most one lease record, and any number of watches. Watches are
//!    stored in separate records behind the leases, because no other session looks up a watch or waits for its end. Any
//!    change of the key frees its watches.
//! 3. A role has at most half of a partition's records of each kind.
//! 4. No session sleeps while it holds a lock of the tier: the caller of [`Leases::sleep`] holds none, and the sleep
//!    has a timeout.
//!
//! The number of records is fixed. When all records of a partition are in use, the next caller receives none and
//! computes the value without a lease.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use pgrx::pg_sys;

use super::cache_id::{AtomicCacheId, CacheId};
use crate::pg::session;
use crate::pg::session::clock::Timestamp;
use crate::pg::session::fault::{self, Fault};

/// Bytes of the hot tier for each record; 64 MB have 1,024 records.
const BYTES_PER_RECORD: usize = 64 * 1024;
/// Records of a partition. The number is small because the search is linear and runs under the partition's lock.
const PER_PARTITION: Range<usize> = 16..65;

/// A state of a lease record: the holder is still computing the value.
const COMPUTING: u32 = 0;
/// A state: a transaction that has not ended has written the value.
const STORED: u32 = 1;
/// A state: a transaction that has not ended has written the value, and a later change of the key has voided the lease.
const STORED_VOID: u32 = 2;
/// A state: the lease was granted while a transaction committed a change of the key. It keeps other sessions from
/// computing the same value, but its holder may store nothing.
const DOOMED: u32 = 3;

#[repr(C, align(64))]
struct LeaseRecord {
    hash: AtomicU64,
    id: AtomicU64,
    /// The cache of the key. [`Partition::void_all`] uses it to find all leases of a cache.
    cache: AtomicCacheId,
    deadline: AtomicI64,
    /// The process that computes the value or has stored it; 0 for a client that may store it through any session.
    holder: AtomicI32,
    state: AtomicU32,
    /// The login role of the session that took the lease.
    role: AtomicU32,
}

#[repr(C, align(64))]
struct Ended {
    condition: UnsafeCell<pg_sys::ConditionVariable>,
    /// Records in use. At 0, the usual case, a change of an entry reads no records.
    taken: AtomicU32,
}

// SAFETY: the condition variable has its own spinlock and is used only through Postgres' functions; the counter is
// atomic.
unsafe impl Sync for Ended {}

/// The number of records of each partition.
#[derive(Clone, Copy)]
pub struct Shape {
    partitions: usize,
    each: usize,
}

impl Shape {
    /// Computes the shape for a tier of this size and number of partitions.
    pub fn of(size: usize, partitions: u32) -> Shape {
        let partitions = partitions as usize;
        let each = (size / BYTES_PER_RECORD / partitions)
            .clamp(PER_PARTITION.start, PER_PARTITION.end - 1);
        Shape { partitions, each }
    }

    /// Bytes of shared memory that the leases take.
    pub fn bytes(self) -> usize {
        self.partitions * (size_of::<Ended>() + 2 * self.each * size_of::<LeaseRecord>())
    }
}

/// All leases of the server.
pub struct Leases {
    ended: &'static [Ended],
    records: &'static [LeaseRecord],
    each: usize,
    wait_event: u32,
}

/// Another session's lease, as the caller found it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Other {
    pub id: u64,
    pub holder: i32,
    pub deadline: Timestamp,
    /// Whether a transaction that has not ended has written the value.
    pub stored: bool,
}

/// The outcome of a request for a lease.
pub enum LeaseOutcome {
    Won,
    Busy(Other),
    /// All records of the partition are in use, or the role already has its share of them.
    Full,
    /// A transaction changes the key, or the whole cache, and its commit is not yet visible.
    Pending,
}

/// A request for a lease.
#[derive(Clone, Copy)]
pub struct Claim {
    pub id: u64,
    pub cache: CacheId,
    pub holder: i32,
    pub role: u32,
    pub now: Timestamp,
    pub deadline: Timestamp,
    /// Whether the claim takes over a lease past its deadline even if the holder has already written the value.
    pub over_stored: bool,
    /// Whether the holder may store nothing under the lease.
    pub doomed: bool,
}

impl Claim {
    /// Makes a claim for this session that lasts as long as its transaction.
    pub fn of_session(id: u64, cache: CacheId, now: Timestamp) -> Claim {
        Claim {
            id,
            cache,
            holder: my_process(),
            role: session::own_role(),
            now,
            deadline: Timestamp::MAX,
            over_stored: false,
            doomed: false,
        }
    }
}

impl Leases {
    /// # Safety
    /// `memory` is 64-byte aligned, zeroed before its first use, and holds `shape.bytes()`.
    pub unsafe fn attach(memory: *mut u8, shape: Shape, found: bool, wait_event: u32) -> Leases {
        // SAFETY: both arrays lie one after the other in the memory; atomics of any bits are valid, and the first
        // process to attach initialises the condition variables.
        unsafe {
            let ended: &'static [Ended] =
                std::slice::from_raw_parts(memory.cast(), shape.partitions);
            if !found {
                for one in ended {
                    pg_sys::ConditionVariableInit(one.condition.get());
                }
            }
            let records_at = shape.partitions * size_of::<Ended>();
            let count = shape.partitions * 2 * shape.each;
            Leases {
                ended,
                records: std::slice::from_raw_parts(memory.add(records_at).cast(), count),
                each: shape.each,
                wait_event,
            }
        }
    }

    /// Returns the leases of one partition. The caller follows access rule 1.
    #[inline]
    pub fn of(&self, partition: u32) -> Partition<'_> {
        let from = partition as usize * 2 * self.each;
        let (records, watches) = self.records[from..from + 2 * self.each].split_at(self.each);
        Partition {
            taken: &self.ended[partition as usize].taken,
            records,
            watches,
        }
    }

    /// Returns the number of lease records in use and the number of all lease records, both without watches.
    pub fn use_of_records(&self) -> (usize, usize) {
        let leases = self.records.chunks(2 * self.each);
        let used = leases
            .flat_map(|records| records.iter().take(self.each))
            .filter(|record| record.id.load(Relaxed) != 0);
        (used.count(), self.records.len() / 2)
    }

    /// Wakes the sessions that wait for leases of a partition.
    pub fn wake(&self, partition: u32) {
        // SAFETY: the condition variable is initialised, and the call raises no error.
        unsafe {
            pg_sys::ConditionVariableBroadcast(self.ended[partition as usize].condition.get())
        };
    }

    /// Sleeps until a lease of the partition ends, or `millis` have passed. Does not sleep if `still` returns false.
    /// Calls `still` after the session is registered for wake-ups, so that it misses none. Raises an error when the
    /// statement is cancelled.
    pub fn sleep(&self, partition: u32, millis: i64, still: impl FnOnce() -> bool) {
        let condition = self.ended[partition as usize].condition.get();
        // SAFETY: the backend is in a transaction and holds no lightweight lock; an error that the
        // sleep raises ends in an abort, which leaves the queue.
        unsafe {
            pg_sys::ConditionVariablePrepareToSleep(condition);
            if still() {
                pg_sys::ConditionVariableTimedSleep(condition, millis, self.wait_event);
            }
            pg_sys::ConditionVariableCancelSleep();
        }
    }
}

/// The leases of a partition, under its lock.
pub struct Partition<'l> {
    taken: &'l AtomicU32,
    records: &'l [LeaseRecord],
    watches: &'l [LeaseRecord],
}

impl<'l> Partition<'l> {
    /// Returns whether the partition has neither a lease nor a watch now.
    pub fn is_empty(&self) -> bool {
        self.taken.load(SeqCst) == 0
    }

    fn find(&self, hash: u64) -> Option<&'l LeaseRecord> {
        if self.is_empty() {
            return None;
        }
        let is_it = |record: &&LeaseRecord| {
            record.hash.load(Relaxed) == hash && record.id.load(Relaxed) != 0
        };
        self.records.iter().find(is_it)
    }

    fn find_id(&self, hash: u64, id: u64) -> Option<&'l LeaseRecord> {
        self.find(hash)
            .filter(|record| record.id.load(Relaxed) == id)
    }

    /// Takes the lease of a hash. Returns Busy if another session holds it, and Full if no record can be used. Takes
    /// over a lease past its deadline, unless the value is already written and the claim respects that; a doomed lease,
    /// unless the claim is doomed, too; and a lease under which this process has itself stored a value.
    pub fn request(&self, hash: u64, claim: &Claim) -> LeaseOutcome {
        if let Some(record) = self.find(hash) {
            let other = record.as_other();
            let own = other.stored && other.holder == my_process();
            let doomed = record.state.load(Relaxed) == DOOMED && !claim.doomed;
            let over = own
                || doomed
                || other.deadline <= claim.now && (claim.over_stored || !other.stored);
            if !over {
                return LeaseOutcome::Busy(other);
            }
            record.fill(hash, claim);
            return LeaseOutcome::Won;
        }
        let Some(record) = free_for(self.records, claim.role) else {
            return self.take_over_expired(hash, claim);
        };
        self.taken.fetch_add(1, SeqCst);
        record.fill(hash, claim);
        LeaseOutcome::Won
    }

    /// Takes the record of another key whose lease is past its deadline and whose value is not yet written. If the role
    /// has used up its share, takes only a record of the same role. Returns Full if no record qualifies.
    fn take_over_expired(&self, hash: u64, claim: &Claim) -> LeaseOutcome {
        let any = !has_share(self.records, claim.role);
        let expired = |record: &&LeaseRecord| {
            record.deadline.load(Relaxed) <= claim.now
                && !record.as_other().stored
                && (any || record.role.load(Relaxed) == claim.role)
        };
        match self.records.iter().find(expired) {
            Some(record) => {
                record.fill(hash, claim);
                LeaseOutcome::Won
            }
            None => LeaseOutcome::Full,
        }
    }

    /// Begins a watch of a hash. Returns whether a record was free for it.
    pub fn watch(&self, hash: u64, claim: &Claim) -> bool {
        let free = free_for(self.watches, claim.role);
        if let Some(record) = free {
            self.taken.fetch_add(1, SeqCst);
            record.fill(hash, claim);
        }
        free.is_some()
    }

    /// Returns whether a watch is still valid; a change of the key voids it.
    pub fn is_watching(&self, hash: u64, id: u64) -> bool {
        self.find_watch(hash, id).is_some()
    }

    /// Ends a watch, if it exists.
    pub fn end_watch(&self, hash: u64, id: u64) {
        if let Some(record) = self.find_watch(hash, id) {
            self.free(record);
        }
    }

    fn find_watch(&self, hash: u64, id: u64) -> Option<&'l LeaseRecord> {
        let is_it = |record: &&LeaseRecord| {
            record.id.load(Relaxed) == id && record.hash.load(Relaxed) == hash
        };
        self.watches.iter().find(is_it)
    }

    /// Returns the current lease of a hash, if it has one.
    pub fn present(&self, hash: u64) -> Option<Other> {
        self.find(hash).map(LeaseRecord::as_other)
    }

    /// Returns whether a lease is still valid for a store.
    pub fn holds(&self, hash: u64, id: u64, now: Timestamp) -> bool {
        self.find_id(hash, id).is_some_and(|record| {
            record.state.load(Relaxed) == COMPUTING
                && (record.deadline.load(Relaxed) > now || fault::on(Fault::LeaseOutlivesDeadline))
        })
    }

    /// Records that the transaction of `holder` has written the value. Returns false if the lease is no longer valid.
    pub fn store(&self, hash: u64, id: u64, holder: i32, now: Timestamp) -> bool {
        let holds = self.holds(hash, id, now);
        if let Some(record) = self.find_id(hash, id).filter(|_| holds) {
            record.state.store(STORED, Relaxed);
            record.holder.store(holder, Relaxed);
        }
        holds
    }

    /// Returns whether a lease was voided or taken over after its holder wrote the value.
    pub fn is_void(&self, hash: u64, id: u64) -> bool {
        self.find_id(hash, id)
            .is_none_or(|record| record.state.load(Relaxed) != STORED)
    }

    /// Undoes [`Partition::store`] after a rollback: restores the lease, or frees it if a change voided it after the
    /// store.
    pub fn take_back(&self, hash: u64, id: u64) {
        let Some(record) = self.find_id(hash, id) else {
            return;
        };
        match record.state.load(Relaxed) {
            STORED_VOID if !fault::on(Fault::VoidLeaseComesBack) => self.free(record),
            _ => {
                record.state.store(COMPUTING, Relaxed);
                record.holder.store(0, Relaxed);
            }
        }
    }

    /// Ends a lease. Returns whether it existed.
    pub fn release(&self, hash: u64, id: u64) -> bool {
        let record = self.find_id(hash, id);
        record.inspect(|record| self.free(record)).is_some()
    }

    /// Voids the lease of an entry that has changed, and all watches of its key. Keeps the lease if the change is the
    /// holder's own store under the lease. Returns whether this freed the lease, so that waiting sessions may request
    /// it.
    #[inline]
    pub fn void(&self, hash: u64) -> bool {
        !self.is_empty() && self.void_some(hash)
    }

    fn void_some(&self, hash: u64) -> bool {
        let of_hash = |record: &LeaseRecord| {
            record.hash.load(Relaxed) == hash
                && record.id.load(Relaxed) != 0
                && !fault::on(Fault::KeyVoidsNoWatch)
        };
        for record in self.watches {
            if of_hash(record) {
                self.free(record);
            }
        }
        self.find(hash).is_some_and(|record| self.void_one(record))
    }

    /// Voids all leases and watches of a cache, as [`Partition::void`] does for one hash.
    pub fn void_all(&self, cache: CacheId) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut freed = false;
        for record in self.watches {
            let is_its = record.id.load(Relaxed) != 0 && record.cache.is(cache, Relaxed);
            if is_its && !fault::on(Fault::CacheVoidsNoWatches) {
                self.free(record);
            }
        }
        for record in self.records {
            if record.id.load(Relaxed) != 0 && record.cache.is(cache, Relaxed) {
                freed |= self.void_one(record);
            }
        }
        freed
    }

    fn void_one(&self, record: &LeaseRecord) -> bool {
        if [COMPUTING, DOOMED].contains(&record.state.load(Relaxed)) {
            self.free(record);
            return true;
        }
        if record.holder.load(Relaxed) != my_process() {
            record.state.store(STORED_VOID, Relaxed);
        }
        false
    }

    fn free(&self, record: &LeaseRecord) {
        record.id.store(0, Relaxed);
        record.hash.store(0, Relaxed);
        self.taken.fetch_sub(1, SeqCst);
    }
}

/// Returns whether a role has used up its share of these records.
fn has_share(records: &[LeaseRecord], role: u32) -> bool {
    let of_role =
        |record: &&LeaseRecord| record.id.load(Relaxed) != 0 && record.role.load(Relaxed) == role;
    records.iter().filter(of_role).count() >= records.len() / 2
}

fn free_for(records: &[LeaseRecord], role: u32) -> Option<&LeaseRecord> {
    let free = |record: &&LeaseRecord| record.id.load(Relaxed) == 0;
    let found = records.iter().find(free)?;
    (!has_share(records, role)).then_some(found)
}

impl LeaseRecord {
    fn fill(&self, hash: u64, claim: &Claim) {
        self.hash.store(hash, Relaxed);
        self.cache.store(Some(claim.cache), Relaxed);
        self.deadline.store(claim.deadline, Relaxed);
        self.holder.store(claim.holder, Relaxed);
        self.role.store(claim.role, Relaxed);
        let state = if claim.doomed { DOOMED } else { COMPUTING };
        self.state.store(state, Relaxed);
        self.id.store(claim.id, Relaxed);
    }

    fn as_other(&self) -> Other {
        Other {
            id: self.id.load(Relaxed),
            holder: self.holder.load(Relaxed),
            deadline: self.deadline.load(Relaxed),
            stored: [STORED, STORED_VOID].contains(&self.state.load(Relaxed)),
        }
    }
}

/// Returns the pid of this process, which leases store as their holder.
pub fn my_process() -> i32 {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::MyProcPid }
}
