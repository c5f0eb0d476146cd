//! Pages of the work queue: chains of them hold bytes that do not fit into a place. A page belongs to the owner of the
//! place that uses it.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Bytes of a page.
pub const PAGE: usize = 16 << 10;

/// The half of the pages that bytes may take. Requests and replies have separate halves; otherwise commands that wait
/// for an executor could take the room that the executor needs for replies before it can reach those commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Requests,
    Replies,
}

/// All pages, and which of them are taken. No process waits for a page: a process that gets none tries again later.
#[derive(Clone, Copy)]
pub struct Pages {
    /// A bit for each page, set while the page is taken. In memory, the words of `next` follow: each holds a page's
    /// successor in its chain, counted from 1; 0: none.
    taken: &'static [AtomicU64],
    next: &'static [AtomicU64],
    memory: NonNull<u8>,
}

/// Returns the bytes of the words for this number of pages; the words must begin as zeros, the pages need not.
pub fn bytes_of_words(pages: usize) -> usize {
    (pages.div_ceil(64) + pages) * size_of::<u64>()
}

impl Pages {
    /// # Safety
    /// `words` is aligned and has the bytes that `bytes_of_words` returns, and `memory` has this number of pages. Both
    /// live as long as the process, and all processes access them only through this type.
    pub unsafe fn over(words: NonNull<u8>, memory: NonNull<u8>, pages: usize) -> Pages {
        let bits = pages.div_ceil(64);
        // SAFETY: by the caller's contract.
        unsafe {
            let words = words.cast::<AtomicU64>().as_ptr();
            Pages {
                taken: std::slice::from_raw_parts(words, bits),
                next: std::slice::from_raw_parts(words.add(bits), pages),
                memory,
            }
        }
    }

    /// Returns the bytes of the smaller half.
    pub fn half(&self) -> usize {
        let first = self.words_of_requests() * 64;
        first.min(self.next.len().saturating_sub(first)) * PAGE
    }

    fn words_of_requests(&self) -> usize {
        self.taken.len() / 2
    }

    fn words_of(&self, half: Half) -> Range<usize> {
        let middle = self.words_of_requests();
        match half {
            Half::Requests => 0..middle,
            Half::Replies => middle..self.taken.len(),
        }
    }

    /// Returns the bytes of the free pages of requests; other processes may take them at once.
    pub fn room_of_requests(&self) -> usize {
        let words = self.taken.get(self.words_of(Half::Requests));
        let free = words.unwrap_or_default().iter();
        free.map(|word| word.load(Relaxed).count_zeros() as usize)
            .sum::<usize>()
            * PAGE
    }

    fn take_one(&self, half: Half) -> Option<usize> {
        for at in self.words_of(half) {
            let word = self.taken.get(at)?;
            let mut bits = word.load(Relaxed);
            while bits != u64::MAX {
                let bit = (!bits).trailing_zeros() as usize;
                let page = at * 64 + bit;
                if page >= self.next.len() {
                    return None;
                }
                match word.compare_exchange(bits, bits | 1 << bit, AcqRel, Relaxed) {
                    Ok(_) => return Some(page),
                    Err(present) => bits = present,
                }
            }
        }
        None
    }

    /// Writes bytes to new pages; returns the number of the first page, counted from 1. Returns None if too few pages
    /// are free.
    pub fn write(&self, bytes: &[u8], half: Half) -> Option<u32> {
        let mut first = 0;
        // Begins at the end, because each page stores its successor.
        let chunks = bytes.len().div_ceil(PAGE);
        for chunk in (0..chunks).rev() {
            let Some(page) = self.take_one(half) else {
                self.give_back(first);
                return None;
            };
            let from = chunk * PAGE;
            let part = bytes.get(from..).unwrap_or_default();
            let part = part.get(..PAGE).unwrap_or(part);
            // SAFETY: this process owns the page since it set the page's bit, and the page lies within the memory.
            unsafe {
                let memory = self.memory.add(page * PAGE);
                std::ptr::copy_nonoverlapping(part.as_ptr(), memory.as_ptr(), part.len());
            }
            if let Some(next) = self.next.get(page) {
                next.store(u64::from(first), Relaxed);
            }
            first = page as u32 + 1;
        }
        Some(first)
    }

    /// Passes the bytes of a chain that the caller owns to `take`.
    pub fn read(&self, first: u32, length: usize, mut take: impl FnMut(&[u8])) {
        let (mut page, mut left) = (first, length);
        while page != 0 && left > 0 {
            let index = page as usize - 1;
            let part = left.min(PAGE);
            if index >= self.next.len() {
                return;
            }
            // SAFETY: the page belongs to the caller's chain, so no other process writes to it.
            take(unsafe {
                std::slice::from_raw_parts(self.memory.add(index * PAGE).as_ptr(), part)
            });
            left -= part;
            page = self
                .next
                .get(index)
                .map_or(0, |next| next.load(Relaxed) as u32);
        }
    }

    /// Frees a chain.
    pub fn give_back(&self, first: u32) {
        let mut page = first;
        while page != 0 {
            let index = page as usize - 1;
            let (Some(next), Some(word)) = (self.next.get(index), self.taken.get(index / 64))
            else {
                return;
            };
            page = next.load(Relaxed) as u32;
            word.fetch_and(!(1 << (index % 64)), AcqRel);
        }
    }
}
