//! The places of the work queue, their owners, and the lanes in which places wait for executors.
//!
//! Here a place is only a number and a state; its contents are defined in `batches` and `request_exchange`. A place
//! belongs to its network process until the process submits it, then to the executor that takes it, and after the
//! answer to its network process again. Only the owner may access the contents; otherwise one process would read bytes
//! that another process overwrites. No process waits for another here.
//!
//! A process that ends early leaves places behind. A network process gives back its own places at its end, in whatever
//! way it ends, and abandons those that it has submitted, so that they become free after their answers. The successor
//! of an executor finds the places that its predecessor had taken, and answers them.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};

use crate::pg::resp::process::MOST_PROCESSES;
use crate::pg::resp::work_queue::place_ring::Ring;

/// The number of a network process's places for batches, and so of its clients that can have commands at executors at
/// the same time.
pub const BATCHES: usize = 448;
/// The number of a network process's places for quick requests, and also of its places for slow requests. The places
/// are separate, so that batches, quick requests and slow requests never take each other's places.
pub const REQUESTS: usize = 32;
/// The number of all places of a network process: a power of two, as `Ring` requires.
pub const PLACES: usize = BATCHES + 2 * REQUESTS;
const MOST_PLACES: usize = PLACES * MOST_PROCESSES;

/// The network process has the place. The place is free, or holds an answer that the process has taken.
const FREE: u32 = 0;
const WAITING: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;
/// While an executor has the place, the executor's number is above these bits.
const STATE_BITS: u32 = 8;

fn taken_by(executor: usize) -> u32 {
    TAKEN | (executor as u32) << STATE_BITS
}

/// A queue in which places wait. `crate::resp::executor` decides which executors take from it, and in which order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Batches that never wait: an executor runs many in one transaction.
    Quick,
    /// Batches that may wait: an executor runs one at a time.
    Slow,
    /// Requests to read catalogs.
    Request,
    /// Requests that have met a lock.
    LockedRequest,
    /// Requests that take milliseconds.
    SlowRequest,
}

impl Lane {
    /// The lanes of catalog requests.
    pub const REQUESTS: [Lane; 3] = [Lane::Request, Lane::LockedRequest, Lane::SlowRequest];
    /// All lanes, in the order of the enum.
    const ALL: [Lane; 5] = [
        Lane::Quick,
        Lane::Slow,
        Lane::Request,
        Lane::LockedRequest,
        Lane::SlowRequest,
    ];
}

#[repr(C)]
pub struct Place {
    state: AtomicU32,
    /// Whether no client waits for the answer.
    gone: AtomicBool,
}

#[repr(C)]
pub struct Head {
    lanes: [Ring<MOST_PLACES>; Lane::ALL.len()],
    /// Places that enter their lanes later. Each is stored as its number plus `MOST_PLACES` times the number of its
    /// lane.
    aside: Ring<MOST_PLACES>,
    answered: [Ring<PLACES>; MOST_PROCESSES],
}

/// The kind of a place's contents, and the place's index among the places of this kind of all network processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Batch(usize),
    Request(usize),
}

/// The places of this server, by their numbers.
#[derive(Clone, Copy)]
pub struct Places {
    pub head: &'static Head,
    pub places: &'static [Place],
}

/// A place that this process owns, in the given state.
pub struct Owned<const STATE: u32>(u32);

/// A free place of this network process.
pub type Free = Owned<FREE>;
/// A place that this executor has taken.
pub type Taken = Owned<TAKEN>;
/// A place of this network process whose answer the process has taken. It is free once this value is.
pub type Answered = Owned<ANSWERED>;

impl<const STATE: u32> Owned<STATE> {
    /// Returns the place's number, for `Places::leave`.
    pub fn number(&self) -> u32 {
        self.0
    }

    pub fn content(&self) -> Content {
        let (network, own) = (self.0 as usize / PLACES, self.0 as usize % PLACES);
        match own.checked_sub(BATCHES) {
            None => Content::Batch(network * BATCHES + own),
            Some(request) => Content::Request(network * 2 * REQUESTS + request),
        }
    }
}

impl Answered {
    /// Frees the place after its answer was read.
    pub fn free(self) -> Free {
        Owned(self.0)
    }
}

