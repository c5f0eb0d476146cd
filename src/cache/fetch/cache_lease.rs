//! Implements `cache_lease`, `cache_set_leased` and `cache_release`, for values that are computed outside the database.
//!
//! A client that misses a key gets a numbered lease, computes the value, and stores it under that number. The value is
//! stored only if the key and its source have not changed since the lease was granted.

use std::time::Duration;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::entries::{self, Entry, Look};
use crate::cache::lease::acquire::{self, Turn};
use crate::cache::lease::leases::{self, Lease};
use crate::cache::lease::waiting::{self, Patience};
use crate::cache::lease::{held, load_token};
use crate::cache::memory::tier_ops as memory_cache;
use crate::cache::model::deadline;
use crate::cache::open;
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::{lock, subtransaction};

/// The state that `cache_lease` returns.
pub enum State {
    /// The value is live.
    Hit,
    /// The value has expired within its grace, and another client or session computes a new one.
    Stale,
    /// The caller computes the value. With None, the value cannot be stored: no lease record is free, the snapshot may
    /// be too old, or the cache is temporary.
    Win(Option<u64>),
    /// Another client or session computes the value, and no stale value can be served.
    Busy,
}

/// The result of `cache_lease`.
pub struct Leased {
    /// The value; with `Win` the stale value, if one exists.
    pub found: Option<Entry>,
    pub state: State,
}

/// Returns the value of a key or, if the key has none, the lease to compute it. `wait` is the longest wait for the
/// lease of another client or session.
pub fn lease(relation: Oid, key: HashedKey, wait: &Interval) -> Result<Leased, Error> {
    let longest = wait.as_micros().clamp(0, i64::MAX.into()) as u64;
    let patience = Patience::of(Duration::from_micros(longest));
    let mut counts = Look::Counted;
    loop {
        let cache = open::known(relation)?; // in each round, because the previous round may have waited
        let found = entries::get_or_stale(relation, key, Privileges::SELECT, counts)?;
        counts = Look::Uncounted;
        if found.is_some_and(is_live) {
            let state = State::Hit;
            return Ok(Leased { found, state });
        }
        let state = match acquire::to_lease(&cache, key)? {
            Turn::Mine(Some(lease)) => return won(&cache, key, lease),
            Turn::Mine(None) | Turn::Untracked(_) | Turn::Pending => State::Win(None),
            Turn::Theirs(_) if found.is_some() => State::Stale,
            Turn::Theirs(other) => {
                let in_sight =
                    cache.storage == Storage::Memory || !lock::one_snapshot_per_transaction();
                if in_sight && waiting::for_lease(key, other, &patience) {
                    continue;
                }
                State::Busy
            }
        };
        return Ok(Leased { found, state });
    }
}

/// Looks the key up again after winning the lease, because the last holder may have stored a value between the first
/// lookup and the request. Releases the lease on a hit. Also releases it if this transaction's snapshot may be older
/// than the last removal, because a value read with that snapshot must not be stored.
fn won(cache: &Cache, key: HashedKey, lease: Lease) -> Result<Leased, Error> {
    let found = entries::get_or_stale(cache.relation, key, Privileges::SELECT, Look::Uncounted)?;
    let is_hit = found.is_some_and(is_live);
    let keeps = !is_hit && load_token::loads_valid_values(cache);
    if !keeps {
        held::release(lease);
    }
    let state = match is_hit {
        true => State::Hit,
        false => State::Win(keeps.then_some(lease.id)),
    };
    Ok(Leased { found, state })
}

fn is_live(found: Entry) -> bool {
    deadline::is_live(found.deadline)
}

/// Stores a value if the lease is still valid. Returns whether the value is stored.
pub fn set(cache: &Cache, key: HashedKey, entry: Entry, lease: Option<i64>) -> Result<bool, Error> {
    let Some(lease) = leases::named(key, lease.unwrap_or(0))? else {
        return Ok(false);
    };
    if cache.storage == Storage::Memory {
        let stored = memory_cache::set_leased(cache, key, &entry, lease)?;
        return Ok(stored && {
            held::release(lease);
            true
        });
    }
    held::note_store(cache);
    if !held::store_for_client(lease) {
        return Ok(false);
    }
    let set = || entries::set(cache, key.key, entry);
    let keep = |done: &Result<(), Error>| done.is_ok() && !leases::is_void(lease);
    match subtransaction::keep_if(set, keep) {
        Some(done) => done.map(|()| !leases::is_void(lease)),
        None => Ok(false), // another session has changed the row, under REPEATABLE READ
    }
}

/// Gives up a lease. Returns whether it was valid.
pub fn release(key: HashedKey, lease: Option<i64>) -> Result<bool, Error> {
    let lease = leases::named(key, lease.unwrap_or(0))?;
    Ok(lease.is_some_and(held::release))
}
