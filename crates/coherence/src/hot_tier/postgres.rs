//! The parts of Postgres that the protocol relies on: rows, snapshots, row locks and relation locks.
//!
//! This file does not know the hot tier. It models neither lock queues nor the deadlock detector: a backend that must
//! wait takes no step, and may always roll back instead.

use super::state::{ABSENT, Backend, Ddl, KEYS, State, Version};

/// Relation locks, as bits, and their conflicts.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Lock {
    AccessShare = 1,
    RowExclusive = 2,
    ShareUpdateExclusive = 4,
    ShareRowExclusive = 8,
    AccessExclusive = 16,
}

impl Lock {
    fn conflicts(self) -> u8 {
        match self {
            Lock::AccessShare => 16,
            Lock::RowExclusive => 8 | 16,
            Lock::ShareUpdateExclusive => 4 | 8 | 16,
            Lock::ShareRowExclusive => 2 | 4 | 8 | 16,
            Lock::AccessExclusive => 1 | 2 | 4 | 8 | 16,
        }
    }
}

pub fn xid_of(actor: usize) -> u8 {
    actor as u8 + 1
}

impl Backend {
    /// Returns whether the backend holds a lock that allows changes of rows.
    pub fn locked_for_writing(&self) -> bool {
        self.locks & !(Lock::AccessShare as u8 | Lock::ShareUpdateExclusive as u8) != 0
    }

    pub fn lock(&mut self, lock: Lock) {
        if self.in_subxact && self.locks & lock as u8 == 0 {
            self.subxact_locks |= lock as u8;
        }
        self.locks |= lock as u8;
    }
}

impl State {
    pub fn grantable(&self, actor: usize, lock: Lock) -> bool {
        let mut others = self
            .backends
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != actor);
        others.all(|(_, backend)| backend.locks & lock.conflicts() == 0)
    }

    pub fn is_committed(&self, xid: u8) -> bool {
        self.table.committed & (1 << xid) != 0
    }

    /// Returns whether the relation exists as this backend's transaction sees it.
    pub fn exists_for(&self, actor: usize) -> bool {
        match self.backends[actor].ddl {
            Ddl::Create => true,
            Ddl::Drop => false,
            Ddl::None | Ddl::Trigger(_) => self.table.exists,
        }
    }

    /// Returns whether pgcache's trigger fires for this backend's plain SQL.
    pub fn trigger_fires(&self, actor: usize) -> bool {
        match self.backends[actor].ddl {
            Ddl::Trigger(always) => always,
            _ => self.table.always,
        }
    }

    /// Returns whether the row is unlocked: its last version is committed or was written by this backend.
    pub fn row_free(&self, actor: usize, key: usize) -> bool {
        let last = self.table.rows[key].as_slice().last();
        last.is_none_or(|last| last.xid == xid_of(actor) || self.is_committed(last.xid))
    }

    pub fn write_row(&mut self, actor: usize, key: usize, value: u8, wipe: bool) {
        let version = Version {
            xid: xid_of(actor),
            value,
            wipe,
            by_subxact: self.backends[actor].in_subxact,
        };
        match self.table.rows[key].last_mut() {
            Some(last)
                if last.xid == version.xid
                    && last.by_subxact == version.by_subxact
                    && !last.wipe =>
            {
                *last = version
            }
            _ => self.table.rows[key].push(version),
        }
    }

    pub fn wipe_rows(&mut self, actor: usize) {
        for key in 0..KEYS {
            self.write_row(actor, key, ABSENT, true);
        }
    }

    /// Returns the version of a row that a SELECT with this snapshot shows now.
    pub fn read_row(&self, actor: usize, key: usize, snapshot: u8) -> Version {
        let own = xid_of(actor);
        let mut shown = Version::default();
        for version in self.table.rows[key].as_slice() {
            let wiped = version.wipe && self.is_committed(version.xid);
            if wiped || version.xid == own || snapshot & (1 << version.xid) != 0 {
                shown = *version;
            }
        }
        shown
    }

    /// Returns the last committed version and its index in the chain.
    pub fn current(&self, key: usize) -> (usize, Version) {
        let versions = self.table.rows[key].as_slice().iter().enumerate();
        let mut committed = versions.filter(|(_, version)| self.is_committed(version.xid));
        committed
            .next_back()
            .map_or((0, Version::default()), |(place, version)| {
                (place, *version)
            })
    }

    /// Runs a commit's ProcArrayEndTransaction, which makes its rows visible (event e).
    pub fn commit_rows(&mut self, actor: usize) {
        self.table.committed |= 1 << xid_of(actor);
        match self.backends[actor].ddl {
            Ddl::None => {}
            Ddl::Drop => self.table.exists = false,
            Ddl::Create => self.table.exists = true,
            Ddl::Trigger(always) => self.table.always = always,
        }
    }

    /// Runs ProcArrayEndTransaction of an abort.
    pub fn abort_rows(&mut self, actor: usize) {
        for chain in &mut self.table.rows {
            chain.retain(|version| version.xid != xid_of(actor));
        }
    }

    pub fn abort_subxact_rows(&mut self, actor: usize) {
        for chain in &mut self.table.rows {
            chain.retain(|version| version.xid != xid_of(actor) || !version.by_subxact);
        }
    }
}
