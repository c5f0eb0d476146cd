//! What the sources of this checkout must be like, beyond what clippy knows. The tests in `tests/` are
//! the lints; what reads Rust for them is here, by its syntax tree.
//!
//! - [`tree`]: the files of a crate as its `mod` lines name them, without those of tests.
//! - [`names`]: which file names which other.
//! - [`floors`]: that names point down only, and in no circle.
//! - [`commands`]: decisions by the names of Redis commands.
//! - [`externs`], [`errors`]: the functions that SQL calls, and the table of `src/error.rs`.

pub mod commands;
pub mod errors;
pub mod externs;
pub mod floors;
pub mod names;
pub mod tree;

use std::path::{Path, PathBuf};

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the checkout; `None` where there is none.
pub fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}
