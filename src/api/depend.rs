//! SQL functions for the dependencies of a cache on tables (`cache_depend`, `cache_undepend`), and for notifications
//! about changes of its entries (`cache_watch`, `cache_unwatch`).

use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::definition::open_as_owner;
use super::{Answer, TO_DELETE};
use crate::cache::catalog::registry::{self, Storage};
use crate::cache::commit::{notify, setup};
use crate::cache::definition::{declare, define};
use crate::cache::model::settings::Settings;
use crate::cache::open;
use crate::error::Error;
use crate::pg::catalog::{distributed, inheritance, privilege, relation};
use crate::pg::session::lock::{self, Mode};
use crate::pg::session::{random, transaction};
use crate::pg::value::datum::Text;

#[pg_extern]
fn cache_depend(
    source: Option<Oid>,
    key_expression: Option<Text>,
    cache: Option<Oid>,
) -> Answer<()> {
    let source = open_source(source, c"cache_depend()")?;
    let key_expression = key_expression.ok_or(Error::NullArgument("key_expression"))?;
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    open::require(relation, TO_DELETE);
    lock::relation(relation, Mode::Read);
    open::require(relation, TO_DELETE); // again, because the call may have waited for the lock
    let cache = registry::find(relation)?;
    if distributed::is_distributed(source) {
        // The rows change on shards, which lack the triggers of the source.
        return Err(Error::Distributed(relation::display_name(source)).into());
    }
    if define::is_main(&cache) {
        return Err(Error::DependencyOfMain.into());
    }
    if privilege::row_security_applies(relation) {
        return Err(Error::DependencyUnderPolicies.into());
    }
    if cache.storage == Storage::Logged
        && let Some(unlogged) = inheritance::unlogged(source)
    {
        return Err(Error::UnloggedSource(relation::display_name(unlogged)).into());
    }
    declare::declare(source, key_expression, &cache)?;
    setup::report_dependency_gaps();
    Ok(())
}

#[pg_extern]
fn cache_undepend(source: Option<Oid>, cache: Option<Oid>) -> Answer<()> {
    let source = open_source(source, c"cache_undepend()")?;
    let cache = cache.ok_or(Error::NullArgument("cache"))?;
    if declare::remove_declared(source, cache) == 0 {
        return Err(Error::NoDependency(relation::display_name(source)).into());
    }
    Ok(())
}

/// Locks and returns the source of a dependency, which must be a table that the caller owns. Only its owner may create
/// dependency triggers on it.
fn open_source(source: Option<Oid>, function: &std::ffi::CStr) -> Answer<Oid> {
    let source = source.ok_or(Error::NullArgument("source"))?;
    transaction::require_writable(function);
    privilege::require_owner(source);
    if !relation::is_table(source) {
        return Err(Error::SourceNotATable(relation::display_name(source)).into());
    }
    lock::relation(source, Mode::Define);
    privilege::require_owner(source); // again, because the call may have waited for the lock
    Ok(source)
}

#[pg_extern]
fn cache_watch(cache: Option<Oid>) -> Answer<Text> {
    let cache = open_as_owner(cache, Mode::Define, c"cache_watch()")?;
    let id = cache.settings.watch.unwrap_or_else(random::number);
    if cache.settings.watch.is_none() {
        let watch = Some(id);
        define::alter(
            &cache,
            Settings {
                watch,
                ..cache.settings
            },
        );
    }
    Ok(Text::new(notify::channel(id).as_bytes()))
}

#[pg_extern]
fn cache_unwatch(cache: Option<Oid>) -> Answer<()> {
    let cache = open_as_owner(cache, Mode::Define, c"cache_unwatch()")?;
    let watch = None;
    define::alter(
        &cache,
        Settings {
            watch,
            ..cache.settings
        },
    );
    Ok(())
}
