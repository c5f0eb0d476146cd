//! Runs commands on the entries of a cache, and replies as Redis does.
//!
//! The same code serves memory caches in the event loop of a network process, and tables in a transaction of an
//! executor (`crate::resp::executor::tables`). It reads no socket, knows no other connection and grants no privilege.
//!
//! On memory caches a command never waits, opens no transaction, runs no user-defined code and reads no catalog. A long
//! command returns to the event loop ([`Outcome::More`]) after some 100 µs.

pub mod budget;
pub mod channels;
pub mod command_error;
mod connection_state;
pub mod entry_access;
pub mod get;
mod keys;
pub mod many;
pub mod remote_subscribers;
mod script_table;
mod scripts;
pub mod served;
mod strings;
mod subscriptions;
mod walks;
pub mod watched_rows;

use pgcache_resp::{Args, Command, Condition, Expiry, Failure, Parsed, Writer, rule};

use self::entry_access::Call;
pub use self::keys::copy;
use self::served::Served;
use crate::cache::entries::buffers::{Buffers, with_buffers};
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock::Timestamp;
use crate::resp::auth::command_target::Target;
use crate::resp::commands::command_error::{CommandError, Done};

pub use self::connection_state::{Admitted, Queue, State};
pub use self::watched_rows::WatchedRows;

/// The progress of a command.
#[derive(Debug)]
pub enum Outcome {
    /// The command is answered.
    Done,
    /// A piece is done. [`go_on`] must do the next piece before the connection's next command runs.
    More(Continuation),
    /// Nothing was done or written, because the cache was dropped or lost its slot in the tier. The caller must check
    /// the connection's role and cache again.
    Gone,
    /// The command does not concern entries. Nothing was done or written.
    NotOurs,
    /// Only the table can answer the command. Nothing was done, and the caller must discard output written so far.
    Table,
}

/// The rest of a command.
#[derive(Debug)]
pub struct Continuation(Work);

impl Continuation {
    /// Returns whether the command begins again. If it does, the caller must check the privileges again.
    pub fn begins_anew(&self) -> bool {
        matches!(self.0, Work::Get(get::Position::Begins(_)))
    }

    /// Returns the bytes of memory that the partial reply takes.
    pub fn held(&self) -> usize {
        match &self.0 {
            Work::Get(progress) => progress.held(),
            _ => 0,
        }
    }
}

#[derive(Debug)]
enum Work {
    Begin,
    Get(get::Position),
    Many(many::Position),
    Scan(Option<walks::Scanned>),
    Keys(walks::Found),
    RandomKey(Option<(u64, bool)>),
    Clear(Option<(u64, u64)>),
}

/// Runs a command on the entries of a cache.
#[inline]
pub fn run(
    command: &Parsed<'_>,
    target: &Target,
    state: &mut State,
    clock: Timestamp,
    out: &mut Writer,
) -> Outcome {
    go_on(
        Continuation(Work::Begin),
        command,
        target,
        state,
        clock,
        out,
    )
}

/// Replies to PING with or without a message, and to ECHO, which always has one.
pub fn pong(message: Option<&[u8]>, out: &mut Writer) {
    match message {
        None => out.simple("PONG"),
        Some(message) => out.bulk(message),
    }
}

