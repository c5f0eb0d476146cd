//! Before a plain statement writes a row: the expired one under its key goes.

use pgrx::pg_sys::Oid;

use super::{access_path, direct};
use crate::cache::catalog::registry::{self, Cache};
use crate::cache::model::key::Key;
use crate::cache::model::statement::Statement;
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::table::search;
use crate::pg::value::datum::Text;

/// Removes the row under this key if it has expired. The statement holds its lock on the table. A
/// table that has come to be no cache keeps its rows.
///
/// Who may write a key needs no right to delete: that nothing is there is what a SELECT says, too.
/// Triggers of the cache's own run as its owner, as they do in a sweep.
pub fn renew(relation: Oid, key: &[u8]) {
    let Ok(cache) = registry::find(relation) else {
        return;
    };
    let key = Key::stored(Text::new(key));
    let asked = match &cache.target {
        Some(target) if !cache.is_stale() => search::has_expired(target, key.text()).ok(),
        _ => None,
    };
    if asked.unwrap_or_else(|| finds_expired(&cache, key)) {
        remove(&cache, key);
    }
}

/// The same of a table that is not read directly. Asked first, because a removal may be refused, and
/// who writes where nothing has expired shall not hear of that.
fn finds_expired(cache: &Cache, key: Key) -> bool {
    let _owner = AsOwner::to_maintain(cache.relation);
    cache
        .plan(Statement::IsExpired)
        .run_as_of_now(&[key.text().into()], |output| output.processed > 0)
}

fn remove(cache: &Cache, key: Key) {
    let removed = access_path::to_write(cache)
        .and_then(|target| direct::remove_if(target, key, |entry| !entry.is_live()));
    if removed.is_none() {
        let _owner = AsOwner::to_remove(cache.relation);
        cache
            .plan(Statement::DeleteExpired)
            .change_as_of_now(&[key.text().into()]);
    }
}
