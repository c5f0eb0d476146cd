//! Takes and releases locks on relations, and locks that announce changes of a cache to other sessions.
//!
//! A reader holds no lock on the cache after its call has returned, so that `cache_clear` need not wait for idle
//! transactions that have read an entry. Writers keep their locks until the end of the transaction, as everywhere in
//! Postgres. Readers under REPEATABLE READ and SERIALIZABLE also keep their locks, because TRUNCATE ignores snapshots:
//! without the lock, a TRUNCATE in another session would empty the table under the old snapshot.

use pgrx::pg_sys;

use crate::pg::session::fault::{self, Fault};
use crate::pg::version;

/// The strength of a lock, named after its purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reads rows.
    Read,
    /// Changes rows.
    Write,
    /// Relies on the relation's triggers, so it conflicts with every command that could change them.
    Verify,
    /// Changes the definition while other sessions read.
    Define,
    /// Removes the table or all of its rows.
    Remove,
}

impl Mode {
    pub(in crate::pg) fn number(self) -> pg_sys::LOCKMODE {
        match self {
            Mode::Read => pg_sys::AccessShareLock as pg_sys::LOCKMODE,
            Mode::Write => pg_sys::RowExclusiveLock as pg_sys::LOCKMODE,
            Mode::Verify => pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE,
            Mode::Define => pg_sys::ShareRowExclusiveLock as pg_sys::LOCKMODE,
            Mode::Remove => pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
        }
    }
}

/// Waits for the lock, and processes invalidation messages.
pub fn relation(relation: pg_sys::Oid, mode: Mode) {
    // SAFETY: any OID may be locked, even an unused one.
    unsafe { pg_sys::LockRelationOid(relation, mode.number()) }
}

/// Takes the lock if it is free. Returns whether it took the lock.
pub fn try_relation(relation: pg_sys::Oid, mode: Mode) -> bool {
    // SAFETY: any OID may be locked, even an unused one; the call does not wait.
    unsafe { pg_sys::ConditionalLockRelationOid(relation, mode.number()) }
}

/// Waits for the end of all transactions that may have written rows of the table before this call.
pub fn wait_for_writers(relation: pg_sys::Oid) {
    let tag = of_relation(relation);
    // SAFETY: a transaction is open; Postgres does not wait for this session's own lock, and takes no lock.
    unsafe { pg_sys::WaitForLockers(tag, pg_sys::ShareLock as pg_sys::LOCKMODE, false) };
}

/// Returns whether the transaction holds a writer's lock on the table.
pub fn changes_rows(relation: pg_sys::Oid) -> bool {
    version::has_lock(&of_relation(relation), Mode::Write.number())
}

/// Returns whether all statements of the transaction share one snapshot.
pub fn one_snapshot_per_transaction() -> bool {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Returns whether a reader releases its lock before the transaction ends.
fn gives_back() -> bool {
    !one_snapshot_per_transaction() || fault::on(Fault::ReaderKeepsNoLock)
}

unsafe extern "C-unwind" {
    // Raises no error for a held lock, so it needs no pgrx guard.
    fn UnlockRelationOid(relation: pg_sys::Oid, mode: pg_sys::LOCKMODE);
}

/// A reader's lock on one relation. Dropping this value releases the lock, unless the transaction's statements share
/// one snapshot. After an error the abort releases the lock.
pub struct Shared(pg_sys::Oid);

impl Shared {
    /// Waits for the lock.
    pub fn on(oid: pg_sys::Oid) -> Shared {
        relation(oid, Mode::Read);
        Shared(oid)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !std::thread::panicking() && gives_back() {
            // SAFETY: `on` took the lock under the same resource owner, in this call.
            unsafe { UnlockRelationOid(self.0, Mode::Read.number()) };
        }
    }
}

/// A lock that was taken without waiting. Dropping this value releases the lock; after an error the abort does.
pub struct Brief(pg_sys::Oid, Mode);

impl Brief {
    /// Takes the lock; returns None if it is not free.
    pub fn try_on(oid: pg_sys::Oid, mode: Mode) -> Option<Brief> {
        try_relation(oid, mode).then(|| Brief(oid, mode))
    }
}

impl Drop for Brief {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: `try_on` took the lock under the same resource owner, in this call.
            unsafe { UnlockRelationOid(self.0, self.1.number()) };
        }
    }
}

