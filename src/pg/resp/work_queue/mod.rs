//! The work queue of the Redis protocol, in shared memory: network processes submit commands to it, executors take
//! them and return the replies.
//!
//! It knows neither commands nor replies, only bytes and their network process. Places and pages are allocated at the
//! start of the server. A place belongs to its network process until it is submitted, then to the executor that takes
//! it until it is answered, then to its network process again. Its state names the owner, and a value of [`Free`],
//! [`Taken`] or [`Answered`] stands for ownership; if two processes owned a place, one would read bytes that the
//! other overwrites. No process waits for another here.
//!
//! An executor that ends early leaves places that it had taken; its successor finds them by its number
//! (`begin_executor`) and answers each. A network process that ends leaves places that are under way; its successor
//! receives their answers, although the clients have gone.

mod pages;
mod ring;

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, fence};

use pgrx::pg_sys::Oid;

use crate::pg::resp::catalog_requests::MOST_PROCESSES;
use crate::pg::resp::work_queue::pages::{Half, PAGE, Pages};
use crate::pg::resp::work_queue::ring::Ring;
use crate::pg::shmem::zeroed::{self, LINE, Piece};

/// Places of a network process: the most of its clients that can have commands at an executor at once.
pub const PLACES: usize = 512;
const MOST_PLACES: usize = PLACES * MOST_PROCESSES;
/// Bytes that need no page.
const SHORT: usize = 1024;
/// Bytes of pages for the commands of many clients at once, besides one request and one reply of the greatest length.
const MORE: usize = 8 << 20;

const FREE: u32 = 0;
const WAITING: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;
/// While an executor has the place, its number is above these bits.
const STATE_BITS: u32 = 8;

fn taken_by(executor: usize) -> u32 {
    TAKEN | (executor as u32) << STATE_BITS
}

/// The executors that take the work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Many commands at once, which never wait.
    Quick,
    /// One batch at a time, which may wait.
    Slow,
}

/// The bit beside a place's number that marks work put aside for the slow lane.
const FOR_SLOW: u32 = 1 << 31;

/// The kind of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Commands that change nothing.
    Read,
    /// Reads the rows of a WATCH.
    Watch,
    Write,
    /// The commands of a MULTI: all or none of them.
    Exec,
    /// Empties several tables: all or none of them.
    Clear,
}

/// The description of a batch that a network process submits.
#[derive(Clone, Copy)]
pub struct Handed {
    pub network: usize,
    /// The number by which the network process knows the client.
    pub ticket: u64,
    pub role: Oid,
    pub relation: Oid,
    /// The batch writes WAL, so its commit may wait for a synchronous standby if the role's settings require that.
    pub is_logged: bool,
    /// The target of a COPY, if the command is one.
    pub copied_to: Option<Oid>,
    /// User-defined code may run: each command has a transaction of its own, which is not run twice.
    pub alone: bool,
    pub work: Work,
    pub commands: u32,
    /// The replies use version 3 of the protocol.
    pub three: bool,
    /// The time of submission, by the session's clock.
    pub since: i64,
}

#[repr(C)]
struct Place {
    state: AtomicU32,
    /// The client has disconnected, and no client waits for the reply.
    gone: AtomicBool,
    handed: UnsafeCell<MaybeUninit<Handed>>,
    length: UnsafeCell<usize>,
    /// The earliest deadline of the entries that were read, by the session's clock; the greatest number: none has
    /// one.
    soonest: AtomicI64,
    /// The first page of the bytes if they are not short; 0: none.
    first_page: UnsafeCell<u32>,
    short: UnsafeCell<[u8; SHORT]>,
}

#[repr(C)]
struct Head {
    quick: Ring<MOST_PLACES>,
    slow: Ring<MOST_PLACES>,
    /// Work for one of the lanes, to be queued later.
    aside: Ring<MOST_PLACES>,
    answered: [Ring<PLACES>; MOST_PROCESSES],
}

/// The size of the queue.
#[derive(Clone, Copy)]
struct Sizes {
    networks: usize,
    pages: usize,
}

