//! A ring in shared memory that records changed entries. Each session that changes an entry appends a record, and each
//! network process reads the records to notify its clients that track keys. The ring itself is `ring.rs` of the store
//! crate.
//!
//! Two rules hold:
//!
//! - A change of a memory cache is in the ring before any session can see it, because the writer appends it under the
//!   lock of the entry's partition. So a process that reads a value and then drains the ring has seen every change that
//!   was made before it read the value. A change of a table cache is in the ring before any session can copy the new
//!   row, and before the writer's client receives the commit: see `cache::commit::invalidated_keys`.
//! - No process waits, and no loss goes unnoticed. Writers overwrite old records. A reader that was too slow, or that
//!   finds an unfinished record, receives `Lost`: any entry may have changed.
//!
//! Writers record a cache's changes only while a process tracks them (`Slot::trackers`); otherwise a writer only reads
//! one word. A process requests a wake-up before each sleep (`Reader::may_sleep`), and the next record wakes it; so
//! writers do not pay for a wake-up with every record.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use pgcache_store::ring::{self, Next, Ring};
use pgrx::pg_sys;

use super::zeroed::{self, Piece};

/// The size in words of 8 bytes: a megabyte, more than 10,000 records.
const WORDS: usize = 128 * 1024;
/// The maximum number of readers.
pub const READERS: usize = 64;
/// The number of times that a reader reads an unfinished record before the record counts as lost. The record's writer
/// cannot be interrupted, so it usually finishes within a few hundred nanoseconds.
const LOOKS: u32 = 10_000;
/// The length that means "no key": all entries of the cache have changed.
const ALL: u64 = u32::MAX as u64;

#[repr(C, align(64))]
struct Shared {
    ring: Ring<WORDS>,
    /// A bit mask of the readers to wake.
    sleeping: AtomicU64,
    /// The addresses of the readers' latches, which stay in shared memory as long as the server runs.
    latches: [AtomicUsize; READERS],
}

thread_local! {
    // The postmaster sets this before it forks; every process inherits it.
    static SHARED: Cell<Option<&'static Shared>> = const { Cell::new(None) };
    /// The client for which this process changes entries; 0 means no client.
    static AUTHOR: Cell<u64> = const { Cell::new(0) };
}

/// Requests the ring at the start of the server. Called once, while the library is preloaded.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache changes",
        bytes: size_of::<Shared>(),
        unmade: 0,
        request: || {},
        given: |memory| {
            // SAFETY: the memory is aligned, has as many bytes as `Shared`, and lives as long as the server; zeros are
            // an empty ring, and all fields are atomic.
            SHARED.set(Some(unsafe { memory.cast().as_ref() }));
        },
    });
}

/// Attributes the changes of this process to this client, or to no client if the argument is 0, until the next call.
pub fn set_author(client: u64) {
    AUTHOR.set(client);
}

/// Returns the client to which changes are attributed, or 0.
pub fn author() -> u64 {
    AUTHOR.get()
}

/// Records that the entry of a key changes. `author` is the client that changes it; 0 means no client. For a memory
/// cache the caller holds the partition's lock.
pub(super) fn note(slot: u32, key: &[u8], author: u64) {
    if let Some(shared) = SHARED.get() {
        shared.append(slot, author, key.len() as u64, key);
    }
}

/// Records that all entries of a cache change.
pub(super) fn note_all(slot: u32) {
    if let Some(shared) = SHARED.get() {
        shared.append(slot, 0, ALL, b"");
    }
}

impl Shared {
    fn append(&self, slot: u32, author: u64, length: u64, key: &[u8]) {
        self.ring
            .append([length << 32 | u64::from(slot), author], &[key]);
        if self.sleeping.load(SeqCst) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let sleeping = self.sleeping.swap(0, SeqCst);
        for number in (0..READERS).filter(|number| sleeping >> number & 1 != 0) {
            let latch = self.latches[number].load(Acquire) as *mut pg_sys::Latch;
            if !latch.is_null() {
                // SAFETY: the latches are in shared memory as long as the server runs. Setting the latch of a process
                // that has ended has no effect. The call raises no error.
                unsafe { pg_sys::SetLatch(latch) };
            }
        }
    }
}

/// A change that a reader receives.
pub enum Change<'b> {
    /// The entry of this key in the cache of this slot changed. `author` is the client that changed it; 0 means no
    /// client.
    Key {
        slot: u32,
        key: &'b [u8],
        author: u64,
    },
    /// All entries of the cache of this slot changed.
    Cache { slot: u32 },
    /// Changes were lost; any entry may have changed.
    Lost,
}

/// A process that reads the ring, starting at the ring's end at the time of [`Reader::begin`].
pub struct Reader {
    shared: &'static Shared,
    bit: u64,
    unread: ring::Reader<'static, WORDS>,
    key: Vec<u8>,
}

impl Reader {
    /// Begins to read as the reader with index `number`, which no other living process uses. Returns None if the server
    /// has no ring, or the index is too high.
    pub fn begin(number: usize) -> Option<Reader> {
        let shared = SHARED.get()?;
        // SAFETY: the latch of this process, which is in shared memory.
        let latch = unsafe { pg_sys::MyLatch } as usize;
        shared.latches.get(number)?.store(latch, Release);
        Some(Reader {
            shared,
            bit: 1 << number,
            unread: ring::Reader::begin(&shared.ring),
            key: Vec::new(),
        })
    }

    /// Returns this reader's bit in a slot's `trackers`.
    pub fn bit(&self) -> u64 {
        self.bit
    }

    /// Returns whether the ring has unread records.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.unread.is_behind()
    }

    /// Returns the current end of the ring, for [`Reader::next`].
    pub fn end(&self) -> u64 {
        self.shared.ring.head()
    }

    /// Returns the next change before `end`; None if the reader has reached it.
    pub fn next(&mut self, end: u64) -> Option<Change<'_>> {
        if self.unread.position() >= end {
            return None;
        }
        let Some([about, author]) = self.read() else {
            // This also skips all records that are unfinished now.
            self.unread.pass();
            return Some(Change::Lost);
        };
        let (slot, length) = (about as u32, about >> 32);
        self.key.truncate(length as usize);
        Some(match length {
            ALL => Change::Cache { slot },
            _ => Change::Key {
                slot,
                key: &self.key,
                author,
            },
        })
    }

    /// Reads a record, its key into `key`. Returns None if the record is lost.
    fn read(&mut self) -> Option<[u64; 2]> {
        for _ in 0..LOOKS {
            self.key.clear();
            let key = &mut self.key;
            match self.unread.next(|word| key.extend_from_slice(&word)) {
                Next::Record(about) => return Some(about),
                Next::Unfinished => std::hint::spin_loop(),
                Next::End | Next::Lost => return None,
            }
        }
        None
    }

    /// Requests a wake-up by the next change. Returns false if unread changes exist, so that the process must not
    /// sleep.
    pub fn may_sleep(&self) -> bool {
        self.shared.sleeping.fetch_or(self.bit, SeqCst);
        !self.has_news()
    }

    /// Withdraws the request for a wake-up.
    pub fn note_awake(&self) {
        if self.shared.sleeping.load(Relaxed) & self.bit != 0 {
            self.shared.sleeping.fetch_and(!self.bit, SeqCst);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.note_awake();
    }
}
