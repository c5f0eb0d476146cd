//! The Redis protocol, served from inside of the server.
//!
//! - `keeper`: the launcher keeps the processes running.
//! - `network process`: owns listeners and connections, and answers what can never wait; `ahead`, `turn`, `execute`,
//!   `connection`, `registration`, `session`, `clients`, `shared`, `listen` are its parts.
//! - `network processes`, `elsewhere`: where there are several: which one gets a connection, and channels of the others'
//!   clients.
//! - `handshake`, `tls`, `certificate`: how a connection is encrypted.
//! - `back`: does what can wait, for the network processes; `question` is what passes between them.
//! - `auth`, `admission`, `decisions`, `target`: who a client is, and what it may do.
//! - `tracking`: clients that hear of changes.
//! - `shown`, `powers`, `role_names`, `pauses`: what others see of clients, who may see all of them, or end them, or hold
//!   their commands back.
//! - `commands`, `server_commands`, `client_commands`, `info`, `slow`, `refusal`: what it asks for.
//! - `tally`, `tallies`: how many entries tables have.
//!
//! Nothing of this runs, and nothing is asked for at the start, unless a port or a socket is set.

mod auth;
mod commands;
mod execute;
mod executor;
mod ipc;
mod net;
mod network;
mod server;
mod session;
mod shared;
mod supervisor;
mod tracking;

use pgrx::PgSqlErrorCode;

use crate::guc;
use crate::pg::resp::catalog_requests;
use crate::pg::resp::process::{self, Tasks};
use crate::pg::resp::shared_memory::{self, Sizes};
use crate::pg::resp::{
    client_registry, cursors, messages, multi_process, slow_log, standby_waits, work_queue,
};
use crate::pg::session::failure;
use crate::pg::shmem::ring;
use crate::resp::ipc::request::{CatalogRequest, CatalogResponse};
pub use crate::resp::supervisor::keep;

/// Asks at the start of the server for what the protocol needs; only while preloading.
pub fn register() {
    if !guc::resp::is_on() {
        return;
    }
    catalog_requests::register::<CatalogRequest, CatalogResponse>();
    let clients = guc::resp::max_clients();
    shared_memory::register(Sizes {
        clients,
        registry: client_registry::bytes(clients),
        messages: messages::BYTES,
        networks: multi_process::bytes(guc::resp::workers()),
    });
    work_queue::register(guc::resp::workers(), guc::resp::max_request());
    ring::register();
    cursors::register();
    standby_waits::register();
    slow_log::register();
    process::register(Tasks {
        network: network::event_loop::run,
        executor: executor::run,
    });
    // One more for the launcher. Postgres itself would only say that a process was not started.
    let needed = guc::resp::workers() + guc::resp::executors() + 1;
    let most = process::max_worker_processes();
    if most < needed {
        failure::warn(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "max_worker_processes is too low for the Redis protocol".into(),
            format!(
                "The Redis protocol needs {needed} processes, including the launcher, and max_worker_processes is {most}."
            ),
            "Raise max_worker_processes.",
        );
    }
}
