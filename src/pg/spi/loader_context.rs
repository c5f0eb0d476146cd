//! The loader's text in the context of errors that come out of it.
//!
//! An error of Postgres has it from the moment when Postgres reports it. An error of ours is a panic,
//! which pgrx reports where our function was called. So ours stays in Postgres' list of contexts while
//! an error unwinds; the code that catches the error puts the list back.

use std::ffi::{CString, c_char, c_int, c_void};

use pgrx::pg_sys;
use pgrx::prelude::*;

unsafe extern "C-unwind" {
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

/// Errors that are raised while this lives name the loader.
pub struct LoaderContext {
    former: *mut pg_sys::ErrorContextCallback,
}

impl LoaderContext {
    /// From now on errors name this text, until the result is dropped.
    pub fn enter(loader: &[u8]) -> LoaderContext {
        let text = CString::new(loader).unwrap_or_default();
        // SAFETY: text and entry are palloc'd in the call's memory context, which is there until
        // the statement ends or its error has been raised. The entry is taken out by drop.
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
            // SAFETY: what was there in enter; contexts are left in the order of entering.
            unsafe { pg_sys::error_context_stack = self.former };
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn name_loader(text: *mut c_void) {
    // SAFETY: Postgres calls this while it builds an error report; the text is a C string.
    unsafe { errcontext_msg(c"loader \"%s\"".as_ptr(), text.cast::<c_char>()) };
}
