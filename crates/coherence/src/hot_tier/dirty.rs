//! A transaction's notes of its changes: its dirty keys, and whether the whole cache is dirty (protocol rule 1).
//!
//! `postgres` holds the changes themselves, with the rows.

use super::clause::Clause;
use super::model::Model;
use super::state::{ABSENT, DirtyKey, KEYS, MarkProgress, SlotSeen, State};

impl State {
    /// Notes a change that an SQL function has made (protocol rule 1).
    pub fn note(&mut self, actor: usize, key: usize, value: u8, exact: bool) {
        let backend = &mut self.backends[actor];
        let node = &mut backend.keys[key];
        if backend.cache.overflowed && !node.dirty {
            return;
        }
        node.dirty = true;
        node.value = if backend.cache.overflowed {
            ABSENT
        } else {
            value
        };
        node.exact = exact;
        node.by_subxact |= backend.in_subxact;
    }

    /// Notes a change through the AFTER ROW trigger, if the trigger fires (protocol rule 1).
    pub fn note_by_trigger(&mut self, m: &Model, actor: usize, key: usize) {
        if self.trigger_fires(actor) && m.keeps(Clause::RowChangeNoted) {
            let node = self.backends[actor].keys[key];
            match node.value != ABSENT && !m.keeps(Clause::NoteDropsValue) {
                true => self.note(actor, key, node.value, node.exact),
                false => self.note(actor, key, ABSENT, false),
            }
        }
    }

    pub fn overflow(&mut self, m: &Model, actor: usize) {
        let backend = &mut self.backends[actor];
        backend.cache.dirty = true;
        backend.cache.overflowed = true;
        for node in &mut backend.keys {
            if !node.marked || !m.keeps(Clause::OverflowSparesMarked) {
                *node = DirtyKey::default();
            }
        }
    }

    pub fn abort_subtransaction(&mut self, m: &Model, actor: usize) {
        self.abort_subxact_rows(actor);
        let backend = &mut self.backends[actor];
        backend.in_subxact = false;
        backend.locks &= !backend.subxact_locks;
        backend.subxact_locks = 0;
        for node in backend.keys.iter_mut().filter(|node| node.by_subxact) {
            node.by_subxact = false;
            if !m.keeps(Clause::SubabortKeepsKeys) {
                *node = DirtyKey::default();
            } else if m.keeps(Clause::SubabortDropsValues) {
                node.value = ABSENT;
            }
        }
    }

    /// Returns a key that is dirty but not marked.
    pub fn unmarked_key(&self, actor: usize) -> Option<usize> {
        let keys = &self.backends[actor].keys;
        (0..KEYS).find(|key| keys[*key].dirty && !keys[*key].marked)
    }

    /// Returns a key that was marked without a slot, if the writer has not yet looked up the slot again.
    pub fn key_to_look_again(&self, m: &Model, actor: usize) -> Option<usize> {
        let keys = &self.backends[actor].keys;
        let looks = m.keeps(Clause::KeyChecksForSlotAgain);
        (0..KEYS).find(|key| looks && keys[*key].marked && keys[*key].slot == SlotSeen::None)
    }

    /// Returns whether the cache is dirty but not fully marked.
    pub fn cache_unmarked(&self, actor: usize) -> bool {
        let cache = &self.backends[actor].cache;
        cache.dirty && cache.mark != MarkProgress::Full
    }
}
