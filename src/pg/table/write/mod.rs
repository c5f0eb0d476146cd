//! Writing rows of a table by key, past the executor, with its own means.
//!
//! What `INSERT ... ON CONFLICT (key) DO UPDATE`, `UPDATE` and `DELETE ... WHERE key = $1` do, only
//! for a [`Target`] that is `writable`, only under READ COMMITTED, only where a snapshot is active
//! and nothing runs in parallel: [`possible`] asks. The caller holds RowExclusiveLock on the table
//! and notes the key for the trigger that is not fired.
//!
//! How two writers of one key meet:
//!
//! - The place of a row comes from an index scan and is a hint. Between the scan and the change the
//!   row may be moved, locked or deleted. The change itself then says so (TM_Updated, TM_Deleted),
//!   and all begins again. It waits for whoever is at the row, in the queue that every writer
//!   stands in.
//! - That a scan finds nothing is a hint as well: a row that moves while it is looked for can be
//!   missed. The speculative insertion decides. Where the index has the key already, the row is
//!   taken back, and all begins again.
//! - A place cannot come to hold another row meanwhile: the active snapshot is older than the scan,
//!   and vacuum keeps what was alive then.
//! - No page of the index stays pinned during a wait, or vacuum would wait, too. Of the table only
//!   the page stays pinned that the update itself holds on to, as any writer's does.
//!
//! This file decides and repeats; `step` has the single steps, `writer` what is open, `new_row`
//! what is written.

mod new_row;
mod step;
mod writer;

use pgrx::pg_sys::Datum;

pub use self::new_row::RowAction;
use self::step::Step;
pub use self::writer::Seek;
use self::writer::Writer;
use super::read::UsePlan;
use super::search::RowPlace;
use super::target::Target;
use crate::pg::events::DeadBytes;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::session::{self, lock};
use crate::pg::value::datum::Text;
use crate::pg::value::entry::Entry;

/// Whether the present transaction can write past the executor.
pub fn possible() -> bool {
    // SAFETY: reads a variable of this process and raises nothing.
    !lock::one_snapshot_per_transaction()
        && !session::in_parallel_mode()
        && unsafe { unguarded::ActiveSnapshotSet() }
}

/// Inserts or overwrites rows, in this order; `written` is told the place of each. False where the
/// statement must do it, all of it: what has been written already is overwritten then.
pub fn put_all(
    target: &Target,
    rows: impl Iterator<Item = (Text, Entry)>,
    mut written: impl FnMut(usize),
) -> bool {
    let Some(mut writer) = Writer::of(target) else {
        return false;
    };
    for (place, (key, new)) in rows.enumerate() {
        let key = target.key_datum(key);
        // SAFETY: the sequence holds plain values only; the writer's relations are open.
        let done = unsafe { guarded(|| step::put(&mut writer, key, &new)) };
        if !done {
            writer.close();
            return false;
        }
        written(place);
    }
    writer.close();
    true
}

/// Inserts or overwrites one row. False where the statement must do it.
pub fn put_one(target: &Target, key: Text, new: &Entry) -> bool {
    let key = target.key_datum(key);
    // SAFETY: the whole call is one sequence of plain values: it opens the relations, writes and
    // closes them.
    let (done, dead) = unsafe {
        guarded(|| {
            let Some(mut writer) = Writer::open(target) else {
                return (false, DeadBytes::default());
            };
            let done = step::put(&mut writer, key, new);
            (done, writer.end())
        })
    };
    dead.emit(target.relation);
    done
}

/// Removes the row under a key that a statement beginning now sees, whatever it holds; the row as
/// it was. An error where the statement must do it.
pub fn remove(target: &Target, key: Text) -> Result<Option<Entry>, UsePlan> {
    let key = target.key_datum(key);
    // SAFETY: the whole call is one sequence of plain values over the writer's open relations.
    let removed = unsafe {
        guarded(|| {
            let mut writer = Writer::open(target)?;
            let removed = step::take(&mut writer, key);
            Some((removed, writer.end()))
        })
    };
    let (removed, dead) = removed.ok_or(UsePlan)?;
    dead.emit(target.relation);
    removed.ok_or(UsePlan)
}

