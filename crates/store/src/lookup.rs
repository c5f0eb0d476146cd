//! Look-ups under the shared lock.
//!
//! What it is not: it finds no slot (`index.rs`) and judges no version; that is the caller's
//! closure.
//! The rule it guards: a hit costs a counter, a look in place costs nothing.

use crate::entry::{EntryRef, Header, Key};
use crate::ledger::Counter;
use crate::partition::PartitionRef;

/// The answer of [`PartitionRef::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetOutcome {
    /// The value is in the first `value_len` bytes of the buffer.
    Hit(Header),
    /// Live, but the buffer is shorter than `value_len`; nothing was copied or counted.
    TooSmall(Header),
    /// There is no entry, its time has come, or `valid` said no.
    Miss,
}

impl<'r> PartitionRef<'r> {
    /// Copies a live value out. `now`: microseconds on the caller's clock; `i64::MIN` where `valid`
    /// judges the deadline, too. `valid` is the caller's rule about the version; an entry that
    /// fails it, or whose deadline is not after `now`, is a miss and stays where it is.
    #[inline]
    pub fn get(
        &self,
        key: &Key,
        now: i64,
        valid: impl FnOnce(&Header) -> bool,
        buffer: &mut [u8],
    ) -> GetOutcome {
        let found = self.find(key).filter(|(_, entry)| now < entry.deadline());
        let Some((slot, entry)) = found else {
            self.count(Counter::Misses);
            return GetOutcome::Miss;
        };
        let header = entry.header();
        if !valid(&header) {
            self.count(Counter::Misses);
            return GetOutcome::Miss;
        }
        if !entry.copy_value(buffer) {
            return GetOutcome::TooSmall(header);
        }
        self.count_hit(slot);
        self.count(Counter::Hits);
        GetOutcome::Hit(header)
    }

    /// The entry of a key whatever its deadline and version, for comparing in place. Counts
    /// nothing.
    #[inline]
    pub fn peek(&self, key: &Key) -> Option<EntryRef<'r>> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// How much the entry of a key is used, as eviction judges it: 0 for one that was not read
    /// since it came or was last passed over, at most 7. None: there is no entry. Counts nothing.
    pub fn use_rank(&self, key: &Key) -> Option<u32> {
        self.find(key)
            .map(|(number, _)| self.slot(number).use_rank())
    }
}
