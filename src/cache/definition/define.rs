//! Creates, alters, clears and drops the relation of a cache.
//!
//! Each change is ordinary DDL: it runs with the privileges and in the transaction of the caller, and fires event
//! triggers. A table is a cache because of pgcache's triggers on it; a memory cache is a view over
//! `pgcache.memory_entries`.

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{OIDOID, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::{declare, default};
use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::expiry::upkeep;
use crate::cache::memory::handle::TierHandle;
use crate::cache::memory::tier_ops as memory_cache;
use crate::cache::model::ddl;
use crate::cache::model::settings::Settings;
use crate::cache::open;
use crate::cache::table::remove_many;
use crate::cache::tier::slot_shares;
use crate::error::Error;
use crate::pg::catalog::name::{self, NewRelation};
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::catalog::{database, own, relation};
use crate::pg::encoding::{decode, printable};
use crate::pg::session::{advisory, random};
use crate::pg::shmem::tier::tier;
use crate::pg::spi::plan::query_once;
use crate::pg::table::shape;
use crate::pg::value::datum::ValueType;
use crate::pg::value::typed::Typed;

/// Returns the storage with this name. Raises an error for an unknown name. Raises 55000 for memory if the server has
/// no shared memory for it, or if the installed version of the extension has no memory caches.
pub fn parse_storage(word: &str) -> Result<Storage, Error> {
    match word {
        "unlogged" => Ok(Storage::Unlogged),
        "logged" => Ok(Storage::Logged),
        // The extension creates its memory cache even without the hot tier. Otherwise a dump with grants on that cache
        // could not be restored.
        "memory" if tier().is_none() && !database::extension_is_being_made() => Err(Error::NoTier),
        "memory" if !database::has_extension() => Err(Error::OlderExtension),
        "memory" => Ok(Storage::Memory),
        _ => Err(Error::UnknownStorage(word.into())),
    }
}

/// Returns the name of a storage.
pub fn storage_word(storage: Storage) -> &'static str {
    match storage {
        Storage::Unlogged => "unlogged",
        Storage::Logged => "logged",
        Storage::Memory => "memory",
    }
}

/// The storage parameters of every cache table.
///
/// A fillfactor of 85 leaves room for a second version of a row on its page, so that overwrites stay HOT updates,
/// which touch no index. Vacuum starts at 2 % dead rows, because all rows of a cache die.
const STORAGE_PARAMETERS: &str = "fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, \
     autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2, \
     toast.autovacuum_vacuum_scale_factor = 0.02";

/// Creates the relation of a cache and returns its OID. Raises 53400 if a memory cache needs a slot and all slots are
/// taken.
pub fn create(
    new: &NewRelation,
    storage: Storage,
    value: ValueType,
    settings: Settings,
) -> Result<Oid, Error> {
    let settings = match storage {
        Storage::Memory => {
            let id = Some(random::number());
            let settings = Settings { id, ..settings };
            put_view(&new.qualified, value, settings);
            settings
        }
        _ => {
            create_table(&new.qualified, storage, value, settings);
            settings
        }
    };
    let relation = name::lookup(new).unwrap_or(pgrx::pg_sys::InvalidOid);
    if storage == Storage::Memory {
        put_view(&new.qualified, value, made_as(relation, settings));
        take_slot(relation)?;
    }
    if storage == Storage::Logged {
        let hint = "Create the cache on each subscriber before it gets entries, or use storage unlogged, which is not published.";
        notice_publication(relation, "cache_create", hint);
    }
    Ok(relation)
}

/// Raises a notice if a publication includes the cache. The hint says what to do on the subscribers, where replication
/// stops if the table, or one of its columns, is missing.
pub(super) fn notice_publication(cache: Oid, function: &'static str, hint: &'static str) {
    let first = query_once(
        FIRST_PUBLICATION,
        &[OIDOID],
        &[Typed::oid(cache)],
        |output| Some(decode(output.text(0, 0)?.bytes())),
    );
    let Some(publication) = first else {
        return;
    };
    let cache = relation::display_name(cache);
    let message = format!("publication \"{publication}\" includes cache \"{cache}\"");
    let code = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
    ErrorReport::new(code, printable(message), function)
        .set_hint(hint)
        .report(PgLogLevel::NOTICE);
}

