//! Runs a job in a transaction. A job is a client's commands, which an executor has taken from the work queue.

use std::ops::Range;

use pgcache_resp::{Args, Batch, Command, Parsed, Protocol, Writer};
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cache::commit::publish;
use crate::pg::memory::scratch::Scratch;
use crate::pg::resp::work_queue::{Handed, Taken, Work};
use crate::pg::session::failure::Failure;
use crate::pg::session::fault::{self, Fault};
use crate::resp::commands::command_error::CommandError;
use crate::resp::commands::watched_rows::ABSENT;
use crate::resp::commands::{self, watched_rows};
use crate::resp::executor::tables::{self, Plan, Table};

/// The largest buffer of requests that is kept for the next jobs, in bytes.
const KEPT: usize = 4 << 20;

/// The requests of the jobs that were taken together.
#[derive(Default)]
pub struct Requests {
    bytes: Vec<u8>,
    cuts: Batch,
}

impl Requests {
    /// Forgets all requests, and frees their memory if it is large.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT {
            *self = Requests::default();
        }
        self.bytes.clear();
        self.cuts.clear();
    }

    /// Returns the number of bytes of all jobs.
    pub fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Reads a job's bytes with `read`, and splits them into requests, so that this is done only once for each job.
    /// Returns the range of the bytes and the range of the requests' numbers.
    pub fn add(
        &mut self,
        work: Work,
        read: impl FnOnce(&mut Vec<u8>),
    ) -> (Range<usize>, Range<usize>) {
        let from = self.bytes.len();
        read(&mut self.bytes);
        let bytes = self.bytes.get(from..).unwrap_or_default();
        let first = match work {
            Work::Exec => watched_rows::read(bytes).map_or(bytes.len(), |head| head.length),
            // The bytes of this job are not requests but the OIDs of tables.
            Work::Clear => bytes.len(),
            Work::Read | Work::Watch | Work::Write => 0,
        };
        let cuts = self.cuts.append(&self.bytes, from + first);
        (from..self.bytes.len(), cuts)
    }

    /// Returns the arguments of a job's requests.
    fn of(&self, job: &Job) -> impl Iterator<Item = Args<'_>> + use<'_> {
        let cuts = job.cuts.clone();
        cuts.filter_map(|number| self.cuts.args(number, &self.bytes))
    }

    fn bytes(&self, job: &Job) -> &[u8] {
        self.bytes.get(job.bytes.clone()).unwrap_or_default()
    }

    /// Returns the first command's key: its second argument, which is the key of nearly all commands.
    pub fn key(&self, job: &Job) -> &[u8] {
        let first = self.of(job).next();
        first.and_then(|args| args.get(1)).unwrap_or_default()
    }

    /// Returns the tables that a job clears.
    pub fn cleared(&self, job: &Job) -> Vec<Oid> {
        if job.handed.work != Work::Clear {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(self.bytes(job));
        let numbers = text.split_ascii_whitespace().skip(1);
        numbers.flat_map(str::parse).map(Oid::from_u32).collect()
    }
}

/// The commands of one client.
pub struct Job {
    /// The job's place in the work queue. None means that the job is a part of another job.
    pub taken: Option<Taken>,
    pub handed: Handed,
    /// Whether the job's commit waits for a synchronous standby.
    pub waits: bool,
    /// The range of its bytes in [`Requests`]. Jobs run in the order of their first keys.
    pub bytes: Range<usize>,
    /// The numbers of its requests in [`Requests`].
    pub cuts: Range<usize>,
    /// The range of the job's replies in the transaction's replies.
    pub replies: Range<usize>,
}

/// The buffers with which an executor runs its jobs.
pub struct Tools {
    pub scratch: Scratch,
    pub replies: Writer,
    /// The number of databases that a COPY in an EXEC may name. For a COPY outside an EXEC, the network process has
    /// checked the number.
    databases: usize,
    /// For each PUBLISH of an EXEC, the number of clients that receive its message, in reverse order.
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

    /// Runs a job's commands inside a transaction. Appends its replies to those of earlier jobs, and returns their
    /// range. Replies that are too long raise no error here; `check_length` does so.
    pub fn run(&mut self, job: &Job, requests: &Requests, table: &Table) -> Range<usize> {
        let from = self.replies.as_bytes().len();
        self.set_protocol(&job.handed);
        self.databases = usize::MAX;
        match (job.handed.work, job.handed.copied_to) {
            (Work::Watch, _) => self.watch(requests.of(job), table),
            (Work::Clear, _) => self.clear(requests.cleared(job), job.handed.alone),
            (Work::Exec, _) => self.exec(job, requests, table),
            (_, Some(other)) => self.copy(requests.of(job), table, (other, job.handed.alone)),
            (Work::Read | Work::Write, None) => {
                requests
                    .of(job)
                    .for_each(|args| self.command(args, table, false));
            }
        }
        from..self.replies.as_bytes().len()
    }

