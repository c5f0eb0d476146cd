//! The triggers, callbacks and hooks through which Postgres calls this extension. Most of them only turn a call of
//! Postgres into an event for `cache`.

pub mod applied;
pub mod callbacks;
pub mod dependency;
pub mod dependency_key;
pub mod expired_rows;
pub mod name_guard;
pub mod panic_hook;
pub mod pre_commit_portal;
pub mod source;
pub mod trigger;
mod two_phase_commit;
pub mod utility;
