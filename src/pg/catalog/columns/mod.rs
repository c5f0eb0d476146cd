//! Which columns of a table a cache's key, value and deadline are in, and what these columns hold.
//!
//! A table that `cache_create` has made has them under their names. One that was made a cache by
//! `cache_attach` says so by a trigger that never fires:
//!
//! `BEFORE UPDATE OF <key>, <value>, <deadline> ... EXECUTE FUNCTION pgcache.columns('unit=s', ...)`
//!
//! Postgres keeps the three by their numbers, in this order. So they follow RENAME COLUMN, hold back
//! DROP COLUMN, and come back under their names from a dump. The trigger is for statements, so no
//! partition inherits it, and is disabled, so it costs nothing.

mod marker;
mod single;
pub mod validate_columns;

pub use marker::{former_default, marked};
pub use single::{key_column, key_in_partition, key_name, key_type, value_column};
pub use validate_columns::{Columns, Misfit, of_cache, of_table};
