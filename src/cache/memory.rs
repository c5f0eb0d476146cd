//! Entries of a memory cache: what each function does where the hot tier is all there is.
//!
//! Acts at once and is not rolled back. A decision that needs the old value (add, cas, incr ...) is
//! made on a copy, outside of any lock, and carried out only if the entry is still the same; if not,
//! it is made again.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgcache_store::{EntryRef, Key as HotKey, NO_DEADLINE, PartitionRef, Record, Why};
use pgrx::datum::Interval;
use pgrx::pg_sys::Datum;

use super::deadline::{self, Deadline};
use super::hot::{self, Stored};
use super::key::Key;
use super::leases::{self, Lease};
use super::registry::{self, Cache};
use super::sweeping::Sweeping;
use super::table::Entry;
use super::{walk, watch};
use crate::error::Error;
use crate::guc;
use crate::pg::clock::Timestamp;
use crate::pg::datum::{Text, varlena_bytes};
use crate::pg::events::Change;
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
        self.copy_out_within(cache, key, None)
    }

    fn copy_out_within(
        &self,
        cache: &Cache,
        key: &HotKey,
        grace: Option<Interval>,
    ) -> Option<Entry> {
        let valid = |header: &pgcache_store::Header| {
            header.version == self.version() && self.belongs_to(cache)
        };
        hot::copy_out(self.tier, key, cache.value_type, grace, valid)
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

    /// Whether a transaction that commits right now keeps this key from being stored.
    fn is_fenced(&self, hash: u64) -> bool {
        self.tier.slot(self.slot).pend.load(SeqCst) > 0
            || self.tier.control().fences.stands_before(hash)
    }

    /// Stores an entry if `still` holds under the lock, and voids the key's lease; false when it did not.
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
        let (voided, fenced) = (Cell::new(false), Cell::new(false));
        let stored = hot::store(
            self.tier,
            key,
            &record,
            |partition| {
                fenced.set(self.is_fenced(key.hash));
                !fenced.get()
                    && self.version() == record.version
                    && self.belongs_to(cache)
                    && still(partition)
            },
            || voided.set(leases::void(self.tier, key.hash)),
        );
        if voided.get() {
            leases::wake_waiting(self.tier, key.hash);
        }
        match stored {
            Stored::Yes => Ok(true),
            // As good as evicted at once: what it was computed from is changing.
            Stored::Refused if fenced.get() => Ok(true),
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

    /// Removes the entry if `still` holds, and voids the key's lease; whether it held.
    fn remove(&self, key: &HotKey, still: impl Fn(&PartitionRef) -> bool) -> bool {
        self.remove_because(key, Why::Cleared, still)
    }

    fn remove_because(
        &self,
        key: &HotKey,
        why: Why,
        still: impl Fn(&PartitionRef) -> bool,
    ) -> bool {
        let home = self.tier.region().partition_of(key.hash);
        let (holds, voided) = self.tier.change(home, |partition| {
            let holds = still(partition);
            if holds {
                partition.remove(key, why);
            }
            (
                holds,
                holds && why != Why::Expired && leases::void(self.tier, key.hash),
            )
        });
        if voided {
            leases::wake_waiting(self.tier, key.hash);
        }
        holds
    }
}

/// The slot in which fences are raised; the caller holds a lock on the view. None where no cache can
/// get one any more: then this one has no entries.
pub fn slot_to_fence(cache: &Cache, tier: &'static Tier) -> Option<u32> {
    let slot = cache.slot_or_new(tier)?;
    tier.slot(slot).memory.store(1, SeqCst);
    Some(slot)
}

/// The entry under a key that is live, or within this grace.
pub fn get(cache: &Cache, key: Key, grace: Option<Interval>) -> Result<Option<Entry>, Error> {
    let home = Home::of(cache)?;
    let text = key.text();
    let hot_key = home.key(cache, text.bytes());
    home.tier.region().prefetch_entry(hot_key.hash);
    Ok(home.copy_out_within(cache, &hot_key, grace))
}

/// Inserts or overwrites.
pub fn set(cache: &Cache, key: Key, entry: &Entry) -> Result<(), Error> {
    let text = key.text();
    // Refused only when the cache was cleared at this moment: then the entry belongs after it; or
    // dropped, which ends the loop with an error.
    loop {
        let home = Home::of(cache)?;
        if home.put(cache, &home.key(cache, text.bytes()), entry, |_| true)? {
            watch::note(cache.relation, text.bytes(), Change::Set);
            return Ok(());
        }
        session::check_for_interrupts();
    }
}

/// Stores a value that was computed under a lease, if the lease is still good; whether it was.
pub fn set_leased(cache: &Cache, key: Key, entry: &Entry, lease: Lease) -> Result<bool, Error> {
    let home = Home::of(cache)?;
    let text = key.text();
    let hot_key = home.key(cache, text.bytes());
    let still = |_: &PartitionRef| leases::holds(home.tier, lease, clock::now());
    let stored = home.put(cache, &hot_key, entry, still)?;
    if stored {
        watch::note(cache.relation, text.bytes(), Change::Set);
    }
    Ok(stored)
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
        let (done, answer, change) = match decide(present.as_ref())? {
            Decision::Keep(answer) => (true, answer, None),
            Decision::Put(entry, answer) => {
                let done = home.put(cache, &hot_key, &entry, still)?;
                (done, answer, Some(Change::Set))
            }
            Decision::Remove(answer) => (home.remove(&hot_key, still), answer, Some(Change::Gone)),
        };
        if done {
            if let Some(change) = change {
                watch::note(cache.relation, text.bytes(), change);
            }
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
    let live = Cell::new(false);
    home.remove(&hot_key, |partition| {
        live.set(home.live(partition, &hot_key).is_some());
        true
    });
    if live.get() {
        watch::note(cache.relation, text.bytes(), Change::Gone);
    }
    Ok(live.get())
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
    if touched {
        watch::note(cache.relation, text.bytes(), Change::Set);
    }
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
    leases::void_all(home.tier, cache.owner);
    let (version, now) = (home.version(), clock::now());
    if cache.settings.watch.is_some() {
        for key in walk::least_keys(home.tier, home.slot, prefix.bytes(), b"", usize::MAX) {
            watch::note(cache.relation, &key, Change::Gone);
        }
    }
    let live = Cell::new(0);
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
    leases::void_all(home.tier, cache.owner);
    slot.version.store(home.tier.new_version(), SeqCst);
    leases::void_all(home.tier, cache.owner); // those that began while the first were voided
    let version = home.version();
    watch::note_clear(cache.relation);
    walk::remove_entries(home.tier, home.slot, Why::Cleared, |entry| {
        entry.header().version < version
    });
    Ok(())
}

/// Removes expired entries, and those of former content; how many. Then trims to `max_entries`.
pub fn expire(cache: &Cache, max_rows: i64) -> Result<i64, Error> {
    let home = Home::of(cache)?;
    let limit = deadline::swept_until(clock::now(), cache.settings.grace);
    if cache.settings.watch.is_some() {
        let removed = expire_watched(cache, &home, limit, max_rows);
        trim(cache)?;
        return Ok(removed);
    }
    let left = Cell::new(max_rows);
    let removed = walk::remove_entries(home.tier, home.slot, Why::Expired, |entry| {
        let goes = left.get() > 0 && entry.header().deadline <= limit;
        left.set(left.get() - i64::from(goes));
        goes
    });
    trim(cache)?;
    Ok(removed as i64)
}

/// The same one by one, because each is told.
fn expire_watched(cache: &Cache, home: &Home, limit: i64, max_rows: i64) -> i64 {
    let max = usize::try_from(max_rows).unwrap_or(0);
    let _sweeping = Sweeping::begin();
    let mut removed = 0;
    for bytes in walk::expired_keys(home.tier, home.slot, limit, max) {
        let key = home.key(cache, &bytes);
        let is_expired = |partition: &PartitionRef| {
            let entry = partition.peek(&key);
            entry.is_some_and(|entry| entry.header().deadline <= limit)
        };
        if home.remove_because(&key, Why::Expired, is_expired) {
            watch::note(cache.relation, &bytes, Change::Gone);
            removed += 1;
        }
    }
    removed
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
