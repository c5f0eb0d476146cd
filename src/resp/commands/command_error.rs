//! The errors of commands on entries: Redis' own errors, and errors that only a cache in Postgres has.
//!
//! A message contains no key and no value, because messages reach the log.

use pgcache_resp::{Failure, Writer, write_verbatim_error};

use pgrx::PgLogLevel;
use pgrx::pg_sys::panic::ErrorReport;

use crate::cache::entries::store::{Failed, OutOfMemory};
use crate::error::Error;

/// The page that lists the supported commands and scripts.
const PAGE: &str = "docs/door.md";

pub type Done<'a, T = ()> = Result<T, CommandError<'a>>;

/// The reason why a command was not run.
#[derive(Debug)]
pub enum CommandError<'a> {
    /// One of Redis' own errors.
    Redis(Failure<'a>),
    /// The role lacks a privilege on the cache.
    NoRight,
    /// SQL could not read the key.
    Key,
    /// The cache holds text, and the bytes are not valid text.
    NotText,
    /// The memory cache holds jsonb, which this protocol does not support.
    Json,
    /// The command needs the table, and a network process has only the copies in the tier.
    Table,
    /// An error that the operation on the entries returned.
    Own(Box<Error>),
    /// The server or the transaction is read-only.
    ReadOnly,
    /// A row-level security policy or a trigger of the table prevented the write.
    NotCarriedOut,
    /// The cache has watchers (`cache_watch`), which a write through the Redis protocol would not notify.
    Watched,
    /// The hot tier cannot hold the entry.
    TooLarge,
    /// The cache was dropped, or has no slot in the tier.
    Gone,
    OutOfMemory,
    /// EVAL of a script that is not in the table of supported scripts.
    UnknownScript,
    /// A known script got the wrong number of keys or arguments.
    ScriptArguments,
    /// The number of keys exceeds the number of arguments.
    TooManyKeys,
    NegativeKeys,
    ScriptFlush,
    /// OBJECT IDLETIME, which Redis supports only under some eviction policies.
    NoIdleTime,
    /// The requests that the connection has queued exceed its limit.
    TooMuchKept,
    /// The commands of an EXEC would read and write too many bytes.
    TooMuchInExec,
    /// An EXEC would change one key of a table too many times.
    TooManyChanges,
    TooManyWatched,
    TooManyChannels,
    /// The name of a channel, or a pattern, is too long.
    LongName,
    /// Comparing the name with all patterns takes too long.
    ComplexPatterns,
    /// A message has subscribers in another network process, but does not fit in the ring.
    TooLongForOthers,
}

impl<'a> From<Failure<'a>> for CommandError<'a> {
    fn from(failure: Failure<'a>) -> Self {
        CommandError::Redis(failure)
    }
}

impl From<OutOfMemory> for CommandError<'_> {
    fn from(_: OutOfMemory) -> Self {
        CommandError::OutOfMemory
    }
}

/// Converts an error of the entries to a reply. Raises an error that the client did not cause; the tier returns no such
/// error.
impl From<Error> for CommandError<'_> {
    fn from(error: Error) -> Self {
        match error {
            Error::EntryTooLarge(_) => CommandError::TooLarge,
            Error::NoSuchRelation(_) | Error::NotACache(_) | Error::NoTier | Error::NoSlot => {
                CommandError::Gone
            }
            Error::NotText => CommandError::NotText,
            Error::NotJson
            | Error::UnknownCharacter
            | Error::KeyBeyondColumn
            | Error::GeneratedColumns => CommandError::Own(Box::new(error)),
            _ => {
                ErrorReport::from(error).report(PgLogLevel::ERROR); // does not return
                CommandError::Gone
            }
        }
    }
}

