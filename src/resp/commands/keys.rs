//! Commands on one or two keys that do not depend on the values: TYPE, EXPIRE, TTL, PERSIST, RENAME, COPY, OBJECT and
//! others.

use std::iter;

use pgcache_resp::{Failure, Lifetime, Unit, When, Writer, integer};
use pgcache_store::NO_DEADLINE;

use super::entry_access::{Call, unix_deadline};
use super::served::Served;
use crate::cache::entries::buffers::{Buffers, value};
use crate::cache::entries::store::{
    Change, Copied, EntryMeta, If, NewEntry, Present, Value, is_same_key, is_unchanged,
};
use crate::cache::memory::raw::has_deadline;
use crate::pg::catalog::privilege::Privileges;
use crate::resp::commands::command_error::{CommandError, Done};

/// Returns the metadata of an entry, and counts a read; None if the key has no entry.
fn look<'a, S: Served>(call: &Call<'_, S>, key: &[u8]) -> Done<'a, Option<EntryMeta>> {
    Ok(match call.to_read(Privileges::READ)? {
        None => None,
        Some(entries) => call.counted(entries, entries.look(&entries.key(key))?)?,
    })
}

/// Runs TYPE.
pub fn kind<'a, S: Served>(call: &Call<'_, S>, key: &[u8], out: &mut Writer) -> Done<'a> {
    out.simple(match look(call, key)? {
        Some(_) => "string",
        None => "none",
    });
    Ok(())
}

/// Runs EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
pub fn expire<'a, S: Served>(
    call: &Call<'_, S>,
    name: &'a [u8],
    lifetime: &Lifetime<'a>,
    when: When,
    command: &'static str,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::MOVE)?;
    let moment = lifetime.any_deadline(call.unix_now(), command)?;
    let deadline = call.moment(moment, lifetime.absolute);
    let key = entries.key(name);
    let allows = |entry: &dyn Present| when.allows(unix_deadline(&entry.meta()), moment);
    let done = match moment <= call.unix_now() {
        // Deletes the key even if it has no entry, so that a fetch that has already begun stores nothing.
        true if when.is_always() => entries.delete_each(iter::once(name))? > 0,
        true => entries.remove(&key, allows)?,
        false if when.is_always() && !lifetime.absolute => entries.slide(&key, deadline)?,
        false => entries.touch(&key, deadline, allows)?,
    };
    out.integer(i64::from(done));
    Ok(())
}

/// Runs TTL and PTTL, and EXPIRETIME and PEXPIRETIME, which return the deadline as a time.
pub fn deadline<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    unit: Unit,
    is_moment: bool,
    out: &mut Writer,
) -> Done<'a> {
    let seen = look(call, key)?;
    let from = if is_moment { 0 } else { call.unix_now() };
    out.integer(match (seen.map(|seen| unix_deadline(&seen)), unit) {
        (None, _) => -2,
        (Some(None), _) => -1,
        (Some(Some(deadline)), Unit::Milliseconds) => (deadline - from).max(0),
        (Some(Some(deadline)), Unit::Seconds) => ((deadline - from).max(0) + 500) / 1000,
    });
    Ok(())
}

/// Runs PERSIST.
pub fn persist<'a, S: Served>(call: &Call<'_, S>, key: &[u8], out: &mut Writer) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    let has = |entry: &dyn Present| has_deadline(&entry.meta());
    let done = entries.touch(&entries.key(key), NO_DEADLINE, has)?;
    out.integer(i64::from(done));
    Ok(())
}

/// Runs RENAME and RENAMENX. The two entries change one after the other, so an SQL session may find both entries in
/// between.
pub fn rename<'a, S: Served>(
    call: &Call<'_, S>,
    from: &'a [u8],
    to: &'a [u8],
    if_absent: bool,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::MOVE)?;
    entries.hold(&[from, to])?;
    let (from_key, to_key) = (entries.key(from), entries.key(to));
    let is_same = is_same_key(entries, from, to);
    let renamed = loop {
        let Some(seen) = entries.get(&from_key, &mut buffers.found)? else {
            return Err(Failure::NoSuchKey.into());
        };
        if is_same {
            break false;
        }
        call.check_key(to)?;
        let new = new_of(&seen, &buffers.found);
        let condition = if if_absent { If::Absent } else { If::Always };
        if !entries.put_or_remove(&to_key, new, condition)? {
            break false;
        }
        // If the entry changes after this copy, nothing is removed, and the next round renames the changed entry.
        let copied = Some((seen, value(&seen, &buffers.found)));
        let is_it = |entry: &dyn Present| is_unchanged(Some(entry), copied);
        if entries.remove(&from_key, is_it)? {
            break true;
        }
        entries.remove(&to_key, is_it)?;
    };
    match if_absent {
        true => out.integer(i64::from(renamed)),
        false => out.simple("OK"),
    }
    Ok(())
}

