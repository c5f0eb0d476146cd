//! Registers the transaction callbacks and the object access hook, and turns their calls into [`events`].
//!
//! The events are the end of transactions and savepoints, and changes to definitions: tables, triggers, extensions,
//! databases and column defaults. Changes of rows do not come here; triggers report them.

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::relation::{self, TriggerRow};
use crate::pg::catalog::{catalog_rows, own, privilege};
use crate::pg::events::{self, Moment, Observer, Phase, emit, nesting_level};
use crate::pg::hooks::{applied, dependency, pre_commit_portal, source, two_phase_commit};
use crate::pg::session::advisory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction_local::{self, TransactionLocal};
use crate::pg::shmem::worker_state;

thread_local! {
    /// Whether the transaction has created or updated an extension; after its commit the launcher checks whether
    /// pgcache is installed.
    static EXTENSION_CHANGED: TransactionLocal<bool> = TransactionLocal::default();
}

static mut FORMER_HOOK: pg_sys::object_access_hook_type = None;

/// Registers the callbacks and the hook.
pub fn register(observer: Observer) {
    events::set_observer(observer);
    applied::register();
    // SAFETY: called once while the library is loaded; the callbacks live as long as the process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(at_transaction_event), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(at_savepoint_event), std::ptr::null_mut());
        FORMER_HOOK = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(at_object_access);
    }
}

// Postgres calls the next three functions in every transaction and for every object. Most calls concern no cache, and
// return before pgrx's guard around fallible code, because the guard costs more than the rest of the call.

unsafe extern "C-unwind" fn at_transaction_event(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    let (moment, phase) = match event {
        XACT_EVENT_PRE_COMMIT => (Moment::BeforeCommit, Phase::Committing),
        XACT_EVENT_PRE_PREPARE => (Moment::BeforePrepare, Phase::Preparing),
        // A parallel worker has changed nothing, but may hold leases.
        XACT_EVENT_COMMIT | XACT_EVENT_PARALLEL_COMMIT => (Moment::Committed, Phase::Open),
        XACT_EVENT_PREPARE => (Moment::Prepared, Phase::Open),
        XACT_EVENT_ABORT | XACT_EVENT_PARALLEL_ABORT => (Moment::Aborted, Phase::Open),
        _ => return,
    };
    match moment {
        Moment::BeforeCommit | Moment::BeforePrepare => pre_commit_portal::pass(),
        _ => {
            pre_commit_portal::reset();
            two_phase_commit::forget();
        }
    }
    if transaction_local::any_changed() {
        guarded(|| transaction_event(moment));
    }
    events::set_phase(phase);
}

