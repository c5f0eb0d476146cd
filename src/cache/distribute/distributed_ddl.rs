//! Distributes a local cache over the nodes of Citus, and alters and drops a distributed cache.
//!
//! Citus does the work, in the caller's transaction: it copies the live rows to shards, creates triggers and defaults
//! on the shards and on the cache's tables on other nodes, and drops all of them with the cache.

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::datum::Interval;
use pgrx::pg_sys::{INT8OID, OIDOID, Oid};

use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::catalog::{shard_metadata, sources};
use crate::cache::definition::{default, define, routed};
use crate::cache::model::ddl;
use crate::cache::model::settings::Settings;
use crate::cache::open;
use crate::error::Error;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::catalog::{distributed, relation};
use crate::pg::session::temporary_settings::Held;
use crate::pg::session::{self, lock, transaction};
use crate::pg::spi::plan::query_once;
use crate::pg::value::typed::Typed;

/// Lets Citus accept tables with triggers while the returned value lives. By default Citus refuses such tables, because
/// triggers may read rows of other shards. The triggers of pgcache do not.
fn with_triggers() -> Held {
    Held::set(c"citus.enable_unsafe_triggers", c"on")
}

/// Distributes a cache. The caller owns the cache and holds an ACCESS EXCLUSIVE lock on it.
pub fn distribute(cache: &Rc<Cache>, shard_count: Option<i32>) -> Result<(), Error> {
    if shard_count.is_some_and(|count| count <= 0) {
        return Err(Error::ShardCountNotPositive);
    }
    if !distributed::citus_is_there() {
        return Err(Error::NoCitus);
    }
    check(cache)?;
    // Citus raises notices about the rows that it copies, and a hint about the rows that it leaves in the local table.
    // This function removes the rows in the local table.
    let _quiet = Held::set(c"client_min_messages", c"warning");
    let _held = with_triggers();
    let shards = match shards_of_ours() {
        Some(shards) => shards,
        None => prepare(shard_count)?,
    };
    if shard_count.is_some_and(|count| i64::from(count) != shards) {
        return Err(Error::OtherShards(shards));
    }
    if let Some(most) = cache.settings.max_entries {
        let each = cache
            .settings
            .changed(None, Some(part_of(most, shards)), None)?;
        define::alter(cache, each);
    }
    // When Citus copies rows to a shard of the same node, it uses neither the planner nor COPY, so only the trigger
    // removes expired rows.
    if let Some(name) = relation::spelled(cache.relation) {
        routed::look_before_rows(cache.relation, name.to_bytes());
    }
    let argument = [Typed::oid(cache.relation)];
    query_once(SPREAD, &[OIDOID], &argument, |_| ());
    // Citus leaves the rows in the local table, where no query sees them any more.
    query_once(EMPTY, &[OIDOID], &argument, |_| ());
    Ok(())
}

const SPREAD: &CStr =
    c"SELECT pg_catalog.create_distributed_table($1::pg_catalog.regclass, 'key', \
    colocate_with => 'pgcache.distributed')";
const EMPTY: &CStr =
    c"SELECT pg_catalog.truncate_local_data_after_distributing_table($1::pg_catalog.regclass)";

/// Returns the number of entries that each shard may keep if the whole cache may keep `most`.
fn part_of(most: i64, shards: i64) -> i64 {
    (most + shards - 1) / shards.max(1)
}

/// The longest name in bytes to which Citus can append the number of a shard. Citus shortens a longer name, and the
/// session then waits for itself.
const LONGEST_NAME: usize = 53;

fn check(cache: &Cache) -> Result<(), Error> {
    let why = match cache {
        _ if cache.storage == Storage::Memory => "A memory cache has no table.",
        _ if cache.temporary => "The cache is temporary.",
        _ if relation::name_length(cache.relation) > LONGEST_NAME => {
            "The name of the cache has more than 53 bytes."
        }
        _ if define::is_main(cache) => "The cache belongs to the extension.",
        _ if cache.is_attached() => "The cache is an attached table.",
        _ if cache.partitioned => "The cache is partitioned.",
        _ if cache.row_security => "The cache has row-level security.",
        _ if !cache.changes_alone() => {
            "The cache has triggers, rules, constraints or indexes of its own."
        }
        _ if cache.settings.reserve.is_some() || cache.settings.max_bytes.is_some() => {
            "The cache has max_bytes or a reserve; see cache_tune()."
        }
        _ if cache.settings.watch.is_some() => {
            "The changes of the cache are watched; see cache_unwatch()."
        }
        _ if sources::has_sources(cache.relation) => {
            "The cache depends on tables; see cache_undepend()."
        }
        _ => return Ok(()),
    };
    Err(Error::Undistributable(
        relation::display_name(cache.relation),
        why,
    ))
}

