//! Compares the copies in the hot tier with the rows of the table, to check that the coherence protocol holds.
//!
//! The check is safe under any load. It reads the row with a new snapshot. If the copy still exists afterwards and its
//! stripe is unchanged, the copy must equal the row; otherwise the tier has served a value that no SELECT would have
//! shown. A transaction that has written, or that keeps one snapshot, compares nothing, because it does not see the
//! rows that the copies were made of.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Header, Key as HotKey};

use super::row_ops as table;
use crate::cache::catalog::reading::Reading;
use crate::cache::catalog::registry::Storage;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::tier::hashed_key::hot_key;
use crate::cache::tier::{io, walk};
use crate::pg::session;
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::value::convert;
use crate::pg::value::datum::Text;

/// An entry whose copy differs from its row: key, copy, row.
pub type Difference = (Text, Entry, Option<Entry>);

/// Compares one entry with its row when it is called. Returns None if they agree.
pub type Compare<'f> = &'f dyn Fn() -> Option<Difference>;

/// Calls `show` for each copy with a function that compares the copy with its row. `show` chooses the memory in which
/// the result is allocated.
pub fn each(cache: &Reading, show: &mut dyn FnMut(Compare)) {
    // Nothing can be compared without copies or a table, or with a snapshot that does not show other sessions' commits.
    // If policies may hide rows from the caller, the caller gets no copies at all.
    let judges =
        cache.storage != Storage::Memory && session::reads_committed_only() && !cache.row_security;
    let Some(tier) = tier().filter(|_| judges) else {
        return;
    };
    let Some(slot) = cache.slot(tier) else {
        return;
    };
    walk::each_key(tier, slot, |bytes| {
        show(&|| difference(cache, tier, slot, bytes));
    });
}

fn difference(cache: &Reading, tier: &Tier, slot: u32, bytes: &[u8]) -> Option<Difference> {
    let key = hot_key(tier, cache.id, slot, bytes);
    let text = Text::new(bytes);
    let before = tier.read(key.hash, |partition| partition.epoch(key.hash));
    let copy = present(cache, tier, &key)?;
    let row = table::get(cache, Key::stored(text), None);
    let after = tier.read(key.hash, |partition| partition.epoch(key.hash));
    let again = present(cache, tier, &key)?;
    let settled = before == after && same(Some(&copy), Some(&again));
    (settled && copy.is_live() && !same(Some(&copy), row.as_ref())).then_some((text, copy, row))
}

/// Returns the copy that a lookup would serve.
fn present(cache: &Reading, tier: &Tier, key: &HotKey) -> Option<Entry> {
    let slot = tier.slot(key.cache);
    io::copy_out(tier, key, cache.value_type, None, |header: &Header| {
        header.version == slot.version.load(SeqCst)
            && slot.pending_writers.load(SeqCst) == 0
            && slot.suspended.load(SeqCst) == 0
    })
}

fn same(one: Option<&Entry>, other: Option<&Entry>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one.deadline == other.deadline
                && match (one.value, other.value) {
                    (None, None) => true,
                    (Some(one), Some(other)) => convert::equal(one, other),
                    _ => false,
                }
        }
        _ => false,
    }
}
