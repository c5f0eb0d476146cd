//! The steps of a fetcher: it gets a lease or a watch, reads the source, stores the value, and commits or rolls back.

use super::model::{Clause, EXPIRED, FetcherKind, Lease, Moves, Phase};
use super::unmark_and_void::{release, removes, unmark, void};

impl Moves<'_> {
    pub fn fetcher(&mut self, kind: FetcherKind) {
        let (m, me) = (self.m, self.me());
        let id = self.actor as u8;
        let lock_first = !m.keeps(Clause::CheckLockAfter);
        match me.at {
            Phase::Begin if self.from.row.is_some_and(|row| row != EXPIRED) => {
                self.add("finds an entry", Phase::Done, |_, _| {});
            }
            Phase::Begin => {
                let late = kind == FetcherKind::Untracked && !m.keeps(Clause::WatchBeforeSnapshot);
                let next = match (late, lock_first) {
                    (true, _) => Phase::Reading,
                    (false, true) => Phase::EarlyLock,
                    (false, false) => Phase::Requesting,
                };
                self.add("misses, and has this snapshot", next, |state, backend| {
                    backend.snapshot = state.source;
                });
            }
            Phase::EarlyLock => self.check_lock(Phase::Requesting),
            Phase::Requesting => self.request(
                kind,
                match lock_first {
                    true => Phase::Reading,
                    false => Phase::CheckingLock,
                },
            ),
            Phase::CheckingLock => self.check_lock(Phase::Reading),
            Phase::Reading if self.is_old(kind) => self.add(
                "has an old snapshot, and loads only",
                Phase::Done,
                |state, _| release(state, id),
            ),
            Phase::Reading => {
                let watch = kind == FetcherKind::Untracked;
                let checks_after = match watch {
                    true => m.keeps(Clause::WatchChecksAfter),
                    false => m.keeps(Clause::StoreChecksAfter),
                };
                let next = match (watch && !m.keeps(Clause::WatchBeforeSnapshot), checks_after) {
                    (true, _) => Phase::LateWatch,
                    (false, false) => Phase::EarlyCheck,
                    (false, true) => Phase::Announcing,
                };
                self.add("reads the source", next, |state, backend| {
                    backend.read = match kind {
                        FetcherKind::RepeatableRead => backend.snapshot,
                        _ => state.source,
                    };
                });
            }
            Phase::LateWatch => self.request(kind, Phase::LateLock),
            Phase::LateLock => self.check_lock(Phase::Announcing),
            Phase::Announcing => {
                let announces = m.keeps(Clause::StoreAnnounced) && !me.announced;
                self.add("announces its store", Phase::Storing, |state, backend| {
                    if announces {
                        backend.announced = true;
                        state.begun += 1;
                        state.open += 1;
                    }
                });
            }
            Phase::EarlyCheck => self.check(kind, Phase::Announcing, Phase::OwnMark),
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

    /// Returns whether a REPEATABLE READ snapshot is outdated. The fetcher checks this after it has the lease.
    fn is_old(&self, kind: FetcherKind) -> bool {
        kind == FetcherKind::RepeatableRead
            && self.m.keeps(Clause::OldSnapshotStoresNothing)
            && self.me().snapshot != self.from.source
    }

    /// Returns whether a mark exists on the key, or on the cache in its slot.
    fn pends(&self) -> bool {
        let (m, pending, others) = (self.m, self.from.pending, self.from.others);
        let marks = pending[0] + others[0] * u8::from(!m.keeps(Clause::MarksByKey));
        marks > 0 && m.keeps(Clause::CheckMark) || pending[1] > 0 && m.keeps(Clause::CheckCachePend)
    }

    /// Ends the fetcher without a store, because of a writer.
    fn refuse(&mut self, verb: &'static str) {
        let (id, pays) = (self.actor as u8, self.m.is_alone());
        self.add(verb, Phase::Done, |state, _| {
            release(state, id);
            state.pays |= pays;
        });
    }

    /// Requests a lease in one step under the partition lock. Creates the lease's record only if no writer pends.
    fn request(&mut self, kind: FetcherKind, next: Phase) {
        let id = self.actor as u8;
        if kind != FetcherKind::Untracked && self.from.lease != Lease::Free {
            return self.add("is not the one, and loads only", Phase::Done, |_, _| {});
        }
        if self.pends() {
            return self.refuse("is refused, and loads only");
        }
        if kind == FetcherKind::Untracked {
            return self.add("watches the key", next, |_, backend| backend.watches = true);
        }
        self.add("wins the lease", next, |state, backend| {
            state.lease = Lease::Computing(id);
            backend.has_lease = true;
        });
    }

    /// Checks whether a writer without a slot holds the cache's lock. The check is a call into Postgres, without a lock
    /// of the hot tier.
    fn check_lock(&mut self, next: Phase) {
        let (m, from) = (self.m, self.from);
        let held = from.pending[2] + from.others[2] * u8::from(!m.keeps(Clause::LockByCache));
        if held > 0 && m.keeps(Clause::CheckLock) {
            return self.refuse("finds the lock held, and loads only");
        }
        self.add("finds the lock free", next, |_, _| {});
    }

    fn store(&mut self, kind: FetcherKind) {
        let (id, read) = (self.actor as u8, self.me().read);
        let leased = kind != FetcherKind::Untracked;
        let mine = [Lease::Computing(id), Lease::Stored(id)].contains(&self.from.lease);
        let pays = self.m.is_alone();
        if leased && !mine && self.m.keeps(Clause::StoreChecksAfter) {
            return self.add("finds its lease void", Phase::OwnMark, |state, _| {
                state.pays |= pays
            });
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
            return; // waits for the other actor's row
        }
        let clause = match kind {
            FetcherKind::Untracked => Clause::WatchChecksAfter,
            _ => Clause::StoreChecksAfter,
        };
        let next = match self.m.keeps(clause) {
            true => Phase::Checking,
            false => Phase::OwnMark,
        };
        self.add("writes the row", next, |_, backend| {
            backend.row = Some(read)
        });
    }

    fn check(&mut self, kind: FetcherKind, good: Phase, bad: Phase) {
        let (id, watches) = (self.actor as u8, self.me().watches);
        let pays = self.m.is_alone();
        let holds = match kind {
            FetcherKind::Untracked => watches,
            _ => [Lease::Stored(id), Lease::Computing(id)].contains(&self.from.lease),
        };
        match holds {
            true => self.add("may store", good, |_, _| {}),
            false => self.add("must not store", bad, |state, backend| {
                backend.row = None;
                state.pays |= pays;
            }),
        }
    }

    /// Marks the key as any writer of a table cache does, but does not void its own lease.
    fn own_mark(&mut self) {
        let m = self.m;
        let id = self.actor as u8;
        if self.me().row.is_none() {
            return self.add("has nothing to commit", Phase::OwnUnmark, |_, _| {});
        }
        self.add("marks its key", Phase::OwnCommit, |state, backend| {
            backend.marked = true;
            state.pending[0] += 1;
            void(m, state, Some(id));
        });
    }

    fn own_unmark(&mut self) {
        let m = self.m;
        let id = self.actor as u8;
        self.add(
            "unmarks, ends its lease and has ended",
            Phase::Done,
            |state, backend| {
                if backend.marked {
                    void(m, state, Some(id));
                }
                unmark(state, backend);
                release(state, id);
            },
        );
    }

    fn roll_back(&mut self, kind: FetcherKind) {
        let (id, me) = (self.actor as u8, self.me());
        let kept = self.m.keeps(Clause::TakenBackUnlessVoid);
        let open = [
            Phase::Reading,
            Phase::Announcing,
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
                Phase::Announcing,
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
