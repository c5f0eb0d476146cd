//! The keys of a table that a connection watches, and what was there when it began to: a number for each,
//! which an executor makes and compares (`tables::fingerprint`).

use std::collections::HashSet;

use pgcache_resp::Args;
use pgrx::pg_sys::Oid;

/// What an executor's numbers begin with, and no reply.
pub const NUMBERS: u8 = 0;
/// The number of a key without an entry.
pub const ABSENT: u64 = 0;

/// Keys of one table.
#[derive(Default)]
pub struct WatchedRows {
    /// None: there are none.
    relation: Option<Oid>,
    keys: Vec<(Vec<u8>, u64)>,
}

impl WatchedRows {
    /// The keys of a WATCH, of which nothing is known yet.
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

    /// Whether they are of this table, or of none.
    pub fn is_of(&self, relation: Oid) -> bool {
        self.relation.is_none_or(|own| own == relation)
    }

    /// Takes what an executor says: eight bytes for each key. False where it says something else.
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

    /// More of the same table. False where they are of another one.
    pub fn add(&mut self, more: WatchedRows) -> bool {
        let fits = match (self.relation, more.relation) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        if fits {
            self.relation = self.relation.or(more.relation);
            // A key that is watched already is watched since then.
            let mut known: HashSet<Vec<u8>> = HashSet::new();
            known.extend(self.keys.iter().map(|(key, _)| key.clone()));
            let news = more.keys.into_iter();
            self.keys
                .extend(news.filter(|(key, _)| known.insert(key.clone())));
        }
        fits
    }

    /// Whether none of the keys had an entry.
    pub fn are_absent(&self) -> bool {
        self.keys.iter().all(|(_, number)| *number == ABSENT)
    }
}

/// The bytes before the commands of an EXEC on a table: the number of databases, how many clients read the channel of
/// each PUBLISH, and the watched keys.
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

/// A key, and the number of what was there.
type Watched<'b> = (&'b [u8], u64);

/// The parts of an EXEC on a table.
pub struct Head<'b> {
    pub databases: usize,
    /// Of each PUBLISH.
    pub readers: Vec<u32>,
    /// In the order of their spellings.
    pub watched: Vec<Watched<'b>>,
    pub commands: &'b [u8],
}

/// Reads what [`head`] has written.
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
        commands: rest,
    })
}
