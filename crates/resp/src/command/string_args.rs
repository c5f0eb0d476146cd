//! Parses the arguments of commands on values (GET, SET, INCR ...), and the options that they share.

use std::mem::discriminant;

use super::kinds::{
    Addend, Command, Condition, Expiry, IncrementWithin, Lifetime, Reader, Set, Unit, is,
};
use crate::args::Args;
use crate::float::FloatSum;
use crate::number::integer;
use crate::redis_error::Failure;
use crate::table::Entry;

type Read<'a> = Result<Command<'a>, Failure<'a>>;

pub(super) const READERS: &[(&str, Reader)] = &[
    ("get", |_, args| Ok(Command::Get { key: args.at(1) })),
    ("set", set),
    ("setnx", |_, args| {
        Ok(Command::SetIfAbsent {
            key: args.at(1),
            value: args.at(2),
        })
    }),
    ("setex", |_, args| Ok(set_for(args, Unit::Seconds, "setex"))),
    ("psetex", |_, args| {
        Ok(set_for(args, Unit::Milliseconds, "psetex"))
    }),
    ("getset", |_, args| {
        Ok(Command::GetSet {
            key: args.at(1),
            value: args.at(2),
        })
    }),
    ("getdel", |_, args| {
        Ok(Command::GetDelete { key: args.at(1) })
    }),
    ("getex", getex),
    ("mget", |_, args| {
        Ok(Command::GetMany { keys: args.from(1) })
    }),
    ("mset", |entry, args| set_many(entry, args, false)),
    ("msetnx", |entry, args| set_many(entry, args, true)),
    ("msetex", msetex),
    ("append", |_, args| {
        Ok(Command::Append {
            key: args.at(1),
            value: args.at(2),
        })
    }),
    ("strlen", |_, args| Ok(Command::Length { key: args.at(1) })),
    ("getrange", |_, args| get_range(args)),
    ("substr", |_, args| get_range(args)),
    ("setrange", |_, args| set_range(args)),
    ("incr", |_, args| {
        Ok(Command::Increment {
            key: args.at(1),
            by: 1,
        })
    }),
    ("decr", |_, args| {
        Ok(Command::Increment {
            key: args.at(1),
            by: -1,
        })
    }),
    ("incrby", |_, args| {
        Ok(Command::Increment {
            key: args.at(1),
            by: number(args, 2)?,
        })
    }),
    ("decrby", |_, args| {
        let by = number(args, 2)?
            .checked_neg()
            .ok_or(Failure::DecrementOverflow)?;
        Ok(Command::Increment {
            key: args.at(1),
            by,
        })
    }),
    ("incrbyfloat", |_, args| {
        Ok(Command::IncrementFloat {
            key: args.at(1),
            by: args.at(2),
        })
    }),
    ("increx", increx),
    ("delex", delex),
    ("delifeq", |_, args| {
        Ok(Command::DeleteIf {
            key: args.at(1),
            condition: Condition::Equal(args.at(2)),
        })
    }),
    ("digest", |_, args| Ok(Command::Digest { key: args.at(1) })),
];

fn set<'a>(_: &'static Entry, args: Args<'a>) -> Read<'a> {
    let mut options = Options::new(args.from(3), Kind::Set);
    options.read()?;
    Ok(Command::Set(Set {
        key: args.at(1),
        value: args.at(2),
        condition: options.condition,
        expiry: options.expiry,
        get: options.get,
        command: "set",
    }))
}

fn set_for<'a>(args: Args<'a>, unit: Unit, command: &'static str) -> Command<'a> {
    Command::Set(Set {
        key: args.at(1),
        value: args.at(3),
        condition: Condition::Always,
        expiry: Expiry::At(Lifetime {
            unit,
            absolute: false,
            amount: args.at(2),
        }),
        get: false,
        command,
    })
}

fn getex<'a>(_: &'static Entry, args: Args<'a>) -> Read<'a> {
    let mut options = Options::new(args.from(2), Kind::Get);
    options.read()?;
    Ok(Command::GetExpire {
        key: args.at(1),
        expiry: options.expiry,
    })
}

fn set_many<'a>(entry: &'static Entry, args: Args<'a>, if_absent: bool) -> Read<'a> {
    match args.len() % 2 {
        0 => Err(Failure::Arity(entry.name)),
        _ => Ok(Command::SetMany {
            pairs: args.from(1),
            if_absent,
        }),
    }
}

