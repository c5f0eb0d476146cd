//! A configuration of the model: the backends and their scripts, the first state, and the clauses that it leaves out.

use super::clause::Dropped;
use super::state::{ABSENT, MAX_ACTORS};

/// An operation in a backend's script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// cache_set: the function changes the row and notes the key with the value.
    Set(usize),
    /// cache_delete: the function removes the row and notes the key.
    Delete(usize),
    /// cache_set on a cache whose BEFORE trigger stores another value.
    SetAltered(usize),
    /// The first step of plain SQL: the row changes.
    Change(usize),
    /// The second step of plain SQL: the AFTER trigger notes the row's key.
    Note(usize),
    Truncate,
    Drop,
    /// CREATE of a relation that gets the OID of the dropped one.
    Create,
    /// ALTER TABLE ... DISABLE TRIGGER.
    Disable,
    /// ALTER TABLE ... ENABLE ALWAYS TRIGGER.
    EnableAlways,
    /// The sweeper ends the suspension of a cache if the trigger's mode is ALWAYS.
    Resume,
    /// The dirty keys are over their limit: the whole cache becomes dirty.
    Overflow,
    /// Changes a key of another cache whose hash is on the same stripe.
    OtherKey,
    /// Changes another cache, which has no slot, as a whole.
    OtherCache,
    Savepoint,
    RollbackTo,
    /// The callbacks run here; operations after Commit are writes that come after the transaction's marks.
    Commit,
    Get(usize),
    Select(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
}

/// The script of one backend. A script with a Commit is one transaction, which commits there or rolls back at any
/// earlier step. In a script without a Commit, each operation is its own transaction under READ COMMITTED; under
/// REPEATABLE READ all operations are one read-only transaction.
#[derive(Clone, Debug)]
pub struct Script {
    pub name: &'static str,
    pub isolation: Isolation,
    pub ops: Vec<Op>,
}

impl Script {
    pub fn commit_place(&self) -> Option<usize> {
        self.ops.iter().position(|op| *op == Op::Commit)
    }
}

/// The cache's slot in the first state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstSlot {
    Present,
    /// No slot exists, but the slot table has room for one.
    Absent,
    /// No slot exists, and the slot table is full until another cache gives up its slot.
    TableFull,
}

/// A configuration: the scripts of its backends, its first state, and the clauses that it leaves out.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub scripts: Vec<Script>,
    pub slot: FirstSlot,
    /// Whether both keys have an entry in the first state.
    pub warm: bool,
    /// Whether transactions may roll back at each step.
    pub aborts: bool,
    /// Whether the ABORT callbacks may run twice.
    pub abort_reruns: bool,
    /// Whether entries may be evicted at any time.
    pub evicts: bool,
    /// Whether code under a partition lock reads epochs before `pending_writers`; the promises must hold in either
    /// order.
    pub epochs_first: bool,
    /// Whether a publish needs room from another partition.
    pub needs_room: bool,
    /// The actor whose marks find no room on the stripe; None if every mark finds room.
    pub no_place_for: Option<usize>,
    /// Whether promise (f) is checked in every state, too.
    pub checks_each_state: bool,
    pub dropped: Dropped,
}

impl Model {
    pub fn new(name: &'static str) -> Self {
        Model {
            name,
            scripts: Vec::new(),
            slot: FirstSlot::Present,
            warm: false,
            aborts: true,
            abort_reruns: false,
            evicts: true,
            epochs_first: false,
            needs_room: false,
            no_place_for: None,
            checks_each_state: false,
            dropped: Dropped::default(),
        }
    }

    /// Adds a backend that runs READ COMMITTED.
    pub fn actor(mut self, name: &'static str, ops: &[Op]) -> Self {
        self.scripts.push(Script {
            name,
            isolation: Isolation::ReadCommitted,
            ops: ops.to_vec(),
        });
        assert!(self.scripts.len() <= MAX_ACTORS);
        self
    }

    pub fn repeatable_read(self, name: &'static str, ops: &[Op]) -> Self {
        let mut model = self.actor(name, ops);
        if let Some(script) = model.scripts.last_mut() {
            script.isolation = Isolation::RepeatableRead;
        }
        model
    }

    pub fn repeatable(&self, actor: usize) -> bool {
        self.scripts[actor].isolation == Isolation::RepeatableRead
    }

    pub fn op(&self, actor: usize, pc: u8) -> Option<Op> {
        self.scripts[actor].ops.get(pc as usize).copied()
    }

    /// Returns whether this backend has called COMMIT.
    pub fn committing(&self, actor: usize, pc: u8) -> bool {
        self.scripts[actor]
            .commit_place()
            .is_some_and(|place| place < pc as usize)
    }

    /// Returns whether code that reads a slot's words under a partition lock takes two steps. It takes one step if no
    /// backend can change these words, because the result is the same.
    pub fn splits_sections(&self) -> bool {
        let changes_slot = |op: &Op| {
            use Op::*;
            matches!(
                op,
                Truncate | Drop | Create | Disable | EnableAlways | Resume | Overflow
            )
        };
        self.no_place_for.is_some()
            || self
                .scripts
                .iter()
                .any(|script| script.ops.iter().any(changes_slot))
    }
}

pub fn first_value(key: usize) -> u8 {
    1 + key as u8
}

/// Returns the value of a write, different for each write; ABSENT for a deletion.
pub fn value_of(actor: usize, pc: u8, op: Op) -> u8 {
    if matches!(op, Op::Delete(_)) {
        ABSENT
    } else {
        (actor as u8 + 1) * 16 + pc
    }
}

/// Returns the value that a BEFORE trigger stores in place of `value`.
pub fn altered(value: u8) -> u8 {
    value + 128
}
