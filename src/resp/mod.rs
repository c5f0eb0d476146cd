//! The Redis protocol, served from inside of the server.
//!
//! - `keeper`: the launcher keeps the processes running.
//! - `front`: owns listeners and connections, and answers what can never wait; `ahead`, `turn`, `execute`,
//!   `connection`, `registration`, `session`, `clients`, `shared`, `listen` are its parts.
//! - `fronts`, `elsewhere`: where there are several: which one gets a connection, and channels of the others'
//!   clients.
//! - `handshake`, `tls`, `certificate`: how a connection is encrypted.
//! - `back`: does what can wait, for the fronts; `question` is what passes between them.
//! - `auth`, `admission`, `decisions`, `target`: who a client is, and what it may do.
//! - `tracking`: clients that hear of changes.
//! - `shown`, `powers`, `role_names`, `pauses`: what others see of clients, who may see all of them, or end them, or hold
//!   their commands back.
//! - `commands`, `server_commands`, `client_commands`, `info`, `slow`, `refusal`: what it asks for.
//! - `tally`, `tallies`: how many entries tables have.
//!
//! Nothing of this runs, and nothing is asked for at the start, unless a port or a socket is set.

mod admission;
mod ahead;
mod auth;
mod back;
mod bundle;
mod certificate;
mod client_commands;
mod clients;
mod commands;
mod connection;
mod decisions;
mod elsewhere;
mod execute;
mod flush_all;
mod front;
mod fronts;
mod hand_over;
mod handshake;
mod info;
mod keeper;
mod listen;
mod memory;
mod pauses;
mod powers;
mod question;
mod rate;
mod refusal;
mod registration;
mod role_names;
mod server_commands;
mod session;
mod shared;
mod short;
mod shown;
mod slow;
mod table_exec;
mod tables;
mod tallies;
mod tally;
mod target;
mod tls;
mod tracking;
mod turn;

mod work;

use pgrx::PgSqlErrorCode;

pub use self::keeper::keep;
use self::question::{Answer, Question};
use crate::guc;
use crate::pg::resp::area::{self, Sizes};
use crate::pg::resp::process::{self, Tasks};
use crate::pg::resp::queue;
use crate::pg::resp::{board, commits, cursors, desk, messages, several, slow_log};
use crate::pg::session::failure;
use crate::pg::shmem::ring;

/// Asks at the start of the server for what the protocol needs; only while preloading.
pub fn register() {
    if !guc::resp::is_on() {
        return;
    }
    queue::register::<Question, Answer>();
    let clients = guc::resp::max_clients();
    area::register(Sizes {
        clients,
        board: board::bytes(clients),
        messages: messages::BYTES,
        fronts: several::bytes(guc::resp::workers()),
    });
    desk::register(guc::resp::workers(), guc::resp::max_request());
    ring::register();
    cursors::register();
    commits::register();
    slow_log::register();
    process::register(Tasks {
        front: front::run,
        back: back::run,
    });
    // One more for the launcher. Postgres itself would only say that a process was not started.
    let needed = guc::resp::workers() + guc::resp::backs() + 1;
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
