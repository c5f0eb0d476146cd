//! Sets signal handlers in pgcache's processes, makes their settings read-only, and exits from them.

use pgrx::pg_sys;

/// A signal handler, which receives the number of the signal.
pub type Handler = unsafe extern "C-unwind" fn(i32);

/// Sets a signal's handler.
///
/// # Safety
/// The handler must do only what a signal handler may.
pub unsafe fn on_signal(signal: u32, handler: Handler) {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    use pg_sys::pqsignal as set;
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    use pg_sys::pqsignal_be as set;
    // SAFETY: the handler does only what a signal handler may, by the caller's contract. From Postgres 19 on, Postgres
    // passes one more argument, which the handler may ignore by the calling conventions of C.
    #[cfg(feature = "pg19")]
    let handler = unsafe { std::mem::transmute::<Handler, pg_sys::pqsigfunc>(handler) };
    #[cfg(not(feature = "pg19"))]
    let handler = Some(handler);
    // SAFETY: the handler does only what a signal handler may, by the caller's contract.
    unsafe { set(signal as i32, handler) };
}

/// Makes a setting read-only in this process by setting its context to PGC_POSTMASTER.
///
/// # Safety
/// A setting with this name exists.
pub unsafe fn fix_setting(name: &std::ffi::CStr) {
    // SAFETY: the settings' records belong to this process, and stay. A setting of the name exists, so the search finds
    // it.
    unsafe {
        #[cfg(feature = "pg15")]
        let record = {
            let count = pg_sys::GetNumConfigOptions() as usize;
            let all = std::slice::from_raw_parts(pg_sys::get_guc_variables(), count);
            let is_it = |record: &&*mut pg_sys::config_generic| {
                std::ffi::CStr::from_ptr((***record).name) == name
            };
            all.iter().find(is_it).copied().unwrap_or_default()
        };
        #[cfg(not(feature = "pg15"))]
        let record = {
            let level = pgrx::PgLogLevel::ERROR as i32;
            pg_sys::find_option(name.as_ptr(), false, true, level)
        };
        if let Some(record) = record.as_mut() {
            record.context = pg_sys::GucContext::PGC_POSTMASTER;
        }
    }
}

/// Runs the exit callbacks and exits.
///
/// # Safety
/// The caller runs in one of pgcache's processes, where no value is alive that Rust would have to drop.
pub unsafe fn proc_exit(code: i32) -> ! {
    // From Postgres 18 on, the headers declare noreturn in a form that the bindings lose.
    #[cfg_attr(
        any(feature = "pg15", feature = "pg16", feature = "pg17"),
        expect(unreachable_code, reason = "the bindings know it")
    )]
    // SAFETY: the caller has nothing alive that Rust would have to drop, so the exit may jump over all frames.
    unsafe {
        pg_sys::proc_exit(code);
        std::process::abort()
    }
}
