//! Requests the lease of a key, so that only one session at a time computes its value. With a tier, a lease is a
//! record in shared memory.
//!
//! Without a tier, a lock in Postgres' lock table replaces the lease of `cache_fetch`, and other fetches wait in
//! Postgres' queue. No session can take the lock over: a session that has waited too long computes without it.

use super::held;
use super::leases::{self, Lease};
use super::load_token::{self, LoadToken};
use crate::cache::catalog::registry::Cache;
use crate::cache::lease::undo_marks;
use crate::cache::lease::unverified_after_restart;
use crate::cache::model::key_set::Keys;
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::guc;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, advisory, clock, random};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::lease::{Claim, LeaseOutcome, Other, my_process};
use crate::pg::shmem::tier::{Tier, tier};

/// The next step of a caller that has missed a key.
pub enum Turn {
    /// Compute the value under this lease. The lease is None if the server has no tier, because a lock replaces the
    /// lease.
    Mine(Option<Lease>),
    /// Wait, because another session or client computes the value.
    Theirs(Holder),
    /// Compute the value without a lease, and store it if this token still holds. The token is None for a temporary
    /// table, which no other session changes. It is also None if the server has no tier, because a lock then makes
    /// writers of the source wait.
    Untracked(Option<LoadToken>),
    /// Compute the value but do not store it. A change of the key or of the cache is being committed and is not visible
    /// yet, so a value computed now may be out of date.
    Pending,
}

/// The lease of another session or client: its record, or the name of its lock.
pub enum Holder {
    Record(Other),
    Lock(u64),
}

/// Requests the lease of a key for `cache_fetch`.
pub fn to_fetch(cache: &Cache, key: HashedKey) -> Turn {
    let Some(tier) = tier() else {
        return request_by_lock(cache, key);
    };
    if cache.temporary {
        return Turn::Untracked(None); // no other session changes a temporary table
    }
    if held::is_full() {
        return untracked(tier, cache, key);
    }
    let (lease, outcome) = request_twice(tier, cache, key, For::Session);
    if matches!(outcome, LeaseOutcome::Won) {
        held::hold(lease);
    }
    turn(tier, cache, key, lease, outcome)
}

/// Requests the lease of a key for `cache_lease`. Raises 55000 without a tier.
pub fn to_lease(cache: &Cache, key: HashedKey) -> Result<Turn, Error> {
    let tier = tier().ok_or(Error::NoLeases)?;
    if cache.temporary {
        return Ok(Turn::Untracked(None));
    }
    let whom = match load_token::is_replayed(cache) {
        true => For::Doomed,
        false => For::Client,
    };
    let (lease, outcome) = request_twice(tier, cache, key, whom);
    Ok(turn(tier, cache, key, lease, outcome))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Session,
    /// A client that computes outside the database. It gets a lease even while a change is being committed, but then
    /// its value cannot be stored.
    Client,
    /// A client that gets a lease although its value cannot be stored, because a change may be about to be committed,
    /// or because the source's changes are replayed.
    Doomed,
}

/// Requests the lease. If a change is pending, lowers the marks of decided transactions and requests the lease once
/// more. A client then gets a doomed lease if the change is still pending.
fn request_twice(tier: &Tier, cache: &Cache, key: HashedKey, whom: For) -> (Lease, LeaseOutcome) {
    let proven = whom != For::Doomed && unverified_after_restart::is_cache_proven(tier, cache);
    let request = |whom| request(tier, cache, key, whom, proven);
    let mut answer = request(whom);
    if matches!(answer.1, LeaseOutcome::Pending) && undo_marks::lower_decided() {
        answer = request(whom);
    }
    match answer.1 {
        LeaseOutcome::Pending if whom == For::Client => request(For::Doomed),
        _ => answer,
    }
}

