//! Checks whether an expired row blocks a key, so that a statement that is about to write the key can replace the
//! row.
//!
//! A single check opens the table and its index, creates a slot and a scan, and closes them all, which takes more than
//! half of the check's time. COPY checks each of its rows, so this module keeps the objects open until COPY ends.
//!
//! Three rules apply to objects that stay open. First, only the table that COPY itself writes stays open, because
//! triggers that COPY fires may truncate, alter or drop other tables that they write, and Postgres refuses this for a
//! table that the session has open. Second, no page stays pinned between two checks, because COPY may wait for its
//! client for a long time, and VACUUM would wait for the page. Third, open relations belong to the resource owner of
//! the statement that opened them, and this module closes them under the same owner. After an error, the abort closes
//! them, and this module forgets them when Postgres frees the memory of the statement's savepoint.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum, Oid};

use super::index_read::{UsePlan, key_equals};
use super::target::Target;
use crate::pg::memory;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::session::clock;
use crate::pg::value::datum::Text;
use crate::pg::version;

/// Returns whether the row under a key has expired. Reads the row that an insertion of this key would find: the latest
/// version that is committed or the session's own. Like the insertion, waits for a transaction that is changing or
/// removing the row.
///
/// The caller holds the lock on the table under which the [`Target`] is valid. `written` is the table that the
/// statement writes: the target's table, or an ancestor of it.
pub fn has_expired(target: &Target, key: Text, written: Oid) -> Result<bool, UsePlan> {
    let key = target.key_datum(key);
    if let Some(kept) = Kept::of(target, written)? {
        return Ok(kept.look(target, key));
    }
    // SAFETY: one sequence of plain values, which closes the objects that it opens; after an error the abort does.
    let found = unsafe {
        guarded(|| {
            let probe = Probe::open(target)?;
            let expired = probe.look(target, key);
            probe.close();
            Some(expired)
        })
    };
    found.ok_or(UsePlan)
}

/// A table, the index of its key, and a scan of the index, all open.
#[derive(Clone, Copy)]
struct Probe {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    scan: pg_sys::IndexScanDesc,
    /// The scan's snapshot, in which the scan also reports the transaction that is changing a row.
    dirty: *mut pg_sys::SnapshotData,
}

/// The state of the row under a key.
#[derive(Clone, Copy)]
enum Latest {
    /// No row exists, or the row is live.
    InOrder,
    Expired,
    /// Another transaction is changing or removing the row.
    Changing(pg_sys::TransactionId),
}

impl Probe {
    /// Opens a probe in the current memory context. Returns None if the table no longer matches the target.
    ///
    /// # Safety
    /// Called inside `guarded`; the table is locked.
    unsafe fn open(target: &Target) -> Option<Probe> {
        // SAFETY: both relations exist, because the table is locked. The snapshot consists of a type and room for
        // results, in memory that lives as long as the scan's.
        unsafe {
            let table = unguarded::table_open(target.relation, pg_sys::NoLock as i32);
            let index = unguarded::index_open(target.index, pg_sys::AccessShareLock as i32);
            if target.value_type(table, index).is_none() {
                unguarded::index_close(index, pg_sys::AccessShareLock as i32);
                unguarded::table_close(table, pg_sys::NoLock as i32);
                return None;
            }
            let dirty: *mut pg_sys::SnapshotData = unguarded::MemoryContextAllocZero(
                pg_sys::CurrentMemoryContext,
                size_of::<pg_sys::SnapshotData>(),
            )
            .cast();
            (*dirty).snapshot_type = pg_sys::SnapshotType::SNAPSHOT_DIRTY;
            Some(Probe {
                table,
                index,
                slot: unguarded::MakeSingleTupleTableSlot(
                    (*table).rd_att,
                    unguarded::table_slot_callbacks(table),
                ),
                scan: version::index_beginscan(table, index, dirty),
                dirty,
            })
        }
    }

    /// # Safety
    /// Called inside `guarded`, under the resource owner that opened the probe; the caller does not use the probe
    /// afterwards.
    unsafe fn close(self) {
        // SAFETY: `open` opened each object, and the scan holds no page.
        unsafe {
            unguarded::index_endscan(self.scan);
            unguarded::ExecDropSingleTupleTableSlot(self.slot);
            self.let_go();
        }
    }

