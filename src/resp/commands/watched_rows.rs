//! The keys of a table that a connection watches (WATCH), and a fingerprint of each key's entry when the watch began.
//!
//! An executor computes and compares the fingerprints (`tables::fingerprint`).

use std::collections::HashSet;

use pgcache_resp::Args;
use pgrx::pg_sys::Oid;

/// The first byte of a reply with fingerprints. No other reply of an executor begins with it.
pub const NUMBERS: u8 = 0;
/// The fingerprint of a key without an entry.
pub const ABSENT: u64 = 0;

/// Watched keys of one table.
#[derive(Default)]
pub struct WatchedRows {
    /// The table of the keys; None if there are no keys.
    relation: Option<Oid>,
    keys: Vec<(Vec<u8>, u64)>,
}

impl WatchedRows {
    /// Returns the keys of a WATCH, without fingerprints yet.
    pub fn of(relation: Oid, keys: Args<'_>) -> WatchedRows {
        WatchedRows {
            relation: Some(relation),
            keys: keys.iter().map(|key| (key.to_vec(), 0)).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns whether all keys belong to this table; true if there are no keys.
    pub fn is_of(&self, relation: Oid) -> bool {
        self.relation.is_none_or(|own| own == relation)
    }

    /// Stores the fingerprints that an executor has sent, eight bytes for each key. Returns false if the bytes are
    /// anything else.
    pub fn learn(&mut self, numbers: &[u8]) -> bool {
        let Some(numbers) = numbers.strip_prefix(&[NUMBERS]) else {
            return false;
        };
        let (numbers, rest) = numbers.as_chunks::<8>();
        for ((_, known), number) in self.keys.iter_mut().zip(numbers) {
            *known = u64::from_le_bytes(*number);
        }
        numbers.len() == self.keys.len() && rest.is_empty()
    }

    /// Adds keys of the same table. Returns false if they belong to another table.
    pub fn add(&mut self, more: WatchedRows) -> bool {
        let fits = match (self.relation, more.relation) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        if fits {
            self.relation = self.relation.or(more.relation);
            // A key that is already watched keeps the fingerprint of its first WATCH.
            let mut known: HashSet<Vec<u8>> = HashSet::new();
            known.extend(self.keys.iter().map(|(key, _)| key.clone()));
            let news = more.keys.into_iter();
            self.keys
                .extend(news.filter(|(key, _)| known.insert(key.clone())));
        }
        fits
    }

    /// Returns whether none of the keys had an entry.
    pub fn are_absent(&self) -> bool {
        self.keys.iter().all(|(_, number)| *number == ABSENT)
    }
}

/// Returns the bytes that precede the commands of an EXEC on a table: the number of databases, the number of
/// subscribers for each PUBLISH, and the watched keys.
pub fn head(databases: usize, watched: &WatchedRows, readers: &[usize]) -> Vec<u8> {
    let number = |number: usize| (number as u32).to_le_bytes();
    let mut bytes = number(databases).to_vec();
    bytes.extend_from_slice(&number(readers.len()));
    readers
        .iter()
        .for_each(|count| bytes.extend_from_slice(&number(*count)));
    bytes.extend_from_slice(&number(watched.keys.len()));
    for (key, fingerprint) in &watched.keys {
        bytes.extend_from_slice(&number(key.len()));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&fingerprint.to_le_bytes());
    }
    bytes
}

/// A key and its fingerprint.
type Watched<'b> = (&'b [u8], u64);

/// The parts of an EXEC on a table.
pub struct Head<'b> {
    pub databases: usize,
    /// The number of subscribers for each PUBLISH.
    pub readers: Vec<u32>,
    /// The watched keys, sorted by spelling.
    pub watched: Vec<Watched<'b>>,
    /// The bytes before the first command.
    pub length: usize,
}

/// Reads the output of [`head`].
pub fn read(bytes: &[u8]) -> Option<Head<'_>> {
    let (databases, rest) = bytes.split_first_chunk::<4>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut readers = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (number, more) = rest.split_first_chunk::<4>()?;
        readers.push(u32::from_le_bytes(*number));
        rest = more;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut watched = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (length, more) = rest.split_first_chunk::<4>()?;
        let (key, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (number, more) = more.split_first_chunk::<8>()?;
        watched.push((key, u64::from_le_bytes(*number)));
        rest = more;
    }
    watched.sort_unstable();
    Some(Head {
        databases: u32::from_le_bytes(*databases) as usize,
        readers,
        watched,
        length: bytes.len() - rest.len(),
    })
}
