//! Rules for the sources of this checkout, beyond those that clippy knows. The tests in `tests/` are the lints; this
//! library
//! reads Rust for them, by its syntax tree.
//!
//! - [`tree`]: the files of a crate as its `mod` lines name them, without those of tests.
//! - [`names`]: which file names which other.
//! - [`floors`]: names point down only, and in no circle.
//! - [`commands`]: code that decides by the names of Redis commands.
//! - [`externs`], [`errors`]: the functions that SQL calls, and the table of `src/error.rs`.

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
