//! Finds the memory cache behind a view. The view calls `pgcache.memory_entries` with the cache's settings. These
//! include an id, because a view cannot name itself in its own definition.
//!
//! The function finds the view by that id and checks the caller's privilege on it. So a copy of the definition under
//! another name reads nothing that the caller may not read.
//!
//! Any role can read a definition and use its id in another view. So the settings also contain the OID of the view,
//! which no other view can have. After a restore, and until the next `cache_alter`, the view has a different OID from
//! the one in its settings, and the id alone decides. If views of several owners have the id, no view is found, because
//! a wrong entry would be worse than an error.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::reading::Reading;
use crate::cache::catalog::registry::{self, Storage};
use crate::cache::model::settings::Settings;
use crate::cache::open;
use crate::cache::tier::slots;
use crate::error::Error;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::catalog::relation;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier;
use crate::pg::table::shape;
use crate::pg::value::datum::Text;

/// Returns the memory cache whose view has these settings, if the caller may read it.
///
/// The settings may be forged. So before it waits for a lock, this function checks in the catalogs that the relation is
/// a memory cache with this id and that the caller may read it. It checks both again under the lock.
pub fn cache_behind(settings: Text) -> Result<Reading, Error> {
    let (id, relation) = Settings::from_arguments(&words_of(&settings))
        .ok()
        .and_then(|settings| Some((settings.id?, relation_of(&settings)?)))
        .ok_or(Error::NoSuchView)?;
    let cache = open::to_read(Some(relation), Privileges::SELECT)?;
    let is_it = cache.storage == Storage::Memory && cache.settings.id == Some(id);
    is_it.then_some(cache).ok_or(Error::NoSuchView)
}

/// Returns the number of entries of the memory cache with these settings, including expired entries, and at least 1.
/// Returns None if the cache does not exist or has no slot, or if the current user may not read it.
pub fn estimated_entries(settings: Text) -> Option<f64> {
    let words: Vec<Vec<u8>> = words_of(&settings);
    let relation = relation_of(&Settings::from_arguments(&words).ok()?)?;
    if !privilege::has(relation, Privileges::SELECT) {
        return None;
    }
    let tier = tier::tier()?;
    let slot = slots::find(tier, CacheId::of(relation))?;
    let entries = tier.slot(slot).entries.load(Relaxed);
    Some((entries as f64).max(1.0))
}

fn words_of(settings: &Text) -> Vec<Vec<u8>> {
    let words = settings.bytes().split(|&byte| byte == b' ');
    words.map(<[u8]>::to_vec).collect()
}

fn relation_of(settings: &Settings) -> Option<Oid> {
    let id = settings.id?;
    privilege::accept_invalidations();
    let original = settings.oid.map(Oid::from_u32);
    original
        .filter(|&relation| has_id(relation, id))
        .or_else(|| restored(id))
}

/// Returns the view with this id that has the lowest OID, which is usually the original and not a copy of its
/// definition. Returns None if no view has the id, or if views of several owners have it.
fn restored(id: u64) -> Option<Oid> {
    let known: Vec<Oid> = registry::all_caches()
        .into_iter()
        .filter(|&relation| has_id(relation, id))
        .collect();
    let (&oldest, others) = known.split_first()?;
    let owner = relation::owner(oldest);
    others
        .iter()
        .all(|&other| relation::owner(other) == owner)
        .then_some(oldest)
}

/// Returns whether a relation is the view of a memory cache with this id. Reads the catalogs without a lock.
fn has_id(relation: Oid, id: u64) -> bool {
    shape::settings_of_view(relation)
        .and_then(|words| Settings::from_arguments(&words).ok())
        .is_some_and(|settings| settings.id == Some(id))
}
