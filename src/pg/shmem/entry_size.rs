//! The expected size of an entry, which determines the layout of the hot tier's index: the setting
//! `pgcache.hot_entry_size`, or the average of the server's last run.
//!
//! The size decides only how much of the hot tier becomes index; entries of any size fit any index. A file in the data
//! directory keeps the size from a stop to the next start. If the file is missing or unreadable, the store's default
//! applies.

use std::cell::OnceCell;
use std::fs;

use pgcache_store::{Params, Stats};

/// The file lies in pg_stat, where extensions keep statistics across a restart; after initdb or pg_upgrade it does not
/// exist.
const FILE: &str = "pg_stat/pgcache.entry_size";
const WRITTEN: &str = "pg_stat/pgcache.entry_size.tmp";
/// The minimum number of entries in a run for a prediction of the next run.
const MIN_ENTRIES: u64 = 1_000;
/// The largest remembered size. An index that is too small for the next load leaves memory unused until another
/// restart; an index that is too large costs only one percent.
const MAX_REMEMBERED: usize = 1_024;

thread_local! {
    // A process reads the size once, because the request for memory and each start after a crash must compute the same
    // layout.
    static EXPECTED: OnceCell<Option<usize>> = const { OnceCell::new() };
}

/// Returns the store's parameters for a region of this size. `setting` is the value of `pgcache.hot_entry_size`, if
/// it is set.
pub fn params(size: usize, partitions: u32, setting: Option<usize>) -> Params {
    let stock = Params::new(size, partitions);
    let expected = EXPECTED.with(|expected| *expected.get_or_init(|| setting.or_else(remembered)));
    expected.map_or(stock, |size| stock.expecting(size))
}

fn remembered() -> Option<usize> {
    let size: usize = fs::read_to_string(FILE).ok()?.trim().parse().ok()?;
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
