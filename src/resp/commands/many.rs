//! Commands on many keys, such as MGET, DEL and MSET. They run in pieces, between which other clients are served.

use pgcache_resp::{Args, Condition, Expiry, Writer};

use super::entry_access::Call;
use super::served::Served;
use crate::cache::entries::buffers::{Buffers, shown};
use crate::cache::entries::store::{EntryMeta, If, NewEntry};
use crate::pg::catalog::privilege::Privileges;
use crate::pg::shmem::slot::Counter;
use crate::resp::commands::command_error::{CommandError, Done};

/// The maximum number of keys or values that one piece validates.
const JUDGED: usize = 512;

/// The progress of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// The number of keys that are done.
    pub done: usize,
    /// The number of keys that the command has validated. A command may validate all keys before it stores the first
    /// entry.
    judged: usize,
    /// The number of done keys that existed.
    pub hits: i64,
}

/// Returns the next piece of the arguments, and whether it is the last piece. Each key has `each` arguments.
fn piece<'a, S: Served>(args: Args<'a>, progress: &Position, each: usize) -> (Args<'a>, bool) {
    let (rest, room) = (args.from(progress.done * each), S::PIECE * each);
    (rest.first(room), rest.len() <= room)
}

/// Runs MGET.
pub fn get<'a, S: Served>(
    call: &Call<'_, S>,
    keys: Args<'a>,
    progress: &mut Position,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, bool> {
    let before = out.as_bytes().len();
    let is_partial = S::is_partial(call.target);
    // If one key needs the table, all keys are read from the table. So the reply must not have begun, and copies can
    // answer only a command of one piece.
    if is_partial && keys.len() > S::PIECE {
        return Err(CommandError::Table);
    }
    let (part, is_last) = piece::<S>(keys, progress, 1);
    // Once the reply has begun, it must contain an element for each key, even if the cache no longer exists.
    let entries = match call.to_read(Privileges::READ) {
        Err(error) if progress.done > 0 => {
            part.iter().for_each(|_| error.write(out));
            progress.done += part.len();
            return Ok(is_last);
        }
        entries => entries?,
    };
    if progress.done == 0 {
        out.array(keys.len());
    }
    progress.done += part.len();
    let Some(entries) = entries else {
        part.iter().for_each(|_| out.null());
        return Ok(is_last);
    };
    // Copies are read one by one. If a commit changed one of the keys in between, all keys are read from the table
    // instead.
    let epochs = || match is_partial && part.len() > 1 {
        true => part
            .iter()
            .map(|key| entries.epoch(&entries.key(key)))
            .fold(0, u64::wrapping_add),
        false => 0,
    };
    let before_reading = epochs();
    let hits = entries.get_each(part.iter(), buffers, |seen, found| {
        match &seen {
            Ok(None) if is_partial => {
                out.rewind(before);
                return Err(CommandError::Table);
            }
            Ok(seen) => out.bulk_or_null(shown(seen, found)),
            // The reply continues, with an error in place of a value that does not fit in memory.
            Err(_) => out.error(&[b"OOM out of memory for this value"]),
        }
        Ok(seen.is_ok_and(|seen| seen.is_some()))
    })? as u64;
    if epochs() != before_reading {
        out.rewind(before);
        return Err(CommandError::Table);
    }
    count_reads(entries, part, hits);
    Ok(is_last)
}

/// Counts a read of each key.
fn count_reads<S: Served>(entries: &S, keys: Args<'_>, hits: u64) {
    entries.tally(Counter::HotHits, hits);
    entries.tally(Counter::Misses, keys.len() as u64 - hits);
}

