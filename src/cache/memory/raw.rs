//! Entries of a memory cache as bytes: each is read and changed under its partition's lock.
//!
//! A change takes effect at once and is not rolled back; it voids the key's lease under the same
//! lock. Guards what the loop of a network process needs: nothing waits, asks a catalog or raises
//! an error. So [`Entries::of`] gives a cache no slot, which may wait. [`Entries::open`] does, for
//! functions of SQL. The caller brings the memory.

use std::cell::Cell;

use pgcache_store::{EntryRef, Header, Key as HotKey, NewEntry, PartitionRef, RemovalCause};
use pgcache_store::{GetOutcome, NO_DEADLINE, Piece, Reading};

use super::handle::{self, TierHandle};
use super::ops;
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

/// Keys that are asked for from memory at once.
const AT_ONCE: usize = 32;
/// Values of more bytes can be read in pieces: to copy this many takes as long as ten look-ups.
pub const LONG: usize = 256 << 10;

thread_local! {
    static HITS: Cell<u64> = const { Cell::new(0) };
    static MISSES: Cell<u64> = const { Cell::new(0) };
    /// The first deadline of the copies of rows that were read since it was asked for.
    static SOONEST: Cell<Timestamp> = const { Cell::new(NO_DEADLINE) };
}

/// The entries of a memory cache at one moment.
pub struct Entries<'c> {
    cache: &'c Cache,
    handle: TierHandle,
    now: Timestamp,
    /// For a session: it may have changed what an entry depends on, and may be cancelled.
    by_session: bool,
}

/// Deadline and length of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryMeta {
    /// [`NO_DEADLINE`]: it never expires.
    pub deadline: Timestamp,
    /// A stored NULL.
    pub negative: bool,
    /// Bytes of the value.
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

/// What there is under a key.
pub enum Found {
    /// A value in the buffer, or none.
    Whole(Option<EntryMeta>),
    /// One that is read by [`Entries::read_on`].
    Long(Reading),
}

/// There is no memory for a value.
#[derive(Debug)]
pub struct OutOfMemory;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Yes,
    /// The condition did not hold.
    No,
    /// The cache was dropped.
    Gone,
}

/// A key while its partition is locked.
pub struct Present<'e, 'p> {
    entries: &'e Entries<'e>,
    partition: &'e PartitionRef<'p>,
    key: &'e RawKey<'e>,
}

impl<'p> Present<'_, 'p> {
    /// The live entry: a second look-up beside that of the write itself.
    #[inline]
    pub fn entry(&self) -> Option<EntryRef<'p>> {
        self.entries.live(self.partition, self.key)
    }
}

/// A key and its hash.
pub type RawKey<'k> = HotKey<'k>;

impl<'c> Entries<'c> {
    /// None while the cache has no slot: no session has stored anything in it.
    pub fn of(cache: &'c Cache, now: Timestamp) -> Option<Entries<'c>> {
        let handle = TierHandle::known(cache)?;
        Some(Entries {
            cache,
            handle,
            now,
            by_session: false,
        })
    }

    /// For a function of SQL. The cache gets a slot if it has none. Raises 55000 without a tier,
    /// 53400 when all slots are taken.
    pub fn open(cache: &'c Cache) -> Result<Entries<'c>, Error> {
        Ok(Entries {
            cache,
            handle: TierHandle::of(cache)?,
            now: clock::now(),
            by_session: true,
        })
    }

    /// The cache itself.
    pub fn cache(&self) -> &'c Cache {
        self.cache
    }

    /// Ends a call of SQL that was cancelled.
    pub fn check_for_interrupts(&self) {
        if self.by_session {
            session::check_for_interrupts();
        }
    }

    /// Whether the entry under a key is none for this transaction.
    #[inline]
    fn hides(&self, key: &RawKey) -> bool {
        self.by_session && pending::hides(self.cache.relation, key.bytes)
    }

    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> RawKey<'k> {
        self.handle.key(self.cache, bytes)
    }

    /// Whether a deadline is over already.
    #[inline]
    pub fn is_past(&self, deadline: Timestamp) -> bool {
        deadline <= self.now
    }

