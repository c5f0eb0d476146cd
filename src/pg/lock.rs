//! Relation locks: how a call takes them and when it gives them back.
//!
//! A reader must hold no lock on the cache once it has returned, so that `cache_clear` need not
//! wait for idle transactions that have read something. Writers keep theirs until the end of the
//! transaction, as everywhere in Postgres; so do readers under REPEATABLE READ and SERIALIZABLE,
//! where a TRUNCATE by somebody else would otherwise show through the old snapshot.

use std::hash::{DefaultHasher, Hash, Hasher};

use pgrx::pg_sys;

/// Kinds of advisory locks. An application's own are of kind 1 or 2, whatever numbers it gives: so
/// nobody can take one of these by hand and keep others from their work.
#[derive(Clone, Copy)]
enum Kind {
    Lease = 3,
    Sweep = 4,
    Name = 5,
}

/// Strength of a lock, by what it is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To read rows.
    Read,
    /// To change rows.
    Write,
    /// To rely on the relation's triggers: conflicts with whatever could change them.
    Verify,
    /// To change the definition while others read.
    Define,
    /// To remove the table or all of its rows.
    Remove,
}

impl Mode {
    fn number(self) -> pg_sys::LOCKMODE {
        match self {
            Mode::Read => pg_sys::AccessShareLock as pg_sys::LOCKMODE,
            Mode::Write => pg_sys::RowExclusiveLock as pg_sys::LOCKMODE,
            Mode::Verify => pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE,
            Mode::Define => pg_sys::ShareRowExclusiveLock as pg_sys::LOCKMODE,
            Mode::Remove => pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
        }
    }
}

/// Waits for the lock. Invalidation messages have been seen when it returns.
pub fn relation(relation: pg_sys::Oid, mode: Mode) {
    // SAFETY: any oid may be locked, an unused one too.
    unsafe { pg_sys::LockRelationOid(relation, mode.number()) }
}

/// Takes the lock only if nobody is in the way.
pub fn try_relation(relation: pg_sys::Oid, mode: Mode) -> bool {
    // SAFETY: as above.
    unsafe { pg_sys::ConditionalLockRelationOid(relation, mode.number()) }
}

/// Serialises those who create a relation of one name: an advisory lock until the transaction ends. Two
/// names meet by chance only, and then it costs a wait, never a wrong answer.
pub fn name(schema: pg_sys::Oid, name: &[u8]) {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let tag = advisory(Kind::Name, schema.to_u32(), hasher.finish() as u32);
    // SAFETY: LockAcquire copies the tag. Unlike a relation's lock it does not read invalidation
    // messages, without which the relation made by whom we waited for would not be found.
    unsafe {
        pg_sys::LockAcquire(
            &tag,
            pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
            false,
            false,
        );
        pg_sys::AcceptInvalidationMessages();
    }
}

/// Takes the right to sweep a cache until the transaction ends; false while somebody else has it.
pub fn try_sweep(relation: pg_sys::Oid) -> bool {
    try_advisory(advisory(Kind::Sweep, relation.to_u32(), 0))
}

/// Takes the lock that stands for a lease, until the transaction ends, if nobody has it.
pub fn try_lease(name: u64) -> bool {
    try_advisory(advisory(Kind::Lease, (name >> 32) as u32, name as u32))
}

/// An advisory lock of this database.
fn advisory(kind: Kind, one: u32, two: u32) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: a plain C variable of this process.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: one,
        locktag_field3: two,
        locktag_field4: kind as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Until the transaction ends; false while somebody else has it.
fn try_advisory(tag: pg_sys::LOCKTAG) -> bool {
    // SAFETY: LockAcquire copies the tag; with `dontWait` it waits for nobody.
    unsafe {
        pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as pg_sys::LOCKMODE, false, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}

/// Whether the transaction has one snapshot for all its statements.
pub fn one_snapshot_per_transaction() -> bool {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

unsafe extern "C-unwind" {
    // Raises nothing for a lock that is held, so it is called without pgrx's guard.
    fn UnlockRelationOid(relation: pg_sys::Oid, mode: pg_sys::LOCKMODE);
}

/// A reader's lock on one relation, given back when dropped; kept where there is one snapshot for the
/// whole transaction. After an error the abort gives it back.
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
        if !std::thread::panicking() && !one_snapshot_per_transaction() {
            // SAFETY: taken by `on` under the same resource owner, in this call.
            unsafe { UnlockRelationOid(self.0, Mode::Read.number()) };
        }
    }
}

/// Locks taken while this lives are given back when it is dropped.
///
/// It is a resource owner of its own, ended the way a rolled-back subtransaction's is. When an
/// error unwinds, nothing is released here: the abort that follows does it, after it has dropped
/// the lightweight locks that the failed code may still hold.
pub struct Scope {
    own: pg_sys::ResourceOwner,
    former: pg_sys::ResourceOwner,
}

impl Scope {
    /// None where locks must be kept.
    pub fn enter() -> Option<Scope> {
        if one_snapshot_per_transaction() {
            return None;
        }
        // SAFETY: a function call always has a current resource owner, the parent of the new one.
        unsafe {
            let former = pg_sys::CurrentResourceOwner;
            let own = pg_sys::ResourceOwnerCreate(former, c"pgcache read".as_ptr());
            pg_sys::CurrentResourceOwner = own;
            Some(Scope { own, former })
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // SAFETY: own was made by enter and nothing that it owns is used any more: results have
        // been copied. former outlives it, being its parent.
        unsafe {
            if !std::thread::panicking() {
                for phase in [
                    pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_BEFORE_LOCKS,
                    pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_LOCKS,
                    pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS,
                ] {
                    pg_sys::ResourceOwnerRelease(self.own, phase, false, false);
                }
            }
            pg_sys::CurrentResourceOwner = self.former;
            if !std::thread::panicking() {
                pg_sys::ResourceOwnerDelete(self.own);
            }
        }
    }
}
