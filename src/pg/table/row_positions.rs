//! Finds the positions (ctid) of the rows under a list of keys, through the index or in one sequential scan of the
//! table.
//!
//! Both methods find the rows that a statement beginning now would see. The positions are hints: as `write` explains, a
//! row may move or change before its position is used. The caller holds the lock on the table that keeps the [`Target`]
//! valid, and has an active snapshot. VACUUM keeps every row that this snapshot can see, so no other row can take over
//! a position before it is used.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum, ItemPointerData, TableScanDesc};

use super::index_read::{UsePlan, key_equals};
use super::target::Target;
use crate::pg::events::DeadBytes;
use crate::pg::memory;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::value::datum::Text;
use crate::pg::version;

/// The position of a row, and in `number` the index of its key in the caller's list.
#[derive(Clone, Copy)]
pub struct RowPlace {
    pub number: usize,
    pub place: ItemPointerData,
    /// The dead bytes that the row's removal leaves to VACUUM.
    pub dead: DeadBytes,
}

/// The table and the snapshot of a search.
#[derive(Clone, Copy)]
struct Search {
    table: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    snapshot: pg_sys::Snapshot,
}

/// Looks up each key in the index; `keys` yields the key and its index in the caller's list. Sorted keys are faster,
/// because neighbouring keys share index pages that are still in the buffer cache.
pub fn by_index(
    target: &Target,
    keys: impl Iterator<Item = (usize, Text)>,
) -> Result<Vec<RowPlace>, UsePlan> {
    let mut all = memory::list(0);
    // SAFETY: sequences of plain values; the Rust code between them does not touch the scan. An error that unwinds
    // leaves the scan to the abort.
    unsafe {
        let (search, index, scan) = guarded(|| {
            let (search, index) = open_to_change(target)?;
            let scan = version::index_beginscan(search.table, index, search.snapshot);
            Some((search, index, scan))
        })
        .ok_or(UsePlan)?;
        for (number, key) in keys {
            let key = target.key_datum(key);
            let found = guarded(|| {
                unguarded::check_for_interrupts();
                let mut by_key = key_equals(target, key);
                unguarded::index_rescan(scan, &mut by_key, 1, null_mut(), 0);
                let forward = pg_sys::ScanDirection::ForwardScanDirection;
                unguarded::index_getnext_slot(scan, forward, search.slot)
                    .then(|| found(target, &search, number))
            });
            if let Some(found) = found {
                memory::push(&mut all, found);
            }
        }
        guarded(|| {
            unguarded::index_endscan(scan);
            close(&search, index);
        });
    }
    Ok(all)
}

/// Waits for each transaction in progress that has written a row under one of these keys. Reads all rows under a key,
/// because a new row may exist beside the row that it replaces.
pub fn wait_for_unseen(target: &Target, keys: impl Iterator<Item = Text>) -> Result<(), UsePlan> {
    // SAFETY: sequences of plain values over the objects that `open` has opened; an error that unwinds leaves them to
    // the abort. A wait begins only after `unseen_writer` has ended its scan and released its pages.
    unsafe {
        let (search, index) = guarded(|| open(target)).ok_or(UsePlan)?;
        for key in keys {
            let key = target.key_datum(key);
            guarded(|| {
                unguarded::check_for_interrupts();
                let mut writer = unseen_writer(target, &search, index, key);
                while writer != pg_sys::InvalidTransactionId {
                    let none = pg_sys::XLTW_Oper::XLTW_None;
                    unguarded::XactLockTableWait(writer, null_mut(), null_mut(), none);
                    writer = unseen_writer(target, &search, index, key);
                }
            });
        }
        guarded(|| close(&search, index));
    }
    Ok(())
}

/// Returns a transaction in progress that has written a row under this key; an invalid id if no such transaction
/// exists.
///
/// # Safety
/// Called inside `guarded`, with the objects that `open` returned.
unsafe fn unseen_writer(
    target: &Target,
    search: &Search,
    index: pg_sys::Relation,
    key: Datum,
) -> pg_sys::TransactionId {
    // SAFETY: a dirty snapshot consists of a type and room for results; it outlives the scan, which begins and ends
    // here.
    unsafe {
        let mut dirty = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..Default::default()
        };
        let scan = version::index_beginscan(search.table, index, &raw mut dirty);
        let mut by_key = key_equals(target, key);
        unguarded::index_rescan(scan, &mut by_key, 1, null_mut(), 0);
        let forward = pg_sys::ScanDirection::ForwardScanDirection;
        let mut writer = pg_sys::InvalidTransactionId;
        while writer == pg_sys::InvalidTransactionId
            && unguarded::index_getnext_slot(scan, forward, search.slot)
        {
            writer = dirty.xmin;
        }
        unguarded::index_endscan(scan);
        unguarded::clear_slot(search.slot);
        writer
    }
}

