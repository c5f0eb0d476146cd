//! A process of ours: its signals and its end.

use pgrx::pg_sys;

/// Sets a signal's handler.
///
/// # Safety
/// The handler must do nothing but what a signal handler may.
pub unsafe fn on_signal(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    #[cfg(not(feature = "pg18"))]
    use pg_sys::pqsignal as set;
    #[cfg(feature = "pg18")]
    use pg_sys::pqsignal_be as set;
    // SAFETY: the handler does only what a signal handler may, by the caller's word.
    unsafe { set(signal as i32, Some(handler)) };
}

/// Runs the exit callbacks and ends the process.
///
/// # Safety
/// Between statements of a process of ours: nothing that Rust would have to drop is alive.
pub unsafe fn proc_exit(code: i32) -> ! {
    // The headers of 18 say noreturn in a way that the bindings do not carry over.
    #[cfg_attr(
        not(feature = "pg18"),
        expect(unreachable_code, reason = "the bindings know it")
    )]
    // SAFETY: the caller has nothing alive that Rust would have to drop, so the exit may jump over
    // all frames.
    unsafe {
        pg_sys::proc_exit(code);
        std::process::abort()
    }
}
