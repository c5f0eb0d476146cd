//! Delays in the critical windows of the coherence protocol, for tests that must hit them.
//!
//! They exist only with the cargo feature `pauses`; without it none of this is in the library. The setting
//! `pgcache.pause` is the longest wait of a session in each window, in milliseconds. Each actual wait is random, so
//! that the windows of several sessions overlap in every order. If `pgcache.pause_window` is the number of a window,
//! a session waits in that window only, for as long as the file `pgcache.hold` exists in the data directory. Its
//! wait event is then Extension, by which a test recognises it.

/// The places where a session may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The key is marked, and the commit is not visible yet.
    MarkToVisible,
    /// The commit is visible, and the key is still marked.
    VisibleToUnmark,
    /// A miss has its token, and no snapshot yet.
    TokenToSnapshot,
    /// A miss has read the row, and not filled the tier yet.
    ReadToFill,
    /// The entries that depend on changed rows are marked, but not removed yet.
    MarkToRemove,
    /// A fetch has its lease or token and has loaded the value, and not written the row yet.
    LoadToStore,
    /// A fetch has announced its store, and not written the row yet.
    ToldToWritten,
    /// A fetch has written the row, and not yet checked whether it may keep it.
    WrittenToAsked,
    /// A fetch has found no entry, and not requested the lease yet.
    LookToAsk,
    /// A network process has sent invalidations, and not run the next commands yet.
    DrainToRead,
    /// A writer has found no slot for the cache that it has changed, and not set its mark yet.
    NoSlotToMark,
    /// The postmaster has written the saved entries, and not given the file its name yet.
    SavedToNamed,
}

/// Does nothing, because this library was built without the feature.
#[cfg(not(feature = "pauses"))]
#[inline]
pub fn at(_window: Window) {}

#[cfg(feature = "pauses")]
pub use paused::{at, define};

#[cfg(feature = "pauses")]
mod paused {
    use std::path::Path;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
    use pgrx::pg_sys;

    use super::Window;

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
            Window::SavedToNamed as i32,
            GucContext::Suset,
            GucFlags::NO_SHOW_ALL,
        );
    }

    /// Waits a random time, if the window is set. Does not check for interrupts, because nothing may fail between
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

    /// Waits until the file is removed, and shows the wait in `pg_stat_activity`.
    fn hold(longest: Duration) {
        show_wait(WAIT_EXTENSION);
        let began = Instant::now();
        while Path::new("pgcache.hold").exists() && began.elapsed() < longest {
            sleep(Duration::from_millis(2));
        }
        show_wait(0);
    }

    /// Postgres' class of wait events `Extension`, its first event.
    const WAIT_EXTENSION: u32 = 0x0700_0000;

    fn show_wait(event: u32) {
        // SAFETY: the pointer is this process' own place for its wait event, in shared memory or its own, from its
        // start to its end.
        unsafe { std::ptr::write_volatile(pg_sys::my_wait_event_info, event) }
    }
}
