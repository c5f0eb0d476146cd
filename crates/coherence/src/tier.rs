//! What happens in shared memory: lookup, fill, mark, unmark and publish.
//!
//! Access rules, as in the server:
//! 1. entries and stripes change only under the lock of their partition;
//! 2. a slot's words and the global pair belong to no partition: each is read and written by itself, in
//!    between other backends' steps, even while a partition lock is held;
//! 3. slots are made, freed and found under the slot table's lock.
//!
//! So a section that reads slot words takes two steps here, one `WordGroup` after the other, with the partition locked.

use crate::clause::Clause;
use crate::model::Model;
use crate::state::{ABSENT, Entry, MarkProgress, MarkedOn, NO_GENERATION, Slot, State, Token};
use crate::table::xid_of;

/// The two groups of words that a section reads one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WordGroup {
    Pends,
    Epochs,
}

impl State {
    fn now(&self) -> Token {
        let slot = self.shared.slot.unwrap_or_default();
        Token {
            ver: self.shared.stripe.ver,
            stripe_pend: self.shared.stripe.pending_writers,
            generation: slot.generation,
            epoch: slot.epoch,
            cache_pend: slot.pending_writers,
            suspended: slot.suspended,
            global: self.shared.global,
        }
    }

    pub fn read_words(&self, token: &mut Token, words: WordGroup) {
        let now = self.now();
        match words {
            WordGroup::Pends => {
                token.cache_pend = now.cache_pend;
                token.suspended = now.suspended;
                token.global.pending_writers = now.global.pending_writers;
            }
            WordGroup::Epochs => {
                token.generation = now.generation;
                token.epoch = now.epoch;
                token.global.epoch = now.global.epoch;
            }
        }
    }

    pub fn read_stripe(&self, token: &mut Token) {
        token.ver = self.shared.stripe.ver;
        token.stripe_pend = self.shared.stripe.pending_writers;
    }

    /// An entry that is valid by the words in `token`.
    pub fn valid_entry(&self, m: &Model, key: usize, token: &Token) -> Option<Entry> {
        let entry = self.shared.entries[key]?;
        let valid = token.generation != NO_GENERATION
            && (!m.keeps(Clause::LookupGeneration) || entry.generation == token.generation)
            && (!m.keeps(Clause::LookupEpoch) || entry.epoch == token.epoch)
            && (!m.keeps(Clause::LookupCachePend) || token.cache_pend == 0)
            && (!m.keeps(Clause::LookupSuspended) || !token.suspended);
        valid.then_some(entry)
    }

    /// An entry that a lookup would find if it read all words at this moment.
    pub fn valid_now(&self, m: &Model, key: usize) -> Option<Entry> {
        self.valid_entry(m, key, &self.now())
    }

    /// Rule 4: are these words as the token has them, and at rest?
    pub fn fill_allowed(&self, m: &Model, token: &Token, words: WordGroup) -> bool {
        let now = self.now();
        let keeps = |clause| m.keeps(clause);
        match words {
            WordGroup::Pends => {
                (!keeps(Clause::FillCachePend) || (token.cache_pend, now.cache_pend) == (0, 0))
                    && (!keeps(Clause::FillGlobalPend)
                        || (token.global.pending_writers, now.global.pending_writers) == (0, 0))
                    && (!keeps(Clause::FillSuspended) || !(token.suspended || now.suspended))
            }
            WordGroup::Epochs => {
                token.generation != NO_GENERATION
                    && now.generation != NO_GENERATION
                    && (!keeps(Clause::FillGeneration) || now.generation == token.generation)
                    && (!keeps(Clause::FillEpoch) || now.epoch == token.epoch)
                    && (!keeps(Clause::FillGlobalEpoch) || now.global.epoch == token.global.epoch)
            }
        }
    }

    pub fn fill_stripe_allowed(&self, m: &Model, token: &Token) -> bool {
        let stripe = self.shared.stripe;
        (!m.keeps(Clause::FillVer) || stripe.ver == token.ver)
            && (!m.keeps(Clause::FillStripePend)
                || (token.stripe_pend, stripe.pending_writers) == (0, 0))
    }

