//! A pass: one walk over a cache's table that removes expired rows, chunk by chunk.
//!
//! A pass reads a chunk of blocks by row address (a TID range scan), and runs a DELETE only if the chunk has expired
//! rows. So it needs no index on the deadline, which would keep every overwrite from being a HOT update. A chunk
//! without expired rows costs only a read: no row lock, no transaction id. A caller may run the steps of a pass in one
//! transaction or in many; between steps a pass keeps only numbers. Each step takes a new snapshot. An older snapshot
//! of the caller would count rows that no longer exist, and a sweep would remove too many rows.

use std::sync::atomic::Ordering::Relaxed;

use super::blocks::{Blocks, Chunk};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::deadline;
use crate::cache::model::expiring::Expiring;
use crate::cache::model::statement::Statement;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::worker_state::SweepState;
use crate::pg::spi::output::Output;
use crate::pg::value::typed::Typed;

/// The number of blocks in a chunk: 4 MB, which take some milliseconds to read.
pub const CHUNK: u32 = 512;

/// The state of a walk over a table, and the counts that it has taken.
#[derive(Default)]
pub struct Pass {
    /// The table's blocks when the pass began.
    blocks: Blocks,
    /// Whether some of the cache's rows could not be read.
    passed_over: bool,
    /// The index of the first block of the pass.
    first: u32,
    /// The number of blocks that the pass has walked.
    walked: u32,
    /// Blocks per chunk.
    reach: u32,
    /// The number of expired rows in the current chunk that still exist; None before the chunk is read.
    left: Option<i64>,
    /// The number of rows in the current chunk.
    rows_here: i64,
    /// The number of rows that are not expired.
    pub live: i64,
    /// The bytes of the rows that are not expired; counted only in a cache with `max_bytes`.
    bytes: i64,
    /// The number of expired rows that were found.
    pub found: i64,
    /// The number of expired rows that were removed.
    pub removed: i64,
    /// Microseconds since the earliest deadline among the expired rows.
    pub lag: i64,
    /// The earliest deadline among the live rows.
    pub next_deadline: Option<Timestamp>,
}

/// The result of one step.
pub struct Step {
    pub removed: i64,
    /// Whether the step removed over a quarter of the chunk's rows, or left some to remove, so that it pays to
    /// continue at once.
    pub worthwhile: bool,
}

/// The counts of a chunk.
struct Look {
    live: i64,
    expired: i64,
    oldest: Option<Timestamp>,
    next: Option<Timestamp>,
}

impl Pass {
    /// Begins a pass at the block where the last pass ended. The caller holds a lock on the table.
    pub fn begin(cache: &Cache, state: Option<&SweepState>) -> Pass {
        let blocks = Blocks::of(cache);
        let first = state.map_or(0, |state| state.cursor.load(Relaxed));
        Pass {
            first: if first < blocks.count() { first } else { 0 },
            passed_over: blocks.is_partial,
            blocks,
            reach: CHUNK,
            ..Pass::default()
        }
    }

    /// Returns whether the pass has covered the whole table.
    pub fn is_complete(&self) -> bool {
        self.walked >= self.blocks.count() && self.left.is_none()
    }

    /// Returns the current block, where the next pass should begin.
    fn position(&self) -> u32 {
        match self.first + self.walked {
            position if position >= self.blocks.count() => position - self.blocks.count(),
            position => position,
        }
    }

    /// Returns the blocks of the current chunk, or None if the table has none. A chunk ends at the end of a table at
    /// the latest, and at the block where the pass began.
    fn chunk(&self) -> Option<Chunk> {
        let left = self.blocks.count() - self.walked;
        self.blocks.chunk(self.position(), left.min(self.reach))
    }

    /// Sets the number of blocks per chunk, from the next chunk on.
    pub fn set_reach(&mut self, blocks: u32) {
        if self.left.is_none() {
            self.reach = blocks.clamp(1, CHUNK);
        }
    }

    /// Reads the current chunk and removes at most `max_rows` of its expired rows. The caller holds a writer's lock on
    /// the table, and has the privileges to read and delete its rows.
    pub fn step(&mut self, cache: &Cache, max_rows: i64) -> Step {
        let Some(chunk) = self.chunk() else {
            return Step {
                removed: 0,
                worthwhile: false,
            };
        };
        let limit = deadline::swept_until(clock::now(), cache.settings.grace);
        let done = chunk.within(cache, |cache| {
            let expired = match self.left {
                Some(left) => left,
                None => self.look(cache, chunk, limit),
            };
            let wanted = expired.min(max_rows);
            let removed = match wanted > 0 {
                true => remove(cache, chunk, limit, wanted),
                false => 0,
            };
            (expired, wanted, removed)
        });
        self.passed_over |= done.is_none();
        let (expired, wanted, removed) = done.unwrap_or_default();
        self.removed += removed;
        // If fewer rows were removed than wanted, other sessions have locked the rest, which stay for the next sweep.
        let more = removed == wanted && removed < expired;
        self.left = more.then_some(expired - removed);
        if !more {
            self.walked += chunk.count();
        }
        Step {
            removed,
            worthwhile: more || removed * 4 > self.rows_here,
        }
    }

