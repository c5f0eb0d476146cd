//! Postgres: named prepared statements over protocol 3.0. Each request is Bind, Describe, Execute, Sync,
//! message for message what libpq sends and so what pgbench -M prepared sends.

use std::io::{Error, Read, Result as IoResult, Write};

use crate::law::key;
use crate::protocol::{Command, Protocol, Reply};
use crate::stream::Stream;

const PROTOCOL_3: i32 = 196_608;
const FLOOR_SQL: &str = "SELECT 1";

pub struct Postgres {
    pub database: String,
    /// One parameter, the key.
    pub read_sql: String,
    /// Two parameters, the key and the value.
    pub write_sql: String,
}

impl Protocol for Postgres {
    fn greet(&self, stream: &mut Stream) -> IoResult<()> {
        stream.write_all(&startup("postgres", &self.database))?;
        wait_until_ready(stream)?;
        for (name, sql) in [("floor", FLOOR_SQL), ("read", &self.read_sql), ("write", &self.write_sql)] {
            stream.write_all(&prepare(name, sql))?;
            wait_until_ready(stream)?;
        }
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]) {
        match command {
            Command::Floor => bind(out, b"floor", &[]),
            Command::Get(number) => bind(out, b"read", &[&key(*number)]),
            Command::Set(number) => bind(out, b"write", &[&key(*number), value]),
        }
        message(out, b'D', |body| body.extend_from_slice(b"P\0"));
        message(out, b'E', |body| body.extend_from_slice(b"\0\0\0\0\0"));
        message(out, b'S', |_| ());
    }

    fn stored(&self) -> Option<&'static [u8]> {
        None // SQL loads its entries itself
    }

    fn decode(&self, input: &[u8], command: &Command, value: &[u8]) -> Result<Option<Reply>, String> {
        let mut rest = input;
        let mut row = None;
        while let Some((kind, body, next)) = split_message(rest) {
            match kind {
                b'Z' => return judge(command, row, value).map(Some),
                b'D' => row = first_column(body),
                b'E' => return Err(error_text(body)),
                _ => (),
            }
            rest = next;
        }
        Ok(None)
    }
}

/// A miss is no row from a table and a NULL from a function.
fn judge(command: &Command, row: Option<&[u8]>, value: &[u8]) -> Result<Reply, String> {
    match (command, row) {
        (Command::Get(_), None) => Ok(Reply::Miss),
        (Command::Get(_), Some(got)) if got == value => Ok(Reply::Hit),
        (Command::Get(_), Some(_)) => Err("a read answered something that was never set".into()),
        _ => Ok(Reply::Done),
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

fn startup(user: &str, database: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, 0, |body| {
        body.extend_from_slice(&PROTOCOL_3.to_be_bytes());
        for word in ["user", user, "database", database, "application_name", "rounds-client", ""] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
    });
    out.remove(0); // the first message of a connection has no kind
    out
}

fn prepare(name: &str, sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, b'P', |body| {
        for word in [name, sql] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(&0i16.to_be_bytes()); // parameter types are the server's to infer
    });
    message(&mut out, b'S', |_| ());
    out
}

fn bind(out: &mut Vec<u8>, statement: &[u8], parameters: &[&[u8]]) {
    message(out, b'B', |body| {
        body.push(0); // the unnamed portal
        body.extend_from_slice(statement);
        body.extend_from_slice(&[0, 0, 0]); // end of name, all parameters as text
        body.extend_from_slice(&(parameters.len() as i16).to_be_bytes());
        for parameter in parameters {
            body.extend_from_slice(&(parameter.len() as i32).to_be_bytes());
            body.extend_from_slice(parameter);
        }
        body.extend_from_slice(&[0, 0]); // all results as text
    });
}

/// Kind, body and what follows, or None while the message is incomplete.
fn split_message(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let header: [u8; 4] = input.get(1..5)?.try_into().ok()?;
    let end = 1 + usize::try_from(i32::from_be_bytes(header)).ok()?;
    Some((input[0], input.get(5..end)?, &input[end..]))
}

fn first_column(row: &[u8]) -> Option<&[u8]> {
    let length = i32::from_be_bytes(row.get(2..6)?.try_into().ok()?);
    row.get(6..6 + usize::try_from(length).ok()?)
}

fn error_text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace('\0', " ")
}

fn wait_until_ready(stream: &mut Stream) -> IoResult<()> {
    let mut input = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let got = stream.read(&mut buffer)?;
        input.extend_from_slice(&buffer[..got]);
        match Ending::of(&input) {
            Ending::Ready => return Ok(()),
            Ending::Failed(text) => return Err(Error::other(text)),
            Ending::Open if got == 0 => return Err(Error::other("the server closed the connection")),
            Ending::Open => (),
        }
    }
}

enum Ending {
    Ready,
    Failed(String),
    Open,
}

impl Ending {
    fn of(input: &[u8]) -> Ending {
        let mut rest = input;
        while let Some((kind, body, next)) = split_message(rest) {
            match kind {
                b'Z' => return Ending::Ready,
                b'E' => return Ending::Failed(error_text(body)),
                b'R' if body.get(..4) != Some(&[0; 4]) => {
                    return Ending::Failed("the server wants a password; the rounds use trust".into());
                }
                _ => rest = next,
            }
        }
        Ending::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] = b"Z\0\0\0\x05I";

    fn decode(parts: &[&[u8]]) -> Result<Option<Reply>, String> {
        let server = Postgres { database: String::new(), read_sql: String::new(), write_sql: String::new() };
        server.decode(&parts.concat(), &Command::Get(1), b"abc")
    }

    #[test]
    fn an_answer_counts_once_the_server_is_ready() {
        let row = b"D\0\0\0\x0d\0\x01\0\0\0\x03abc";
        assert_eq!(decode(&[row]), Ok(None));
        assert_eq!(decode(&[row, READY]), Ok(Some(Reply::Hit)));
    }

    #[test]
    fn null_and_no_row_are_misses() {
        assert_eq!(decode(&[b"D\0\0\0\x0a\0\x01\xff\xff\xff\xff", READY]), Ok(Some(Reply::Miss)));
        assert_eq!(decode(&[READY]), Ok(Some(Reply::Miss)));
    }

    #[test]
    fn a_wrong_value_and_an_error_are_errors() {
        assert!(decode(&[b"D\0\0\0\x0d\0\x01\0\0\0\x03xyz", READY]).is_err());
        assert!(decode(&[b"E\0\0\0\x09SERR\0", READY]).is_err());
    }

    #[test]
    fn bind_carries_its_length() {
        let mut out = Vec::new();
        bind(&mut out, b"read", &[b"k"]);
        assert_eq!(out, b"B\0\0\0\x15\0read\0\0\0\0\x01\0\0\0\x01k\0\0");
    }
}
