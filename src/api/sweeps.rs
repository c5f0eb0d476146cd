//! What there is to see of sweeps: the figures behind `pgcache.stats`.

use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;
use pgrx::prelude::*;

use crate::cache::upkeep::{self, Figures};
use crate::pg::clock;
use crate::pg::datum::Rows;

/// Figures of the caches of this database that have been swept: cache, trimmed, last_sweep, sweep_lag,
/// waiting.
#[pg_extern]
fn sweep_figures() -> Rows<5> {
    Rows(upkeep::figures().into_iter().map(row).collect())
}

fn row(figures: Figures) -> [Option<Datum>; 5] {
    let swept = figures.last_sweep.is_some();
    [
        Some(Datum::from(figures.relation)),
        Some(Datum::from(figures.trimmed)),
        figures.last_sweep.map(Datum::from),
        clock::interval(0, 0, figures.lag)
            .filter(|_| swept)
            .and_then(IntoDatum::into_datum),
        Some(Datum::from(figures.waiting)),
    ]
}