/// Scans the whole table once. `number_of` returns the index of a key in the caller's list, or None if the list does
/// not contain the key.
pub fn by_pass(
    target: &Target,
    number_of: impl Fn(&[u8]) -> Option<usize>,
) -> Result<Vec<RowPlace>, UsePlan> {
    let mut all = memory::list(0);
    // SAFETY: sequences of plain values; `number_of`, the Rust code between them, does not touch the pass, and reads
    // the key while the slot still holds its row. An error that unwinds leaves all objects to the abort.
    unsafe {
        let (search, index, pass) = guarded(|| {
            let (search, index) = open_to_change(target)?;
            Some((search, index, begin_pass(&search)))
        })
        .ok_or(UsePlan)?;
        let next = || {
            guarded(|| {
                unguarded::check_for_interrupts();
                next_row(pass, &search)
                    .then(|| unguarded::column(search.slot, target.key))
                    .flatten()
            })
        };
        while let Some(key) = next() {
            if let Some(number) = number_of(target.key_type.bytes_of(key)) {
                let found = guarded(|| found(target, &search, number));
                memory::push(&mut all, found);
            }
        }
        guarded(|| {
            end_pass(pass, &search);
            close(&search, index);
        });
    }
    Ok(all)
}

/// Returns the position of the row in the search's slot, together with the index of its key.
///
/// # Safety
/// Called inside `guarded`; the slot holds a row of the target.
unsafe fn found(target: &Target, search: &Search, number: usize) -> RowPlace {
    // SAFETY: the slot holds a row, so it has the row's position; the column `value` of a target is a varlena.
    unsafe {
        RowPlace {
            number,
            place: (*search.slot).tts_tid,
            dead: DeadBytes::with_row(search.slot, target.value),
        }
    }
}

/// Opens the table as [`open`] does, for rows that are to be removed: [`found`] reads their values. Returns None, too,
/// if the values are not stored as the target says.
///
/// # Safety
/// Called inside `guarded`.
unsafe fn open_to_change(target: &Target) -> Option<(Search, pg_sys::Relation)> {
    // SAFETY: the objects that `open` has opened.
    unsafe {
        let (search, index) = open(target)?;
        if target.value_type(search.table, index).is_none() {
            close(&search, index);
            return None;
        }
        Some((search, index))
    }
}

/// Opens the table, its index and a snapshot. Returns None if the table no longer matches the target.
///
/// # Safety
/// Called inside `guarded`.
unsafe fn open(target: &Target) -> Option<(Search, pg_sys::Relation)> {
    // SAFETY: the caller of the search holds a lock on the table; the snapshot stays registered until `close`.
    unsafe {
        unguarded::CommandCounterIncrement();
        let table = unguarded::table_open(target.relation, pg_sys::NoLock as i32);
        let index = unguarded::index_open(target.index, pg_sys::AccessShareLock as i32);
        if !target.stands(table, index) {
            unguarded::index_close(index, pg_sys::AccessShareLock as i32);
            unguarded::table_close(table, pg_sys::NoLock as i32);
            return None;
        }
        let search = Search {
            table,
            slot: unguarded::MakeSingleTupleTableSlot(
                (*table).rd_att,
                unguarded::table_slot_callbacks(table),
            ),
            snapshot: unguarded::RegisterSnapshot(unguarded::GetTransactionSnapshot()),
        };
        Some((search, index))
    }
}

/// # Safety
/// Called inside `guarded`; the caller does not use the search afterwards.
unsafe fn close(search: &Search, index: pg_sys::Relation) {
    // SAFETY: `open` opened each object.
    unsafe {
        unguarded::ExecDropSingleTupleTableSlot(search.slot);
        unguarded::UnregisterSnapshot(search.snapshot);
        unguarded::index_close(index, pg_sys::AccessShareLock as i32);
        unguarded::table_close(search.table, pg_sys::NoLock as i32);
    }
}

/// # Safety
/// Called inside `guarded`; the search is open.
unsafe fn begin_pass(search: &Search) -> TableScanDesc {
    use pg_sys::ScanOptions::*;
    let flags = SO_TYPE_SEQSCAN | SO_ALLOW_STRAT | SO_ALLOW_PAGEMODE;
    // SAFETY: a table has an access method, and every access method has the functions of a scan.
    unsafe {
        match (*(*search.table).rd_tableam).scan_begin {
            Some(begin) => begin(
                search.table,
                search.snapshot,
                0,
                null_mut(),
                null_mut(),
                flags,
            ),
            None => null_mut(),
        }
    }
}

/// # Safety
/// Called inside `guarded`; the pass has begun.
unsafe fn next_row(pass: TableScanDesc, search: &Search) -> bool {
    let forward = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: the table is open, so it has an access method, which began the pass; the slot is of the table's kind.
    unsafe {
        let next = (*(*search.table).rd_tableam).scan_getnextslot;
        next.is_some_and(|next| next(pass, forward, search.slot))
    }
}

/// # Safety
/// Called inside `guarded`; the pass has begun, and the caller does not use it afterwards.
unsafe fn end_pass(pass: TableScanDesc, search: &Search) {
    // SAFETY: the table is open, so it has an access method, which began this pass and ends it once; the slot
    // releases its page first.
    unsafe {
        unguarded::clear_slot(search.slot);
        if let Some(end) = (*(*search.table).rd_tableam).scan_end {
            end(pass);
        }
    }
}
