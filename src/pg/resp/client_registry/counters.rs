//! What fronts have counted, and what there is of them now: said by each, summed up for who asks.

use std::array;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::pg::resp::client_registry::layout::{Board, Figure, Figures, Front, Head};
use crate::pg::session::clock::{self, Timestamp};

/// What is not counted up, but there.
pub struct Now {
    pub clients: u64,
    /// Clients that are told of changes, and keys whose changes they are told of.
    pub tracking: u64,
    pub tracked_keys: u64,
    /// Clients that CLIENT PAUSE holds.
    pub blocked: u64,
    /// The most commands that ran in one turn of a client.
    pub largest_batch: u64,
}

impl Board {
    /// Says what a front has counted, and what there is of it now.
    pub fn set_figures(&self, number: usize, figures: &Figures, now: &Now) {
        let front = self.front(number);
        for (place, figure) in front.figures.iter().zip(figures) {
            place.store(*figure, Relaxed);
        }
        front.clients.store(now.clients, Relaxed);
        front.tracking.store(now.tracking, Relaxed);
        front.tracked_keys.store(now.tracked_keys, Relaxed);
        front.blocked.store(now.blocked, Relaxed);
        if now.largest_batch > front.largest_batch.load(Relaxed) {
            front.largest_batch.store(now.largest_batch, Relaxed);
        }
    }

    /// Adds hits and misses of commands that a back has run on a table.
    pub fn add_reads(&self, reads: [u64; 2]) {
        for (sum, read) in self.head.reads.iter().zip(reads) {
            sum.fetch_add(read, Relaxed);
        }
    }

    /// Returns the sums of all processes since the figures were set back.
    pub fn figures(&self) -> Figures {
        let since = |sum: &AtomicU64, base: &AtomicU64| {
            let sum = sum.load(Relaxed);
            sum.saturating_sub(base.load(Relaxed))
        };
        let mut figures: Figures = array::from_fn(|at| {
            let of_front = |front: &Front| since(&front.figures[at], &front.base[at]);
            self.head.fronts.iter().map(of_front).sum()
        });
        let Head {
            reads, reads_base, ..
        } = self.head;
        figures[Figure::Hits as usize] += since(&reads[0], &reads_base[0]);
        figures[Figure::Misses as usize] += since(&reads[1], &reads_base[1]);
        figures
    }

    /// What there is now, of all fronts.
    pub fn now(&self) -> Now {
        let fronts = || self.head.fronts.iter();
        let batch = fronts().map(|front| front.largest_batch.load(Relaxed));
        Now {
            clients: fronts().map(|front| front.clients.load(Relaxed)).sum(),
            tracking: fronts().map(|front| front.tracking.load(Relaxed)).sum(),
            tracked_keys: fronts().map(|front| front.tracked_keys.load(Relaxed)).sum(),
            blocked: fronts().map(|front| front.blocked.load(Relaxed)).sum(),
            largest_batch: batch.max().unwrap_or(0),
        }
    }

    /// Sets the figures back to 0.
    pub fn reset(&self) {
        for front in &self.head.fronts {
            for (base, figure) in front.base.iter().zip(&front.figures) {
                base.store(figure.load(Relaxed), Relaxed);
            }
            front.largest_batch.store(0, Relaxed);
        }
        for (base, sum) in self.head.reads_base.iter().zip(&self.head.reads) {
            base.store(sum.load(Relaxed), Relaxed);
        }
        self.head.reset.store(clock::now(), Relaxed);
    }

    /// Since when it was counted.
    pub fn since(&self) -> Timestamp {
        self.head.reset.load(Relaxed)
    }
}
