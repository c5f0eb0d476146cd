//! Keeps entries of memory caches over a planned restart. With `pgcache.save_memory` the postmaster saves them at the
//! end of a clean shutdown, and restores them at the next start, before any other process exists.
//!
//! A start restores entries only if no server has run on the data directory since they were saved. The file contains
//! the control file as the shutdown left it, and a start compares all of its bytes. The file of saved entries is
//! removed before its entries are restored, so that no second start can read it.
//!
//! The postmaster cannot read catalogs. So a restored slot is treated like a slot that has survived a promotion: the
//! first session that opens it compares the memory id, and drops the entries of a cache with dependencies.

mod format;
mod read_entries;
mod time_limit;
mod write_entries;

use std::fs::{self, File};
use std::io::{self, ErrorKind};

use pgrx::PgLogLevel;
use pgrx::PgSqlErrorCode::ERRCODE_WARNING;
use pgrx::pg_sys::panic::ErrorReport;

use format::{FILE, UNFINISHED, path};
use read_entries::{NotRestored, Restored};
use time_limit::Limit;

use crate::guc;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::shmem::restart::{self, ControlFile};
use crate::pg::shmem::tier::tier;

/// Saves the live entries of all memory caches. Called at the end of a shutdown.
pub fn save() {
    let Some(tier) = tier().filter(|_| guc::save_memory()) else {
        return;
    };
    // The control file has a different state after a crash or an immediate stop, and on a standby, whose data change
    // while it is down.
    let Some(control) = ControlFile::read().ok().filter(ControlFile::is_shut_down) else {
        return;
    };
    let limit = Limit::begin();
    let saved = write_entries::write(tier, &control, limit).and_then(|saved| {
        pause::at(Window::SavedToNamed);
        limit.check()?;
        match restart::durable_rename(UNFINISHED, FILE) {
            true => Ok(saved),
            false => Err(io::Error::other("The file could not be renamed.")),
        }
    });
    match saved {
        Ok(saved) => log(format!(
            "pgcache saved {} entries of memory caches, {} MB in {} ms",
            saved.entries,
            saved.bytes >> 20,
            limit.milliseconds()
        )),
        Err(error) => {
            drop(fs::remove_file(path(UNFINISHED)));
            drop(fs::remove_file(path(FILE)));
            warn("could not save the entries of memory caches", error);
        }
    }
}

/// Restores the saved entries. Removes the file first, even if nothing is restored. Called at the start.
pub fn restore() {
    let file = match File::open(path(FILE)) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            warn("could not restore the entries of memory caches", error);
            None
        }
    };
    drop(fs::remove_file(path(UNFINISHED)));
    if !fault::on(Fault::SavedFileKept)
        && let Err(error) = remove_saved()
    {
        warn("could not restore the entries of memory caches", error);
        return;
    }
    let (Some(file), Some(tier)) = (file, tier().filter(|_| guc::save_memory())) else {
        return;
    };
    let limit = Limit::begin();
    match read_entries::read(tier, file, limit) {
        Ok(Restored { entries, of }) => log(format!(
            "pgcache restored {entries} of {of} saved entries of memory caches in {} ms",
            limit.milliseconds()
        )),
        Err(NotRestored::Outdated) => log(
            "pgcache restored no entries of memory caches, because the database has changed since they were saved"
                .to_owned(),
        ),
        Err(NotRestored::Unreadable(error)) => {
            warn("could not restore the entries of memory caches", error);
        }
    }
}

/// Removes the file and waits until the removal is on disk.
fn remove_saved() -> io::Result<()> {
    match fs::remove_file(path(FILE)) {
        Ok(()) if restart::syncs() => File::open("pg_stat")?.sync_all(),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn log(message: String) {
    ErrorReport::new(
        pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        message,
        "pgcache",
    )
    .report(PgLogLevel::LOG);
}

fn warn(message: &'static str, error: io::Error) {
    ErrorReport::new(ERRCODE_WARNING, message, "pgcache")
        .set_detail(error.to_string())
        .report(PgLogLevel::WARNING);
}
