//! Whether what clients were told could have happened one at a time: a checker of linearizability, key by key.
//!
//! Where [`crate::history`] wants writes in an order that their writers keep by a lock, nobody orders them here:
//! clients of any protocol write as they like, and the checker looks for an order that explains every answer.
//! An operation takes effect at one moment between its call and its answer. One whose answer never came has
//! happened by the time its fate was decided, or never. It knows nothing of Postgres or pgcache.

mod search;
mod step;

use std::collections::BTreeMap;

pub use self::step::{Answer, Command, Deadline, Entry, Step, Until, When};

/// A moment on the clock that all clients of a history share, in nanoseconds.
pub type Moment = u64;

/// What a client did to one key, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// A client's operations are in the order in which it asked for them, whenever they were answered.
    pub client: usize,
    pub key: u64,
    pub began: Moment,
    pub ended: Moment,
    /// All of it at once: a transaction has several.
    pub steps: Vec<Step>,
    /// Whether it has happened; else nobody knows.
    pub certain: bool,
}

impl Operation {
    /// Whether its answers say that nothing was changed by it.
    pub fn only_looks(&self) -> bool {
        self.certain && self.steps.iter().all(Step::only_looks)
    }
}

/// An operation that no order explains.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub operation: Operation,
    /// What the key may have held before it, by what was told until then.
    pub held: Vec<Option<Entry>>,
    /// What was under way with it, or had just ended.
    pub beside: Vec<Operation>,
}

/// Looks for an order that explains everything. All keys are empty in the beginning. The operations of a client
/// are in its order.
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
