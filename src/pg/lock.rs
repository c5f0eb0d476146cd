//! Relation locks: how a call takes them and when it gives them back.
//!
//! A reader must hold no lock on the cache once it has returned, so that `cache_clear` need not
//! wait for idle transactions that have read something. Writers keep theirs until the end of the
//! transaction, as everywhere in Postgres; so do readers under REPEATABLE READ and SERIALIZABLE,
//! where a TRUNCATE by somebody else would otherwise show through the old snapshot.

use std::hash::{DefaultHasher, Hash, Hasher};

use pgrx::pg_sys;

/// The second number of the advisory lock on a sweep: "pgca" in ASCII.
const SWEEP: u32 = 0x7067_6361;

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

/// Serialises those who create a relation of one name: an advisory lock until the transaction ends.
///
/// Its key lies in the space of two 32-bit numbers with the schema's oid first, so that it meets an
/// application's own advisory locks only by chance, and then costs a wait, never a wrong answer.
pub fn name(schema: pg_sys::Oid, name: &[u8]) {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = hasher.finish() as u32;
    // SAFETY: LockAcquire copies the tag. Unlike a relation's lock it does not read invalidation
    // messages, without which the relation made by whom we waited for would not be found.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: schema.to_u32(),
            locktag_field3: hash,
            locktag_field4: 2,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        };
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
///
/// An advisory lock like [`name`]'s, with the relation's oid first.
pub fn try_sweep(relation: pg_sys::Oid) -> bool {
    // SAFETY: LockAcquire copies the tag, and does not wait.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: relation.to_u32(),
            locktag_field3: SWEEP,
            locktag_field4: 2,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        };
        let taken =
            pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as pg_sys::LOCKMODE, false, true);
        taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}

/// Whether the transaction has one snapshot for all its statements.
pub fn one_snapshot_per_transaction() -> bool {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
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