/// When dropped, releases the locks that a saved plan takes to read a table and its indexes. The plan may take each
/// lock several times, depending on whether Postgres plans again. So it runs under its own resource owner, which counts
/// the locks.
///
/// Every other lock passes to the caller's resource owner and stays, because the code that took it relies on it until
/// the transaction ends. When an error unwinds, dropping the scope releases no lock: the abort must release the
/// lightweight locks first, which the failed code may still hold.
pub struct Scope<'r> {
    relations: &'r [pg_sys::Oid],
    own: pg_sys::ResourceOwner,
    former: pg_sys::ResourceOwner,
}

impl Scope<'_> {
    /// Begins a scope. Returns None if the locks must stay, because `relations` is empty or the transaction's
    /// statements share one snapshot.
    pub fn over(relations: &[pg_sys::Oid]) -> Option<Scope<'_>> {
        if relations.is_empty() || !gives_back() {
            return None;
        }
        // SAFETY: a function call always has a current resource owner, which becomes the parent of the new owner.
        unsafe {
            let former = pg_sys::CurrentResourceOwner;
            let own = pg_sys::ResourceOwnerCreate(former, c"pgcache read".as_ptr());
            pg_sys::CurrentResourceOwner = own;
            Some(Scope {
                relations,
                own,
                former,
            })
        }
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        // SAFETY: `over` made `own`, and it is current again, because the code inside restores the owner that it found.
        // The plan has ended, so `own` holds only locks. The release as at a commit passes them to its parent `former`,
        // which outlives it.
        unsafe {
            if !std::thread::panicking() {
                for &relation in self.relations {
                    give_back(&of_relation(relation), Mode::Read.number());
                }
                for phase in [
                    pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_BEFORE_LOCKS,
                    pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_LOCKS,
                    pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS,
                ] {
                    pg_sys::ResourceOwnerRelease(self.own, phase, true, false);
                }
            }
            pg_sys::CurrentResourceOwner = self.former;
            if !std::thread::panicking() {
                pg_sys::ResourceOwnerDelete(self.own);
            }
        }
    }
}

