//! An executor process: does the work of network processes that may have to wait. It answers catalog requests, each in
//! a separate transaction, and runs commands on tables.
//!
//! One executor owns the quick lane: executor 0, until something holds it up and another executor takes the lane over.

pub mod tables;
pub mod work;

use std::time::{Duration, Instant};

use crate::cache::table::entry_count;
use crate::guc;
use crate::pg::resp::process::Kind;
use crate::pg::resp::standby_waits;
use crate::pg::resp::work_queue::{Lane, TakenRequest};
use crate::pg::session::failure::Failure;
use crate::pg::worker::{as_role, background, connect};
use crate::resp::auth::{self, PermissionError};
use crate::resp::executor::work::WorkRunner;
use crate::resp::ipc::catalog_request::{CatalogRequest, CatalogResponse, WorkQueue};

/// The maximum wait for a lock: for the count of a table's entries in any executor, and for all other requests in the
/// executor of the quick lane.
const QUICK: Duration = Duration::from_millis(10);
/// The executor of the quick lane hashes a password only if no other executor can. After the hash it does only other
/// work, for this many times as long as the hash took.
const REST_OF_HASH: u32 = 3;
/// Idle time after which statistics are reported.
const REPORT: Duration = Duration::from_secs(1);

/// Runs an executor until its end is requested.
pub fn run(number: usize) {
    let Some(queue) = WorkQueue::of_server() else {
        background::end(0);
    };
    if !queue.claim(Kind::Executor, number) {
        background::end(0);
    }
    let search_path = connect::as_server(queue.processes.database(), c"pgcache resp executor");
    reload();
    let mut executor = Executor {
        number,
        runner: WorkRunner::new(number, queue, search_path),
        next_slow: Instant::now(),
        queue,
    };
    standby_waits::begin_executor(number);
    executor.runner.answer_lost();
    while !background::is_end_requested() {
        if background::reload_if_requested() {
            reload();
        }
        executor.turn();
    }
    background::end(0);
}

struct Executor {
    number: usize,
    /// The time before which the executor of the quick lane takes no request that may take long.
    next_slow: Instant,
    queue: WorkQueue,
    runner: WorkRunner,
}

impl Executor {
    /// Works until no work is left, and then sleeps.
    fn turn(&mut self) {
        self.queue.processes.set_idle(self.number, false);
        if self.has_work() {
            background::show(Some("running commands of clients of the Redis protocol"));
        }
        while self.work() && !background::is_end_requested() {
            // A cancel request has no effect here, because no work is running. All other signals are obeyed.
            let _ = background::obey_interrupts();
            if background::reload_if_requested() {
                reload();
            }
        }
        // Check the queues again after announcing idle, so that work queued just before is not missed.
        self.queue.processes.set_idle(self.number, true);
        if self.has_work() || background::is_end_requested() {
            return;
        }
        background::show(None);
        let _ = background::obey_interrupts();
        match (self.runner.unreported, self.until_slow()) {
            (_, Some(pause)) => _ = background::rest_for(pause),
            (false, None) => background::rest(),
            (true, None) if background::rest_for(REPORT) => {}
            (true, None) => {
                background::report_statistics(true);
                self.runner.unreported = false;
            }
        }
    }

    /// Runs at most one batch, one request and one job. Returns whether there was any.
    fn work(&mut self) -> bool {
        self.runner.bring_back();
        let mut worked = self.has_quick() && self.runner.quick();
        if self.may_answer()
            && let Some(asked) = self.next_request()
        {
            self.share_rest();
            self.answer(asked);
            worked = true;
        }
        if self.has_slow()
            && let Some(job) = self.runner.next_slow()
        {
            self.share_rest();
            self.runner.slow(job);
            worked = true;
        }
        worked
    }

    /// Wakes another executor for the remaining work, before this executor begins work that may take long. Network
    /// processes may have woken only this executor, so without this call the remaining work would wait for it.
    fn share_rest(&self) {
        if self.runner.has_slow() || self.runner.has_requests() {
            self.queue.processes.wake_slow();
        }
    }

