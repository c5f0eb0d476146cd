//! Advisory locks of the extension: for sweeps, for creating a relation of a name, for keys that an EXEC watches,
//! and, on a server without pgcache's shared memory, for loading values.
//!
//! Each lock belongs to the transaction or the savepoint. Most are released before PREPARE TRANSACTION, which would
//! otherwise keep them until the prepared transaction is decided and block other sessions for as long.

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
    /// Advisory locks that the transaction has requested and that end with the session's part of it. The lock of a
    /// name is not among them, because it belongs to the relation that the transaction creates, prepared or not.
    static ENDING: TransactionLocal<HashSet<(Advisory, u32)>> = TransactionLocal::default();
}

/// The kinds of our advisory locks. Locks of applications are always of kind 1 or 2, so no user can take one of ours
/// with pg_advisory_lock() and block other sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LockKind {
    /// The lock of a key: held by the session that loads it, and by transactions that change its source.
    Lease = 3,
    Sweep = 4,
    Name = 5,
    /// The same for a whole cache.
    Loads = 6,
    /// The lock of a key without an entry that an EXEC watches. The session holds the lock of its cache as well.
    Watched = 8,
    WatchedCache = 9,
}

/// The outcome of an attempt to take the lock that stands for a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leased {
    Won,
    /// Another session loads the key.
    Busy,
    /// A transaction changes the key's source, and its commit is not visible yet.
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

