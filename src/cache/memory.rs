//! Entries of a memory cache: what each function does where the hot tier is all there is.
//!
//! Acts at once and is not rolled back. A decision that needs the old value (add, cas, incr ...) is
//! made on a copy, outside of any lock, and carried out only if the entry is still the same; if not,
//! it is made again.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgcache_store::{EntryRef, Key as HotKey, NO_DEADLINE, PartitionRef, Record, Why};
use pgrx::pg_sys::Datum;

use super::deadline::{self, Deadline};
use super::hot::{self, Stored};
use super::key::Key;
use super::registry::{self, Cache};
use super::table::Entry;
use super::walk;
use crate::error::Error;
use crate::guc;
use crate::pg::clock::Timestamp;
use crate::pg::datum::{Text, varlena_bytes};
use crate::pg::tier::{Tier, tier};
use crate::pg::{clock, convert, session};

/// What to do with an entry, and what to answer.
pub enum Decision<R> {
    Keep(R),
    Put(Entry, R),
    Remove(R),
}

/// Makes the copy of one entry and its key, unless it is gone by then. Whoever is shown it decides in
/// which memory that happens.
pub type Make<'m> = &'m dyn Fn() -> Option<(Text, Entry)>;

/// The tier and the cache's slot in it.
#[derive(Clone, Copy)]
struct Home {
    tier: &'static Tier,
    slot: u32,
}

impl Home {
    fn of(cache: &Cache) -> Result<Home, Error> {
        let tier = tier().ok_or(Error::NoTier)?;
        let slot = match cache.slot(tier) {
            Some(slot) => slot,
            None => Home::found(cache, tier)?,
        };
        Ok(Home { tier, slot })
    }

    /// Gives the cache a slot under a lock: without one the view may have been dropped meanwhile, and
    /// a slot that is given after the drop would be freed by nobody.
    fn found(cache: &Cache, tier: &Tier) -> Result<u32, Error> {
        let _open = registry::lock_to_read(cache.relation)?;
        let slot = cache.slot_or_new(tier).ok_or(Error::NoSlot)?;
        tier.slot(slot).memory.store(1, SeqCst);
        Ok(slot)
    }

    fn key<'k>(&self, cache: &Cache, bytes: &'k [u8]) -> HotKey<'k> {
        HotKey {
            hash: hot::hash(self.tier, cache.owner, bytes),
            cache: self.slot,
            bytes,
        }
    }

    fn version(&self) -> u64 {
        self.tier.slot(self.slot).version.load(SeqCst)
    }

    fn belongs_to(&self, cache: &Cache) -> bool {
        self.tier.owner(self.slot).load(SeqCst) == cache.owner
    }

    fn copy_out(&self, cache: &Cache, key: &HotKey) -> Option<Entry> {
        let valid = |header: &pgcache_store::Header| {
            header.version == self.version() && self.belongs_to(cache)
        };
        hot::copy_out(self.tier, key, cache.value_type, valid)
    }

    /// The same with a copy of the key.
    fn entry(&self, cache: &Cache, bytes: &[u8]) -> Option<(Text, Entry)> {
        let entry = self.copy_out(cache, &self.key(cache, bytes))?;
        Some((Text::new(bytes), entry))
    }

    /// The entry under a lock, if it is of the present content and live.
    fn live<'p>(&self, partition: &PartitionRef<'p>, key: &HotKey) -> Option<EntryRef<'p>> {
        let now = clock::now();
        partition
            .peek(key)
            .filter(|entry| entry.header().version == self.version())
            .filter(|entry| now < entry.header().deadline)
    }

    /// Whether the entry is still what `entry` was copied from.
    fn is_unchanged(&self, partition: &PartitionRef, key: &HotKey, entry: Option<&Entry>) -> bool {
        match (self.live(partition, key), entry) {
            (None, None) => true,
            (Some(present), Some(entry)) => {
                present.header().deadline == entry.deadline.unwrap_or(NO_DEADLINE)
                    && present.header().negative == entry.value.is_none()
                    && entry
                        .value
                        .is_none_or(|value| present.value_equals(varlena_bytes(value)))
            }
            _ => false,
        }
    }

    /// Stores an entry if `still` holds under the lock; false when it did not.
    fn put(
        &self,
        cache: &Cache,
        key: &HotKey,
        entry: &Entry,
        still: impl Fn(&PartitionRef) -> bool,
    ) -> Result<bool, Error> {
        let value = entry.value.map_or(&[][..], varlena_bytes);
        check_size(key.bytes, value)?;
        let record = Record {
            version: self.version(),
            xid: 0,
            deadline: entry.deadline.unwrap_or(NO_DEADLINE),
            kind: cache.value_type as u8,
            negative: entry.value.is_none(),
            value,
        };
        let stored = hot::store(self.tier, key, &record, |partition| {
            self.version() == record.version && self.belongs_to(cache) && still(partition)
        });
        match stored {
            Stored::Yes => Ok(true),
            Stored::Refused => Ok(false),
            Stored::TooLarge => {
                self.tier.control().rejected.fetch_add(1, Relaxed);
                Err(Error::EntryTooLarge(value.len()))
            }
            // Written and evicted at once: what was there before must not survive it.
            Stored::Crowded => {
                self.remove(key, |_| true);
                Ok(true)
            }
        }
    }

    /// Removes the entry if `still` holds; whether it held.
    fn remove(&self, key: &HotKey, still: impl Fn(&PartitionRef) -> bool) -> bool {
        let home = self.tier.region().partition_of(key.hash);
        self.tier.change(home, |partition| {
            let holds = still(partition);
            if holds {
                partition.remove(key, Why::Cleared);
            }
            holds
        })
    }
}

