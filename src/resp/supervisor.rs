//! Keeps the processes of the Redis protocol running, as an additional task of the launcher.
//!
//! It does not leave restarts to Postgres, because without their database the processes would fail every few seconds,
//! each time with a FATAL in the log. Instead the launcher first checks that the database exists, and reports a missing
//! resource only once.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::Oid;

use crate::guc::resp as settings;
use crate::pg::catalog::database;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::process::{self, Kind};
use crate::pg::session::failure;
use crate::pg::worker::background::{self, Started};
use crate::resp::ipc::catalog_request::WorkQueue;

/// The minimum time between two starts of the same process.
const START_AGAIN: Duration = Duration::from_secs(5);
/// Interval at which the launcher checks that all processes run.
const LOOK: Duration = Duration::from_secs(5);
/// Interval at which the launcher checks while a process, the database or a worker slot is missing.
const LOOK_FOR_MISSING: Duration = Duration::from_secs(1);

/// A process that must run, and its last start.
struct Place {
    kind: Kind,
    number: usize,
    started: Option<(Started, Instant)>,
    /// The earliest time of the next start.
    not_before: Option<Instant>,
}

/// The missing resource that was last reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Nothing,
    Database,
    Workers,
}

struct Supervisor {
    queue: WorkQueue,
    places: Vec<Place>,
    said: Missing,
}

thread_local! {
    static SUPERVISOR: RefCell<Option<Supervisor>> = const { RefCell::new(None) };
}

/// Starts missing processes. Returns the time until the next check; None if neither a port nor a socket is set, so that
/// no process is needed.
pub fn keep() -> Option<Duration> {
    SUPERVISOR.with_borrow_mut(|supervisor| {
        if supervisor.is_none() {
            *supervisor = Supervisor::new();
        }
        supervisor.as_mut().map(Supervisor::look)
    })
}

impl Supervisor {
    /// Returns None if neither a port nor a socket is set.
    fn new() -> Option<Supervisor> {
        let queue = WorkQueue::of_server()?;
        let place = |kind| {
            move |number| Place {
                kind,
                number,
                started: None,
                not_before: None,
            }
        };
        // The processes start in this order: one executor, the network processes, the other executors. So clients are
        // served even if max_worker_processes is too low for all processes.
        let mut executors = (0..settings::executors()).map(place(Kind::Executor));
        let first = executors.next();
        let networks = (0..settings::workers()).map(place(Kind::Network));
        Some(Supervisor {
            queue,
            places: first.into_iter().chain(networks).chain(executors).collect(),
            said: Missing::Nothing,
        })
    }

    fn look(&mut self) -> Duration {
        let now = Instant::now();
        let mut empty = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            if place.is_empty(&self.queue, now) {
                empty.push(index);
            }
        }
        if empty.is_empty() {
            self.say(Missing::Nothing);
            return LOOK;
        }
        let Some(database) = find_database() else {
            self.say(Missing::Database);
            return LOOK_FOR_MISSING;
        };
        self.queue.processes.set_database(database);
        if let Some(registry) = ClientRegistry::of_server() {
            registry.set_database(database);
        }
        for index in empty {
            let Some(place) = self.places.get_mut(index) else {
                continue;
            };
            if place.not_before.is_some_and(|moment| moment > now) {
                continue;
            }
            match process::start(place.kind, place.number) {
                Some(started) => place.started = Some((started, now)),
                None => {
                    self.say(Missing::Workers);
                    return LOOK_FOR_MISSING;
                }
            }
        }
        self.say(Missing::Nothing);
        LOOK_FOR_MISSING
    }

    /// Reports once what is missing.
    fn say(&mut self, missing: Missing) {
        if std::mem::replace(&mut self.said, missing) == missing {
            return;
        }
        match missing {
            Missing::Nothing => {}
            Missing::Database => failure::warn(
                PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME,
                "the database that the Redis protocol serves does not exist or does not accept connections".into(),
                "The Redis protocol starts when the database accepts connections.".into(),
                "The parameter pgcache.resp_database names the database.",
            ),
            Missing::Workers => failure::warn(
                PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                "could not start a process of the Redis protocol".into(),
                "All processes that max_worker_processes allows are in use. The start will be tried again.".into(),
                "Raise max_worker_processes.",
            ),
        }
    }
}

/// Returns the database that the setting names, if it accepts connections.
fn find_database() -> Option<Oid> {
    let name = settings::database();
    background::in_transaction(|| database::connectable_by_name(&name)).unwrap_or(None)
}

impl Place {
    /// Returns whether the process does not run. A process that a former launcher has started counts as running.
    fn is_empty(&mut self, queue: &WorkQueue, now: Instant) -> bool {
        if let Some((started, since)) = self.started.take() {
            if !started.has_ended() {
                self.started = Some((started, since));
                return false;
            }
            let lived = now.saturating_duration_since(since);
            self.not_before = (lived < START_AGAIN).then(|| since + START_AGAIN);
        }
        let present = queue.processes.pid(self.kind, self.number);
        present.is_none()
    }
}
