//! The steps of cache_get (protocol rules 4 to 6): lookup, snapshot, row, fill. Also adds the step of SELECT. Under
//! REPEATABLE READ the model compares its row with the result of cache_get.

use super::clause::Clause;
use super::model::{Model, Op};
use super::moves::Moves;
use super::postgres::Lock;
use super::state::{ABSENT, Entry, Phase, State, Token, Version};
use super::tier_access::WordGroup;

fn order(m: &Model) -> [WordGroup; 2] {
    if m.epochs_first {
        [WordGroup::Epochs, WordGroup::Pends]
    } else {
        [WordGroup::Pends, WordGroup::Epochs]
    }
}

fn key_of(m: &Model, state: &State, actor: usize) -> usize {
    match m.op(actor, state.backends[actor].pc) {
        Some(Op::Get(key)) => key,
        other => unreachable!("{other:?} is no get"),
    }
}

pub fn start_get(moves: &mut Moves, actor: usize, key: usize) {
    let (m, from) = (moves.m, moves.from);
    if needs_snapshot(moves, actor, key) {
        return;
    }
    let locks = m.repeatable(actor) && m.keeps(Clause::RepeatableReadKeepsLock);
    if locks && !from.grantable(actor, Lock::AccessShare) {
        return;
    }
    if !slot_step(moves, actor) && moves.partition_free() {
        moves.add(actor, "looks up", Some(key), |state| {
            if !state.backends[actor].has_snapshot {
                state.backends[actor].oldest_allowed = state.current(key).0 as u8;
            }
            if locks {
                state.backends[actor].lock(Lock::AccessShare);
            }
            first_half(m, state, actor, Phase::Lookup, |state, words, token| {
                state.read_words(token, key, words);
                true
            });
            if !m.splits_sections() {
                finish_lookup(m, state, actor, key);
            }
        });
    }
}

/// Adds the step that takes the snapshot, if the transaction needs a snapshot before the lookup. Returns whether it
/// added the step. Under REPEATABLE READ the transaction has one snapshot. Under READ COMMITTED only the negative
/// control without `Clause::FillNewSnapshot` needs the snapshot before the lookup: it reads the row with the
/// statement's snapshot, which is older than the token.
fn needs_snapshot(moves: &mut Moves, actor: usize, key: usize) -> bool {
    let early = moves.m.repeatable(actor) || !moves.m.keeps(Clause::FillNewSnapshot);
    let needed = early && !moves.from.backends[actor].has_snapshot;
    if needed {
        moves.add(actor, "takes its snapshot", None, |state| {
            state.backends[actor].oldest_allowed = state.current(key).0 as u8;
            state.backends[actor].snapshot = state.table.committed;
            state.backends[actor].has_snapshot = true;
        });
    }
    needed
}

/// Adds the step of a get that creates or verifies the slot, if one is needed. Returns whether it added a step; the
/// lookup then follows in a later step. Protocol rule 7: the get reads the trigger's mode under a newly taken lock.
fn slot_step(moves: &mut Moves, actor: usize) -> bool {
    let (m, from) = (moves.m, moves.from);
    let makes = from.shared.slot.is_none() && from.shared.room && from.table.exists;
    let proves = from.shared.slot.is_some_and(|slot| !slot.proven);
    if m.repeatable(actor) || from.backends[actor].has_xid {
        return false;
    }
    if proves && !from.backends[actor].has_checked {
        moves.add(
            actor,
            "checks the lock of caches without a slot",
            None,
            |state| {
                state.prove(m);
                state.backends[actor].has_checked = true;
            },
        );
        return true;
    }
    if !makes {
        return false;
    }
    if from.shared.slot.is_none() && !m.keeps(Clause::SlotMadeUnderLock) {
        moves.add(
            actor,
            "reads the trigger's mode without a lock",
            None,
            |state| {
                state.backends[actor].verdict = state.table.always;
                state.backends[actor].at = Phase::MakeSlot;
            },
        );
        return true;
    }
    let locked = from.grantable(actor, Lock::ShareUpdateExclusive);
    if locked {
        moves.add(actor, "makes a slot under a new lock", None, |state| {
            state.make_slot(state.table.always)
        });
    }
    locked
}

/// Takes the partition lock and runs `check` on the first group of words. Keeps the lock until the next step. If no
/// backend can change a slot's words, the whole section is one step, and no other backend sees the lock.
fn first_half(
    m: &Model,
    state: &mut State,
    actor: usize,
    at: Phase,
    check: impl FnOnce(&State, WordGroup, &mut Token) -> bool,
) {
    let mut token = state.backends[actor].token;
    state.backends[actor].verdict = check(state, order(m)[0], &mut token);
    state.backends[actor].token = token;
    if m.splits_sections() {
        state.backends[actor].at = at;
        state.shared.partition = Some(actor as u8);
    }
}

