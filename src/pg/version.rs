//! Every difference between the Postgres versions, under one name each.

use std::ffi::c_void;

use pgrx::pg_sys;

/// Postgres' number of AddinShmemInitLock: lwlocknames.txt in 15 and 16, lwlocklist.h in 17 and 18.
pub const ADDIN_SHMEM_INIT_LOCK: usize = 21;

/// Whether `role` owns the relation or has the owner's rights.
///
/// # Safety
/// A syscache look-up: a transaction must be open.
pub unsafe fn owns_relation(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: the caller's transaction is open.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::pg_class_ownercheck(relation, role)
    }
    // SAFETY: the caller's transaction is open.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, role)
    }
}

/// Whether the transaction has given an open relation another file, as TRUNCATE does.
///
/// # Safety
/// `relation` must be open.
pub unsafe fn has_new_file(relation: pg_sys::Relation) -> bool {
    // SAFETY: a plain field of an open relation.
    #[cfg(feature = "pg15")]
    let since = unsafe { (*relation).rd_newRelfilenodeSubid };
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    let since = unsafe { (*relation).rd_newRelfilelocatorSubid };
    since != 0 // InvalidSubTransactionId
}

/// Has a trigger fire in all sessions, those of partitions not included.
///
/// # Safety
/// `relation` must be open and locked.
pub unsafe fn enable_always(relation: pg_sys::Relation, trigger: &std::ffi::CStr) {
    let (name, fires) = (trigger.as_ptr(), pg_sys::TRIGGER_FIRES_ALWAYS as i8 as _);
    let lock = pg_sys::ShareRowExclusiveLock as i32;
    // SAFETY: the relation is open and locked, by the caller's word; the name is only read.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::EnableDisableTriggerNew(relation, name, fires, true, false, lock)
    }
    // SAFETY: as above; of any parent, which InvalidOid says.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::EnableDisableTrigger(relation, name, pg_sys::InvalidOid, fires, true, false, lock)
    }
}

/// Empties tables that are open; no other table that refers to them, and no sequence.
///
/// # Safety
/// The lists are of relations, of their oids, and of those that are logically logged. Each is
/// locked as TRUNCATE locks it, and not in use.
pub unsafe fn truncate(
    relations: *mut pg_sys::List,
    oids: *mut pg_sys::List,
    logged: *mut pg_sys::List,
) {
    let restrict = pg_sys::DropBehavior::DROP_RESTRICT;
    // SAFETY: as the caller says.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::ExecuteTruncateGuts(relations, oids, logged, restrict, false)
    }
    // SAFETY: as the caller says. Who is to be the user has been seen to.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::ExecuteTruncateGuts(relations, oids, logged, restrict, false, false)
    }
}

/// Sets a signal's handler.
///
/// # Safety
/// The handler must do nothing but what a signal handler may.
pub unsafe fn on_signal(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    #[cfg(not(feature = "pg18"))]
    use pg_sys::pqsignal as set;
    #[cfg(feature = "pg18")]
    use pg_sys::pqsignal_be as set;
    // SAFETY: the handler does only what a signal handler may, by the caller's word.
    unsafe { set(signal as i32, Some(handler)) };
}

/// Runs the exit callbacks and ends the process.
///
/// # Safety
/// Between statements of a process of ours: nothing that Rust would have to drop is alive.
pub unsafe fn proc_exit(code: i32) -> ! {
    // The headers of 18 say noreturn in a way that the bindings do not carry over.
    #[cfg_attr(
        not(feature = "pg18"),
        expect(unreachable_code, reason = "the bindings know it")
    )]
    // SAFETY: the caller has nothing alive that Rust would have to drop, so the exit may jump over
    // all frames.
    unsafe {
        pg_sys::proc_exit(code);
        std::process::abort()
    }
}

/// What pg_stat_activity shows while one of our processes waits for its time.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn idle_wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// What pg_stat_activity shows while one of our processes waits for its time: a name of our own.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn idle_wait_event() -> u32 {
    thread_local! {
        // SAFETY: gives the number of a name, and makes it where it is new.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(c"PgcacheSweep".as_ptr()) };
    }
    EVENT.with(|event| *event)
}

