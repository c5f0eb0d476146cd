//! [`Savepoints`]: state of a transaction, with one part per savepoint. The release of a savepoint merges its part
//! into the parent's; a rollback discards the part.
//!
//! Postgres reports the nesting level of a savepoint that ends. Level 1 is the transaction itself, level 2 the
//! outermost savepoint. A part belongs to the innermost savepoint that was open when the state was added.

use crate::pg::memory;

/// State that can absorb the state of a later savepoint.
pub trait Join: Default {
    fn join(&mut self, later: Self);
}

impl<T> Join for Vec<T> {
    fn join(&mut self, later: Vec<T>) {
        match self.is_empty() {
            true => *self = later,
            false => later.into_iter().for_each(|one| memory::push(self, one)),
        }
    }
}

/// One part for each level with state, the outermost first.
pub struct Savepoints<T>(Vec<(i32, T)>);

impl<T> Default for Savepoints<T> {
    fn default() -> Self {
        Savepoints(Vec::new())
    }
}

/// Joins level by level. A level may exist on either side alone.
impl<T: Join> Join for Savepoints<T> {
    fn join(&mut self, later: Savepoints<T>) {
        for (level, part) in later.0 {
            let place = self.0.partition_point(|&(known, _)| known < level);
            match self.0.get_mut(place).filter(|(known, _)| *known == level) {
                Some((_, own)) => own.join(part),
                None => {
                    memory::push(&mut self.0, (level, part));
                    self.0[place..].rotate_right(1);
                }
            }
        }
    }
}

impl<T: Join> Savepoints<T> {
    /// Returns the state at this level, which must be the current level; adds an empty state if the level has none.
    pub fn at(&mut self, level: i32) -> &mut T {
        if self.0.last().is_none_or(|&(top, _)| top < level) {
            memory::push(&mut self.0, (level, T::default()));
        }
        let top = self.0.len() - 1;
        &mut self.0[top].1
    }

    /// Merges the state of a released savepoint into the next outer level.
    pub fn release(&mut self, level: i32) {
        while self.0.last().is_some_and(|&(top, _)| top >= level) {
            let Some((_, released)) = self.0.pop() else {
                return;
            };
            self.at(level - 1).join(released);
        }
    }

    /// Removes the state of a savepoint that was rolled back, and returns it.
    pub fn roll_back(&mut self, level: i32) -> T {
        let kept = self.0.partition_point(|&(noted, _)| noted < level);
        joined(self.0.drain(kept..))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Joins all parts. Allocates nothing at the end of a transaction, when only one part remains.
    pub fn into_one(self) -> T {
        joined(self.0.into_iter())
    }

    /// Returns the state of each level, the outermost first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, part)| part)
    }

    /// Returns the same levels with the result of `copy` for each part.
    pub fn copied(&self, copy: impl Fn(&T) -> T) -> Savepoints<T> {
        let parts = self.0.iter().map(|(level, part)| (*level, copy(part)));
        Savepoints(memory::collect(parts))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, part)| part)
    }
}

fn joined<T: Join>(parts: impl Iterator<Item = (i32, T)>) -> T {
    let mut all = T::default();
    parts.for_each(|(_, part)| all.join(part));
    all
}
