//! The commands that a network process offloads to executors: a client's batch before it is submitted, and the places
//! of the work queue. The queue in shared memory is `pg::resp::work_queue`.
//!
//! Guards that offloaded work does not stall: if no executor takes work from a lane for 20 ms, other executors are
//! woken for it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::pg::resp::standby_waits;
use crate::pg::resp::work_queue::{Answered, Free, Handed, Lane, Work};
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::ipc::request::WorkQueue;

/// The time without progress after which a lane counts as stalled.
const STALLED: Duration = Duration::from_millis(20);

/// Commands of one client's pipeline that are offloaded together.
pub struct PendingBatch {
    pub permission: Rc<Permission>,
    /// Whether the batch writes WAL.
    pub is_logged: bool,
    /// The cache that is the target of a COPY in the batch.
    pub copied_to: Option<Rc<Permission>>,
    pub work: Work,
    pub lane: Lane,
    /// The position of the batch's first request in the client's input.
    pub from: usize,
    pub commands: u32,
    /// Whether no other command may join the batch.
    pub is_full: bool,
    /// The requests, if they are not in the client's input: those of a MULTI.
    pub collected: Option<Vec<u8>>,
}

/// A network process's side of the work queue.
pub struct WorkSubmitter {
    pub work_queue: WorkQueue,
    free: Vec<Free>,
    quick: Watched,
    slow: Watched,
    /// Whether work was added to the quick lane, and to the slow one, since executors were last woken.
    pub untold: (bool, bool),
}

impl WorkSubmitter {
    pub fn new(work_queue: WorkQueue, network: usize) -> WorkSubmitter {
        WorkSubmitter {
            work_queue,
            free: work_queue.places.free_batches(network).collect(),
            quick: Watched::new(Lane::Quick),
            slow: Watched::new(Lane::Slow),
            untold: (false, false),
        }
    }

    /// Checks whether executors take the work that waits in the lanes. If the executor of the quick lane takes none,
    /// because a standby or a disk holds it up, another executor takes over the lane. If no executor takes work of the
    /// slow lane because they wait for a standby, an idle executor is woken for it.
    pub fn look_at_lanes(&mut self) {
        if self.quick.is_stalled(&self.work_queue) {
            self.work_queue.processes.free_quick();
        }
        if self.slow.is_stalled(&self.work_queue) && standby_waits::any_executor_waits() {
            self.work_queue.processes.wake_slow();
        }
    }

    /// Returns the moment of the next check.
    pub fn next_look(&self) -> Option<Instant> {
        let since = [&self.quick, &self.slow].map(|watched| watched.since);
        since
            .into_iter()
            .flatten()
            .min()
            .map(|(since, _)| since + STALLED)
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Submits a batch. Returns the number of its place. None: the queue has no room now.
    pub fn hand(&mut self, handed: Handed, lane: Lane, requests: &[u8]) -> Option<u32> {
        let place = self.free.pop()?;
        if !self.work_queue.batches.write(&place, handed, requests) {
            self.free.push(place);
            return None;
        }
        let number = place.number();
        self.work_queue.places.submit(place, lane);
        match lane == Lane::Quick {
            true => self.untold.0 = true,
            false => self.untold.1 = true,
        }
        Some(number)
    }

    /// Frees a place after its reply was sent, or if no client waits for the reply.
    pub fn give_back(&mut self, place: Answered) {
        self.free.push(self.work_queue.batches.free(place));
    }
}

/// A lane whose progress is watched.
struct Watched {
    lane: Lane,
    /// The moment of the last observed progress, and the number of batches taken before it.
    since: Option<(Instant, u64)>,
}

impl Watched {
    fn new(lane: Lane) -> Watched {
        Watched { lane, since: None }
    }

    /// Returns whether work has waited for 20 ms without any being taken. Returns true again only after another 20 ms.
    fn is_stalled(&mut self, work_queue: &WorkQueue) -> bool {
        if work_queue.places.waiting(self.lane) == 0 {
            self.since = None;
            return false;
        }
        let (now, taken) = (Instant::now(), work_queue.places.taken_from(self.lane));
        let same = self.since.filter(|(_, former)| *former == taken);
        let stalled = same.is_some_and(|(since, _)| now >= since + STALLED);
        if stalled || same.is_none() {
            self.since = Some((now, taken));
        }
        stalled
    }
}
