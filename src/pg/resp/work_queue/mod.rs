//! The work queue of the Redis protocol, in shared memory: where network processes hand commands over to executors, and get the
//! replies.
//!
//! What it is not: it knows neither commands nor replies, only bytes, and for whom they are. Places and
//! pages are taken at the start of the server. A place belongs to its network process until it is handed over, to the
//! back that takes it until it is answered, then to its network process again: who owns it is its state, and a value
//! of [`Free`], [`Taken`] or [`Answered`] stands for owning it. Nobody waits for anybody here.
//!
//! an executor that ends in the middle leaves places that it had taken: its successor finds them by its number
//! (`begin_back`) and answers each. A network process that ends leaves some that are under way: its successor gets
//! the answers, for clients that are not there.

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

/// Places of a network process: so many of its clients can have something at an executor.
pub const PLACES: usize = 512;
const MOST_PLACES: usize = PLACES * MOST_PROCESSES;
/// What is not longer needs no page.
const SHORT: usize = 1024;
/// Pages for what many clients have there at once, beside one request and one reply of the longest.
const MORE: usize = 8 << 20;

const FREE: u32 = 0;
const WAITING: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;
/// Above these bits stands, while an executor has it, its number.
const STATE_BITS: u32 = 8;

fn taken_by(executor: usize) -> u32 {
    TAKEN | (executor as u32) << STATE_BITS
}

/// Which executors take it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Many at once, which wait for nobody.
    Quick,
    /// One at a time; it may wait.
    Slow,
}

/// Stands beside a place's number where what was put aside is for the slow lane.
const FOR_SLOW: u32 = 1 << 31;

/// What is to be done with what is handed over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Commands that change nothing.
    Read,
    /// What is under the keys of a WATCH.
    Watch,
    Write,
    /// The commands of a MULTI: all or none.
    Exec,
    /// Several tables are to be emptied: all or none.
    Clear,
}

/// What a network process says of what it hands over.
#[derive(Clone, Copy)]
pub struct Handed {
    pub network: usize,
    /// What the network process knows its client by.
    pub ticket: u64,
    pub role: Oid,
    pub relation: Oid,
    /// Its commit may wait for a synchronous standby, if its role asks for that: it writes to the log.
    pub is_logged: bool,
    /// The command is a COPY to this one.
    pub copied_to: Option<Oid>,
    /// user-defined code may run: each command has a transaction of its own, which is not run twice.
    pub alone: bool,
    pub work: Work,
    pub commands: u32,
    /// The version of the protocol that is replied in is 3.
    pub three: bool,
    /// When it was handed over, as the clock of the session has it.
    pub since: i64,
}

#[repr(C)]
struct Place {
    state: AtomicU32,
    /// Its client is gone: nobody waits for the reply.
    gone: AtomicBool,
    handed: UnsafeCell<MaybeUninit<Handed>>,
    length: UnsafeCell<usize>,
    /// When the first of the entries ends that were read, as the clock of the session has it; the greatest
    /// number: none does.
    soonest: AtomicI64,
    /// Where the bytes are if they are not short; 0: nowhere.
    first_page: UnsafeCell<u32>,
    short: UnsafeCell<[u8; SHORT]>,
}

#[repr(C)]
struct Head {
    quick: Ring<MOST_PLACES>,
    slow: Ring<MOST_PLACES>,
    /// What is for one of the lanes, later.
    aside: Ring<MOST_PLACES>,
    answered: [Ring<PLACES>; MOST_PROCESSES],
}

/// How large it is.
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

/// Asks for room at the start of the server; only while preloading, once.
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

/// A place that is its network process'.
pub struct Free(u32);
/// A place that this executor has taken.
pub struct Taken(u32);
/// A place with a reply, which is its network process'.
pub struct Answered(u32);

/// The work queue of this server.
#[derive(Clone, Copy)]
pub struct WorkQueue {
    head: &'static Head,
    places: &'static [Place],
    pages: Pages,
}

impl WorkQueue {
    /// None where nothing listens.
    pub fn of_server() -> Option<WorkQueue> {
        let memory = MEMORY.get()?;
        let sizes = SIZES.get();
        // SAFETY: as many bytes lie there from an aligned address on, as `register` has asked for. Zeroed
        // rings are empty, zeroed places free; what is in the cells of a place only its owner touches.
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

    /// The longest that can be handed over, or replied.
    pub fn longest(&self) -> usize {
        self.pages.half()
    }

    fn place(&self, number: u32) -> Option<&'static Place> {
        self.places.get(number as usize)
    }

