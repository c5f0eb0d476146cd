//! Lets a process with client connections sleep until a connection, a signal or a timeout wakes it, as `WaitLatch`
//! does for sessions.
//!
//! The connections are in an epoll set, because they are opened and closed all the time, which Postgres' `WaitEventSet`
//! does not allow. The same set contains the events for which Postgres itself waits: the latch (through the signal that
//! its setter sends), the end of the postmaster, and other signals. With the epoll set inside a `WaitEventSet`, each
//! round would cost three system calls instead of one.
//!
//! A process that sets the latch of this process sends SIGURG if this process has announced that it may sleep. Postgres
//! keeps SIGURG blocked and reads it from a descriptor (WAIT_USE_SIGNALFD in latch.c and waiteventset.c, which applies
//! on every Linux). Signal handlers in this process also set the latch, but send no SIGURG, because `WaitEventSetWait`
//! is not running. A handler that ran between the last check of the latch and the sleep would not wake the process. So
//! the process also blocks the signals that have these handlers, and lets the handlers run after the sleep.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use pgrx::pg_sys;

use crate::pg::version;
use crate::pg::worker::background;

/// The signals whose handlers set the latch. The handler of SIGALRM sets it, too, but no timer runs while the process
/// sleeps.
const HANDLED: [c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGUSR1];
/// The signal that the setter of a latch sends.
const LATCH: c_int = libc::SIGURG;

/// The descriptors, besides the connections, that wake the process. A process creates one Sleeper and keeps it until
/// the process ends.
pub struct Sleeper {
    handled: OwnedFd,
    latch: OwnedFd,
}

impl Sleeper {
    /// Blocks the signals in `HANDLED`. From then on only [`Sleeper::let_in`] delivers them.
    pub fn new() -> io::Result<Sleeper> {
        let sleeper = Sleeper {
            handled: descriptor_of(&HANDLED)?,
            latch: descriptor_of(&[LATCH])?,
        };
        mask(libc::SIG_BLOCK);
        Ok(sleeper)
    }

    /// Returns the descriptors to watch. A descriptor is readable while a signal is pending, or once the postmaster has
    /// ended.
    pub fn watched(&self) -> [BorrowedFd<'_>; 3] {
        // SAFETY: the postmaster's pipe stays open in each of its children.
        let postmaster = unsafe { BorrowedFd::borrow_raw(pg_sys::postmaster_alive_fds[0]) };
        [self.handled.as_fd(), self.latch.as_fd(), postmaster]
    }

    /// Runs the handlers of pending signals, and exits if the postmaster has ended. Called when a watched descriptor is
    /// readable.
    pub fn let_in(&self) {
        mask(libc::SIG_UNBLOCK);
        mask(libc::SIG_BLOCK);
        let mut read = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        // SAFETY: the descriptor is open and does not block, and the buffer has room for one signal, because at most
        // one signal of a kind waits. Without this read the descriptor would stay readable.
        unsafe {
            libc::read(
                self.latch.as_raw_fd(),
                read.as_mut_ptr().cast(),
                size_of::<libc::signalfd_siginfo>(),
            );
        }
        background::end_with_postmaster();
    }

    /// Calls `wait`, which may sleep until a watched descriptor is readable. The argument of `wait` is whether it may
    /// sleep; it must not if the latch is already set.
    pub fn asleep<R>(&self, wait: impl FnOnce(bool) -> R) -> R {
        // SAFETY: the latch and the wait event belong to this process; other processes read both, so the access is
        // volatile.
        unsafe {
            let sleeps = &raw mut (*pg_sys::MyLatch).maybe_sleeping;
            sleeps.write_volatile(1);
            // Either a process that sets the latch sees the flag, or this process sees below that the latch is set.
            fence(Ordering::SeqCst);
            let is_set = (&raw const (*pg_sys::MyLatch).is_set).read_volatile() != 0;
            pg_sys::my_wait_event_info.write_volatile(version::resp_wait_event());
            let result = wait(!is_set);
            pg_sys::my_wait_event_info.write_volatile(0);
            sleeps.write_volatile(0);
            result
        }
    }
}

/// Returns a descriptor that is readable while one of these signals is pending.
fn descriptor_of(signals: &[c_int]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: a new descriptor of a set that lives through the call.
    unsafe {
        match libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Blocks the signals that have handlers, or delivers them.
fn mask(how: c_int) {
    let set = set_of(&HANDLED);
    // SAFETY: the process has one thread, and the set lives through the call, which cannot fail with these arguments.
    unsafe { libc::sigprocmask(how, &set, std::ptr::null_mut()) };
}

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is initialized by the first call; the numbers are signal numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Returns whether the latch was set since the last call, and resets it.
#[inline]
pub fn was_woken() -> bool {
    // SAFETY: the latch is the process's own; other processes set it, so the read is volatile. The caller checks for
    // work after this call, as ResetLatch requires.
    unsafe {
        let set = (&raw const (*pg_sys::MyLatch).is_set).read_volatile() != 0;
        if set {
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        set
    }
}
