//! The parsed form of each command, and of its options.

use crate::args::Args;
use crate::float::FloatSum;
use crate::number::integer;
use crate::redis_error::Failure;
use crate::reply::Protocol;
use crate::table::Entry;

/// Seconds or milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// A duration or, if `absolute`, a time since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime<'a> {
    pub unit: Unit,
    pub absolute: bool,
    pub amount: &'a [u8],
}

impl<'a> Lifetime<'a> {
    /// Returns the deadline in milliseconds since 1970, for a command that accepts only amounts above zero.
    pub fn deadline(&self, now: i64, command: &'static str) -> Result<i64, Failure<'a>> {
        let amount = integer(self.amount).ok_or(Failure::NotInteger)?;
        if amount <= 0 {
            return Err(Failure::ExpireTime(command));
        }
        self.moment(amount, now).ok_or(Failure::ExpireTime(command))
    }

    /// Returns the deadline in milliseconds since 1970, for EXPIRE and similar commands. They also accept a time in the
    /// past, which removes the entry.
    pub fn any_deadline(&self, now: i64, command: &'static str) -> Result<i64, Failure<'a>> {
        let amount = integer(self.amount).ok_or(Failure::NotInteger)?;
        self.moment(amount, now).ok_or(Failure::ExpireTime(command))
    }

    fn moment(&self, amount: i64, now: i64) -> Option<i64> {
        let milliseconds = match self.unit {
            Unit::Seconds => amount.checked_mul(1000)?,
            Unit::Milliseconds => amount,
        };
        if self.absolute {
            Some(milliseconds)
        } else {
            milliseconds.checked_add(now)
        }
    }
}

/// The conditions of EXPIRE and similar commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    pub if_none: bool,
    pub if_some: bool,
    pub if_later: bool,
    pub if_earlier: bool,
}

impl When {
    /// Returns whether no condition is set.
    pub fn is_always(&self) -> bool {
        !(self.if_none || self.if_some || self.if_later || self.if_earlier)
    }

