//! Trims a table cache to its limit: chooses the rows to remove, and removes them chunk by chunk.
//!
//! Expired rows have been removed before. Rows that were not recently read from the hot tier are removed first,
//! beginning with the oldest. The age of a row is the number of transactions since it was written (`xmin`).
//!
//! The table is not sorted. A first walk, the census, counts the rows in classes of age, each 1.6 % wide. The counts
//! yield the lowest age of the rows to remove. A second walk removes rows of at least this age, in physical order,
//! until enough rows are removed.

use std::collections::BTreeMap;

use super::blocks::{Blocks, Chunk};
use super::pass::{self, CHUNK};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::key::Key;
use crate::cache::model::statement::Statement;
use crate::cache::table::copies;
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::tier::tier;
use crate::pg::value::typed::Typed;

/// The number of age classes per factor of e, as in `Statement::Census`.
const CLASSES: f64 = 64.0;

/// The state of a trimming.
pub struct Trim {
    blocks: Blocks,
    walked: u32,
    /// The number of rows that must still be removed.
    excess: i64,
    spare: Spare,
    stage: Stage,
}

enum Stage {
    /// Counts rows by class of age.
    Census(BTreeMap<i64, i64>),
    /// Removes rows of at least this age.
    Remove { age: i64 },
}

/// Which rows a trimming spares: rows that the tier knows to be used, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    Used,
    None,
}

impl Trim {
    /// Begins a trimming that removes `excess` rows. The caller holds a lock on the table.
    pub fn begin(cache: &Cache, excess: i64, spare: Spare) -> Trim {
        Trim {
            blocks: Blocks::of(cache),
            walked: 0,
            excess,
            spare,
            stage: Stage::Census(BTreeMap::new()),
        }
    }

    /// Returns the number of rows that must still be removed.
    pub fn excess(&self) -> i64 {
        self.excess
    }

    pub fn spare(&self) -> Spare {
        self.spare
    }

    /// Returns whether the trimming has removed all the rows that it can.
    pub fn is_complete(&self) -> bool {
        let removing = matches!(self.stage, Stage::Remove { .. });
        self.excess <= 0 || (removing && self.walked >= self.blocks.count())
    }

    /// Takes one step: counts a chunk for the census, or removes at most about `max_rows` rows from a chunk. Returns
    /// the number of removed rows. The caller holds a writer's lock on the table, has the privileges of a sweep, and
    /// is the only sweeper.
    pub fn step(&mut self, cache: &Cache, max_rows: i64) -> i64 {
        let chunk = self.blocks.chunk(self.walked, CHUNK);
        let end = self.walked + chunk.map_or(0, |chunk| chunk.count());
        let age = match &mut self.stage {
            Stage::Census(classes) => {
                if let Some(chunk) = chunk {
                    chunk.within(cache, |cache| census(cache, chunk, classes));
                }
                self.walked = end;
                if self.walked >= self.blocks.count() {
                    self.end_census(cache);
                }
                return 0;
            }
            Stage::Remove { age } => *age,
        };
        let wanted = self.excess.min(max_rows);
        let spare = self.spare;
        let removed = chunk
            .and_then(|chunk| chunk.within(cache, |cache| remove(cache, chunk, age, spare, wanted)))
            .unwrap_or(0);
        self.excess -= removed;
        // If as many rows were removed as wanted, the chunk may contain more.
        if removed < wanted {
            self.walked = end;
        }
        removed
    }

    /// Derives the age from the counts, so that enough rows are at least that old even if all used rows are among
    /// them.
    fn end_census(&mut self, cache: &Cache) {
        let Stage::Census(classes) = &self.stage else {
            return;
        };
        let spared = match self.spare {
            Spare::Used => copies_in_tier(cache),
            Spare::None => 0,
        };
        let mut still = self.excess + spared;
        let mut class = 0;
        for (&older, &rows) in classes.iter().rev() {
            class = older;
            still -= rows;
            if still <= 0 {
                break;
            }
        }
        self.walked = 0;
        self.stage = Stage::Remove {
            age: least_age(class),
        };
    }
}

/// Returns the lowest age in a class: the inverse of `floor(ln(age + 1) * 64)` in `Statement::Census`.
fn least_age(class: i64) -> i64 {
    let age = ((class as f64) / CLASSES).exp() - 1.0;
    (age.ceil() as i64).clamp(0, i64::from(i32::MAX))
}

/// Returns the number of copies of the cache's entries in the tier.
fn copies_in_tier(cache: &Cache) -> i64 {
    tier()
        .and_then(|tier| Some(tier.slot(cache.slot(tier)?)))
        .map_or(0, |slot| {
            slot.entries.load(std::sync::atomic::Ordering::Relaxed)
        })
}

fn census(cache: &Cache, chunk: Chunk, classes: &mut BTreeMap<i64, i64>) {
    cache
        .plan(Statement::Census)
        .run_as_of_now(&pass::range(chunk), |output| {
            let number = |row, column| output.number(row, column).unwrap_or(0);
            for row in 0..output.rows() {
                *classes.entry(number(row, 0)).or_default() += number(row, 1);
            }
        });
}

/// Removes at most `wanted` rows of at least this age from a chunk, and returns their number. Leaves locked rows.
fn remove(cache: &Cache, chunk: Chunk, age: i64, spare: Spare, wanted: i64) -> i64 {
    let age = Typed::number(age);
    let [from, to] = pass::range(chunk);
    let aged = cache.plan(Statement::Aged);
    let keys: Vec<Key> = aged.run_as_of_now(&[from, to, age], |output| {
        (0..output.rows())
            .filter_map(|row| output.text(row, 0))
            .map(Key::stored)
            .filter(|&key| spare == Spare::None || !copies::is_used(cache, key))
            .take(wanted as usize)
            .collect()
    });
    if keys.is_empty() {
        return 0;
    }
    let array = Typed::texts(keys.iter().map(|key| key.text()));
    let trimmed = cache
        .plan(Statement::Trim)
        .run_as_of_now(&[array, age], |output| output.processed);
    cache.count(Counter::Trimmed, trimmed);
    trimmed as i64
}