impl From<Failed> for CommandError<'_> {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Gone => CommandError::Gone,
            Failed::Key => CommandError::Key,
            Failed::OutOfMemory => CommandError::OutOfMemory,
            Failed::NotCarriedOut => CommandError::NotCarriedOut,
            Failed::NotOpen => CommandError::Table,
            Failed::Error(error) => CommandError::from(error),
        }
    }
}

impl CommandError<'_> {
    /// Writes the reply.
    pub fn write(&self, replies: &mut Writer) {
        let words = match self {
            CommandError::Redis(failure) => return failure.write(replies),
            CommandError::NoRight => {
                let words = "No permissions to access a key";
                return write_verbatim_error("NOPERM", words, replies);
            }
            CommandError::OutOfMemory => {
                let words = "out of memory for this command";
                return write_verbatim_error("OOM", words, replies);
            }
            CommandError::ReadOnly => {
                let words = "You can't write against a read only replica.";
                return write_verbatim_error("READONLY", words, replies);
            }
            CommandError::Own(error) => {
                return write_verbatim_error("ERR", &error.message(), replies);
            }
            CommandError::Key => {
                "a key must have 1 to 2048 bytes and be valid text in the server encoding"
            }
            CommandError::NotText => {
                "value is not valid text in the server encoding, which this cache needs; a cache of value_type bytea accepts any bytes"
            }
            CommandError::Json => {
                "memory caches of value_type jsonb are not supported by this protocol; use a table cache, or value_type bytea or text"
            }
            CommandError::Table => {
                let words = format!("this command is not supported on a table cache: see {PAGE}");
                return write_verbatim_error("ERR", &words, replies);
            }
            CommandError::Watched => {
                "this memory cache is watched with cache_watch(), and a write by this protocol would not notify the watchers; write to it with SQL"
            }
            CommandError::NotCarriedOut => {
                "a row-level security policy or a trigger of the table prevented this change"
            }
            CommandError::TooLarge => {
                "the entry does not fit in the hot tier; raise pgcache.hot_max_value or pgcache.hot_size"
            }
            CommandError::Gone => "the cache of this database is no longer available",
            CommandError::UnknownScript => {
                let page = format!(
                    "this server does not run Lua, only the scripts that {PAGE} lists, and this script is not one of them"
                );
                return write_verbatim_error("ERR", &page, replies);
            }
            CommandError::ScriptArguments => "wrong number of keys or arguments for this script",
            CommandError::TooManyKeys => "Number of keys can't be greater than number of args",
            CommandError::NegativeKeys => "Number of keys can't be negative",
            CommandError::ScriptFlush => "SCRIPT FLUSH only support SYNC|ASYNC option",
            CommandError::NoIdleTime => {
                "An LFU maxmemory policy is selected, idle time not tracked. Please note that \
                 when switching between policies at runtime LRU and LFU data will take some time to adjust."
            }
            CommandError::TooManyChannels => {
                "a connection can subscribe to at most 4096 channels, with names of at most 1 MB in total"
            }
            CommandError::LongName => {
                "the name of a channel, or a pattern, can have at most 2048 bytes"
            }
            CommandError::ComplexPatterns => {
                "comparing the name with all patterns takes too long: use a shorter name, or fewer and simpler patterns"
            }
            CommandError::TooLongForOthers => {
                "a message to clients of another process can have at most 1 MB, including the name of its channel"
            }
            CommandError::TooMuchInExec => {
                let words = "Transaction discarded because its commands would read and write more than 128 MB; each command also counts as 512 bytes";
                return write_verbatim_error("EXECABORT", words, replies);
            }
            CommandError::TooManyChanges => {
                let words = "Transaction discarded because it would change one key of a table more than 4096 times";
                return write_verbatim_error("EXECABORT", words, replies);
            }
            CommandError::TooManyWatched => "a connection can watch at most 4096 keys",
            CommandError::TooMuchKept => {
                "the transaction is too long; raise pgcache.resp_max_request"
            }
        };
        write_verbatim_error("ERR", words, replies);
    }
}
