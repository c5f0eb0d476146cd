//! Changes settings of the session temporarily, and restores them.

use std::ffi::{CStr, CString, c_char};

use pgrx::pg_sys;

/// Holds settings at other values while it lives. Dropping it restores the settings; after an error the abort does.
pub struct Held(i32);

impl Held {
    /// Changes a setting as a SET by the caller would.
    pub fn set(name: &CStr, value: &CStr) -> Held {
        let held = Held::level();
        // SAFETY: both strings live through the call.
        unsafe { held.add(name.as_ptr(), value.as_ptr()) };
        held
    }

    fn level() -> Held {
        // SAFETY: the level is closed by drop, or by the abort.
        Held(unsafe { pg_sys::NewGUCNestLevel() })
    }

    /// Changes one more setting. Raises the setting's own error for an invalid value.
    ///
    /// # Safety
    /// `name` and `value` are C strings.
    unsafe fn add(&self, name: *const c_char, value: *const c_char) {
        // SAFETY: the strings live through the call.
        unsafe {
            pg_sys::set_config_option(
                name,
                value,
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
        }
    }
}

/// The settings that affect the text form of values, on output and on input.
const OF_TEXTS: [&CStr; 8] = [
    c"DateStyle",
    c"IntervalStyle",
    c"TimeZone",
    c"bytea_output",
    c"extra_float_digits",
    c"lc_monetary",
    c"lc_numeric",
    c"lc_time",
];

/// The values of these settings, in their order. A null value leaves a setting unchanged. The values are pointers, so
/// that this type can live in a Postgres memory context, which runs no destructors.
#[derive(Clone, Copy)]
pub struct Texts([*const c_char; OF_TEXTS.len()]);

impl Texts {
    /// Returns this session's settings in the format of [`Texts::read`]: `name=value; name=value`.
    pub fn of_session() -> String {
        let value = |name: &CStr| {
            // SAFETY: the setting exists; the value lives until the next change.
            let value =
                unsafe { CStr::from_ptr(pg_sys::GetConfigOption(name.as_ptr(), false, false)) };
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        };
        OF_TEXTS.map(value).join("; ")
    }

    /// Returns settings under which the text of a value has the same meaning in every session. Dates have the form of
    /// ISO 8601.
    pub fn iso() -> Texts {
        let mut texts = Texts([std::ptr::null(); OF_TEXTS.len()]);
        texts.0[0] = c"ISO, YMD".as_ptr();
        texts.0[1] = c"postgres".as_ptr();
        texts.0[2] = c"UTC".as_ptr();
        texts.0[3] = c"hex".as_ptr();
        texts.0[4] = c"3".as_ptr();
        texts
    }

    /// Parses the settings. Ignores unknown settings; a missing setting keeps the session's value. The values are
    /// allocated in the current memory context.
    pub fn read(text: &[u8]) -> Texts {
        let mut texts = Texts([std::ptr::null(); OF_TEXTS.len()]);
        for setting in text.split(|&byte| byte == b';') {
            let setting = setting.trim_ascii();
            let Some(equals) = setting.iter().position(|&byte| byte == b'=') else {
                continue;
            };
            let (name, value) = (&setting[..equals], &setting[equals + 1..]);
            let place = OF_TEXTS.iter().position(|known| known.to_bytes() == name);
            if let (Some(place), Ok(value)) = (place, CString::new(value)) {
                // SAFETY: a copy in the current memory context.
                texts.0[place] = unsafe { pg_sys::pstrdup(value.as_ptr()) };
            }
        }
        texts
    }

    /// Sets the values that differ from this session's. Returns None if all values are equal.
    pub fn hold(&self) -> Option<Held> {
        let mut held = None;
        for (name, &value) in OF_TEXTS.iter().zip(&self.0) {
            // SAFETY: the setting exists; both values are strings, compared before anything changes.
            unsafe {
                if value.is_null()
                    || CStr::from_ptr(pg_sys::GetConfigOption(name.as_ptr(), false, false))
                        == CStr::from_ptr(value)
                {
                    continue;
                }
                held.get_or_insert_with(Held::level)
                    .add(name.as_ptr(), value);
            }
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the level that `level` opened; all levels inside it are closed.
            unsafe { pg_sys::AtEOXact_GUC(false, self.0) };
        }
    }
}
