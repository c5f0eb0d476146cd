//! Connects a background worker to its database, and sets its signal handlers, its settings, and whether it gives way
//! to sessions.
//!
//! A worker that sweeps must not block a session for longer than `deadlock_timeout`. So it counts as an autovacuum
//! worker: a session that waits for one of its locks cancels it, and DROP and ALTER DATABASE terminate it.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::{self, Oid};

use crate::pg::version;

// Postgres' own signal handlers. pgrx declares only wrappers, which cannot be signal handlers.
unsafe extern "C-unwind" {
    fn die(signal: i32);
    fn SignalHandlerForShutdownRequest(signal: i32);
    fn SignalHandlerForConfigReload(signal: i32);
}

/// The index of ProcArrayLock in Postgres 15 to 19, from storage/lmgr/lwlocknames.txt (later lwlocklist.h).
const PROC_ARRAY_LOCK: usize = 4;

/// Makes the process the launcher: sets signal handlers, and connects to the shared catalogs.
pub fn as_launcher() {
    // SAFETY: this is the first call in a background worker. The launcher checks the flag that the SIGTERM handler
    // `end_soon` sets.
    unsafe {
        version::on_signal(pg_sys::SIGTERM, end_soon);
        connect(pg_sys::InvalidOid);
    }
    set(c"application_name", c"pgcache launcher");
}

/// Makes the process a worker in a database. SIGTERM ends the process as it ends a session.
pub fn as_worker(database: Oid) {
    let of_server: Vec<_> = OF_SERVER
        .iter()
        .chain(OF_SERVERS_PLANS)
        .filter(|name| is_there(name))
        .map(|name| (name, setting(name)))
        .collect();
    // SAFETY: this is the first call in a background worker. `die` is the SIGTERM handler of sessions; after the
    // connection the process has its place in the array of processes.
    unsafe {
        version::on_signal(pg_sys::SIGTERM, die);
        connect(database);
        count_as_autovacuum();
    }
    set_as_autovacuum();
    for (name, value) in &of_server {
        set(name, value);
    }
}

/// Makes the process a server in a database, with clients of its own. SIGTERM sets a flag, which the process checks
/// between two rounds of its event loop. The process gives way to no session, because this would disconnect its
/// clients. Returns the database's search_path, which the process itself does not use.
pub fn as_server(database: Oid, name: &CStr) -> CString {
    // SAFETY: this is the first call in a background worker, which checks the flag that the handler sets.
    unsafe {
        version::on_signal(pg_sys::SIGTERM, end_soon);
        connect(database);
    }
    let search_path = setting(c"search_path");
    set(c"application_name", name);
    set_neutral();
    for (name, value) in ENDS_PROCESS {
        if is_there(name) {
            set(name, value);
            // SAFETY: a setting with this name exists.
            unsafe { version::fix_setting(name) };
        }
    }
    search_path
}

/// Sets the flag, and cancels the current work. Without the cancellation the server might never stop, because a process
/// that waits for a catalog lock does not check the flag, and a prepared transaction may hold the lock forever.
unsafe extern "C-unwind" fn end_soon(signal: i32) {
    // SAFETY: does what Postgres' own signal handlers do; plain C variables of this process.
    unsafe {
        (&raw mut pg_sys::QueryCancelPending).write_volatile(1);
        (&raw mut pg_sys::InterruptPending).write_volatile(1);
        SignalHandlerForShutdownRequest(signal);
    }
}

/// # Safety
/// The caller calls this once in a background worker, after it has set the SIGTERM handler.
unsafe fn connect(database: Oid) {
    // SAFETY: by the caller's contract this runs once in a background worker, and the handler of SIGTERM is set, so
    // signals may arrive now.
    unsafe {
        version::on_signal(pg_sys::SIGHUP, SignalHandlerForConfigReload);
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0);
    }
}

/// Makes the process count as an autovacuum worker. DROP and ALTER DATABASE, and CREATE DATABASE with the database as
/// its template, end autovacuum workers, whereas any other connected process makes them fail. A session that waits for
/// a lock of an autovacuum worker cancels the worker.
///
/// # Safety
/// The process has a place in the array of processes.
unsafe fn count_as_autovacuum() {
    // SAFETY: the process has its place, by the caller's contract. The code changes the flags and their mirror
    // together, under the lock that Postgres itself takes.
    unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(PROC_ARRAY_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        (*pg_sys::MyProc).statusFlags |= pg_sys::PROC_IS_AUTOVACUUM as u8;
        *(*pg_sys::ProcGlobal)
            .statusFlags
            .add((*pg_sys::MyProc).pgxactoff as usize) = (*pg_sys::MyProc).statusFlags;
        pg_sys::LWLockRelease(lock);
    }
}

/// Settings that a worker does not take from its database. With them, a database's owner could prolong a VACUUM and
/// occupy the worker.
const OF_SERVER: &[&CStr] = &[
    c"vacuum_cost_delay",
    c"vacuum_cost_limit",
    c"vacuum_cost_page_hit",
    c"vacuum_cost_page_miss",
    c"vacuum_cost_page_dirty",
    c"vacuum_freeze_table_age",
    c"vacuum_multixact_freeze_table_age",
    c"maintenance_work_mem",
];

