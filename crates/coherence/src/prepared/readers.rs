//! The steps of readers of table entries, and of fetchers of entries that depend on key 0.

use super::lowering::is_locked;
use super::model::{Clause, FetcherKind, Lease, Moves, Phase, Record};

impl Moves<'_> {
    fn pends(&self) -> bool {
        self.from.stripe.pending_writers > 0
            || self.from.slot.words.pending_writers > 0
            || self.from.slot.unproven
    }

    /// Adds the step that checks whether a mark or a suspension is outdated. Returns true if this check is the actor's
    /// next step.
    fn checks(&mut self) -> bool {
        let again = self.me().at;
        if self.from.slot.unproven && !is_locked(self.from) {
            self.add(
                "sees no lock of a recovered transaction",
                again,
                |state, _| {
                    state.slot.unproven = false;
                },
            );
            return true;
        }
        if self.me().has_checked || self.from.record != Record::Standing || !self.decided() {
            return false;
        }
        self.add("finds it decided", Phase::Claiming, |_, backend| {
            backend.has_checked = true;
            backend.then = again;
        });
        true
    }

    pub fn reader(&mut self, key: usize) {
        let early = !self.m.keeps(Clause::SnapshotAfterQuestion);
        match self.me().at {
            Phase::Begin if self.from.entries[key].is_some() && self.hits(key) => {
                self.add("hits", Phase::Done, |_, _| {});
            }
            Phase::Begin => self.add("misses", Phase::Requesting, |state, backend| {
                backend.snapshot = early.then_some(state.rows[key]);
            }),
            Phase::Requesting if self.pends() => self.check_or_give_up(),
            Phase::Requesting if !self.from.slot.there => {
                self.add("has no slot", Phase::Done, |_, _| {})
            }
            Phase::Requesting => self.add("takes a token", Phase::Reading, |state, backend| {
                backend.token = [state.stripe.ver, state.slot.words.ver];
            }),
            Phase::Reading => self.add(
                "takes a snapshot, if it has none",
                Phase::Filling,
                |state, backend| {
                    backend.read = backend.snapshot.unwrap_or(state.rows[key]);
                },
            ),
            Phase::Filling => {
                let token = [self.from.stripe.ver, self.from.slot.words.ver];
                let holds = token == self.me().token && !self.pends() && self.from.slot.there;
                let read = self.me().read;
                match holds {
                    true => self.add("fills", Phase::Done, |state, _| {
                        state.entries[key] = Some((read, state.slot.words.ver));
                    }),
                    false => self.add("may not fill", Phase::Done, |_, _| {}),
                }
            }
            _ => {}
        }
    }

    fn check_or_give_up(&mut self) {
        if !self.checks() {
            self.add("reads the row, and fills nothing", Phase::Done, |_, _| {});
        }
    }

    fn hits(&self, key: usize) -> bool {
        let valid = |entry: (u8, u8)| entry.1 == self.from.slot.words.ver;
        self.from.slot.there && self.from.entries[key].is_some_and(valid)
    }

    pub fn fetcher(&mut self, kind: FetcherKind) {
        let id = self.actor as u8;
        match self.me().at {
            Phase::Begin => self.add("misses", Phase::Requesting, |_, _| {}),
            Phase::Requesting => self.request(kind),
            Phase::Reading => self.add("reads key 0", Phase::Storing, |state, backend| {
                backend.read = state.rows[0];
            }),
            Phase::Storing if kind == FetcherKind::Memory => self.store_in_memory(),
            Phase::Storing => self.store(kind),
            Phase::Checking => {
                let holds = match kind {
                    FetcherKind::Untracked => self.token_holds(),
                    _ => self.from.lease == Lease::Stored(id),
                };
                match holds {
                    true => self.add("may store", Phase::Committed, |_, _| {}),
                    false => self.add("takes its row back", Phase::Committed, |_, backend| {
                        backend.row = None;
                    }),
                }
            }
            Phase::Committed => self.add("commits and has ended", Phase::Done, |state, backend| {
                if let Some(row) = backend.row {
                    state.dependent = Some(row);
                }
                release(&mut state.lease, id);
            }),
            _ => {}
        }
    }

    fn request(&mut self, kind: FetcherKind) {
        let id = self.actor as u8;
        let clause = match kind {
            FetcherKind::Untracked => Clause::NoStoreWhilePending,
            _ => Clause::NoLeaseWhilePending,
        };
        let client = kind == FetcherKind::Memory;
        let refused = self.pends() && self.m.keeps(clause);
        if self.pends() && self.checks() {
            return;
        }
        match kind {
            // The lease is void from the start, because the check that ends the suspension voids no lease.
            _ if client && self.from.slot.unproven => {
                self.add(
                    "wins a lease that is void from the start",
                    Phase::Done,
                    |_, _| {},
                );
            }
            _ if refused && !client => {
                self.add("loads, and stores nothing", Phase::Done, |_, _| {})
            }
            FetcherKind::Untracked => {
                self.add("takes a token", Phase::Reading, |state, backend| {
                    backend.token = [state.stripe.ver, state.slot.words.ver];
                })
            }
            _ if self.from.lease != Lease::Free => {
                self.add("is not the one", Phase::Done, |_, _| {});
            }
            _ => self.add("wins the lease", Phase::Reading, |state, _| {
                state.lease = Lease::Computing(id);
            }),
        }
    }

    fn token_holds(&self) -> bool {
        let refused = self.pends() && self.m.keeps(Clause::NoStoreWhilePending);
        [self.from.stripe.ver, self.from.slot.words.ver] == self.me().token && !refused
    }

    /// Stores in a table: first writes the row, then checks the lease. Waits while another transaction removes or
    /// writes the row.
    fn store(&mut self, kind: FetcherKind) {
        let (id, read) = (self.actor as u8, self.me().read);
        let leased = kind == FetcherKind::Leased;
        if leased && ![Lease::Computing(id), Lease::Stored(id)].contains(&self.from.lease) {
            return self.add("finds its lease void", Phase::Committed, |_, _| {});
        }
        if leased && self.from.lease == Lease::Computing(id) {
            return self.add("says that it stores", Phase::Storing, |state, _| {
                state.lease = Lease::Stored(id);
            });
        }
        let in_the_way =
            self.from.transaction.removes || self.others().any(|other| other.row.is_some());
        if !in_the_way {
            self.add("writes the row", Phase::Checking, |_, backend| {
                backend.row = Some(read);
            });
        } else {
            self.add("gives up waiting", Phase::Committed, |_, _| {});
        }
    }

    /// Stores in one step under the partition lock.
    fn store_in_memory(&mut self) {
        let (id, read) = (self.actor as u8, self.me().read);
        let fenced = self.from.fences > 0
            || self.from.slot.words.pending_writers > 0
            || self.from.slot.unproven;
        let stores = self.from.lease == Lease::Computing(id) && !fenced;
        let verb = match stores {
            true => "stores",
            false => "stores nothing",
        };
        self.add(verb, Phase::Done, |state, _| {
            if stores {
                state.memory = Some(read);
            }
            release(&mut state.lease, id);
        });
    }
}

fn release(lease: &mut Lease, id: u8) {
    let by = [
        Lease::Computing(id),
        Lease::Stored(id),
        Lease::StoredVoid(id),
    ];
    if by.contains(lease) {
        *lease = Lease::Free;
    }
}
