//! Reads and changes entries of a memory cache as bytes, each under the lock of its partition. Also reads copies of
//! table rows in the tier.
//!
//! A change takes effect at once and is not rolled back; it voids the key's lease under the same lock.
//!
//! The event loop of a network process can call these functions: [`Entries::of`] and the operations on its result never
//! wait, read a catalog or raise an error. [`Entries::open`], for the SQL functions, may assign a slot and thus wait.
//! The caller provides the memory.

use std::cell::Cell;

use pgcache_store::{EntryRef, Header, Key as HotKey, NewEntry, PartitionRef, RemovalCause};
use pgcache_store::{GetOutcome, NO_DEADLINE, Piece, Reading};

use super::handle::{self, TierHandle};
use super::tier_ops;
use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::model::pending;
use crate::cache::tier::io;
use crate::cache::tier::walk::{self, Place};
use crate::error::Error;
use crate::pg::session;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::tier::Tier;
use crate::pg::value::datum::ValueType;
use crate::pg::value::stored::Kind;

/// The number of keys that are prefetched at the same time.
const AT_ONCE: usize = 32;
/// A value of more bytes can be read in pieces: copying this many bytes takes as long as ten lookups.
pub const LONG: usize = 256 << 10;

thread_local! {
    static HITS: Cell<u64> = const { Cell::new(0) };
    static MISSES: Cell<u64> = const { Cell::new(0) };
    /// The earliest deadline among the copies of rows that were read since the last call of [`take_soonest`].
    static SOONEST: Cell<Timestamp> = const { Cell::new(NO_DEADLINE) };
}

/// The entries of a memory cache, as of the time `now`.
pub struct Entries<'c> {
    cache: &'c Cache,
    handle: TierHandle,
    now: Timestamp,
    /// Whether a session uses the entries. A session may have changed the source of an entry, and may be cancelled; a
    /// network process does neither.
    by_session: bool,
}

/// The deadline and length of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryMeta {
    /// The deadline; [`NO_DEADLINE`] if the entry never expires.
    pub deadline: Timestamp,
    /// True for a stored NULL.
    pub negative: bool,
    /// The length of the value in bytes.
    pub length: usize,
}

impl EntryMeta {
    pub fn of(header: &Header) -> EntryMeta {
        EntryMeta {
            deadline: header.deadline,
            negative: header.negative,
            length: header.value_len as usize,
        }
    }
}

/// The result of a lookup.
pub enum Found {
    /// The value is in the buffer; None if no entry exists.
    Whole(Option<EntryMeta>),
    /// The value is long, and [`Entries::read_on`] reads it.
    Long(Reading),
}

/// The process has no memory left for a value.
#[derive(Debug)]
pub struct OutOfMemory;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Yes,
    /// The condition did not hold.
    No,
    /// The cache was dropped.
    Gone,
}

/// A key whose partition is locked.
pub struct Present<'e, 'p> {
    entries: &'e Entries<'e>,
    partition: &'e PartitionRef<'p>,
    key: &'e RawKey<'e>,
}

impl<'p> Present<'_, 'p> {
    /// Returns the live entry. Costs a second lookup, besides the lookup of the write itself.
    #[inline]
    pub fn entry(&self) -> Option<EntryRef<'p>> {
        self.entries.live(self.partition, self.key)
    }
}

/// A key and its hash.
pub type RawKey<'k> = HotKey<'k>;

impl<'c> Entries<'c> {
    /// Returns the entries for a network process. Returns None if the cache has no slot; such a cache has no entries.
    pub fn of(cache: &'c Cache, now: Timestamp) -> Option<Entries<'c>> {
        let handle = TierHandle::known(cache)?;
        Some(Entries {
            cache,
            handle,
            now,
            by_session: false,
        })
    }

    /// Returns the entries for an SQL function, and assigns a slot if the cache has none. Raises 55000 without a tier,
    /// and 53400 if all slots are taken.
    pub fn open(cache: &'c Cache) -> Result<Entries<'c>, Error> {
        Ok(Entries {
            cache,
            handle: TierHandle::of(cache)?,
            now: clock::now(),
            by_session: true,
        })
    }

    pub fn cache(&self) -> &'c Cache {
        self.cache
    }

    /// Ends an SQL call that was cancelled; does nothing in a network process.
    pub fn check_for_interrupts(&self) {
        if self.by_session {
            session::check_for_interrupts();
        }
    }

    /// Returns whether the entry of a key does not count for this transaction.
    #[inline]
    fn hides(&self, key: &RawKey) -> bool {
        self.by_session && pending::hides(self.cache.relation, key.bytes)
    }

    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> RawKey<'k> {
        self.handle.key(self.cache, bytes)
    }

    #[inline]
    pub fn is_past(&self, deadline: Timestamp) -> bool {
        deadline <= self.now
    }

