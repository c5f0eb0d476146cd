//! Model checkers for the protocols that keep copies coherent with transactions. Each model runs a protocol step by
//! step between a few backends. The search visits **every** interleaving and checks the promises.
//!
//! | model | subject |
//! |---|---|
//! | `hot_tier` | copies of rows in the hot tier, while gets and commits run |
//! | `lease` | the values that a fetch stores while its source changes |
//! | `prepared` | marks that outlive their session because of PREPARE TRANSACTION |
//! | `promotion` | entries of memory caches, and loads, on a standby that becomes the primary |
//! | `tracking` | the values that a client of the Redis protocol keeps, and their invalidation |
//!
//! `search` visits the states of every model. A clause is one check or one step of a protocol; `clauses` lets a test
//! leave out clauses of a model. `actors` is the framework of every model except `hot_tier`.
//!
//! # Use
//!
//! ```text
//! cargo test -p pgcache-coherence                                     every rule, every negative control
//! cargo test -p pgcache-coherence -- --nocapture publish_ver          print a control's counterexample
//! cargo run --release -p pgcache-coherence --example deep [states]    larger configurations, by hand
//! ```

#![allow(clippy::unreachable, reason = "a tool for tests")]

mod actors;
mod clauses;
pub mod hot_tier;
pub mod lease;
pub mod prepared;
pub mod promotion;
pub mod search;
pub mod tracking;
