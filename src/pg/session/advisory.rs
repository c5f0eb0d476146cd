//! Advisory locks of our own: for sweeps, for making a relation of a name, and, without shared
//! memory, for loading.
//!
//! Each belongs to the transaction, or the savepoint, and is given up before PREPARE TRANSACTION,
//! which would keep it for as long as the prepared transaction lives.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::lock::{give_back, is_touched};
use super::transaction_local::TransactionLocal;
use super::wait;
use crate::error::Error;
use crate::pg::events::{self, Phase};
use crate::pg::session::fault::{self, Fault};
use crate::pg::version;

thread_local! {
    /// Advisory locks that the transaction has asked for and that end with it. That of a name is
    /// not among them: it goes with the relation that the transaction makes, prepared or not.
    static ENDING: TransactionLocal<HashSet<(Advisory, u32)>> = TransactionLocal::default();
}

/// Kinds of advisory locks. An application's own are of kind 1 or 2, whatever numbers it gives: so
/// nobody can take one of these by hand and keep others from their work.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LockKind {
    Lease = 3,
    Sweep = 4,
    Name = 5,
    /// Of a whole cache: held by sessions that load keys of it, and by transactions that keep them
    /// from it.
    Loads = 6,
    /// Of a key: who has waited for its loaders long enough, and wants no new ones.
    Gate = 7,
    /// Of a key without an entry that an EXEC watches; of its cache, held beside it.
    Watched = 8,
    WatchedCache = 9,
}

/// What came of trying for the lock that stands for a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leased {
    Won,
    /// Somebody else loads the key.
    Busy,
    /// A transaction changes its source, and its commit is not visible yet.
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

/// Serialises those who create a relation of one name: an advisory lock until the transaction ends.
/// Two names meet by chance only, and then it costs a wait, never a wrong answer.
pub fn name(schema: pg_sys::Oid, name: &[u8]) {
    if fault::on(Fault::NameNotLocked) {
        return;
    }
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

/// Gives the lock of a name back: it has a relation already, so nobody needs to wait for one that
/// we make.
pub fn leave_name(schema: pg_sys::Oid, name: &[u8]) {
    if fault::on(Fault::NameNotLocked) {
        return;
    }
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

/// Takes the lock of a watched key until the transaction ends.
pub fn hold_key(relation: pg_sys::Oid, name: u32) {
    hold(watched(relation, name), pg_sys::ExclusiveLock);
}

/// Takes the lock of the cache of watched keys: beside others that watch keys of it, or of all its keys alone.
pub fn hold_cache(relation: pg_sys::Oid, all: bool) {
    hold(watched_cache(relation), cache_mode(all));
}

fn cache_mode(all: bool) -> u32 {
    match all {
        true => pg_sys::ExclusiveLock,
        false => pg_sys::RowShareLock,
    }
}

/// Gives the lock of a watched key back.
pub fn leave_key(relation: pg_sys::Oid, name: u32) {
    leave(watched(relation, name), pg_sys::ExclusiveLock);
}

pub fn leave_cache(relation: pg_sys::Oid, all: bool) {
    leave(watched_cache(relation), cache_mode(all));
}

/// Waits until no other transaction has the lock of a watched key.
pub fn wait_for_key(relation: pg_sys::Oid, name: u32) {
    wait_for_exec(watched(relation, name), pg_sys::ShareLock);
}

/// Waits until no other transaction watches all keys of the cache; with `any`, until none watches any.
pub fn wait_for_cache(relation: pg_sys::Oid, any: bool) {
    let mode = match any {
        true => pg_sys::ExclusiveLock,
        false => pg_sys::RowExclusiveLock,
    };
    wait_for_exec(watched_cache(relation), mode);
}

/// How long a commit waits for an EXEC before it stands in the queue.
const OUTSIDE: Duration = Duration::from_millis(500);

/// Waits until the lock can be had. At first outside of the queue: an EXEC that waits for a row of ours gives way
/// within that time, where the deadlock detector would see a circle and may end our commit.
fn wait_for_exec(lock: Advisory, mode: u32) {
    let began = Instant::now();
    while !is_free(lock, mode) {
        if wait::is_too_long(began.elapsed()) {
            ErrorReport::from(Error::LockTimeout).report(PgLogLevel::ERROR);
        }
        if began.elapsed() >= OUTSIDE {
            return wait_to_get(lock, mode);
        }
        wait::sleep(1);
    }
}

fn watched(relation: pg_sys::Oid, name: u32) -> Advisory {
    advisory(LockKind::Watched, relation.to_u32(), name)
}

fn watched_cache(relation: pg_sys::Oid) -> Advisory {
    advisory(LockKind::WatchedCache, relation.to_u32(), 0)
}

fn hold(lock: Advisory, mode: u32) {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: LockAcquire copies the tag; the resource owner is the transaction's, which gives the
    // lock back at its end.
    as_transaction(|| unsafe { pg_sys::LockAcquire(&tag, mode, false, false) });
}

fn leave(lock: Advisory, mode: u32) {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: taken by `hold`, under the same resource owner.
    as_transaction(|| unsafe { pg_sys::LockRelease(&tag, mode, false) });
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
/// The modes are these. A loader holds the key in Exclusive and the cache in RowShare; a loader of
/// many keys holds the cache in Share alone. A transaction that changes the source holds the keys
/// in AccessExclusive and the cache in RowExclusive; one that changes many keys holds the cache in
/// Exclusive. While a gate is shut, of the cache or of the key, no loader takes any of them.
pub fn try_lease(relation: pg_sys::Oid, name: u64) -> Leased {
    let cache = advisory(LockKind::Loads, relation.to_u32(), 0);
    let open = is_open(gate(relation)) && is_open(gate_of(name)) && !is_touched(relation);
    if !open || !try_in(cache, pg_sys::RowShareLock) {
        return Leased::Pending;
    }
    let key = lease(name);
    if try_in(key, pg_sys::ExclusiveLock) {
        // Once more, with the lock: who was prepared meanwhile has said so before the lock was free.
        return match is_touched(relation) {
            true => Leased::Pending,
            false => Leased::Won,
        };
    }
    match is_free(key, pg_sys::AccessShareLock) {
        true => Leased::Busy,
        false => Leased::Pending,
    }
}

/// Takes the lock that stands for leases of all keys of a cache; several loaders may hold it at
/// once. False while a change of the source keeps loaders out.
pub fn try_all_leases(relation: pg_sys::Oid) -> bool {
    let cache = advisory(LockKind::Loads, relation.to_u32(), 0);
    let open = is_open(gate(relation)) && !is_touched(relation);
    open && try_in(cache, pg_sys::ShareLock) && !is_touched(relation) // as in `try_lease`
}

/// Waits until nobody loads one of these keys (with None: any key of the cache), and keeps loaders
/// from them until the transaction has ended. It does not wait for a loader that waits for a lock
/// of ours, which would be a deadlock: it gives false then.
///
/// Behind loaders the locks are only tried, again and again, and in no queue: in the queue the
/// deadlock detector would see a loader that waits for the source's row, and end one of the two.
/// Another transaction that keeps loaders out is waited for in the queue: it may come to want what
/// we hold, and there the detector sees that.
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

/// Shuts the gate of a cache until the transaction ends: no new loader begins, so only those that
/// are at work are waited for. Others who shut it for all its keys have changed many, as we have,
/// and would be waited for in any case.
fn shut(relation: pg_sys::Oid) {
    hold(gate(relation), pg_sys::AccessExclusiveLock);
}

/// Milliseconds between two attempts, at most.
const ATTEMPT: i64 = 20;
/// How often we check whether the sessions in the way wait for us.
const ASK: Duration = Duration::from_millis(200);

/// Takes a lock, trying again while loaders hold it; false when a session that holds it waits for
/// us. `beside_loaders` is a mode that conflicts with transactions that keep loaders out, and with
/// no loader.
///
/// Loaders that follow each other could hold it whenever it is tried. So the gate is shut before
/// long, and those of now are the last. It is only tried, and opened again with the lock in hand,
/// so nobody ever waits for it who would not wait for us as well; and others who wait for the same
/// loaders shut it beside us.
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
        wait::sleep(pause);
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

/// Waits in the queue until the lock can be had in this mode, and gives it back.
fn wait_to_get(lock: Advisory, mode: u32) {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: LockAcquire copies the tag; what it has taken is given back under the same resource
    // owner.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(&tag, mode, false, false);
        pg_sys::LockRelease(&tag, mode, false);
    });
}

fn lease(name: u64) -> Advisory {
    advisory(LockKind::Lease, (name >> 32) as u32, name as u32)
}

/// The lock that is held, in mode AccessExclusive, while all loaders of a cache are kept out.
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
    // SAFETY: LockAcquire copies the tag; what it has taken is given back under the same resource
    // owner.
    as_transaction(|| unsafe {
        let taken = pg_sys::LockAcquire(&tag, mode, false, true);
        let open = taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if open {
            pg_sys::LockRelease(&tag, mode, false);
        }
        open
    })
}

