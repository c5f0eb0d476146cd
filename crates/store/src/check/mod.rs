//! What the tests and the fuzzer run: a model of the store, a walk over every invariant, threads
//! under locks.
//!
//! What it is not: part of a release build. It allocates and panics.

#[cfg(test)]
mod journal_tests;
pub mod model;
#[cfg(test)]
mod model_tests;
pub mod op;
#[cfg(test)]
mod piece_tests;
#[cfg(test)]
mod race_tests;
pub mod testing;
mod validate;
