//! Entries of a table cache: what each function does with the table.
//!
//! One function here is one statement, or a row of them over keys in sorted order, so that two
//! calls never wait for each other in a circle. Values are stored datums (of the cache's type);
//! the api converts. A read judges the deadline after it has the row, by the wall clock.

use pgrx::pg_sys::Datum;

use super::deadline::{self, Deadline};
use super::key::{Key, after_prefix};
use super::registry::{Cache, Reading};
use super::statement::Statement;
use crate::pg::clock::INFINITY;
use crate::pg::datum::{Text, Value, ValueType, new_array, new_varlena};
use crate::pg::memory;
use crate::pg::plan::Output;
use crate::pg::privilege::{self, AsOwner, Privileges};

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

/// The live entry under a key.
pub fn get(cache: &Reading, key: Key) -> Option<Entry> {
    if cache.is_out_of_reach() {
        return None;
    }
    cache
        .plan(Statement::Get)
        .run(&[Some(key.text().raw())], |output| {
            (output.rows() > 0).then(|| entry(output, 0))
        })
        .filter(live)
}

/// The live entries under several keys, in key order; all from one snapshot.
pub fn get_many(cache: &Reading, keys: &[Key]) -> Vec<(Text, Entry)> {
    if cache.is_out_of_reach() || keys.is_empty() {
        return Vec::new();
    }
    let mut datums = memory::collect(keys.iter().map(|key| key.text().raw()));
    let keys = new_array(&mut datums, ValueType::Text);
    let mut found = cache.plan(Statement::GetMany).run(&[Some(keys)], entries);
    found.retain(|(_, entry)| live(entry));
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
    let skip = after.unwrap_or(Text::new(b""));
    let from = match skip.bytes() > prefix.bytes() {
        true => skip,
        false => prefix,
    };
    let mut arguments = vec![
        Some(from.raw()),
        Some(skip.raw()),
        Some(Datum::from(max_rows)),
    ];
    let end = after_prefix(prefix.bytes());
    let bounded = end.is_some();
    arguments.extend(end.map(|end| Some(new_varlena(&end))));
    cache
        .plan(Statement::Scan { bounded })
        .run(&arguments, entries)
}

/// Inserts or overwrites.
pub fn set(cache: &Cache, key: Key, value: Option<Datum>, deadline: Deadline) {
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
    write(cache, Statement::Add, key, value, deadline)
}

/// Overwrites if a live entry is there.
pub fn replace(cache: &Cache, key: Key, value: Option<Datum>, deadline: Deadline) -> bool {
    write(cache, Statement::Replace, key, value, deadline)
}

/// Overwrites if the live value equals `expected`; None equals a negative or an absent entry.
pub fn replace_if(
    cache: &Cache,
    key: Key,
    expected: Option<Datum>,
    value: Option<Datum>,
    deadline: Deadline,
) -> bool {
    let Some(expected) = expected else {
        return write(cache, Statement::ReplaceIfAbsent, key, value, deadline);
    };
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
pub fn increment(cache: &Cache, key: Key, delta: i64, deadline: Deadline) -> Option<Datum> {
    cache.plan(Statement::Increment).run(
        &[
            Some(key.text().raw()),
            Some(Datum::from(delta)),
            deadline.map(Datum::from),
        ],
        |output| output.varlena(0, 0),
    )
}

/// Gives a live entry a new deadline; the entry as it is then.
pub fn touch(cache: &Cache, key: Key, deadline: Deadline) -> Option<Entry> {
    cache.plan(Statement::Touch).run(
        &[Some(key.text().raw()), deadline.map(Datum::from)],
        |output| (output.rows() > 0).then(|| entry(output, 0)),
    )
}

/// Takes a live entry's deadline away.
pub fn persist(cache: &Cache, key: Key) -> bool {
    0 < run(cache, Statement::Persist, &[Some(key.text().raw())])
}

/// Removes an entry, expired or not; says whether it was live.
pub fn delete(cache: &Cache, key: Key) -> bool {
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
    cache
        .plan(Statement::Delete)
        .run(&[Some(key.text().raw())], |output| {
            (output.rows() > 0).then(|| entry(output, 0))
        })
        .filter(live)
}

/// Removes a live entry whose value equals `expected`; None equals a negative entry.
pub fn delete_if(cache: &Cache, key: Key, expected: Option<Datum>) -> bool {
    let key = Some(key.text().raw());
    0 < match expected {
        Some(expected) => run(cache, Statement::DeleteIf, &[key, Some(expected)]),
        None => run(cache, Statement::DeleteIfNegative, &[key]),
    }
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
