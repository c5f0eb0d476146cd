//! The queue between network process and back processes of the Redis protocol, in shared memory.
//!
//! A network process asks what can wait, an executor answers. All places are taken at the start of the server; one
//! without a free place asks again later. A place belongs to its network process until it is asked, then to
//! the executor that takes it until it is answered, then to its network process again: who owns it is its state,
//! and only its owner touches the rest. What is asked and answered is plain data of this library,
//! which lies at the same address in every process.
//!
//! A process that ends in the middle leaves places: its successor, which has the same number, clears
//! up after it (`begin_front`, `begin_back`). What an executor had taken is answered with "nobody knows".

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use pgrx::pg_sys;

use crate::pg::shmem::zeroed::{self, Piece};
use crate::pg::worker::background;

/// As many questions may be under way.
const PLACES: usize = 128;
/// Of these, those that take long may have so many: the others must not wait for places.
const SLOW_PLACES: u32 = 64;
/// Processes of either kind.
pub const MOST_PROCESSES: usize = 16;

const FREE: u32 = 0;
/// A network process writes its question.
const WRITTEN: u32 = 1;
const ASKED: u32 = 2;
const TAKEN: u32 = 3;
const ANSWERED: u32 = 4;
/// Its network process has gone while an executor had it: whoever finishes frees it.
const ABANDONED: u32 = 5;
/// Above these bits stands, of the states TAKEN and ABANDONED, the number of the executor.
const STATE_BITS: u32 = 8;

fn kind(state: u32) -> u32 {
    state & ((1 << STATE_BITS) - 1)
}

fn with_executor(state: u32, executor: usize) -> u32 {
    state | (executor as u32) << STATE_BITS
}

/// Of the quick lane: no executor has it. Zeros: the first one has.
const NOBODY: u32 = u32::MAX;

/// What others know of a process.
#[repr(C)]
struct Process {
    /// 0: there is none.
    pid: AtomicU32,
    /// an executor: it is at work and will look again before it sleeps.
    busy: AtomicBool,
    /// A network process: so many answers wait for it.
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
    /// The next question's number.
    order: AtomicU64,
    /// Slow questions that have a place.
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
    /// an executor that does not wait has met a lock: another one takes it.
    met_lock: AtomicBool,
    /// Smaller ones were asked earlier.
    order: AtomicU64,
    /// What the network process knows its question by.
    ticket: AtomicU64,
    question: UnsafeCell<MaybeUninit<Q>>,
    answer: UnsafeCell<MaybeUninit<A>>,
}

/// Which questions an executor takes.
#[derive(Clone, Copy)]
pub struct Takes {
    /// Those that take long.
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

/// Which kind of process.
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

/// Bytes of a queue of these questions and answers.
fn bytes<Q, A>() -> usize {
    places_at() + PLACES * size_of::<Place<Q, A>>()
}

/// Asks for the queue of these questions and answers at the start of the server; only while
/// preloading, once. Zeros are a queue whose places are free and that has no processes.
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

/// A question that this executor has taken, and its place.
pub struct Asked<Q> {
    pub place: usize,
    /// It may take long.
    pub slow: bool,
    pub question: Q,
}

impl<Q: Copy, A: Copy> RequestQueue<Q, A> {
    /// None where none was asked for at the start. `Q` and `A` are those of `register`.
    pub fn of_server() -> Option<RequestQueue<Q, A>> {
        let memory = MEMORY.get()?;
        if BYTES.get() != bytes::<Q, A>() {
            return None;
        }
        // SAFETY: as many bytes lie there from an aligned address on, as `register` has computed
        // with the same types. Zeroed places are free, and what is in a free one is not looked at;
        // afterwards the owner by its state alone touches what is in its cells.
        unsafe {
            Some(RequestQueue {
                head: memory.cast().as_ref(),
                places: std::slice::from_raw_parts(memory.add(places_at()).cast().as_ptr(), PLACES),
                kinds: PhantomData,
            })
        }
    }

    /// The database that is served: its number.
    pub fn database(&self) -> pg_sys::Oid {
        pg_sys::Oid::from_u32(self.head.database.load(Acquire))
    }

    /// Says which database is served, to processes that start from now on.
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

    /// The process of this number; None: there is none.
    pub fn pid(&self, kind: Kind, number: usize) -> Option<u32> {
        let pid = self.process(kind, number).pid.load(Acquire);
        (pid != 0).then_some(pid)
    }

