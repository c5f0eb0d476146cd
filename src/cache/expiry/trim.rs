//! Trims a table cache to its `max_entries` and `max_bytes`: chooses the rows to remove, and removes them chunk by
//! chunk.
//!
//! The sweep has already removed the expired rows. Of the live rows, a trimming first removes the rows that were not
//! recently read from the hot tier, beginning with the oldest. The age of a row is the number of transactions since it
//! was written (`xmin`).
//!
//! The table is not sorted. A first walk, the census, counts the rows in classes of age, each 1.6 % wide. The counts
//! yield the lowest age of the rows to remove. A second walk removes rows of at least this age, in physical order,
//! until enough rows are removed.
//!
//! The bytes are summed row by row, because an average size would remove too many rows from a table with a few large
//! rows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

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
    /// The rows and bytes that must still be removed.
    excess: Excess,
    spare: Spare,
    stage: Stage,
}

/// The numbers of rows and of bytes beyond the limits of a cache. A trimming removes rows until neither is above zero.
#[derive(Clone, Copy, Default)]
pub struct Excess {
    pub rows: i64,
    pub bytes: i64,
}

impl Excess {
    pub fn is_none(self) -> bool {
        self.rows <= 0 && self.bytes <= 0
    }

    /// Returns the excess that remains after this many rows and bytes were removed.
    pub fn without(self, rows: i64, bytes: i64) -> Excess {
        Excess {
            rows: self.rows.saturating_sub(rows),
            bytes: self.bytes.saturating_sub(bytes),
        }
    }
}

enum Stage {
    /// Counts rows by class of age, and also their bytes if the cache is beyond `max_bytes`.
    Census(BTreeMap<i64, Excess>),
    /// Removes rows of at least this age.
    Remove { age: i64 },
}

/// The rows that a trimming spares: rows that the tier knows to be used, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    Used,
    None,
}

impl Trim {
    /// Begins a trimming that removes `excess`. The caller holds a lock on the table.
    pub fn begin(cache: &Cache, excess: Excess, spare: Spare) -> Trim {
        Trim {
            blocks: Blocks::of(cache),
            walked: 0,
            excess,
            spare,
            stage: Stage::Census(BTreeMap::new()),
        }
    }

    /// Returns the rows and bytes that must still be removed.
    pub fn excess(&self) -> Excess {
        self.excess
    }

    pub fn spare(&self) -> Spare {
        self.spare
    }

    /// Returns whether the trimming has removed all the rows that it can.
    pub fn is_complete(&self) -> bool {
        let removing = matches!(self.stage, Stage::Remove { .. });
        self.excess.is_none() || (removing && self.walked >= self.blocks.count())
    }

    /// Takes one step: counts a chunk for the census, or removes at most about `max_rows` rows from a chunk. Returns
    /// the number of removed rows. The caller holds a writer's lock on the table, has the privileges of a sweep, and
    /// is the only sweeper.
    pub fn step(&mut self, cache: &Cache, max_rows: i64) -> i64 {
        let chunk = self.blocks.chunk(self.walked, CHUNK);
        let end = self.walked + chunk.map_or(0, |chunk| chunk.count());
        let weighed = self.excess.bytes > 0;
        let age = match &mut self.stage {
            Stage::Census(classes) => {
                if let Some(chunk) = chunk {
                    chunk.within(cache, |cache| census(cache, chunk, weighed, classes));
                }
                self.walked = end;
                if self.walked >= self.blocks.count() {
                    self.end_census(cache);
                }
                return 0;
            }
            Stage::Remove { age } => *age,
        };
        let wanted = Wanted {
            age,
            spare: self.spare,
            excess: self.excess,
            max_rows,
        };
        let removed = chunk
            .and_then(|chunk| chunk.within(cache, |cache| remove(cache, chunk, &wanted)))
            .unwrap_or_default();
        self.excess = self.excess.without(removed.rows, removed.bytes);
        if !removed.may_leave_more {
            self.walked = end;
        }
        removed.rows
    }

