//! Postgres' triggers, callbacks and hooks, and the events that they emit.

pub mod applied;
pub mod callbacks;
pub mod dependency;
pub mod dependency_key;
pub mod expired_rows;
pub mod name_guard;
pub mod panic_hook;
pub mod pre_commit_portal;
mod prepared;
pub mod source;
pub mod trigger;
pub mod utility;
