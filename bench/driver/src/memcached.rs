//! A memcached client: get and set of the text protocol. Encodes messages by hand, because no crate encodes them
//! without a connection.

use crate::Result;
use crate::key_distribution::key;
use crate::protocol::{Command, Protocol, Reply};

pub struct Memcached;

impl Protocol for Memcached {
    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]) {
        match command {
            Command::Baseline => out.extend_from_slice(b"version\r\n"),
            Command::Get(number) => {
                out.extend_from_slice(b"get ");
                out.extend_from_slice(&key(*number));
                out.extend_from_slice(b"\r\n");
            }
            Command::Set(number) => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(&key(*number));
                out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn stored(&self) -> Option<&'static [u8]> {
        Some(b"STORED\r\n")
    }

    fn decode(&self, input: &[u8], _command: &Command, value: &[u8]) -> Result<Option<Reply>> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        match &input[..end] {
            b"STORED" => Ok(Some(Reply::Done)),
            b"END" => Ok(Some(Reply::Miss)),
            line if line.starts_with(b"VERSION") => Ok(Some(Reply::Done)),
            line if line.starts_with(b"VALUE ") => decode_value(&input[end + 2..], value),
            // The server could not free room in the value's size class at this moment.
            line if line.starts_with(b"SERVER_ERROR out of memory") => Ok(Some(Reply::Refused)),
            line => Err(format!("unexpected reply: {}", String::from_utf8_lossy(line)).into()),
        }
    }
}

fn decode_value(rest: &[u8], value: &[u8]) -> Result<Option<Reply>> {
    const TAIL: &[u8] = b"\r\nEND\r\n";
    if rest.len() < value.len() + TAIL.len() {
        return Ok(None);
    }
    match rest.strip_prefix(value) {
        Some(TAIL) => Ok(Some(Reply::Hit)),
        _ => Err("a get answered something that was never set".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Option<Reply>> {
        Memcached.decode(input, &Command::Get(1), b"abc")
    }

    #[test]
    fn set_is_written_as_the_protocol_says() {
        let mut out = Vec::new();
        Memcached.encode(&mut out, &Command::Set(7), b"abc");
        assert_eq!(out, b"set 6f1d7a52-3c08-4b9e-a5d4-000000000007 0 0 3\r\nabc\r\n");
    }

    #[test]
    fn a_reply_in_two_pieces_waits_for_the_second() {
        assert_eq!(decode(b"VALUE k 0 3\r\nab").unwrap(), None);
        assert_eq!(decode(b"VALUE k 0 3\r\nabc\r\nEND\r\n").unwrap(), Some(Reply::Hit));
    }

    #[test]
    fn miss_done_refused_and_errors_are_distinguished() {
        assert_eq!(decode(b"END\r\n").unwrap(), Some(Reply::Miss));
        assert_eq!(decode(b"STORED\r\n").unwrap(), Some(Reply::Done));
        assert_eq!(decode(b"SERVER_ERROR out of memory storing object\r\n").unwrap(), Some(Reply::Refused));
        assert!(decode(b"ERROR\r\n").is_err());
        assert!(decode(b"VALUE k 0 3\r\nxyz\r\nEND\r\n").is_err());
        assert!(decode(b"VALUE k 0 6\r\nabcdef\r\nEND\r\n").is_err());
    }
}