    pub fn value_type(&self) -> ValueType {
        self.cache.value_type
    }

    fn tier(&self) -> &'static Tier {
        self.handle.tier
    }

    /// Prefetches a key's part of the index. Returns the hash for [`prefetch_entries`].
    #[inline]
    pub fn prefetch_index(&self, key: &[u8]) -> u64 {
        let hash = self.key(key).hash;
        self.tier().region().prefetch_buckets(hash);
        hash
    }

    /// Prefetches the index and then the entries of these keys, [`AT_ONCE`] at a time, so that their memory is already
    /// being loaded at the first lookup.
    pub fn prefetch<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) {
        let mut hashes = [0; AT_ONCE];
        loop {
            let mut count = 0;
            for (hash, key) in hashes.iter_mut().zip(keys.by_ref()) {
                *hash = self.prefetch_index(key);
                count += 1;
            }
            for hash in hashes.iter().take(count) {
                self.tier().region().prefetch_entry(*hash);
            }
            if count < AT_ONCE {
                return;
            }
        }
    }

    /// Returns whether an entry belongs to the current content, is live, and has the cache's type.
    #[inline]
    fn is_valid(&self, header: &Header) -> bool {
        header.version == self.handle.version()
            && io::is_live(header, self.now)
            && self.handle.belongs_to(self.cache)
            && Kind::of(header.kind).is_some_and(|kind| kind.value_type() == self.cache.value_type)
    }

    fn live<'p>(&self, partition: &PartitionRef<'p>, key: &RawKey) -> Option<EntryRef<'p>> {
        if self.hides(key) {
            return None;
        }
        partition
            .peek(key)
            .filter(|entry| self.is_valid(&entry.header()))
    }

    /// Copies a live value to the start of the buffer if the buffer is large enough.
    #[inline]
    fn copy(&self, key: &RawKey, buffer: &mut [u8]) -> GetOutcome {
        if self.hides(key) {
            return GetOutcome::Miss;
        }
        let found = self.tier().read(key.hash, |partition| {
            partition.get(key, i64::MIN, |header| self.is_valid(header), buffer)
        });
        if let GetOutcome::Hit(header) = &found {
            self.note_deadline(header);
        }
        found
    }

    /// Copies a live value to the start of the buffer, which grows as needed, and counts a use. Returns None if no
    /// live entry exists.
    #[inline]
    pub fn get(
        &self,
        key: &RawKey,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<EntryMeta>, OutOfMemory> {
        loop {
            match self.copy(key, buffer) {
                GetOutcome::Hit(header) => return Ok(Some(EntryMeta::of(&header))),
                GetOutcome::TooSmall(header) => grow(buffer, header.value_len as usize)?,
                GetOutcome::Miss => return Ok(None),
            }
        }
    }

    /// Returns the epoch of the key's stripe, which rises before and after each commit that changes the key.
    pub fn epoch(&self, key: &RawKey) -> u64 {
        self.tier()
            .read(key.hash, |partition| partition.epoch(key.hash))
    }

    /// Copies a live value as [`Entries::get`] does, but only begins to read a long value; [`Entries::read_on`] then
    /// reads the value in pieces.
    #[inline]
    pub fn get_or_begin(&self, key: &RawKey, buffer: &mut Vec<u8>) -> Result<Found, OutOfMemory> {
        loop {
            match self.copy(key, buffer) {
                GetOutcome::Hit(header) => return Ok(Found::Whole(Some(EntryMeta::of(&header)))),
                GetOutcome::TooSmall(header) if header.value_len as usize > LONG => {
                    let begun = self.tier().read(key.hash, |partition| {
                        partition.begin(key, |header| self.is_valid(header))
                    });
                    if let Some(reading) = begun.filter(|reading| reading.length() > LONG) {
                        return Ok(Found::Long(reading));
                    }
                }
                GetOutcome::TooSmall(header) => grow(buffer, header.value_len as usize)?,
                GetOutcome::Miss => return Ok(Found::Whole(None)),
            }
        }
    }

    /// Copies the next piece of a long value; [`Reading::next`] returns the length of the piece. After the last piece
    /// the copy equals the current value, and the read counts as a use.
    pub fn read_on(&self, key: &RawKey, reading: &mut Reading, into: &mut [u8]) -> Piece {
        let piece = self.tier().read(key.hash, |partition| {
            partition.read_on(key, |header| self.is_valid(header), reading, into)
        });
        if let Piece::Last(header) = &piece {
            self.note_deadline(header);
        }
        piece
    }

    /// Returns the deadline and length of a live entry. Returns None if no live entry exists. Does not count as a use.
    pub fn look(&self, key: &RawKey) -> Option<EntryMeta> {
        self.look_at(key, |entry| EntryMeta::of(&entry.header()))
    }

    /// Returns whether a live entry exists for which `holds` returns true.
    pub fn look_if(&self, key: &RawKey, holds: impl FnOnce(&EntryRef) -> bool) -> bool {
        self.look_at(key, holds).unwrap_or(false)
    }

    /// Returns eviction's measure of an entry's use, from 0 to 7.
    pub fn use_rank(&self, key: &RawKey) -> u32 {
        self.tier().read(key.hash, |partition| {
            let live = self.live(&partition, key);
            live.and_then(|_| partition.use_rank(key)).unwrap_or(0)
        })
    }

    /// Returns the number of bytes of the tier that a live entry takes.
    pub fn size(&self, key: &RawKey) -> Option<u64> {
        self.look_at(key, |entry| entry.bytes())
    }

    fn look_at<R>(&self, key: &RawKey, look: impl FnOnce(&EntryRef) -> R) -> Option<R> {
        self.tier().read(key.hash, |partition| {
            self.live(&partition, key).map(|entry| {
                self.note_deadline(&entry.header());
                look(&entry)
            })
        })
    }

    /// Notes the deadline of a copy of a row. An entry of a memory cache needs no note, because its removal notifies
    /// clients.
    #[inline]
    fn note_deadline(&self, header: &Header) {
        if self.cache.storage != Storage::Memory {
            note_soonest(header.deadline);
        }
    }

    /// Stores an entry if `still` returns true; `still` may read the current entry.
    pub fn put_at(
        &self,
        key: &RawKey,
        value: Option<&[u8]>,
        deadline: Timestamp,
        still: impl Fn(&Present) -> bool,
    ) -> Result<Written, Error> {
        loop {
            let record = NewEntry {
                version: self.handle.version(),
                deadline,
                kind: self.cache.value_type as u8,
                negative: value.is_none(),
                value: value.unwrap_or_default(),
            };
            let refused = Cell::new(false);
            let still = |partition: &PartitionRef| {
                let holds = still(&Present {
                    entries: self,
                    partition,
                    key,
                });
                refused.set(!holds);
                holds
            };
            if self
                .handle
                .put_record(self.cache, key, &record, self.now, still)?
            {
                return Ok(Written::Yes);
            }
            if refused.get() {
                return Ok(Written::No);
            }
            if !self.handle.belongs_to(self.cache) {
                return Ok(Written::Gone);
            }
            // The cache was cleared during the attempt, so try again: the next round stores the entry into the new
            // content.
        }
    }

    /// Removes a live entry if `still` returns true for it. Returns whether the entry was removed.
    pub fn remove_at(&self, key: &RawKey, still: impl Fn(&EntryRef) -> bool) -> bool {
        self.handle.remove(key, |partition| {
            let entry = self.live(partition, key);
            entry.as_ref().is_some_and(&still)
        })
    }

    /// Removes the entry of a key, live or not, if `still` returns true for the live entry or for None. Also voids the
    /// key's lease, because a session that computes the value may have begun before the removal. Returns the result of
    /// `still`, and whether a live entry was removed.
    pub fn delete_at(
        &self,
        key: &RawKey,
        still: impl Fn(Option<&EntryRef>) -> bool,
    ) -> (bool, bool) {
        let live = Cell::new(false);
        let allowed = self.handle.remove(key, |partition| {
            let entry = self.live(partition, key);
            live.set(entry.is_some());
            still(entry.as_ref())
        });
        (allowed, allowed && live.get())
    }

    /// Voids the lease of a key for which this session finds no live entry. Returns false if the session finds one. Keeps
    /// an entry that the session does not see because of its own uncommitted changes: they may be rolled back.
    pub fn void_lease_if_absent(&self, key: &RawKey) -> bool {
        let is_absent = |partition: &PartitionRef| self.live(partition, key).is_none();
        self.handle.void_lease(key, is_absent)
    }

    /// Gives a live entry another deadline if `allows` returns true for it. Returns whether the deadline was set.
    pub fn touch_at(
        &self,
        key: &RawKey,
        deadline: Timestamp,
        allows: impl Fn(&EntryRef) -> bool,
    ) -> bool {
        let partition = self.tier().region().partition_of(key.hash);
        self.tier().change(partition, |partition| {
            let touched = self.live(partition, key).as_ref().is_some_and(&allows)
                && partition.touch(key, deadline);
            if touched {
                self.tier().control().changes.note(key.hash);
            }
            touched
        })
    }

    /// Raises an error for a value of this length if the tier cannot hold it with the key.
    pub fn check_length(&self, key: &RawKey, length: usize) -> Result<(), Error> {
        handle::check_length(key.bytes, length)
    }

    /// Returns the number of entries, including expired entries that are not removed yet.
    pub fn count(&self) -> u64 {
        let entries = &self.tier().slot(self.handle.slot).entries;
        u64::try_from(entries.load(std::sync::atomic::Ordering::Relaxed)).unwrap_or(0)
    }

    /// Visits the entries from a position on, until `visit` returns false. Calls `visit` under a lock for each entry of
    /// the tier. The argument is None for an entry of another cache and for an entry that is not live. Returns the
    /// position where the walk continues.
    pub fn walk(&self, place: Place, mut visit: impl FnMut(Option<&EntryRef>) -> bool) -> Place {
        walk::look_on(self.tier(), place, |entry| {
            let header = entry.header();
            let ours = header.cache == self.handle.slot && self.is_valid(&header);
            visit(ours.then_some(entry))
        })
    }

    /// Returns the number of positions in a walk.
    pub fn places(&self) -> u64 {
        walk::places(self.tier())
    }

    /// Makes all entries outdated. Returns the version to pass to [`Entries::sweep`].
    pub fn disown_all(&self) -> u64 {
        tier_ops::disown_all(self.cache, &self.handle)
    }

    /// Removes entries of versions before `version` from a position on. Returns the position where the sweep
    /// continues.
    pub fn sweep(&self, place: Place, version: u64) -> Place {
        walk::remove_on(
            self.tier(),
            self.handle.slot,
            place,
            RemovalCause::Cleared,
            |entry| entry.header().version < version,
        )
    }

    /// Returns the current state of an entry, so that a caller can compare it with a later state.
    pub fn sight(&self, key: &RawKey) -> Sight {
        self.tier().read(key.hash, |partition| Sight {
            slot: self.handle.slot,
            version: self.handle.version(),
            count: self.tier().control().changes.count(key.hash),
            present: self.live(&partition, key).is_some(),
        })
    }

    /// Adds to a counter of this cache.
    #[inline]
    pub fn tally(&self, counter: Counter, times: u64) {
        self.tier().slot(self.handle.slot).count(counter, times);
        note_read(counter, times);
    }
}

