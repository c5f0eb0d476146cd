//! The queue of catalog requests between network processes and executors, in shared memory.
//!
//! A network process sends requests whose answers may wait, and executors answer them. All places are allocated at
//! the start of the server; a network process without a free place tries again later. A place belongs to its network
//! process until the request is sent, then to the executor that takes it until it is answered, then to its network
//! process again. Its state names the owner, and only the owner touches the rest; otherwise one process would read a
//! request or an answer half written. Both are plain data of this library, which is loaded at the same address in
//! every process.
//!
//! A process that ends early leaves places: its successor, which has the same number, cleans up after it
//! (`begin_network`, `begin_executor`). The requests that an executor had taken are answered as failed.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use pgrx::pg_sys;

use crate::pg::shmem::zeroed::{self, Piece};
use crate::pg::worker::background;

/// The number of requests that may be under way.
const PLACES: usize = 128;
/// The number of places for slow requests, so that the others do not wait for places.
const SLOW_PLACES: u32 = 64;
/// The most processes of either kind.
pub const MOST_PROCESSES: usize = 16;

const FREE: u32 = 0;
/// The network process writes its request.
const WRITTEN: u32 = 1;
const ASKED: u32 = 2;
const TAKEN: u32 = 3;
const ANSWERED: u32 = 4;
/// Its network process has ended while an executor had it: the executor that finishes frees it.
const ABANDONED: u32 = 5;
/// In the states TAKEN and ABANDONED the number of the executor is above these bits.
const STATE_BITS: u32 = 8;

fn kind(state: u32) -> u32 {
    state & ((1 << STATE_BITS) - 1)
}

fn with_executor(state: u32, executor: usize) -> u32 {
    state | (executor as u32) << STATE_BITS
}

/// No executor has the quick lane. Zeros: the first one has it.
const NOBODY: u32 = u32::MAX;

/// The state of a process that other processes read.
#[repr(C)]
struct Process {
    /// 0: no process runs.
    pid: AtomicU32,
    /// Of an executor: it is at work, and looks again before it sleeps.
    busy: AtomicBool,
    /// Of a network process: the number of answers that wait for it.
    answers: AtomicU32,
}

impl Process {
    fn is_idle(&self) -> bool {
        self.pid.load(Acquire) != 0 && !self.busy.load(SeqCst)
    }
}

#[repr(C)]
struct Head {
    /// The database that is served.
    database: AtomicU32,
    /// The number of the next request.
    order: AtomicU64,
    /// The number of slow requests that have a place.
    slow: AtomicU32,
    /// The number of the executor that has the quick lane.
    quick: AtomicU32,
    networks: [Process; MOST_PROCESSES],
    executors: [Process; MOST_PROCESSES],
}

#[repr(C)]
struct Place<Q, A> {
    state: AtomicU32,
    /// The number of the network process.
    network: AtomicU32,
    slow: AtomicBool,
    /// An executor that may not wait has met a lock, so another one takes the request.
    met_lock: AtomicBool,
    /// Requests with smaller numbers were sent earlier.
    order: AtomicU64,
    /// The number by which the network process knows the request.
    ticket: AtomicU64,
    question: UnsafeCell<MaybeUninit<Q>>,
    answer: UnsafeCell<MaybeUninit<A>>,
}

/// The requests that an executor takes.
#[derive(Clone, Copy)]
pub struct Takes {
    /// Slow ones.
    pub slow: bool,
    /// Those that have met a lock.
    pub locked: bool,
}

impl Takes {
    pub const ALL: Takes = Takes {
        slow: true,
        locked: true,
    };
}

/// The kind of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Network,
    Executor,
}

thread_local! {
    // Both set by the postmaster before it forks; every process inherits them.
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static MEMORY: Cell<Option<NonNull<u8>>> = const { Cell::new(None) };
}

fn places_at() -> usize {
    size_of::<Head>().next_multiple_of(64)
}

/// Returns the bytes of a queue of these requests and answers.
fn bytes<Q, A>() -> usize {
    places_at() + PLACES * size_of::<Place<Q, A>>()
}

