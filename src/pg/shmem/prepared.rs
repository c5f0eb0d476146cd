//! Records of prepared transactions in shared memory: the marks and leases that must be undone once the transaction is
//! committed or rolled back. By then the session that prepared the transaction may have ended, so the first process
//! that finds the transaction decided undoes them.
//!
//! Each mark or lease is an item of the record; `cache::lease::undo_marks` defines what the items mean. This file
//! stores them, and decides which process may take them, so that each item is undone exactly once:
//!
//! 1. A record belongs to the preparing process until the process has put its last item there, and then to no process.
//!    The process puts items only while the transaction is in progress.
//! 2. A process that finds the transaction decided takes the record in one atomic step, so that no other process takes
//!    it, and then pops its items.
//! 3. Pieces (see below) change hands under the hot tier's assignment lock.
//!
//! A record is identified by the 64-bit id of its transaction, which is never reused. So no process takes a record that
//! has since been reused for another transaction.
//!
//! A record has room for a few items. More items go to pieces of a pool; each role has a limited share of the pool.
//! When no piece has room for an item, the caller puts an item for the whole cache instead, and each record reserves
//! places for items of whole caches. So no role can use up the places that another role's records need.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::role_counts::RoleCounts;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction;

/// The number of records for each transaction that may be prepared at a time (`max_prepared_transactions`). It is more
/// than one because a decided transaction keeps its record until the record's items are undone.
const RECORDS_EACH: usize = 2;
/// The largest part of the hot tier's bytes that the records may take: one in 32.
const PARTS_FOR_RECORDS: usize = 32;
/// The largest part of the hot tier's bytes that the pool may take: one in 64.
const PARTS_FOR_PIECES: usize = 64;
/// The share of a role: one in four pieces of the pool.
const SHARES: usize = 4;
/// The number of items that a record itself holds, enough for most transactions.
const FIRST_ITEMS: usize = 16;
/// The number of a record's items for whole caches; each cache needs one.
const LAST_ITEMS: usize = 74;
const PIECE_ITEMS: usize = 63;
/// The maximum number of pieces of one transaction. When more keys of a cache have changed, the whole cache is
/// recorded.
const PIECES_EACH: usize = 10_000 / PIECE_ITEMS + 1;

/// The bits of a record's state. The transaction's id is in the bits above them.
const STATE_BITS: u32 = 2;
const STANDS: u64 = 1;
const TAKEN: u64 = 2;

/// A mark or a lease to undo, as `cache::lease::undo_marks` encodes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Item {
    pub kind: u32,
    pub number: u32,
    pub value: u64,
}

#[repr(C)]
struct Place {
    kind: AtomicU32,
    number: AtomicU32,
    value: AtomicU64,
}

impl Place {
    fn put(&self, item: Item) {
        self.kind.store(item.kind, Relaxed);
        self.number.store(item.number, Relaxed);
        self.value.store(item.value, Relaxed);
    }

    fn get(&self) -> Item {
        Item {
            kind: self.kind.load(Relaxed),
            number: self.number.load(Relaxed),
            value: self.value.load(Relaxed),
        }
    }
}

#[repr(C, align(64))]
struct Header {
    /// 0 if the record is free; otherwise the transaction's id and the state of the record.
    owner: AtomicU64,
    /// The index of the record's last piece, counted from 1; 0 if the record has no piece.
    piece: AtomicU32,
    /// Items that were put before the items in the pieces.
    first: Items<FIRST_ITEMS>,
    /// Items for whole caches, put after the items in the pieces.
    last: Items<LAST_ITEMS>,
}

#[repr(C)]
struct Piece {
    /// The role whose share includes the piece.
    role: AtomicU32,
    /// The index of the record's previous piece or, in a free piece, of the next free piece. Counted from 1; 0 means
    /// that no further piece exists.
    before: AtomicU32,
    items: Items<PIECE_ITEMS>,
}

/// A stack of items.
#[repr(C)]
struct Items<const N: usize> {
    in_use: AtomicU32,
    places: [Place; N],
}

