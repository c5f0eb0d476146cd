//! Chooses between two versions of one key. A transaction with a single snapshot sees two versions if another session
//! has removed the key after the snapshot, and the transaction itself has then written the key again.
//!
//! The rule for the choice: **the version that this transaction has written is the entry**. A session whose commit the
//! snapshot does not show must have removed the other version; otherwise the key would not have been free. A plain
//! SELECT shows both versions. The direct path to the table follows the same rule (`pg::table::index_read`).
//!
//! A key never has more than two versions, because committed rows contain each key once, both at the snapshot and now.
//! It has only one version if the transaction has not written. Under READ COMMITTED nothing here runs unless the
//! transaction has changed the source of entries of the cache. Rows that other sessions store after such a change do
//! not count as entries, neither for reads nor for changes.

use pgrx::datum::Interval;

use super::row;
use crate::cache::catalog::registry::Cache;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::model::statement::{Form, Statement};
use crate::cache::model::{deadline, pending};
use crate::pg::memory;
use crate::pg::session::{self, lock, transaction};
use crate::pg::spi::output::Output;
use crate::pg::value::datum::Text;
use crate::pg::value::typed::Typed;

/// A row as the snapshot shows it.
pub struct Version {
    pub key: Text,
    pub entry: Entry,
    /// Whether this transaction has written the row.
    own: bool,
    /// Its row address.
    address: Typed,
}

/// Returns whether a key may have two versions.
#[inline]
fn may_be_two() -> bool {
    !session::sees_one_version()
}

/// Returns whether a statement over the cache may find rows that do not count: a second version of a key, or a row that
/// another session stored after this transaction changed the source of the entry.
#[inline]
pub fn must_choose(cache: &Cache) -> bool {
    may_be_two() || pending::is_noted_in(cache.relation)
}

/// Returns the entry of a key, live or not.
pub fn get(cache: &Cache, key: Key) -> Option<Entry> {
    let version = one_of_each(cache, visible(cache, key)).pop()?;
    Some(version.entry)
}

/// Returns the entries of these keys, live or not, in key order.
pub fn get_many(cache: &Cache, keys: Typed) -> Vec<(Text, Entry)> {
    let plan = cache.plan_in(Statement::GetMany, Form::Versions);
    let found = one_of_each(cache, plan.run(&[keys], read));
    memory::collect(found.into_iter().map(|found| (found.key, found.entry)))
}

/// Returns a page of live entries in key order. `bounds` are the arguments of the statement: the first key, a key to
/// skip, the number of rows, and the end.
pub fn scan(
    cache: &Cache,
    statement: Statement,
    mut bounds: Vec<Typed>,
    max_rows: usize,
) -> Vec<(Text, Entry)> {
    let most = max_rows.saturating_mul(2).clamp(8, LONGEST_READ);
    let plan = cache.plan_in(statement, Form::Versions);
    let mut page = Vec::new();
    while page.len() < max_rows {
        bounds[2] = Typed::number(most as i64);
        let mut found = plan.run(&bounds, read);
        let is_all = found.len() < most;
        if !is_all && let Some(last) = found.pop() {
            // The next read may return the other version of the last key.
            found.retain(|version| version.key.bytes() != last.key.bytes());
        }
        let behind = Typed::from(found.last().map(|version| version.key));
        let entries = one_of_each(cache, found)
            .into_iter()
            .map(|version| (version.key, version.entry));
        page.extend(entries.filter(|(_, entry)| deadline::is_live(entry.deadline)));
        if is_all {
            break;
        }
        (bounds[0], bounds[1]) = (behind, behind);
    }
    page.truncate(max_rows);
    page
}

/// The largest number of rows that one statement reads.
const LONGEST_READ: usize = 20_000;

/// Returns whether a key has no entry although it may have rows: the transaction has changed the source of the entry,
/// and has not itself written a row of the key. Other sessions cannot change the answer during the call, because they
/// can neither write a row in the name of this transaction nor remove one of its rows.
pub fn is_absent(cache: &Cache, key: Key) -> bool {
    pending::is_noted(cache.relation, key.text().bytes())
        && !visible(cache, key).iter().any(|version| version.own)
}

/// Returns the address of the row that a statement must change. Returns None if the key has only one version.
pub fn to_change(cache: &Cache, key: Key) -> Option<Typed> {
    match may_be_two() {
        true => own_over_other(&visible(cache, key)).map(|(own, _)| own.address),
        false => None,
    }
}

/// How to remove a key.
pub enum Removal {
    /// Run the statement as usual.
    Plain,
    /// Do nothing, because the key has only rows that a sweep removes.
    Nothing,
    /// Run the statement only on this row.
    Only(Typed),
    /// Run the statement on this row and, if the row is removed, on the other row, too. The second removal raises
    /// 40001; without it, the rest of the transaction would see the other row, as if its key had not been removed.
    Both(Typed),
}

/// Returns how to remove a key. Leaves a row past its deadline and grace to the sweep: the sweep may have removed the
/// row after the snapshot, and a second removal would raise 40001.
pub fn to_remove(cache: &Cache, key: Key) -> Removal {
    if !lock::one_snapshot_per_transaction() {
        return Removal::Plain;
    }
    let counts = |version: &Version| is_within(version, cache.settings.grace);
    let visible = visible(cache, key);
    match (own_over_other(&visible), visible.first()) {
        (Some((own, _)), _) if !counts(own) => Removal::Nothing,
        (Some((own, other)), _) if counts(other) => Removal::Both(own.address),
        (Some((own, _)), _) => Removal::Only(own.address),
        (None, Some(one)) if !counts(one) => Removal::Nothing,
        (None, _) => Removal::Plain,
    }
}

fn is_within(version: &Version, grace: Option<Interval>) -> bool {
    deadline::is_within(version.entry.deadline, grace)
}

/// Returns all visible versions of a key.
fn visible(cache: &Cache, key: Key) -> Vec<Version> {
    cache
        .plan_in(Statement::Get, Form::Versions)
        .run(&[key.text().into()], read)
}

fn own_over_other(versions: &[Version]) -> Option<(&Version, &Version)> {
    match versions {
        [one, other] if one.own => Some((one, other)),
        [other, one] if one.own => Some((one, other)),
        _ => None,
    }
}

/// Returns the version that counts for each key, in key order. Skips a key if the transaction has changed the source of
/// its entry, and has thus removed the entry. If the transaction still sees a row of such a key, another session has
/// removed that row, or has stored it from the old source row.
fn one_of_each(cache: &Cache, mut found: Vec<Version>) -> Vec<Version> {
    found.sort_by(|one, other| {
        let keys = cache.key_type.compare(one.key.bytes(), other.key.bytes());
        keys.then(other.own.cmp(&one.own))
    });
    found.dedup_by(|next, kept| next.key.bytes() == kept.key.bytes());
    found.retain(|version| {
        let key = version.key.bytes();
        !pending::is_due(cache.relation, key)
            && (version.own || !pending::is_noted(cache.relation, key))
    });
    found
}

/// Reads the rows `value, expires_at, key, xmin, ctid`.
fn read(output: &Output) -> Vec<Version> {
    memory::collect((0..output.rows()).filter_map(|row| {
        let key = output.text(row, 2)?;
        Some(Version {
            key,
            entry: row::entry(output, row),
            own: transaction::is_own(output.xid(row, 3)?),
            address: output.row_address(row, 4)?,
        })
    }))
}
