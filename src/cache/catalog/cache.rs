//! The definition of one cache as this session has loaded it: storage, settings and column types, and the checks and
//! conversions of its keys and values.
//!
//! A definition may be used only while `is_present` returns true. Once it returns false, the catalogs may have
//! changed, and `registry` loads the cache again.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::model::deadline::{self, Deadline};
use crate::cache::model::dialect::Dialect;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::model::settings::Settings;
use crate::cache::model::statement::{Form, Statement};
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::catalog::columns::Columns;
use crate::pg::catalog::invalidation::Watch;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::spi::plan::Plan;
use crate::pg::table::target::Target;
use crate::pg::value::convert;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::key_type::KeyType;
use crate::pg::value::stored::Stored;

/// The storage of a cache's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// A table that a crash empties.
    Unlogged,
    /// A table that survives a crash.
    Logged,
    /// Only the hot tier.
    Memory,
}

/// A cache's definition, as this session has loaded it.
pub struct Cache {
    pub relation: Oid,
    pub id: CacheId,
    pub settings: Settings,
    pub value_type: ValueType,
    pub storage: Storage,
    /// Whether row-level security is enabled. Policies may hide rows, so copies are not used.
    pub row_security: bool,
    /// Whether an update of a row runs no user-defined trigger, rule or policy. For a partitioned table the flag says
    /// nothing about the partitions.
    pub updates_alone: bool,
    /// Whether rows may be copied to the hot tier: the triggers see every change of a row, so that copies stay
    /// coherent, and the table is neither temporary nor partitioned.
    pub may_be_copied: bool,
    /// Whether the table is temporary, which any role may turn into a cache by hand. Such a cache gets nothing that all
    /// sessions share: no slot, no lease, no record.
    pub temporary: bool,
    /// The columns of keys, values and deadlines; None for a memory cache.
    pub columns: Option<Columns>,
    /// The type to which a key is converted before it is hashed.
    pub key_type: KeyType,
    /// The table and the index of its key; `access_path` decides when to access them directly.
    pub target: Option<Target>,
    /// Whether the table is partitioned. The cache then has no copies in the tier, because attaching or detaching a
    /// partition adds or removes rows without firing a trigger.
    pub partitioned: bool,
    /// The table and its indexes, whose locks a read releases. The list is empty if a statement that reads the table
    /// may run user-defined code.
    pub own_relations: Vec<Oid>,
    pub(super) qualified: std::ffi::CString,
    pub(super) kept: Kept,
    pub(super) watch: Watch,
}

/// Properties of the cache that the session computes at their first use and keeps.
#[derive(Default)]
pub(super) struct Kept {
    /// The slot at the last check. `slots` explains why it is checked at each use.
    pub(super) slot: Cell<Option<u32>>,
    pub(super) dialect: OnceCell<Dialect>,
    pub(super) plans: RefCell<HashMap<(Statement, Form), Rc<Plan>>>,
}

impl Cache {
    /// Returns whether this definition agrees with the catalogs, as far as the session has processed invalidations.
    /// With row-level security it also requires that no role has changed since the definition was loaded, because plans
    /// contain the policies.
    pub(super) fn is_present(&self) -> bool {
        !(self.watch.is_stale() || self.row_security && self.watch.has_other_roles())
    }

    /// Returns whether the relation may have changed since this definition was loaded.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.watch.is_stale()
    }

    /// Returns whether a change of the cache's rows runs only code of pgcache.
    pub fn changes_alone(&self) -> bool {
        let plain = self.target.as_ref().is_some_and(|target| target.writable);
        plain || self.storage == Storage::Memory
    }

    /// Returns whether a read or a change of the cache's rows may run user-defined code.
    pub fn runs_user_code(&self) -> bool {
        self.row_security || !self.changes_alone()
    }

    /// Returns whether the cache is a user's table that `cache_attach` made a cache.
    pub fn is_attached(&self) -> bool {
        self.columns
            .as_ref()
            .is_some_and(|columns| columns.attached)
    }

    /// Returns whether a negative entry can be stored.
    pub fn takes_null(&self) -> bool {
        let columns = self.columns.as_ref();
        columns.is_none_or(|columns| columns.value_nullable)
    }

    /// Returns the key in its canonical form, which is the key column's output. This form is hashed, noted and
    /// compared. Raises 22P02 for a text that is not a value of the column.
    #[inline]
    pub fn key(&self, key: Key) -> Key {
        match self.key_type.is_text() {
            true => key,
            false => Key::stored(self.key_type.canonical(key.text())),
        }
    }

    /// Returns a key of this cache with its hash.
    #[inline]
    pub fn hashed(&self, key: Key) -> HashedKey {
        HashedKey::of(self.id, key)
    }

    /// Converts the key that the caller wrote into its canonical form, and hashes that form.
    #[inline]
    pub fn rehashed(&self, key: HashedKey) -> HashedKey {
        match self.key_type.is_text() {
            true => key,
            false => self.hashed(self.key(key.key)),
        }
    }

    /// Raises 22001 for a key that is too long for the table's column.
    #[inline]
    pub fn check_room(&self, key: Key) -> Result<(), Error> {
        match self.key_type.has_room_for(key.text()) {
            true => Ok(()),
            false => Err(Error::KeyBeyondColumn),
        }
    }

    /// Raises 0A000 for a prefix if the keys are not text.
    pub fn check_prefix(&self, prefix: Text) -> Result<(), Error> {
        match self.key_type.is_text() || prefix.bytes().is_empty() {
            true => Ok(()),
            false => Err(Error::NoPrefixes),
        }
    }

    /// Raises 0A000 if the values or deadlines of the table are generated.
    pub fn check_writable(&self) -> Result<(), Error> {
        match self
            .columns
            .as_ref()
            .is_some_and(|columns| columns.generated)
        {
            true => Err(Error::GeneratedColumns),
            false => Ok(()),
        }
    }

    /// Builds an entry that is written now, with the value in the cache's own type.
    pub fn entry(&self, value: Option<Stored>, ttl: Option<Interval>) -> Result<Entry, Error> {
        Ok(Entry {
            deadline: self.deadline(ttl)?,
            value: value.map(|value| convert::given(value, self.value_type)),
        })
    }

    /// Returns the deadline of an entry that is written now, with the cache's jitter.
    pub fn deadline(&self, ttl: Option<Interval>) -> Result<Deadline, Error> {
        deadline::with_jitter(ttl, self.settings.ttl, self.settings.ttl_jitter)
    }

    /// Returns `schema.name`, quoted, for a definition statement.
    pub fn qualified_name(&self) -> &std::ffi::CStr {
        &self.qualified
    }
}
