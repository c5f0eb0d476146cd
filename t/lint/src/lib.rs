//! Lints for the sources of this checkout that clippy lacks. The lints are the tests in `tests/`; this library parses
//! Rust for them.
//!
//! - [`tree`]: lists the files of a crate by its `mod` lines, without test modules.
//! - [`names`]: finds the files to which each file refers.
//! - [`floors`]: finds references to modules of higher floors, and cycles.
//! - [`commands`]: finds code that compares names of Redis commands.
//! - [`externs`], [`errors`]: read the functions that SQL calls, and the table of `src/error.rs`.

pub mod commands;
pub mod errors;
pub mod externs;
pub mod floors;
pub mod names;
pub mod tree;

use std::path::{Path, PathBuf};

/// Returns the root folder of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of the checkout; `None` if it does not exist.
pub fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}
