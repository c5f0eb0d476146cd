//! Makes Citus commit a transaction in two phases if the transaction writes on this node and on another node.
//!
//! Citus counts only the writes that it runs itself. A call on a shard of this node bypasses Citus, and so does a write
//! into a local table. If Citus then writes on one other node, for a call or for plain SQL, it commits on that node
//! first, in one phase. If this node crashed before its own commit, only the other node's half of the transaction would
//! remain. So such a transaction ends with a statement that changes nothing and makes Citus commit in two phases. The
//! statement runs right before the commit, because only then are all writes known, whether calls or plain SQL made
//! them.

use pgrx::pg_sys::InvalidOid;

use super::calls;
use crate::cache::catalog::shard_metadata::{Shard, Spread};
use crate::cache::lease::held;
use crate::cache::model::ddl;
use crate::pg::catalog::{database, distributed, name, privilege::AsOwner};
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::session::{subtransaction, transaction};
use crate::pg::value::datum::Text;

/// The writes of the transaction so far.
#[derive(Default)]
struct Written {
    /// A key that a call has written on a shard of this node, bypassing Citus.
    here: Option<Vec<u8>>,
    /// Keys of two shards. A call writes, or is about to write, the first key on another node.
    elsewhere: Option<[Vec<u8>; 2]>,
    /// The Citus group id of this node.
    node: i64,
    /// Whether Citus will commit in two phases.
    is_forced: bool,
}

thread_local! {
    static WRITTEN: TransactionLocal<Written> = TransactionLocal::default();
}

/// Notes that a call writes a key on a shard of this node, bypassing Citus.
pub fn wrote_here(spread: &Spread, key: Text) {
    WRITTEN.with(|written| {
        written.change(|written| {
            written.node = spread.here;
            written.here.get_or_insert_with(|| key.bytes().to_vec());
        });
    });
    force_at_once();
}

/// Notes that Citus is about to write a key on another node.
pub fn writes_elsewhere(spread: &Spread, shard: &Shard, key: Text) {
    if !has_written_elsewhere() {
        held::count_lock(); // a session may wait for it there, and no node would detect the deadlock
        let keys = [key, spread.key_beside(shard)].map(|key| key.bytes().to_vec());
        WRITTEN.with(|written| {
            written.change(|written| {
                written.node = spread.here;
                written.elsewhere = Some(keys);
            });
        });
    }
    force_at_once();
}

/// Returns whether a call of the transaction has written on another node, or is about to. Writes by plain SQL do not
/// count.
pub fn has_written_elsewhere() -> bool {
    WRITTEN.with(|written| written.look(|written| written.elsewhere.is_some()))
}

/// Makes Citus commit in two phases if a call has written on a shard, this node has written something, and Citus has
/// opened its own transaction. Called right before the commit.
pub fn at_commit() {
    let keys = WRITTEN.with(|written| {
        let node = written.look(|written| (!written.is_forced).then_some(written.node));
        let is_split = node.is_some_and(|node| {
            written.look(Written::is_ours)
                && transaction::has_xid()
                && distributed::coordinates(node)
        });
        is_split.then(|| written.look(Written::keys))
    });
    if let Some(keys) = keys {
        let _writable = transaction::Writable::enter();
        let _snapshot = transaction::Snapshot::enter();
        force(&keys);
    }
}

/// Forgets the writes at the end of the transaction.
pub fn forget() {
    WRITTEN.with(|written| {
        if written.look(Written::is_ours) {
            written.change(|written| *written = Written::default());
        }
    });
}

impl Written {
    fn is_ours(&self) -> bool {
        self.here.is_some() || self.elsewhere.is_some()
    }

    /// Returns keys of the shards on which [`force`] runs its statement. One shard of this node is enough. Otherwise
    /// two shards are needed, because Citus commits a write of one shard of another node in one phase.
    fn keys(&self) -> Vec<Vec<u8>> {
        match (&self.here, &self.elsewhere) {
            (Some(key), _) => vec![key.clone()],
            (None, Some(keys)) => keys.to_vec(),
            (None, None) => Vec::new(),
        }
    }
}

/// Runs [`force`] at once if Citus would otherwise commit the write on the other node immediately. Runs it in a
/// subtransaction, because Citus treats a subtransaction as a transaction block.
fn force_at_once() {
    let is_forced = WRITTEN.with(|written| written.look(|written| written.is_forced));
    if is_forced || !distributed::commits_at_once() {
        return;
    }
    let keys = WRITTEN.with(|written| written.look(Written::keys));
    if let Err(failure) = subtransaction::attempt(|| force(&keys)) {
        failure.raise();
    }
}

/// Deletes from the empty table `pgcache.distributed`, so that Citus commits in two phases. Runs as the owner of the
/// table, because the caller has no privileges on it.
fn force(keys: &[Vec<u8>]) {
    let is_one = |key: &Vec<u8>| [b"key OPERATOR(pg_catalog.=) ", &name::literal(key)[..]].concat();
    let conditions: Vec<Vec<u8>> = keys.iter().map(is_one).collect();
    let table = database::internal_relation(c"distributed");
    if table == InvalidOid {
        return; // this transaction has dropped the table, which Citus commits in two phases
    }
    let _literals = calls::literals();
    let _owner = AsOwner::to_maintain(table);
    ddl::run(&[
        b"DELETE FROM pgcache.distributed WHERE ",
        &conditions.join(&b" OR "[..]),
    ]);
    WRITTEN.with(|written| written.change(|written| written.is_forced = true));
}
