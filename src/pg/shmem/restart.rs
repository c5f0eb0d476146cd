//! Reports the start and the clean stop of the server as events of `pg::events`, and reads the control file, which
//! shows whether any server has run since a clean stop.
//!
//! The postmaster runs this code while no other process of the server uses shared memory. The functions that receive
//! the events have no catalogs, no transaction and no session, so they must raise no error and wait for no lock.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::mem::{offset_of, size_of};
use std::path::Path;

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::pg::events;

/// Reports the start, and registers the function that reports the stop. The startup hook calls this after it has
/// created the hot tier, also when the server starts again after a crash. A server in single-user mode reports neither,
/// because it has no postmaster.
pub fn begin() {
    // SAFETY: reads variables of this process. `on_shmem_exit` only keeps the function's address; each exit, each start
    // after a crash, and each process that the postmaster forks empties the list of these functions.
    unsafe {
        if !pg_sys::IsPostmasterEnvironment || pg_sys::IsUnderPostmaster {
            return;
        }
        pg_sys::on_shmem_exit(Some(end), pg_sys::Datum::from(0));
    }
    events::emit(|observer| (observer.started)());
}

/// Reports the stop, unless the server failed. The postmaster exits with code 0 only after its other processes have
/// ended.
#[pg_guard]
unsafe extern "C-unwind" fn end(code: i32, _argument: pg_sys::Datum) {
    // SAFETY: reads a variable of this process.
    let is_postmaster = unsafe { !pg_sys::IsUnderPostmaster };
    if code == 0 && is_postmaster {
        events::emit(|observer| (observer.stopped)());
    }
}

/// The content of the control file. It contains the time of its last change, so each start, checkpoint and stop of a
/// server changes it, even if the server writes nothing else.
#[derive(PartialEq, Eq)]
pub struct ControlFile(Vec<u8>);

impl ControlFile {
    /// Reads the file in this server's data directory, the postmaster's working directory.
    pub fn read() -> io::Result<ControlFile> {
        let mut content = vec![0; size_of::<pg_sys::ControlFileData>()];
        File::open("global/pg_control")?.read_exact(&mut content)?;
        Ok(ControlFile(content))
    }

    /// Returns the content, which the caller can store and compare with the content at a later time.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the server was shut down cleanly, after its last checkpoint, and was not a standby. After an
    /// immediate stop the postmaster exits with code 0, too, but leaves another state in the file.
    pub fn is_shut_down(&self) -> bool {
        const AT: usize = offset_of!(pg_sys::ControlFileData, state);
        let state = self.0.get(AT..).and_then(|rest| rest.first_chunk::<4>());
        state.is_some_and(|state| u32::from_ne_bytes(*state) == pg_sys::DBState::DB_SHUTDOWNED)
    }
}

/// Returns whether the start will replay WAL from elsewhere: as a standby, or from a backup.
pub fn will_recover() -> bool {
    ["standby.signal", "recovery.signal", "backup_label"]
        .iter()
        .any(|file| Path::new(file).exists())
}

/// Returns whether this server flushes files to disk (fsync).
pub fn syncs() -> bool {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::enableFsync }
}

/// Flushes a file to disk and renames it, so that after a power loss the new name refers to the complete file or to no
/// part of it. If this fails, logs the reason and returns false.
pub fn durable_rename(from: &CStr, to: &CStr) -> bool {
    // SAFETY: both are C strings. At level WARNING a failure is logged and raises no error.
    unsafe { pg_sys::durable_rename(from.as_ptr(), to.as_ptr(), PgLogLevel::WARNING as i32) == 0 }
}
