//! Which entries have changed, for the processes of the Redis protocol that tell their clients: a ring
//! in shared memory that whoever changes an entry writes, and each of those processes reads.
//!
//! Guards two things:
//!
//! - A change of a memory cache stands in the ring before anybody can see it: it is written under the
//!   lock of the entry's partition. So who has read a value and then drains the ring has drained what
//!   came before that value. That of a table cache stands there before a copy of the new row can be
//!   made, and before its session is told that it has committed: `cache::commit::told`.
//! - Nobody waits and nothing is lost unnoticed: writers write over what is old, and a reader that
//!   was too slow, or finds a record that its writer has not finished, is told that it has lost some.
//!   Then everything may have changed.
//!
//! A cache's changes are written only while one of those processes asks for them (`Slot::trackers`);
//! until then a writer pays for one load. A process that sleeps is woken by the first record; it asks
//! to be woken once in a while (`Reader::may_sleep`), so that writers do not pay for each.

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
/// Bits of a record's first word that say how many words it has; the others are its position and one:
/// no empty place looks like a record.
const LENGTH_BITS: u32 = 16;
/// Processes that may read.
pub const READERS: usize = 64;
/// Looks at a record whose writer has not finished it before it counts as lost. The writer holds a
/// lock and is not interrupted, so mostly it needs a few hundred nanoseconds.
const LOOKS: u32 = 10_000;
/// The length of a key that is none: all entries of the cache changed.
const ALL: u64 = u32::MAX as u64;

#[repr(C, align(64))]
struct Ring {
    /// The position after the last record, in words since the start.
    head: AtomicU64,
    /// Readers that are to be woken, a bit each.
    sleeping: AtomicU64,
    /// The readers' latches, which lie in shared memory for as long as the server lives.
    latches: [AtomicUsize; READERS],
    words: [AtomicU64; WORDS],
}

thread_local! {
    // Set by the postmaster before it forks; every process inherits it.
    static RING: Cell<Option<&'static Ring>> = const { Cell::new(None) };
    /// On whose behalf this process changes entries: a client's number, 0 for nobody's.
    static AUTHOR: Cell<u64> = const { Cell::new(0) };
}

/// Asks for the ring at the start of the server; only while preloading, once.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache changes",
        bytes: size_of::<Ring>(),
        unmade: 0,
        request: || {},
        given: |memory| {
            // SAFETY: as many bytes as a ring has, aligned, for as long as the server lives; zeros are an
            // empty ring, and who comes later finds its atomics.
            RING.set(Some(unsafe { memory.cast().as_ref() }));
        },
    });
}

/// Until [`set_author`] is called again, what this process changes is this client's doing; 0: nobody's.
pub fn set_author(client: u64) {
    AUTHOR.set(client);
}

/// Whose doing it is.
pub fn author() -> u64 {
    AUTHOR.get()
}

/// Writes that the entry of a key changes, by this client's doing, or by 0. Of a memory cache under its
/// partition's lock.
pub(super) fn note(slot: u32, key: &[u8], author: u64) {
    if let Some(ring) = RING.get() {
        ring.write(slot, author, key.len() as u64, key);
    }
}

/// Writes that all entries of a cache change.
pub(super) fn note_all(slot: u32) {
    if let Some(ring) = RING.get() {
        ring.write(slot, 0, ALL, b"");
    }
}

/// What two writers of one place, of whom one was a whole turn of the ring late, do not leave right.
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
        // Who sees a word of ours sees that the head has moved.
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

/// What a reader finds.
pub enum Change<'b> {
    /// The entry of this key in the cache of this slot, by this client, or by 0.
    Key {
        slot: u32,
        key: &'b [u8],
        author: u64,
    },
    /// All entries of the cache of this slot.
    Cache { slot: u32 },
    /// Nobody knows which.
    Lost,
}

/// A process that reads the ring, from the moment on at which this was made.
pub struct Reader {
    ring: &'static Ring,
    bit: u64,
    tail: u64,
    key: Vec<u8>,
}

impl Reader {
    /// The reader of this number, which no other living process has. None where there is no ring, or
    /// the number is too high.
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

    /// The bit by which slots know this reader.
    pub fn bit(&self) -> u64 {
        self.bit
    }

    /// Whether there is something to read.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.ring.head.load(SeqCst) != self.tail
    }

    /// Where the ring ends now, for [`Reader::next`].
    pub fn end(&self) -> u64 {
        self.ring.head.load(SeqCst)
    }

    /// The next change before `end`.
    pub fn next(&mut self, end: u64) -> Option<Change<'_>> {
        if self.tail >= end {
            return None;
        }
        let Some((slot, author, length)) = self.read() else {
            // What is not finished now is before this, too.
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

    /// Reads a record, its key into `key`; None: it is not to be had.
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

    /// Whether a writer may have begun to write over what is to be read next.
    fn is_lapped(&self) -> bool {
        self.ring.head.load(SeqCst) - self.tail > WORDS as u64
    }

    /// Asks to be woken by the next change; false where there is one already.
    pub fn may_sleep(&self) -> bool {
        self.ring.sleeping.fetch_or(self.bit, SeqCst);
        !self.has_news()
    }

    /// Asks to be woken no more.
    pub fn is_awake(&self) {
        if self.ring.sleeping.load(Relaxed) & self.bit != 0 {
            self.ring.sleeping.fetch_and(!self.bit, SeqCst);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.is_awake();
    }
}
