//! The steps at the end of a transaction (protocol rules 2 and 3): PRE_COMMIT sets marks, event e makes the writes
//! visible, COMMIT or ABORT removes the marks, and the locks are released.

use super::clause::Clause;
use super::model::{FirstSlot, Model};
use super::moves::Moves;
use super::state::{Backend, Ddl, DirtyKey, KEYS, MarkProgress, Other, Phase, SlotSeen, State};
use super::tier_access::WordGroup;

/// Adds the step that marks one dirty key or the dirty cache. Returns false if everything dirty is marked.
pub fn mark_steps(moves: &mut Moves, actor: usize) -> bool {
    let (m, from) = (moves.m, moves.from);
    if from.backends[actor].late && !m.keeps(Clause::LateWriteMarked) {
        return false;
    }
    if let Some(mark) = [Other::Key, Other::Cache]
        .into_iter()
        .find(|other| *other == from.backends[actor].other)
    {
        mark_other(moves, actor, mark);
        return true;
    }
    if let Some(key) = from.key_to_look_again(m, actor) {
        if moves.partition_free() {
            moves.add(actor, "looks for the slot again, for", Some(key), |state| {
                state.remove_late(actor, key)
            });
        }
        return true;
    }
    if let Some(key) = from.unmarked_key(actor) {
        let comes_late = m.slot != FirstSlot::Present;
        if comes_late && from.backends[actor].keys[key].slot == SlotSeen::Unasked {
            moves.add(actor, "looks for the slot, for", Some(key), |state| {
                state.look_for_slot(actor, key)
            });
        } else if m.no_place_for == Some(actor) && !from.backends[actor].keys[key].no_place {
            if moves.partition_free() {
                moves.add(actor, "finds no place to mark", Some(key), |state| {
                    state.pend_for_key(m, actor, key)
                });
            }
        } else if moves.partition_free() {
            moves.add(actor, "marks", Some(key), |state| {
                state.mark_key(m, actor, key)
            });
        }
        return true;
    }
    let unmarked = from.cache_unmarked(actor);
    if unmarked {
        mark_cache(moves, actor);
    }
    unmarked
}

/// Marks this writer's change to another cache.
fn mark_other(moves: &mut Moves, actor: usize, mark: Other) {
    match mark {
        Other::Key if moves.partition_free() => {
            moves.add(actor, "marks a key of another cache", None, |state| {
                state.shared.stripe.others += 1;
                state.shared.stripe.ver += 1;
                state.backends[actor].other = Other::KeyMarked;
            });
        }
        Other::Cache => moves.add(actor, "takes the lock of another cache", None, |state| {
            state.shared.locked.others += 1;
            state.backends[actor].other = Other::CacheMarked;
        }),
        _ => {}
    }
}

fn unmark_other(state: &mut State, actor: usize) {
    match std::mem::take(&mut state.backends[actor].other) {
        Other::KeyMarked => {
            state.shared.stripe.others -= 1;
            state.shared.stripe.ver += 1;
        }
        Other::CacheMarked => state.shared.locked.others -= 1,
        _ => {}
    }
}

fn mark_cache(moves: &mut Moves, actor: usize) {
    let m = moves.m;
    if moves.from.backends[actor].cache.mark == MarkProgress::PendRaised {
        return moves.add(actor, "marks the cache, second word", None, |state| {
            state.mark_cache_second(m, actor)
        });
    }
    moves.add(actor, "marks the cache, first word", None, |state| {
        state.mark_cache_first(m, actor)
    });
}

/// Writes the commit record and runs ProcArrayEndTransaction.
pub fn commit_step(moves: &mut Moves, actor: usize) {
    let m = moves.m;
    moves.add(
        actor,
        "commits: its writes are visible from here on (e)",
        None,
        |state| {
            state.commit_rows(actor);
            begin_callbacks(m, state, actor);
        },
    );
}

/// Runs ProcArrayEndTransaction of an abort.
pub fn start_abort(m: &Model, state: &mut State, actor: usize) {
    state.abort_rows(actor);
    state.backends[actor].aborting = true;
    begin_callbacks(m, state, actor);
}

fn begin_callbacks(m: &Model, state: &mut State, actor: usize) {
    state.backends[actor].at = Phase::Unmark;
    state.backends[actor].pc = 0;
    skip_clean_nodes(m, state, actor);
}

/// Adds the step of a rollback. An error, a cancellation or the user may cause it before each operation, and a backend
/// that would wait forever may always roll back.
pub fn abort_steps(moves: &mut Moves, actor: usize, waits: bool) {
    let (m, backend) = (moves.m, &moves.from.backends[actor]);
    let writes = m.scripts[actor].commit_place().is_some();
    let half_marked = matches!(
        backend.cache.mark,
        MarkProgress::PendRaised | MarkProgress::NoSlotFound | MarkProgress::LockTaken
    );
    if writes && backend.at == Phase::Run && !half_marked && (m.aborts && backend.pc > 0 || waits) {
        moves.add(actor, "rolls back", None, |state| {
            start_abort(m, state, actor)
        });
    }
}