    /// Closes the probe after an error while its scan and slot were in use. Releases their references, but not their
    /// pages, which the abort has released, nor their memory, which belongs to the statement.
    ///
    /// # Safety
    /// The same as for `close`, except that the scan may have pages, which it no longer owns.
    unsafe fn abandon(self) {
        // SAFETY: `open` began the scan, which counts as a user of the index, and made the slot, which counts as a user
        // of the descriptor if the descriptor is counted.
        unsafe {
            unguarded::RelationDecrementReferenceCount(self.index);
            let row = (*self.slot).tts_tupleDescriptor;
            if (*row).tdrefcount >= 0 {
                unguarded::DecrTupleDescRefCount(row);
            }
            self.let_go();
        }
    }

    /// # Safety
    /// The same as for `close`; the scan has ended.
    unsafe fn let_go(self) {
        // SAFETY: `open` opened both relations.
        unsafe {
            unguarded::index_close(self.index, pg_sys::AccessShareLock as i32);
            unguarded::table_close(self.table, pg_sys::NoLock as i32);
        }
    }

    /// Returns whether the row under this key has expired.
    ///
    /// # Safety
    /// Called inside `guarded`; the probe is open.
    unsafe fn look(self, target: &Target, key: Datum) -> bool {
        // SAFETY: the probe is open; a wait begins only after `latest` has released its pages.
        unsafe {
            let mut found = self.latest(target, key);
            while let Latest::Changing(writer) = found {
                let none = pg_sys::XLTW_Oper::XLTW_None;
                unguarded::XactLockTableWait(writer, null_mut(), null_mut(), none);
                found = self.latest(target, key);
            }
            matches!(found, Latest::Expired)
        }
    }

    /// # Safety
    /// Called inside `guarded`; the probe is open.
    unsafe fn latest(self, target: &Target, key: Datum) -> Latest {
        // SAFETY: the probe is open, and the deadline column belongs to the table. A rescan releases the pages; so does
        // the scan when it finds no more rows.
        unsafe {
            let mut by_key = key_equals(target, key);
            unguarded::index_rescan(self.scan, &mut by_key, 1, null_mut(), 0);
            let forward = pg_sys::ScanDirection::ForwardScanDirection;
            // The loop may read two rows, because a row that another transaction is inserting may exist beside the row
            // that it replaces.
            while unguarded::index_getnext_slot(self.scan, forward, self.slot) {
                let mut latest = Latest::InOrder;
                if (*self.dirty).xmax != pg_sys::InvalidTransactionId {
                    latest = Latest::Changing((*self.dirty).xmax);
                } else if (*self.dirty).xmin == pg_sys::InvalidTransactionId
                    && let Some(deadline) = unguarded::column(self.slot, target.deadline)
                    && let Some(deadline) = target.deadline_form.read(deadline)
                    && deadline <= clock::now()
                {
                    latest = Latest::Expired;
                }
                unguarded::clear_slot(self.slot);
                if !matches!(latest, Latest::InOrder) {
                    unguarded::index_rescan(self.scan, &mut by_key, 1, null_mut(), 0);
                    return latest;
                }
            }
            Latest::InOrder
        }
    }
}

/// The objects that a running COPY keeps open. COPY statements may be nested.
struct Copying {
    number: usize,
    /// The table that COPY writes.
    table: Oid,
    owner: pg_sys::ResourceOwner,
    /// Ends with the statement, or with its savepoint.
    context: pg_sys::MemoryContext,
    probes: Vec<Kept>,
}

/// A probe that COPY keeps open.
#[derive(Clone, Copy)]
struct Kept {
    copy: usize,
    context: pg_sys::MemoryContext,
    relation: Oid,
    index: Oid,
    probe: Probe,
    /// Whether the probe is in use, or its last use ended in an error.
    looks: bool,
}

thread_local! {
    /// Never dropped, because Postgres owns the objects to which it points.
    static COPYING: ManuallyDrop<RefCell<Vec<Copying>>> = ManuallyDrop::default();
}

/// Runs `change` on the running COPYs and returns its result; None if called inside `change`, which pgcache never does.
fn with<R>(change: impl FnOnce(&mut Vec<Copying>) -> R) -> Option<R> {
    COPYING.with(|copying| Some(change(&mut *copying.try_borrow_mut().ok()?)))
}

