//! Copies of table entries in the hot tier: looks up a copy, and fills one in after a miss.
//!
//! The rules of docs/internals/coherence.md that this file keeps:
//!
//! - A copy is valid only while its version is the version of its cache. Every change of the whole cache changes the
//!   version.
//! - A copy is filled in only if no writer has marked or unmarked the key's stripe or the cache between the token and
//!   the fill. Only a transaction that cannot have uncommitted changes fills in a copy.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgcache_store::{Header, NO_DEADLINE, PartitionRef};
use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::lease::{undo_marks, unverified_after_restart};
use crate::cache::model::deadline::Deadline;
use crate::cache::model::entry::{Entry, Look};
use crate::cache::model::key::Key;
use crate::cache::tier::hashed_key::{HashedKey, hot_key};
use crate::cache::tier::io::{self, StoreOutcome};
use crate::guc;
use crate::pg::events::{self, Copied};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, clock, lock, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::value::stored::Stored;

/// The state that must not change between a miss and the fill that follows the miss.
pub struct Token {
    slot: u32,
    version: u64,
    /// The epoch of the key's stripe.
    epoch: u64,
}

/// Returns the tier if this session may currently use copies of this cache's entries.
#[inline]
fn tier_for(cache: &Cache) -> Option<&'static Tier> {
    let tier = tier()?;
    let allowed = guc::hot_tier()
        && may_use_copies()
        && (!cache.row_security || fault::on(Fault::RowSecurityNotNoticed))
        && (!session::in_recovery() || fault::on(Fault::StandbyUsesCopies));
    allowed.then_some(tier)
}

/// Returns whether this transaction reads only committed rows, so that it may serve copies and fill them in.
#[inline]
fn may_use_copies() -> bool {
    session::reads_committed_only()
        || fault::on(Fault::WriterUsesCopies) && !lock::one_snapshot_per_transaction()
        || fault::on(Fault::OldSnapshotUsesCopies) && !transaction::has_xid()
}

/// Returns the copy of an entry if it is live or within this grace. Needs no lock on the table. Counts a hit unless
/// `counts` is [`Look::Uncounted`].
#[inline]
pub fn lookup(
    cache: &Cache,
    key: HashedKey,
    grace: Option<Interval>,
    counts: Look,
) -> Option<Entry> {
    let tier = tier_for(cache)?;
    let slot = cache.slot(tier)?;
    tier.region().prefetch_entry(key.hash);
    let valid = |header: &Header| {
        (fault::on(Fault::CopyVersionNotCompared)
            || tier.slot(slot).version.load(SeqCst) == header.version)
            && tier.cache_of(slot).is(cache.id, SeqCst)
    };
    let entry = io::copy_out(tier, &key.in_slot(slot), cache.value_type, grace, valid)?;
    if counts == Look::Counted {
        tier.slot(slot).count(Counter::HotHits, 1);
    }
    Some(entry)
}

/// Returns whether eviction counts the copy of a table's entry as used: the copy was read after the fill, or is in the
/// main queue.
pub fn is_used(cache: &Cache, key: Key) -> bool {
    let Some((tier, slot)) = tier().and_then(|tier| Some((tier, cache.slot(tier)?))) else {
        return false;
    };
    let hot_key = hot_key(tier, cache.id, slot, key.bytes());
    tier.read(hot_key.hash, |partition| partition.use_rank(&hot_key))
        .is_some_and(|used| used > 0)
}

/// Takes a token for a fill. Returns None if no copy may be filled in. Called before the snapshot that reads the row is
/// taken. The caller has opened the cache for reading.
pub fn token(cache: &Cache, key: HashedKey) -> Option<Token> {
    let tier = tier_for(cache)?;
    let slot = cache.slot_or_new(tier)?;
    if tier.slot(slot).suspended.load(SeqCst) != 0 && !verify_triggers(tier, slot, cache.relation) {
        return None;
    }
    if !unverified_after_restart::is_proven(tier, slot, cache.relation) {
        return None;
    }
    take_token(tier, cache, key, slot).or_else(|| {
        let lowered = undo_marks::lower_decided();
        lowered
            .then(|| take_token(tier, cache, key, slot))
            .flatten()
    })
}

