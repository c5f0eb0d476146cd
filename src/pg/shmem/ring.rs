//! A ring in shared memory of changed entries: each writer that changes an entry appends to it, and each process of
//! the Redis protocol reads it to notify its clients.
//!
//! Guards two things:
//!
//! - A change of a memory cache stands in the ring before any session can see it, because it is written under the
//!   lock of the entry's partition. So a process that reads a value and then drains the ring has drained all changes
//!   before that value. A change of a table cache stands there before a copy of the new row can be made, and before
//!   its session receives the commit: `cache::commit::invalidated_keys`.
//! - No process waits, and no loss stays unnoticed: writers overwrite old records, and a reader that was too slow, or
//!   finds a record that its writer has not finished, receives `Lost`. Then every entry may have changed.
//!
//! Writers record a cache's changes only while one of those processes tracks them (`Slot::trackers`); until then a
//! writer pays for one load. The first record wakes a sleeping process, which arms the wake-up anew before each sleep
//! (`Reader::may_sleep`), so that writers do not pay for one at each record.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize, fence};

use pgcache_store::seqlock::pack;
use pgrx::pg_sys;

use super::zeroed::{self, Piece};

/// Words of 8 bytes: a megabyte, more than 10,000 records.
const WORDS: usize = 128 * 1024;
/// Words before a record's key.
const HEAD: usize = 4;
/// Bits of a record's first word that hold its number of words. The other bits hold its position plus one, so that no
/// empty place looks like a record.
const LENGTH_BITS: u32 = 16;
/// The most processes that may read.
pub const READERS: usize = 64;
/// Reads of an unfinished record before it counts as lost. Its writer holds a lock and is not interrupted, so it
/// mostly needs a few hundred nanoseconds.
const LOOKS: u32 = 10_000;
/// The length that stands for "no key": all entries of the cache changed.
const ALL: u64 = u32::MAX as u64;

#[repr(C, align(64))]
struct Ring {
    /// The position after the last record, in words since the start.
    head: AtomicU64,
    /// Readers to wake, a bit each.
    sleeping: AtomicU64,
    /// The readers' latches, which lie in shared memory for as long as the server lives.
    latches: [AtomicUsize; READERS],
    words: [AtomicU64; WORDS],
}

thread_local! {
    // Set by the postmaster before it forks; every process inherits it.
    static RING: Cell<Option<&'static Ring>> = const { Cell::new(None) };
    /// The client for which this process changes entries; 0: no client.
    static AUTHOR: Cell<u64> = const { Cell::new(0) };
}

/// Requests the ring at the start of the server. Called once, while the library is preloaded.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache changes",
        bytes: size_of::<Ring>(),
        unmade: 0,
        request: || {},
        given: |memory| {
            // SAFETY: as many bytes as a ring has, aligned, for as long as the server lives; zeros are an empty ring,
            // and later processes find its atomics.
            RING.set(Some(unsafe { memory.cast().as_ref() }));
        },
    });
}

/// Attributes the changes of this process to this client until [`set_author`] is called again; 0: to no client.
pub fn set_author(client: u64) {
    AUTHOR.set(client);
}

/// Returns the client to which changes are attributed.
pub fn author() -> u64 {
    AUTHOR.get()
}

/// Records that the entry of a key changes, by this client or by 0. For a memory cache the caller holds the
/// partition's lock.
pub(super) fn note(slot: u32, key: &[u8], author: u64) {
    if let Some(ring) = RING.get() {
        ring.write(slot, author, key.len() as u64, key);
    }
}

/// Records that all entries of a cache change.
pub(super) fn note_all(slot: u32) {
    if let Some(ring) = RING.get() {
        ring.write(slot, 0, ALL, b"");
    }
}

/// Returns a sum that detects a record written by two writers at once, of which one was a whole turn of the ring
/// late.
fn checksum(sum: u64, word: u64) -> u64 {
    (sum ^ word)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(29)
}

impl Ring {
    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[position as usize % WORDS]
    }

    fn write(&self, slot: u32, author: u64, length: u64, key: &[u8]) {
        let count = (HEAD + key.len().div_ceil(8)) as u64;
        let at = self.head.fetch_add(count, SeqCst);
        // A reader that sees one of these words also sees that the head has moved.
        fence(Release);
        let about = length << 32 | u64::from(slot);
        let mut sum = checksum(checksum(at, about), author);
        self.word(at + 1).store(about, Relaxed);
        self.word(at + 2).store(author, Relaxed);
        for (place, word) in (at + HEAD as u64..).zip(pack(key)) {
            sum = checksum(sum, word);
            self.word(place).store(word, Relaxed);
        }
        self.word(at + 3).store(sum, Relaxed);
        self.word(at)
            .store((at + 1) << LENGTH_BITS | count, Release);
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
                // SAFETY: latches of processes lie in shared memory for as long as the server
                // lives. One whose process has ended is woken for nothing. Raises nothing.
                unsafe { pg_sys::SetLatch(latch) };
            }
        }
    }
}

