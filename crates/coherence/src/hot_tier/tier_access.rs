//! The steps that read or change shared memory: lookup, fill, mark, unmark and publish.
//!
//! The access rules are those of the server:
//! 1. entries and stripes change only under the lock of their partition;
//! 2. no partition lock protects a slot's words: other backends may change them between two steps, even while this
//!    backend holds a partition lock;
//! 3. slots are created, freed and found under the slot table's lock.
//!
//! So code that reads slot words under a partition lock takes two steps in the model, one for each `WordGroup`.
//!
//! The rule numbers in the comments below are those of the protocol, in the table of `hot_tier`.

use super::clause::Clause;
use super::model::Model;
use super::postgres::xid_of;
use super::state::{
    ABSENT, Entry, MarkProgress, MarkedOn, NO_GENERATION, Slot, SlotSeen, State, Token, Violation,
};

/// The two groups of slot words, which code under a partition lock reads one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WordGroup {
    Pends,
    Epochs,
}

impl State {
    fn now(&self, key: usize) -> Token {
        let slot = self.shared.slot.unwrap_or_default();
        Token {
            ver: self.shared.stripe.ver,
            marks: self.shared.stripe.marks[key],
            others: self.others_on_stripe(key),
            generation: slot.generation,
            epoch: slot.epoch,
            cache_pend: slot.pending_writers,
            suspended: slot.suspended,
            proven: slot.proven,
        }
    }

    /// Returns the number of marks on the stripe's other keys.
    fn others_on_stripe(&self, key: usize) -> i8 {
        let stripe = self.shared.stripe;
        stripe.others + stripe.marks.iter().sum::<i8>() - stripe.marks[key]
    }

    pub fn read_words(&self, token: &mut Token, key: usize, words: WordGroup) {
        let now = self.now(key);
        match words {
            WordGroup::Pends => {
                token.cache_pend = now.cache_pend;
                token.suspended = now.suspended;
                token.proven = now.proven;
            }
            WordGroup::Epochs => {
                token.generation = now.generation;
                token.epoch = now.epoch;
            }
        }
    }

    pub fn read_stripe(&self, token: &mut Token, key: usize) {
        let now = self.now(key);
        (token.ver, token.marks, token.others) = (now.ver, now.marks, now.others);
    }

    /// Returns the entry of a key if the slot words in `token` make it valid.
    pub fn valid_entry(&self, m: &Model, key: usize, token: &Token) -> Option<Entry> {
        let entry = self.shared.entries[key]?;
        let valid = token.generation != NO_GENERATION
            && (!m.keeps(Clause::LookupGeneration) || entry.generation == token.generation)
            && (!m.keeps(Clause::LookupEpoch) || entry.epoch == token.epoch)
            && (!m.keeps(Clause::LookupCachePend) || token.cache_pend == 0)
            && (!m.keeps(Clause::LookupSuspended) || !token.suspended);
        valid.then_some(entry)
    }

    /// Returns the entry that a lookup would find if it read all words at this moment.
    pub fn valid_now(&self, m: &Model, key: usize) -> Option<Entry> {
        self.valid_entry(m, key, &self.now(key))
    }

    /// Returns whether these slot words still permit a fill (protocol rule 4).
    pub fn fill_allowed(&self, m: &Model, token: &Token, words: WordGroup) -> bool {
        let now = self.now(0);
        let keeps = |clause| m.keeps(clause);
        match words {
            WordGroup::Pends => {
                (!keeps(Clause::FillCachePend) || (token.cache_pend, now.cache_pend) == (0, 0))
                    && (!keeps(Clause::FillProven) || token.proven)
                    && (!keeps(Clause::FillSuspended) || !(token.suspended || now.suspended))
            }
            WordGroup::Epochs => {
                token.generation != NO_GENERATION
                    && now.generation != NO_GENERATION
                    && (!keeps(Clause::FillGeneration) || now.generation == token.generation)
                    && (!keeps(Clause::FillEpoch) || now.epoch == token.epoch)
            }
        }
    }

    /// Returns whether the stripe is unchanged since the token and the key has no mark (protocol rule 4). Also checks
    /// promise (g) here, because other caches share the stripe but not the slot.
    pub fn fill_stripe_allowed(&mut self, m: &Model, key: usize, token: &Token) -> bool {
        let now = self.now(key);
        let own = now.ver == token.ver && (token.marks, now.marks) == (0, 0);
        let others = (token.others, now.others) == (0, 0) || m.keeps(Clause::MarksByKey);
        if own && !others {
            self.break_promise(Violation::PaysForAnother);
        }
        (!m.keeps(Clause::FillVer) || now.ver == token.ver)
            && (!m.keeps(Clause::FillMark) || (token.marks, now.marks) == (0, 0))
            && others
    }

