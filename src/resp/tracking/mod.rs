//! CLIENT TRACKING: notifies clients when a key that they have read changes, whichever session or client changes it.
//! Options and state of one client are in `session::tracked`; the steps within the event loop are in
//! `shared::tracking`.
//!
//! It guards three rules of order:
//!
//! - A read is recorded before it runs (`note_reads`), so that a later change finds the clients to notify.
//! - Before replies are sent, their client is notified of all changes that happened before its commands finished: the
//!   ring of changes is drained after the commands and before any byte is sent. Otherwise a reply could show a state
//!   newer than a change that was not yet reported.
//! - A change that arrives during a read is sent again after the reply; otherwise the client would keep the old value
//!   indefinitely.
//!
//! If changes cannot be reported key by key (the ring was overwritten, a cache was cleared), the message is that
//! everything has changed. A key is reported once after each read.

mod read_keys;
pub mod tracking_clients;
