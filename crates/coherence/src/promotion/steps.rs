//! The steps of each actor in the promotion model.

use super::model::{Actor, Clause, Entry, Model, Moves, Phase, State, Violation};
impl Moves<'_> {
    pub fn replay(&mut self) {
        if self.me().at == Phase::Done {
            return;
        }
        if self.from.in_recovery {
            self.add("replays a change of the source", Phase::Done, |state, _| {
                state.source += 1
            });
        } else {
            self.add("has nothing to replay", Phase::Done, |_, _| {});
        }
    }

    pub fn promote(&mut self) {
        if self.me().at == Phase::Begin {
            self.add("ends the recovery", Phase::Done, |state, _| {
                state.in_recovery = false
            });
        }
    }

    /// Adds the steps of a writer of a source: it sets the mark and removes the entry, commits, and removes the mark.
    pub fn write(&mut self) {
        let m = self.m;
        match self.me().at {
            // Writes nothing before the promotion.
            Phase::Begin if self.from.in_recovery => {}
            Phase::Begin => self.add(
                "marks and removes the entry",
                Phase::Committing,
                |state, _| {
                    state.marks += 1;
                    if m.depends {
                        state.entry = None;
                    }
                    if m.keeps(Clause::MarkVoids) {
                        let backends = state.backends.iter_mut();
                        backends.for_each(|backend| backend.holds = false);
                    }
                },
            ),
            Phase::Committing => {
                self.add("commits", Phase::Unmarking, |state, _| state.source += 1)
            }
            Phase::Unmarking => self.add("unmarks", Phase::Done, |state, _| state.marks -= 1),
            _ => {}
        }
    }

    /// Adds the steps of a call on the cache: open the slot if necessary, and look up the key. On a miss, a fetcher
    /// loads the value. A setter stores its value without a lookup.
    pub fn call(&mut self, kind: Actor) {
        let (m, me) = (self.m, self.me());
        let opens = !self.from.in_recovery
            && self.from.recovered
            && (kind != Actor::Front || m.keeps(Clause::FrontChecks));
        match me.at {
            Phase::Begin => self.add("begins", Phase::Looking, |state, backend| {
                backend.in_recovery = state.in_recovery;
                backend.oldest = state.source;
            }),
            Phase::Looking | Phase::Storing if opens => self.open(me.at),
            Phase::Opening => self.add("removes the entries late", Phase::Looking, |state, _| {
                drop_entries(m, state);
            }),
            Phase::Looking => self.look(kind),
            Phase::Reading => self.add("reads the source", Phase::Storing, |state, backend| {
                backend.read = state.source;
            }),
            Phase::Storing => self.store(kind),
            _ => {}
        }
    }

    /// Opens the slot under the lock that assigns slots, in one step. Without [`Clause::DropBeforeOpen`], removes the
    /// entries in a second step.
    fn open(&mut self, at: Phase) {
        let m = self.m;
        if !m.keeps(Clause::DropBeforeOpen) {
            return self.add("opens the slot", Phase::Opening, |state, _| {
                state.recovered = false;
            });
        }
        self.add("opens the slot", at, |state, _| {
            drop_entries(m, state);
            state.recovered = false;
        });
    }

    fn look(&mut self, kind: Actor) {
        let (m, me) = (self.m, self.me());
        let holds = self.from.marks == 0;
        if kind == Actor::Setter {
            return self.add("is about to set", Phase::Reading, |_, _| {});
        }
        let Some(entry) = self.from.entry else {
            return match kind {
                Actor::Fetcher => {
                    self.add("misses, and watches the key", Phase::Reading, |_, me| {
                        me.holds = holds;
                    })
                }
                _ => self.add("misses", Phase::Done, |_, _| {}),
            };
        };
        let promised = entry.by_fetch || entry.in_recovery && !me.in_recovery;
        let stale = m.depends && promised && entry.made_of < me.oldest;
        self.add("finds the entry", Phase::Done, |state, _| {
            if stale {
                state.broken = Some(Violation::Stale);
            }
        });
    }

    /// Stores under the partition lock. Only a mark blocks a set by hand.
    fn store(&mut self, kind: Actor) {
        let (m, me) = (self.m, self.me());
        let by_fetch = kind == Actor::Fetcher;
        let counts = match m.keeps(Clause::LoadCarriesRecovery) {
            true => me.in_recovery,
            false => self.from.in_recovery,
        };
        let kept_off = by_fetch && m.depends && counts && m.keeps(Clause::StandbyStoresNothing);
        let void = by_fetch && !me.holds;
        let fenced = m.depends && self.from.marks > 0;
        if kept_off || void || fenced {
            return self.add("stores nothing", Phase::Done, |_, _| {});
        }
        self.add("stores", Phase::Done, |state, backend| {
            state.entry = Some(Entry {
                made_of: backend.read,
                by_fetch,
                in_recovery: state.in_recovery,
            });
            state.is_set |= !by_fetch;
        });
    }
}

fn drop_entries(m: &Model, state: &mut State) {
    let goes = match m.depends {
        true => m.keeps(Clause::OpenerDrops),
        false => !m.keeps(Clause::KeepsIndependent),
    };
    if goes {
        state.entry = None;
    }
}
