//! The table of commands: names, arity, flags, where the keys are, and how this server treats each. It is the only list
//! of commands; the rest of the server reads the rows.

mod entry;
mod find;
mod rows;

pub use entry::{Counted, Entry, Keys, Kind, category, flag, rule};
pub(crate) use find::row;
pub use find::{find, known_name, named};
pub use rows::TABLE;
