//! Declares dependencies of a cache: creates triggers on the source table and on its children by inheritance.
//!
//! Postgres copies row triggers to partitions but not to plain children, whose rows also change through the parent. So
//! each child gets its own triggers: existing children when the dependency is declared, later ones at the end of the
//! transaction that adds them.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::catalog::sources;
use crate::cache::model::{ddl, pending};
use crate::error::Error;
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::catalog::{inheritance, name, own, relation};
use crate::pg::hooks::dependency::{self, DependencyTrigger};
use crate::pg::hooks::source;
use crate::pg::session::failure;
use crate::pg::session::lock::Mode;
use crate::pg::session::temporary_settings::Texts;
use crate::pg::session::transaction;
use crate::pg::spi::expression::Expression;
use crate::pg::spi::output::Output;
use crate::pg::value::datum::Text;
use crate::pg::{encoding, memory, session};

/// A key expression as SQL over the new row and over the old row, and the settings on which the expression depends.
struct Keys {
    new: Vec<u8>,
    old: Vec<u8>,
    settings: Option<Vec<u8>>,
}

/// Declares that entries of `cache` depend on rows of `source`. The caller owns the source and may delete from the
/// cache. Keeps an existing dependency, but records the settings of this session as the settings on which its key
/// depends. Adds triggers to children that lack them.
pub fn declare(source: Oid, key_expression: Text, cache: &Cache) -> Result<(), Error> {
    let key = Expression::over(source, key_expression)?;
    let keys = Keys {
        new: key.print(c"new"),
        old: key.print(c"old"),
        settings: key
            .follows_settings
            .then(|| Texts::of_session().into_bytes()),
    };
    if keys.settings.is_some() && own::DEPENDS_UNDER.oid() == Oid::INVALID {
        return Err(Error::OlderExtension);
    }
    pending::note_declared();
    for table in plain_family(source, Mode::Define) {
        privilege::require_owner(table);
        declare_on(table, &keys, cache);
    }
    Ok(())
}

/// Returns the source and its children; for a partitioned source, only the source. Skips foreign tables, and temporary
/// tables of other sessions, which this session cannot read.
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
    let settings = keys.settings.as_deref().map_or(Vec::new(), |settings| {
        let settings = CString::new(settings).unwrap_or_default();
        [b", ", name::literal(settings.as_bytes()).as_slice()].concat()
    });
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
        ddl::run(&[
            format!("CREATE TRIGGER {name} {events} ON ").as_bytes(),
            table.as_bytes(),
            format!(" FOR EACH {level} WHEN (true OR pgcache.depends(").as_bytes(),
            name::literal(cache.qualified_name().to_bytes()).as_slice(),
            b"::pg_catalog.regclass, ",
            key.map_or(b"''", Vec::as_slice),
            settings.as_slice(),
            format!(")) EXECUTE FUNCTION pgcache.{function}()").as_bytes(),
        ]);
        ddl::enable_always(&table, &name);
    }
    let (old, new): (Vec<_>, Vec<_>) = dependency::on_table(source)
        .into_iter()
        .partition(|found| before.iter().any(|former| former.trigger == found.trigger));
    for made in new {
        let former = old.iter().find(|former| former.equals(&made));
        if former.is_some_and(|former| former.settings == made.settings) {
            drop_trigger(source, &made.name);
            continue;
        }
        if let Some(former) = former.filter(|former| !former.is_clone) {
            drop_trigger(source, &former.name);
        }
        dependency::goes_with(made.trigger, cache.relation);
    }
}

/// Creates the triggers for all children that were added in this transaction, right before the transaction commits.
pub fn follow_children() {
    while let Some((child, parent)) = pending::take_child() {
        let _writable = transaction::Writable::enter();
        let _snapshot = transaction::Snapshot::enter();
        follow(child, parent);
    }
}

/// Restores ENABLE ALWAYS on dependency triggers that a plain ENABLE has changed. A role that enables all triggers, as
/// pg_restore does, does not intend the triggers to miss changes that logical replication applies.
pub fn enable_always() {
    while let Some(table) = source::take_altered() {
        let _writable = transaction::Writable::enter();
        let _snapshot = transaction::Snapshot::enter();
        let found = dependency::on_table(table).into_iter();
        for trigger in found.filter(|found| found.is_at_origin) {
            dependency::enable_always(table, &trigger.name);
        }
    }
}

/// Creates the parent's triggers on a child that was added, and on the children of that child. If the child already has
/// rows, notes a change of the parent, because these rows are new to the parent's readers.
fn follow(child: Oid, parent: Oid) {
    if !pending::is_to_follow(child, parent) {
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
            // The key is printed under the search_path under which it is read. Another path might print a name without
            // its schema; the name would then not be found, or would name another object.
            let keys = Keys {
                new: found.print_key(parent, c"new"),
                old: found.print_key(parent, c"old"),
                settings: found.settings.clone(),
            };
            declare_on(table, &keys, &cache);
        }
    }
    if inheritance::has_content(child) {
        source::changed(parent);
    }
}

