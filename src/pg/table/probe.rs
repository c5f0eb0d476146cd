//! The look whether an expired row is in the way of a key, and the scan for it that COPY keeps open.
//!
//! One look by itself opens the table and its index, makes a slot and a scan, and lets all of it go: more
//! than half of its time. COPY asks for each of its rows, so what it opens stays until it has ended.
//!
//! Guards three rules. Only what COPY itself has open stays so: what its triggers write besides they may
//! also truncate, alter or drop, which Postgres refuses where the session has it open. Between two looks no page is pinned: COPY may wait for its client, and VACUUM would
//! wait for the page. And what is open belongs to the statement that has opened it: it is closed under the
//! resource owner that it was opened under, and forgotten with the memory of the statement's savepoint,
//! which an error takes away; then the abort has closed it.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum, Oid};

use super::read::{UsePlan, key_equals};
use super::target::Target;
use crate::pg::memory;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::session::clock;
use crate::pg::value::datum::Text;
use crate::pg::version;

/// Whether the row under a key has expired, as whoever inserts that key finds it: the latest version,
/// committed or our own. Somebody who changes or removes it is waited for, as the insertion would.
///
/// The caller holds the lock on the table that makes the [`Target`] true. `written` is what the statement writes:
/// the table, or one that it is a partition of.
pub fn has_expired(target: &Target, key: Text, written: Oid) -> Result<bool, UsePlan> {
    let key = target.key_datum(key);
    if let Some(kept) = Kept::of(target, written)? {
        return Ok(kept.look(target, key));
    }
    // SAFETY: one sequence of plain values: what is opened is closed in it, or by the abort after an error.
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

/// A table, the index of its key and a scan of that, open.
#[derive(Clone, Copy)]
struct Probe {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    scan: pg_sys::IndexScanDesc,
    /// What the scan sees, and where it says who is changing a row.
    dirty: *mut pg_sys::SnapshotData,
}

/// What there is under a key.
#[derive(Clone, Copy)]
enum Latest {
    /// Nothing, or a row that is live.
    InOrder,
    Expired,
    /// A row that another transaction is changing or removing.
    Changing(pg_sys::TransactionId),
}

impl Probe {
    /// In the current memory context. None where the table is no longer what the target says.
    ///
    /// # Safety
    /// Inside of `guarded`; the table is locked.
    unsafe fn open(target: &Target) -> Option<Probe> {
        // SAFETY: both relations exist, since the table is locked. The snapshot is a type and room for
        // answers, in memory that lives as long as the scan's own.
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
    /// Inside of `guarded`, under the resource owner that it was opened under; it is not used any more.
    unsafe fn close(self) {
        // SAFETY: each was opened by `open`, and the scan holds no page.
        unsafe {
            unguarded::index_endscan(self.scan);
            unguarded::ExecDropSingleTupleTableSlot(self.slot);
            self.let_go();
        }
    }

    /// The same where an error has left the scan and the slot as they were: what they hold besides pages goes,
    /// and their memory is the statement's.
    ///
    /// # Safety
    /// As for `close`, but that the scan may have pages, which are not its own any more.
    unsafe fn abandon(self) {
        // SAFETY: `open` has begun the scan, which counts as a user of the index, and made the slot, which is
        // one of the descriptor where that counts any.
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
    /// As for `close`; the scan has ended.
    unsafe fn let_go(self) {
        // SAFETY: both were opened by `open`.
        unsafe {
            unguarded::index_close(self.index, pg_sys::AccessShareLock as i32);
            unguarded::table_close(self.table, pg_sys::NoLock as i32);
        }
    }

    /// Whether the row under this key has expired.
    ///
    /// # Safety
    /// Inside of `guarded`; it is open.
    unsafe fn look(self, target: &Target, key: Datum) -> bool {
        // SAFETY: it is open; a wait begins only after `latest` has let go of its pages.
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
    /// Inside of `guarded`; it is open.
    unsafe fn latest(self, target: &Target, key: Datum) -> Latest {
        // SAFETY: it is open, and the column of the deadline is one of the table's. To begin anew lets go of
        // the pages, which the scan itself does where it has come to its end.
        unsafe {
            let mut by_key = key_equals(target, key);
            unguarded::index_rescan(self.scan, &mut by_key, 1, null_mut(), 0);
            let forward = pg_sys::ScanDirection::ForwardScanDirection;
            // A row that somebody else is inserting may stand beside the one that it replaces.
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

/// What the COPY statements that run now keep open, one inside of the other.
struct Copying {
    number: usize,
    /// The table that it writes.
    table: Oid,
    owner: pg_sys::ResourceOwner,
    /// Ends with the statement, or with its savepoint.
    context: pg_sys::MemoryContext,
    probes: Vec<Kept>,
}

/// A probe that is kept open.
#[derive(Clone, Copy)]
struct Kept {
    copy: usize,
    context: pg_sys::MemoryContext,
    relation: Oid,
    index: Oid,
    probe: Probe,
    /// It looks just now, or an error has ended its last look.
    looks: bool,
}

thread_local! {
    /// Never dropped: what it points to is Postgres'.
    static COPYING: ManuallyDrop<RefCell<Vec<Copying>>> = ManuallyDrop::default();
}

/// Nothing is called while it is borrowed that could come back here.
fn with<R>(change: impl FnOnce(&mut Vec<Copying>) -> R) -> Option<R> {
    COPYING.with(|copying| Some(change(&mut *copying.try_borrow_mut().ok()?)))
}

/// A COPY into this table begins; the number is for [`end`].
pub fn begin(table: Oid) -> usize {
    let number = with(|copying| copying.last().map_or(1, |last| last.number + 1)).unwrap_or(0);
    // SAFETY: a context below that of the savepoint, with a callback in it: whatever deletes it calls that
    // first.
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

/// It has ended without an error.
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
        // SAFETY: opened under the resource owner of the statement, which is current again, and nobody
        // looks: the statement is over. An error in a look has left the scan with pages that are not its
        // own any more.
        unsafe {
            guarded(|| match looks {
                true => probe.abandon(),
                false => probe.close(),
            });
        }
    }
    // SAFETY: the context is the statement's own, and what was in it is closed.
    unsafe { pg_sys::MemoryContextDelete(ended.context) };
}

/// The memory of a COPY goes.
unsafe extern "C-unwind" fn forget(number: *mut c_void) {
    with(|copying| copying.retain(|copy| copy.number != number as usize));
}

impl Kept {
    /// The probe of this table that is open already, or that the COPY into it may open now; None where there
    /// is no such COPY, or it runs something else.
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
        // SAFETY: what it opens is in the context of the statement; the current one comes back.
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
        // SAFETY: it is open, as `of` has found it; an error leaves it marked. A scan keeps what it
        // allocates while it looks, such as a list of dead entries: so that is in the statement's memory, too.
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
