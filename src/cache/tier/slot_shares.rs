//! Copies the share of each cache from its definition into its slot. A share consists of `max_bytes`, the bytes of the
//! tier that the cache may take, and `reserve`, the bytes that other caches must leave to it.
//!
//! A share takes effect with the commit of the definition. The session that has changed the definition then writes the
//! share into the slot. Every session that loads the definition also compares the slot with it and updates the slot,
//! because after a restart or COMMIT PREPARED no session has written the share.

use std::collections::BTreeSet;

use pgrx::pg_sys::Oid;

use super::slots;
use crate::cache::model::settings::Settings;
use crate::error::Error;
use crate::pg::session;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::slot::Share;
use crate::pg::shmem::tier::{Tier, tier};

/// The definitions that a transaction has changed.
#[derive(Default)]
struct Changing {
    /// Relations whose definition the transaction has changed, including changes under savepoints that were rolled
    /// back.
    relations: BTreeSet<u32>,
    /// The shares in these definitions at the commit.
    shares: Vec<(CacheId, Share)>,
}

thread_local! {
    static CHANGING: TransactionLocal<Changing> = TransactionLocal::default();
}

/// Returns the share in these settings.
pub fn of(settings: &Settings) -> Share {
    let bytes = |setting: Option<i64>| setting.unwrap_or(0).max(0) as u64;
    Share {
        max_bytes: bytes(settings.max_bytes),
        reserve: bytes(settings.reserve),
    }
}

/// Notes that the transaction changes the definition of a relation.
pub fn note_altered(relation: Oid) {
    let known = tier().is_some_and(|tier| slots::find(tier, CacheId::of(relation)).is_some());
    if known {
        CHANGING.with(|changing| changing.change(|c| c.relations.insert(relation.to_u32())));
    }
}

/// Returns whether the transaction has changed the definition of a relation.
pub fn is_changing(relation: Oid) -> bool {
    CHANGING.with(|changing| changing.look(|c| c.relations.contains(&relation.to_u32())))
}

/// Notes the shares in the current definitions; called before the commit. `definition` returns None for a relation that
/// is no longer a cache, for example after DROP EXTENSION. The relation then loses its share.
pub fn before_commit(definition: impl Fn(Oid) -> Option<Settings>) {
    let relations = CHANGING.with(|changing| changing.look(|c| c.relations.clone()));
    for relation in relations.into_iter().map(Oid::from_u32) {
        let share = definition(relation).map_or(Share::default(), |settings| of(&settings));
        let share = (CacheId::of(relation), share);
        CHANGING.with(|changing| changing.change(|c| c.shares.push(share)));
    }
}

/// Writes the noted shares into the slots; called after the commit is visible.
pub fn committed() {
    let changing = CHANGING.with(|changing| changing.change(std::mem::take));
    for (cache, share) in changing.shares {
        if let Some(tier) = tier()
            && let Some(slot) = slots::find(tier, cache)
        {
            put(tier, slot, cache, share, None);
        }
    }
}

/// Drops the notes of a transaction that is rolled back or prepared.
pub fn forget() {
    CHANGING.with(|changing| changing.change(std::mem::take));
}

/// Returns how often a share was written into any slot. A caller of [`put`] reads this count before it reads the
/// definition.
pub fn changes() -> u64 {
    tier().map_or(0, Tier::share_changes)
}

/// Writes the share into the slot of a cache, unless the slot already has the share and all of its reserve. `seen` is
/// the count ([`changes`]) that the caller read before the definition. If a share was written since, it may be a newer
/// share of this cache: writes nothing, and returns false. Skips this check if `seen` is None.
pub fn put(tier: &Tier, slot: u32, cache: CacheId, share: Share, seen: Option<u64>) -> bool {
    let agrees = || {
        let slot = tier.slot(slot);
        slot.share() == share && slot.held() == share.reserve
    };
    if agrees() || fault::on(Fault::ShareNotFollowed) {
        return true;
    }
    pause::at(Window::DefinitionToShare);
    tier.assigning(|| {
        let is_latest = seen.is_none_or(|seen| seen == tier.share_changes());
        if is_latest && slots::find(tier, cache) == Some(slot) {
            tier.put_share(slot, share);
        }
        is_latest
    })
}

/// Raises 53400 unless the reserves of other caches leave this many bytes. A cache without a slot does not count,
/// because no session has used it since the server's start. `definition` is the same function as in [`before_commit`].
pub fn check_reserve(
    cache: CacheId,
    reserve: Option<i64>,
    definition: impl Fn(Oid) -> Option<Settings>,
) -> Result<(), Error> {
    let Some(tier) = tier() else {
        return Ok(());
    };
    let wanted = reserve.unwrap_or(0).max(0) as u64;
    if wanted > left_beside(tier, cache) {
        give_back(tier, definition);
    }
    match left_beside(tier, cache) {
        left if wanted > left => Err(Error::ReserveTooLarge(left)),
        _ => Ok(()),
    }
}

/// Returns how many bytes the reserves of other caches leave.
fn left_beside(tier: &Tier, cache: CacheId) -> u64 {
    let own = slots::find(tier, cache);
    (0..tier.caches().len() as u32)
        .filter(|&slot| Some(slot) != own)
        .map(|slot| tier.slot(slot).share().reserve)
        .fold(tier.most_reserved(), u64::saturating_sub)
}

/// Removes the shares of caches whose end no session has noticed: a standby only replays a DROP, and the session that
/// runs COMMIT PREPARED does not know the definitions that it changes.
fn give_back(tier: &Tier, definition: impl Fn(Oid) -> Option<Settings>) {
    slots::free_gone(tier);
    for (relation, slot) in slots::of_database(tier, session::database()) {
        let has_share = tier.slot(slot).share() != Share::default();
        if has_share && !is_changing(relation) && definition(relation).is_none() {
            put(tier, slot, CacheId::of(relation), Share::default(), None);
        }
    }
}
