//! The hot tier in shared memory: its size, its locks, and the only access to its partitions.
//!
//! Access rules:
//!
//! 1. Code accesses partition `i` of the store only inside [`Tier::read`], [`Tier::change`] and their variants, which
//!    hold lock `i` of the tranche "pgcache" shared or exclusively.
//! 2. A backend holds at most one of these locks. Lock number `partitions` protects the assignment of slots; a backend
//!    that holds it accesses no partition.
//! 3. Code that runs under a lock raises no error, allocates nothing from Postgres, and runs no SQL.
//! 4. A [`Slot`] consists of atomics. Backends read and change them with or without a lock, in the order that
//!    `cache::commit::changes` explains.
//!
//! Without `shared_preload_libraries` the server has no tier, and [`tier`] returns None.

use std::cell::Cell;
use std::ffi::CStr;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use pgcache_store::{
    EntryEvent, Layout, Ledger, PartitionMut, PartitionRef, Rank, Region, RemovalCause,
};
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::cache_id::{AtomicCacheId, CacheId};
use super::change_counts::Changes;
use super::key_marks::{self, Marks};
use super::lease::{Leases, Shape};
use super::prepared::{self, Records};
use super::slot::{Share, Slot};
use super::stores::Stores;
use super::{entry_size, mapping, restart, ring, worker_state};
use crate::error::Error;
use crate::pg::encoding::decode;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::pending_invalidations::PendingInvalidations;
use crate::pg::version;

// Functions that raise no error, so they are declared without the guard that pgrx puts around each call.
unsafe extern "C-unwind" {
    fn LWLockAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    fn LWLockConditionalAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    fn LWLockRelease(lock: *mut pg_sys::LWLock);
}

/// The tier has one slot for this many bytes of `pgcache.hot_size`, within the two bounds below.
const BYTES_PER_SLOT: usize = 512 * 1024;
/// The smallest number of slots.
const MIN_SLOTS: usize = 32;
/// The largest number of slots.
const MAX_SLOTS: usize = 4096;
/// The number of [`Stores`] counts, which all caches share.
const STORES: usize = 64;
/// Bytes that Postgres may add to a request for shared memory by rounding.
const ROUNDING: usize = 256;
/// The wait event of a session that waits for another session's value.
const FETCH_WAIT: &CStr = c"PgcacheFetch";

/// The state of the whole hot tier.
#[repr(C, align(64))]
pub struct Control {
    /// The last version that was assigned.
    versions: AtomicU64,
    /// The seed of the key hash, new at each start.
    pub seed: AtomicU64,
    /// The number of values that were too large for the hot tier, since the last reset.
    pub rejected: AtomicU64,
    /// The number of waits for one of the tier's locks, since the last reset.
    pub waits: AtomicU64,
    /// The counts of changes to watched keys of memory caches.
    pub changes: Changes,
    /// A bit mask of the processes that track changes of entries of any cache.
    trackers: AtomicU64,
    /// The number of caches that have a bound or a reserve.
    shares: AtomicU64,
    /// How often a share was written to a slot.
    share_changes: AtomicU64,
    /// A bit mask of the processes that hold locks on watched keys without an entry, so that no commit creates these
    /// keys.
    pub watchers: AtomicU64,
    /// The transactions that are about to commit and will then notify the processes that track changes.
    pub pending_invalidations: PendingInvalidations,
    /// The counts of transactions that store loaded values; several caches share a count.
    stores: [Stores; STORES],
}

/// The tier of this server.
pub struct Tier {
    region: Region,
    leases: Leases,
    marks: Marks,
    prepared: Records,
    locks: NonNull<pg_sys::LWLockPadded>,
    control: &'static Control,
    /// The cache of each slot.
    caches: &'static [AtomicCacheId],
    slots: &'static [Slot],
    size: usize,
}

thread_local! {
    // The postmaster sets this before it forks; every backend inherits it. The tier is never dropped.
    static TIER: Cell<Option<&'static Tier>> = const { Cell::new(None) };
}

/// Returns the hot tier; None if this server has none.
#[inline]
pub fn tier() -> Option<&'static Tier> {
    TIER.get()
}

/// The offset of each part of the tier, in bytes from its start. The request hook and the startup hook compute the same
/// layout.
struct ShmemLayout {
    /// The layout of the store's memory.
    region: Layout,
    leases: Shape,
    leases_at: usize,
    marks: key_marks::Shape,
    marks_at: usize,
    prepared: prepared::Shape,
    prepared_at: usize,
    slots: usize,
    region_at: usize,
    total: usize,
}

