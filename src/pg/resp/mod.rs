//! The C side of the Redis protocol: its processes, what they sleep on, the queue between them, the client registry and the
//! ring of messages that sessions of SQL see, too, what is
//! asked of the system; what several network processes share, and how they hand on connections; who may come in by pg_hba.conf, and whether a password is right.
//!
//! What a request means is said in `crate::resp`.

pub mod catalog_requests;
pub mod client_registry;
pub mod cursors;
pub mod fd_passing;
pub mod gate;
pub mod hba;
pub mod login;
pub mod messages;
pub mod multi_process;
pub mod password;
pub mod process;
pub mod readers;
pub mod shared_memory;
pub mod sleep;
pub mod slow_log;
pub mod socket_mode;
pub mod standby_waits;
pub mod system;
pub mod work_queue;
