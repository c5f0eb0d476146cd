//! Entries of a table cache: what each function does with the table.
//!
//! One function here is one statement, or a row of them over keys in sorted order, so that two
//! calls never wait for each other in a circle. Values are stored datums (of the cache's type);
//! the api converts. A read judges the deadline after it has the row, by the wall clock.

use std::ffi::CString;

use pgrx::datum::Interval;
use pgrx::pg_sys::Datum;

use super::deadline::{self, Deadline};
use super::depend;
use super::direct;
use super::key::{Key, after_prefix};
use super::keys::Keys;
use super::memory as memory_cache;
use super::path;
use super::registry::{Cache, Reading};
use super::statement::Statement;
use crate::error::Error;
use crate::pg::clock::INFINITY;
use crate::pg::datum::{Text, Value, ValueType, new_array, new_text_array, new_varlena};
use crate::pg::lock;
use crate::pg::memory;
use crate::pg::plan::{Output, Paths, Plan};
use crate::pg::privilege::{self, AsOwner, Privileges};
use crate::pg::table_row::New;

/// An entry as it is stored. A value of None is a negative entry.
#[derive(Clone, Copy)]
pub struct Entry {
    pub value: Option<Datum>,
    pub deadline: Deadline,
}

/// The columns `value, expires_at` of a row.
fn entry(output: &Output, row: usize) -> Entry {
    Entry {
        value: output.varlena(row, 0),
        deadline: deadline_column(output, row),
    }
}

fn deadline_column(output: &Output, row: usize) -> Deadline {
    output
        .raw(row, 1)
        .map(|datum| datum.value() as i64)
        .filter(|&deadline| deadline != INFINITY)
}

fn live(entry: &Entry) -> bool {
    deadline::is_live(entry.deadline)
}

/// The entry under a key that is live, or within this grace.
pub fn get(cache: &Reading, key: Key, grace: Option<Interval>) -> Option<Entry> {
    if cache.is_out_of_reach() || depend::is_due(cache.relation, key.text().bytes()) {
        return None;
    }
    if let Some(target) = path::to_read(cache) {
        return direct::get(target, key).filter(|entry| deadline::is_within(entry.deadline, grace));
    }
    let _locks = lock::Scope::enter();
    cache
        .plan(Statement::Get)
        .run(&[Some(key.text().raw())], |output| {
            (output.rows() > 0).then(|| entry(output, 0))
        })
        .filter(|entry| deadline::is_within(entry.deadline, grace))
}

/// The live entries under several keys, in key order; all from one snapshot.
pub fn get_many(cache: &Reading, keys: &[Key]) -> Vec<(Text, Entry)> {
    if cache.is_out_of_reach() || keys.is_empty() {
        return Vec::new();
    }
    if let Some(target) = path::to_read(cache) {
        let mut found = memory::list(keys.len());
        direct::get_many(target, keys, |place, entry| {
            found.extend(keys.get(place).map(|key| (key.text(), entry)));
        });
        return live_in_order(cache, found);
    }
    let _locks = lock::Scope::enter();
    let mut datums = memory::collect(keys.iter().map(|key| key.text().raw()));
    let keys = new_array(&mut datums, ValueType::Text);
    let found = cache.plan(Statement::GetMany).run(&[Some(keys)], entries);
    live_in_order(cache, found)
}

fn live_in_order(cache: &Cache, mut found: Vec<(Text, Entry)>) -> Vec<(Text, Entry)> {
    found.retain(|(key, entry)| live(entry) && !depend::is_due(cache.relation, key.bytes()));
    found.sort_unstable_by(|(one, _), (other, _)| one.bytes().cmp(other.bytes()));
    found
}

/// The rows `value, expires_at, key`.
fn entries(output: &Output) -> Vec<(Text, Entry)> {
    memory::collect((0..output.rows()).filter_map(|row| {
        let key = output.varlena(row, 2)?;
        Some((Text::from_raw(key), entry(output, row)))
    }))
}

/// A page of live entries in key order: from `prefix` on, after `after`, at most `max_rows`.
pub fn scan(
    cache: &Reading,
    prefix: Text,
    after: Option<Text>,
    max_rows: i64,
) -> Vec<(Text, Entry)> {
    if cache.is_out_of_reach() {
        return Vec::new();
    }
    let _locks = lock::Scope::enter();
    let skip = after.unwrap_or(Text::new(b""));
    let from = match skip.bytes() > prefix.bytes() {
        true => skip,
        false => prefix,
    };
    let due = i64::try_from(depend::due(cache.relation)).unwrap_or(i64::MAX);
    let mut arguments = vec![
        Some(from.raw()),
        Some(skip.raw()),
        Some(Datum::from(max_rows.saturating_add(due))),
    ];
    let end = after_prefix(prefix.bytes());
    let bounded = end.is_some();
    arguments.extend(end.map(|end| Some(new_varlena(&end))));
    let mut found = cache
        .plan(Statement::Scan { bounded })
        .run(&arguments, entries);
    if due > 0 {
        found.retain(|(key, _)| !depend::is_due(cache.relation, key.bytes()));
        found.truncate(max_rows as usize);
    }
    found
}

