//! Each model keeps its promises with every clause, and breaks one when a clause is left out.
//!
//! `cargo test -p pgcache-coherence -- --nocapture NAME` prints a control's run.

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
mod leases;
mod prepared;
mod promotion;
mod protocol;
mod redundant;
mod tracking;
