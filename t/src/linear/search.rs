//! Searches for an order of one key's operations that explains all answers.
//!
//! The search visits calls and answers in the order of time. It keeps the set of possible states, each with the running
//! operations that have already taken effect in it. An operation must have taken effect when it is answered. So at the
//! answer the search applies the operation to the states in which it is still open, and drops the states that
//! contradict the answer. A read-only operation takes effect as early as possible. It changes nothing, so no possible
//! state is lost.

use std::collections::HashSet;

use super::{Entry, Moment, Operation, Refusal};

/// A possible state: the key's content, and a bit for each running operation that has taken effect.
type State = (Option<Entry>, u64);

/// The number of states beyond which the search gives up.
const WIDEST: usize = 2_000_000;

/// A running operation.
#[derive(Clone, Copy)]
struct Pending<'o> {
    operation: &'o Operation,
    only_reads: bool,
    /// The running operations of the same client that come before this operation, as bits.
    behind: u64,
}

struct Search<'o> {
    pending: [Option<Pending<'o>>; 64],
    states: HashSet<State>,
}

pub fn explain(operations: &[&Operation]) -> Result<(), Box<Refusal>> {
    let mut events: Vec<_> = operations
        .iter()
        .enumerate()
        .flat_map(|(number, operation)| {
            [
                (operation.began, false, number),
                (operation.ended, true, number),
            ]
        })
        .collect();
    // A call sorts before an answer of the same moment, because the two operations count as concurrent.
    events.sort_unstable();
    let mut search = Search {
        pending: [None; 64],
        states: HashSet::from([(None, 0)]),
    };
    let mut places = vec![0; operations.len()];
    for (_, answered, number) in events {
        let operation = operations[number];
        match answered {
            false => places[number] = search.call(operation),
            true => search
                .answer(places[number])
                .map_err(|held| refusal(operations, number, held))?,
        }
    }
    Ok(())
}

fn refusal(operations: &[&Operation], number: usize, held: Vec<Option<Entry>>) -> Box<Refusal> {
    const BESIDE: usize = 12;
    let operation = operations[number];
    let mut beside: Vec<Operation> = operations
        .iter()
        .filter(|other| other.began <= operation.ended)
        .map(|&other| other.clone())
        .collect();
    beside.sort_by_key(|other| other.ended);
    let from = beside
        .iter()
        .position(|other| other.ended >= operation.began)
        .unwrap_or(0);
    beside.drain(..from.saturating_sub(BESIDE));
    Box::new(Refusal {
        operation: operation.clone(),
        held,
        beside,
    })
}

impl<'o> Search<'o> {
    fn call(&mut self, operation: &'o Operation) -> usize {
        let free = self.pending.iter().position(Option::is_none);
        let free = free.expect("fewer than 64 operations of a key are under way");
        let behind = (0..64).filter(|&place| {
            let own = |other: &Pending| other.operation.client == operation.client;
            self.pending[place]
                .as_ref()
                .is_some_and(|other| own(other) && other.operation.certain)
        });
        self.pending[free] = Some(Pending {
            operation,
            only_reads: operation.only_reads(),
            behind: behind.fold(0, |places, place| places | 1 << place),
        });
        free
    }

    /// Keeps the states that are possible if the operation has taken effect. If no state remains, returns an error with
    /// the contents that the key may have had.
    fn answer(&mut self, place: usize) -> Result<(), Vec<Option<Entry>>> {
        let bit = 1 << place;
        let certain = self.pending[place].is_some_and(|pending| pending.operation.certain);
        let before = std::mem::take(&mut self.states);
        let mut open: Vec<State> = before.iter().copied().collect();
        let mut met: HashSet<State> = HashSet::new();
        while let Some(state) = open.pop() {
            let state = self.looked(state);
            if !met.insert(state) {
                continue;
            }
            assert!(met.len() < WIDEST, "the history is too wide");
            match state.1 & bit == 0 {
                false => drop(self.states.insert((state.0, state.1 & !bit))),
                true => {
                    if !certain {
                        self.states.insert(state);
                    }
                    for next in 0..64 {
                        open.extend(self.done(state, next));
                    }
                }
            }
        }
        self.pending[place] = None;
        for pending in self.pending.iter_mut().flatten() {
            pending.behind &= !bit;
        }
        if self.states.is_empty() {
            let held: HashSet<Option<Entry>> = before.into_iter().map(|state| state.0).collect();
            return Err(held.into_iter().collect());
        }
        Ok(())
    }

    /// Returns the state after all read-only operations whose answer fits the state have taken effect.
    fn looked(&self, mut state: State) -> State {
        loop {
            let before = state;
            for (place, pending) in self.pending.iter().enumerate() {
                if pending.is_some_and(|pending| pending.only_reads)
                    && self.done(state, place).iter().any(|next| next.0 == state.0)
                {
                    state.1 |= 1 << place;
                }
            }
            if state == before {
                return state;
            }
        }
    }

    /// Returns the states after one more operation has taken effect. If the entry's deadline is close to the operation,
    /// the operation may find the entry or find it expired.
    fn done(&self, (held, happened): State, place: usize) -> Vec<State> {
        let Some(pending) = self.pending[place] else {
            return Vec::new();
        };
        if happened & 1 << place != 0 || pending.behind & !happened != 0 {
            return Vec::new();
        }
        let operation = pending.operation;
        let moments = (operation.began, operation.ended);
        let before = held;
        let mut held = vec![held];
        for step in &operation.steps {
            held = held
                .into_iter()
                .flat_map(|held| lives_or_ended(held, moments))
                .flatten()
                .filter_map(|held| step.after(held, moments))
                .collect();
        }
        let left = |after| match (after, before) {
            // A read that finds an entry expired does not remove it, because another operation may have found the entry
            // before the deadline and be answered later.
            (None, Some(entry)) if pending.only_reads => Some(entry.seen_ended_by(operation.ended)),
            _ => after,
        };
        held.into_iter()
            .map(|after| (left(after), happened | 1 << place))
            .collect()
    }
}

/// Returns the contents that an operation between these moments may find: the entry, no entry, or either.
fn lives_or_ended(held: Option<Entry>, moments: (Moment, Moment)) -> [Option<Option<Entry>>; 2] {
    match held.map(|entry| entry.lives_or_has_ended(moments)) {
        None => [Some(None), None],
        Some((lives, has_ended)) => [lives.then_some(held), has_ended.then_some(None)],
    }
}