/// Asks for what a wait event's name needs; in the hook that requests shared memory.
///
/// Before 17 an extension cannot name its wait events, but it can name locks: the name of a tranche
/// with one lock that nobody takes is shown, as a wait event of type LWLock.
///
/// # Safety
/// Called in shmem_request_hook.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn request_wait_event(name: &'static std::ffi::CStr) {
    // SAFETY: in shmem_request_hook tranches may be requested; the name is copied.
    unsafe { pg_sys::RequestNamedLWLockTranche(name.as_ptr(), 1) };
}

/// Nothing is needed from 17 on.
///
/// # Safety
/// None needed; the same signature as for the versions before.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn request_wait_event(_name: &'static std::ffi::CStr) {}

/// The wait event of that name.
///
/// # Safety
/// Called in shmem_startup_hook, after `request_wait_event`.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn wait_event(name: &'static std::ffi::CStr) -> u32 {
    // SAFETY: the tranche was requested, so it has its one lock.
    let tranche = unsafe { (*pg_sys::GetNamedLWLockTranche(name.as_ptr())).lock.tranche };
    pg_sys::PG_WAIT_LWLOCK | u32::from(tranche)
}

/// The wait event of that name.
///
/// # Safety
/// Called in shmem_startup_hook.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn wait_event(name: &'static std::ffi::CStr) -> u32 {
    // SAFETY: in shmem_startup_hook shared memory is there, into which the name is copied.
    unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) }
}

/// The index of the primary key, unless that is deferrable.
///
/// # Safety
/// `relation` must be open.
pub unsafe fn primary_key_index(relation: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: the caller's relation is open; the list of its indexes is made in Postgres' own
    // memory.
    #[cfg(not(feature = "pg18"))]
    unsafe {
        pg_sys::RelationGetPrimaryKeyIndex(relation)
    }
    // SAFETY: the caller's relation is open; the list of its indexes is made in Postgres' own
    // memory.
    #[cfg(feature = "pg18")]
    unsafe {
        pg_sys::RelationGetPrimaryKeyIndex(relation, false)
    }
}

/// Puts the expressions of virtual generated columns in their place; `row` is the number by which
/// the expression's variables speak of a row of the table.
///
/// # Safety
/// `relation` must be open; `node` is an expression in the current memory context.
pub unsafe fn expand_generated(
    node: *mut pg_sys::Node,
    relation: pg_sys::Relation,
    row: u32,
) -> *mut pg_sys::Node {
    #[cfg(not(feature = "pg18"))]
    let _ = (relation, row); // all generated columns are stored
    #[cfg(feature = "pg18")]
    // SAFETY: the relation is open, so its columns' expressions are there; the result is made in
    // the current memory context, as the node was.
    let node = unsafe { pg_sys::expand_generated_columns_in_expr(node, relation, row as i32) };
    node
}

/// A restriction of a relation that it has by itself, wherever it stands in the query's joins.
///
/// # Safety
/// `root` is the planner's, `clause` an expression over one of its relations.
pub unsafe fn restriction(
    root: *mut pg_sys::PlannerInfo,
    clause: *mut pg_sys::Expr,
    security_level: pg_sys::Index,
) -> *mut pg_sys::RestrictInfo {
    use std::ptr::null_mut;
    // SAFETY: the planner's own nodes; relations that are not given are none, or asked of the
    // clause.
    unsafe {
        pg_sys::make_restrictinfo(
            root,
            clause,
            true,
            false,
            false,
            #[cfg(not(feature = "pg15"))]
            false,
            security_level,
            null_mut(),
            null_mut(),
            null_mut(),
        )
    }
}

/// Whether a column is computed when it is read, so that no row holds it.
pub fn is_virtual(column: &pg_sys::FormData_pg_attribute) -> bool {
    #[cfg(not(feature = "pg18"))]
    let _ = column;
    #[cfg(not(feature = "pg18"))]
    return false;
    #[cfg(feature = "pg18")]
    return column.attgenerated == pg_sys::ATTRIBUTE_GENERATED_VIRTUAL as i8;
}