/// Adds the steps of the COMMIT and ABORT callbacks: key by key, then the cache.
pub fn unmark_steps(moves: &mut Moves, actor: usize) {
    let (m, backend) = (moves.m, &moves.from.backends[actor]);
    let key = backend.pc as usize;
    if backend.aborting && !m.keeps(Clause::AbortUnmarks) {
        return moves.add(actor, "leaves its marks", None, |state| {
            state.backends[actor].at = Phase::Release
        });
    }
    if key < KEYS {
        if backend.at == Phase::UnmarkHalf || moves.partition_free() {
            unmark_key_steps(moves, actor, key);
        }
    } else {
        moves.add(actor, "unmarks the cache, one word", None, |state| {
            state.unmark_cache(m, actor);
            if state.backends[actor].cache.mark == MarkProgress::None {
                leave_callbacks(m, state, actor);
            }
        });
    }
}

fn unmark_key_steps(moves: &mut Moves, actor: usize, key: usize) {
    let (m, from) = (moves.m, moves.from);
    let backend = &from.backends[actor];
    let second = backend.at == Phase::UnmarkHalf;
    let words = if second != m.epochs_first {
        WordGroup::Epochs
    } else {
        WordGroup::Pends
    };
    let allowed = from.publish_allowed(m, &backend.keys[key].token, words);
    let wants = from.wants_publish(m, actor, key);
    if backend.has_room && !m.keeps(Clause::PublishChecksAgain) {
        return moves.add(
            actor,
            "publishes without asking again",
            Some(key),
            |state| finish_unmark(m, state, actor, key, true),
        );
    }
    if second || !wants {
        let publish = wants && backend.verdict && allowed;
        let verb = if publish {
            "unmarks, and publishes if untouched,"
        } else {
            "unmarks"
        };
        return moves.add(actor, verb, Some(key), |state| {
            finish_unmark(m, state, actor, key, publish)
        });
    }
    if m.splits_sections() {
        return moves.add(actor, "begins to publish", Some(key), |state| {
            state.backends[actor].verdict = allowed;
            state.backends[actor].at = Phase::UnmarkHalf;
            state.shared.partition = Some(actor as u8);
        });
    }
    let other = if words == WordGroup::Pends {
        WordGroup::Epochs
    } else {
        WordGroup::Pends
    };
    let publish = allowed && from.publish_allowed(m, &backend.keys[key].token, other);
    moves.add(
        actor,
        "unmarks, and publishes if untouched,",
        Some(key),
        |state| {
            finish_unmark(m, state, actor, key, publish);
        },
    );
}

fn finish_unmark(m: &Model, state: &mut State, actor: usize, key: usize, publish: bool) {
    let has_room = std::mem::take(&mut state.backends[actor].has_room);
    let blind = has_room && !m.keeps(Clause::PublishChecksAgain);
    let publish = publish && (blind || state.is_untouched(m, actor, key));
    state.shared.partition = None;
    if publish && m.needs_room && !has_room {
        // Leave the partition to make room in another partition; the mark stays.
        let backend = &mut state.backends[actor];
        backend.has_room = true;
        backend.verdict = false;
        backend.at = Phase::Unmark;
        return;
    }
    state.unmark_key(m, actor, key, publish);
    let backend = &mut state.backends[actor];
    backend.verdict = false;
    backend.at = Phase::Unmark;
    backend.pc += 1;
    if m.keeps(Clause::UnmarkIdempotent) {
        backend.keys[key] = DirtyKey::default();
    }
    skip_clean_nodes(m, state, actor);
}

/// Skips keys that are not dirty, and a cache that is not marked; these need no step.
fn skip_clean_nodes(m: &Model, state: &mut State, actor: usize) {
    let backend = &mut state.backends[actor];
    let wanted = |node: &DirtyKey| {
        node.marked
            || node.no_place
            || node.dirty && !(m.keeps(Clause::AbortOnlyMarked) && backend.aborting)
    };
    while (backend.pc as usize) < KEYS && !wanted(&backend.keys[backend.pc as usize]) {
        backend.pc += 1;
    }
    if backend.pc as usize == KEYS && backend.cache.mark == MarkProgress::None {
        leave_callbacks(m, state, actor);
    }
}

/// Ends the callbacks, and frees the slot after DROP or after the rollback of CREATE (protocol rule 8).
fn leave_callbacks(m: &Model, state: &mut State, actor: usize) {
    unmark_other(state, actor);
    let backend = &state.backends[actor];
    let frees = match backend.ddl {
        Ddl::Drop => !backend.aborting && m.keeps(Clause::DropFreesSlot),
        Ddl::Create => backend.aborting && m.keeps(Clause::CreateAbortFreesSlot),
        _ => false,
    };
    if frees {
        state.shared.slot = None;
    }
    state.backends[actor].at = Phase::Release;
}

/// Releases the locks, and then acknowledges the transaction to the client.
pub fn release_steps(moves: &mut Moves, actor: usize) {
    let (m, backend) = (moves.m, &moves.from.backends[actor]);
    if m.abort_reruns && backend.aborting && !backend.rerun {
        moves.add(
            actor,
            "meets an error in ABORT, which runs again",
            None,
            |state| {
                state.backends[actor].rerun = true;
                begin_callbacks(m, state, actor);
            },
        );
    }
    let verb = if backend.aborting {
        "has rolled back"
    } else {
        "is acknowledged"
    };
    moves.add(actor, verb, None, |state| {
        state.backends[actor] = Backend {
            at: Phase::Done,
            ..Backend::default()
        };
    });
}
