//! Two ways to the same caches: an operation is described once, and run by a session of SQL or by a client of the
//! Redis protocol. What either was told becomes a history for [`crate::linear`].
//!
//! What counts as one step there: a command by itself. Of a transaction on a table, for each key, all from its
//! first change of the key on, since it has the row's lock from there to its commit; what it has only looked at
//! before is a read of that moment, as under READ COMMITTED. On a memory cache nothing waits for a commit, and
//! nothing is taken back. Of a cache whose entries are made of others' rows each hit is a read of the row.

mod door;
mod sql;

use std::time::Instant;

pub use self::door::Door;
pub use self::sql::Sql;
use crate::linear::{Answer, Command, Deadline, Moment, Operation, Step};

/// A cache that both ways lead to. All keys are texts, and all values numbers in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Of the door's database.
    pub number: usize,
    pub name: &'static str,
    pub storage: &'static str,
    /// The cache whose rows its entries are made of, and go with (`cache_depend`).
    pub source: Option<&'static Cache>,
}

impl Cache {
    pub fn is_table(self) -> bool {
        self.storage != "memory"
    }

    /// The number of one of its keys in a history of all caches. What is made of a row is a sight of that row.
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

/// How the calls of a request belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each for itself; the door gets them in one piece.
    OneByOne,
    /// A transaction, or one call for many keys.
    Together,
    /// A transaction that is taken back.
    Undone,
    /// Empties the cache; the calls are deletes of all keys.
    Clear,
}

#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub key: u64,
    pub command: Command,
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub struct Request {
    pub cache: Cache,
    pub shape: Shape,
    pub calls: Vec<Call>,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Done,
    NotDone,
    /// Nobody knows.
    Perhaps,
}

/// What a client was told of a call.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    pub began: Moment,
    pub ended: Moment,
    pub answer: Answer,
    pub fate: Fate,
}

/// A client of either protocol.
pub trait Way: Send {
    /// Whether there are words for it.
    fn can(&self, cache: Cache, command: &Command) -> bool;

    /// Runs a request; what it was told of each call. Those of a transaction end with it, but for what was looked at.
    fn run(&mut self, request: &Request, clock: &Clock) -> Vec<Told>;

    /// The connection is gone.
    fn is_broken(&self) -> bool;
}

/// What a request and its answers say to the checker. What was not answered is decided at this moment.
pub fn operations(
    client: usize,
    request: &Request,
    told: &[Told],
    decided: Moment,
) -> Vec<Operation> {
    let pairs: Vec<(&Call, &Told)> = request.calls.iter().zip(told).collect();
    let of = |key: u64, pairs: &[(&Call, &Told)]| {
        let certain = pairs.iter().all(|(_, told)| told.fate == Fate::Done);
        let ended = pairs.iter().map(|(_, told)| told.ended).max();
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
    // That what is made of something is missing says nothing.
    let is_sight = |told: &Told| matches!(told.answer, Answer::Value(Some(_)));
    let is_said = |pair: &&(&Call, &Told)| match request.cache.source {
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
        let its: Vec<(&Call, &Told)> = its.copied().collect();
        let changes = |pair: &(&Call, &Told)| !step(pair).only_looks();
        let first = its.iter().position(changes).unwrap_or(its.len());
        let (looks, rest) = its.split_at(first);
        for (call, told) in looks.iter().filter(|pair| !says_nothing(pair)) {
            // It was seen, whatever became of the transaction.
            let told = Told {
                fate: Fate::Done,
                ..**told
            };
            operations.push(of(key, &[(call, &told)]));
        }
        let stands = rest.iter().all(|(_, told)| told.fate != Fate::NotDone);
        if !rest.is_empty() && stands && request.shape == Shape::Together {
            operations.push(of(key, rest));
        }
    }
    operations
}

fn step((call, told): &(&Call, &Told)) -> Step {
    Step {
        command: call.command,
        answer: told.answer,
    }
}

/// A look without an answer.
fn says_nothing(pair: &(&Call, &Told)) -> bool {
    pair.1.answer == Answer::Unknown && step(pair).only_looks()
}

/// What is left in milliseconds, as the protocol says it: -1 is for ever, -2 nothing there.
fn left(millis: i64) -> Answer {
    const HOUR: i64 = 3_600_000;
    Answer::Left(match millis {
        -2 => None,
        -1 => Some(Deadline::Never),
        near if near < HOUR / 2 => Some(Deadline::Soon(0, 0)),
        far => Some(Deadline::Hours(((far + HOUR / 2) / HOUR) as u8)),
    })
}

/// All are sets without a condition and without a deadline, or none.
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