/// By what a table is partitioned: Postgres' PartitionKeyData, of which pgrx has no declaration.
#[repr(C)]
struct PartitionKeyData {
    #[cfg(feature = "pg15")]
    strategy: std::ffi::c_char,
    #[cfg(not(feature = "pg15"))]
    strategy: u32,
    partnatts: i16,
    partattrs: *mut pg_sys::AttrNumber,
    partexprs: *mut pg_sys::List,
    partopfamily: *mut pg_sys::Oid,
    partopcintype: *mut pg_sys::Oid,
    partsupfunc: *mut pg_sys::FmgrInfo,
    partcollation: *mut pg_sys::Oid,
    parttypid: *mut pg_sys::Oid,
    parttypmod: *mut i32,
    // What follows nobody here asks for.
}

/// What is asked of it. Each array has an element for each column.
#[derive(Clone, Copy)]
pub struct PartitionKey {
    pub columns: i16,
    /// The number of the first column; 0 for an expression.
    pub column: pg_sys::AttrNumber,
    /// The types and modifiers of the columns.
    pub kind: *const pg_sys::Oid,
    pub modifier: *const i32,
    /// By which they are hashed or compared.
    pub functions: *mut pg_sys::FmgrInfo,
    pub collations: *mut pg_sys::Oid,
}

/// By what a table is partitioned; None for one that has no partitions.
///
/// # Safety
/// `relation` must be open, for as long as the result is used.
pub unsafe fn partition_key(relation: pg_sys::Relation) -> Option<PartitionKey> {
    unsafe extern "C-unwind" {
        fn RelationGetPartitionKey(relation: pg_sys::Relation) -> *const PartitionKeyData;
    }
    // SAFETY: the relation is open; the key is its own, and stays as long. The first call builds it, and may raise.
    unsafe {
        let key = pg_sys::ffi::pg_guard_ffi_boundary(|| RelationGetPartitionKey(relation));
        if key.is_null() || (*key).partnatts < 1 {
            return None;
        }
        Some(PartitionKey {
            columns: (*key).partnatts,
            column: *(*key).partattrs,
            kind: (*key).parttypid,
            modifier: (*key).parttypmod,
            functions: (*key).partsupfunc,
            collations: (*key).partcollation,
        })
    }
}

/// Unguarded forms of functions whose arguments differ; see `memory::unguarded` for the rules.
mod differing {
    use pgrx::pg_sys::*;

    unsafe extern "C-unwind" {
        pub fn index_beginscan(
            table: Relation,
            index: Relation,
            snapshot: Snapshot,
            #[cfg(feature = "pg18")] instrument: *mut IndexScanInstrumentation,
            keys: i32,
            orderings: i32,
        ) -> IndexScanDesc;
        pub fn ExecInsertIndexTuples(
            result: *mut ResultRelInfo,
            slot: *mut TupleTableSlot,
            state: *mut EState,
            update: bool,
            no_duplicate_error: bool,
            conflict: *mut bool,
            arbiters: *mut List,
            #[cfg(not(feature = "pg15"))] only_summarizing: bool,
        ) -> *mut List;
    }
}

unsafe extern "C-unwind" {
    /// Calls `walker` for what is right below a node, until it says true; inside of
    /// `unguarded::guarded`.
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
    pub fn expression_tree_walker(
        node: *mut pg_sys::Node,
        walker: Option<unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool>,
        context: *mut c_void,
    ) -> bool;
}

/// Begins a scan with one key.
///
/// # Safety
/// Inside of `unguarded::guarded`; the relations are open, the snapshot outlives the scan.
#[inline(always)]
pub unsafe fn index_beginscan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
) -> pg_sys::IndexScanDesc {
    // SAFETY: the caller is inside of `guarded`; both relations are open and the snapshot outlives
    // the scan. From 18 on NULL: nobody counts what the scan does.
    unsafe {
        differing::index_beginscan(
            table,
            index,
            snapshot,
            #[cfg(feature = "pg18")]
            std::ptr::null_mut(),
            1,
            0,
        )
    }
}