    /// Derives the age of the rows to remove from the counts. Enough rows have at least this age even if they include
    /// all used rows.
    fn end_census(&mut self, cache: &Cache) {
        let Stage::Census(classes) = &self.stage else {
            return;
        };
        let spared = match self.spare {
            Spare::Used => copies_in_tier(cache),
            Spare::None => Excess::default(),
        };
        let with = |excess: i64, spared: i64| match excess > 0 {
            true => excess.saturating_add(spared),
            false => 0,
        };
        let mut still = Excess {
            rows: with(self.excess.rows, spared.rows),
            bytes: with(self.excess.bytes, spared.bytes),
        };
        let mut class = 0;
        for (&older, counted) in classes.iter().rev() {
            class = older;
            still = still.without(counted.rows, counted.bytes);
            if still.is_none() {
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

/// Returns the number of copies of the cache's entries in the tier, and their bytes.
fn copies_in_tier(cache: &Cache) -> Excess {
    tier()
        .and_then(|tier| Some(tier.slot(cache.slot(tier)?)))
        .map_or(Excess::default(), |slot| Excess {
            rows: slot.entries.load(Relaxed),
            bytes: slot.bytes.load(Relaxed),
        })
}

fn census(cache: &Cache, chunk: Chunk, weighed: bool, classes: &mut BTreeMap<i64, Excess>) {
    cache
        .plan(Statement::Census { weighed })
        .run_as_of_now(&pass::range(chunk), |output| {
            let number = |row, column| output.number(row, column).unwrap_or(0);
            for row in 0..output.rows() {
                let class = classes.entry(number(row, 0)).or_default();
                class.rows += number(row, 1);
                if weighed {
                    class.bytes = class.bytes.saturating_add(number(row, 2));
                }
            }
        });
}

/// The rows that a step may remove.
struct Wanted {
    /// The lowest age of a row to remove.
    age: i64,
    spare: Spare,
    /// The rows and bytes that must still be removed.
    excess: Excess,
    max_rows: i64,
}

/// The rows that a step has removed, and their bytes.
#[derive(Default)]
struct Removed {
    rows: i64,
    bytes: i64,
    /// Whether the chunk may contain more rows to remove.
    may_leave_more: bool,
}

/// Removes the rows of a chunk that `wanted` describes, and returns their number and bytes. Skips locked rows.
fn remove(cache: &Cache, chunk: Chunk, wanted: &Wanted) -> Removed {
    let weighed = wanted.excess.bytes > 0;
    let age = Typed::number(wanted.age);
    let [from, to] = pass::range(chunk);
    let mut chosen = Removed::default();
    let aged = cache.plan(Statement::Aged { weighed });
    let keys: Vec<Key> = aged.run_as_of_now(&[from, to, age], |output| {
        let mut keys = Vec::new();
        for row in 0..output.rows() {
            let Some(key) = output.text(row, 0).map(Key::stored) else {
                continue;
            };
            if wanted.spare == Spare::Used && copies::is_used(cache, key) {
                continue;
            }
            let left = wanted.excess.without(chosen.rows, chosen.bytes);
            if left.is_none() || chosen.rows >= wanted.max_rows {
                chosen.may_leave_more = true;
                break;
            }
            keys.push(key);
            chosen.rows += 1;
            if weighed {
                chosen.bytes += output.number(row, 1).unwrap_or(0);
            }
        }
        keys
    });
    if keys.is_empty() {
        return Removed::default();
    }
    let array = Typed::texts(keys.iter().map(|key| key.text()));
    let trimmed = cache
        .plan(Statement::Trim)
        .run_as_of_now(&[array, age], |output| output.processed);
    cache.count(Counter::Trimmed, trimmed);
    let trimmed = trimmed as i64;
    Removed {
        rows: trimmed,
        // The bytes are an estimate if other sessions held locks on some of the chosen rows.
        bytes: (i128::from(chosen.bytes) * i128::from(trimmed) / i128::from(chosen.rows)) as i64,
        may_leave_more: chosen.may_leave_more && trimmed >= chosen.rows,
    }
}
