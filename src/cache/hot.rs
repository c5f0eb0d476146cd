//! Copies of table entries in the hot tier: looking one up, and filling one in after a miss.
//!
//! Guards the rules of ARCHITECTURE.md, "Coherence": an entry is valid only if its version is its
//! cache's, which every mark of the cache changes; a copy is filled in only if,
//! between the token and the fill, no writer of its stripe or its cache marked or unmarked, and
//! only by a transaction that cannot have uncommitted changes.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgcache_store::{
    GetOutcome, Header, Key as HotKey, NO_DEADLINE, NewEntry, PartitionRef, SET_ROUNDS, SetOutcome,
    Stripe,
};
use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::deadline;
use super::key::Key;
use super::registry::{self, Cache};
use super::slots;
use super::table::Entry;
use crate::error::Error;
use crate::guc;
use crate::pg::clock;
use crate::pg::datum::{Room, ValueType};
use crate::pg::slot::Figure;
use crate::pg::stored::{self, Kind};
use crate::pg::tier::{Tier, tier};
use crate::pg::{lock, session};

/// What must not have changed between a miss and the fill that follows it.
pub struct Token {
    slot: u32,
    version: u64,
    hash: u64,
    stripe: Stripe,
    global_epoch: u64,
}

/// The hash that places a key in the tier: over database, relation and key, seeded at each start.
#[inline]
pub fn hash(tier: &Tier, owner: u64, key: &[u8]) -> u64 {
    let seed = tier.control().seed.load(Relaxed);
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed ^ owner.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The tier, if this session may use copies of this cache's entries now.
#[inline]
fn tier_for(cache: &Cache) -> Option<&'static Tier> {
    let tier = tier()?;
    let allowed = guc::hot_tier()
        && session::reads_committed_only()
        && !cache.row_security
        && !session::in_recovery();
    allowed.then_some(tier)
}

/// Asks for the index of a key that will be looked up: in a large tier memory is what a look-up waits
/// for, and the privileges can be checked meanwhile. Changes nothing, tells nothing.
#[inline]
pub fn approach(relation: Oid, key: Key) {
    if let Some(tier) = tier().filter(|_| guc::hot_tier()) {
        let hash = hash(tier, slots::owner_of(relation), key.text().bytes());
        tier.region().prefetch_buckets(hash);
    }
}

/// The same for several keys, followed to their entries: all of a batch are on their way from memory
/// before the first is looked at.
pub fn approach_all(relation: Oid, keys: &[Key]) {
    let Some(tier) = tier() else {
        return;
    };
    let owner = slots::owner_of(relation);
    let hash = |key: &Key| hash(tier, owner, key.text().bytes());
    for key in keys {
        tier.region().prefetch_buckets(hash(key));
    }
    for key in keys {
        tier.region().prefetch_entry(hash(key));
    }
}

/// The copy of a live entry, or of one within this grace. Needs no lock on the table.
#[inline]
pub fn lookup(cache: &Cache, key: Key, grace: Option<Interval>) -> Option<Entry> {
    let tier = tier_for(cache)?;
    let slot = cache.slot(tier)?;
    let text = key.text();
    let hot_key = HotKey {
        hash: hash(tier, cache.owner, text.bytes()),
        cache: slot,
        bytes: text.bytes(),
    };
    tier.region().prefetch_entry(hot_key.hash);
    let valid = |header: &Header| {
        tier.slot(slot).version.load(SeqCst) == header.version
            && tier.owner(slot).load(SeqCst) == cache.owner
    };
    let entry = copy_out(tier, &hot_key, cache.value_type, grace, valid)?;
    tier.slot(slot).count(Figure::HotHits, 1);
    Some(entry)
}

/// Values up to this size are copied twice, so that one look-up is enough for them.
const SHORT: usize = 8192;

thread_local! {
    /// Where a short value is copied to under the lock; never dropped.
    static BUFFER: ManuallyDrop<RefCell<Vec<u8>>> = ManuallyDrop::new(RefCell::new(vec![0; SHORT]));
}