/// Which indexes an update must enter the new row into: a flag, or from 16 on one of three cases.
#[cfg(feature = "pg15")]
pub type UpdateIndexes = bool;
/// Which indexes an update must enter the new row into: a flag, or from 16 on one of three cases.
#[cfg(not(feature = "pg15"))]
pub type UpdateIndexes = pg_sys::TU_UpdateIndexes::Type;

/// Whether an update must enter the new row into any index.
pub fn enters_indexes(which: UpdateIndexes) -> bool {
    #[cfg(feature = "pg15")]
    return which;
    #[cfg(not(feature = "pg15"))]
    return which != pg_sys::TU_UpdateIndexes::TU_None;
}

/// Whether the new row is in the old one's page, and only summarizing indexes know it (HOT).
pub fn stays_in_page(which: UpdateIndexes) -> bool {
    #[cfg(feature = "pg15")]
    return !which;
    #[cfg(not(feature = "pg15"))]
    return which != pg_sys::TU_UpdateIndexes::TU_All;
}

/// Enters a row that was inserted speculatively; false when somebody else has its key.
///
/// # Safety
/// Inside of `unguarded::guarded`; `result` has its indexes open, `slot` the row and its place.
pub unsafe fn enter_inserted(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
) -> bool {
    let mut conflict = false;
    // SAFETY: the caller is inside of `guarded`; the indexes of `result` are open, the slot holds
    // the row and its place, and `conflict` lives through the call.
    unsafe {
        differing::ExecInsertIndexTuples(
            result,
            slot,
            state,
            false,
            true,
            &mut conflict,
            std::ptr::null_mut(),
            #[cfg(not(feature = "pg15"))]
            false,
        );
    }
    !conflict
}

/// Enters the new version of a row that was updated.
///
/// # Safety
/// Inside of `unguarded::guarded`; as in `enter_inserted`.
pub unsafe fn enter_updated(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
    _which: UpdateIndexes,
) {
    // SAFETY: the caller is inside of `guarded`; the indexes of `result` are open, and the slot
    // holds the new version and its place. No index is asked to report a conflict, so NULL is never
    // written to.
    unsafe {
        differing::ExecInsertIndexTuples(
            result,
            slot,
            state,
            true,
            false,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            #[cfg(not(feature = "pg15"))]
            {
                _which == pg_sys::TU_UpdateIndexes::TU_Summarizing
            },
        );
    }
}

/// The processes that hold a lock in a mode which conflicts with this one.
pub fn holders_in_the_way(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> Vec<i32> {
    let mut processes = Vec::new();
    // SAFETY: the list ends with an invalid id; whose process has ended meanwhile has none.
    unsafe {
        let mut next = pg_sys::GetLockConflicts(tag, mode, std::ptr::null_mut());
        while (*next).localTransactionId != pg_sys::InvalidLocalTransactionId {
            let holder = process_of(&*next);
            if !holder.is_null() {
                processes.push((*holder).pid);
            }
            next = next.add(1);
        }
    }
    processes
}

/// Whether a transaction that was prepared before the server's start holds a lock in a mode which
/// conflicts with this one.
pub fn has_recovered_holder(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> bool {
    // SAFETY: as in `holders_in_the_way`; the list is this caller's to free.
    unsafe {
        let first = pg_sys::GetLockConflicts(tag, mode, std::ptr::null_mut());
        let (mut next, mut found) = (first, false);
        while !found && (*next).localTransactionId != pg_sys::InvalidLocalTransactionId {
            found = is_recovered(&*next);
            next = next.add(1);
        }
        pg_sys::pfree(first.cast());
        found
    }
}

/// Of a transaction that the start has taken over nobody knows which session it was of.
#[cfg(any(feature = "pg15", feature = "pg16"))]
fn is_recovered(id: &pg_sys::VirtualTransactionId) -> bool {
    id.backendId == pg_sys::InvalidBackendId
}

/// Of a transaction that the start has taken over nobody knows which session it was of.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn is_recovered(id: &pg_sys::VirtualTransactionId) -> bool {
    id.procNumber == pg_sys::INVALID_PROC_NUMBER
}

/// The oldest transaction of which the log of commits knows how it has ended.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn oldest_in_log() -> u32 {
    // SAFETY: in shared memory for as long as the server lives; a word that is read at once.
    unsafe { (&raw const (*pg_sys::ShmemVariableCache).oldestClogXid).read_volatile() }.into_inner()
}