    /// The type of the values.
    pub fn value_type(&self) -> ValueType {
        self.cache.value_type
    }

    fn tier(&self) -> &'static Tier {
        self.handle.tier
    }

    /// Asks for a key's part of the index, and gives what [`prefetch_entries`] is told.
    #[inline]
    pub fn prefetch_index(&self, key: &[u8]) -> u64 {
        let hash = self.key(key).hash;
        self.tier().region().prefetch_buckets(hash);
        hash
    }

    /// Asks for these keys' part of the index and then for their entries, some at a time: those are on
    /// their way from memory before the first is looked at.
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

    /// Whether an entry is of the present content, live, and of the type that the cache has.
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

    /// Copies a live value to the start of the buffer, if it has the room.
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

    /// Copies a live value to the start of the buffer, which grows if need be, and counts a use.
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

    /// Returns the epoch of the key's stripe: it rises before and after each commit that changes the key.
    pub fn epoch(&self, key: &RawKey) -> u64 {
        self.tier()
            .read(key.hash, |partition| partition.epoch(key.hash))
    }

    /// The same, but none of a long value, which is begun to be read in pieces.
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

    /// Copies the next piece of a long value, as long as [`Reading::next`] says. After the last of them it is the
    /// value of this moment, and a use of it counts.
    pub fn read_on(&self, key: &RawKey, reading: &mut Reading, into: &mut [u8]) -> Piece {
        let piece = self.tier().read(key.hash, |partition| {
            partition.read_on(key, |header| self.is_valid(header), reading, into)
        });
        if let Piece::Last(header) = &piece {
            self.note_deadline(header);
        }
        piece
    }

    /// Deadline and length of a live entry. No use of it counts.
    pub fn look(&self, key: &RawKey) -> Option<EntryMeta> {
        self.look_at(key, |entry| EntryMeta::of(&entry.header()))
    }

    /// Whether there is a live entry of which `holds` is true.
    pub fn look_if(&self, key: &RawKey, holds: impl FnOnce(&EntryRef) -> bool) -> bool {
        self.look_at(key, holds).unwrap_or(false)
    }

    /// How much eviction considers an entry used, 0 to 7.
    pub fn use_rank(&self, key: &RawKey) -> u32 {
        self.tier().read(key.hash, |partition| {
            let live = self.live(&partition, key);
            live.and_then(|_| partition.use_rank(key)).unwrap_or(0)
        })
    }

    /// How many bytes of the tier a live entry takes.
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

    /// Of a memory cache's entry its change tells.
    #[inline]
    fn note_deadline(&self, header: &Header) {
        if self.cache.storage != Storage::Memory {
            note_soonest(header.deadline);
        }
    }

    /// Stores an entry if `still` says so, which may look at the present one.
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
            // Cleared at this moment: the entry comes after that.
        }
    }

    /// Removes a live entry if `still` says so; whether it was removed.
    pub fn remove_at(&self, key: &RawKey, still: impl Fn(&EntryRef) -> bool) -> bool {
        self.handle.remove(key, |partition| {
            let entry = self.live(partition, key);
            entry.as_ref().is_some_and(&still)
        })
    }

    /// Removes what is under a key, live or not, if `still` says so of the live entry, and voids the
    /// key's lease: a session that computes it has begun before this. Whether it said so, and whether a live
    /// entry was removed.
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

    /// Gives a live entry another deadline if `allows` says so of it; whether it did.
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

    /// An error for a value of this length that the tier cannot hold under the key.
    pub fn check_length(&self, key: &RawKey, length: usize) -> Result<(), Error> {
        handle::check_length(key.bytes, length)
    }

    /// How many entries there are, with those that have expired and that nobody has removed yet.
    pub fn count(&self) -> u64 {
        let entries = &self.tier().slot(self.handle.slot).entries;
        u64::try_from(entries.load(std::sync::atomic::Ordering::Relaxed)).unwrap_or(0)
    }

    /// Looks at the entries of the next places, until `visit` gives false: it is called under a lock
    /// for each entry that is there, with its key's length if it is one of ours that is live, and
    /// copies the key. Gives the place at which to go on.
    pub fn walk(&self, place: Place, mut visit: impl FnMut(Option<&EntryRef>) -> bool) -> Place {
        walk::look_on(self.tier(), place, |entry| {
            let header = entry.header();
            let ours = header.cache == self.handle.slot && self.is_valid(&header);
            visit(ours.then_some(entry))
        })
    }

    /// How many places a walk has.
    pub fn places(&self) -> u64 {
        walk::places(self.tier())
    }

    /// Makes all entries former ones; what [`Entries::sweep`] is told.
    pub fn disown_all(&self) -> u64 {
        ops::disown_all(self.cache, &self.handle)
    }

    /// Removes entries of versions before this one in the next places; the place at which to go on.
    pub fn sweep(&self, place: Place, version: u64) -> Place {
        walk::remove_on(
            self.tier(),
            self.handle.slot,
            place,
            RemovalCause::Cleared,
            |entry| entry.header().version < version,
        )
    }

    /// What tells whether an entry changes from now on.
    pub fn sight(&self, key: &RawKey) -> Sight {
        self.tier().read(key.hash, |partition| Sight {
            slot: self.handle.slot,
            version: self.handle.version(),
            count: self.tier().control().changes.count(key.hash),
            present: self.live(&partition, key).is_some(),
        })
    }

    /// Counts something that happened to this cache.
    #[inline]
    pub fn tally(&self, counter: Counter, times: u64) {
        self.tier().slot(self.handle.slot).count(counter, times);
        note_read(counter, times);
    }
}

