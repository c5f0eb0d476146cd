//! Raises notices about settings that the server lacks: one about all of pgcache when the extension is created, and
//! one about a dependency when the dependency is declared. Both name the settings to change.
//!
//! The first notice is raised at the commit, because Postgres discards the notices of an extension's script.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::pg::catalog::database;
use crate::pg::encoding::printable;
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::shmem::{tier, worker_state};

thread_local! {
    static REQUESTED: TransactionLocal<bool> = TransactionLocal::default();
}

/// Requests the notice at the commit.
pub fn request() {
    REQUESTED.with(|requested| requested.change(|requested| *requested = true));
}

/// Raises the requested notice, unless the creation of the extension was rolled back to a savepoint.
pub fn at_commit() {
    if REQUESTED.with(|requested| requested.look(|&requested| requested))
        && database::has_extension()
    {
        report_missing_settings();
    }
}

/// Drops the request at the end of the transaction.
pub fn forget() {
    REQUESTED.with(|requested| requested.change(|requested| *requested = false));
}

/// Raises the notice about missing settings, if any are missing. With `session_preload_libraries`, plain SQL does not
/// see expired entries, and only the other features are missing.
fn report_missing_settings() {
    if worker_state::worker_shmem().is_some() {
        return;
    }
    let missing = "Table caches work. The hot tier, memory caches, leases and the worker that removes expired entries are not available.";
    let lines = format!(
        "Set these two parameters in postgresql.conf and restart the server:\nshared_preload_libraries = '{}'\npgcache.hot_size = '64MB'",
        with_ours(&tier::preloaded_libraries())
    );
    if tier::loaded_by_sessions() {
        return report(missing, lines);
    }
    let seen =
        "Plain SQL sees expired entries in sessions that have not called a pgcache function yet.";
    let other_way = "To hide expired entries from plain SQL, it is enough to add pgcache to session_preload_libraries of the database. This applies to new sessions.";
    report(
        &format!("{missing} {seen}"),
        format!("{lines}\n{other_way}"),
    );
}

/// Raises a notice about the changes that a dependency misses in a session that loads the library only with its first
/// call. The notice leaves out the names of the preloaded libraries, which not every role may read.
pub fn report_dependency_gaps() {
    if worker_state::worker_shmem().is_some() || tier::loaded_by_sessions() {
        return;
    }
    let missing = "The dependency covers row changes and TRUNCATE of the source table. It does not cover ALTER, DROP, or ATTACH, DETACH or TRUNCATE of a partition in sessions that have not called a pgcache function yet.";
    let ways = "Add pgcache to shared_preload_libraries in postgresql.conf and restart the server, or add it to session_preload_libraries of the database.";
    report(missing, ways.into());
}

fn report(missing: &str, hint: String) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        "pgcache is not in shared_preload_libraries",
        "pgcache",
    )
    .set_detail(missing)
    .set_hint(printable(hint))
    .report(PgLogLevel::NOTICE);
}

/// Returns the list of libraries with pgcache appended, quoted as the value of a setting.
fn with_ours(libraries: &str) -> String {
    match libraries.trim() {
        "" => "pgcache".into(),
        others => format!("{}, pgcache", others.replace('\'', "''")),
    }
}