/// Copies a valid entry that is live, or within this grace, out of the tier and makes it a datum.
pub fn copy_out(
    tier: &Tier,
    key: &HotKey,
    value_type: ValueType,
    grace: Option<Interval>,
    valid: impl Fn(&Header) -> bool,
) -> Option<Entry> {
    // The clock is asked only where there is a deadline: that alone is a tenth of a hit's time. But a grace
    // is taken off by the calendar, which allocates and may fail: not under the partition's lock.
    let stale_since = grace.map(|grace| deadline::swept_until(clock::now(), Some(grace)));
    let since = || stale_since.unwrap_or_else(clock::now);
    let valid = |header: &Header| {
        valid(header) && (header.deadline == NO_DEADLINE || since() < header.deadline)
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

/// What a look-up with the short buffer gave.
enum Copied {
    Entry(Option<Entry>),
    Longer(u32),
}

/// Copies a value straight into the datum. It may have become longer meanwhile, or shorter.
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

/// Whether the tier knows that a table's entry is used: it has a copy that was read since it came.
pub fn is_used(cache: &Cache, key: Key) -> bool {
    let Some((tier, slot)) = tier().and_then(|tier| Some((tier, cache.slot(tier)?))) else {
        return false;
    };
    let text = key.text();
    let hot_key = HotKey {
        hash: hash(tier, cache.owner, text.bytes()),
        cache: slot,
        bytes: text.bytes(),
    };
    tier.read(hot_key.hash, |partition| partition.use_rank(&hot_key))
        .is_some_and(|used| used > 0)
}

/// None for an entry of another type: the cache was dropped and made again under the same oid.
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

/// What to hold against the fill. Taken before the snapshot that reads the row; the caller has the
/// cache open for reading.
pub fn token(cache: &Cache, key: Key) -> Option<Token> {
    let tier = tier_for(cache)?;
    let slot = cache.slot_or_new(tier)?;
    if tier.slot(slot).suspended.load(SeqCst) != 0 && !verify_triggers(tier, slot, cache.relation) {
        return None;
    }
    let hash = hash(tier, cache.owner, key.text().bytes());
    let control = tier.control();
    let global_epoch = control.global_epoch.load(SeqCst);
    let version = tier.slot(slot).version.load(SeqCst);
    let stripe = tier.read(hash, |partition| partition.stripe(hash));
    let token = Token {
        slot,
        version,
        hash,
        stripe,
        global_epoch,
    };
    holds(tier, &token, cache.owner, stripe).then_some(token)
}

/// Whether nothing that the token speaks of has changed and no writer is at work.
fn holds(tier: &Tier, token: &Token, owner: u64, stripe: Stripe) -> bool {
    let slot = tier.slot(token.slot);
    let control = tier.control();
    stripe == token.stripe
        && stripe.pend == 0
        && slot.version.load(SeqCst) == token.version
        && tier.owner(token.slot).load(SeqCst) == owner
        && slot.pend.load(SeqCst) == 0
        && slot.suspended.load(SeqCst) == 0
        && control.global_epoch.load(SeqCst) == token.global_epoch
        && control.global_pend.load(SeqCst) == 0
}

/// Fills in the row that was read after the token was taken.
pub fn fill(cache: &Cache, key: Key, token: &Token, entry: &Entry) {
    let Some(tier) = tier_for(cache) else {
        return;
    };
    let Ok(record) = record(token.version, entry, cache.value_type) else {
        return;
    };
    if record.value.len() > guc::hot_max_value() {
        tier.control().rejected.fetch_add(1, Relaxed);
        return;
    }
    let text = key.text();
    let hot_key = HotKey {
        hash: token.hash,
        cache: token.slot,
        bytes: text.bytes(),
    };
    let still =
        |partition: &PartitionRef| holds(tier, token, cache.owner, partition.stripe(token.hash));
    store(tier, &hot_key, &record, still, || ());
}

/// An entry as the tier keeps it; an error where its value is not of this type.
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

/// What became of a write to the tier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Yes,
    /// `still` said no.
    Refused,
    TooLarge,
    /// Other writers took the room each time: the entry counts as evicted at once.
    Crowded,
}

/// Stores a record if `still` holds under the lock, with room made in other partitions if need be;
/// `stored` runs under the same lock when it is there.
pub fn store(
    tier: &Tier,
    key: &HotKey,
    record: &NewEntry,
    still: impl Fn(&PartitionRef) -> bool,
    stored: impl Fn(),
) -> Stored {
    let home = tier.region().partition_of(key.hash);
    let mut grant = tier.region().grant();
    let now = clock::now();
    for _ in 0..SET_ROUNDS {
        let set = tier.change(home, |partition| {
            still(partition).then(|| {
                let set = partition.set(key, record, now, &mut grant);
                if matches!(set, SetOutcome::Stored { .. }) {
                    stored();
                }
                set
            })
        });
        match set {
            None => return Stored::Refused,
            Some(SetOutcome::Stored { .. }) => return Stored::Yes,
            Some(SetOutcome::TooLarge) => return Stored::TooLarge,
            Some(SetOutcome::NeedPages { pages, victim }) => {
                tier.change(victim, |partition| {
                    partition.reclaim(pages, now, &mut grant)
                });
            }
        }
    }
    Stored::Crowded
}

/// Lets a suspended cache be filled again, if its triggers see every row.
///
/// The lock conflicts with every command that could change a trigger, and taking it delivers what
/// finished ones have changed, so the facts read under it are present ones and stay so until the
/// flag is down. A plain reader's lock would not wait for ALTER TABLE ... DISABLE TRIGGER.
fn verify_triggers(tier: &Tier, slot: u32, relation: Oid) -> bool {
    let Some(_lock) = lock::Brief::try_on(relation, lock::Mode::Verify) else {
        return false;
    };
    let may_be_copied = registry::find(relation).is_ok_and(|cache| cache.may_be_copied);
    if may_be_copied {
        tier.slot(slot).suspended.store(0, SeqCst);
    }
    may_be_copied
}
