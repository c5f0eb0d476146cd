//! Every step that an actor can take.

use super::model::{Actor, At, Backend, Clause, EXPIRED, Extent, Lease, Model, State, Way};

/// What a step was, for the trace.
pub type Event = (usize, &'static str);

pub struct Moves<'a> {
    m: &'a Model,
    from: &'a State,
    actor: usize,
    out: &'a mut Vec<(Event, State)>,
}

pub fn successors(m: &Model, from: &State, out: &mut Vec<(Event, State)>) {
    out.clear();
    for (actor, kind) in m.cast.iter().enumerate() {
        let mut moves = Moves {
            m,
            from,
            actor,
            out,
        };
        match kind {
            Actor::Writer(extent) => moves.writer(*extent),
            Actor::Fetcher(way) => moves.fetcher(*way),
        }
    }
}

fn place(extent: Extent) -> usize {
    extent as usize
}

impl Moves<'_> {
    fn add(&mut self, verb: &'static str, at: At, change: impl FnOnce(&mut State, &mut Backend)) {
        let mut state = *self.from;
        let mut backend = state.backends[self.actor];
        backend.at = at;
        change(&mut state, &mut backend);
        if at == At::Done {
            backend = Backend {
                at,
                ..Backend::default()
            };
        }
        state.backends[self.actor] = backend;
        self.out.push(((self.actor, verb), state));
    }

    fn me(&self) -> &Backend {
        &self.from.backends[self.actor]
    }

    fn others(&self) -> impl Iterator<Item = &Backend> {
        let me = self.actor;
        let backends = self.from.backends.iter().enumerate();
        backends.filter_map(move |(actor, backend)| (actor != me).then_some(backend))
    }

    fn writer(&mut self, extent: Extent) {
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
                        state.words[words].pending_writers -= 1;
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

    /// One section for a key; for a cache `pending_writers` and `ver` here, leases before or after it.
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
            state.words[words].pending_writers += 1;
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

    fn fetcher(&mut self, way: Way) {
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
            state.words[0].pending_writers += 1;
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
                    state.words[0].pending_writers -= 1;
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

/// A writer has removed the committed row and not ended.
fn removes(backend: &Backend) -> bool {
    use At::*;
    backend.holds
        && matches!(
            backend.at,
            Committing | LateMarking | LateVoiding | Removing
        )
}

fn unmark(state: &mut State, backend: &mut Backend) {
    if std::mem::take(&mut backend.marked) {
        state.words[0].pending_writers -= 1;
        state.words[0].ver += 1;
    }
}

/// All but one's own that it has stored under.
fn void(state: &mut State, own: Option<u8>) {
    state.lease = match state.lease {
        Lease::Stored(by) if Some(by) != own => Lease::StoredVoid(by),
        Lease::Computing(_) => Lease::Free,
        other => other,
    };
}

fn release(state: &mut State, id: u8) {
    let by = [
        Lease::Computing(id),
        Lease::Stored(id),
        Lease::StoredVoid(id),
    ];
    if by.contains(&state.lease) {
        state.lease = Lease::Free;
    }
}