fn msetex<'a>(_: &'static Entry, args: Args<'a>) -> Read<'a> {
    let count = integer(args.at(1)).and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|count| (1..=i32::MAX as usize).contains(count))
        .ok_or(Failure::InvalidNumkeys)?;
    let end = 2 + 2 * count;
    if end > args.len() {
        return Err(Failure::PairCount);
    }
    let mut options = Options::new(args.from(end), Kind::SetMany);
    options.read()?;
    Ok(Command::SetManyExpire {
        pairs: args.from(2).first(2 * count),
        condition: options.condition,
        expiry: options.expiry,
    })
}

fn increx<'a>(_: &'static Entry, args: Args<'a>) -> Read<'a> {
    let mut options = Options::new(args.from(2), Kind::Increment);
    options.read()?;
    let is_timed = matches!(options.expiry, Expiry::At(_));
    let keeps_deadline = options.sum.keeps_deadline;
    if keeps_deadline && matches!(options.expiry, Expiry::Remove) {
        return Err(Failure::Syntax);
    }
    if keeps_deadline && !is_timed {
        return Err(Failure::ExpirationMissing);
    }
    Ok(Command::IncrementWithin(IncrementWithin {
        key: args.at(1),
        by: options.sum.addend()?,
        saturates: options.sum.saturates,
        expiry: options.expiry,
        keeps_deadline,
    }))
}

fn delex<'a>(entry: &'static Entry, args: Args<'a>) -> Read<'a> {
    let condition = match args.len() {
        2 => Condition::Always,
        4 => comparison(args.at(2), args.at(3)).unwrap_or(Condition::Invalid),
        _ => return Err(Failure::Arity(entry.name)),
    };
    Ok(Command::DeleteIf {
        key: args.at(1),
        condition,
    })
}

fn get_range(args: Args<'_>) -> Read<'_> {
    Ok(Command::GetRange {
        key: args.at(1),
        from: number(args, 2)?,
        to: number(args, 3)?,
    })
}

fn set_range(args: Args<'_>) -> Read<'_> {
    let offset = number(args, 2)?;
    if offset < 0 {
        return Err(Failure::Offset);
    }
    Ok(Command::SetRange {
        key: args.at(1),
        offset,
        value: args.at(3),
    })
}

fn number<'a>(args: Args<'a>, index: usize) -> Result<i64, Failure<'a>> {
    integer(args.at(index)).ok_or(Failure::NotInteger)
}

fn comparison<'a>(option: &[u8], with: &'a [u8]) -> Option<Condition<'a>> {
    Some(match option {
        _ if is(option, "ifeq") => Condition::Equal(with),
        _ if is(option, "ifne") => Condition::NotEqual(with),
        _ if is(option, "ifdeq") => Condition::DigestEqual(with),
        _ if is(option, "ifdne") => Condition::DigestNotEqual(with),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Set,
    Get,
    SetMany,
    Increment,
}

/// The options of INCREX that concern the sum.
#[derive(Default)]
struct SumOptions<'a> {
    integer: Option<&'a [u8]>,
    float: Option<&'a [u8]>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturates: bool,
    keeps_deadline: bool,
}

impl<'a> SumOptions<'a> {
    /// Returns the field for the value of an option; None for an unknown or repeated option.
    fn place(&mut self, option: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        let is_open = self.integer.is_none() && self.float.is_none();
        let place = match option {
            _ if is(option, "byint") && is_open => &mut self.integer,
            _ if is(option, "byfloat") && is_open => &mut self.float,
            _ if is(option, "lbound") => &mut self.lower,
            _ if is(option, "ubound") => &mut self.upper,
            _ => return None,
        };
        place.is_none().then_some(place)
    }

    fn addend(&self) -> Result<Addend, Failure<'a>> {
        if let Some(by) = self.float {
            return FloatSum::read(by, self.lower, self.upper).map(Addend::Float);
        }
        let by = self.integer.map_or(Some(1), integer);
        let bound = |text: Option<&[u8]>, name, none| match text {
            None => Ok(none),
            Some(text) => integer(text).ok_or(Failure::BoundNotInteger(name)),
        };
        let by = by.ok_or(Failure::NotInteger)?;
        let lower = bound(self.lower, "LBOUND", i64::MIN)?;
        let upper = bound(self.upper, "UBOUND", i64::MAX)?;
        match lower > upper {
            true => Err(Failure::Bounds),
            false => Ok(Addend::Integer { by, lower, upper }),
        }
    }
}

