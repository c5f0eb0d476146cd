//! What becomes of a cache that could not be swept or vacuumed: it is left alone for a while.

use crate::cache::expiry::on_demand;
use crate::cache::expiry::upkeep::{self, Due};
use crate::pg::session::failure::Failure;
use crate::pg::shmem::worker_state::SweepState;

/// Notes that a cache could not be swept, so that it is left alone for a while; warns the first time.
pub fn put_off(due: &Due, state: &SweepState, failure: &Failure) {
    if upkeep::put_off(state) == 1 {
        failure.warn(on_demand::could_not_sweep(&due.name));
    }
}
