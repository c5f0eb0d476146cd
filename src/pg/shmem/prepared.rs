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
//! 3. Pieces change hands under the tier's lock of assignments.
//!
//! A record is known by the 64-bit id of its transaction, which never comes twice. So nobody takes one
//! that has become another transaction's meanwhile.
//!
//! A record has a few items of its own. More go to pieces of a pool, of which a role has a share. An item that
//! finds no place there is the caller's to replace by one for its whole cache, and the record has places of
//! its own for these. So no role can use up what the records of another role need.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::role_counts::RoleCounts;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction;

/// Records for each transaction that may be prepared at a time: those that are decided and not yet
/// undone take a place as well.
const RECORDS_EACH: usize = 2;
/// Of the tier's bytes, so many parts go at most to the records, and to the pool.
const PARTS_FOR_RECORDS: usize = 32;
const PARTS_FOR_PIECES: usize = 64;
/// A role has one of so many parts of the pool.
const SHARES: usize = 4;
/// Enough for most transactions.
const FIRST_ITEMS: usize = 16;
/// One for each whole cache.
const LAST_ITEMS: usize = 74;
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
    /// Items that came before those of its pieces.
    first: Items<FIRST_ITEMS>,
    /// Items that came after them.
    last: Items<LAST_ITEMS>,
}

#[repr(C)]
struct Piece {
    /// Under which it is counted.
    role: AtomicU32,
    /// The piece before it, as in a header; of a free piece, the next free one.
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
    /// The first free piece, as in a header; pieces that were never taken are not among them.
    free: AtomicU32,
    /// So many pieces were ever taken.
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

    /// Puts an item for a whole cache into the record, where no piece has room for it; false when these places are
    /// used up. `join` may give what stands for a known item and for this one.
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

    /// Puts an item into the record; false when it needs another piece, or has had to do without one: what is put
    /// last is to be taken first.
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

    /// Gives the record another piece, counted under this role; false where the role has no more, or the pool.
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

    /// Gives the last piece of a record back to the pool, which is empty; false when the record has none.
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

    /// Takes the record, to undo its items; false when somebody else has.
    pub fn take(&self, record: Record) -> bool {
        self.headers[record.place]
            .owner
            .compare_exchange(record.owner(STANDS), record.owner(TAKEN), SeqCst, SeqCst)
            .is_ok()
    }

    /// The last item of a record that this process has taken; None when its last piece is empty, or the record.
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
