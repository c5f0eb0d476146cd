//! Advisory locks of our own: who sweeps, who makes a relation of a name, and, without shared memory, who loads.
//!
//! Each belongs to the transaction, or the savepoint, and is given up before PREPARE TRANSACTION, which would keep it
//! for as long as the prepared transaction lives.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::lock::give_back;
use super::transaction_local::Kept;
use super::wait;
use crate::pg::events::{self, Phase};
use crate::pg::version;

thread_local! {
    /// Advisory locks that the transaction has asked for and that end with it. That of a name is not
    /// among them: it goes with the relation that the transaction makes, prepared or not.
    static ENDING: Kept<HashSet<(Advisory, u32)>> = Kept::default();
}

/// Kinds of advisory locks. An application's own are of kind 1 or 2, whatever numbers it gives: so
/// nobody can take one of these by hand and keep others from their work.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Lease = 3,
    Sweep = 4,
    Name = 5,
    /// Of a whole cache: who loads keys of it, and who keeps them from that.
    Loads = 6,
}

/// What came of trying for the lock that stands for a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leased {
    Won,
    /// Somebody else loads the key.
    Busy,
    /// Somebody changes its source, and his commit is not visible yet.
    Pending,
}

/// An advisory lock of this database.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Advisory {
    kind: Kind,
    one: u32,
    two: u32,
}

fn advisory(kind: Kind, one: u32, two: u32) -> Advisory {
    Advisory { kind, one, two }
}

impl Advisory {
    fn tag(self) -> pg_sys::LOCKTAG {
        pg_sys::LOCKTAG {
            // SAFETY: a plain C variable of this process.
            locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
            locktag_field2: self.one,
            locktag_field3: self.two,
            locktag_field4: self.kind as u16,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}

/// Serialises those who create a relation of one name: an advisory lock until the transaction ends. Two
/// names meet by chance only, and then it costs a wait, never a wrong answer.
pub fn name(schema: pg_sys::Oid, name: &[u8]) {
    let tag = of_name(schema, name).tag();
    // SAFETY: LockAcquire copies the tag. Unlike a relation's lock it does not read invalidation
    // messages, without which the relation made by whom we waited for would not be found.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(
            &tag,
            pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
            false,
            false,
        );
        pg_sys::AcceptInvalidationMessages();
    });
}

/// The name is free of us: it has a relation already, so nobody needs to wait for what we make.
pub fn leave_name(schema: pg_sys::Oid, name: &[u8]) {
    let tag = of_name(schema, name).tag();
    // SAFETY: taken by `name` under the same resource owner, in this call.
    as_transaction(|| unsafe {
        pg_sys::LockRelease(&tag, pg_sys::ExclusiveLock as pg_sys::LOCKMODE, false)
    });
}

fn of_name(schema: pg_sys::Oid, name: &[u8]) -> Advisory {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    advisory(Kind::Name, schema.to_u32(), hasher.finish() as u32)
}

/// Takes the right to sweep a cache until the transaction ends; false while somebody else has it.
pub fn try_sweep(relation: pg_sys::Oid) -> bool {
    try_in(
        advisory(Kind::Sweep, relation.to_u32(), 0),
        pg_sys::ExclusiveLock,
    )
}

/// Takes the lock that stands for a lease, until the transaction ends, if nobody has it.
///
/// Who loads has the key in mode Exclusive and the cache in mode RowShare; who loads many has the cache in mode
/// Share alone. Who changes the source has the keys in mode AccessExclusive and the cache in mode RowExclusive;
/// who changes many has the cache in mode Exclusive. No loader gets through the gate while it is shut.
pub fn try_lease(relation: pg_sys::Oid, name: u64) -> Leased {
    let cache = advisory(Kind::Loads, relation.to_u32(), 0);
    if !is_open(gate(relation)) || !try_in(cache, pg_sys::RowShareLock) {
        return Leased::Pending;
    }
    let key = lease(name);
    if try_in(key, pg_sys::ExclusiveLock) {
        return Leased::Won;
    }
    match is_open(key) {
        true => Leased::Busy,
        false => Leased::Pending,
    }
}

/// Takes what stands for leases of all keys of a cache, of which others may have as many.
pub fn try_all_leases(relation: pg_sys::Oid) -> bool {
    let cache = advisory(Kind::Loads, relation.to_u32(), 0);
    is_open(gate(relation)) && try_in(cache, pg_sys::ShareLock)
}

