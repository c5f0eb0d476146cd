//! Writes replies in both protocol versions (RESP 2 and 3).

use crate::number::Digits;

/// The protocol version that a client has chosen with HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Resp2,
    Resp3,
}

/// Replies that are not yet sent, up to a limit. If they exceed the limit or memory runs out, the writer has
/// overflowed: it accepts no more bytes, and the server must disconnect the client, as Redis does.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    limit: usize,
    protocol: Protocol,
    overflowed: bool,
}

impl Writer {
    pub fn new(protocol: Protocol, limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            protocol,
            overflowed: false,
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Prepares the writer for another client: empties it and sets the new client's version and limit. Keeps at most 64
    /// kB of memory.
    pub fn restart(&mut self, protocol: Protocol, limit: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(64 << 10);
        self.limit = limit;
        self.protocol = protocol;
        self.overflowed = false;
    }

    /// Removes all but the first `length` bytes.
    pub fn rewind(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Returns the written bytes, and removes them from the writer.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of bytes that the writer still accepts.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Removes the first `count` bytes, which were sent. Shrinks a large buffer when it becomes empty.
    pub fn sent(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        if self.bytes.is_empty() {
            self.bytes.shrink_to(16 << 10);
        }
    }

    #[inline]
    fn push(&mut self, pieces: &[&[u8]]) {
        let more = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let fits = self.bytes.len().saturating_add(more) <= self.limit;
        if self.overflowed || !fits || self.bytes.try_reserve(more).is_err() {
            self.overflowed = true;
            return;
        }
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
    }

    fn head(&mut self, kind: u8, number: i64) {
        self.push(&[&[kind], Digits::new().of(number), b"\r\n"]);
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.head(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn three(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// Appends replies of another writer with the same protocol version.
    pub fn append(&mut self, replies: &[u8]) {
        self.push(&[replies]);
    }

    /// Writes a status, which must contain no line break.
    pub fn simple(&mut self, text: &str) {
        self.push(&[b"+", text.as_bytes(), b"\r\n"]);
    }

    /// Writes an error, which begins with its code. Replaces line breaks in the text by blanks, because a line break
    /// could forge a reply.
    pub fn error(&mut self, pieces: &[&[u8]]) {
        self.push(&[b"-"]);
        let from = self.bytes.len();
        self.push(pieces);
        for byte in self.bytes.get_mut(from..).unwrap_or_default() {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.push(&[b"\r\n"]);
    }

    pub fn integer(&mut self, number: i64) {
        match number {
            0 => self.push(&[b":0\r\n"]),
            1 => self.push(&[b":1\r\n"]),
            _ => self.head(b':', number),
        }
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        let mut digits = Digits::new();
        let length = digits.of(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.push(&[b"$", length, b"\r\n", bytes, b"\r\n"]);
    }

    /// Begins a bulk string of this length, which the caller writes in pieces, and reserves memory for the whole
    /// string. [`Writer::end_bulk`] must follow the last piece.
    pub fn begin_bulk(&mut self, length: usize) {
        self.length(b'$', length);
        let fits = self.bytes.len().saturating_add(length + 2) <= self.limit;
        self.overflowed |= !fits || self.bytes.try_reserve_exact(length + 2).is_err();
    }

    /// Returns room for the next `length` bytes of the string, filled with zeros; an empty slice if the writer has
    /// overflowed.
    pub fn piece(&mut self, length: usize) -> &mut [u8] {
        let from = self.bytes.len();
        let fits = length <= self.bytes.capacity() - from;
        self.overflowed |= !fits;
        if !self.overflowed {
            self.bytes.resize(from + length, 0);
        }
        self.bytes.get_mut(from..).unwrap_or_default()
    }

    /// Ends a bulk string after all its bytes.
    pub fn end_bulk(&mut self) {
        self.push(&[b"\r\n"]);
    }

    /// Appends replies of another writer. Moves them instead of copying them if this writer is empty.
    pub fn adopt(&mut self, replies: Vec<u8>) {
        if !self.bytes.is_empty() {
            return self.append(&replies);
        }
        self.overflowed |= replies.len() > self.limit;
        if !self.overflowed {
            self.bytes = replies;
        }
    }

    /// Returns the bytes of memory that the writer holds.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Writes an integer as a bulk string, for commands that in Redis reply with a string.
    pub fn bulk_integer(&mut self, number: i64) {
        self.bulk(Digits::new().of(number));
    }

    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        self.push(&[if self.three() { b"_\r\n" } else { b"$-1\r\n" }]);
    }

    /// Writes the reply to an aborted EXEC.
    pub fn null_array(&mut self) {
        self.push(&[if self.three() { b"_\r\n" } else { b"*-1\r\n" }]);
    }

    /// Begins an array of this many replies.
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a map of this many pairs of replies.
    pub fn map(&mut self, pairs: usize) {
        if self.three() {
            self.length(b'%', pairs)
        } else {
            self.length(b'*', pairs.saturating_mul(2))
        }
    }

    pub fn set(&mut self, length: usize) {
        self.length(if self.three() { b'~' } else { b'*' }, length);
    }

    /// Begins a message that is not a reply to a command.
    pub fn push_message(&mut self, length: usize) {
        self.length(if self.three() { b'>' } else { b'*' }, length);
    }

    pub fn boolean(&mut self, truth: bool) {
        match self.three() {
            true => self.push(&[if truth { b"#t\r\n" } else { b"#f\r\n" }]),
            false => self.integer(i64::from(truth)),
        }
    }

    /// Writes a number with decimal places, as text.
    pub fn double(&mut self, number: &str) {
        match self.three() {
            true => self.push(&[b",", number.as_bytes(), b"\r\n"]),
            false => self.bulk(number.as_bytes()),
        }
    }

    /// Writes text for people to read, such as the reply of INFO.
    pub fn text(&mut self, text: &[u8]) {
        if !self.three() {
            return self.bulk(text);
        }
        let length = i64::try_from(text.len().saturating_add(4)).unwrap_or(i64::MAX);
        self.push(&[b"=", Digits::new().of(length), b"\r\ntxt:", text, b"\r\n"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Writer)) -> Vec<u8> {
        let mut replies = Writer::new(protocol, 1 << 10);
        write(&mut replies);
        replies.as_bytes().to_vec()
    }

    #[test]
    fn each_kind_has_its_bytes_in_both_protocols() {
        let both = |write: &dyn Fn(&mut Writer)| {
            (
                written(Protocol::Resp2, write),
                written(Protocol::Resp3, write),
            )
        };
        let bytes = |two: &[u8], three: &[u8]| (two.to_vec(), three.to_vec());
        assert_eq!(both(&|w| w.null()), bytes(b"$-1\r\n", b"_\r\n"));
        assert_eq!(both(&|w| w.null_array()), bytes(b"*-1\r\n", b"_\r\n"));
        assert_eq!(both(&|w| w.map(2)), bytes(b"*4\r\n", b"%2\r\n"));
        assert_eq!(both(&|w| w.set(1)), bytes(b"*1\r\n", b"~1\r\n"));
        assert_eq!(both(&|w| w.push_message(3)), bytes(b"*3\r\n", b">3\r\n"));
        assert_eq!(both(&|w| w.boolean(true)), bytes(b":1\r\n", b"#t\r\n"));
        assert_eq!(
            both(&|w| w.double("1.5")),
            bytes(b"$3\r\n1.5\r\n", b",1.5\r\n")
        );
        assert_eq!(
            both(&|w| w.text(b"a")),
            bytes(b"$1\r\na\r\n", b"=5\r\ntxt:a\r\n")
        );
        assert_eq!(both(&|w| w.bulk(b"")), bytes(b"$0\r\n\r\n", b"$0\r\n\r\n"));
        assert_eq!(
            both(&|w| w.integer(i64::MIN)).0,
            b":-9223372036854775808\r\n"
        );
    }

    #[test]
    fn an_error_cannot_forge_a_reply() {
        assert_eq!(
            written(Protocol::Resp2, |w| w.error(&[b"ERR a\r\n+OK\r\n"])),
            b"-ERR a  +OK  \r\n"
        );
    }

    #[test]
    fn a_writer_that_begins_anew_keeps_nothing_of_earlier_replies() {
        let mut replies = Writer::new(Protocol::Resp2, 12);
        replies.bulk(b"1234");
        replies.bulk(b"1234");
        assert!(replies.overflowed());
        replies.restart(Protocol::Resp3, 20);
        assert_eq!(
            (replies.as_bytes(), replies.overflowed()),
            (&b""[..], false)
        );
        replies.null();
        replies.bulk(b"1234");
        replies.rewind(3);
        assert_eq!(replies.as_bytes(), b"_\r\n");
    }

    #[test]
    fn a_string_in_pieces_is_the_same_string() {
        let mut replies = Writer::new(Protocol::Resp2, 100);
        replies.begin_bulk(5);
        replies.piece(3).copy_from_slice(b"abc");
        replies.piece(2).copy_from_slice(b"de");
        replies.end_bulk();
        assert_eq!(replies.as_bytes(), b"$5\r\nabcde\r\n");
        let mut others = Writer::new(Protocol::Resp2, 30);
        others.adopt(replies.take());
        others.adopt(b"+OK\r\n".to_vec());
        assert_eq!(others.as_bytes(), b"$5\r\nabcde\r\n+OK\r\n");
        assert!(!others.overflowed() && !replies.overflowed());
        others.adopt(vec![b'x'; 20]);
        assert!(others.overflowed());
    }

    #[test]
    fn a_string_in_pieces_is_bounded() {
        let mut replies = Writer::new(Protocol::Resp2, 10);
        replies.begin_bulk(5);
        assert!(replies.overflowed());
        assert_eq!(replies.piece(5), b"");
        let mut replies = Writer::new(Protocol::Resp2, 1);
        replies.adopt(b"+OK\r\n".to_vec());
        assert!(replies.overflowed());
        assert_eq!(replies.as_bytes(), b"");
    }

    #[test]
    fn beyond_the_limit_nothing_is_written() {
        let mut replies = Writer::new(Protocol::Resp2, 12);
        replies.bulk(b"1234");
        assert!(!replies.overflowed());
        replies.bulk(b"1234");
        replies.integer(1);
        assert!(replies.overflowed());
        assert_eq!(replies.as_bytes(), b"$4\r\n1234\r\n");
        replies.sent(6);
        assert_eq!(replies.as_bytes(), b"34\r\n");
    }
}
