//! What Postgres tells us: triggers, callbacks and hooks, and who hears of them.

pub mod applied;
pub mod callbacks;
pub mod dependency;
pub mod dependency_key;
pub mod ending;
pub mod hiding;
pub mod name_guard;
pub mod panic_hook;
mod prepared;
pub mod source;
pub mod trigger;
pub mod utility;
