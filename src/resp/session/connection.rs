//! A connection: its socket, and the bytes that wait on either side. At rest it holds none of them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use mio::event::Event;
use pgcache_resp::{Limits, Parser, Writer};
use socket2::Socket;

use crate::resp::net::registration::Registration;
use crate::resp::net::tls::{self, Encryption};
use crate::resp::session::Session;

/// Room that a buffer keeps when it is empty.
const KEPT: usize = 2 << 10;
/// Replies of more bytes are not copied, and buffers grow no further by others.
const LONG: usize = 512 << 10;
/// Bytes that a socket is given at once. One that is read meanwhile takes a reply of megabytes in one
/// call, and nobody else is served until it has.
const AT_ONCE: usize = 128 << 10;
/// Bytes of a request before it is known who the client is.
pub const UNAUTHENTICATED: usize = 4 << 10;

/// What a connection's bytes are.
pub enum Wire {
    /// None came yet, and the first one tells.
    Unknown,
    Plain,
    Encrypted(Box<Encryption>),
}

/// A client's connection.
pub struct Connection {
    pub socket: Socket,
    registration: Registration,
    pub wire: Wire,
    pub session: Session,
    pub parser: Parser,
    /// The bytes from the beginning of the first request that was not dealt with.
    pub input: Vec<u8>,
    /// Replies, and how many bytes of the first of them the socket has taken: what is long is not moved.
    unsent: VecDeque<Vec<u8>>,
    sent: usize,
    /// Messages that wait for the end of a reply that has begun, or for their client's turn.
    pushed: Vec<u8>,
    /// The socket may have bytes for us, may take some; where it takes none, its network process is told when it does.
    pub readable: bool,
    writable: bool,
    /// What has come is no whole request.
    pub hungry: bool,
    /// The other side sends nothing more; what it has sent is still read.
    pub half_closed: bool,
    /// The other side takes nothing more either. Of TCP this is known only after something was sent.
    pub hung_up: bool,
    /// It ends as soon as the last replies are sent.
    pub closing: bool,
    /// It is among those that are to be served.
    pub queued: bool,
    /// It is to be served no more: cut off at the end of its turn.
    pub killed: bool,
    /// When the socket last took some of the replies that waited.
    pub last_taken: Option<Instant>,
    /// Bytes of memory that were counted for it (`Memory`).
    pub counted: usize,
}

/// What came of reading.
#[derive(Clone, Copy, Default)]
pub enum Received {
    Bytes(usize),
    #[default]
    Nothing,
    End,
}

impl Connection {
    pub fn new(
        socket: Socket,
        registration: Registration,
        wire: Wire,
        session: Session,
    ) -> Connection {
        Connection {
            socket,
            registration,
            wire,
            session,
            parser: Parser::new(Limits::unauthenticated(UNAUTHENTICATED)),
            input: Vec::new(),
            unsent: VecDeque::new(),
            sent: 0,
            pushed: Vec::new(),
            readable: false,
            writable: true,
            hungry: true,
            half_closed: false,
            hung_up: false,
            closing: false,
            queued: false,
            killed: false,
            last_taken: None,
            counted: 0,
        }
    }

