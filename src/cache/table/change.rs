//! Changes an entry depending on its current state: locks the row, decides, and writes.
//!
//! The lock guarantees that the decision still applies when the row is written. A missing row cannot be locked: if
//! another session has inserted the row first, the INSERT conflicts and the decision is made again. A policy or a
//! user-defined trigger may prevent the write. The result tells the caller whether the row was written.

use super::{direct, row, row_ops, versions};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::model::statement::Statement;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::session;
use crate::pg::spi::output::Output;
use crate::pg::table::write::RowAction;
use crate::pg::value::typed::Typed;

pub use crate::pg::table::write::Seek;

/// The number of attempts to insert. If an INSERT conflicts this many times and the row is never visible, a policy or a
/// trigger hides it.
const MOST_TRIES: u32 = 10;

/// Applies the change that `decide` chooses for the live entry of a key, or for None if the key has no live entry.
/// `decide` may be called several times, each time with the current entry. Returns the result of the last call. Returns
/// None if the change was not carried out. The cache is open for writing.
pub fn change<R>(
    cache: &Cache,
    key: Key,
    seek: Seek,
    mut decide: impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Option<R> {
    if versions::is_absent(cache, key) {
        let (action, answer) = decide(None);
        let done = match action {
            RowAction::Put(Entry { value, deadline }) => row_ops::set(cache, key, value, deadline),
            _ => true,
        };
        return done.then_some(answer);
    }
    if let Some(answer) = direct::change_live(cache, key, seek, &mut decide) {
        return Some(answer);
    }
    // Locking a row needs the privilege UPDATE. A caller that may only delete compares the value instead.
    let locks = privilege::has(cache.relation, Privileges::UPDATE);
    for _ in 0..MOST_TRIES {
        session::check_for_interrupts();
        if seek != Seek::Any
            && let (RowAction::Keep, answer) = decide(look(cache, key).filter(Entry::is_live))
        {
            return Some(answer);
        }
        let present = match locks {
            true => lock(cache, key),
            false => look(cache, key),
        };
        let present = present.filter(Entry::is_live);
        let (action, answer) = decide(present);
        if is_done(cache, key, &action, present, locks) {
            return Some(answer);
        }
        if locks && present.is_some_and(|entry| entry.is_live()) {
            return None;
        }
    }
    None
}

/// Applies the decision to the live entry. Returns whether the row now matches it.
fn is_done(
    cache: &Cache,
    key: Key,
    action: &RowAction,
    present: Option<Entry>,
    locks: bool,
) -> bool {
    match (*action, present) {
        (RowAction::Put(Entry { value, deadline }), Some(_)) => {
            row_ops::overwrite(cache, key, value, deadline)
        }
        (RowAction::Put(Entry { value, deadline }), None) => {
            row_ops::add(cache, key, value, deadline)
        }
        (RowAction::Revalue(value), Some(entry)) => {
            row_ops::overwrite(cache, key, value, entry.deadline)
        }
        (RowAction::Redate(deadline), Some(_)) => row_ops::touch(cache, key, deadline).is_some(),
        (RowAction::Remove, Some(_)) if locks => row_ops::delete(cache, key),
        (RowAction::Remove, Some(entry)) => row_ops::delete_if(cache, key, entry.value),
        (RowAction::Keep, _) | (_, None) => true,
    }
}

/// Locks and returns the row of a key. No other session changes the row before this transaction ends.
fn lock(cache: &Cache, key: Key) -> Option<Entry> {
    let at = versions::to_change(cache, key);
    row_ops::run_at(cache, Statement::Lock, key, &[], at, row::first)
}

/// Returns the row of a key without locking it.
fn look(cache: &Cache, key: Key) -> Option<Entry> {
    match versions::must_choose(cache) {
        true => versions::get(cache, key),
        false => {
            let key = [Typed::from(key.text())];
            let first = |output: &Output| row::first(output);
            cache.plan(Statement::Get).run(&key, first)
        }
    }
}
