//! Records of prepared transactions: what is to be undone of them, by whoever meets it, once they are
//! decided.
//!
//! Not what an item means, which `cache::lease::lowering` knows; here are places for items, and who may
//! take them. Guards that each item is undone once:
//!
//! 1. A record belongs to the process that prepares until that has put its last item there, and from
//!    then on to nobody. The process puts items only while the transaction is in progress.
//! 2. Who finds the transaction decided takes the record, in one step and as the only one, and pops its
//!    items.
//!
//! A record is known by the 64-bit id of its transaction, which never comes twice. So nobody takes one
//! that has become another transaction's meanwhile.
//!
//! A record has a few items of its own. For more it takes pieces of a pool, which all records share; what
//! finds no place there is told to the caller, who has an answer that needs none.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::pg::session::transaction;

/// Records for each transaction that may be prepared at a time: those that are decided and not yet
/// undone take a place as well.
const RECORDS_EACH: usize = 2;
/// Of the tier's bytes, so many parts go at most to the records, and to the pool.
const PARTS_FOR_RECORDS: usize = 32;
const PARTS_FOR_PIECES: usize = 64;
const OWN_ITEMS: usize = 30;
const PIECE_ITEMS: usize = 63;
/// Pieces that one transaction can make use of: more keys of a cache than that count as the whole
/// cache.
const PIECES_EACH: usize = 10_000 / PIECE_ITEMS + 1;

/// Bits of a record's state; its transaction's id stands above them.
const STATE_BITS: u32 = 2;
const STANDS: u64 = 1;
const TAKEN: u64 = 2;

/// What is to be undone, as the layer above encodes it.
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
    /// 0: free. Else the transaction's id and what becomes of the record.
    owner: AtomicU64,
    /// The last of its pieces, from 1 on; 0: it has none.
    piece: AtomicU32,
    own_items: AtomicU32,
    items: [Place; OWN_ITEMS],
}

#[repr(C)]
struct Piece {
    /// 0: free.
    taken: AtomicU32,
    /// The piece before it, as in a header.
    before: AtomicU32,
    items_in_use: AtomicU32,
    _unused: u32,
    items: [Place; PIECE_ITEMS],
}

/// How many records and pieces there are.
#[derive(Clone, Copy)]
pub struct Shape {
    records: usize,
    pieces: usize,
}

impl Shape {
    /// For a tier of so many bytes.
    pub fn of(size: usize) -> Shape {
        let most = size / PARTS_FOR_RECORDS / size_of::<Header>();
        let records = (transaction::most_prepared() * RECORDS_EACH).min(most);
        let pieces = (size / PARTS_FOR_PIECES / size_of::<Piece>()).min(records * PIECES_EACH);
        Shape { records, pieces }
    }

    /// Bytes of shared memory that they take: none where nothing can be prepared.
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
    /// Records in use: most who look go no further.
    standing: AtomicU32,
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
    /// `memory` is 64-byte aligned, zeroed before anybody uses it, and holds `shape.bytes()`.
    pub unsafe fn attach(memory: *mut u8, shape: Shape) -> Records {
        if shape.records == 0 {
            return Records {
                head: None,
                headers: &[],
                pieces: &[],
            };
        }
        // SAFETY: the parts lie one after the other in the memory, each at a multiple of its alignment;
        // atomics of any bits are valid.
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

    /// Whether any record is in use.
    #[inline]
    pub fn any(&self) -> bool {
        self.head.is_some_and(|head| head.standing.load(SeqCst) > 0)
    }

    /// The records that nobody has taken yet.
    pub fn standing(&self) -> impl Iterator<Item = Record> {
        let owners = self.headers.iter().enumerate();
        owners.filter_map(|(place, header)| {
            let owner = header.owner.load(SeqCst);
            let xid = owner >> STATE_BITS;
            (owner != 0 && owner & TAKEN == 0).then_some(Record { place, xid })
        })
    }

    /// Whether somebody has taken a record, and not freed it yet.
    pub fn any_taken(&self) -> bool {
        let taken = |header: &Header| header.owner.load(SeqCst) & TAKEN != 0;
        self.any() && self.headers.iter().any(taken)
    }

    /// A record for this transaction, which is in progress; None when all are in use.
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

    /// Puts an item among the record's own; false when these are used up. For what no other item can
    /// stand for.
    pub fn put_own(&self, record: Record, item: Item) -> bool {
        let header = &self.headers[record.place];
        let count = header.own_items.load(Relaxed);
        let Some(place) = header.items.get(count as usize) else {
            return false;
        };
        place.put(item);
        header.own_items.store(count + 1, SeqCst);
        true
    }

    /// Whether an item is among the record's own.
    pub fn has_own(&self, record: Record, item: Item) -> bool {
        let header = &self.headers[record.place];
        let count = header.own_items.load(Relaxed) as usize;
        header.items[..count.min(OWN_ITEMS)]
            .iter()
            .any(|place| place.get() == item)
    }

    /// Puts an item into the record's pieces; false when the pool is used up, or was so for this record:
    /// what is put last is to be taken first.
    pub fn put(&self, record: Record, item: Item) -> bool {
        let header = &self.headers[record.place];
        if header.own_items.load(Relaxed) > 0 {
            return false;
        }
        let last = header.piece.load(Relaxed);
        let (number, piece) = match self.piece(last) {
            Some(piece) if (piece.items_in_use.load(Relaxed) as usize) < PIECE_ITEMS => {
                (last, piece)
            }
            _ => match self.take_piece(last) {
                Some(taken) => taken,
                None => return false,
            },
        };
        let count = piece.items_in_use.load(Relaxed);
        piece.items[count as usize].put(item);
        piece.items_in_use.store(count + 1, SeqCst);
        header.piece.store(number, SeqCst);
        true
    }

    fn piece(&self, number: u32) -> Option<&Piece> {
        self.pieces.get((number as usize).checked_sub(1)?)
    }

    fn take_piece(&self, before: u32) -> Option<(u32, &Piece)> {
        let free = |piece: &&Piece| piece.taken.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
        let index = self.pieces.iter().position(|piece| free(&piece))?;
        let piece = &self.pieces[index];
        piece.before.store(before, Relaxed);
        piece.items_in_use.store(0, Relaxed);
        Some((index as u32 + 1, piece))
    }

    /// Takes the record, to undo its items; false when somebody else has.
    pub fn take(&self, record: Record) -> bool {
        self.headers[record.place]
            .owner
            .compare_exchange(record.owner(STANDS), record.owner(TAKEN), SeqCst, SeqCst)
            .is_ok()
    }

    /// The last item of a record that this process has taken. Its own came after those of its pieces.
    pub fn pop(&self, record: Record) -> Option<Item> {
        let header = &self.headers[record.place];
        if let Some(left) = header.own_items.load(Relaxed).checked_sub(1) {
            header.own_items.store(left, SeqCst);
            return Some(header.items[left as usize].get());
        }
        while let Some(piece) = self.piece(header.piece.load(Relaxed)) {
            let count = piece.items_in_use.load(Relaxed);
            if let Some(left) = count.checked_sub(1) {
                piece.items_in_use.store(left, SeqCst);
                return Some(piece.items[left as usize].get());
            }
            header.piece.store(piece.before.load(Relaxed), SeqCst);
            piece.taken.store(0, SeqCst);
        }
        None
    }

    /// Frees a record that this process has taken and emptied.
    pub fn free(&self, record: Record) {
        self.headers[record.place].owner.store(0, SeqCst);
        if let Some(head) = self.head {
            head.standing.fetch_sub(1, SeqCst);
        }
    }
}
