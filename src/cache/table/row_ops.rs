//! The operations on entries of a table cache: get, scan, count, set, add, replace, increment, touch, delete and take.
//! The removal of many entries is in `remove_many`.
//!
//! Each operation accesses the table directly, or runs one statement, or several in key order, so that two calls never
//! deadlock. A value carries its type; `api` converts it. A read compares the deadline with the wall clock after it
//! has read the row.

use pgrx::datum::Interval;

use super::versions::{self, Removal};
use super::{access_path, copies, direct, row};
use crate::cache::catalog::reading::Reading;
use crate::cache::catalog::registry::Cache;
use crate::cache::model::deadline::{self, Deadline};
use crate::cache::model::entry::{Entry, Page};
use crate::cache::model::key::{Key, after_prefix};
use crate::cache::model::pending;
use crate::cache::model::statement::{Form, Statement};
use crate::error::Error;
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::memory;
use crate::pg::session::lock;
use crate::pg::spi::output::Output;
use crate::pg::table::write::{RowAction, Seek};
use crate::pg::value::datum::Text;
use crate::pg::value::stored::Stored;
use crate::pg::value::typed::Typed;

/// Returns the entry of a key if it is live or within this grace.
pub fn get(cache: &Reading, key: Key, grace: Option<Interval>) -> Option<Entry> {
    if cache.is_out_of_reach() || pending::is_due(cache.relation, key.text().bytes()) {
        return None;
    }
    let within = |entry: &Entry| deadline::is_within(entry.deadline, grace);
    if let Some(found) = access_path::to_read(cache).and_then(|target| direct::get(target, key)) {
        return found.filter(within);
    }
    let _locks = lock::Scope::over(&cache.own_relations);
    let found = match versions::must_choose(cache) {
        true => versions::get(cache, key),
        false => cache
            .plan(Statement::Get)
            .run(&[key.text().into()], row::first),
    };
    found.filter(within)
}

/// Returns the live entries of several keys, in key order, all from one snapshot.
pub fn get_many(cache: &Reading, keys: &[Key]) -> Vec<(Text, Entry)> {
    if cache.is_out_of_reach() || keys.is_empty() {
        return Vec::new();
    }
    if let Some(target) = access_path::to_read(cache) {
        let mut found = memory::list(keys.len());
        let direct = direct::get_many(target, keys, |place, entry| {
            found.extend(keys.get(place).map(|key| (key.text(), entry)));
        });
        if direct.is_some() {
            return live_in_order(cache, found);
        }
    }
    let _locks = lock::Scope::over(&cache.own_relations);
    let keys = Typed::texts(keys.iter().map(|key| key.text()));
    let found = match versions::must_choose(cache) {
        true => versions::get_many(cache, keys),
        false => cache.plan(Statement::GetMany).run(&[keys], row::entries),
    };
    live_in_order(cache, found)
}

fn live_in_order(cache: &Cache, mut found: Vec<(Text, Entry)>) -> Vec<(Text, Entry)> {
    found.retain(|(key, entry)| entry.is_live() && !pending::is_due(cache.relation, key.bytes()));
    found.sort_unstable_by(|(one, _), (other, _)| one.bytes().cmp(other.bytes()));
    found
}

/// Returns a page of live entries in key order.
pub fn scan(cache: &Reading, page: &Page) -> Vec<(Text, Entry)> {
    rows(cache, page, |bounded| Statement::Scan { bounded })
}

/// Returns the keys of a page of live entries in key order, without reading the values.
pub fn keys(cache: &Reading, page: &Page) -> Vec<Text> {
    let rows = rows(cache, page, |bounded| Statement::ScanKeys { bounded });
    memory::collect(rows.into_iter().map(|(key, _)| key))
}

