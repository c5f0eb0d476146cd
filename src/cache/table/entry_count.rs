//! Estimates how many entries a table cache has, for the Redis command INFO. Runs in an executor.
//!
//! The estimate costs the same for a table of any size: it reads at most [`SAMPLED`] blocks and waits for no lock.

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::model::statement::Statement;
use crate::pg::catalog::{inheritance, relation};
use crate::pg::session::{clock, lock, random};
use crate::pg::table::storage;
use crate::pg::value::typed::Typed;

/// The number of blocks that are read for an estimate: all blocks of a small table, random blocks of a larger one.
const SAMPLED: usize = 32;

/// An estimate of a table's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCount {
    pub entries: u64,
    pub expiring: u64,
    /// The mean remaining time of the expiring entries, in milliseconds.
    pub time_left: u64,
}

/// The rows of some blocks.
#[derive(Default)]
struct Sample {
    live: i64,
    expired: i64,
    expiring: i64,
    /// The sum of the remaining times, in seconds.
    seconds: i64,
    blocks: u64,
}

/// Estimates the entries of a table. Returns None if the estimate would wait for a lock, or if the relation is not a
/// table cache. Runs inside a transaction.
pub fn of(relation: Oid) -> Option<EntryCount> {
    let _lock = lock::Brief::try_on(relation, lock::Mode::Read)?;
    let cache = registry::find(relation).ok()?;
    if cache.storage == Storage::Memory {
        return None;
    }
    let tables = match cache.partitioned {
        true => inheritance::leaves(relation),
        false => vec![relation],
    };
    let rows = storage::counted_of(&tables).map_or(0, |counted| counted.live.max(0));
    // Policies may hide rows from the role, but Postgres' own row count is public.
    if cache.row_security {
        return Some(EntryCount {
            entries: rows as u64,
            ..EntryCount::default()
        });
    }
    let mut sample = Sample::default();
    let mut blocks = 0;
    // If the table has many partitions, only some are sampled, one block each.
    let most = SAMPLED.min(tables.len()).max(1);
    let first = (random::number() % tables.len().max(1) as u64) as usize;
    let chosen = tables.iter().cycle().skip(first).take(most);
    for &table in chosen {
        blocks += match cache.partitioned {
            true => sample.add_partition(table, SAMPLED / most)?,
            false => sample.add(&cache, SAMPLED),
        };
    }
    let is_whole = sample.blocks == blocks && most == tables.len();
    Some(sample.count(rows, blocks, is_whole))
}

impl Sample {
    /// Samples at most `most` blocks of a partition. Returns the number of its blocks, or None if it cannot be locked
    /// without waiting.
    fn add_partition(&mut self, table: Oid, most: usize) -> Option<u64> {
        let _lock = lock::Brief::try_on(table, lock::Mode::Read)?;
        let partition = registry::partition(table)?;
        Some(self.add(&partition, most))
    }

    /// Samples at most `most` blocks of a table. Returns the number of its blocks.
    fn add(&mut self, cache: &Cache, most: usize) -> u64 {
        let blocks = u64::from(relation::blocks(cache.relation));
        if blocks <= most as u64 {
            self.add_blocks(cache, 0, blocks as u32);
            return blocks;
        }
        let mut chosen = vec![0; most];
        chosen.fill_with(|| (random::number() % blocks) as u32);
        chosen.sort_unstable();
        chosen.dedup();
        for block in chosen {
            self.add_blocks(cache, block, block + 1);
        }
        blocks
    }

    fn add_blocks(&mut self, cache: &Cache, from: u32, until: u32) {
        let plan = cache.plan(Statement::Tally);
        let now = Typed::moment(Some(clock::now()));
        let arguments = [Typed::address(from), Typed::address(until), now];
        plan.run(&arguments, |output| {
            let number = |column| output.number(0, column).unwrap_or(0);
            self.live += number(0);
            self.expired += number(1);
            self.expiring += number(2);
            self.seconds = self.seconds.saturating_add(number(3));
        });
        self.blocks += u64::from(until - from);
    }

    /// Returns the estimate for a table. `rows` is Postgres' own count of its rows, 0 if Postgres has none. `blocks` is
    /// the number of its blocks. `is_whole` is true if the sample covers all of its blocks.
    fn count(&self, rows: i64, blocks: u64, is_whole: bool) -> EntryCount {
        let found = self.live + self.expired;
        let share = |part: i64, of: i64| part as f64 / of.max(1) as f64;
        let entries = match (is_whole, rows) {
            (true, _) => self.live as f64,
            (false, 0) => share(self.live, self.blocks as i64) * blocks as f64,
            (false, rows) if found > 0 => rows as f64 * share(self.live, found),
            (false, rows) => rows as f64,
        };
        EntryCount {
            entries: entries.round() as u64,
            expiring: (entries * share(self.expiring, self.live)).round() as u64,
            time_left: (share(self.seconds, self.expiring) * 1000.0).max(0.0) as u64,
        }
    }
}