/// Returns the number of shards of `pgcache.distributed`, the table that marks distributed caches on all nodes.
/// Returns None if the table is not distributed yet.
fn shards_of_ours() -> Option<i64> {
    let count = query_once(
        c"SELECT pg_catalog.count(*) FROM pg_catalog.pg_dist_shard AS s \
          WHERE s.logicalrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('pgcache.distributed')",
        &[],
        &[],
        |output| output.number(0, 0),
    );
    count.filter(|&count| count > 0)
}

/// Creates `pgcache.distributed` if it does not exist (it exists after a restore), distributes it, and colocates the
/// function `pgcache.at_key` with its shards. Returns the number of shards.
fn prepare(shard_count: Option<i32>) -> Result<i64, Error> {
    if !session::is_superuser() {
        return Err(Error::NotSpreadBefore);
    }
    ddl::run(&[b"CREATE TABLE IF NOT EXISTS pgcache.distributed (key pg_catalog.text COLLATE pg_catalog.\"C\" PRIMARY KEY)"]);
    ddl::run(&[b"COMMENT ON TABLE pgcache.distributed IS 'Marks the caches of cache_distribute(), which Citus colocates with this empty table.'"]);
    let count = Typed::of(shard_count.map(i64::from));
    query_once(
        c"SELECT pg_catalog.create_distributed_table('pgcache.distributed', 'key', colocate_with => 'none', \
          shard_count => $1::pg_catalog.int4)",
        &[INT8OID],
        &[count],
        |_| (),
    );
    // Without this UPDATE, Citus would colocate tables whose keys have any collation, and later refuse them because of
    // the collation.
    ddl::run(&[b"UPDATE pg_catalog.pg_dist_colocation SET distributioncolumncollation = a.attcollation \
        FROM pg_catalog.pg_dist_partition AS p JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) p.logicalrelid \
        AND a.attname OPERATOR(pg_catalog.=) 'key' \
        WHERE p.logicalrelid OPERATOR(pg_catalog.=) 'pgcache.distributed'::pg_catalog.regclass \
        AND pg_dist_colocation.colocationid OPERATOR(pg_catalog.=) p.colocationid"]);
    query_once(
        c"SELECT pg_catalog.create_distributed_function('pgcache.at_key(text, bigint, text, text[])'::pg_catalog.regprocedure, \
          'key', colocate_with => 'pgcache.distributed', force_delegation => true)",
        &[],
        &[],
        |_| (),
    );
    shards_of_ours().ok_or(Error::NoCitus)
}

/// Returns whether a cache is distributed, so that a change or a drop of it concerns all nodes.
pub fn is_spread(cache: Option<Oid>) -> bool {
    cache.is_some_and(|cache| shard_metadata::of(cache).is_some())
}

/// Changes the settings of a distributed cache on all nodes. `most` is the limit for the whole cache; each shard gets a
/// part of the limit.
pub fn alter(
    cache: Option<Oid>,
    function: &CStr,
    ttl: Option<Interval>,
    most: Option<i64>,
    change: impl FnOnce(Settings, Option<i64>) -> Result<Settings, Error>,
) -> Result<(), Error> {
    let cache = own(cache, function)?;
    let spread = shard_metadata::of(cache).ok_or(Error::DefinitionChanged)?;
    let most = match most {
        Some(most) if most > 0 => Some(part_of(most, spread.shards.len() as i64)),
        other => other,
    };
    let definition = registry::definition(cache)?;
    let settings = change(definition.settings, most)?;
    let _held = with_triggers();
    define::alter(&definition, settings);
    if ttl.is_some() {
        default::put(&definition, settings.ttl);
    }
    Ok(())
}

/// Drops a distributed cache on all nodes.
pub fn drop(cache: Option<Oid>) -> Result<(), Error> {
    let spread =
        shard_metadata::of(own(cache, c"cache_drop()")?).ok_or(Error::DefinitionChanged)?;
    ddl::run(&[b"DROP TABLE ", spread.name.to_bytes()]);
    Ok(())
}

/// Locks and returns the cache, which the caller must own.
fn own(cache: Option<Oid>, function: &CStr) -> Result<Oid, Error> {
    let cache = cache.ok_or(Error::NullArgument("cache"))?;
    open::require(cache, Privileges::NONE);
    privilege::require_owner(cache);
    transaction::require_writable(function);
    lock::relation(cache, lock::Mode::Remove);
    privilege::require_owner(cache); // again, because the call may have waited for the lock
    Ok(cache)
}
