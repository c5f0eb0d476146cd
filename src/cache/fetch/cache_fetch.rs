//! Implements `cache_fetch`: returns the live value of a key, or runs a loader to compute it. Usually only one session
//! at a time runs the loader for a key.
//!
//! 1. Look up the key, and return a live value.
//! 2. Otherwise request the lease of the key.
//! 3. With the lease, look up the key once more, because the last holder may just have finished. Then run the loader
//!    and store the value. If the records for leases are used up, do the same without a lease; several sessions may
//!    then run the loader.
//! 4. If another session holds the lease, or a change of the key is being committed, return a stale value. If none
//!    exists, wait and start over.
//! 5. When the time for waiting is over, or if this session cannot see the values of other sessions, run the loader and
//!    store nothing, because storing would wait for the row that the holder has written.
//!
//! A fetch also stores nothing while a change of the source or of the key is being committed, because a value that was
//! loaded at that time is about to be out of date.
//!
//! A loader is user-defined code, may take long, and runs without a lock, so the cache may change during the load. So
//! after the load, the fetch opens the cache again and stores the value as a new writer would, with the privileges,
//! storage and type that the cache has after the load.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::loaders;
use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::catalog::sources;
use crate::cache::entries::{self, Entry, Look};
use crate::cache::lease::acquire::{self, Turn};
use crate::cache::lease::held;
use crate::cache::lease::leases::{self, Lease};
use crate::cache::lease::load_token::{self, LoadToken};
use crate::cache::lease::waiting::{self, Patience};
use crate::cache::memory::tier_ops as memory_cache;
use crate::cache::model::{deadline, pending};
use crate::cache::open::{self, removal};
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::guc;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::session::{self, lock, random, subtransaction, transaction};
use crate::pg::shmem::tier::tier;
use crate::pg::spi::loader::Loaded;
use crate::pg::value::convert;
use crate::pg::value::datum::{Text, ValueType};

/// One call of `cache_fetch`.
pub struct Fetch {
    pub relation: Oid,
    pub key: HashedKey,
    pub loader: Text,
    pub ttl: Option<Interval>,
    /// The required privileges. They are checked again when the value is stored, because the loader may take long.
    pub needs: Privileges,
    /// The type in which the function returns the value.
    pub returns: ValueType,
}

impl Fetch {
    /// Returns the entry: live, stale or fresh from the loader. The caller has checked the privileges.
    pub fn run(&self) -> Result<Entry, Error> {
        if let Some(ttl) = &self.ttl {
            deadline::check_ttl(ttl)?;
        }
        loaders::check_recursion(self.relation, self.key.key)?;
        let patience = Patience::of(guc::fetch_wait());
        let mut commit = None;
        let mut counts = Look::Counted;
        loop {
            let cache = open::known(self.relation)?; // in each round, because the previous round may have waited
            cache.check_writable()?;
            let is_replayed = load_token::is_replayed(&cache);
            let found = entries::get_or_stale(self.relation, self.key, self.needs, counts)?;
            counts = Look::Uncounted;
            let live = found.filter(|found| deadline::is_live(found.deadline));
            if let Some(live) = live
                && !refreshes_early(&cache, &live)
            {
                return Ok(live);
            }
            let may_store = !is_replayed
                && can_store(&cache)
                && !self.is_changing(&cache)
                && load_token::loads_valid_values(&cache);
            if !may_store {
                return live.map_or_else(|| self.load_only(&cache), Ok);
            }
            pause::at(Window::LookToRequest);
            match acquire::to_fetch(&cache, self.key) {
                Turn::Mine(lease) => return self.load_once(&cache, lease, live.is_some()),
                Turn::Untracked(token) => {
                    return self.load_untracked(&cache, token, live.is_some());
                }
                Turn::Pending => {
                    if let Some(served) = live.or(found) {
                        return Ok(served);
                    }
                    let patience = commit.get_or_insert_with(Patience::for_a_commit);
                    if !sees_others(&cache) || !waiting::for_commit(patience) {
                        return self.load_only(&cache);
                    }
                }
                Turn::Theirs(other) => {
                    if let Some(served) = live.or(found) {
                        return Ok(served);
                    }
                    if !sees_others(&cache) || !waiting::for_lease(self.key, other, &patience) {
                        return self.load_only(&cache);
                    }
                }
            }
        }
    }

