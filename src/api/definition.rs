//! Caches as such: create, alter, drop, and what the view `pgcache.caches` shows.

use std::rc::Rc;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::Answer;
use crate::cache::catalog::registry::{self, Cache, Outline};
use crate::cache::definition::define;
use crate::cache::model::settings::Settings;
use crate::cache::open;
use crate::error::Error;
use crate::pg::catalog::name::{self, NameChange, NewRelation};
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::catalog::relation;
use crate::pg::encoding;
use crate::pg::session::lock::Mode;
use crate::pg::session::transaction;
use crate::pg::table::shape;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::rows::OutRow;
use crate::pg::value::typed::Typed;

#[pg_extern]
#[allow(clippy::too_many_arguments)] // the signature that users call
fn cache_create(
    name: Option<Text>,
    ttl: Option<Interval>,
    storage: Option<Text>,
    value_type: Option<Oid>,
    max_entries: Option<i64>,
    grace: Option<Interval>,
    if_not_exists: Option<bool>,
) -> Answer<Oid> {
    let name = name.ok_or(Error::NullArgument("name"))?;
    let storage = storage.ok_or(Error::NullArgument("storage"))?;
    let storage = define::parse_storage(&storage.to_string_lossy())?;
    let value_type = value_type.ok_or(Error::NullArgument("value_type"))?;
    let value_type = ValueType::from_oid(value_type).ok_or(Error::UnknownValueType)?;
    let settings = Settings::default().changed(ttl, max_entries, grace)?;
    transaction::require_writable(c"cache_create()");
    let new = name::parse_new_relation(name);
    tell_change(&new);
    match define::existing(&new)? {
        None => Ok(define::create(&new, storage, value_type, settings)),
        Some(cache) if if_not_exists == Some(true) => {
            skip_existing(cache);
            Ok(cache)
        }
        Some(cache) => Err(Error::CacheExists(relation::display_name(cache)).into()),
    }
}

/// Says that the cache has another name than the one that was given. Names are no keys.
fn tell_change(new: &NewRelation) {
    let Some(change) = new.change else {
        return;
    };
    let name = encoding::decode(new.name.to_bytes());
    let (code, what, hint) = match change {
        NameChange::Folded => (
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            "folded to lower case",
            "Double quotes in the string keep capitals: '\"Name\"'.",
        ),
        NameChange::Truncated => (
            PgSqlErrorCode::ERRCODE_NAME_TOO_LONG,
            "truncated",
            "A name has at most 63 bytes.",
        ),
    };
    let message = format!("name of the cache is {what}: \"{name}\"");
    ErrorReport::new(code, encoding::printable(message), "cache_create")
        .set_hint(hint)
        .report(PgLogLevel::NOTICE);
}

fn skip_existing(cache: Oid) {
    ereport!(
        NOTICE,
        PgSqlErrorCode::ERRCODE_DUPLICATE_TABLE,
        encoding::printable(format!(
            "cache \"{}\" already exists, skipping",
            relation::display_name(cache)
        ))
    );
}

#[pg_extern]
fn cache_alter(
    cache: Option<Oid>,
    ttl: Option<Interval>,
    max_entries: Option<i64>,
    grace: Option<Interval>,
) -> Answer<()> {
    let cache = open_as_owner(cache, Mode::Define, c"cache_alter()")?;
    define::alter(&cache, cache.settings.changed(ttl, max_entries, grace)?);
    Ok(())
}

#[pg_extern]
fn cache_tune(
    cache: Option<Oid>,
    negative_ttl: Option<Interval>,
    ttl_jitter: Option<f64>,
    early_refresh: Option<f64>,
) -> Answer<()> {
    let cache = open_as_owner(cache, Mode::Define, c"cache_tune()")?;
    let settings = cache
        .settings
        .refreshed(negative_ttl, ttl_jitter, early_refresh)?;
    define::alter(&cache, settings);
    Ok(())
}

#[pg_extern]
fn cache_drop(cache: Option<Oid>) -> Answer<()> {
    define::drop(open_as_owner(cache, Mode::Remove, c"cache_drop()")?);
    Ok(())
}

/// One row of `pgcache.caches`: storage, value_type, ttl, max_entries, grace. NULLs for a relation
/// that no longer works as a cache, so that the view itself never fails.
#[pg_extern]
fn cache_settings(cache: Option<Oid>) -> Answer<OutRow<5>> {
    let Some(cache) = outline(cache)? else {
        return Ok(OutRow([Typed::NULL; 5]));
    };
    let Settings {
        ttl,
        max_entries,
        grace,
        ..
    } = cache.settings;
    Ok(OutRow([
        Text::new(define::storage_word(cache.storage).as_bytes()).into(),
        Typed::oid(cache.value_type.oid()),
        Typed::of(ttl),
        Typed::of(max_entries),
        Typed::of(grace),
    ]))
}

/// What `cache_tune` has set: negative_ttl, ttl_jitter, early_refresh.
#[pg_extern]
fn refresh_settings(cache: Option<Oid>) -> Answer<OutRow<3>> {
    let Some(cache) = outline(cache)? else {
        return Ok(OutRow([Typed::NULL; 3]));
    };
    let settings = cache.settings;
    Ok(OutRow([
        Typed::of(settings.negative_ttl),
        Typed::of(settings.ttl_jitter),
        Typed::of(settings.early_refresh),
    ]))
}

/// Who asks for all caches waits for none of them.
fn outline(cache: Option<Oid>) -> Answer<Option<Outline>> {
    let Some(relation) = cache else {
        return Ok(None);
    };
    privilege::require(relation, Privileges::SELECT, shape::is_marked_as_cache);
    Ok(registry::outline(relation))
}

/// Opens a cache that the caller owns, for a definition.
pub fn open_as_owner(
    cache: Option<Oid>,
    mode: Mode,
    function: &std::ffi::CStr,
) -> Answer<Rc<Cache>> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    open::require(relation, Privileges::NONE);
    privilege::require_owner(relation);
    let cache = open::to_define(cache, Privileges::NONE, mode, function)?;
    privilege::require_owner(relation); // asked again: the lock may have been waited for
    Ok(cache)
}
