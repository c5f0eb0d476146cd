//! The extension's advisory locks: for sweeps, for the creation of a relation under a name, for keys that an EXEC
//! watches, and, on a server without pgcache's shared memory, for loading values.
//!
//! Each lock belongs to the transaction or the savepoint. This module releases most of them before PREPARE TRANSACTION;
//! otherwise they would block other sessions until the prepared transaction is decided.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::lock::{give_back, is_touched};
use super::transaction_local::TransactionLocal;
use super::{subtransaction, wait};
use crate::error::Error;
use crate::pg::events::{self, Phase};
use crate::pg::session::fault::{self, Fault};

thread_local! {
    /// Advisory locks that the transaction has requested and that must not outlive PREPARE TRANSACTION. The lock of a
    /// name is not among them, because it protects the relation that the transaction creates, and must last until the
    /// transaction is decided.
    static ENDING: TransactionLocal<HashSet<(Advisory, u32)>> = TransactionLocal::default();
}

/// The kinds of pgcache's advisory locks. Applications' advisory locks are always of kind 1 or 2, so no user can take a
/// lock of pgcache with pg_advisory_lock() and block other sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LockKind {
    /// The lock of a key: held by a session that loads the key, and by transactions that change its source.
    Lease = 3,
    Sweep = 4,
    Name = 5,
    /// The lock of a cache, held by sessions that load its keys, and by transactions that change the source of any key.
    Loads = 6,
    /// The lock of a key without an entry that an EXEC watches. The session also holds the lock of the cache.
    Watched = 8,
    WatchedCache = 9,
}

/// The outcome of an attempt to take the lock that replaces a lease on a server without shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leased {
    Won,
    /// Another session loads the key.
    Busy,
    /// A transaction changes the key's source, and its commit is not yet visible.
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

