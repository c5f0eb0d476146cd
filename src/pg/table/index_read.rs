//! Reads rows of a table by key, through the index of its primary key, without Postgres' executor.
//!
//! The result equals that of the saved plan `SELECT ... WHERE key = $1`: a read takes the same kind of snapshot, scans
//! the index, finds the visible row, and copies its columns. The caller holds the lock on the table that keeps the
//! [`Target`] valid. This module locks the index, because REINDEX replaces the index's file under a lock on the index
//! alone.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum};

use super::target::Target;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::session::clock::INFINITY;
use crate::pg::session::transaction;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::stored::{Entry, Stored};
use crate::pg::{session, version};

/// Tells the caller to use the saved plan instead, because the table does not, or no longer, allow direct access. The
/// failed call has read and changed nothing.
pub struct UsePlan;

/// A row, and whether it is certainly the valid row under its key. It is if the transaction has written nothing, or has
/// written this row. If a scan finds two rows, the row that the transaction wrote is valid.
pub type VisibleRow = (Entry, bool);

/// A table and its index, open, and a scan of them by key.
#[derive(Clone, Copy)]
struct Scan {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    scan: pg_sys::IndexScanDesc,
    value_type: ValueType,
    /// The registered snapshot; NULL for a brief scan, whose snapshot is not registered.
    registered: pg_sys::Snapshot,
    /// Whether no key can have a second visible row (`session::sees_one_version`).
    one_version: bool,
    has_written: bool,
}

/// Returns the row under a key, as a statement that begins now would see it; None if it would see no row.
pub fn get(target: &Target, key: Text) -> Result<Option<VisibleRow>, UsePlan> {
    let key = target.key_datum(key);
    // SAFETY: the sequence holds plain values only. The relations exist, because the caller holds a lock on the table;
    // the columns are copied into the caller's memory context before the slot is dropped.
    unsafe {
        let row = guarded(|| {
            let scan = open(target, unguarded::ActiveSnapshotSet())?;
            let row = find(&scan, target, key);
            close(&scan);
            Some(row)
        });
        row.ok_or(UsePlan)
    }
}

/// Reads the rows under several keys, all with one snapshot. Calls `found` with the position of each key that has a
/// row.
pub fn get_many(
    target: &Target,
    keys: impl Iterator<Item = Text>,
    mut found: impl FnMut(usize, VisibleRow),
) -> Result<(), UsePlan> {
    // SAFETY: sequences of plain values; the caller's lock keeps the relations. The Rust code between the sequences
    // does not touch the scan; an error that unwinds leaves it to the abort.
    unsafe {
        let scan = guarded(|| open(target, false)).ok_or(UsePlan)?;
        for (place, key) in keys.enumerate() {
            let key = target.key_datum(key);
            let row = guarded(|| {
                unguarded::check_for_interrupts();
                find(&scan, target, key)
            });
            if let Some(row) = row {
                found(place, row);
            }
        }
        guarded(|| close(&scan));
    }
    Ok(())
}

/// Opens the relations and takes a snapshot: a new snapshot under READ COMMITTED, otherwise the transaction's snapshot.
/// The snapshot includes the session's own earlier changes. A `brief` scan does not register the snapshot. Returns None
/// if the table no longer matches the target.
///
/// # Safety
/// Called inside `guarded`; the caller holds a lock on the target's table. A brief scan ends in the same `guarded`
/// sequence, which takes no other snapshot. It runs under an active snapshot, which is older and keeps VACUUM from
/// removing any row that the brief scan's snapshot can see.
unsafe fn open(target: &Target, brief: bool) -> Option<Scan> {
    // SAFETY: the relations exist by the caller's lock, and stay open until `close`. The snapshot is registered for as
    // long, or for a brief scan the caller's contract keeps it alive.
    unsafe {
        unguarded::see_own_writes();
        let table = unguarded::table_open(target.relation, pg_sys::NoLock as i32);
        let index = unguarded::index_open(target.index, pg_sys::AccessShareLock as i32);
        let Some(value_type) = target.value_type(table, index) else {
            unguarded::index_close(index, pg_sys::AccessShareLock as i32);
            unguarded::table_close(table, pg_sys::NoLock as i32);
            return None;
        };
        let present = unguarded::GetTransactionSnapshot();
        let registered = match brief {
            true => counted(present),
            false => unguarded::RegisterSnapshot(present),
        };
        let snapshot = if brief { present } else { registered };
        Some(Scan {
            table,
            index,
            slot: unguarded::MakeSingleTupleTableSlot(
                (*table).rd_att,
                unguarded::table_slot_callbacks(table),
            ),
            scan: version::index_beginscan(table, index, snapshot),
            value_type,
            registered,
            one_version: session::sees_one_version(),
            has_written: transaction::has_xid(),
        })
    }
}

