//! Records the changes of a transaction. At the commit, keeps the hot tier coherent and notifies other sessions and
//! Redis clients.

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
