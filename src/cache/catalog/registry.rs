//! The caches that this session has loaded, by the relation's OID: definitions and saved plans.
//!
//! The catalogs are the source of truth: a cache is loaded again when its relation may have changed. Callers lock the
//! relation first and look it up afterwards, so that a cache found here stays valid while they hold the lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use pgrx::pg_sys::Oid;

pub use super::cache::{Cache, Storage};
use super::loading;
use crate::cache::model::settings::Settings;
use crate::cache::tier::slot_shares;
use crate::error::Error;
use crate::pg::catalog::privilege;
use crate::pg::session::lock;
use crate::pg::spi::plan::query_once;
use crate::pg::table::shape;
use crate::pg::value::datum::ValueType;

thread_local! {
    /// Never dropped, because a process frees the plans' memory before its thread-locals.
    static CACHES: ManuallyDrop<RefCell<BTreeMap<u32, Rc<Cache>>>> = ManuallyDrop::default();
    /// Partitions of caches, for operations on a single partition.
    static PARTITIONS: ManuallyDrop<RefCell<BTreeMap<u32, Rc<Cache>>>> = ManuallyDrop::default();
}

/// Returns a cache that this session has loaded. Returns None if the session has not loaded the cache, or if the cache
/// may have changed since.
pub fn remembered(relation: Oid) -> Option<Rc<Cache>> {
    CACHES.with(|caches| {
        let caches = caches.borrow();
        let cache = caches.get(&relation.to_u32())?;
        cache.is_present().then(|| Rc::clone(cache))
    })
}

/// Looks up a cache on which the caller holds a lock, and loads it if necessary.
pub fn find(relation: Oid) -> Result<Rc<Cache>, Error> {
    if let Some(cache) = remembered(relation) {
        return Ok(cache);
    }
    let loaded = load(relation);
    let former = forget_changed();
    if let Ok(cache) = &loaded {
        CACHES.with(|caches| {
            caches
                .borrow_mut()
                .insert(relation.to_u32(), Rc::clone(cache))
        });
    }
    drop(former); // frees their plans, outside the borrow
    loaded
}

/// Loads a cache and writes the share from its definition into its slot. If a share was written during the load, loads
/// the cache again. Otherwise this session could write an outdated share after the commit that changed it, and so undo
/// the change for all sessions.
fn load(relation: Oid) -> Result<Rc<Cache>, Error> {
    loop {
        let seen = slot_shares::changes();
        let cache = Rc::new(loading::load(relation)?);
        if cache.follow_share(Some(seen)) {
            return Ok(cache);
        }
        privilege::accept_invalidations();
    }
}

/// Returns the definition of a distributed cache, whose entries are not in its own table. The session does not keep it.
/// The caller holds a lock.
pub fn definition(relation: Oid) -> Result<Cache, Error> {
    loading::load_definition(relation)
}

/// Registers a cache from a definition that another process of the server has read, for a process that must not read
/// the catalogs itself. The caller has received no invalidation since the definition was read. A table cache that is
/// registered this way serves only lookups in the hot tier, and only if its keys are text and no policy hides rows.
pub fn adopt(
    relation: Oid,
    settings: Settings,
    value_type: ValueType,
    storage: Storage,
) -> Rc<Cache> {
    if let Some(cache) = remembered(relation)
        && (cache.settings, cache.value_type, cache.storage) == (settings, value_type, storage)
    {
        return cache;
    }
    let cache = Rc::new(loading::adopted(relation, settings, value_type, storage));
    let former = forget_changed();
    CACHES.with(|caches| {
        caches
            .borrow_mut()
            .insert(relation.to_u32(), Rc::clone(&cache))
    });
    drop(former); // frees their plans, outside the borrow
    cache
}

/// Removes and returns every cache that has changed. A dropped cache is never looked up again, and a session that
/// creates and drops many caches must not keep them all.
fn forget_changed() -> Vec<Rc<Cache>> {
    CACHES.with(|caches| {
        let mut caches = caches.borrow_mut();
        let changed: Vec<u32> = caches
            .iter()
            .filter(|(_, cache)| !cache.is_present())
            .map(|(&relation, _)| relation)
            .collect();
        changed
            .iter()
            .filter_map(|relation| caches.remove(relation))
            .collect()
    })
}

/// Returns a partition of a cache as a separate cache, with the settings and the id of the whole cache. Returns None
/// for any other relation. The caller holds a lock on the partition. Nothing is read from the whole cache, so that a
/// writer of a single partition does not lock the whole cache. Such a lock could deadlock with DETACH PARTITION, which
/// locks the whole cache before its partitions.
pub fn partition(table: Oid) -> Option<Rc<Cache>> {
    let known = PARTITIONS.with(|known| known.borrow().get(&table.to_u32()).cloned());
    if let Some(known) = known.filter(|known| known.is_present()) {
        return Some(known);
    }
    let found = loading::load_partition(table).map(Rc::new);
    let former = PARTITIONS.with(|known| {
        let mut known = known.borrow_mut();
        let changed = known.extract_if(.., |_, known| !known.is_present());
        let changed: Vec<(u32, Rc<Cache>)> = changed.collect();
        if let Some(found) = &found {
            known.insert(table.to_u32(), Rc::clone(found));
        }
        changed
    });
    drop(former); // frees their plans, outside the borrow
    found
}

/// The storage, value type and settings of a cache, for callers that need only these.
pub struct Outline {
    pub storage: Storage,
    pub value_type: ValueType,
    pub settings: Settings,
}

/// Returns the outline of any cache without waiting for a lock: if another session holds a lock that keeps readers
/// out, the outline comes from the catalogs directly. Returns None for a relation that does not work as a cache.
pub fn outline(relation: Oid) -> Option<Outline> {
    if let Some(_lock) = lock::Brief::try_on(relation, lock::Mode::Read) {
        let cache = find(relation).ok()?;
        return Some(Outline {
            storage: cache.storage,
            value_type: cache.value_type,
            settings: cache.settings,
        });
    }
    let outline = shape::outline(relation)?;
    Some(Outline {
        storage: loading::storage(outline.view, outline.unlogged),
        value_type: outline.value_type,
        settings: Settings::from_arguments(&outline.settings)
            .ok()?
            .with_reserve(outline.reserve.as_deref()),
    })
}

/// Returns the settings of [`outline`]; None if the relation is not a cache.
pub fn settings_of(relation: Oid) -> Option<Settings> {
    Some(outline(relation)?.settings)
}

/// Returns every cache of the database.
pub fn all_caches() -> Vec<Oid> {
    query_once(
        c"SELECT c.cache FROM pgcache.all_caches AS c ORDER BY c.cache",
        &[],
        &[],
        |output| {
            (0..output.rows())
                .filter_map(|row| output.oid(row, 0))
                .collect()
        },
    )
}
