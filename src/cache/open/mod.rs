//! Opens a cache for a call: checks privileges, takes the lock, and checks the privileges again, because the previous
//! holder of the lock may have revoked them. A role without privileges is refused before it waits for a lock.
//!
//! Before a call reads a cache, it removes the entries that depend on rows that this transaction has changed.

pub mod again;
pub mod removal;

use std::rc::Rc;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::Oid;

use super::catalog::reading::Reading;
use super::catalog::registry::{Cache, Storage, find, remembered};
use crate::error::Error;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{hint, lock, transaction};
use crate::pg::table::shape;

/// Raises 42501 unless the current user has these privileges on the relation. If the relation is a cache, a hint
/// contains the GRANT.
pub fn require(relation: Oid, needs: Privileges) {
    if fault::on(Fault::PrivilegeNotChecked) {
        return;
    }
    privilege::require(relation, needs, shape::is_marked_as_cache);
}

/// Checks the privileges again, after the lock is granted.
fn require_again(relation: Oid, needs: Privileges) {
    if !fault::on(Fault::PrivilegeNotCheckedAgain) {
        require(relation, needs);
    }
}

/// Opens a cache for reading. Raises 42501 without the privileges, before it waits for a lock.
pub fn to_read(cache: Option<Oid>, needs: Privileges) -> Result<Reading, Error> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    require(relation, needs);
    lock_to_read(relation, needs)
}

/// Opens a cache for reading, for a caller that has checked the privileges. Checks them again under the lock, because
/// the previous holder of the lock may have revoked them.
pub fn lock_to_read(relation: Oid, needs: Privileges) -> Result<Reading, Error> {
    removal::settle();
    let _lock = lock::Shared::on(relation);
    require_again(relation, needs);
    Ok(Reading {
        cache: find(relation)?,
        _lock,
    })
}

/// Opens a cache for writing, and keeps the lock on its table until the transaction ends. `function` is the name that
/// the error for a read-only transaction contains. Such a transaction can write only memory caches.
pub fn to_write(
    cache: Option<Oid>,
    needs: Privileges,
    function: &std::ffi::CStr,
) -> Result<Rc<Cache>, Error> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    require(relation, needs);
    if let Some(cache) = memory_cache(relation)? {
        return Ok(cache);
    }
    hint::on(
        PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION,
        c"Write in a read-write transaction on the primary, or use a memory cache, which accepts writes here.",
        || transaction::require_writable(function),
    );
    removal::settle();
    lock::relation(relation, lock::Mode::Write);
    require_again(relation, needs);
    let cache = find(relation)?;
    if needs.has(Privileges::INSERT) {
        cache.check_writable()?;
    }
    Ok(cache)
}

/// Returns the cache if it is a memory cache, whose writers need no lock. Returns None for a table cache. Keeps no
/// lock: under REPEATABLE READ a reader's lock lasts until the end of the transaction, and two callers that both hold
/// it would deadlock when they take the strongest lock.
fn memory_cache(relation: Oid) -> Result<Option<Rc<Cache>>, Error> {
    let cache = find(relation)?;
    Ok((cache.storage == Storage::Memory).then_some(cache))
}

/// Returns the cache as this session has loaded it. A caller that needs the current definition looks up the cache again
/// under a lock.
pub fn known(relation: Oid) -> Result<Rc<Cache>, Error> {
    match remembered(relation) {
        Some(cache) => Ok(cache),
        None => Ok(Rc::clone(
            &lock_to_read(relation, Privileges::SELECT)?.cache,
        )),
    }
}

/// Opens a cache to remove all of its entries. Takes the lock of TRUNCATE on a table.
pub fn to_clear(cache: Option<Oid>, function: &std::ffi::CStr) -> Result<Rc<Cache>, Error> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    require(relation, Privileges::TRUNCATE);
    match memory_cache(relation)? {
        Some(cache) => Ok(cache),
        None => to_define(cache, Privileges::TRUNCATE, lock::Mode::Remove, function),
    }
}

/// Opens a cache for a definition statement, and takes at once the lock that the statement itself takes: if two callers
/// took a weaker lock first, they could deadlock. Before that, looks up the cache without a lock, so that a relation
/// that is not a cache is never locked so strongly.
pub fn to_define(
    cache: Option<Oid>,
    needs: Privileges,
    mode: lock::Mode,
    function: &std::ffi::CStr,
) -> Result<Rc<Cache>, Error> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    require(relation, needs);
    transaction::require_writable(function);
    find(relation)?;
    lock::relation(relation, mode);
    require(relation, needs);
    find(relation)
}
