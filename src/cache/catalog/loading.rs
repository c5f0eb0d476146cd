//! Builds a [`Cache`] from the catalogs, or from a definition that another process of the server has read.

use pgrx::pg_sys::Oid;

use super::cache::{Cache, Kept, Storage};
use crate::cache::catalog::shard_metadata;
use crate::cache::model::settings::Settings;
use crate::error::Error;
use crate::pg::catalog::columns::Columns;
use crate::pg::catalog::invalidation::Watch;
use crate::pg::catalog::{distributed, inheritance, relation};
use crate::pg::session::transaction::Snapshot;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::table::shape::{self, Shape};
use crate::pg::value::datum::ValueType;
use crate::pg::value::key_type::KeyType;

/// Loads the cache of a locked relation from the catalogs.
pub(super) fn load(relation: Oid) -> Result<Cache, Error> {
    let watch = Watch::over(relation);
    let shape = shape::shape(relation).ok_or(Error::NoSuchRelation(relation.to_u32()))?;
    let name = || relation::display_name(relation);
    let Some(arguments) = &shape.settings else {
        return Err(Error::NotACache(name()));
    };
    if shape.view && shape.temporary {
        return Err(Error::TemporaryView(name()));
    }
    if !shape.view && distributed::is_distributed(relation) {
        let _snapshot = Snapshot::enter(); // once a commit has begun, no snapshot is active
        return Err(match shard_metadata::of(relation) {
            Some(_) => Error::OverShards(name()),
            None => Error::Distributed(name()),
        });
    }
    of_shape(relation, &shape, arguments, watch)
}

/// Loads the cache of a locked relation for a change of its definition. Unlike `load`, this function accepts a
/// distributed cache and a temporary view.
pub(super) fn load_definition(relation: Oid) -> Result<Cache, Error> {
    let watch = Watch::over(relation);
    let shape = shape::shape(relation).ok_or(Error::NoSuchRelation(relation.to_u32()))?;
    let Some(arguments) = &shape.settings else {
        return Err(Error::NotACache(relation::display_name(relation)));
    };
    of_shape(relation, &shape, arguments, watch)
}

fn of_shape(
    relation: Oid,
    shape: &Shape,
    arguments: &[Vec<u8>],
    watch: Watch,
) -> Result<Cache, Error> {
    let name = || relation::display_name(relation);
    let broken = |why: String| Error::BrokenCache(name(), why);
    let settings = Settings::from_arguments(arguments)
        .map_err(broken)?
        .with_reserve(shape.reserve.as_deref());
    let (value_type, columns) = check_columns(shape).map_err(broken)?;
    Ok(Cache {
        relation,
        id: CacheId::of(relation),
        settings,
        value_type,
        storage: storage(
            shape.view,
            shape.unlogged || has_unlogged_partition(shape, relation),
        ),
        row_security: shape.row_security,
        updates_alone: shape.updates_alone,
        may_be_copied: shape.triggers_always && !shape.temporary && !shape.partitioned,
        partitioned: shape.partitioned,
        temporary: shape.temporary,
        key_type: columns.as_ref().map_or(KeyType::Text, |c| c.key_type),
        columns,
        target: shape.target.clone(),
        own_relations: shape.own_relations.clone(),
        qualified: shape.qualified.clone(),
        kept: Kept::default(),
        watch,
    })
}

/// Loads a locked partition of a cache. Returns None for any other table.
pub(super) fn load_partition(table: Oid) -> Option<Cache> {
    let watch = Watch::over(table);
    let partition = shape::partition(table)?;
    let persistence = relation::persistence(table);
    Some(Cache {
        relation: table,
        id: CacheId::of(partition.whole),
        settings: Settings::from_arguments(&partition.settings).ok()?,
        value_type: partition.columns.value_type,
        storage: storage(
            false,
            persistence == Some(pgrx::pg_sys::RELPERSISTENCE_UNLOGGED),
        ),
        row_security: partition.row_security,
        updates_alone: partition.updates_alone,
        may_be_copied: false,
        partitioned: false,
        temporary: persistence == Some(pgrx::pg_sys::RELPERSISTENCE_TEMP),
        key_type: partition.columns.key_type,
        columns: Some(partition.columns),
        target: partition.target,
        own_relations: Vec::new(),
        qualified: partition.qualified,
        kept: Kept::default(),
        watch,
    })
}

/// Builds a cache from a definition that another process has read. The cache lacks the properties that only the
/// catalogs contain.
pub(super) fn adopted(
    relation: Oid,
    settings: Settings,
    value_type: ValueType,
    storage: Storage,
) -> Cache {
    Cache {
        relation,
        id: CacheId::of(relation),
        settings,
        value_type,
        storage,
        row_security: false,
        updates_alone: false,
        may_be_copied: false,
        partitioned: false,
        temporary: false,
        columns: None,
        key_type: KeyType::Text,
        target: None,
        own_relations: Vec::new(),
        qualified: Default::default(),
        kept: Kept::default(),
        watch: Watch::over(relation),
    }
}

/// Returns whether a partitioned cache has an unlogged partition. A crash empties the partition, and a standby has
/// none of its rows.
fn has_unlogged_partition(shape: &Shape, relation: Oid) -> bool {
    let is_unlogged =
        |&leaf: &Oid| relation::persistence(leaf) == Some(pgrx::pg_sys::RELPERSISTENCE_UNLOGGED);
    shape.partitioned && inheritance::leaves(relation).iter().any(is_unlogged)
}

pub(super) fn storage(view: bool, unlogged: bool) -> Storage {
    match (view, unlogged) {
        (true, _) => Storage::Memory,
        (_, true) => Storage::Unlogged,
        (_, false) => Storage::Logged,
    }
}

/// Returns the type of the values and the columns of the table, or the reason why the relation cannot be a
/// cache.
fn check_columns(shape: &Shape) -> Result<(ValueType, Option<Columns>), String> {
    if shape.view {
        let value_type = shape
            .view_value
            .filter(|_| shape.view_has_deadline)
            .ok_or("The view is not the view of a memory cache.")?;
        return Ok((value_type, None));
    }
    if !shape.ordinary_table && !shape.partitioned {
        return Err("The relation is not an ordinary table.".into());
    }
    match &shape.columns {
        Ok(columns) => Ok((columns.value_type, Some(columns.clone()))),
        Err(misfit) => Err(misfit.why.clone()),
    }
}