/// Selects the first publication, in order of name, that includes table $1. In a publication of all tables,
/// pg_publication_rel lists the exceptions.
const FIRST_PUBLICATION: &CStr = c"SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication AS p \
    WHERE p.puballtables OPERATOR(pg_catalog.<>) EXISTS (SELECT FROM pg_catalog.pg_publication_rel AS r \
        WHERE r.prpubid OPERATOR(pg_catalog.=) p.oid AND r.prrelid OPERATOR(pg_catalog.=) $1) \
    OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS n, pg_catalog.pg_class AS c \
        WHERE n.pnpubid OPERATOR(pg_catalog.=) p.oid AND n.pnnspid OPERATOR(pg_catalog.=) c.relnamespace \
        AND c.oid OPERATOR(pg_catalog.=) $1) \
    ORDER BY p.pubname LIMIT 1";

/// Takes a slot when a memory cache is created. Otherwise the first write could fail because all slots are taken. The
/// extension's own memory cache, which exists in every database, takes its slot at its first use.
fn take_slot(relation: Oid) -> Result<(), Error> {
    if let Some(tier) = tier().filter(|_| !database::extension_is_being_made()) {
        TierHandle::in_tier(&*registry::find(relation)?, tier)?;
    }
    Ok(())
}

/// Adds the OID of a memory cache's view to its settings. The OID is known only after CREATE VIEW.
fn made_as(relation: Oid, settings: Settings) -> Settings {
    let oid = Some(relation.to_u32());
    Settings { oid, ..settings }
}

/// Creates or replaces the view of a memory cache. The settings are the argument of the function that the view calls.
fn put_view(view: &CStr, value: ValueType, settings: Settings) {
    let settings = name::quote_literal(&settings.to_arguments().join(" "));
    ddl::run(&[
        b"CREATE OR REPLACE VIEW ",
        view.to_bytes(),
        format!(
            " AS SELECT e.key, e.value, e.expires_at FROM pgcache.memory_entries({settings}) \
             AS e (key pg_catalog.text COLLATE pg_catalog.\"C\", value {}, \
             expires_at pg_catalog.timestamptz)",
            value.sql()
        )
        .as_bytes(),
    ]);
}

/// Creates the table of a cache and its triggers.
fn create_table(table: &CStr, storage: Storage, value: ValueType, settings: Settings) {
    let unlogged = match storage {
        Storage::Unlogged => "UNLOGGED ",
        _ => "",
    };
    ddl::run(&[
        format!("CREATE {unlogged}TABLE ").as_bytes(),
        table.to_bytes(),
        format!(
            " (key pg_catalog.text COLLATE pg_catalog.\"C\" PRIMARY KEY, value {}, \
             expires_at pg_catalog.timestamptz{}) WITH ({STORAGE_PARAMETERS})",
            value.sql(),
            settings.ttl.map_or(String::new(), |ttl| format!(
                " DEFAULT {}",
                default::of_own(&ttl)
            ))
        )
        .as_bytes(),
    ]);
    put_triggers(table, settings);
}

/// Returns the cache with this name, or raises 42809 if a relation with the name is not a cache. Waits for a session
/// that is creating a cache with the name. Returns None if no relation has the name; the transaction then keeps the
/// lock on the name.
pub fn existing(new: &NewRelation) -> Result<Option<Oid>, Error> {
    advisory::name(new.schema, new.name.as_bytes());
    let Some(relation) = name::lookup(new) else {
        return Ok(None);
    };
    advisory::leave_name(new.schema, new.name.as_bytes());
    // The relation may belong to any role. A caller without SELECT on the relation must not lock it or wait for its
    // lock.
    if privilege::has(relation, Privileges::SELECT) {
        open::lock_to_read(relation, Privileges::SELECT).map_err(|error| match error {
            Error::NotACache(name) => Error::NameTaken(name),
            other => other,
        })?;
    } else if !shape::is_marked_as_cache(relation) {
        return Err(Error::NameTaken(relation::display_name(relation)));
    }
    Ok(Some(relation))
}