    /// This process is the network process of this number: the places that it may fill now. More come as what its
    /// predecessor has handed over is answered.
    pub fn begin_network(&self, number: usize) -> Vec<Free> {
        let places = self.places.iter().enumerate();
        let own = places.skip(number * PLACES).take(PLACES);
        own.filter(|(_, place)| place.state.load(Acquire) == FREE)
            .map(|(number, _)| self.free(Answered(number as u32)))
            .collect()
    }

    /// Writes what is to be handed over; false where there is no room for it now.
    pub fn write(&self, place: &Free, handed: Handed, bytes: &[u8]) -> bool {
        let Some(place) = self.place(place.0) else {
            return false;
        };
        // SAFETY: the place is this network process' alone until it is handed over.
        unsafe { (*place.handed.get()).write(handed) };
        place.soonest.store(i64::MAX, Relaxed);
        place.gone.store(false, Relaxed);
        self.fill(place, bytes, Half::Requests)
    }

    /// Puts bytes to a place of the caller's, for those that are there.
    fn fill(&self, place: &Place, bytes: &[u8], half: Half) -> bool {
        let page = match bytes.len() <= SHORT {
            true => 0,
            false => match self.pages.write(bytes, half) {
                Some(page) => page,
                None => return false,
            },
        };
        // SAFETY: the place is the caller's alone, and so is the chain that it has.
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

    /// Shows the bytes of a place of the caller's, in one piece or several.
    fn show(&self, place: &Place, mut take: impl FnMut(&[u8])) {
        // SAFETY: the place is the caller's alone, and nobody writes to it meanwhile.
        unsafe {
            let (page, length) = (*place.first_page.get(), *place.length.get());
            match page {
                0 => take((*place.short.get()).get(..length).unwrap_or_default()),
                page => self.pages.read(page, length, take),
            }
        }
    }

    /// Hands over what was written.
    pub fn hand(&self, place: Free, lane: Lane) {
        self.enqueue(place.0, lane);
    }

    fn enqueue(&self, number: u32, lane: Lane) {
        let Some(place) = self.place(number) else {
            return;
        };
        place.state.store(WAITING, Release);
        // There is room for all places.
        match lane {
            Lane::Quick => self.head.quick.push(number),
            Lane::Slow => self.head.slow.push(number),
        };
    }

    /// The client that a place was handed over for is gone. The place is this network process', by its number.
    pub fn leave(&self, place: u32) {
        if let Some(place) = self.place(place) {
            place.gone.store(true, Relaxed);
        }
    }

    /// What one leaves it by.
    pub fn number(place: &Free) -> u32 {
        place.0
    }

    /// A reply for this network process, and whose it is.
    pub fn take_answered(&self, network: usize) -> Option<(u64, Answered)> {
        let number = self.head.answered.get(network)?.pop()?;
        let place = self.place(number)?;
        // SAFETY: what is in this ring is the network process'; it had written this itself, or its predecessor.
        let handed = unsafe { (*place.handed.get()).assume_init() };
        Some((handed.ticket, Answered(number)))
    }

    /// Whether there is a reply for this network process.
    pub fn is_answered(&self, network: usize) -> bool {
        let ring = self.head.answered.get(network);
        ring.is_some_and(|ring| ring.len() > 0)
    }

    /// Shows a reply.
    pub fn reply(&self, place: &Answered, take: impl FnMut(&[u8])) {
        if let Some(place) = self.place(place.0) {
            self.show(place, take);
        }
    }

    /// One of the entries that an executor has read for this ends then, and none sooner.
    pub fn set_soonest(&self, taken: &Taken, soonest: i64) {
        if let Some(place) = self.place(taken.0) {
            place.soonest.store(soonest, Relaxed);
        }
    }

    /// When the first of the entries ends that were read for a reply.
    pub fn soonest(&self, place: &Answered) -> Option<i64> {
        let soonest = self.place(place.0)?.soonest.load(Relaxed);
        (soonest != i64::MAX).then_some(soonest)
    }

    /// A reply was taken.
    pub fn free(&self, place: Answered) -> Free {
        if let Some(place) = self.place(place.0) {
            // SAFETY: the place is this network process' alone.
            unsafe {
                self.pages
                    .give_back(std::mem::take(&mut *place.first_page.get()))
            };
            place.state.store(FREE, Release);
        }
        Free(place.0)
    }

    /// Takes what was handed over first, to an executor of this number.
    pub fn take(&self, lane: Lane, executor: usize) -> Option<Taken> {
        let number = match lane {
            Lane::Quick => self.head.quick.pop(),
            Lane::Slow => self.head.slow.pop(),
        }?;
        self.place(number)?.state.store(taken_by(executor), Release);
        Some(Taken(number))
    }

    /// How many wait in a lane.
    pub fn waiting(&self, lane: Lane) -> u64 {
        // What was said before this, such as that its executor is to sleep, is seen by who hands over after it.
        fence(SeqCst);
        match lane {
            Lane::Quick => self.head.quick.len(),
            Lane::Slow => self.head.slow.len(),
        }
    }

    /// What was said of a place that this executor has taken; None: its client is gone.
    pub fn handed(&self, taken: &Taken) -> Option<Handed> {
        let place = self.place(taken.0)?;
        // SAFETY: the place is this executor's alone; its network process has written this.
        let handed = unsafe { (*place.handed.get()).assume_init() };
        (!place.gone.load(Relaxed)).then_some(handed)
    }

    /// user-defined code may run for a place that this executor has taken, as is known by now.
    pub fn set_alone(&self, taken: &Taken) {
        if let Some(place) = self.place(taken.0) {
            // SAFETY: as in `handed`.
            unsafe { (*place.handed.get()).assume_init_mut() }.alone = true;
        }
    }

    /// Appends the commands of a place that this executor has taken.
    pub fn read(&self, taken: &Taken, to: &mut Vec<u8>) {
        if let Some(place) = self.place(taken.0) {
            self.show(place, |bytes| to.extend_from_slice(bytes));
        }
    }

    /// Answers; the number of the network process that is to be told. Err: there are no pages for the reply now.
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

    /// What this executor has taken is for another, or for later.
    pub fn put_back(&self, taken: Taken, lane: Lane) {
        self.enqueue(taken.0, lane);
    }

    /// What this executor has taken is for a lane, once somebody puts it there.
    pub fn put_aside(&self, taken: Taken, lane: Lane) {
        if let Some(place) = self.place(taken.0) {
            place.state.store(WAITING, Release);
            self.head.aside.push(match lane {
                Lane::Quick => taken.0,
                Lane::Slow => taken.0 | FOR_SLOW,
            });
        }
    }

    /// Whether something was put aside.
    pub fn has_aside(&self) -> bool {
        fence(SeqCst);
        self.head.aside.len() > 0
    }

    /// Puts what was put aside into its lanes.
    pub fn bring_back(&self) {
        // What comes meanwhile has a reason of its own.
        for _ in 0..self.head.aside.len() {
            match self.head.aside.pop() {
                Some(slow) if slow & FOR_SLOW != 0 => self.enqueue(slow & !FOR_SLOW, Lane::Slow),
                Some(quick) => self.enqueue(quick, Lane::Quick),
                None => return,
            }
        }
    }

    /// How many were ever taken from a lane.
    pub fn taken_from(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Quick => self.head.quick.popped(),
            Lane::Slow => self.head.slow.popped(),
        }
    }

    /// This process is the executor of this number: what its predecessor had taken.
    pub fn begin_executor(&self, number: usize) -> Vec<Taken> {
        let places = self.places.iter().enumerate();
        let taken = |place: &Place| place.state.load(Acquire) == taken_by(number);
        places
            .filter(|(_, place)| taken(place))
            .map(|(number, _)| Taken(number as u32))
            .collect()
    }
}

/// How many commands' places wait for an executor, or are at one; 0 where nothing listens.
pub fn depth() -> usize {
    let is_open = |place: &&Place| {
        let state = place.state.load(Relaxed) & ((1 << STATE_BITS) - 1);
        state == WAITING || state == TAKEN
    };
    WorkQueue::of_server().map_or(0, |work_queue| {
        work_queue.places.iter().filter(is_open).count()
    })
}