/// Waits for whoever loads one of these keys, or any key of the cache, and keeps others from it until the
/// transaction has ended. Not for a loader that waits for a lock of ours: that would be a deadlock; false then.
///
/// For loaders it is only tried, again and again, and in no queue: the deadlock detector would see a loader that waits
/// for the source's row and end one of the two. Another who keeps them out has a transaction to end as we have, and may
/// want what we have by then: that is waited for in the queue, where the detector sees it.
pub fn keep_leases(relation: pg_sys::Oid, names: Option<&[u64]>) -> bool {
    let cache = advisory(Kind::Loads, relation.to_u32(), 0);
    let Some(names) = names else {
        shut(relation);
        return keep(cache, pg_sys::ExclusiveLock, pg_sys::ShareLock);
    };
    let mut all = try_in(cache, pg_sys::RowExclusiveLock);
    if !all {
        shut(relation);
        all = keep(cache, pg_sys::RowExclusiveLock, pg_sys::RowShareLock);
    }
    for &name in names {
        all &= keep(
            lease(name),
            pg_sys::AccessExclusiveLock,
            pg_sys::AccessShareLock,
        );
    }
    all
}

/// Shuts the gate: nobody loads anew, so those who do are soon waited for, one after another as they are.
fn shut(relation: pg_sys::Oid) {
    let (tag, mode) = (
        gate(relation).tag(),
        pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
    );
    // SAFETY: LockAcquire copies the tag.
    as_transaction(|| unsafe { pg_sys::LockAcquire(&tag, mode, false, false) });
}

/// Milliseconds between two attempts, at most.
const ATTEMPT: i64 = 20;
/// So often it is asked whether those in the way wait for us.
const ASK: Duration = Duration::from_millis(200);

/// False when whoever has it waits for us. `beside_loaders`: a mode in the way of which is whoever keeps loaders out by
/// a lock that ours conflicts with, and no loader.
fn keep(lock: Advisory, mode: u32, beside_loaders: u32) -> bool {
    let (mut asked, mut pause) = (Instant::now(), 1);
    while !try_in(lock, mode) {
        wait_to_get(lock, beside_loaders);
        if asked.elapsed() >= ASK {
            let waits = |&process: &i32| wait::waits_for_us(process);
            if version::holders_in_the_way(&lock.tag(), mode as pg_sys::LOCKMODE)
                .iter()
                .any(waits)
            {
                return false;
            }
            asked = Instant::now();
        }
        wait::pause(pause);
        pause = ATTEMPT.min(pause * 2);
    }
    true
}

/// Waits until it could be had, and does not keep it.
fn wait_to_get(lock: Advisory, mode: u32) {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: LockAcquire copies the tag; what it has taken is given back under the same resource owner.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(&tag, mode, false, false);
        pg_sys::LockRelease(&tag, mode, false);
    });
}

fn lease(name: u64) -> Advisory {
    advisory(Kind::Lease, (name >> 32) as u32, name as u32)
}

/// Shut by who keeps all loaders of a cache out.
fn gate(relation: pg_sys::Oid) -> Advisory {
    advisory(Kind::Loads, relation.to_u32(), 1)
}

/// Whether nobody has the lock in mode AccessExclusive, nor waits for it.
fn is_open(lock: Advisory) -> bool {
    let (tag, mode) = (lock.tag(), pg_sys::AccessShareLock as pg_sys::LOCKMODE);
    // SAFETY: LockAcquire copies the tag; what it has taken is given back under the same resource owner.
    as_transaction(|| unsafe {
        let taken = pg_sys::LockAcquire(&tag, mode, false, true);
        let open = taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if open {
            pg_sys::LockRelease(&tag, mode, false);
        }
        open
    })
}

/// Until the transaction ends, or is to be prepared; false while somebody else has it.
fn try_in(lock: Advisory, mode: u32) -> bool {
    if events::phase() == Phase::Preparing {
        return false; // those of before were given up, and this one would not be
    }
    ENDING.with(|ending| ending.change(|ending| ending.insert((lock, mode))));
    let tag = lock.tag();
    // SAFETY: LockAcquire copies the tag; with `dontWait` it waits for nobody.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(&tag, mode as pg_sys::LOCKMODE, false, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    })
}

/// Runs with the transaction, or the savepoint, as who owns what is locked: else an open cursor would, and
/// keep it for itself when the transaction is prepared.
fn as_transaction<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a function call is always inside of a transaction, whose owner outlives the call. An error leaves
    // the owner as it is to the abort, which sets it.
    unsafe {
        let former = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::CurTransactionResourceOwner;
        let result = work();
        pg_sys::CurrentResourceOwner = former;
        result
    }
}

/// What a transaction that is prepared must not keep: PREPARE would give it to the prepared transaction,
/// where it outlives the session and restarts. Only who has changed nothing comes so far, so nobody needs it.
pub fn before_prepare() {
    let taken = ENDING.with(|ending| ending.change(std::mem::take));
    as_transaction(|| {
        for (lock, mode) in taken {
            // SAFETY: taken as here, in savepoints that have ended. No statement can name our locks.
            unsafe { give_back(&lock.tag(), mode as pg_sys::LOCKMODE) };
        }
    });
}

/// The transaction has ended, and Postgres has released its locks or is about to.
pub fn at_end() {
    ENDING.with(|ending| ending.change(|ending| drop(std::mem::take(ending))));
}
