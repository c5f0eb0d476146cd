//! etcd over gRPC: so much of HTTP/2 and of protocol buffers as its calls need. A client library would bring eighty
//! packages and a runtime of its own, and measure these instead.
//!
//! Answers' headers are not decoded: a call that failed ends its stream without a message, and says no more here.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::Duration;

use crate::Result;
use crate::protocol::{Stream, connect};
use crate::store::Store;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Kinds of frames, and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// What we may be sent before we have to say more: more than a run brings.
const ROOM: u32 = (1 << 31) - 1;
const WINDOW_AT_FIRST: u32 = 65_535;

pub struct Etcd {
    stream: Stream,
    input: Vec<u8>,
    next_stream: u32,
    /// How much the server still takes.
    window: i64,
    /// Messages of the call under way, and whether its stream has ended.
    message: Vec<u8>,
    messages: VecDeque<Vec<u8>>,
    ended: bool,
}

impl Etcd {
    pub fn open(address: &str) -> Result<Self> {
        let mut etcd = Etcd {
            stream: connect(address)?,
            input: Vec::new(),
            next_stream: 1,
            window: WINDOW_AT_FIRST.into(),
            message: Vec::new(),
            messages: VecDeque::new(),
            ended: false,
        };
        let mut out = PREFACE.to_vec();
        frame(&mut out, SETTINGS, 0, 0, &[&[0, 4], &ROOM.to_be_bytes()[..]].concat());
        frame(&mut out, WINDOW, 0, 0, &(ROOM - WINDOW_AT_FIRST).to_be_bytes());
        etcd.stream.write_all(&out)?;
        Ok(etcd)
    }

    fn call(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>> {
        self.send(path, message, END_STREAM)?;
        while !self.ended {
            self.receive()?;
        }
        self.messages.pop_front().ok_or_else(|| format!("etcd refused {path}").into())
    }

    fn send(&mut self, path: &str, message: &[u8], end: u8) -> Result<()> {
        let stream = self.next_stream;
        self.next_stream += 2;
        (self.ended, self.message, self.messages) = (false, Vec::new(), VecDeque::new());
        let mut headers = vec![0x83, 0x86]; // POST, http
        for (name, value) in [(&b"\x04"[..], path), (b"\x01", "etcd"), (b"\x0f\x10", "application/grpc")] {
            headers.extend_from_slice(name); // of the static table
            literal(&mut headers, value);
        }
        headers.push(0);
        literal(&mut headers, "te");
        literal(&mut headers, "trailers");
        let mut body = vec![0];
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
        while self.window < body.len() as i64 {
            self.receive()?;
        }
        self.window -= body.len() as i64;
        let mut out = Vec::new();
        frame(&mut out, HEADERS, END_HEADERS, stream, &headers);
        // Our messages are shorter than the least frame that a server must take, 16 KiB.
        frame(&mut out, DATA, end, stream, &body);
        Ok(self.stream.write_all(&out)?)
    }

    /// One read, and what it completes.
    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0u8; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => return Err("etcd closed the connection".into()),
            got => self.input.extend_from_slice(&buffer[..got]),
        }
        while let Some((kind, flags, stream, length)) = frame_head(&self.input)
            && self.input.len() >= 9 + length
        {
            let body: Vec<u8> = self.input.drain(..9 + length).skip(9).collect();
            self.take(kind, flags, stream, &body)?;
        }
        Ok(())
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, body: &[u8]) -> Result<()> {
        let ours = stream + 2 == self.next_stream;
        let mut out = Vec::new();
        match kind {
            DATA if ours => self.message.extend_from_slice(body),
            WINDOW if stream == 0 => self.window += i64::from(u32::from_be_bytes(body.try_into()?)),
            SETTINGS if flags & ACK == 0 => frame(&mut out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut out, PING, ACK, 0, body),
            GOAWAY => return Err("etcd ended the connection".into()),
            RESET if ours => self.ended = true,
            _ => (),
        }
        self.stream.write_all(&out)?;
        while let Some(length) = message_length(&self.message)
            && self.message.len() >= 5 + length
        {
            self.messages.push_back(self.message.drain(..5 + length).skip(5).collect());
        }
        self.ended |= ours && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        Ok(())
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(body);
}

/// Kind, flags, stream and length of the body.
fn frame_head(input: &[u8]) -> Option<(u8, u8, u32, usize)> {
    let &[a, b, c, kind, flags, s0, s1, s2, s3] = input.first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    Some((kind, flags, u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]), length))
}

fn message_length(input: &[u8]) -> Option<usize> {
    input.first_chunk::<5>().map(|&[_, a, b, c, d]| u32::from_be_bytes([a, b, c, d]) as usize)
}

