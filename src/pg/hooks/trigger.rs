//! The trigger functions of every cache table, which notify pgcache of changes that plain SQL makes to the cache.
//!
//! They are C functions without pgrx's trigger wrapper, because one of them runs for each row. Their triggers are
//! ENABLE ALWAYS, so they also fire under `session_replication_role = replica` and in the apply worker of logical
//! replication.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

use crate::error::Error;
use crate::pg::catalog::{columns, relation};
use crate::pg::events::{self, DeadBytes, NotedBy, RowChange};
use crate::pg::memory::emergency;
use crate::pg::session::fault::{self, Fault};
use crate::pg::value::call::V1;
use crate::pg::value::key_type::KeyType;

/// Returns the calling convention of `pgcache.record()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_record_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.columns()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_columns_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.columns()`: the function of the trigger that names the columns of an attached table (`catalog::columns`).
/// Does nothing. The trigger is disabled, but a user may enable all triggers of the table.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn columns_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    called_as_trigger(call, "columns");
    Datum::null()
}

/// Returns the calling convention of `pgcache.reserve()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_reserve_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.reserve()`: the function of the trigger whose argument is a cache's reserve. Does nothing.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn reserve_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    called_as_trigger(call, "reserve");
    Datum::null()
}

/// Returns the calling convention of `pgcache.record_truncate()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_record_truncate_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.record()`: AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW. Reports the changed row's key and its dead
/// bytes. Does not read its arguments, which are the cache's settings.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn record_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    emergency::secure();
    let trigger = called_as_trigger(call, "record");
    // SAFETY: Postgres fills TriggerData for a row trigger: the relation is open, and the old and the new row exist
    // according to the event. The rows live until the function returns.
    unsafe {
        let relation = (*trigger).tg_relation;
        let (old, new) = ((*trigger).tg_trigtuple, (*trigger).tg_newtuple);
        let inserted =
            (*trigger).tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_INSERT;
        let former = match inserted {
            true => RowChange::Set,
            false => RowChange::Gone,
        };
        if (*(*trigger).tg_trigger).tgisclone {
            let part = &*part_of(call, &*trigger);
            note_row(part.cache, relation, part.key, old, former);
            note_row(part.cache, relation, part.key, new, RowChange::Set);
            return Datum::null();
        }
        let key = columns::key_column(relation);
        note_row((*relation).rd_id, relation, key, old, former);
        note_row((*relation).rd_id, relation, key, new, RowChange::Set);
        if !inserted {
            note_dead(relation, old, new);
        }
    }
    Datum::null()
}

/// The data that a partition's trigger needs: the cache, and the number and type of the key column in the partition.
///
/// The trigger reports no dead bytes for a partition, because the sweep counts dead bytes only for whole caches; VACUUM
/// of a partition follows Postgres' own counts.
struct Part {
    cache: Oid,
    key: Option<(i16, KeyType)>,
}

/// Returns the [`Part`] of a partition. Looks them up once for each statement and keeps them in the memory of the
/// call's FmgrInfo, which ends with the statement.
///
/// # Safety
/// The call comes from `trigger`, which is a partition's copy of the cache's trigger.
unsafe fn part_of(call: pg_sys::FunctionCallInfo, trigger: &pg_sys::TriggerData) -> *const Part {
    // SAFETY: Postgres gives a trigger function its FmgrInfo, with room for a pointer that begins as NULL, and memory
    // that lives as long. The trigger's OID is read before any catalog; the partition is open.
    unsafe {
        let function = (*call).flinfo;
        if (*function).fn_extra.is_null() {
            let number = (*trigger.tg_trigger).tgoid;
            let partition = trigger.tg_relation;
            let part = Part {
                // The original is missing only in a damaged catalog. In that case the partition's own OID is used,
                // which is not a cache.
                cache: relation::made_on(number).unwrap_or((*partition).rd_id),
                key: columns::key_in_partition(partition),
            };
            let room = pg_sys::MemoryContextAlloc((*function).fn_mcxt, size_of::<Part>());
            room.cast::<Part>().write(part);
            (*function).fn_extra = room;
        }
        (*function).fn_extra.cast()
    }
}

/// `pgcache.record_truncate()`: BEFORE TRUNCATE, FOR EACH STATEMENT. Reports that all rows may be gone. The trigger
/// exists for the apply worker of logical replication, which fires it but calls no object access hook.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn record_truncate_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    let trigger = called_as_trigger(call, "record_truncate");
    // SAFETY: the relation is open while its trigger runs.
    let relation = unsafe { (*(*trigger).tg_relation).rd_id };
    events::emit(|observer| (observer.truncated)(relation));
    Datum::null()
}

/// Reports the key of one changed row, or that any entry may have changed if the row has no key. A row may lack one
/// because any role may create this trigger on its own table, with or without a key column.
///
/// # Safety
/// `relation` is open, `row` is NULL or one of its rows, and the column `key` holds the key.
unsafe fn note_row(
    cache: Oid,
    relation: pg_sys::Relation,
    key: Option<(i16, KeyType)>,
    row: pg_sys::HeapTuple,
    change: RowChange,
) {
    if row.is_null() || fault::on(Fault::RowNotNoted) {
        return;
    }
    // SAFETY: the relation is open and `row` belongs to it, by the caller's contract; heap_getattr reads a column that
    // was found in the relation, of the type that was found.
    unsafe {
        let mut null = true;
        let key = key.and_then(|(number, key_type)| {
            let descriptor = (*relation).rd_att;
            let key = pg_sys::heap_getattr(row, i32::from(number), descriptor, &mut null);
            (!null).then(|| key_type.bytes_of(key))
        });
        events::emit(|observer| match key {
            None => (observer.truncated)(cache),
            Some(key) => (observer.row)(cache, key, change, NotedBy::Trigger),
        });
    }
}

/// Reports how many bytes an update or a deletion leaves to VACUUM. `old` is NULL if a role created this as a statement
/// trigger on its own table.
///
/// # Safety
/// `relation` is open; `old` is the row before the change, `new` the row after it; both may be NULL.
unsafe fn note_dead(relation: pg_sys::Relation, old: pg_sys::HeapTuple, new: pg_sys::HeapTuple) {
    if old.is_null() {
        return;
    }
    // SAFETY: `old` is not NULL, both are rows of the open relation, whose descriptor this is; `value_column` returns
    // a column of a varlena type.
    unsafe {
        let descriptor = (*relation).rd_att;
        DeadBytes::between(old, new, descriptor, || columns::value_column(relation))
            .emit((*relation).rd_id);
    }
}

/// Returns the trigger's data of a call; raises an error if no trigger made the call.
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

/// Returns whether a trigger function of any table is running.
pub fn is_in_one() -> bool {
    depth() > 0
}

/// Returns the number of running trigger functions, which are nested.
pub fn depth() -> i32 {
    // SAFETY: the function takes no argument and returns an integer.
    let depth = unsafe { pgrx::direct_function_call::<i32>(pg_sys::pg_trigger_depth, &[]) };
    depth.unwrap_or(0)
}