impl<const N: usize> Items<N> {
    fn push(&self, item: Item) -> bool {
        let count = self.in_use.load(Relaxed);
        let Some(place) = self.places.get(count as usize) else {
            return false;
        };
        place.put(item);
        self.in_use.store(count + 1, SeqCst);
        true
    }

    fn pop(&self) -> Option<Item> {
        let left = self.in_use.load(Relaxed).checked_sub(1)?;
        self.in_use.store(left, SeqCst);
        self.places.get(left as usize).map(Place::get)
    }

    fn used(&self) -> &[Place] {
        &self.places[..N.min(self.in_use.load(Relaxed) as usize)]
    }

    fn is_empty(&self) -> bool {
        self.in_use.load(Relaxed) == 0
    }
}

/// The numbers of records and pieces.
#[derive(Clone, Copy)]
pub struct Shape {
    records: usize,
    pieces: usize,
}

impl Shape {
    /// Computes the shape for a hot tier of this many bytes.
    pub fn of(size: usize) -> Shape {
        let most = size / PARTS_FOR_RECORDS / size_of::<Header>();
        let records = (transaction::most_prepared() * RECORDS_EACH).min(most);
        let pieces = (size / PARTS_FOR_PIECES / size_of::<Piece>()).min(records * PIECES_EACH);
        Shape { records, pieces }
    }

    /// Returns the bytes of shared memory for records and pieces: 0 if no transaction can be prepared.
    pub fn bytes(self) -> usize {
        let head = match self.records {
            0 => 0,
            _ => size_of::<Head>(),
        };
        head + self.records * size_of::<Header>() + self.pieces * size_of::<Piece>()
    }
}

#[repr(C, align(64))]
struct Head {
    /// Records in use. At 0, readers check no records.
    standing: AtomicU32,
    /// The index of the first piece that was in use and is free again, counted from 1; 0 if no piece is.
    free: AtomicU32,
    /// The number of pieces that were ever taken.
    ever_taken: AtomicU32,
    by_role: RoleCounts,
}

/// All records of the server.
pub struct Records {
    head: Option<&'static Head>,
    headers: &'static [Header],
    pieces: &'static [Piece],
}

/// A record in use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record {
    place: usize,
    pub xid: u64,
}

impl Record {
    fn owner(self, state: u64) -> u64 {
        self.xid << STATE_BITS | state
    }
}

impl Records {
    /// # Safety
    /// `memory` is 64-byte aligned, zeroed before its first use, and holds `shape.bytes()`.
    pub unsafe fn attach(memory: *mut u8, shape: Shape) -> Records {
        if shape.records == 0 {
            return Records {
                head: None,
                headers: &[],
                pieces: &[],
            };
        }
        // SAFETY: the parts lie one after the other in the memory, each aligned; atomics of any bits are valid.
        unsafe {
            let headers = memory.add(size_of::<Head>());
            let pieces = headers.add(shape.records * size_of::<Header>());
            Records {
                head: Some(&*memory.cast()),
                headers: std::slice::from_raw_parts(headers.cast(), shape.records),
                pieces: std::slice::from_raw_parts(pieces.cast(), shape.pieces),
            }
        }
    }

    /// Returns whether any record is in use.
    #[inline]
    pub fn any(&self) -> bool {
        self.head.is_some_and(|head| head.standing.load(SeqCst) > 0)
    }

    /// Returns the records that no process has taken.
    pub fn standing(&self) -> impl Iterator<Item = Record> {
        let owners = self.headers.iter().enumerate();
        owners.filter_map(|(place, header)| {
            let owner = header.owner.load(SeqCst);
            let xid = owner >> STATE_BITS;
            (owner != 0 && owner & TAKEN == 0).then_some(Record { place, xid })
        })
    }

    /// Returns whether a process has taken a record and not yet freed it.
    pub fn any_taken(&self) -> bool {
        let taken = |header: &Header| header.owner.load(SeqCst) & TAKEN != 0;
        self.any() && self.headers.iter().any(taken)
    }

