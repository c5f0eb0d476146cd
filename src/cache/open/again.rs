//! The second look of deletions, right before the commit: what has come since the first one was made of
//! what the deletion wants out of the way.
//!
//! Guards that a deletion wins over a fetch that began before it. Its marks stand by now, so no session stores
//! a value any more that was loaded before; a row that is written and not committed is waited for, as an INSERT of
//! the same key would.

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

/// Where a removal runs code that is not ours, it must come before the callbacks of the commit.
pub fn ask_for_end(cache: &Cache) {
    if !cache.changes_alone() {
        pre_commit_portal::ask_for();
    }
}

/// Notes what deletions are to remove after all, as if it depended on a row that has changed.
pub fn look_again() {
    if fault::on(Fault::DeletionLooksOnce) {
        return;
    }
    for look in changes::second_looks() {
        // The second look acts as the owner, for whom no policy hides a row. So with policies only the first counts.
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

/// A row that the transaction has written itself came after the deletion, or goes by its key.
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
