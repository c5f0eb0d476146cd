//! Support for the tests and the fuzzer: a model of the store, a check of every invariant, and threads that use a
//! region under locks.
//!
//! This module is not part of a release build, because it allocates and panics.

#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod model_tests;
pub mod op;
#[cfg(test)]
mod piece_tests;
#[cfg(test)]
mod race_tests;
pub mod store_model;
pub mod testing;
mod validate;
