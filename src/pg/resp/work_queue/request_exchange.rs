//! Catalog requests in the work queue, and their answers. Both are plain data of fixed size. They need no encoding,
//! because every process has loaded this library at the same address.
//!
//! A request may contain a password. So an executor that takes a request overwrites it, and no copy stays in shared
//! memory.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::pg::resp::work_queue::places::{Answered, Content, Lane, Owned, Places, Taken};

/// A request, its answer, and the number that identifies it for the network process.
#[repr(C)]
pub struct Exchange<Q, A> {
    ticket: UnsafeCell<u64>,
    request: UnsafeCell<MaybeUninit<Q>>,
    answer: UnsafeCell<MaybeUninit<A>>,
}

/// The requests of this server.
pub struct Requests<Q: 'static, A: 'static> {
    pub places: Places,
    pub exchanges: &'static [Exchange<Q, A>],
}

impl<Q, A> Clone for Requests<Q, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, A> Copy for Requests<Q, A> {}

/// A request that this executor has taken, and its place.
pub struct TakenRequest<Q> {
    pub place: Taken,
    pub request: Q,
}

impl<Q: Copy, A: Copy> Requests<Q, A> {
    fn exchange<const STATE: u32>(&self, place: &Owned<STATE>) -> Option<&'static Exchange<Q, A>> {
        match place.content() {
            Content::Batch(_) => None,
            Content::Request(index) => self.exchanges.get(index),
        }
    }

    /// Sends a request of this network process; returns false if no place is free now.
    pub fn ask(&self, network: usize, ticket: u64, is_slow: bool, request: Q) -> bool {
        let Some(place) = self.places.free_request(network, is_slow) else {
            return false;
        };
        let Some(exchange) = self.exchange(&place) else {
            return false;
        };
        // SAFETY: only its network process accesses a free place.
        unsafe {
            *exchange.ticket.get() = ticket;
            (*exchange.request.get()).write(request);
        }
        self.places.submit(
            place,
            match is_slow {
                true => Lane::SlowRequest,
                false => Lane::Request,
            },
        );
        true
    }

    /// Takes the oldest request of a lane for the executor of this number; None if the lane is empty.
    pub fn take(&self, lane: Lane, executor: usize) -> Option<TakenRequest<Q>> {
        loop {
            let place = self.places.take(lane, executor)?;
            let exchange = self.exchange(&place)?;
            // SAFETY: only this executor accesses the place; the network process has written the request.
            let request = unsafe {
                let request = (*exchange.request.get()).assume_init();
                wipe(exchange.request.get());
                request
            };
            if !self.places.is_gone(&place) {
                return Some(TakenRequest { place, request });
            }
            // The network process has ended; its successor frees the place.
            self.places.answer(place);
        }
    }

    /// Leaves a request to an executor that may wait for the lock that this executor has met.
    pub fn put_back(&self, taken: TakenRequest<Q>) {
        if let Some(exchange) = self.exchange(&taken.place) {
            // SAFETY: only this executor accesses the place.
            unsafe { (*exchange.request.get()).write(taken.request) };
            self.places.put_back(taken.place, Lane::LockedRequest);
        }
    }

    /// Answers a request; returns the number of the network process to wake.
    pub fn answer(&self, place: Taken, answer: A) -> usize {
        if let Some(exchange) = self.exchange(&place) {
            // SAFETY: only this executor accesses the place.
            unsafe { (*exchange.answer.get()).write(answer) };
        }
        self.places.answer(place)
    }

    /// Frees an answered place; returns the answer and the request's ticket, or None if the predecessor of this network
    /// process had sent the request.
    pub fn take_answer(&self, place: Answered) -> Option<(u64, A)> {
        let exchange = self.exchange(&place)?;
        let is_gone = self.places.is_gone(&place);
        // SAFETY: only its network process accesses an answered place. Unless the place is abandoned, its executor has
        // written the answer.
        let answer = (!is_gone).then(|| unsafe {
            (
                *exchange.ticket.get(),
                (*exchange.answer.get()).assume_init(),
            )
        });
        place.free();
        answer
    }
}

/// Overwrites a cell with volatile writes, which the compiler does not omit.
///
/// # Safety
/// Only the caller accesses the cell.
unsafe fn wipe<T>(cell: *mut MaybeUninit<T>) {
    let bytes = cell.cast::<u8>();
    for at in 0..size_of::<T>() {
        // SAFETY: the byte lies within the cell, which only the caller accesses.
        unsafe { bytes.add(at).write_volatile(0) };
    }
}
