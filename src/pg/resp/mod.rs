//! The server's side of the Redis protocol: its calls into Postgres, its shared memory, and its system calls that
//! need unsafe code.
//!
//! - [`process`], [`sleep`], [`socket_mode`], [`system`]: how the processes start and sleep, and their calls to the
//!   system.
//! - [`work_queue`], [`standby_waits`]: the queue between network processes and executors, and which of these wait.
//! - [`client_registry`], [`messages`], [`slow_log`], [`cursors`]: shared state that sessions and executors read as
//!   well.
//! - [`multi_process`], [`gate`], [`readers`], [`fd_passing`]: state that several network processes share, and the
//!   way in which they pass on connections.
//! - [`shared_memory`]: the memory of the client registry, the messages and the state of several network processes.
//! - [`hba`], [`login`], [`password`]: pg_hba.conf, the catalogs and stored passwords.
//!
//! The meaning of a request is not here but in `crate::resp`. These files must not depend on it, because all unsafe
//! code of the protocol is here and is to be checked without it.

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
