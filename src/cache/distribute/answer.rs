//! Runs a call that another node of Citus has sent, on the shards of this node.

use std::ffi::CString;

use super::calls::{self, Arguments};
use super::request::{Addressee, Route, Sent, SentCall};
use crate::cache::catalog::shard_metadata;
use crate::error::Error;
use crate::pg::value::call::TextRow;
use crate::pg::value::datum::Text;

/// Runs a call with the caller's own privileges on the function and on the cache, and returns its rows. Returns None
/// if the key of the call is not on this node, or if the call was addressed to another node. Accepts only calls on
/// distributed caches: a role that may call a function may also call `pgcache.at_key`, and the call then does no more
/// than the function itself.
pub fn answer(
    key: Text,
    node: i64,
    route: &'static Route,
    arguments: &Arguments,
) -> Result<Option<Vec<TextRow>>, Error> {
    let name = arguments.get(route.cache).copied().flatten();
    let cache = calls::relation(name.ok_or(Error::NotSent)?).ok_or(Error::NotSent)?;
    shard_metadata::of(cache).ok_or(Error::DefinitionChanged)?;
    let (node, all) = Addressee::parts(node);
    let sent = Sent::begin(SentCall {
        node,
        all,
        function: route.function,
        cache,
        hash: shard_metadata::hash_of(key),
    });
    let named = CString::new(cache.to_u32().to_string()).unwrap_or_default();
    let rows = calls::here(route.function, &calls::on(arguments, route.cache, &named));
    let rows = rows.map_err(|error| match error {
        Error::DroppedExtension => Error::NotSent, // the extension has no function with this many arguments
        other => other,
    })?;
    Ok((!sent.has_missed()).then_some(rows))
}
