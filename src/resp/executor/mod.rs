//! an executor process: does what can wait, for the network processes. It answers questions, each in a transaction of its
//! own, and works on tables. One has the quick lane: that of number 0, until it is kept from it and another one
//! takes it.

pub mod tables;
pub mod work;

use std::time::{Duration, Instant};

use crate::cache::table::entry_count;
use crate::guc;
use crate::pg::resp::catalog_requests::{Asked, Kind, RequestQueue, Takes};
use crate::pg::resp::standby_waits;
use crate::pg::resp::work_queue::WorkQueue;
use crate::pg::session::failure::Failure;
use crate::pg::worker::{as_role, background, connect};
use crate::resp::auth::{self, PermissionError};
use crate::resp::executor::work::WorkRunner;
use crate::resp::ipc::request::{CatalogRequest, CatalogResponse};

/// How long the quick lane waits for a lock of a catalog.
const QUICK: Duration = Duration::from_millis(10);
/// The quick lane hashes passwords where no other process can, and then works for so many times as long on the rest.
const REST_OF_HASH: u32 = 3;
/// After so long without work what was done is reported.
const REPORT: Duration = Duration::from_secs(1);

/// The life of an executor.
pub fn run(number: usize) {
    let (Some(queue), Some(work_queue)) = (RequestQueue::of_server(), WorkQueue::of_server())
    else {
        background::end(0);
    };
    let search_path = connect::as_server(queue.database(), c"pgcache resp executor");
    reload();
    let mut executor = Executor {
        number,
        runner: WorkRunner::new(number, work_queue, search_path),
        next_slow: Instant::now(),
        queue,
    };
    standby_waits::begin_executor(number);
    executor
        .queue
        .begin_executor(number, CatalogResponse::Failed);
    executor.runner.answer_lost(&executor.queue);
    while !background::asked_to_end() {
        if background::reload_if_asked() {
            reload();
        }
        executor.turn();
    }
    executor.queue.end(Kind::Executor, number);
    background::end(0);
}

struct Executor {
    number: usize,
    /// The quick one takes no question before that may take long.
    next_slow: Instant,
    queue: RequestQueue<CatalogRequest, CatalogResponse>,
    runner: WorkRunner,
}

impl Executor {
    /// Works until there is nothing to do, and sleeps.
    fn turn(&mut self) {
        self.queue.set_busy(self.number, true);
        if self.has_work() {
            background::show(Some("running commands of clients of the Redis protocol"));
        }
        while self.work() && !background::asked_to_end() {
            // A cancel is for nobody here, and what else a signal asks for is done.
            let _ = background::obey_interrupts();
            if background::reload_if_asked() {
                reload();
            }
        }
        // What came before this was said is seen by the look after it.
        self.queue.set_busy(self.number, false);
        if self.has_work() || background::asked_to_end() {
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

    /// One batch, one question, one job; whether there was any.
    fn work(&mut self) -> bool {
        self.runner.bring_back(&self.queue);
        let mut worked = self.has_quick() && self.runner.quick(&self.queue);
        if self.may_answer()
            && let Some(asked) = self.queue.next(self.number, self.takes())
        {
            self.answer(asked);
            worked = true;
        }
        if self.has_slow() && self.runner.has_slow() {
            // It may take long: who comes in or asks meanwhile does not wait for it.
            if !self.has_quick() && self.queue.is_asked(Takes::ALL) {
                self.queue.wake_quick();
            }
            worked |= self.runner.slow(&self.queue);
        }
        worked
    }

    fn answer(&mut self, asked: Asked<CatalogRequest>) {
        let since = Instant::now();
        let has_slow = self.has_slow();
        // A count is not worth waiting for a lock.
        let is_count = matches!(asked.question, CatalogRequest::Entries { .. });
        let patience = (!has_slow || is_count).then_some(QUICK);
        let answered = match (answer(&asked.question, patience), &asked.question) {
            (Ok(answered), _) => answered,
            (Err(failure), CatalogRequest::Decide { .. }) if failure.locked => {
                CatalogResponse::Permission(Err(PermissionError::Locked))
            }
            (Err(failure), _) if failure.locked && is_count => CatalogResponse::Failed,
            (Err(failure), _) if failure.locked && !has_slow => {
                return self.queue.put_back(asked);
            }
            (Err(failure), question) => {
                // Of an authentication nothing is logged: a password may stand where a name should.
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
        self.queue.answer(asked.place, answered);
        self.runner.unreported |= is_count;
        if asked.slow {
            self.next_slow = since + since.elapsed() * (1 + REST_OF_HASH);
        }
    }

    fn has_quick(&self) -> bool {
        self.queue.has_quick(self.number)
    }

    /// Whether it takes what may wait: the quick one only where nobody else can.
    fn has_slow(&self) -> bool {
        !self.has_quick() || standby_waits::all_others_wait(guc::resp::executors(), self.number)
    }

    fn has_work(&self) -> bool {
        self.runner.has_work(self.has_quick(), self.has_slow())
            || self.may_answer() && self.queue.is_asked(self.takes())
    }

    /// Whether it takes questions now: the quick one only where no other can.
    fn may_answer(&self) -> bool {
        self.has_slow() || !self.queue.has_idle_slow()
    }

    /// Until when the quick one leaves those alone that take long, where nobody else takes them.
    fn until_slow(&self) -> Option<Duration> {
        let waits = |takes| !self.has_slow() && self.may_answer() && self.queue.is_asked(takes);
        waits(Takes {
            slow: true,
            locked: false,
        })
        .then(|| {
            let pause = self.next_slow.saturating_duration_since(Instant::now());
            pause.max(Duration::from_millis(1))
        })
    }

    /// Which questions it takes: the quick one none that has met a lock, and of those with a password a few.
    fn takes(&self) -> Takes {
        Takes {
            slow: self.has_slow() || Instant::now() >= self.next_slow,
            locked: self.has_slow(),
        }
    }
}

/// Reads pg_hba.conf. Where that fails nobody comes in, or the lines that were read before count.
fn reload() {
    if let Err(error) = background::in_transaction(auth::reload) {
        error.warn(
            "could not read pg_hba.conf for the Redis protocol".into(),
            "Fix the problem that the detail names and reload the configuration.",
        );
    }
}

/// An error ends the transaction, not the process.
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
    // Whoever cancels means no client of ours: once more.
    ask().or_else(|failure| match failure.cancelled && !failure.locked {
        true => ask(),
        false => Err(failure),
    })
}
