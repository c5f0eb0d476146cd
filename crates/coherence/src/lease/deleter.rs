//! The steps of a session that deletes an entry by hand, and the steps of a writer of another cache.
//!
//! The source changes before the delete, in a transaction that sets no marks because no entry depends on the source.

use super::model::{Clause, MarkScope, Moves, Phase};
use super::unmark_and_void::{removes, void};

impl Moves<'_> {
    pub fn deleter(&mut self) {
        let (m, me) = (self.m, self.me());
        match me.at {
            Phase::Begin => self.add(
                "changes the source, and has committed",
                Phase::Looking,
                |state, _| state.source += 1,
            ),
            Phase::Looking => self.look(),
            Phase::Marking => self.add("marks its key", Phase::LookingAgain, |state, backend| {
                backend.marked = true;
                state.pending[0] += 1;
                void(m, state, None);
            }),
            Phase::LookingAgain => self.look_again(),
            Phase::Committing => self.add("commits", Phase::Unmarking, |state, backend| {
                if std::mem::take(&mut backend.has_removed) {
                    state.row = None;
                }
            }),
            Phase::Unmarking => self.add("unmarks and has ended", Phase::Done, |state, _| {
                state.pending[0] -= 1;
                void(m, state, None);
            }),
            _ => {}
        }
    }

    fn look(&mut self) {
        let Some(there) = self.sees() else {
            return; // waits for the other actor's row
        };
        self.add(
            "removes the row, if it sees one",
            Phase::Marking,
            |state, backend| {
                backend.has_removed = there;
                backend.begun = state.begun;
                backend.open = state.open > 0;
            },
        );
    }

    fn look_again(&mut self) {
        let (m, me) = (self.m, self.me());
        let begun = m.keeps(Clause::DeleteCountsBegun) && me.begun != self.from.begun;
        let may_be_new = me.open || begun || self.from.open > 0;
        if me.has_removed || !may_be_new || !m.keeps(Clause::DeleteChecksAgain) {
            return self.add("need not look again", Phase::Committing, |_, _| {});
        }
        let unseen = self.others().any(|other| other.row.is_some());
        if unseen && self.from.open > 0 && m.keeps(Clause::DeleteWaits) {
            return;
        }
        if let Some(there) = self.sees() {
            self.add("looks again", Phase::Committing, |_, backend| {
                backend.has_removed = there;
            });
        }
    }

    /// Returns whether a row exists that the delete can remove. Returns None if another transaction is changing or
    /// removing the row, so that the delete must wait.
    fn sees(&self) -> Option<bool> {
        let there = self.from.row.is_some();
        let changed = self
            .others()
            .any(|other| other.row.is_some() || removes(other));
        (!(there && changed)).then_some(there)
    }

    pub fn neighbour(&mut self, scope: MarkScope) {
        let (m, words) = (self.m, scope as usize);
        let by_cache = m.keeps(Clause::VoidsByCache) || scope == MarkScope::Key;
        let voids = move |state: &mut _| {
            if !by_cache {
                void(m, state, None);
            }
        };
        match self.me().at {
            Phase::Begin => self.add("marks in another cache", Phase::Voiding, |state, _| {
                state.others[words] += 1;
            }),
            Phase::Voiding => self.add("voids leases there", Phase::Committing, |state, _| {
                voids(state)
            }),
            Phase::Committing => {
                self.add("unmarks there, and has ended", Phase::Done, |state, _| {
                    state.others[words] -= 1;
                })
            }
            _ => {}
        }
    }
}