impl ShmemLayout {
    fn for_size(size: usize) -> Option<ShmemLayout> {
        let slots = (size / BYTES_PER_SLOT).clamp(MIN_SLOTS, MAX_SLOTS);
        let head = size_of::<Control>() + slots * (size_of::<AtomicCacheId>() + size_of::<Slot>());
        let entry_size = crate::guc::hot_entry_size();
        let partitions = entry_size::layout(size, 0, entry_size)?.partitions();
        let size = size.checked_sub(worker_state::bytes(size) + ROUNDING)?;
        let leases = Shape::of(size, partitions);
        let leases_at = head.next_multiple_of(64);
        let marks = key_marks::Shape::of(size, partitions);
        let marks_at = (leases_at + leases.bytes()).next_multiple_of(64);
        let prepared = prepared::Shape::of(size);
        let prepared_at = (marks_at + marks.bytes()).next_multiple_of(64);
        let region_at = (prepared_at + prepared.bytes()).next_multiple_of(4096);
        let locks = (partitions as usize + 2) * size_of::<pg_sys::LWLockPadded>();
        let room = size.checked_sub(region_at + locks + 4096 + ROUNDING)?;
        let region = entry_size::layout(room, partitions, entry_size)?;
        Some(ShmemLayout {
            leases,
            leases_at,
            marks,
            marks_at,
            prepared,
            prepared_at,
            slots,
            region_at,
            total: region_at + region.region_bytes() + 4096,
            region,
        })
    }

    fn locks(&self) -> i32 {
        self.region.partitions() as i32 + 1
    }
}