pub fn continue_get(moves: &mut Moves, actor: usize) {
    let (m, from) = (moves.m, moves.from);
    let key = key_of(m, from, actor);
    match from.backends[actor].at {
        Phase::MakeSlot => moves.add(actor, "makes a slot by what it read", None, |state| {
            if state.shared.slot.is_none() {
                state.make_slot(state.backends[actor].verdict);
            }
            state.backends[actor].verdict = false;
            state.backends[actor].at = Phase::Run;
        }),
        Phase::Lookup => moves.add(actor, "ends its lookup of", Some(key), |state| {
            finish_lookup(m, state, actor, key)
        }),
        Phase::Snapshot => moves.add(actor, "takes a new snapshot", None, |state| {
            state.backends[actor].snapshot = state.table.committed;
            state.backends[actor].at = Phase::Row;
        }),
        Phase::Row if from.grantable(actor, Lock::AccessShare) => {
            moves.add(actor, "reads the row of", Some(key), |state| {
                read_row(m, state, actor, key)
            });
        }
        Phase::Fill if moves.partition_free() => moves.add(actor, "fills", Some(key), |state| {
            first_half(m, state, actor, Phase::FillHalf, |state, words, token| {
                state.fill_allowed(m, token, words)
            });
            if !m.splits_sections() {
                finish_fill(m, state, actor, key);
            }
        }),
        Phase::FillHalf => moves.add(actor, "ends its fill of", Some(key), |state| {
            finish_fill(m, state, actor, key)
        }),
        _ => {}
    }
}

fn finish_lookup(m: &Model, state: &mut State, actor: usize, key: usize) {
    let mut token = state.backends[actor].token;
    state.read_words(&mut token, key, order(m)[1]);
    state.read_stripe(&mut token, key);
    state.backends[actor].token = token;
    state.shared.partition = None;
    let hit = state
        .valid_entry(m, key, &token)
        .filter(|entry| may_hit(m, state, actor, key, entry));
    if let Some(entry) = hit {
        state.judge_get(m, actor, key, entry.value);
        return end_get(m, state, actor);
    }
    state.backends[actor].at = if state.backends[actor].has_snapshot {
        Phase::Row
    } else {
        Phase::Snapshot
    };
}

/// Returns whether a get may hit this entry (protocol rules 5 and 6).
fn may_hit(m: &Model, state: &State, actor: usize, key: usize, entry: &Entry) -> bool {
    let backend = &state.backends[actor];
    let dirty = backend.keys[key].dirty || backend.cache.dirty;
    let locked = backend.has_xid && backend.locked_for_writing();
    let visible = backend.snapshot & (1 << entry.xid) != 0;
    !(dirty && m.keeps(Clause::DirtyKeyBypasses)
        || locked && m.keeps(Clause::LockedCacheBypasses)
        || m.repeatable(actor) && !visible && m.keeps(Clause::RepeatableReadChecksXid))
}

fn read_row(m: &Model, state: &mut State, actor: usize, key: usize) {
    if !state.exists_for(actor) {
        return end_get(m, state, actor);
    }
    let row = state.read_row(actor, key, state.backends[actor].snapshot);
    state.judge_get(m, actor, key, row.value);
    let backend = &mut state.backends[actor];
    let may_fill = (!m.repeatable(actor) || !m.keeps(Clause::RepeatableReadNeverFills))
        && (!backend.has_xid || !m.keeps(Clause::FillWithoutXid));
    if may_fill && row.value != ABSENT {
        backend.row = row;
        backend.at = Phase::Fill;
    } else {
        end_get(m, state, actor);
    }
}

fn finish_fill(m: &Model, state: &mut State, actor: usize, key: usize) {
    let backend = state.backends[actor];
    let allowed = backend.verdict
        && state.fill_allowed(m, &backend.token, order(m)[1])
        && state.fill_stripe_allowed(m, key, &backend.token);
    if allowed {
        let checks = [Clause::FillGeneration, Clause::FillEpoch];
        state.install(
            m,
            key,
            backend.row.value,
            backend.row.xid,
            &backend.token,
            checks,
        );
    }
    state.shared.partition = None;
    end_get(m, state, actor);
}

fn end_get(m: &Model, state: &mut State, actor: usize) {
    let backend = &mut state.backends[actor];
    backend.at = Phase::Run;
    backend.pc += 1;
    backend.oldest_allowed = 0;
    backend.token = Token::default();
    backend.row = Version::default();
    backend.verdict = false;
    backend.has_checked = false;
    if !m.repeatable(actor) {
        backend.snapshot = 0;
        backend.has_snapshot = false;
    }
}

pub fn select(moves: &mut Moves, actor: usize, key: usize) {
    let (m, from) = (moves.m, moves.from);
    if needs_snapshot(moves, actor, key) || !from.grantable(actor, Lock::AccessShare) {
        return;
    }
    moves.add(actor, "SELECTs", Some(key), |state| {
        let snapshot = if m.repeatable(actor) {
            state.backends[actor].snapshot
        } else {
            state.table.committed
        };
        let row = state.read_row(actor, key, snapshot);
        if m.repeatable(actor) {
            state.backends[actor].lock(Lock::AccessShare);
            state.judge_shown(actor, key, row.value);
        }
        state.backends[actor].pc += 1;
    });
}
