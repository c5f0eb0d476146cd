//! Changes an entry by what it is: the row is locked, then judged, then written.
//!
//! Guards that what was judged still stands when it is changed. That there is no row is no lock: the
//! insertion decides, and if another session was faster, the row is judged again. And that a decision
//! was carried out: a policy, or a trigger of the user's own, may keep a row from being written.

use super::{direct, ops, row, versions};
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

/// An insertion that conflicts so often with no row that can be seen is kept from it by a policy or
/// a trigger.
const MOST_TRIES: u32 = 10;

/// Changes the live entry under a key as `decide` says, which is shown it, or None; gives what it gave
/// last. It may be asked several times, of what is there then. None: what it decided was not carried
/// out. The cache is open to be changed.
pub fn change<R>(
    cache: &Cache,
    key: Key,
    seek: Seek,
    mut decide: impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Option<R> {
    if versions::is_absent(cache, key) {
        let (action, answer) = decide(None);
        let done = match action {
            RowAction::Put(Entry { value, deadline }) => ops::set(cache, key, value, deadline),
            _ => true,
        };
        return done.then_some(answer);
    }
    if let Some(answer) = direct::change_live(cache, key, seek, &mut decide) {
        return Some(answer);
    }
    // A lock on a row needs the right to overwrite it. Who may only remove compares the value.
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

/// Does what was decided by the live entry; whether it came to that.
fn is_done(
    cache: &Cache,
    key: Key,
    action: &RowAction,
    present: Option<Entry>,
    locks: bool,
) -> bool {
    match (*action, present) {
        (RowAction::Put(Entry { value, deadline }), Some(_)) => {
            ops::overwrite(cache, key, value, deadline)
        }
        (RowAction::Put(Entry { value, deadline }), None) => ops::add(cache, key, value, deadline),
        (RowAction::Revalue(value), Some(entry)) => {
            ops::overwrite(cache, key, value, entry.deadline)
        }
        (RowAction::Redate(deadline), Some(_)) => ops::touch(cache, key, deadline).is_some(),
        (RowAction::Remove, Some(_)) if locks => ops::delete(cache, key),
        (RowAction::Remove, Some(entry)) => ops::delete_if(cache, key, entry.value),
        (RowAction::Keep, _) | (_, None) => true,
    }
}

/// The row under a key, which nobody else changes from now on.
fn lock(cache: &Cache, key: Key) -> Option<Entry> {
    let at = versions::to_change(cache, key);
    ops::run_at(cache, Statement::Lock, key, &[], at, row::first)
}

/// The row under a key as it is now.
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
