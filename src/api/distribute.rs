//! Caches over the nodes of Citus: distribute; and which functions go to the node of a key.
//!
//! Each function below is what Postgres calls by its old symbol, and goes on to the one of that name that ends in
//! `_here`: with the cache itself, or with the table of a shard.

use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::definition::open_as_owner;
use super::{Answer, TO_DELETE, TO_READ, TO_TAKE, TO_WRITE};
use crate::cache::distribute::request::{Kind, Route};
use crate::cache::distribute::{answer, ask, define, route};
use crate::error::Error;
use crate::pg::catalog::distributed::citus_is_loaded;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::memory;
use crate::pg::session::lock::Mode;
use crate::pg::value::call::chosen;
use crate::pg::value::datum::{ArrayOf, Text};
use crate::pg::value::rows::Texts;

#[pg_extern]
fn cache_distribute(cache: Option<Oid>, shard_count: Option<i32>) -> Answer<()> {
    let cache = open_as_owner(cache, Mode::Remove, c"cache_distribute()")?;
    Ok(define::distribute(&cache, shard_count)?)
}

/// What nodes send each other: a call of one of the functions below, on the entries that this node has. It is strict,
/// and returns no set, so that Postgres replaces a call with a NULL key before Citus sees it, which would crash.
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
    let known = ROUTES
        .iter()
        .find(|route| route.function == function && is_sent(&route.kind));
    let route = known.ok_or(Error::NotSent)?;
    let arguments = arguments.elements("arguments")?;
    let arguments: Vec<_> = arguments.into_iter().map(ask::decoded).collect();
    let rows = answer::answer(key, node, route, &arguments)?;
    let coded = |text| Text::new(&ask::coded(text));
    Ok(Texts(rows.map(|rows| {
        memory::collect(rows.into_iter().flatten().map(coded))
    })))
}

const READ: Kind = Kind::Read { key: 0 };
const WRITE: Kind = Kind::Write { key: 0 };
const FETCH: Kind = Kind::Fetch { key: 0 };
const LEASE: Kind = Kind::Lease { key: 0, wait: 1 };
const READ_MANY: Kind = Kind::ReadMany { keys: 0 };
const WRITE_MANY: Kind = Kind::WriteMany {
    keys: 0,
    values: None,
};
const SET_MANY: Kind = Kind::WriteMany {
    keys: 0,
    values: Some(1),
};
const PAGE: Kind = Kind::Page { most: 2 };
const COUNT: Kind = Kind::Sum {
    most: None,
    writes: false,
};
const REMOVE: Kind = Kind::Sum {
    most: None,
    writes: true,
};
const SWEEP: Kind = Kind::Sum {
    most: Some(1),
    writes: true,
};

const fn by(function: &'static str, cache: usize, kind: Kind, needs: Privileges) -> Route {
    Route {
        function,
        cache,
        kind,
        needs,
    }
}

