//! The part of the Redis protocol's server that needs unsafe code: its calls to Postgres and the operating system, and
//! its shared memory.
//!
//! - [`process`], [`sleep`], [`socket_mode`], [`system`]: start the processes, let them sleep, and call the operating
//!   system.
//! - [`work_queue`], [`standby_waits`]: the queue between network processes and executors, and the executors that wait
//!   for a standby.
//! - [`client_registry`], [`messages`], [`slow_log`], [`cursors`]: state that sessions and executors also read.
//! - [`multi_process`], [`gate`], [`subscribed_channels`], [`fd_passing`]: state that several network processes share,
//!   and the passing of connections between them.
//! - [`shared_memory`]: the memory of the client registry, of the messages, and of the state that several network
//!   processes share.
//! - [`hba`], [`login`], [`password`]: read pg_hba.conf, the catalogs and stored passwords.
//!
//! Commands are parsed and run in `crate::resp`. These files must not depend on `crate::resp`, so that a reviewer can
//! read the unsafe code without it.

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
pub mod shared_memory;
pub mod sleep;
pub mod slow_log;
pub mod socket_mode;
pub mod standby_waits;
pub mod subscribed_channels;
pub mod system;
pub mod work_queue;