/// Returns the entry to store under another key.
fn new_of<'b>(seen: &EntryMeta, found: &'b [u8]) -> NewEntry<'b> {
    NewEntry {
        value: (!seen.negative).then(|| Value::Spelled(value(seen, found))),
        deadline: seen.deadline,
    }
}

/// Runs COPY within one cache or to another cache.
pub fn copy<'a, S: Served, T: Served>(
    call: &Call<'_, S>,
    from: &'a [u8],
    other: &Call<'_, T>,
    to: &'a [u8],
    replace: bool,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let same_cache = call.target.cache.id == other.target.cache.id;
    if same_cache && from == to {
        return Err(Failure::SameObject.into());
    }
    let source = call.to_read(Privileges::READ)?;
    let entries = other.to_write(Privileges::WRITE)?;
    if same_cache && is_same_key(entries, from, to) {
        return Err(Failure::SameObject.into());
    }
    let seen = match source {
        None => None,
        Some(source) => call.get(source, &source.key(from), &mut buffers.found)?,
    };
    let Some(seen) = seen else {
        out.integer(0);
        return Ok(());
    };
    other.check_key(to)?;
    let new = new_of(&seen, &buffers.found);
    other.check_value(value(&seen, &buffers.found))?;
    let condition = if replace { If::Always } else { If::Absent };
    let done = entries.put_or_remove(&entries.key(to), new, condition)?;
    out.integer(i64::from(done));
    Ok(())
}

/// Runs the subcommands of OBJECT that name a key.
pub fn object<'a, S: Served>(
    call: &Call<'_, S>,
    question: &str,
    key: &[u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let Some(entries) = call.to_read(Privileges::READ)? else {
        out.null();
        return Ok(());
    };
    if entries.look(&entries.key(key))?.is_none() {
        out.null();
        return Ok(());
    }
    match question {
        // Redis reports its internal representation, from which programs estimate the memory of a value.
        "encoding" => {
            let seen = entries.get(&entries.key(key), &mut buffers.found)?;
            let found = seen.map_or(&[][..], |seen| value(&seen, &buffers.found));
            out.bulk(match found.len() {
                1..=20 if integer(found).is_some() => b"int",
                ..=44 => b"embstr",
                _ => b"raw",
            });
        }
        "freq" => out.integer(i64::from(entries.use_rank(&entries.key(key)))),
        "refcount" => out.integer(1),
        _ => return Err(CommandError::NoIdleTime),
    }
    Ok(())
}

/// Runs MEMORY USAGE.
pub fn usage<'a, S: Served>(call: &Call<'_, S>, key: &[u8], out: &mut Writer) -> Done<'a> {
    let size = match call.to_read(Privileges::READ)? {
        None => None,
        Some(entries) => entries.size(&entries.key(key))?,
    };
    match size {
        Some(size) => out.integer(i64::try_from(size).unwrap_or(i64::MAX)),
        None => out.null(),
    }
    Ok(())
}

/// Removes an entry if it has this value. Returns whether it was removed. Scripts use this.
pub fn remove_equal<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    expected: &[u8],
) -> Done<'a, bool> {
    let entries = call.to_write(Privileges::TAKE)?;
    let condition = If::Equal(Value::Spelled(expected));
    Ok(entries.remove_if(&entries.key(key), condition)?)
}

/// Changes an entry depending on its current state; see [`crate::cache::entries::store::Store::change`]. Scripts use
/// this.
pub fn change<'a, S: Served, R>(
    call: &Call<'_, S>,
    key: &[u8],
    buffers: &mut Buffers,
    decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Done<'a, (Change, R)>,
) -> Done<'a, R> {
    let entries = call.to_write(Privileges::MOVE)?;
    call.check_key(key)?;
    entries.change(&entries.key(key), buffers, decide)
}
