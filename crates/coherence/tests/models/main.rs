//! Tests every model: with all clauses it keeps its promises, and without a clause it breaks one.
//!
//! `cargo test -p pgcache-coherence -- --nocapture NAME` prints the counterexample of a negative control.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

#[macro_use]
mod check;
mod controls;
mod lease_model;
mod prepared_model;
mod promotion_model;
mod protocol;
mod redundant;
mod tracking_model;
