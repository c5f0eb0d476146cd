//! Checks whether the operating system would provide the memory that the hot tier needs, and reads how much memory the
//! machine has.
//!
//! This module does not allocate the tier's memory: Postgres allocates it with the rest of its shared memory. If the
//! system refuses the allocation, Postgres cannot report which library needed the memory. So this check runs first, and
//! its error can name the setting.

/// The size of a huge page on x86_64, and a multiple of all smaller pages.
const HUGE: usize = 2 << 20;

/// Returns the bytes of memory of this machine. A container may have less.
pub fn of_machine() -> usize {
    // SAFETY: both calls only read a number of the system.
    let [pages, size] = unsafe {
        [
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        ]
    };
    let number = |number| usize::try_from(number).unwrap_or(0);
    number(pages).saturating_mul(number(size))
}

/// Returns whether the system can map this many bytes now, in huge pages or in normal ones. Releases the mapping at
/// once, and never writes to it.
#[cfg(target_os = "linux")]
pub fn system_gives(bytes: usize, is_huge: bool) -> bool {
    use std::ffi::c_void;
    unsafe extern "C" {
        fn mmap(
            at: *mut c_void,
            n: usize,
            access: i32,
            kind: i32,
            file: i32,
            from: i64,
        ) -> *mut c_void;
        fn munmap(at: *mut c_void, n: usize) -> i32;
    }
    const READ_AND_WRITE: i32 = 3;
    const SHARED_AND_ANONYMOUS: i32 = 0x21;
    const HUGE_PAGES: i32 = 0x40000;
    let (bytes, kind) = match is_huge {
        true => (
            bytes.next_multiple_of(HUGE),
            SHARED_AND_ANONYMOUS | HUGE_PAGES,
        ),
        false => (bytes, SHARED_AND_ANONYMOUS),
    };
    // SAFETY: a new anonymous mapping, which only this function uses.
    unsafe {
        let memory = mmap(std::ptr::null_mut(), bytes, READ_AND_WRITE, kind, -1, 0);
        memory as isize != -1 && munmap(memory, bytes) == 0
    }
}

/// Returns true without a check on systems other than Linux, where Postgres itself reports a refusal.
#[cfg(not(target_os = "linux"))]
pub fn system_gives(_bytes: usize, _is_huge: bool) -> bool {
    true
}
