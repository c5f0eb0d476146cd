//! Declaring dependencies: the triggers on a source, and on the tables that inherit from it.
//!
//! Postgres copies row triggers to partitions, and not to plain children, whose rows change through the parent all
//! the same. So each child gets triggers of its own: those that are there at the declaration then, those that come
//! later at the end of the transaction in which they come.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{OIDOID, Oid};
use pgrx::prelude::*;

use super::definition;
use super::depend;
use super::registry::{self, Cache};
use crate::error::Error;
use crate::pg::datum::Text;
use crate::pg::dependency::{self, Found};
use crate::pg::expression::Expression;
use crate::pg::lock::Mode;
use crate::pg::name;
use crate::pg::plan::{Output, query_once};
use crate::pg::privilege::{self, AsOwner};
use crate::pg::typed::Typed;
use crate::pg::{inheritance, memory, relation, source, transaction};

/// A key as SQL, over the new row and over the old one.
struct Keys {
    new: Vec<u8>,
    old: Vec<u8>,
}

/// Declares that entries of `cache` depend on rows of `source`. The caller owns the source and may
/// delete from the cache. The same again changes nothing, but for children that have no triggers yet.
pub fn declare(source: Oid, key_expression: Text, cache: &Cache) -> Result<(), Error> {
    let key = Expression::over(source, key_expression)?;
    let keys = Keys {
        new: key.print(c"new"),
        old: key.print(c"old"),
    };
    depend::note_declared();
    for table in plain_family(source, Mode::Define) {
        privilege::require_owner(table);
        declare_on(table, &keys, cache);
    }
    Ok(())
}

/// The source and its children; of a partitioned one only itself. Children of other sessions, which nobody else
/// reads, and on other servers are not followed.
fn plain_family(source: Oid, mode: Mode) -> Vec<Oid> {
    if relation::is_partitioned(source) {
        return memory::collect([source].into_iter());
    }
    let mut family = inheritance::family(source, mode);
    family.retain(|&table| relation::is_table(table) && !relation::is_temporary_elsewhere(table));
    family
}

fn declare_on(source: Oid, keys: &Keys, cache: &Cache) {
    let before = dependency::on_table(source);
    let number = free_number(&before);
    let table = relation::qualified(source);
    for (kind, events, level, key) in [
        ("insert", "AFTER INSERT", "ROW", Some(&keys.new)),
        ("change", "AFTER UPDATE OR DELETE", "ROW", Some(&keys.old)),
        ("truncate", "BEFORE TRUNCATE", "STATEMENT", None),
    ] {
        let name = format!("pgcache_depend_{number}_{kind}");
        let function = if key.is_some() {
            "invalidate"
        } else {
            "invalidate_all"
        };
        definition::run(&[
            format!("CREATE TRIGGER {name} {events} ON ").as_bytes(),
            table.as_bytes(),
            format!(" FOR EACH {level} WHEN (true OR pgcache.depends(").as_bytes(),
            definition::literal(cache.qualified_name()).as_slice(),
            b"::pg_catalog.regclass, ",
            key.map_or(b"''", Vec::as_slice),
            format!(")) EXECUTE FUNCTION pgcache.{function}()").as_bytes(),
        ]);
        definition::enable_always(&table, &name);
    }
    let (old, new): (Vec<_>, Vec<_>) = dependency::on_table(source)
        .into_iter()
        .partition(|found| before.iter().any(|former| former.trigger == found.trigger));
    for made in new {
        match old.iter().any(|former| former.equals(&made)) {
            true => drop_trigger(source, &made.name),
            false => dependency::goes_with(made.trigger, cache.relation),
        }
    }
}

/// Gives a child that has come, and its own children, what its parent has. What is in it already is new to
/// whoever reads the parent.
pub fn follow(child: Oid, parent: Oid) {
    if !is_to_follow(child, parent) {
        return;
    }
    for found in dependency::on_table(parent) {
        let Ok(cache) = registry::find(found.cache) else {
            continue;
        };
        if !found.is_of_inserts() || found.is_clone {
            continue;
        }
        for table in plain_family(child, Mode::Define) {
            if relation::owner(table) != relation::owner(parent) {
                require_own(table, found.cache);
                continue;
            }
            let _owner = AsOwner::to_maintain(table);
            // Printed under the path that it is read under: a name that another path leaves bare would not be
            // found, or would be somebody else's.
            let keys = Keys {
                new: found.print_key(parent, c"new"),
                old: found.print_key(parent, c"old"),
            };
            declare_on(table, &keys, &cache);
        }
    }
    if inheritance::has_content(child) {
        source::changed(parent);
    }
}