fn rows(cache: &Reading, page: &Page, statement: impl Fn(bool) -> Statement) -> Vec<(Text, Entry)> {
    if cache.is_out_of_reach() {
        return Vec::new();
    }
    let _locks = lock::Scope::over(&cache.own_relations);
    let skip = page.after.unwrap_or(Text::new(b""));
    let from = match skip.bytes() > page.prefix.bytes() {
        true => skip,
        false => page.prefix,
    };
    let max_rows = i64::try_from(page.max_rows).unwrap_or(i64::MAX);
    let due = i64::try_from(pending::due(cache.relation)).unwrap_or(i64::MAX);
    let mut arguments = vec![
        from.into(),
        skip.into(),
        Typed::number(max_rows.saturating_add(due)),
    ];
    let end = after_prefix(page.prefix.bytes());
    let statement = statement(end.is_some());
    arguments.extend(end.map(|end| Typed::bound(&end)));
    if versions::must_choose(cache) {
        return versions::scan(cache, statement, arguments, page.max_rows);
    }
    let mut found = cache.plan(statement).run(&arguments, row::entries);
    if due > 0 {
        found.retain(|(key, _)| !pending::is_due(cache.relation, key.bytes()));
        found.truncate(page.max_rows);
    }
    found
}

pub fn count(cache: &Reading) -> i64 {
    if cache.is_out_of_reach() {
        return 0;
    }
    if versions::must_choose(cache) || pending::due(cache.relation) > 0 {
        return count_by_pages(cache);
    }
    let _locks = lock::Scope::over(&cache.own_relations);
    let counted = cache
        .plan(Statement::Count)
        .run(&[], |output| output.number(0, 0));
    counted.unwrap_or(0)
}

/// The number of entries per page if the count must check each row.
const COUNTED_AT_ONCE: usize = 10_000;

fn count_by_pages(cache: &Reading) -> i64 {
    let mut page = Page {
        prefix: Text::new(b""),
        after: None,
        max_rows: COUNTED_AT_ONCE,
    };
    let mut counted = 0;
    loop {
        let keys = keys(cache, &page);
        counted += keys.len() as i64;
        if keys.len() < page.max_rows {
            return counted;
        }
        page.after = keys.last().copied();
    }
}

/// Inserts or overwrites an entry. Returns false if a user-defined trigger kept the row from being written.
pub fn set(cache: &Cache, key: Key, value: Option<Stored>, deadline: Deadline) -> bool {
    let direct = access_path::to_write(cache);
    if let Some(target) = direct
        && direct::set(target, key, value, deadline).is_some()
    {
        if !cache.is_attached() {
            copies::offer(cache, key, value, deadline);
        }
        return true;
    }
    write(cache, Statement::Set, key, value, deadline)
}

/// Inserts or overwrites several entries, sorted by key, each key once.
pub fn set_many(cache: &Cache, entries: &[(Key, Stored)], deadline: Deadline) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let direct = access_path::to_write(cache);
    if let Some(target) = direct
        && direct::set_many(target, entries, deadline).is_some()
    {
        let offered = entries.iter().filter(|_| !cache.is_attached());
        for &(key, value) in offered {
            copies::offer(cache, key, Some(value), deadline);
        }
        return Ok(());
    }
    let values = entries.iter().map(|&(_, value)| value);
    run(
        cache,
        Statement::SetMany,
        &[
            Typed::texts(entries.iter().map(|(key, _)| key.text())),
            Typed::values(values, cache.value_type)?,
            Typed::moment(deadline),
        ],
    );
    Ok(())
}

/// Inserts an entry if no live entry exists. Uses one statement if the table cannot be written directly: under a
/// policy or a user-defined trigger, one statement takes half the time of a lock and an INSERT.
pub fn add(cache: &Cache, key: Key, value: Option<Stored>, deadline: Deadline) -> bool {
    if versions::is_absent(cache, key) {
        return write(cache, Statement::Set, key, value, deadline);
    }
    let put = |present: Option<Entry>| match present {
        None => (RowAction::Put(Entry { value, deadline }), true),
        Some(_) => (RowAction::Keep, false),
    };
    direct::change_live(cache, key, Seek::Any, put)
        .unwrap_or_else(|| write(cache, Statement::Add, key, value, deadline))
}

/// Overwrites a live entry. Returns whether the entry was overwritten.
pub fn replace(cache: &Cache, key: Key, value: Option<Stored>, deadline: Deadline) -> bool {
    if versions::is_absent(cache, key) {
        return false;
    }
    let put = |present: Option<Entry>| match present {
        Some(_) => (RowAction::Put(Entry { value, deadline }), true),
        None => (RowAction::Keep, false),
    };
    direct::change_live(cache, key, Seek::Visible, put)
        .unwrap_or_else(|| overwrite(cache, key, value, deadline))
}