    /// Takes a free record for this transaction, which is in progress. Returns None if all records are in use.
    pub fn make(&self, xid: u64) -> Option<Record> {
        let free = |(place, header): (usize, &Header)| {
            let record = Record { place, xid };
            let made = header
                .owner
                .compare_exchange(0, record.owner(STANDS), SeqCst, SeqCst);
            made.is_ok().then_some(record)
        };
        let made = self.headers.iter().enumerate().find_map(free)?;
        if let Some(head) = self.head {
            head.standing.fetch_add(1, SeqCst);
        }
        Some(made)
    }

    /// Puts an item for a whole cache into the record, because no piece has room for the item of a key. Returns false
    /// if the places for these items are used up. `join` may return an item that replaces both an existing item and the
    /// new one.
    pub fn put_last(
        &self,
        record: Record,
        item: Item,
        mut join: impl FnMut(Item) -> Option<Item>,
    ) -> bool {
        let last = &self.headers[record.place].last;
        for place in last.used() {
            if let Some(joined) = join(place.get()) {
                place.put(joined);
                return true;
            }
        }
        last.push(item)
    }

    /// Puts an item into the record. Returns false if the record needs another piece, or already has items for whole
    /// caches, because items must be popped in reverse order.
    pub fn put(&self, record: Record, item: Item) -> bool {
        let header = &self.headers[record.place];
        if !header.last.is_empty() {
            return false;
        }
        match self.piece(header.piece.load(Relaxed)) {
            Some(piece) => piece.items.push(item),
            None => header.first.push(item),
        }
    }

    /// Gives the record another piece, which counts for this role. Returns false if the role's share or the pool is
    /// used up, or if the record already has items for whole caches.
    pub fn add_piece(&self, record: Record, role: u32) -> bool {
        let header = &self.headers[record.place];
        let Some(head) = self.head.filter(|_| header.last.is_empty()) else {
            return false;
        };
        let number = match head.free.load(Relaxed) {
            0 => head.ever_taken.load(Relaxed) + 1,
            free => free,
        };
        let Some(piece) = self.piece(number) else {
            return false;
        };
        let share = match fault::on(Fault::RoleTakesAllRoom) {
            true => self.pieces.len(),
            false => self.pieces.len() / SHARES,
        };
        if !head.by_role.take(role, share) {
            return false;
        }
        match head.free.load(Relaxed) {
            0 => head.ever_taken.store(number, Relaxed),
            _ => head.free.store(piece.before.load(Relaxed), Relaxed),
        }
        piece.role.store(role, Relaxed);
        piece.before.store(header.piece.load(Relaxed), Relaxed);
        header.piece.store(number, SeqCst);
        true
    }

    /// Returns the last piece of a record, which is empty, to the pool. Returns false if the record has no piece.
    pub fn remove_piece(&self, record: Record) -> bool {
        let header = &self.headers[record.place];
        let number = header.piece.load(Relaxed);
        let (Some(head), Some(piece)) = (self.head, self.piece(number)) else {
            return false;
        };
        header.piece.store(piece.before.load(Relaxed), SeqCst);
        piece.before.store(head.free.load(Relaxed), Relaxed);
        head.free.store(number, Relaxed);
        head.by_role.give_back(piece.role.load(Relaxed));
        true
    }

    fn piece(&self, number: u32) -> Option<&Piece> {
        self.pieces.get((number as usize).checked_sub(1)?)
    }

    /// Takes the record to undo its items. Returns false if another process has taken it.
    pub fn take(&self, record: Record) -> bool {
        self.headers[record.place]
            .owner
            .compare_exchange(record.owner(STANDS), record.owner(TAKEN), SeqCst, SeqCst)
            .is_ok()
    }

    /// Pops the last item of a record that this process has taken. Returns None if the record's last piece is empty,
    /// or, in a record without pieces, if no item is left.
    pub fn pop(&self, record: Record) -> Option<Item> {
        let header = &self.headers[record.place];
        let last = header.last.pop();
        last.or_else(|| match self.piece(header.piece.load(Relaxed)) {
            Some(piece) => piece.items.pop(),
            None => header.first.pop(),
        })
    }

    /// Frees a record that this process has taken and emptied.
    pub fn free(&self, record: Record) {
        self.headers[record.place].owner.store(0, SeqCst);
        if let Some(head) = self.head {
            head.standing.fetch_sub(1, SeqCst);
        }
    }
}
