//! Describes an operation once, and runs it in a SQL session or with a Redis client. The answers form a history for
//! [`crate::linear`].
//!
//! A single command is one step of that history. A transaction on a table is one step for each key. The step begins at
//! the first change of the key, because the transaction holds the row's lock from that change to its commit. A read of
//! the key before that change is a separate step at its own moment, because READ COMMITTED gives it its own snapshot.
//! On a memory cache no operation waits for a commit, and no operation is rolled back. In a cache whose entries are
//! computed from source rows, each hit counts as a read of the row.

mod door;
mod sql;

use std::time::Instant;

pub use self::door::Door;
pub use self::sql::Sql;
use crate::linear::{Answer, Command, Deadline, Moment, Operation, Step};

/// A cache that both protocols can use. All keys are texts, and all values are numbers as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// The number of its Redis database.
    pub number: usize,
    pub name: &'static str,
    pub storage: &'static str,
    /// The source (`cache_depend`): the cache from whose rows the entries are computed, and whose changes remove them.
    pub source: Option<&'static Cache>,
}

impl Cache {
    pub fn is_table(self) -> bool {
        self.storage != "memory"
    }

    /// Returns the number that a key of this cache has in a history of all caches. An entry computed from a row has the
    /// number of that row.
    pub fn key(self, key: u64) -> u64 {
        1000 * self.source.map_or(self.number, |source| source.number) as u64 + key
    }
}

/// The clock of all clients.
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(&self) -> Moment {
        self.0.elapsed().as_nanos() as Moment
    }
}

/// The way in which a request combines its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each call is a separate operation. A Redis client sends all of them at once.
    OneByOne,
    /// A transaction, or one call for many keys.
    Together,
    /// A transaction that is rolled back.
    Undone,
    /// A clear of the cache, which counts as one delete of each key.
    Clear,
}

#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub key: u64,
    pub command: Command,
}

/// A client's request.
#[derive(Debug, Clone)]
pub struct Request {
    pub cache: Cache,
    pub shape: Shape,
    pub calls: Vec<Call>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Done,
    NotDone,
    /// The outcome is unknown.
    Perhaps,
}

/// The answer to a client's call.
#[derive(Debug, Clone, Copy)]
pub struct CallResult {
    pub began: Moment,
    pub ended: Moment,
    pub answer: Answer,
    pub fate: Fate,
}

/// A SQL session or a Redis client.
pub trait Way: Send {
    /// Returns whether the protocol can express the command.
    fn can(&self, cache: Cache, command: &Command) -> bool;

    /// Runs a request, and returns the answer to each call. A call in a transaction ends when the transaction ends;
    /// only a read before the first change of its key ends at once.
    fn run(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult>;

    /// Returns whether the connection has ended.
    fn is_broken(&self) -> bool;
}

/// Translates a request and its answers for the checker. If a call has no answer, its outcome counts as decided at
/// `decided`.
pub fn operations(
    client: usize,
    request: &Request,
    results: &[CallResult],
    decided: Moment,
) -> Vec<Operation> {
    let pairs: Vec<(&Call, &CallResult)> = request.calls.iter().zip(results).collect();
    let of = |key: u64, pairs: &[(&Call, &CallResult)]| {
        let certain = pairs.iter().all(|(_, result)| result.fate == Fate::Done);
        let ended = pairs.iter().map(|(_, result)| result.ended).max();
        Operation {
            client,
            key: request.cache.key(key),
            began: pairs[0].1.began,
            ended: match certain {
                true => ended.unwrap_or(decided),
                false => decided,
            },
            steps: pairs.iter().map(step).collect(),
            certain,
        }
    };
    // A miss says nothing about the source row.
    let is_sight = |result: &CallResult| matches!(result.answer, Answer::Value(Some(_)));
    let is_said = |pair: &&(&Call, &CallResult)| match request.cache.source {
        Some(_) => pair.0.command == Command::Get && is_sight(pair.1),
        None => pair.1.fate != Fate::NotDone && !says_nothing(pair),
    };
    let is_transaction = matches!(request.shape, Shape::Together | Shape::Undone);
    if !is_transaction || !request.cache.is_table() || request.cache.source.is_some() {
        let said = pairs.iter().filter(is_said);
        return said.map(|pair| of(pair.0.key, &[*pair])).collect();
    }
    let mut keys: Vec<u64> = request.calls.iter().map(|call| call.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut operations = Vec::new();
    for key in keys {
        let its = pairs.iter().filter(|(call, _)| call.key == key);
        let its: Vec<(&Call, &CallResult)> = its.copied().collect();
        let changes = |pair: &(&Call, &CallResult)| !step(pair).only_reads();
        let first = its.iter().position(changes).unwrap_or(its.len());
        let (looks, rest) = its.split_at(first);
        for (call, result) in looks.iter().filter(|pair| !says_nothing(pair)) {
            // The read saw the value, whatever the outcome of the transaction.
            let result = CallResult {
                fate: Fate::Done,
                ..**result
            };
            operations.push(of(key, &[(call, &result)]));
        }
        let stands = rest.iter().all(|(_, result)| result.fate != Fate::NotDone);
        if !rest.is_empty() && stands && request.shape == Shape::Together {
            operations.push(of(key, rest));
        }
    }
    operations
}

fn step((call, result): &(&Call, &CallResult)) -> Step {
    Step {
        command: call.command,
        answer: result.answer,
    }
}

/// Returns whether the call is a read without an answer, from which the checker learns nothing.
fn says_nothing(pair: &(&Call, &CallResult)) -> bool {
    pair.1.answer == Answer::Unknown && step(pair).only_reads()
}

/// Translates a remaining time in milliseconds as Redis returns it: -1 means no deadline, -2 no entry.
fn left(millis: i64) -> Answer {
    const HOUR: i64 = 3_600_000;
    Answer::Left(match millis {
        -2 => None,
        -1 => Some(Deadline::Never),
        near if near < HOUR / 2 => Some(Deadline::Soon(0, 0)),
        far => Some(Deadline::Hours(((far + HOUR / 2) / HOUR) as u8)),
    })
}

/// Returns the keys and values if all calls are sets without a condition and without a deadline.
fn plain_sets(calls: &[Call]) -> Option<Vec<(u64, i64)>> {
    use crate::linear::{Until, When};
    let set = |call: &Call| match call.command {
        Command::Set {
            value,
            when: When::Always,
            until: Until::Never,
        } => Some((call.key, value)),
        _ => None,
    };
    let sets: Vec<(u64, i64)> = calls.iter().map(set).collect::<Option<_>>()?;
    are_different(calls).then_some(sets)
}

fn plain_gets(calls: &[Call]) -> bool {
    calls.iter().all(|call| call.command == Command::Get) && are_different(calls)
}

fn are_different(calls: &[Call]) -> bool {
    let mut keys: Vec<u64> = calls.iter().map(|call| call.key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len() == calls.len()
}