/// Inserts or overwrites.
pub fn set(cache: &Cache, key: Key, value: Option<Datum>, deadline: Deadline) {
    let direct = path::to_write(cache);
    if direct.is_some_and(|target| direct::set(target, key, value, deadline).is_some()) {
        return;
    }
    run(
        cache,
        Statement::Set,
        &[Some(key.text().raw()), value, deadline.map(Datum::from)],
    );
}

/// Inserts or overwrites several, given in the order of their keys, each key once.
pub fn set_many(cache: &Cache, entries: &[(Key, Datum)], deadline: Deadline) {
    if entries.is_empty() {
        return;
    }
    let direct = path::to_write(cache);
    if direct.is_some_and(|target| direct::set_many(target, entries, deadline).is_some()) {
        return;
    }
    let mut keys = memory::collect(entries.iter().map(|(key, _)| key.text().raw()));
    let mut values = memory::collect(entries.iter().map(|(_, value)| *value));
    run(
        cache,
        Statement::SetMany,
        &[
            Some(new_array(&mut keys, ValueType::Text)),
            Some(new_array(&mut values, cache.value_type)),
            deadline.map(Datum::from),
        ],
    );
}

/// Inserts if no live entry is there.
pub fn add(cache: &Cache, key: Key, value: Option<Datum>, deadline: Deadline) -> bool {
    let over = |entry: Option<&Entry>| entry.is_none();
    path::to_write(cache)
        .and_then(|target| direct::put_over(target, key, New { value, deadline }, over))
        .unwrap_or_else(|| write(cache, Statement::Add, key, value, deadline))
}

/// Overwrites if a live entry is there.
pub fn replace(cache: &Cache, key: Key, value: Option<Datum>, deadline: Deadline) -> bool {
    path::to_write(cache)
        .and_then(|target| direct::replace(target, key, New { value, deadline }, |_| true))
        .unwrap_or_else(|| write(cache, Statement::Replace, key, value, deadline))
}

/// Overwrites if the live value equals `expected`; None equals a negative or an absent entry.
pub fn replace_if(
    cache: &Cache,
    key: Key,
    expected: Option<Datum>,
    value: Option<Datum>,
    deadline: Deadline,
) -> bool {
    let new = New { value, deadline };
    let direct = path::to_write(cache);
    let Some(expected) = expected else {
        let over = |entry: Option<&Entry>| entry.is_none_or(|entry| entry.value.is_none());
        return direct
            .and_then(|target| direct::put_over(target, key, new, over))
            .unwrap_or_else(|| write(cache, Statement::ReplaceIfAbsent, key, value, deadline));
    };
    if let Some(done) = direct
        .and_then(|target| direct::replace(target, key, new, |entry| has(cache, entry, expected)))
    {
        return done;
    }
    0 < run(
        cache,
        Statement::ReplaceIf,
        &[
            Some(key.text().raw()),
            value,
            deadline.map(Datum::from),
            Some(expected),
        ],
    )
}

/// Adds to a counter, which starts from 0 where there is no live integer entry. Gives the stored
/// form of the sum; None when a trigger of the user's own has kept the row from being written.
pub fn increment(
    cache: &Cache,
    key: Key,
    delta: i64,
    deadline: Deadline,
    sum: impl Fn(Option<Datum>) -> Result<Datum, Error>,
) -> Result<Option<Datum>, Error> {
    if let Some(done) =
        path::to_write(cache).and_then(|target| direct::increment(target, key, deadline, sum))
    {
        return done.map(Some);
    }
    Ok(cache.plan(Statement::Increment).run(
        &[
            Some(key.text().raw()),
            Some(Datum::from(delta)),
            deadline.map(Datum::from),
        ],
        |output| output.varlena(0, 0),
    ))
}

/// Gives a live entry a new deadline; the entry as it is then.
pub fn touch(cache: &Cache, key: Key, deadline: Deadline) -> Option<Entry> {
    if let Some(done) =
        path::to_write(cache).and_then(|target| direct::touch(target, key, deadline))
    {
        return done;
    }
    cache.plan(Statement::Touch).run(
        &[Some(key.text().raw()), deadline.map(Datum::from)],
        |output| (output.rows() > 0).then(|| entry(output, 0)),
    )
}

/// Takes a live entry's deadline away.
pub fn persist(cache: &Cache, key: Key) -> bool {
    if let Some(done) = path::to_write(cache).and_then(|target| direct::touch(target, key, None)) {
        return done.is_some();
    }
    0 < run(cache, Statement::Persist, &[Some(key.text().raw())])
}