impl Places {
    fn place(&self, number: u32) -> Option<&'static Place> {
        self.places.get(number as usize)
    }

    fn numbered(&self) -> impl Iterator<Item = (u32, &'static Place)> + use<> {
        (0..).zip(self.places)
    }

    /// Abandons the places that a network process, which has ended, has submitted: they become free once they are
    /// answered.
    pub fn abandon(&self, network: usize) {
        for (_, place) in self.numbered().skip(network * PLACES).take(PLACES) {
            place.gone.store(true, Relaxed);
        }
    }

    /// Returns the places for batches that a network process, which is the caller, has. If it has just begun, it may fill
    /// all of them now; places with work of its predecessor follow after their answers.
    pub fn free_batches(&self, network: usize) -> impl Iterator<Item = Free> + use<> {
        self.free_of(network, 0..BATCHES)
    }

    /// Returns a free place for a request of a network process, which is the caller; None if all are in use.
    pub fn free_request(&self, network: usize, is_slow: bool) -> Option<Free> {
        let first = BATCHES + usize::from(is_slow) * REQUESTS;
        self.free_of(network, first..first + REQUESTS).next()
    }

    fn free_of(&self, network: usize, own: Range<usize>) -> impl Iterator<Item = Free> + use<> {
        let own = self
            .numbered()
            .skip(network * PLACES + own.start)
            .take(own.len());
        own.filter(|(_, place)| place.state.load(Acquire) == FREE)
            .map(|(number, _)| Owned(number))
    }

    /// Submits a filled place to a lane, from which executors take it.
    pub fn submit(&self, free: Free, lane: Lane) {
        if let Some(place) = self.place(free.0) {
            place.gone.store(false, Relaxed);
            self.enter(free.0, lane);
        }
    }

    /// Puts a place back into a lane, for another executor, or for this executor later.
    pub fn put_back(&self, taken: Taken, lane: Lane) {
        self.enter(taken.0, lane);
    }

    fn enter(&self, number: u32, lane: Lane) {
        if let Some(place) = self.place(number) {
            place.state.store(WAITING, Release);
            // The rings have room for all places.
            self.lane(lane).push(number);
            // After this fence, either an executor that is about to sleep sees the place, or this process sees that the
            // executor is idle.
            fence(SeqCst);
        }
    }

    fn lane(&self, lane: Lane) -> &'static Ring<MOST_PLACES> {
        let [quick, slow, request, locked, slow_request] = &self.head.lanes;
        match lane {
            Lane::Quick => quick,
            Lane::Slow => slow,
            Lane::Request => request,
            Lane::LockedRequest => locked,
            Lane::SlowRequest => slow_request,
        }
    }

    /// Takes the oldest place of a lane for the executor of this number; None if the lane is empty.
    pub fn take(&self, lane: Lane, executor: usize) -> Option<Taken> {
        let number = self.lane(lane).pop()?;
        self.place(number)?.state.store(taken_by(executor), Release);
        Some(Owned(number))
    }

    /// Returns the number of places that wait in a lane.
    pub fn waiting(&self, lane: Lane) -> u64 {
        // A process that submits work after this read sees everything that this process stored before it, such as that
        // the executor is about to sleep.
        fence(SeqCst);
        self.lane(lane).len()
    }

    /// Returns whether a place waits in one of these lanes.
    pub fn have_work(&self, lanes: impl IntoIterator<Item = Lane>) -> bool {
        lanes.into_iter().any(|lane| self.waiting(lane) > 0)
    }

    /// Returns the number of places ever taken from a lane.
    pub fn taken_from(&self, lane: Lane) -> u64 {
        self.lane(lane).popped()
    }

    /// Puts a place aside; it enters its lane when `bring_back` is called.
    pub fn put_aside(&self, taken: Taken, lane: Lane) {
        if let Some(place) = self.place(taken.0) {
            place.state.store(WAITING, Release);
            self.head
                .aside
                .push(taken.0 + lane as u32 * MOST_PLACES as u32);
        }
    }

    /// Returns whether a place was put aside.
    pub fn has_aside(&self) -> bool {
        fence(SeqCst);
        self.head.aside.len() > 0
    }

    /// Moves the places that were put aside into their lanes.
    pub fn bring_back(&self) {
        // The loop is bounded: places that executors put aside during it wait for their own reason.
        for _ in 0..self.head.aside.len() {
            let Some(value) = self.head.aside.pop() else {
                return;
            };
            let lane = Lane::ALL.get(value as usize / MOST_PLACES);
            if let Some(lane) = lane {
                self.enter(value % MOST_PLACES as u32, *lane);
            }
        }
    }

    /// Gives an answered place back to its network process; returns the number of that process, to be woken.
    pub fn answer(&self, taken: Taken) -> usize {
        let network = taken.0 as usize / PLACES;
        if let (Some(place), Some(answered)) =
            (self.place(taken.0), self.head.answered.get(network))
        {
            place.state.store(ANSWERED, Release);
            answered.push(taken.0);
            fence(SeqCst);
        }
        network
    }

    /// Returns whether an answer waits for this network process.
    pub fn is_answered(&self, network: usize) -> bool {
        let answered = self.head.answered.get(network);
        answered.is_some_and(|answered| answered.len() > 0)
    }

    /// Takes an answered place for its network process, which is the caller.
    pub fn take_answered(&self, network: usize) -> Option<Answered> {
        let number = self.head.answered.get(network)?.pop()?;
        // From here on the place goes with the process, even if an error ends the process before it has read the answer.
        self.place(number)?.state.store(FREE, Release);
        Some(Owned(number))
    }

    /// Records that no client waits for the answer of a place that this network process has submitted.
    pub fn leave(&self, number: u32) {
        if let Some(place) = self.place(number) {
            place.gone.store(true, Relaxed);
        }
    }

    /// Returns whether no client waits for the answer.
    pub fn is_gone<const STATE: u32>(&self, owned: &Owned<STATE>) -> bool {
        self.place(owned.0)
            .is_none_or(|place| place.gone.load(Relaxed))
    }

    /// Returns the places that the predecessor of this executor had taken.
    pub fn lost(&self, executor: usize) -> Vec<Taken> {
        let taken = |place: &Place| place.state.load(Acquire) == taken_by(executor);
        let lost = self.numbered().filter(|(_, place)| taken(place));
        lost.map(|(number, _)| Owned(number)).collect()
    }

    /// Returns the number of places that wait for an executor or that an executor has taken.
    pub fn depth(&self) -> usize {
        let is_open = |place: &&Place| {
            let state = place.state.load(Relaxed) & ((1 << STATE_BITS) - 1);
            state == WAITING || state == TAKEN
        };
        self.places.iter().filter(is_open).count()
    }
}
