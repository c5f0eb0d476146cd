//! The trigger functions that every cache table carries: they see what plain SQL changes.
//!
//! C-level functions without pgrx's trigger wrapper, because they run once for each row. They are
//! enabled ALWAYS, so they fire under `session_replication_role = replica` and in logical
//! replication's apply, too.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum};
use pgrx::prelude::*;

use crate::error::Error;
use crate::pg::events::{self, Change, Dead};
use crate::pg::memory::emergency;
use crate::pg::value::datum::{ValueType, varlena_bytes};

/// Tells Postgres that the functions below use calling convention version 1.
static V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_record_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_record_truncate_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.record()`: AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW. Its arguments are the
/// cache's settings; it does not read them.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn record_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    emergency::secure();
    let trigger = called_as_trigger(call, "record");
    // SAFETY: Postgres fills TriggerData for a row trigger: the relation is open, the old and the
    // new row are there as the event says. The rows live until the function returns.
    unsafe {
        let relation = (*trigger).tg_relation;
        let (old, new) = ((*trigger).tg_trigtuple, (*trigger).tg_newtuple);
        let inserted =
            (*trigger).tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_INSERT;
        note_row(
            relation,
            old,
            if inserted { Change::Set } else { Change::Gone },
        );
        note_row(relation, new, Change::Set);
        if !inserted {
            note_dead(relation, old, new);
        }
    }
    Datum::null()
}

/// `pgcache.record_truncate()`: BEFORE TRUNCATE, FOR EACH STATEMENT. Apply of logical replication
/// fires it, though no object access hook.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn record_truncate_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    let trigger = called_as_trigger(call, "record_truncate");
    // SAFETY: the relation is open while its trigger runs.
    let relation = unsafe { (*(*trigger).tg_relation).rd_id };
    events::tell(|observer| (observer.truncated)(relation));
    Datum::null()
}

/// Reports the key of one row; of a row without a key of type text, that anything may have changed.
/// Anybody may put this trigger on a table of his own, with whatever column named key.
///
/// # Safety
/// `relation` is open and `row` is NULL or one of its rows.
unsafe fn note_row(relation: pg_sys::Relation, row: pg_sys::HeapTuple, change: Change) {
    if row.is_null() {
        return;
    }
    // SAFETY: as the caller says; heap_getattr reads a column that get_attnum has just found.
    unsafe {
        let relation_oid = (*relation).rd_id;
        let number = pg_sys::get_attnum(relation_oid, c"key".as_ptr());
        let mut null = true;
        let descriptor = (*relation).rd_att;
        let is_text =
            number > 0 && pg_sys::SPI_gettypeid(descriptor, i32::from(number)) == pg_sys::TEXTOID;
        let key = match is_text {
            true => pg_sys::heap_getattr(row, i32::from(number), descriptor, &mut null),
            false => Datum::null(),
        };
        events::tell(|observer| match null {
            true => (observer.truncated)(relation_oid),
            false => (observer.row)(relation_oid, varlena_bytes(key), change),
        });
    }
}

/// Reports what an update or a deletion has left to VACUUM. There is no row where somebody has made this
/// a trigger of statements on a table of his own.
///
/// # Safety
/// `relation` is open; `old` is the row as it was, `new` what it has become; both may be NULL.
unsafe fn note_dead(relation: pg_sys::Relation, old: pg_sys::HeapTuple, new: pg_sys::HeapTuple) {
    if old.is_null() {
        return;
    }
    // SAFETY: as the caller says.
    unsafe {
        let descriptor = (*relation).rd_att;
        Dead::between(old, new, descriptor, || value_column(relation)).tell((*relation).rd_id);
    }
}

/// The number of the column named value, if it has a type that a cache's may have: these are varlenas.
///
/// # Safety
/// `relation` is open.
unsafe fn value_column(relation: pg_sys::Relation) -> Option<i16> {
    // SAFETY: the type is asked of a column that get_attnum has just found.
    unsafe {
        let number = pg_sys::get_attnum((*relation).rd_id, c"value".as_ptr());
        let is_ours = number > 0
            && ValueType::from_oid(pg_sys::SPI_gettypeid((*relation).rd_att, i32::from(number)))
                .is_some();
        is_ours.then_some(number)
    }
}

/// The trigger's call; an error when it is none.
pub fn called_as_trigger(
    call: pg_sys::FunctionCallInfo,
    name: &'static str,
) -> *mut pg_sys::TriggerData {
    // SAFETY: Postgres passes a valid call; its context is NULL or a node.
    unsafe {
        let context = (*call).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            ErrorReport::from(Error::NotATrigger(name)).report(PgLogLevel::ERROR);
        }
        context.cast()
    }
}

/// Whether a trigger function runs, of whatever table.
pub fn is_in_one() -> bool {
    // SAFETY: the function takes nothing and gives an integer.
    let depth = unsafe { pgrx::direct_function_call::<i32>(pg_sys::pg_trigger_depth, &[]) };
    depth.unwrap_or(0) > 0
}