    /// Counts the rows of the current chunk without removing any, and moves on to the next chunk.
    pub fn count_on(&mut self, cache: &Cache) {
        let Some(chunk) = self.chunk() else {
            return;
        };
        if self.left.is_none() {
            let limit = deadline::swept_until(clock::now(), cache.settings.grace);
            let looked = chunk.within(cache, |cache| self.look(cache, chunk, limit));
            self.passed_over |= looked.is_none();
        }
        self.left = None;
        self.walked += chunk.count();
    }

    /// Returns the number of rows of the table, including expired rows; exact when the pass is complete.
    pub fn rows(&self) -> i64 {
        self.live + self.found - self.removed
    }

    /// Returns by how many bytes the live rows exceed `most`. Valid after the pass is complete.
    pub fn bytes_beyond(&self, most: i64) -> i64 {
        self.bytes.saturating_sub(most).max(0)
    }

    fn look(&mut self, cache: &Cache, chunk: Chunk, limit: Timestamp) -> i64 {
        let look = look(cache, chunk, limit);
        self.rows_here = look.live + look.expired;
        self.live += look.live;
        if cache.settings.max_bytes.is_some() && look.live > 0 {
            self.bytes = self.bytes.saturating_add(weigh(cache, chunk, limit));
        }
        self.found += look.expired;
        if let Some(oldest) = look.oldest {
            self.lag = self.lag.max(limit.saturating_sub(oldest.max(clock::BEGIN)));
        }
        self.next_deadline = earlier(self.next_deadline, look.next);
        look.expired
    }

    /// Estimates the number of expired rows that still exist: exact for chunks that were read, extrapolated for the
    /// other chunks.
    fn waiting(&self) -> i64 {
        let unseen = i64::from(self.blocks.count().saturating_sub(self.walked));
        let seen = i64::from(self.walked.max(1));
        (self.found - self.removed) + self.found.saturating_mul(unseen) / seen
    }

    /// Stores the results for the next sweep and for monitoring.
    pub fn note(&self, state: &SweepState) {
        state.cursor.store(self.position(), Relaxed);
        state.waiting.store(self.waiting(), Relaxed);
        state.lag.store(self.lag, Relaxed);
        if self.is_complete() {
            // Rows that could not be read may be due.
            let next = match self.passed_over {
                true => clock::BEGIN,
                false => self.next_deadline.unwrap_or(clock::INFINITY),
            };
            state.next_deadline.store(next, Relaxed);
        }
        // Every pass that reaches the end of the table counts, because one visit of the worker may not get through a
        // large table.
        if self.first + self.walked >= self.blocks.count() {
            state.last_sweep.store(clock::now(), Relaxed);
        }
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the parameters that delimit a chunk: its first row address, and the first row address after it.
pub fn range(chunk: Chunk) -> [Typed; 2] {
    [Typed::address(chunk.from), Typed::address(chunk.to)]
}

fn look(cache: &Cache, chunk: Chunk, limit: Timestamp) -> Look {
    let [from, to] = range(chunk);
    let read = |output: &Output| {
        let number = |column| output.number(0, column);
        Look {
            live: number(0).unwrap_or(0),
            expired: number(1).unwrap_or(0),
            oldest: output.moment(0, 2),
            next: output.moment(0, 3),
        }
    };
    cache
        .plan(Statement::Look)
        .run_as_of_now(&[from, to, Typed::moment(Some(limit))], read)
}

fn weigh(cache: &Cache, chunk: Chunk, limit: Timestamp) -> i64 {
    let [from, to] = range(chunk);
    cache
        .plan(Statement::Weigh)
        .run_as_of_now(&[from, to, Typed::moment(Some(limit))], |output| {
            output.number(0, 0).unwrap_or(0)
        })
}

fn remove(cache: &Cache, chunk: Chunk, limit: Timestamp, max_rows: i64) -> i64 {
    let [from, to] = range(chunk);
    let limit = Typed::moment(Some(limit));
    let _expiring = Expiring::begin(cache.id.relation()); // a partition's trigger reports the whole cache
    let removed = cache
        .plan(Statement::Expire)
        .run_as_of_now(&[from, to, limit, Typed::number(max_rows)], |output| {
            output.processed
        });
    cache.count(Counter::Expired, removed);
    removed as i64
}
