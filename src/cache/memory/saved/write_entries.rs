//! Writes the live entries of all memory caches to the file of saved entries, partition by partition. Allocates memory
//! and writes to disk only while no lock of the tier is held.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Cursor, EntryRef, Header, PartitionRef};
use xxhash_rust::xxh3::Xxh3;

use super::format::{END, EntryHead, MAGIC, UNFINISHED, path};
use super::time_limit::Limit;
use crate::cache::tier::io::is_live;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::restart::{self, ControlFile};
use crate::pg::shmem::tier::Tier;

/// The number of bytes that are collected before they are written. A longer entry gets a longer buffer.
const BUFFER: usize = 1 << 20;
/// After this many bytes the file is synced to disk, so that the last sync, which cannot be interrupted, is short.
const SYNCED_EVERY: usize = 32 << 20;

/// The number of saved entries, and the size of the file.
pub struct Saved {
    pub entries: u64,
    pub bytes: u64,
}

/// Writes the live entries of all memory caches to the unfinished file. Returns an error when the time is over.
pub fn write(tier: &Tier, control: &ControlFile, limit: Limit) -> io::Result<Saved> {
    let caches = Caches::of(tier);
    let mut output = Output::create(limit)?;
    output.append(MAGIC)?;
    output.append(&(control.bytes().len() as u32).to_le_bytes())?;
    output.append(control.bytes())?;
    output.append(&(caches.list.len() as u32).to_le_bytes())?;
    for (cache, memory_id) in &caches.list {
        output.append(&cache.bits().to_le_bytes())?;
        output.append(&memory_id.to_le_bytes())?;
    }
    for partition in 0..tier.partitions() {
        write_partition(tier, partition, &caches, &mut output)?;
    }
    output.finish()
}

fn write_partition(
    tier: &Tier,
    partition: u32,
    caches: &Caches,
    output: &mut Output,
) -> io::Result<()> {
    let mut cursor = Cursor::default();
    loop {
        // The length of an entry that did not fit into the buffer.
        let mut longer = None;
        let visit = |entry: &EntryRef| {
            let header = entry.header();
            if let Some(cache) = caches.place_of(&header)
                && !output.take(cache, &header, entry)
            {
                longer = Some(length(&header));
            }
            longer.is_none()
        };
        let scan = |partition: PartitionRef<'_>| partition.scan(&mut cursor, u32::MAX, visit);
        let done = tier
            .read_at_once(partition, scan)
            .ok_or_else(|| io::Error::other("A process ended while it changed the hot tier."))?;
        match longer {
            Some(length) => {
                output.make_room(length)?;
                cursor = Cursor::at(cursor.slot().saturating_sub(1)); // back to the entry that did not fit
            }
            None if done => return Ok(()),
            None => {}
        }
    }
}

/// The memory caches that have a slot.
struct Caches {
    /// The caches in the order of the file, each with its memory id.
    list: Vec<(CacheId, u64)>,
    /// For each slot of a memory cache, the cache's index in the list and the version of its current content.
    by_slot: Vec<Option<(u32, u64)>>,
    now: Timestamp,
}

impl Caches {
    fn of(tier: &Tier) -> Caches {
        let mut list = Vec::new();
        let by_slot = (0..).zip(tier.caches()).map(|(number, cache)| {
            let slot = tier.slot(number);
            let cache = cache
                .load(SeqCst)
                .filter(|&cache| cache != CacheId::VACATED)?;
            let memory_id = slot.memory_id.load(SeqCst);
            (!slot.is_table()).then(|| {
                list.push((cache, memory_id));
                (list.len() as u32 - 1, slot.version.load(SeqCst))
            })
        });
        Caches {
            by_slot: by_slot.collect(),
            list,
            now: clock::now(),
        }
    }

    /// Returns the index of an entry's cache in the list. Returns None if the entry is not saved.
    fn place_of(&self, header: &Header) -> Option<u32> {
        let (place, version) = (*self.by_slot.get(header.cache as usize)?)?;
        (header.version == version && is_live(header, self.now)).then_some(place)
    }
}

fn length(header: &Header) -> usize {
    EntryHead::BYTES + header.key_len as usize + header.value_len as usize
}

/// The unfinished file.
struct Output {
    file: File,
    /// The capacity is reserved while no lock is held.
    buffer: Vec<u8>,
    checksum: Xxh3,
    entries: u64,
    bytes: u64,
    unsynced: usize,
    limit: Limit,
}

impl Output {
    fn create(limit: Limit) -> io::Result<Output> {
        drop(fs::remove_file(path(UNFINISHED)));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path(UNFINISHED))?;
        Ok(Output {
            file,
            buffer: reserved(BUFFER)?,
            checksum: Xxh3::new(),
            entries: 0,
            bytes: 0,
            unsynced: 0,
            limit,
        })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > self.buffer.capacity() {
            self.make_room(bytes.len())?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends an entry if the buffer has room for it; otherwise returns false. Allocates nothing, because a lock is
    /// held.
    fn take(&mut self, cache: u32, header: &Header, entry: &EntryRef) -> bool {
        if self.buffer.len() + length(header) > self.buffer.capacity() {
            return false;
        }
        let head = EntryHead {
            cache,
            key_len: header.key_len,
            value_len: header.value_len,
            kind: header.kind,
            negative: header.negative,
            deadline: header.deadline,
        };
        self.buffer.extend_from_slice(&head.to_bytes());
        let key_at = self.buffer.len();
        let value_at = key_at + header.key_len as usize;
        self.buffer.resize(value_at + header.value_len as usize, 0);
        if let Some((key, value)) = self.buffer[key_at..].split_at_mut_checked(value_at - key_at) {
            entry.copy_key(key);
            entry.copy_value(value);
        }
        self.entries += 1;
        true
    }

    /// Writes the content of the buffer, and makes room for this many bytes.
    fn make_room(&mut self, length: usize) -> io::Result<()> {
        self.flush()?;
        if length > self.buffer.capacity() {
            self.buffer = reserved(length)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.limit.check()?;
        self.checksum.update(&self.buffer);
        self.file.write_all(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.unsynced += self.buffer.len();
        self.buffer.clear();
        if self.unsynced >= SYNCED_EVERY && restart::syncs() {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<Saved> {
        let end = EntryHead {
            cache: END,
            key_len: 0,
            value_len: 0,
            kind: 0,
            negative: false,
            deadline: 0,
        };
        self.append(&end.to_bytes())?;
        self.append(&self.entries.to_le_bytes())?;
        self.flush()?;
        let checksum = self.checksum.digest();
        self.file.write_all(&checksum.to_le_bytes())?;
        if restart::syncs() {
            self.file.sync_data()?;
        }
        self.limit.check()?;
        Ok(Saved {
            entries: self.entries,
            bytes: self.bytes,
        })
    }
}

fn reserved(length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length)?;
    Ok(buffer)
}
