//! The leases, watches and announced stores of the current transaction, with one part per savepoint.
//!
//! All of them end with the transaction, or with the rollback of their savepoint; otherwise other sessions would wait
//! for a lease that no session uses.

use super::leases::{self, Lease};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::savepoints::{Join, Savepoints};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::session::{lock, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::{events, memory};

/// The largest number of leases that a session keeps until its transaction ends. A statement that fetches thousands of
/// keys must not take the records of all other sessions, so it fetches further keys without a lease.
const MOST_AT_ONCE: usize = 64;

/// A lease that ends, or becomes valid again, when this session's transaction ends.
#[derive(Clone, Copy)]
struct Held {
    lease: Lease,
    /// True for a client's lease, which becomes valid again when the transaction rolls back.
    outlives_rollback: bool,
}

impl Held {
    fn end(&self, committed: bool) {
        match self.outlives_rollback && !committed {
            true => leases::take_back(self.lease),
            false => drop(leases::end(self.lease)),
        }
    }
}

#[derive(Default)]
struct Part {
    held: Vec<Held>,
    /// Caches in whose tables the transaction has stored loaded values, each listed once.
    stored_in: Vec<CacheId>,
    /// Watches of loaders that are running.
    watches: Vec<Lease>,
}

impl Join for Part {
    fn join(&mut self, later: Part) {
        self.held.join(later.held);
        self.stored_in.join(later.stored_in);
        self.watches.join(later.watches);
    }
}

impl Part {
    fn end(&self, committed: bool) {
        self.held.iter().for_each(|held| held.end(committed));
        self.watches
            .iter()
            .for_each(|&watch| leases::end_watch(watch));
        if let Some(tier) = tier() {
            for &cache in &self.stored_in {
                tier.stores(cache).end();
            }
        }
    }
}

#[derive(Default)]
struct Session {
    parts: Savepoints<Part>,
    /// The number of locks that replace leases. Locks count until the transaction ends, even if a savepoint is rolled
    /// back: a count that is too high only makes the session more careful.
    locks: usize,
}

thread_local! {
    static SESSION: TransactionLocal<Session> = TransactionLocal::default();
}

fn with<R>(change: impl FnOnce(&mut Session) -> R) -> R {
    SESSION.with(|session| session.change(change))
}

/// Returns the number of leases of this session, including locks that replace a lease.
fn count() -> usize {
    let leases = |part: &Part| part.held.len();
    SESSION.with(|session| {
        session.look(|session| session.parts.iter().map(leases).sum::<usize>() + session.locks)
    })
}

/// Returns whether this session has reached its limit of leases.
pub fn is_full() -> bool {
    count() >= MOST_AT_ONCE
}

/// Returns whether this session may wait where the deadlock detector does not see the wait. It must not wait while it
/// has an xid, because other sessions may wait for its rows. It must not wait while it has a lease, because other
/// sessions may wait for the lease.
pub fn may_wait() -> bool {
    (!transaction::has_xid() || fault::on(Fault::WriterWaitsForLease))
        && (count() == 0 || fault::on(Fault::HolderMayWait))
}

/// Keeps a lease until the transaction or the savepoint ends.
pub fn hold(lease: Lease) {
    hold_as(lease, false);
}

fn hold_as(lease: Lease, outlives_rollback: bool) {
    let held = Held {
        lease,
        outlives_rollback,
    };
    with(|session| {
        let part = session.parts.at(events::nesting_level());
        memory::push(&mut part.held, held);
    });
}

/// Keeps a watch until the watch ends, at the latest with the transaction or the savepoint. Call this before the watch
/// is taken, because this call may run out of memory.
pub fn watch(watch: Lease) {
    with(|session| {
        let part = session.parts.at(events::nesting_level());
        memory::push(&mut part.watches, watch);
    });
}

pub fn end_watch(watch: Lease) {
    with(|session| {
        for part in session.parts.iter_mut() {
            part.watches.retain(|kept| *kept != watch);
        }
    });
    leases::end_watch(watch);
}

/// Counts a lock that replaces a lease.
pub fn count_lock() {
    with(|session| session.locks += 1);
}

/// Notes that this transaction writes the value under a client's lease, which becomes valid again if the transaction
/// rolls back. Returns false when the lease is lost.
pub fn store_for_client(lease: Lease) -> bool {
    let stores = leases::store(lease);
    if stores {
        hold_as(lease, true);
    }
    stores
}

/// Ends a lease before its transaction ends. Returns whether the lease was valid.
pub fn release(lease: Lease) -> bool {
    with(|session| {
        for part in session.parts.iter_mut() {
            part.held.retain(|held| held.lease != lease);
        }
    });
    leases::end(lease)
}

/// Announces that this transaction is about to store a loaded value in a table. Call this before the store, so that a
/// session that removes the row of the key knows that it needs a second check. Skips temporary tables, which no other
/// session changes.
pub fn note_store(cache: &Cache) {
    let Some(tier) = tier().filter(|_| !cache.temporary) else {
        return;
    };
    let id = cache.id;
    let is_noted = |part: &Part| part.stored_in.contains(&id);
    if SESSION.with(|session| session.look(|session| session.parts.iter().any(is_noted))) {
        return;
    }
    lock::note_store(cache.relation);
    if fault::on(Fault::StoreNotAnnounced) {
        return;
    }
    with(|session| {
        let part = session.parts.at(events::nesting_level());
        memory::push(&mut part.stored_in, id);
    });
    tier.stores(id).begin();
}

/// Returns whether a session may have stored a loaded value for this cache in a row that other sessions cannot see yet.
pub fn has_open_stores(tier: &Tier, cache: CacheId) -> bool {
    tier.stores(cache).any()
}

/// Ends all leases, watches and announced stores at the end of the transaction. After a commit, other sessions can see
/// its stores; after a rollback, they never see them.
pub fn end(committed: bool) {
    if !committed && fault::on(Fault::LeaseOutlivesError) {
        return;
    }
    with(std::mem::take).parts.into_one().end(committed);
}

/// Ends the session's leases before PREPARE TRANSACTION, including the leases of clients whose values it has stored. A
/// session that waits for one of these leases then requests it again.
pub fn give_up() {
    let held = with(|session| {
        let parts = session.parts.iter_mut();
        let mut held = Vec::new();
        for part in parts {
            held.join(std::mem::take(&mut part.held));
        }
        held
    });
    for held in held {
        leases::end(held.lease);
    }
}

/// Takes the list of caches in whose tables the transaction has stored loaded values. The caller ends these stores
/// when the prepared transaction ends.
pub fn take_stores() -> Vec<CacheId> {
    with(|session| {
        let mut stored_in = Vec::new();
        for part in session.parts.iter_mut() {
            stored_in.join(std::mem::take(&mut part.stored_in));
        }
        stored_in
    })
}

/// Merges the leases of a released savepoint into its parent.
pub fn release_savepoint(level: i32) {
    with(|session| session.parts.release(level));
}

/// Ends the leases and stores of a savepoint that was rolled back.
pub fn roll_back_savepoint(level: i32) {
    with(|session| session.parts.roll_back(level)).end(false);
}
