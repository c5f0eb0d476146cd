//! CLIENT TRACKING: notifies clients when any session or client changes a key that they have read. The options and the
//! state of one client are in `session::tracked`; the steps within the event loop are in `shared::tracking`.
//!
//! Three rules of order hold:
//!
//! - A read is noted before it runs (`note_reads`), so that a later change finds the client to notify.
//! - The ring of changes is drained after a client's commands have run and before any byte of their replies is sent. So
//!   the client is first notified of all changes that happened before its commands finished; otherwise a reply could
//!   show a state newer than an unreported change.
//! - A change that arrives during a read is sent again after the reply; otherwise the client would cache the old value
//!   indefinitely.
//!
//! If changes cannot be reported key by key, because the ring was overwritten or a cache was cleared, the message says
//! that everything has changed. A key is reported once after each read.

mod read_keys;
pub mod tracking_clients;
