//! Which way the session's calls have taken to the tables of table caches.

use pgrx::pg_sys::Datum;
use pgrx::prelude::*;

use crate::cache::path;
use crate::pg::datum::Record;

#[pg_extern]
fn table_path_taken() -> Record<2> {
    let taken = path::taken();
    Record([taken.direct, taken.plan].map(|calls| Some(Datum::from(calls))))
}
