//! Keys that have no entry and must have none until an EXEC of the Redis protocol has ended, because its client
//! watches them.
//!
//! There is no row to lock, and to write one would be a change that others see. So the EXEC holds a lock for the key,
//! and a transaction that has changed the key waits for it before its commit. Which of the two is first is decided by
//! the key's mark: a writer sets its mark and then looks for an EXEC, an EXEC announces itself, takes the lock and
//! then looks for marks. So one of the two sees the other. Where that is the EXEC, it gives its locks back and tries
//! again when the writer's commit is visible.

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

/// Keys that are locked one by one. More take the lock of the cache: the server has a few thousand locks.
const MOST_LOCKS: usize = 64;

thread_local! {
    /// The bit of this process among those that hold such locks.
    static BIT: Cell<u64> = const { Cell::new(0) };
}

/// Makes this process the holder of this number, and ends what its predecessor held.
pub fn begin(number: usize) {
    BIT.set(1 << (number % u64::BITS as usize));
    end();
}

/// The lock of a key: two keys share one by chance only, which costs a wait.
fn name(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// Keeps other transactions that change these keys from their commit until this one has ended. They come in the order
/// of the keys. False without a tier, where there are no marks.
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

/// Whether a commit of the key is not visible yet. Under the partition's lock, so that a writer that raises its mark
/// later sees this process announced.
fn is_being_changed(tier: &Tier, key: &HashedKey) -> bool {
    tier.read(key.hash, |_| tier.is_marked(key.hash))
}

/// The transaction has ended, and the locks with it.
pub fn end() {
    if let Some(tier) = tier() {
        tier.control().watchers.fetch_and(!BIT.get(), SeqCst);
    }
}

/// Whether a process may hold keys.
pub fn is_anything_held() -> bool {
    tier().is_some_and(|tier| tier.control().watchers.load(SeqCst) != 0)
}

/// Waits until no EXEC holds these keys of a cache; None: any of its keys. Their marks stand.
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
