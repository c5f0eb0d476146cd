//! HTTP/1.1 in the form that the benchmark's web server uses: GET /get?key=, POST /set?key=.

use crate::Result;
use crate::key_distribution::key;
use crate::protocol::{Command, Protocol, Reply};

pub struct Http;

impl Protocol for Http {
    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]) {
        let target = |out: &mut Vec<u8>, start: &[u8], number| {
            out.extend_from_slice(start);
            out.extend_from_slice(&key(number));
            out.extend_from_slice(b" HTTP/1.1\r\nHost: cache\r\n");
        };
        match command {
            Command::Baseline => out.extend_from_slice(b"GET /ping HTTP/1.1\r\nHost: cache\r\n\r\n"),
            Command::Get(number) => {
                target(out, b"GET /get?key=", *number);
                out.extend_from_slice(b"\r\n");
            }
            Command::Set(number) => {
                target(out, b"POST /set?key=", *number);
                out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
            }
        }
    }

    fn decode(&self, input: &[u8], _command: &Command, value: &[u8]) -> Result<Option<Reply>> {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(start) = response.parse(input)? else {
            return Ok(None);
        };
        let body = &input[start..];
        match response.code {
            _ if body.len() < length(response.headers)? => Ok(None),
            Some(200) if body == value => Ok(Some(Reply::Hit)),
            Some(204) => Ok(Some(Reply::Done)),
            Some(404) => Ok(Some(Reply::Miss)),
            code => Err(format!("{code:?}: {}", String::from_utf8_lossy(body)).into()),
        }
    }
}

/// Returns the length of the body that follows these headers.
fn length(headers: &[httparse::Header]) -> Result<usize> {
    let said = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    said.map_or(Ok(0), |header| Ok(std::str::from_utf8(header.value)?.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Option<Reply>> {
        Http.decode(input, &Command::Get(1), b"abc")
    }

    #[test]
    fn hits_misses_and_sets_are_told_apart() {
        assert_eq!(decode(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap(), Some(Reply::Hit));
        assert_eq!(
            decode(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap(),
            Some(Reply::Miss)
        );
        assert_eq!(decode(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some(Reply::Done));
    }

    #[test]
    fn a_reply_in_two_pieces_waits_and_a_wrong_one_fails() {
        assert_eq!(decode(b"HTTP/1.1 200 OK\r\nContent-Le").unwrap(), None);
        assert_eq!(decode(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").unwrap(), None);
        assert!(decode(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz").is_err());
        assert!(decode(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
