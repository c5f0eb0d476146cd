//! The entries of a memory cache as the commands ask for them; and copies of a table's.

use pgcache_resp::Args;
use pgcache_store::EntryRef;

use super::buffers::{Buffers, value};
use super::refusal::{Done, Refusal};
use super::store::{Change, Copied, Present, Store, check_value, is_unchanged, put_or_remove};
use crate::cache::catalog::registry::Storage;
use crate::cache::memory::raw::{Entries, New, OutOfMemory, RawKey, Seen, Written};
use crate::pg::session::clock::Timestamp;
use crate::pg::shmem::slot::Figure;
use crate::pg::value::datum::ValueType;
use crate::resp::target::{Rights, Target};

impl Present for EntryRef<'_> {
    #[inline]
    fn seen(&self) -> Seen {
        Seen::of(&self.header())
    }

    #[inline]
    fn has(&self, value: &[u8]) -> bool {
        !self.header().negative && self.value_equals(value)
    }
}

/// Keys of one piece, some 20 µs of work; and of these so many are asked for from memory at once.
pub const PIECE: usize = 128;
const AHEAD: usize = 32;

impl Store for Entries<'_> {
    type Key<'k> = RawKey<'k>;
    const PIECE: usize = PIECE;

    #[inline]
    fn removes(&self, deadline: Timestamp) -> bool {
        self.is_past(deadline)
    }

    #[inline]
    fn admits<'a>(target: &Target, rights: Rights) -> Done<'a> {
        let cache = &target.cache;
        let (is_table, changes) = (target.is_table(), rights != Rights::READ);
        if cache.value_type == ValueType::Json {
            return Err(if is_table {
                Refusal::Table
            } else {
                Refusal::Json
            });
        }
        if changes && is_table {
            return Err(Refusal::Table);
        }
        if changes && cache.settings.watch.is_some() {
            return Err(Refusal::Watched);
        }
        Ok(())
    }

    #[inline]
    fn open<'a>(&self, _: Rights) -> Done<'a> {
        Ok(())
    }

    #[inline]
    fn is_partial(target: &Target) -> bool {
        target.cache.storage != Storage::Memory
    }

    #[inline]
    fn key<'k>(&self, bytes: &'k [u8]) -> RawKey<'k> {
        Entries::key(self, bytes)
    }

    #[inline]
    fn spelled<'k>(&self, key: &'k RawKey) -> Option<&'k [u8]> {
        Some(key.bytes)
    }

    fn check_length<'a>(&self, key: &RawKey, length: usize) -> Done<'a> {
        Ok(Entries::check_length(self, key, length)?)
    }

    #[inline]
    fn tally(&self, figure: Figure, times: u64) {
        Entries::tally(self, figure, times);
    }

    #[inline]
    fn get<'a>(&self, key: &RawKey, buffer: &mut Vec<u8>) -> Done<'a, Option<Seen>> {
        Ok(Entries::get(self, key, buffer)?)
    }

    fn get_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        buffers: &mut Buffers,
        mut each: impl FnMut(Result<Option<Seen>, OutOfMemory>, &[u8]) -> Done<'a, bool>,
    ) -> Done<'a, i64> {
        each_key(self, keys, |key| {
            let seen = Entries::get(self, &Entries::key(self, key), &mut buffers.found);
            each(seen, &buffers.found)
        })
    }

    fn epoch(&self, key: &RawKey) -> u64 {
        Entries::epoch(self, key)
    }

    fn look<'a>(&self, key: &RawKey) -> Done<'a, Option<Seen>> {
        Ok(Entries::look(self, key))
    }

    fn look_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        mut each: impl FnMut(Option<Seen>) -> Done<'a, bool>,
    ) -> Done<'a, i64> {
        each_key(self, keys, |key| {
            each(Entries::look(self, &Entries::key(self, key)))
        })
    }

    fn look_if<'a>(&self, key: &RawKey, holds: impl Fn(&dyn Present) -> bool) -> Done<'a, bool> {
        Ok(Entries::look_if(self, key, |entry| holds(entry)))
    }

    fn use_rank(&self, key: &RawKey) -> u32 {
        Entries::use_rank(self, key)
    }

    fn size<'a>(&self, key: &RawKey) -> Done<'a, Option<u64>> {
        Ok(Entries::size(self, key))
    }

    #[inline]
    fn set<'a>(&self, key: &RawKey, new: New<'_>) -> Done<'a> {
        Store::put(self, key, new, |_| true).map(|_| ())
    }

    #[inline]
    fn put<'a>(
        &self,
        key: &RawKey,
        new: New<'_>,
        still: impl Fn(Option<&dyn Present>) -> bool,
    ) -> Done<'a, bool> {
        let still = |entry: Option<&EntryRef>| still(entry.map(|entry| entry as &dyn Present));
        match Entries::put(self, key, new, still)? {
            Written::Yes => {
                Entries::tally(self, Figure::Sets, 1);
                Ok(true)
            }
            Written::No => Ok(false),
            Written::Gone => Err(Refusal::Gone),
        }
    }

    fn change<'a, R>(
        &self,
        key: &RawKey,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Done<'a, (Change, R)>,
    ) -> Done<'a, R> {
        loop {
            let seen = Entries::get(self, key, &mut buffers.found)?;
            let present = seen.map(|seen| (seen, value(&seen, &buffers.found)));
            buffers.made.clear();
            let (change, answer) = decide(present, &mut buffers.made)?;
            let done = match change {
                Change::Keep => true,
                Change::Put(deadline) => {
                    check_value(self.value_type(), &buffers.made)?;
                    let value = Some(&buffers.made[..]);
                    let still = |entry: Option<&dyn Present>| is_unchanged(entry, present);
                    put_or_remove(self, key, New { value, deadline }, still)?
                }
                Change::Remove => {
                    let removed =
                        Store::remove(self, key, |entry| is_unchanged(Some(entry), present))?;
                    present.is_none() || removed
                }
            };
            if done {
                return Ok(answer);
            }
        }
    }

    fn touch<'a>(
        &self,
        key: &RawKey,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool> {
        Ok(Entries::touch(self, key, deadline, |entry| allows(entry)))
    }

    fn remove<'a>(&self, key: &RawKey, still: impl Fn(&dyn Present) -> bool) -> Done<'a, bool> {
        let removed = Entries::remove(self, key, |entry| still(entry));
        Entries::tally(self, Figure::Deletes, u64::from(removed));
        Ok(removed)
    }

    fn take<'a>(&self, key: &RawKey, buffers: &mut Buffers) -> Done<'a, Option<Seen>> {
        self.change(key, buffers, |present, _| {
            Ok((Change::Remove, present.map(|(seen, _)| seen)))
        })
    }

    fn delete_each<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone) -> Done<'a, i64> {
        each_key(self, keys, |key| {
            Store::remove(self, &Entries::key(self, key), |_| true)
        })
    }

    fn in_order(&self, _: &mut [&[u8]]) {}

    fn hold<'a>(&self, _: &[&[u8]]) -> Done<'a> {
        Ok(())
    }

    fn set_all<'a>(&self, pairs: Args<'a>, deadline: Timestamp, _: bool) -> Done<'a, bool> {
        let mut rest = pairs;
        while !rest.is_empty() {
            let ahead = rest.first(2 * AHEAD);
            self.prefetch(ahead.pairs().map(|(key, _)| key));
            for (key, value) in ahead.pairs() {
                let (key, value) = (Entries::key(self, key), Some(value));
                put_or_remove(self, &key, New { value, deadline }, |_| true)?;
            }
            rest = rest.from(2 * AHEAD);
        }
        Ok(true)
    }
}

/// Does something with each key; of how many it said yes.
fn each_key<'a>(
    entries: &Entries<'_>,
    mut keys: impl Iterator<Item = &'a [u8]> + Clone,
    mut act: impl FnMut(&'a [u8]) -> Done<'a, bool>,
) -> Done<'a, i64> {
    let mut hits = 0;
    loop {
        let mut count = 0;
        entries.prefetch(keys.clone().take(AHEAD));
        for key in keys.by_ref().take(AHEAD) {
            hits += i64::from(act(key)?);
            count += 1;
        }
        if count < AHEAD {
            return Ok(hits);
        }
    }
}