/// Makes sessions that create a relation of one name wait for each other, by an advisory lock until the transaction
/// ends. Two names share a lock only by chance, which costs a wait and changes no result.
pub fn name(schema: pg_sys::Oid, name: &[u8]) {
    if fault::on(Fault::NameNotLocked) {
        return;
    }
    acquire(of_name(schema, name), pg_sys::ExclusiveLock, true);
    // SAFETY: in a transaction. Unlike a relation's lock this one does not process invalidation messages, without
    // which the relation that the former holder created would not be found.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}

/// Releases the lock of a name. Called when a relation already has the name, so that no session waits for one that
/// this transaction creates.
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

/// Takes the lock of the cache of watched keys: in a shared mode with other sessions that watch single keys, or
/// exclusively to watch all keys.
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

/// Waits until no other transaction watches all keys of the cache, or with `any`, until none watches any key.
pub fn wait_for_cache(relation: pg_sys::Oid, any: bool) {
    let mode = match any {
        true => pg_sys::ExclusiveLock,
        false => pg_sys::RowExclusiveLock,
    };
    wait_for_exec(watched_cache(relation), mode);
}

/// How long a commit waits for an EXEC before it joins the lock queue.
const OUTSIDE: Duration = Duration::from_millis(500);

/// Waits until the lock is free. At first it only retries, outside of the lock queue: an EXEC that waits for a row
/// of ours gives way within that time, whereas the deadlock detector would see a cycle and might abort our commit.
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

/// Takes the right to sweep a cache until the transaction ends. Returns false while another session has it.
pub fn try_sweep(relation: pg_sys::Oid) -> bool {
    let lock = advisory(LockKind::Sweep, relation.to_u32(), 0);
    take(lock, pg_sys::ExclusiveLock, false)
}

/// Takes the lock that stands for a lease, until the transaction ends, if no session holds it or waits for it.
///
/// The lock modes are these. A loader of one key holds the key's lock in Exclusive and the cache's in RowShare; a
/// loader of many keys holds only the cache's, in Share. A transaction that changes the source holds the keys' locks
/// in AccessExclusive and the cache's in RowExclusive; one that changes many keys holds the cache's in Exclusive.
/// Postgres refuses an attempt without waiting as soon as another session waits for the lock in a conflicting mode,
/// so a series of loaders cannot starve a writer.
pub fn try_lease(relation: pg_sys::Oid, name: u64) -> Leased {
    if is_touched(relation) || !take(loads(relation), pg_sys::RowShareLock, false) {
        return Leased::Pending;
    }
    let won = take(lease(name), pg_sys::ExclusiveLock, false);
    // Checks again while it holds the lock. A transaction that was prepared meanwhile has called `lock::touch`
    // before it released its lock.
    if is_touched(relation) || !won && !is_free(lease(name), pg_sys::AccessShareLock) {
        return Leased::Pending;
    }
    match won {
        true => Leased::Won,
        false => Leased::Busy,
    }
}

/// Takes the lock that stands for leases of all keys of a cache; several loaders may hold it at once. Returns false
/// while a change of the source keeps loaders away.
pub fn try_all_leases(relation: pg_sys::Oid) -> bool {
    let open = !is_touched(relation) && take(loads(relation), pg_sys::ShareLock, false);
    open && !is_touched(relation) // as in `try_lease`
}

/// Waits in the lock queue until no session loads the key. Returns false if `lock_timeout` or `longest` ends the
/// wait, or if the holder waits for this session (a deadlock).
pub fn wait_for_lease(name: u64, longest: Duration) -> bool {
    let longest = longest.as_millis().try_into().unwrap_or(i32::MAX).max(1);
    // SAFETY: a plain C variable of this process, which is restored before anything else runs. The end of the
    // subtransaction releases the locks that it has taken.
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

/// Waits in the lock queue for sessions that load one of these keys (with None: any key of the cache), and keeps
/// loaders of them away until the transaction has ended. If such a session waits for this one, Postgres aborts one
/// of the two.
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

/// Waits in the lock queue until the lock is free in this mode, and releases it.
fn wait_to_get(lock: Advisory, mode: u32) {
    acquire(lock, mode, true);
    leave(lock, mode);
}

/// Returns whether no session holds the lock in a mode that conflicts with this one, or waits for it.
fn is_free(lock: Advisory, mode: u32) -> bool {
    let free = acquire(lock, mode, false);
    if free {
        leave(lock, mode);
    }
    free
}

/// Takes a lock until the transaction ends or is about to be prepared. Returns false if it is not free and `waits`
/// is false.
fn take(lock: Advisory, mode: u32, waits: bool) -> bool {
    if events::phase() == Phase::Preparing {
        return false; // earlier locks were released before PREPARE, and this one would not be
    }
    ENDING.with(|ending| ending.change(|ending| ending.insert((lock, mode))));
    acquire(lock, mode, waits)
}

/// Takes a lock until the transaction ends, also across PREPARE. Returns false as above.
fn acquire(lock: Advisory, mode: u32, waits: bool) -> bool {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: LockAcquire copies the tag; the resource owner is the transaction's, which releases the lock at its
    // end.
    let taken = as_transaction(|| unsafe { pg_sys::LockAcquire(&tag, mode, false, !waits) });
    taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

fn leave(lock: Advisory, mode: u32) {
    let (tag, mode) = (lock.tag(), mode as pg_sys::LOCKMODE);
    // SAFETY: taken by `acquire`, under the same resource owner.
    as_transaction(|| unsafe { pg_sys::LockRelease(&tag, mode, false) });
}

/// Runs `work` with the transaction or the savepoint as the owner of new locks. Otherwise an open cursor could own
/// them, and would keep them when the transaction is prepared.
pub(super) fn as_transaction<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a function call is always inside of a transaction, whose owner outlives the call. After an error the
    // abort sets the owner.
    unsafe {
        let former = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::CurTransactionResourceOwner;
        let result = work();
        pg_sys::CurrentResourceOwner = former;
        result
    }
}

/// Releases the locks that a prepared transaction must not hold. PREPARE would transfer them to that transaction,
/// where they outlive the session and restarts, and block other sessions. From then on marks protect the same
/// changes, or without a tier `lock::touch`, which a session checks before it takes a lease. A loader takes its lock
/// before that check, and a writer that changes the loader's source waits for the lock, so one of the two sees the
/// other.
pub fn before_prepare() {
    let taken = ENDING.with(|ending| ending.change(std::mem::take));
    as_transaction(|| {
        for (lock, mode) in taken {
            // SAFETY: taken under this resource owner, or in savepoints whose locks have passed to it. No statement
            // can name our locks, so no other code relies on them.
            unsafe { give_back(&lock.tag(), mode as pg_sys::LOCKMODE) };
        }
    });
}

/// Forgets the locks of a transaction that has ended. Postgres has released them or is about to.
pub fn at_end() {
    ENDING.with(|ending| ending.change(|ending| drop(std::mem::take(ending))));
}