/// Counts a read of the Redis protocol, whatever cache it was of.
#[inline]
pub fn note_read(counter: Counter, times: u64) {
    match counter {
        Counter::HotHits => HITS.set(HITS.get() + times),
        Counter::Misses => MISSES.set(MISSES.get() + times),
        _ => {}
    }
}

/// A row was read that ends then.
pub fn note_soonest(deadline: Timestamp) {
    SOONEST.set(SOONEST.get().min(deadline));
}

/// When the first of those rows ends whose copies were read since this was asked before; None: none does.
pub fn take_soonest() -> Option<Timestamp> {
    let soonest = SOONEST.replace(NO_DEADLINE);
    (soonest != NO_DEADLINE).then_some(soonest)
}

/// Hits and misses of this process since it began, of all caches.
pub fn reads() -> (u64, u64) {
    (HITS.get(), MISSES.get())
}

/// Returns hits and misses since the last call, for a process that adds them to a sum.
pub fn take_reads() -> [u64; 2] {
    [HITS.take(), MISSES.take()]
}

/// An entry as a client that watches saw it. A count of changes is kept only while a client [`watch`]es.
#[derive(Clone, Copy)]
pub struct Sight {
    slot: u32,
    version: u64,
    count: u32,
    present: bool,
}

impl Sight {
    /// Whether the entry has changed between two sights. Clearing the cache changes no key that had no entry.
    pub fn differs(&self, other: &Sight) -> bool {
        let unchanged = self.slot == other.slot
            && self.count == other.count
            && self.present == other.present
            && (self.version == other.version || !self.present);
        !unchanged
    }

    /// Whether there was a live entry.
    pub fn is_present(&self) -> bool {
        self.present
    }
}

/// As long as it lives changes of memory caches are counted.
pub struct Watching(&'static Tier);

impl Watching {
    /// None without a tier, where there is nothing to watch.
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

/// Makes a buffer at least so long.
pub fn grow(buffer: &mut Vec<u8>, length: usize) -> Result<(), OutOfMemory> {
    let more = length.saturating_sub(buffer.len());
    buffer.try_reserve_exact(more).map_err(|_| OutOfMemory)?;
    buffer.resize(buffer.len() + more, 0);
    Ok(())
}

/// Asks for the entries of keys whose part of the index was asked for.
pub fn prefetch_entries(hashes: &[u64]) {
    if let Some(tier) = crate::pg::shmem::tier::tier() {
        let region = tier.region();
        hashes.iter().for_each(|hash| region.prefetch_entry(*hash));
    }
}

/// Whether an entry has a deadline.
pub fn has_deadline(seen: &EntryMeta) -> bool {
    seen.deadline != NO_DEADLINE
}
