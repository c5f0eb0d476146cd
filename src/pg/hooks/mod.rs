//! What Postgres tells us: triggers, callbacks and hooks, and who hears of them.

pub mod callbacks;
pub mod dependency;
pub mod invalidation;
pub mod meant;
pub mod panic_hook;
pub mod source;
pub mod trigger;
