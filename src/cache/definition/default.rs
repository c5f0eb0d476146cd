//! Sets the DEFAULT of a cache's deadline column, so that a row that plain SQL writes without a deadline gets the
//! cache's ttl.
//!
//! The DEFAULT changes with the ttl, under a lock that keeps readers out, as Postgres requires. An attached table may
//! have had its own DEFAULT. The marker trigger keeps that DEFAULT (`pg::catalog::columns`), and it is restored when
//! the ttl is removed or the table is detached.

use pgrx::datum::Interval;
use pgrx::pg_sys::{self, Oid};

use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::model::settings::iso_8601;
use crate::cache::model::{ddl, dialect};
use crate::pg::catalog::columns::{Columns, former_default};
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::catalog::relation;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::temporary_settings::{Held, Texts};
use crate::pg::spi::plan::query_once;
use crate::pg::value::moment::DeadlineForm;
use crate::pg::value::typed::Typed;

/// The clock, not the start of the transaction. Otherwise a long transaction could write rows that are already expired.
const NOW: &str = "pg_catalog.clock_timestamp()";

/// Returns the DEFAULT of a table that `cache_create` creates.
pub fn of_own(ttl: &Interval) -> String {
    dialect::default_deadline(DeadlineForm::OWN, NOW, &iso_8601(ttl))
}

/// Sets the DEFAULT of a cache's deadlines for this ttl. Without a ttl, restores the former DEFAULT or drops the
/// present one. Does nothing if the column cannot have a DEFAULT because its values are generated.
pub fn put(cache: &Cache, ttl: Option<Interval>) {
    let columns = match &cache.columns {
        Some(columns) if cache.storage != Storage::Memory => columns,
        _ => return,
    };
    match ttl {
        _ if !relation::takes_default(cache.relation, columns.deadline.number) => {}
        Some(ttl) => set(cache.relation, columns, &ttl),
        None if !columns.attached => change(cache.relation, columns, None),
        None => give_back(cache, columns),
    }
}

/// Sets the DEFAULT to the current time plus the ttl.
pub fn set(table: Oid, columns: &Columns, ttl: &Interval) {
    let default = dialect::default_deadline(columns.deadline_form, NOW, &iso_8601(ttl));
    change(table, columns, Some(default.as_bytes()));
}

/// Restores the DEFAULT that the table had before its ttl, or drops the DEFAULT if the table was created as a cache.
/// Runs as the table's owner, because the owner may have forged the text of the DEFAULT: a role that detaches the
/// table, perhaps a superuser, must not evaluate it with more privileges.
pub fn give_back(cache: &Cache, columns: &Columns) {
    let takes_one = relation::takes_default(cache.relation, columns.deadline.number);
    if takes_one && cache.settings.ttl.is_some() {
        let former = former_default(cache.relation);
        let _owner = AsOwner::to_maintain(cache.relation);
        let _iso = hold_iso();
        change(cache.relation, columns, former.as_deref());
    }
}

/// Fixes the settings that affect the text of a DEFAULT while the text is written or read.
fn hold_iso() -> Option<Held> {
    match fault::on(Fault::FormerDefaultUnderSessionsSettings) {
        true => None,
        false => Texts::iso().hold(),
    }
}

fn change(table: Oid, columns: &Columns, default: Option<&[u8]>) {
    // A row that is written directly into a partition gets the partition's DEFAULT, so the partitions get the DEFAULT,
    // too.
    let alter: &[u8] = match relation::is_partitioned(table) {
        true => b"ALTER TABLE ",
        false => b"ALTER TABLE ONLY ",
    };
    let table = relation::qualified(table);
    let column = columns.deadline.name.to_bytes();
    let begin: [&[u8]; 4] = [alter, table.to_bytes(), b" ALTER COLUMN ", column];
    let end: [&[u8]; 2] = match default {
        Some(default) => [b" SET DEFAULT ", default],
        None => [b" DROP DEFAULT", b""],
    };
    ddl::run(&[begin.as_slice(), end.as_slice()].concat());
}

/// Returns the DEFAULT of a column as SQL. Every name that needs its schema under an empty search_path has it.
pub fn of_column(table: Oid, column: i16) -> Option<Vec<u8>> {
    let _path = AsOwner::to_maintain(table);
    let _iso = hold_iso();
    query_once(
        c"SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attrdef AS d \
          WHERE d.adrelid OPERATOR(pg_catalog.=) $1 AND d.adnum OPERATOR(pg_catalog.=) $2",
        &[pg_sys::OIDOID, pg_sys::INT8OID],
        &[Typed::oid(table), Typed::number(column.into())],
        |output| Some(output.text(0, 0)?.bytes().to_vec()),
    )
}
