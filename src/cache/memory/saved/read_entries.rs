//! Restores the file of saved entries into the tier. Reads the file twice, first to verify its checksum and then to
//! store the entries, so that a damaged file stores nothing.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek};

use pgcache_store::{MAX_KEY, NewEntry};
use xxhash_rust::xxh3::Xxh3;

use super::format::{CHECKSUM, END, EntryHead, MAGIC};
use super::time_limit::Limit;
use crate::cache::tier::hashed_key::hot_key;
use crate::cache::tier::io::{self as tier_io, StoreOutcome};
use crate::cache::tier::slots;
use crate::guc;
use crate::pg::session::clock;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::restart::{self, ControlFile};
use crate::pg::shmem::tier::Tier;

/// The number of bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// The number of entries between two checks of the time.
const AT_ONCE: u64 = 1024;

/// The reason why nothing was restored.
pub enum NotRestored {
    /// A server has run on the data since the entries were saved, perhaps without the library, or this start is going
    /// to replay WAL.
    Outdated,
    Unreadable(io::Error),
}

impl From<io::Error> for NotRestored {
    fn from(error: io::Error) -> NotRestored {
        NotRestored::Unreadable(error)
    }
}

/// The number of restored entries and of entries in the file.
pub struct Restored {
    pub entries: u64,
    pub of: u64,
}

/// Restores the entries that are live and find space in the tier. Stops when the time is over.
pub fn read(tier: &Tier, mut file: File, limit: Limit) -> Result<Restored, NotRestored> {
    let of = check(&mut file, limit)?;
    file.rewind()?;
    let mut input = Input(BufReader::with_capacity(BUFFER, file));
    if input.array()? != *MAGIC {
        let why = "Another version of pgcache saved them.";
        return Err(NotRestored::Unreadable(io::Error::other(why)));
    }
    let length = input.number()?;
    let control = input.bytes(length as usize)?;
    if !is_unchanged(&control)? {
        return Err(NotRestored::Outdated);
    }
    let slots = assign_slots(tier, &mut input)?;
    let entries = store_all(tier, &slots, &mut input, limit)?;
    Ok(Restored { entries, of })
}

/// Verifies the checksum and returns the number of entries in the file.
fn check(file: &mut File, limit: Limit) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let summed = length
        .checked_sub(CHECKSUM)
        .filter(|&summed| summed >= 8)
        .ok_or_else(damaged)?;
    let mut sum = Xxh3::new();
    let mut buffer = vec![0; BUFFER];
    let mut count = [0; 8];
    let mut rest = summed;
    while rest > 0 {
        limit.check()?;
        let length = rest.min(BUFFER as u64) as usize;
        let part = buffer.get_mut(..length).unwrap_or_default();
        file.read_exact(part)?;
        sum.update(part);
        // The eight bytes of the number of entries may begin in the previous part.
        let last = part.len().min(8);
        count.rotate_left(last);
        count[8 - last..].copy_from_slice(&part[part.len() - last..]);
        rest -= length as u64;
    }
    let mut checksum = [0; 8];
    file.read_exact(&mut checksum)?;
    match u64::from_le_bytes(checksum) == sum.digest() {
        true => Ok(u64::from_le_bytes(count)),
        false => Err(damaged()),
    }
}

fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "The file is damaged.")
}

/// Returns whether the control file still equals `saved`, the server was shut down, and no WAL will be replayed. Then
/// no server has run on the data directory since `saved` was its control file.
fn is_unchanged(saved: &[u8]) -> io::Result<bool> {
    let control = ControlFile::read()?;
    let same = control.bytes() == saved && control.is_shut_down() && !restart::will_recover();
    Ok(same || fault::on(Fault::SavedStateNotCompared))
}

/// A saved cache and its slot.
type Place = (CacheId, u32);

/// Gives each cache in the list a slot while slots are free. A cache that gets no slot has None.
fn assign_slots(tier: &Tier, input: &mut Input) -> io::Result<Vec<Option<Place>>> {
    let mut slots = Vec::new();
    for _ in 0..input.number()? {
        let cache = CacheId::from_bits(u64::from_le_bytes(input.array()?));
        let memory_id = u64::from_le_bytes(input.array()?);
        let slot = slots::assign_at_start(tier, cache, memory_id);
        slots.push(slot.map(|slot| (cache, slot)));
    }
    Ok(slots)
}

fn store_all(
    tier: &Tier,
    slots: &[Option<Place>],
    input: &mut Input,
    limit: Limit,
) -> io::Result<u64> {
    let (mut seen, mut stored) = (0u64, 0);
    let mut buffer = Vec::new();
    loop {
        let head = EntryHead::of_bytes(&input.array()?);
        seen += 1;
        if head.cache == END || seen % AT_ONCE == 0 && limit.check().is_err() {
            return Ok(stored);
        }
        let key_len = head.key_len as usize;
        if key_len > MAX_KEY {
            return Err(damaged());
        }
        input.fill(&mut buffer, key_len + head.value_len as usize)?;
        let place = slots.get(head.cache as usize).copied().flatten();
        if let (Some(place), Some((key, value))) = (place, buffer.split_at_checked(key_len)) {
            stored += u64::from(store(tier, place, &head, key, value));
        }
    }
}

/// Stores an entry. Returns false if the entry has expired or the tier cannot hold it.
fn store(tier: &Tier, (cache, slot): Place, head: &EntryHead, key: &[u8], value: &[u8]) -> bool {
    let now = clock::now();
    let limit = tier.region().layout().max_value(key.len());
    if head.deadline <= now || value.len() > limit.min(guc::hot_max_value()) {
        return false;
    }
    let key = hot_key(tier, cache, slot, key);
    let record = NewEntry {
        version: tier
            .slot(slot)
            .version
            .load(std::sync::atomic::Ordering::SeqCst),
        deadline: head.deadline,
        kind: head.kind,
        negative: head.negative,
        value,
    };
    let outcome = tier_io::store(tier, &key, &record, now, |_| true, || ());
    outcome == StoreOutcome::Yes
}

/// The file, read from its beginning.
struct Input(BufReader<File>);

impl Input {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.fill(&mut bytes, length)?;
        Ok(bytes)
    }

    /// Reads `length` bytes into the buffer, replacing its content.
    fn fill(&mut self, buffer: &mut Vec<u8>, length: usize) -> io::Result<()> {
        buffer.clear();
        buffer.try_reserve(length)?;
        buffer.resize(length, 0);
        self.0.read_exact(buffer)
    }
}
