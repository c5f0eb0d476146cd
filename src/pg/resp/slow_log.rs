//! The entries of SLOWLOG, in shared memory: the latest slow commands of all network processes. An entry contains
//! the name of the command, never a key or a value.
//!
//! An entry has one writer at a time. If another process is still writing the next entry, the command is not logged,
//! because no command waits for the log.

use std::array;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pgcache_store::seqlock::{Seqlock, store_text, unpack};

use crate::pg::session::clock::Timestamp;
use crate::pg::shmem::zeroed::{self, Piece};

/// The number of entries that the log keeps, the same as in Redis.
pub const ENTRIES: usize = 128;
/// The words of each text: the command's name, the client's address and the client's name.
const TEXTS: [usize; 3] = [2, 14, 8];
const NUMBERS: usize = 4;
const WORDS: usize = NUMBERS + 2 + 14 + 8;

/// A slow command. Long texts are truncated.
pub struct Slow<T> {
    pub at: Timestamp,
    pub micros: u64,
    /// The role of the client; 0 if the client had not authenticated.
    pub role: u32,
    pub command: T,
    pub address: T,
    pub client: T,
}

#[repr(C)]
struct Entry {
    version: Seqlock,
    words: [AtomicU64; WORDS],
}

#[repr(C)]
struct Shared {
    /// The number of commands ever logged. The id of an entry is the number of entries logged before it.
    count: AtomicU64,
    /// The id of the first entry that SLOWLOG RESET has not removed.
    from: AtomicU64,
    entries: [Entry; ENTRIES],
}

thread_local! {
    // The postmaster sets this before it forks; every process inherits it.
    static SHARED: Cell<Option<&'static Shared>> = const { Cell::new(None) };
}

/// Requests the shared memory; called once, while preloading.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache resp slow log",
        bytes: size_of::<Shared>(),
        unmade: 0,
        request: || {},
        given: |memory| {
            // SAFETY: the memory is aligned, has as many bytes, and lives as long as the server; zeros are a log
            // without entries, and everything is atomic.
            SHARED.set(Some(unsafe { memory.cast().as_ref() }));
        },
    });
}

/// Logs a command.
pub fn add(slow: &Slow<&[u8]>) {
    let Some(shared) = SHARED.get() else {
        return;
    };
    let number = shared.count.fetch_add(1, AcqRel);
    let entry = &shared.entries[number as usize % ENTRIES];
    let Some(_writing) = entry.version.try_write() else {
        return;
    };
    let numbers = [number, slow.at as u64, slow.micros, slow.role.into()];
    let (places, mut texts) = entry.words.split_at(NUMBERS);
    for (place, number) in places.iter().zip(numbers) {
        place.store(number, Relaxed);
    }
    for (length, text) in TEXTS
        .into_iter()
        .zip([slow.command, slow.address, slow.client])
    {
        let (own, rest) = texts.split_at(length);
        texts = rest;
        store_text(own, text);
    }
}

/// Removes all entries.
pub fn reset() {
    if let Some(shared) = SHARED.get() {
        shared.from.store(shared.count.load(Acquire), Release);
    }
}

/// Returns all entries with their ids, latest first.
pub fn entries() -> impl Iterator<Item = (u64, Slow<Vec<u8>>)> {
    let numbers = SHARED.get().map_or(0..0, |shared| {
        let count = shared.count.load(Acquire);
        let oldest = count.saturating_sub(ENTRIES as u64);
        oldest.max(shared.from.load(Acquire))..count
    });
    numbers
        .rev()
        .filter_map(|number| Some((number, SHARED.get()?.read(number)?)))
}

impl Shared {
    /// Returns the entry with this id; None if a newer entry has replaced it or is being written over it.
    fn read(&self, number: u64) -> Option<Slow<Vec<u8>>> {
        let entry = &self.entries[number as usize % ENTRIES];
        let look = || array::from_fn(|at| entry.words[at].load(Relaxed));
        let words: [u64; WORDS] = entry.version.read(look)?;
        (words[0] == number).then(|| slow(&words))
    }
}

fn slow(words: &[u64; WORDS]) -> Slow<Vec<u8>> {
    let (numbers, mut rest) = words.split_at(NUMBERS);
    let [command, address, client] = TEXTS.map(|length| {
        let (own, others) = rest.split_at(length);
        rest = others;
        unpack(own).collect()
    });
    Slow {
        at: numbers[1] as i64,
        micros: numbers[2],
        role: numbers[3] as u32,
        command,
        address,
        client,
    }
}
