//! Histories that the checker must accept, and histories that it must reject.

use super::*;

const MS: Moment = 1_000_000;

fn of(client: usize, (began, ended): (Moment, Moment), steps: &[Step]) -> Operation {
    Operation {
        client,
        key: 1,
        began,
        ended,
        steps: steps.to_vec(),
        certain: true,
    }
}

fn lost(operation: Operation) -> Operation {
    Operation {
        certain: false,
        ..operation
    }
}

fn step(command: Command, answer: Answer) -> Step {
    Step { command, answer }
}

fn set(value: i64) -> Step {
    set_until(value, Until::Never)
}

fn set_until(value: i64, until: Until) -> Step {
    let when = When::Always;
    step(Command::Set { value, when, until }, Answer::Done(true))
}

fn set_when(value: i64, when: When, done: bool) -> Step {
    let until = Until::Never;
    step(Command::Set { value, when, until }, Answer::Done(done))
}

fn get(value: impl Into<Option<i64>>) -> Step {
    step(Command::Get, Answer::Value(value.into()))
}

fn add(by: i64, sum: i64) -> Step {
    step(Command::Add { by, creates: true }, Answer::Value(Some(sum)))
}

fn delete(done: bool) -> Step {
    step(Command::Delete, Answer::Done(done))
}

fn left(deadline: Option<Deadline>) -> Step {
    step(Command::Left, Answer::Left(deadline))
}

#[track_caller]
fn holds(operations: &[Operation]) {
    assert_eq!(check(operations), Ok(()));
}

/// Checks that the checker rejects the last operation.
#[track_caller]
fn is_refused(operations: &[Operation]) {
    let refusal = check(operations).expect_err("no order explains it");
    assert_eq!(Some(&refusal.operation), operations.last());
}

#[test]
fn a_client_sees_every_change_acknowledged_before_its_request() {
    let write = of(1, (10, 20), &[set(5)]);
    holds(&[write.clone(), of(2, (21, 22), &[get(5)])]);
    is_refused(&[write.clone(), of(2, (21, 22), &[get(None)])]);
    // During the write a read may see either value, but no read may see the old value after the new value.
    for saw in [None, Some(5)] {
        holds(&[write.clone(), of(2, (11, 19), &[get(saw)])]);
    }
    let seen = of(2, (11, 12), &[get(5)]);
    is_refused(&[write, seen, of(3, (13, 14), &[get(None)])]);
}

#[test]
fn writes_at_once_come_in_one_order_for_all() {
    let writes = [of(1, (10, 30), &[set(1)]), of(2, (10, 30), &[set(2)])];
    let then = |saw: &[i64]| {
        let read = |(at, saw): (usize, &i64)| {
            let began = 31 + 2 * at as Moment;
            of(3, (began, began + 1), &[get(*saw)])
        };
        let reads = saw.iter().enumerate().map(read);
        [writes.to_vec(), reads.collect()].concat()
    };
    holds(&then(&[1, 1]));
    holds(&then(&[2, 2]));
    is_refused(&then(&[1, 2]));
    // Even during the writes, reads cannot see 1, 2, 1, because this would need three writes.
    let during = [(11, 1), (13, 2), (15, 1)].map(|(at, saw)| of(3, (at, at + 1), &[get(saw)]));
    is_refused(&[&writes[..], &during].concat());
}

#[test]
fn a_lost_write_is_refused() {
    let first = of(1, (10, 20), &[set(1)]);
    let lost_set = of(2, (21, 30), &[set(2)]);
    is_refused(&[first, lost_set, of(3, (31, 32), &[get(1)])]);
    // Two concurrent increments both count.
    let counts = |one, other| {
        [
            of(1, (10, 20), &[add(1, one)]),
            of(2, (10, 21), &[add(1, other)]),
        ]
    };
    holds(&counts(1, 2));
    holds(&counts(2, 1));
    is_refused(&counts(1, 1));
    // Only one of two concurrent deletes removes the entry.
    let entry = of(1, (1, 2), &[set(1)]);
    let deletes = |done| {
        [
            of(1, (10, 20), &[delete(true)]),
            of(2, (10, 21), &[delete(done)]),
        ]
    };
    holds(&[vec![entry.clone()], deletes(false).to_vec()].concat());
    is_refused(&[vec![entry], deletes(true).to_vec()].concat());
}

