//! Stripes: an epoch and a count of pending writers for a group of keys, present whether or not a
//! key is.
//!
//! What it is not: the coherence protocol. That is the caller's; here are only its counters.
//! The rule it guards: a stripe changes under its partition's exclusive lock only, together with
//! the removal of the entry, so a look-up that misses and reads the token under one lock sees both
//! or neither.

use crate::entry::Key;
use crate::layout::STRIPE_BYTES;
use crate::ledger::RemovalCause;
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

/// The token of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stripe {
    /// Rises with each mark, unmark and renewal, and never falls.
    pub epoch: u64,
    /// Writers that have marked and not yet unmarked.
    pub pending_writers: u32,
}

impl PartitionRef<'_> {
    fn stripe_at(&self, hash: u64) -> usize {
        // Bits below the tag's and above the first bucket's low ones; stripes are a power of two.
        let index = (hash >> 12) as u32 & (self.region().layout.stripes - 1);
        self.region().stripes_at(self.id()) + index as usize * STRIPE_BYTES
    }

    /// The token of the stripe that a key of this hash belongs to.
    pub fn stripe(&self, hash: u64) -> Stripe {
        let at = self.stripe_at(hash);
        Stripe {
            epoch: self.region().load(at),
            pending_writers: self.region().load(at + 8) as u32,
        }
    }
}

impl PartitionMut<'_> {
    /// Raises the epoch of a hash's stripe, and changes its count of writers. Gives the new token.
    fn raise_epoch(&mut self, hash: u64, count: impl FnOnce(u32) -> u32) -> Stripe {
        let former = self.stripe(hash);
        let stripe = Stripe {
            epoch: former.epoch + 1,
            pending_writers: count(former.pending_writers),
        };
        let at = self.stripe_at(hash);
        self.region().store(at, stripe.epoch);
        self.region()
            .store(at + 8, u64::from(stripe.pending_writers));
        stripe
    }

    /// A writer is about to commit: the entry goes, nobody may fill until `unmark`. Gives the new
    /// token.
    pub fn mark(&mut self, key: &Key) -> Stripe {
        let stripe = self.raise_epoch(key.hash, |pending| pending.saturating_add(1));
        self.remove(key, RemovalCause::Invalidated);
        stripe
    }

    /// An entry of this hash was removed, or was to be and was not there: tokens taken before no
    /// longer hold.
    pub fn renew(&mut self, hash: u64) {
        self.raise_epoch(hash, |pending| pending);
    }

    /// The writer is done. Gives the new token; a `pending_writers` of 0 stays 0.
    pub fn unmark(&mut self, hash: u64) -> Stripe {
        self.raise_epoch(hash, |pending| pending.saturating_sub(1))
    }
}

impl Region {
    /// Marks not yet taken back, over all stripes; read without locks, for tests and monitoring.
    pub fn pending(&self) -> u64 {
        let stripes = self.layout.partitions as usize * self.layout.stripes as usize;
        let pending_writers =
            |index: usize| self.load(self.layout.stripes_at + index * STRIPE_BYTES + 8);
        (0..stripes).map(pending_writers).sum()
    }
}
