//! Commands on the value of one key: GET, SET, GETEX, APPEND, SETRANGE, INCR and their variants.

use pgcache_resp::{
    Addend, Condition, Expiry, Failure, IncrementWithin, Set, Summed, Writer, integer,
};
use xxhash_rust::xxh3::xxh3_64;

use super::entry_access::{Call, LONGEST, not_an_integer};
use super::served::Served;
use crate::cache::entries::buffers::{Buffers, shown};
use crate::cache::entries::store::{Change, Copied, EntryMeta, If, NewEntry, Value};
use crate::cache::memory::raw::has_deadline;
use crate::pg::catalog::privilege::Privileges;
use crate::resp::commands::command_error::{CommandError, Done};

/// Runs GET.
#[inline]
pub fn get<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let Some(entries) = call.to_read(Privileges::READ)? else {
        out.null();
        return Ok(());
    };
    let seen = call.get(entries, &entries.key(key), &mut buffers.found)?;
    out.bulk_or_null(shown(&seen, &buffers.found));
    Ok(())
}

/// Runs SET and its variants.
pub fn set<'a, S: Served>(
    call: &Call<'_, S>,
    set: &Set<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    // Redis rejects an invalid deadline before it reads the entry.
    let deadline = call.deadline_of(&set.expiry, None, set.command)?;
    call.check_key(set.key)?;
    call.check_value(set.value)?;
    let key = entries.key(set.key);
    let condition = match in_place(set.condition) {
        Some(condition) if !set.get && !matches!(set.expiry, Expiry::Keep) => condition,
        _ => return set_by_old(call, entries, &key, set, buffers, out),
    };
    let new = NewEntry::spelled(set.value, deadline);
    match (entries.put_or_remove(&key, new, condition)?, condition) {
        (true, _) => out.simple("OK"),
        (false, If::Always) => return Err(CommandError::NotCarriedOut),
        (false, _) => out.null(),
    }
    Ok(())
}

/// Returns the condition in a form that can be evaluated in place; None if it needs a copy of the current value.
fn in_place(condition: Condition<'_>) -> Option<If<'_>> {
    Some(match condition {
        Condition::Always => If::Always,
        Condition::Absent => If::Absent,
        Condition::Present => If::Present,
        Condition::Equal(value) => If::Equal(Value::Spelled(value)),
        Condition::NotEqual(value) => If::NotEqual(Value::Spelled(value)),
        Condition::DigestEqual(_) | Condition::DigestNotEqual(_) | Condition::Invalid => {
            return None;
        }
    })
}

/// Returns whether a condition holds for a copy of the current value.
fn allows_copy(condition: Condition<'_>, present: Copied<'_>) -> bool {
    let value = present.and_then(|(seen, value)| (!seen.negative).then_some(value));
    let has_digest =
        |digest: &[u8]| value.is_some_and(|value| digest.eq_ignore_ascii_case(&digest_of(value)));
    match condition {
        Condition::Always => true,
        Condition::Absent => present.is_none(),
        Condition::Present => present.is_some(),
        Condition::Equal(other) => value == Some(other),
        Condition::NotEqual(other) => value != Some(other),
        Condition::DigestEqual(digest) => has_digest(digest),
        Condition::DigestNotEqual(digest) => !has_digest(digest),
        Condition::Invalid => false,
    }
}

fn set_by_old<'a, S: Served>(
    call: &Call<'_, S>,
    entries: &S,
    key: &S::Key<'_>,
    set: &Set<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let (acts, old) = call.change(entries, key, buffers, |present, made| {
        let old = present.map(|(seen, _)| seen);
        if present.is_some() {
            set.condition.check()?;
        }
        if !allows_copy(set.condition, present) {
            return Ok((Change::Keep, (false, old)));
        }
        made.try_reserve(set.value.len())
            .map_err(|_| CommandError::OutOfMemory)?;
        made.extend_from_slice(set.value);
        let deadline = call.deadline_of(&set.expiry, old.as_ref(), set.command)?;
        Ok((Change::Put(deadline), (true, old)))
    })?;
    if set.get {
        call.count_read(entries, old.is_some());
    }
    match (set.get, acts) {
        (true, _) => out.bulk_or_null(shown(&old, &buffers.found)),
        (false, true) => out.simple("OK"),
        (false, false) => out.null(),
    }
    Ok(())
}

