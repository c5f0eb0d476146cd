//! Letting Citus know that a transaction has written on this node, too.
//!
//! A call on a shard of this node goes past Citus. A transaction that also writes on one other node would look to it
//! like one of that node alone, and be committed there first, in one phase: a crash of this node between that and its
//! own commit would leave half. So Citus gets a statement of its own to run on this node, which changes nothing; it
//! commits in two phases then. Only a transaction that writes here and elsewhere pays for it, once.

use std::cell::Cell;

use crate::cache::catalog::spread::Spread;
use crate::cache::lease::held;
use crate::cache::model::ddl;
use crate::pg::catalog::{database, name, privilege::AsOwner};
use crate::pg::session::transaction;

/// What a transaction has done so far.
#[derive(Clone, Copy, Default)]
struct Written {
    /// Which one it is.
    transaction: u32,
    here: bool,
    elsewhere: bool,
    told: bool,
}

thread_local! {
    static WRITTEN: Cell<Written> = const {
        Cell::new(Written { transaction: 0, here: false, elsewhere: false, told: false })
    };
}

/// The transaction writes on a shard of this node, past Citus.
pub fn wrote_here(spread: &Spread) {
    note(spread, |written| written.here = true);
}

/// The transaction writes on another node, by Citus.
pub fn writes_elsewhere(spread: &Spread) {
    if !has_written_elsewhere() {
        held::count_lock(); // others may wait for it there: who waits for a lease here could not be seen
    }
    note(spread, |written| written.elsewhere = true);
}

/// Whether the transaction has written on another node.
pub fn has_written_elsewhere() -> bool {
    let written = WRITTEN.get();
    written.elsewhere && written.transaction == transaction::number()
}

fn note(spread: &Spread, change: impl FnOnce(&mut Written)) {
    let transaction = transaction::number();
    let mut written = match WRITTEN.get() {
        same if same.transaction == transaction => same,
        _ => Written {
            transaction,
            ..Written::default()
        },
    };
    change(&mut written);
    if written.here && written.elsewhere && !written.told {
        tell(spread);
        written.told = true;
    }
    WRITTEN.set(written);
}

/// A statement over the table that has no rows, as its owner: others have no rights on it.
fn tell(spread: &Spread) {
    let key = spread.key_on(spread.here);
    let _owner = AsOwner::to_maintain(database::internal_relation(c"distributed"));
    ddl::run(&[
        b"DELETE FROM pgcache.distributed WHERE key OPERATOR(pg_catalog.=) ",
        &name::literal(key.bytes()),
    ]);
}
