//! The work that an executor takes from the work queue: a client's commands, and how they run in a transaction.

use std::ops::Range;

use pgcache_resp::{Args, Batch, Command, Limits, Parsed, Parser, Protocol, Writer};
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cache::commit::publish;
use crate::pg::memory::scratch::Scratch;
use crate::pg::resp::work_queue::{Handed, Taken, Work};
use crate::pg::session::failure::Failure;
use crate::pg::session::fault::{self, Fault};
use crate::resp::commands::error::CommandError;
use crate::resp::commands::watched_rows::ABSENT;
use crate::resp::commands::{self, watched_rows};
use crate::resp::executor::tables::{self, Table};

/// The commands of one client.
pub struct Job {
    /// None if the job is a part of another one.
    pub taken: Option<Taken>,
    pub handed: Handed,
    /// Whether its commit waits for a synchronous standby.
    pub waits: bool,
    /// The range of the requests in the bytes of the batch.
    pub requests: Range<usize>,
    /// The range of the first command's key. Jobs run in the order of these keys.
    pub key: Range<usize>,
    /// The range of the replies in those of the transaction.
    pub replies: Range<usize>,
}

/// The buffers with which an executor runs its jobs.
pub struct Tools {
    pub batch: Batch,
    pub scratch: Scratch,
    pub replies: Writer,
    /// Databases that a COPY may name. The network process has checked the commands outside of EXEC.
    databases: usize,
    /// Numbers of readers for each PUBLISH of an EXEC, the last one first.
    readers: Vec<u32>,
}

impl Job {
    /// Returns whether the job has several commands that succeed or fail independently.
    pub fn is_pipeline(&self) -> bool {
        self.handed.commands > 1 && self.handed.work != Work::Exec
    }
}

impl Tools {
    pub fn new(longest: usize) -> Tools {
        Tools {
            batch: Batch::default(),
            scratch: Scratch::new(),
            replies: Writer::new(Protocol::Resp2, longest),
            databases: usize::MAX,
            readers: Vec::new(),
        }
    }

    pub fn restart(&mut self, longest: usize) {
        self.replies.restart(Protocol::Resp2, longest);
    }

    pub fn set_protocol(&mut self, handed: &Handed) {
        self.replies.set_protocol(match handed.three {
            true => Protocol::Resp3,
            false => Protocol::Resp2,
        });
    }

    /// Returns the range of the first command's key, which nearly all commands have right after their name.
    pub fn key(&mut self, requests: &[u8]) -> Range<usize> {
        self.batch.cut(requests, &Limits::new(usize::MAX));
        let key = self.batch.keys(requests).next().unwrap_or_default();
        // A key that was found lies within the requests.
        let from = (key.as_ptr() as usize).wrapping_sub(requests.as_ptr() as usize);
        match from <= requests.len() {
            true => from..from + key.len(),
            false => 0..0,
        }
    }

    /// Returns the range of each of these requests.
    pub fn parts(&mut self, requests: &[u8]) -> Vec<Range<usize>> {
        let mut parser = Parser::new(Limits::new(usize::MAX));
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(rest) = requests.get(at..).filter(|rest| !rest.is_empty())
            && let Ok(Some(request)) = parser.next(rest)
        {
            if !request.args.is_empty() {
                parts.push(at..at + request.used);
            }
            at += request.used;
        }
        parts
    }