/// Runs SETNX.
pub fn set_if_absent<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    value: &[u8],
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    call.check_key(key)?;
    call.check_value(value)?;
    let new = NewEntry::spelled(value, call.default_deadline()?);
    let done = entries.put_or_remove(&entries.key(key), new, If::Absent)?;
    out.integer(i64::from(done));
    Ok(())
}

/// Runs GETSET.
pub fn get_set<'a, S: Served>(
    call: &Call<'_, S>,
    key: &'a [u8],
    value: &'a [u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let command = Set {
        key,
        value,
        condition: Condition::Always,
        expiry: Expiry::Unsaid,
        get: true,
        command: "getset",
    };
    set(call, &command, buffers, out)
}

/// Runs GETDEL.
pub fn get_delete<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::TAKE)?;
    let seen = entries.take(&entries.key(key), buffers)?;
    call.count_read(entries, seen.is_some());
    out.bulk_or_null(shown(&seen, &buffers.found));
    Ok(())
}

/// Runs GETEX.
pub fn get_expire<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    expiry: &Expiry<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let needs = match expiry {
        Expiry::Unsaid | Expiry::Keep => return get(call, key, buffers, out),
        Expiry::Remove => Privileges::WRITE,
        Expiry::At(_) => Privileges::MOVE,
    };
    let entries = call.to_write(needs)?;
    let name = entries.key(key);
    if let Some(deadline) = call.sliding(expiry, "getex")
        && let Some(seen) = entries.get_if_left(&name, deadline, &mut buffers.found)?
    {
        call.count_read(entries, true);
        out.bulk_or_null(shown(&Some(seen), &buffers.found));
        return Ok(());
    }
    // One change reads the value and sets the deadline, so the reply contains the value of the entry that gets the
    // deadline.
    let seen = call.change(entries, &name, buffers, |present, _| {
        let Some((seen, _)) = present else {
            return Ok((Change::Keep, None));
        };
        let deadline = call.deadline_of(expiry, Some(&seen), "getex")?;
        Ok((call.touch(deadline), Some(seen)))
    })?;
    call.count_read(entries, seen.is_some());
    out.bulk_or_null(shown(&seen, &buffers.found));
    Ok(())
}

/// Runs DELEX.
pub fn delete_if<'a, S: Served>(
    call: &Call<'_, S>,
    key: &'a [u8],
    condition: Condition<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let needs = match condition {
        Condition::Always => Privileges::DELETE,
        _ => Privileges::TAKE,
    };
    let entries = call.to_write(needs)?;
    if matches!(condition, Condition::Always) {
        // Runs as DEL, which also voids the lease of an absent key.
        out.integer(entries.delete_each(std::iter::once(key))?);
        return Ok(());
    }
    let removed = call.change(entries, &entries.key(key), buffers, |present, _| {
        if present.is_some() {
            condition.check()?;
        }
        let removes = present.is_some() && allows_copy(condition, present);
        let change = if removes {
            Change::Remove
        } else {
            Change::Keep
        };
        Ok((change, removes))
    })?;
    out.integer(i64::from(removed));
    Ok(())
}

/// Runs DIGEST.
pub fn digest<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let seen = match call.to_read(Privileges::READ)? {
        None => None,
        Some(entries) => call.get(entries, &entries.key(key), &mut buffers.found)?,
    };
    let digest = shown(&seen, &buffers.found).map(digest_of);
    out.bulk_or_null(digest.as_ref().map(|digest| &digest[..]));
    Ok(())
}

/// Returns the XXH3 of a value in 16 hexadecimal digits.
fn digest_of(value: &[u8]) -> [u8; 16] {
    let hash = xxh3_64(value);
    std::array::from_fn(|place| {
        let digit = (hash >> (60 - 4 * place) & 15) as u8;
        if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        }
    })
}

/// Runs STRLEN.
pub fn length<'a, S: Served>(call: &Call<'_, S>, key: &[u8], out: &mut Writer) -> Done<'a> {
    let seen = match call.to_read(Privileges::READ)? {
        None => None,
        Some(entries) => call.counted(entries, entries.look(&entries.key(key))?)?,
    };
    out.integer(seen.map_or(0, |seen| seen.length as i64));
    Ok(())
}

