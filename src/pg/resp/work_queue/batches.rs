//! Batches in the work queue: the commands of one client on a table, and later the replies to them, as bytes. Short
//! batches and replies are stored in their place, long ones in pages.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::Oid;

use crate::pg::resp::work_queue::pages::{Half, Pages};
use crate::pg::resp::work_queue::places::{Answered, Content, Free, Owned, Places, Taken};
use crate::pg::session::fault::{self, Fault};

/// The maximum length of a batch or reply that needs no page.
const SHORT: usize = 1024;

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
    /// The number by which the network process knows the client.
    pub ticket: u64,
    pub role: Oid,
    pub relation: Oid,
    /// Whether the batch writes WAL, so that its commit may wait for a synchronous standby if the role's settings
    /// require it.
    pub is_logged: bool,
    /// The target of a COPY, if the command is one.
    pub copied_to: Option<Oid>,
    /// Whether user-defined code may run: each command then has a transaction of its own, which never runs twice.
    pub alone: bool,
    pub work: Work,
    pub commands: u32,
    /// Whether the replies use version 3 of the protocol.
    pub three: bool,
    /// The time of submission, by the session's clock.
    pub since: i64,
}

/// A batch or its reply.
#[repr(C)]
pub struct Text {
    handed: UnsafeCell<MaybeUninit<Handed>>,
    length: UnsafeCell<usize>,
    /// The earliest deadline of the entries that the batch read, by the session's clock; i64::MAX: no entry has a
    /// deadline.
    soonest: AtomicI64,
    /// The first page of the bytes, counted from 1, if they are not short; 0: the bytes need no page.
    first_page: UnsafeCell<u32>,
    short: UnsafeCell<[u8; SHORT]>,
}

/// The batches of this server.
#[derive(Clone, Copy)]
pub struct Batches {
    pub places: Places,
    pub texts: &'static [Text],
    pub pages: Pages,
}

impl Batches {
    /// Returns the length of the longest batch or reply.
    pub fn longest(&self) -> usize {
        self.pages.half()
    }