    /// Runs a job's commands inside a transaction. Appends its replies to those of earlier jobs, and returns their
    /// range. Replies that are too long raise no error here: see `Writer::overflowed`.
    pub fn run(&mut self, handed: &Handed, requests: &[u8], table: &Table) -> Range<usize> {
        let from = self.replies.as_bytes().len();
        self.set_protocol(handed);
        self.databases = usize::MAX;
        let requests = match handed.work {
            Work::Watch => return self.watch(requests, table),
            Work::Clear => return self.clear(requests, handed.alone),
            Work::Exec => match self.unchanged(requests, table) {
                Some(commands) => commands,
                None => return from..self.replies.as_bytes().len(),
            },
            Work::Read | Work::Write => requests,
        };
        let mut plan = tables::Plan::default();
        if handed.work == Work::Exec {
            match tables::plan(table, requests, handed.commands, &mut self.scratch) {
                Ok(planned) => plan = planned,
                Err(error) => {
                    error.write(&mut self.replies);
                    return from..self.replies.as_bytes().len();
                }
            }
            self.replies.array(handed.commands as usize);
        }
        if let Some(other) = handed.copied_to {
            self.copy(requests, table, (other, handed.alone));
            return from..self.replies.as_bytes().len();
        }
        self.batch.cut(requests, &Limits::new(usize::MAX));
        let (mut at, mut number) = (0, 0);
        let mut batch = std::mem::take(&mut self.batch);
        while let Some(request) = batch.next(requests) {
            at += request.used;
            self.command(request.args, table, plan.skips(number));
            number += 1;
        }
        self.batch = batch;
        // Long or unusual requests, which the batch does not cut.
        let mut parser = Parser::new(Limits::new(usize::MAX));
        while let Some(rest) = requests.get(at..).filter(|rest| !rest.is_empty())
            && let Ok(Some(request)) = parser.next(rest)
        {
            at += request.used;
            if !request.args.is_empty() {
                self.command(request.args, table, plan.skips(number));
                number += 1;
            }
        }
        from..self.replies.as_bytes().len()
    }

    /// Clears several tables, or none.
    fn clear(&mut self, requests: &[u8], alone: bool) -> Range<usize> {
        let from = self.replies.as_bytes().len();
        let opened = cleared(requests).into_iter();
        let opened = opened.map(|relation| Table::open(relation, alone));
        let done = opened
            .collect::<Result<Vec<_>, _>>()
            .and_then(|opened| tables::clear_all(&opened));
        match done {
            Ok(()) => self.replies.simple("OK"),
            Err(error) => error.write(&mut self.replies),
        }
        from..self.replies.as_bytes().len()
    }

    /// Runs COPY to another cache.
    fn copy(&mut self, requests: &[u8], table: &Table, (other, alone): (Oid, bool)) {
        let before = self.replies.as_bytes().len();
        let mut parser = Parser::new(Limits::new(usize::MAX));
        let Ok(Some(request)) = parser.next(requests) else {
            return;
        };
        let Ok(Command::Copy { from, to, options }) = Command::read(request.args) else {
            return;
        };
        let replies = &mut self.replies;
        let done = Table::open(other, alone).and_then(|other| {
            let (_, replace) = options.read(usize::MAX)?;
            let tables = (table, &other);
            self.scratch
                .run(|| tables::copy_between((from, to), tables, replace, replies))
        });
        if let Err(error) = done {
            replies.rewind(before);
            error.write(replies);
        }
    }

    /// Runs WATCH. Writes a fingerprint for each key instead of replies.
    fn watch(&mut self, requests: &[u8], table: &Table) -> Range<usize> {
        let from = self.replies.as_bytes().len();
        let mut parser = Parser::new(Limits::new(usize::MAX));
        if let Ok(Some(request)) = parser.next(requests)
            && let Ok(Command::Watch { keys }) = Command::read(request.args)
        {
            self.replies.append(&[watched_rows::NUMBERS]);
            for key in keys.iter() {
                let replies = &mut self.replies;
                match self.scratch.run(|| tables::fingerprint(table, key, false)) {
                    Ok(number) => replies.append(&number.to_le_bytes()),
                    Err(error) => {
                        replies.rewind(from);
                        error.write(replies);
                        break;
                    }
                }
            }
        }
        from..self.replies.as_bytes().len()
    }

