//! The commands that a network process offloads to executors: a client's batch before it is submitted, and the places
//! of the work queue. The queue in shared memory is `pg::resp::work_queue`.
//!
//! Keeps offloaded work from stalling: if work waits in a lane and no executor takes any for 20 ms, other executors are
//! woken for it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::pg::resp::work_queue::{Answered, BATCHES, Free, Handed, Lane, PLACES, Work};
use crate::pg::session::fault::{self, Fault};
use crate::resp::ipc::catalog_request::WorkQueue;
use crate::resp::ipc::permission_cache::Permission;

/// The time without progress after which a lane counts as stalled.
const STALLED: Duration = Duration::from_millis(20);

/// The bytes of the queue that are reserved for relations without a batch in the queue.
const KEPT: usize = 2 << 20;

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
    /// The requests that a MULTI has collected. None means that the requests are in the client's input.
    pub collected: Option<Vec<u8>>,
}

/// A network process's side of the work queue.
pub struct WorkSubmitter {
    pub work_queue: WorkQueue,
    free: Vec<Free>,
    watched: [Watched; 4],
    /// The relation of the batch in each place of this process, or 0 if the place holds no batch.
    held: [u32; PLACES],
    /// Whether work was added to the quick lane, and whether work was added to any other lane, since executors were
    /// last woken.
    pub untold: (bool, bool),
}

impl WorkSubmitter {
    pub fn new(work_queue: WorkQueue, network: usize) -> WorkSubmitter {
        WorkSubmitter {
            work_queue,
            free: work_queue.places.free_batches(network).collect(),
            watched: [Lane::Quick, Lane::Slow, Lane::Request, Lane::SlowRequest].map(Watched::new),
            held: [0; PLACES],
            untold: (false, false),
        }
    }

    /// Checks whether executors take the work that waits in the lanes. If the executor of the quick lane takes none,
    /// because a standby or a disk holds it up, another executor takes over the lane. For any other lane it wakes an
    /// idle executor, because the executor that was woken earlier may be waiting for a standby or may have ended.
    pub fn look_at_lanes(&mut self) {
        for watched in &mut self.watched {
            if watched.is_stalled(&self.work_queue) {
                match watched.lane {
                    Lane::Quick => self.work_queue.processes.free_quick(),
                    _ if fault::on(Fault::LanesNotWatched)
                        || fault::on(Fault::EndedWakesNobody) => {}
                    _ => self.work_queue.processes.wake_slow(),
                }
            }
        }
    }

    /// Returns the time of the next check, or None if no work waited at the last check.
    pub fn next_look(&self) -> Option<Instant> {
        let since = self.watched.iter().filter_map(|watched| watched.since);
        since.min().map(|(since, _)| since + STALLED)
    }

    /// Returns whether a place is free for a batch on this relation. A relation whose batches wait for a lock must not
    /// take all places, so the last quarter of the places is reserved for relations that hold none.
    pub fn has_room(&self, relation: Oid) -> bool {
        let is_scarce = self.free.len() <= BATCHES / 4;
        !is_scarce || !self.free.is_empty() && !self.holds_place(relation)
    }

    fn holds_place(&self, relation: Oid) -> bool {
        self.held.contains(&relation.to_u32())
    }

    /// Submits a batch. Returns the number of its place, or None if the queue has no room now.
    pub fn hand(&mut self, handed: Handed, lane: Lane, requests: &[u8]) -> Option<u32> {
        let relation = handed.relation;
        let leaves_room = self.work_queue.batches.leaves_room(requests, KEPT);
        if !self.has_room(relation) || !leaves_room && self.holds_place(relation) {
            return None;
        }
        let place = self.free.pop()?;
        if !self.work_queue.batches.write(&place, handed, requests) {
            self.free.push(place);
            return None;
        }
        let number = place.number();
        self.hold(number, relation.to_u32());
        self.work_queue.places.submit(place, lane);
        match lane == Lane::Quick {
            true => self.untold.0 = true,
            false => self.untold.1 = true,
        }
        Some(number)
    }

    /// Takes back the places that no client has, because an error has lost their client in the middle of its turn. `kept`
    /// are the places whose replies wait for clients.
    pub fn reclaim(&mut self, network: usize, kept: &[u32]) {
        self.free = self.work_queue.batches.reclaim(network, kept).collect();
        for place in &self.free {
            if let Some(held) = self.held.get_mut(place.number() as usize % PLACES) {
                *held = 0;
            }
        }
    }

    /// Frees a place after its reply was sent, or if no client waits for the reply.
    pub fn give_back(&mut self, place: Answered) {
        self.hold(place.number(), 0);
        self.free.push(self.work_queue.batches.free(place));
    }

    fn hold(&mut self, place: u32, relation: u32) {
        if let Some(held) = self.held.get_mut(place as usize % PLACES) {
            *held = relation;
        }
    }
}

/// A lane whose progress is watched.
struct Watched {
    lane: Lane,
    /// The time of the last observed progress, and the number of batches or requests that executors had taken from the
    /// lane by then.
    since: Option<(Instant, u64)>,
}

impl Watched {
    fn new(lane: Lane) -> Watched {
        Watched { lane, since: None }
    }

    /// Returns whether work waits and none was taken for 20 ms. Returns true at most once in 20 ms.
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