/// Takes the lock on a database that a connecting session takes, until the transaction ends. Returns false if the lock
/// is not free.
pub fn try_database(database: pg_sys::Oid) -> bool {
    let tag = pg_sys::LOCKTAG {
        // An object that all databases share.
        locktag_field1: 0,
        locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
        locktag_field3: database.to_u32(),
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
    let mode = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
    let mut local = std::ptr::null_mut();
    // SAFETY: the code does not read the lock's entry.
    let taken = unsafe { version::try_lock(&tag, mode, &mut local) };
    taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Identifies the object lock on a cache that a prepared transaction has changed. The transaction holds it from the
/// beginning of PREPARE TRANSACTION. Postgres itself takes only relation locks on relations, so no other code takes
/// this object lock.
const TOUCHED: u16 = 1;
/// Identifies the lock that the transaction holds in addition to `TOUCHED` if the whole cache counts as changed.
const TOUCHED_AS_A_WHOLE: u16 = 2;

/// Identifies the lock on a cache without a slot in the hot tier that a transaction is about to change as a whole.
const CHANGED_WITHOUT_SLOT: u16 = 3;

/// Identifies the lock on a cache in whose table a transaction stores loaded values.
const STORED: u16 = 4;

/// Announces that the transaction stores a loaded value in a cache's table. The announcement lasts until the
/// transaction has ended, even if it is prepared.
pub fn note_store(cache: pg_sys::Oid) {
    take_touched(cache, STORED);
}

/// Waits for the end of all transactions that had announced a store in the cache's table before this call.
pub fn wait_for_stores(cache: pg_sys::Oid) {
    let tag = touched(cache, STORED);
    // SAFETY: a transaction is open; Postgres does not wait for this session's own lock, and takes no lock.
    unsafe { pg_sys::WaitForLockers(tag, pg_sys::ShareLock as pg_sys::LOCKMODE, false) };
}

/// Announces that the transaction changes a cache without a slot as a whole, or changes more of its keys than there is
/// room for marks. Other sessions only check for the announcement, and never wait. The announcement lasts until the
/// transaction has ended, even if it is prepared, and so until its changes are visible.
pub fn mark_without_slot(cache: pg_sys::Oid) {
    take_touched(cache, CHANGED_WITHOUT_SLOT);
}

/// Returns whether another transaction that has not ended has called [`mark_without_slot`] for the cache.
pub fn is_marked_without_slot(cache: pg_sys::Oid) -> bool {
    is_taken(cache, CHANGED_WITHOUT_SLOT)
}

/// Announces that the transaction, which is being prepared, has changed a cache. Other sessions only check for the
/// announcement, and never wait. The announcement lasts until the transaction is decided, even across restarts. The
/// transaction also takes a writer's lock on the relation, so that no session drops or alters the relation before the
/// decision.
pub fn touch(cache: pg_sys::Oid, as_a_whole: bool) {
    if fault::on(Fault::NotTouched) {
        return;
    }
    relation(cache, Mode::Write);
    let tags = [(TOUCHED, true), (TOUCHED_AS_A_WHOLE, as_a_whole)];
    for (number, _) in tags.into_iter().filter(|&(_, wanted)| wanted) {
        take_touched(cache, number);
    }
}

fn take_touched(cache: pg_sys::Oid, number: u16) {
    // SAFETY: LockAcquire copies the tag. The lock belongs to the transaction, whose end releases it; all transactions
    // take it in this mode, which does not conflict with itself.
    unsafe {
        let mode = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
        pg_sys::LockAcquire(&touched(cache, number), mode, false, false);
    }
}

/// Returns whether another transaction that is being prepared, or is prepared, has changed a cache.
pub fn is_touched(cache: pg_sys::Oid) -> bool {
    is_taken(cache, TOUCHED)
}

fn is_taken(cache: pg_sys::Oid, number: u16) -> bool {
    // SAFETY: the list ends with an invalid id, so its first element is invalid if no lock conflicts.
    unsafe {
        let mode = pg_sys::ShareLock as pg_sys::LOCKMODE;
        let first = pg_sys::GetLockConflicts(&touched(cache, number), mode, std::ptr::null_mut());
        let found = (*first).localTransactionId != pg_sys::InvalidLocalTransactionId;
        pg_sys::pfree(first.cast());
        found
    }
}

/// Returns whether an undecided transaction that was prepared before the server's start has changed a cache.
pub fn is_touched_since_before_start(cache: pg_sys::Oid) -> bool {
    if fault::on(Fault::RestartProves) {
        return false;
    }
    let mode = pg_sys::ShareLock as pg_sys::LOCKMODE;
    version::has_recovered_holder(&touched(cache, TOUCHED), mode)
}

fn touched(cache: pg_sys::Oid, number: u16) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: a plain C variable of this process.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: pg_sys::RelationRelationId.to_u32(),
        locktag_field3: cache.to_u32(),
        locktag_field4: number,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

fn of_relation(relation: pg_sys::Oid) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: a plain C variable of this process.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: relation.to_u32(),
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

/// Releases all holds of the current resource owner on a lock. The holds of other resource owners stay.
///
/// # Safety
/// No code relies on the current owner's holds of this lock.
pub(in crate::pg) unsafe fn give_back(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) {
    let mut local = std::ptr::null_mut();
    // SAFETY: taking the lock once more, without waiting, returns its entry in this process. If this process does not
    // hold the lock and another session does, the attempt takes no lock.
    unsafe {
        let taken = version::try_lock(tag, mode, &mut local);
        if taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL {
            pg_sys::LockReleaseCurrentOwner(&mut local, 1);
        }
    }
}
