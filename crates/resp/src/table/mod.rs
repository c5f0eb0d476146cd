//! The table of commands: their names, arity, flags, key positions, and this server's rules for them. It is the only
//! list of commands; the rest of the server reads its rows.

mod entry;
mod find;
mod rows;

pub use entry::{Counted, Entry, Handler, Keys, Kind, category, flag, rule};
pub(crate) use find::row;
pub use find::{find, known_name, named};
pub use rows::TABLE;
