//! How a process with connections of its own sleeps: until one of them, or a signal, or the time
//! wakes it.
//!
//! Connections come and go, which a `WaitEventSet` does not allow. So they are in an epoll set, and
//! that set's descriptor, which is readable when one of its own is, is one of three things here.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use pgrx::pg_sys;

use crate::pg::version;

/// The latch of this process, the postmaster's death, and one descriptor.
pub struct Sleeper(*mut pg_sys::WaitEventSet);

impl Sleeper {
    /// Made once in a process, and kept until its end. The descriptor stays open as long.
    pub fn over(descriptor: BorrowedFd<'_>) -> Sleeper {
        // SAFETY: the set is made in memory that lives as long as the process; it has room for
        // three; the latch is the process' own, the descriptor open.
        unsafe {
            let set = version::wait_event_set(3);
            let add = |events: u32, descriptor, latch| {
                pg_sys::AddWaitEventToSet(set, events, descriptor, latch, std::ptr::null_mut());
            };
            let none = std::ptr::null_mut();
            add(
                pg_sys::WL_LATCH_SET,
                pg_sys::PGINVALID_SOCKET,
                pg_sys::MyLatch,
            );
            add(pg_sys::WL_EXIT_ON_PM_DEATH, pg_sys::PGINVALID_SOCKET, none);
            add(pg_sys::WL_SOCKET_READABLE, descriptor.as_raw_fd(), none);
            Sleeper(set)
        }
    }

    /// Sleeps until one of them has something to say, or the time is up; None: without an end.
    pub fn sleep(&self, time: Option<Duration>) {
        let milliseconds = time.map_or(-1, |time| {
            // Not less than asked for, or who waits for a moment would turn until it comes.
            time.as_micros().div_ceil(1000).min(i32::MAX as u128) as std::ffi::c_long
        });
        let mut event = pg_sys::WaitEvent::default();
        // SAFETY: the set was made in `over`, and one event has room for one.
        unsafe {
            pg_sys::WaitEventSetWait(
                self.0,
                milliseconds,
                &mut event,
                1,
                version::resp_wait_event(),
            );
        }
    }
}

/// Whether somebody has set the latch since it was last asked; from now on it can be set again.
#[inline]
pub fn was_woken() -> bool {
    // SAFETY: the latch is the process' own; others set it, hence the volatile read. What they did
    // before is looked at after this, as ResetLatch asks for.
    unsafe {
        let set = (&raw const (*pg_sys::MyLatch).is_set).read_volatile() != 0;
        if set {
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        set
    }
}
