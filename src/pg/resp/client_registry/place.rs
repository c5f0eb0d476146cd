//! A client's place in the client registry: the information that CLIENT LIST and SQL show.
//!
//! Only the client's network process writes this information, and takes no lock. A reader that overlaps with a write
//! reads again. Any process may set `Place::end`, which requests that the client be disconnected.

use std::array;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pgcache_store::seqlock::{Seqlock, store_text, unpack};

use crate::pg::session::clock::Timestamp;

/// The information about a client that other clients and sessions can read. Long texts are truncated.
#[derive(Clone, Default)]
pub struct Shown<T = Vec<u8>> {
    pub id: u64,
    /// The OID of the client's role; 0 if the client has not authenticated.
    pub role: u32,
    pub is_superuser: bool,
    pub database: u32,
    pub protocol: u8,
    pub in_transaction: bool,
    pub connected: Timestamp,
    pub last_received: Timestamp,
    pub commands: u64,
    /// Bytes received from the client.
    pub net_in: u64,
    /// Bytes sent to the client.
    pub net_out: u64,
    /// Bytes of pending requests.
    pub input: u32,
    /// Bytes of pending replies.
    pub output: u32,
    /// The number of channels to which the client has subscribed.
    pub channels: u32,
    /// The number of patterns to which the client has subscribed.
    pub patterns: u32,
    /// The number of keys that the client watches.
    pub watched: u32,
    /// Bytes of the commands that MULTI has queued.
    pub collected: u32,
    /// Whether the client has set CLIENT NO-EVICT.
    pub no_evict: bool,
    /// Whether CLIENT TRACKING is on.
    pub tracks: bool,
    /// Whether tracking is in BCAST mode.
    pub broadcasts: bool,
    /// Whether the REDIRECT target has disconnected.
    pub redirect_broken: bool,
    /// The client that receives this client's invalidations (REDIRECT); 0 if none does.
    pub redirect: u64,
    pub last_command: T,
    pub user: T,
    pub name: T,
    pub library: T,
    pub library_version: T,
    pub address: T,
    pub local_address: T,
}

/// The number of words for all numeric fields.
const NUMBERS: usize = 12;
/// The number of words for each text field, in the order of [`Shown`].
const TEXTS: [usize; 7] = [3, 8, 8, 4, 4, 14, 14];
/// The size of [`Shown`] in words.
const WORDS: usize = NUMBERS + 3 + 8 + 8 + 4 + 4 + 14 + 14;

/// The place of a client in shared memory.
#[repr(C)]
pub(super) struct Place {
    /// The index of the client's network process plus 1; 0 if the place is free.
    pub(super) network: AtomicU32,
    /// The id of the client to disconnect; 0 if no disconnect was requested.
    pub(super) end: AtomicU64,
    version: Seqlock,
    pub(super) words: [AtomicU64; WORDS],
}

impl Place {
    pub(super) fn id(&self) -> u64 {
        self.words[0].load(Relaxed)
    }

    /// Frees the place. Returns the index of the network process that owned it, plus 1.
    pub(super) fn clear(&self) -> u32 {
        self.words[0].store(0, Relaxed);
        self.end.store(0, Relaxed);
        // Makes the version even again. A writer that was killed may have left it odd.
        drop(self.version.write());
        self.network.swap(0, AcqRel)
    }

    pub(super) fn write(&self, shown: &Shown<&[u8]>, all: bool) {
        let _writing = self.version.write();
        let flags = u32::from(shown.protocol)
            | u32::from(shown.in_transaction) << 8
            | u32::from(shown.no_evict) << 9
            | u32::from(shown.is_superuser) << 10
            | u32::from(shown.tracks) << 11
            | u32::from(shown.broadcasts) << 12
            | u32::from(shown.redirect_broken) << 13;
        let numbers: [u64; NUMBERS] = [
            shown.id,
            pair(shown.role, shown.database),
            shown.connected as u64,
            shown.last_received as u64,
            shown.commands,
            pair(shown.input, shown.output),
            pair(shown.channels, shown.patterns),
            pair(shown.watched, shown.collected),
            pair(flags, 0),
            shown.redirect,
            shown.net_in,
            shown.net_out,
        ];
        let (places, mut texts) = self.words.split_at(NUMBERS);
        for (place, number) in places.iter().zip(numbers) {
            place.store(number, Relaxed);
        }
        let shown_texts = [
            shown.last_command,
            shown.user,
            shown.name,
            shown.library,
            shown.library_version,
            shown.address,
            shown.local_address,
        ];
        // The last command is the first of the texts, and the only one that changes often.
        let count = if all { TEXTS.len() } else { 1 };
        for (length, text) in TEXTS.into_iter().zip(shown_texts).take(count) {
            let (own, rest) = texts.split_at(length);
            texts = rest;
            store_text(own, text);
        }
    }

    /// Returns the network process of the place's client, and the information about the client. Returns None if the
    /// place has no client, or if writes overlapped with every attempt to read it.
    pub(super) fn read(&self) -> Option<(usize, Shown)> {
        let (network, words) = self.version.read(|| {
            let network = self.network.load(Acquire);
            let words: [u64; WORDS] = array::from_fn(|at| self.words[at].load(Relaxed));
            (network, words)
        })?;
        let number = network.checked_sub(1).filter(|_| words[0] != 0)?;
        Some((number as usize, shown(&words)))
    }
}

fn shown(words: &[u64; WORDS]) -> Shown {
    let (numbers, mut rest) = words.split_at(NUMBERS);
    let mut texts = TEXTS.map(|length| {
        let (own, others) = rest.split_at(length);
        rest = others;
        unpack(own).collect()
    });
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let flags = low(number(8));
    let mut text = |at: usize| texts.get_mut(at).map(std::mem::take).unwrap_or_default();
    Shown {
        id: number(0),
        role: low(number(1)),
        database: high(number(1)),
        connected: number(2) as i64,
        last_received: number(3) as i64,
        commands: number(4),
        input: low(number(5)),
        output: high(number(5)),
        channels: low(number(6)),
        patterns: high(number(6)),
        watched: low(number(7)),
        collected: high(number(7)),
        protocol: flags as u8,
        in_transaction: flags & 1 << 8 != 0,
        no_evict: flags & 1 << 9 != 0,
        is_superuser: flags & 1 << 10 != 0,
        tracks: flags & 1 << 11 != 0,
        broadcasts: flags & 1 << 12 != 0,
        redirect_broken: flags & 1 << 13 != 0,
        redirect: number(9),
        net_in: number(10),
        net_out: number(11),
        last_command: text(0),
        user: text(1),
        name: text(2),
        library: text(3),
        library_version: text(4),
        address: text(5),
        local_address: text(6),
    }
}

pub(super) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

pub(super) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
