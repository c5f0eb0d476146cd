//! Finds the key, value and deadline columns of a cache's table, and their types.
//!
//! In a table that `cache_create` has created, the columns have fixed names. A table that `cache_attach` has turned
//! into a cache has a marker, which is a trigger that never fires and names the columns:
//!
//! `BEFORE UPDATE OF <key>, <value>, <deadline> ... EXECUTE FUNCTION pgcache.columns('unit=s', ...)`
//!
//! Postgres stores the columns of a trigger by number, in this order. So the trigger follows RENAME COLUMN and blocks
//! DROP COLUMN; a dump names the columns, so a restore finds them. The trigger is a statement trigger so that no
//! partition inherits it, and disabled so that it costs nothing.

mod marker;
mod single;
pub mod validate_columns;

pub use marker::{former_default, marked};
pub use single::{key_column, key_in_partition, key_name, key_type, value_column};
pub use validate_columns::{Columns, Misfit, of_cache, of_table};