/// Runs MULTI, DISCARD or UNWATCH, which need no cache.
pub fn on_state(command: &Command<'_>, state: &mut State, out: &mut Writer) {
    let done = match command {
        Command::Multi => state.begin(out),
        Command::Discard => state.discard(out),
        Command::Unwatch => {
            state.unwatch(out);
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(error) = done {
        error.write(out);
    }
}

/// Does the next piece of a command. `command` must be the same as for the earlier pieces.
pub fn go_on(
    continuation: Continuation,
    command: &Parsed<'_>,
    target: &Target,
    state: &mut State,
    clock: Timestamp,
    out: &mut Writer,
) -> Outcome {
    let call = Call::new(target, clock);
    let done = with_buffers(|buffers| piece(continuation.0, command, &call, state, buffers, out));
    match done {
        Ok(Piece::Last) => Outcome::Done,
        Ok(Piece::More(work)) => Outcome::More(Continuation(work)),
        Ok(Piece::NotOurs) => Outcome::NotOurs,
        Err(CommandError::Gone) => Outcome::Gone,
        Err(CommandError::Table) => Outcome::Table,
        Err(error) => {
            error.write(out);
            Outcome::Done
        }
    }
}

/// Writes the reply to a command that no process can run on a table cache.
pub fn write_table(out: &mut Writer) {
    CommandError::Table.write(out);
}

/// Writes the reply to a command whose cache does not exist, as a new check has confirmed.
pub fn write_gone(out: &mut Writer) {
    CommandError::Gone.write(out);
}

/// Returns whether the privileges allow clearing the cache. Writes the error if they do not.
pub fn may_clear(target: &Target, clock: Timestamp, out: &mut Writer) -> bool {
    let needed = Privileges::CLEAR;
    let done = match target.is_table() {
        true if !target.privileges.has(needed) => Err(CommandError::NoRight),
        true => Ok(()),
        false => Call::new(target, clock).needs(needed),
    };
    done.map_err(|error| error.write(out)).is_ok()
}

/// Runs COPY to another database's cache, with `replace` from the command's options.
pub fn copy_between(
    (from, to): (&[u8], &[u8]),
    (target, other): (&Target, &Target),
    replace: bool,
    clock: Timestamp,
    out: &mut Writer,
) -> Outcome {
    let (call, other) = (Call::new(target, clock), Call::new(other, clock));
    match with_buffers(|buffers| keys::copy(&call, from, &other, to, replace, buffers, out)) {
        Ok(()) => Outcome::Done,
        Err(CommandError::Gone) => Outcome::Gone,
        Err(error) => {
            error.write(out);
            Outcome::Done
        }
    }
}

fn piece<'a>(
    work: Work,
    command: &Parsed<'a>,
    call: &Call,
    state: &mut State,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, Piece<Work>> {
    match &command.command {
        Command::Get { key } => {
            let progress = match work {
                Work::Get(progress) => progress,
                _ => get::Position::Begins(0),
            };
            return Ok(match get::get(call, key, progress, buffers, out)? {
                Some(progress) => Piece::More(Work::Get(progress)),
                None => Piece::Last,
            });
        }
        Command::Count => {
            let entries = call.to_read(Privileges::READ)?;
            let count = entries.map_or(0, |entries| entries.count());
            out.integer(i64::try_from(count).unwrap_or(i64::MAX));
        }
        Command::Scan(_) | Command::Keys { .. } | Command::RandomKey | Command::Clear { .. } => {
            return walk(work, command, call, out);
        }

        Command::Watch { keys } => state.watch(call, *keys, out)?,
        _ => {
            let mut progress = match work {
                Work::Many(progress) => progress,
                _ => many::Position::default(),
            };
            return Ok(match on_keys(command, call, &mut progress, buffers, out)? {
                Piece::Last => Piece::Last,
                Piece::More(()) => Piece::More(Work::Many(progress)),
                Piece::NotOurs => Piece::NotOurs,
            });
        }
    }
    Ok(Piece::Last)
}

/// The result of one piece of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<Rest = ()> {
    /// The command is answered.
    Last,
    More(Rest),
    /// The command does not concern entries. Nothing was done or written.
    NotOurs,
}

/// Does the next piece of a command on some keys, for any kind of entries.
#[inline]
pub fn on_keys<'a, S: Served>(
    command: &Parsed<'a>,
    call: &Call<'_, S>,
    progress: &mut many::Position,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, Piece> {
    match &command.command {
        Command::Get { key } => strings::get(call, key, buffers, out)?,
        Command::Set(set) => strings::set(call, set, buffers, out)?,
        Command::SetIfAbsent { key, value } => strings::set_if_absent(call, key, value, out)?,
        Command::GetSet { key, value } => strings::get_set(call, key, value, buffers, out)?,
        Command::GetDelete { key } => strings::get_delete(call, key, buffers, out)?,
        Command::GetExpire { key, expiry } => strings::get_expire(call, key, expiry, buffers, out)?,
        Command::Append { key, value } => strings::append(call, key, value, buffers, out)?,
        Command::Length { key } => strings::length(call, key, out)?,
        Command::GetRange { key, from, to } => {
            strings::get_range(call, key, (*from, *to), buffers, out)?
        }
        Command::SetRange { key, offset, value } => {
            strings::set_range(call, key, *offset, value, buffers, out)?
        }
        Command::Increment { key, by } => strings::increment(call, key, *by, buffers, out)?,
        Command::IncrementFloat { key, by } => {
            strings::increment_float(call, key, by, buffers, out)?
        }
        Command::IncrementWithin(increment) => {
            strings::increment_within(call, increment, buffers, out)?
        }
        Command::DeleteIf { key, condition } => {
            strings::delete_if(call, key, *condition, buffers, out)?
        }
        Command::Digest { key } => strings::digest(call, key, buffers, out)?,

        Command::GetMany { .. }
        | Command::SetMany {
            if_absent: false, ..
        }
        | Command::Delete { .. }
        | Command::Exists { .. }
        | Command::Touch { .. } => return many(command, call, progress, buffers, out),
        Command::SetMany {
            pairs,
            if_absent: true,
        } => {
            let (condition, expiry) = (Condition::Absent, Expiry::Unsaid);
            many::set_if(call, *pairs, condition, &expiry, "msetnx", out)?
        }
        Command::SetManyExpire {
            pairs,
            condition,
            expiry,
        } => many::set_if(call, *pairs, *condition, expiry, "msetex", out)?,

        Command::Type { key } => keys::kind(call, key, out)?,
        Command::Expire {
            key,
            lifetime,
            when,
            command,
        } => keys::expire(call, key, lifetime, *when, command, out)?,
        Command::TimeLeft { key, unit } => keys::deadline(call, key, *unit, false, out)?,
        Command::Deadline { key, unit } => keys::deadline(call, key, *unit, true, out)?,
        Command::Persist { key } => keys::persist(call, key, out)?,
        Command::Rename {
            from,
            to,
            if_absent,
        } => keys::rename(call, from, to, *if_absent, buffers, out)?,
        Command::Copy { from, to, options } => {
            let (_, replace) = options.read(usize::MAX)?;
            keys::copy(call, from, call, to, replace, buffers, out)?
        }

        Command::Other => return other(command, call, buffers, out),
        _ => return Ok(Piece::NotOurs),
    }
    Ok(Piece::Last)
}

/// Returns whether copies of a table's entries can answer a command. They cannot if the command has too many keys for
/// one piece: the reply could begin before the command reaches a key that only the table has.
pub fn fits_copies(command: &Parsed<'_>) -> bool {
    command.entry.has(rule::COPIES)
        && command.entry.key_places(command.args).count() <= served::PIECE
}

fn many<'a, S: Served>(
    command: &Command<'a>,
    call: &Call<'_, S>,
    progress: &mut many::Position,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, Piece> {
    let is_last = match command {
        Command::GetMany { keys } => many::get(call, *keys, progress, buffers, out)?,
        Command::SetMany { pairs, .. } => many::set(call, *pairs, progress, out)?,
        Command::Delete { keys } => many::delete(call, *keys, progress, out)?,
        Command::Exists { keys } | Command::Touch { keys } => {
            many::count(call, *keys, progress, out)?
        }
        _ => return Ok(Piece::NotOurs),
    };
    Ok(match is_last {
        true => Piece::Last,
        false => Piece::More(()),
    })
}

fn walk<'a>(
    work: Work,
    command: &Command<'a>,
    call: &Call,
    out: &mut Writer,
) -> Done<'a, Piece<Work>> {
    let (is_last, work) = match (command, work) {
        (Command::Scan(scan), work) => {
            let mut progress = match work {
                Work::Scan(progress) => progress,
                _ => None,
            };
            let is_last = walks::scan(call, scan, &mut progress, out)?;
            (is_last, Work::Scan(progress))
        }
        (Command::Keys { pattern }, work) => {
            let mut found = match work {
                Work::Keys(found) => found,
                _ => walks::Found::default(),
            };
            let is_last = walks::keys(call, pattern, &mut found, out)?;
            (is_last, Work::Keys(found))
        }
        (Command::RandomKey, work) => {
            let mut progress = match work {
                Work::RandomKey(progress) => progress,
                _ => None,
            };
            let is_last = walks::random_key(call, &mut progress, out)?;
            (is_last, Work::RandomKey(progress))
        }
        (_, work) => {
            let mut progress = match work {
                Work::Clear(progress) => progress,
                _ => None,
            };
            let is_last = walks::clear(call, &mut progress, out)?;
            (is_last, Work::Clear(progress))
        }
    };
    Ok(match is_last {
        true => Piece::Last,
        false => Piece::More(work),
    })
}

