//! The table of commands: names, arity, flags, positions of keys, and this server's treatment of each. It is the only
//! list of commands; the rest of the server reads the rows.

mod entry;
mod find;
mod rows;

pub use entry::{Counted, Entry, Handler, Keys, Kind, category, flag, rule};
pub(crate) use find::row;
pub use find::{find, known_name, named};
pub use rows::TABLE;