/// Parses the options of a command, which may come in any order. As in Redis, two different options of one kind exclude
/// each other, but the same unit may be repeated, and its last amount counts.
struct Options<'a> {
    left: Args<'a>,
    kind: Kind,
    condition: Condition<'a>,
    expiry: Expiry<'a>,
    get: bool,
    sum: SumOptions<'a>,
}

impl<'a> Options<'a> {
    fn new(left: Args<'a>, kind: Kind) -> Self {
        Self {
            left,
            kind,
            condition: Condition::Always,
            expiry: Expiry::Unsaid,
            get: false,
            sum: SumOptions::default(),
        }
    }

    fn read(&mut self) -> Result<(), Failure<'a>> {
        while let Some(option) = self.left.get(0) {
            self.left = self.left.from(1);
            let is_read = self.flag(option)
                || self.lifetime(option)
                || self.comparison(option)
                || self.bound(option);
            if !is_read {
                return Err(Failure::Syntax);
            }
        }
        Ok(())
    }

    /// Reads an option without a value. Returns false if the word is not one, or if the command does not accept it.
    fn flag(&mut self, option: &[u8]) -> bool {
        let writes = matches!(self.kind, Kind::Set | Kind::SetMany);
        match option {
            _ if is(option, "nx")
                && writes
                && matches!(self.condition, Condition::Always | Condition::Absent) =>
            {
                self.condition = Condition::Absent;
            }
            _ if is(option, "xx")
                && writes
                && matches!(self.condition, Condition::Always | Condition::Present) =>
            {
                self.condition = Condition::Present;
            }
            _ if is(option, "saturate") && self.kind == Kind::Increment => {
                self.sum.saturates = true;
            }
            _ if is(option, "enx") && self.kind == Kind::Increment => {
                self.sum.keeps_deadline = true;
            }
            _ if is(option, "get") && self.kind == Kind::Set => self.get = true,
            _ if is(option, "keepttl")
                && writes
                && matches!(self.expiry, Expiry::Unsaid | Expiry::Keep) =>
            {
                self.expiry = Expiry::Keep;
            }
            _ if is(option, "persist")
                && !writes
                && matches!(self.expiry, Expiry::Unsaid | Expiry::Remove) =>
            {
                self.expiry = Expiry::Remove;
            }
            _ => return false,
        }
        true
    }

    /// Reads a unit and its amount. Returns false if the word is not a unit, or if the command does not accept it.
    fn lifetime(&mut self, option: &[u8]) -> bool {
        let (unit, absolute) = match option {
            _ if is(option, "ex") => (Unit::Seconds, false),
            _ if is(option, "px") => (Unit::Milliseconds, false),
            _ if is(option, "exat") => (Unit::Seconds, true),
            _ if is(option, "pxat") => (Unit::Milliseconds, true),
            _ => return false,
        };
        let fits = match self.expiry {
            Expiry::Unsaid => true,
            Expiry::At(before) => before.unit == unit && before.absolute == absolute,
            Expiry::Keep | Expiry::Remove => false,
        };
        let (true, Some(amount)) = (fits, self.left.get(0)) else {
            return false;
        };
        self.expiry = Expiry::At(Lifetime {
            unit,
            absolute,
            amount,
        });
        self.left = self.left.from(1);
        true
    }

    /// Reads an option of INCREX and its number. Returns false if the word is not one, or if the command is not INCREX.
    fn bound(&mut self, option: &[u8]) -> bool {
        let (Kind::Increment, Some(number)) = (self.kind, self.left.get(0)) else {
            return false;
        };
        let Some(place) = self.sum.place(option) else {
            return false;
        };
        *place = Some(number);
        self.left = self.left.from(1);
        true
    }

    /// Reads a comparison and its operand. Returns false if the word is not a comparison, or if the command does not
    /// accept it.
    fn comparison(&mut self, option: &[u8]) -> bool {
        let (Kind::Set, Some(with)) = (self.kind, self.left.get(0)) else {
            return false;
        };
        let Some(condition) = comparison(option, with) else {
            return false;
        };
        let is_of_kind = discriminant(&condition) == discriminant(&self.condition);
        if !is_of_kind && !matches!(self.condition, Condition::Always) {
            return false;
        }
        self.condition = condition;
        self.left = self.left.from(1);
        true
    }
}
