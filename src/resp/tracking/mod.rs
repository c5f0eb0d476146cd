//! CLIENT TRACKING: notifies clients when a key that they have read changes, whichever session or client changes it.
//! Options and state of one client are in `session::tracked`; the steps within the event loop are in
//! `shared::tracking`.
//!
//! It guards three orders:
//!
//! - A read is noted before it runs (`note_reads`), so that a later change finds the clients to notify.
//! - Changes from before a client's commands finished are sent before the replies to them: the ring of changes is
//!   drained after the commands and before anything is sent. So no reply shows a state newer than a change that was
//!   not yet reported.
//! - A change that arrives while a read is under way is sent again after its reply; otherwise the client would keep
//!   the old value for good.
//!
//! If changes cannot be reported key by key (the ring was too short, a cache was cleared), the message is that
//! everything has changed. A key is reported once for each time that it was read.

pub mod state;
mod table;