#[test]
fn only_one_client_creates_an_absent_entry() {
    let make = |client, value, ended, done| {
        of(client, (10, ended), &[set_when(value, When::Absent, done)])
    };
    holds(&[make(1, 1, 20, true), make(2, 2, 21, false)]);
    is_refused(&[make(1, 1, 20, true), make(2, 2, 21, true)]);
    let replace = |done| of(3, (30, 31), &[set_when(3, When::Present, done)]);
    holds(&[make(1, 1, 20, true), replace(true)]);
    is_refused(&[make(1, 1, 20, true), replace(false)]);
    is_refused(&[replace(true)]);
}

#[test]
fn a_take_or_swap_returns_the_former_value() {
    let write = of(1, (1, 2), &[set(1)]);
    let swap = |saw| of(2, (10, 20), &[step(Command::Swap(2), Answer::Value(saw))]);
    let take = |saw| of(3, (10, 21), &[step(Command::Take, Answer::Value(saw))]);
    holds(&[write.clone(), swap(Some(1)), take(Some(2))]);
    holds(&[write.clone(), swap(None), take(Some(1))]);
    is_refused(&[write.clone(), swap(Some(1)), take(Some(1))]);
    is_refused(&[write, swap(Some(1)), take(None)]);
}

#[test]
fn an_unanswered_call_happens_at_most_once_and_not_before_it_was_made() {
    let unknown = |command| lost(of(1, (10, 50), &[step(command, Answer::Unknown)]));
    let write = unknown(set(5).command);
    for saw in [None, Some(5)] {
        holds(&[write.clone(), of(2, (60, 61), &[get(saw)])]);
    }
    let seen = of(2, (60, 61), &[get(5)]);
    is_refused(&[write.clone(), seen.clone(), of(2, (62, 63), &[get(None)])]);
    // The outcome of the write was decided before this read.
    let absent = of(2, (60, 61), &[get(None)]);
    is_refused(&[write, absent, of(2, (62, 63), &[get(5)])]);
    let count = unknown(Command::Add {
        by: 1,
        creates: true,
    });
    for sum in [1, 2] {
        holds(&[count.clone(), of(2, (60, 61), &[add(1, sum)])]);
    }
    is_refused(&[count, of(2, (60, 61), &[add(1, 3)])]);
}

#[test]
fn a_client_that_does_not_wait_for_answers_keeps_its_order() {
    let pipeline = [
        of(1, (10, 20), &[set(1)]),
        of(1, (10, 20), &[get(1)]),
        of(1, (10, 20), &[set(2)]),
    ];
    holds(&pipeline);
    let turned = of(1, (10, 20), &[get(2)]);
    is_refused(&[of(1, (10, 20), &[set(1)]), turned.clone()]);
    holds(&[&pipeline[..], &[turned]].concat());
    // The last value stays.
    is_refused(&[&pipeline[..], &[of(2, (21, 22), &[get(1)])]].concat());
}

#[test]
fn no_client_comes_between_the_steps_of_a_transaction() {
    let transaction = of(1, (10, 30), &[set(1), add(1, 2)]);
    holds(&[transaction.clone(), of(2, (11, 12), &[get(None)])]);
    holds(&[transaction.clone(), of(2, (11, 12), &[get(2)])]);
    let between = check(&[transaction.clone(), of(2, (11, 12), &[get(1)])]);
    assert_eq!(between.unwrap_err().operation.steps, [get(1)]);
    let other = of(2, (10, 31), &[add(1, 2), get(2)]);
    is_refused(&[transaction, other]);
    // No answer may show a value that was rolled back.
    is_refused(&[of(2, (40, 41), &[get(1)])]);
}

