//! Definition statements, put together from parts in the server's encoding.

use std::ffi::{CStr, CString};

use crate::pg::spi::plan::run_once;

/// Runs a statement made of parts.
pub fn run(parts: &[&[u8]]) {
    run_once(&statement(parts));
}

/// A name as a string literal, in the server's encoding.
pub fn literal(name: &CStr) -> Vec<u8> {
    let doubled = name.to_bytes().iter().flat_map(|&byte| match byte {
        b'\'' | b'\\' => vec![byte, byte],
        _ => vec![byte],
    });
    [b" E'".to_vec(), doubled.collect(), b"'".to_vec()].concat()
}

/// So that it also fires under `session_replication_role = replica`.
pub fn enable_always(table: &CStr, trigger: &str) {
    run(&[
        b"ALTER TABLE ",
        table.to_bytes(),
        format!(" ENABLE ALWAYS TRIGGER {trigger}").as_bytes(),
    ]);
}

/// A statement from parts in the server's encoding; none has a NUL byte.
fn statement(parts: &[&[u8]]) -> CString {
    CString::new(parts.concat()).unwrap_or_default()
}
