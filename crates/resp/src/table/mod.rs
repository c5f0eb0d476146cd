//! The table of commands: names, arity, flags, where the keys are.

mod entry;
mod find;
mod rows;

pub use entry::{Entry, Keys, category, flag};
pub(crate) use find::row;
pub use find::{find, known_name, named};
pub use rows::TABLE;
