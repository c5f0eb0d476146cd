//! Finds the columns of a cache's key, value and deadline, and their types.
//!
//! A table that `cache_create` has created has them under their names. A table that `cache_attach` has made a cache
//! names them by a trigger that never fires:
//!
//! `BEFORE UPDATE OF <key>, <value>, <deadline> ... EXECUTE FUNCTION pgcache.columns('unit=s', ...)`
//!
//! Postgres stores the three columns by their numbers, in this order. So they follow RENAME COLUMN, block DROP
//! COLUMN, and are restored from a dump under their names. The trigger is a statement trigger, so no partition
//! inherits it, and is disabled, so it costs nothing.

mod marker;
mod single;
pub mod validate_columns;

pub use marker::{former_default, marked};
pub use single::{key_column, key_in_partition, key_name, key_type, value_column};
pub use validate_columns::{Columns, Misfit, of_cache, of_table};
