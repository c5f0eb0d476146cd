//! Writes rows of a table by key, without Postgres' executor.
//!
//! The effect is that of `INSERT ... ON CONFLICT (key) DO UPDATE`, `UPDATE` and `DELETE ... WHERE key = $1`. A direct
//! write works only for a [`Target`] that is `writable`, under READ COMMITTED, with an active snapshot, and outside
//! parallel mode ([`possible`]). The caller holds RowExclusiveLock on the table, and records the changed key itself,
//! because the trigger does not fire.
//!
//! These rules make concurrent writers of one key safe:
//!
//! - The position of a row comes from an index scan and is a hint. Between the scan and the change, another transaction
//!   may move, lock or delete the row. The change waits for that transaction, in the same queue as every writer. If
//!   that transaction has changed the row, the change fails with TM_Updated or TM_Deleted, and the loop starts again.
//! - An empty result of a scan is a hint, too, because a scan can miss a row that moves during it. The speculative
//!   insertion decides: if the index already has the key, the writer removes the new row, and the loop starts again.
//! - No other row can take a position between the scan and the change: the active snapshot is older than the scan, and
//!   VACUUM keeps all rows that were alive at the snapshot.
//! - No index page stays pinned during a wait, because VACUUM would wait, too. Only the table page that is being
//!   updated stays pinned, as for any writer.
//!
//! This file chooses and repeats the steps. `step` holds the steps, `writer` the open objects, and `new_row` the rows
//! to write.

mod new_row;
mod step;
mod writer;

use pgrx::pg_sys::Datum;

pub use self::new_row::RowAction;
use self::step::Step;
pub use self::writer::Seek;
use self::writer::Writer;
use super::index_read::UsePlan;
use super::row_positions::RowPlace;
use super::target::Target;
use crate::pg::events::DeadBytes;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::session::{self, lock};
use crate::pg::value::datum::Text;
use crate::pg::value::stored::Entry;

/// Returns whether the current transaction can write without Postgres' executor.
pub fn possible() -> bool {
    // SAFETY: reads a variable of this process and raises nothing.
    !lock::one_snapshot_per_transaction()
        && !session::in_parallel_mode()
        && unsafe { unguarded::ActiveSnapshotSet() }
}

/// Inserts or overwrites rows in the given order, and calls `written` with the index of each. Returns false if the
/// caller must run the statement for all rows instead; the statement overwrites the rows written so far.
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

/// Inserts or overwrites one row. Returns false if the caller must run the statement instead.
pub fn put_one(target: &Target, key: Text, new: &Entry) -> bool {
    let key = target.key_datum(key);
    // SAFETY: the whole call is one sequence of plain values: it opens the relations, writes and closes them.
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

/// Removes the row under a key that a statement beginning now would see, even if the row has expired. Returns the
/// removed row, or an error if the caller must run the statement instead.
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

/// Removes the rows that `search` has found, and calls `removed` with the index of each row's key. If another
/// transaction has changed a row after the search, looks up the row again by its key; `key_of` returns the key with an
/// index. Returns false if the caller must run the statement for all rows, of which some may already be removed.
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
            // SAFETY: a sequence of plain values; the writer's relations are open until `close` below.
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
                    // SAFETY: a sequence of plain values over the writer's open relations; `key` lives through it.
                    unsafe { guarded(|| step::take(&mut writer, key)) }.map(|row| row.is_some())
                }
            };
            if gone == Some(true) {
                removed(number);
            }
            gone.is_some()
        },
    );
    // SAFETY: a sequence of one call, which holds nothing to drop; the caller has excluded parallel mode with
    // `possible`, so a command may begin.
    unsafe { guarded(|| unguarded::CommandCounterIncrement()) };
    writer.close();
    done
}

/// Changes the row under a key. `decide` receives the row, or None if no row exists, and returns the change and an
/// answer. Returns the answer, or an error if the caller must run the statement instead; in this case no row has
/// changed.
///
/// With [`Seek::Any`] this is the row with which an insertion would conflict: the call waits for an uncommitted row,
/// and locks the row before it calls `decide`. Otherwise it is the row that a statement beginning now would see: the
/// call locks it only if `decide` returns a change, and calls `decide` again after the lock.
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

/// Finds the row, calls `decide`, and changes the row. Returns the step that failed if the row was not changed.
fn attempt<R>(
    writer: &mut Writer,
    key: Datum,
    seek: Seek,
    decide: &mut impl FnMut(Option<Entry>) -> (RowAction, R),
) -> Result<R, Step> {
    // SAFETY: a sequence of plain values over the writer's open relations. The Rust code between this sequence and the
    // next does not touch the writer; an error that unwinds leaves the writer to the abort.
    let Some(place) = (unsafe { guarded(|| writer.find(key, seek, true)) }) else {
        let (change, answer) = decide(None);
        // SAFETY: a sequence of plain values over the writer's open relations.
        let done = unsafe { guarded(|| step::make_absent(writer, key, &change)) };
        return settled(done, answer);
    };
    if seek != Seek::Any {
        // SAFETY: a sequence of plain values; the slot holds the row that `find` found.
        let row = unsafe { guarded(|| writer.present_row()) };
        if let (RowAction::Keep, answer) = decide(Some(row)) {
            return Ok(answer);
        }
    }
    // SAFETY: a sequence of plain values over the writer's open relations; the lock puts the row into the slot.
    let (locked, row) = unsafe { guarded(|| step::lock(writer, place, seek)) };
    let Some(row) = row else {
        return Err(locked);
    };
    let (change, answer) = decide(Some(row));
    // SAFETY: a sequence of plain values; the slot `present` holds the row that the lock put there.
    let done = unsafe { guarded(|| step::make(writer, key, place, &change)) };
    settled(done, answer)
}

fn settled<R>(step: Step, answer: R) -> Result<R, Step> {
    match step {
        Step::Done => Ok(answer),
        other => Err(other),
    }
}
