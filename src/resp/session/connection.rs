//! A client's connection: its socket, its input, and the replies that wait to be sent. It neither parses nor runs
//! requests. An idle connection holds no buffers, so that many idle clients take little memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use mio::event::Event;
use pgcache_resp::{Limits, Parser, Writer};
use socket2::Socket;

use crate::resp::net::registration::Registration;
use crate::resp::net::tls::{self, Encryption};
use crate::resp::session::Session;

/// The capacity that an empty buffer may keep, in bytes.
const KEPT: usize = 2 << 10;
/// Replies longer than this are moved instead of copied, and a buffer of this length takes no further replies.
const LONG: usize = 512 << 10;
/// The maximum number of waiting bytes that [`Connection::flush`] writes to a socket at once. Without this limit, a
/// peer that reads during the write would receive megabytes in one call, which would delay all other clients.
const AT_ONCE: usize = 128 << 10;
/// The maximum length in bytes of a request from a client that has not authenticated.
pub const UNAUTHENTICATED: usize = 4 << 10;

/// How the bytes of a connection are encoded.
pub enum Wire {
    /// No byte has arrived yet; the first byte decides.
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
    /// The input from the beginning of the first request that is not finished.
    pub input: Vec<u8>,
    /// The replies that wait.
    unsent: VecDeque<Vec<u8>>,
    /// The number of bytes of the first waiting reply that the socket has taken. With this number, a long reply need
    /// not be moved when a part of it is sent.
    sent: usize,
    /// Messages that wait for the end of a reply that has begun, or for the client's next turn.
    pushed: Vec<u8>,
    /// Whether the socket may have bytes to read.
    pub readable: bool,
    /// Whether the socket may accept bytes. If it accepts none, it is registered for the event that it accepts bytes
    /// again.
    writable: bool,
    /// Whether the input contains no complete request.
    pub hungry: bool,
    /// Whether the peer sends no more bytes. The bytes that it has sent are still read.
    pub half_closed: bool,
    /// Whether the peer does not receive bytes either. With TCP this becomes known only after bytes were sent.
    pub hung_up: bool,
    /// Whether the connection ends as soon as the last replies are sent.
    pub closing: bool,
    /// Whether the client is on the list of clients to serve.
    pub queued: bool,
    /// Whether the client is no longer served, and its connection ends at its next turn.
    pub killed: bool,
    /// The time at which the socket last took some of the waiting replies.
    pub last_taken: Option<Instant>,
    /// The number of bytes of memory that `Memory` has counted for the client.
    pub counted: usize,
}

