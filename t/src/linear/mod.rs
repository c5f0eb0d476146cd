//! Checks linearizability key by key: whether operations that ran one at a time could have given the answers that
//! clients received.
//!
//! [`crate::history`] requires writers that a lock serializes. Here clients of any protocol write concurrently, and the
//! checker searches for an order that explains every answer. An operation takes effect at one moment between its call
//! and its answer. An operation without an answer took effect before its outcome was decided, or never. The checker is
//! independent of Postgres and pgcache.

mod search;
mod step;

use std::collections::BTreeMap;

pub use self::step::{Answer, Command, Deadline, Entry, Step, Until, When};

/// A moment on the clock that all clients of a history share, in nanoseconds.
pub type Moment = u64;

/// One client's operation on one key, which takes effect at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The client. Its operations take effect in the order of its calls, regardless of the order in which the answers
    /// arrived.
    pub client: usize,
    pub key: u64,
    pub began: Moment,
    pub ended: Moment,
    /// The steps, which take effect together. A transaction has several steps.
    pub steps: Vec<Step>,
    /// Whether the operation is known to have happened; otherwise either outcome is possible.
    pub certain: bool,
}

impl Operation {
    /// Returns whether the answers prove that the operation changed nothing.
    pub fn only_reads(&self) -> bool {
        self.certain && self.steps.iter().all(Step::only_reads)
    }
}

/// An operation that no order explains.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub operation: Operation,
    /// The contents that the key may have had before the operation, according to all earlier answers.
    pub held: Vec<Option<Entry>>,
    /// The operations that were running at the same time, or had just ended.
    pub beside: Vec<Operation>,
}

/// Searches for an order that explains all answers. At the beginning no key has an entry. The operations of one client
/// stay in the order of its calls.
pub fn check(operations: &[Operation]) -> Result<(), Box<Refusal>> {
    let mut keys: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        keys.entry(operation.key).or_default().push(operation);
    }
    keys.values()
        .try_for_each(|operations| search::explain(operations))
}

#[cfg(test)]
mod tests;