    /// Makes an entry. A clause that is left out makes it trust what it finds instead of its token.
    pub fn install(
        &mut self,
        m: &Model,
        key: usize,
        value: u8,
        xid: u8,
        token: &Token,
        checks: [Clause; 2],
    ) {
        let now = self.now();
        let pick = |clause, ours, found| {
            if m.keeps(Clause::StampFromToken) && m.keeps(clause) {
                ours
            } else {
                found
            }
        };
        let entry = Entry {
            value,
            xid,
            generation: pick(checks[0], token.generation, now.generation),
            epoch: pick(checks[1], token.epoch, now.epoch),
        };
        self.shared.entries[key] = Some(entry);
    }

    /// Rule 2, a key: one section under its partition's lock.
    pub fn mark_key(&mut self, m: &Model, actor: usize, key: usize) {
        self.backends[actor].keys[key].marked = true;
        if m.keeps(Clause::MarkBeforeCommit) {
            if m.keeps(Clause::MarkRemovesEntry) {
                self.shared.entries[key] = None;
            }
            self.shared.stripe.pending_writers += i8::from(m.keeps(Clause::MarkRaisesPend));
            self.shared.stripe.ver += u8::from(m.keeps(Clause::MarkBumpsVer));
        }
        self.backends[actor].keys[key].token = self.now();
    }

    /// Rule 3: are these words as they were when we marked?
    pub fn publish_allowed(&self, m: &Model, token: &Token, words: WordGroup) -> bool {
        let now = self.now();
        match words {
            WordGroup::Pends => {
                (!m.keeps(Clause::PublishCachePend) || now.cache_pend == 0)
                    && (!m.keeps(Clause::PublishSuspended) || !(token.suspended || now.suspended))
                    && (!m.keeps(Clause::PublishGlobalPend)
                        || (token.global.pending_writers, now.global.pending_writers) == (0, 0))
            }
            WordGroup::Epochs => {
                let same = token.generation != NO_GENERATION && now.generation == token.generation;
                now.generation != NO_GENERATION
                    && (!m.keeps(Clause::PublishGeneration) || same)
                    && (!m.keeps(Clause::PublishEpoch) || now.epoch == token.epoch)
            }
        }
    }

    /// Rule 3, a key: the end of the section; `publish` is the verdict on the slot's words.
    pub fn unmark_key(&mut self, m: &Model, actor: usize, key: usize, publish: bool) {
        let node = self.backends[actor].keys[key];
        let stripe = self.shared.stripe;
        let untouched = (!m.keeps(Clause::PublishPendIsOne) || stripe.pending_writers == 1)
            && (!m.keeps(Clause::PublishVer) || stripe.ver == node.token.ver);
        if !m.keeps(Clause::MarkBeforeCommit) {
            self.shared.entries[key] = None;
            self.shared.stripe.ver += 1;
        } else if node.marked || !m.keeps(Clause::AbortOnlyMarked) {
            if publish && untouched {
                let checks = [Clause::PublishGeneration, Clause::PublishEpoch];
                self.install(m, key, node.value, xid_of(actor), &node.token, checks);
            }
            self.shared.stripe.ver += u8::from(m.keeps(Clause::UnmarkBumpsVer));
            self.shared.stripe.pending_writers -= i8::from(m.keeps(Clause::MarkRaisesPend));
        }
        if m.keeps(Clause::UnmarkIdempotent) {
            self.backends[actor].keys[key].marked = false;
        }
    }

    /// Is there anything that the writer of this key could publish?
    pub fn wants_publish(&self, m: &Model, actor: usize, key: usize) -> bool {
        let backend = &self.backends[actor];
        let node = &backend.keys[key];
        node.marked
            && node.value != ABSENT
            && (node.exact || !m.keeps(Clause::PublishExactValue))
            && (!backend.aborting || !m.keeps(Clause::AbortPublishesNothing))
    }

