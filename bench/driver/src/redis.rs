//! A Redis client that sends PING, GET and SET, one request at a time.

use std::io::{BufRead, BufReader, Read, Write};

use crate::Result;
use crate::key_distribution::key;
use crate::protocol::{Command, Protocol, Reply, Stream};

pub struct Redis;

impl Protocol for Redis {
    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]) {
        match command {
            Command::Baseline => request(out, &[b"PING"]),
            Command::Get(number) => request(out, &[b"GET", &key(*number)]),
            Command::Set(number) => request(out, &[b"SET", &key(*number), value]),
        }
    }

    fn stored(&self) -> Option<&'static [u8]> {
        Some(b"+OK\r\n")
    }

    fn decode(&self, input: &[u8], _command: &Command, value: &[u8]) -> Result<Option<Reply>> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let (line, rest) = (&input[..end], &input[end + 2..]);
        match line.first() {
            Some(b'+') => Ok(Some(Reply::Done)),
            Some(b'$') if line == b"$-1" => Ok(Some(Reply::Miss)),
            Some(b'$') if rest.len() < value.len() + 2 => Ok(None),
            Some(b'$') if rest.starts_with(value) => Ok(Some(Reply::Hit)),
            Some(b'$') => Err("a GET answered something that was never set".into()),
            _ => Err(format!("unexpected reply: {}", String::from_utf8_lossy(line)).into()),
        }
    }
}

fn request(out: &mut Vec<u8>, words: &[&[u8]]) {
    head(out, b'*', words.len());
    for word in words {
        head(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes the head of an argument by hand, because `write!` takes longer than the rest of a request.
fn head(out: &mut Vec<u8>, kind: u8, mut number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    while number > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// A connection of the web server, which waits for each reply and does not check the value.
pub struct Session(pub BufReader<Stream>);

impl Session {
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        request(&mut out, words);
        self.0.get_mut().write_all(&out)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.trim_end().split_at_checked(1) {
            Some(("+", _)) | Some(("$", "-1")) => Ok(None),
            Some(("$", length)) => {
                let mut value = vec![0; length.parse::<usize>()? + 2];
                self.0.read_exact(&mut value)?;
                value.truncate(value.len() - 2);
                Ok(Some(value))
            }
            _ => Err(format!("unexpected reply: {line:?}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Option<Reply>> {
        Redis.decode(input, &Command::Get(1), b"abc")
    }

    #[test]
    fn set_is_written_as_the_protocol_says() {
        let mut out = Vec::new();
        Redis.encode(&mut out, &Command::Set(7), b"abc");
        let wanted = b"*3\r\n$3\r\nSET\r\n$36\r\n6f1d7a52-3c08-4b9e-a5d4-000000000007\r\n$3\r\nabc\r\n";
        assert_eq!(out, wanted);
    }

    #[test]
    fn a_reply_in_two_pieces_waits_for_the_second() {
        assert_eq!(decode(b"$3\r\nab").unwrap(), None);
        assert_eq!(decode(b"$3\r\nabc\r\n").unwrap(), Some(Reply::Hit));
    }

    #[test]
    fn miss_done_and_errors_are_distinguished() {
        assert_eq!(decode(b"$-1\r\n").unwrap(), Some(Reply::Miss));
        assert_eq!(decode(b"+OK\r\n").unwrap(), Some(Reply::Done));
        assert!(decode(b"-ERR no\r\n").is_err());
        assert!(decode(b"$3\r\nxyz\r\n").is_err());
    }
}
