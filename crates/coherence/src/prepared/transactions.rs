//! The steps of the writers: the transaction that is prepared, the session that decides it, and an ordinary
//! transaction.

use super::lowering::void;
use super::model::{Change, Clause, Moves, Phase, Record};

impl Moves<'_> {
    pub fn preparer(&mut self, change: Change) {
        let m = self.m;
        match self.me().at {
            Phase::Begin if change == Change::DropsTheCache => self.add(
                "has a record, and marks the cache",
                Phase::Preparing,
                |state, _| {
                    state.record = Record::Standing;
                    state.marks.slot = true;
                    state.slot.words.pending_writers += 1;
                    state.slot.words.ver += 1;
                },
            ),
            Phase::Begin => self.add("has a record, and fences", Phase::Marking, |state, _| {
                state.record = Record::Standing;
                state.marks.fence = true;
                state.fences += 1;
                state.memory = None;
            }),
            Phase::Marking => self.add("marks its key", Phase::Removing, |state, _| {
                state.marks.key = true;
                state.stripe.pending_writers += 1;
                state.stripe.ver += 1;
                state.entries[0] = None;
                void(&mut state.lease);
            }),
            // The removal waits for another transaction's uncommitted row.
            Phase::Removing => {
                let waits = self.others().any(|other| other.row.is_some());
                let next = match change {
                    Change::ManyRows => Phase::Overflowing,
                    _ => Phase::Preparing,
                };
                let there = self.from.dependent.is_some();
                if !waits {
                    self.add("removes what depends on it", next, |state, _| {
                        state.transaction.removes = there;
                    });
                }
            }
            Phase::Overflowing => {
                let stands = m.keeps(Clause::OverflowStands);
                self.add(
                    "has no room: the cache is marked for the key and the fence",
                    Phase::Preparing,
                    |state, _| {
                        state.marks.slot = stands;
                        state.marks.key = false;
                        state.marks.fence = false;
                        state.slot.words.pending_writers += i8::from(stands);
                        state.stripe.pending_writers -= 1;
                        state.stripe.ver += 1;
                        state.fences -= 1;
                    },
                );
            }
            Phase::Preparing => {
                let (marks, fence) = (m.keeps(Clause::MarksStand), m.keeps(Clause::FenceStands));
                self.add("is prepared", Phase::Done, |state, _| {
                    state.transaction.listed = true;
                    if !marks && state.marks.key {
                        state.marks.key = false;
                        state.stripe.pending_writers -= 1;
                        state.stripe.ver += 1;
                    }
                    if !fence && state.marks.fence {
                        state.marks.fence = false;
                        state.fences -= 1;
                    }
                });
            }
            _ => {}
        }
        let open = [
            Phase::Marking,
            Phase::Removing,
            Phase::Overflowing,
            Phase::Preparing,
        ];
        if open.contains(&self.me().at) {
            self.add("rolls back", Phase::Claiming, |state, backend| {
                state.transaction.in_progress = false;
                state.transaction.removes = false;
                state.transaction.ended = true;
                backend.then = Phase::Done;
            });
        }
    }

    pub fn finisher(&mut self) {
        let transaction = self.from.transaction;
        match self.me().at {
            Phase::Begin if transaction.ended => {
                self.add("has nothing to do", Phase::Done, |_, _| {})
            }
            Phase::Begin if transaction.listed => {
                self.add(
                    "writes COMMIT PREPARED to the log",
                    Phase::Logged,
                    |state, _| {
                        state.transaction.in_log = true;
                    },
                );
                self.add("rolls it back", Phase::Visible, |state, _| {
                    state.transaction.in_progress = false;
                    state.transaction.removes = false;
                });
            }
            Phase::Logged => {
                let drops = self.drops();
                self.add("makes it visible", Phase::Visible, |state, _| {
                    state.transaction.in_progress = false;
                    state.transaction.committed = true;
                    match drops {
                        true => state.relation_gone = true,
                        false => state.rows[0] = 1,
                    }
                    if std::mem::take(&mut state.transaction.removes) {
                        state.dependent = None;
                    }
                });
            }
            Phase::Visible => self.add("lets its locks go", Phase::Claiming, |state, backend| {
                state.transaction.listed = false;
                state.transaction.ended = true;
                backend.then = Phase::Done;
            }),
            _ => {}
        }
    }

    fn drops(&self) -> bool {
        use super::model::Actor::Preparer;
        self.m.actors.contains(&Preparer(Change::DropsTheCache))
    }

    /// Runs an ordinary transaction that writes key 1.
    pub fn writer(&mut self) {
        let gone = self.drops(); // DROP's lock keeps this writer out until the table is gone
        match self.me().at {
            Phase::Begin if gone => self.add("writes nothing", Phase::Done, |_, _| {}),
            Phase::Begin => self.add("marks its key", Phase::Committing, |state, _| {
                state.stripe.pending_writers += 1;
                state.stripe.ver += 1;
                state.entries[1] = None;
            }),
            Phase::Committing => {
                self.add("commits", Phase::Unmarking, |state, _| state.rows[1] = 1)
            }
            Phase::Unmarking => self.add("unmarks", Phase::Done, |state, _| {
                state.stripe.pending_writers -= 1;
                state.stripe.ver += 1;
            }),
            _ => {}
        }
    }
}