/// Makes sessions that create relations of the same name wait for each other, with an advisory lock that lasts until
/// the transaction ends. Two names may share a lock by chance, which costs a wait and changes no result.
pub fn name(schema: pg_sys::Oid, name: &[u8]) {
    if fault::on(Fault::NameNotLocked) {
        return;
    }
    acquire(of_name(schema, name), pg_sys::ExclusiveLock, true);
    // SAFETY: in a transaction. Taking an advisory lock, unlike a relation's lock, processes no invalidation messages.
    // Without them this session would not find the relation that the lock's former holder created.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}

/// Releases the lock of a name. The caller has found that a relation already has the name, so no session need wait for
/// this transaction.
pub fn leave_name(schema: pg_sys::Oid, name: &[u8]) {
    if fault::on(Fault::NameNotLocked) {
        return;
    }
    leave(of_name(schema, name), pg_sys::ExclusiveLock);
}

fn of_name(schema: pg_sys::Oid, name: &[u8]) -> Advisory {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    advisory(LockKind::Name, schema.to_u32(), hasher.finish() as u32)
}

/// Takes the lock of a watched key until the transaction ends.
pub fn hold_key(relation: pg_sys::Oid, name: u32) {
    acquire(watched(relation, name), pg_sys::ExclusiveLock, true);
}

/// Takes the lock of a cache with watched keys: to watch single keys, in a mode that several such sessions can hold; to
/// watch `all` keys, exclusively.
pub fn hold_cache(relation: pg_sys::Oid, all: bool) {
    acquire(watched_cache(relation), cache_mode(all), true);
}

fn cache_mode(all: bool) -> u32 {
    match all {
        true => pg_sys::ExclusiveLock,
        false => pg_sys::RowShareLock,
    }
}

/// Releases the lock of a watched key.
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

/// Waits until no other transaction watches all keys of the cache or, with `any`, until no other transaction watches
/// any key.
pub fn wait_for_cache(relation: pg_sys::Oid, any: bool) {
    let mode = match any {
        true => pg_sys::ExclusiveLock,
        false => pg_sys::RowExclusiveLock,
    };
    wait_for_exec(watched_cache(relation), mode);
}

/// The time that a commit waits for an EXEC before it joins the lock queue.
const OUTSIDE: Duration = Duration::from_millis(500);

/// Waits until the lock is free. For the time `OUTSIDE` it only retries, outside the lock queue. An EXEC that waits for
/// a row of this transaction gives way within this time; in the lock queue, the deadlock detector would see a cycle and
/// might abort this commit.
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

/// Takes the right to sweep a cache until the transaction ends. Returns false if another session has it.
pub fn try_sweep(relation: pg_sys::Oid) -> bool {
    let lock = advisory(LockKind::Sweep, relation.to_u32(), 0);
    take(lock, pg_sys::ExclusiveLock, false)
}

/// Takes the lock that replaces a lease, until the transaction ends, if no session holds it or waits for it.
///
/// The lock modes are as follows. A loader of one key holds the key's lock in Exclusive mode and the cache's lock in
/// RowShare mode; a loader of many keys holds only the cache's lock, in Share mode. A transaction that changes the
/// source holds the keys' locks in AccessExclusive mode and the cache's lock in RowExclusive mode; a transaction that
/// changes many keys holds only the cache's lock, in Exclusive mode. An attempt that does not wait fails as soon as
/// another session waits for the lock in a conflicting mode, so a series of loaders cannot starve a writer.
pub fn try_lease(relation: pg_sys::Oid, name: u64) -> Leased {
    if is_touched(relation) || !take(loads(relation), pg_sys::RowShareLock, false) {
        return Leased::Pending;
    }
    let won = take(lease(name), pg_sys::ExclusiveLock, false);
    // Checks again while it holds the lock. A transaction that was prepared since the first check called `lock::touch`
    // before it released its lock.
    if is_touched(relation) || !won && !is_free(lease(name), pg_sys::AccessShareLock) {
        return Leased::Pending;
    }
    match won {
        true => Leased::Won,
        false => Leased::Busy,
    }
}

/// Takes the lock that replaces the leases of all keys of a cache; several loaders may hold it at the same time.
/// Returns false while a transaction that changes the source keeps loaders away.
pub fn try_all_leases(relation: pg_sys::Oid) -> bool {
    let open = !is_touched(relation) && take(loads(relation), pg_sys::ShareLock, false);
    open && !is_touched(relation) // checked again, as in `try_lease`
}

/// Waits in the lock queue until no session loads the key. Returns false if `lock_timeout` or `longest` ends the wait,
/// or if a deadlock does.
pub fn wait_for_lease(name: u64, longest: Duration) -> bool {
    let longest = longest.as_millis().try_into().unwrap_or(i32::MAX).max(1);
    // SAFETY: a plain C variable of this process, which is restored before any other code runs. The end of the
    // subtransaction releases the locks that the subtransaction has taken.
    let waited = unsafe {
        let own = pg_sys::LockTimeout;
        pg_sys::LockTimeout = if own > 0 { own.min(longest) } else { longest };
        let waited = subtransaction::attempt(|| wait_to_get(lease(name), pg_sys::RowShareLock));
        pg_sys::LockTimeout = own;
        waited
    };
    match waited {
        Err(failure) if !(failure.locked || failure.is_deadlock()) => failure.raise(),
        waited => waited.is_ok(),
    }
}

/// Waits in the lock queue for sessions that load one of these keys, or any key of the cache if `names` is None, and
/// prevents new loads of the keys until the transaction has ended. If a loading session waits for this session,
/// Postgres aborts one of the two.
pub fn keep_leases(relation: pg_sys::Oid, names: Option<&[u64]>) {
    let Some(names) = names else {
        take(loads(relation), pg_sys::ExclusiveLock, true);
        return;
    };
    take(loads(relation), pg_sys::RowExclusiveLock, true);
    for &name in names {
        take(lease(name), pg_sys::AccessExclusiveLock, true);
    }
}

fn lease(name: u64) -> Advisory {
    advisory(LockKind::Lease, (name >> 32) as u32, name as u32)
}

fn loads(relation: pg_sys::Oid) -> Advisory {
    advisory(LockKind::Loads, relation.to_u32(), 0)
}

/// Waits in the lock queue until the lock is free in this mode, and releases it at once.
fn wait_to_get(lock: Advisory, mode: u32) {
    acquire(lock, mode, true);
    leave(lock, mode);
}

/// Returns whether no session holds the lock, or waits for it, in a mode that conflicts with `mode`.
fn is_free(lock: Advisory, mode: u32) -> bool {
    let free = acquire(lock, mode, false);
    if free {
        leave(lock, mode);
    }
    free
}

/// Takes a lock until the transaction ends or is about to be prepared. Returns false if the lock is not free and
/// `waits` is false, or if the transaction is being prepared.
fn take(lock: Advisory, mode: u32, waits: bool) -> bool {
    if events::phase() == Phase::Preparing {
        return false; // `before_prepare` has already run, so this lock would not be released
    }
    ENDING.with(|ending| ending.change(|ending| ending.insert((lock, mode))));
    acquire(lock, mode, waits)
}

/// Takes a lock until the transaction ends, even if the transaction is prepared. Returns false if the lock is not free
/// and `waits` is false.
fn acquire(lock: Advisory, mode: u32, waits: bool) -> bool {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: LockAcquire copies the tag; the resource owner is the transaction's, which releases the lock at its
    // end.
    let taken = as_transaction(|| unsafe { pg_sys::LockAcquire(&tag, mode, false, !waits) });
    taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

fn leave(lock: Advisory, mode: u32) {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: `acquire` took the lock under the same resource owner.
    as_transaction(|| unsafe { pg_sys::LockRelease(&tag, mode, false) });
}

/// Runs `work` with the transaction or the savepoint as the owner of new locks. Otherwise an open cursor could own the
/// locks, and would keep them when the transaction is prepared.
pub(super) fn as_transaction<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a function call is always inside a transaction, whose owner outlives the call. After an error the abort
    // sets the owner.
    unsafe {
        let former = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::CurTransactionResourceOwner;
        let result = work();
        pg_sys::CurrentResourceOwner = former;
        result
    }
}

/// Releases the locks that a prepared transaction must not hold. PREPARE would transfer them to the prepared
/// transaction, where they would outlive the session and restarts, and block other sessions. After the release, marks
/// protect the same changes or, on a server without a hot tier, the lock of `lock::touch`. A loader takes its own lock
/// and then checks the lock of `lock::touch`, and a writer that changes the loader's source waits for the loader's
/// lock; so one of the two sees the other.
pub fn before_prepare() {
    let taken = ENDING.with(|ending| ending.change(std::mem::take));
    as_transaction(|| {
        for (lock, mode) in taken {
            // SAFETY: the locks were taken under this resource owner, or in savepoints whose locks have passed to it.
            // No statement can name pgcache's advisory locks, so no other code relies on them.
            unsafe { give_back(&lock.tag(), mode as pg_sys::LOCKMODE) };
        }
    });
}

/// Forgets the locks of a transaction that has ended. Postgres has released them or is about to.
pub fn at_end() {
    ENDING.with(|ending| ending.change(|ending| drop(std::mem::take(ending))));
}
