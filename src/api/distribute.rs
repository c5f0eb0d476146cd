//! SQL functions for caches that Citus distributes over its nodes: `cache_distribute`, and `pgcache.at_key`, which a
//! node calls on another node.

use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::definition::open_as_owner;
use super::{Answer, expiry, many_entries, monitor, rate_limit, read, refresh, remove, write};
use crate::cache::distribute::distributed_call::{self, Kind, Route};
use crate::cache::distribute::{calls, distributed_ddl};
use crate::error::Error;
use crate::pg::memory;
use crate::pg::session::lock::Mode;
use crate::pg::value::datum::{ArrayOf, Text};
use crate::pg::value::rows::Texts;

#[pg_extern]
fn cache_distribute(cache: Option<Oid>, shard_count: Option<i32>) -> Answer<()> {
    let cache = open_as_owner(cache, Mode::Remove, c"cache_distribute()")?;
    Ok(distributed_ddl::distribute(&cache, shard_count)?)
}

/// Runs one of the functions in `routes` on this node's entries, on behalf of the node that sent the call. The SQL
/// function is strict and returns no set, so Postgres replaces a call with a NULL key by NULL before Citus plans the
/// call. Otherwise Citus would crash on the NULL key.
#[pg_extern]
fn at_key(
    key: Option<Text>,
    node: Option<i64>,
    function: Option<Text>,
    arguments: Option<ArrayOf<Text>>,
) -> Answer<Texts> {
    let (Some(key), Some(node), Some(function), Some(arguments)) = (key, node, function, arguments)
    else {
        return Err(Error::NotSent.into());
    };
    let function = function.to_string_lossy();
    let is_sent = |kind: &Kind| !matches!(kind, Kind::Fetch { .. });
    let known = routes().find(|route| route.function == function && is_sent(&route.kind));
    let route = known.ok_or(Error::NotSent)?;
    let arguments = arguments.elements("arguments")?;
    let arguments: Vec<_> = arguments.into_iter().map(calls::decoded).collect();
    let rows = distributed_call::answer(key, node, route, &arguments)?;
    let coded = |text| Text::new(&calls::coded(text));
    Ok(Texts(rows.map(|rows| {
        memory::collect(rows.into_iter().flatten().map(coded))
    })))
}

/// Returns the routes of all functions that work on a distributed cache.
fn routes() -> impl Iterator<Item = &'static Route> {
    let families = [
        read::ROUTES,
        write::ROUTES,
        remove::ROUTES,
        many_entries::ROUTES,
        refresh::ROUTES,
        rate_limit::ROUTES,
        expiry::ROUTES,
        monitor::ROUTES,
    ];
    families.into_iter().flatten().copied()
}
