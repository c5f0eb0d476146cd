//! Every step of a writer: marks, the removal of the row, its commit or rollback, and the unmarking.

use super::model::{At, Clause, Extent};
use super::moves::{Moves, removes, void};

fn place(extent: Extent) -> usize {
    extent as usize
}

impl Moves<'_> {
    pub fn writer(&mut self, extent: Extent) {
        let (m, words) = (self.m, place(extent));
        let first = m.keeps(Clause::MarkBeforeRemoval);
        let key = extent == Extent::Key;
        let pend_first = key || m.keeps(Clause::PendBeforeVoid);
        match self.me().at {
            At::Begin if first => self.add("begins its commit", At::Marking, |_, _| {}),
            At::Begin => self.add("begins its commit", At::Removing, |_, _| {}),
            at @ (At::Marking | At::LateMarking) => {
                let late = at == At::LateMarking;
                let next = match (pend_first && !key, late) {
                    (true, false) => At::Voiding,
                    (true, true) => At::LateVoiding,
                    (false, false) => At::Removing,
                    (false, true) => At::Committing,
                };
                self.mark(words, key, next);
            }
            At::Voiding => self.void_all(At::Removing),
            At::LateVoiding => self.void_all(At::Committing),
            At::Removing => self.remove(match first {
                true => At::Committing,
                false => At::LateMarking,
            }),
            At::Committing => self.add(
                "commits: others see the new source",
                At::Unmarking,
                |state, backend| {
                    state.source += 1;
                    if backend.holds {
                        state.row = None;
                        backend.holds = false;
                    }
                },
            ),
            At::Unmarking => {
                let marked = self.me().marked;
                self.add("unmarks", At::Unvoiding, |state, _| {
                    if marked {
                        state.words[words].ver += 1;
                        state.words[words].pend -= 1;
                    }
                    if key && marked {
                        void(state, None);
                    }
                });
            }
            At::Unvoiding => self.add("voids leases and has ended", At::Done, |state, _| {
                if !key {
                    void(state, None);
                }
            }),
            _ => {}
        }
        let before = [
            At::Marking,
            At::Voiding,
            At::Removing,
            At::LateMarking,
            At::LateVoiding,
            At::Committing,
        ];
        if before.contains(&self.me().at) {
            self.add("rolls back", At::Unmarking, |_, backend| {
                backend.holds = false;
            });
        }
    }

    /// One section for a key; for a cache `pend` and `ver` here, leases before or after it.
    fn mark(&mut self, words: usize, key: bool, next: At) {
        let m = self.m;
        if !key && !m.keeps(Clause::PendBeforeVoid) && !self.me().again {
            return self.add("voids leases first", self.me().at, |state, backend| {
                void(state, None);
                backend.again = true;
            });
        }
        self.add("marks", next, |state, backend| {
            backend.again = false;
            backend.marked = true;
            state.words[words].pend += 1;
            state.words[words].ver += 1;
            if key && m.keeps(Clause::MarkVoids) {
                void(state, None);
            }
        });
    }

    fn void_all(&mut self, next: At) {
        let voids = self.m.keeps(Clause::MarkVoids);
        self.add("voids the leases of the cache", next, |state, _| {
            if voids {
                void(state, None);
            }
        });
    }

    /// Under the latest snapshot. A row that is being changed or removed is waited for in any case.
    fn remove(&mut self, next: At) {
        let unseen = self.others().any(|other| other.row.is_some());
        let there = self.from.row.is_some();
        let locked = there && (unseen || self.others().any(removes));
        if locked || unseen && self.m.keeps(Clause::RemovalWaits) {
            return;
        }
        self.add("removes the row, if it sees one", next, |_, backend| {
            backend.holds = there;
        });
    }
}