/// Overwrites a live entry with a statement. Returns whether the entry was overwritten.
pub fn overwrite(cache: &Cache, key: Key, value: Option<Stored>, deadline: Deadline) -> bool {
    let at = versions::to_change(cache, key);
    let new = [value.into(), Typed::moment(deadline)];
    run_at(cache, Statement::Replace, key, &new, at, |output| {
        output.processed
    }) > 0
}

/// Adds to a counter. The counter starts from 0 if no live entry exists or the entry has no value. Returns the stored
/// form of the sum. Returns None if a user-defined trigger has kept the row from being written. Uses one statement if
/// the table cannot be written directly, for the reason given at [`add`].
pub fn increment(
    cache: &Cache,
    key: Key,
    delta: i64,
    deadline: Deadline,
    sum: impl Fn(Option<Stored>) -> Result<Stored, Error>,
) -> Result<Option<Stored>, Error> {
    if versions::is_absent(cache, key) {
        let sum = sum(None)?;
        return Ok(write(cache, Statement::Set, key, Some(sum), deadline).then_some(sum));
    }
    let put = |present: Option<Entry>| match sum(present.and_then(|entry| entry.value)) {
        Err(error) => (RowAction::Keep, Err(error)),
        Ok(sum) => {
            let value = Some(sum);
            let action = match present {
                Some(_) => RowAction::Revalue(value),
                None => RowAction::Put(Entry { value, deadline }),
            };
            (action, Ok(value))
        }
    };
    if let Some(done) = direct::change_live(cache, key, Seek::Any, put) {
        return done;
    }
    Ok(cache.plan(Statement::Increment).run(
        &[
            key.text().into(),
            Typed::number(delta),
            Typed::moment(deadline),
        ],
        |output| output.stored(0, 0),
    ))
}

/// Adds to the counter of a live entry. Returns the stored form of the sum as the row contains it. Returns None if no
/// live entry exists.
pub fn increment_existing(
    cache: &Cache,
    key: Key,
    delta: i64,
    sum: impl Fn(Option<Stored>) -> Result<Stored, Error>,
) -> Result<Option<Stored>, Error> {
    if versions::is_absent(cache, key) {
        return Ok(None);
    }
    let put = |present: Option<Entry>| {
        let summed = present.map(|entry| sum(entry.value));
        match summed.transpose() {
            Ok(Some(sum)) => (RowAction::Revalue(Some(sum)), Ok(Some(sum))),
            other => (RowAction::Keep, other),
        }
    };
    if let Some(done) = direct::change_live(cache, key, Seek::Visible, put) {
        return done;
    }
    let at = versions::to_change(cache, key);
    let delta = [Typed::number(delta)];
    let stored = |output: &Output| output.stored(0, 0);
    Ok(run_at(
        cache,
        Statement::IncrementExisting,
        key,
        &delta,
        at,
        stored,
    ))
}

/// Sets or removes the deadline of a live entry. Returns the entry with its new deadline.
pub fn touch(cache: &Cache, key: Key, deadline: Deadline) -> Option<Entry> {
    if versions::is_absent(cache, key) {
        return None;
    }
    let redate = |present: Option<Entry>| match present {
        Some(Entry { value, .. }) => (RowAction::Redate(deadline), Some(Entry { value, deadline })),
        None => (RowAction::Keep, None),
    };
    if let Some(done) = direct::change_live(cache, key, Seek::Visible, redate) {
        return done;
    }
    let at = versions::to_change(cache, key);
    run_at(
        cache,
        Statement::Touch,
        key,
        &[Typed::moment(deadline)],
        at,
        row::first,
    )
}

