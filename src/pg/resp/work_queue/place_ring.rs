//! Queues of place numbers: any process may push and pop, and no process waits for another. A zeroed ring is empty.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

#[repr(C)]
struct Cell {
    /// The position for which the cell is ready, minus the cell's index, so that a zeroed ring is empty.
    turn: AtomicU64,
    value: AtomicU32,
}

/// A ring with room for `N` numbers, a power of two. Callers never store more than `N` numbers at a time.
#[repr(C)]
pub struct Ring<const N: usize> {
    popped: AtomicU64,
    /// Keeps the two counters in different cache lines, because different processes write them.
    apart: [u64; 7],
    pushed: AtomicU64,
    cells: [Cell; N],
}

impl<const N: usize> Ring<N> {
    fn cell(&self, position: u64) -> Option<(&Cell, u64)> {
        let at = position & (N as u64 - 1);
        self.cells.get(at as usize).map(|cell| (cell, at))
    }

    /// Appends a number; returns false if the ring is full.
    pub fn push(&self, value: u32) -> bool {
        let mut position = self.pushed.load(Relaxed);
        loop {
            let Some((cell, at)) = self.cell(position) else {
                return false;
            };
            let turn = cell.turn.load(Acquire).wrapping_add(at);
            if turn < position {
                return false;
            }
            let next = position + 1;
            if turn > position {
                position = self.pushed.load(Relaxed);
                continue;
            }
            match self
                .pushed
                .compare_exchange_weak(position, next, AcqRel, Relaxed)
            {
                Ok(_) => {
                    cell.value.store(value, Relaxed);
                    cell.turn.store(next.wrapping_sub(at), Release);
                    return true;
                }
                Err(present) => position = present,
            }
        }
    }

    /// Takes the oldest number; None if the ring is empty.
    pub fn pop(&self) -> Option<u32> {
        let mut position = self.popped.load(Relaxed);
        loop {
            let (cell, at) = self.cell(position)?;
            let next = position + 1;
            let turn = cell.turn.load(Acquire).wrapping_add(at);
            if turn < next {
                return None;
            }
            if turn > next {
                position = self.popped.load(Relaxed);
                continue;
            }
            match self
                .popped
                .compare_exchange_weak(position, next, AcqRel, Relaxed)
            {
                Ok(_) => {
                    let value = cell.value.load(Relaxed);
                    let again = (position + N as u64).wrapping_sub(at);
                    cell.turn.store(again, Release);
                    return Some(value);
                }
                Err(present) => position = present,
            }
        }
    }

    /// Returns the number of pops since the start of the server.
    pub fn popped(&self) -> u64 {
        self.popped.load(Acquire)
    }

    /// Returns the number of elements; other processes may change it at any time.
    pub fn len(&self) -> u64 {
        let popped = self.popped.load(Acquire);
        self.pushed.load(Acquire).saturating_sub(popped)
    }
}
