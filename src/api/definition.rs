//! SQL functions that define caches: create, alter, tune, drop, attach and detach, and the functions behind the view
//! `pgcache.caches`.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::Answer;
use crate::cache::catalog::registry::{self, Cache, Outline, Storage};
use crate::cache::definition::attach::{self, Names};
use crate::cache::definition::{default, define, routed};
use crate::cache::distribute::distributed_ddl as distribute;
use crate::cache::model::settings::Settings;
use crate::cache::open;
use crate::cache::tier::slots;
use crate::error::Error;
use crate::pg::catalog::name::{self, NameChange, NewRelation};
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::catalog::relation;
use crate::pg::encoding;
use crate::pg::hooks::expired_rows;
use crate::pg::session::lock::{self, Mode};
use crate::pg::session::transaction;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::tier;
use crate::pg::table::shape;
use crate::pg::value::datum::{Name, Text, ValueType};
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
    notice_change(&new);
    match define::existing(&new)? {
        None => Ok(define::create(&new, storage, value_type, settings)?),
        Some(cache) if if_not_exists == Some(true) => {
            skip_existing(cache);
            Ok(cache)
        }
        Some(cache) => Err(Error::CacheExists(relation::display_name(cache)).into()),
    }
}

/// Raises a notice if Postgres has folded or truncated the name of the cache, so that it differs from the argument. A
/// name is not a key, so the message may contain it.
fn notice_change(new: &NewRelation) {
    let Some(change) = new.change else {
        return;
    };
    let name = encoding::decode(new.name.to_bytes());
    let (code, what, hint) = match change {
        NameChange::Folded => (
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            "folded to lower case",
            "Use double quotes inside the string to keep capitals: '\"Name\"'.",
        ),
        NameChange::Truncated => (
            PgSqlErrorCode::ERRCODE_NAME_TOO_LONG,
            "truncated",
            "A name can have at most 63 bytes.",
        ),
    };
    let message = format!("cache name is {what}: \"{name}\"");
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
    if distribute::is_spread(cache) {
        let change = |settings: Settings, most| settings.changed(ttl, most, grace);
        return Ok(distribute::alter(
            cache,
            c"cache_alter()",
            ttl,
            max_entries,
            change,
        )?);
    }
    // Changing a column's DEFAULT needs the strongest lock. Take it at once, because two sessions that both start with
    // a weaker lock would wait for each other.
    let mode = match ttl {
        Some(_) => Mode::Remove,
        None => Mode::Define,
    };
    let cache = open_as_owner(cache, mode, c"cache_alter()")?;
    let settings = cache.settings.changed(ttl, max_entries, grace)?;
    if ttl.is_some() && settings.ttl.is_some() && cache.is_attached() {
        // A table that functions cannot write to gets no default ttl.
        cache.check_writable().map_err(|_| Error::GeneratedTtl)?;
    }
    define::alter(&cache, settings);
    if ttl.is_some() {
        default::put(&cache, settings.ttl);
    }
    Ok(())
}

#[pg_extern]
#[allow(clippy::too_many_arguments)] // the signature that users call
fn cache_tune_all(
    cache: Option<Oid>,
    negative_ttl: Option<Interval>,
    ttl_jitter: Option<f64>,
    early_refresh: Option<f64>,
    max_bytes: Option<i64>,
    reserve: Option<i64>,
    touch_after: Option<f64>,
) -> Answer<()> {
    tune(cache, |settings| {
        settings
            .refreshed(negative_ttl, ttl_jitter, early_refresh, touch_after)?
            .shared(max_bytes, reserve)
    })
}

/// Implements `cache_tune` for databases whose extension is older than 0.5.0.
#[pg_extern]
fn cache_tune(
    cache: Option<Oid>,
    negative_ttl: Option<Interval>,
    ttl_jitter: Option<f64>,
    early_refresh: Option<f64>,
) -> Answer<()> {
    tune(cache, |settings| {
        settings.refreshed(negative_ttl, ttl_jitter, early_refresh, None)
    })
}

fn tune(cache: Option<Oid>, change: impl Fn(Settings) -> Result<Settings, Error>) -> Answer<()> {
    let function = c"cache_tune()";
    if distribute::is_spread(cache) {
        let change = |settings: Settings, _| {
            let changed = change(settings)?;
            let same =
                (changed.max_bytes, changed.reserve) == (settings.max_bytes, settings.reserve);
            match cache.filter(|_| !same) {
                Some(cache) => Err(Error::OverShards(relation::display_name(cache))),
                None => Ok(changed),
            }
        };
        return Ok(distribute::alter(cache, function, None, None, change)?);
    }
    let cache = open_as_owner(cache, Mode::Define, function)?;
    let settings = change(cache.settings)?;
    if settings.touch_after.is_some() && cache.storage == Storage::Memory {
        return Err(Error::TouchAfterInMemory.into());
    }
    define::check_reserve(&cache, &settings)?;
    define::alter(&cache, settings);
    Ok(())
}

#[pg_extern]
fn cache_drop(cache: Option<Oid>) -> Answer<()> {
    if distribute::is_spread(cache) {
        return Ok(distribute::drop(cache)?);
    }
    define::drop(open_as_owner(cache, Mode::Remove, c"cache_drop()")?);
    Ok(())
}