/// Runs APPEND.
pub fn append<'a, S: Served>(
    call: &Call<'_, S>,
    key: &'a [u8],
    piece: &'a [u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    call.check_key(key)?;
    let key = entries.key(key);
    let length = call.change(entries, &key, buffers, |present, made| {
        let old = present.map_or(&[][..], |(_, value)| value);
        let length = old.len() + piece.len();
        make_room(entries, &key, length, made)?;
        made.extend_from_slice(old);
        made.extend_from_slice(piece);
        let deadline = call.deadline_of(&Expiry::Keep, seen_of(&present), "append")?;
        Ok((Change::Put(deadline), length))
    })?;
    out.integer(length as i64);
    Ok(())
}

fn seen_of<'s>(present: &'s Copied<'_>) -> Option<&'s EntryMeta> {
    present.as_ref().map(|(seen, _)| seen)
}

/// Makes room in the buffer for a value of this length. Returns an error if the tier cannot hold the value.
fn make_room<'a, S: Served>(
    entries: &S,
    key: &S::Key<'_>,
    length: usize,
    made: &mut Vec<u8>,
) -> Done<'a> {
    if length as i64 > LONGEST {
        return Err(Failure::TooLong.into());
    }
    entries.check_length(key, length)?;
    made.try_reserve(length)
        .map_err(|_| CommandError::OutOfMemory)
}

/// Runs SETRANGE.
pub fn set_range<'a, S: Served>(
    call: &Call<'_, S>,
    key: &'a [u8],
    offset: i64,
    piece: &'a [u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    if piece.is_empty() {
        return length(call, key, out);
    }
    let entries = call.to_write(Privileges::WRITE)?;
    let end = offset.saturating_add(piece.len() as i64);
    if end > LONGEST {
        return Err(Failure::TooLong.into());
    }
    call.check_key(key)?;
    let key = entries.key(key);
    let (from, end) = (offset as usize, end as usize);
    let length = call.change(entries, &key, buffers, |present, made| {
        let old = present.map_or(&[][..], |(_, value)| value);
        let length = old.len().max(end);
        make_room(entries, &key, length, made)?;
        made.extend_from_slice(old);
        made.resize(length, 0);
        if let Some(place) = made.get_mut(from..end) {
            place.copy_from_slice(piece);
        }
        let deadline = call.deadline_of(&Expiry::Keep, seen_of(&present), "setrange")?;
        Ok((Change::Put(deadline), length))
    })?;
    out.integer(length as i64);
    Ok(())
}

/// Runs GETRANGE.
pub fn get_range<'a, S: Served>(
    call: &Call<'_, S>,
    key: &[u8],
    (from, to): (i64, i64),
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let seen = match call.to_read(Privileges::READ)? {
        None => None,
        Some(entries) => call.get(entries, &entries.key(key), &mut buffers.found)?,
    };
    let value = shown(&seen, &buffers.found).unwrap_or_default();
    out.bulk(range(value, from, to));
    Ok(())
}

/// Returns the bytes from one position to another; a negative position is counted from the end.
fn range(value: &[u8], from: i64, to: i64) -> &[u8] {
    if from < 0 && to < 0 && from > to {
        return b"";
    }
    let length = value.len() as i64;
    let from_start = |place: i64| match place {
        ..0 => length.saturating_add(place).max(0),
        _ => place,
    };
    let (from, to) = (from_start(from), from_start(to).min(length - 1));
    match from <= to {
        true => value.get(from as usize..=to as usize).unwrap_or_default(),
        false => b"",
    }
}

/// Runs INCR and its variants.
pub fn increment<'a, S: Served>(
    call: &Call<'_, S>,
    key: &'a [u8],
    by: i64,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    call.check_key(key)?;
    let sum = call.change(entries, &entries.key(key), buffers, |present, made| {
        let sum = number(&present)?
            .checked_add(by)
            .ok_or(Failure::IncrementOverflow)?;
        made.extend_from_slice(pgcache_resp::Digits::new().of(sum));
        let deadline = call.deadline_of(&Expiry::Keep, seen_of(&present), "incr")?;
        Ok((Change::Put(deadline), sum))
    })?;
    out.integer(sum);
    Ok(())
}

