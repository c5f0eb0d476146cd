//! Runs EVAL, EVALSHA and SCRIPT, without Lua. A fixed table (`script_table`) lists the scripts of common packages, and
//! each of them runs as a native command.
//!
//! A script is identified by the SHA-1 of its text, which EVALSHA also uses. So EVALSHA works without an earlier EVAL,
//! and no script is loaded or kept.
//!
//! A script that changes several keys must run in one piece, so that no other client of this process sees only some of
//! its changes.

use pgcache_resp::{Args, Failure, Writer, integer};
use sha1_smol::Sha1;

use super::entry_access::{Call, unix_deadline};
use super::keys::{change, remove_equal};
use super::script_table::{Native, Script, TABLE};
use super::served::Served;
use super::strings::{self, number};
use crate::cache::entries::buffers::{Buffers, shown};
use crate::cache::entries::store::{Change, EntryMeta, If, NewEntry, Present, Value, is_same_key};
use crate::pg::catalog::privilege::Privileges;
use crate::resp::commands::command_error::{CommandError, Done};

fn find(digest: &[u8]) -> Option<&'static Script> {
    TABLE
        .iter()
        .find(|script| script.digest.as_bytes().eq_ignore_ascii_case(digest))
}

fn of_text(text: &[u8]) -> Option<&'static Script> {
    find(Sha1::from(text).digest().to_string().as_bytes())
}

/// Runs EVAL.
pub fn eval<'a, S: Served>(
    call: &Call<'_, S>,
    args: Args<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let given = Given::read(args)?;
    let script = of_text(args.get(1).unwrap_or_default()).ok_or(CommandError::UnknownScript)?;
    given.run(script.native, call, buffers, out)
}

/// Runs EVALSHA.
pub fn eval_sha<'a, S: Served>(
    call: &Call<'_, S>,
    args: Args<'a>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a> {
    let given = Given::read(args)?;
    let script = find(args.get(1).unwrap_or_default()).ok_or(Failure::NoScript)?;
    given.run(script.native, call, buffers, out)
}

/// Runs SCRIPT LOAD.
pub fn load<'a>(text: &[u8], out: &mut Writer) -> Done<'a> {
    let script = of_text(text).ok_or(CommandError::UnknownScript)?;
    out.bulk(script.digest.as_bytes());
    Ok(())
}

/// Runs SCRIPT EXISTS.
pub fn exist(digests: Args<'_>, out: &mut Writer) {
    out.array(digests.len());
    for digest in digests.iter() {
        out.integer(i64::from(find(digest).is_some()));
    }
}

/// Runs SCRIPT FLUSH, which has no effect, because no script is loaded.
pub fn flush<'a>(options: Args<'a>, out: &mut Writer) -> Done<'a> {
    let is_known = |option: &[u8]| {
        option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync")
    };
    if options.len() > 1 || !options.iter().all(is_known) {
        return Err(CommandError::ScriptFlush);
    }
    out.simple("OK");
    Ok(())
}

/// The keys and arguments of a script.
struct Given<'a> {
    keys: Args<'a>,
    args: Args<'a>,
}

impl<'a> Given<'a> {
    fn read(args: Args<'a>) -> Done<'a, Given<'a>> {
        let count = integer(args.get(2).unwrap_or_default()).ok_or(Failure::NotInteger)?;
        let rest = args.from(3);
        let count = usize::try_from(count).map_err(|_| CommandError::NegativeKeys)?;
        if count > rest.len() {
            return Err(CommandError::TooManyKeys);
        }
        Ok(Given {
            keys: rest.first(count),
            args: rest.from(count),
        })
    }

    /// Returns an argument that the script needs.
    fn arg(&self, index: usize) -> Done<'a, &'a [u8]> {
        self.args.get(index).ok_or(CommandError::ScriptArguments)
    }

    fn key(&self) -> Done<'a, &'a [u8]> {
        match self.keys.len() {
            1 => Ok(self.keys.get(0).unwrap_or_default()),
            _ => Err(CommandError::ScriptArguments),
        }
    }

