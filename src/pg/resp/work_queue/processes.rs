//! The network processes and executors that use the work queue: the process id of each, whether an executor is idle,
//! and the executor that has the quick lane. `standby_waits` records the executors that wait for a standby.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use pgrx::pg_sys;

use crate::pg::resp::process::{Kind, MOST_PROCESSES};
use crate::pg::worker::background;

/// The value of `quick` if no executor has the quick lane. In zeroed memory, the executor with number 0 has it.
const NOBODY: u32 = u32::MAX;

/// The state of a process that other processes read.
#[repr(C)]
struct Process {
    /// The process id; 0: no process runs.
    pid: AtomicU32,
    /// Of an executor: it sleeps, or is about to. One that starts or is at work checks the queue before it sleeps.
    idle: AtomicBool,
}

impl Process {
    fn is_idle(&self) -> bool {
        self.idle.load(SeqCst) && self.pid.load(Acquire) != 0
    }
}

/// All processes of the Redis protocol. Zeros mean that none runs.
#[repr(C)]
pub struct Processes {
    /// The database that is served.
    database: AtomicU32,
    /// The number of the executor that has the quick lane.
    quick: AtomicU32,
    networks: [Process; MOST_PROCESSES],
    executors: [Process; MOST_PROCESSES],
}

impl Processes {
    /// Returns the database that is served.
    pub fn database(&self) -> pg_sys::Oid {
        pg_sys::Oid::from_u32(self.database.load(Acquire))
    }

    /// Stores the database that is served, for processes that start later.
    pub fn set_database(&self, database: pg_sys::Oid) {
        self.database.store(database.to_u32(), Release);
    }

    fn process(&self, kind: Kind, number: usize) -> Option<&Process> {
        match kind {
            Kind::Network => self.networks.get(number),
            Kind::Executor => self.executors.get(number),
        }
    }

    /// Returns the process id of the process of this number; None if no process runs.
    pub fn pid(&self, kind: Kind, number: usize) -> Option<u32> {
        let pid = self.process(kind, number)?.pid.load(Acquire);
        (pid != 0).then_some(pid)
    }

    /// Makes this process the one of this number. Returns false if another process has the number.
    pub(super) fn claim(&self, kind: Kind, number: usize) -> bool {
        let Some(process) = self.process(kind, number) else {
            return false;
        };
        let own = background::own_pid();
        process
            .pid
            .compare_exchange(0, own, AcqRel, Acquire)
            .is_ok()
    }

    /// Records that this process no longer has its number.
    pub(super) fn end(&self, kind: Kind, number: usize) {
        if let Some(process) = self.process(kind, number) {
            process.idle.store(false, SeqCst);
            process.pid.store(0, Release);
        }
    }

    /// Wakes a process, if one has this number.
    pub fn wake(&self, kind: Kind, number: usize) {
        if let Some(pid) = self.pid(kind, number) {
            background::wake(pid);
        }
    }

    /// Records whether this executor is about to sleep. After it has recorded that, it checks the queue once more.
    pub fn set_idle(&self, executor: usize, idle: bool) {
        if let Some(executor) = self.executors.get(executor) {
            executor.idle.store(idle, SeqCst);
        }
    }

    fn idle_slow(&self) -> impl Iterator<Item = &Process> {
        let quick = self.quick.load(SeqCst) as usize;
        let slow = self.executors.iter().enumerate().rev();
        let slow = slow.filter(move |(number, executor)| *number != quick && executor.is_idle());
        slow.map(|(_, executor)| executor)
    }

    fn idle_quick(&self) -> Option<&Process> {
        let quick = self.executors.get(self.quick.load(SeqCst) as usize);
        quick.filter(|executor| executor.is_idle())
    }

    /// Wakes an idle executor; the executor of the quick lane is the last choice. A busy executor needs no wake-up,
    /// because it checks the queue again before it sleeps.
    pub fn wake_slow(&self) {
        if let Some(executor) = self.idle_slow().next().or_else(|| self.idle_quick()) {
            background::wake(executor.pid.load(Acquire));
        }
    }

    /// Wakes the executor of the quick lane if it sleeps.
    pub fn wake_quick(&self) {
        match (self.quick.load(SeqCst), self.idle_quick()) {
            (NOBODY, _) => self.wake_slow(),
            (_, Some(quick)) => background::wake(quick.pid.load(Acquire)),
            (_, None) => {}
        }
    }

    /// Returns whether an executor without the quick lane is idle, so that it can run a request at once.
    pub fn has_idle_slow(&self) -> bool {
        self.idle_slow().next().is_some()
    }

    /// Returns whether this executor has the quick lane; it takes the lane if no executor has it.
    pub fn has_quick(&self, executor: usize) -> bool {
        let quick = self.quick.load(SeqCst);
        let claim = || {
            self.quick
                .compare_exchange(NOBODY, executor as u32, SeqCst, SeqCst)
                .is_ok()
        };
        quick == executor as u32 || quick == NOBODY && claim()
    }

    /// Takes the quick lane from its executor, which has not begun the lane's work, so that another executor, or the
    /// same one, takes it.
    pub fn free_quick(&self) {
        self.quick.store(NOBODY, SeqCst);
        self.wake_slow();
    }
}