/// Returns the current number, or 0 if the key has no value.
pub fn number<'a>(present: &Copied<'_>) -> Done<'a, i64> {
    match present {
        Some((seen, value)) if !seen.negative => integer(value).ok_or_else(not_an_integer),
        _ => Ok(0),
    }
}

/// Runs INCRBYFLOAT.
pub fn increment_float<'a, S: Served>(
    call: &Call<'_, S>,
    key: &'a [u8],
    by: &'a [u8],
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    call.check_key(key)?;
    call.change(entries, &entries.key(key), buffers, |present, made| {
        let old = present.and_then(|(seen, value)| (!seen.negative).then_some(value));
        let sum = pgcache_resp::add_floats(old.unwrap_or(b"0"), by)?;
        made.extend_from_slice(sum.as_bytes());
        let deadline = call.deadline_of(&Expiry::Keep, seen_of(&present), "incrbyfloat")?;
        Ok((Change::Put(deadline), ()))
    })?;
    out.bulk(&buffers.made);
    Ok(())
}

/// Runs INCREX.
pub fn increment_within<'a, S: Served>(
    call: &Call<'_, S>,
    increment: &IncrementWithin<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let entries = call.to_write(Privileges::WRITE)?;
    // Redis rejects an invalid deadline before it reads the entry.
    if let Expiry::At(_) = increment.expiry {
        call.deadline_of(&increment.expiry, None, "increx")?;
    }
    call.check_key(increment.key)?;
    let key = entries.key(increment.key);
    let sum = call.change(entries, &key, buffers, |present, made| {
        let sum = Sum::of(increment, &present)?;
        let Some(value) = sum.new_value() else {
            return Ok((Change::Keep, sum));
        };
        made.extend_from_slice(value.as_bytes());
        let present = seen_of(&present);
        let keeps = match increment.expiry {
            Expiry::Unsaid => true,
            _ => increment.keeps_deadline && present.is_some_and(has_deadline),
        };
        let expiry = if keeps {
            &Expiry::Keep
        } else {
            &increment.expiry
        };
        let deadline = call.deadline_of(expiry, present, "increx")?;
        Ok((Change::Put(deadline), sum))
    })?;
    out.array(2);
    match sum {
        Sum::Integer { value, applied, .. } => {
            out.integer(value);
            out.integer(applied);
        }
        Sum::Float(summed) => {
            out.double(&summed.value);
            out.double(&summed.applied);
        }
    }
    Ok(())
}

/// The outcome of INCREX.
enum Sum {
    Integer {
        value: i64,
        applied: i64,
        is_new: bool,
    },
    Float(Summed),
}

impl Sum {
    fn of<'a>(increment: &IncrementWithin<'_>, present: &Copied<'_>) -> Done<'a, Sum> {
        let (by, lower, upper) = match increment.by {
            Addend::Integer { by, lower, upper } => (by, lower, upper),
            Addend::Float(sum) => {
                let former = present.and_then(|(seen, value)| (!seen.negative).then_some(value));
                let summed = sum.of(former.unwrap_or(b"0"), increment.saturates)?;
                return Ok(Sum::Float(summed));
            }
        };
        let former = number(present)?;
        let sum = i128::from(former) + i128::from(by);
        let within = sum.clamp(lower.into(), upper.into());
        let is_new = within == sum || increment.saturates;
        let value = if is_new { within } else { former.into() };
        let applied = i64::try_from(value - i128::from(former));
        Ok(Sum::Integer {
            value: i64::try_from(value).map_err(|_| Failure::IncrementOverflow)?,
            applied: applied.map_err(|_| Failure::AppliedOverflow)?,
            is_new,
        })
    }

    /// Returns the value to store; None if the sum was out of bounds.
    fn new_value(&self) -> Option<String> {
        match self {
            Sum::Integer { value, is_new, .. } => is_new.then(|| value.to_string()),
            Sum::Float(summed) => summed.is_new.then(|| summed.value.clone()),
        }
    }
}
