//! The Redis protocol, which the Postgres server itself serves.
//!
//! A folder uses only folders above it in this list; `t/lint/tests/floors.rs` checks this. `ipc` and `commands` do not
//! use each other, nor do `network`, `executor` and `supervisor`.
//!
//! - `net`: TLS, certificates and poll registration of a connection.
//! - `auth`: authentication by pg_hba.conf, and the privileges of a role on a cache.
//! - `ipc`: the requests of network processes to executors, and the answers that network processes cache.
//! - `commands`: commands on entries and channels, scripts, MULTI and WATCH.
//! - `session`: the state of one client: its connection, its input and its tracked keys.
//! - `tracking`: the keys that clients of CLIENT TRACKING have read, and the clients to notify.
//! - `shared`: the state that the clients of a network process share.
//! - `server`: commands on the connection and the server, such as HELLO, CLIENT, INFO and SLOWLOG.
//! - `dispatch`: runs each command, or offloads it to an executor.
//! - `network`: the network process: listeners, connections and the event loop.
//! - `executor`: the executor: catalog requests, and commands on tables in transactions.
//! - `supervisor`: starts both kinds of processes, from the launcher.
//!
//! Unless a port or a socket is set, the protocol must start no process and take no shared memory.

mod auth;
mod commands;
mod dispatch;
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
use crate::pg::resp::process::{self, Tasks};
use crate::pg::resp::shared_memory::{self, Sizes};
use crate::pg::resp::{
    client_registry, cursors, messages, multi_process, slow_log, standby_waits, work_queue,
};
use crate::pg::session::failure;
use crate::pg::shmem::{ring, zeroed};
use crate::resp::ipc::catalog_request::{CatalogRequest, CatalogResponse};
pub use crate::resp::supervisor::keep;

/// Registers the protocol's shared memory and processes at server start. Must run while preloading.
pub fn register() {
    if !guc::resp::is_on() {
        return;
    }
    let clients = guc::resp::max_clients();
    shared_memory::register(Sizes {
        clients,
        registry: client_registry::bytes(clients),
        messages: messages::BYTES,
        networks: multi_process::bytes(guc::resp::workers()),
    });
    work_queue::register::<CatalogRequest, CatalogResponse>(
        guc::resp::workers(),
        guc::resp::max_request(),
    );
    ring::register();
    cursors::register();
    standby_waits::register();
    slow_log::register();
    process::register(Tasks {
        network: network::event_loop::run,
        executor: executor::run,
    });
    failure::log(format!(
        "the Redis protocol requests {} MB of shared memory beside pgcache.hot_size, most of it for requests and replies of executors, of twice pgcache.resp_max_request",
        zeroed::total() >> 20
    ));
    if guc::resp::has_former_name() {
        failure::log("pgcache.resp_backs is obsolete: use pgcache.resp_executors".into());
    }
    // The sum includes pgcache's launcher, a worker that sweeps, and Postgres' launcher of logical replication. Without
    // this check Postgres would only report that a process was not started, and not which setting is too low.
    let own = guc::resp::workers() + guc::resp::executors();
    let needed = own + 2 + usize::from(process::has_replication_launcher());
    let most = process::max_worker_processes();
    if most < needed {
        failure::warn(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "max_worker_processes is too low for the Redis protocol".into(),
            format!(
                "The Redis protocol has {own} processes, and with the launchers and a worker that sweeps {needed} are needed. max_worker_processes is {most}."
            ),
            &format!(
                "Raise max_worker_processes to at least {needed}, and by one for each other background worker, such as pg_cron or parallel workers."
            ),
        );
    }
}