    /// This process no longer has its number.
    pub fn end(&self, kind: Kind, number: usize) {
        self.process(kind, number).pid.store(0, Release);
    }

    /// This process is the network process of this number. What its predecessor has asked interests nobody.
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

    /// This process is the executor of this number. `lost` answers what its predecessor had taken.
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

    /// Asks; false: there is no place now. A slow question waits for those that are not.
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
        // SAFETY: in this state the place is this network process' alone.
        unsafe { (*place.question.get()).write(question) };
        place.state.store(ASKED, SeqCst);
        self.wake_executor();
        true
    }

    /// an executor that is at work looks again before it sleeps. The quick one is the last that is asked.
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

    /// Whether this executor has the quick lane; it takes it where nobody has.
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

    /// Takes the quick lane from the executor that has it, which does not come to it: for another one that does,
    /// or for itself again.
    pub fn free_quick(&self) {
        self.head.quick.store(NOBODY, SeqCst);
        self.wake_executor();
    }

    /// Wakes the executor of the quick lane, if it sleeps.
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

    /// Wakes one of the slow lane's that sleeps; where there is none the quick one is.
    pub fn wake_slow(&self) {
        self.wake_executor();
    }

    /// Whether any executor but the quick one can do what is asked at once.
    pub fn has_idle_slow(&self) -> bool {
        self.idle_slow().next().is_some()
    }

    /// Says whether this executor is at work. After it has said that it is not, it looks once more.
    pub fn set_busy(&self, executor: usize, busy: bool) {
        self.process(Kind::Executor, executor)
            .busy
            .store(busy, SeqCst);
    }

    /// Takes the next of these questions: quick ones first, in the order in which they were asked.
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
            // made empty, because a question may have a password in it.
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

    /// Leaves a question to an executor that may wait for the lock which this one has met.
    pub fn put_back(&self, asked: Asked<Q>) {
        let Some(place) = self.places.get(asked.place) else {
            return;
        };
        // SAFETY: in the state TAKEN, and in ABANDONED, the place is its executor's alone.
        unsafe { (*place.question.get()).write(asked.question) };
        place.met_lock.store(true, Relaxed);
        let again = |state| (kind(state) == TAKEN).then_some(ASKED);
        if place.state.fetch_update(SeqCst, Acquire, again).is_ok() {
            self.wake_executor();
        } else {
            // SAFETY: as above; nobody asks any more, and a question may have a password in it.
            unsafe { wipe(place.question.get()) };
            self.count_out(place);
            place.state.store(FREE, Release);
        }
    }

    /// Answers the question at a place that this executor has taken, and wakes who has asked.
    pub fn answer(&self, index: usize, answer: A) {
        let Some(place) = self.places.get(index) else {
            return;
        };
        // SAFETY: in the state TAKEN, and in ABANDONED, the place is its executor's alone.
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

    /// Takes an answer of this network process': the question's ticket and what was answered.
    pub fn take_answer(&self, network: usize) -> Option<(u64, A)> {
        let waiting = &self.process(Kind::Network, network).answers;
        if waiting.load(SeqCst) == 0 {
            return None;
        }
        let place = self.places.iter().find(|place| {
            place.network.load(Relaxed) as usize == network && place.state.load(SeqCst) == ANSWERED
        })?;
        waiting.fetch_sub(1, SeqCst);
        // SAFETY: in this state the place is this network process' alone; its executor has written the answer.
        let answer = unsafe { (*place.answer.get()).assume_init() };
        let ticket = place.ticket.load(Relaxed);
        self.count_out(place);
        place.state.store(FREE, Release);
        Some((ticket, answer))
    }

    /// A place is given back.
    fn count_out(&self, place: &Place<Q, A>) {
        if place.slow.swap(false, AcqRel) {
            self.head.slow.fetch_sub(1, AcqRel);
        }
    }

    /// Whether one of these questions waits for an executor.
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

/// How many questions wait for an executor, or are at one; 0 where nothing listens. For who does not know
/// what the questions are.
pub fn depth() -> usize {
    let Some(memory) = MEMORY.get() else {
        return 0;
    };
    let stride = (BYTES.get() - places_at()) / PLACES;
    let is_open = |at: usize| {
        // SAFETY: as in `of_server`: the places lie behind the head, each as long as the others, and
        // begin with their state.
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
        // SAFETY: inside of the cell, which is the caller's alone.
        unsafe { bytes.add(at).write_volatile(0) };
    }
}
