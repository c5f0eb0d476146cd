//! The steps of the writers, of the session that decides a prepared transaction, of the process that undoes a
//! record, and of sessions that fill copies.

use super::model::{
    Actor, Backend, Change, Clause, Invalidation, Moves, Phase, Record, State, Violation,
};

impl Moves<'_> {
    /// Returns the steps of a commit, in their order.
    fn order(&self, change: Change) -> Vec<Phase> {
        use Phase::*;
        if change == Change::RolledBack {
            return match self.m.keeps(Clause::RollbackSilent) {
                true => vec![Marking, Unmarking, Answering],
                false => vec![Marking, Recording, Unmarking, Answering],
            };
        }
        if !self.m.keeps(Clause::RecordedAfterVisible) {
            return vec![Marking, Recording, Showing, Unmarking, Answering];
        }
        if !self.m.keeps(Clause::RecordedBeforeUnmark) {
            return vec![Marking, Showing, Unmarking, Recording, Answering];
        }
        if !self.m.keeps(Clause::RecordedBeforeAck) {
            return vec![Marking, Showing, Unmarking, Answering, Recording];
        }
        vec![Marking, Showing, Recording, Unmarking, Answering]
    }

    fn after(&self, change: Change, phase: Phase) -> Phase {
        let order = self.order(change);
        let at = order.iter().position(|other| *other == phase);
        let next = at.and_then(|at| order.get(at + 1));
        *next.unwrap_or(&Phase::Done)
    }

    /// Returns whether the rows are locked: another writer has changed them and has not ended.
    fn is_locked(&self) -> bool {
        let mut others = self.m.actors.iter().zip(&self.from.backends).enumerate();
        others.any(|(actor, (kind, backend))| {
            let writes = matches!(kind, Actor::Writer(_));
            actor != self.actor && writes && ![Phase::Begin, Phase::Done].contains(&backend.at)
        })
    }

    pub fn writer(&mut self, change: Change) {
        let looks_late = self.m.keeps(Clause::ChecksAfterVisible);
        let at = self.me().at;
        let next = self.after(change, at);
        match at {
            Phase::Begin if self.is_locked() => {}
            Phase::Begin => self.add("changes rows", Phase::Marking, |state, backend| {
                backend.registered = (!looks_late).then_some(state.registered);
            }),
            Phase::Marking if change == Change::Prepared => {
                self.add("marks, and is prepared", Phase::Done, |state, _| {
                    state.mark();
                    state.record = Record::Standing;
                });
            }
            Phase::Marking => self.add("marks", next, |state, _| state.mark()),
            Phase::Showing => self.add("is visible", next, |state, backend| {
                state.rows[0] += 1;
                state.rows[1] += u8::from(change != Change::Savepoint);
                state.unrecorded += u8::from(backend.recorded == 0);
            }),
            Phase::Recording => self.append_record(change, next),
            Phase::Unmarking => self.add("unmarks", next, |state, _| state.unmark()),
            Phase::Answering => self.add("is acknowledged", next, |state, _| {
                state.acknowledged = state.rows;
            }),
            _ => {}
        }
    }

    fn records(&self, change: Change) -> &'static [Invalidation] {
        match change {
            Change::Whole => &[Invalidation::All],
            Change::Savepoint if self.m.keeps(Clause::SavepointSilent) => &[Invalidation::Key(0)],
            _ => &[Invalidation::Key(0), Invalidation::Key(1)],
        }
    }

    fn append_record(&mut self, change: Change, next: Phase) {
        let (records, recorded) = (self.records(change), self.me().recorded as usize);
        let is_nothing = match change {
            Change::RolledBack => true,
            Change::Savepoint => records[recorded] != Invalidation::Key(0),
            _ => false,
        };
        let at = match recorded + 1 == records.len() {
            true => next,
            false => Phase::Recording,
        };
        self.add("records a change", at, |state, backend| {
            backend.recorded += 1;
            if *backend.registered.get_or_insert(state.registered) {
                state.append(records[recorded]);
                if is_nothing {
                    state.break_by(Violation::InvalidatedForNothing);
                }
            }
            if at == next {
                state.unrecorded = state.unrecorded.saturating_sub(1);
            }
        });
    }

    /// Adds the steps of COMMIT PREPARED: it undoes the record, or waits for the process that does.
    pub fn finisher(&mut self) {
        let waits = self.m.keeps(Clause::FinisherWaits);
        match (self.me().at, self.from.record) {
            (Phase::Begin, record) if record == Record::Standing || self.m.recovered => {
                let next = match self.m.recovered {
                    true => Phase::Answering,
                    false => Phase::Claiming,
                };
                self.add("is visible", next, |state, _| {
                    state.rows = state.rows.map(|row| row + 1);
                    state.unrecorded += u8::from(next == Phase::Claiming);
                    state.decided = true;
                });
            }
            (Phase::Claiming, Record::Claimed) if waits => {}
            (Phase::Claiming, Record::Claimed | Record::Freed) => {
                self.add("finds the record lowered", Phase::Answering, |_, _| {});
            }
            (Phase::Answering, _) => self.add("is acknowledged", Phase::Done, |state, _| {
                state.acknowledged = state.rows;
                state.unproven = false;
            }),
            _ => self.lowers(Phase::Answering),
        }
    }

    /// Adds the steps of a process that undoes the record if the finisher has not done so.
    pub fn lowerer(&mut self) {
        match self.me().at {
            Phase::Begin if self.from.decided && self.from.record == Record::Standing => {
                self.add("finds the record decided", Phase::Claiming, |_, _| {});
            }
            Phase::Begin if self.from.record == Record::Freed => {
                self.add("meets no record", Phase::Done, |_, _| {});
            }
            Phase::Begin if self.from.record == Record::Claimed => {}
            Phase::Claiming if self.from.record != Record::Standing => {
                self.add("is not the one", Phase::Done, |_, _| {});
            }
            _ => self.lowers(Phase::Done),
        }
    }

    fn lowers(&mut self, then: Phase) {
        let invalidates = self.m.keeps(Clause::RecordInvalidates);
        match self.me().at {
            Phase::Claiming => self.add("claims the record", Phase::Recording, |state, _| {
                state.record = Record::Claimed;
            }),
            Phase::Recording => self.add("records everything", Phase::Unmarking, |state, _| {
                if invalidates && state.registered {
                    state.append(Invalidation::All);
                }
                state.unrecorded -= 1;
            }),
            Phase::Unmarking => self.add("unmarks", Phase::Freeing, |state, _| state.unmark()),
            Phase::Freeing => self.add("frees the record", then, |state, _| {
                state.record = Record::Freed;
            }),
            _ => {}
        }
    }

    pub fn filler(&mut self, key: usize) {
        let fill = |state: &mut State, backend: &mut Backend| {
            state.fill(key, backend.read, backend.token);
        };
        match self.me().at {
            Phase::Begin => self.add("takes a token", Phase::Reading, |state, backend| {
                backend.token = state.token();
            }),
            Phase::Reading => self.add("reads the row", Phase::Filling, |state, backend| {
                backend.read = state.rows[key];
            }),
            Phase::Filling => self.add("makes a copy, or not", Phase::Done, fill),
            _ => {}
        }
    }
}
