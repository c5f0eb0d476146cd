//! Runs the commands that network processes offload: many in one transaction if no command has to wait, one by one
//! otherwise.
//!
//! A reply must be sent only after the commit. An error must reach only the client whose job raised it: the transaction
//! is rolled back, and all other jobs run again. A job waits for a lock only in the slow lane, where it runs in a
//! separate transaction.

mod job;
mod quick;
mod roles;
mod slow;

use std::cell::Cell;
use std::ffi::CString;
use std::ops::Range;
use std::time::Duration;

use pgrx::pg_sys::Oid;

use crate::cache::commit::{invalidated_keys, watched};
use crate::cache::memory::raw;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::process::{Kind, MOST_PROCESSES};
use crate::pg::resp::standby_waits;
use crate::pg::resp::work_queue::{Handed, Lane, Taken};
use crate::pg::session::failure::Failure;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::ring;
use crate::pg::worker::as_role::{self, Terms};
use crate::pg::worker::background;
use crate::resp::executor::tables::{self, Table};
use crate::resp::executor::work::job::{Job, Requests, Tools, write_failure, write_lost};
use crate::resp::executor::work::roles::Roles;
use crate::resp::ipc::catalog_request::{CatalogResponse, WorkQueue};

/// The maximum wait for a lock in the quick lane, including the wait to read a role's settings.
const PATIENCE: Duration = Duration::from_millis(2);
/// The number of bytes of replies after which a transaction ends.
const REPLIES: usize = 1 << 20;

type Notified = [bool; MOST_PROCESSES];

/// An executor's side of the work queue.
pub struct WorkRunner {
    number: usize,
    work_queue: WorkQueue,
    tools: Tools,
    roles: Roles,
    /// The requests of the jobs that were taken together.
    requests: Requests,
    /// The network processes to wake because they have replies.
    networks: Notified,
    /// Whether a job was put into the slow lane, whose executors may sleep.
    has_given_up: bool,
    /// Whether this process has statistics that it has not reported yet.
    pub unreported: bool,
}

/// The point that a transaction of several jobs has reached.
#[derive(Clone, Copy)]
enum At {
    Open(usize),
    Job(usize),
    Commit,
}

impl WorkRunner {
    pub fn new(number: usize, work_queue: WorkQueue, search_path: CString) -> WorkRunner {
        watched::begin(number);
        WorkRunner {
            number,
            work_queue,
            tools: Tools::new(work_queue.batches.longest()),
            roles: Roles::new(search_path),
            requests: Requests::default(),
            networks: [false; MOST_PROCESSES],
            has_given_up: false,
            unreported: false,
        }
    }

    /// Answers the jobs that the previous executor with this number had taken when it ended.
    pub fn answer_lost(&mut self) {
        for taken in self
            .work_queue
            .take_lost(self.number, CatalogResponse::Failed)
        {
            self.tools.restart(self.work_queue.batches.longest());
            if let Some(handed) = self.work_queue.batches.handed(&taken) {
                write_lost(&handed, &mut self.tools.replies);
            }
            self.answer(Some(taken), 0..self.tools.replies.as_bytes().len());
        }
        self.tell();
    }

    /// Reads a job and adds it to `jobs`. Returns the number of its commands.
    fn add(&mut self, taken: Taken, jobs: &mut Vec<Job>) -> u32 {
        let Some(handed) = self.work_queue.batches.handed(&taken) else {
            self.answer(Some(taken), 0..0);
            return 1;
        };
        let batches = self.work_queue.batches;
        let (bytes, cuts) = self
            .requests
            .add(handed.work, |to| batches.read(&taken, to));
        jobs.push(Job {
            taken: Some(taken),
            handed,
            waits: false,
            bytes,
            cuts,
            replies: 0..0,
        });
        handed.commands
    }

