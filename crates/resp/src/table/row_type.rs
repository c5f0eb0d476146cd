//! The type of a row in the command table, and its flags, categories and rules.

use crate::args::Args;
use crate::number::integer;

/// The flags of commands in COMMAND INFO; each flag is one bit.
pub mod flag {
    pub const WRITE: u32 = 1;
    pub const READONLY: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const PUBSUB: u32 = 1 << 4;
    pub const NOSCRIPT: u32 = 1 << 5;
    pub const LOADING: u32 = 1 << 6;
    pub const STALE: u32 = 1 << 7;
    pub const SKIP_MONITOR: u32 = 1 << 8;
    pub const SKIP_SLOWLOG: u32 = 1 << 9;
    pub const FAST: u32 = 1 << 10;
    pub const NO_AUTH: u32 = 1 << 11;
    pub const NO_MANDATORY_KEYS: u32 = 1 << 12;
    pub const ALLOW_BUSY: u32 = 1 << 13;
    pub const MOVABLEKEYS: u32 = 1 << 14;
    pub const BLOCKING: u32 = 1 << 15;
    pub const NO_ASYNC_LOADING: u32 = 1 << 16;

    /// The names in the order of the bits.
    pub const NAMES: [&str; 17] = [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "pubsub",
        "noscript",
        "loading",
        "stale",
        "skip_monitor",
        "skip_slowlog",
        "fast",
        "no_auth",
        "no_mandatory_keys",
        "allow_busy",
        "movablekeys",
        "blocking",
        "no_async_loading",
    ];
}

/// The ACL categories that do not follow from the flags.
pub mod category {
    pub const KEYSPACE: u8 = 1;
    pub const STRING: u8 = 1 << 1;
    pub const DANGEROUS: u8 = 1 << 2;
    pub const CONNECTION: u8 = 1 << 3;
    pub const TRANSACTION: u8 = 1 << 4;
    pub const SCRIPTING: u8 = 1 << 5;
    pub const ADMIN: u8 = 1 << 6;

    /// The names in the order of the bits.
    pub const NAMES: [&str; 7] = [
        "@keyspace",
        "@string",
        "@dangerous",
        "@connection",
        "@transaction",
        "@scripting",
        "@admin",
    ];
}

/// How a command uses the entries of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes nothing.
    Read,
    Write,
    /// May read every entry, or wait until no other session reads.
    Long,
    /// Remembers the current state of keys, which EXEC compares.
    Watch,
    /// Uses no entries.
    NoEntries,
}

/// The part of the server that runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Commands that concern the connection or the server, and all subcommands HELP.
    Server,
    /// MULTI, EXEC, DISCARD and UNWATCH.
    Transaction,
    Channels,
    /// Commands on the entries of the client's cache, and scripts.
    Entries,
}

impl Handler {
    /// Returns the handler of a command with this name, kind and group in Redis.
    pub(crate) const fn of(name: &str, kind: Kind, group: &str) -> Handler {
        let name = name.as_bytes();
        let is_help = matches!(name, [.., b'|', b'h', b'e', b'l', b'p']);
        match (kind, group.as_bytes()) {
            (Kind::NoEntries, _) if is_help => Handler::Server,
            (Kind::NoEntries, b"pubsub") => Handler::Channels,
            (Kind::NoEntries, b"transactions") => Handler::Transaction,
            (Kind::NoEntries, group) if !matches!(group, b"scripting") => Handler::Server,
            _ => Handler::Entries,
        }
    }
}

/// The rules by which this server treats a command, in addition to the flags in COMMAND INFO; each rule is one bit.
pub mod rule {
    /// Takes several steps, between which no command of another client may run.
    pub const ATOMIC: u16 = 1;
    /// Runs at once after MULTI, instead of being queued.
    pub const UNQUEUED: u16 = 1 << 1;
    /// Runs the queued commands.
    pub const RUNS_QUEUE: u16 = 1 << 2;
    /// May change entries or reach other clients, although its flags do not include WRITE.
    pub const MAY_WRITE: u16 = 1 << 3;
    /// CLIENT PAUSE never delays it.
    pub const UNPAUSED: u16 = 1 << 4;
    /// Takes time in proportion to its request and its reply, so the slow log measures it only if the request or the
    /// reply is long.
    pub const LIGHT: u16 = 1 << 5;
    /// May take longer than the length of its request and of the entries' values implies.
    pub const MAY_BE_SLOW: u16 = 1 << 6;
    /// Lists or describes parts of the server, and changes nothing.
    pub const DESCRIBES: u16 = 1 << 7;
    /// The server can answer it from the copies of a table's entries in the hot tier.
    pub const COPIES: u16 = 1 << 8;
    /// Reads the whole values of its keys.
    pub const LOADS: u16 = 1 << 9;
    /// May be queued for an EXEC on a table cache, although it uses no entries.
    pub const IN_TABLE_EXEC: u16 = 1 << 10;
    /// Replies with the client's role, so the client must have a role, which may be the default role.
    pub const GREETS: u16 = 1 << 12;
    /// Changes the client's subscriptions, and replies with messages.
    pub const SUBSCRIBES: u16 = 1 << 11;
    /// May name another database than the client's.
    pub const NAMES_DATABASE: u16 = 1 << 13;
}

