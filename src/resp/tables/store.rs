//! What the commands ask of a table's entries.

use pgcache_resp::Args;

use super::present::{Held, copy_out, deadline_of, printed, seen};
use super::rows::Rows;
use super::table::refused;
use crate::cache::entries;
use crate::cache::memory::raw::{self, New, OutOfMemory, Seen};
use crate::cache::model::key::{self, Key};
use crate::cache::open;
use crate::cache::table::change::{self, Seek};
use crate::cache::table::ops;
use crate::cache::tier::hashed_key::HashedKey;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::session::clock::Timestamp;
use crate::pg::session::transaction;
use crate::pg::shmem::slot::Figure;
use crate::pg::table::new_row::{New as NewRow, RowAction};
use crate::pg::value::datum::Text;
use crate::pg::{encoding, memory};
use crate::resp::commands::buffers::Buffers;
use crate::resp::commands::refusal::{Done, Refusal};
use crate::resp::commands::store::{Change, Copied, Present, Store};
use crate::resp::target::{Rights, Target};

/// Bytes that a row takes beside its key and value: header, place on the page, deadline.
const ROW: usize = 40;

impl Store for Rows<'_> {
    type Key<'k> = Option<HashedKey>;
    const PIECE: usize = u32::MAX as usize;

    /// Who may overwrite need not have the right to delete: the row stays, and is expired.
    fn removes(&self, _: Timestamp) -> bool {
        false
    }

    fn admits<'a>(target: &Target, rights: Rights) -> Done<'a> {
        if rights != Rights::READ && !transaction::is_writable() {
            return Err(Refusal::ReadOnly);
        }
        if rights.insert {
            target.cache.check_writable().map_err(refused)?;
        }
        Ok(())
    }

    fn is_partial(_: &Target) -> bool {
        false
    }

    /// The first change of a transaction takes the lock that stays; whoever held it may have taken
    /// the privileges away.
    fn open<'a>(&self, rights: Rights) -> Done<'a> {
        if self.0.changed.get().is_some() {
            return Ok(());
        }
        let relation = self.0.relation();
        let cache =
            open::to_write(Some(relation), Privileges::NONE, c"a command").map_err(refused)?;
        if !privilege::has(relation, rights.privileges()) {
            return Err(Refusal::NoRight);
        }
        self.0.set_changed(cache);
        Ok(())
    }

    /// None for what can be no key of this cache.
    fn key(&self, bytes: &[u8]) -> Option<HashedKey> {
        let cache = &self.0.target.cache;
        let fits = (1..=key::MAX_BYTES).contains(&bytes.len()) && encoding::is_text(bytes);
        let text = fits.then(|| Text::new(bytes))?;
        Some(cache.hashed(Key::stored(cache.key_type.canonical_if_any(text)?)))
    }

    fn spelled<'k>(&self, key: &'k Option<HashedKey>) -> Option<&'k [u8]> {
        key.as_ref().map(HashedKey::bytes)
    }

    fn check_length<'a>(&self, _: &Option<HashedKey>, _: usize) -> Done<'a> {
        Ok(())
    }

    /// A command counts its hits as those of the tier. The rows know how many were copies.
    fn tally(&self, figure: Figure, times: u64) {
        let cache = &self.0.target.cache;
        if figure == Figure::HotHits {
            let hot = self.0.hot_hits.take().min(times);
            cache.count(Figure::HotHits, hot);
            cache.count(Figure::TableHits, times - hot);
        } else {
            cache.count(figure, times);
        }
        raw::note_read(figure, times);
    }

    fn get<'a>(&self, key: &Option<HashedKey>, buffer: &mut Vec<u8>) -> Done<'a, Option<Seen>> {
        let entry = self.find(key)?;
        Ok(entry.map(|entry| copy_out(&entry, buffer)).transpose()?)
    }

    fn get_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        _: &mut Buffers,
        mut each: impl FnMut(Result<Option<Seen>, OutOfMemory>, &[u8]) -> Done<'a, bool>,
    ) -> Done<'a, i64> {
        let mut hits = 0;
        for entry in self.find_each(keys)? {
            let printed = entry.and_then(|entry| entry.value).map(printed);
            let bytes = printed.as_ref().map_or(&[][..], |value| value.bytes());
            let seen = entry.map(|entry| seen(&entry, printed.as_ref()));
            hits += i64::from(each(Ok(seen), bytes)?);
        }
        Ok(hits)
    }

    fn look<'a>(&self, key: &Option<HashedKey>) -> Done<'a, Option<Seen>> {
        Ok(self.find(key)?.map(|entry| Held(&entry).seen()))
    }

    fn look_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        mut each: impl FnMut(Option<Seen>) -> Done<'a, bool>,
    ) -> Done<'a, i64> {
        let mut hits = 0;
        for entry in self.find_each(keys)? {
            hits += i64::from(each(entry.map(|entry| Held(&entry).seen()))?);
        }
        Ok(hits)
    }

    fn look_if<'a>(
        &self,
        key: &Option<HashedKey>,
        holds: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool> {
        Ok(self.find(key)?.is_some_and(|entry| holds(&Held(&entry))))
    }

    fn size<'a>(&self, key: &Option<HashedKey>) -> Done<'a, Option<u64>> {
        let length = key.map_or(0, |key| key.bytes().len());
        let seen = self.look(key)?;
        Ok(seen.map(|seen| (ROW + length + seen.length) as u64))
    }

    fn set<'a>(&self, key: &Option<HashedKey>, new: New<'_>) -> Done<'a> {
        let (key, row) = (self.new_key(key)?, self.row(&new)?);
        ops::set(self.changed()?, key, row.value, row.deadline);
        self.tally(Figure::Sets, 1);
        Ok(())
    }

    fn put<'a>(
        &self,
        key: &Option<HashedKey>,
        new: New<'_>,
        still: impl Fn(Option<&dyn Present>) -> bool,
    ) -> Done<'a, bool> {
        self.new_key(key)?;
        let row = self.row(&new)?;
        let done = self.change_if(key, Seek::Any, RowAction::Put(row), still)?;
        self.tally(Figure::Sets, u64::from(done));
        Ok(done)
    }

    fn change<'a, R>(
        &self,
        key: &Option<HashedKey>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Done<'a, (Change, R)>,
    ) -> Done<'a, R> {
        let cache = self.changed()?;
        let Buffers { found, made } = buffers;
        made.clear();
        let Some(hashed) = key else {
            return match decide(None, made)? {
                (Change::Put(_), _) => Err(Refusal::Key),
                (_, answer) => Ok(answer),
            };
        };
        let (answer, figure) = change::change(cache, hashed.key, Seek::Any, |entry| {
            made.clear();
            match self.decided(key, entry, found, made, &decide) {
                Ok((action, answer)) => {
                    let figure = match (&action, &entry) {
                        (RowAction::Put(_), _) => Some(Figure::Sets),
                        (RowAction::Remove, Some(_)) => Some(Figure::Deletes),
                        _ => None,
                    };
                    (action, (Ok(answer), figure))
                }
                Err(refusal) => (RowAction::Keep, (Err(refusal), None)),
            }
        });
        if let Some(figure) = figure {
            self.tally(figure, 1);
        }
        answer
    }

    fn touch<'a>(
        &self,
        key: &Option<HashedKey>,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool> {
        let action = RowAction::Redate(deadline_of(deadline));
        self.change_if(key, Seek::Visible, action, |entry| {
            entry.is_some_and(&allows)
        })
    }

    fn remove<'a>(
        &self,
        key: &Option<HashedKey>,
        still: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool> {
        let still = |entry: Option<&dyn Present>| entry.is_some_and(&still);
        let removed = self.change_if(key, Seek::ToRemove, RowAction::Remove, still)?;
        self.tally(Figure::Deletes, u64::from(removed));
        Ok(removed)
    }

    fn take<'a>(&self, key: &Option<HashedKey>, buffers: &mut Buffers) -> Done<'a, Option<Seen>> {
        let cache = self.changed()?;
        let Some(key) = key else {
            return Ok(None);
        };
        let taken = entries::take(cache, key.key, |entry| *entry).map_err(refused)?;
        // The entry is gone by now: without memory for it that is undone.
        Ok(
            taken.map(|entry| match copy_out(&entry, &mut buffers.found) {
                Ok(seen) => seen,
                Err(OutOfMemory) => memory::exhausted(seen(&entry, entry.value.as_ref()).length),
            }),
        )
    }

    fn delete_each<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone) -> Done<'a, i64> {
        self.open(Rights::DELETE)?;
        let cache = self.changed()?;
        let keys = keys.filter_map(|key| Some(self.key(key)?.key));
        entries::delete_many(cache, keys).map_err(refused)
    }

    fn in_order(&self, keys: &mut [&[u8]]) {
        match self.0.target.cache.key_type.is_text() {
            true => keys.sort_unstable(),
            false => keys.sort_by_cached_key(|key| {
                let key = self.key(key);
                self.spelled(&key).map(<[u8]>::to_vec)
            }),
        }
    }

    fn hold<'a>(&self, keys: &[&[u8]]) -> Done<'a> {
        let cache = self.changed()?;
        let keys = keys.iter().filter_map(|key| Some((self.key(key)?.key, ())));
        for (key, ()) in entries::last_of_each(keys) {
            change::change(cache, key, Seek::Any, |_| (RowAction::Keep, ()));
        }
        Ok(())
    }

    fn set_all<'a>(&self, pairs: Args<'a>, deadline: Timestamp, new_only: bool) -> Done<'a, bool> {
        let mut entries = memory::list(pairs.len() / 2);
        for (key, value) in pairs.pairs() {
            entries.push((self.new_key(&self.key(key))?, self.stored(value)?));
        }
        let (cache, deadline) = (self.changed()?, deadline_of(deadline));
        if !new_only {
            entries::set_many(cache, entries.into_iter(), deadline).map_err(refused)?;
            return Ok(true);
        }
        let entries = entries::last_of_each(entries.into_iter());
        for (at, (key, value)) in entries.iter().enumerate() {
            let row = RowAction::Put(NewRow {
                value: Some(*value),
                deadline,
            });
            let added = change::change(cache, *key, Seek::Any, |entry| match entry {
                None => (row, true),
                Some(_) => (RowAction::Keep, false),
            });
            if !added {
                // Somebody was faster since the look at the keys. Of ours nobody has seen any.
                let own = entries.iter().take(at).map(|&(key, _)| key);
                entries::delete_many(cache, own).map_err(refused)?;
                return Ok(false);
            }
        }
        self.tally(Figure::Sets, entries.len() as u64);
        Ok(true)
    }
}
