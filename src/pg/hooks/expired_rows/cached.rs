//! Tells the planner hooks whether a relation of a query is a cache.
//!
//! This runs for every relation of every query, so it must be cheap: it reads only the relation's entry in the
//! relcache, which Postgres keeps up to date. A cache has a trigger that calls `pgcache.record()`; an attached table
//! has another trigger that names its columns. A table without user-defined triggers costs only two lookups in memory.
//! This module keeps no result that could become out of date.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::invalidation::Functions;
use crate::pg::catalog::{columns, own, relation};
use crate::pg::memory::unguarded;
use crate::pg::value::key_type::KeyType;
use crate::pg::value::moment::DeadlineKind;
use crate::pg::version;

/// The aliases of a cache's table in pgcache's own statements, which see its expired rows.
///
/// The alias marks the statement in its text. A flag of the session instead would also apply to triggers that the
/// statement fires and to other plans that Postgres makes during the statement, and would not reach parallel workers. A
/// user who writes the alias into a query sees no more than `pgcache.show_expired` shows.
const OWN: [&CStr; 2] = [c"pgcache_c", c"pgcache_e"];

/// The function `int8(int4)`, which the condition uses to convert an integer Unix time to bigint.
pub const TO_BIGINT: Oid = Oid::from_u32(pg_sys::F_INT8_INT4);

/// The columns and functions that the condition for one cache needs.
#[derive(Clone, Copy)]
pub struct Cached {
    /// `pgcache.live`, or `pgcache.live_unix` where deadlines are Unix times.
    pub live: Oid,
    /// `pgcache.renew`.
    pub renew: Oid,
    /// The deadline column.
    pub deadline: Column,
    /// The type of the deadlines.
    pub kind: DeadlineKind,
    /// The column of the keys; None if its type cannot hold keys.
    pub key: Option<Column>,
}

/// A column, described as a node of the planner needs it.
#[derive(Clone, Copy)]
pub struct Column {
    pub number: i16,
    pub kind: Oid,
    pub modifier: i32,
    pub collation: Oid,
}

impl Column {
    fn of(column: &pg_sys::FormData_pg_attribute) -> Column {
        Column {
            number: column.attnum,
            kind: column.atttypid,
            modifier: column.atttypmod,
            collation: column.attcollation,
        }
    }

    /// Makes a node for this column of a relation of the query.
    ///
    /// # Safety
    /// `relid` is the range table index of the table with this column.
    pub unsafe fn of_row(self, relid: i32) -> *mut pg_sys::Var {
        // SAFETY: a node in the current memory context.
        unsafe {
            pg_sys::makeVar(
                relid,
                self.number,
                self.kind,
                self.modifier,
                self.collation,
                0,
            )
        }
    }
}

/// pgcache's functions in this database. A function is InvalidOid if it does not exist, for example because the
/// database has an older version of the extension.
#[derive(Clone, Copy)]
struct Known {
    record: Oid,
    live: Oid,
    live_unix: Oid,
    renew: Oid,
    as_of: Functions,
}

thread_local! {
    static KNOWN: Cell<Option<Known>> = const { Cell::new(None) };
}

/// Returns the functions; looks them up again if they may have changed.
fn known() -> Known {
    let as_of = Functions::now();
    if let Some(known) = KNOWN.get().filter(|known| known.as_of == as_of) {
        return known;
    }
    let known = Known {
        record: own::RECORD.oid(),
        live: own::LIVE.oid(),
        live_unix: own::LIVE_UNIX.oid(),
        renew: own::RENEW.oid(),
        as_of,
    };
    KNOWN.set(Some(known));
    known
}

/// Returns the columns and functions for a relation that is a cache; None for any other relation. The caller has locked
/// the relation.
///
/// # Safety
/// Called in frames with nothing to drop, from C or inside `unguarded::guarded`.
pub unsafe fn cached(relation: Oid) -> Option<Cached> {
    // SAFETY: the relcache returns an entry or NULL, and keeps it until it is closed. An error before the close jumps
    // over frames with nothing to drop; the abort closes the entry.
    unsafe {
        let open = unguarded::RelationIdGetRelation(relation);
        if open.is_null() {
            return None;
        }
        let found = match has_triggers_of_users(open) {
            true => pg_sys::panic::pgrx_extern_c_guard(|| look(open)),
            false => None,
        };
        unguarded::RelationClose(open);
        found
    }
}

/// Returns whether the relation has a user-defined trigger. Postgres' own triggers, such as those of foreign keys, do
/// not count.
///
/// # Safety
/// `relation` is open.
unsafe fn has_triggers_of_users(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller's relation is open.
    let triggers = unsafe { relation::triggers(relation) };
    triggers
        .iter()
        .any(|trigger| trigger.tgfoid.to_u32() >= pg_sys::FirstNormalObjectId)
}

/// # Safety
/// `relation` is open.
unsafe fn look(relation: pg_sys::Relation) -> Option<Cached> {
    let Known {
        record,
        live,
        live_unix,
        renew,
        ..
    } = known();
    // SAFETY: the caller's relation is open, so its triggers and columns are valid.
    unsafe {
        let none = pg_sys::InvalidOid;
        let is_cache = record != none
            && live != none
            && relation::triggers(relation)
                .iter()
                .any(|one| one.tgfoid == record);
        if !is_cache {
            return None;
        }
        // The code below must not use the list of triggers, because it reads catalogs, which may rebuild the list.
        let columns = PgTupleDesc::from_pg_unchecked((*relation).rd_att);
        let Some(marked) = columns::marked(relation) else {
            let named = |name: &CStr, kind: Oid| {
                let found = columns.iter().find(|column| is(column, name, kind));
                found.map(Column::of)
            };
            return Some(Cached {
                live,
                renew,
                deadline: named(c"expires_at", pg_sys::TIMESTAMPTZOID)?,
                kind: DeadlineKind::Moment,
                key: named(c"key", pg_sys::TEXTOID),
            });
        };
        let numbered = |number: i16| {
            let found = columns.iter().find(|column| column.attnum == number);
            let found = found.filter(|column| !column.attisdropped && !version::is_virtual(column));
            found.map(Column::of)
        };
        let deadline = numbered(marked.deadline)?;
        let kind = DeadlineKind::of(deadline.kind, marked.unit.as_deref())?;
        let live = match kind {
            DeadlineKind::Moment => live,
            _ => live_unix,
        };
        let key = numbered(marked.key);
        (live != none).then_some(Cached {
            live,
            renew,
            deadline,
            kind,
            key: key.filter(|key| KeyType::of(key.kind, key.modifier).is_some()),
        })
    }
}

/// Returns whether a column has this name and type. Returns false for a virtual column, because the planner has already
/// replaced it by its expression.
fn is(column: &pg_sys::FormData_pg_attribute, name: &CStr, kind: Oid) -> bool {
    // SAFETY: a column's name ends with a NUL byte.
    let its_name = unsafe { CStr::from_ptr(column.attname.data.as_ptr()) };
    its_name == name
        && !column.attisdropped
        && column.atttypid == kind
        && !version::is_virtual(column)
}

/// Returns whether a range table entry has one of the aliases in `OWN`.
///
/// # Safety
/// The entry belongs to a query's range table.
pub unsafe fn is_own(entry: *const pg_sys::RangeTblEntry) -> bool {
    // SAFETY: an alias that is not NULL has a name.
    unsafe {
        let alias = (*entry).alias;
        !alias.is_null() && OWN.contains(&CStr::from_ptr((*alias).aliasname))
    }
}
