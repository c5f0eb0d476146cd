//! Waits in the critical windows of the coherence protocol, for tests that must hit these windows.
//!
//! The waits exist only with the cargo feature `pauses`; without the feature, the library contains none of this code.
//! The setting `pgcache.pause` is the maximum wait of a session in each window, in milliseconds. Each actual wait is
//! random, so that the windows of several sessions overlap in every order. If `pgcache.pause_window` is the number of a
//! window, a session waits only there, while the file `pgcache.hold` exists in the data directory, and at most
//! `pgcache.pause`. A test recognises such a wait by its wait event, `Extension`. If a test writes `ERROR` or
//! `FATAL` into the file, the wait ends with an error of that level.

/// The points of the protocol at which a session may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The key is marked, and the commit is not yet visible.
    MarkToVisible,
    /// The commit is visible, and the key is still marked.
    VisibleToUnmark,
    /// A miss has its token, but not yet a snapshot.
    TokenToSnapshot,
    /// A miss has read the row, but not yet filled the hot tier.
    ReadToFill,
    /// The entries that depend on changed rows are marked, but not yet removed.
    MarkToRemove,
    /// A fetch has its lease or token and has loaded the value, but not yet written the row.
    LoadToStore,
    /// A fetch has announced its store, but not yet written the row.
    AnnouncedToWritten,
    /// A fetch has written the row, but not yet checked whether it may keep it.
    WrittenToChecked,
    /// A fetch has found no entry, but not yet requested the lease.
    LookToRequest,
    /// A network process has sent invalidations, but not yet run the next commands.
    DrainToRead,
    /// A writer has found no slot for the cache that it has changed, but not yet set its mark.
    NoSlotToMark,
    /// The postmaster has written the saved entries, but not yet given the file its name.
    SavedToNamed,
    /// A session has loaded a definition, but not yet written its share.
    DefinitionToShare,
}

/// Does nothing, because this library was built without the feature.
#[cfg(not(feature = "pauses"))]
#[inline]
pub fn at(_window: Window) {}

#[cfg(feature = "pauses")]
pub use paused::{at, define};

#[cfg(feature = "pauses")]
mod paused {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
    use pgrx::pg_sys::panic::ErrorReport;
    use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

    use super::Window;

    /// The file that holds sessions in their window.
    const FILE: &str = "pgcache.hold";

    static PAUSE: GucSetting<i32> = GucSetting::<i32>::new(0);
    static ONLY: GucSetting<i32> = GucSetting::<i32>::new(-1);

    /// Defines `pgcache.pause` and `pgcache.pause_window`.
    pub fn define() {
        GucRegistry::define_int_guc(
            c"pgcache.pause",
            c"Sets the maximum time that this session waits in each window of the coherence protocol.",
            c"This setting is for tests only, because the library was built with the feature pauses.",
            &PAUSE,
            0,
            60_000,
            GucContext::Suset,
            GucFlags::UNIT_MS | GucFlags::NO_SHOW_ALL,
        );
        GucRegistry::define_int_guc(
            c"pgcache.pause_window",
            c"Selects the only window in which this session waits while pgcache.hold exists, by its number; -1 means each window by chance.",
            c"This setting is for tests only, because the library was built with the feature pauses.",
            &ONLY,
            -1,
            Window::DefinitionToShare as i32,
            GucContext::Suset,
            GucFlags::NO_SHOW_ALL,
        );
    }

    /// Waits in this window as the settings require. Does not check for interrupts, because no error may occur between
    /// mark and unmark.
    pub fn at(window: Window) {
        let longest = u64::try_from(PAUSE.get()).unwrap_or(0) * 1000;
        if longest == 0 {
            return;
        }
        if ONLY.get() >= 0 {
            if ONLY.get() == window as i32 {
                hold(Duration::from_micros(longest));
            }
            return;
        }
        // SAFETY: reads the system's clock and raises nothing.
        let now = unsafe { pg_sys::GetCurrentTimestamp() } as u64;
        let chance = (now ^ window as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        sleep(Duration::from_micros(chance % longest));
    }

    /// Waits until the file is removed, or `longest` has passed, and shows the wait in `pg_stat_activity`. Raises the
    /// error that the file requests, and removes the file.
    fn hold(longest: Duration) {
        show_wait(WAIT_EXTENSION);
        let began = Instant::now();
        while let Ok(content) = std::fs::read(FILE)
            && began.elapsed() < longest
        {
            match content.as_slice() {
                b"ERROR" => raise(PgLogLevel::ERROR),
                b"FATAL" => raise(PgLogLevel::FATAL),
                _ => sleep(Duration::from_millis(2)),
            }
        }
        show_wait(0);
    }

    fn raise(level: PgLogLevel) {
        show_wait(0);
        let removed = std::fs::remove_file(FILE);
        let code = PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN;
        let report = ErrorReport::new(code, "a test ends the wait with an error", "pgcache");
        if removed.is_ok() {
            report.report(level);
        }
    }

    /// The first event of Postgres' wait event class `Extension`.
    const WAIT_EXTENSION: u32 = 0x0700_0000;

    fn show_wait(event: u32) {
        // SAFETY: the pointer is valid from the start to the end of the process; it refers to the process's own wait
        // event, in shared memory or in its own memory.
        unsafe { std::ptr::write_volatile(pg_sys::my_wait_event_info, event) }
    }
}
