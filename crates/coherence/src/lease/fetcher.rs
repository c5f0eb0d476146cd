//! Every step of a fetcher: a lease or a token, the reading of the source, the store, and its commit or rollback.

use super::model::{Actor, At, Clause, EXPIRED, Lease, Way};
use super::moves::{Moves, release, removes, unmark, void};

impl Moves<'_> {
    pub fn fetcher(&mut self, way: Way) {
        let (m, me) = (self.m, *self.me());
        match me.at {
            At::Begin if self.from.row.is_some_and(|row| row != EXPIRED) => {
                self.add("finds an entry", At::Done, |_, _| {});
            }
            At::Begin => self.add(
                "misses, and has this snapshot",
                At::Asking,
                |state, backend| {
                    backend.snapshot = state.source;
                },
            ),
            At::Asking if way == Way::Untracked => self.take_token(),
            At::Asking => self.ask(),
            At::Reading => {
                let early = m.keeps(Clause::TokenBeforeSnapshot);
                let next = match way {
                    Way::Untracked if !early => At::LateToken,
                    Way::Untracked if !m.keeps(Clause::TokenAsksAfter) => At::EarlyCheck,
                    _ if way != Way::Untracked && !m.keeps(Clause::StoreAsksAfter) => {
                        At::EarlyCheck
                    }
                    _ => At::Storing,
                };
                self.add("reads the source", next, |state, backend| {
                    backend.read = match way {
                        Way::RepeatableRead => backend.snapshot,
                        _ => state.source,
                    };
                });
            }
            At::LateToken => self.take_token(),
            At::EarlyCheck => self.check(way, At::Storing, At::OwnMark),
            At::Storing => self.store(way),
            At::Checking => self.check(way, At::OwnMark, At::OwnMark),
            At::OwnMark => self.own_mark(),
            At::OwnCommit => self.add(
                "commits: others see its row",
                At::OwnUnmark,
                |state, backend| {
                    if let Some(row) = backend.row.take() {
                        state.row = Some(row);
                    }
                },
            ),
            At::OwnUnmark => self.own_unmark(),
            _ => {}
        }
        self.roll_back(way);
    }

    fn pending(&self, clauses: [Clause; 3]) -> bool {
        let mut words = self.from.words.iter().zip(clauses);
        words.any(|(words, clause)| words.pend > 0 && self.m.keeps(clause))
    }

    fn ask(&mut self) {
        let id = self.actor as u8;
        let all = [
            Clause::GrantStripePend,
            Clause::GrantCachePend,
            Clause::GrantGlobalPend,
        ];
        if self.from.lease != Lease::Free {
            return self.add("is not the one, and loads only", At::Done, |_, _| {});
        }
        if self.pending(all) {
            return self.add("is granted no lease, and loads only", At::Done, |_, _| {});
        }
        let old = self.m.cast[self.actor] == Actor::Fetcher(Way::RepeatableRead)
            && self.m.keeps(Clause::OldSnapshotStoresNothing)
            && self.me().snapshot != self.from.source;
        if old {
            return self.add("has an old snapshot, and loads only", At::Done, |_, _| {});
        }
        self.add("wins the lease", At::Reading, |state, backend| {
            state.lease = Lease::Computing(id);
            backend.holds = true;
        });
    }

    fn take_token(&mut self) {
        let late = self.me().at == At::LateToken;
        if self.pending([Clause::TokenPend; 3]) {
            return self.add("gets no token, and loads only", At::Done, |_, _| {});
        }
        let next = if late { At::Storing } else { At::Reading };
        self.add("takes a token", next, |state, backend| {
            backend.token = state.words.map(|words| words.ver);
        });
    }

    fn store(&mut self, way: Way) {
        let (id, read) = (self.actor as u8, self.me().read);
        let leased = way != Way::Untracked;
        let mine = [Lease::Computing(id), Lease::Stored(id)].contains(&self.from.lease);
        if leased && !mine && self.m.keeps(Clause::StoreAsksAfter) {
            return self.add("finds its lease void", At::OwnMark, |_, _| {});
        }
        let in_the_way = self
            .others()
            .any(|other| other.row.is_some() || removes(other));
        if leased && self.from.lease == Lease::Computing(id) {
            return self.add("says that it stores", At::Storing, |state, _| {
                state.lease = Lease::Stored(id);
            });
        }
        if in_the_way {
            return; // for the other's row
        }
        let asked = match way {
            Way::Untracked => Clause::TokenAsksAfter,
            _ => Clause::StoreAsksAfter,
        };
        let next = match self.m.keeps(asked) {
            true => At::Checking,
            false => At::OwnMark,
        };
        self.add("writes the row", next, |_, backend| {
            backend.row = Some(read)
        });
    }

    fn check(&mut self, way: Way, good: At, bad: At) {
        let (id, token) = (self.actor as u8, self.me().token);
        let holds = match way {
            Way::Untracked => {
                let kept = [Clause::TokenStripe, Clause::TokenCache, Clause::TokenGlobal];
                let mut words = self.from.words.iter().zip(token).zip(kept);
                words.all(|((words, ver), clause)| words.ver == ver || !self.m.keeps(clause))
            }
            _ => [Lease::Stored(id), Lease::Computing(id)].contains(&self.from.lease),
        };
        match holds {
            true => self.add("may store", good, |_, _| {}),
            false => self.add("must not store", bad, |_, backend| backend.row = None),
        }
    }

    /// As any writer of a table cache; its own lease is not meant.
    fn own_mark(&mut self) {
        let id = self.actor as u8;
        if self.me().row.is_none() {
            return self.add("has nothing to commit", At::OwnUnmark, |_, _| {});
        }
        self.add("marks its key", At::OwnCommit, |state, backend| {
            backend.marked = true;
            state.words[0].pend += 1;
            state.words[0].ver += 1;
            void(state, Some(id));
        });
    }

    fn own_unmark(&mut self) {
        let id = self.actor as u8;
        self.add(
            "unmarks, ends its lease and has ended",
            At::Done,
            |state, backend| {
                if backend.marked {
                    state.words[0].pend -= 1;
                    state.words[0].ver += 1;
                    void(state, Some(id));
                }
                release(state, id);
            },
        );
    }

    fn roll_back(&mut self, way: Way) {
        let (id, me) = (self.actor as u8, *self.me());
        let kept = self.m.keeps(Clause::TakenBackUnlessVoid);
        let open = [
            At::Reading,
            At::Storing,
            At::Checking,
            At::OwnMark,
            At::OwnCommit,
        ];
        if !open.contains(&me.at) {
            return;
        }
        if way == Way::Client && !me.again && me.row.is_some() {
            return self.add(
                "rolls back, and will store again",
                At::Storing,
                |state, backend| {
                    backend.again = true;
                    backend.row = None;
                    unmark(state, backend);
                    state.lease = match state.lease {
                        Lease::Stored(by) if by == id => Lease::Computing(id),
                        Lease::StoredVoid(by) if by == id && !kept => Lease::Computing(id),
                        Lease::StoredVoid(by) if by == id => Lease::Free,
                        other => other,
                    };
                },
            );
        }
        self.add("rolls back", At::Done, |state, backend| {
            unmark(state, backend);
            release(state, id);
        });
    }
}
