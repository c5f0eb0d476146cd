//! What a server lacks for all of pgcache, and the lines that change it: told once, by the
//! transaction that makes the extension; and what it lacks for a dependency, when that is declared.
//!
//! The first at the commit, because Postgres keeps notices of an extension's script to itself.

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

/// The notice. With `session_preload_libraries` expired entries are hidden, and the rest is missing.
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
    if tier::loaded_by_sessions() {
        return tell(missing, lines);
    }
    let seen = "Plain SQL sees expired entries in a session that has not called pgcache before.";
    let other_way = "For plain SQL alone it is enough to add pgcache to session_preload_libraries of the \
                     database, for sessions that begin then.";
    tell(
        &format!("{missing} {seen}"),
        format!("{lines}\n{other_way}"),
    );
}

/// What a dependency lacks where sessions load the library with their first call of it. It does not
/// name the libraries that are there, which not everybody may read.
pub fn tell_what_a_dependency_misses() {
    if worker_state::worker_shmem().is_some() || tier::loaded_by_sessions() {
        return;
    }
    let missing = "Rows that change count, and a TRUNCATE of the source. ALTER, DROP, and ATTACH, DETACH or TRUNCATE \
                   of a partition do not, in a session that has not called pgcache before.";
    let ways = "Add pgcache to shared_preload_libraries in postgresql.conf and restart the server, or to \
                session_preload_libraries of the database.";
    tell(missing, ways.into());
}

fn tell(missing: &str, hint: String) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        "pgcache is not in shared_preload_libraries",
        "pgcache",
    )
    .set_detail(missing)
    .set_hint(printable(hint))
    .report(PgLogLevel::NOTICE);
}

/// The list of libraries with ours at its end, between the quotes of a setting.
fn with_ours(libraries: &str) -> String {
    match libraries.trim() {
        "" => "pgcache".into(),
        others => format!("{}, pgcache", others.replace('\'', "''")),
    }
}