/// The oldest transaction of which the log of commits knows how it has ended.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn oldest_in_log() -> u32 {
    // SAFETY: in shared memory for as long as the server lives; a word that is read at once.
    unsafe { (&raw const (*pg_sys::TransamVariables).oldestClogXid).read_volatile() }.into_inner()
}

/// # Safety
/// What it gives is looked at at once.
#[cfg(any(feature = "pg15", feature = "pg16"))]
unsafe fn process_of(id: &pg_sys::VirtualTransactionId) -> *mut pg_sys::PGPROC {
    unsafe extern "C-unwind" {
        fn BackendIdGetProc(backend: std::ffi::c_int) -> *mut pg_sys::PGPROC;
    }
    // SAFETY: any number may be asked for; this raises no error.
    unsafe { BackendIdGetProc(id.backendId) }
}

/// # Safety
/// What it gives is looked at at once.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
unsafe fn process_of(id: &pg_sys::VirtualTransactionId) -> *mut pg_sys::PGPROC {
    unsafe extern "C-unwind" {
        fn ProcNumberGetProc(number: std::ffi::c_int) -> *mut pg_sys::PGPROC;
    }
    // SAFETY: any number may be asked for; this raises no error.
    unsafe { ProcNumberGetProc(id.procNumber) }
}

/// Takes a lock if it is free, and gives its entry in this process.
///
/// # Safety
/// `local` takes the entry, which is there as long as the lock is held.
pub unsafe fn try_lock(
    tag: &pg_sys::LOCKTAG,
    mode: pg_sys::LOCKMODE,
    local: &mut *mut pg_sys::LOCALLOCK,
) -> pg_sys::LockAcquireResult::Type {
    // SAFETY: the tag is copied; with `dontWait` nobody is waited for; `local` lives through the
    // call, which puts the entry of a lock there that this process now holds.
    unsafe {
        pg_sys::LockAcquireExtended(
            tag,
            mode,
            false,
            true,
            false,
            local,
            #[cfg(feature = "pg18")]
            false,
        )
    }
}

/// Whether the transaction has a lock in this very mode.
pub fn has_lock(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> bool {
    // SAFETY: reads this process' own table of locks by a tag that lives through the call.
    unsafe {
        pg_sys::LockHeldByMe(
            tag,
            mode,
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            false,
        )
    }
}

/// A set of so many things to wait for, which lives as long as the process.
///
/// # Safety
/// In a process whose memory contexts are there.
pub unsafe fn wait_event_set(room: i32) -> *mut pg_sys::WaitEventSet {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: made in the memory context that is never freed.
    unsafe {
        pg_sys::CreateWaitEventSet(pg_sys::TopMemoryContext, room)
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: without an owner it stays until somebody frees it.
    unsafe {
        pg_sys::CreateWaitEventSet(std::ptr::null_mut(), room)
    }
}

/// What pg_stat_activity shows while a process of the Redis protocol has nothing to do.
pub const RESP_WAIT_EVENT: &std::ffi::CStr = c"PgcacheResp";

/// The wait event of that name; only where it was asked for at the start.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn resp_wait_event() -> u32 {
    thread_local! {
        // SAFETY: the tranche was requested, and shared memory is there: this is a process of the
        // Redis protocol.
        static EVENT: u32 = unsafe { wait_event(RESP_WAIT_EVENT) };
    }
    EVENT.with(|event| *event)
}

/// The wait event of that name.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn resp_wait_event() -> u32 {
    thread_local! {
        // SAFETY: gives the number of a name, and makes it where it is new.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(RESP_WAIT_EVENT.as_ptr()) };
    }
    EVENT.with(|event| *event)
}

