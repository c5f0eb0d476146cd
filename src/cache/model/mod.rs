//! Types and rules that need no loaded cache: entries, keys, deadlines, settings, statements, and the notes of a
//! transaction, with one part per savepoint.

pub mod counter;
pub mod ddl;
pub mod deadline;
pub mod dialect;
pub mod entry;
pub mod expiring;
pub mod key;
pub mod key_of_hash;
pub mod key_set;
pub mod pending;
pub mod savepoints;
pub mod settings;
pub mod statement;