/// The live entry under a key.
pub fn get(cache: &Cache, key: Key) -> Result<Option<Entry>, Error> {
    let home = Home::of(cache)?;
    let text = key.text();
    let hot_key = home.key(cache, text.bytes());
    home.tier.region().prefetch_entry(hot_key.hash);
    Ok(home.copy_out(cache, &hot_key))
}

/// Inserts or overwrites.
pub fn set(cache: &Cache, key: Key, entry: &Entry) -> Result<(), Error> {
    let text = key.text();
    // Refused only when the cache was cleared at this moment: then the entry belongs after it; or
    // dropped, which ends the loop with an error.
    loop {
        let home = Home::of(cache)?;
        if home.put(cache, &home.key(cache, text.bytes()), entry, |_| true)? {
            return Ok(());
        }
        session::check_for_interrupts();
    }
}

/// Raises 54000 for an entry that the tier cannot hold.
pub fn check_size(key: &[u8], value: &[u8]) -> Result<(), Error> {
    let tier = tier().ok_or(Error::NoTier)?;
    let limit = tier.region().layout().max_value(key.len());
    if value.len() <= limit.min(guc::hot_max_value()) {
        return Ok(());
    }
    tier.control().rejected.fetch_add(1, Relaxed);
    Err(Error::EntryTooLarge(value.len()))
}

/// Decides by the live entry under a key and carries the decision out, atomically.
pub fn update<R>(
    cache: &Cache,
    key: Key,
    decide: impl Fn(Option<&Entry>) -> Result<Decision<R>, Error>,
) -> Result<R, Error> {
    let text = key.text();
    loop {
        let home = Home::of(cache)?;
        let hot_key = home.key(cache, text.bytes());
        let present = home.copy_out(cache, &hot_key);
        let still =
            |partition: &PartitionRef| home.is_unchanged(partition, &hot_key, present.as_ref());
        let (done, answer) = match decide(present.as_ref())? {
            Decision::Keep(answer) => (true, answer),
            Decision::Put(entry, answer) => (home.put(cache, &hot_key, &entry, still)?, answer),
            Decision::Remove(answer) => (home.remove(&hot_key, still), answer),
        };
        if done {
            return Ok(answer);
        }
        session::check_for_interrupts();
    }
}

/// Removes an entry; says whether it was live.
pub fn delete(cache: &Cache, key: Key) -> Result<bool, Error> {
    let home = Home::of(cache)?;
    let text = key.text();
    let hot_key = home.key(cache, text.bytes());
    let place = home.tier.region().partition_of(hot_key.hash);
    Ok(home.tier.change(place, |partition| {
        let live = home.live(partition, &hot_key).is_some();
        partition.remove(&hot_key, Why::Cleared);
        live
    }))
}