/// Whether a role may connect to a database.
///
/// # Safety
/// A syscache look-up: a transaction must be open.
pub unsafe fn may_connect(role: pg_sys::Oid, database: pg_sys::Oid) -> bool {
    let mode = pg_sys::ACL_CONNECT as pg_sys::AclMode;
    // SAFETY: the caller's transaction is open; both are any number.
    #[cfg(feature = "pg15")]
    let result = unsafe { pg_sys::pg_database_aclcheck(database, role, mode) };
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    let result =
        unsafe { pg_sys::object_aclcheck(pg_sys::DatabaseRelationId, database, role, mode) };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// Whether a role may use what is in a schema.
///
/// # Safety
/// A syscache look-up: a transaction must be open. The schema must be there.
pub unsafe fn may_use_schema(role: pg_sys::Oid, schema: pg_sys::Oid) -> bool {
    let mode = pg_sys::ACL_USAGE as pg_sys::AclMode;
    // SAFETY: the caller's transaction is open, and the schema is there.
    #[cfg(feature = "pg15")]
    let result = unsafe { pg_sys::pg_namespace_aclcheck(schema, role, mode) };
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    let result =
        unsafe { pg_sys::object_aclcheck(pg_sys::NamespaceRelationId, schema, role, mode) };
    result == pg_sys::AclResult::ACLCHECK_OK
}

mod auth_files {
    use std::ffi::{c_char, c_int};

    use pgrx::pg_sys::*;

    unsafe extern "C-unwind" {
        #[cfg(feature = "pg15")]
        pub fn tokenize_auth_file(
            name: *const c_char,
            file: *mut FILE,
            lines: *mut *mut List,
            level: c_int,
        ) -> MemoryContext;
        #[cfg(not(feature = "pg15"))]
        pub fn tokenize_auth_file(
            name: *const c_char,
            file: *mut FILE,
            lines: *mut *mut List,
            level: c_int,
            depth: c_int,
        );
        #[cfg(not(feature = "pg15"))]
        pub fn open_auth_file(
            name: *const c_char,
            level: c_int,
            depth: c_int,
            error: *mut *mut c_char,
        ) -> *mut FILE;
        #[cfg(not(feature = "pg15"))]
        pub fn free_auth_file(file: *mut FILE, depth: c_int);
    }
}

/// Gives the lines of a file in the manner of pg_hba.conf, as words, to `read`; they are there until
/// it returns. None where the file cannot be opened. What is wrong with a line is told with the line
/// and, at this level, in the log.
///
/// # Safety
/// Inside of a transaction, which ends what an error leaves.
pub unsafe fn with_auth_lines<R>(
    name: &std::ffi::CStr,
    level: i32,
    read: impl FnOnce(*mut pg_sys::List) -> R,
) -> Option<R> {
    use pg_sys::ffi::pg_guard_ffi_boundary as guarded;
    use std::ptr::null_mut;
    let name = name.as_ptr();
    let mut lines: *mut pg_sys::List = null_mut();
    let to = &raw mut lines;
    // SAFETY: the name lives through the calls. Each runs under a guard of its own that an error
    // leaves with nothing to drop; the file and what was made of it are given back after `read`.
    #[cfg(feature = "pg15")]
    unsafe {
        let file = pg_sys::AllocateFile(name, c"r".as_ptr());
        if file.is_null() {
            return None;
        }
        let context = guarded(|| auth_files::tokenize_auth_file(name, file, to, level));
        pg_sys::FreeFile(file);
        let result = read(lines);
        pg_sys::MemoryContextDelete(context);
        Some(result)
    }
    // SAFETY: as above; the file is the first of its kind, at depth 0.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        let file = guarded(|| auth_files::open_auth_file(name, level, 0, null_mut()));
        if file.is_null() {
            return None;
        }
        guarded(|| auth_files::tokenize_auth_file(name, file, to, level, 0));
        let result = read(lines);
        guarded(|| auth_files::free_auth_file(file, 0));
        Some(result)
    }
}
