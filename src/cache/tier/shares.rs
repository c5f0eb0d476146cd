//! How much of the tier each cache may hold, and how much others leave it: from definitions into slots.
//!
//! A share stands in the cache's definition and counts from its commit on. The session that has changed it
//! puts it into the slot then; every session that learns of the definition looks whether the slot agrees,
//! which is what remains after a restart or COMMIT PREPARED.

use std::collections::BTreeSet;

use pgrx::pg_sys::Oid;

use super::slots;
use crate::cache::model::settings::Settings;
use crate::error::Error;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::slot::Share;
use crate::pg::shmem::tier::{Tier, tier};

/// Definitions that a transaction has changed.
#[derive(Default)]
struct Changing {
    /// Relations whose definition it has changed, under savepoints that were rolled back, too.
    relations: BTreeSet<u32>,
    /// What their definitions say at the commit.
    shares: Vec<(CacheId, Share)>,
}

thread_local! {
    static CHANGING: TransactionLocal<Changing> = TransactionLocal::default();
}

/// The share that settings say.
pub fn of(settings: &Settings) -> Share {
    let bytes = |setting: Option<i64>| setting.unwrap_or(0).max(0) as u64;
    Share {
        max_bytes: bytes(settings.max_bytes),
        reserve: bytes(settings.reserve),
    }
}

/// The transaction changes the definition of a relation.
pub fn note_altered(relation: Oid) {
    let known = tier().is_some_and(|tier| slots::find(tier, CacheId::of(relation)).is_some());
    if known {
        CHANGING.with(|changing| changing.change(|c| c.relations.insert(relation.to_u32())));
    }
}

/// Whether the transaction has changed the definition of a relation.
pub fn is_changing(relation: Oid) -> bool {
    CHANGING.with(|changing| changing.look(|c| c.relations.contains(&relation.to_u32())))
}

/// Before the commit: notes what the definitions say now. `definition` gives None for what is no cache.
pub fn before_commit(definition: impl Fn(Oid) -> Option<Settings>) {
    let relations = CHANGING.with(|changing| changing.look(|c| c.relations.clone()));
    for relation in relations.into_iter().map(Oid::from_u32) {
        if let Some(settings) = definition(relation) {
            let share = (CacheId::of(relation), of(&settings));
            CHANGING.with(|changing| changing.change(|c| c.shares.push(share)));
        }
    }
}

/// The commit is visible.
pub fn committed() {
    let changing = CHANGING.with(|changing| changing.change(std::mem::take));
    for (cache, share) in changing.shares {
        if let Some(tier) = tier()
            && let Some(slot) = slots::find(tier, cache)
        {
            put(tier, slot, cache, share);
        }
    }
}

/// The transaction is rolled back, or prepared.
pub fn forget() {
    CHANGING.with(|changing| changing.change(std::mem::take));
}

/// Gives the slot of a cache this share, if it has another or not all of its reserve.
pub fn put(tier: &Tier, slot: u32, cache: CacheId, share: Share) {
    let agrees = || {
        let slot = tier.slot(slot);
        slot.share() == share && slot.held() == share.reserve
    };
    if agrees() || fault::on(Fault::ShareNotFollowed) {
        return;
    }
    tier.assigning(|| {
        if slots::find(tier, cache) == Some(slot) {
            tier.put_share(slot, share);
        }
    });
}

/// Raises 53400 unless the reserves of other caches leave so many bytes. Caches that were not used since the
/// start are not known.
pub fn check_reserve(cache: CacheId, reserve: Option<i64>) -> Result<(), Error> {
    let Some(tier) = tier() else {
        return Ok(());
    };
    let own = slots::find(tier, cache);
    let others = (0..tier.caches().len() as u32).filter(|&slot| Some(slot) != own);
    let taken: u64 = others.map(|slot| tier.slot(slot).share().reserve).sum();
    let left = tier.most_reserved().saturating_sub(taken);
    match reserve.unwrap_or(0).max(0) as u64 > left {
        true => Err(Error::ReserveTooLarge(left)),
        false => Ok(()),
    }
}