    /// Returns the commands of an EXEC if its watched keys are unchanged; they then stay so until the transaction ends.
    /// Otherwise writes the reply.
    fn unchanged<'r>(&mut self, requests: &'r [u8], table: &Table) -> Option<&'r [u8]> {
        let head = watched_rows::read(requests)?;
        self.databases = head.databases;
        self.readers = head.readers;
        self.readers.reverse();
        let absent = head.watched.iter().filter(|(_, former)| *former == ABSENT);
        let absent: Vec<&[u8]> = absent.map(|&(key, _)| key).collect();
        if let Err(error) = tables::hold_absent(table, &absent) {
            error.write(&mut self.replies);
            return None;
        }
        for (key, former) in head.watched {
            let (lock, replies) = (former != ABSENT, &mut self.replies);
            match self.scratch.run(|| tables::fingerprint(table, key, lock)) {
                Ok(number) if number == former || fault::on(Fault::WatchNotCompared) => {}
                Ok(_) => {
                    replies.null_array();
                    return None;
                }
                Err(error) => {
                    error.write(replies);
                    return None;
                }
            }
        }
        Some(head.commands)
    }

    /// Writes the replies for a cache that is gone.
    pub fn gone(&mut self, handed: &Handed) -> Range<usize> {
        let from = self.replies.as_bytes().len();
        for _ in 0..replies_to(handed) {
            commands::write_gone(&mut self.replies);
        }
        from..self.replies.as_bytes().len()
    }

    /// Fails, and so ends the transaction, if the replies are too long to be sent.
    pub fn check_length(&self) {
        if self.replies.overflowed() {
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                "the reply is too long: raise pgcache.resp_max_request and restart the server",
                "pgcache",
            )
            .report(PgLogLevel::ERROR);
        }
    }

    /// Runs a command. Only replies to a SET that a later one overwrites.
    fn command(&mut self, args: Args<'_>, table: &Table, is_overwritten: bool) {
        let replies = &mut self.replies;
        if is_overwritten {
            return replies.simple("OK");
        }
        if replies.overflowed() {
            return; // the transaction is rolled back
        }
        let before = replies.as_bytes().len();
        let command = match Parsed::read(args) {
            Ok(command) => command,
            Err(failure) => return failure.write(replies),
        };
        match &command.command {
            Command::Copy { options, .. } => {
                if let Err(failure) = options.read(self.databases) {
                    return failure.write(replies);
                }
            }
            Command::Publish { channel, message } => {
                let readers = self.readers.pop().unwrap_or(0);
                return match publish::publish(channel, message) {
                    Ok(()) => replies.integer(i64::from(readers)),
                    Err(error) => CommandError::Own(Box::new(error)).write(replies),
                };
            }
            Command::Ping { message } => return commands::pong(*message, replies),
            Command::Echo { message } => return commands::pong(Some(message), replies),
            _ => {}
        }
        let done = self.scratch.run(|| tables::run(&command, table, replies));
        if let Err(error) = done {
            replies.rewind(before);
            error.write(replies);
        }
    }
}

/// Most bytes of the reply to a failed command. Messages of user-defined code may have any length.
pub const LONGEST_FAILURE: usize = 2 << 10;
const LONGEST_MESSAGE: usize = 1 << 10;

/// Writes the replies to commands that took no effect. Postgres' message contains no key and no value.
pub fn write_failure(handed: &Handed, failure: &Failure, replies: &mut Writer) {
    use PgSqlErrorCode as Code;
    let end = failure.message.floor_char_boundary(LONGEST_MESSAGE);
    let message = failure.message.get(..end).unwrap_or_default().as_bytes();
    if handed.work == Work::Exec {
        let words = [
            &b"EXECABORT Transaction discarded because of: "[..],
            message,
        ];
        return replies.error(&words);
    }
    let code = match failure.code {
        Code::ERRCODE_INSUFFICIENT_PRIVILEGE => "NOPERM ",
        Code::ERRCODE_READ_ONLY_SQL_TRANSACTION => "READONLY ",
        Code::ERRCODE_T_R_SERIALIZATION_FAILURE | Code::ERRCODE_T_R_DEADLOCK_DETECTED => {
            "TRYAGAIN "
        }
        _ => "ERR ",
    };
    for _ in 0..handed.commands {
        replies.error(&[code.as_bytes(), message]);
    }
}

/// Returns the tables to clear.
pub fn cleared(requests: &[u8]) -> Vec<Oid> {
    let text = String::from_utf8_lossy(requests);
    let numbers = text.split_ascii_whitespace().skip(1);
    numbers.flat_map(str::parse).map(Oid::from_u32).collect()
}

fn replies_to(handed: &Handed) -> u32 {
    match handed.work {
        Work::Exec => 1,
        _ => handed.commands,
    }
}

/// Writes the replies to commands of which it is unknown whether they took effect.
pub fn write_lost(handed: &Handed, replies: &mut Writer) {
    for _ in 0..replies_to(handed) {
        replies.error(&[
            b"ERR the process that ran this command has ended, and it is unknown whether the command took effect",
        ]);
    }
}