/// A string of a header, shorter than 127 bytes.
fn literal(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn bytes(out: &mut Vec<u8>, field: u8, content: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn pairs(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(field, content)| bytes(&mut out, *field, content));
    out
}

/// The fields of a message that hold bytes, by number; numbers alone are passed over.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    fn number(rest: &mut &[u8]) -> Option<u64> {
        let (mut found, mut shift) = (0, 0);
        loop {
            let (&byte, after) = rest.split_first()?;
            *rest = after;
            found |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte < 0x80 {
                return Some(found);
            }
        }
    }
    std::iter::from_fn(move || {
        loop {
            let tag = number(&mut rest)?;
            let length = number(&mut rest)?;
            if tag & 7 == 2 {
                let (content, after) = rest.split_at_checked(length as usize)?;
                rest = after;
                return Some((tag >> 3, content));
            }
        }
    })
}

fn text_of(message: &[u8], field: u64) -> String {
    let found = fields(message).find(|(number, _)| *number == field);
    String::from_utf8_lossy(found.map_or(&[], |(_, content)| content)).into_owned()
}

/// The key behind all keys with a prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1; // our prefixes end in ASCII
    }
    end
}

/// Keys and values of a RangeResponse.
fn entries(answer: &[u8]) -> Vec<(String, String)> {
    let found = fields(answer).filter(|(number, _)| *number == 2);
    found.map(|(_, pair)| (text_of(pair, 1), text_of(pair, 5))).collect()
}

impl Store for Etcd {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.call("/etcdserverpb.KV/Put", &pairs(&[(1, key.as_bytes()), (2, value.as_bytes())])).map(drop)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        let answer = self.call("/etcdserverpb.KV/Range", &pairs(&[(1, key.as_bytes())]))?;
        Ok(entries(&answer).pop().map(|(_, value)| value))
    }

    fn scan(&mut self, prefix: &str, most: u32) -> Result<Vec<(String, String)>> {
        let mut request = pairs(&[(1, prefix.as_bytes()), (2, &end_of(prefix))]);
        request.push(3 << 3);
        varint(&mut request, most.into());
        Ok(entries(&self.call("/etcdserverpb.KV/Range", &request)?))
    }

    fn delete(&mut self, key: &str) -> Result<()> {
        self.call("/etcdserverpb.KV/DeleteRange", &pairs(&[(1, key.as_bytes())])).map(drop)
    }

    fn put_all(&mut self, entries: &[(String, String)]) -> Result<()> {
        let mut request = Vec::new();
        for (key, value) in entries {
            let put = pairs(&[(1, key.as_bytes()), (2, value.as_bytes())]);
            bytes(&mut request, 2, &pairs(&[(2, &put)])); // of what is done on success, and nothing is compared
        }
        self.call("/etcdserverpb.KV/Txn", &request).map(drop)
    }

    fn watch(&mut self, prefix: &str, patience: Duration) -> Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        let create = pairs(&[(1, prefix.as_bytes()), (2, &end_of(prefix))]);
        self.send("/etcdserverpb.Watch/Watch", &pairs(&[(1, &create)]), 0)?;
        self.changed().map(drop) // that it was created
    }

    fn changed(&mut self) -> Result<Vec<String>> {
        while self.messages.is_empty() && !self.ended {
            self.receive()?;
        }
        let message = self.messages.pop_front().ok_or("etcd ended the watch")?;
        let events = fields(&message).filter(|(number, _)| *number == 11);
        let pairs = events.filter_map(|(_, event)| fields(event).find(|(number, _)| *number == 2));
        Ok(pairs.map(|(_, pair)| text_of(pair, 1)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_length_kind_flags_and_stream() {
        let mut out = Vec::new();
        frame(&mut out, DATA, END_STREAM, 3, b"abc");
        assert_eq!(out, b"\0\0\x03\0\x01\0\0\0\x03abc");
        assert_eq!(frame_head(&out), Some((DATA, END_STREAM, 3, 3)));
        assert_eq!(frame_head(&out[..8]), None);
    }

    #[test]
    fn fields_are_found_behind_numbers() {
        // RangeResponse: kvs { key "k" create_revision 300 value "v" } count 1
        let mut pair = pairs(&[(1, b"k")]);
        pair.extend_from_slice(&[2 << 3, 0xac, 0x02]);
        pair.extend_from_slice(&pairs(&[(5, b"v")]));
        let mut answer = pairs(&[(2, &pair)]);
        answer.extend_from_slice(&[4 << 3, 1]);
        assert_eq!(entries(&answer), [("k".to_string(), "v".to_string())]);
    }

    #[test]
    fn long_contents_have_long_lengths() {
        let long = vec![b'v'; 300];
        assert_eq!(text_of(&pairs(&[(1, b"k"), (2, &long)]), 2).len(), 300);
    }

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(end_of("key:0"), b"key:1");
    }
}