    /// Loads the value under the lease. `refresh` is true if the value replaces a live one.
    fn load_once(
        &self,
        cache: &Cache,
        lease: Option<Lease>,
        refresh: bool,
    ) -> Result<Entry, Error> {
        if !refresh && sees_others(cache) && !fault::on(Fault::FetchChecksOnce) {
            let found =
                entries::get_or_stale(self.relation, self.key, self.needs, Look::Uncounted)?;
            if let Some(live) = found.filter(|found| deadline::is_live(found.deadline)) {
                lease.map(held::release);
                return Ok(live);
            }
        }
        if !load_token::loads_valid_values(cache) {
            lease.map(held::release);
            return self.load_only(cache);
        }
        let loaded = self.load(cache)?;
        if loaded.from_unstored {
            lease.map(held::release);
            return self.unstored(cache, loaded.value);
        }
        self.store(loaded.value, |cache, entry| match cache.storage {
            Storage::Memory => self.store_in_memory(cache, lease, &entry),
            _ => self.store_in_table(cache, lease, entry),
        })
    }

    /// Loads the value without a lease. The token shows whether a change was committed during the load. `refresh` is
    /// true if the value replaces a live one.
    fn load_untracked(
        &self,
        cache: &Cache,
        token: Option<LoadToken>,
        refresh: bool,
    ) -> Result<Entry, Error> {
        if !load_token::loads_valid_values(cache) {
            return self.load_only(cache);
        }
        let loaded = self.load(cache)?;
        if loaded.from_unstored {
            return self.unstored(cache, loaded.value);
        }
        let token = match (fault::on(Fault::LoadTokenAfterLoad), tier()) {
            (true, Some(tier)) => LoadToken::take(tier, cache, self.key),
            _ => token,
        };
        self.store(loaded.value, |cache, entry| match (cache.storage, &token) {
            (Storage::Memory, Some(token)) if !self.may_be_changing(cache) => {
                memory_cache::set_if_unchanged(cache, self.key, &entry, token, refresh)
            }
            (Storage::Memory, _) => Ok(()),
            _ => {
                held::note_store(cache);
                let set = || self.write(cache, entry);
                let lasts = || token.as_ref().is_none_or(LoadToken::holds);
                let keep = |done: &Result<(), Error>| {
                    pause::at(Window::WrittenToChecked);
                    note_unless_stored(done.is_ok() && lasts())
                };
                stored_or_noted(subtransaction::keep_if(set, keep))
            }
        })
    }

    /// Builds an entry from the loaded value for the current definition of the cache, and stores it.
    fn store(
        &self,
        loaded: Loaded,
        put: impl FnOnce(&Cache, Entry) -> Result<(), Error>,
    ) -> Result<Entry, Error> {
        let relation = Some(self.relation);
        let cache = open::to_write(relation, self.needs, c"cache_fetch()")?;
        let entry = self.entry(&cache, loaded)?;
        if let Some(value) = entry.value {
            convert::convert(value, self.returns); // an error must come before the store, which may be in memory
        }
        if entry.value.is_some() || cache.takes_null() {
            put(&cache, entry)?;
        } else {
            loaders::note_unstored();
        }
        Ok(entry)
    }

    /// Loads the value for the caller without storing it.
    fn load_only(&self, cache: &Cache) -> Result<Entry, Error> {
        let loaded = self.load(cache)?;
        self.unstored(cache, loaded.value)
    }

    fn unstored(&self, cache: &Cache, loaded: Loaded) -> Result<Entry, Error> {
        if cache.storage != Storage::Memory {
            loaders::note_unstored();
        }
        self.entry(&*open::known(self.relation)?, loaded)
    }

    fn store_in_memory(
        &self,
        cache: &Cache,
        lease: Option<Lease>,
        entry: &Entry,
    ) -> Result<(), Error> {
        if let Some(lease) = lease {
            if !self.may_be_changing(cache) {
                memory_cache::set_leased(cache, self.key, entry, lease)?;
            }
            held::release(lease);
        }
        Ok(())
    }

    /// Stores the value in a table. Does not overwrite the value of a transaction that this session had to wait for,
    /// nor, under REPEATABLE READ, a row that this transaction cannot see.
    fn store_in_table(
        &self,
        cache: &Cache,
        lease: Option<Lease>,
        entry: Entry,
    ) -> Result<(), Error> {
        let set = || self.write(cache, entry);
        let Some(lease) = lease else {
            if lock::one_snapshot_per_transaction() {
                return stored_or_noted(subtransaction::keep_if(set, Result::is_ok));
            }
            return set();
        };
        held::note_store(cache);
        if !leases::store(lease) {
            return stored_or_noted(None);
        }
        let keep = |done: &Result<(), Error>| {
            pause::at(Window::WrittenToChecked);
            let holds = fault::on(Fault::LeaseNotCheckedAfterStore) || !leases::is_void(lease);
            note_unless_stored(done.is_ok() && holds)
        };
        stored_or_noted(subtransaction::keep_if(set, keep))
    }

