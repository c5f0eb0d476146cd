//! The blocks of a cache's table, or of all its partitions, numbered as one sequence.
//!
//! A sweep walks the blocks as if they were one table. So the sweep of a hundred partitions takes no larger steps than
//! the sweep of one table, and continues in the next partition. The list is made when a walk begins. The next walk
//! sweeps a partition that is added later. A walk skips a partition that is dropped, or that another session has locked
//! against writers.
//!
//! A walk also skips a table that a subscription of logical replication writes. The publisher sweeps the table and
//! replicates the removals. If this server removed a row first, it would lose the entry: the apply worker skips an
//! UPDATE whose row is missing, and the publisher overwrites expired rows by UPDATE.

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::pg::catalog::privilege::{self, AsOwner};
use crate::pg::catalog::{inheritance, relation, subscription};
use crate::pg::memory;
use crate::pg::session::lock::{self, Brief, Mode};

/// The blocks of one cache.
#[derive(Default)]
pub struct Blocks {
    parts: Vec<Part>,
    /// Whether a table with rows of the cache counts no blocks in this walk.
    pub is_partial: bool,
}

/// A table, and the index of the first block after its last block.
#[derive(Clone, Copy)]
struct Part {
    table: Oid,
    end: u32,
}

/// Consecutive blocks of one table, by their numbers in that table.
#[derive(Clone, Copy)]
pub struct Chunk {
    table: Oid,
    pub from: u32,
    pub to: u32,
}

impl Blocks {
    /// Lists the blocks of a cache. The caller holds a lock on the table.
    pub fn of(cache: &Cache) -> Blocks {
        let mut blocks = Blocks::default();
        if !cache.partitioned {
            blocks.add(cache.relation);
            return blocks;
        }
        for table in inheritance::leaves(cache.relation) {
            let lock = Brief::try_on(table, Mode::Read);
            match lock.is_some() && inheritance::is_leaf_of(table, cache.relation) {
                true => blocks.add(table),
                false => blocks.is_partial = true,
            }
        }
        blocks
    }

    fn add(&mut self, table: Oid) {
        if subscription::writes(table) {
            self.is_partial = true;
            return;
        }
        let end = self.count().saturating_add(relation::blocks(table));
        memory::push(&mut self.parts, Part { table, end });
    }

    pub fn count(&self) -> u32 {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// Returns at most `most` blocks of one table, beginning with block `from`. Returns None after the last block.
    pub fn chunk(&self, from: u32, most: u32) -> Option<Chunk> {
        let place = self.parts.partition_point(|part| part.end <= from);
        let part = self.parts.get(place)?;
        let begin = place
            .checked_sub(1)
            .map_or(0, |before| self.parts[before].end);
        Some(Chunk {
            table: part.table,
            from: from - begin,
            to: from - begin + most.min(part.end - from),
        })
    }
}

impl Chunk {
    pub fn count(&self) -> u32 {
        self.to - self.from
    }

    /// Runs `work` on the table of the chunk and returns its result. Returns None if a subscription writes the table,
    /// if the table is no longer a partition of the cache, or if it cannot be locked without waiting. Also returns None
    /// if policies apply to the caller, because a partition does not have the policies.
    ///
    /// A partition is swept as its own owner, which may differ from the owner of the whole table, because the
    /// partition's triggers are the code of that owner.
    pub fn within<R>(&self, cache: &Cache, work: impl FnOnce(&Cache) -> R) -> Option<R> {
        if subscription::writes(self.table) {
            return None; // the subscription was made during the walk
        }
        if !cache.partitioned {
            return Some(work(cache));
        }
        if privilege::row_security_applies(cache.relation)
            || !lock::try_relation(self.table, Mode::Write)
        {
            return None;
        }
        let partition = registry::partition(self.table).filter(|part| part.id == cache.id)?;
        let _owner = AsOwner::to_remove(self.table);
        Some(work(&partition))
    }
}