    /// Notes what its network process was told of its socket.
    pub fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_error();
        self.half_closed |= event.is_read_closed() || event.is_error();
        self.hung_up |= event.is_read_closed() && event.is_write_closed();
        self.readable |= self.half_closed;
        if event.is_writable() && !self.writable {
            // Where the set cannot be changed, it is told more than it asks for.
            let _ = self.registration.has_room(&self.socket);
            self.writable = true;
        }
    }

    /// The socket takes no more now.
    fn is_full(&mut self) -> io::Result<()> {
        self.writable = false;
        self.registration.ask_for_room(&self.socket)
    }

    /// Sends what is encrypted, as far as the socket takes it.
    fn push_encrypted(&mut self) -> io::Result<()> {
        if let Wire::Encrypted(encryption) = &mut self.wire
            && !encryption.push(&self.socket)?
        {
            return self.is_full();
        }
        Ok(())
    }

    /// Whether requests come: what it is encrypted by, if by anything, is agreed upon.
    pub fn has_begun(&self) -> bool {
        match &self.wire {
            Wire::Unknown => false,
            Wire::Plain => true,
            Wire::Encrypted(encryption) => !encryption.is_shaking(),
        }
    }

    /// Reads into this room. Where nothing came it may still be readable.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Received> {
        if let Wire::Encrypted(encryption) = &mut self.wire {
            // There may be more in the socket, or of what was decrypted: only a look tells.
            return Ok(match encryption.read(&self.socket, room)? {
                tls::Read::Bytes(0) => Received::End,
                tls::Read::Bytes(read) => {
                    self.session.activity.net_in += read as u64;
                    Received::Bytes(read)
                }
                tls::Read::Other => Received::Nothing,
                tls::Read::Nothing => {
                    self.readable = false;
                    Received::Nothing
                }
            });
        }
        loop {
            return match self.socket.read(room) {
                Ok(0) => Ok(Received::End),
                Ok(read) => {
                    self.session.activity.net_in += read as u64;
                    // Fewer than there was room for: the socket is empty.
                    self.readable = read == room.len() || self.half_closed;
                    Ok(Received::Bytes(read))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    Ok(Received::Nothing)
                }
                Err(error) => Err(error),
            };
        }
    }

    /// Keeps what is left of a request; false where there is no memory.
    #[must_use]
    pub fn keep(&mut self, bytes: &[u8]) -> bool {
        if self.input.try_reserve(bytes.len()).is_err() {
            return false;
        }
        self.input.extend_from_slice(bytes);
        true
    }

    /// So many bytes of the input were dealt with.
    pub fn used(&mut self, count: usize) {
        self.input.drain(..count.min(self.input.len()));
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = Vec::new();
        }
    }

    /// Bytes of replies that wait.
    pub fn unsent(&self) -> usize {
        // What is encrypted already is little, and counts as a byte.
        let encrypted = matches!(&self.wire, Wire::Encrypted(wire) if wire.has_unsent());
        let unsent = self.unsent.iter().map(Vec::len).sum::<usize>();
        unsent - self.sent + self.pushed.len() + usize::from(encrypted)
    }

    /// Says that the connection ends, where that is said.
    pub fn end(&mut self) {
        if let Wire::Encrypted(encryption) = &mut self.wire {
            encryption.end(&self.socket);
        }
    }

    /// Bytes of memory that its buffers hold.
    pub fn held(&self) -> usize {
        let begun = self.session.long.continued.as_ref();
        let begun = begun.map_or(0, |(continuation, _)| continuation.held());
        let unsent = self.unsent.iter().map(Vec::capacity).sum::<usize>();
        let waits = unsent + self.pushed.capacity() + begun;
        self.input.capacity() + waits + self.parser.held()
    }

    /// Bytes of memory that the client takes.
    pub fn memory(&self) -> usize {
        size_of::<Connection>() + self.held() + self.session.held()
    }

    /// Frees the buffers of a client that is to end.
    pub fn drop_buffers(&mut self) {
        self.input = Vec::new();
        self.unsent = VecDeque::new();
        self.sent = 0;
        self.pushed = Vec::new();
        self.parser = Parser::new(Limits::unauthenticated(UNAUTHENTICATED));
        self.session.long.continued = None;
        self.session.state = Default::default();
    }

    /// Sends these replies after those that wait; what the socket does not take is kept, unless there is
    /// no memory for it.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        let mut left = bytes;
        while self.writable && self.unsent.is_empty() && !left.is_empty() {
            let written = self.write(left)?;
            left = left.get(written..).unwrap_or_default();
        }
        if left.is_empty() {
            return Ok(());
        }
        if self.unsent.back().is_none_or(|last| last.len() >= LONG) {
            self.unsent.push_back(Vec::new());
        }
        if let Some(last) = self.unsent.back_mut() {
            if last.try_reserve(left.len()).is_err() {
                return Err(ErrorKind::OutOfMemory.into());
            }
            last.extend_from_slice(left);
        }
        Ok(())
    }

    /// The same of replies that a writer has: long ones are taken from it, not copied.
    pub fn send_replies(&mut self, replies: &mut Writer) -> io::Result<()> {
        self.flush()?;
        if replies.as_bytes().len() < LONG {
            return self.send(replies.as_bytes());
        }
        self.unsent.push_back(replies.take());
        self.flush()
    }

    /// Whether a part of a reply was written, so that a message cannot be sent.
    pub fn is_amid_reply(&self) -> bool {
        self.session.long.continued.is_some()
    }

    /// Sends a message that is no reply, now or after the one that has begun; false where that fails.
    #[must_use]
    pub fn push(&mut self, message: &[u8]) -> bool {
        match self.is_amid_reply() || !self.pushed.is_empty() {
            true => self.keep_push(message),
            false => self.send(message).is_ok(),
        }
    }

    /// Keeps a message until its client's turn; false where there is no memory.
    #[must_use]
    pub fn keep_push(&mut self, message: &[u8]) -> bool {
        if self.pushed.try_reserve(message.len()).is_err() {
            return false;
        }
        self.pushed.extend_from_slice(message);
        true
    }

    /// The messages that wait, if one can be sent now.
    pub fn take_pushed(&mut self) -> Vec<u8> {
        match self.is_amid_reply() {
            true => Vec::new(),
            false => std::mem::take(&mut self.pushed),
        }
    }

    /// When the client last sent or took something.
    pub fn last_active(&self) -> Instant {
        let heard = self.session.activity.last_heard;
        self.last_taken.map_or(heard, |taken| taken.max(heard))
    }

    /// Whether replies wait that the socket may take: it is the client's next turn that goes on with them.
    pub fn may_send(&self) -> bool {
        self.writable && !self.unsent.is_empty()
    }

    /// Sends some of what waits, as far as the socket takes it.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.writable {
            self.push_encrypted()?;
        }
        let mut given = 0;
        while self.writable
            && given < AT_ONCE
            && let Some(first) = self.unsent.pop_front()
        {
            let left = first.get(self.sent..).unwrap_or_default();
            let some = left.get(..AT_ONCE - given).unwrap_or(left);
            let written = match self.write(some) {
                Ok(written) => written,
                Err(error) => {
                    self.unsent.push_front(first); // what was sent of it is counted
                    return Err(error);
                }
            };
            given += written;
            self.sent += written;
            match self.sent < first.len() {
                true => self.unsent.push_front(first),
                false => self.sent = 0,
            }
        }
        if given > 0 {
            self.last_taken = Some(Instant::now());
            if self.unsent.is_empty() {
                self.unsent = VecDeque::new();
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Wire::Encrypted(encryption) = &mut self.wire {
            let taken = encryption.write(bytes)?;
            self.session.activity.net_out += taken as u64;
            self.push_encrypted()?;
            return Ok(taken);
        }
        match self.socket.write(bytes) {
            Ok(written) => {
                self.session.activity.net_out += written as u64;
                if written < bytes.len() {
                    self.is_full()?;
                }
                Ok(written)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_full()?;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }
}