/// Requests the shared memory for a queue of these requests and answers; called once, while preloading. Zeros are a
/// queue whose places are free and that has no processes.
pub fn register<Q: Copy + 'static, A: Copy + 'static>() {
    BYTES.set(bytes::<Q, A>());
    zeroed::register(Piece {
        name: c"pgcache resp",
        bytes: BYTES.get(),
        unmade: 0,
        request: || {},
        given: |memory| MEMORY.set(Some(memory)),
    });
}

/// The queue of this server.
pub struct RequestQueue<Q: 'static, A: 'static> {
    head: &'static Head,
    places: &'static [Place<Q, A>],
    kinds: PhantomData<(Q, A)>,
}

/// A request that this executor has taken, and its place.
pub struct Asked<Q> {
    pub place: usize,
    /// It is slow.
    pub slow: bool,
    pub question: Q,
}

impl<Q: Copy, A: Copy> RequestQueue<Q, A> {
    /// Returns None if the queue was not registered at the start. `Q` and `A` are those of `register`.
    pub fn of_server() -> Option<RequestQueue<Q, A>> {
        let memory = MEMORY.get()?;
        if BYTES.get() != bytes::<Q, A>() {
            return None;
        }
        // SAFETY: as many bytes lie there from an aligned address on as `register` has computed with the same types.
        // Zeroed places are free, and the contents of a free place are not read; after that only the owner, given by
        // the state, touches the cells.
        unsafe {
            Some(RequestQueue {
                head: memory.cast().as_ref(),
                places: std::slice::from_raw_parts(memory.add(places_at()).cast().as_ptr(), PLACES),
                kinds: PhantomData,
            })
        }
    }

    /// Returns the database that is served.
    pub fn database(&self) -> pg_sys::Oid {
        pg_sys::Oid::from_u32(self.head.database.load(Acquire))
    }

    /// Stores the database that is served, for processes that start from now on.
    pub fn set_database(&self, database: pg_sys::Oid) {
        self.head.database.store(database.to_u32(), Release);
    }