impl Tier {
    /// Runs `look` on the partition of a hash, under the partition's shared lock.
    #[inline]
    pub fn read<R>(&self, hash: u64, look: impl FnOnce(PartitionRef<'_>) -> R) -> R {
        self.read_at(self.region.partition_of(hash), look)
    }

    #[inline]
    pub fn read_at<R>(&self, partition: u32, look: impl FnOnce(PartitionRef<'_>) -> R) -> R {
        let _lock = self.lock(partition, pg_sys::LWLockMode::LW_SHARED);
        // SAFETY: this function holds lock `partition` to its end.
        look(unsafe { self.region.partition(partition) })
    }

    /// Runs `look` on a partition under its shared lock, for a process that must not wait. Returns None if the lock is
    /// not free at once.
    pub fn read_at_once<R>(
        &self,
        partition: u32,
        look: impl FnOnce(PartitionRef<'_>) -> R,
    ) -> Option<R> {
        let mode = pg_sys::LWLockMode::LW_SHARED;
        // SAFETY: a partition's number is below the number of locks, and this process holds no such lock (rule 2).
        let _lock = unsafe {
            let lock = &raw mut (*self.locks.as_ptr().add(partition as usize)).lock;
            LWLockConditionalAcquire(lock, mode).then(|| Held(lock))
        }?;
        // SAFETY: this function holds lock `partition` to its end.
        Some(look(unsafe { self.region.partition(partition) }))
    }

    /// Runs `change` on a partition, under the partition's exclusive lock.
    #[inline]
    pub fn change<R>(&self, partition: u32, change: impl FnOnce(&mut PartitionMut<'_>) -> R) -> R {
        let mut ledger = Books(self);
        let _lock = self.lock(partition, pg_sys::LWLockMode::LW_EXCLUSIVE);
        // SAFETY: this function holds lock `partition` exclusively to its end.
        change(&mut unsafe { self.region.partition_mut(partition, &mut ledger) })
    }

    /// Returns the store's memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the leases of all partitions.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns the marks on keys, of all partitions.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Returns whether a hash has a mark. The result is reliable only under the partition's lock.
    #[inline]
    pub fn is_marked(&self, hash: u64) -> bool {
        let partition = self.region.partition_of(hash);
        self.marks.of(partition).stands(hash)
    }

    /// Returns the records of prepared transactions.
    pub fn prepared(&self) -> &Records {
        &self.prepared
    }

    /// Returns the number of partitions, which are numbered from 0.
    pub fn partitions(&self) -> u32 {
        self.region.layout().partitions()
    }

    /// Returns the state of the whole tier.
    pub fn control(&self) -> &Control {
        self.control
    }

    #[inline]
    pub fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize % self.slots.len()]
    }

    #[inline]
    pub fn cache_of(&self, slot: u32) -> &AtomicCacheId {
        &self.caches[slot as usize % self.caches.len()]
    }

    /// Returns the caches of all slots, in the order of the slots.
    pub fn caches(&self) -> &[AtomicCacheId] {
        self.caches
    }

    /// Runs `run` under the lock that protects the assignment of slots.
    pub fn assigning<R>(&self, run: impl FnOnce() -> R) -> R {
        let _lock = self.lock(self.partitions(), pg_sys::LWLockMode::LW_EXCLUSIVE);
        run()
    }

    /// Gives a slot its share; the caller holds the assignment lock. All reserves together hold at most half of the
    /// tier, so the last reserve to be set may be smaller than requested. It grows as soon as other reserves give back
    /// memory.
    pub fn put_share(&self, slot: u32, share: Share) {
        let others = || {
            self.slots
                .iter()
                .enumerate()
                .filter(|(n, _)| *n != slot as usize)
        };
        let taken: u64 = others().map(|(_, other)| other.held()).sum();
        let left = match fault::on(Fault::ReservesUnbounded) {
            true => u64::MAX,
            false => self.most_reserved().saturating_sub(taken),
        };
        self.control.share_changes.fetch_add(1, Ordering::SeqCst);
        let held = share.reserve.min(left);
        self.slot(slot).set_share(share, held);
        let mut left = left - held;
        for other in self.slots {
            let more = (other.share().reserve - other.held()).min(left);
            other.set_share(other.share(), other.held() + more);
            left -= more;
        }
        let shares = self
            .slots
            .iter()
            .filter(|slot| slot.share() != Share::default());
        self.control
            .shares
            .store(shares.count() as u64, Ordering::Relaxed);
    }

    /// Returns how often a share was written into any slot.
    pub fn share_changes(&self) -> u64 {
        self.control.share_changes.load(Ordering::SeqCst)
    }

    /// Returns the maximum of all reserves together, in bytes.
    pub fn most_reserved(&self) -> u64 {
        self.size as u64 / 2
    }

    /// Returns the count of open transactions that have stored a loaded value in this cache, or in a cache that shares
    /// its count.
    pub fn stores(&self, cache: CacheId) -> &Stores {
        let place = cache.mixed() >> 58;
        &self.control.stores[place as usize % STORES]
    }

    /// Returns a version that no cache has had before.
    pub fn new_version(&self) -> u64 {
        self.control.versions.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Invalidates all entries of a slot by giving the slot a new version. For a memory cache this notifies the readers
    /// of the ring twice: before the new version, because no session may see the new content before the notification;
    /// and after it, because a value that a client read between the first notification and the new version is out of
    /// date, too. A table loses only copies, so its readers need no notification.
    pub fn renew_version(&self, slot: u32) {
        let record = || {
            if !self.slot(slot).is_table() && self.is_slot_tracked(slot) {
                ring::note_all(slot);
            }
        };
        record();
        self.slot(slot)
            .version
            .store(self.new_version(), Ordering::SeqCst);
        record();
    }

    /// Returns whether any process tracks changes.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.control.trackers.load(Ordering::SeqCst) != 0
    }

    /// Returns whether any process tracks this cache's changes.
    fn is_slot_tracked(&self, slot: u32) -> bool {
        self.slot(slot).trackers.load(Ordering::SeqCst) != 0
    }

    /// Records that the row of a key of a table cache has changed. `author` is the client that changed it; 0 means no
    /// client.
    pub fn record_row(&self, slot: u32, key: &[u8], author: u64) {
        if self.is_slot_tracked(slot) {
            ring::note(slot, key, author);
        }
    }

    /// Records that any row of a table cache may have changed.
    pub fn record_rows(&self, slot: u32) {
        if self.slot(slot).is_table() && self.is_slot_tracked(slot) {
            ring::note_all(slot);
        }
    }

    /// Begins to track a cache's changes. Takes each partition's lock once, so that every writer that did not see the
    /// new tracker has finished its change when this function returns.
    pub fn track(&self, slot: u32, reader: u64) {
        self.slot(slot).trackers.fetch_or(reader, Ordering::SeqCst);
        self.control.trackers.fetch_or(reader, Ordering::SeqCst);
        (0..self.partitions()).for_each(|partition| self.read_at(partition, |_| ()));
    }

    /// Ends all tracking of this reader.
    pub fn untrack_all(&self, reader: u64) {
        self.control.trackers.fetch_and(!reader, Ordering::SeqCst);
        for slot in self.slots {
            slot.trackers.fetch_and(!reader, Ordering::SeqCst);
        }
    }

    /// Returns the bytes of all shared memory of the hot tier, including its locks.
    pub fn size(&self) -> usize {
        self.size
    }

    fn lock(&self, number: u32, mode: pg_sys::LWLockMode::Type) -> Held {
        // SAFETY: the tranche has partitions + 1 locks, and `number` is below that; and this backend holds no lock of
        // the tranche (rule 2), so it cannot wait for itself.
        unsafe {
            let lock = &raw mut (*self.locks.as_ptr().add(number as usize)).lock;
            if !LWLockConditionalAcquire(lock, mode) {
                self.control.waits.fetch_add(1, Ordering::Relaxed);
                LWLockAcquire(lock, mode);
            }
            Held(lock)
        }
    }
}

/// Receives the store's events: adds them to the slots' counters, and records the keys for processes that track
/// changes.
struct Books<'t>(&'t Tier);

impl Ledger for Books<'_> {
    #[inline]
    fn report(&mut self, event: EntryEvent) {
        self.0.slot(event.cache).account(event);
    }