/// Removes an entry, expired or not. Returns whether it was live. Also removes a row that does not count as an entry.
pub fn delete(cache: &Cache, key: Key) -> bool {
    let is_absent = pending::is_noted(cache.relation, key.text().bytes()) && {
        let _owner = as_owner_unless(cache, Privileges::SELECT);
        versions::is_absent(cache, key)
    };
    if let Some(removed) =
        access_path::to_write(cache).and_then(|target| direct::remove(target, key))
    {
        return !is_absent && removed.is_some_and(|entry| entry.is_live());
    }
    let _owner = as_owner_unless(cache, Privileges::SELECT);
    let removed = remove(cache, Statement::Delete, key, &[], |output| {
        (output.rows() > 0).then(|| row::deadline(output, 0))
    });
    !is_absent && removed.is_some_and(deadline::is_live)
}

/// Removes an entry, expired or not. Returns the entry if it was live.
pub fn take(cache: &Cache, key: Key) -> Option<Entry> {
    if versions::is_absent(cache, key) {
        delete(cache, key);
        return None;
    }
    if let Some(removed) =
        access_path::to_write(cache).and_then(|target| direct::remove(target, key))
    {
        return removed.filter(Entry::is_live);
    }
    remove(cache, Statement::Delete, key, &[], row::first).filter(Entry::is_live)
}

/// Removes a live entry if its value equals `expected`, where None equals a negative entry. Returns whether the entry
/// was removed.
pub fn delete_if(cache: &Cache, key: Key, expected: Option<Stored>) -> bool {
    if versions::is_absent(cache, key) {
        return false;
    }
    let remove_it = |present: Option<Entry>| match present {
        Some(entry) if entry.has_value(expected) => (RowAction::Remove, true),
        _ => (RowAction::Keep, false),
    };
    if let Some(done) = direct::change_live(cache, key, Seek::ToRemove, remove_it) {
        return done;
    }
    let touched = |output: &Output| (output.processed > 0).then_some(());
    remove(cache, Statement::DeleteIf, key, &[expected.into()], touched).is_some()
}

fn write(
    cache: &Cache,
    statement: Statement,
    key: Key,
    value: Option<Stored>,
    deadline: Deadline,
) -> bool {
    0 < run(
        cache,
        statement,
        &[key.text().into(), value.into(), Typed::moment(deadline)],
    )
}

/// Removes an entry with a statement over its row. Returns the result of `read` on the row.
fn remove<R>(
    cache: &Cache,
    statement: Statement,
    key: Key,
    rest: &[Typed],
    read: impl FnOnce(&Output) -> Option<R>,
) -> Option<R> {
    match versions::to_remove(cache, key) {
        Removal::Nothing => None,
        Removal::Plain => run_at(cache, statement, key, rest, None, read),
        Removal::Only(row) => run_at(cache, statement, key, rest, Some(row), read),
        Removal::Both(row) => {
            let removed = run_at(cache, statement, key, rest, Some(row), read)?;
            run_at(cache, Statement::Delete, key, &[], None, |_| ());
            Some(removed)
        }
    }
}

/// Runs a statement whose first parameter is the key. If `at` is given, the statement processes only the row with this
/// address.
pub fn run_at<R>(
    cache: &Cache,
    statement: Statement,
    key: Key,
    rest: &[Typed],
    at: Option<Typed>,
    read: impl FnOnce(&Output) -> R,
) -> R {
    let form = at.map_or(Form::Plain, |_| Form::Address);
    let key = Typed::from(key.text());
    let rest = rest.iter().copied().chain(at);
    let arguments = memory::collect(std::iter::once(key).chain(rest));
    cache.plan_in(statement, form).run(&arguments, read)
}

/// Runs a statement without reading its rows. Returns the number of rows that it processed.
fn run(cache: &Cache, statement: Statement, arguments: &[Typed]) -> u64 {
    cache
        .plan(statement)
        .run(arguments, |output| output.processed)
}

/// Takes the owner's identity for a statement that needs more privileges than its function requires of the caller.
/// If row-level security applies, the statement must run as the caller, because the policies apply to the caller.
/// Raises 42501, with a hint, if the role that runs the statement lacks a privilege: a caller under policies, or an
/// owner who has revoked a privilege from itself.
pub fn as_owner_unless(cache: &Cache, needs: Privileges) -> Option<AsOwner> {
    if privilege::has(cache.relation, needs) {
        return None;
    }
    let owner =
        (!privilege::row_security_applies(cache.relation)).then(|| AsOwner::of(cache.relation));
    privilege::require(cache.relation, needs, |_| true);
    owner
}
