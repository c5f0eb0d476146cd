//! What happens in Postgres that the layer above must know: rows and definitions that change, and
//! the end of transactions. This layer sees and reports; it decides nothing.

use std::cell::Cell;

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::board;

/// Receives the events. Set once, when the library is loaded.
#[derive(Clone, Copy)]
pub struct Observer {
    /// A row with this key came, went or changed; called after the change, before the statement ends.
    pub row: fn(relation: Oid, key: &[u8], change: Change),
    /// All rows of a cache may be other ones.
    pub truncated: fn(relation: Oid),
    /// A relation's definition or one of its triggers changes, or TRUNCATE removes its rows.
    pub altered: fn(relation: Oid),
    /// A row of a table changed on which an entry of a cache depends.
    pub depended_on: fn(cache: Oid, key: &[u8]),
    /// All rows of such a table may have gone.
    pub depended_on_all: fn(cache: Oid),
    pub created: fn(relation: Oid),
    pub dropped: fn(relation: Oid),
    pub database_dropped: fn(database: Oid),
    pub transaction: fn(Moment),
}

/// What became of a row, seen from its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is there, new or changed.
    Set,
    /// It is gone.
    Gone,
}

/// Moments in the life of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The last one at which it can fail; nobody else sees its writes yet.
    BeforeCommit,
    /// PREPARE TRANSACTION was called and can still be refused.
    BeforePrepare,
    /// Others see its writes; its locks are still held.
    Committed,
    Aborted,
    /// A savepoint was released: what happened under it counts for the one above.
    SubCommitted {
        level: i32,
    },
    /// A savepoint was rolled back.
    SubAborted {
        level: i32,
    },
}

thread_local! {
    static OBSERVER: Cell<Option<Observer>> = const { Cell::new(None) };
    /// The transaction has made some extension; sweepers look for ours when it has committed.
    static EXTENSION_MADE: Cell<bool> = const { Cell::new(false) };
}

static mut FORMER_HOOK: pg_sys::object_access_hook_type = None;

/// Registers the callbacks and the hook.
pub fn observe(observer: Observer) {
    OBSERVER.set(Some(observer));
    // SAFETY: called once while the library is loaded; the callbacks live as long as the process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(at_transaction_event), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(at_savepoint_event), std::ptr::null_mut());
        FORMER_HOOK = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(at_object_access);
    }
}

/// Tells the observer something, if there is one.
pub fn tell(event: impl FnOnce(&Observer)) {
    if let Some(observer) = OBSERVER.get() {
        event(&observer);
    }
}

/// How deep in savepoints the session is; 1 outside of any.
pub fn nesting_level() -> i32 {
    // Asked for every row, so without the guard that pgrx puts around calls that may raise.
    unsafe extern "C-unwind" {
        safe fn GetCurrentTransactionNestLevel() -> i32;
    }
    GetCurrentTransactionNestLevel()
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_event(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    let moment = match event {
        XACT_EVENT_PRE_COMMIT => Moment::BeforeCommit,
        XACT_EVENT_PRE_PREPARE => Moment::BeforePrepare,
        XACT_EVENT_COMMIT | XACT_EVENT_PREPARE => Moment::Committed,
        XACT_EVENT_ABORT => Moment::Aborted,
        _ => return,
    };
    if matches!(moment, Moment::Committed | Moment::Aborted)
        && EXTENSION_MADE.take()
        && moment == Moment::Committed
    {
        board::tell_news();
    }
    tell(|observer| (observer.transaction)(moment));
}

#[pg_guard]
unsafe extern "C-unwind" fn at_savepoint_event(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::*;
    let level = nesting_level();
    let moment = match event {
        SUBXACT_EVENT_COMMIT_SUB => Moment::SubCommitted { level },
        SUBXACT_EVENT_ABORT_SUB => Moment::SubAborted { level },
        _ => return,
    };
    tell(|observer| (observer.transaction)(moment));
}

#[pg_guard]
unsafe extern "C-unwind" fn at_object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    part: i32,
    arg: *mut std::ffi::c_void,
) {
    // SAFETY: the former hook is called as Postgres would have called it.
    unsafe {
        if let Some(former) = FORMER_HOOK {
            former(access, class, object, part, arg);
        }
    }
    match class {
        pg_sys::RelationRelationId => relation_event(access, object, part),
        pg_sys::TriggerRelationId => trigger_event(access, object),
        pg_sys::ExtensionRelationId if access == pg_sys::ObjectAccessType::OAT_POST_CREATE => {
            EXTENSION_MADE.set(true);
        }
        pg_sys::DatabaseRelationId if access == pg_sys::ObjectAccessType::OAT_DROP => {
            tell(|observer| (observer.database_dropped)(object));
        }
        _ => {}
    }
}

/// `part` is a column's number, or 0: a dropped column is not a dropped relation.
fn relation_event(access: pg_sys::ObjectAccessType::Type, relation: Oid, part: i32) {
    use pg_sys::ObjectAccessType::*;
    if access == OAT_TRUNCATE {
        super::dependency::partition_truncated(relation);
    }
    tell(|observer| match access {
        OAT_POST_CREATE if part == 0 => (observer.created)(relation),
        OAT_DROP if part == 0 => (observer.dropped)(relation),
        // TRUNCATE of any table: the cache's own trigger says more precisely that it is a cache.
        OAT_POST_CREATE | OAT_DROP | OAT_POST_ALTER | OAT_TRUNCATE => {
            (observer.altered)(relation);
        }
        _ => {}
    });
}

fn trigger_event(access: pg_sys::ObjectAccessType::Type, trigger: Oid) {
    use pg_sys::ObjectAccessType::*;
    if !matches!(access, OAT_POST_CREATE | OAT_DROP | OAT_POST_ALTER) {
        return;
    }
    if let Some(relation) = super::relation::of_trigger(trigger) {
        tell(|observer| (observer.altered)(relation));
    }
}