    fn number(&self, index: usize) -> Done<'a, i64> {
        Ok(integer(self.arg(index)?).ok_or(Failure::NotInteger)?)
    }

    /// Returns the deadline that is as many milliseconds from now as argument `index` says. Returns an error if the
    /// argument is not above zero.
    fn lifetime(
        &self,
        call: &Call<'_, impl Served>,
        index: usize,
        command: &'static str,
    ) -> Done<'a, i64> {
        let amount = self.number(index)?;
        match amount > 0 {
            true => after(call, amount, command),
            false => Err(Failure::ExpireTime(command).into()),
        }
    }

    fn run(
        &self,
        native: Native,
        call: &Call<'_, impl Served>,
        buffers: &mut Buffers,
        out: &mut Writer,
    ) -> Done<'a> {
        match native {
            Native::DeleteEqual => {
                let removed = remove_equal(call, self.key()?, self.arg(0)?)?;
                out.integer(i64::from(removed));
            }
            Native::DeleteEqualEach => {
                let mut removed = 0;
                let entries = call.to_write(Privileges::TAKE)?;
                for key in call.in_order(entries, self.keys.iter())? {
                    removed += i64::from(remove_equal(call, key, self.arg(0)?)?);
                }
                out.integer(removed);
            }
            Native::RenewEqual => {
                let moment = after(call, self.number(1)?, "pexpire")?;
                self.expire_equal(call, buffers, |_| Some(moment), out)?;
            }
            Native::ExpireAtEqual => {
                let moment = call.moment(self.number(1)?, true);
                self.expire_equal(call, buffers, |_| Some(moment), out)?;
            }
            Native::ExtendEqual => self.extend_equal(call, buffers, out)?,
            Native::AcquireAll => self.acquire_all(call, out)?,
            Native::ExtendAll => self.extend_all(call, out)?,
            Native::Acquire => {
                let deadline = self.lifetime(call, 1, "set")?;
                self.acquire(call, deadline, false, out)?;
            }
            Native::AcquireUntil => self.acquire(call, self.moment(call)?, false, out)?,
            Native::SetFor => {
                let deadline = self.lifetime(call, 1, "set")?;
                self.acquire(call, deadline, true, out)?;
            }
            Native::SetUntil => self.acquire(call, self.moment(call)?, true, out)?,
            Native::Add => {
                let seconds = self.number(1)?;
                let milliseconds = seconds.checked_mul(1000).filter(|&amount| amount > 0);
                let amount = milliseconds.ok_or(Failure::ExpireTime("setex"))?;
                self.acquire(call, after(call, amount, "setex")?, false, out)?;
            }
            Native::Increment => {
                strings::increment(call, self.key()?, self.number(0)?, buffers, out)?;
            }
            Native::IncrementExisting => self.increment_existing(call, buffers, out)?,
            Native::CountInWindow => {
                let resets = self.arg(0)? == b"1";
                self.count(call, buffers, (resets, self.number(1)?), false, out)?;
            }
            Native::CountInNewWindow => {
                let resets = self.arg(0)? == b"1";
                self.count(call, buffers, (resets, self.number(1)?), true, out)?;
            }
            Native::CountInFixedWindow => {
                self.count(call, buffers, (false, self.number(0)?), true, out)?;
            }
            Native::ReadWindow => {
                let key = self.key()?;
                let seen = match call.to_read(Privileges::READ)? {
                    None => None,
                    Some(entries) => call.get(entries, &entries.key(key), &mut buffers.found)?,
                };
                out.array(2);
                out.bulk_or_null(shown(&seen, &buffers.found));
                out.integer(left(call, seen.as_ref()));
            }
        }
        Ok(())
    }

    /// Sets another deadline for the key if its value is ARGV[1]. `deadline` computes it from the current entry, or
    /// returns None to leave the entry unchanged.
    fn expire_equal(
        &self,
        call: &Call<'_, impl Served>,
        buffers: &mut Buffers,
        deadline: impl Fn(&EntryMeta) -> Option<i64>,
        out: &mut Writer,
    ) -> Done<'a> {
        let entries = call.to_write(Privileges::MOVE)?;
        let (key, expected) = (entries.key(self.key()?), self.arg(0)?);
        let done = call.change(entries, &key, buffers, |present, _| {
            let equal = present.filter(|(seen, value)| !seen.negative && *value == expected);
            Ok(match equal.and_then(|(seen, _)| deadline(&seen)) {
                Some(deadline) => (call.touch(deadline), true),
                None => (Change::Keep, false),
            })
        })?;
        out.integer(i64::from(done));
        Ok(())
    }

    fn extend_equal(
        &self,
        call: &Call<'_, impl Served>,
        buffers: &mut Buffers,
        out: &mut Writer,
    ) -> Done<'a> {
        let more = self.number(1)?;
        let replaces = self.args.get(2).is_some_and(|replaces| replaces != b"0");
        let now = call.unix_now();
        let deadline = |seen: &EntryMeta| {
            // A key without a deadline is not extended.
            let deadline = unix_deadline(seen)?;
            let from = if replaces { now } else { deadline.max(now) };
            Some(call.moment(from.checked_add(more)?, false))
        };
        self.expire_equal(call, buffers, deadline, out)
    }

    /// Returns the deadline at the time in ARGV[2].
    fn moment(&self, call: &Call<'_, impl Served>) -> Done<'a, i64> {
        match self.number(1)? {
            moment @ 1.. => Ok(call.moment(moment, true)),
            _ => Err(Failure::ExpireTime("set").into()),
        }
    }

    fn acquire(
        &self,
        call: &Call<'_, impl Served>,
        deadline: i64,
        force: bool,
        out: &mut Writer,
    ) -> Done<'a> {
        let entries = call.to_write(Privileges::WRITE)?;
        let (key, value) = (self.key()?, self.arg(0)?);
        call.check_key(key)?;
        call.check_value(value)?;
        let new = NewEntry::spelled(value, deadline);
        let condition = if force { If::Always } else { If::Absent };
        match entries.put_or_remove(&entries.key(key), new, condition)? {
            true => out.simple("OK"),
            false => out.null(),
        }
        Ok(())
    }

    fn acquire_all(&self, call: &Call<'_, impl Served>, out: &mut Writer) -> Done<'a> {
        let entries = call.to_write(Privileges::MOVE)?;
        let deadline = self.lifetime(call, 1, "set")?;
        let value = self.arg(0)?;
        call.check_value(value)?;
        for key in self.keys.iter() {
            call.check_key(key)?;
        }
        if entries.look_each(self.keys.iter(), |seen| {
            Ok::<_, CommandError<'a>>(seen.is_some())
        })? > 0
        {
            out.integer(0);
            return Ok(());
        }
        let mut keys = call.in_order(entries, self.keys.iter())?;
        keys.sort_unstable();
        keys.dedup();
        entries.in_order(&mut keys); // so that the spellings of one key are neighbours
        for (taken, key) in keys.iter().enumerate() {
            let new = NewEntry::spelled(value, deadline);
            let own = keys.get(..taken).unwrap_or_default();
            let is_new = entries.put_or_remove(&entries.key(key), new, If::Absent)?;
            // Either an SQL session has stored the key in between, or the key occurs in two spellings and this script
            // has just stored it.
            let is_own = |own: &&[u8]| is_same_key(entries, own, key);
            if !is_new && !own.last().is_some_and(is_own) {
                for own in own {
                    remove_equal(call, own, self.arg(0)?)?;
                }
                out.integer(0);
                return Ok(());
            }
        }
        out.integer(self.keys.len() as i64);
        Ok(())
    }

    fn extend_all(&self, call: &Call<'_, impl Served>, out: &mut Writer) -> Done<'a> {
        let entries = call.to_write(Privileges::WRITE)?;
        let deadline = self.lifetime(call, 1, "set")?;
        let value = self.arg(0)?;
        let has_it = |entry: &dyn Present| entry.has(&Value::Spelled(value));
        let keys = call.in_order(entries, self.keys.iter())?;
        entries.hold(&keys)?;
        for key in &keys {
            if !entries.look_if(&entries.key(key), has_it)? {
                out.integer(0);
                return Ok(());
            }
        }
        for key in keys {
            if !entries.touch(&entries.key(key), deadline, has_it)? {
                out.integer(0);
                return Ok(());
            }
        }
        out.integer(self.keys.len() as i64);
        Ok(())
    }

    fn increment_existing(
        &self,
        call: &Call<'_, impl Served>,
        buffers: &mut Buffers,
        out: &mut Writer,
    ) -> Done<'a> {
        let by = self.number(0)?;
        let sum = change(call, self.key()?, buffers, |present, made| {
            let Some((seen, _)) = present else {
                return Ok((Change::Keep, None));
            };
            let sum = number(&present)?.checked_add(by);
            let sum = sum.ok_or(Failure::IncrementOverflow)?;
            made.extend_from_slice(pgcache_resp::Digits::new().of(sum));
            Ok((Change::Put(seen.deadline), Some(sum)))
        })?;
        match sum {
            Some(sum) => out.integer(sum),
            None => out.null(),
        }
        Ok(())
    }

    /// Adds one to the count. With `anew`, the count begins at one if no window is running. A window begins now if none
    /// is running or if `resets` is set.
    fn count(
        &self,
        call: &Call<'_, impl Served>,
        buffers: &mut Buffers,
        (resets, window): (bool, i64),
        anew: bool,
        out: &mut Writer,
    ) -> Done<'a> {
        let (hits, left) = change(call, self.key()?, buffers, |present, made| {
            let seen = present.map(|(seen, _)| seen);
            let left = left(call, seen.as_ref());
            let former = match anew && left <= 0 {
                true => 0,
                false => number(&present)?,
            };
            let hits = former.checked_add(1).ok_or(Failure::IncrementOverflow)?;
            made.extend_from_slice(pgcache_resp::Digits::new().of(hits));
            match seen {
                Some(seen) if left > 0 && !resets => Ok((Change::Put(seen.deadline), (hits, left))),
                _ => Ok((Change::Put(after(call, window, "pexpire")?), (hits, window))),
            }
        })?;
        out.array(2);
        out.integer(hits);
        out.integer(left);
        Ok(())
    }
}

/// Returns the remaining time as PTTL does.
fn left(call: &Call<'_, impl Served>, seen: Option<&EntryMeta>) -> i64 {
    match seen.map(unix_deadline) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => (deadline - call.unix_now()).max(0),
    }
}

/// Returns the deadline that is this many milliseconds from now.
fn after<'a, S: Served>(
    call: &Call<'_, S>,
    milliseconds: i64,
    command: &'static str,
) -> Done<'a, i64> {
    let moment = call.unix_now().checked_add(milliseconds);
    let moment = moment.ok_or(Failure::ExpireTime(command))?;
    Ok(call.moment(moment, false))
}