/// Counts a Redis client's read of any cache.
#[inline]
pub fn note_read(counter: Counter, times: u64) {
    match counter {
        Counter::HotHits => HITS.set(HITS.get() + times),
        Counter::Misses => MISSES.set(MISSES.get() + times),
        _ => {}
    }
}

/// Notes the deadline of a row that a client has read.
pub fn note_soonest(deadline: Timestamp) {
    SOONEST.set(SOONEST.get().min(deadline));
}

/// Returns the earliest deadline of the rows that were read since the last call. Returns None if no row had a deadline.
pub fn take_soonest() -> Option<Timestamp> {
    let soonest = SOONEST.replace(NO_DEADLINE);
    (soonest != NO_DEADLINE).then_some(soonest)
}

/// Returns the hits and misses of this process since it began, of all caches.
pub fn reads() -> (u64, u64) {
    (HITS.get(), MISSES.get())
}

/// Returns the hits and misses since the last call, for a process that adds them to a sum.
pub fn take_reads() -> [u64; 2] {
    [HITS.take(), MISSES.take()]
}

/// The state of an entry when a client with a WATCH read it. Changes are counted only while a [`Watching`] lives.
#[derive(Clone, Copy)]
pub struct Sight {
    slot: u32,
    version: u64,
    count: u32,
    present: bool,
}

