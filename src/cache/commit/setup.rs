//! What a server lacks for all of pgcache, and the lines that change it: told once, by the
//! transaction that makes the extension.
//!
//! At the commit, because Postgres keeps notices of an extension's script to itself.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::pg::catalog::database;
use crate::pg::encoding::printable;
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::shmem::{tier, worker_state};

thread_local! {
    static ASKED: TransactionLocal<bool> = TransactionLocal::default();
}

/// The commit tells it.
pub fn ask() {
    ASKED.with(|asked| asked.change(|asked| *asked = true));
}

/// Tells it if it was asked for; not where a savepoint was rolled back, and the extension with it.
pub fn at_commit() {
    if ASKED.with(|asked| asked.look(|&asked| asked)) && database::has_extension() {
        tell_what_is_missing();
    }
}

/// The transaction has ended.
pub fn forget() {
    ASKED.with(|asked| asked.change(|asked| *asked = false));
}

/// The notice.
fn tell_what_is_missing() {
    if worker_state::worker_shmem().is_some() {
        return;
    }
    let missing = "Table caches work. There is no hot tier, no memory cache, no lease, and no process that \
                   removes expired entries.";
    let lines = format!(
        "Put these two lines into postgresql.conf and restart the server:\n\
         shared_preload_libraries = '{}'\n\
         pgcache.hot_size = '64MB'",
        with_ours(&tier::preloaded_libraries())
    );
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        "pgcache is not in shared_preload_libraries",
        "pgcache",
    )
    .set_detail(missing)
    .set_hint(printable(lines))
    .report(PgLogLevel::NOTICE);
}

/// The list of libraries with ours at its end, between the quotes of a setting.
fn with_ours(libraries: &str) -> String {
    match libraries.trim() {
        "" => "pgcache".into(),
        others => format!("{}, pgcache", others.replace('\'', "''")),
    }
}
