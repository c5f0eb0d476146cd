//! Stripes: an epoch for each group of keys, which exists even if no key of the group has an entry. The caller's
//! coherence protocol uses it as a token.
//!
//! A stripe changes only under its partition's exclusive lock, together with the removal of the entry. So a lookup that
//! misses and reads the epoch under the same lock sees both changes or neither.

use crate::entry::Key;
use crate::entry_events::RemovalCause;
use crate::layout::STRIPE_BYTES;
use crate::partition::{PartitionMut, PartitionRef};

/// A version that no cache's content ever has.
const HIDDEN: u64 = 0;

impl PartitionRef<'_> {
    fn stripe_at(&self, hash: u64) -> usize {
        // Uses bits below the tag's bits and above the low bits of the first bucket; the number of stripes is a power
        // of two.
        let index = (hash >> 12) as u32 & (self.region().layout.stripes - 1);
        self.region().stripes_at(self.id()) + index as usize * STRIPE_BYTES
    }

    /// Returns the epoch of the stripe for this hash. It rises with each mark and renewal, and never falls.
    pub fn epoch(&self, hash: u64) -> u64 {
        self.region().load(self.stripe_at(hash))
    }
}

impl PartitionMut<'_> {
    /// Raises the epoch of a hash's stripe, so that epochs read before are no longer valid. Returns the new epoch.
    pub fn renew(&mut self, hash: u64) -> u64 {
        let epoch = self.epoch(hash) + 1;
        self.region().store(self.stripe_at(hash), epoch);
        epoch
    }

    /// Marks a key for a writer that is about to commit: raises the epoch and removes the entry. Returns the new
    /// epoch.
    pub fn mark(&mut self, key: &Key) -> u64 {
        let epoch = self.renew(key.hash);
        self.remove(key, RemovalCause::Invalidated);
        epoch
    }

    /// Marks a key for a writer that may store the entry again. An entry of this version keeps its memory, with the
    /// version 0, which no caller uses for content. Returns whether such an entry existed.
    pub fn mark_to_renew(&mut self, key: &Key, version: u64) -> bool {
        let current = self.find(key);
        match current.filter(|(_, entry)| entry.header().version == version) {
            Some((_, entry)) => {
                self.renew(key.hash);
                entry.set_version(HIDDEN);
                true
            }
            None => {
                self.mark(key);
                false
            }
        }
    }
}
