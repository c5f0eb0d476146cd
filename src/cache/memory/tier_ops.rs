//! The operations on a memory cache that are not in [`super::raw`]: reads an entry into a datum, stores the value of a
//! loader, counts, lists, clears and sweeps.
//!
//! A change takes effect at once and is not rolled back.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use pgcache_store::{EntryRef, PartitionRef, RemovalCause};
use pgrx::datum::Interval;

use super::handle::TierHandle;
use crate::cache::catalog::registry::Cache;
use crate::cache::commit::notify;
use crate::cache::lease::leases::{self, Lease};
use crate::cache::lease::load_token::{self, LoadToken};
use crate::cache::model::deadline;
use crate::cache::model::entry::Entry;
use crate::cache::model::pending;
use crate::cache::tier::hashed_key::HashedKey;
use crate::cache::tier::{io, walk};
use crate::error::Error;
use crate::pg::events::RowChange;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::tier::tier;
use crate::pg::value::datum::Text;

/// Copies one entry when it is called. Returns None if the entry no longer exists. The callback that receives this
/// function chooses the memory for the copy.
pub type CopyOut<'m, T> = &'m dyn Fn() -> Option<T>;

/// An entry and its key.
pub type Row = (Text, Entry);

/// Returns the entry of a key if it is live or within this grace.
pub fn get(cache: &Cache, key: HashedKey, grace: Option<Interval>) -> Result<Option<Entry>, Error> {
    let handle = TierHandle::of(cache)?;
    let hot_key = key.in_slot(handle.slot);
    handle.tier.region().prefetch_entry(hot_key.hash);
    Ok(handle.copy_out_within(cache, &hot_key, grace))
}

/// Notifies the cache's watchers, if it has any, that an entry was set or removed.
#[inline]
pub fn note(cache: &Cache, key: &[u8], change: RowChange) {
    if cache.settings.watch.is_some() {
        notify::note(cache.relation, key, change);
    }
}

/// Stores a value that was computed under a lease, if the lease is still valid. Returns whether the value was stored.
pub fn set_leased(
    cache: &Cache,
    key: HashedKey,
    entry: &Entry,
    lease: Lease,
) -> Result<bool, Error> {
    let handle = TierHandle::of(cache)?;
    let hot_key = key.in_slot(handle.slot);
    let still = |_: &PartitionRef| {
        leases::holds(handle.tier, lease, clock::now()) || fault::on(Fault::LeasedStoreNotJudged)
    };
    let stored = handle.put(cache, &hot_key, entry, still)?;
    if stored {
        note(cache, key.bytes(), RowChange::Set);
    }
    Ok(stored)
}

/// Stores a value that was computed without a lease, if neither its source nor the entry has changed since the token
/// was taken. `refresh` is true if a live entry existed, which may be replaced.
pub fn set_if_unchanged(
    cache: &Cache,
    key: HashedKey,
    entry: &Entry,
    token: &LoadToken,
    refresh: bool,
) -> Result<(), Error> {
    let handle = TierHandle::of(cache)?;
    let hot_key = key.in_slot(handle.slot);
    let still = |partition: &PartitionRef| {
        token.holds_here() && (refresh || handle.live(partition, &hot_key).is_none())
    };
    if handle.put(cache, &hot_key, entry, still)? {
        note(cache, key.bytes(), RowChange::Set);
    }
    Ok(())
}

pub fn count(cache: &Cache) -> Result<i64, Error> {
    let handle = TierHandle::of(cache)?;
    if !pending::hides_some() {
        return Ok(walk::count_live(handle.tier, handle.slot) as i64);
    }
    let mut live = 0;
    walk::each_key(handle.tier, handle.slot, |key| {
        live += i64::from(!pending::hides(cache.relation, key));
    });
    Ok(live)
}

/// Passes all live entries to `show`, in no order.
pub fn all(cache: &Cache, show: &mut dyn FnMut(CopyOut<Row>)) -> Result<(), Error> {
    let handle = TierHandle::of(cache)?;
    walk::each_key(handle.tier, handle.slot, |key| {
        show(&|| handle.entry(cache, key));
    });
    Ok(())
}

