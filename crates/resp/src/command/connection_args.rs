//! Parses the arguments of commands that concern the connection (HELLO, CLIENT, AUTH ...) or channels.

use super::kinds::{Command, Hello, Reader, is, small};
use crate::args::Args;
use crate::number::integer;
use crate::redis_error::Failure;
use crate::reply::Protocol;
use crate::table::Entry;

type Read<'a> = Result<Command<'a>, Failure<'a>>;

pub(super) const READERS: &[(&str, Reader)] = &[
    ("ping", |entry, args| match args.len() {
        1 | 2 => Ok(Command::Ping {
            message: args.get(1),
        }),
        _ => Err(Failure::Arity(entry.name)),
    }),
    ("echo", |_, args| {
        Ok(Command::Echo {
            message: args.at(1),
        })
    }),
    ("hello", hello),
    ("auth", |_, args| match args.len() {
        2 => Ok(Command::Auth {
            role: None,
            password: args.at(1),
        }),
        3 => Ok(Command::Auth {
            role: args.get(1),
            password: args.at(2),
        }),
        _ => Err(Failure::Syntax),
    }),
    ("select", |_, args| {
        Ok(Command::Select {
            database: small(args.at(1))?,
        })
    }),
    ("quit", |_, _| Ok(Command::Quit)),
    ("reset", |_, _| Ok(Command::Reset)),
    ("time", |_, _| Ok(Command::Time)),
    ("subscribe", |_, args| {
        Ok(Command::Subscribe {
            channels: args.from(1),
        })
    }),
    ("unsubscribe", |_, args| {
        Ok(Command::Unsubscribe {
            channels: args.from(1),
        })
    }),
    ("psubscribe", |_, args| {
        Ok(Command::SubscribePatterns {
            patterns: args.from(1),
        })
    }),
    ("punsubscribe", |_, args| {
        Ok(Command::UnsubscribePatterns {
            patterns: args.from(1),
        })
    }),
    ("publish", |_, args| {
        Ok(Command::Publish {
            channel: args.at(1),
            message: args.at(2),
        })
    }),
];

fn hello<'a>(_: &'static Entry, args: Args<'a>) -> Read<'a> {
    let protocol = match args.get(1).map(integer) {
        None => None,
        Some(Some(2)) => Some(Protocol::Resp2),
        Some(Some(3)) => Some(Protocol::Resp3),
        Some(Some(_)) => return Err(Failure::NoSuchProtocol),
        Some(None) => return Err(Failure::ProtocolNotInteger),
    };
    let mut hello = Hello {
        protocol,
        auth: None,
        name: None,
    };
    let mut left = args.from(2);
    while let Some(option) = left.get(0) {
        left = match (option, left.get(1), left.get(2)) {
            (_, Some(role), Some(password)) if is(option, "auth") => {
                hello.auth = Some((role, password));
                left.from(3)
            }
            (_, Some(name), _) if is(option, "setname") => {
                hello.name = Some(name);
                left.from(2)
            }
            _ => return Err(Failure::HelloOption(option)),
        };
    }
    if let Some(name) = hello.name {
        check_client_name(name)?;
    }
    Ok(Command::Hello(hello))
}

/// Checks the name of a connection, or of the client library. Redis accepts names of any length; this server limits the
/// length, because it stores the names of each connection.
pub fn check_client_name(name: &[u8]) -> Result<(), Failure<'static>> {
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        false => Err(Failure::ClientName),
        true if name.len() > LONGEST_NAME => Err(Failure::ClientNameLength),
        true => Ok(()),
    }
}

/// The maximum length of a connection's name in bytes.
const LONGEST_NAME: usize = 1 << 10;
