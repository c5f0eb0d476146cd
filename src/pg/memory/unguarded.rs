//! Declares Postgres functions without pgrx's guard around each call, and runs a sequence of calls under one guard.
//!
//! pgrx's guard calls `sigsetjmp` for every call. A table access makes some forty calls, so one guard around the whole
//! sequence saves most of this cost. All such sequences run in [`guarded`], and three rules keep it sound:
//!
//! 1. A sequence holds nothing that must be dropped, because an error jumps over its stack frames.
//! 2. It calls only functions of the list below, or functions through Postgres' own tables of functions, and no
//!    function that pgrx guards. It cannot panic, so it contains no indexing, no unwrap and no arithmetic that may
//!    overflow.
//! 3. It opens only Postgres objects (relations, scans, pins, locks), which the abort after an error releases.

use pgrx::pg_sys::{self, *};

unsafe extern "C-unwind" {
    // Transactions, snapshots, waiting.
    pub fn CommandCounterIncrement();
    pub fn GetCurrentCommandId(used: bool) -> CommandId;
    pub fn GetCurrentTransactionId() -> TransactionId;
    pub fn GetTransactionSnapshot() -> Snapshot;
    pub fn RegisterSnapshot(snapshot: Snapshot) -> Snapshot;
    pub fn UnregisterSnapshot(snapshot: Snapshot);
    pub fn ActiveSnapshotSet() -> bool;
    pub fn IsInParallelMode() -> bool;
    pub fn TransactionIdIsCurrentTransactionId(xid: TransactionId) -> bool;
    pub fn ProcessInterrupts();
    pub fn XactLockTableWait(
        xid: TransactionId,
        relation: Relation,
        tid: ItemPointer,
        why: XLTW_Oper::Type,
    );
    pub fn SpeculativeInsertionLockAcquire(xid: TransactionId) -> u32;
    pub fn SpeculativeInsertionLockRelease(xid: TransactionId);
    pub fn SpeculativeInsertionWait(xid: TransactionId, token: u32);

    // Relations and slots.
    pub fn standard_ProcessUtility(
        statement: *mut PlannedStmt,
        text: *const std::ffi::c_char,
        read_only: bool,
        context: ProcessUtilityContext::Type,
        parameters: ParamListInfo,
        environment: *mut QueryEnvironment,
        receiver: *mut DestReceiver,
        completion: *mut QueryCompletion,
    );
    pub fn RelationIdGetRelation(relation: Oid) -> Relation;
    pub fn RelationClose(relation: Relation);
    pub fn RelationDecrementReferenceCount(relation: Relation);
    pub fn DecrTupleDescRefCount(descriptor: TupleDesc);
    pub fn table_open(relation: Oid, lock: LOCKMODE) -> Relation;
    pub fn table_close(relation: Relation, lock: LOCKMODE);
    pub fn index_open(relation: Oid, lock: LOCKMODE) -> Relation;
    pub fn index_close(relation: Relation, lock: LOCKMODE);
    pub fn table_slot_callbacks(relation: Relation) -> *const TupleTableSlotOps;
    pub fn MakeSingleTupleTableSlot(
        descriptor: TupleDesc,
        kind: *const TupleTableSlotOps,
    ) -> *mut TupleTableSlot;
    pub fn ExecDropSingleTupleTableSlot(slot: *mut TupleTableSlot);
    pub fn ExecStoreVirtualTuple(slot: *mut TupleTableSlot) -> *mut TupleTableSlot;
    pub fn SPI_gettypeid(descriptor: TupleDesc, attribute: i32) -> Oid;
    pub fn slot_getsomeattrs_int(slot: *mut TupleTableSlot, attributes: i32);
    pub fn pg_detoast_datum_copy(varlena: *mut varlena) -> *mut varlena;

    // Index scans. The function that begins a scan differs by version, so it is in `pg::version`.
    pub fn ScanKeyInit(
        entry: ScanKey,
        attribute: AttrNumber,
        strategy: StrategyNumber,
        procedure: RegProcedure,
        argument: Datum,
    );
    pub fn index_rescan(
        scan: IndexScanDesc,
        keys: ScanKey,
        number_of_keys: i32,
        orderings: ScanKey,
        number_of_orderings: i32,
    );
    pub fn index_getnext_slot(
        scan: IndexScanDesc,
        direction: ScanDirection::Type,
        slot: *mut TupleTableSlot,
    ) -> bool;
    pub fn index_endscan(scan: IndexScanDesc);

    pub fn heap_finish_speculative(table: Relation, tid: ItemPointer);
    pub fn heap_abort_speculative(table: Relation, tid: ItemPointer);

    // The executor's part of an insertion. The function that makes index entries differs by version, so it is in
    // `pg::version`.
    pub fn CreateExecutorState() -> *mut EState;
    pub fn FreeExecutorState(state: *mut EState);
    pub fn InitResultRelInfo(
        result: *mut ResultRelInfo,
        relation: Relation,
        range_table_index: Index,
        root: *mut ResultRelInfo,
        instrument: i32,
    );
    pub fn ExecOpenIndices(result: *mut ResultRelInfo, speculative: bool);
    pub fn ExecCloseIndices(result: *mut ResultRelInfo);
    pub fn check_functions_in_node(
        node: *mut Node,
        checker: check_function_callback,
        context: *mut std::ffi::c_void,
    ) -> bool;
    pub fn func_volatile(function: Oid) -> std::ffi::c_char;
    pub fn datum_image_eq(one: Datum, other: Datum, by_value: bool, length: i32) -> bool;
    pub fn MemoryContextRegisterResetCallback(
        context: MemoryContext,
        callback: *mut MemoryContextCallback,
    );
    pub fn MemoryContextReset(context: MemoryContext);
    pub fn MemoryContextAllocZero(context: MemoryContext, size: Size) -> *mut std::ffi::c_void;
}