/// The positions of the keys among the arguments: the first, the last (counted from the end if negative), and the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    pub first: i8,
    pub last: i8,
    pub step: i8,
    /// The argument with the number of keys, if the command has such an argument; in that case the positions above are
    /// 0.
    pub counted: Option<Counted>,
}

/// The position of the argument with the number of keys, and the step of the keys, which follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub at: u8,
    pub step: u8,
}

impl Keys {
    /// Returns whether the number of keys depends on the request.
    pub fn are_many(&self) -> bool {
        self.last < 0 || self.counted.is_some()
    }
}

/// A command, or a subcommand (`client|id`).
#[derive(Debug)]
pub struct Entry {
    /// The name in lower case, as Redis writes it.
    pub name: &'static str,
    /// The number of arguments including the name; if negative, the minimum number.
    pub arity: i8,
    pub flags: u32,
    pub categories: u8,
    pub keys: Keys,
    /// The kind without regard to options. [`Parsed::kind`](crate::Parsed::kind) considers the options.
    pub kind: Kind,
    pub handler: Handler,
    /// Bits of [`rule`].
    pub rules: u16,
    /// The first Redis version with this command.
    pub since: &'static str,
    pub group: &'static str,
    pub subcommands: &'static [Entry],
}

impl Entry {
    /// Returns whether the command accepts this many arguments, including its name.
    pub fn takes(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            arguments >= least
        } else {
            arguments == least
        }
    }

    /// Returns the last part of the name: `id` of `client|id`.
    pub fn last_name(&self) -> &'static str {
        self.name
            .rsplit_once('|')
            .map_or(self.name, |(_, last)| last)
    }

    /// Returns the subcommand with this name, in lower or upper case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        self.subcommands
            .iter()
            .find(|entry| entry.last_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns whether any of these rules holds for the command.
    #[inline]
    pub fn has(&self, rules: u16) -> bool {
        self.rules & rules != 0
    }

    /// Returns whether the command may change an entry or reach other clients.
    pub fn may_write(&self) -> bool {
        self.flags & flag::WRITE != 0 || self.has(rule::MAY_WRITE)
    }

    /// Returns whether the entry is a subcommand of this command, such as `client|id` of `client`.
    pub fn is_of(&self, command: &str) -> bool {
        let split = self.name.split_once('|');
        split.is_some_and(|(outer, _)| outer == command)
    }

    /// Returns the positions of the keys among the arguments of a request. Returns none if the request announces more
    /// keys than it has arguments.
    pub fn key_places(&self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let (first, end, step) = match self.keys.counted {
            None => self.fixed_places(args.len()),
            Some(counted) => counted.places(args),
        };
        (first..end).step_by(step.max(1))
    }

    /// Returns the keys in a request.
    pub fn keys<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.key_places(args)
            .filter_map(move |place| args.get(place))
    }

    fn fixed_places(&self, arguments: usize) -> (usize, usize, usize) {
        let Keys {
            first, last, step, ..
        } = self.keys;
        let first = usize::try_from(first).unwrap_or(0);
        let end = match usize::try_from(last) {
            Ok(last) => last + 1,
            Err(_) => (arguments + 1).saturating_sub(usize::from(last.unsigned_abs())),
        };
        let end = if first == 0 { 0 } else { end.min(arguments) };
        (first, end, usize::try_from(step).unwrap_or(1))
    }
}

impl Counted {
    fn places(self, args: Args<'_>) -> (usize, usize, usize) {
        let (at, step) = (usize::from(self.at), usize::from(self.step));
        let count = args.get(at).and_then(integer);
        let count = count.and_then(|count| usize::try_from(count).ok());
        let most = args.from(at + 1).len().div_ceil(step.max(1));
        let count = count.filter(|count| *count <= most).unwrap_or(0);
        (at + 1, at + 1 + count * step, step)
    }
}