    #[inline]
    fn has_ranks(&self) -> bool {
        self.0.control.shares.load(Ordering::Relaxed) != 0
    }

    fn rank(&self, cache: u32) -> Rank {
        self.0.slot(cache).rank()
    }

    #[inline]
    fn wants_names(&self, cache: u32) -> bool {
        let slot = self.0.slot(cache);
        // Adding or removing a copy of a table's row does not change the row.
        slot.trackers.load(Ordering::Relaxed) != 0 && !slot.is_table()
    }

    fn name(&mut self, event: &EntryEvent, key: &[u8]) {
        // Removing an entry of an earlier version changes nothing that a session can see.
        if event.version != self.0.slot(event.cache).version.load(Ordering::SeqCst) {
            return;
        }
        // No client is the author of a removal that makes room or that removes an expired entry.
        let by_author = !matches!(
            event.removed,
            Some(RemovalCause::Evicted | RemovalCause::Expired)
        );
        let author = if by_author { ring::author() } else { 0 };
        ring::note(event.cache, key, author);
    }
}

/// An LWLock that is held. Dropping this value releases the lock; after an error Postgres' abort does.
struct Held(*mut pg_sys::LWLock);

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `Tier` acquired the lock before it made this value, and no other code releases it.
        unsafe { LWLockRelease(self.0) };
    }
}

/// Returns whether `shared_preload_libraries` is loading the library now.
pub fn preloading() -> bool {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Returns the setting `shared_preload_libraries` of this process.
pub fn preloaded_libraries() -> String {
    // SAFETY: a variable of this process, NULL or a C string, which only the postmaster changes.
    unsafe {
        let libraries = pg_sys::shared_preload_libraries_string;
        match libraries.is_null() {
            true => String::new(),
            false => decode(CStr::from_ptr(libraries).to_bytes()),
        }
    }
}

/// Returns whether `session_preload_libraries` names the library, with or without a directory. Reads the setting's
/// value at the start of this session.
pub fn loaded_by_sessions() -> bool {
    // SAFETY: a variable of this process, NULL or a C string.
    let libraries = unsafe {
        let libraries = pg_sys::session_preload_libraries_string;
        match libraries.is_null() {
            true => return false,
            false => decode(CStr::from_ptr(libraries).to_bytes()),
        }
    };
    libraries.split(',').any(|library| {
        let library = library.trim().trim_matches('"');
        let file = library.rsplit('/').next().unwrap_or(library);
        file.strip_suffix(".so").unwrap_or(file) == "pgcache"
    })
}

static mut FORMER_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut FORMER_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Installs the shared-memory hooks; the caller is preloading the library.
pub fn register() {
    // SAFETY: runs once in the postmaster, before any other process exists.
    unsafe {
        FORMER_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        FORMER_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: the former hook is called as Postgres would have called it.
    unsafe {
        if let Some(former) = FORMER_REQUEST {
            former();
        }
    }
    let size = crate::guc::hot_size();
    worker_state::request(size);
    if size == 0 {
        return;
    }
    let Some(layout) = ShmemLayout::for_size(size) else {
        return ErrorReport::new(
            PgSqlErrorCode::ERRCODE_WARNING,
            "pgcache.hot_size is too small: the hot tier stays off",
            "pgcache",
        )
        .set_hint("Raise pgcache.hot_size in postgresql.conf and restart the server; 0 turns the hot tier off without this warning.")
        .report(PgLogLevel::WARNING);
    };
    // If the system refuses the memory, Postgres fails right after this warning, and its own hint names only its own
    // settings.
    if !mapping::system_gives(layout.total, false) {
        ErrorReport::from(Error::NoSharedMemory(layout.total)).report(PgLogLevel::WARNING);
    } else if needs_huge_pages() && !mapping::system_gives(layout.total, true) {
        ErrorReport::from(Error::NoHugePages(layout.total)).report(PgLogLevel::WARNING);
    }
    if layout.total > mapping::of_machine() / 2 {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_WARNING,
            "pgcache.hot_size is more than half of this machine's memory",
            "pgcache",
        )
        .set_detail(format!(
            "The hot tier uses {} MB of {} MB. Shared buffers, sessions and the file system's cache need the rest.",
            layout.total >> 20,
            mapping::of_machine() >> 20
        ))
        .set_hint("Lower pgcache.hot_size in postgresql.conf.")
        .report(PgLogLevel::WARNING);
    }
    // SAFETY: this is the request hook, which may make these requests.
    unsafe {
        pg_sys::RequestAddinShmemSpace(layout.total);
        pg_sys::RequestNamedLWLockTranche(c"pgcache".as_ptr(), layout.locks());
        version::request_wait_event(FETCH_WAIT);
    }
}

/// Returns whether the server requires huge pages, and does not start without them.
fn needs_huge_pages() -> bool {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::huge_pages == pg_sys::HugePagesType::HUGE_PAGES_ON as i32 }
}

