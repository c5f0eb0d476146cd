//! The steps of a transaction before its end (protocol rule 1): row changes, DDL and savepoints, each with the dirty
//! keys that it notes.

use super::clause::Clause;
use super::end::start_abort;
use super::model::{Model, Op, altered, value_of};
use super::moves::Moves;
use super::postgres::{Lock, xid_of};
use super::state::{Ddl, Other, Phase, State};

pub fn write_step(moves: &mut Moves, actor: usize, op: Op) {
    match op {
        Op::Set(key) => row_step(moves, actor, op, key, "sets"),
        Op::Delete(key) => row_step(moves, actor, op, key, "deletes"),
        Op::SetAltered(key) => row_step(moves, actor, op, key, "sets, and a trigger alters,"),
        Op::Change(key) => row_step(moves, actor, op, key, "changes by plain SQL"),
        Op::Truncate | Op::Drop | Op::Create | Op::Disable | Op::EnableAlways => {
            ddl_step(moves, actor, op)
        }
        Op::Resume => resume_step(moves, actor),
        Op::Overflow => moves.add(
            actor,
            "overflows: the whole cache is dirty",
            None,
            |state| {
                state.overflow(moves.m, actor);
                state.backends[actor].pc += 1;
            },
        ),
        Op::OtherKey | Op::OtherCache => moves.add(actor, "changes another cache", None, |state| {
            let backend = &mut state.backends[actor];
            backend.other = match op {
                Op::OtherKey => Other::Key,
                _ => Other::Cache,
            };
            backend.pc += 1;
        }),
        Op::RollbackTo => moves.add(actor, "rolls back to its savepoint", None, |state| {
            state.abort_subtransaction(moves.m, actor);
            state.backends[actor].pc += 1;
        }),
        Op::Note(_) | Op::Savepoint | Op::Commit | Op::Get(_) | Op::Select(_) => {
            unreachable!("{op:?}")
        }
    }
}

fn row_step(moves: &mut Moves, actor: usize, op: Op, key: usize, verb: &'static str) {
    let (m, from) = (moves.m, moves.from);
    if m.repeatable(actor) && !from.backends[actor].has_snapshot {
        return moves.add(actor, "takes its snapshot", None, |state| {
            state.backends[actor].snapshot = state.table.committed;
            state.backends[actor].has_snapshot = true;
        });
    }
    if !from.grantable(actor, Lock::RowExclusive) || !from.row_free(actor, key) {
        return;
    }
    if !from.exists_for(actor) || m.repeatable(actor) && !newest_is_ours_to_change(from, actor, key)
    {
        return moves.add(actor, "gets an error", None, |state| {
            start_abort(m, state, actor)
        });
    }
    moves.add(actor, verb, Some(key), |state| {
        let pc = state.backends[actor].pc;
        let value = value_of(actor, pc, op);
        state.begin_write(m, actor, Lock::RowExclusive);
        state.write_row(actor, key, value, false);
        state.backends[actor].shown[key] = None;
        match op {
            Op::Change(_) => {}
            Op::SetAltered(_) => state.note(actor, key, altered(value), false),
            _ => state.note(actor, key, value, true),
        }
        state.backends[actor].pc += 1;
    });
}

/// Returns whether a REPEATABLE READ transaction may change the row; otherwise the server raises 40001.
fn newest_is_ours_to_change(state: &State, actor: usize, key: usize) -> bool {
    let last = state.table.rows[key].as_slice().last();
    let snapshot = state.backends[actor].snapshot;
    last.is_none_or(|last| last.xid == xid_of(actor) || snapshot & (1 << last.xid) != 0)
}

fn ddl_step(moves: &mut Moves, actor: usize, op: Op) {
    let (m, from) = (moves.m, moves.from);
    let (lock, verb) = match op {
        Op::Truncate => (Lock::AccessExclusive, "TRUNCATEs"),
        Op::Drop => (Lock::AccessExclusive, "DROPs"),
        Op::Create => (Lock::AccessExclusive, "CREATEs with the same OID"),
        Op::Disable => (Lock::ShareRowExclusive, "DISABLEs the trigger"),
        _ => (Lock::ShareRowExclusive, "ENABLEs the trigger ALWAYS"),
    };
    if !from.grantable(actor, lock) {
        return;
    }
    if from.exists_for(actor) == (op == Op::Create) {
        return moves.add(actor, "gets an error", None, |state| {
            start_abort(m, state, actor)
        });
    }
    moves.add(actor, verb, None, |state| {
        state.begin_write(m, actor, lock);
        state.apply_ddl(m, actor, op);
        state.backends[actor].pc += 1;
    });
}

fn resume_step(moves: &mut Moves, actor: usize) {
    let (m, from) = (moves.m, moves.from);
    if !m.keeps(Clause::ResumeUnderLock) {
        return moves.add(
            actor,
            "reads the trigger's mode without a lock",
            None,
            |state| {
                state.backends[actor].verdict = state.table.always;
                state.backends[actor].at = Phase::Resume;
            },
        );
    }
    if from.grantable(actor, Lock::ShareUpdateExclusive) {
        moves.add(
            actor,
            "turns the tier on if the mode, under a new lock, is ALWAYS",
            None,
            |state| {
                state.backends[actor].verdict = state.table.always;
                state.resume(actor);
            },
        );
    }
}

pub fn finish_resume(moves: &mut Moves, actor: usize) {
    moves.add(
        actor,
        "turns the tier on if the mode that it read was ALWAYS",
        None,
        |state| state.resume(actor),
    );
}

impl State {
    fn begin_write(&mut self, m: &Model, actor: usize, lock: Lock) {
        let backend = &mut self.backends[actor];
        backend.has_xid = true;
        backend.lock(lock);
        backend.late = m.committing(actor, backend.pc);
    }

    fn apply_ddl(&mut self, m: &Model, actor: usize, op: Op) {
        let noted = op != Op::Truncate || m.keeps(Clause::TruncateNoted);
        self.backends[actor].cache.dirty |= noted;
        match op {
            Op::Truncate => self.wipe_rows(actor),
            Op::Drop => {
                self.wipe_rows(actor);
                self.backends[actor].ddl = Ddl::Drop;
            }
            Op::Create => {
                self.backends[actor].ddl = Ddl::Create;
                if self.shared.room && self.shared.slot.is_none() {
                    self.make_slot(true);
                }
            }
            Op::Disable => {
                self.backends[actor].ddl = Ddl::Trigger(false);
                self.backends[actor].cache.suspend = true;
            }
            _ => self.backends[actor].ddl = Ddl::Trigger(true),
        }
    }

    fn resume(&mut self, actor: usize) {
        let backend = &mut self.backends[actor];
        if let Some(slot) = self.shared.slot.as_mut().filter(|_| backend.verdict) {
            slot.suspended = false;
        }
        backend.verdict = false;
        backend.at = Phase::Run;
        backend.pc += 1;
    }
}
