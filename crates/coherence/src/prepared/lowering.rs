//! The steps that undo the marks of a record, which any process may take, and the restart of the server.

use super::model::{
    Actor, Backend, Clause, Lease, Marks, Model, Moves, Phase, Record, Slot, State,
};

impl Moves<'_> {
    /// Returns whether this model treats the transaction as decided; without a clause it trusts the commit log or the
    /// list of prepared transactions.
    pub fn decided(&self) -> bool {
        let transaction = &self.from.transaction;
        let by_log = !self.m.keeps(Clause::ChecksProgressNotLog) && transaction.in_log;
        let by_list = !self.m.keeps(Clause::ChecksProgressNotList) && !transaction.listed;
        !transaction.in_progress || by_log || by_list
    }

    /// Adds the steps of a process that undoes the record's marks. Returns false if this actor is not undoing a record.
    pub fn lowers(&mut self) -> bool {
        let (m, then) = (self.m, self.me().then);
        let void_first = m.keeps(Clause::VoidBeforeFence);
        let fenced = match void_first {
            true => Phase::LoweringSlot,
            false => Phase::LoweringKey,
        };
        let keyed = match void_first {
            true => Phase::LoweringFence,
            false => Phase::LoweringSlot,
        };
        let first = match void_first {
            true => Phase::LoweringKey,
            false => Phase::LoweringFence,
        };
        let marks = self.from.marks;
        match self.me().at {
            Phase::Claiming => {
                let aborts = matches!(m.actors[self.actor], Actor::Preparer(_));
                let claims = m.keeps(match aborts {
                    true => Clause::AbortClaims,
                    false => Clause::LoweringClaims,
                });
                let free = match claims {
                    true => self.from.record == Record::Standing,
                    false => self.from.record != Record::Free,
                };
                match free {
                    true => self.add("claims the record", first, |state, _| {
                        state.record = Record::Lowering;
                    }),
                    false => self.add("finds it lowered, or being lowered", then, |_, _| {}),
                }
            }
            Phase::LoweringKey => self.add("lowers the key's mark", keyed, |state, _| {
                if marks.key {
                    state.stripe.ver += 1;
                    state.stripe.pending_writers -= 1;
                    void(&mut state.lease);
                }
            }),
            Phase::LoweringFence => self.add("lowers the fence", fenced, |state, _| {
                state.fences -= i8::from(marks.fence);
            }),
            Phase::LoweringSlot => {
                self.add("lowers the cache's mark", Phase::Freeing, |state, _| {
                    if marks.slot {
                        state.slot.words.pending_writers -= 1;
                        void(&mut state.lease);
                    }
                })
            }
            Phase::Freeing => {
                let frees = self.from.transaction.committed && self.from.relation_gone;
                let frees = frees && m.keeps(Clause::DropFreesSlot);
                self.add("frees the record", then, |state, _| {
                    state.record = Record::Free;
                    state.marks = Marks::default();
                    if frees {
                        state.slot.there = false;
                    }
                });
            }
            _ => return false,
        }
        true
    }
}

/// Voids a lease. If the holder has already stored, the lease's record remains and is void.
pub fn void(lease: &mut Lease) {
    *lease = match *lease {
        Lease::Computing(_) => Lease::Free,
        Lease::Stored(by) | Lease::StoredVoid(by) => Lease::StoredVoid(by),
        Lease::Free => Lease::Free,
    };
}

/// Returns whether a transaction holds the cache's lock. It takes the lock before its marks and keeps it until after
/// its decision.
pub fn is_locked(state: &State) -> bool {
    state.transaction.listed
}

/// Returns the state after a restart. Shared memory is empty; the prepared transaction and its entry in the commit
/// log survive.
pub fn restarted(m: &Model, from: &State) -> State {
    let mut state = *from;
    state.restarted = true;
    state.entries = [None; super::model::KEYS];
    state.stripe = Default::default();
    state.fences = 0;
    state.memory = None;
    state.lease = Lease::Free;
    state.record = Record::Free;
    state.marks = Marks::default();
    let transaction = &mut state.transaction;
    let survives = transaction.listed && !transaction.ended;
    if transaction.in_log && transaction.in_progress {
        state.rows[0] = 1;
        end(&mut state);
    } else if !survives && !transaction.ended && transaction.in_progress {
        *transaction = super::model::Transaction {
            ended: true,
            ..Default::default()
        };
    }
    state.slot = Slot {
        there: true,
        unproven: m.keeps(Clause::RestartSuspends),
        ..Slot::default()
    };
    for (actor, backend) in state.backends.iter_mut().enumerate() {
        let at = match m.actors.get(actor) {
            Some(Actor::Reader(_) | Actor::Fetcher(_)) => Phase::Begin,
            Some(Actor::Finisher) if survives && state.transaction.in_progress => Phase::Begin,
            _ => Phase::Done,
        };
        *backend = Backend {
            at,
            ..Backend::default()
        };
    }
    state
}

/// Ends the transaction: it is committed and visible, and has released its locks.
fn end(state: &mut State) {
    let transaction = &mut state.transaction;
    if transaction.removes {
        state.dependent = None;
    }
    *transaction = super::model::Transaction {
        in_log: true,
        committed: true,
        ended: true,
        ..Default::default()
    };
}
