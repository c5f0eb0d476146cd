//! What the table has of a command.

/// What a command does, as COMMAND INFO says it. One bit each.
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

/// Categories of ACL that do not follow from the flags.
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

/// Where the keys are among the arguments: the first, the last (counted from the end if negative), and every how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    pub first: i8,
    pub last: i8,
    pub step: i8,
}

/// A command, or a command of a command (`client|id`).
#[derive(Debug)]
pub struct Entry {
    /// In small letters, as Redis writes it.
    pub name: &'static str,
    /// How many arguments with the name; at least so many if negative.
    pub arity: i8,
    pub flags: u32,
    pub categories: u8,
    pub keys: Keys,
    /// The version of Redis that had it first.
    pub since: &'static str,
    pub group: &'static str,
    pub subcommands: &'static [Entry],
}

impl Entry {
    /// Whether it may have so many arguments, its name among them.
    pub fn takes(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            arguments >= least
        } else {
            arguments == least
        }
    }

    /// What the command is called inside of its command: `id` of `client|id`.
    pub fn last_name(&self) -> &'static str {
        self.name
            .rsplit_once('|')
            .map_or(self.name, |(_, last)| last)
    }

    /// The command of this command with that name, in small or capital letters.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        self.subcommands
            .iter()
            .find(|entry| entry.last_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The places of its keys among `arguments` arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let Keys { first, last, step } = self.keys;
        let first = usize::try_from(first).unwrap_or(0);
        let end = match usize::try_from(last) {
            Ok(last) => last + 1,
            Err(_) => (arguments + 1).saturating_sub(usize::from(last.unsigned_abs())),
        };
        let none = first == 0;
        (first..if none { 0 } else { end.min(arguments) })
            .step_by(usize::try_from(step).unwrap_or(1).max(1))
    }
}
