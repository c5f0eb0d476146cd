//! `cache_fetch`: the live value, or what the loader gives, computed by one session at a time.
//!
//! In this order: look; if nothing live is there, ask for the lease; who gets it looks once more (the one
//! before him may just have finished), runs the loader and stores; who does not takes the stale value,
//! or waits and begins anew; whose wait is over loads for himself and does not store, so that he need
//! not wait for the row that the holder has written.

use std::rc::Rc;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::deadline;
use super::entries::{self, Entry, Found};
use super::key::Key;
use super::leases::{self, Lease, Patience, Turn};
use super::loaders;
use super::memory;
use super::registry::{self, Cache, Storage};
use crate::error::Error;
use crate::guc;
use crate::pg::clock::{self, Timestamp};
use crate::pg::datum::Text;
use crate::pg::loader::Loaded;
use crate::pg::privilege::Privileges;
use crate::pg::tier::tier;
use crate::pg::{convert, lock, random, subtransaction, transaction};

/// One call of `cache_fetch`.
pub struct Fetch {
    pub relation: Oid,
    pub key: Key,
    pub loader: Text,
    pub ttl: Option<Interval>,
}

impl Fetch {
    /// The entry: live, stale or fresh from the loader. The caller has checked the privileges.
    pub fn run(&self) -> Result<Found, Error> {
        if let Some(ttl) = &self.ttl {
            deadline::check_ttl(ttl)?;
        }
        loaders::check_recursion(self.relation, self.key)?;
        let cache = registry::known(self.relation)?;
        let patience = Patience::of(guc::fetch_wait());
        loop {
            let found = entries::get_or_stale(self.relation, self.key)?;
            let live = found.filter(|found| deadline::is_live(found.entry.deadline));
            if let Some(live) = live
                && !refreshes_early(&cache, &live.entry)
            {
                return Ok(live);
            }
            if !can_store(&cache) {
                return live.map_or_else(|| self.load(&cache), Ok);
            }
            match leases::ask_to_fetch(&cache, self.key) {
                Turn::Mine(lease) => return self.load_once(&cache, lease, live.is_some()),
                Turn::Untracked => {
                    let found = self.load(&cache)?;
                    entries::set(&*self.open()?, self.key, found.entry)?;
                    return Ok(found);
                }
                Turn::Theirs(other) => {
                    if let Some(served) = live.or(found) {
                        return Ok(served);
                    }
                    if !sees_others(&cache) || !leases::wait(&cache, self.key, other, &patience) {
                        return self.load(&cache);
                    }
                }
            }
        }
    }

    /// With the lease. `refresh`: a live value is there and is to be replaced.
    fn load_once(
        &self,
        cache: &Cache,
        lease: Option<Lease>,
        refresh: bool,
    ) -> Result<Found, Error> {
        if !refresh && sees_others(cache) {
            let found = entries::get_or_stale(self.relation, self.key)?;
            if let Some(live) = found.filter(|found| deadline::is_live(found.entry.deadline)) {
                lease.map(leases::release);
                return Ok(live);
            }
        }
        let found = self.load(cache)?;
        match cache.storage {
            Storage::Memory => self.store_in_memory(cache, lease, &found.entry)?,
            _ => self.store_in_table(lease, &found.entry)?,
        }
        Ok(found)
    }

    fn store_in_memory(
        &self,
        cache: &Cache,
        lease: Option<Lease>,
        entry: &Entry,
    ) -> Result<(), Error> {
        if let Some(lease) = lease {
            memory::set_leased(cache, self.key, entry, lease)?;
            leases::release(lease);
        }
        Ok(())
    }

    /// The row may have been waited for, and changed by whom we waited for: then his value stays. Under
    /// REPEATABLE READ a row that this transaction cannot see stays, too.
    fn store_in_table(&self, lease: Option<Lease>, entry: &Entry) -> Result<(), Error> {
        let cache = self.open()?;
        let set = || entries::set(&cache, self.key, *entry);
        let Some(lease) = lease else {
            if lock::one_snapshot_per_transaction() {
                return subtransaction::keep_if(set, Result::is_ok).unwrap_or(Ok(()));
            }
            return set();
        };
        if !leases::store(lease) {
            return Ok(());
        }
        let keep = |done: &Result<(), Error>| done.is_ok() && !leases::is_void(lease);
        subtransaction::keep_if(set, keep).unwrap_or(Ok(()))
    }

    fn open(&self) -> Result<Rc<Cache>, Error> {
        let relation = Some(self.relation);
        registry::open_to_write(relation, Privileges::NONE, c"cache_fetch()")
    }

    /// What the loader gives, as an entry that begins now.
    fn load(&self, cache: &Cache) -> Result<Found, Error> {
        let begun = clock::now();
        let loaded = loaders::run(self.relation, self.key, self.loader)?;
        note_time(cache, clock::now() - begun);
        let value = match loaded {
            Loaded::NoRow => None,
            Loaded::Value(value) => value,
        };
        let ttl = match value {
            None => cache.settings.negative_ttl.or(self.ttl),
            Some(_) => self.ttl,
        };
        let value_type = cache.value_type;
        let entry = Entry {
            deadline: cache.deadline(ttl)?,
            value: value.map(|(datum, from)| convert::convert(datum, from, value_type)),
        };
        Ok(Found { entry, value_type })
    }
}

/// Not in a read-only transaction or on a standby, unless the cache is in memory.
fn can_store(cache: &Cache) -> bool {
    cache.storage == Storage::Memory || transaction::is_writable()
}

/// Whether what another session stores meanwhile can be seen by this one.
fn sees_others(cache: &Cache) -> bool {
    cache.storage == Storage::Memory || !lock::one_snapshot_per_transaction()
}

/// Remembers how long the loaders of a cache take.
fn note_time(cache: &Cache, micros: Timestamp) {
    if let Some(tier) = tier()
        && let Some(slot) = cache.slot(tier)
    {
        tier.slot(slot).note_load(micros.max(1) as u64);
    }
}

/// Whether a live entry is loaded anew before its time: the nearer its deadline and the slower its
/// loader, the likelier, so that of many callers about one does. This is the "optimal probabilistic
/// cache stampede prevention" of Vattani, Chierichetti and Lowenstein (VLDB 2015), with the mean time
/// of the cache's loaders in place of each entry's own.
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
