//! Looks a second time, right before the commit, for rows under the keys that the transaction has deleted. After the
//! first look, another session may have stored a row from data that the deletion was meant to invalidate.
//!
//! So a deletion wins over a fetch that began before it. The marks of the deletion are set during the second look, so
//! no session can still store a value that it loaded before. The deletion waits for a row that is written and not
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

/// Makes the second look run before the callbacks of the commit, if removing a row may run user-defined code.
pub fn request_end(cache: &Cache) {
    if !cache.changes_alone() {
        pre_commit_portal::request();
    }
}

/// Notes the keys that deletions must look for again, as if their entries depended on a row that has changed. The
/// commit then removes the rows of these keys.
pub fn look_again() {
    if fault::on(Fault::DeletionChecksOnce) {
        return;
    }
    for look in changes::second_looks() {
        // The second look runs as the owner, from whom no policy hides a row. So if the table has policies, only the
        // first look counts.
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

/// Notes the rows of other transactions under deleted prefixes. A row of this transaction needs no note: it was written
/// after the deletion, or is removed by its key.
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
