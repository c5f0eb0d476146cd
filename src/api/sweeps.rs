//! What there is to see of sweeps: the figures behind `pgcache.stats`.

use pgrx::prelude::*;

use crate::cache::expiry::upkeep::{self, Figures};
use crate::pg::session::clock;
use crate::pg::value::rows::Rows;
use crate::pg::value::typed::Typed;

/// Figures of the caches of this database that have been swept: cache, trimmed, last_sweep, sweep_lag,
/// waiting.
#[pg_extern]
fn sweep_figures() -> Rows<5> {
    Rows(upkeep::figures().into_iter().map(row).collect())
}

fn row(figures: Figures) -> [Typed; 5] {
    let swept = figures.last_sweep.is_some();
    [
        Typed::oid(figures.relation),
        Typed::number(figures.trimmed),
        Typed::moment(figures.last_sweep),
        Typed::of(clock::interval(0, 0, figures.lag).filter(|_| swept)),
        Typed::number(figures.waiting),
    ]
}
