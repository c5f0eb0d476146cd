//! The ring of messages for the network processes: messages that sessions send with `pgcache.publish`, and those of
//! clients for readers at another network process.
//!
//! Writers exclude each other by a lock, which they hold only while they copy. Network processes read without a lock,
//! each from its own position. A reader notices that words were overwritten meanwhile, because a writer announces how
//! far it is going to write before it writes. Then it is unknown which messages were lost, and the network process
//! reports the loss.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use pgrx::pg_sys;

use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::shared_memory;

/// Bytes of the ring. A network process drains it in each round of its event loop, so this must last for the longest
/// round.
const ROOM: usize = 4 << 20;
const WORDS: usize = ROOM / 8;
/// Bits of each of two lengths in a message's first word; the sender is above both.
const LENGTH_BITS: u32 = 28;
/// The most bytes of messages in one transaction: a part of the ring, so that other messages find room beside them.
pub const MOST: usize = 1 << 20;

/// Bytes of shared memory.
pub const BYTES: usize = size_of::<Ring>();

#[repr(C)]
struct Ring {
    /// Words that were written since the start of the server, and the same number including the words that are being
    /// written.
    end: AtomicU64,
    reserved: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// A message: its channel and its text.
pub struct Message {
    pub channel: Vec<u8>,
    pub text: Vec<u8>,
}

/// The ring of this server.
#[derive(Clone, Copy)]
pub struct Messages {
    ring: &'static Ring,
    lock: std::ptr::NonNull<pg_sys::LWLock>,
}

/// The position of a network process in the ring.
pub struct Reader {
    messages: Messages,
    at: u64,
    /// The sender number of its own messages.
    own: u64,
}

/// The sender number of messages of sessions.
pub const SESSION: u64 = 0;

/// Returns the sender number of a network process's messages.
pub fn sender(network: usize) -> u64 {
    network as u64 + 1
}

/// The result of reading the ring.
pub enum Found {
    Message(Message),
    /// The ring was overwritten before it was read: an unknown number of messages is lost.
    Lost,
}

/// Returns the words of a message: one for its two lengths, and both texts.
fn words(bytes: usize) -> usize {
    1 + bytes.div_ceil(8)
}

/// Returns the bytes of the ring that a message takes.
pub fn cost(channel: usize, text: usize) -> usize {
    words(channel.saturating_add(text)).saturating_mul(8)
}

impl Messages {
    /// Returns None if the Redis protocol is off.
    pub fn of_server() -> Option<Messages> {
        let area = shared_memory::of_server()?;
        // SAFETY: as many bytes lie there from an aligned address on, zeroed at the start, for as long as the server
        // lives; all their contents are atomic.
        let ring = unsafe { area.messages.cast().as_ref() };
        Some(Messages {
            ring,
            lock: area.lock,
        })
    }

    /// Puts all of these messages into the ring, in order, and wakes the network processes. It never fails, because
    /// it is called after a transaction has committed. Together the messages take at most [`MOST`] bytes.
    pub fn send<'a, I: Iterator<Item = (&'a [u8], &'a [u8])>>(&self, messages: impl Fn() -> I) {
        self.put_all(SESSION, messages);
        if let Some(registry) = ClientRegistry::of_server() {
            registry.wake_networks();
        }
    }

    /// Puts a message of a client of this network process into the ring for the other network processes. It takes at
    /// most [`MOST`] bytes.
    pub fn send_from(&self, network: usize, channel: &[u8], text: &[u8]) {
        self.put_all(sender(network), || std::iter::once((channel, text)));
    }

    fn put_all<'a, I: Iterator<Item = (&'a [u8], &'a [u8])>>(
        &self,
        sender: u64,
        messages: impl Fn() -> I,
    ) {
        let length = |(channel, text): (&[u8], &[u8])| words(channel.len() + text.len());
        let all: usize = messages().map(length).sum();
        // SAFETY: the lock lies in shared memory for as long as the server lives. The code until its release can
        // neither fail nor wait.
        unsafe { pg_sys::LWLockAcquire(self.lock.as_ptr(), pg_sys::LWLockMode::LW_EXCLUSIVE) };
        let mut at = self.ring.end.load(Relaxed);
        self.ring.reserved.store(at + all as u64, Relaxed);
        fence(Release);
        for (channel, text) in messages() {
            let lengths = channel.len() as u64 | (text.len() as u64) << LENGTH_BITS;
            self.put(&mut at, lengths | sender << (2 * LENGTH_BITS));
            let mut bytes = channel.iter().chain(text);
            for _ in 1..length((channel, text)) {
                let mut eight = [0; 8];
                for (place, byte) in eight.iter_mut().zip(&mut bytes) {
                    *place = *byte;
                }
                self.put(&mut at, u64::from_le_bytes(eight));
            }
        }
        self.ring.end.store(at, Release);
        // SAFETY: taken above.
        unsafe { pg_sys::LWLockRelease(self.lock.as_ptr()) };
    }

    fn put(&self, at: &mut u64, word: u64) {
        self.ring.words[(*at % WORDS as u64) as usize].store(word, Relaxed);
        *at += 1;
    }

    /// Returns a reader for the network process of this number that begins at the present end.
    pub fn reader(self, network: usize) -> Reader {
        Reader {
            messages: self,
            at: self.ring.end.load(Acquire),
            own: sender(network),
        }
    }
}

impl Reader {
    /// Returns whether messages wait.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.messages.ring.end.load(Acquire) != self.at
    }

    /// Skips all messages that wait.
    pub fn pass(&mut self) {
        self.at = self.messages.ring.end.load(Acquire);
    }

    /// Returns the next message of another sender; None: all are read.
    pub fn next(&mut self) -> Option<Found> {
        let ring = self.messages.ring;
        let word = |at: u64| ring.words[(at % WORDS as u64) as usize].load(Relaxed);
        loop {
            let end = ring.end.load(Acquire);
            if end == self.at {
                return None;
            }
            let first = word(self.at);
            let lengths = [first, first >> LENGTH_BITS].map(|word| word & ((1 << LENGTH_BITS) - 1));
            let [channel, text] = lengths.map(|length| length as usize);
            let length = words(channel.saturating_add(text));
            // If the first word was overwritten, its lengths are arbitrary.
            if !self.is_whole() || length as u64 > end - self.at {
                return Some(self.lose());
            }
            if first >> (2 * LENGTH_BITS) == self.own {
                self.at += length as u64;
                continue;
            }
            let mut bytes: Vec<u8> = (1..length as u64)
                .flat_map(|nth| word(self.at + nth).to_le_bytes())
                .collect();
            if !self.is_whole() {
                return Some(self.lose());
            }
            self.at += length as u64;
            bytes.truncate(channel + text);
            let text = bytes.split_off(channel);
            let channel = bytes;
            return Some(Found::Message(Message { channel, text }));
        }
    }

    /// Returns whether no writer has begun to overwrite the words that were read.
    fn is_whole(&self) -> bool {
        fence(Acquire);
        self.messages.ring.reserved.load(Relaxed) - self.at <= WORDS as u64
    }

    fn lose(&mut self) -> Found {
        self.pass();
        Found::Lost
    }
}
