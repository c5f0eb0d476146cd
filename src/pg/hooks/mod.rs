//! Postgres' triggers, callbacks and hooks as this extension uses them. They make few decisions: most turn a report of
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
