//! Keeps the cursors of SCAN commands that read a table: the last key that each call returned, in a ring that all
//! executors share.
//!
//! In the Redis protocol a cursor is a number, which a client may use on another connection. So the ring keeps the key,
//! and the cursor is the key's position. The ring has a fixed size, so new cursors overwrite old cursors, and a restart
//! loses all cursors. A lost cursor is detected and never returns another key, because the ring does not reuse
//! positions while the server runs, and stores a checksum with each key.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::NonNull;

use pgrx::pg_sys;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::pg::session::random;
use crate::pg::shmem::zeroed::{self, Piece};

/// The name, in pg_stat_activity, of the lock on the ring.
const LOCK: &CStr = c"PgcacheCursors";
/// The ring's size in words of eight bytes: room for some 40,000 keys of 24 bytes.
const WORDS: usize = (2 << 20) / 8;
/// The number of words before a key, which hold its length and the checksum.
const HEAD: usize = 2;
/// The lowest number of a cursor. No server writes 2^40 words in its lifetime, so all numbers stay below 2^53, up to
/// which every client represents integers exactly.
const FIRST: u64 = 1 << 52;

#[repr(C)]
struct Ring {
    /// The position of the first word ever written, from which cursors are numbered; 0 until the first cursor is
    /// stored.
    base: u64,
    /// The number of words ever written.
    end: u64,
    words: [u64; WORDS],
}

/// Bytes of a ring before its words.
const HEAD_BYTES: usize = size_of::<Ring>() - 8 * WORDS;

/// The cache and the role for which a cursor is valid.
#[derive(Clone, Copy)]
pub struct Scanner {
    pub relation: pg_sys::Oid,
    pub role: pg_sys::Oid,
}

#[derive(Clone, Copy)]
struct Shared {
    ring: NonNull<Ring>,
    lock: NonNull<pg_sys::LWLock>,
}

thread_local! {
    // The postmaster sets this before it forks; every process inherits it.
    static SHARED: Cell<Option<Shared>> = const { Cell::new(None) };
}

/// Requests the shared memory; called once, while preloading.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache resp cursors",
        bytes: HEAD_BYTES,
        // The words need not be zeroed, because a reader reads only words that were written.
        unmade: size_of::<Ring>() - HEAD_BYTES,
        request,
        given,
    });
}

fn request() {
    // SAFETY: Postgres calls this in the hook that may request locks. The name is copied.
    unsafe { pg_sys::RequestNamedLWLockTranche(LOCK.as_ptr(), 1) };
}

fn given(ring: NonNull<u8>) {
    // SAFETY: the tranche was requested, so it has one lock.
    let lock = unsafe { &raw mut (*pg_sys::GetNamedLWLockTranche(LOCK.as_ptr())).lock };
    SHARED.set(NonNull::new(lock).map(|lock| Shared {
        ring: ring.cast(),
        lock,
    }));
}

/// Runs `work` on the ring under its lock; returns None if the Redis protocol is off.
fn alone<R>(work: impl FnOnce(&mut Ring) -> R) -> Option<R> {
    let shared = SHARED.get()?;
    // SAFETY: ring and lock are in shared memory as long as the server runs; only the process that holds the lock
    // accesses the ring. `work` raises no error and does not wait.
    unsafe {
        pg_sys::LWLockAcquire(shared.lock.as_ptr(), pg_sys::LWLockMode::LW_EXCLUSIVE);
        let result = work(&mut *shared.ring.as_ptr());
        pg_sys::LWLockRelease(shared.lock.as_ptr());
        Some(result)
    }
}

/// Stores a key. Returns the cursor that continues after the key, or None if the Redis protocol is off.
pub fn keep(scanner: Scanner, key: &[u8]) -> Option<u64> {
    let base = FIRST + random::number() % FIRST / 2;
    alone(|ring| {
        if ring.base == 0 {
            ring.base = base;
        }
        let number = ring.base + ring.end;
        ring.put(key.len() as u64);
        ring.put(sum(scanner, number, key));
        for piece in key.chunks(8) {
            let mut word = [0; 8];
            for (place, byte) in word.iter_mut().zip(piece) {
                *place = *byte;
            }
            ring.put(u64::from_le_bytes(word));
        }
        number
    })
}

/// Returns the key after which a cursor continues; None if the cursor is lost or belongs to another cache or role.
pub fn find(scanner: Scanner, number: u64) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(pgcache_store::MAX_KEY.next_multiple_of(8));
    alone(|ring| {
        let at = number.checked_sub(ring.base).filter(|_| ring.base > 0)?;
        let length = ring.word(at)? as usize;
        let written = ring.word(at + 1)?;
        if length > pgcache_store::MAX_KEY {
            return None;
        }
        for nth in 0..length.div_ceil(8) {
            key.extend_from_slice(&ring.word(at + (HEAD + nth) as u64)?.to_le_bytes());
        }
        key.truncate(length);
        (written == sum(scanner, number, &key)).then_some(())
    })??;
    Some(key)
}

fn sum(scanner: Scanner, number: u64, key: &[u8]) -> u64 {
    let whose = u64::from(scanner.relation.to_u32()) << 32 | u64::from(scanner.role.to_u32());
    xxh3_64_with_seed(key, whose ^ number.rotate_left(32))
}

impl Ring {
    fn put(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut((self.end % WORDS as u64) as usize) {
            *place = word;
        }
        self.end += 1;
    }

    /// Returns a word if it was written and not overwritten.
    fn word(&self, at: u64) -> Option<u64> {
        let is_there = at < self.end && self.end - at <= WORDS as u64;
        let word = self.words.get((at % WORDS as u64) as usize);
        word.copied().filter(|_| is_there)
    }
}
