//! How a process with connections of its own sleeps: until one of them, or a signal, or the time
//! wakes it.
//!
//! Connections come and go, which a `WaitEventSet` of Postgres does not allow, so they are in an epoll
//! set. What Postgres waits for is in the same set: the latch by the signal that its setters send, the
//! postmaster's end, and other signals. To put the set into a `WaitEventSet` instead would cost three
//! system calls a turn where one is enough.
//!
//! Who sets a latch sends SIGURG, if the owner says that it may sleep; Postgres keeps that signal
//! blocked, and reads it from a descriptor (WAIT_USE_SIGNALFD of latch.c, waiteventset.c; so it is on
//! every Linux). A handler in this process, however, sends nothing, as `WaitEventSetWait` is not at
//! work. If it ran between the last look at the latch and the sleep, it would be overlooked. So the
//! signals that have handlers are blocked, too, and let in where the sleep has ended.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use pgrx::pg_sys;

use crate::pg::version;
use crate::pg::worker::background;

/// Those whose handlers set the latch. SIGALRM does, too: no time runs while the process sleeps.
const HANDLED: [c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGUSR1];
/// What the setter of a latch sends.
const LATCH: c_int = libc::SIGURG;

/// What wakes the process beside its connections. It is made once, and kept until the process ends.
pub struct Sleeper {
    handled: OwnedFd,
    latch: OwnedFd,
}

impl Sleeper {
    /// From now on signals are let in by [`Sleeper::let_in`] alone.
    pub fn new() -> io::Result<Sleeper> {
        let sleeper = Sleeper {
            handled: descriptor_of(&HANDLED)?,
            latch: descriptor_of(&[LATCH])?,
        };
        mask(libc::SIG_BLOCK);
        Ok(sleeper)
    }

    /// To be watched: each is readable when there is something to be let in.
    pub fn watched(&self) -> [BorrowedFd<'_>; 3] {
        // SAFETY: the postmaster's pipe stays open in each of its children.
        let postmaster = unsafe { BorrowedFd::borrow_raw(pg_sys::postmaster_alive_fds[0]) };
        [self.handled.as_fd(), self.latch.as_fd(), postmaster]
    }

    /// One of them was readable. Runs the handlers of signals that have come; ends with the postmaster.
    pub fn let_in(&self) {
        mask(libc::SIG_UNBLOCK);
        mask(libc::SIG_BLOCK);
        let mut read = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        // SAFETY: an open descriptor that does not block, and room for one signal: more than one of a
        // kind never waits. Without it the next one would not be told of.
        unsafe {
            libc::read(
                self.latch.as_raw_fd(),
                read.as_mut_ptr().cast(),
                size_of::<libc::signalfd_siginfo>(),
            );
        }
        background::end_with_postmaster();
    }

    /// Does this, which may sleep until one of the watched is readable; where the latch is set it is
    /// told not to.
    pub fn asleep<R>(&self, wait: impl FnOnce(bool) -> R) -> R {
        // SAFETY: the latch and the place of the wait event are the process' own; others read both,
        // hence the volatile access.
        unsafe {
            let sleeps = &raw mut (*pg_sys::MyLatch).maybe_sleeping;
            sleeps.write_volatile(1);
            // Who sets the latch from here on sees that, or what it has set is seen below.
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

/// A descriptor that is readable while one of these signals waits.
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

/// Blocks what has handlers, or lets it in.
fn mask(how: c_int) {
    let set = set_of(&HANDLED);
    // SAFETY: the process has one thread, and the set lives through the call, which cannot fail then.
    unsafe { libc::sigprocmask(how, &set, std::ptr::null_mut()) };
}

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is made by the first call; the numbers are those of signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
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
