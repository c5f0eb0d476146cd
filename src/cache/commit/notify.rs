//! Collects a transaction's changes to watched caches (`cache_watch`), and sends them through NOTIFY when it commits.
//!
//! The order that a watcher relies on: a transaction sends one notification for each changed key. It describes the
//! key's last change, and the notifications have the order of these last changes. It sends nothing that was rolled
//! back. Postgres' NOTIFY defines the order between transactions, and the delivery.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry;
use crate::cache::model::savepoints::{Join, Savepoints};
use crate::pg::events::{self, RowChange};
use crate::pg::memory;
use crate::pg::session;
use crate::pg::session::async_notify::{self, PAYLOAD_LIMIT};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction_local::TransactionLocal;

/// A channel and the key that changed; None instead of a key means all keys.
type Place = (u64, Option<Box<[u8]>>);

/// For each key, the sequence number of its last change within the session, and the word for the change in the payload.
type Last = HashMap<Place, (u64, &'static str)>;

impl Join for Last {
    fn join(&mut self, later: Last) {
        make_room(self, later.len());
        self.extend(later);
    }
}

thread_local! {
    static NOTED: TransactionLocal<Savepoints<Last>> = TransactionLocal::default();
    static TURN: Cell<u64> = const { Cell::new(0) };
}

fn make_room(last: &mut Last, more: usize) {
    if last.try_reserve(more).is_err() {
        let entries = last.len().saturating_add(more).saturating_mul(2);
        memory::exhausted(entries.saturating_mul(size_of::<(Place, (u64, &str))>()));
    }
}

/// Returns the name of the channel of a watched cache.
pub fn channel(id: u64) -> String {
    format!("pgcache_{id:016x}")
}

/// Notes that an entry of a cache was set or removed.
pub fn note(cache: Oid, key: &[u8], change: RowChange) {
    let word = match change {
        RowChange::Set => "set",
        RowChange::Gone => "delete",
    };
    put(cache, Some(key), word);
}

/// Notes that an entry of a cache has expired.
pub fn note_expired(cache: Oid, key: &[u8]) {
    put(cache, Some(key), "expire");
}

/// Notes that all entries of a cache were removed.
pub fn note_clear(cache: Oid) {
    put(cache, None, "clear");
}

fn put(cache: Oid, key: Option<&[u8]>, word: &'static str) {
    let watched = registry::find(cache)
        .ok()
        .and_then(|cache| cache.settings.watch);
    let Some(id) = watched.filter(|_| !session::in_recovery()) else {
        return;
    };
    let turn = TURN.get() + 1;
    TURN.set(turn);
    // A key that does not fit into a payload is sent as null, so the part beyond the limit is not needed.
    let shortened = |key: &[u8]| key[..key.len().min(PAYLOAD_LIMIT)].into();
    let place = (id, key.map(shortened));
    with(|noted| {
        let last = noted.at(events::nesting_level());
        make_room(last, 1);
        last.insert(place, (turn, word));
    });
    if events::is_late() {
        at_commit();
    }
}

fn with<R>(change: impl FnOnce(&mut Savepoints<Last>) -> R) -> R {
    NOTED.with(|noted| noted.change(change))
}

/// Passes all notes to NOTIFY before the commit, which sends them.
pub fn at_commit() {
    let last = with(std::mem::take).into_one();
    let mut changes = memory::collect(last.into_iter());
    changes.sort_unstable_by_key(|&(_, (turn, _))| turn);
    for ((id, key), (_, word)) in changes {
        let channel = CString::new(channel(id)).unwrap_or_default();
        async_notify::notify(&channel, payload(word, key.as_deref()));
    }
}

/// Drops all notes at the end of the transaction.
pub fn forget() {
    with(|noted| *noted = Savepoints::default());
}

/// Merges the notes of a released savepoint into its parent.
pub fn release_savepoint(level: i32) {
    with(|noted| noted.release(level));
}

/// Drops the notes of a savepoint that was rolled back.
pub fn roll_back_savepoint(level: i32) {
    if fault::on(Fault::RollbackNotified) {
        return release_savepoint(level);
    }
    drop(with(|noted| noted.roll_back(level)));
}

/// Builds `{"op": "set", "key": "..."}`. The key is null for a clear, and if the key does not fit.
fn payload(word: &str, key: Option<&[u8]>) -> Vec<u8> {
    let with_key = |key: &[u8]| {
        [
            format!("{{\"op\": \"{word}\", \"key\": ").as_bytes(),
            key,
            b"}",
        ]
        .concat()
    };
    key.map(|key| with_key(&quoted(key)))
        .filter(|payload| payload.len() < PAYLOAD_LIMIT)
        .unwrap_or_else(|| with_key(b"null"))
}

/// Returns a JSON string. Escaping byte by byte is safe, because in a server encoding the bytes of ASCII characters
/// occur in no other character.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut json = vec![b'"'];
    for &byte in text {
        match byte {
            b'"' | b'\\' => json.extend([b'\\', byte]),
            0..0x20 => json.extend(format!("\\u{byte:04x}").bytes()),
            _ => json.push(byte),
        }
    }
    json.push(b'"');
    json
}
