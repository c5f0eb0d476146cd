//! What a transaction has changed, and how others learn of it when it commits.

mod at_end;
pub mod changes;
pub mod deletions;
pub mod invalidated_keys;
mod ledger;
pub mod marks;
pub mod notify;
pub mod offers;
pub mod prepare;
pub mod publish;
pub mod setup;
pub mod watched;
