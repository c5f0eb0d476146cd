//! What a network process keeps of the commands that it hands over to executors.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::pg::resp::catalog_requests::RequestQueue;
use crate::pg::resp::standby_waits;
use crate::pg::resp::work_queue::{Answered, Free, Handed, Lane, Work, WorkQueue};
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::ipc::request::{CatalogRequest, CatalogResponse};

/// Executors that have taken nothing from a lane for so long do not come to it.
const STALLED: Duration = Duration::from_millis(20);

/// Commands of one client's pipeline that are handed over together.
pub struct PendingBatch {
    pub permission: Rc<Permission>,
    /// It writes to the log of the server.
    pub is_logged: bool,
    /// It is a COPY to this cache.
    pub copied_to: Option<Rc<Permission>>,
    pub work: Work,
    pub lane: Lane,
    /// Where its first request begins in the client's input.
    pub from: usize,
    pub commands: u32,
    /// No other command may join it.
    pub is_full: bool,
    /// The requests, where they are not in the client's input: those of a MULTI.
    pub collected: Option<Vec<u8>>,
}

/// A network process's side of the work queue.
pub struct WorkSubmitter {
    pub work_queue: WorkQueue,
    free: Vec<Free>,
    quick: Watched,
    slow: Watched,
    /// What was handed over since executors were last told: to the quick lane, to the slow one.
    pub untold: (bool, bool),
}

impl WorkSubmitter {
    pub fn new(work_queue: WorkQueue, network: usize) -> WorkSubmitter {
        WorkSubmitter {
            work_queue,
            free: work_queue.begin_network(network),
            quick: Watched::new(Lane::Quick),
            slow: Watched::new(Lane::Slow),
            untold: (false, false),
        }
    }

    /// Looks whether executors come to what waits in the lanes. Where that of the quick lane does not (a standby or
    /// a disk holds it) another one takes its lane; and one that sleeps takes over from those that wait for
    /// a standby.
    pub fn look_at_lanes(&mut self, queue: &RequestQueue<CatalogRequest, CatalogResponse>) {
        if self.quick.is_stalled(&self.work_queue) {
            queue.free_quick();
        }
        if self.slow.is_stalled(&self.work_queue) && standby_waits::somebody_waits() {
            queue.wake_slow();
        }
    }

    /// When to look at them again.
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

    /// Hands over; the number of the place. None: there is no room now.
    pub fn hand(&mut self, handed: Handed, lane: Lane, requests: &[u8]) -> Option<u32> {
        let place = self.free.pop()?;
        if !self.work_queue.write(&place, handed, requests) {
            self.free.push(place);
            return None;
        }
        let number = WorkQueue::number(&place);
        self.work_queue.hand(place, lane);
        match lane {
            Lane::Quick => self.untold.0 = true,
            Lane::Slow => self.untold.1 = true,
        }
        Some(number)
    }

    /// A reply was sent, or nobody wants it.
    pub fn give_back(&mut self, place: Answered) {
        self.free.push(self.work_queue.free(place));
    }
}

/// A lane, while something waits there.
struct Watched {
    lane: Lane,
    /// Since when, and how many had been taken from it then.
    since: Option<(Instant, u64)>,
}

impl Watched {
    fn new(lane: Lane) -> Watched {
        Watched { lane, since: None }
    }

    /// Whether nothing was taken for long; said again after as long.
    fn is_stalled(&mut self, work_queue: &WorkQueue) -> bool {
        if work_queue.waiting(self.lane) == 0 {
            self.since = None;
            return false;
        }
        let (now, taken) = (Instant::now(), work_queue.taken_from(self.lane));
        let same = self.since.filter(|(_, former)| *former == taken);
        let stalled = same.is_some_and(|(since, _)| now >= since + STALLED);
        if stalled || same.is_none() {
            self.since = Some((now, taken));
        }
        stalled
    }
}
