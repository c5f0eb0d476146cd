//! The work queue of the Redis protocol, in shared memory: network processes submit work, and executors take it and
//! return answers.
//!
//! Work is either a batch of commands ([`batches`]) or a catalog request ([`request_exchange`]). Each occupies a place
//! ([`places`]) and waits in one of five lanes. This folder does not interpret commands or requests. The server
//! allocates all memory at its start. A process that finds no free place does not wait; it tries again later.

mod batches;
mod pages;
mod place_ring;
mod places;
mod processes;
mod request_exchange;

use std::any::TypeId;
use std::cell::Cell;
use std::ptr::NonNull;

use pgrx::prelude::*;

use crate::pg::resp::process::{Kind, MOST_PROCESSES};
use crate::pg::resp::work_queue::batches::Text;
pub use crate::pg::resp::work_queue::batches::{Batches, Handed, Work};
use crate::pg::resp::work_queue::pages::{PAGE, Pages};
pub use crate::pg::resp::work_queue::places::{Answered, BATCHES, Free, Lane, PLACES, Taken};
use crate::pg::resp::work_queue::places::{Content, Place, Places, REQUESTS};
use crate::pg::resp::work_queue::processes::Processes;
pub use crate::pg::resp::work_queue::request_exchange::TakenRequest;
use crate::pg::resp::work_queue::request_exchange::{Exchange, Requests};
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::zeroed::{self, LINE, Piece};

/// Bytes of pages for the commands of many clients at once, in addition to one request and one reply of the maximum
/// length.
const MORE: usize = 8 << 20;

/// The size of the queue.
#[derive(Clone, Copy)]
struct Sizes {
    networks: usize,
    pages: usize,
    /// The bytes of a request with its answer, and the types of both.
    exchange: usize,
    types: Option<TypeId>,
}

/// The beginning of the shared memory. Zeros mean empty lanes and no processes.
#[repr(C)]
struct Head {
    processes: Processes,
    places: places::Head,
}

/// The offsets of the parts of the memory.
impl Sizes {
    fn places_at() -> usize {
        size_of::<Head>().next_multiple_of(LINE)
    }

    fn texts_at(self) -> usize {
        let places = self.networks * PLACES * size_of::<Place>();
        Sizes::places_at() + places.next_multiple_of(LINE)
    }

    fn exchanges_at(self) -> usize {
        let texts = self.networks * BATCHES * size_of::<Text>();
        self.texts_at() + texts.next_multiple_of(LINE)
    }

    fn words_at(self) -> usize {
        let exchanges = self.networks * 2 * REQUESTS * self.exchange;
        self.exchanges_at() + exchanges.next_multiple_of(LINE)
    }

    fn pages_at(self) -> usize {
        (self.words_at() + pages::bytes_of_words(self.pages)).next_multiple_of(LINE)
    }
}

thread_local! {
    // The postmaster sets both before it forks; every process inherits them.
    static SIZES: Cell<Sizes> = const {
        Cell::new(Sizes { networks: 0, pages: 0, exchange: 0, types: None })
    };
    static MEMORY: Cell<Option<NonNull<u8>>> = const { Cell::new(None) };
}

