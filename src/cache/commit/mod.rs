//! Changes of a transaction, and how other sessions and clients learn of them when it commits.

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
