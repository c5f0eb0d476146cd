//! Runs DDL statements, built from parts in the server's encoding.

use std::ffi::{CStr, CString};

use crate::pg::spi::plan::run_once;

/// Runs a statement built from parts.
pub fn run(parts: &[&[u8]]) {
    run_once(&statement(parts));
}

/// Lets a trigger also fire under `session_replication_role = replica`.
pub fn enable_always(table: &CStr, trigger: &str) {
    run(&[
        b"ALTER TABLE ",
        table.to_bytes(),
        format!(" ENABLE ALWAYS TRIGGER {trigger}").as_bytes(),
    ]);
}

/// Builds a statement from parts in the server's encoding; no part contains a NUL byte.
fn statement(parts: &[&[u8]]) -> CString {
    CString::new(parts.concat()).unwrap_or_default()
}