    /// Clears several tables. If one cannot be cleared, none is.
    fn clear(&mut self, tables: Vec<Oid>, alone: bool) {
        let opened = tables.into_iter();
        let opened = opened.map(|relation| Table::open(relation, alone));
        let done = opened
            .collect::<Result<Vec<_>, _>>()
            .and_then(|opened| tables::clear_all(&opened));
        match done {
            Ok(()) => self.replies.simple("OK"),
            Err(error) => error.write(&mut self.replies),
        }
    }

    /// Runs COPY to another cache.
    fn copy<'r>(
        &mut self,
        mut requests: impl Iterator<Item = Args<'r>>,
        table: &Table,
        (other, alone): (Oid, bool),
    ) {
        let before = self.replies.as_bytes().len();
        let command = requests.next().map(Command::read);
        let Some(Ok(Command::Copy { from, to, options })) = command else {
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
    fn watch<'r>(&mut self, mut requests: impl Iterator<Item = Args<'r>>, table: &Table) {
        let from = self.replies.as_bytes().len();
        let Some(Ok(Command::Watch { keys })) = requests.next().map(Command::read) else {
            return;
        };
        self.replies.append(&[watched_rows::NUMBERS]);
        for key in keys.iter() {
            let replies = &mut self.replies;
            match self.scratch.run(|| tables::fingerprint(table, key, false)) {
                Ok(number) => replies.append(&number.to_le_bytes()),
                Err(error) => {
                    replies.rewind(from);
                    return error.write(replies);
                }
            }
        }
    }

    /// Runs EXEC.
    fn exec(&mut self, job: &Job, requests: &Requests, table: &Table) {
        if !self.is_unchanged(requests.bytes(job), table) {
            return;
        }
        let planned = match job.handed.commands > tables::FEW {
            true => tables::plan(table, requests.of(job), &mut self.scratch),
            false => Ok(Plan::default()),
        };
        match planned {
            Ok(plan) => {
                self.replies.array(job.handed.commands as usize);
                for (number, args) in requests.of(job).enumerate() {
                    self.command(args, table, plan.skips(number));
                }
            }
            Err(error) => error.write(&mut self.replies),
        }
    }

    /// Returns whether the watched keys of an EXEC are unchanged. If so, they stay unchanged until the transaction
    /// ends; if not, writes the reply.
    fn is_unchanged(&mut self, requests: &[u8], table: &Table) -> bool {
        let Some(head) = watched_rows::read(requests) else {
            return false;
        };
        self.databases = head.databases;
        self.readers = head.readers;
        self.readers.reverse();
        let absent = head.watched.iter().filter(|(_, former)| *former == ABSENT);
        let absent: Vec<&[u8]> = absent.map(|&(key, _)| key).collect();
        if let Err(error) = tables::hold_absent(table, &absent) {
            error.write(&mut self.replies);
            return false;
        }
        for (key, former) in head.watched {
            let (lock, replies) = (former != ABSENT, &mut self.replies);
            match self.scratch.run(|| tables::fingerprint(table, key, lock)) {
                Ok(number) if number == former || fault::on(Fault::WatchNotCompared) => {}
                Ok(_) => {
                    replies.null_array();
                    return false;
                }
                Err(error) => {
                    error.write(replies);
                    return false;
                }
            }
        }
        true
    }

    /// Writes the replies to commands on a cache that no longer exists.
    pub fn gone(&mut self, handed: &Handed) -> Range<usize> {
        let from = self.replies.as_bytes().len();
        for _ in 0..replies_to(handed) {
            commands::write_gone(&mut self.replies);
        }
        from..self.replies.as_bytes().len()
    }

    /// Raises an error, which rolls the transaction back, if the replies are too long to be sent.
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

    /// Runs a command. If `is_overwritten`, only writes the reply, because a later SET overwrites the value.
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

/// The maximum length of the reply to a failed command. A longer error message is cut, because messages of user-defined
/// code may have any length.
pub const LONGEST_FAILURE: usize = 2 << 10;
const LONGEST_MESSAGE: usize = 1 << 10;

/// Writes the replies to commands that took no effect, with the message of Postgres, which contains no key and no
/// value.
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

fn replies_to(handed: &Handed) -> u32 {
    match handed.work {
        Work::Exec => 1,
        _ => handed.commands,
    }
}

/// Writes the replies to commands with an unknown outcome.
pub fn write_lost(handed: &Handed, replies: &mut Writer) {
    for _ in 0..replies_to(handed) {
        replies.error(&[
            b"ERR the process that ran this command has ended, and it is unknown whether the command took effect",
        ]);
    }
}
