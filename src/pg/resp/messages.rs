//! A ring in shared memory that carries PUBLISH messages to the network processes: messages that sessions send with
//! `pgcache.publish`, and messages that a client sends to subscribers of other network processes.
//!
//! Writers and readers do not wait for each other (`pgcache_store::ring`). A network process that was too slow notices
//! that it lost messages, but not which messages.

use std::time::{Duration, Instant};

use pgcache_store::ring::{self, Next, Ring};

use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::shared_memory;

/// The ring's size in bytes. A network process reads all messages in each round of its event loop, so the ring must
/// have room for the messages that arrive during the longest round.
const ROOM: usize = 4 << 20;
const WORDS: usize = ROOM / 8;
/// The maximum number of bytes that one transaction may send. It is less than the ring, so that other messages find
/// room.
pub const MOST: usize = 1 << 20;
/// A message that its sender does not finish within this time counts as lost. The sender copies the message without
/// waiting, so it takes that long only if it is not running.
const UNFINISHED: Duration = Duration::from_secs(1);

/// The bytes of shared memory that the ring takes.
pub const BYTES: usize = size_of::<Ring<WORDS>>();

/// A message: its channel and its text.
pub struct Message {
    pub channel: Vec<u8>,
    pub text: Vec<u8>,
}

/// The ring of this server.
#[derive(Clone, Copy)]
pub struct Messages {
    ring: &'static Ring<WORDS>,
}

/// The position of a network process in the ring.
pub struct Reader {
    unread: ring::Reader<'static, WORDS>,
    /// The sender number of the network process's own messages, which it skips.
    own: u64,
    /// The time since which the next message has been unfinished; None if it is finished.
    unfinished: Option<Instant>,
}

/// The sender number of all messages that sessions send.
pub const SESSION: u64 = 0;

/// Returns the sender number of a network process's messages.
pub fn sender(network: usize) -> u64 {
    network as u64 + 1
}

/// The result of reading the ring.
pub enum Found {
    Message(Message),
    /// Writers overwrote messages before this process read them; their number is unknown.
    Lost,
}

/// Returns the bytes of the ring that a message takes.
pub fn cost(channel: &[u8], text: &[u8]) -> usize {
    ring::words(&[channel, text]) * 8
}

impl Messages {
    /// Returns the ring of messages; None if the Redis protocol is off.
    pub fn of_server() -> Option<Messages> {
        let area = shared_memory::of_server()?;
        // SAFETY: the ring begins at an aligned address, has the bytes of `BYTES`, is zeroed at the server's start, and
        // lives as long as the server; all its contents are atomic.
        let ring = unsafe { area.messages.cast().as_ref() };
        Some(Messages { ring })
    }

    /// Puts all of these messages into the ring, in order, and wakes the network processes. Never fails, as required of
    /// a function that sessions call after their transaction has committed. Together the messages take at most [`MOST`]
    /// bytes.
    pub fn send<'a>(&self, messages: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        messages.for_each(|(channel, text)| self.put(SESSION, channel, text));
        if let Some(registry) = ClientRegistry::of_server() {
            registry.wake_networks();
        }
    }

    /// Puts a message of a client of this network process into the ring, for the other network processes. The
    /// message takes at most [`MOST`] bytes.
    pub fn send_from(&self, network: usize, channel: &[u8], text: &[u8]) {
        self.put(sender(network), channel, text);
    }

    fn put(&self, sender: u64, channel: &[u8], text: &[u8]) {
        let lengths = channel.len() as u64 | (text.len() as u64) << u32::BITS;
        self.ring.append([lengths, sender], &[channel, text]);
    }

    /// Returns a reader for the network process with this index. The reader begins at the current end of the ring.
    pub fn reader(self, network: usize) -> Reader {
        Reader {
            unread: ring::Reader::begin(self.ring),
            own: sender(network),
            unfinished: None,
        }
    }
}

impl Reader {
    /// Returns whether the ring has unread messages, finished or not.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.unread.is_behind()
    }

    /// Returns whether the next message can be read now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.unread.is_ready()
    }

    /// Marks all unread messages as read.
    pub fn pass(&mut self) {
        self.unread.pass();
    }

    /// Returns the next message of another sender; None if all are read, or if the next message is unfinished.
    pub fn next(&mut self) -> Option<Found> {
        loop {
            let mut bytes = Vec::new();
            let next = self.unread.next(|word| bytes.extend_from_slice(&word));
            let since = self.unfinished.take();
            match next {
                Next::End => return None,
                Next::Record([_, sender]) if sender == self.own => {}
                Next::Record([lengths, _]) => {
                    let (channel, text) = (lengths as u32 as usize, lengths >> u32::BITS);
                    let mut of_text = bytes.split_off(channel.next_multiple_of(8));
                    of_text.truncate(text as usize);
                    bytes.truncate(channel);
                    return Some(Found::Message(Message {
                        channel: bytes,
                        text: of_text,
                    }));
                }
                Next::Unfinished if since.is_none_or(|since| since.elapsed() < UNFINISHED) => {
                    self.unfinished = since.or_else(|| Some(Instant::now()));
                    return None;
                }
                Next::Unfinished | Next::Lost => {
                    self.pass();
                    return Some(Found::Lost);
                }
            }
        }
    }
}
