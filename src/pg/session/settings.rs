//! Settings of the session that hold for a while, and come back.

use std::ffi::CStr;

use pgrx::pg_sys;

/// While this lives, a setting has another value. What an error leaves the abort puts back.
pub struct Held(i32);

impl Held {
    /// Sets it as the caller's own SET would.
    pub fn set(name: &CStr, value: &CStr) -> Held {
        // SAFETY: both strings live through the call; the level is closed by drop, or by the abort.
        unsafe {
            let level = pg_sys::NewGUCNestLevel();
            pg_sys::set_config_option(
                name.as_ptr(),
                value.as_ptr(),
                match pg_sys::superuser() {
                    true => pg_sys::GucContext::PGC_SUSET,
                    false => pg_sys::GucContext::PGC_USERSET,
                },
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            Held(level)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the level that `set` has opened; those inside of it are closed.
            unsafe { pg_sys::AtEOXact_GUC(false, self.0) };
        }
    }
}