impl Sight {
    /// Returns whether the entry has changed between two states. A clear of the cache does not change a key without an
    /// entry.
    pub fn differs(&self, other: &Sight) -> bool {
        let unchanged = self.slot == other.slot
            && self.count == other.count
            && self.present == other.present
            && (self.version == other.version || !self.present);
        !unchanged
    }

    /// Returns whether a live entry existed.
    pub fn is_present(&self) -> bool {
        self.present
    }
}

/// Counts the changes of memory caches while the value lives.
pub struct Watching(&'static Tier);

impl Watching {
    /// Begins to count. Returns None without a tier, which has no entries to watch.
    pub fn begin() -> Option<Watching> {
        let tier = crate::pg::shmem::tier::tier()?;
        tier.control().changes.watch();
        Some(Watching(tier))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.control().changes.ignore();
    }
}

/// Grows a buffer to at least this length.
pub fn grow(buffer: &mut Vec<u8>, length: usize) -> Result<(), OutOfMemory> {
    let more = length.saturating_sub(buffer.len());
    buffer.try_reserve_exact(more).map_err(|_| OutOfMemory)?;
    buffer.resize(buffer.len() + more, 0);
    Ok(())
}

/// Prefetches the entries of keys whose part of the index was prefetched before.
pub fn prefetch_entries(hashes: &[u64]) {
    if let Some(tier) = crate::pg::shmem::tier::tier() {
        let region = tier.region();
        hashes.iter().for_each(|hash| region.prefetch_entry(*hash));
    }
}

pub fn has_deadline(seen: &EntryMeta) -> bool {
    seen.deadline != NO_DEADLINE
}