/// Takes a lock until the transaction ends, or is to be prepared; false while somebody else holds
/// it.
fn try_in(lock: Advisory, mode: u32) -> bool {
    if events::phase() == Phase::Preparing {
        return false; // the locks taken before were given up, and this one would not be
    }
    ENDING.with(|ending| ending.change(|ending| ending.insert((lock, mode))));
    let tag = lock.tag();
    // SAFETY: LockAcquire copies the tag; with `dontWait` it waits for nobody.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(&tag, mode as pg_sys::LOCKMODE, false, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    })
}

/// Runs with the transaction, or the savepoint, as the owner of the locks that are taken. Else an
/// open cursor could be the owner, and would keep them when the transaction is prepared.
pub(super) fn as_transaction<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a function call is always inside of a transaction, whose owner outlives the call. An
    // error leaves the owner as it is to the abort, which sets it.
    unsafe {
        let former = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::CurTransactionResourceOwner;
        let result = work();
        pg_sys::CurrentResourceOwner = former;
        result
    }
}

/// Gives up the locks that a prepared transaction must not hold: PREPARE would pass them on to it,
/// where they outlive the session and restarts, and others wait for them. What they guard is guarded by
/// marks from now on, or without a tier by `lock::touch`: who asks for a lease looks for that. A loader
/// has its lock before it looks, and who changes its source waits for it, so one of the two sees the
/// other.
pub fn before_prepare() {
    let taken = ENDING.with(|ending| ending.change(std::mem::take));
    as_transaction(|| {
        for (lock, mode) in taken {
            // SAFETY: taken under this resource owner, or in savepoints whose locks have passed to
            // it. No statement can name our locks, so nothing else relies on them.
            unsafe { give_back(&lock.tag(), mode as pg_sys::LOCKMODE) };
        }
    });
}

/// Forgets the locks of a transaction that has ended; Postgres has released them or is about to.
pub fn at_end() {
    ENDING.with(|ending| ending.change(|ending| drop(std::mem::take(ending))));
}