    /// Returns whether a deadline may replace the current deadline. An entry without a deadline counts as expiring
    /// later than any deadline.
    pub fn allows(&self, current: Option<i64>, deadline: i64) -> bool {
        !(self.if_none && current.is_some()
            || self.if_some && current.is_none()
            || self.if_later && current.is_none_or(|current| deadline <= current)
            || self.if_earlier && current.is_some_and(|current| deadline >= current))
    }
}

/// A client's command. Each field points into its request.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    Get {
        key: &'a [u8],
    },
    Set(Set<'a>),
    SetIfAbsent {
        key: &'a [u8],
        value: &'a [u8],
    },
    GetSet {
        key: &'a [u8],
        value: &'a [u8],
    },
    GetDelete {
        key: &'a [u8],
    },
    GetExpire {
        key: &'a [u8],
        expiry: Expiry<'a>,
    },
    GetMany {
        keys: Args<'a>,
    },
    /// MSET and MSETNX; keys and values alternate.
    SetMany {
        pairs: Args<'a>,
        if_absent: bool,
    },
    SetManyExpire {
        pairs: Args<'a>,
        condition: Condition<'a>,
        expiry: Expiry<'a>,
    },
    Append {
        key: &'a [u8],
        value: &'a [u8],
    },
    Length {
        key: &'a [u8],
    },
    GetRange {
        key: &'a [u8],
        from: i64,
        to: i64,
    },
    SetRange {
        key: &'a [u8],
        offset: i64,
        value: &'a [u8],
    },
    Increment {
        key: &'a [u8],
        by: i64,
    },
    IncrementFloat {
        key: &'a [u8],
        by: &'a [u8],
    },
    IncrementWithin(IncrementWithin<'a>),
    DeleteIf {
        key: &'a [u8],
        condition: Condition<'a>,
    },
    Digest {
        key: &'a [u8],
    },

    Delete {
        keys: Args<'a>,
    },
    Exists {
        keys: Args<'a>,
    },
    Touch {
        keys: Args<'a>,
    },
    Type {
        key: &'a [u8],
    },
    /// EXPIRE and similar commands. The amount of the lifetime may be any integer.
    Expire {
        key: &'a [u8],
        lifetime: Lifetime<'a>,
        when: When,
        command: &'static str,
    },
    TimeLeft {
        key: &'a [u8],
        unit: Unit,
    },
    Deadline {
        key: &'a [u8],
        unit: Unit,
    },
    Persist {
        key: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
        if_absent: bool,
    },
    Copy {
        from: &'a [u8],
        to: &'a [u8],
        options: CopyOptions<'a>,
    },
    RandomKey,
    Scan(Scan<'a>),
    Keys {
        pattern: &'a [u8],
    },
    Count,
    Clear {
        all_databases: bool,
    },

    Multi,
    Exec,
    Discard,
    Watch {
        keys: Args<'a>,
    },
    Unwatch,

    Ping {
        message: Option<&'a [u8]>,
    },
    Echo {
        message: &'a [u8],
    },
    Hello(Hello<'a>),
    Auth {
        role: Option<&'a [u8]>,
        password: &'a [u8],
    },
    Select {
        database: i32,
    },
    Quit,
    Reset,
    Time,

    Subscribe {
        channels: Args<'a>,
    },
    Unsubscribe {
        channels: Args<'a>,
    },
    SubscribePatterns {
        patterns: Args<'a>,
    },
    UnsubscribePatterns {
        patterns: Args<'a>,
    },
    Publish {
        channel: &'a [u8],
        message: &'a [u8],
    },

    /// A command whose arguments this crate does not parse, or a command with subcommands.
    Other,
}

/// The effect of a write on the entry's deadline.
#[derive(Clone, Copy, Debug)]
pub enum Expiry<'a> {
    /// The client gave no option. SET then removes the deadline, GETEX keeps it.
    Unsaid,
    Keep,
    Remove,
    At(Lifetime<'a>),
}

/// The condition of a write.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    Always,
    Absent,
    Present,
    Equal(&'a [u8]),
    NotEqual(&'a [u8]),
    DigestEqual(&'a [u8]),
    DigestNotEqual(&'a [u8]),
    /// DELEX with an unknown word as its condition, which is an error only if the entry exists.
    Invalid,
}

impl<'a> Condition<'a> {
    /// Checks that the condition is valid. Redis makes this check only if the entry exists.
    pub fn check(&self) -> Result<(), Failure<'a>> {
        match self {
            Condition::Invalid => Err(Failure::InvalidCondition),
            Condition::DigestEqual(digest) | Condition::DigestNotEqual(digest)
                if digest.len() != 16 =>
            {
                Err(Failure::Digest)
            }
            _ => Ok(()),
        }
    }
}

/// SET with its options, SETEX and PSETEX.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub condition: Condition<'a>,
    pub expiry: Expiry<'a>,
    /// Whether the command replies with the former value.
    pub get: bool,
    /// The command's name, for its errors.
    pub command: &'static str,
}

/// INCREX with its options.
#[derive(Clone, Copy, Debug)]
pub struct IncrementWithin<'a> {
    pub key: &'a [u8],
    pub by: Addend,
    /// Whether a sum outside the bounds is replaced by the bound; otherwise the value stays unchanged.
    pub saturates: bool,
    pub expiry: Expiry<'a>,
    /// Whether the lifetime applies only to an entry without a deadline.
    pub keeps_deadline: bool,
}

/// The number that INCREX adds, and the bounds of the sum.
#[derive(Clone, Copy, Debug)]
pub enum Addend {
    Integer { by: i64, lower: i64, upper: i64 },
    Float(FloatSum),
}

/// The options of COPY. They stay unparsed, because their validity depends on the number of databases.
#[derive(Clone, Copy, Debug)]
pub struct CopyOptions<'a>(pub(super) Args<'a>);

impl<'a> CopyOptions<'a> {
    /// Returns the target database, if the options name one, and whether COPY replaces an entry there. Returns an error
    /// if the index of the named database is not below `databases`.
    pub fn read(&self, databases: usize) -> Result<(Option<usize>, bool), Failure<'a>> {
        let (mut to, mut replace) = (None, false);
        let mut left = self.0;
        while let Some(option) = left.get(0) {
            left = left.from(1);
            match (option, left.get(0)) {
                _ if is(option, "replace") => replace = true,
                (_, Some(number)) if is(option, "db") => {
                    let number = usize::try_from(small(number)?)
                        .ok()
                        .filter(|number| *number < databases);
                    to = Some(number.ok_or(Failure::NoSuchDatabase)?);
                    left = left.from(1);
                }
                _ => return Err(Failure::Syntax),
            }
        }
        Ok((to, replace))
    }
}

/// SCAN with its options.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    pub cursor: u64,
    pub pattern: Option<&'a [u8]>,
    pub count: i64,
    /// The type of the entries to return. This server has only strings.
    pub kind: Option<&'a [u8]>,
}

/// HELLO and its options.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The requested protocol version; None if it stays the same.
    pub protocol: Option<Protocol>,
    /// Role and password.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    pub name: Option<&'a [u8]>,
}

/// A function that parses the arguments of one command.
pub(super) type Reader = for<'a> fn(&'static Entry, Args<'a>) -> Result<Command<'a>, Failure<'a>>;

/// Returns whether an option is this word, in lower or upper case.
pub(super) fn is(option: &[u8], word: &str) -> bool {
    option.eq_ignore_ascii_case(word.as_bytes())
}

/// Parses a 32-bit integer, such as the number of a database.
pub(super) fn small(text: &[u8]) -> Result<i32, Failure<'static>> {
    let number = integer(text).ok_or(Failure::NotInteger)?;
    i32::try_from(number).map_err(|_| Failure::OutOf32Bits)
}
