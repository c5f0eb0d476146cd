//! A Postgres client: named prepared statements over protocol 3.0. Each request is Bind, Describe, Execute, Sync, the
//! same messages that libpq, and so pgbench -M prepared, sends.

use std::collections::VecDeque;
use std::io::{Read, Write};

use crate::Result;
use crate::key_distribution::key;
use crate::protocol::{Command, Protocol, Reply, Stream, connect};

const PROTOCOL_3: i32 = 196_608;

pub struct Postgres {
    pub database: String,
    /// The SQL of a get, with one parameter, the key.
    pub read_sql: String,
    /// The SQL of a set, with two parameters, the key and the value.
    pub write_sql: String,
}

impl Protocol for Postgres {
    fn greet(&self, stream: &mut Stream) -> Result<()> {
        let statements = [("baseline", "SELECT 1"), ("read", &self.read_sql), ("write", &self.write_sql)];
        Session::on(stream.try_clone()?, &self.database, &statements).map(drop)
    }

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]) {
        match command {
            Command::Baseline => execute(out, "baseline", &[]),
            Command::Get(number) => execute(out, "read", &[Some(&key(*number))]),
            Command::Set(number) => execute(out, "write", &[Some(&key(*number)), Some(value)]),
        }
        message(out, b'S', |_| ());
    }

    fn decode(&self, input: &[u8], command: &Command, value: &[u8]) -> Result<Option<Reply>> {
        let mut rest = input;
        let mut row = None;
        while let Some((kind, body, next)) = split_message(rest) {
            match kind {
                b'Z' => return judge(command, row, value).map(Some),
                b'D' => row = columns(body).next().flatten(),
                b'E' => return Err(reason(body).into()),
                _ => (),
            }
            rest = next;
        }
        Ok(None)
    }
}

/// Checks the answer to a command. A miss is an empty result from a table, and NULL from a function.
fn judge(command: &Command, row: Option<&[u8]>, value: &[u8]) -> Result<Reply> {
    match (command, row) {
        (Command::Get(_), None) => Ok(Reply::Miss),
        (Command::Get(_), Some(got)) if got == value => Ok(Reply::Hit),
        (Command::Get(_), Some(_)) => Err("a read answered something that was never set".into()),
        _ => Ok(Reply::Done),
    }
}