/// Removes rows that were found by `search`, and gives their keys' numbers to `removed`. One that
/// somebody else has changed meanwhile is looked for by its key, which `key_of` makes of its
/// number. False where the statement must do it, all of it: what has been removed already is not
/// there then.
pub fn remove_all(
    target: &Target,
    rows: &[RowPlace],
    key_of: impl Fn(usize) -> Text,
    mut removed: impl FnMut(usize),
) -> bool {
    let Some(mut writer) = Writer::of(target) else {
        return false;
    };
    let done = rows.iter().all(
        |&RowPlace {
             number,
             place,
             dead,
         }| {
            // SAFETY: a sequence of plain values; the writer's relations are open until `close`
            // below.
            let step = unsafe {
                guarded(|| {
                    unguarded::check_for_interrupts();
                    step::remove_unseen(&mut writer, place, dead)
                })
            };
            let gone = match step {
                Step::Done => Some(true),
                Step::Unsupported => None,
                Step::Again => {
                    let key = target.key_datum(key_of(number));
                    // SAFETY: a sequence of plain values over the writer's open relations; `key`
                    // lives through it.
                    unsafe { guarded(|| step::take(&mut writer, key)) }.map(|row| row.is_some())
                }
            };
            if gone == Some(true) {
                removed(number);
            }
            gone.is_some()
        },
    );
    // SAFETY: a sequence of one call, which holds nothing; `possible` has said that nothing runs in
    // parallel, where no command may begin.
    unsafe { guarded(|| unguarded::CommandCounterIncrement()) };
    writer.close();
    done
}

/// Changes the row under a key as `decide` says, which is shown the row or None; gives what it
/// gave. An error where the statement must do it; nothing is changed then.
///
/// With [`Seek::Any`] the row is one that an insertion would conflict with, an uncommitted one is
/// waited for, and it is locked before `decide` sees it. Otherwise it is one that a statement
/// beginning now sees; it is locked when `decide` wants it changed, and asked about again then.
pub fn change<R>(
    target: &Target,
    key: Text,
    seek: Seek,
    mut decide: impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Result<R, UsePlan> {
    let Some(mut writer) = Writer::of(target) else {
        return Err(UsePlan);
    };
    let key = target.key_datum(key);
    let answer = loop {
        match attempt(&mut writer, key, seek, &mut decide) {
            Ok(answer) => break Ok(answer),
            Err(Step::Unsupported) => break Err(UsePlan),
            Err(_) => {}
        }
    };
    writer.close();
    answer
}

/// Finds the row, decides and changes it; an error says why it did not come to that.
fn attempt<R>(
    writer: &mut Writer,
    key: Datum,
    seek: Seek,
    decide: &mut impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Result<R, Step> {
    // SAFETY: a sequence of plain values over the writer's open relations. Between this and the
    // next runs Rust that does not touch the writer; an error that unwinds leaves it to the abort.
    let Some(place) = (unsafe { guarded(|| writer.find(key, seek, true)) }) else {
        let (change, answer) = decide(None);
        // SAFETY: a sequence of plain values over the writer's open relations.
        let done = unsafe { guarded(|| step::make_absent(writer, key, &change)) };
        return settled(done, answer);
    };
    if seek != Seek::Any {
        // SAFETY: a sequence of plain values; the slot holds the row that `find` has just found.
        let row = unsafe { guarded(|| writer.present_row()) };
        if let (RowAction::Keep, answer) = decide(Some(row)) {
            return Ok(answer);
        }
    }
    // SAFETY: a sequence of plain values over the writer's open relations; the lock puts the row
    // into the slot.
    let (locked, row) = unsafe { guarded(|| step::lock(writer, place, seek)) };
    let Some(row) = row else {
        return Err(locked);
    };
    let (change, answer) = decide(Some(row));
    // SAFETY: a sequence of plain values; the slot `present` holds the row that the lock has put
    // there.
    let done = unsafe { guarded(|| step::make(writer, key, place, &change)) };
    settled(done, answer)
}

fn settled<R>(step: Step, answer: R) -> Result<R, Step> {
    match step {
        Step::Done => Ok(answer),
        other => Err(other),
    }
}