    fn process(&self, kind: Kind, number: usize) -> &'static Process {
        let processes = match kind {
            Kind::Network => &self.head.networks,
            Kind::Executor => &self.head.executors,
        };
        &processes[number % MOST_PROCESSES]
    }

    /// Returns the process id of the process of this number; None: no process runs.
    pub fn pid(&self, kind: Kind, number: usize) -> Option<u32> {
        let pid = self.process(kind, number).pid.load(Acquire);
        (pid != 0).then_some(pid)
    }

    /// Notes that this process no longer has its number.
    pub fn end(&self, kind: Kind, number: usize) {
        self.process(kind, number).pid.store(0, Release);
    }

    /// Begins as the network process of this number; the requests of its predecessor are abandoned.
    pub fn begin_network(&self, number: usize) {
        let process = self.process(Kind::Network, number);
        for place in self.places {
            if place.network.load(Relaxed) as usize != number {
                continue;
            }
            let abandon = |state| match kind(state) {
                FREE | ABANDONED => None,
                TAKEN => Some(state - TAKEN + ABANDONED),
                _ => Some(FREE),
            };
            let former = place.state.fetch_update(AcqRel, Acquire, abandon);
            if former.is_ok_and(|former| kind(former) != TAKEN) {
                self.count_out(place);
            }
        }
        process.answers.store(0, SeqCst);
        process.pid.store(background::own_pid(), Release);
    }

    /// Begins as the executor of this number. `lost` is the answer to requests that its predecessor had taken.
    pub fn begin_executor(&self, number: usize, lost: A) {
        let process = self.process(Kind::Executor, number);
        for (index, place) in self.places.iter().enumerate() {
            let state = place.state.load(Acquire);
            if [TAKEN, ABANDONED]
                .map(|kind| with_executor(kind, number))
                .contains(&state)
            {
                self.answer(index, lost);
            }
        }
        process.pid.store(background::own_pid(), Release);
    }

    /// Sends a request; returns false if no place is free now. Slow requests leave places to the others.
    pub fn ask(&self, network: usize, ticket: u64, slow: bool, question: Q) -> bool {
        if slow && self.head.slow.fetch_add(1, AcqRel) >= SLOW_PLACES {
            self.head.slow.fetch_sub(1, AcqRel);
            return false;
        }
        let free = |place: &&Place<Q, A>| {
            place
                .state
                .compare_exchange(FREE, WRITTEN, AcqRel, Relaxed)
                .is_ok()
        };
        let Some(place) = self.places.iter().find(free) else {
            if slow {
                self.head.slow.fetch_sub(1, AcqRel);
            }
            return false;
        };
        place.network.store(network as u32, Relaxed);
        place.slow.store(slow, Relaxed);
        place.met_lock.store(false, Relaxed);
        place.ticket.store(ticket, Relaxed);
        place
            .order
            .store(self.head.order.fetch_add(1, Relaxed), Relaxed);
        // SAFETY: in this state the place is this network process's alone.
        unsafe { (*place.question.get()).write(question) };
        place.state.store(ASKED, SeqCst);
        self.wake_executor();
        true
    }

    /// Wakes an idle executor; that of the quick lane is the last choice. An executor that is at work looks again
    /// before it sleeps.
    fn wake_executor(&self) {
        if let Some(executor) = self.idle_slow().next().or_else(|| self.idle_quick()) {
            background::wake(executor.pid.load(Acquire));
        }
    }

    fn idle_slow(&self) -> impl Iterator<Item = &'static Process> {
        let quick = self.head.quick.load(SeqCst) as usize;
        let slow = self.head.executors.iter().enumerate().rev();
        let slow = slow.filter(move |(number, executor)| *number != quick && executor.is_idle());
        slow.map(|(_, executor)| executor)
    }

    fn idle_quick(&self) -> Option<&'static Process> {
        let quick = self.head.quick.load(SeqCst) as usize;
        self.head
            .executors
            .get(quick)
            .filter(|executor| executor.is_idle())
    }

    /// Returns whether this executor has the quick lane; it takes the lane if no executor has it.
    pub fn has_quick(&self, executor: usize) -> bool {
        let quick = self.head.quick.load(SeqCst);
        let claim = || {
            let claimed = self
                .head
                .quick
                .compare_exchange(NOBODY, executor as u32, SeqCst, SeqCst);
            claimed.is_ok()
        };
        quick == executor as u32 || quick == NOBODY && claim()
    }

    /// Takes the quick lane from its executor, which does not come to its work, so that another executor takes it, or
    /// the same one again.
    pub fn free_quick(&self) {
        self.head.quick.store(NOBODY, SeqCst);
        self.wake_executor();
    }

    /// Wakes the executor of the quick lane if it sleeps.
    pub fn wake_quick(&self) {
        match self.head.quick.load(SeqCst) {
            NOBODY => self.wake_executor(),
            _ => {
                if let Some(quick) = self.idle_quick() {
                    background::wake(quick.pid.load(Acquire));
                }
            }
        }
    }

    /// Wakes an executor of the slow lane that sleeps; if none does, that of the quick lane.
    pub fn wake_slow(&self) {
        self.wake_executor();
    }

    /// Returns whether an executor other than that of the quick lane can run a request at once.
    pub fn has_idle_slow(&self) -> bool {
        self.idle_slow().next().is_some()
    }

    /// Stores whether this executor is at work. After it has stored that it is not, it looks once more.
    pub fn set_busy(&self, executor: usize, busy: bool) {
        self.process(Kind::Executor, executor)
            .busy
            .store(busy, SeqCst);
    }

    /// Takes the next of these requests: quick ones first, in the order in which they were sent.
    pub fn next(&self, executor: usize, takes: Takes) -> Option<Asked<Q>> {
        loop {
            let (index, place) = self
                .places
                .iter()
                .enumerate()
                .filter(|(_, place)| place.is_for(takes))
                .min_by_key(|(_, place)| (place.slow.load(Relaxed), place.order.load(Relaxed)))?;
            let taken = with_executor(TAKEN, executor);
            if place
                .state
                .compare_exchange(ASKED, taken, AcqRel, Relaxed)
                .is_err()
            {
                continue;
            }
            // SAFETY: in this state the place is this executor's alone; its network process has written it. It is
            // overwritten, because a request may contain a password.
            let question = unsafe {
                let question = (*place.question.get()).assume_init();
                wipe(place.question.get());
                question
            };
            return Some(Asked {
                place: index,
                slow: place.slow.load(Relaxed),
                question,
            });
        }
    }

    /// Leaves a request to an executor that may wait for the lock which this one has met.
    pub fn put_back(&self, asked: Asked<Q>) {
        let Some(place) = self.places.get(asked.place) else {
            return;
        };
        // SAFETY: in the states TAKEN and ABANDONED the place is its executor's alone.
        unsafe { (*place.question.get()).write(asked.question) };
        place.met_lock.store(true, Relaxed);
        let again = |state| (kind(state) == TAKEN).then_some(ASKED);
        if place.state.fetch_update(SeqCst, Acquire, again).is_ok() {
            self.wake_executor();
        } else {
            // SAFETY: as above; no network process waits for the answer any more, and a request may contain a
            // password.
            unsafe { wipe(place.question.get()) };
            self.count_out(place);
            place.state.store(FREE, Release);
        }
    }

    /// Answers the request at a place that this executor has taken, and wakes its network process.
    pub fn answer(&self, index: usize, answer: A) {
        let Some(place) = self.places.get(index) else {
            return;
        };
        // SAFETY: in the states TAKEN and ABANDONED the place is its executor's alone.
        unsafe { (*place.answer.get()).write(answer) };
        let network = self.process(Kind::Network, place.network.load(Relaxed) as usize);
        let answered = |state| (kind(state) == TAKEN).then_some(ANSWERED);
        if place.state.fetch_update(SeqCst, Acquire, answered).is_ok() {
            network.answers.fetch_add(1, SeqCst);
            background::wake(network.pid.load(Acquire));
        } else {
            self.count_out(place);
            place.state.store(FREE, Release);
        }
    }

    /// Takes an answer for this network process; returns it with the request's ticket.
    pub fn take_answer(&self, network: usize) -> Option<(u64, A)> {
        let waiting = &self.process(Kind::Network, network).answers;
        if waiting.load(SeqCst) == 0 {
            return None;
        }
        let place = self.places.iter().find(|place| {
            place.network.load(Relaxed) as usize == network && place.state.load(SeqCst) == ANSWERED
        })?;
        waiting.fetch_sub(1, SeqCst);
        // SAFETY: in this state the place is this network process's alone; its executor has written the answer.
        let answer = unsafe { (*place.answer.get()).assume_init() };
        let ticket = place.ticket.load(Relaxed);
        self.count_out(place);
        place.state.store(FREE, Release);
        Some((ticket, answer))
    }

    /// Counts a place that is freed.
    fn count_out(&self, place: &Place<Q, A>) {
        if place.slow.swap(false, AcqRel) {
            self.head.slow.fetch_sub(1, AcqRel);
        }
    }

    /// Returns whether one of these requests waits for an executor.
    pub fn is_asked(&self, takes: Takes) -> bool {
        self.places.iter().any(|place| place.is_for(takes))
    }
}

