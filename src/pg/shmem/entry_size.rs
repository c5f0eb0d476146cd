//! The entry size for which the index of the tier is laid out: the setting, or the average of the server's
//! last run.
//!
//! It decides only how much of the tier is index: any entries fit any index. A file in the data directory
//! keeps the size from a stop to the next start. If the file is missing or cannot be read, the store's
//! default applies.

use std::cell::{Cell, OnceCell};
use std::fs;

use pgcache_store::{Params, Stats};
use pgrx::pg_sys;
use pgrx::prelude::*;

/// Where extensions keep statistics over a restart; an initdb or pg_upgrade begins without.
const FILE: &str = "pg_stat/pgcache.entry_size";
const WRITTEN: &str = "pg_stat/pgcache.entry_size.tmp";
/// The fewest entries of a run that predict the next one.
const MIN_ENTRIES: u64 = 1_000;
/// The largest remembered size. An index that is too small for the next load leaves memory empty until
/// another restart; one that is too large costs only a percent.
const MAX_REMEMBERED: usize = 1_024;

/// Reads the tier's statistics; None without a tier.
pub type ReadStats = fn() -> Option<Stats>;

thread_local! {
    // Read once, because the request for memory and each start after a crash must compute the same layout.
    static EXPECTED: OnceCell<Option<usize>> = const { OnceCell::new() };
    static STATS: Cell<Option<ReadStats>> = const { Cell::new(None) };
}

/// Returns the store's parameters for a region of this size. `setting`: what `pgcache.hot_entry_size` says, if anything.
pub fn params(size: usize, partitions: u32, setting: Option<usize>) -> Params {
    let stock = Params::new(size, partitions);
    let expected = EXPECTED.with(|expected| *expected.get_or_init(|| setting.or_else(remembered)));
    expected.map_or(stock, |size| stock.expecting(size))
}

fn remembered() -> Option<usize> {
    let size: usize = fs::read_to_string(FILE).ok()?.trim().parse().ok()?;
    Some(size.min(MAX_REMEMBERED))
}

/// Lets the postmaster write the file when it stops. `stats` reads the tier's statistics then.
pub fn register(stats: ReadStats) {
    STATS.set(Some(stats));
    // SAFETY: called at the start, where the postmaster registers what runs when it exits; the
    // function is one of this library, which is never unloaded.
    unsafe {
        if !pg_sys::IsUnderPostmaster {
            pg_sys::on_shmem_exit(Some(keep), pg_sys::Datum::from(0));
        }
    }
}

/// Writes the file, except after a crash: then `code` is not 0, and the tier may be in any state.
#[pg_guard]
unsafe extern "C-unwind" fn keep(code: i32, _argument: pg_sys::Datum) {
    if code != 0 {
        return;
    }
    let Some(size) = STATS.get().and_then(|stats| held(&stats()?)) else {
        return;
    };
    // A failure loses only the size of this run.
    let _ = fs::write(WRITTEN, format!("{size}\n")).and_then(|()| fs::rename(WRITTEN, FILE));
}

fn held(stats: &Stats) -> Option<usize> {
    Params::entry_size(stats.bytes, stats.entries).filter(|_| stats.entries >= MIN_ENTRIES)
}
