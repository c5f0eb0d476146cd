//! A reader-writer lock in shared memory that works like Postgres' lightweight locks: without contention it takes one
//! atomic step, with contention it sleeps in the kernel. Like a lightweight lock, it has its own cache line.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

const EXCLUSIVE: u32 = 1 << 31;

#[repr(C, align(128))]
pub struct Lock {
    /// The number of shared holders, or [`EXCLUSIVE`] while the lock is held exclusively.
    state: AtomicU32,
    sleepers: AtomicU32,
}

/// A held lock; `waited` says whether the caller had to wait for it.
pub struct Held<'l> {
    lock: &'l Lock,
    part: u32,
    pub waited: bool,
}

impl Lock {
    pub fn shared(&self) -> Held<'_> {
        self.take(1, |state| state & EXCLUSIVE == 0)
    }

    pub fn exclusive(&self) -> Held<'_> {
        self.take(EXCLUSIVE, |state| state == 0)
    }

    fn take(&self, part: u32, is_free: impl Fn(u32) -> bool) -> Held<'_> {
        let (mut state, mut waited) = (self.state.load(SeqCst), false);
        loop {
            if !is_free(state) {
                waited = true;
                self.sleep(state);
                state = self.state.load(SeqCst);
                continue;
            }
            match self.state.compare_exchange_weak(state, state + part, SeqCst, SeqCst) {
                Ok(_) => return Held { lock: self, part, waited },
                Err(now) => state = now,
            }
        }
    }

    /// Sleeps until another process wakes this process. Returns at once if the lock's state is no longer `state`.
    fn sleep(&self, state: u32) {
        self.sleepers.fetch_add(1, SeqCst);
        // SAFETY: the word is borrowed for the length of the call, and the kernel only compares it.
        unsafe {
            let forever = std::ptr::null::<libc::timespec>();
            libc::syscall(libc::SYS_futex, self.state.as_ptr(), libc::FUTEX_WAIT, state, forever);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.state.fetch_sub(self.part, SeqCst);
        if self.lock.sleepers.load(SeqCst) > 0 {
            // SAFETY: the word is borrowed for the length of the call, and the kernel uses only its address.
            unsafe {
                libc::syscall(libc::SYS_futex, self.lock.state.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
            }
        }
    }
}