#[test]
fn a_lost_deadline_is_refused() {
    let hours = |hours| Some(Deadline::Hours(hours));
    let write = of(1, (1, 2), &[set_until(1, Until::Hours(10))]);
    let then = |step| [write.clone(), of(1, (3, 4), &[step])];
    let reported = |deadline| of(2, (5, 6), &[left(deadline)]);
    let expire = step(Command::Expire(20), Answer::Done(true));
    for (step, deadline) in [
        (set(2), Deadline::Never),
        (set_until(2, Until::Keep), Deadline::Hours(10)),
        (add(1, 2), Deadline::Hours(10)),
        (expire, Deadline::Hours(20)),
    ] {
        holds(&[&then(step)[..], &[reported(Some(deadline))]].concat());
    }
    is_refused(
        &[
            &then(set_until(2, Until::Keep))[..],
            &[reported(Some(Deadline::Never))],
        ]
        .concat(),
    );
    is_refused(&[&then(expire)[..], &[reported(hours(10))]].concat());
    is_refused(&[&then(set(2))[..], &[reported(hours(10))]].concat());
    is_refused(&[&then(set(2))[..], &[reported(None)]].concat());
}

#[test]
fn a_near_deadline_ends_an_entry_in_time_and_for_good() {
    let write = of(1, (MS, 2 * MS), &[set_until(1, Until::Millis(500))]);
    let at = |ms: Moment, saw| of(2, (ms * MS, (ms + 1) * MS), &[get(saw)]);
    is_refused(&[write.clone(), at(300, None)]);
    for saw in [None, Some(1)] {
        holds(&[write.clone(), at(500, saw)]);
    }
    is_refused(&[write.clone(), at(800, Some(1))]);
    is_refused(&[write.clone(), at(500, None), at(502, Some(1))]);
    // An operation that began before the deadline may find the entry, even if its answer comes after other operations
    // have found no entry.
    let swap = |began: Moment| {
        let swap = step(Command::Swap(2), Answer::Value(Some(1)));
        of(1, (began * MS, 700 * MS), &[swap])
    };
    let nothing = at(550, None);
    holds(&[write.clone(), nothing.clone(), swap(480), at(710, Some(2))]);
    is_refused(&[write.clone(), nothing, swap(560)]);
    // A new entry may be created as soon as the old entry has expired.
    holds(&[write.clone(), of(2, (800 * MS, 801 * MS), &[add(3, 3)])]);
    holds(&[
        write,
        of(2, (500 * MS, 501 * MS), &[add(3, 4)]),
        at(900, None),
    ]);
}

#[test]
fn keys_do_not_vouch_for_each_other() {
    let write = of(1, (1, 2), &[set(1)]);
    let other = Operation {
        key: 2,
        ..of(2, (3, 4), &[get(1)])
    };
    is_refused(&[write, other]);
}

/// Checks that each history of one register with overlapping clients is accepted, and is rejected if one answer is
/// replaced by a value that no operation can have seen.
#[test]
fn every_history_of_one_register_holds() {
    use crate::rng::Rng;
    for seed in 0..200 {
        let mut rng = Rng::seeded(seed);
        let (mut held, mut operations) = (None, Vec::new());
        let mut free = [0; 5];
        for moment in 1..80 {
            let client = rng.below(5) as usize;
            let happens = moment * 10;
            if free[client] >= happens {
                continue;
            }
            let command = match rng.below(6) {
                0..2 => Command::Get,
                2 => set(moment as i64 * 100).command,
                3 => Command::Add {
                    by: 1,
                    creates: true,
                },
                4 => Command::Take,
                _ => Command::Delete,
            };
            let unanswered = step(command, Answer::Unknown);
            let after = unanswered.after(held, (0, 0)).expect("it says anything");
            let value = |entry: Option<Entry>| entry.map(|entry| entry.value);
            let answer = match command {
                Command::Set { .. } => Answer::Done(true),
                Command::Delete => Answer::Done(held.is_some()),
                Command::Add { .. } => Answer::Value(value(after)),
                _ => Answer::Value(value(held)),
            };
            held = after;
            let ended = happens + rng.below(60);
            let began = free[client].max(happens.saturating_sub(rng.below(60))) + 1;
            free[client] = ended;
            operations.push(of(
                client,
                (began.min(happens), ended),
                &[step(command, answer)],
            ));
        }
        holds(&operations);
        let at = operations
            .iter()
            .position(|operation| matches!(operation.steps[0].answer, Answer::Value(Some(_))));
        if let Some(at) = at {
            operations[at].steps[0].answer = Answer::Value(Some(7));
            assert!(check(&operations).is_err(), "{seed}");
        }
    }
}