/// Runs a sequence of unguarded calls under one guard, which turns a Postgres error into a pgrx panic.
///
/// # Safety
/// The sequence must follow the rules of this file. The bound `Copy` keeps the sequence from returning anything that
/// must be dropped.
#[inline(always)]
pub unsafe fn guarded<R: Copy>(sequence: impl FnOnce() -> R) -> R {
    // SAFETY: the caller follows the rules of this file: no frame that an error jumps over holds anything to drop,
    // which is the requirement of pgrx's guard.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(sequence) }
}

/// Makes the session's earlier changes visible to its next read. Does nothing in parallel mode, because the session has
/// changed nothing since parallel mode began, even if the enclosing statement writes (`CREATE TABLE ... AS SELECT`).
///
/// # Safety
/// Called inside [`guarded`].
#[inline(always)]
pub unsafe fn see_own_writes() {
    // SAFETY: both functions are in the list of this file, so `guarded` may contain them; outside parallel mode a
    // command may begin.
    unsafe {
        if !IsInParallelMode() {
            CommandCounterIncrement();
        }
    }
}

/// Raises an error if the statement was cancelled or has timed out.
///
/// # Safety
/// Called inside [`guarded`], with no lightweight lock held.
#[inline(always)]
pub unsafe fn check_for_interrupts() {
    // SAFETY: signal handlers of this process write the flag, so the read is volatile; the call may raise inside the
    // caller's `guarded`.
    unsafe {
        if (&raw const InterruptPending).read_volatile() != 0 {
            ProcessInterrupts();
        }
    }
}

/// Empties a slot, which unpins the page of its row.
///
/// # Safety
/// Called inside [`guarded`]; the slot exists.
#[inline(always)]
pub unsafe fn clear_slot(slot: *mut TupleTableSlot) {
    // SAFETY: every kind of slot has its functions, `clear` among them.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
    }
}

/// Copies a slot's row into the slot's own memory, which unpins the row's page.
///
/// # Safety
/// Called inside [`guarded`]; the slot holds a row.
#[inline(always)]
pub unsafe fn materialize_slot(slot: *mut TupleTableSlot) {
    // SAFETY: every kind of slot has its functions, `materialize` among them.
    unsafe {
        if let Some(materialize) = (*(*slot).tts_ops).materialize {
            materialize(slot);
        }
    }
}

/// Returns the column with this number, from 1, of the row in a slot; None means NULL.
///
/// # Safety
/// Called inside [`guarded`]; the slot holds a row of a table that has this column. The datum is valid while the slot
/// holds the row.
#[inline(always)]
pub unsafe fn column(slot: *mut TupleTableSlot, number: i16) -> Option<Datum> {
    // SAFETY: the arrays have as many elements as the table has columns; the first `number` are set
    // after the call.
    unsafe {
        if (*slot).tts_nvalid < number {
            slot_getsomeattrs_int(slot, i32::from(number));
        }
        let at = number as usize - 1;
        match *(*slot).tts_isnull.add(at) {
            true => None,
            false => Some(*(*slot).tts_values.add(at)),
        }
    }
}

/// Returns whether the row in a slot was written by the transaction or one of its savepoints.
///
/// # Safety
/// Called inside [`guarded`]; the slot holds a row of a table.
#[inline(always)]
pub unsafe fn is_own(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: a slot of a table's row has the row's system columns; xmin is never NULL.
    unsafe {
        let mut null = false;
        (*(*slot).tts_ops).getsysattr.is_some_and(|column| {
            let xmin = column(slot, MinTransactionIdAttributeNumber, &mut null);
            TransactionIdIsCurrentTransactionId(TransactionId::from_inner(xmin.value() as u32))
        })
    }
}
