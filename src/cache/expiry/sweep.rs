//! Sweeps: removing expired rows, and rows beyond `max_entries`. Reads never depend on it: it only
//! gives space back.
//!
//! One sweeper at a time works on a cache, whoever started it. A sweep waits for nobody: rows that
//! somebody has locked stay for the next one, and so does a cache that is locked against writers.

use pgrx::pg_sys::Oid;

use super::pass::Pass;
use super::trim::{Spare, Trim};
use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::memory::ops as memory_cache;
use crate::cache::table::ops::as_owner_unless;
use crate::error::Error;
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::catalog::{database, relation};
use crate::pg::memory;
use crate::pg::session::{self, advisory, lock, subtransaction};
use crate::pg::shmem::worker_state::{Record, board};

/// What the statements of a sweep need.
const TO_SWEEP: Privileges = Privileges::SELECT
    .and(Privileges::UPDATE)
    .and(Privileges::DELETE);

/// What the last sweep of a cache wrote down, where there is shared memory.
fn record(cache: &Cache) -> Option<&'static Record> {
    let board = board().filter(|_| !cache.temporary)?;
    Some(board.record(cache.owner))
}

/// Removes at most `max_rows` rows whose deadline, and grace, have passed; says how many. Then rows
/// that are more than `max_entries`, however many.
pub fn expire(cache: &Cache, max_rows: i64) -> Result<i64, Error> {
    if cache.storage == Storage::Memory {
        return memory_cache::expire(cache, max_rows);
    }
    let _owner = as_owner_unless(cache, Privileges::SELECT.and(Privileges::UPDATE));
    // Two may sweep at once if they insist: none waits for the other, and each row goes once.
    let alone = advisory::try_sweep(cache.relation);
    let record = record(cache);
    let mut pass = Pass::begin(cache, record);
    while !pass.is_complete() && pass.removed < max_rows {
        pass.step(cache, max_rows - pass.removed);
        session::check_for_interrupts();
    }
    if let Some(record) = record.filter(|_| alone) {
        pass.note(record);
    }
    let removed = pass.removed;
    if alone && cache.settings.max_entries.is_some() {
        trim(cache, pass);
    }
    Ok(removed)
}

/// Brings a cache down to `max_entries`, after a pass that may have ended early.
fn trim(cache: &Cache, mut pass: Pass) {
    while !pass.is_complete() {
        pass.count_on(cache);
        session::check_for_interrupts();
    }
    let expired = (pass.found - pass.removed).min(excess(cache, &pass));
    if expired > 0 {
        let mut first = Pass::begin(cache, None);
        while !first.is_complete() && first.removed < expired {
            first.step(cache, expired - first.removed);
        }
        pass.removed += first.removed;
    }
    let mut excess = excess(cache, &pass);
    for spare in [Spare::Used, Spare::None] {
        let mut trim = Trim::begin(cache, excess);
        while !trim.is_complete() {
            trim.step(cache, spare, i64::MAX);
            session::check_for_interrupts();
        }
        excess = trim.excess();
    }
}

/// Rows that are too many after a complete pass.
pub fn excess(cache: &Cache, pass: &Pass) -> i64 {
    let most = cache.settings.max_entries.unwrap_or(i64::MAX);
    pass.rows().saturating_sub(most).max(0)
}

/// Rows beyond the limit that a sweep may leave. After one that had more to trim, as many may have come
/// while it did.
pub fn tolerance(cache: &Cache) -> i64 {
    cache.settings.max_entries.unwrap_or(i64::MAX) / 100 + 1000
}

/// The same over all caches of the database that the caller may delete from; one that is locked
/// against writers or no longer works as a cache is passed over, and so is, with a warning, one whose
/// own triggers raise an error. Each has its share of the rows, and what some do not need goes to the others.
pub fn expire_all(max_rows: i64) -> Result<i64, Error> {
    if !database::has_extension() {
        return Err(Error::OlderExtension);
    }
    let mut removed = 0;
    let mut caches = registry::all_caches();
    while removed < max_rows && !caches.is_empty() {
        let mut unfinished = Vec::new();
        for (at, &relation) in caches.iter().enumerate() {
            let left = max_rows - removed;
            if left <= 0 {
                break;
            }
            let share = (left / (caches.len() - at) as i64).max(1);
            let swept = expire_share(relation, share)?;
            removed += swept;
            if swept >= share {
                memory::push(&mut unfinished, relation);
            }
        }
        caches = unfinished;
    }
    Ok(removed)
}

fn expire_share(relation: Oid, share: i64) -> Result<i64, Error> {
    privilege::hear();
    if !privilege::has(relation, Privileges::DELETE) {
        return Ok(0);
    }
    match subtransaction::attempt(|| expire_one(relation, share)) {
        Ok(swept) => swept,
        Err(failure) if failure.cancelled => failure.raise(),
        Err(failure) => {
            failure.warn(could_not_sweep(&relation::display_name(relation)));
            Ok(0)
        }
    }
}

/// What is said of a cache whose sweep fails.
pub fn could_not_sweep(name: &str) -> String {
    format!("could not remove expired entries of cache \"{name}\"")
}

fn expire_one(relation: Oid, max_rows: i64) -> Result<i64, Error> {
    match open(relation) {
        Some(open) => expire(&open.cache, max_rows),
        None => Ok(0),
    }
}

/// A cache that is open to be swept by somebody who has not named it.
pub struct Open {
    pub cache: std::rc::Rc<Cache>,
    _owner: Option<AsOwner>,
}

/// Opens a cache for a sweep over all of them; None when it is locked, no longer works as a cache, or
/// may not be swept by who would do it.
///
/// Each is swept as its owner, as autovacuum would: the triggers on it are the owner's code, and
/// whoever sweeps them all has not chosen to run it. Where row-level security applies to the caller
/// his own policies count, so he sweeps as himself.
pub fn open(relation: Oid) -> Option<Open> {
    if relation::is_temporary_elsewhere(relation)
        || !lock::try_relation(relation, lock::Mode::Write)
    {
        return None;
    }
    let cache = registry::find(relation).ok()?;
    let owner =
        (!privilege::row_security_applies(relation)).then(|| AsOwner::to_maintain(relation));
    privilege::has(relation, TO_SWEEP).then_some(Open {
        cache,
        _owner: owner,
    })
}
