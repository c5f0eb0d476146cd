//! Skips the write of a touch that would extend a deadline by less than `touch_after`, a share of the ttl that
//! `cache_tune` sets.
//!
//! A skipped touch is a read: it takes no lock on the row and no transaction id, and does not wait for another
//! session's change of the row. Two rules hold. A touch that would bring a deadline forward is always written. A touch
//! is skipped only if its update would run no user-defined trigger, rule or policy.

use super::sql_read::{self, Found, Look};
use crate::cache::catalog::registry::{self, Cache};
use crate::cache::model::deadline::{self, Deadline};
use crate::cache::model::key::Key;
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::session::fault::{self, Fault};
use crate::pg::table::routing;
use crate::pg::value::moment::DeadlineForm;

/// Returns the live entry of a key if a touch keeps its deadline. Returns None if the touch must write, or if the key
/// has no live entry. The caller has opened the cache for a change.
pub fn left_as_it_is(cache: &Cache, key: HashedKey, new: Deadline) -> Result<Option<Found>, Error> {
    let Some(share) = cache.settings.touch_after else {
        return Ok(None);
    };
    if !updates_alone(cache, key.key) {
        return Ok(None);
    }
    let found = sql_read::find(cache.relation, key, Look::Uncounted)?;
    let new = form(cache).rounded(new);
    let stays = found
        .entry
        .is_some_and(|entry| deadline::moves_little(entry.deadline, new, share));
    Ok(stays.then_some(found))
}

/// Returns whether the skipped update would run no user-defined trigger, rule or policy.
fn updates_alone(cache: &Cache, key: Key) -> bool {
    let partition = || registry::partition(routing::leaf(cache.relation, key.text())?);
    cache.updates_alone
        && (!cache.partitioned || partition().is_some_and(|table| table.updates_alone))
        || fault::on(Fault::TouchLeavesTriggersOut)
}

fn form(cache: &Cache) -> DeadlineForm {
    let columns = cache.columns.as_ref();
    columns.map_or(DeadlineForm::OWN, |columns| columns.deadline_form)
}