/// Runs subcommands and scripts.
fn other<'a, S: Served>(
    command: &Parsed<'a>,
    call: &Call<'_, S>,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, Piece> {
    let (entry, args) = (command.entry, command.args);
    let key = args.get(2).unwrap_or_default();
    match entry.name {
        "object|encoding" | "object|freq" | "object|idletime" | "object|refcount" => {
            keys::object(call, entry.last_name(), key, buffers, out)?;
        }
        "memory|usage" => {
            samples(args.from(3))?;
            keys::usage(call, key, out)?;
        }
        "eval" => scripts::eval(call, args, buffers, out)?,
        "evalsha" => scripts::eval_sha(call, args, buffers, out)?,
        "script|load" => scripts::load(key, out)?,
        "script|exists" => scripts::exist(args.from(2), out),
        "script|flush" => scripts::flush(args.from(2), out)?,
        _ => return Ok(Piece::NotOurs),
    }
    Ok(Piece::Last)
}

/// Checks the option of MEMORY USAGE, which sets how many elements of a list to sample. It has no effect, because no
/// cache holds lists.
fn samples(mut options: Args<'_>) -> Done<'_> {
    while let Some(option) = options.get(0) {
        let number = options
            .get(1)
            .filter(|_| option.eq_ignore_ascii_case(b"samples"));
        let number = number.ok_or(Failure::Syntax)?;
        let number = pgcache_resp::integer(number).ok_or(Failure::NotInteger)?;
        if number < 0 {
            return Err(Failure::Syntax.into());
        }
        options = options.from(2);
    }
    Ok(())
}
