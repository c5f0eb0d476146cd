//! Decides where a call runs: unchanged on a local cache, on a shard of this node, or on another node of Citus.

use std::ffi::CString;

use pgrx::PgLogLevel;
use pgrx::pg_sys::panic::ErrorReport;

use super::distributed_call::{self, Kind, Request, Route};
use crate::cache::catalog::shard_metadata;
use crate::cache::distribute::{multi_shard, single_shard};
use crate::cache::open;
use crate::error::Error;
use crate::pg::catalog::{distributed, relation};
use crate::pg::session::shard_lock::{self, Place};
use crate::pg::session::transaction;
use crate::pg::value::call::{Call, Way};

/// Chooses where a call of an SQL function runs.
pub fn choose(call: Call, route: &'static Route) -> Way {
    match way(call, route) {
        Ok(way) => way,
        Err(error) => {
            ErrorReport::from(error).report(PgLogLevel::ERROR); // does not return
            Way::Here
        }
    }
}

/// Releases the lock on a shard.
pub fn leave(shard: Place) {
    shard_lock::leave(shard);
}

fn way(call: Call, route: &Route) -> Result<Way, Error> {
    let Some(cache) = call.oid(route.cache) else {
        return Ok(Way::Here);
    };
    let Some(spread) = shard_metadata::of(cache) else {
        return Ok(Way::Here);
    };
    let sent = distributed_call::take_sent(cache, route.function);
    // Checks the privileges on the cache; the call on the shard checks the privileges on the shard, too.
    open::require(cache, route.needs);
    if !route.only_reads() && !matches!(route.kind, Kind::Fetch { .. }) {
        // Citus treats a call that it delegates as a read.
        transaction::require_writable(&CString::new(route.function).unwrap_or_default());
    }
    if !route.only_reads() && sent.is_none() && distributed::is_part_of_a_query() {
        return Err(Error::NoNode(relation::display_name(cache)));
    }
    let request = Request {
        call,
        route,
        cache,
        sent,
    };
    if sent.is_some_and(|sent| sent.node != spread.here) {
        return Ok(request.missed());
    }
    match route.kind {
        Kind::Read { key }
        | Kind::Write { key }
        | Kind::Fetch { key }
        | Kind::Lease { key, .. } => single_shard::answer(&request, spread, call.text(key)),
        _ => multi_shard::answer(&request, &spread),
    }
}
