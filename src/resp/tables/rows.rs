//! A table's entries: from keys and values of the protocol to those of the cache, and back.

use std::rc::Rc;

use super::present::{Held, copy_out, deadline_of};
use super::table::{Table, refused};
use crate::cache::catalog::registry::Cache;
use crate::cache::entries::{self, Entry, Look};
use crate::cache::memory::raw::{self, New};
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::cache::open::removal;
use crate::cache::table::change::{self, Seek};
use crate::cache::tier::hashed_key::HashedKey;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock;
use crate::pg::shmem::slot::Figure;
use crate::pg::table::new_row::{New as NewRow, RowAction};
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Text, ValueType};
use crate::pg::value::stored::Stored;
use crate::pg::{encoding, memory};
use crate::resp::commands::buffers::value;
use crate::resp::commands::call::Call;
use crate::resp::commands::refusal::{Done, Refusal};
use crate::resp::commands::store::{Change, Copied, Present, Store};

/// The entries of a table.
#[derive(Clone, Copy)]
pub struct Rows<'t>(pub &'t Table);

/// A command on a table, now.
pub fn call(table: &Table) -> Call<'_, Rows<'_>> {
    Call::on(&table.target, Rows::of(table), clock::now())
}

/// For who is told when what it has read ends.
fn note_deadline(entry: Option<&Entry>) {
    if let Some(deadline) = entry.and_then(|entry| entry.deadline) {
        raw::note_soonest(deadline);
    }
}

impl<'t> Rows<'t> {
    pub fn of(table: &'t Table) -> Rows<'t> {
        Rows(table)
    }

    /// A value that every cache of this type takes.
    pub fn smallest(&self) -> &'static [u8] {
        match self.0.target.cache.value_type {
            ValueType::Json => b"null",
            ValueType::Text | ValueType::Bytes => b"",
        }
    }

    /// The cache, open to be changed since [`Store::open`].
    pub fn changed<'a>(&self) -> Done<'a, &'t Rc<Cache>> {
        removal::settle();
        self.0.changed.get().ok_or(Refusal::Table)
    }

    /// The key, to store something under it.
    pub fn new_key<'a>(&self, key: &Option<HashedKey>) -> Done<'a, Key> {
        let key = key.as_ref().ok_or(Refusal::Key)?.key;
        self.0.target.cache.check_room(key).map_err(refused)?;
        Ok(key)
    }

    /// What is to be stored, in the cache's own type.
    pub fn stored<'a>(&self, value: &[u8]) -> Done<'a, Stored> {
        let cache = self.0.changed.get().unwrap_or(&self.0.target.cache);
        match cache.value_type {
            ValueType::Bytes => Ok(Stored::of(Bytes::new(value))),
            _ if !encoding::is_text(value) => Err(Refusal::NotText),
            ValueType::Text => Ok(Stored::of(Text::new(value))),
            ValueType::Json => convert::json(Text::new(value)).map_err(refused),
        }
    }

    pub fn row<'a>(&self, new: &New<'_>) -> Done<'a, NewRow> {
        Ok(NewRow {
            value: new.value.map(|value| self.stored(value)).transpose()?,
            deadline: deadline_of(new.deadline),
        })
    }

    pub fn find<'a>(&self, key: &Option<HashedKey>) -> Done<'a, Option<Entry>> {
        let Some(key) = key else {
            return Ok(None);
        };
        let found = entries::find(self.0.relation(), *key, Look::Uncounted).map_err(refused)?;
        self.0
            .hot_hits
            .set(u64::from(found.figure == Figure::HotHits));
        note_deadline(found.entry.as_ref());
        Ok(found.entry)
    }

    /// The live entry under each key.
    pub fn find_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Done<'a, Vec<Option<Entry>>> {
        let reading = open::lock_to_read(self.0.relation(), Privileges::SELECT).map_err(refused)?;
        let all = memory::collect(keys.map(|key| self.key(key).map(|key| key.key)));
        let asked = memory::collect(all.iter().flatten().copied());
        let (found, hot_hits) = entries::find_many(&reading, &asked).map_err(refused)?;
        self.0.hot_hits.set(hot_hits);
        let mut found = found
            .into_iter()
            .inspect(|entry| note_deadline(entry.as_ref()));
        Ok(memory::collect(all.iter().map(|key| match key {
            Some(_) => found.next().flatten(),
            None => None,
        })))
    }

    /// Locks the row under a key, if there is one.
    pub fn hold_key<'a>(&self, key: &Option<HashedKey>) -> Done<'a> {
        self.change_if(key, Seek::Any, RowAction::Keep, |_| false)?;
        Ok(())
    }

    /// Changes a live entry in one way, or does not; whether it did.
    pub fn change_if<'a>(
        &self,
        key: &Option<HashedKey>,
        seek: Seek,
        action: RowAction,
        allows: impl Fn(Option<&dyn Present>) -> bool,
    ) -> Done<'a, bool> {
        let cache = self.changed()?;
        let Some(key) = key else {
            return Ok(false);
        };
        Ok(change::change(cache, key.key, seek, |entry| {
            let held = entry.as_ref().map(Held);
            let allowed = allows(held.as_ref().map(|held| held as &dyn Present));
            let action = if allowed { action } else { RowAction::Keep };
            (action, allowed)
        }))
    }

    /// What a command makes of the entry that is there, which is copied to `found`.
    pub fn decided<'a, R>(
        &self,
        key: &Option<HashedKey>,
        entry: Option<Entry>,
        found: &mut Vec<u8>,
        made: &mut Vec<u8>,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Done<'a, (Change, R)>,
    ) -> Done<'a, (RowAction, R)> {
        let seen = entry.map(|entry| copy_out(&entry, found)).transpose()?;
        let present = seen.map(|seen| (seen, value(&seen, found)));
        let (change, answer) = decide(present, made)?;
        let action = match change {
            Change::Keep => RowAction::Keep,
            Change::Remove => RowAction::Remove,
            Change::Put(deadline) => {
                self.new_key(key)?;
                let value = Some(&made[..]);
                RowAction::Put(self.row(&New { value, deadline })?)
            }
        };
        Ok((action, answer))
    }
}