    /// Rule 2, a cache: finds what to mark and raises its first word.
    pub fn mark_cache_first(&mut self, m: &Model, actor: usize) {
        let suspend = self.backends[actor].cache.suspend && m.keeps(Clause::DisableSuspends);
        let resolved_to_none = self.backends[actor].cache.mark == MarkProgress::ResolvedToNone;
        let (mark, marked_on) = match &mut self.shared.slot {
            Some(slot) if !resolved_to_none => {
                slot.suspended |= suspend;
                raise(
                    m,
                    &mut slot.pending_writers,
                    &mut slot.epoch,
                    m.keeps(Clause::CacheMarkPendFirst),
                );
                (MarkProgress::PendRaised, MarkedOn::Slot(slot.generation))
            }
            _ if !m.keeps(Clause::NoSlotMarksGlobal) => (MarkProgress::Full, MarkedOn::Nothing),
            _ if !m.keeps(Clause::ResolveAndMarkAtOnce) && !resolved_to_none => {
                (MarkProgress::ResolvedToNone, MarkedOn::Nothing)
            }
            _ => {
                let global = &mut self.shared.global;
                raise(
                    m,
                    &mut global.pending_writers,
                    &mut global.epoch,
                    m.keeps(Clause::CacheMarkPendFirst),
                );
                (MarkProgress::PendRaised, MarkedOn::Global)
            }
        };
        let node = &mut self.backends[actor].cache;
        (node.mark, node.marked_on) = (mark, marked_on);
    }

    /// Rule 2, a cache: the second word.
    pub fn mark_cache_second(&mut self, m: &Model, actor: usize) {
        let pend_now = !m.keeps(Clause::CacheMarkPendFirst);
        if let Some((epoch, pending_writers)) = self.marked_words(m, actor) {
            raise(m, pending_writers, epoch, pend_now);
        }
        self.backends[actor].cache.mark = MarkProgress::Full;
    }

    /// Rule 3, a cache: one word after the other, then, for DROP, the slot itself.
    pub fn unmark_cache(&mut self, m: &Model, actor: usize) {
        let first = self.backends[actor].cache.mark != MarkProgress::HalfUndone;
        let epoch_now = first == m.keeps(Clause::CacheUnmarkEpochFirst);
        if let Some((epoch, pending_writers)) = self.marked_words(m, actor) {
            if epoch_now {
                *epoch += u8::from(m.keeps(Clause::CacheUnmarkBumpsEpoch));
            } else {
                *pending_writers -= i8::from(m.keeps(Clause::CacheMarkRaisesPend));
            }
        }
        self.backends[actor].cache.mark = if first {
            MarkProgress::HalfUndone
        } else {
            MarkProgress::None
        };
    }

    /// The pair that we marked, if it still is what we marked.
    fn marked_words(&mut self, m: &Model, actor: usize) -> Option<(&mut u8, &mut i8)> {
        match self.backends[actor].cache.marked_on {
            MarkedOn::Nothing => None,
            MarkedOn::Global => Some((
                &mut self.shared.global.epoch,
                &mut self.shared.global.pending_writers,
            )),
            MarkedOn::Slot(generation) => {
                let slot = self.shared.slot.as_mut()?;
                let same =
                    slot.generation == generation || !m.keeps(Clause::UnmarkChecksGeneration);
                same.then_some((&mut slot.epoch, &mut slot.pending_writers))
            }
        }
    }

    pub fn make_slot(&mut self, always: bool) {
        self.shared.last_generation += 1;
        let generation = self.shared.last_generation;
        self.shared.slot = Some(Slot {
            generation,
            suspended: !always,
            ..Slot::default()
        });
    }
}

fn raise(m: &Model, pending_writers: &mut i8, epoch: &mut u8, pend_now: bool) {
    if pend_now {
        *pending_writers += i8::from(m.keeps(Clause::CacheMarkRaisesPend));
    } else {
        *epoch += u8::from(m.keeps(Clause::CacheMarkBumpsEpoch));
    }
}
