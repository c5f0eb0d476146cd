//! Commands on all entries of a memory cache: SCAN, KEYS, RANDOMKEY, FLUSHDB. Each piece visits a bounded number of
//! entries, and other clients are served between two pieces.
//!
//! A cursor of SCAN is a position in the tier's index, in which entries never move. So a scan from cursor 0 back to 0
//! returns each entry that exists during the whole scan, and the server keeps no state between two calls.

use pgcache_resp::{Scan, Writer, matches};
use pgcache_store::{EntryRef, MAX_KEY};

use super::entry_access::Call;
use crate::cache::memory::raw::Entries;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::random;
use crate::resp::commands::command_error::{CommandError, Done};

/// The number of bytes of keys that are copied while one lock is held.
const ROOM: usize = 16 << 10;
/// The maximum number of index slots that one piece visits. It is higher than the bound for entries, because eight
/// slots are read at once.
const SLOTS: u64 = 32 << 10;
/// The maximum number of entries that one piece visits. Each entry may cost a processor cache miss.
const ENTRIES: usize = 512;
/// The maximum number of slots whose entries one piece removes.
const SWEPT: u64 = 512;

/// Keys that are copied out of the tier under a lock, into memory that was allocated before.
#[derive(Debug, Default)]
pub struct Keys {
    /// Each key, with its length before it.
    copied: Vec<u8>,
    count: usize,
}

impl Keys {
    fn reserve<'a>(&mut self) -> Done<'a> {
        self.copied
            .try_reserve(ROOM)
            .map_err(|_| CommandError::OutOfMemory)
    }

    /// Copies a key. Returns whether there is room for another key.
    fn take(&mut self, entry: &EntryRef) -> bool {
        let length = entry.header().key_len;
        let at = self.copied.len() + 4;
        self.copied.extend_from_slice(&length.to_le_bytes());
        self.copied.resize(at + length as usize, 0);
        entry.copy_key(self.copied.get_mut(at..).unwrap_or_default());
        self.count += 1;
        self.has_room()
    }

    fn has_room(&self) -> bool {
        self.copied.capacity() - self.copied.len() > MAX_KEY + 4
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.copied[..];
        std::iter::from_fn(move || {
            let (length, others) = rest.split_first_chunk::<4>()?;
            let (key, others) = others.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = others;
            Some(key)
        })
    }

    /// Removes the keys from position `from` on that do not match.
    fn keep_matching(&mut self, from: usize, pattern: &[u8]) {
        let (mut read, mut written) = (from, from);
        while let Some(length) = self
            .copied
            .get(read..)
            .and_then(|rest| rest.first_chunk::<4>())
        {
            let end = read + 4 + u32::from_le_bytes(*length) as usize;
            let Some(key) = self.copied.get(read + 4..end) else {
                break;
            };
            if matches(pattern, key) {
                self.copied.copy_within(read..end, written);
                written += end - read;
            } else {
                self.count -= 1;
            }
            read = end;
        }
        self.copied.truncate(written);
    }
}

/// A walk over the cache's live entries: the position at which it continues, the position at which this piece began,
/// and the number of entries that this piece has visited.
struct Walk<'e> {
    entries: &'e Entries<'e>,
    place: u64,
    begun_at: u64,
    looked: usize,
}

impl<'e> Walk<'e> {
    fn new(entries: &'e Entries<'e>, place: u64) -> Walk<'e> {
        Walk {
            entries,
            place,
            begun_at: place,
            looked: 0,
        }
    }

    /// Takes one step under one lock, which ends when `visit` returns false. Returns false if the walk is complete.
    fn step(&mut self, mut visit: impl FnMut(&EntryRef) -> bool) -> bool {
        let looked = &mut self.looked;
        self.place = self.entries.walk(self.place, |entry| {
            *looked += 1;
            entry.is_none_or(&mut visit) && *looked < ENTRIES
        });
        self.place != 0
    }

    /// Returns whether this piece has reached its bounds.
    fn is_spent(&self) -> bool {
        self.looked >= ENTRIES || self.place.abs_diff(self.begun_at) >= SLOTS
    }
}

