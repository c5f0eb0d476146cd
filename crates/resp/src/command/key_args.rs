//! Parses the arguments of commands on keys (DEL, EXPIRE, SCAN ...), and of transactions.

use super::kinds::{Command, CopyOptions, Lifetime, Reader, Scan, Unit, When, is};
use crate::args::Args;
use crate::number::{cursor, integer};
use crate::redis_error::Failure;
use crate::table::Entry;

type Read<'a> = Result<Command<'a>, Failure<'a>>;

pub(super) const READERS: &[(&str, Reader)] = &[
    ("del", |_, args| Ok(Command::Delete { keys: args.from(1) })),
    ("unlink", |_, args| {
        Ok(Command::Delete { keys: args.from(1) })
    }),
    ("exists", |_, args| {
        Ok(Command::Exists { keys: args.from(1) })
    }),
    ("touch", |_, args| Ok(Command::Touch { keys: args.from(1) })),
    ("type", |_, args| Ok(Command::Type { key: args.at(1) })),
    ("expire", |entry, args| {
        expire(entry, args, Unit::Seconds, false)
    }),
    ("pexpire", |entry, args| {
        expire(entry, args, Unit::Milliseconds, false)
    }),
    ("expireat", |entry, args| {
        expire(entry, args, Unit::Seconds, true)
    }),
    ("pexpireat", |entry, args| {
        expire(entry, args, Unit::Milliseconds, true)
    }),
    ("ttl", |_, args| {
        Ok(Command::TimeLeft {
            key: args.at(1),
            unit: Unit::Seconds,
        })
    }),
    ("pttl", |_, args| {
        Ok(Command::TimeLeft {
            key: args.at(1),
            unit: Unit::Milliseconds,
        })
    }),
    ("expiretime", |_, args| {
        Ok(Command::Deadline {
            key: args.at(1),
            unit: Unit::Seconds,
        })
    }),
    ("pexpiretime", |_, args| {
        Ok(Command::Deadline {
            key: args.at(1),
            unit: Unit::Milliseconds,
        })
    }),
    ("persist", |_, args| {
        Ok(Command::Persist { key: args.at(1) })
    }),
    ("rename", |_, args| {
        Ok(Command::Rename {
            from: args.at(1),
            to: args.at(2),
            if_absent: false,
        })
    }),
    ("renamenx", |_, args| {
        Ok(Command::Rename {
            from: args.at(1),
            to: args.at(2),
            if_absent: true,
        })
    }),
    ("copy", |_, args| {
        let options = CopyOptions(args.from(3));
        Ok(Command::Copy {
            from: args.at(1),
            to: args.at(2),
            options,
        })
    }),
    ("randomkey", |_, _| Ok(Command::RandomKey)),
    ("scan", scan),
    ("keys", |_, args| {
        Ok(Command::Keys {
            pattern: args.at(1),
        })
    }),
    ("dbsize", |_, _| Ok(Command::Count)),
    ("flushdb", |_, args| flush(args, false)),
    ("flushall", |_, args| flush(args, true)),
    ("multi", |_, _| Ok(Command::Multi)),
    ("exec", |_, _| Ok(Command::Exec)),
    ("discard", |_, _| Ok(Command::Discard)),
    ("watch", |_, args| Ok(Command::Watch { keys: args.from(1) })),
    ("unwatch", |_, _| Ok(Command::Unwatch)),
];

fn expire<'a>(entry: &'static Entry, args: Args<'a>, unit: Unit, absolute: bool) -> Read<'a> {
    let mut when = When::default();
    for option in args.from(3).iter() {
        match option {
            _ if is(option, "nx") => when.if_none = true,
            _ if is(option, "xx") => when.if_some = true,
            _ if is(option, "gt") => when.if_later = true,
            _ if is(option, "lt") => when.if_earlier = true,
            _ => return Err(Failure::UnsupportedOption(option)),
        }
    }
    if when.if_none && (when.if_some || when.if_later || when.if_earlier) {
        return Err(Failure::NxAndOthers);
    }
    if when.if_later && when.if_earlier {
        return Err(Failure::GtAndLt);
    }
    let lifetime = Lifetime {
        unit,
        absolute,
        amount: args.at(2),
    };
    Ok(Command::Expire {
        key: args.at(1),
        lifetime,
        when,
        command: entry.name,
    })
}

fn scan<'a>(_: &'static Entry, args: Args<'a>) -> Read<'a> {
    let cursor = cursor(args.at(1)).ok_or(Failure::InvalidCursor)?;
    let mut scan = Scan {
        cursor,
        pattern: None,
        count: 10,
        kind: None,
    };
    let mut left = args.from(2);
    while let Some(option) = left.get(0) {
        let value = left.get(1).ok_or(Failure::Syntax)?;
        match option {
            _ if is(option, "match") => scan.pattern = Some(value),
            _ if is(option, "type") => scan.kind = Some(value),
            _ if is(option, "count") => {
                scan.count = integer(value).ok_or(Failure::NotInteger)?;
                if scan.count < 1 {
                    return Err(Failure::Syntax);
                }
            }
            _ => return Err(Failure::Syntax),
        }
        left = left.from(2);
    }
    Ok(Command::Scan(scan))
}

fn flush(args: Args<'_>, all_databases: bool) -> Read<'_> {
    match (args.len(), args.at(1)) {
        (1, _) => {}
        (2, option) if is(option, "async") || is(option, "sync") => {}
        _ => return Err(Failure::Syntax),
    }
    Ok(Command::Clear { all_databases })
}