/// Removes an entry, expired or not; says whether it was live.
pub fn delete(cache: &Cache, key: Key) -> bool {
    if let Some(removed) = path::to_write(cache).and_then(|target| direct::remove(target, key)) {
        return removed.as_ref().is_some_and(live);
    }
    let _owner = as_owner_unless(cache, Privileges::SELECT);
    cache
        .plan(Statement::Delete)
        .run(&[Some(key.text().raw())], |output| {
            (output.rows() > 0).then(|| deadline_column(output, 0))
        })
        .is_some_and(deadline::is_live)
}

/// Removes an entry, expired or not; gives it if it was live.
pub fn take(cache: &Cache, key: Key) -> Option<Entry> {
    if let Some(removed) = path::to_write(cache).and_then(|target| direct::remove(target, key)) {
        return removed.filter(live);
    }
    cache
        .plan(Statement::Delete)
        .run(&[Some(key.text().raw())], |output| {
            (output.rows() > 0).then(|| entry(output, 0))
        })
        .filter(live)
}

/// Removes a live entry whose value equals `expected`; None equals a negative entry.
pub fn delete_if(cache: &Cache, key: Key, expected: Option<Datum>) -> bool {
    let is_it = |entry: &Entry| {
        live(entry)
            && match expected {
                Some(expected) => has(cache, entry, expected),
                None => entry.value.is_none(),
            }
    };
    if let Some(done) =
        path::to_write(cache).and_then(|target| direct::remove_if(target, key, is_it))
    {
        return done;
    }
    let key = Some(key.text().raw());
    0 < match expected {
        Some(expected) => run(cache, Statement::DeleteIf, &[key, Some(expected)]),
        None => run(cache, Statement::DeleteIfNegative, &[key]),
    }
}

/// More keys than this are looked for by whatever path the planner finds cheapest, knowing their number.
const MANY_KEYS: usize = 1_000;

/// Removes the entries under these keys as they are now: also those that the
/// transaction's own snapshot is too old to see.
pub fn delete_keys(cache: &Cache, keys: &Keys) {
    let direct = path::to_write(cache);
    if direct.is_some_and(|target| direct::remove_all(target, keys).is_some()) {
        return;
    }
    let mut sorted = memory::collect(keys.iter());
    if keys.len() <= MANY_KEYS {
        sorted.sort_unstable();
        let array = [Some(new_text_array(&sorted))];
        return cache.plan(Statement::DeleteMany).run_on_latest(&array);
    }
    let array = [Some(new_text_array(&sorted))];
    let sql = [
        b"DELETE FROM ONLY ",
        cache.qualified_name().to_bytes(),
        b" AS c WHERE c.key IN (SELECT u.k FROM pg_catalog.unnest($1) AS u (k))",
    ];
    let sql = CString::new(sql.concat()).unwrap_or_default();
    let plan = Plan::prepare(&sql, &[ValueType::Text.array_oid()], Paths::Costed);
    plan.run_on_latest(&array);
}

/// Removes all entries, row by row.
pub fn delete_all(cache: &Cache) {
    cache.plan(Statement::DeleteAll).run_on_latest(&[]);
}

/// Removes all entries whose key begins with `prefix`; says how many were live.
pub fn delete_prefix(cache: &Cache, prefix: Text) -> i64 {
    keys_with_prefix(cache, prefix)
        .into_iter()
        .filter(|&key| delete(cache, key))
        .count() as i64
}

/// The keys that begin with `prefix`, in order.
fn keys_with_prefix(cache: &Cache, prefix: Text) -> Vec<Key> {
    let _owner = as_owner_unless(cache, Privileges::SELECT);
    let mut arguments = vec![Some(prefix.raw())];
    let end = after_prefix(prefix.bytes());
    let bounded = end.is_some();
    arguments.extend(end.map(|end| Some(new_varlena(&end))));
    cache
        .plan(Statement::Keys { bounded })
        .run(&arguments, |output| {
            let keys = (0..output.rows()).filter_map(|row| output.varlena(row, 0));
            memory::collect(keys.map(|key| Key::stored(Text::from_raw(key))))
        })
}

/// Whether an entry has this value.
fn has(cache: &Cache, entry: &Entry, expected: Datum) -> bool {
    let value = entry.value;
    value.is_some_and(|value| memory_cache::equal(cache, value, expected))
}

fn write(
    cache: &Cache,
    statement: Statement,
    key: Key,
    value: Option<Datum>,
    deadline: Deadline,
) -> bool {
    0 < run(
        cache,
        statement,
        &[Some(key.text().raw()), value, deadline.map(Datum::from)],
    )
}

/// Runs a statement whose rows nobody reads; how many it touched.
fn run(cache: &Cache, statement: Statement, arguments: &[Option<Datum>]) -> u64 {
    cache
        .plan(statement)
        .run(arguments, |output| output.processed)
}

/// The owner's identity for a statement that needs more privileges than its function promises;
/// not where row-level security applies: policies are about the caller.
pub fn as_owner_unless(cache: &Cache, needs: Privileges) -> Option<AsOwner> {
    let own_identity =
        privilege::has(cache.relation, needs) || privilege::row_security_applies(cache.relation);
    (!own_identity).then(|| AsOwner::of(cache.relation))
}