/// Counts a snapshot as in use without registering it, because Postgres requires a count above 0 for every snapshot
/// that a scan uses. After an error the count stays; the next snapshot starts from 0 again.
///
/// # Safety
/// The snapshot is the session's own, and no other code counts it at the same time.
unsafe fn counted(snapshot: pg_sys::Snapshot) -> pg_sys::Snapshot {
    // SAFETY: the snapshot is this session's own, and no other process sees it. The result NULL means that no snapshot
    // needs to be unregistered.
    unsafe { (*snapshot).regd_count = (*snapshot).regd_count.wrapping_add(1) };
    null_mut()
}

/// # Safety
/// Called inside `guarded`; the scan is open.
unsafe fn find(scan: &Scan, target: &Target, key: Datum) -> Option<VisibleRow> {
    // SAFETY: the scan has one key, which Postgres copies at once; under the primary key it returns at most one row, or
    // a committed row and one of the transaction's own.
    unsafe {
        let mut by_key = key_equals(target, key);
        unguarded::index_rescan(scan.scan, &mut by_key, 1, null_mut(), 0);
        let mut found = next(scan, target)?;
        if !scan.one_version
            && !found.1
            && let Some(other) = next(scan, target)
        {
            found = other;
        }
        Some(found)
    }
}

/// # Safety
/// Called inside `guarded`; the scan is open and has a key.
#[inline(always)]
unsafe fn next(scan: &Scan, target: &Target) -> Option<VisibleRow> {
    // SAFETY: the scan is open and has its key, by the caller's contract; a row that it returns is in the slot, and
    // belongs to the target, whose value's type was read when the table was opened.
    unsafe {
        let forward = pg_sys::ScanDirection::ForwardScanDirection;
        unguarded::index_getnext_slot(scan.scan, forward, scan.slot).then(|| {
            let counts = !scan.has_written || unguarded::is_own(scan.slot);
            (copy_row(scan.slot, target, scan.value_type), counts)
        })
    }
}

/// # Safety
/// Called inside `guarded`; the scan is open and not used afterwards.
unsafe fn close(scan: &Scan) {
    // SAFETY: `open` opened each object; the slot releases its page first. `open` counted the snapshot of a brief scan.
    unsafe {
        if scan.registered.is_null() {
            let snapshot = (*scan.scan).xs_snapshot;
            (*snapshot).regd_count = (*snapshot).regd_count.wrapping_sub(1);
        }
        unguarded::index_endscan(scan.scan);
        unguarded::ExecDropSingleTupleTableSlot(scan.slot);
        unguarded::index_close(scan.index, pg_sys::AccessShareLock as i32);
        unguarded::table_close(scan.table, pg_sys::NoLock as i32);
        if !scan.registered.is_null() {
            unguarded::UnregisterSnapshot(scan.registered);
        }
    }
}

/// Makes the condition `key = key` on the index's first column.
///
/// # Safety
/// Called inside `guarded`; the key is a datum of the target's key type.
#[inline(always)]
pub unsafe fn key_equals(target: &Target, key: Datum) -> pg_sys::ScanKeyData {
    let mut entry = pg_sys::ScanKeyData::default();
    // SAFETY: looks up a built-in function and fills the entry.
    unsafe {
        unguarded::ScanKeyInit(
            &mut entry,
            1,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from_u32(target.key_type.equality()),
            key,
        );
    }
    entry.sk_collation = target.collation;
    entry
}

/// Copies the value, detoasted, and the deadline from a slot into the current memory context.
///
/// # Safety
/// Called inside `guarded`; the slot holds a row of the target, and `value_type` is the result of
/// [`Target::value_type`].
#[inline(always)]
pub unsafe fn copy_row(
    slot: *mut pg_sys::TupleTableSlot,
    target: &Target,
    value_type: ValueType,
) -> Entry {
    // SAFETY: the value is of this type, and a copy; the deadline is passed by value.
    unsafe {
        let value = unguarded::column(slot, target.value).map(|value| {
            let copy = unguarded::pg_detoast_datum_copy(value.cast_mut_ptr());
            Stored::new(Datum::from(copy), value_type)
        });
        Entry {
            value,
            deadline: unguarded::column(slot, target.deadline)
                .and_then(|datum| target.deadline_form.read(datum))
                .filter(|&deadline| deadline != INFINITY),
        }
    }
}
