//! The command table: each command's name, arity, flags and key positions, and this server's rules for it. It is the
//! only list of commands; the rest of the server reads its rows.

mod command_rows;
mod find;
mod row_type;

pub use command_rows::TABLE;
pub(crate) use find::row;
pub use find::{find, known_name, named};
pub use row_type::{Counted, Entry, Handler, Keys, Kind, category, flag, rule};
