//! What happens in Postgres that the layer above must know: rows and definitions that change, and
//! the end of transactions. This layer sees and reports; it decides nothing.

use std::cell::Cell;

use pgrx::pg_sys::{self, Oid};

use super::board;
use super::dead::Dead;
use super::kept::{self, Kept};
use super::{advisory, meant, source};

/// Receives the events. Set once, when the library is loaded.
#[derive(Clone, Copy)]
pub struct Observer {
    /// A row with this key came, went or changed; called after the change, before the statement ends.
    pub row: fn(relation: Oid, key: &[u8], change: Change, seen: Seen),
    /// A change of a row left this for VACUUM; called when `row` is.
    pub died: fn(relation: Oid, dead: Dead),
    /// All rows of a cache may be other ones.
    pub truncated: fn(relation: Oid),
    /// A relation's definition or one of its triggers changes, or TRUNCATE removes its rows.
    pub altered: fn(relation: Oid),
    /// A row of a table changed on which an entry of a cache depends.
    pub depended_on: fn(cache: Oid, key: &[u8]),
    /// All rows of such a table may have gone, or be other ones.
    pub depended_on_all: fn(cache: Oid),
    /// A table on which entries depend has, or had, this child.
    pub inherited: fn(child: Oid, parent: Oid),
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

/// Who saw it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The trigger that every cache has, for a statement.
    ByTrigger,
    /// A function of ours that changed the row without a statement.
    ByFunction,
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

/// How far the end of a transaction has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The observer has not heard of an end.
    Open,
    /// It has heard of the commit. What changes from now on is done by callbacks of other extensions that
    /// come after ours, and must be seen to at once, because it is not asked again before others see it.
    Committing,
    /// It has let PREPARE TRANSACTION pass.
    Preparing,
}

thread_local! {
    static OBSERVER: Cell<Option<Observer>> = const { Cell::new(None) };
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Open) };
    /// The transaction has made or updated some extension; sweepers look for ours when it has committed.
    static EXTENSION_CHANGED: Kept<bool> = Kept::default();
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

/// How far the end of the transaction has come.
#[inline]
pub fn phase() -> Phase {
    PHASE.get()
}

// Postgres calls the next three in every transaction and at every object. What concerns nobody ends in
// them: the guard that pgrx puts around what may fail costs more than all the rest of it.

unsafe extern "C-unwind" fn at_transaction_event(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    let (moment, phase) = match event {
        XACT_EVENT_PRE_COMMIT => (Moment::BeforeCommit, Phase::Committing),
        XACT_EVENT_PRE_PREPARE => (Moment::BeforePrepare, Phase::Preparing),
        XACT_EVENT_COMMIT | XACT_EVENT_PREPARE => (Moment::Committed, Phase::Open),
        XACT_EVENT_ABORT => (Moment::Aborted, Phase::Open),
        _ => return,
    };
    if kept::any() {
        guarded(|| transaction_event(moment));
    }
    PHASE.set(phase);
}

unsafe extern "C-unwind" fn at_savepoint_event(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::*;
    if kept::any() && matches!(event, SUBXACT_EVENT_COMMIT_SUB | SUBXACT_EVENT_ABORT_SUB) {
        guarded(|| {
            let level = nesting_level();
            transaction_event(match event {
                SUBXACT_EVENT_COMMIT_SUB => Moment::SubCommitted { level },
                _ => Moment::SubAborted { level },
            });
        });
    }
}

fn transaction_event(moment: Moment) {
    tell(|observer| (observer.transaction)(moment));
    if moment == Moment::BeforePrepare {
        advisory::before_prepare();
    }
    if matches!(moment, Moment::Committed | Moment::Aborted) {
        advisory::at_end();
        let changed = EXTENSION_CHANGED.with(|changed| changed.change(std::mem::take));
        if changed && moment == Moment::Committed {
            board::tell_news();
        }
        source::forget();
        kept::none_left();
    }
}

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
    let heeded = [
        pg_sys::RelationRelationId,
        pg_sys::TriggerRelationId,
        pg_sys::ExtensionRelationId,
        pg_sys::DatabaseRelationId,
        source::DEFAULTS,
    ];
    if heeded.contains(&class) {
        guarded(|| object_event(access, class, object, part));
    }
    if class == source::INHERITANCE && access == pg_sys::ObjectAccessType::OAT_POST_ALTER {
        // SAFETY: what Postgres has given.
        guarded(|| source::inheritance_changed(object, unsafe { source::parent_in(arg) }));
    }
}

/// Runs what may fail where Postgres has called us: an error or a panic in it goes on as Postgres' own.
fn guarded(run: impl FnOnce()) {
    // SAFETY: called from C, with no frame of ours between that would have to be unwound.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(run) }
}

fn object_event(access: pg_sys::ObjectAccessType::Type, class: Oid, object: Oid, part: i32) {
    match class {
        pg_sys::RelationRelationId => relation_event(access, object, part),
        pg_sys::TriggerRelationId => trigger_event(access, object),
        pg_sys::ExtensionRelationId if access != pg_sys::ObjectAccessType::OAT_DROP => {
            EXTENSION_CHANGED.with(|changed| changed.change(|changed| *changed = true));
        }
        pg_sys::DatabaseRelationId if access == pg_sys::ObjectAccessType::OAT_DROP => {
            tell(|observer| (observer.database_dropped)(object));
        }
        // Named by the table and the column.
        source::DEFAULTS if access == pg_sys::ObjectAccessType::OAT_POST_CREATE => {
            source::default_made(object, part);
        }
        _ => {}
    }
}

/// `part` is a column's number, or 0: a dropped column is not a dropped relation.
fn relation_event(access: pg_sys::ObjectAccessType::Type, relation: Oid, part: i32) {
    use pg_sys::ObjectAccessType::*;
    match access {
        OAT_TRUNCATE => {
            meant::truncated(relation);
            super::dependency::partition_truncated(relation);
        }
        OAT_POST_CREATE if part != 0 => source::changed(relation),
        OAT_POST_ALTER if part != 0 => source::column_altered(relation, part),
        OAT_POST_ALTER => source::altered(relation),
        OAT_DROP => source::dropped(relation, part),
        _ => {}
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
        match access {
            OAT_DROP => source::trigger_dropped(trigger, relation),
            OAT_POST_ALTER => source::trigger_altered(trigger, relation),
            _ => {}
        }
        tell(|observer| (observer.altered)(relation));
    }
}
