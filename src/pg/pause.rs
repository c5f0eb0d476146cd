//! Delays in the windows of the coherence protocol, for tests that must hit them.
//!
//! Only with the cargo feature `pauses`; without it nothing of this is in the library. The setting
//! `pgcache.pause` says how many milliseconds a session waits at most in each window; how long each
//! time is left to chance, so that the windows of several sessions meet in every order.

/// Where a session may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Marked, and the commit is not visible yet.
    MarkToVisible,
    /// The commit is visible, and still marked.
    VisibleToUnmark,
    /// A miss has its token and no snapshot yet.
    TokenToSnapshot,
    /// A miss has read the row and not filled it in yet.
    ReadToFill,
}

#[cfg(not(feature = "pauses"))]
#[inline]
pub fn at(_window: Window) {}

#[cfg(feature = "pauses")]
pub use paused::{at, define};

#[cfg(feature = "pauses")]
mod paused {
    use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
    use pgrx::pg_sys;

    use super::Window;

    static PAUSE: GucSetting<i32> = GucSetting::<i32>::new(0);

    /// Defines `pgcache.pause`.
    pub fn define() {
        GucRegistry::define_int_guc(
            c"pgcache.pause",
            c"How long this session waits at most in each window of the coherence protocol.",
            c"For tests only; this library was built with the feature pauses.",
            &PAUSE,
            0,
            60_000,
            GucContext::Userset,
            GucFlags::UNIT_MS,
        );
    }

    /// Waits, perhaps. Without a check for interrupts: nothing may fail between mark and unmark.
    pub fn at(window: Window) {
        let longest = u64::try_from(PAUSE.get()).unwrap_or(0) * 1000;
        if longest == 0 {
            return;
        }
        // SAFETY: reads the clock.
        let now = unsafe { pg_sys::GetCurrentTimestamp() } as u64;
        let chance = (now ^ window as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        std::thread::sleep(std::time::Duration::from_micros(chance % longest));
    }
}