    /// Runs jobs in one transaction. Returns how many jobs have run: the transaction ends early when the replies exceed
    /// [`REPLIES`], and before a job whose table has received user-defined code since the job was submitted. That job
    /// is marked as `alone`.
    fn transaction(
        &mut self,
        terms: &Terms<'_>,
        jobs: &mut [Job],
        at: &Cell<At>,
        longest: usize,
    ) -> Result<usize, Failure> {
        let untidy = Cell::new(jobs.iter().any(|job| job.handed.alone));
        let (tools, requests, work_queue) = (&mut self.tools, &self.requests, self.work_queue);
        let (own_number, networks) = (self.number, &mut self.networks);
        tools.restart(longest);
        self.unreported = true;
        let done = as_role::in_transaction(terms, || {
            let mut open: Option<(Oid, Table)> = None;
            let mut done = 0;
            for (number, job) in jobs.iter_mut().enumerate() {
                let relation = job.handed.relation;
                if open.as_ref().is_none_or(|(of, _)| *of != relation) {
                    at.set(At::Open(number));
                    drop(open.take());
                    open = Table::open(relation, job.handed.alone)
                        .ok()
                        .map(|table| (relation, table));
                }
                if !job.handed.alone && runs_user_code(job, requests, open.as_ref()) {
                    job.handed.alone = true;
                    break;
                }
                at.set(At::Job(number));
                ring::set_author(job.handed.ticket);
                raw::take_soonest();
                job.replies = match &open {
                    Some((_, table)) => tools.run(job, requests, table),
                    None => tools.gone(&job.handed),
                };
                ring::set_author(0);
                // User-defined code may have been added to the table while the job waited for the table's lock.
                untidy.set(untidy.get() || has_run_user_code(job, requests, open.as_ref()));
                if let (Some(soonest), Some(taken)) = (raw::take_soonest(), &job.taken) {
                    work_queue.batches.set_soonest(taken, soonest);
                }
                done = number + 1;
                tools.check_length();
                if tools.replies.as_bytes().len() > REPLIES {
                    break;
                }
            }
            if fault::on(Fault::RepliedBeforeCommit) {
                for job in jobs.iter_mut().take(done) {
                    let replies = tools.replies.as_bytes().get(job.replies.clone());
                    send(
                        work_queue,
                        networks,
                        job.taken.take(),
                        replies.unwrap_or_default(),
                    );
                }
                wake_networks(networks, work_queue);
            }
            drop(open);
            at.set(At::Commit);
            invalidated_keys::wait_for_visible();
            standby_waits::begin(own_number);
            done
        });
        // User-defined code of any job of the transaction may have left session state, and an abort does not undo all
        // of it.
        if (untidy.get() || done.is_err()) && !fault::on(Fault::NotTidied) {
            tidy();
        }
        if tables::take_surprise()
            && let At::Job(number) = at.get()
            && let Some(job) = jobs.get_mut(number)
        {
            job.handed.alone = true;
        }
        watched::end();
        background::report_statistics(false);
        if let Ok(done) = done
            && background::is_end_requested()
            && !fault::on(Fault::EndedWaitAcknowledged)
        {
            self.take_back(jobs.get_mut(..done).unwrap_or_default());
        }
        done
    }

    /// Replaces the replies of a transaction on a logged cache that committed after the end of this process was
    /// requested. The request to end cuts the wait for a synchronous standby short, and a commit without that wait must
    /// not be acknowledged.
    fn take_back(&mut self, jobs: &mut [Job]) {
        if !jobs.iter().any(|job| job.handed.is_logged) {
            return;
        }
        self.tools.restart(self.work_queue.batches.longest());
        for job in jobs {
            let from = self.tools.replies.as_bytes().len();
            self.tools.set_protocol(&job.handed);
            write_lost(&job.handed, &mut self.tools.replies);
            job.replies = from..self.tools.replies.as_bytes().len();
        }
    }

    /// Returns whether the commit waits for a synchronous standby, as far as is known before it.
    fn waits_for_standby(&mut self, handed: &Handed) -> bool {
        handed.is_logged && self.roles.waits_for_standby(PATIENCE, handed.role)
    }

    /// Notes for each job whether its commit would wait for a standby. While some commit has waited for long, puts
    /// these jobs aside: if they ran, each would block an executor and be answered no sooner.
    fn put_aside(&mut self, jobs: &mut Vec<Job>, lane: Lane) {
        for job in jobs.iter_mut() {
            job.waits = self.waits_for_standby(&job.handed);
        }
        if !standby_waits::any_executor_waits() {
            return;
        }
        let waits = |job: &mut Job| job.waits;
        for taken in jobs.extract_if(.., waits).filter_map(|job| job.taken) {
            self.work_queue.places.put_aside(taken, lane);
        }
    }

    /// Brings back the jobs that were put aside, once no commit waits for a standby.
    pub fn bring_back(&self) {
        if self.has_aside() {
            self.work_queue.places.bring_back();
            self.work_queue.processes.wake_quick();
            self.work_queue.processes.wake_slow();
        }
    }

    /// Returns whether jobs were put aside and may run now.
    fn has_aside(&self) -> bool {
        self.work_queue.places.has_aside() && !standby_waits::any_executor_waits()
    }

    fn put_back(&mut self, job: Job, lane: Lane) {
        self.has_given_up |= lane == Lane::Slow;
        if let Some(taken) = job.taken {
            if job.handed.alone {
                self.work_queue.batches.set_alone(&taken);
            }
            self.work_queue.places.put_back(taken, lane);
        }
    }