/// Begins a COPY into this table. Returns its number for [`end`].
pub fn begin(table: Oid) -> usize {
    let number = with(|copying| copying.last().map_or(1, |last| last.number + 1)).unwrap_or(0);
    // SAFETY: the new context is a child of the savepoint's context; Postgres runs its callback before it deletes the
    // context.
    let (owner, context) = unsafe {
        let context = pg_sys::AllocSetContextCreateInternal(
            pg_sys::CurTransactionContext,
            c"pgcache looks of COPY".as_ptr(),
            pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
            pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let callback: *mut pg_sys::MemoryContextCallback =
            pg_sys::MemoryContextAllocZero(context, size).cast();
        (*callback).func = Some(forget);
        (*callback).arg = number as *mut c_void;
        pg_sys::MemoryContextRegisterResetCallback(context, callback);
        (pg_sys::CurrentResourceOwner, context)
    };
    with(|copying| {
        memory::push(
            copying,
            Copying {
                number,
                table,
                owner,
                context,
                probes: Vec::new(),
            },
        );
    });
    number
}

/// Ends a COPY that raised no error.
pub fn end(number: usize) {
    let Some(ended) = with(|copying| {
        let place = copying.iter().position(|copy| copy.number == number)?;
        Some(copying.remove(place))
    })
    .flatten() else {
        return;
    };
    for kept in &ended.probes {
        let (probe, looks) = (kept.probe, kept.looks);
        // SAFETY: the probe was opened under the resource owner of the statement, which is current again, and it is not
        // in use, because the statement has ended. After an error during a use, the scan refers to pages that it no
        // longer owns.
        unsafe {
            guarded(|| match looks {
                true => probe.abandon(),
                false => probe.close(),
            });
        }
    }
    // SAFETY: the context is the statement's own, and its objects are closed.
    unsafe { pg_sys::MemoryContextDelete(ended.context) };
}

/// Forgets a COPY. Postgres calls this before it frees the memory of the COPY.
unsafe extern "C-unwind" fn forget(number: *mut c_void) {
    with(|copying| copying.retain(|copy| copy.number != number as usize));
}

impl Kept {
    /// Returns the open probe of this table, which it opens for the COPY into the table if necessary. Returns None if
    /// no COPY into the table runs, if the probe is in use, or if the COPY is running another statement.
    fn of(target: &Target, written: Oid) -> Result<Option<Kept>, UsePlan> {
        let (relation, index) = (target.relation, target.index);
        let known = with(|copying| {
            let mut all = copying.iter().flat_map(|copy| &copy.probes);
            all.find(|kept| kept.relation == relation && kept.index == index)
                .copied()
        });
        if let Some(kept) = known.flatten() {
            return Ok((!kept.looks).then_some(kept));
        }
        // SAFETY: a variable of this process.
        let owner = unsafe { pg_sys::CurrentResourceOwner };
        let copy = with(|copying| {
            let last = copying.last()?;
            if last.owner != owner || last.table != written {
                return None;
            }
            Some((last.number, last.context))
        });
        let Some((copy, context)) = copy.flatten() else {
            return Ok(None);
        };
        // SAFETY: the probe's objects are allocated in the context of the statement; the former context is restored.
        let probe = unsafe {
            guarded(|| {
                let former = pg_sys::CurrentMemoryContext;
                pg_sys::CurrentMemoryContext = context;
                let probe = Probe::open(target);
                pg_sys::CurrentMemoryContext = former;
                probe
            })
        };
        let kept = Kept {
            copy,
            context,
            relation,
            index,
            probe: probe.ok_or(UsePlan)?,
            looks: false,
        };
        with(|copying| {
            if let Some(copy) = copying.last_mut() {
                memory::push(&mut copy.probes, kept);
            }
        });
        Ok(Some(kept))
    }

    fn look(self, target: &Target, key: Datum) -> bool {
        self.set_looks(true);
        // SAFETY: the probe is open, because `of` returned it; an error leaves it marked as in use. A scan keeps
        // allocations between uses, such as a list of dead entries, so they must be in the statement's memory, too.
        let expired = unsafe {
            guarded(|| {
                let former = pg_sys::CurrentMemoryContext;
                pg_sys::CurrentMemoryContext = self.context;
                let expired = self.probe.look(target, key);
                pg_sys::CurrentMemoryContext = former;
                expired
            })
        };
        self.set_looks(false);
        expired
    }

    fn set_looks(self, looks: bool) {
        with(|copying| {
            let copy = copying.iter_mut().find(|copy| copy.number == self.copy);
            let kept = copy.and_then(|copy| {
                let mut probes = copy.probes.iter_mut();
                probes.find(|kept| kept.relation == self.relation && kept.index == self.index)
            });
            if let Some(kept) = kept {
                kept.looks = looks;
            }
        });
    }
}