chosen! {
    citus_is_loaded, route::choose, route::leave, Route;
    cache_get_wrapper pg_finfo_cache_get_wrapper cache_get_here_wrapper by("cache_get", 1, READ, TO_READ);
    cache_set_wrapper pg_finfo_cache_set_wrapper cache_set_here_wrapper by("cache_set", 3, WRITE, TO_WRITE);
    cache_get_json_wrapper pg_finfo_cache_get_json_wrapper cache_get_json_here_wrapper by("cache_get_json", 1, READ, TO_READ);
    cache_set_json_wrapper pg_finfo_cache_set_json_wrapper cache_set_json_here_wrapper by("cache_set_json", 3, WRITE, TO_WRITE);
    cache_get_bytes_wrapper pg_finfo_cache_get_bytes_wrapper cache_get_bytes_here_wrapper by("cache_get_bytes", 1, READ, TO_READ);
    cache_set_bytes_wrapper pg_finfo_cache_set_bytes_wrapper cache_set_bytes_here_wrapper by("cache_set_bytes", 3, WRITE, TO_WRITE);
    cache_lookup_wrapper pg_finfo_cache_lookup_wrapper cache_lookup_here_wrapper by("cache_lookup", 1, READ, TO_READ);
    cache_add_wrapper pg_finfo_cache_add_wrapper cache_add_here_wrapper by("cache_add", 3, WRITE, TO_WRITE);
    cache_replace_wrapper pg_finfo_cache_replace_wrapper cache_replace_here_wrapper by("cache_replace", 3, WRITE, TO_WRITE);
    cache_cas_wrapper pg_finfo_cache_cas_wrapper cache_cas_here_wrapper by("cache_cas", 4, WRITE, TO_WRITE);
    cache_get_touch_wrapper pg_finfo_cache_get_touch_wrapper cache_get_touch_here_wrapper by("cache_get_touch", 2, WRITE, TO_WRITE);
    cache_delete_if_wrapper pg_finfo_cache_delete_if_wrapper cache_delete_if_here_wrapper by("cache_delete_if", 2, WRITE, TO_TAKE);
    cache_take_wrapper pg_finfo_cache_take_wrapper cache_take_here_wrapper by("cache_take", 1, WRITE, TO_TAKE);
    cache_get_many_wrapper pg_finfo_cache_get_many_wrapper cache_get_many_here_wrapper by("cache_get_many", 1, READ_MANY, TO_READ);
    cache_lookup_many_wrapper pg_finfo_cache_lookup_many_wrapper cache_lookup_many_here_wrapper by("cache_lookup_many", 1, READ_MANY, TO_READ);
    cache_set_many_wrapper pg_finfo_cache_set_many_wrapper cache_set_many_here_wrapper by("cache_set_many", 3, SET_MANY, TO_WRITE);
    cache_scan_wrapper pg_finfo_cache_scan_wrapper cache_scan_here_wrapper by("cache_scan", 3, PAGE, TO_READ);
    cache_lookup_bytes_wrapper pg_finfo_cache_lookup_bytes_wrapper cache_lookup_bytes_here_wrapper by("cache_lookup_bytes", 1, READ, TO_READ);
    cache_add_bytes_wrapper pg_finfo_cache_add_bytes_wrapper cache_add_bytes_here_wrapper by("cache_add_bytes", 3, WRITE, TO_WRITE);
    cache_replace_bytes_wrapper pg_finfo_cache_replace_bytes_wrapper cache_replace_bytes_here_wrapper by("cache_replace_bytes", 3, WRITE, TO_WRITE);
    cache_cas_bytes_wrapper pg_finfo_cache_cas_bytes_wrapper cache_cas_bytes_here_wrapper by("cache_cas_bytes", 4, WRITE, TO_WRITE);
    cache_get_touch_bytes_wrapper pg_finfo_cache_get_touch_bytes_wrapper cache_get_touch_bytes_here_wrapper by("cache_get_touch_bytes", 2, WRITE, TO_WRITE);
    cache_delete_if_bytes_wrapper pg_finfo_cache_delete_if_bytes_wrapper cache_delete_if_bytes_here_wrapper by("cache_delete_if_bytes", 2, WRITE, TO_TAKE);
    cache_take_bytes_wrapper pg_finfo_cache_take_bytes_wrapper cache_take_bytes_here_wrapper by("cache_take_bytes", 1, WRITE, TO_TAKE);
    cache_get_many_bytes_wrapper pg_finfo_cache_get_many_bytes_wrapper cache_get_many_bytes_here_wrapper by("cache_get_many_bytes", 1, READ_MANY, TO_READ);
    cache_lookup_many_bytes_wrapper pg_finfo_cache_lookup_many_bytes_wrapper cache_lookup_many_bytes_here_wrapper by("cache_lookup_many_bytes", 1, READ_MANY, TO_READ);
    cache_set_many_bytes_wrapper pg_finfo_cache_set_many_bytes_wrapper cache_set_many_bytes_here_wrapper by("cache_set_many_bytes", 3, SET_MANY, TO_WRITE);
    cache_scan_bytes_wrapper pg_finfo_cache_scan_bytes_wrapper cache_scan_bytes_here_wrapper by("cache_scan_bytes", 3, PAGE, TO_READ);
    cache_exists_wrapper pg_finfo_cache_exists_wrapper cache_exists_here_wrapper by("cache_exists", 1, READ, TO_READ);
    cache_ttl_wrapper pg_finfo_cache_ttl_wrapper cache_ttl_here_wrapper by("cache_ttl", 1, READ, TO_READ);
    cache_incr_wrapper pg_finfo_cache_incr_wrapper cache_incr_here_wrapper by("cache_incr", 3, WRITE, TO_WRITE);
    cache_incr_existing_wrapper pg_finfo_cache_incr_existing_wrapper cache_incr_existing_here_wrapper by("cache_incr_existing", 2, WRITE, TO_WRITE);
    cache_touch_wrapper pg_finfo_cache_touch_wrapper cache_touch_here_wrapper by("cache_touch", 2, WRITE, TO_WRITE);
    cache_persist_wrapper pg_finfo_cache_persist_wrapper cache_persist_here_wrapper by("cache_persist", 1, WRITE, TO_WRITE);
    cache_delete_wrapper pg_finfo_cache_delete_wrapper cache_delete_here_wrapper by("cache_delete", 1, WRITE, TO_DELETE);
    cache_rate_limit_wrapper pg_finfo_cache_rate_limit_wrapper cache_rate_limit_here_wrapper by("cache_rate_limit", 3, WRITE, TO_WRITE);
    cache_fetch_wrapper pg_finfo_cache_fetch_wrapper cache_fetch_here_wrapper by("cache_fetch", 3, FETCH, TO_WRITE);
    cache_fetch_json_wrapper pg_finfo_cache_fetch_json_wrapper cache_fetch_json_here_wrapper by("cache_fetch_json", 3, FETCH, TO_WRITE);
    cache_fetch_bytes_wrapper pg_finfo_cache_fetch_bytes_wrapper cache_fetch_bytes_here_wrapper by("cache_fetch_bytes", 3, FETCH, TO_WRITE);
    cache_lease_wrapper pg_finfo_cache_lease_wrapper cache_lease_here_wrapper by("cache_lease", 2, LEASE, TO_READ);
    cache_lease_bytes_wrapper pg_finfo_cache_lease_bytes_wrapper cache_lease_bytes_here_wrapper by("cache_lease_bytes", 2, LEASE, TO_READ);
    cache_set_leased_wrapper pg_finfo_cache_set_leased_wrapper cache_set_leased_here_wrapper by("cache_set_leased", 4, WRITE, TO_WRITE);
    cache_set_leased_bytes_wrapper pg_finfo_cache_set_leased_bytes_wrapper cache_set_leased_bytes_here_wrapper by("cache_set_leased_bytes", 4, WRITE, TO_WRITE);
    cache_release_wrapper pg_finfo_cache_release_wrapper cache_release_here_wrapper by("cache_release", 2, READ, TO_READ);
    cache_delete_many_wrapper pg_finfo_cache_delete_many_wrapper cache_delete_many_here_wrapper by("cache_delete_many", 1, WRITE_MANY, TO_DELETE);
    cache_keys_wrapper pg_finfo_cache_keys_wrapper cache_keys_here_wrapper by("cache_keys", 3, PAGE, TO_READ);
    cache_count_wrapper pg_finfo_cache_count_wrapper cache_count_here_wrapper by("cache_count", 0, COUNT, TO_READ);
    cache_delete_prefix_wrapper pg_finfo_cache_delete_prefix_wrapper cache_delete_prefix_here_wrapper by("cache_delete_prefix", 1, REMOVE, TO_DELETE);
    cache_expire_wrapper pg_finfo_cache_expire_wrapper cache_expire_here_wrapper by("cache_expire", 0, SWEEP, TO_DELETE);
    cache_clear_wrapper pg_finfo_cache_clear_wrapper cache_clear_here_wrapper by("cache_clear", 0, Kind::Clear, Privileges::TRUNCATE);
    verify_wrapper pg_finfo_verify_wrapper verify_here_wrapper by("verify", 0, Kind::Rows, TO_READ);
}
