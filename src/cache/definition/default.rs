//! The DEFAULT of an attached table's deadlines, which stands for the cache's ttl as long as there is
//! one: a row that others write without a deadline has the cache's.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::model::settings::{self, Settings};
use crate::cache::model::{ddl, dialect};
use crate::pg::catalog::columns::{Columns, former_default};
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::catalog::relation;

/// Gives the deadline's column of an attached table the default that its settings ask for: now and
/// the ttl, or without one what it had before.
pub fn follow_ttl(table: Oid, columns: &Columns, settings: &Settings) {
    let Some(ttl) = settings.ttl else {
        return restore(table, columns);
    };
    let default = default_for(columns, "pg_catalog.clock_timestamp()", &ttl);
    set(table, columns, Some(default.as_bytes()));
}

fn default_for(columns: &Columns, now: &str, ttl: &Interval) -> String {
    dialect::default_deadline(columns.deadline_form, now, &settings::iso_8601(ttl))
}

/// As the table's owner: the former default is a text that the owner can have made up, and whoever
/// may detach the table, a superuser among them, must not run it with more rights.
pub fn restore(table: Oid, columns: &Columns) {
    let former = former_default(table).flatten();
    let _owner = AsOwner::to_maintain(table);
    set(table, columns, former.as_deref());
}

fn set(table: Oid, columns: &Columns, default: Option<&[u8]>) {
    let table = relation::qualified(table);
    let column = columns.deadline.name.to_bytes();
    let begin: [&[u8]; 4] = [b"ALTER TABLE ", table.to_bytes(), b" ALTER COLUMN ", column];
    let end: [&[u8]; 2] = match default {
        Some(default) => [b" SET DEFAULT ", default],
        None => [b" DROP DEFAULT", b""],
    };
    ddl::run(&[begin.as_slice(), end.as_slice()].concat());
}