impl<Q, A> Place<Q, A> {
    fn is_for(&self, takes: Takes) -> bool {
        self.state.load(SeqCst) == ASKED
            && (takes.slow || !self.slow.load(Relaxed))
            && (takes.locked || !self.met_lock.load(Relaxed))
    }
}

/// Returns the number of requests that wait for an executor or are at one; 0 if the Redis protocol is off. It needs
/// no types, for callers that do not know those of the requests.
pub fn depth() -> usize {
    let Some(memory) = MEMORY.get() else {
        return 0;
    };
    let stride = (BYTES.get() - places_at()) / PLACES;
    let is_open = |at: usize| {
        // SAFETY: as in `of_server`: the places lie behind the head, all of the same length, and begin with their
        // state.
        let state = unsafe {
            memory
                .add(places_at() + at * stride)
                .cast::<AtomicU32>()
                .as_ref()
        };
        is_open(state.load(Relaxed))
    };
    (0..PLACES).filter(|&at| is_open(at)).count()
}

fn is_open(state: u32) -> bool {
    matches!(kind(state), ASKED | TAKEN | ABANDONED)
}

/// Overwrites a cell in a way that the compiler does not leave out.
///
/// # Safety
/// The caller alone touches the cell.
unsafe fn wipe<T>(cell: *mut MaybeUninit<T>) {
    let bytes = cell.cast::<u8>();
    for at in 0..size_of::<T>() {
        // SAFETY: within the cell, which is the caller's alone.
        unsafe { bytes.add(at).write_volatile(0) };
    }
}