    /// Replaces the replies with the error.
    fn write_failed(&mut self, job: &Job, failure: &Failure) {
        self.tools.restart(self.work_queue.batches.longest());
        self.tools.set_protocol(&job.handed);
        write_failure(&job.handed, failure, &mut self.tools.replies);
    }

    fn fail(&mut self, job: Job, failure: &Failure) {
        self.write_failed(&job, failure);
        self.answer(job.taken, 0..self.tools.replies.as_bytes().len());
    }

    /// Answers a job with this range of the replies. Room for the reply becomes free in any case, because network
    /// processes take their replies without waiting and requests take no room of replies.
    fn answer(&mut self, taken: Option<Taken>, replies: Range<usize>) {
        let bytes = self.tools.replies.as_bytes();
        let bytes = bytes.get(replies).unwrap_or_default();
        send(self.work_queue, &mut self.networks, taken, bytes);
    }

    /// Answers a job with these bytes.
    fn answer_with(&mut self, taken: Option<Taken>, replies: &[u8]) {
        send(self.work_queue, &mut self.networks, taken, replies);
    }

    /// Wakes network processes for their replies, and the executors of the slow lane for jobs that were put back.
    fn tell(&mut self) {
        if std::mem::take(&mut self.has_given_up) {
            self.work_queue.processes.wake_slow();
        }
        wake_networks(&mut self.networks, self.work_queue);
    }

    /// Returns whether work waits that this executor may run.
    pub fn has_work(&self, with_quick: bool, with_slow: bool) -> bool {
        let quick = with_quick && self.work_queue.places.waiting(Lane::Quick) > 0;
        quick || with_slow && self.has_slow() || self.has_aside()
    }

    /// Returns whether requests to read catalogs wait.
    pub fn has_requests(&self) -> bool {
        self.work_queue.places.have_work(Lane::REQUESTS)
    }

    /// Returns whether jobs wait in the slow lane.
    pub fn has_slow(&self) -> bool {
        self.work_queue.places.waiting(Lane::Slow) > 0
    }
}

/// Returns whether a job runs user-defined code: that of its open table, or of the other tables that it changes.
fn runs_user_code(job: &Job, requests: &Requests, open: Option<&(Oid, Table)>) -> bool {
    open.is_some_and(|(_, table)| table.runs_user_code()) || other_runs_code(job, requests)
}

/// Returns whether a job that has run may have run user-defined code.
fn has_run_user_code(job: &Job, requests: &Requests, open: Option<&(Oid, Table)>) -> bool {
    open.is_some_and(|(_, table)| table.has_run_user_code()) || other_runs_code(job, requests)
}

fn other_runs_code(job: &Job, requests: &Requests) -> bool {
    let runs_code = |other: Oid| {
        let other = Table::open(other, job.handed.alone);
        other.is_ok_and(|other| other.runs_user_code())
    };
    job.handed
        .copied_to
        .into_iter()
        .chain(requests.cleared(job))
        .any(runs_code)
}

/// Resets the state that user-defined code has left in the session.
fn tidy() {
    // A request to cancel or to end cannot be meant for this reset, so try again.
    let again = |failure: Failure| match failure.cancelled {
        true => as_role::discard(),
        false => Err(failure),
    };
    let done = as_role::discard().or_else(again).or_else(again);
    if let Err(error) = done {
        error.warn(
            "an executor of the Redis protocol could not reset its session after user-defined code"
                .into(),
            "The process ends, and another one starts.",
        );
        background::request_end_of_process();
    }
}

fn send(work_queue: WorkQueue, networks: &mut Notified, taken: Option<Taken>, replies: &[u8]) {
    let reads = raw::take_reads();
    if reads != [0; 2]
        && let Some(registry) = ClientRegistry::of_server()
    {
        registry.add_reads(reads);
    }
    let mut taken = taken;
    while let Some(place) = taken {
        // An ended network process takes no replies, and so frees no room for this one.
        let is_gone = work_queue.places.is_gone(&place) && !fault::on(Fault::EndedGetsReplies);
        let replies = match is_gone {
            true => b"",
            false => replies,
        };
        match work_queue.batches.answer(place, replies) {
            Ok(network) => {
                if let Some(told) = networks.get_mut(network) {
                    *told = true;
                }
                return;
            }
            Err(again) => taken = Some(again),
        }
        wake_networks(networks, work_queue);
        if background::is_end_requested() {
            // The successor answers the jobs of this process, with an unknown outcome.
            return;
        }
        let _ = background::obey_interrupts();
        background::rest_for(Duration::from_millis(1));
    }
}

fn wake_networks(networks: &mut Notified, work_queue: WorkQueue) {
    for (network, told) in networks.iter_mut().enumerate() {
        if std::mem::take(told) {
            work_queue.processes.wake(Kind::Network, network);
        }
    }
}