/// Requests the shared memory for a queue with these types of requests and answers; called once, while preloading.
pub fn register<Q: Copy + 'static, A: Copy + 'static>(networks: usize, longest: usize) {
    let sizes = Sizes {
        networks: networks.min(MOST_PROCESSES),
        pages: (2 * longest + MORE).div_ceil(PAGE),
        exchange: size_of::<Exchange<Q, A>>(),
        types: Some(TypeId::of::<(Q, A)>()),
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

/// The work queue of this server, with these types of requests and answers.
pub struct WorkQueue<Q: 'static, A: 'static> {
    pub processes: &'static Processes,
    pub places: Places,
    pub batches: Batches,
    pub requests: Requests<Q, A>,
}

impl<Q, A> Clone for WorkQueue<Q, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, A> Copy for WorkQueue<Q, A> {}

/// Answered work.
pub enum Done<A> {
    Batch(Answered),
    /// A request's answer, and the number by which the network process knows the request.
    Request(u64, A),
}

impl<Q: Copy + 'static, A: Copy + 'static> WorkQueue<Q, A> {
    /// Returns the work queue; None if the Redis protocol is off, or if these are not the types that `register`
    /// received.
    pub fn of_server() -> Option<WorkQueue<Q, A>> {
        let (memory, sizes) = (MEMORY.get()?, SIZES.get());
        if sizes.types != Some(TypeId::of::<(Q, A)>()) {
            return None;
        }
        let batches = batches_of_server()?;
        let places = batches.places;
        // SAFETY: the memory begins at an aligned address and has the bytes that `register` requested for the same
        // types. Zeros are processes that do not run and contents of free places; only the owner of a place accesses
        // its cells.
        unsafe {
            let head: &Head = memory.cast().as_ref();
            let exchanges = memory.add(sizes.exchanges_at()).cast().as_ptr();
            Some(WorkQueue {
                processes: &head.processes,
                places,
                batches,
                requests: Requests {
                    places,
                    exchanges: std::slice::from_raw_parts(exchanges, sizes.networks * 2 * REQUESTS),
                },
            })
        }
    }

    /// Makes this process the one of this number until it ends. Returns false if another process has the number.
    pub fn claim(&self, kind: Kind, number: usize) -> bool {
        let is_claimed = self.processes.claim(kind, number);
        if is_claimed {
            let argument = number << 1 | usize::from(kind == Kind::Network);
            // SAFETY: only keeps the function's address and its argument.
            unsafe { pg_sys::before_shmem_exit(Some(ended), pg_sys::Datum::from(argument)) };
        }
        is_claimed
    }

    /// Answers the requests that the predecessor of this executor had taken with `lost`, and returns the batches.
    pub fn take_lost(&self, number: usize, lost: A) -> Vec<Taken> {
        let mut batches = Vec::new();
        for place in self.places.lost(number) {
            match place.content() {
                Content::Batch(_) => batches.push(place),
                Content::Request(_) => {
                    let network = self.requests.answer(place, lost);
                    self.processes.wake(Kind::Network, network);
                }
            }
        }
        batches
    }

    /// Sends a request of this network process, and wakes an executor; returns false if no place is free now.
    pub fn ask(&self, network: usize, ticket: u64, is_slow: bool, request: Q) -> bool {
        let is_sent = self.requests.ask(network, ticket, is_slow, request);
        if is_sent {
            self.processes.wake_slow();
        }
        is_sent
    }

    /// Takes an answer for this network process; None if no answer waits.
    pub fn take_answer(&self, network: usize) -> Option<Done<A>> {
        while let Some(place) = self.places.take_answered(network) {
            match place.content() {
                Content::Batch(_) => return Some(Done::Batch(place)),
                Content::Request(_) => {
                    if let Some((ticket, answer)) = self.requests.take_answer(place) {
                        return Some(Done::Request(ticket, answer));
                    }
                }
            }
        }
        None
    }
}

/// Gives up the number of a process of the Redis protocol that ends, in whatever way, and what it leaves behind.
#[pg_guard]
unsafe extern "C-unwind" fn ended(_code: i32, argument: pg_sys::Datum) {
    let number = argument.value() >> 1;
    let (Some(memory), Some(batches)) = (MEMORY.get(), batches_of_server()) else {
        return;
    };
    // SAFETY: as in `WorkQueue::of_server`.
    let processes = unsafe { &memory.cast::<Head>().as_ref().processes };
    if argument.value() & 1 != 0 {
        batches.end_network(number);
        return processes.end(Kind::Network, number);
    }
    processes.end(Kind::Executor, number);
    if fault::on(Fault::EndedWakesNobody) {
        return;
    }
    // It may have been woken for work that it leaves.
    processes.wake_slow();
    processes.wake_quick();
}

fn batches_of_server() -> Option<Batches> {
    let (memory, sizes, places) = (MEMORY.get()?, SIZES.get(), places_of_server()?);
    // SAFETY: as in `WorkQueue::of_server`; this part of the memory does not depend on the types.
    unsafe {
        let texts = memory.add(sizes.texts_at()).cast().as_ptr();
        Some(Batches {
            places,
            texts: std::slice::from_raw_parts(texts, sizes.networks * BATCHES),
            pages: Pages::over(
                memory.add(sizes.words_at()),
                memory.add(sizes.pages_at()),
                sizes.pages,
            ),
        })
    }
}

fn places_of_server() -> Option<Places> {
    let (memory, sizes) = (MEMORY.get()?, SIZES.get());
    // SAFETY: as in `WorkQueue::of_server`; zeros are empty lanes and free places, and everything is atomic.
    unsafe {
        let head: &Head = memory.cast().as_ref();
        let places = memory.add(Sizes::places_at()).cast().as_ptr();
        Some(Places {
            head: &head.places,
            places: std::slice::from_raw_parts(places, sizes.networks * PLACES),
        })
    }
}

/// Returns the number of batches and requests that wait for an executor or that an executor has taken; 0 if the Redis
/// protocol is off.
pub fn depth() -> usize {
    places_of_server().map_or(0, |places| places.depth())
}
