//! Chooses between two versions of one key. A transaction with a single snapshot sees both if another session has
//! removed the key after the snapshot and the transaction itself has written the key again.
//!
//! Guards the rule of that choice: **the version that this transaction has written is the entry**. The other one must
//! have been removed by a session whose commit the snapshot does not show; otherwise the key would not have been free.
//! A plain SELECT shows both. The direct path to the table follows the same rule (`pg::table::read`).
//!
//! A key never has more than two versions, because committed rows have each key once, both at the snapshot and now. It
//! has only one unless the transaction has written. Under READ COMMITTED nothing here runs unless the transaction has
//! changed the source of entries of the cache. In that case rows that other sessions have stored since do not count as
//! entries, neither for reads nor for changes.

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
    /// Whether this transaction has written it.
    own: bool,
    /// Its row address.
    address: Typed,
}

/// Returns whether there may be two versions of a key.
#[inline]
fn may_be_two() -> bool {
    !session::sees_one_version()
}

/// Returns whether some rows that a statement finds in the cache may not count: there may be two versions of a key,
/// or one that another session has stored since the transaction changed the source of the entry.
#[inline]
pub fn must_choose(cache: &Cache) -> bool {
    may_be_two() || pending::is_noted_in(cache.relation)
}

/// Returns the entry under a key, live or not.
pub fn get(cache: &Cache, key: Key) -> Option<Entry> {
    let version = one_of_each(cache, visible(cache, key)).pop()?;
    Some(version.entry)
}

/// Returns one entry for each of these keys that has one, live or not, in key order.
pub fn get_many(cache: &Cache, keys: Typed) -> Vec<(Text, Entry)> {
    let plan = cache.plan_in(Statement::GetMany, Form::Versions);
    let found = one_of_each(cache, plan.run(&[keys], read));
    memory::collect(found.into_iter().map(|found| (found.key, found.entry)))
}

/// Returns a page of live entries. `bounds` are the arguments of the statement: the first key, a key to skip, the
/// number of rows, and the end.
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
            // The other version of the last key may be beyond the end.
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

/// Rows that are read at once.
const LONGEST_READ: usize = 20_000;

/// Returns whether a key has no entry, whatever rows it has: the transaction has changed the source of the entry, and
/// no row of the key is its own. Other sessions cannot change that meanwhile: they can neither write a row in this
/// transaction's name nor remove one of its rows.
pub fn is_absent(cache: &Cache, key: Key) -> bool {
    pending::is_noted(cache.relation, key.text().bytes())
        && !visible(cache, key).iter().any(|version| version.own)
}

/// Returns the address of the row that a statement must change, if its key has two versions.
pub fn to_change(cache: &Cache, key: Key) -> Option<Typed> {
    match may_be_two() {
        true => own_over_other(&visible(cache, key)).map(|(own, _)| own.address),
        false => None,
    }
}

/// The work of a removal.
pub enum Removal {
    /// Run the statement as usual.
    Plain,
    /// Do nothing: the key only has rows that a sweep removes.
    Nothing,
    /// Run the statement on this row alone.
    Only(Typed),
    /// Run the statement on this row and, if it is removed, on the other one too. The latter ends in 40001; otherwise
    /// the transaction would see that row from then on, as if its key had not been removed.
    Both(Typed),
}

/// Returns how to remove a key. Leaves a row past its deadline and grace to the sweep, which may have removed it since
/// the snapshot, because a second removal would end in 40001.
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

/// Returns the version that counts for each key, in key order. Leaves out a key if the transaction has changed the
/// source of its entry and has thus removed the entry: a row that it still sees was removed by another session, or
/// stored by one since, from the old source row.
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