/// Replaces the settings of a cache that the caller owns.
pub fn alter(cache: &Cache, settings: Settings) {
    match cache.storage {
        Storage::Memory => put_view(
            cache.qualified_name(),
            cache.value_type,
            made_as(cache.relation, settings),
        ),
        _ => {
            put_row_trigger(cache.qualified_name(), settings);
            upkeep::look_again(cache.relation);
        }
    }
    if settings.reserve != cache.settings.reserve {
        put_reserve(cache, settings.reserve.unwrap_or(0));
    }
}

/// Raises 42501 if the caller may not raise a reserve. Raises 53400 if the other reserves leave too little memory. The
/// owner of the cache may always reduce the reserve or remove it.
pub fn check_reserve(cache: &Cache, settings: &Settings) -> Result<(), Error> {
    if settings.reserve <= cache.settings.reserve {
        return Ok(());
    }
    if !privilege::may_reserve() {
        return Err(Error::MayNotReserve);
    }
    slot_shares::check_reserve(cache.id, settings.reserve, registry::settings_of)
}

/// Writes the reserve as the argument of a trigger that does nothing. Only a superuser may execute the trigger's
/// function, so only a superuser can create the trigger. An owner cannot take memory from other caches by editing the
/// definition of a cache. Because the reserve is in a trigger, DROP removes it with the relation, and a rename and a
/// dump keep it.
fn put_reserve(cache: &Cache, bytes: i64) {
    let event: &[u8] = match cache.storage {
        Storage::Memory => b" AFTER DELETE ON ",
        _ => b" AFTER TRUNCATE ON ",
    };
    let _owner = AsOwner::of_function(own::RESERVE.oid(), cache.relation);
    ddl::run(&[
        b"CREATE OR REPLACE TRIGGER pgcache_reserve",
        event,
        cache.qualified_name().to_bytes(),
        format!(" FOR EACH STATEMENT EXECUTE FUNCTION pgcache.reserve('{bytes}')").as_bytes(),
    ]);
}

pub fn drop(cache: Rc<Cache>) {
    let kind: &[u8] = match cache.storage {
        Storage::Memory => b"DROP VIEW ",
        _ => b"DROP TABLE ",
    };
    declare::release(cache.relation);
    ddl::run(&[kind, cache.qualified_name().to_bytes()]);
}

pub fn clear(cache: &Cache) -> Result<(), Error> {
    if cache.storage == Storage::Memory {
        return memory_cache::clear(cache);
    }
    remove_many::truncate(cache);
    Ok(())
}

/// Creates the triggers that make a table a cache.
pub fn put_triggers(table: &CStr, settings: Settings) {
    put_row_trigger(table, settings);
    ddl::run(&[
        b"CREATE TRIGGER pgcache_record_truncate BEFORE TRUNCATE ON ",
        table.to_bytes(),
        b" FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate()",
    ]);
    ddl::enable_always(table, "pgcache_record_truncate");
}

/// Creates or replaces the row trigger, which carries the settings. Replacing the trigger keeps the table and its
/// privileges.
fn put_row_trigger(table: &CStr, settings: Settings) {
    let arguments: Vec<String> = settings
        .to_arguments()
        .iter()
        .map(|argument| name::quote_literal(argument))
        .collect();
    ddl::run(&[
        b"CREATE OR REPLACE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON ",
        table.to_bytes(),
        format!(
            " FOR EACH ROW EXECUTE FUNCTION pgcache.record({})",
            arguments.join(", ")
        )
        .as_bytes(),
    ]);
    ddl::enable_always(table, "pgcache_record");
}

/// Returns whether this is the cache that calls use when they name no cache.
pub fn is_main(cache: &Cache) -> bool {
    cache.qualified_name() == c"pgcache.main"
}