/// Raises an error unless the table has a dependency of the cache. Functions in a key run as the owner of the table
/// that has the trigger, so the key of a different owner must not be put there.
fn require_own(table: Oid, cache: Oid) {
    let depends = |found: &DependencyTrigger| found.cache == cache;
    if !dependency::on_table(table).iter().any(depends) {
        let name = relation::display_name(table);
        ErrorReport::from(Error::ChildOfAnother(name)).report(PgLogLevel::ERROR);
    }
}

/// A dependency whose key is evaluated under the settings of each session that changes a row.
pub struct FollowsWriters {
    pub source: Oid,
    pub cache: Oid,
    /// A statement that declares the dependency again, with fixed settings. None if `cache_depend` refuses the key, and
    /// if the caller may not read the source.
    pub statement: Option<Vec<u8>>,
}

/// Returns the dependencies of one cache, or of all caches, that follow the settings of their writers, and warns of
/// each. Locks only sources that have such a dependency and that the caller may read: Postgres locks a table to print
/// an expression over its columns.
pub fn follow_writers(cache: Option<Oid>) -> Vec<FollowsWriters> {
    let mut all = memory::list(0);
    for (source, cache) in sources::that_follow_writers(cache) {
        if !relation::is_there(source) {
            continue;
        }
        if !privilege::of_role(source, session::user()).has(Privileges::READ) {
            warn(
                source,
                cache,
                "A role that may read the table gets the statement to run.",
            );
            memory::push(
                &mut all,
                FollowsWriters {
                    source,
                    cache,
                    statement: None,
                },
            );
            continue;
        }
        for found in dependency::on_table(source) {
            let is_wanted = found.cache == cache && found.is_of_inserts() && !found.is_clone;
            if is_wanted && found.follows_writers() {
                let statement = found.can_be_fixed().then(|| statement(source, &found));
                match &statement {
                    Some(sql) => warn(source, cache, &format!("Run {}", encoding::decode(sql))),
                    None => warn(
                        source,
                        cache,
                        "Declare the dependency again with a key of IMMUTABLE functions.",
                    ),
                }
                memory::push(
                    &mut all,
                    FollowsWriters {
                        source,
                        cache,
                        statement,
                    },
                );
            }
        }
    }
    all
}

fn warn(source: Oid, cache: Oid, hint: &str) {
    failure::warn(
        PgSqlErrorCode::ERRCODE_WARNING,
        format!(
            "dependency of cache \"{}\" on table \"{}\" follows the settings of each session that changes a row",
            relation::display_name(cache),
            relation::display_name(source)
        ),
        "Under another DateStyle, TimeZone or the like the key is another one, and the entry stays.".into(),
        hint,
    );
}

/// Returns the statement that declares a dependency again.
fn statement(source: Oid, found: &DependencyTrigger) -> Vec<u8> {
    let name = |relation: Oid| {
        let name = relation::spelled(relation).unwrap_or_default();
        name::literal(name.as_bytes())
    };
    [
        b"SELECT cache_depend(",
        name(source).as_slice(),
        b", ",
        name::literal(&found.key_expression(source)).as_slice(),
        b", ",
        name(found.cache).as_slice(),
        b");",
    ]
    .concat()
}

/// Removes all dependencies of `cache` on `source`. Returns the number of dropped triggers.
pub fn remove_declared(source: Oid, cache: Oid) -> usize {
    let ours = |found: &DependencyTrigger| found.cache == cache && !found.is_clone;
    let mut removed = 0;
    for table in plain_family(source, Mode::Read) {
        for found in dependency::on_table(table).into_iter().filter(ours) {
            drop_trigger(table, &found.name);
            removed += 1;
        }
    }
    removed
}

/// Drops a trigger. Its name may need quoting: any role that may create triggers on the table may have created it.
fn drop_trigger(table: Oid, name: &CStr) {
    ddl::run(&[
        b"DROP TRIGGER ",
        name::quote_identifier(name).as_bytes(),
        b" ON ",
        relation::qualified(table).as_bytes(),
    ]);
}

/// Returns the lowest number that is in no trigger's name.
fn free_number(triggers: &[DependencyTrigger]) -> u32 {
    let taken = |number: u32| {
        let prefix = format!("pgcache_depend_{number}_").into_bytes();
        triggers
            .iter()
            .any(|found| found.name.to_bytes().starts_with(&prefix))
    };
    (1..).find(|&number| !taken(number)).unwrap_or(u32::MAX)
}

/// Lets DROP without CASCADE drop a cache whose dependencies a restore has created again.
pub fn release(cache: Oid) {
    for trigger in triggers_of(cache) {
        dependency::goes_with(trigger, cache);
    }
}

/// Ends the dependencies of a table that stops being a cache. Otherwise they would apply again if the table became a
/// cache again, although its keys might then have a different type from the expressions.
pub fn end_all(cache: Oid) {
    dependency::drop_triggers(&triggers_of(cache));
}

fn triggers_of(cache: Oid) -> Vec<Oid> {
    sources::triggers_of_cache(cache, |output: &Output| {
        (0..output.rows())
            .filter_map(|row| output.oid(row, 0))
            .collect()
    })
}
