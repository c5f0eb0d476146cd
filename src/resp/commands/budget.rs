//! Bounds the cost of an EXEC before its first command runs. The bound is necessary, because a network process serves
//! no other client while it runs an EXEC. The check comes before the first command, because an EXEC that stopped in the
//! middle would leave a part of its changes.
//!
//! A command costs the bytes that it reads and writes: its arguments, and the values under its keys. The length of a
//! value is computed from its current length and the preceding commands.

use std::collections::HashMap;

use pgcache_resp::{Command, Condition, Parsed, rule};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::entry_access::Call;
use super::served::Served;
use crate::resp::commands::command_error::{CommandError, Done};

/// The maximum number of bytes that the commands of one EXEC may read and write, which take some hundred milliseconds.
const MOST: usize = 128 << 20;
/// The number of values of the longest size that an EXEC may always read or write, even if they exceed `MOST`.
const MOST_VALUES: usize = 4;
/// The cost of a command or of a key, in addition to its bytes.
const EACH: usize = 512;
/// The maximum length of a number in bytes.
const NUMBER: usize = 32;

/// The cost of the commands so far.
pub struct Budget<'c, 't, S> {
    /// The caches of the databases for which the client has a permission. A command on another database is refused, so
    /// it reads no entry.
    calls: &'c [(u32, Call<'t, S>)],
    database: u32,
    /// The maximum length of a value in bytes.
    longest: usize,
    /// The maximum length that the value under each key may have, by the hash of database and key.
    lengths: HashMap<u64, usize>,
    spent: usize,
}

impl<'c, 't, S: Served> Budget<'c, 't, S> {
    pub fn new(
        calls: &'c [(u32, Call<'t, S>)],
        database: u32,
        longest: usize,
    ) -> Budget<'c, 't, S> {
        Budget {
            calls,
            database,
            longest,
            lengths: HashMap::new(),
            spent: 0,
        }
    }

    /// Adds the next command. Returns an error if the commands so far cost too much together.
    pub fn add<'a>(&mut self, command: &Parsed<'_>) -> Done<'a> {
        let bytes: usize = command.args.iter().map(<[u8]>::len).sum();
        let values = self.values(command);
        let cost = bytes.saturating_add(values).saturating_add(EACH);
        self.spent = self.spent.saturating_add(cost);
        let most = MOST.max(self.longest.saturating_mul(MOST_VALUES));
        match self.spent > most {
            true => Err(CommandError::TooMuchInExec),
            false => Ok(()),
        }
    }

    /// Returns the bytes of values that a command reads or writes.
    fn values(&mut self, command: &Parsed<'_>) -> usize {
        match &command.command {
            Command::Set(set) => {
                let plain = !set.get && matches!(set.condition, Condition::Always);
                let former = if plain { 0 } else { self.length(set.key) };
                self.at_least(set.key, set.value.len());
                former
            }
            Command::SetIfAbsent { key, value } => {
                self.at_least(key, value.len());
                0
            }
            Command::GetSet { key, value } => {
                let former = self.length(key);
                self.at_least(key, value.len());
                former
            }
            Command::SetMany { pairs, .. } | Command::SetManyExpire { pairs, .. } => {
                for (key, value) in pairs.pairs() {
                    self.at_least(key, value.len());
                }
                pairs.len() / 2 * EACH
            }
            Command::Append { key, value } => {
                let length = self.length(key).saturating_add(value.len());
                self.at_least(key, length)
            }
            Command::SetRange { key, offset, value } => {
                let offset = usize::try_from(*offset).unwrap_or(0);
                self.at_least(key, offset.saturating_add(value.len()))
            }
            Command::Increment { key, .. } | Command::IncrementFloat { key, .. } => {
                self.at_least(key, NUMBER)
            }
            Command::IncrementWithin(increment) => self.at_least(increment.key, NUMBER),
            Command::Rename { from, to, .. } => {
                let length = self.length(from);
                self.at_least(to, length)
            }
            Command::Copy { from, to, options } => {
                let (length, own) = (self.length(from), self.database);
                if let Ok((Some(other), _)) = options.read(usize::MAX) {
                    self.database = other as u32;
                }
                let length = self.at_least(to, length);
                self.database = own;
                length
            }
            Command::Select { database } => {
                self.database = *database as u32;
                0
            }
            _ => self.keys(command),
        }
    }

    /// Returns the cost of a command that only reads or removes. Counts the keys if the request determines their
    /// number, and the values if the command loads them.
    fn keys(&mut self, command: &Parsed<'_>) -> usize {
        let entry = command.entry;
        let each = if entry.keys.are_many() { EACH } else { 0 };
        let loads = entry.has(rule::LOADS);
        let costs = entry.keys(command.args).map(|key| match loads {
            true => self.length(key) + each,
            false => each,
        });
        costs.fold(0, usize::saturating_add)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, u64::from(self.database))
    }

    /// Returns the maximum length that the value under a key may have.
    fn length(&mut self, key: &[u8]) -> usize {
        let (calls, database) = (self.calls, self.database);
        *self.lengths.entry(self.hash(key)).or_insert_with(|| {
            let call = calls.iter().find(|(number, _)| *number == database);
            call.and_then(|(_, call)| call.length_of(key)).unwrap_or(0)
        })
    }

    /// Returns the maximum length that the value may have after a command that may make it `length` bytes long.
    fn at_least(&mut self, key: &[u8], length: usize) -> usize {
        let length = self.length(key).max(length).min(self.longest);
        self.lengths.insert(self.hash(key), length);
        length
    }
}
