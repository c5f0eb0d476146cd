//! The configurations of the model: the backends that run at the same time, and the keys that they use. Each
//! configuration is small enough to visit every state.
//!
//! A configuration is named after its subject. `tests/models/protocol.rs` runs all of them with every rule in force;
//! `tests/models/controls.rs` runs each negative control in the configuration that exposes it.

use super::model::Op::*;
use super::model::{FirstSlot, Model};

/// Two writers that overwrite one key; one of them also writes the other key of the stripe.
pub fn sets() -> Model {
    Model::new("sets")
        .actor("W1", &[Set(0), Set(1), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)])
        .actor("R2", &[Get(1), Get(0)])
}

/// A writer that deletes a key and a writer that overwrites it; the keys have entries at the start.
pub fn deletes() -> Model {
    let mut m = Model::new("deletes")
        .actor("W1", &[Delete(0), Commit])
        .actor("W2", &[Set(0), Set(1), Commit])
        .actor("R1", &[Get(0), Get(1), Get(0)]);
    m.warm = true;
    m
}

/// Plain SQL changes a row, calls cache_get, and only then notes the key.
pub fn plain_sql() -> Model {
    let mut m = Model::new("plain SQL")
        .actor("W1", &[Get(0), Change(0), Get(0), Note(0), Get(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// A user's BEFORE trigger replaces the value of a set.
pub fn altered() -> Model {
    Model::new("altered")
        .actor("W1", &[SetAltered(0), Get(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)])
}

/// A savepoint is rolled back after its set; the transaction's earlier set of the same key stays.
pub fn savepoint() -> Model {
    let mut m = Model::new("savepoint")
        .actor(
            "W1",
            &[
                Set(0),
                Savepoint,
                Set(0),
                Get(0),
                RollbackTo,
                Get(0),
                Commit,
            ],
        )
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// A write after the transaction's mark, to a key whose first write was rolled back. The rollback has released the row
/// lock, but the mark remains.
pub fn late() -> Model {
    Model::new("late write")
        .actor("W1", &[Savepoint, Set(0), RollbackTo, Commit, Set(0)])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)])
}

/// A write after the transaction's marks, to a key without a mark.
pub fn late_neighbour() -> Model {
    let mut m = Model::new("late write of a neighbour")
        .actor("W1", &[Set(0), Commit, Set(1)])
        .actor("W2", &[Set(1), Commit])
        .actor("R1", &[Get(1), Get(1)]);
    m.warm = true;
    m
}

/// ABORT callbacks that run twice.
pub fn aborts_twice() -> Model {
    let mut m = Model::new("aborts twice")
        .actor("W1", &[Set(0), Set(1), Commit])
        .actor("W2", &[Set(0), Overflow, Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.abort_reruns = true;
    m
}

/// REPEATABLE READ readers and a REPEATABLE READ writer.
pub fn repeatable_read() -> Model {
    Model::new("repeatable read")
        .actor("W1", &[Set(0), Set(1), Commit])
        .actor("W2", &[Set(0), Commit])
        .repeatable_read("RR", &[Get(0), Select(0), Get(1)])
        .actor("R1", &[Get(0), Get(0)])
}

pub fn repeatable_writer() -> Model {
    Model::new("repeatable read writer")
        .actor("W1", &[Set(0), Set(1), Commit])
        .repeatable_read("W2", &[Get(1), Set(0), Get(0), Get(1), Commit])
        .actor("R1", &[Get(0), Get(1)])
}

/// TRUNCATE between two sets of one transaction, while readers and another setter run.
pub fn truncate() -> Model {
    let mut m = Model::new("truncate")
        .actor("W1", &[Set(0), Truncate, Set(1), Get(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(1)]);
    m.warm = true;
    m
}

/// TRUNCATE between a REPEATABLE READ hit and the SELECT after it.
pub fn truncate_repeatable() -> Model {
    let mut m = Model::new("truncate, repeatable read")
        .actor("W1", &[Truncate, Set(0), Commit])
        .repeatable_read("RR", &[Get(0), Select(0), Get(1)])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// The dirty keys overflow, so that the whole cache becomes dirty, while another writer sets one of the keys.
pub fn overflow() -> Model {
    let mut m = Model::new("overflow")
        .actor("W1", &[Set(0), Overflow, Set(1), Get(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// The dirty keys overflow when some of them are already marked.
pub fn late_overflow() -> Model {
    Model::new("late overflow")
        .actor("W1", &[Set(0), Commit, Set(1), Overflow])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(1)])
}

/// A late write to a cache that is already marked, through a key whose row lock was released in between.
pub fn late_after_overflow() -> Model {
    Model::new("late write after overflow")
        .actor(
            "W1",
            &[Savepoint, Set(1), Overflow, RollbackTo, Commit, Set(0)],
        )
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)])
}

/// The first get of a cache races with its first write.
pub fn first_get() -> Model {
    let mut m = Model::new("first get")
        .actor("W1", &[Set(0), Commit])
        .actor("W2", &[Set(0), Overflow, Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.slot = FirstSlot::Absent;
    m
}

/// The slot table is full when writers mark, and has room a moment later.
pub fn table_full() -> Model {
    let mut m = Model::new("slot table full")
        .actor("W1", &[Set(0), Commit])
        .actor("W2", &[Set(0), Overflow, Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.slot = FirstSlot::TableFull;
    m
}

/// The slot table is full when writers mark, and a late write comes after the writer has taken the cache's lock.
pub fn table_full_late() -> Model {
    let mut m = late_after_overflow();
    m.name = "slot table full, late write";
    m.slot = FirstSlot::TableFull;
    m
}

/// DROP, and then CREATE of another relation with the same OID.
pub fn drop_create() -> Model {
    let mut m = Model::new("drop and create")
        .actor("W1", &[Drop, Commit])
        .actor("W2", &[Create, Set(0), Commit])
        .actor("W3", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// A set and DROP in one transaction, while another session has rolled back its only write. That session holds no lock,
/// but its cache is dirty.
pub fn drop_under_mark() -> Model {
    let mut m = Model::new("drop under a mark")
        .actor("W1", &[Savepoint, Set(0), Overflow, RollbackTo, Commit])
        .actor("W2", &[Set(0), Drop, Commit])
        .actor("W3", &[Create, Set(0), Commit])
        .actor("R1", &[Get(0)]);
    m.warm = true;
    m
}

/// DISABLE TRIGGER, changes that no trigger notes, ENABLE ALWAYS, and the sweeper.
pub fn suspension() -> Model {
    let mut m = Model::new("suspension")
        .actor("A1", &[Disable, Commit])
        .actor("W1", &[Change(0), Note(0), Commit])
        .actor("A2", &[EnableAlways, Commit])
        .actor("S1", &[Resume])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// pg_restore --disable-triggers in one transaction, and a set while the cache is suspended.
pub fn restore() -> Model {
    let mut m = Model::new("restore")
        .actor("A1", &[Disable, Change(0), Get(0), Note(0), Commit])
        .actor("W1", &[Set(0), Commit])
        .actor("S1", &[Resume])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// A set publishes while the cache is suspended, and then a change follows that no trigger notes.
pub fn set_while_suspended() -> Model {
    Model::new("set while suspended")
        .actor("A1", &[Disable, Commit])
        .actor("W1", &[Set(0), Commit])
        .actor("W2", &[Change(0), Note(0), Commit])
        .actor("R1", &[Get(0)])
}

/// DISABLE TRIGGER on a cache that has no slot yet.
pub fn suspension_without_slot() -> Model {
    let mut m = Model::new("suspension without a slot")
        .actor("A1", &[Disable, Commit])
        .actor("W1", &[Change(0), Note(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.slot = FirstSlot::TableFull;
    m
}

/// A key that is set, and then changed by plain SQL.
pub fn set_then_update() -> Model {
    let mut m = Model::new("set, then UPDATE")
        .actor("W1", &[Set(0), Change(0), Note(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

/// A set that needs room in another partition to publish, while another writer sets the key.
pub fn needs_room() -> Model {
    let mut m = Model::new("set that needs room")
        .actor("W1", &[Set(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.needs_room = true;
    m
}

/// A late write that needs room in another partition: the rollback of a savepoint has released the row lock.
pub fn needs_room_late() -> Model {
    let mut m = late();
    m.name = "late write that needs room";
    m.needs_room = true;
    m
}

/// Two sets of one key; the stripe has no room for the second writer's mark.
pub fn no_place() -> Model {
    let mut m = Model::new("no place for a mark")
        .actor("W1", &[Set(0), Commit])
        .actor("W2", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m.no_place_for = Some(1);
    m
}

/// A set of a key, while another writer's mark finds no room and that writer writes again after its mark.
pub fn no_place_late() -> Model {
    let mut m = Model::new("no place, late write")
        .actor("W1", &[Set(0), Commit])
        .actor("W2", &[Savepoint, Set(0), RollbackTo, Commit, Set(0)])
        .actor("R1", &[Get(0), Get(0)]);
    m.no_place_for = Some(1);
    m
}

/// A key of another cache on the same stripe.
pub fn other_key() -> Model {
    Model::new("another cache's key")
        .actor("O1", &[OtherKey, Commit])
        .actor("W1", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)])
        .actor("R2", &[Get(1)])
}

/// Another cache is changed as a whole and has no slot, while the model's cache gets one.
pub fn other_cache() -> Model {
    let mut m = Model::new("another cache without a slot")
        .actor("O1", &[OtherCache, Commit])
        .actor("W1", &[Set(0), Overflow, Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.slot = FirstSlot::Absent;
    m
}

/// Returns all configurations.
pub fn all() -> Vec<Model> {
    vec![
        sets(),
        deletes(),
        plain_sql(),
        altered(),
        savepoint(),
        late(),
        late_neighbour(),
        aborts_twice(),
        repeatable_read(),
        repeatable_writer(),
        truncate(),
        truncate_repeatable(),
        overflow(),
        late_overflow(),
        late_after_overflow(),
        first_get(),
        table_full(),
        table_full_late(),
        drop_create(),
        drop_under_mark(),
        suspension(),
        restore(),
        set_while_suspended(),
        suspension_without_slot(),
        set_then_update(),
        needs_room(),
        needs_room_late(),
        no_place(),
        no_place_late(),
        other_key(),
        other_cache(),
    ]
}