/// Runs SCAN. It visits at most COUNT entries, and at most 64 times COUNT slots, but at least the slots of one piece.
pub fn scan<'a>(
    call: &Call,
    scan: &Scan<'a>,
    progress: &mut Option<Scanned>,
    out: &mut Writer,
) -> Done<'a, bool> {
    let mut now = progress.take().unwrap_or_else(|| Scanned {
        place: scan.cursor,
        ..Scanned::default()
    });
    if let Some(entries) = call.to_read(Privileges::READ)? {
        let count = usize::try_from(scan.count).unwrap_or(usize::MAX);
        let mut walk = Walk::new(entries, now.place);
        let mut more = true;
        while more && now.met < count && !walk.is_spent() {
            now.keys.reserve()?;
            let from = now.keys.copied.len();
            more = walk.step(|entry| {
                now.met += 1;
                now.keys.take(entry) && now.met < count
            });
            if let Some(pattern) = scan.pattern {
                now.keys.keep_matching(from, pattern);
            }
        }
        now.place = walk.place;
        now.slots += SLOTS;
        let far = now.slots >= (count as u64).saturating_mul(64);
        if more && now.met < count && !far && now.keys.copied.len() <= out.room() {
            *progress = Some(now);
            return Ok(false);
        }
    } else {
        now.place = 0;
    }
    let strings = scan
        .kind
        .is_none_or(|kind| kind.eq_ignore_ascii_case(b"string"));
    if !strings {
        now.keys = Keys::default();
    }
    out.array(2);
    out.bulk(now.place.to_string().as_bytes());
    out.array(now.keys.count);
    now.keys.iter().for_each(|key| out.bulk(key));
    Ok(true)
}

/// The progress of a SCAN.
#[derive(Debug, Default)]
pub struct Scanned {
    keys: Keys,
    place: u64,
    /// The approximate number of entries of the cache that the scan has visited.
    met: usize,
    /// The approximate number of slots of the index that the scan has visited.
    slots: u64,
}

/// The progress of KEYS.
#[derive(Debug, Default)]
pub struct Found {
    keys: Keys,
    place: u64,
}

/// Runs KEYS. Replies only after it has visited all entries.
pub fn keys<'a>(
    call: &Call,
    pattern: &[u8],
    found: &mut Found,
    out: &mut Writer,
) -> Done<'a, bool> {
    if let Some(entries) = call.to_read(Privileges::READ)? {
        let mut walk = Walk::new(entries, found.place);
        while !walk.is_spent() {
            found.keys.reserve()?;
            let from = found.keys.copied.len();
            let more = walk.step(|entry| found.keys.take(entry));
            found.keys.keep_matching(from, pattern);
            found.place = walk.place;
            if !more {
                break;
            }
        }
        if found.place != 0 && found.keys.copied.len() <= out.room() {
            return Ok(false);
        }
    }
    out.array(found.keys.count);
    found.keys.iter().for_each(|key| out.bulk(key));
    Ok(true)
}

/// Runs RANDOMKEY, which returns the first key after a random position. So a key after a long gap without keys is more
/// likely than other keys.
pub fn random_key<'a>(
    call: &Call,
    progress: &mut Option<(u64, bool)>,
    out: &mut Writer,
) -> Done<'a, bool> {
    let Some(entries) = call.to_read(Privileges::READ)? else {
        out.null();
        return Ok(true);
    };
    let (place, from_start) = progress.unwrap_or_else(|| {
        let place = random::number() % entries.places().max(1);
        (place, place == 0)
    });
    let mut keys = Keys::default();
    keys.reserve()?;
    let mut walk = Walk::new(entries, place);
    let mut more = true;
    while more && keys.count == 0 && !walk.is_spent() {
        more = walk.step(|entry| {
            keys.take(entry);
            false
        });
    }
    if let Some(key) = keys.iter().next() {
        out.bulk(key);
        return Ok(true);
    }
    match (more, from_start) {
        (true, _) => *progress = Some((walk.place, from_start)),
        // The walk began at a random position and has reached the end, so it continues once from the start.
        (false, false) => *progress = Some((0, true)),
        (false, true) => {
            out.null();
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs FLUSHDB. The first piece hides all entries; the later pieces free their memory.
pub fn clear<'a>(
    call: &Call,
    progress: &mut Option<(u64, u64)>,
    out: &mut Writer,
) -> Done<'a, bool> {
    call.needs(Privileges::CLEAR)?;
    if let Some(entries) = call.to_read(Privileges::CLEAR)? {
        let (mut place, version) = progress.unwrap_or_else(|| (0, entries.disown_all()));
        let begun_at = place;
        loop {
            place = entries.sweep(place, version);
            if place == 0 {
                break;
            }
            if place.abs_diff(begun_at) >= SWEPT {
                *progress = Some((place, version));
                return Ok(false);
            }
        }
    }
    out.simple("OK");
    Ok(true)
}