unsafe extern "C-unwind" fn at_savepoint_event(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::*;
    if transaction_local::any_changed()
        && matches!(event, SUBXACT_EVENT_COMMIT_SUB | SUBXACT_EVENT_ABORT_SUB)
    {
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
    emit(|observer| (observer.transaction)(moment));
    if moment == Moment::BeforePrepare {
        advisory::before_prepare();
    }
    if matches!(
        moment,
        Moment::Committed | Moment::Prepared | Moment::Aborted
    ) {
        advisory::at_end();
        let changed = EXTENSION_CHANGED.with(|changed| changed.change(std::mem::take));
        match moment {
            Moment::Committed if changed => worker_state::extension_changed(),
            Moment::Prepared if changed => worker_state::extension_prepared(),
            _ => {}
        }
        source::forget();
        applied::forget();
        transaction_local::all_ended();
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
    let watched = [
        pg_sys::RelationRelationId,
        pg_sys::TriggerRelationId,
        pg_sys::ExtensionRelationId,
        pg_sys::DatabaseRelationId,
        source::DEFAULTS,
    ];
    if watched.contains(&class) {
        guarded(|| object_event(access, class, object, part));
    }
    if class == source::INHERITANCE && access == pg_sys::ObjectAccessType::OAT_POST_ALTER {
        // SAFETY: `arg` is the argument that Postgres passes with OAT_POST_ALTER, which this event is.
        guarded(|| source::inheritance_changed(object, unsafe { source::parent_in(arg) }));
        guarded(|| placed(object));
    }
}

/// Runs fallible code in a callback: converts a panic to a Postgres error, and passes on a Postgres error.
fn guarded(run: impl FnOnce()) {
    // SAFETY: the three callbacks above call this directly from C, and their own frames hold nothing to drop.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(run) }
}

/// Reports that a table became a child or partition of another table, or stopped being one. The observer acts at the
/// end of the transaction, when the change is final. Adding a cache's trigger to a table that is already a partition
/// reports nothing: a restore does this, because it attaches the partition first and creates the trigger afterwards.
fn placed(table: Oid) {
    let has_triggers = catalog_rows::class(table).is_some_and(|class| class.has_triggers);
    if has_triggers && relation::has_trigger(table, own::RECORD.oid()) {
        emit(|observer| (observer.placed)(table));
    }
}

fn object_event(access: pg_sys::ObjectAccessType::Type, class: Oid, object: Oid, part: i32) {
    match class {
        pg_sys::RelationRelationId => relation_event(access, object, part),
        pg_sys::TriggerRelationId => trigger_event(access, object),
        pg_sys::ExtensionRelationId if access != pg_sys::ObjectAccessType::OAT_DROP => {
            EXTENSION_CHANGED.with(|changed| changed.change(|changed| *changed = true));
        }
        pg_sys::DatabaseRelationId if access == pg_sys::ObjectAccessType::OAT_DROP => {
            emit(|observer| (observer.database_dropped)(object));
        }
        // The hook identifies a default by its table and column.
        source::DEFAULTS if access == pg_sys::ObjectAccessType::OAT_POST_CREATE => {
            source::default_made(object, part);
        }
        _ => {}
    }
}

/// Reports a change of a relation or, if `part` is not 0, of the column with this number. Without the distinction a
/// dropped column would count as a dropped relation.
fn relation_event(access: pg_sys::ObjectAccessType::Type, relation: Oid, part: i32) {
    use pg_sys::ObjectAccessType::*;
    match access {
        OAT_TRUNCATE => {
            dependency::partition_truncated(relation);
            // TRUNCATE of a partition does not fire the cache's trigger either.
            if let Some(cache) = relation::above(relation, own::RECORD.oid()) {
                emit(|observer| (observer.truncated)(cache));
            }
        }
        OAT_POST_CREATE if part != 0 => source::changed(relation),
        OAT_POST_ALTER if part != 0 => source::column_altered(relation, part),
        OAT_POST_ALTER => source::altered(relation),
        OAT_DROP => source::dropped(relation, part),
        _ => {}
    }
    emit(|observer| match access {
        OAT_POST_CREATE if part == 0 => (observer.created)(relation),
        OAT_DROP if part == 0 => (observer.dropped)(relation),
        // TRUNCATE of any table also comes here; the cache's own trigger reports that its rows are gone.
        OAT_POST_CREATE | OAT_DROP | OAT_POST_ALTER | OAT_TRUNCATE => {
            (observer.altered)(relation);
        }
        _ => {}
    });
}

/// Raises 42501 for a pgcache trigger on another role's table. Postgres lets any role with the TRIGGER privilege create
/// or replace a trigger. But pgcache's triggers decide what pgcache does with the owner's rights: which rows count as
/// expired and are hidden and swept, and which entries a row invalidates.
fn require_owner(row: &TriggerRow) {
    let of_a_source = [own::INVALIDATE, own::INVALIDATE_ALL];
    let mut ours = own::OF_A_CACHE.iter().chain(&of_a_source);
    let is_copied = row.parent != pg_sys::InvalidOid; // to a partition, from its parent's
    let is_ours = ours.any(|function| function.oid() == row.function);
    if !is_copied && is_ours && !fault::on(Fault::TriggerOfAnyRole) {
        privilege::require_owner(row.table);
    }
}

fn trigger_event(access: pg_sys::ObjectAccessType::Type, trigger: Oid) {
    use pg_sys::ObjectAccessType::*;
    if !matches!(access, OAT_POST_CREATE | OAT_DROP | OAT_POST_ALTER) {
        return;
    }
    if let Some(row) = relation::trigger_row(trigger) {
        let relation = row.table;
        if access == OAT_POST_CREATE {
            require_owner(&row);
        }
        match access {
            OAT_DROP => source::trigger_dropped(trigger, relation),
            OAT_POST_CREATE if row.is_first_version => source::trigger_made(trigger),
            OAT_POST_ALTER => source::trigger_altered(trigger, relation),
            _ => {}
        }
        emit(|observer| (observer.altered)(relation));
    }
}