    /// Sets `proven` in the slot if no writer holds the cache's lock. A reader calls this after it has created the slot
    /// or found an unverified slot.
    pub fn prove(&mut self, m: &Model) {
        let locked = self.shared.locked;
        let others = match m.keeps(Clause::LockByCache) {
            true => 0,
            false => locked.others,
        };
        if (locked.ours, others > 0) == (0, true) {
            self.break_promise(Violation::PaysForAnother);
        }
        if let Some(slot) = self.shared.slot.as_mut() {
            slot.proven = locked.ours + others == 0;
        }
    }

    /// Stores an entry with the token's generation and epoch. Takes the present words instead if the clause
    /// `StampFromToken`, or the clause in `checks` for that word, is left out.
    pub fn install(
        &mut self,
        m: &Model,
        key: usize,
        value: u8,
        xid: u8,
        token: &Token,
        checks: [Clause; 2],
    ) {
        let now = self.now(key);
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

    /// Records, before a key's mark, whether the cache has a slot (protocol rule 2).
    pub fn look_for_slot(&mut self, actor: usize, key: usize) {
        self.backends[actor].keys[key].slot = match self.shared.slot {
            Some(_) => SlotSeen::Some,
            None => SlotSeen::None,
        };
    }

    /// Marks the whole cache instead of a key, because the stripe has no room for another mark (protocol rule 2).
    /// Raises `pending_writers` before the entry is removed.
    pub fn pend_for_key(&mut self, m: &Model, actor: usize, key: usize) {
        let stripe = &mut self.shared.stripe;
        stripe.met[key] |= stripe.marks[key] > 0 && m.keeps(Clause::NoPlaceMeetsMarks);
        if let Some(slot) = self.shared.slot.as_mut() {
            slot.pending_writers += 1;
        }
        self.backends[actor].keys[key].no_place = true;
    }

    /// Marks a key in one step under the partition lock (protocol rule 2).
    pub fn mark_key(&mut self, m: &Model, actor: usize, key: usize) {
        let knows_slot = self.backends[actor].keys[key].slot != SlotSeen::None;
        self.backends[actor].keys[key].marked = true;
        if m.keeps(Clause::MarkBeforeCommit) {
            if m.keeps(Clause::MarkRemovesEntry) && knows_slot {
                self.shared.entries[key] = None;
            }
            if !self.backends[actor].keys[key].no_place {
                let stripe = &mut self.shared.stripe;
                stripe.met[key] |= stripe.marks[key] > 0;
                stripe.marks[key] += i8::from(m.keeps(Clause::MarkRaisesPend));
            }
            self.shared.stripe.ver += u8::from(m.keeps(Clause::MarkBumpsVer));
        }
        self.backends[actor].keys[key].token = self.now(key);
    }

    /// Removes a copy of the old row that a reader stored after the mark, in a slot that the writer did not know
    /// (protocol rule 2).
    pub fn remove_late(&mut self, actor: usize, key: usize) {
        if self.shared.slot.is_some() {
            self.shared.entries[key] = None;
        }
        self.backends[actor].keys[key].slot = SlotSeen::Some;
    }

    /// Returns whether these slot words permit a publish (protocol rule 3): the cache has no mark, is not suspended and
    /// was verified, and generation and epoch equal the token's.
    pub fn publish_allowed(&self, m: &Model, token: &Token, words: WordGroup) -> bool {
        let now = self.now(0);
        match words {
            WordGroup::Pends => {
                (!m.keeps(Clause::PublishCachePend) || now.cache_pend == 0)
                    && (!m.keeps(Clause::PublishSuspended) || !(token.suspended || now.suspended))
                    && (!m.keeps(Clause::PublishProven) || token.proven)
            }
            WordGroup::Epochs => {
                let same = token.generation != NO_GENERATION && now.generation == token.generation;
                now.generation != NO_GENERATION
                    && (!m.keeps(Clause::PublishGeneration) || same)
                    && (!m.keeps(Clause::PublishEpoch) || now.epoch == token.epoch)
            }
        }
    }

    /// Returns whether no other mark on the key has overlapped with this actor's mark (protocol rule 3). Also checks
    /// promise (g).
    pub fn is_untouched(&mut self, m: &Model, actor: usize, key: usize) -> bool {
        let (node, stripe) = (self.backends[actor].keys[key], self.shared.stripe);
        let alone = !node.no_place && !stripe.met[key];
        let by_key = m.keeps(Clause::PublishByKey) || stripe.ver == node.token.ver;
        if alone && !by_key {
            self.break_promise(Violation::PaysForAnother);
        }
        by_key && (alone || !m.keeps(Clause::PublishMarkAlone))
    }

    /// Removes a key's mark (protocol rule 3), and publishes the value if all checks passed.
    pub fn unmark_key(&mut self, m: &Model, actor: usize, key: usize, publish: bool) {
        let node = self.backends[actor].keys[key];
        if !m.keeps(Clause::MarkBeforeCommit) {
            self.shared.entries[key] = None;
            self.shared.stripe.ver += 1;
        } else if node.marked || node.no_place || !m.keeps(Clause::AbortOnlyMarked) {
            if publish {
                let checks = [Clause::PublishGeneration, Clause::PublishEpoch];
                self.install(m, key, node.value, xid_of(actor), &node.token, checks);
            }
            self.shared.stripe.ver += u8::from(m.keeps(Clause::UnmarkBumpsVer));
            self.lower_key(m, key, node.no_place);
        }
        if m.keeps(Clause::UnmarkIdempotent) {
            self.backends[actor].keys[key].marked = false;
        }
    }

    /// Removes a key's mark. A writer whose mark found no room may have overwritten the row of a marked writer. So it
    /// flags that mark as overlapping before it lowers `pending_writers`.
    fn lower_key(&mut self, m: &Model, key: usize, no_place: bool) {
        let stripe = &mut self.shared.stripe;
        stripe.met[key] |= no_place && stripe.marks[key] > 0 && m.keeps(Clause::NoPlaceMeetsMarks);
        match (no_place, self.shared.slot.as_mut()) {
            (true, Some(slot)) => slot.pending_writers -= 1,
            (true, None) => {}
            (false, _) => stripe.marks[key] -= i8::from(m.keeps(Clause::MarkRaisesPend)),
        }
        stripe.met[key] &= stripe.marks[key] > 0;
    }

    /// Returns whether the writer of this key has a value to publish.
    pub fn wants_publish(&self, m: &Model, actor: usize, key: usize) -> bool {
        let backend = &self.backends[actor];
        let node = &backend.keys[key];
        node.marked
            && node.value != ABSENT
            && (node.exact || !m.keeps(Clause::PublishExactValue))
            && (!backend.aborting || !m.keeps(Clause::AbortPublishesNothing))
    }

    /// Runs one step of marking a cache (protocol rule 2): raises the slot's first word or, without a slot, takes the
    /// cache's lock and then looks up the slot again.
    pub fn mark_cache_first(&mut self, m: &Model, actor: usize) {
        let node = self.backends[actor].cache;
        let suspend = node.suspend && m.keeps(Clause::DisableSuspends);
        let again = node.mark == MarkProgress::LockTaken;
        let looks = match node.mark {
            MarkProgress::NoSlotFound => false,
            MarkProgress::LockTaken => m.keeps(Clause::CacheChecksForSlotAgain),
            _ => true,
        };
        let (mark, marked_on) = match &mut self.shared.slot {
            Some(slot) if looks => {
                slot.suspended |= suspend;
                raise(
                    m,
                    &mut slot.pending_writers,
                    &mut slot.epoch,
                    m.keeps(Clause::CacheMarkPendFirst),
                );
                (MarkProgress::PendRaised, MarkedOn::Slot(slot.generation))
            }
            _ if again || !m.keeps(Clause::NoSlotTakesLock) => {
                (MarkProgress::Full, MarkedOn::Nothing)
            }
            _ if node.mark == MarkProgress::None => (MarkProgress::NoSlotFound, MarkedOn::Nothing),
            _ => {
                self.shared.locked.ours += 1;
                self.backends[actor].cache.locked = true;
                (MarkProgress::LockTaken, MarkedOn::Nothing)
            }
        };
        let node = &mut self.backends[actor].cache;
        (node.mark, node.marked_on) = (mark, marked_on);
    }

    /// Raises the slot's second word (protocol rule 2), and so completes the mark of the cache.
    pub fn mark_cache_second(&mut self, m: &Model, actor: usize) {
        let pend_now = !m.keeps(Clause::CacheMarkPendFirst);
        if let Some((epoch, pending_writers)) = self.marked_words(m, actor) {
            raise(m, pending_writers, epoch, pend_now);
        }
        self.backends[actor].cache.mark = MarkProgress::Full;
    }

    /// Runs one of the two steps of unmarking a cache (protocol rule 3). Each step changes one word; the second also
    /// releases the cache's lock, if the writer holds it.
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
            if std::mem::take(&mut self.backends[actor].cache.locked) {
                self.shared.locked.ours -= 1;
            }
            MarkProgress::None
        };
    }

    /// Returns the slot's `epoch` and `pending_writers` if the slot still has the generation that was marked.
    fn marked_words(&mut self, m: &Model, actor: usize) -> Option<(&mut u8, &mut i8)> {
        match self.backends[actor].cache.marked_on {
            MarkedOn::Nothing => None,
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