/// One change, as a reader finds it.
pub enum Change<'b> {
    /// The entry of this key in the cache of this slot, by this client, or by 0.
    Key {
        slot: u32,
        key: &'b [u8],
        author: u64,
    },
    /// All entries of the cache of this slot.
    Cache { slot: u32 },
    /// Changes were lost; any entry may have changed.
    Lost,
}

/// A process that reads the ring, from the moment on at which the reader was made.
pub struct Reader {
    ring: &'static Ring,
    bit: u64,
    tail: u64,
    key: Vec<u8>,
}

impl Reader {
    /// Begins to read with this number, which no other living process has. Returns None where the server has no ring,
    /// or the number is too high.
    pub fn begin(number: usize) -> Option<Reader> {
        let ring = RING.get()?;
        // SAFETY: the latch of this process, which lies in shared memory.
        let latch = unsafe { pg_sys::MyLatch } as usize;
        ring.latches.get(number)?.store(latch, Release);
        Some(Reader {
            ring,
            bit: 1 << number,
            tail: ring.head.load(SeqCst),
            key: Vec::new(),
        })
    }

    /// Returns the bit by which slots know this reader.
    pub fn bit(&self) -> u64 {
        self.bit
    }

    /// Returns whether the ring has unread records.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.ring.head.load(SeqCst) != self.tail
    }

    /// Returns the present end of the ring, for [`Reader::next`].
    pub fn end(&self) -> u64 {
        self.ring.head.load(SeqCst)
    }

    /// Returns the next change before `end`.
    pub fn next(&mut self, end: u64) -> Option<Change<'_>> {
        if self.tail >= end {
            return None;
        }
        let Some((slot, author, length)) = self.read() else {
            // Records that are unfinished now lie before this position, too.
            self.tail = self.ring.head.load(SeqCst);
            return Some(Change::Lost);
        };
        Some(match length {
            ALL => Change::Cache { slot },
            _ => Change::Key {
                slot,
                key: &self.key,
                author,
            },
        })
    }

    /// Reads a record, its key into `key`. Returns None when the record is lost.
    fn read(&mut self) -> Option<(u32, u64, u64)> {
        let (ring, at) = (self.ring, self.tail);
        let mut first = ring.word(at).load(Acquire);
        let mut looks = 0;
        while first >> LENGTH_BITS != (at + 1) & (u64::MAX >> LENGTH_BITS) {
            looks += 1;
            if looks > LOOKS || self.is_lapped() {
                return None;
            }
            std::hint::spin_loop();
            first = ring.word(at).load(Acquire);
        }
        let count = first & ((1 << LENGTH_BITS) - 1);
        let about = ring.word(at + 1).load(Relaxed);
        let author = ring.word(at + 2).load(Relaxed);
        let written = ring.word(at + 3).load(Relaxed);
        let mut sum = checksum(checksum(at, about), author);
        self.key.clear();
        for place in at + HEAD as u64..at + count {
            let word = ring.word(place).load(Relaxed);
            sum = checksum(sum, word);
            self.key.extend_from_slice(&word.to_le_bytes());
        }
        fence(Acquire);
        if self.is_lapped() || sum != written {
            return None;
        }
        self.tail += count;
        let length = about >> 32;
        self.key.truncate(length as usize);
        Some((about as u32, author, length))
    }

    /// Returns whether a writer may have begun to overwrite the next record.
    fn is_lapped(&self) -> bool {
        self.ring.head.load(SeqCst) - self.tail > WORDS as u64
    }

    /// Arms a wake-up by the next change. Returns false where a change has already come.
    pub fn may_sleep(&self) -> bool {
        self.ring.sleeping.fetch_or(self.bit, SeqCst);
        !self.has_news()
    }

    /// Disarms the wake-up.
    pub fn note_awake(&self) {
        if self.ring.sleeping.load(Relaxed) & self.bit != 0 {
            self.ring.sleeping.fetch_and(!self.bit, SeqCst);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.note_awake();
    }
}