pub type Row = Vec<Option<String>>;
pub type Parameters<'a> = &'a [Option<&'a [u8]>];

/// A connection that waits for each answer. It serves callers that run several statements one after the other, or that
/// LISTEN.
pub struct Session {
    stream: Stream,
    input: Vec<u8>,
    notifications: VecDeque<String>,
}

impl Session {
    /// Opens a session, and prepares these statements, given by name and SQL.
    pub fn open(address: &str, database: &str, statements: &[(&str, &str)]) -> Result<Session> {
        Session::on(connect(address)?, database, statements)
    }

    fn on(stream: Stream, database: &str, statements: &[(&str, &str)]) -> Result<Session> {
        let mut session = Session { stream, input: Vec::new(), notifications: VecDeque::new() };
        session.exchange(&startup("postgres", database))?;
        for (name, sql) in statements {
            let mut out = Vec::new();
            // The server infers the types of the parameters.
            message(&mut out, b'P', |body| strings(body, &[name, sql], &[0, 0]));
            message(&mut out, b'S', |_| ());
            session.exchange(&out)?;
        }
        Ok(session)
    }

    pub fn call(&mut self, statement: &str, parameters: Parameters) -> Result<Vec<Row>> {
        self.batch(&[(statement, parameters)])
    }

    /// Runs the calls in one round trip. Returns the rows of all calls.
    pub fn batch(&mut self, calls: &[(&str, Parameters)]) -> Result<Vec<Row>> {
        let mut out = Vec::new();
        calls.iter().for_each(|(statement, parameters)| execute(&mut out, statement, parameters));
        message(&mut out, b'S', |_| ());
        self.exchange(&out)
    }

    /// Runs a statement that returns one string, or NULL.
    pub fn one(&mut self, statement: &str, parameters: Parameters) -> Result<Option<String>> {
        Ok(self.call(statement, parameters)?.pop().and_then(|mut row| row.swap_remove(0)))
    }

    pub fn simple(&mut self, sql: &str) -> Result<Vec<Row>> {
        let mut out = Vec::new();
        message(&mut out, b'Q', |body| strings(body, &[sql], &[]));
        self.exchange(&out)
    }

    /// Waits for the next notification and returns its payload.
    pub fn notification(&mut self) -> Result<String> {
        while self.notifications.is_empty() {
            self.receive(|kind| kind == b'A', &mut Vec::new())?;
        }
        Ok(self.notifications.pop_front().unwrap_or_default())
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Vec<Row>> {
        self.stream.write_all(request)?;
        let mut rows = Vec::new();
        self.receive(|kind| kind == b'Z', &mut rows)?;
        Ok(rows)
    }

    /// Reads up to a message for which `is_last` returns true. After an error, reads until the server is ready for
    /// more, and returns the error.
    fn receive(&mut self, is_last: impl Fn(u8) -> bool, rows: &mut Vec<Row>) -> Result<()> {
        let mut failed = None;
        let mut buffer = [0u8; 8192];
        loop {
            while let Some((kind, body, next)) = split_message(&self.input) {
                match kind {
                    b'D' => rows.push(columns(body).map(|column| column.map(text)).collect()),
                    b'E' => failed = failed.or_else(|| Some(reason(body))),
                    b'A' => self.notifications.push_back(payload(body)),
                    b'R' if body.get(..4) != Some(&[0; 4]) => {
                        return Err("the server wants a password; these benchmarks use trust".into());
                    }
                    _ => (),
                }
                let left = next.len();
                self.input.drain(..self.input.len() - left);
                if is_last(kind) {
                    return failed.map_or(Ok(()), |reason| Err(reason.into()));
                }
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(failed.unwrap_or("the server closed the connection".into()).into()),
                got => self.input.extend_from_slice(&buffer[..got]),
            }
        }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

fn message(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn strings(body: &mut Vec<u8>, words: &[&str], end: &[u8]) {
    for word in words {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    body.extend_from_slice(end);
}

fn startup(user: &str, database: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, 0, |body| {
        body.extend_from_slice(&PROTOCOL_3.to_be_bytes());
        strings(body, &["user", user, "database", database, "application_name", "bench-driver"], &[0]);
    });
    out.remove(0); // the first message of a connection has no kind
    out
}

fn execute(out: &mut Vec<u8>, statement: &str, parameters: Parameters) {
    message(out, b'B', |body| {
        body.push(0); // the unnamed portal
        body.extend_from_slice(statement.as_bytes());
        body.extend_from_slice(&[0, 0, 0]); // end of name, all parameters as text
        body.extend_from_slice(&(parameters.len() as i16).to_be_bytes());
        for parameter in parameters {
            body.extend_from_slice(&parameter.map_or(-1, |bytes| bytes.len() as i32).to_be_bytes());
            body.extend_from_slice(parameter.unwrap_or_default());
        }
        body.extend_from_slice(&[0, 0]); // all results as text
    });
    message(out, b'D', |body| body.extend_from_slice(b"P\0"));
    message(out, b'E', |body| body.extend_from_slice(b"\0\0\0\0\0"));
}

/// Splits off the kind and the body of a message. Returns None if the message is incomplete.
fn split_message(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let header: [u8; 4] = input.get(1..5)?.try_into().ok()?;
    let end = 1 + usize::try_from(i32::from_be_bytes(header)).ok()?;
    Some((input[0], input.get(5..end)?, &input[end..]))
}

/// Returns the columns of a row; None means NULL.
fn columns(row: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = row.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            rest = after;
            return Some(None);
        };
        let column = after.get(..length)?;
        rest = &after[length..];
        Some(Some(column))
    })
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace('\0', " ")
}

/// Returns the SQLSTATE and the message of an error.
fn reason(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).filter(|field| matches!(field.first(), Some(b'C' | b'M')));
    fields.map(|field| text(&field[1..])).collect::<Vec<_>>().join(": ")
}

/// Returns the payload of a notification, which follows the process id and the channel.
fn payload(body: &[u8]) -> String {
    text(body.get(4..).unwrap_or_default().split(|byte| *byte == 0).nth(1).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] = b"Z\0\0\0\x05I";

    fn decode(parts: &[&[u8]]) -> Result<Option<Reply>> {
        let server = Postgres { database: String::new(), read_sql: String::new(), write_sql: String::new() };
        server.decode(&parts.concat(), &Command::Get(1), b"abc")
    }

    #[test]
    fn an_answer_counts_once_the_server_is_ready() {
        let row = b"D\0\0\0\x0d\0\x01\0\0\0\x03abc";
        assert_eq!(decode(&[row]).unwrap(), None);
        assert_eq!(decode(&[row, READY]).unwrap(), Some(Reply::Hit));
    }

    #[test]
    fn null_and_no_row_are_misses() {
        assert_eq!(decode(&[b"D\0\0\0\x0a\0\x01\xff\xff\xff\xff", READY]).unwrap(), Some(Reply::Miss));
        assert_eq!(decode(&[READY]).unwrap(), Some(Reply::Miss));
    }

    #[test]
    fn a_wrong_value_and_an_error_are_errors() {
        assert!(decode(&[b"D\0\0\0\x0d\0\x01\0\0\0\x03xyz", READY]).is_err());
        assert!(decode(&[b"E\0\0\0\x09SERR\0", READY]).is_err());
    }

    #[test]
    fn bind_carries_its_length() {
        let mut out = Vec::new();
        execute(&mut out, "read", &[Some(b"k"), None]);
        assert!(out.starts_with(b"B\0\0\0\x19\0read\0\0\0\0\x02\0\0\0\x01k\xff\xff\xff\xff\0\0D"), "{out:?}");
    }

    #[test]
    fn a_row_is_split_and_null_is_none() {
        let row = b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(columns(row).collect::<Vec<_>>(), [Some(&b"a"[..]), None, Some(&b""[..])]);
    }

    #[test]
    fn an_error_is_its_code_and_message() {
        assert_eq!(reason(b"SERROR\0C22023\0Mttl is not positive\0L1\0\0"), "22023: ttl is not positive");
    }

    #[test]
    fn a_notification_is_its_payload() {
        assert_eq!(payload(b"\0\0\0\x07channel\0{}\0"), "{}");
    }
}
