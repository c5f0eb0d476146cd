//! The expected size of an entry, which determines the layout of the hot tier's index: the setting
//! `pgcache.hot_entry_size`, or the average of an earlier run.
//!
//! The size decides only how much of the hot tier becomes index; entries of any size fit any index. At a clean stop the
//! postmaster writes the average to a file in the data directory, and the next start reads it. A crash, or a run with
//! few entries, leaves the older file. If the file is missing or unreadable, the store's default applies.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::Read;

use pgcache_store::{Layout, Params, Stats};

/// The file is in pg_stat, where extensions keep statistics across a restart; after initdb or pg_upgrade it does not
/// exist.
const FILE: &str = "pg_stat/pgcache.entry_size";
/// The file while it is being written.
const WRITTEN: &str = "pg_stat/pgcache.entry_size.tmp";
/// A run with fewer entries than this does not overwrite the file, because its average predicts little.
const MIN_ENTRIES: u64 = 1_000;
/// The largest size that is used from the file. A larger size means a smaller index. An index that is too small for the
/// entries leaves memory unused until another restart; an index that is too large wastes only one percent of the tier.
const MAX_REMEMBERED: usize = 1_024;
/// The maximum number of bytes that are read from the file, regardless of its content.
const MAX_DIGITS: u64 = 32;

thread_local! {
    // A process reads the size once, because the request for memory and each start after a crash must compute the same
    // layout.
    static EXPECTED: OnceCell<Option<usize>> = const { OnceCell::new() };
}

/// Returns the layout of a region of this size; None if the size is too small. `setting` is the value of
/// `pgcache.hot_entry_size`, if it is set. A tiny tier that has no room for the index of small entries gets the default
/// index, because neither the setting nor the file may turn off the tier.
pub fn layout(size: usize, partitions: u32, setting: Option<usize>) -> Option<Layout> {
    let stock = Params::new(size, partitions);
    let expected = EXPECTED.with(|expected| *expected.get_or_init(|| setting.or_else(remembered)));
    expected
        .and_then(|size| Layout::with(stock.expecting(size)).ok())
        .or_else(|| Layout::with(stock).ok())
}

fn remembered() -> Option<usize> {
    let mut text = String::new();
    File::open(FILE)
        .ok()?
        .take(MAX_DIGITS)
        .read_to_string(&mut text)
        .ok()?;
    let size: usize = text.trim().parse().ok()?;
    Some(size.min(MAX_REMEMBERED))
}

/// Writes the file for the next start. The postmaster calls this when the server has stopped.
pub fn remember(stats: &Stats) {
    if let Some(size) = held(stats) {
        // If the write fails, only the size of this run is lost.
        let _ = fs::write(WRITTEN, format!("{size}\n")).and_then(|()| fs::rename(WRITTEN, FILE));
    }
}

fn held(stats: &Stats) -> Option<usize> {
    Params::entry_size(stats.bytes, stats.entries).filter(|_| stats.entries >= MIN_ENTRIES)
}
