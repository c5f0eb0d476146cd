//! The kinds of commands on a table: those that read, that write, and that may take long.

use pgcache_resp::{Command, Expiry};

/// Says which lane a command takes, and what it may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It changes nothing.
    Read,
    Write,
    /// It may look at every entry, or waits until no other session reads.
    Long,
    /// It is not about entries.
    NotOurs,
}

/// Keys of SCAN that it looks at without being a long one.
const SHORT_SCAN: i64 = 1000;

/// Returns the kind of a command.
pub fn kind(command: &Command<'_>) -> Kind {
    match command {
        Command::Get { .. }
        | Command::GetMany { .. }
        | Command::GetExpire {
            expiry: Expiry::Unsaid | Expiry::Keep,
            ..
        }
        | Command::Length { .. }
        | Command::GetRange { .. }
        | Command::Digest { .. }
        | Command::Exists { .. }
        | Command::Touch { .. }
        | Command::Type { .. }
        | Command::TimeLeft { .. }
        | Command::Deadline { .. } => Kind::Read,

        Command::Set(_)
        | Command::SetIfAbsent { .. }
        | Command::GetSet { .. }
        | Command::GetDelete { .. }
        | Command::GetExpire { .. }
        | Command::SetMany { .. }
        | Command::SetManyExpire { .. }
        | Command::Append { .. }
        | Command::SetRange { .. }
        | Command::Increment { .. }
        | Command::IncrementFloat { .. }
        | Command::IncrementWithin(_)
        | Command::DeleteIf { .. }
        | Command::Delete { .. }
        | Command::Expire { .. }
        | Command::Persist { .. }
        | Command::Rename { .. }
        | Command::Copy { .. } => Kind::Write,

        Command::Scan(scan) if scan.count <= SHORT_SCAN => Kind::Read,
        Command::Scan(_)
        | Command::Keys { .. }
        | Command::RandomKey
        | Command::Count
        | Command::Clear { .. } => Kind::Long,

        Command::Other { entry, .. } => match entry.name {
            "eval" | "evalsha" => Kind::Write,
            "object|encoding" | "object|freq" | "object|idletime" | "object|refcount"
            | "memory|usage" => Kind::Read,
            _ => Kind::NotOurs,
        },
        _ => Kind::NotOurs,
    }
}