/// Removes all entries whose key begins with `prefix`. Returns how many of them were live.
pub fn delete_prefix(cache: &Cache, prefix: Text) -> Result<i64, Error> {
    let handle = TierHandle::of(cache)?;
    load_token::note_removal(handle.tier, cache.id);
    leases::void_all(handle.tier, cache.id);
    let (version, now) = (handle.version(), clock::now());
    if cache.settings.watch.is_some() {
        let matches = |key: &[u8]| key.starts_with(prefix.bytes());
        for key in walk::least_keys(handle.tier, handle.slot, usize::MAX, matches) {
            note(cache, &key, RowChange::Gone);
        }
    }
    let live = Cell::new(0);
    walk::remove_entries(handle.tier, handle.slot, RemovalCause::Cleared, |entry| {
        let matches = entry.key_starts_with(prefix.bytes());
        if matches && entry.header().version == version && io::is_live(&entry.header(), now) {
            live.set(live.get() + 1);
        }
        matches
    });
    Ok(live.get())
}

/// Makes all entries outdated: no lookup finds them, but they still take space. Returns the version of the new content.
pub fn disown_all(cache: &Cache, handle: &TierHandle) -> u64 {
    load_token::note_removal(handle.tier, cache.id);
    leases::void_all(handle.tier, cache.id);
    handle.tier.renew_version(handle.slot);
    leases::void_all(handle.tier, cache.id); // again, for leases that were granted during the first call
    handle.version()
}

pub fn clear(cache: &Cache) -> Result<(), Error> {
    let handle = TierHandle::of(cache)?;
    let version = disown_all(cache, &handle);
    notify::note_clear(cache.relation);
    walk::remove_entries(handle.tier, handle.slot, RemovalCause::Cleared, |entry| {
        entry.header().version < version
    });
    Ok(())
}

/// Removes at most `max_rows` expired entries and returns their number. Then trims the cache to its limits.
pub fn expire(cache: &Cache, max_rows: i64) -> Result<i64, Error> {
    let handle = TierHandle::of(cache)?;
    let limit = deadline::swept_until(clock::now(), cache.settings.grace);
    if cache.settings.watch.is_some() {
        let removed = expire_watched(cache, &handle, limit, max_rows);
        trim(cache)?;
        return Ok(removed);
    }
    let left = Cell::new(max_rows);
    let removed = walk::remove_entries(handle.tier, handle.slot, RemovalCause::Expired, |entry| {
        let goes = left.get() > 0 && entry.header().deadline <= limit;
        left.set(left.get() - i64::from(goes));
        goes
    });
    trim(cache)?;
    Ok(removed as i64)
}

/// Removes at most `max_rows` expired entries one by one, because watchers are notified of each. Returns their number.
fn expire_watched(cache: &Cache, handle: &TierHandle, limit: i64, max_rows: i64) -> i64 {
    let max = usize::try_from(max_rows).unwrap_or(0);
    let mut removed = 0;
    for bytes in walk::expired_keys(handle.tier, handle.slot, limit, max) {
        let key = handle.key(cache, &bytes);
        let is_expired = |partition: &PartitionRef| {
            let entry = partition.peek(&key);
            entry.is_some_and(|entry| entry.header().deadline <= limit)
        };
        if handle.remove_because(&key, RemovalCause::Expired, is_expired) {
            notify::note_expired(cache.relation, &bytes);
            removed += 1;
        }
    }
    removed
}

/// Removes the least used entries beyond `max_entries` or `max_bytes`.
pub fn trim(cache: &Cache) -> Result<(), Error> {
    let handle = TierHandle::of(cache)?;
    let slot = handle.tier.slot(handle.slot);
    if let Some(most) = cache.settings.max_entries {
        let excess = slot.entries.load(Relaxed) - most;
        walk::remove_least_used(handle.tier, handle.slot, excess, |_| 1);
    }
    if let Some(most) = cache.settings.max_bytes {
        let beyond = || slot.bytes.load(Relaxed).saturating_sub(most);
        if beyond() > 0 {
            // An entry larger than `max_bytes` cannot stay. It is removed first, because otherwise all other entries
            // would be removed along with it.
            let longer = |entry: &EntryRef| entry.bytes() > most as u64;
            walk::remove_entries(handle.tier, handle.slot, RemovalCause::Evicted, longer);
        }
        let excess = beyond();
        walk::remove_least_used(handle.tier, handle.slot, excess, |entry| entry.bytes());
    }
    Ok(())
}

/// Returns the slot of a memory cache and the deadline up to which its entries have expired. Returns None if the cache
/// has no entries.
pub fn sweep_limit(cache: &Cache) -> Option<(u32, Timestamp)> {
    let tier = tier()?;
    let slot = cache.slot(tier)?;
    let limit = deadline::swept_until(clock::now(), cache.settings.grace);
    (tier.slot(slot).entries.load(Relaxed) > 0).then_some((slot, limit))
}
