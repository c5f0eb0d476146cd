//! Turns an existing table into a cache, and back into a plain table.
//!
//! The table keeps its owner, rows, columns, indexes, privileges and writers. It gets triggers, one of which names its
//! columns (`pg::catalog::columns`); a column for deadlines, if the named column does not exist; and, with a ttl, a
//! DEFAULT for the deadlines. A table that cannot hold entries is refused with 42804 and a hint about the necessary
//! change; pgcache does not make the change itself.

use std::ffi::{CStr, CString};

use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{Oid, RELPERSISTENCE_PERMANENT};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::{declare, default, define};
use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::commit::changes;
use crate::cache::model::settings::Settings;
use crate::cache::model::{ddl, settings};
use crate::error::Error;
use crate::pg::catalog::columns::{self, Columns};
use crate::pg::catalog::{distributed, inheritance, name, relation};
use crate::pg::encoding::printable;
use crate::pg::session::lock::Mode;
use crate::pg::table::shape;

/// The arguments of `cache_attach` about a table's columns.
pub struct Names {
    pub key: CString,
    pub value: CString,
    pub deadline: CString,
    /// The unit of a Unix time, `s` or `ms`; None if the column is a timestamptz.
    pub unit: Option<String>,
}

/// Makes a table a cache. The caller owns the table and holds an ACCESS EXCLUSIVE lock on it.
pub fn attach(table: Oid, names: &Names, settings: Settings) -> Result<(), Error> {
    check_kind(table)?;
    if let Some(unit) = names
        .unit
        .as_deref()
        .filter(|unit| !["s", "ms"].contains(unit))
    {
        return Err(Error::UnknownUnit(unit.into()));
    }
    let qualified = relation::qualified(table);
    require_column(table, &names.key, "key_column", "keys")?;
    require_column(table, &names.value, "value_column", "values")?;
    let is_new = names.unit.is_none() && !relation::has_column(table, &names.deadline);
    if is_new {
        add_deadline(&qualified, &names.deadline, settings.ttl);
        notice_new_column(table, &names.deadline);
    }
    require_column(table, &names.deadline, "expires_column", "deadlines")?;
    let columns = [&*names.key, &*names.value, &*names.deadline];
    let unit = names.unit.as_deref().map(str::as_bytes);
    let columns = columns::of_table(table, columns, unit).map_err(|misfit| {
        Error::Unattachable(relation::display_name(table), misfit.why, misfit.hint)
    })?;
    if columns.generated && settings.ttl.is_some() {
        return Err(Error::GeneratedTtl);
    }
    let former = match is_new {
        true => None,
        false => default::of_column(table, columns.deadline.number),
    };
    put_marker(&qualified, &columns, unit, former.as_deref());
    define::put_triggers(&qualified, settings);
    if let Some(ttl) = &settings.ttl {
        default::set(table, &columns, ttl);
    }
    if relation::persistence(table) == Some(RELPERSISTENCE_PERMANENT) {
        let hint = "Attach the table on each subscriber, too. If cache_attach has added a column, replication stops until the subscriber's table has it.";
        define::notice_publication(table, "cache_attach", hint);
    }
    Ok(())
}

/// Makes a cache a plain table again. The caller owns the table and holds an ACCESS EXCLUSIVE lock on it.
pub fn detach(cache: &Cache) -> Result<(), Error> {
    let (table, qualified) = (cache.relation, cache.qualified_name());
    if cache.storage == Storage::Memory {
        return Err(Error::DetachedView(relation::display_name(table)));
    }
    if define::is_main(cache) {
        return Err(Error::DetachedMain);
    }
    declare::end_all(table);
    if let Some(columns) = &cache.columns {
        default::give_back(cache, columns);
    }
    for trigger in shape::own_triggers(table) {
        let trigger = name::quote_identifier(&trigger);
        ddl::run(&[
            b"DROP TRIGGER ",
            trigger.to_bytes(),
            b" ON ",
            qualified.to_bytes(),
        ]);
    }
    changes::note_dropped(table); // frees the copies and the slot, as for a dropped cache
    Ok(())
}

