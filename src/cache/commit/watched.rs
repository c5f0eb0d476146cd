//! Locks keys without an entry that a Redis client watches (WATCH), so that no transaction creates them before the
//! client's EXEC has ended.
//!
//! No row exists to lock, and writing one would be a visible change. So the EXEC holds a lock for the key, and a
//! transaction that has changed the key waits for the lock before its commit. The mark of the key decides which
//! transaction is first: a writer sets its mark and then checks for an EXEC; an EXEC announces itself, takes the lock
//! and then checks for marks. So the writer sees the EXEC, or the EXEC sees the mark. An EXEC that sees a mark releases
//! its locks and tries again when the writer's commit is visible.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use pgrx::PgLogLevel;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::memory;
use crate::pg::session::{advisory, wait};
use crate::pg::shmem::tier::{Tier, tier};

/// The largest number of keys that are locked one by one. For more keys the EXEC locks the cache, because the server
/// has only a few thousand locks.
const MOST_LOCKS: usize = 64;

thread_local! {
    /// The bit of this process in the set of processes that hold locks on keys.
    static BIT: Cell<u64> = const { Cell::new(0) };
}

/// Chooses the bit of this process, which has the index `number`, and clears the bit, because an earlier process with
/// this index may have left it set.
pub fn begin(number: usize) {
    BIT.set(1 << (number % u64::BITS as usize));
    end();
}

/// Returns the name of a key's lock. Two keys share a name only by chance, which costs a wait.
fn name(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// Keeps transactions that change these keys from committing until this transaction has ended. The keys are sorted.
/// Returns false without a tier, because marks do not exist then.
pub fn hold(relation: Oid, keys: &[HashedKey]) -> bool {
    let Some(tier) = tier() else {
        return false;
    };
    let began = Instant::now();
    tier.control().watchers.fetch_or(BIT.get(), SeqCst);
    let all = keys.len() > MOST_LOCKS;
    let locked = if all { &[] } else { keys };
    loop {
        advisory::hold_cache(relation, all);
        for key in locked {
            advisory::hold_key(relation, name(key.bytes()));
        }
        if !keys.iter().any(|key| is_being_changed(tier, key)) {
            return true;
        }
        for key in locked {
            advisory::leave_key(relation, name(key.bytes()));
        }
        advisory::leave_cache(relation, all);
        if wait::is_too_long(began.elapsed()) {
            ErrorReport::from(Error::LockTimeout).report(PgLogLevel::ERROR);
        }
        wait::sleep(1);
    }
}

/// Returns whether a commit that changes the key is not visible yet. Reads under the partition's lock, so that a
/// writer that raises its mark later sees that this process has announced itself.
fn is_being_changed(tier: &Tier, key: &HashedKey) -> bool {
    tier.read(key.hash, |_| tier.is_marked(key.hash))
}

/// Clears the bit of this process after the transaction and its locks have ended.
pub fn end() {
    if let Some(tier) = tier() {
        tier.control().watchers.fetch_and(!BIT.get(), SeqCst);
    }
}

/// Returns whether a process may hold locks on keys.
pub fn is_anything_held() -> bool {
    tier().is_some_and(|tier| tier.control().watchers.load(SeqCst) != 0)
}

/// Waits until no EXEC holds these keys of a cache, which are marked. If `keys` is None, waits for all keys of the
/// cache.
pub fn wait_for(relation: Oid, keys: Option<&[Vec<u8>]>) {
    advisory::wait_for_cache(relation, keys.is_none());
    let Some(keys) = keys else {
        return;
    };
    let mut names = memory::collect(keys.iter().map(|key| name(key)));
    names.sort_unstable();
    names.dedup();
    for name in names {
        advisory::wait_for_key(relation, name);
    }
}