/// Whether a child has come that is no partition, and is still there.
pub fn is_to_follow(child: Oid, parent: Oid) -> bool {
    inheritance::is_plain(child) && inheritance::is_child(child, parent)
}

/// What a key calls runs as the owner of the table that has the trigger, so nobody else's key is put there.
fn require_own(table: Oid, cache: Oid) {
    let depends = |found: &Found| found.cache == cache;
    if !dependency::on_table(table).iter().any(depends) {
        let name = relation::display_name(table);
        ErrorReport::from(Error::ChildOfAnother(name)).report(PgLogLevel::ERROR);
    }
}

/// Removes all dependencies of `cache` on `source`; how many triggers there were.
pub fn remove_declared(source: Oid, cache: Oid) -> usize {
    let ours = |found: &Found| found.cache == cache && !found.is_clone;
    let mut removed = 0;
    for table in plain_family(source, Mode::Read) {
        for found in dependency::on_table(table).into_iter().filter(ours) {
            drop_trigger(table, &found.name);
            removed += 1;
        }
    }
    removed
}

/// The name may be anything: whoever may make triggers on the table may have made this one.
fn drop_trigger(table: Oid, name: &CStr) {
    definition::run(&[
        b"DROP TRIGGER ",
        name::quote_identifier(name).as_bytes(),
        b" ON ",
        relation::qualified(table).as_bytes(),
    ]);
}

/// The first number that no trigger of the table has in its name.
fn free_number(triggers: &[Found]) -> u32 {
    let taken = |number: u32| {
        let prefix = format!("pgcache_depend_{number}_").into_bytes();
        triggers
            .iter()
            .any(|found| found.name.to_bytes().starts_with(&prefix))
    };
    (1..).find(|&number| !taken(number)).unwrap_or(u32::MAX)
}

/// Whether entries of a cache depend on some table.
pub fn has_sources(cache: Oid) -> bool {
    triggers_of_cache(cache, |output| output.rows() > 0)
}

const OF_CACHE: &CStr = c"SELECT d.objid FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $1 \
    AND (t.tgfoid OPERATOR(pg_catalog.=) $2 OR t.tgfoid OPERATOR(pg_catalog.=) $3)";

/// What `read` makes of the triggers by which a cache depends on tables.
fn triggers_of_cache<R>(cache: Oid, read: impl FnOnce(&Output) -> R) -> R {
    let [rows, truncate] = dependency::functions();
    let arguments = [cache, rows, truncate].map(Typed::oid);
    query_once(OF_CACHE, &[OIDOID; 3], &arguments, read)
}

/// Whether this transaction may have changed rows on which entries of a cache depend, and their triggers have not said
/// so yet: they do at the end of the statement.
pub fn may_be_half_changed(cache: Oid) -> bool {
    transaction::has_xid() && {
        let any = |output: &Output| {
            (0..output.rows())
                .any(|row| output.oid(row, 0).is_some_and(source::may_be_half_changed))
        };
        query_once(TABLES, &[OIDOID], &[Typed::oid(cache)], any)
    }
}

/// The tables with a trigger of a dependency, partitions among them.
const TABLES: &CStr = c"WITH RECURSIVE of_cache (oid, tgrelid) AS (\
    SELECT t.oid, t.tgrelid FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $1 \
    UNION ALL SELECT t.oid, t.tgrelid FROM pg_catalog.pg_trigger AS t \
    JOIN of_cache AS o ON t.tgparentid OPERATOR(pg_catalog.=) o.oid) \
    SELECT DISTINCT tgrelid FROM of_cache";

/// Lets a cache be dropped without CASCADE although a restore has made its dependencies anew.
pub fn release(cache: Oid) {
    let triggers = |output: &Output| -> Vec<Oid> {
        (0..output.rows())
            .filter_map(|row| output.oid(row, 0))
            .collect()
    };
    for trigger in triggers_of_cache(cache, triggers) {
        dependency::goes_with(trigger, cache);
    }
}
