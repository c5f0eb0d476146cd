//! Advisory locks of our own: who sweeps, who makes a relation of a name, and, without shared memory, who loads.
//!
//! Each belongs to the transaction, or the savepoint, and is given up before PREPARE TRANSACTION, which would keep it
//! for as long as the prepared transaction lives.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::lock::give_back;
use super::transaction_local::TransactionLocal;
use super::wait;
use crate::error::Error;
use crate::pg::events::{self, Phase};
use crate::pg::version;

thread_local! {
    /// Advisory locks that the transaction has asked for and that end with it. That of a name is not
    /// among them: it goes with the relation that the transaction makes, prepared or not.
    static ENDING: TransactionLocal<HashSet<(Advisory, u32)>> = TransactionLocal::default();
}

/// Kinds of advisory locks. An application's own are of kind 1 or 2, whatever numbers it gives: so
/// nobody can take one of these by hand and keep others from their work.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LockKind {
    Lease = 3,
    Sweep = 4,
    Name = 5,
    /// Of a whole cache: who loads keys of it, and who keeps them from that.
    Loads = 6,
    /// Of a key: who has waited for its loaders long enough, and wants no new ones.
    Gate = 7,
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
    kind: LockKind,
    one: u32,
    two: u32,
}

fn advisory(kind: LockKind, one: u32, two: u32) -> Advisory {
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
    advisory(LockKind::Name, schema.to_u32(), hasher.finish() as u32)
}

/// Takes the right to sweep a cache until the transaction ends; false while somebody else has it.
pub fn try_sweep(relation: pg_sys::Oid) -> bool {
    try_in(
        advisory(LockKind::Sweep, relation.to_u32(), 0),
        pg_sys::ExclusiveLock,
    )
}

/// Takes the lock that stands for a lease, until the transaction ends, if nobody has it.
///
/// Who loads has the key in mode Exclusive and the cache in mode RowShare; who loads many has the cache in mode
/// Share alone. Who changes the source has the keys in mode AccessExclusive and the cache in mode RowExclusive;
/// who changes many has the cache in mode Exclusive. No loader gets through a gate, of the cache or of the key, while
/// somebody has shut it.
pub fn try_lease(relation: pg_sys::Oid, name: u64) -> Leased {
    let cache = advisory(LockKind::Loads, relation.to_u32(), 0);
    let open = is_open(gate(relation)) && is_open(gate_of(name));
    if !open || !try_in(cache, pg_sys::RowShareLock) {
        return Leased::Pending;
    }
    let key = lease(name);
    if try_in(key, pg_sys::ExclusiveLock) {
        return Leased::Won;
    }
    match is_free(key, pg_sys::AccessShareLock) {
        true => Leased::Busy,
        false => Leased::Pending,
    }
}

/// Takes what stands for leases of all keys of a cache, of which others may have as many.
pub fn try_all_leases(relation: pg_sys::Oid) -> bool {
    let cache = advisory(LockKind::Loads, relation.to_u32(), 0);
    is_open(gate(relation)) && try_in(cache, pg_sys::ShareLock)
}

/// Waits for whoever loads one of these keys, or any key of the cache, and keeps others from it until the
/// transaction has ended. Not for a loader that waits for a lock of ours: that would be a deadlock; false then.
///
/// For loaders it is only tried, again and again, and in no queue: the deadlock detector would see a loader that waits
/// for the source's row and end one of the two. Another who keeps them out has a transaction to end as we have, and may
/// want what we have by then: that is waited for in the queue, where the detector sees it.
pub fn keep_leases(relation: pg_sys::Oid, names: Option<&[u64]>) -> bool {
    let cache = advisory(LockKind::Loads, relation.to_u32(), 0);
    let Some(names) = names else {
        shut(relation);
        return keep(
            cache,
            pg_sys::ExclusiveLock,
            pg_sys::ShareLock,
            gate(relation),
        );
    };
    let mut all = keep(
        cache,
        pg_sys::RowExclusiveLock,
        pg_sys::RowShareLock,
        gate(relation),
    );
    for &name in names {
        all &= keep(
            lease(name),
            pg_sys::AccessExclusiveLock,
            pg_sys::AccessShareLock,
            gate_of(name),
        );
    }
    all
}

/// Shuts the gate of a cache: nobody loads anew, so those who do are soon waited for, one after another as they are.
/// Others who shut it for all its keys have changed many, as we have, and would be waited for in any case.
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
///
/// Loaders that follow each other could have it whenever it is tried. So the gate is shut before long, and then
/// those of now are the last. It is only tried, and opened again with the lock in hand, so nobody ever waits for it who
/// would not wait for us as well; and others who wait for the same loaders shut it beside us.
fn keep(lock: Advisory, mode: u32, beside_loaders: u32, gate: Advisory) -> bool {
    let (mut asked, mut pause) = (Instant::now(), 1);
    let (mut patient, mut shut, mut had) = (true, false, true);
    let began = asked;
    while !try_in(lock, mode) {
        if wait::is_too_long(began.elapsed()) {
            ErrorReport::from(Error::LockTimeout).report(PgLogLevel::ERROR);
        }
        wait_to_get(lock, beside_loaders);
        if asked.elapsed() >= ASK {
            let waits = |&process: &i32| wait::waits_for_us(process);
            if version::holders_in_the_way(&lock.tag(), mode as pg_sys::LOCKMODE)
                .iter()
                .any(waits)
            {
                had = false;
                break;
            }
            (asked, patient) = (Instant::now(), false);
        }
        shut = shut || !patient && try_in(gate, SHUT);
        wait::pause(pause);
        pause = ATTEMPT.min(pause * 2);
    }
    if shut {
        // SAFETY: taken above, under the same resource owner.
        as_transaction(|| unsafe {
            pg_sys::LockRelease(&gate.tag(), SHUT as pg_sys::LOCKMODE, false)
        });
    }
    had
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
    advisory(LockKind::Lease, (name >> 32) as u32, name as u32)
}

/// Shut by who keeps all loaders of a cache out.
fn gate(relation: pg_sys::Oid) -> Advisory {
    advisory(LockKind::Loads, relation.to_u32(), 1)
}

/// Shut by who keeps the loaders of a key out.
fn gate_of(name: u64) -> Advisory {
    advisory(LockKind::Gate, (name >> 32) as u32, name as u32)
}

/// The mode in which a gate is shut by who waits for loaders: others may shut it as well.
const SHUT: u32 = pg_sys::ShareLock;

/// Whether nobody has shut a gate, nor waits to do so.
fn is_open(gate: Advisory) -> bool {
    is_free(gate, pg_sys::RowExclusiveLock)
}

/// Whether nobody has the lock in a mode that conflicts with this one, nor waits for it.
fn is_free(lock: Advisory, mode: u32) -> bool {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
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