#[pg_extern]
#[allow(clippy::too_many_arguments)] // the signature that users call
fn cache_attach(
    tab: Option<Oid>,
    ttl: Option<Interval>,
    key_column: Option<Name>,
    value_column: Option<Name>,
    expires_column: Option<Name>,
    max_entries: Option<i64>,
    grace: Option<Interval>,
    expires_unit: Option<Text>,
) -> Answer<Oid> {
    let table = tab.ok_or(Error::NullArgument("tab"))?;
    let given = |name: Option<Name>, argument| {
        name.map(Name::into_inner)
            .ok_or(Error::NullArgument(argument))
    };
    let names = Names {
        key: given(key_column, "key_column")?,
        value: given(value_column, "value_column")?,
        deadline: given(expires_column, "expires_column")?,
        unit: expires_unit.map(Text::to_string_lossy),
    };
    let settings = Settings::default().changed(ttl, max_entries, grace)?;
    open::require(table, Privileges::NONE);
    privilege::require_owner(table);
    transaction::require_writable(c"cache_attach()");
    lock::relation(table, Mode::Remove);
    privilege::require_owner(table); // again, because the call may have waited for the lock
    attach::attach(table, &names, settings)?;
    Ok(table)
}

#[pg_extern]
fn cache_detach(cache: Option<Oid>) -> Answer<()> {
    let cache = open_as_owner(cache, Mode::Remove, c"cache_detach()")?;
    Ok(attach::detach(&cache)?)
}

/// Returns one row of `pgcache.caches`: storage, value_type, ttl, max_entries, grace. All are NULL for a relation that
/// no longer works as a cache, so that the view itself never fails.
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

/// Returns the settings of `cache_tune`: negative_ttl, ttl_jitter, early_refresh. All are NULL for a relation that no
/// longer works as a cache.
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

/// Returns the smallest share of the ttl by which a touch moves a deadline; NULL if each touch writes.
#[pg_extern]
fn touch_after(cache: Option<Oid>) -> Answer<Option<f64>> {
    Ok(outline(cache)?.and_then(|cache| cache.settings.touch_after))
}

/// Returns one row of `pgcache.shares`: max_bytes, reserve, reserve_held, hot_bytes.
#[pg_extern]
fn share(cache: Option<Oid>) -> Answer<OutRow<4>> {
    let Some((relation, outline)) = cache.zip(outline(cache)?) else {
        return Ok(OutRow([Typed::NULL; 4]));
    };
    let slot = tier().and_then(|tier| Some(tier.slot(slots::find(tier, CacheId::of(relation))?)));
    let reserved = outline.settings.reserve;
    let held = slot
        .map(|slot| slot.held() as i64)
        .filter(|_| reserved.is_some());
    Ok(OutRow([
        Typed::of(outline.settings.max_bytes),
        Typed::of(reserved),
        Typed::of(held),
        Typed::of(slot.map(|slot| slot.bytes.load(Relaxed))),
    ]))
}

/// Sets the DEFAULT of a cache's deadline column from the cache's ttl, and adds the trigger that the cache needs as a
/// partition of another table. The caller must own the cache. Skips a relation that does not work as a cache, because
/// the upgrade script calls this for all caches.
#[pg_extern]
fn put_default(cache: Option<Oid>) -> Answer<()> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    privilege::require_owner(relation);
    match open_as_owner(cache, Mode::Remove, c"pgcache.put_default()") {
        Ok(cache) => {
            default::put(&cache, cache.settings.ttl);
            routed::look_after(relation);
        }
        Err(_) => return Ok(()),
    }
    Ok(())
}

/// Returns whether expired rows of a cache are hidden from plain SQL, and the reason if they are not: hides_expired,
/// not_hidden_because. Both are NULL for a relation that no longer works as a cache.
#[pg_extern]
fn hiding(cache: Option<Oid>) -> Answer<OutRow<2>> {
    let Some(outline) = outline(cache)? else {
        return Ok(OutRow([Typed::NULL; 2]));
    };
    let why = match outline.storage {
        Storage::Memory => None,
        _ => cache.and_then(expired_rows::why_not),
    };
    Ok(OutRow([
        Typed::of(Some(why.is_none())),
        Typed::from(why.map(|why| Text::new(why.as_bytes()))),
    ]))
}

/// Reads the outline of a cache without waiting for a lock, so that a listing of all caches waits for no session.
fn outline(cache: Option<Oid>) -> Answer<Option<Outline>> {
    let Some(relation) = cache else {
        return Ok(None);
    };
    privilege::require(relation, Privileges::SELECT, shape::is_marked_as_cache);
    Ok(registry::outline(relation))
}

/// Opens a cache that the caller owns, for a change of its definition.
pub fn open_as_owner(
    cache: Option<Oid>,
    mode: Mode,
    function: &std::ffi::CStr,
) -> Answer<Rc<Cache>> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    open::require(relation, Privileges::NONE);
    privilege::require_owner(relation);
    let cache = open::to_define(cache, Privileges::NONE, mode, function)?;
    privilege::require_owner(relation); // again, because the call may have waited for the lock
    Ok(cache)
}
