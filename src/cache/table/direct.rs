//! Reads and writes the rows of a plain table without a SQL statement, through `pg::table::index_read` and
//! `pg::table::write`. Each function has the effect of a statement of `cache::model::statement`.
//!
//! A write notes its key before it returns, as the table's trigger would. A deadline is compared with the clock after
//! the row is locked. A function returns None if only the statement can do the work. The caller then runs the
//! statement, which also repeats any change that the function has already made.

use super::access_path;
use crate::cache::catalog::registry::Cache;
use crate::cache::model::deadline::Deadline;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::model::key_set::Keys;
use crate::cache::model::pending;
use crate::pg::catalog::relation;
use crate::pg::events::{self, NotedBy};
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::table::index_read::{self, UsePlan, VisibleRow};
use crate::pg::table::target::Target;
use crate::pg::table::write::RowAction;
use crate::pg::table::write::Seek;
use crate::pg::table::{row_positions, write};
use crate::pg::value::datum::Text;
use crate::pg::value::stored::Stored;

/// Returns the entry of a key, live or not.
pub fn get(target: &Target, key: Key) -> Option<Option<Entry>> {
    let found = index_read::get(target, key.text()).ok()?;
    Some(found.and_then(|found| entry_of(target, key, found)))
}

/// Returns the entry of a row. Returns None for another session's row if the transaction has removed the entry of the
/// key; `versions` explains why.
fn entry_of(target: &Target, key: Key, (row, counts): VisibleRow) -> Option<Entry> {
    let stands = counts || !pending::is_noted(target.relation, key.text().bytes());
    stands.then_some(row)
}

/// Passes the entries of several keys, live or not, to `found`, each with the index of its key. All entries come from
/// one snapshot.
pub fn get_many(target: &Target, keys: &[Key], mut found: impl FnMut(usize, Entry)) -> Option<()> {
    let texts = keys.iter().map(|key| key.text());
    index_read::get_many(target, texts, |place, row| {
        let key = keys.get(place).copied();
        if let Some(entry) = key.and_then(|key| entry_of(target, key, row)) {
            found(place, entry);
        }
    })
    .ok()
}

/// Inserts or overwrites an entry.
pub fn set(target: &Target, key: Key, value: Option<Stored>, deadline: Deadline) -> Option<()> {
    let done = write::put_one(target, key.text(), &Entry { value, deadline });
    done.then(|| note(target, key, events::RowChange::Set))
}

/// Inserts or overwrites several entries, in their order.
pub fn set_many(target: &Target, entries: &[(Key, Stored)], deadline: Deadline) -> Option<()> {
    let rows = entries.iter().map(|&(key, value)| {
        let value = Some(value);
        (key.text(), Entry { value, deadline })
    });
    let noted = |place: usize| {
        if let Some(&(key, _)) = entries.get(place) {
            note(target, key, events::RowChange::Set);
        }
    };
    write::put_all(target, rows, noted).then_some(())
}

/// Removes an entry, expired or not. Returns the entry before the removal.
pub fn remove(target: &Target, key: Key) -> Option<Option<Entry>> {
    let removed = write::remove(target, key.text()).ok()?;
    if removed.is_some() {
        note(target, key, events::RowChange::Gone);
    }
    Some(removed)
}

/// The number of lookups in the index that take as long as reading one page of the table.
const KEYS_A_BLOCK: usize = 12;

/// Removes the entries of these keys, in key order.
pub fn remove_all(target: &Target, keys: &Keys) -> Option<()> {
    let key_of = |number: usize| Text::new(keys.get(number));
    let blocks = relation::blocks(target.relation) as usize;
    let rows = if keys.len() / KEYS_A_BLOCK >= blocks {
        let mut rows = row_positions::by_pass(target, |key| keys.find(key)).ok()?;
        keys.sort(&mut rows, |row| row.number);
        rows
    } else {
        let mut numbers = memory::collect(0..keys.len());
        keys.sort(&mut numbers, |&number| number);
        let texts = numbers.iter().map(|&number| (number, key_of(number)));
        row_positions::by_index(target, texts).ok()?
    };
    let removed = |number: usize| {
        let (relation, gone) = (target.relation, events::RowChange::Gone);
        events::emit(|observer| {
            (observer.row)(relation, keys.get(number), gone, NotedBy::Function)
        });
    };
    write::remove_all(target, &rows, key_of, removed).then_some(())
}

/// Applies the change that `decide` chooses for the live entry of a key, or for None, after the row is locked. Returns
/// the result of `decide`.
pub fn change_live<R>(
    cache: &Cache,
    key: Key,
    seek: Seek,
    mut decide: impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Option<R> {
    let target = access_path::to_write(cache)?;
    change(target, key, seek, |entry| {
        decide(entry.filter(Entry::is_live))
    })
}

/// Applies the change that `decide` chooses for the row of a key, live or not, after the row is locked. Returns the
/// result of `decide`.
pub fn change<R>(
    target: &Target,
    key: Key,
    seek: Seek,
    mut decide: impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Option<R> {
    let mut noted = None;
    let decided = |row: Option<Entry>| {
        let (change, answer) = decide(row);
        noted = match change {
            RowAction::Keep => None,
            RowAction::Put(_) | RowAction::Revalue(_) | RowAction::Redate(_) => {
                Some(events::RowChange::Set)
            }
            RowAction::Remove => Some(events::RowChange::Gone),
        };
        (change, answer)
    };
    match write::change(target, key.text(), seek, decided) {
        Ok(answer) => {
            if let Some(change) = noted {
                note(target, key, change);
            }
            Some(answer)
        }
        Err(UsePlan) => None,
    }
}

/// Notes a change as `pgcache.record()` does for a row that a statement writes.
fn note(target: &Target, key: Key, change: events::RowChange) {
    if fault::on(Fault::DirectWriteNotNoted) {
        return;
    }
    events::emit(|observer| {
        (observer.row)(
            target.relation,
            key.text().bytes(),
            change,
            NotedBy::Function,
        )
    });
}
