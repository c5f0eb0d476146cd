//! Adds the text of a loader to the CONTEXT of its errors.
//!
//! For an error of Postgres the callback runs when Postgres reports it. An error of pgcache is a panic, which pgrx
//! reports only at the function's entry. So the callback stays in Postgres' list while an error unwinds; the code that
//! catches the error restores the list.

use std::ffi::{CString, c_char, c_int, c_void};

use pgrx::pg_sys;
use pgrx::prelude::*;

unsafe extern "C-unwind" {
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

/// Makes errors show the loader's text while it lives.
pub struct LoaderContext {
    former: *mut pg_sys::ErrorContextCallback,
}

impl LoaderContext {
    /// Makes errors show this text until the result is dropped.
    pub fn enter(loader: &[u8]) -> LoaderContext {
        let text = CString::new(loader).unwrap_or_default();
        // SAFETY: text and entry are palloc'd in the call's memory context, which lives until the statement ends or
        // its error has been raised. Drop removes the entry.
        unsafe {
            let former = pg_sys::error_context_stack;
            let entry: *mut pg_sys::ErrorContextCallback =
                pg_sys::palloc(size_of::<pg_sys::ErrorContextCallback>()).cast();
            *entry = pg_sys::ErrorContextCallback {
                previous: former,
                callback: Some(name_loader),
                arg: pg_sys::pstrdup(text.as_ptr()).cast(),
            };
            pg_sys::error_context_stack = entry;
            LoaderContext { former }
        }
    }
}

impl Drop for LoaderContext {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: this restores the value from before `enter`; contexts end in reverse order of their beginning.
            unsafe { pg_sys::error_context_stack = self.former };
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn name_loader(text: *mut c_void) {
    // SAFETY: Postgres calls this while it builds an error report; the text is a C string.
    unsafe { errcontext_msg(c"loader \"%s\"".as_ptr(), text.cast::<c_char>()) };
}
