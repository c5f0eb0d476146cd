//! Checks again, right before the commit, for rows with deleted keys. Between the first check and the commit, another
//! session may have stored a row computed from outdated data.
//!
//! So a deletion wins over a fetch that began before it. The second check sets the deletion's marks first. After that,
//! no session can start to store a value loaded earlier. The deletion waits for a row that is written and not
//! committed, as an INSERT of the same key would.

use std::rc::Rc;

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::commit::changes;
use crate::cache::commit::deletions::SecondLook;
use crate::cache::model::pending;
use crate::cache::table::remove_many;
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::hooks::pre_commit_portal;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{lock, transaction};
use crate::pg::value::datum::Text;

/// Runs the second check before the commit callbacks, if removing a row may run user-defined code.
pub fn request_end(cache: &Cache) {
    if !cache.changes_alone() {
        pre_commit_portal::request();
    }
}

/// Notes the deleted keys that need a second check, as if their entries depended on a row that has changed. The commit
/// then removes the rows of these keys.
pub fn look_again() {
    if fault::on(Fault::DeletionChecksOnce) {
        return;
    }
    for look in changes::second_looks() {
        // The second check runs as the table's owner, who sees rows that a policy hides from the caller. So skip it for
        // a table with row security.
        let found = registry::find(look.relation);
        let Some(cache) = found.ok().filter(|cache| !cache.row_security) else {
            continue;
        };
        for key in &look.keys {
            pending::note(look.relation, key);
        }
        if !look.prefixes.is_empty() {
            look_for_prefixes(&cache, &look);
        }
    }
}

/// Notes the rows of other transactions under deleted prefixes. Skips this transaction's own rows: either they were
/// written after the deletion, or the deletion of their key removes them.
fn look_for_prefixes(cache: &Rc<Cache>, look: &SecondLook) {
    if !fault::on(Fault::DeletionDoesNotWait) {
        lock::wait_for_stores(look.relation);
    }
    let _owner = AsOwner::to_remove(look.relation);
    let _writable = transaction::Writable::enter();
    let _snapshot = transaction::Snapshot::enter();
    for prefix in &look.prefixes {
        for key in remove_many::keys_of_others(cache, Text::new(prefix)) {
            pending::note(look.relation, key.bytes());
        }
    }
}