/// Gives a live entry a new deadline; what `give` makes of the entry. An error of `give` comes first.
pub fn touch<R>(
    cache: &Cache,
    key: Key,
    deadline: Deadline,
    give: impl Fn(&Entry) -> R,
) -> Result<Option<R>, Error> {
    let home = Home::of(cache)?;
    let text = key.text();
    let hot_key = home.key(cache, text.bytes());
    let Some(entry) = home.copy_out(cache, &hot_key) else {
        return Ok(None);
    };
    let answer = give(&entry);
    let place = home.tier.region().partition_of(hot_key.hash);
    let touched = home.tier.change(place, |partition| {
        home.live(partition, &hot_key).is_some()
            && partition.touch(&hot_key, deadline.unwrap_or(NO_DEADLINE))
    });
    Ok(touched.then_some(answer))
}

/// Shows live entries in key order: those that begin with `prefix`, after `after`, at most `max_rows`.
pub fn scan(
    cache: &Cache,
    prefix: Text,
    after: Option<Text>,
    max_rows: usize,
    show: &mut dyn FnMut(Make),
) -> Result<(), Error> {
    let home = Home::of(cache)?;
    let after = after.as_ref().map_or(&[][..], Text::bytes);
    for key in walk::least_keys(home.tier, home.slot, prefix.bytes(), after, max_rows) {
        session::check_for_interrupts();
        show(&|| home.entry(cache, &key));
    }
    Ok(())
}

/// Shows all live entries, in no order.
pub fn all(cache: &Cache, show: &mut dyn FnMut(Make)) -> Result<(), Error> {
    let home = Home::of(cache)?;
    walk::each_key(home.tier, home.slot, |key| {
        show(&|| home.entry(cache, key));
    });
    Ok(())
}

/// Removes all entries whose key begins with `prefix`; says how many were live.
pub fn delete_prefix(cache: &Cache, prefix: Text) -> Result<i64, Error> {
    let home = Home::of(cache)?;
    let (version, now) = (home.version(), clock::now());
    let live = std::cell::Cell::new(0);
    walk::remove_entries(home.tier, home.slot, Why::Cleared, |entry| {
        let matches = entry.key_starts_with(prefix.bytes());
        if matches && entry.header().version == version && now < entry.header().deadline {
            live.set(live.get() + 1);
        }
        matches
    });
    Ok(live.get())
}

/// Removes all entries.
pub fn clear(cache: &Cache) -> Result<(), Error> {
    let home = Home::of(cache)?;
    let slot = home.tier.slot(home.slot);
    slot.version.store(home.tier.new_version(), SeqCst);
    let version = home.version();
    walk::remove_entries(home.tier, home.slot, Why::Cleared, |entry| {
        entry.header().version < version
    });
    Ok(())
}

/// Removes expired entries, and those of former content; how many. Then trims to `max_entries`.
pub fn expire(cache: &Cache, max_rows: i64) -> Result<i64, Error> {
    let home = Home::of(cache)?;
    let limit = deadline::swept_until(clock::now(), cache.settings.grace);
    let left = std::cell::Cell::new(max_rows);
    let removed = walk::remove_entries(home.tier, home.slot, Why::Expired, |entry| {
        let goes = left.get() > 0 && entry.header().deadline <= limit;
        left.set(left.get() - i64::from(goes));
        goes
    });
    trim(cache)?;
    Ok(removed as i64)
}

/// Removes entries that are more than `max_entries`: those that are used least.
pub fn trim(cache: &Cache) -> Result<(), Error> {
    let home = Home::of(cache)?;
    if let Some(most) = cache.settings.max_entries {
        let entries = home.tier.slot(home.slot).entries.load(Relaxed);
        walk::remove_least_used(home.tier, home.slot, entries - most);
    }
    Ok(())
}

/// A memory cache's slot and the deadline up to which its entries have expired; None while it has no
/// entries.
pub fn sweep_limit(cache: &Cache) -> Option<(u32, Timestamp)> {
    let tier = tier()?;
    let slot = cache.slot(tier)?;
    let limit = deadline::swept_until(clock::now(), cache.settings.grace);
    (tier.slot(slot).entries.load(Relaxed) > 0).then_some((slot, limit))
}

/// Whether two stored values are equal, as SQL sees it.
pub fn equal(cache: &Cache, one: Datum, other: Datum) -> bool {
    convert::equal(one, other, cache.value_type)
}
