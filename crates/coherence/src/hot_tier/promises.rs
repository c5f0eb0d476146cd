//! Checks the promises (a) to (g) of `hot_tier`: at each read, in each state, and when all backends have ended.

use super::model::Model;
use super::postgres::xid_of;
use super::state::{KEYS, Phase, State, Version, Violation};

impl State {
    pub fn all_done(&self) -> bool {
        self.backends
            .iter()
            .all(|backend| backend.at == Phase::Done)
    }

    pub fn break_promise(&mut self, violation: Violation) {
        self.broken.get_or_insert(violation);
    }

    /// Checks promises (a) to (d) for the value of a cache_get.
    pub fn judge_get(&mut self, m: &Model, actor: usize, key: usize, value: u8) {
        let own = self.table.rows[key]
            .as_slice()
            .last()
            .filter(|last| last.xid == xid_of(actor));
        if let Some(own) = own {
            if own.value != value {
                self.break_promise(Violation::OwnWriteUnseen);
            }
        } else if m.repeatable(actor) {
            let row = self.read_row(actor, key, self.backends[actor].snapshot);
            if row.value != value {
                self.break_promise(Violation::DiffersFromSelect);
            }
            self.judge_shown(actor, key, value);
        } else if let Some(violation) = self.judge_read_committed(actor, key, value) {
            self.break_promise(violation);
        }
    }

    /// Checks promise (d), in a REPEATABLE READ transaction: a value that the transaction has seen once must appear
    /// again.
    pub fn judge_shown(&mut self, actor: usize, key: usize, value: u8) {
        let shown = self.backends[actor].shown[key].replace(value);
        if shown.is_some_and(|shown| shown != value) {
            self.break_promise(Violation::DiffersFromSelect);
        }
    }

    /// Checks promises (a) and (b), and returns the violation. pgcache promises more than Postgres: a get that begins
    /// after event e returns this commit's value or a newer one, even if the commit is not yet acknowledged. So a
    /// session that has seen any effect of a commit also sees its entries.
    fn judge_read_committed(&self, actor: usize, key: usize, value: u8) -> Option<Violation> {
        let oldest_allowed = self.backends[actor].oldest_allowed as usize;
        let chain = self.table.rows[key].as_slice();
        let matches = |version: &Version| version.value == value && self.is_committed(version.xid);
        if chain.iter().skip(oldest_allowed).any(matches) {
            return None;
        }
        if !chain.iter().any(matches) {
            return Some(Violation::NotCommitted);
        }
        let acknowledged = chain
            .get(oldest_allowed)
            .is_none_or(|version| self.acknowledged(version.xid));
        Some(if acknowledged {
            Violation::OlderThanAcknowledged
        } else {
            Violation::OlderThanVisible
        })
    }

    fn acknowledged(&self, xid: u8) -> bool {
        xid == 0 || self.backends[xid as usize - 1].at == Phase::Done
    }

    /// Checks promise (f) in each state, and promise (e) when all backends have ended.
    pub fn judge_state(&mut self, m: &Model) {
        if m.checks_each_state && !self.entries_current(m) {
            self.break_promise(Violation::EntryNotCurrent);
        }
        if self.all_done() {
            self.judge_end(m);
        }
    }

    fn judge_end(&mut self, m: &Model) {
        let slot = self.shared.slot.unwrap_or_default();
        let (stripe, locked) = (self.shared.stripe, self.shared.locked);
        let left = [
            stripe.others,
            locked.ours,
            locked.others,
            slot.pending_writers,
        ];
        if stripe.marks.iter().chain(&left).any(|count| *count != 0) {
            self.break_promise(Violation::MarkLeftBehind);
        }
        if self.shared.slot.is_some() && !self.table.exists {
            self.break_promise(Violation::SlotLeaked);
        }
        if !self.entries_current(m) {
            self.break_promise(Violation::StaleEntryLeft);
        }
    }

    fn entries_current(&self, m: &Model) -> bool {
        (0..KEYS).all(|key| {
            let entry = self.valid_now(m, key);
            entry.is_none_or(|entry| entry.value == self.current(key).1.value)
        })
    }
}
