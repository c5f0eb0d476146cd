//! Copies single entries into the hot tier and out of it.
//!
//! Nothing is allocated while a partition is locked, because an allocation may raise an error. So a value is copied
//! under the lock into memory that was allocated before.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use pgcache_store::{
    GetOutcome, Header, Key as HotKey, NO_DEADLINE, NewEntry, PartitionRef, SET_ROUNDS, SetOutcome,
};
use pgrx::datum::Interval;

use crate::cache::model::deadline;
use crate::cache::model::entry::Entry;
use crate::error::Error;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::tier::Tier;
use crate::pg::value::datum::{Room, ValueType};
use crate::pg::value::stored::{self, Kind};

/// Values up to this size are copied through a buffer, so that a single lookup is enough.
const SHORT: usize = 8192;

thread_local! {
    /// The buffer for a short value, filled under the lock; never dropped.
    static BUFFER: ManuallyDrop<RefCell<Vec<u8>>> = ManuallyDrop::new(RefCell::new(vec![0; SHORT]));
}

/// Returns whether an entry of the tier is live at `now`. An entry without a deadline is always live.
#[inline]
pub fn is_live(header: &Header, now: Timestamp) -> bool {
    now < header.deadline || fault::on(Fault::ExpiredCopyServed)
}

/// Copies an entry out of the tier into a datum, if the entry is valid, and live or within this grace.
pub fn copy_out(
    tier: &Tier,
    key: &HotKey,
    value_type: ValueType,
    grace: Option<Interval>,
    valid: impl Fn(&Header) -> bool,
) -> Option<Entry> {
    // The clock is read only if the entry has a deadline, because reading it takes a tenth of the time of a hit. The
    // grace is subtracted before the partition is locked, because calendar arithmetic allocates and may fail.
    let stale_since = grace.map(|grace| deadline::swept_until(clock::now(), Some(grace)));
    let since = || stale_since.unwrap_or_else(clock::now);
    let valid = |header: &Header| {
        valid(header) && (header.deadline == NO_DEADLINE || is_live(header, since()))
    };
    let look = |buffer: &mut [u8]| {
        tier.read(key.hash, |partition| {
            partition.get(key, i64::MIN, valid, buffer)
        })
    };
    let found = BUFFER.with(|buffer| {
        let buffer = &mut *buffer.borrow_mut();
        match look(buffer) {
            GetOutcome::Hit(header) => {
                let value = |kind| {
                    let length = header.value_len as usize;
                    let mut room = Room::of(length);
                    room.bytes().copy_from_slice(&buffer[..length]);
                    stored::Stored::kept(room, length, kind)
                };
                Copied::Entry(as_entry(&header, value_type, value))
            }
            GetOutcome::TooSmall(header) => Copied::Longer(header.value_len),
            GetOutcome::Miss => Copied::Entry(None),
        }
    });
    match found {
        Copied::Entry(entry) => entry,
        Copied::Longer(length) => copy_out_long(length, value_type, look),
    }
}

/// The result of a lookup with the short buffer: an entry or a miss, or the length of a longer value.
enum Copied {
    Entry(Option<Entry>),
    Longer(u32),
}

/// Copies a long value straight into the datum. Starts over if the value has become longer since the last lookup.
fn copy_out_long(
    mut length: u32,
    value_type: ValueType,
    look: impl Fn(&mut [u8]) -> GetOutcome,
) -> Option<Entry> {
    loop {
        let mut room = Room::of(length as usize);
        match look(room.bytes()) {
            GetOutcome::Hit(header) => {
                let value = |kind| stored::Stored::kept(room, header.value_len as usize, kind);
                return as_entry(&header, value_type, value);
            }
            GetOutcome::TooSmall(header) => length = header.value_len,
            GetOutcome::Miss => return None,
        }
    }
}

/// Builds an entry. Returns None if the entry has a different type, because the cache was dropped and created again
/// with the same OID.
fn as_entry(
    header: &Header,
    value_type: ValueType,
    value: impl FnOnce(Kind) -> stored::Stored,
) -> Option<Entry> {
    let kind = Kind::of(header.kind).filter(|kind| kind.value_type() == value_type)?;
    Some(Entry {
        value: (!header.negative).then(|| value(kind)),
        deadline: (header.deadline != NO_DEADLINE).then_some(header.deadline),
    })
}

/// Returns an entry in the form of the tier. Raises an error if the value does not have this type.
pub fn record(version: u64, entry: &Entry, value_type: ValueType) -> Result<NewEntry<'_>, Error> {
    let value = match &entry.value {
        None => &[],
        Some(value) => {
            value.wanted(value_type)?;
            value.bytes()
        }
    };
    Ok(NewEntry {
        version,
        deadline: entry.deadline.unwrap_or(NO_DEADLINE),
        kind: value_type as u8,
        negative: entry.value.is_none(),
        value,
    })
}

/// The outcome of a write to the tier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    Yes,
    /// `still` returned false.
    Refused,
    TooLarge,
    /// Other writers took the space in every round. The entry counts as stored and immediately evicted.
    Crowded,
}

/// Stores a record if `still` returns true under the lock. If the partition needs space, reclaims pages in other
/// partitions; entries that have expired by `now` go first. `stored` runs under the lock after the record is stored.
pub fn store(
    tier: &Tier,
    key: &HotKey,
    record: &NewEntry,
    now: Timestamp,
    still: impl Fn(&PartitionRef) -> bool,
    stored: impl Fn(),
) -> StoreOutcome {
    let partition = tier.region().partition_of(key.hash);
    let mut grant = tier.region().grant();
    for _ in 0..SET_ROUNDS {
        let set = tier.change(partition, |partition| {
            still(partition).then(|| {
                let set = partition.set(key, record, now, &mut grant);
                if matches!(set, SetOutcome::Stored { .. }) {
                    stored();
                }
                set
            })
        });
        match set {
            None => return StoreOutcome::Refused,
            Some(SetOutcome::Stored { .. }) => return StoreOutcome::Yes,
            Some(SetOutcome::TooLarge) => return StoreOutcome::TooLarge,
            Some(SetOutcome::NeedPages { pages, victim }) => {
                tier.change(victim, |partition| {
                    partition.reclaim(pages, now, &mut grant)
                });
            }
        }
    }
    StoreOutcome::Crowded
}
