//! Redis: PING, GET and SET out, one reply in.

use std::io::Result as IoResult;

use crate::law::key;
use crate::protocol::{Command, Protocol, Reply};
use crate::stream::Stream;

pub struct Redis;

impl Protocol for Redis {
    fn greet(&self, _stream: &mut Stream) -> IoResult<()> {
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]) {
        match command {
            Command::Floor => out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n"),
            Command::Get(number) => {
                out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                push_bulk(out, &key(*number));
            }
            Command::Set(number) => {
                out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
                push_bulk(out, &key(*number));
                push_bulk(out, value);
            }
        }
    }

    fn stored(&self) -> Option<&'static [u8]> {
        Some(b"+OK\r\n")
    }

    fn decode(&self, input: &[u8], _command: &Command, value: &[u8]) -> Result<Option<Reply>, String> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = &input[..end];
        match line.first() {
            Some(b'+') => Ok(Some(Reply::Done)),
            Some(b'$') if line == b"$-1" => Ok(Some(Reply::Miss)),
            Some(b'$') => decode_bulk(&input[end + 2..], value),
            _ => Err(format!("unexpected reply: {}", String::from_utf8_lossy(line))),
        }
    }
}

fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = bytes.len();
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push(b'$');
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn decode_bulk(rest: &[u8], value: &[u8]) -> Result<Option<Reply>, String> {
    if rest.len() < value.len() + 2 {
        return Ok(None);
    }
    match &rest[..value.len()] == value {
        true => Ok(Some(Reply::Hit)),
        false => Err("a GET answered something that was never set".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Option<Reply>, String> {
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
        assert_eq!(decode(b"$3\r\nab"), Ok(None));
        assert_eq!(decode(b"$3\r\nabc\r\n"), Ok(Some(Reply::Hit)));
    }

    #[test]
    fn miss_done_and_errors_are_told_apart() {
        assert_eq!(decode(b"$-1\r\n"), Ok(Some(Reply::Miss)));
        assert_eq!(decode(b"+OK\r\n"), Ok(Some(Reply::Done)));
        assert!(decode(b"-ERR no\r\n").is_err());
        assert!(decode(b"$3\r\nxyz\r\n").is_err());
    }
}
