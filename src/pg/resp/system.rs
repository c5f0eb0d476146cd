//! Calls to the operating system that need unsafe code: the limit of open files, processor time, the user at the other
//! end of a unix socket, groups, and the permissions of new files. `fd_passing` passes descriptors.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Raises this process's limit of open files to `wanted`, as far as the system allows, and returns the limit. The
/// limits of other processes of the server stay the same.
pub fn raise_descriptors(wanted: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls only read or write the structure, which lives through them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return usize::MAX;
        }
        let wanted = libc::rlim_t::try_from(wanted).unwrap_or(libc::rlim_t::MAX);
        if limit.rlim_cur < wanted {
            let raised = libc::rlimit {
                rlim_cur: wanted.min(limit.rlim_max),
                ..limit
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
                limit = raised;
            }
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Returns the microseconds of processor time that this process has used, in its own code and in the kernel.
pub fn cpu_time() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure lives through the call, and zeros are a valid structure.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |time: libc::timeval| {
        let micros = time.tv_sec * 1_000_000 + time.tv_usec;
        u64::try_from(micros).unwrap_or(0)
    };
    (micros(usage.ru_utime), micros(usage.ru_stime))
}

/// Returns the system user whose process opened the other end of a unix socket; None if the system does not report it.
pub fn peer_user(socket: BorrowedFd<'_>) -> Option<u32> {
    unsafe extern "C" {
        // Postgres provides this function if the system does not.
        fn getpeereid(socket: i32, user: *mut libc::uid_t, group: *mut libc::gid_t) -> i32;
    }
    let (mut user, mut group) = (0, 0);
    // SAFETY: an open socket; both numbers live through the call.
    let done = unsafe { getpeereid(socket.as_raw_fd(), &mut user, &mut group) };
    (done == 0).then_some(user)
}

/// Returns the id of a group; `name` is the group's name or its id. Returns None if no group has this name.
pub fn group(name: &CStr) -> Option<u32> {
    if let Some(number) = name.to_str().ok().and_then(|name| name.parse().ok()) {
        return Some(number);
    }
    let mut entry = MaybeUninit::uninit();
    let mut found = std::ptr::null_mut();
    let mut texts = vec![0; 64 << 10];
    // SAFETY: all arguments live through the call, which writes at most the length of `texts`, and sets `found` to the
    // entry or to NULL.
    unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr(),
            texts.len(),
            &mut found,
        );
        found.as_ref().map(|entry| entry.gr_gid)
    }
}

/// Runs `make` with a umask that lets only the server's user access the paths that it creates. The caller sets their
/// permissions afterwards.
pub fn private<R>(make: impl FnOnce() -> R) -> R {
    // SAFETY: the umask belongs to this process, which has one thread; it is restored below.
    let former = unsafe { libc::umask(0o077) };
    let made = make();
    // SAFETY: as for the first call.
    unsafe { libc::umask(former) };
    made
}