    fn write(&self, cache: &Cache, entry: Entry) -> Result<(), Error> {
        pause::at(Window::AnnouncedToWritten);
        entries::set(cache, cache.key(self.key.key), entry) // converted again, because the key's type may have changed
    }

    /// Returns whether this transaction has changed the source of an entry of a memory cache, or may have changed the
    /// source without firing a trigger. Such a value must not be stored: other sessions would read it at once, although
    /// the change may still be rolled back.
    fn is_changing(&self, cache: &Cache) -> bool {
        if cache.storage != Storage::Memory {
            return false;
        }
        removal::settle();
        pending::is_noted(self.relation, self.key.bytes()) || pending::may_miss_changes()
    }

    /// Returns what [`Fetch::is_changing`] returns, for a check after the load. Also returns true while a statement
    /// that changes the source is running, because its triggers have not fired yet.
    fn may_be_changing(&self, cache: &Cache) -> bool {
        self.is_changing(cache) || sources::may_be_half_changed(self.relation)
    }

    fn load(&self, cache: &Cache) -> Result<LoaderResult, Error> {
        let begun = clock::now();
        let before = loaders::unstored();
        let value = loaders::run(self.relation, self.key.key, self.loader)?;
        pause::at(Window::LoadToStore);
        note_time(cache, clock::now() - begun);
        let from_unstored = loaders::unstored() != before
            && !session::in_recovery()
            && sources::has_sources(self.relation);
        Ok(LoaderResult {
            value,
            from_unstored,
        })
    }

    /// Builds an entry from a loaded value; its ttl begins now.
    fn entry(&self, cache: &Cache, loaded: Loaded) -> Result<Entry, Error> {
        let value = match loaded {
            Loaded::NoRow => None,
            Loaded::Value(value) => value,
        };
        let ttl = match value {
            None => cache.settings.negative_ttl.or(self.ttl),
            Some(_) => self.ttl,
        };
        cache.entry(value, ttl)
    }
}

/// The result of a loader.
struct LoaderResult {
    value: Loaded,
    /// Whether the loader used a value that a fetch from another cache returned without storing it. When the used value
    /// changes, no row of the other cache is removed, so nothing would invalidate the value of this cache. True only if
    /// entries of this cache have sources.
    from_unstored: bool,
}

/// If `stays` is false, notes a value that was not stored, for a loader that has used the value. Returns `stays`
/// unchanged.
fn note_unless_stored(stays: bool) -> bool {
    if !stays {
        loaders::note_unstored();
    }
    stays
}

/// Returns the result of storing in a table. None means that nothing was stored; the function then notes an unstored
/// value.
fn stored_or_noted(done: Option<Result<(), Error>>) -> Result<(), Error> {
    note_unless_stored(done.is_some());
    done.unwrap_or(Ok(()))
}

/// Returns whether this session may store the value. Returns false in a read-only transaction or on a standby, unless
/// the cache is in memory. Always returns false in a parallel worker, whose loader sees uncommitted rows of its leader.
fn can_store(cache: &Cache) -> bool {
    let is_worker = session::is_parallel_worker() && !fault::on(Fault::ParallelWorkerStores);
    !is_worker && (cache.storage == Storage::Memory || transaction::is_writable())
}

/// Returns whether this session sees values that other sessions store while it waits.
fn sees_others(cache: &Cache) -> bool {
    cache.storage == Storage::Memory || !lock::one_snapshot_per_transaction()
}

/// Records how long a loader of the cache took.
fn note_time(cache: &Cache, micros: Timestamp) {
    if let Some(tier) = tier()
        && let Some(slot) = cache.slot(tier)
    {
        tier.slot(slot).note_load(micros.max(1) as u64);
    }
}

/// Returns whether a live entry is reloaded before its deadline. The closer the deadline and the slower the loader, the
/// more likely a reload becomes, so that about one caller of many reloads the entry before its deadline. This is the
/// "optimal probabilistic cache stampede prevention" of Vattani, Chierichetti and Lowenstein (VLDB 2015), with the mean
/// time of the cache's loaders instead of the time of each entry.
fn refreshes_early(cache: &Cache, entry: &Entry) -> bool {
    let (Some(beta), Some(deadline)) = (cache.settings.early_refresh, entry.deadline) else {
        return false;
    };
    let Some(slot) = tier().and_then(|tier| Some(tier.slot(cache.slot(tier)?))) else {
        return false;
    };
    let head_start = slot.load_time() as f64 * beta * -random::fraction().ln();
    head_start >= (deadline - clock::now()) as f64
}