/// The result of reading from a connection.
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

    /// Notes an event of the socket.
    pub fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_error();
        self.half_closed |= event.is_read_closed() || event.is_error();
        self.hung_up |= event.is_read_closed() && event.is_write_closed();
        self.readable |= self.half_closed;
        if event.is_writable() && !self.writable {
            // A failure is ignored: its only effect is that the socket reports more events than necessary.
            let _ = self.registration.note_room(&self.socket);
            self.writable = true;
        }
    }

    /// Notes that the socket accepts no bytes now, and registers for the event that it accepts bytes again.
    fn note_full(&mut self) -> io::Result<()> {
        self.writable = false;
        self.registration.request_room(&self.socket)
    }

    /// Sends the encrypted bytes, as far as the socket takes them.
    fn push_encrypted(&mut self) -> io::Result<()> {
        if let Wire::Encrypted(encryption) = &mut self.wire
            && !encryption.push(&self.socket)?
        {
            return self.note_full();
        }
        Ok(())
    }

    /// Returns whether requests can arrive: the connection is not encrypted, or the TLS handshake is complete.
    pub fn has_begun(&self) -> bool {
        match &self.wire {
            Wire::Unknown => false,
            Wire::Plain => true,
            Wire::Encrypted(encryption) => !encryption.is_shaking(),
        }
    }

    /// Reads bytes into `room`. The connection may be readable even after `Received::Nothing`.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Received> {
        if let Wire::Encrypted(encryption) = &mut self.wire {
            // The socket may have more bytes, or more bytes may be decrypted already; only another read shows this.
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
                    // If the socket has not filled the room, it is empty.
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

    /// Keeps an incomplete request. Returns false if memory is exhausted.
    #[must_use]
    pub fn keep(&mut self, bytes: &[u8]) -> bool {
        if self.input.try_reserve(bytes.len()).is_err() {
            return false;
        }
        self.input.extend_from_slice(bytes);
        true
    }

    /// Removes the first `count` bytes of the input, which are finished requests.
    pub fn used(&mut self, count: usize) {
        self.input.drain(..count.min(self.input.len()));
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = Vec::new();
        }
    }

    /// Returns the number of bytes that wait to be sent. Encrypted bytes count as one byte, because they are few.
    pub fn unsent(&self) -> usize {
        let encrypted = matches!(&self.wire, Wire::Encrypted(wire) if wire.has_unsent());
        let unsent = self.unsent.iter().map(Vec::len).sum::<usize>();
        unsent - self.sent + self.pushed.len() + usize::from(encrypted)
    }

    /// Announces the end of an encrypted connection to the peer.
    pub fn end(&mut self) {
        if let Wire::Encrypted(encryption) = &mut self.wire {
            encryption.end(&self.socket);
        }
    }

    /// Returns the bytes of memory that the buffers hold.
    pub fn held(&self) -> usize {
        let begun = self.session.unfinished.continued.as_ref();
        let begun = begun.map_or(0, |(continuation, _)| continuation.held());
        let unsent = self.unsent.iter().map(Vec::capacity).sum::<usize>();
        let waits = unsent + self.pushed.capacity() + begun;
        self.input.capacity() + waits + self.parser.held()
    }

    /// Returns the bytes of memory that the client takes.
    pub fn memory(&self) -> usize {
        size_of::<Connection>() + self.held() + self.session.held()
    }

    /// Frees the buffers of a client whose connection is about to end.
    pub fn drop_buffers(&mut self) {
        self.input = Vec::new();
        self.unsent = VecDeque::new();
        self.sent = 0;
        self.pushed = Vec::new();
        self.parser = Parser::new(Limits::unauthenticated(UNAUTHENTICATED));
        self.session.unfinished.continued = None;
        self.session.state = Default::default();
    }

    /// Sends replies, after the replies that already wait. Keeps the part that the socket does not take, and fails if
    /// there is no memory for this part.
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

    /// Sends the replies of a writer as `send` does, but takes long replies from the writer instead of copying them.
    pub fn send_replies(&mut self, replies: &mut Writer) -> io::Result<()> {
        self.flush()?;
        if replies.as_bytes().len() < LONG {
            return self.send(replies.as_bytes());
        }
        self.unsent.push_back(replies.take());
        self.flush()
    }

    /// Returns whether the TLS handshake is not complete, or the first byte, which shows whether the client uses TLS,
    /// has not arrived.
    pub fn is_shaking(&self) -> bool {
        match &self.wire {
            Wire::Unknown => true,
            Wire::Encrypted(encryption) => encryption.is_shaking(),
            Wire::Plain => false,
        }
    }

    /// Returns whether only a part of a reply is written, so that no message can be sent now.
    pub fn is_amid_reply(&self) -> bool {
        self.session.unfinished.continued.is_some()
    }

    /// Sends a message that is not a reply, either now or after the reply that has begun. Returns false if sending or
    /// keeping it fails.
    #[must_use]
    pub fn push(&mut self, message: &[u8]) -> bool {
        match self.is_amid_reply() || !self.pushed.is_empty() {
            true => self.keep_push(message),
            false => self.send(message).is_ok(),
        }
    }

    /// Keeps a message until the client's next turn. Returns false if memory is exhausted.
    #[must_use]
    pub fn keep_push(&mut self, message: &[u8]) -> bool {
        if self.pushed.try_reserve(message.len()).is_err() {
            return false;
        }
        self.pushed.extend_from_slice(message);
        true
    }

    /// Removes and returns the messages that wait, if they can be sent now.
    pub fn take_pushed(&mut self) -> Vec<u8> {
        match self.is_amid_reply() {
            true => Vec::new(),
            false => std::mem::take(&mut self.pushed),
        }
    }

    /// Returns the time at which the client last sent or received bytes.
    pub fn last_active(&self) -> Instant {
        let received = self.session.activity.last_received;
        self.last_taken
            .map_or(received, |taken| taken.max(received))
    }

    /// Returns whether replies wait that the socket may take. The client's next turn begins with them.
    pub fn may_send(&self) -> bool {
        self.writable && !self.unsent.is_empty()
    }

    /// Sends some of the waiting replies, as far as the socket takes them.
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
                    self.unsent.push_front(first); // `sent` counts the bytes of `first` that were sent
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
                    self.note_full()?;
                }
                Ok(written)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.note_full()?;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }
}
