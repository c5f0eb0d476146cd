//! Answering a call that another node has sent.

use super::ask::{self, Arguments};
use super::request::{Route, Sent};
use crate::error::Error;
use crate::pg::value::call::TextRow;

/// The rows of a call, made as whoever asks: with their privileges on the function and on the cache. None if its key
/// is not here, or if this is not the node that was meant.
pub fn answer(
    node: i64,
    route: &Route,
    arguments: &Arguments,
) -> Result<Option<Vec<TextRow>>, Error> {
    let sent = Sent::begin(node);
    let rows = ask::here(route.function, arguments)?;
    Ok((!sent.has_missed()).then_some(rows))
}