/// Runs EXISTS and TOUCH.
pub fn count<'a, S: Served>(
    call: &Call<'_, S>,
    keys: Args<'a>,
    progress: &mut Position,
    out: &mut Writer,
) -> Done<'a, bool> {
    let (part, is_last) = piece::<S>(keys, progress, 1);
    if let Some(entries) = call.to_read(Privileges::READ)? {
        let is_partial = S::is_partial(call.target);
        let hits = entries.look_each(part.iter(), |seen| match seen {
            None if is_partial => Err(CommandError::Table),
            _ => Ok(seen.is_some()),
        })?;
        // Reads are counted only if no key needs the table, because reads from the table are counted there.
        count_reads(entries, part, hits as u64);
        progress.hits += hits;
    }
    progress.done += part.len();
    if is_last {
        out.integer(progress.hits);
    }
    Ok(is_last)
}

/// Runs DEL and UNLINK.
pub fn delete<'a, S: Served>(
    call: &Call<'_, S>,
    keys: Args<'a>,
    progress: &mut Position,
    out: &mut Writer,
) -> Done<'a, bool> {
    call.needs(Privileges::DELETE)?;
    let (part, is_last) = piece::<S>(keys, progress, 1);
    if let Some(entries) = call.to_read(Privileges::DELETE)? {
        entries.open(Privileges::DELETE)?;
        progress.hits += entries.delete_each(part.iter())?;
    }
    progress.done += part.len();
    if is_last {
        out.integer(progress.hits);
    }
    Ok(is_last)
}

/// Runs MSET. Validates all keys and values before it stores the first entry.
pub fn set<'a, S: Served>(
    call: &Call<'_, S>,
    pairs: Args<'a>,
    progress: &mut Position,
    out: &mut Writer,
) -> Done<'a, bool> {
    let entries = call.to_write(Privileges::WRITE)?;
    if progress.judged < pairs.len() / 2 {
        let next = pairs.from(2 * progress.judged).first(2 * JUDGED);
        check(call, entries, next)?;
        progress.judged += next.len() / 2;
        if progress.judged < pairs.len() / 2 {
            return Ok(false);
        }
    }
    let (part, is_last) = piece::<S>(pairs, progress, 2);
    entries.set_all(part.pairs(), call.default_deadline()?, false)?;
    progress.done += part.len() / 2;
    if is_last {
        out.simple("OK");
    }
    Ok(is_last)
}

/// Runs MSETNX, and MSETEX with its options. Runs in one piece, so that no other client of this process is served in
/// between.
pub fn set_if<'a, S: Served>(
    call: &Call<'_, S>,
    pairs: Args<'a>,
    condition: Condition<'a>,
    expiry: &Expiry<'a>,
    command: &'static str,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    let deadline = call.deadline_of(expiry, None, command)?;
    check(call, entries, pairs)?;
    let keys = pairs.pairs().map(|(key, _)| key);
    let is_there = |seen: Option<EntryMeta>| Ok::<_, CommandError<'a>>(seen.is_some());
    let mut acts = true;
    if !matches!(
        (condition, expiry),
        (Condition::Always, Expiry::At(_) | Expiry::Unsaid)
    ) {
        entries.hold(&call.in_order(entries, keys.clone())?)?;
    }
    if !matches!(condition, Condition::Always) {
        let there = entries.look_each(keys.clone(), is_there)? as usize;
        acts = match condition {
            Condition::Absent => there == 0,
            _ => there == keys.len(),
        };
    }
    if acts && matches!(expiry, Expiry::Keep) {
        for (key, value) in pairs.pairs() {
            let key = entries.key(key);
            let seen = entries.look(&key)?;
            let deadline = call.deadline_of(expiry, seen.as_ref(), command)?;
            entries.put_or_remove(&key, NewEntry::spelled(value, deadline), If::Always)?;
        }
    } else if acts {
        let new_only = matches!(condition, Condition::Absent);
        acts = entries.set_all(pairs.pairs(), deadline, new_only)?;
    }
    out.integer(i64::from(acts));
    Ok(())
}

fn check<'a, S: Served>(call: &Call<'_, S>, entries: &S, pairs: Args<'a>) -> Done<'a> {
    for (key, value) in pairs.pairs() {
        call.check_key(key)?;
        call.check_value(value)?;
        entries.check_length(&entries.key(key), value.len())?;
    }
    Ok(())
}