    fn answer(&mut self, asked: TakenRequest<CatalogRequest>) {
        let since = Instant::now();
        let has_slow = self.has_slow();
        // If the table is locked, INFO shows no count; an executor must not wait for a lock only to count entries.
        let is_count = matches!(asked.request, CatalogRequest::Entries { .. });
        let patience = (!has_slow || is_count).then_some(QUICK);
        let answered = match (answer(&asked.request, patience), &asked.request) {
            (Ok(answered), _) => answered,
            (Err(failure), CatalogRequest::Decide { .. }) if failure.locked => {
                CatalogResponse::Permission(Err(PermissionError::Locked))
            }
            (Err(failure), _) if failure.locked && is_count => CatalogResponse::Failed,
            (Err(failure), _) if failure.locked && !has_slow => {
                self.queue.requests.put_back(asked);
                return self.queue.processes.wake_slow();
            }
            (Err(failure), question) => {
                // An authentication is never logged, because a client may have sent its password as a name.
                if matches!(
                    question,
                    CatalogRequest::Decide { .. } | CatalogRequest::ServerPrivileges { .. }
                ) {
                    failure.warn(
                        "could not determine the privileges of a client of the Redis protocol"
                            .into(),
                        "Check pgcache.resp_caches.",
                    );
                }
                CatalogResponse::Failed
            }
        };
        let is_slow = asked.request.is_slow();
        let network = self.queue.requests.answer(asked.place, answered);
        self.queue.processes.wake(Kind::Network, network);
        self.runner.unreported |= is_count;
        if is_slow {
            self.next_slow = since + since.elapsed() * (1 + REST_OF_HASH);
        }
    }

    fn has_quick(&self) -> bool {
        self.queue.processes.has_quick(self.number)
    }

    /// Returns whether this executor takes work that may wait. The executor of the quick lane does so only if all other
    /// executors wait for a standby.
    fn has_slow(&self) -> bool {
        !self.has_quick()
            || standby_waits::all_other_executors_wait(guc::resp::executors(), self.number)
    }

    fn has_work(&self) -> bool {
        self.runner.has_work(self.has_quick(), self.has_slow())
            || self.may_answer() && self.queue.places.have_work(self.lanes())
    }

    /// Returns whether this executor takes catalog requests now. The executor of the quick lane does so only if no
    /// other executor is idle.
    fn may_answer(&self) -> bool {
        self.has_slow() || !self.queue.processes.has_idle_slow()
    }

    /// Returns how long the executor of the quick lane still takes no request that may take long. Returns None if no
    /// such request waits, or if another executor takes it.
    fn until_slow(&self) -> Option<Duration> {
        let waits = !self.has_slow()
            && self.may_answer()
            && self.queue.places.have_work([Lane::SlowRequest]);
        waits.then(|| {
            let pause = self.next_slow.saturating_duration_since(Instant::now());
            pause.max(Duration::from_millis(1))
        })
    }

    fn next_request(&self) -> Option<TakenRequest<CatalogRequest>> {
        let mut lanes = self.lanes();
        lanes.find_map(|lane| self.queue.requests.take(lane, self.number))
    }

    /// Returns the lanes from which this executor takes catalog requests, the most urgent lane first. The executor of
    /// the quick lane takes no request that had to wait for a lock, and few requests with a password.
    fn lanes(&self) -> impl Iterator<Item = Lane> + use<> {
        let has_slow = self.has_slow();
        let takes_slow = has_slow || Instant::now() >= self.next_slow;
        let locked = has_slow.then_some(Lane::LockedRequest);
        let slow = takes_slow.then_some(Lane::SlowRequest);
        [Some(Lane::Request), locked, slow].into_iter().flatten()
    }
}

/// Reads pg_hba.conf. If that fails, the lines that were read before still apply; if none were ever read, no client is
/// admitted.
fn reload() {
    if let Err(error) = background::in_transaction(auth::reload) {
        error.warn(
            "could not read pg_hba.conf for the Redis protocol".into(),
            "Fix the problem that the detail names and reload the configuration.",
        );
    }
}

/// Answers a catalog request. An error ends the transaction, not the process.
fn answer(
    question: &CatalogRequest,
    patience: Option<Duration>,
) -> Result<CatalogResponse, Failure> {
    let work = || match question {
        CatalogRequest::Authenticate {
            user,
            password,
            peer,
            certificate,
        } => {
            let password = password.as_ref().map(|password| password.as_bytes());
            CatalogResponse::Authenticated(auth::authenticate(
                user.as_bytes(),
                password,
                peer,
                certificate.as_ref(),
            ))
        }
        CatalogRequest::Decide { role, cache } => {
            CatalogResponse::Permission(auth::decide(*role, cache.as_bytes()))
        }
        CatalogRequest::ServerPrivileges { role } => {
            CatalogResponse::ServerPrivileges(auth::privileges(*role))
        }
        CatalogRequest::IsRole { name } => CatalogResponse::IsRole(auth::is_role(name.as_bytes())),
        CatalogRequest::Entries { relation } => match entry_count::of(*relation) {
            Some(count) => CatalogResponse::Entries(count),
            None => CatalogResponse::Failed,
        },
    };
    let ask = || match patience {
        None => background::in_transaction(work),
        Some(patience) => as_role::within(patience, || background::in_transaction(work)),
    };
    // A cancel request from a SQL session cannot be meant for a Redis client, so try once more.
    ask().or_else(|failure| match failure.cancelled && !failure.locked {
        true => ask(),
        false => Err(failure),
    })
}
