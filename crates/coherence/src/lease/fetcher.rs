//! Every step of a fetcher: a lease or a token, the reading of the source, the store, and its commit or rollback.

use super::model::{Actor, Clause, EXPIRED, FetcherKind, Lease, Phase};
use super::moves::{Moves, release, removes, unmark, void};

impl Moves<'_> {
    pub fn fetcher(&mut self, kind: FetcherKind) {
        let (m, me) = (self.m, *self.me());
        match me.at {
            Phase::Begin if self.from.row.is_some_and(|row| row != EXPIRED) => {
                self.add("finds an entry", Phase::Done, |_, _| {});
            }
            Phase::Begin => self.add(
                "misses, and has this snapshot",
                Phase::Asking,
                |state, backend| {
                    backend.snapshot = state.source;
                },
            ),
            Phase::Asking if kind == FetcherKind::Untracked => self.take_token(),
            Phase::Asking => self.ask(),
            Phase::Reading => {
                let early = m.keeps(Clause::TokenBeforeSnapshot);
                let next = match kind {
                    FetcherKind::Untracked if !early => Phase::LateToken,
                    FetcherKind::Untracked if !m.keeps(Clause::TokenAsksAfter) => Phase::EarlyCheck,
                    _ if kind != FetcherKind::Untracked && !m.keeps(Clause::StoreAsksAfter) => {
                        Phase::EarlyCheck
                    }
                    _ => Phase::Storing,
                };
                self.add("reads the source", next, |state, backend| {
                    backend.read = match kind {
                        FetcherKind::RepeatableRead => backend.snapshot,
                        _ => state.source,
                    };
                });
            }
            Phase::LateToken => self.take_token(),
            Phase::EarlyCheck => self.check(kind, Phase::Storing, Phase::OwnMark),
            Phase::Storing => self.store(kind),
            Phase::Checking => self.check(kind, Phase::OwnMark, Phase::OwnMark),
            Phase::OwnMark => self.own_mark(),
            Phase::OwnCommit => self.add(
                "commits: others see its row",
                Phase::OwnUnmark,
                |state, backend| {
                    if let Some(row) = backend.row.take() {
                        state.row = Some(row);
                    }
                },
            ),
            Phase::OwnUnmark => self.own_unmark(),
            _ => {}
        }
        self.roll_back(kind);
    }

    fn pending(&self, clauses: [Clause; 3]) -> bool {
        let mut words = self.from.words.iter().zip(clauses);
        words.any(|(words, clause)| words.pending_writers > 0 && self.m.keeps(clause))
    }

    fn ask(&mut self) {
        let id = self.actor as u8;
        let all = [
            Clause::GrantStripePend,
            Clause::GrantCachePend,
            Clause::GrantGlobalPend,
        ];
        if self.from.lease != Lease::Free {
            return self.add("is not the one, and loads only", Phase::Done, |_, _| {});
        }
        if self.pending(all) {
            return self.add(
                "is granted no lease, and loads only",
                Phase::Done,
                |_, _| {},
            );
        }
        let old = self.m.actors[self.actor] == Actor::Fetcher(FetcherKind::RepeatableRead)
            && self.m.keeps(Clause::OldSnapshotStoresNothing)
            && self.me().snapshot != self.from.source;
        if old {
            return self.add(
                "has an old snapshot, and loads only",
                Phase::Done,
                |_, _| {},
            );
        }
        self.add("wins the lease", Phase::Reading, |state, backend| {
            state.lease = Lease::Computing(id);
            backend.has_lease = true;
        });
    }

    fn take_token(&mut self) {
        let late = self.me().at == Phase::LateToken;
        if self.pending([Clause::TokenPend; 3]) {
            return self.add("gets no token, and loads only", Phase::Done, |_, _| {});
        }
        let next = if late { Phase::Storing } else { Phase::Reading };
        self.add("takes a token", next, |state, backend| {
            backend.token = state.words.map(|words| words.ver);
        });
    }

    fn store(&mut self, kind: FetcherKind) {
        let (id, read) = (self.actor as u8, self.me().read);
        let leased = kind != FetcherKind::Untracked;
        let mine = [Lease::Computing(id), Lease::Stored(id)].contains(&self.from.lease);
        if leased && !mine && self.m.keeps(Clause::StoreAsksAfter) {
            return self.add("finds its lease void", Phase::OwnMark, |_, _| {});
        }
        let in_the_way = self
            .others()
            .any(|other| other.row.is_some() || removes(other));
        if leased && self.from.lease == Lease::Computing(id) {
            return self.add("says that it stores", Phase::Storing, |state, _| {
                state.lease = Lease::Stored(id);
            });
        }
        if in_the_way {
            return; // for the other's row
        }
        let asked = match kind {
            FetcherKind::Untracked => Clause::TokenAsksAfter,
            _ => Clause::StoreAsksAfter,
        };
        let next = match self.m.keeps(asked) {
            true => Phase::Checking,
            false => Phase::OwnMark,
        };
        self.add("writes the row", next, |_, backend| {
            backend.row = Some(read)
        });
    }

    fn check(&mut self, kind: FetcherKind, good: Phase, bad: Phase) {
        let (id, token) = (self.actor as u8, self.me().token);
        let holds = match kind {
            FetcherKind::Untracked => {
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
            return self.add("has nothing to commit", Phase::OwnUnmark, |_, _| {});
        }
        self.add("marks its key", Phase::OwnCommit, |state, backend| {
            backend.marked = true;
            state.words[0].pending_writers += 1;
            state.words[0].ver += 1;
            void(state, Some(id));
        });
    }

    fn own_unmark(&mut self) {
        let id = self.actor as u8;
        self.add(
            "unmarks, ends its lease and has ended",
            Phase::Done,
            |state, backend| {
                if backend.marked {
                    state.words[0].pending_writers -= 1;
                    state.words[0].ver += 1;
                    void(state, Some(id));
                }
                release(state, id);
            },
        );
    }

    fn roll_back(&mut self, kind: FetcherKind) {
        let (id, me) = (self.actor as u8, *self.me());
        let kept = self.m.keeps(Clause::TakenBackUnlessVoid);
        let open = [
            Phase::Reading,
            Phase::Storing,
            Phase::Checking,
            Phase::OwnMark,
            Phase::OwnCommit,
        ];
        if !open.contains(&me.at) {
            return;
        }
        if kind == FetcherKind::Client && !me.again && me.row.is_some() {
            return self.add(
                "rolls back, and will store again",
                Phase::Storing,
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
        self.add("rolls back", Phase::Done, |state, backend| {
            unmark(state, backend);
            release(state, id);
        });
    }
}