/// Settings that affect how the statements of a sweep are planned and run, which also keep the server's value.
/// Otherwise a database's owner could have each statement compiled, planned again or kept from its index, and the sweep
/// of this database would delay other databases. The list contains all settings of Postgres' group "Query Tuning", and
/// further settings that affect plans.
const OF_SERVERS_PLANS: &[&CStr] = &[
    c"constraint_exclusion",
    c"cpu_index_tuple_cost",
    c"cpu_operator_cost",
    c"cpu_tuple_cost",
    c"cursor_tuple_fraction",
    c"debug_parallel_query",
    c"default_statistics_target",
    c"effective_cache_size",
    c"enable_async_append",
    c"enable_bitmapscan",
    c"enable_distinct_reordering",
    c"enable_eager_aggregate",
    c"enable_gathermerge",
    c"enable_group_by_reordering",
    c"enable_hashagg",
    c"enable_hashjoin",
    c"enable_incremental_sort",
    c"enable_indexonlyscan",
    c"enable_indexscan",
    c"enable_material",
    c"enable_memoize",
    c"enable_mergejoin",
    c"enable_nestloop",
    c"enable_parallel_append",
    c"enable_parallel_hash",
    c"enable_partition_pruning",
    c"enable_partitionwise_aggregate",
    c"enable_partitionwise_join",
    c"enable_presorted_aggregate",
    c"enable_self_join_elimination",
    c"enable_seqscan",
    c"enable_sort",
    c"enable_tidscan",
    c"force_parallel_mode",
    c"from_collapse_limit",
    c"geqo",
    c"geqo_effort",
    c"geqo_generations",
    c"geqo_pool_size",
    c"geqo_seed",
    c"geqo_selection_bias",
    c"geqo_threshold",
    c"hash_mem_multiplier",
    c"jit",
    c"jit_above_cost",
    c"jit_inline_above_cost",
    c"jit_optimize_above_cost",
    c"join_collapse_limit",
    c"max_parallel_workers_per_gather",
    c"min_eager_agg_group_size",
    c"min_parallel_index_scan_size",
    c"min_parallel_table_scan_size",
    c"parallel_leader_participation",
    c"parallel_setup_cost",
    c"parallel_tuple_cost",
    c"plan_cache_mode",
    c"random_page_cost",
    c"recursive_worktable_factor",
    c"seq_page_cost",
    c"work_mem",
];

/// Settings that make Postgres terminate a process after an error or a timeout. In a process that works for many roles,
/// no role's code may change them.
const ENDS_PROCESS: [(&CStr, &CStr); 2] =
    [(c"exit_on_error", c"off"), (c"transaction_timeout", c"0")];

/// Returns the value of an existing setting.
fn setting(name: &CStr) -> CString {
    // SAFETY: the text is in a buffer of Postgres until the next call, and is copied.
    unsafe { CStr::from_ptr(pg_sys::GetConfigOption(name.as_ptr(), false, false)).to_owned() }
}

fn is_there(name: &CStr) -> bool {
    // SAFETY: a lookup that returns NULL for a missing setting.
    unsafe { !pg_sys::GetConfigOption(name.as_ptr(), true, false).is_null() }
}

/// Sets the settings that no pgcache process may take from its database.
fn set_neutral() {
    for (name, value) in [
        (c"role", c"none"),
        (c"search_path", c""),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_deferrable", c"off"),
        (c"session_replication_role", c"origin"),
        (c"exit_on_error", c"off"),
    ] {
        set(name, value);
    }
}

/// Sets the settings that a worker must not take from its database. As in autovacuum, no timeout of a statement or a
/// transaction applies.
fn set_as_autovacuum() {
    set_neutral();
    for (name, value) in [
        (c"application_name", c"pgcache worker"),
        (c"statement_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        // A worker simply repeats a sweep that a crash has undone.
        (c"synchronous_commit", c"off"),
    ] {
        set(name, value);
    }
    // Not every Postgres version has these settings.
    for (name, value) in [
        (c"transaction_timeout", c"0"),
        // The list of caches is a view, so views must stay readable.
        (c"restrict_nonsystem_relation_kind", c""),
    ] {
        if is_there(name) {
            set(name, value);
        }
    }
    set(c"lock_timeout", &patience());
}

/// Returns the time in milliseconds that a worker waits for a lock: half of deadlock_timeout. The worker itself never
/// waits for a lock, but a trigger or a foreign key of a row that it removes may. If the lock's holder in turn waits
/// for the worker, the worker must give up before the holder checks for a deadlock.
fn patience() -> CString {
    // SAFETY: a plain C variable of this process.
    let half = unsafe { pg_sys::DeadlockTimeout } / 2;
    CString::new(half.max(1).to_string()).unwrap_or_default()
}

fn set(name: &CStr, value: &CStr) {
    // SAFETY: the caller is a worker's main thread, outside any other change of settings; Postgres copies both texts.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}