fn request(
    tier: &Tier,
    cache: &Cache,
    key: HashedKey,
    whom: For,
    proven: bool,
) -> (Lease, LeaseOutcome) {
    let (lease, outcome) = request_record(tier, cache, key, whom, !proven);
    let won = matches!(outcome, LeaseOutcome::Won);
    if !won || !proven || !load_token::is_locked_without_slot(cache) {
        return (lease, outcome);
    }
    leases::end(lease);
    match whom {
        For::Doomed => request_record(tier, cache, key, whom, true),
        _ => (lease, LeaseOutcome::Pending),
    }
}

fn request_record(
    tier: &Tier,
    cache: &Cache,
    key: HashedKey,
    whom: For,
    doomed: bool,
) -> (Lease, LeaseOutcome) {
    let hash = key.hash;
    let now = clock::now();
    let client = whom != For::Session;
    let mut claim = Claim {
        id: random::number().max(1),
        cache: cache.id,
        holder: if client { 0 } else { my_process() },
        role: session::own_role(),
        now,
        deadline: now.saturating_add(guc::lease_time() * 1000),
        over_stored: client,
        doomed,
    };
    let partition = tier.region().partition_of(hash);
    let leases = tier.leases().of(partition);
    let outcome = tier.change(partition, |_| {
        claim.doomed |= load_token::has_pending_writer(tier, cache, hash);
        match claim.doomed && whom != For::Doomed {
            true => LeaseOutcome::Pending,
            false => leases.request(hash, &claim),
        }
    });
    let id = claim.id;
    (Lease { hash, id }, outcome)
}

fn turn(
    tier: &'static Tier,
    cache: &Cache,
    key: HashedKey,
    lease: Lease,
    outcome: LeaseOutcome,
) -> Turn {
    match outcome {
        LeaseOutcome::Won => Turn::Mine(Some(lease)),
        LeaseOutcome::Busy(other) => Turn::Theirs(Holder::Record(other)),
        LeaseOutcome::Full => untracked(tier, cache, key),
        LeaseOutcome::Pending => Turn::Pending,
    }
}

fn untracked(tier: &'static Tier, cache: &Cache, key: HashedKey) -> Turn {
    if !unverified_after_restart::is_cache_proven(tier, cache) {
        return Turn::Pending;
    }
    let token = LoadToken::take(tier, cache, key).or_else(|| {
        let lowered = undo_marks::lower_decided();
        LoadToken::take(tier, cache, key).filter(|_| lowered)
    });
    match token {
        None => Turn::Pending,
        token => Turn::Untracked(token),
    }
}

fn request_by_lock(cache: &Cache, key: HashedKey) -> Turn {
    if held::is_full() {
        return match advisory::try_all_leases(cache.relation) {
            true => Turn::Untracked(None),
            false => Turn::Pending,
        };
    }
    let name = lock_name(cache.id, key.bytes());
    match advisory::try_lease(cache.relation, name) {
        advisory::Leased::Won => {
            held::count_lock();
            Turn::Mine(None)
        }
        advisory::Leased::Busy => Turn::Theirs(Holder::Lock(name)),
        advisory::Leased::Pending => Turn::Pending,
    }
}

fn lock_name(cache: CacheId, key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, cache.seed())
}

/// The largest number of keys whose locks a writer takes one by one. For more keys it takes one lock for the whole
/// cache.
const MOST_LOCKS: usize = 64;

/// Waits for the sessions that load one of these keys, and keeps new loaders out until the commit is visible. Used only
/// without a tier. `keys` is None for all keys of the cache.
pub fn keep_loaders_out(cache: &Cache, keys: Option<&Keys>) {
    if fault::on(Fault::LoadersNotKeptOut) {
        return;
    }
    let named = keys.filter(|keys| keys.len() <= MOST_LOCKS).map(|keys| {
        let mut names = memory::collect(keys.iter().map(|key| lock_name(cache.id, key)));
        names.sort_unstable(); // so that two writers lock in the same order
        names
    });
    advisory::keep_leases(cache.relation, named.as_deref());
}