impl Sizes {
    fn places_at() -> usize {
        size_of::<Head>().next_multiple_of(LINE)
    }

    fn words_at(self) -> usize {
        Sizes::places_at() + (self.networks * PLACES * size_of::<Place>()).next_multiple_of(LINE)
    }

    fn pages_at(self) -> usize {
        (self.words_at() + pages::bytes_of_words(self.pages)).next_multiple_of(LINE)
    }
}

thread_local! {
    // Both set by the postmaster before it forks; every process inherits them.
    static SIZES: Cell<Sizes> = const { Cell::new(Sizes { networks: 0, pages: 0 }) };
    static MEMORY: Cell<Option<NonNull<u8>>> = const { Cell::new(None) };
}

/// Requests the shared memory; called once, while preloading.
pub fn register(networks: usize, longest: usize) {
    let sizes = Sizes {
        networks: networks.min(MOST_PROCESSES),
        pages: (2 * longest + MORE).div_ceil(PAGE),
    };
    SIZES.set(sizes);
    zeroed::register(Piece {
        name: c"pgcache resp work queue",
        bytes: sizes.pages_at(),
        unmade: sizes.pages * PAGE,
        request: || {},
        given: |memory| MEMORY.set(Some(memory)),
    });
}

/// A place of this network process that is free.
pub struct Free(u32);
/// A place that this executor has taken.
pub struct Taken(u32);
/// A place of this network process that has a reply.
pub struct Answered(u32);

/// The work queue of this server.
#[derive(Clone, Copy)]
pub struct WorkQueue {
    head: &'static Head,
    places: &'static [Place],
    pages: Pages,
}

impl WorkQueue {
    /// Returns None if the Redis protocol is off.
    pub fn of_server() -> Option<WorkQueue> {
        let memory = MEMORY.get()?;
        let sizes = SIZES.get();
        // SAFETY: as many bytes lie there from an aligned address on as `register` has requested. Zeroed rings are
        // empty and zeroed places free; only its owner touches the cells of a place.
        unsafe {
            let places = memory.add(Sizes::places_at()).cast().as_ptr();
            Some(WorkQueue {
                head: memory.cast().as_ref(),
                places: std::slice::from_raw_parts(places, sizes.networks * PLACES),
                pages: Pages::over(
                    memory.add(sizes.words_at()),
                    memory.add(sizes.pages_at()),
                    sizes.pages,
                ),
            })
        }
    }

    /// Returns the length of the longest batch or reply.
    pub fn longest(&self) -> usize {
        self.pages.half()
    }

