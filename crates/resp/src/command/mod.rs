//! Parses commands and their arguments as Redis does. Checks arguments in the same order as Redis, so that it returns
//! the same error.
//!
//! The module makes no check that needs an entry or the clock, such as whether a deadline overflows
//! ([`Lifetime::deadline`]), or whether the amount of a GETEX is valid if the key does not exist. Arguments that need
//! such a check stay unparsed.

mod connection_args;
mod key_args;
mod kinds;
mod string_args;

pub use connection_args::check_client_name;
pub use kinds::{
    Addend, Command, Condition, CopyOptions, Expiry, Hello, IncrementWithin, Lifetime, Scan, Set,
    Unit, When,
};

use std::ops::Deref;

use kinds::Reader;

use crate::args::Args;
use crate::redis_error::Failure;
use crate::table::{Entry, Kind, TABLE, row, rule};

/// Returns the function that parses the arguments of the command with this name; returns `other` if no list has the
/// name.
const fn reader(name: &str) -> Reader {
    let lists = [
        string_args::READERS,
        key_args::READERS,
        connection_args::READERS,
    ];
    let mut list = 0;
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            if same(lists[list][at].0, name) {
                return lists[list][at].1;
            }
            at += 1;
        }
        list += 1;
    }
    other
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The parsing function for each row of the table.
static READERS: [Reader; TABLE.len()] = {
    let mut readers: [Reader; TABLE.len()] = [other; TABLE.len()];
    let mut row = 0;
    while row < readers.len() {
        readers[row] = reader(TABLE[row].name);
        row += 1;
    }
    readers
};

fn other<'a>(_: &'static Entry, _: Args<'a>) -> Result<Command<'a>, Failure<'a>> {
    Ok(Command::Other)
}

impl<'a> Command<'a> {
    /// Parses a request, which must not be empty.
    pub fn read(args: Args<'a>) -> Result<Self, Failure<'a>> {
        let (row, entry) = entry(args)?;
        arguments(row, entry, args)
    }

    /// Checks, as Redis does before it queues a command of a transaction, that the command exists and accepts this
    /// number of arguments.
    pub fn check(args: Args<'a>) -> Result<&'static Entry, Failure<'a>> {
        entry(args).map(|(_, entry)| entry)
    }

    /// Returns whether a request names a role: AUTH, or HELLO with the option AUTH.
    pub fn names_role(entry: &Entry, args: Args<'_>) -> bool {
        let hello = || Command::read(args);
        match entry.name {
            "auth" => true,
            "hello" => matches!(hello(), Ok(Command::Hello(hello)) if hello.auth.is_some()),
            _ => false,
        }
    }
}

/// The maximum COUNT of a short SCAN, which counts as a read.
const SHORT_SCAN: i64 = 1000;

/// A command with its row in the table. The row holds the kind of the command, so no other code needs a list of
/// commands.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    pub command: Command<'a>,
    pub entry: &'static Entry,
    /// All arguments, including the command's name.
    pub args: Args<'a>,
}

impl<'a> Deref for Parsed<'a> {
    type Target = Command<'a>;

    fn deref(&self) -> &Command<'a> {
        &self.command
    }
}

impl<'a> Parsed<'a> {
    /// Parses a request, which must not be empty.
    #[inline]
    pub fn read(args: Args<'a>) -> Result<Self, Failure<'a>> {
        let (row, entry) = entry(args)?;
        arguments(row, entry, args).map(|command| Parsed {
            command,
            entry,
            args,
        })
    }
}

impl Parsed<'_> {
    /// Returns the kind in the command's row, except for a short SCAN and for GETEX without an option, which are reads.
    pub fn kind(&self) -> Kind {
        match &self.command {
            Command::Scan(scan) if scan.count <= SHORT_SCAN => Kind::Read,
            Command::GetExpire {
                expiry: Expiry::Unsaid | Expiry::Keep,
                ..
            } => Kind::Read,
            _ => self.entry.kind,
        }
    }
}

#[inline]
fn arguments<'a>(
    row: usize,
    entry: &'static Entry,
    args: Args<'a>,
) -> Result<Command<'a>, Failure<'a>> {
    let reader = READERS.get(row).copied().unwrap_or(other);
    reader(entry, args)
}

/// Returns the index of the command's row, and the entry of the command or of its subcommand.
fn entry<'a>(args: Args<'a>) -> Result<(usize, &'static Entry), Failure<'a>> {
    let Some((row, entry)) = row(args.at(0)).and_then(|row| Some((row, TABLE.get(row)?))) else {
        return Err(Failure::UnknownCommand(args));
    };
    let entry = match args.get(1) {
        Some(name) if !entry.subcommands.is_empty() => {
            entry.subcommand(name).ok_or(Failure::UnknownSubcommand {
                command: entry.name,
                name,
            })?
        }
        _ => entry,
    };
    if entry.takes(args.len()) {
        Ok((row, entry))
    } else {
        Err(match entry.has(rule::RUNS_QUEUE) {
            true => Failure::ExecRefused,
            false => Failure::Arity(entry.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Handler;

    #[test]
    fn each_reader_belongs_to_one_row_of_the_table() {
        let lists = [
            string_args::READERS,
            key_args::READERS,
            connection_args::READERS,
        ];
        let mut names: Vec<_> = lists
            .iter()
            .copied()
            .flatten()
            .map(|(name, _)| name)
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for name in &names {
            assert!(row(name.as_bytes()).is_some(), "{name} has no row");
        }
        // The arguments of scripts and subcommands stay unparsed.
        let on_entries = TABLE.iter().filter(|entry| {
            entry.handler == Handler::Entries
                && entry.subcommands.is_empty()
                && entry.group != "scripting"
        });
        for entry in on_entries {
            assert!(names.contains(&&entry.name), "{} has no reader", entry.name);
        }
    }
}
