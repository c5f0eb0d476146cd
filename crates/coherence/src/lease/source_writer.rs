//! The steps of a writer of the source: it sets marks, removes the row, commits or rolls back, and removes the
//! marks.

use super::model::{Clause, MarkScope, Moves, Phase};
use super::unmark_and_void::{removes, void};

fn place(scope: MarkScope) -> usize {
    scope as usize
}

impl Moves<'_> {
    pub fn writer(&mut self, scope: MarkScope) {
        let (m, words) = (self.m, place(scope));
        let first = m.keeps(Clause::MarkBeforeRemoval);
        let key = scope == MarkScope::Key;
        let pend_first = key || m.keeps(Clause::PendBeforeVoid);
        match self.me().at {
            Phase::Begin if first => self.add("begins its commit", Phase::Marking, |_, _| {}),
            Phase::Begin => self.add("begins its commit", Phase::Removing, |_, _| {}),
            at @ (Phase::Marking | Phase::LateMarking) => {
                let late = at == Phase::LateMarking;
                let next = match (pend_first && !key, late) {
                    (true, false) => Phase::Voiding,
                    (true, true) => Phase::LateVoiding,
                    (false, false) => Phase::Removing,
                    (false, true) => Phase::Committing,
                };
                self.mark(words, key, next);
            }
            Phase::Voiding => self.void_all(Phase::Removing),
            Phase::LateVoiding => self.void_all(Phase::Committing),
            Phase::Removing => self.remove(match first {
                true => Phase::Committing,
                false => Phase::LateMarking,
            }),
            Phase::Committing => self.add(
                "commits: others see the new source",
                Phase::Unmarking,
                |state, backend| {
                    state.source += 1;
                    if std::mem::take(&mut backend.has_removed) {
                        state.row = None;
                    }
                },
            ),
            Phase::Unmarking => {
                let marked = self.me().marked;
                self.add("unmarks", Phase::Unvoiding, |state, _| {
                    state.pending[words] -= u8::from(marked);
                    if key && marked {
                        void(m, state, None);
                    }
                });
            }
            Phase::Unvoiding => self.add("voids leases and has ended", Phase::Done, |state, _| {
                if !key {
                    void(m, state, None);
                }
            }),
            _ => {}
        }
        let before = [
            Phase::Marking,
            Phase::Voiding,
            Phase::Removing,
            Phase::LateMarking,
            Phase::LateVoiding,
            Phase::Committing,
        ];
        if before.contains(&self.me().at) {
            self.add("rolls back", Phase::Unmarking, |_, backend| {
                backend.has_removed = false;
            });
        }
    }

    /// Sets the mark. A key is marked in one step. A cache is marked through `pending_writers`; a separate step voids
    /// its leases, before or after the mark.
    fn mark(&mut self, words: usize, key: bool, next: Phase) {
        let m = self.m;
        if !key && !m.keeps(Clause::PendBeforeVoid) && !self.me().again {
            return self.add("voids leases first", self.me().at, |state, backend| {
                void(m, state, None);
                backend.again = true;
            });
        }
        self.add("marks", next, |state, backend| {
            backend.again = false;
            backend.marked = true;
            state.pending[words] += 1;
            if key {
                void(m, state, None);
            }
        });
    }

    fn void_all(&mut self, next: Phase) {
        let m = self.m;
        self.add("voids the leases of the cache", next, |state, _| {
            void(m, state, None);
        });
    }

    /// Removes the row under the latest snapshot. Always waits for a transaction that is changing or removing the row.
    fn remove(&mut self, next: Phase) {
        // If no store is open, the writer does not check for rows that it cannot see.
        let unseen = self.others().any(|other| other.row.is_some());
        let looks = self.from.open > 0;
        let there = self.from.row.is_some();
        let locked = there && (unseen || self.others().any(removes));
        if locked || unseen && looks && self.m.keeps(Clause::RemovalWaits) {
            return;
        }
        self.add("removes the row, if it sees one", next, |_, backend| {
            backend.has_removed = there;
        });
    }
}