/// Adds the column for deadlines. Its DEFAULT is the same for all rows, so Postgres does not rewrite the table. The ttl
/// of existing rows begins now.
fn add_deadline(table: &CStr, column: &CStr, ttl: Option<Interval>) {
    let column = name::quote_identifier(column);
    let default = ttl.map(|ttl| {
        let ttl = settings::iso_8601(&ttl);
        format!(" DEFAULT pg_catalog.now() OPERATOR(pg_catalog.+) '{ttl}'::pg_catalog.interval")
    });
    ddl::run(&[
        b"ALTER TABLE ",
        table.to_bytes(),
        b" ADD COLUMN ",
        column.to_bytes(),
        b" pg_catalog.timestamptz",
        default.unwrap_or_default().as_bytes(),
    ]);
}

/// Raises a notice about the new column, because the table may already hold deadlines in a column that the caller did
/// not name.
fn notice_new_column(table: Oid, column: &CStr) {
    let [column, table] = [relation::decoded(column), relation::display_name(table)];
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        printable(format!(
            "added column \"{column}\" for deadlines to table \"{table}\""
        )),
        "pgcache",
    )
    .set_hint("If another column of the table already holds deadlines, detach the table, drop the new column, and pass that other column as expires_column.")
    .report(PgLogLevel::NOTICE);
}

fn require_column(
    table: Oid,
    name: &CStr,
    argument: &'static str,
    holds: &'static str,
) -> Result<(), Error> {
    match relation::has_column(table, name) {
        true => Ok(()),
        false => Err(Error::NoSuchColumn {
            column: relation::decoded(name),
            table: relation::display_name(table),
            argument,
            holds,
        }),
    }
}

/// Raises 42804 for a relation that is not a plain user table, 42P07 for a cache, and 42809 for a table that Citus
/// distributes.
fn check_kind(table: Oid) -> Result<(), Error> {
    if shape::is_marked_as_cache(table) {
        return Err(Error::AttachedAlready(relation::display_name(table)));
    }
    if distributed::is_distributed(table) {
        return Err(Error::Distributed(relation::display_name(table)));
    }
    let refuse = |why, hint| {
        let name = relation::display_name(table);
        Err(Error::AttachedKind(name, why, hint))
    };
    if !relation::is_table(table) {
        return refuse("The relation is not a table.", None);
    }
    if relation::is_temporary(table) {
        let hint = "Use an unlogged table, which other sessions can read.";
        return refuse("The table is temporary.", Some(hint));
    }
    if relation::is_of_postgres(table) {
        return refuse("The table belongs to Postgres.", None);
    }
    if relation::is_of_an_extension(table) {
        return refuse("The table belongs to an extension.", None);
    }
    if relation::is_partition(table) {
        let hint = "Run ALTER TABLE ... DETACH PARTITION first. Once the table is a cache, it can become a partition again.";
        return refuse("The table is a partition.", Some(hint));
    }
    // The table's trigger would replace the trigger of the partition.
    if relation::is_partitioned(table)
        && inheritance::family(table, Mode::Remove)
            .into_iter()
            .any(shape::is_marked_as_cache)
    {
        let hint = "Turn such partitions into plain tables first with cache_detach().";
        return refuse("One partition of the table is a cache.", Some(hint));
    }
    Ok(())
}

fn put_marker(table: &CStr, columns: &Columns, unit: Option<&[u8]>, former: Option<&[u8]>) {
    let argument = |name: &[u8], value: &[u8]| name::literal(&[name, value].concat());
    let unit = unit.map(|unit| argument(b"unit=", unit));
    let former = former.map(|former| argument(b"default=", former));
    let arguments: Vec<Vec<u8>> = [unit, former].into_iter().flatten().collect();
    ddl::run(&[
        b"CREATE TRIGGER pgcache_columns BEFORE UPDATE OF ",
        columns.key.name.to_bytes(),
        b", ",
        columns.value.name.to_bytes(),
        b", ",
        columns.deadline.name.to_bytes(),
        b" ON ",
        table.to_bytes(),
        b" FOR EACH STATEMENT EXECUTE FUNCTION pgcache.columns(",
        &arguments.join(b", ".as_slice()),
        b")",
    ]);
    ddl::run(&[
        b"ALTER TABLE ",
        table.to_bytes(),
        b" DISABLE TRIGGER pgcache_columns",
    ]);
}
