//! The hot tier of pgcache: a cache in one fixed region of memory that many backends map.
//!
//! The crate takes and returns bytes. It holds an index, an arena, S3-FIFO eviction, stripes for
//! the coherence protocol, and exact accounting, all at offsets inside the region.
//! It takes no lock, reads no clock, uses no random numbers, allocates nothing after
//! `Region::init`, and knows neither SQL nor transactions; those belong to the caller.
//! **The structure is valid after each step**, and the region never grows.
//!
//! # Access rules
//!
//! 1. The region is cut into `Layout::partitions()` partitions. The caller owns one reader-writer
//!    lock per partition, and holds **at most one** of them at a time.
//! 2. [`Region::partition`] needs lock `i` shared; [`Region::partition_mut`] needs it exclusively.
//!    Both are `unsafe` only because the crate cannot see the lock.
//! 3. Under a shared lock the crate writes only hit counters (saturating, written only while below
//!    3) and statistics, both relaxed atomics.
//! 4. Free pages are shared by all partitions in a pool that needs no lock: one bit a page, and
//!    the process that clears the bit owns the page, so there is no ABA. See `arena/pool.rs`.
//! 5. A closure of the caller (validity, ledger, sweep) runs only while the structure is valid. It
//!    must not touch the region.
//!
//! # Words
//!
//! *Expire* = removed because of time, *evict* = because of space, *invalidate* = because the data
//! changed, *clear* = because a caller requested it. *Granule*: 64 bytes, the unit of space. *Page*:
//! 64 granules. *Run*: neighbouring granules in one page. *Location*: offset in the region in
//! granules; 0 means no location.
//!
//! # Floors
//!
//! The layers of the crate. A file imports only files of lower floors.
//!
//! | floor | content |
//! |---|---|
//! | `lookup`, `set`, `partition_walk`, `stripe` | what callers do under a lock |
//! | `policy` | which entries stay: queues, ghosts, eviction, compaction, and the room they make for a write |
//! | `index` | from a key to its entry |
//! | `arena` | memory for entries: free pages, runs of granules, holes |
//! | `access`, `stats` | the unsafe interface; counters |
//! | `partition` | one partition as seen under its lock |
//! | `entry`, `footprint` | one entry: its header and value, and how much memory it takes |
//! | `region` | raw memory as words and byte copies |
//! | `seqlock` | a version word for other data in shared memory that are read without a lock |
//! | `layout`, `params`, `entry_events` | the format, its numbers, and the events that the store reports |
//!
//! # Using it
//!
//! ```
//! use pgcache_store::{EntryEvent, GetOutcome, Grant, Key, Layout, NewEntry, Region, SetOutcome, NO_DEADLINE};
//! # use std::{alloc, ptr::NonNull};
//! let layout = Layout::new(4 << 20, 0).unwrap();          // 0: choose the number of partitions
//! # let shape = alloc::Layout::from_size_align(layout.region_bytes(), 4096).unwrap();
//! # let memory = NonNull::new(unsafe { alloc::alloc(shape) }).unwrap();
//! // SAFETY: the memory is ours, `region_bytes` long, 64-byte aligned and outlives the region.
//! let region = unsafe { Region::init(memory, &layout) };
//! let key = Key { hash: 0x9E37_79B9_7F4A_7C15, cache: 1, bytes: b"user:17" };
//! let home = region.partition_of(key.hash);
//! let mut ledger = |event: EntryEvent| { /* counters[event.cache] += event.bytes */ let _ = event; };
//!
//! // Write: while the store requests pages, take them from another partition and retry, a bounded number of times.
//! let mut grant = region.grant();
//! for _ in 0..pgcache_store::SET_ROUNDS {
//!     // lock(home, Exclusive); re-check tokens here; then
//!     // SAFETY: lock `home` is held exclusively.
//!     let mut partition = unsafe { region.partition_mut(home, &mut ledger) };
//!     let new = NewEntry { version: 1, deadline: NO_DEADLINE, kind: 0, negative: false, value: b"Ada" };
//!     match partition.set(&key, &new, 0, &mut grant) {
//!         SetOutcome::Stored { .. } => break,
//!         SetOutcome::TooLarge => unreachable!("three bytes"),
//!         SetOutcome::NeedPages { pages, victim } => {
//!             // unlock(home); lock(victim, Exclusive);
//!             // SAFETY: lock `victim` is held exclusively, `home` is not held.
//!             unsafe { region.partition_mut(victim, &mut ledger) }.reclaim(pages, 0, &mut grant);
//!             // unlock(victim)
//!         }
//!     }
//! }
//! drop(grant); // gives back what was not used
//!
//! // Read: copy out under the shared lock.
//! let mut buffer = [0u8; 64];
//! // SAFETY: lock `home` is held shared.
//! let partition = unsafe { region.partition(home) };
//! match partition.get(&key, 0, |header| header.version == 1, &mut buffer) {
//!     GetOutcome::Hit(header) => assert_eq!(&buffer[..header.value_len as usize], b"Ada"),
//!     GetOutcome::TooSmall(header) => { /* release, grow to header.value_len, retry */ let _ = header; }
//!     GetOutcome::Miss => unreachable!(),
//! }
//! # unsafe { alloc::dealloc(memory.as_ptr(), shape) };
//! ```
//!
//! # The API in one table
//!
//! | where | what |
//! |---|---|
//! | [`Layout::new`]`(size, partitions)`, [`Layout::with`]`(Params)` | every size and offset; `region_bytes() <= size` always; `max_value(key_len)` |
//! | [`Region::init`], [`Region::attach`] | `unsafe`: start a region in any memory; map one that was started |
//! | `Region::partition_of(hash)`, `partition(i)`, `partition_mut(i, ledger)` | rule 2 |
//! | `Region::prefetch_buckets(hash)`, `prefetch_entry(hash)` | batch lookup: all buckets, then all entries, then lock and get; need no lock |
//! | `Region::grant()`, `stats()`, `usage()` | page reservation; sums over partitions (no lock, relaxed); every byte of the region by purpose |
//! | `PartitionRef::get(key, now, valid, buffer) -> GetOutcome` | a hit bumps the hit counter |
//! | `PartitionRef::begin(key, valid) -> Option<Reading>`, `read_on(key, valid, reading, into) -> Piece` | copies a
//! value of several pages in pieces, each under its own lock; `Changed` once the key has another value |
//! | `PartitionRef::peek(key) -> Option<EntryRef>` | no counter, no deadline, no validity: compare in place (`value_equals`), copy (`copy_value`, `copy_key`), `header()` |
//! | `PartitionRef::epoch(hash) -> u64` | the token: the epoch of the key's stripe; exists whether or not the key does |
//! | `PartitionRef::scan(cursor, slots, visit)` | bounded steps over live entries |
//! | `PartitionRef::inserted()`, `follow(seen, visit)` | the entries whose keys were added since a walk; `None`: more than the journal holds |
//! | `PartitionMut::set(key, new, now, grant) -> SetOutcome` | insert or overwrite |
//! | `PartitionMut::remove(key, cause) -> Option<Header>`, `touch(key, deadline) -> bool` | |
//! | `PartitionMut::mark(key) -> u64`, `renew(hash) -> u64` | remove + `epoch++`; `epoch++` |
//! | `PartitionMut::mark_to_renew(key, version) -> bool` | marks a key that its writer may `set` again: an entry of
//! this version keeps its memory, with the version 0 |
//! | `PartitionMut::sweep(cursor, slots, judge) -> Swept` | bounded; for each entry `judge` returns whether it stays,
//! and if not, why |
//! | `PartitionRef::has_holes() -> bool`, `PartitionMut::compact() -> bool` | gives one page to the pool by moving its runs into holes; removes no entry |
//! | `PartitionMut::reclaim(pages, now, grant) -> u32` | evicts here so that another partition can store; only one
//! entry if this partition has few |
//!
//! Read-modify-write (cas, incr, add, replace): under one exclusive lock `peek`, decide, `set`. A
//! `PartitionMut` derefs to `PartitionRef`. After `NeedPages` decide again: the lock was released.
//!
//! **Validity.** `Header.version` is the version that the caller gives to the content of a cache. A version is never
//! used twice for one cache slot. The store never compares it; the `valid` closure of `get` does. Entries of old
//! versions are overwritten by a `set` of the same key, evicted, or removed by a `sweep` whose judge knows the
//! versions.
//!
//! **Deadlines.** `get` treats an entry with `now >= deadline` as a miss. A caller that may serve
//! stale values passes `now - grace` and compares `header.deadline` itself. The store does not know
//! the grace: it is a setting of the cache, which the caller's `judge` applies in a sweep. An eviction
//! first removes the expired entries that it meets.
//!
//! **Accounting.** The store reports every entry that is stored or removed to the ledger as [`EntryEvent`] with its
//! cache, version and bytes (whole granules), so sums for each cache are exact.
//!
//! **Shares.** The ledger may rank caches ([`Rank`]), and a rank may change at any moment. A write
//! into a cache over its bound evicts that cache's entries first. No other write evicts the entries
//! of a cache within its reserve while other partitions have entries to evict. A write that still
//! lacks room after 64 visits to partitions evicts reserved entries, too.
//!
//! **A write never fails for want of space** unless the entry exceeds `Layout::max_value`. If other
//! writers keep taking the pages during all `SET_ROUNDS` rounds, the caller removes the old entry:
//! the write happened and its entry was evicted at once, which a cache may do.
#![cfg_attr(not(any(test, feature = "validate")), no_std)]
#![warn(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("locations assume a 64-bit address space");

#[allow(unsafe_code)]
mod access;
mod arena;
#[cfg(any(test, feature = "validate"))]
#[allow(
    unsafe_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
pub mod check;
mod entry;
mod entry_events;
mod footprint;
mod index;
mod journal;
mod layout;
mod lookup;
mod params;
mod partition;
mod partition_walk;
mod policy;
#[allow(unsafe_code)]
mod region;
pub mod ring;
pub mod seqlock;
mod set;
mod stats;
mod stripe;

pub use arena::pool::Grant;
pub use entry::{EntryRef, Header, Key, MAX_KEY, NO_DEADLINE, NewEntry};
pub use entry_events::{EntryEvent, Ledger, Rank, RemovalCause};
pub use layout::{GRANULE, Layout, LayoutError, MAX_REGION};
pub use lookup::{GetOutcome, Piece, Reading};
pub use params::Params;
pub use partition::{PartitionMut, PartitionRef};
pub use partition_walk::{Cursor, Swept, Verdict};
pub use region::Region;
pub use set::{SET_ROUNDS, SetOutcome};
pub use stats::{Stats, Usage};