fn take_token(tier: &Tier, cache: &Cache, key: HashedKey, slot: u32) -> Option<Token> {
    let version = tier.slot(slot).version.load(SeqCst);
    tier.read(key.hash, |partition| {
        let epoch = partition.epoch(key.hash);
        let token = Token {
            slot,
            version,
            epoch,
        };
        holds(tier, &token, cache.id, key.hash, &partition).then_some(token)
    })
}

/// Returns whether the state is still the token's and no writer is active. The caller holds the partition's lock.
fn holds(tier: &Tier, token: &Token, cache: CacheId, hash: u64, partition: &PartitionRef) -> bool {
    let slot = tier.slot(token.slot);
    (partition.epoch(hash) == token.epoch || fault::on(Fault::FillEpochNotCompared))
        && (!tier.is_marked(hash) || fault::on(Fault::KeyMarkNotChecked))
        && (slot.version.load(SeqCst) == token.version || fault::on(Fault::FillVersionNotCompared))
        && tier.cache_of(token.slot).is(cache, SeqCst)
        && (slot.pending_writers.load(SeqCst) == 0 || fault::on(Fault::CachePendingNotChecked))
        && slot.suspended.load(SeqCst) == 0
}

/// Fills in the copy of a row that was read after the token was taken. Returns false if another session's commit has
/// prevented the fill. A value that is never copied counts as filled in.
pub fn fill(cache: &Cache, key: HashedKey, token: &Token, entry: &Entry) -> bool {
    let Some(tier) = tier_for(cache) else {
        return true;
    };
    let version = match fault::on(Fault::FillVersionNotCompared) {
        true => tier.slot(token.slot).version.load(SeqCst),
        false => token.version,
    };
    let Ok(record) = io::record(version, entry, cache.value_type) else {
        return true;
    };
    if record.value.len() > guc::hot_max_value() {
        tier.control().rejected.fetch_add(1, Relaxed);
        return true;
    }
    let still = |partition: &PartitionRef| holds(tier, token, cache.id, key.hash, partition);
    let stored = io::store(
        tier,
        &key.in_slot(token.slot),
        &record,
        clock::now(),
        still,
        || (),
    );
    stored != StoreOutcome::Refused
}

/// Offers the value of a row that this transaction has written, so that no reader needs to fill the copy in again after
/// the commit. Does so only if a copy exists, because entries without readers must not evict entries with readers.
pub fn offer(cache: &Cache, key: Key, value: Option<Stored>, deadline: Deadline) {
    let length = value.as_ref().map_or(0, |value| value.bytes().len());
    let may_keep = guc::hot_tier() && !cache.row_security && length <= guc::hot_max_value();
    let Some(tier) = tier().filter(|_| may_keep) else {
        return;
    };
    let Some(slot) = cache.slot(tier) else {
        return;
    };
    let hot_key = hot_key(tier, cache.id, slot, key.bytes());
    let version = tier.slot(slot).version.load(SeqCst);
    let is_copied = tier.read(hot_key.hash, |partition| {
        let copy = partition.peek(&hot_key);
        copy.is_some_and(|copy| copy.header().version == version)
    });
    if !is_copied {
        return;
    }
    let copied = Copied {
        relation: cache.relation,
        slot,
        hash: hot_key.hash,
        key: key.bytes(),
        value: value.as_ref().map(Stored::bytes),
        kind: cache.value_type as u8,
        deadline: deadline.unwrap_or(NO_DEADLINE),
    };
    events::emit(|observer| (observer.stored)(copied));
}

/// Clears the suspension of a cache if its triggers see every change of a row. Returns whether they do.
///
/// The lock conflicts with every command that could change a trigger, and taking it delivers the changes of finished
/// commands. So the catalog state that is read under the lock is current, and stays current until the flag is cleared.
/// A plain reader's lock would not wait for ALTER TABLE ... DISABLE TRIGGER.
fn verify_triggers(tier: &Tier, slot: u32, relation: Oid) -> bool {
    let lock = lock::Brief::try_on(relation, lock::Mode::Verify);
    if lock.is_none() && !fault::on(Fault::TriggersVerifiedWithoutLock) {
        return false;
    }
    let may_be_copied = registry::find(relation).is_ok_and(|cache| cache.may_be_copied)
        || fault::on(Fault::TriggersNotVerified);
    if may_be_copied {
        tier.slot(slot).suspended.store(0, SeqCst);
    }
    may_be_copied
}