    fn text<const STATE: u32>(&self, place: &Owned<STATE>) -> Option<&'static Text> {
        match place.content() {
            Content::Batch(index) => self.texts.get(index),
            Content::Request(_) => None,
        }
    }

    /// Writes a batch to a place; returns false if too few pages are free now.
    pub fn write(&self, place: &Free, handed: Handed, bytes: &[u8]) -> bool {
        let Some(text) = self.text(place) else {
            return false;
        };
        // SAFETY: only this network process accesses the place until it is submitted.
        unsafe { (*text.handed.get()).write(handed) };
        text.soonest.store(i64::MAX, Relaxed);
        self.fill(text, bytes, Half::Requests)
    }

    /// Returns whether a batch of these bytes leaves this much room for requests of other batches.
    pub fn leaves_room(&self, bytes: &[u8], room: usize) -> bool {
        bytes.len() <= SHORT || self.pages.room_of_requests() >= bytes.len() + room
    }

    /// Writes bytes to a text that the caller owns, in its place or in pages; returns false if too few pages are free
    /// now.
    fn fill(&self, text: &Text, bytes: &[u8], half: Half) -> bool {
        let page = match bytes.len() <= SHORT {
            true => 0,
            false => match self.pages.write(bytes, half) {
                Some(page) => page,
                None => return false,
            },
        };
        // SAFETY: only the caller accesses the place and its chain of pages.
        unsafe {
            self.pages.give_back(*text.first_page.get());
            *text.first_page.get() = page;
            *text.length.get() = bytes.len();
            if page == 0 {
                let short = (*text.short.get()).as_mut_ptr();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), short, bytes.len());
            }
        }
        true
    }

    /// Passes the bytes of a text that the caller owns to `take`, in one piece or several.
    fn show(&self, text: &Text, mut take: impl FnMut(&[u8])) {
        // SAFETY: only the caller accesses the place, so no other process writes to it.
        unsafe {
            let (page, length) = (*text.first_page.get(), *text.length.get());
            match page {
                0 => take((*text.short.get()).get(..length).unwrap_or_default()),
                page => self.pages.read(page, length, take),
            }
        }
    }

    /// Returns the number of the client that waits for a reply; None if no client does.
    pub fn ticket(&self, place: &Answered) -> Option<u64> {
        let batch = self.description(place)?;
        (!self.places.is_gone(place)).then_some(batch.ticket)
    }

    fn description<const STATE: u32>(&self, place: &Owned<STATE>) -> Option<Handed> {
        let text = self.text(place)?;
        // SAFETY: the place is the caller's alone; its network process, or the predecessor of that process, has written
        // the value.
        Some(unsafe { (*text.handed.get()).assume_init() })
    }

    /// Passes the bytes of a reply to `take`.
    pub fn reply(&self, place: &Answered, take: impl FnMut(&[u8])) {
        if let Some(text) = self.text(place) {
            self.show(text, take);
        }
    }

    /// Records the earliest deadline of the entries that an executor has read for this batch.
    pub fn set_soonest(&self, taken: &Taken, soonest: i64) {
        if let Some(text) = self.text(taken) {
            text.soonest.store(soonest, Relaxed);
        }
    }

    /// Returns the earliest deadline of the entries that an executor read for a reply; None if no entry has one.
    pub fn soonest(&self, place: &Answered) -> Option<i64> {
        let soonest = self.text(place)?.soonest.load(Relaxed);
        (soonest != i64::MAX).then_some(soonest)
    }

    /// Frees a place after its reply was read.
    pub fn free(&self, place: Answered) -> Free {
        let place = place.free();
        self.free_pages(&place);
        place
    }

    fn free_pages(&self, place: &Free) {
        if let Some(text) = self.text(place) {
            // SAFETY: only this network process accesses the place.
            unsafe {
                self.pages
                    .give_back(std::mem::take(&mut *text.first_page.get()))
            };
        }
    }

    /// Frees the places that this network process has, but for the places in `kept`, and their pages.
    pub fn reclaim(&self, network: usize, kept: &[u32]) -> impl Iterator<Item = Free> {
        let lost = self.places.free_batches(network);
        lost.filter(|place| !kept.contains(&place.number()))
            .inspect(|place| self.free_pages(place))
    }

    /// Gives back all places and pages of a network process, which ends and is the caller. Executors that still have
    /// some of its places give them back themselves.
    pub fn end_network(&self, network: usize) {
        self.places.abandon(network);
        if fault::on(Fault::EndedKeepsPlaces) {
            return;
        }
        // Otherwise executors would wait for room for its replies until the successor begins.
        while self.places.take_answered(network).is_some() {}
        self.reclaim(network, &[]).for_each(drop);
    }

    /// Returns the description of a batch that this executor has taken; None if its client has disconnected.
    pub fn handed(&self, taken: &Taken) -> Option<Handed> {
        let batch = self.description(taken)?;
        (!self.places.is_gone(taken)).then_some(batch)
    }

    /// Records that user-defined code may run for a batch that this executor has taken, if the executor finds this out
    /// later.
    pub fn set_alone(&self, taken: &Taken) {
        if let Some(text) = self.text(taken) {
            // SAFETY: as in `description`.
            unsafe { (*text.handed.get()).assume_init_mut() }.alone = true;
        }
    }

    /// Appends the requests of a batch that this executor has taken.
    pub fn read(&self, taken: &Taken, to: &mut Vec<u8>) {
        if let Some(text) = self.text(taken) {
            self.show(text, |bytes| to.extend_from_slice(bytes));
        }
    }

    /// Writes the reply; returns the number of the network process to wake. Returns the place as an error if too few
    /// pages are free now.
    pub fn answer(&self, taken: Taken, reply: &[u8]) -> Result<usize, Taken> {
        match self.text(&taken) {
            Some(text) if !self.fill(text, reply, Half::Replies) => Err(taken),
            _ => Ok(self.places.answer(taken)),
        }
    }
}
