//! Offers: values of rows that a transaction has written, which replace their old copies in the hot tier at its
//! commit.
//!
//! A published copy equals its row, as the `Publish` clauses of the model in `crates/coherence` require. For this, any
//! later change of the key withdraws its offer, and the rollback of a savepoint withdraws all offers. An offer is
//! published only if no other transaction has marked its key or its cache since this transaction's mark.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Grant, Key as HotKey, NewEntry, PartitionMut, SetOutcome};
use pgrx::pg_sys::Oid;

use crate::pg::events::Copied;
use crate::pg::memory;
use crate::pg::session::clock::Timestamp;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::Tier;

/// The largest number of offers of one transaction.
const MOST: usize = 64;
/// The largest size in bytes of all offers of one transaction.
const MOST_BYTES: usize = 256 << 10;

/// The offers of a transaction, and the bytes that they take.
#[derive(Default)]
pub(super) struct Offers {
    list: Vec<Offer>,
    bytes: usize,
}

/// The value of a row that may be published as its copy.
pub(super) struct Offer {
    relation: u32,
    slot: u32,
    hash: u64,
    /// The bytes of the key, then the bytes of the value.
    bytes: Box<[u8]>,
    key_length: usize,
    negative: bool,
    kind: u8,
    deadline: Timestamp,
    /// Set when this transaction's mark has hidden a copy. Otherwise nothing is published.
    marked: Option<Marked>,
}

/// The version of the cache when the key was marked. The offer is published only if the version is still the same.
#[derive(Clone, Copy)]
struct Marked(u64);

impl Offers {
    pub(super) fn add(&mut self, copied: Copied) {
        let size = copied.key.len() + copied.value.map_or(0, <[u8]>::len);
        if self.list.len() >= MOST || self.bytes + size > MOST_BYTES {
            return;
        }
        let mut bytes = memory::list(size);
        bytes.extend_from_slice(copied.key);
        bytes.extend_from_slice(copied.value.unwrap_or_default());
        let offer = Offer {
            relation: copied.relation.to_u32(),
            slot: copied.slot,
            hash: copied.hash,
            bytes: bytes.into_boxed_slice(),
            key_length: copied.key.len(),
            negative: copied.value.is_none(),
            kind: copied.kind,
            deadline: copied.deadline,
            marked: None,
        };
        memory::push(&mut self.list, offer);
        self.bytes += size;
    }

    /// Withdraws the offer of a key, because the key changes again.
    pub(super) fn withdraw(&mut self, relation: u32, key: &[u8]) {
        if !self.list.is_empty() {
            self.list
                .retain(|offer| offer.relation != relation || offer.key() != key);
            self.bytes = self.list.iter().map(|offer| offer.bytes.len()).sum();
        }
    }

    pub(super) fn withdraw_all(&mut self) {
        *self = Offers::default();
    }

    /// Adds the offers of changes that are about to be marked.
    pub(super) fn join(&mut self, later: Offers) {
        if self.list.is_empty() {
            *self = later;
            return;
        }
        for offer in later.list {
            memory::push(&mut self.list, offer);
        }
        self.bytes += later.bytes;
    }

    /// Marks a key under its partition's lock. The copy of an offered key is only hidden, because publishing the offer
    /// reuses its memory. If nothing is published, the next fill overwrites the copy, or it is evicted.
    pub(super) fn mark(&mut self, tier: &Tier, partition: &mut PartitionMut, key: &HotKey) {
        let offered = match self.list.is_empty() {
            true => None,
            false => self.list.iter_mut().find(|offer| offer.hash == key.hash),
        };
        let Some(offer) = offered.filter(|offer| offer.key() == key.bytes) else {
            partition.mark(key);
            return;
        };
        let version = tier.slot(key.cache).version.load(SeqCst);
        let had = partition.mark_to_renew(key, version);
        offer.marked = (had && offer.slot == key.cache).then_some(Marked(version));
    }

    /// Returns the offer with this hash, if this transaction's mark has hidden a copy.
    pub(super) fn find(&self, hash: u64) -> Option<&Offer> {
        let is_it = |offer: &&Offer| offer.hash == hash && offer.marked.is_some();
        self.list.iter().find(is_it)
    }
}

/// The outcome of an attempt to publish.
pub(super) enum Published {
    /// The value is stored, or must not be stored because something has changed since the mark.
    Done,
    /// The value needs this many pages, which the caller reclaims from the partition `victim`.
    NeedPages { pages: u32, victim: u32 },
}

impl Offer {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_length]
    }

    /// Stores the offer if nothing has changed since this transaction's mark, which still stands. Runs under the
    /// partition's lock. Allocates nothing and raises no error.
    pub(super) fn publish(
        &self,
        tier: &Tier,
        partition: &mut PartitionMut,
        now: Timestamp,
        grant: &mut Grant,
    ) -> Published {
        let Some(marked) = self.marked.filter(|marked| self.stands(tier, marked)) else {
            return Published::Done;
        };
        let key = HotKey {
            hash: self.hash,
            cache: self.slot,
            bytes: self.key(),
        };
        let record = NewEntry {
            version: marked.0,
            deadline: self.deadline,
            kind: self.kind,
            negative: self.negative,
            value: &self.bytes[self.key_length..],
        };
        match partition.set(&key, &record, now, grant) {
            SetOutcome::NeedPages { pages, victim } => Published::NeedPages { pages, victim },
            SetOutcome::Stored { .. } | SetOutcome::TooLarge => Published::Done,
        }
    }

    /// Returns whether no other transaction has marked the key or its cache since this transaction's mark.
    fn stands(&self, tier: &Tier, marked: &Marked) -> bool {
        let slot = tier.slot(self.slot);
        let cache = CacheId::of(Oid::from_u32(self.relation));
        let number = tier.region().partition_of(self.hash);
        let marks = tier.marks().of(number);
        (marks.is_alone(self.hash) || fault::on(Fault::PublishMarkNotAlone))
            && slot.version.load(SeqCst) == marked.0
            && tier.cache_of(self.slot).is(cache, SeqCst)
            && slot.pending_writers.load(SeqCst) == 0
            && slot.sees_every_change()
    }
}
