//! Notifications of changes: what a transaction did to the keys of watched caches, told when it commits.
//!
//! Guards what a watcher may rely on: one notification a key and transaction, saying what the last change
//! was, in the order of these last changes; none of what was rolled back. Order between transactions,
//! and delivery, is Postgres' NOTIFY.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry;
use crate::cache::model::expiring::Sweeping;
use crate::cache::model::savepoints::{Layers, Notes};
use crate::pg::events::{self, Change, Phase};
use crate::pg::session;
use crate::pg::session::transaction_local::Kept;
use crate::pg::spi::notify::{self, PAYLOAD_LIMIT};

/// A channel, and the key that changed; None: all of them.
type Place = (u64, Option<Box<[u8]>>);

/// When in the transaction the last change was, and what: a word of the payload's.
type Last = HashMap<Place, (u64, &'static str)>;

impl Notes for Last {
    fn absorb(&mut self, later: Last) {
        self.extend(later);
    }
}

thread_local! {
    static NOTED: Kept<Layers<Last>> = Kept::default();
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// The name of a watched cache's channel.
pub fn channel(id: u64) -> String {
    format!("pgcache_{id:016x}")
}

/// An entry of a cache was set or is gone.
pub fn note(cache: Oid, key: &[u8], change: Change) {
    let word = match change {
        Change::Set => "set",
        Change::Gone if Sweeping::is_on() => "expire",
        Change::Gone => "delete",
    };
    put(cache, Some(key), word);
}

/// All entries of a cache are gone.
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
    let place = (id, key.map(Into::into));
    with(|noted| {
        noted
            .at(events::nesting_level())
            .insert(place, (turn, word))
    });
    if events::phase() == Phase::Committing {
        at_commit();
    }
}

fn with<R>(change: impl FnOnce(&mut Layers<Last>) -> R) -> R {
    NOTED.with(|noted| noted.change(change))
}

/// Before the commit: hands everything to NOTIFY, which sends it.
pub fn at_commit() {
    let noted = with(std::mem::take);
    let mut last = Last::new();
    for layer in noted.iter() {
        last.extend(layer.iter().map(|(place, change)| (place.clone(), *change)));
    }
    let mut changes: Vec<_> = last.into_iter().collect();
    changes.sort_unstable_by_key(|&(_, (turn, _))| turn);
    for ((id, key), (_, word)) in changes {
        let channel = CString::new(channel(id)).unwrap_or_default();
        notify::notify(&channel, payload(word, key.as_deref()));
    }
}

/// The transaction has ended.
pub fn forget() {
    with(|noted| *noted = Layers::default());
}

/// The savepoint of this level was released.
pub fn release_savepoint(level: i32) {
    with(|noted| noted.release(level));
}

/// The savepoint of this level was rolled back.
pub fn roll_back_savepoint(level: i32) {
    with(|noted| noted.roll_back(level));
}

/// `{"op": "set", "key": "..."}`; the key is null for a clear, and where it would not fit.
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

/// A JSON string. A server's encoding has ASCII's characters in ASCII's bytes only.
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