/// Attaches to the hot tier's memory. Runs at each start, also after a crash, and finds new memory each time.
#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: the former hook is called as Postgres would have called it.
    unsafe {
        if let Some(former) = FORMER_STARTUP {
            former();
        }
    }
    let size = crate::guc::hot_size();
    worker_state::attach(size);
    let layout = if size == 0 {
        None
    } else {
        ShmemLayout::for_size(size)
    };
    TIER.set(layout.map(|layout| &*Box::leak(Box::new(attach(&layout)))));
    restart::begin();
}

fn attach(layout: &ShmemLayout) -> Tier {
    let mut found = false;
    // SAFETY: `total` bytes were requested. Under AddinShmemInitLock the first process to attach initialises them. The
    // parts are at aligned offsets and do not overlap; atomics of any bit pattern are valid, and the first process
    // zeroes them before any other process sees them.
    unsafe {
        let init_lock =
            &raw mut (*pg_sys::MainLWLockArray.add(version::ADDIN_SHMEM_INIT_LOCK)).lock;
        LWLockAcquire(init_lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let memory: *mut u8 =
            pg_sys::ShmemInitStruct(c"pgcache".as_ptr(), layout.total, &mut found).cast();
        let base = memory.add(memory.align_offset(64));
        let slots_at = size_of::<Control>();
        let caches_at = slots_at + layout.slots * size_of::<Slot>();
        let region_base = NonNull::new_unchecked(base.add(layout.region_at));
        if !found {
            base.write_bytes(0, layout.region_at);
        }
        let region = match found {
            true => Region::attach(region_base, &layout.region),
            false => None,
        }
        .unwrap_or_else(|| Region::init(region_base, &layout.region));
        let wait_event = version::wait_event(FETCH_WAIT);
        let tier = Tier {
            region,
            leases: Leases::attach(base.add(layout.leases_at), layout.leases, found, wait_event),
            marks: Marks::attach(base.add(layout.marks_at), layout.marks),
            prepared: Records::attach(base.add(layout.prepared_at), layout.prepared),
            locks: NonNull::new_unchecked(pg_sys::GetNamedLWLockTranche(c"pgcache".as_ptr())),
            control: &*base.cast(),
            slots: std::slice::from_raw_parts(base.add(slots_at).cast(), layout.slots),
            caches: std::slice::from_raw_parts(base.add(caches_at).cast(), layout.slots),
            size: layout.total + (layout.locks() as usize + 1) * size_of::<pg_sys::LWLockPadded>(),
        };
        if !found {
            let seed = pg_sys::GetCurrentTimestamp() as u64 ^ u64::from(std::process::id()) << 40;
            tier.control.seed.store(seed, Ordering::Relaxed);
        }
        LWLockRelease(init_lock);
        tier
    }
}
