//! The setting `pgcache.resp_socket_mode`: the permissions of the Redis protocol's unix socket. SHOW displays the value
//! in octal digits, as the configuration file contains it.

use std::cell::Cell;
use std::ffi::c_char;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_guard;

/// The setting. Its default is the same as for unix_socket_permissions, because pg_hba.conf decides which clients may
/// connect.
pub static SETTING: GucSetting<i32> = GucSetting::<i32>::new(0o777);

/// Defines the setting.
pub fn define(context: GucContext) {
    // SAFETY: `show` has the type of a show hook, and returns a C string that lives until its next call.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            c"pgcache.resp_socket_mode",
            c"Sets the permissions of the unix socket of the Redis protocol.",
            c"The format is that of unix_socket_permissions.",
            &SETTING,
            0,
            0o777,
            context,
            GucFlags::default(),
            None,
            None,
            Some(show),
        );
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn show() -> *const c_char {
    thread_local! {
        static SHOWN: Cell<[u8; 5]> = const { Cell::new([0; 5]) };
    }
    let digit = |place: u32| b'0' + (SETTING.get() >> (3 * place) & 7) as u8;
    SHOWN.set([b'0', digit(2), digit(1), digit(0), 0]);
    SHOWN.with(|shown| shown.as_ptr().cast())
}