    fn place(&self, number: u32) -> Option<&'static Place> {
        self.places.get(number as usize)
    }

    /// Begins as the network process of this number; returns the places that it may fill now. More follow as the
    /// batches of its predecessor are answered.
    pub fn begin_network(&self, number: usize) -> Vec<Free> {
        let places = self.places.iter().enumerate();
        let own = places.skip(number * PLACES).take(PLACES);
        own.filter(|(_, place)| place.state.load(Acquire) == FREE)
            .map(|(number, _)| self.free(Answered(number as u32)))
            .collect()
    }

    /// Writes a batch to a place; returns false if it has no room now.
    pub fn write(&self, place: &Free, handed: Handed, bytes: &[u8]) -> bool {
        let Some(place) = self.place(place.0) else {
            return false;
        };
        // SAFETY: the place is this network process's alone until it is submitted.
        unsafe { (*place.handed.get()).write(handed) };
        place.soonest.store(i64::MAX, Relaxed);
        place.gone.store(false, Relaxed);
        self.fill(place, bytes, Half::Requests)
    }

    /// Writes bytes to a place of the caller's, in the place itself or in pages.
    fn fill(&self, place: &Place, bytes: &[u8], half: Half) -> bool {
        let page = match bytes.len() <= SHORT {
            true => 0,
            false => match self.pages.write(bytes, half) {
                Some(page) => page,
                None => return false,
            },
        };
        // SAFETY: the place is the caller's alone, and so is its chain of pages.
        unsafe {
            self.pages.give_back(*place.first_page.get());
            *place.first_page.get() = page;
            *place.length.get() = bytes.len();
            if page == 0 {
                let short = (*place.short.get()).as_mut_ptr();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), short, bytes.len());
            }
        }
        true
    }

    /// Passes the bytes of a place of the caller's to `take`, in one piece or several.
    fn show(&self, place: &Place, mut take: impl FnMut(&[u8])) {
        // SAFETY: the place is the caller's alone, and no other process writes to it meanwhile.
        unsafe {
            let (page, length) = (*place.first_page.get(), *place.length.get());
            match page {
                0 => take((*place.short.get()).get(..length).unwrap_or_default()),
                page => self.pages.read(page, length, take),
            }
        }
    }

    /// Submits a batch that was written.
    pub fn hand(&self, place: Free, lane: Lane) {
        self.enqueue(place.0, lane);
    }

    fn enqueue(&self, number: u32, lane: Lane) {
        let Some(place) = self.place(number) else {
            return;
        };
        place.state.store(WAITING, Release);
        // The rings have room for all places.
        match lane {
            Lane::Quick => self.head.quick.push(number),
            Lane::Slow => self.head.slow.push(number),
        };
    }

    /// Notes that the client of a submitted place has disconnected. The place, given by its number, is this network
    /// process's.
    pub fn leave(&self, place: u32) {
        if let Some(place) = self.place(place) {
            place.gone.store(true, Relaxed);
        }
    }

    /// Returns the number by which `leave` knows the place.
    pub fn number(place: &Free) -> u32 {
        place.0
    }

    /// Takes a reply for this network process; returns it with its client's ticket.
    pub fn take_answered(&self, network: usize) -> Option<(u64, Answered)> {
        let number = self.head.answered.get(network)?.pop()?;
        let place = self.place(number)?;
        // SAFETY: a place in this ring is the network process's; this process or its predecessor had written the
        // value.
        let handed = unsafe { (*place.handed.get()).assume_init() };
        Some((handed.ticket, Answered(number)))
    }

    /// Returns whether a reply waits for this network process.
    pub fn is_answered(&self, network: usize) -> bool {
        let ring = self.head.answered.get(network);
        ring.is_some_and(|ring| ring.len() > 0)
    }

    /// Passes the bytes of a reply to `take`.
    pub fn reply(&self, place: &Answered, take: impl FnMut(&[u8])) {
        if let Some(place) = self.place(place.0) {
            self.show(place, take);
        }
    }

    /// Notes the earliest deadline of the entries that an executor has read for this batch.
    pub fn set_soonest(&self, taken: &Taken, soonest: i64) {
        if let Some(place) = self.place(taken.0) {
            place.soonest.store(soonest, Relaxed);
        }
    }

    /// Returns the earliest deadline of the entries that were read for a reply.
    pub fn soonest(&self, place: &Answered) -> Option<i64> {
        let soonest = self.place(place.0)?.soonest.load(Relaxed);
        (soonest != i64::MAX).then_some(soonest)
    }

    /// Frees a place whose reply was taken.
    pub fn free(&self, place: Answered) -> Free {
        if let Some(place) = self.place(place.0) {
            // SAFETY: the place is this network process's alone.
            unsafe {
                self.pages
                    .give_back(std::mem::take(&mut *place.first_page.get()))
            };
            place.state.store(FREE, Release);
        }
        Free(place.0)
    }

    /// Takes the oldest batch of a lane for the executor of this number.
    pub fn take(&self, lane: Lane, executor: usize) -> Option<Taken> {
        let number = match lane {
            Lane::Quick => self.head.quick.pop(),
            Lane::Slow => self.head.slow.pop(),
        }?;
        self.place(number)?.state.store(taken_by(executor), Release);
        Some(Taken(number))
    }

    /// Returns the number of batches that wait in a lane.
    pub fn waiting(&self, lane: Lane) -> u64 {
        // A process that submits work after this look sees everything stored before it, such as that its executor is
        // about to sleep.
        fence(SeqCst);
        match lane {
            Lane::Quick => self.head.quick.len(),
            Lane::Slow => self.head.slow.len(),
        }
    }

    /// Returns the description of a batch that this executor has taken; None: its client has disconnected.
    pub fn handed(&self, taken: &Taken) -> Option<Handed> {
        let place = self.place(taken.0)?;
        // SAFETY: the place is this executor's alone; its network process has written the value.
        let handed = unsafe { (*place.handed.get()).assume_init() };
        (!place.gone.load(Relaxed)).then_some(handed)
    }

    /// Notes that user-defined code may run for a batch that this executor has taken, as it has found out meanwhile.
    pub fn set_alone(&self, taken: &Taken) {
        if let Some(place) = self.place(taken.0) {
            // SAFETY: as in `handed`.
            unsafe { (*place.handed.get()).assume_init_mut() }.alone = true;
        }
    }

    /// Appends the requests of a batch that this executor has taken.
    pub fn read(&self, taken: &Taken, to: &mut Vec<u8>) {
        if let Some(place) = self.place(taken.0) {
            self.show(place, |bytes| to.extend_from_slice(bytes));
        }
    }

    /// Writes the reply; returns the number of the network process to wake. Err: the reply finds no pages now.
    pub fn answer(&self, taken: Taken, reply: &[u8]) -> Result<usize, Taken> {
        let Some(place) = self.place(taken.0) else {
            return Ok(0);
        };
        if !self.fill(place, reply, Half::Replies) {
            return Err(taken);
        }
        // SAFETY: as in `handed`.
        let network = unsafe { (*place.handed.get()).assume_init() }.network;
        place.state.store(ANSWERED, Release);
        if let Some(ring) = self.head.answered.get(network) {
            ring.push(taken.0);
        }
        fence(SeqCst);
        Ok(network)
    }

    /// Puts a batch back into a lane, for another executor or for later.
    pub fn put_back(&self, taken: Taken, lane: Lane) {
        self.enqueue(taken.0, lane);
    }

    /// Puts a batch aside; it enters its lane when `bring_back` is called.
    pub fn put_aside(&self, taken: Taken, lane: Lane) {
        if let Some(place) = self.place(taken.0) {
            place.state.store(WAITING, Release);
            self.head.aside.push(match lane {
                Lane::Quick => taken.0,
                Lane::Slow => taken.0 | FOR_SLOW,
            });
        }
    }

    /// Returns whether a batch was put aside.
    pub fn has_aside(&self) -> bool {
        fence(SeqCst);
        self.head.aside.len() > 0
    }

    /// Moves the batches that were put aside into their lanes.
    pub fn bring_back(&self) {
        // Batches that are put aside meanwhile have a reason of their own.
        for _ in 0..self.head.aside.len() {
            match self.head.aside.pop() {
                Some(slow) if slow & FOR_SLOW != 0 => self.enqueue(slow & !FOR_SLOW, Lane::Slow),
                Some(quick) => self.enqueue(quick, Lane::Quick),
                None => return,
            }
        }
    }

    /// Returns the number of batches ever taken from a lane.
    pub fn taken_from(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Quick => self.head.quick.popped(),
            Lane::Slow => self.head.slow.popped(),
        }
    }

    /// Begins as the executor of this number; returns the batches that its predecessor had taken.
    pub fn begin_executor(&self, number: usize) -> Vec<Taken> {
        let places = self.places.iter().enumerate();
        let taken = |place: &Place| place.state.load(Acquire) == taken_by(number);
        places
            .filter(|(_, place)| taken(place))
            .map(|(number, _)| Taken(number as u32))
            .collect()
    }
}

/// Returns the number of batches that wait for an executor or are at one; 0 if the Redis protocol is off.
pub fn depth() -> usize {
    let is_open = |place: &&Place| {
        let state = place.state.load(Relaxed) & ((1 << STATE_BITS) - 1);
        state == WAITING || state == TAKEN
    };
    WorkQueue::of_server().map_or(0, |work_queue| {
        work_queue.places.iter().filter(is_open).count()
    })
}
