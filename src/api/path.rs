//! Which way the session's calls have taken to the tables of table caches.

use pgrx::prelude::*;

use crate::cache::table::access_path;
use crate::pg::value::rows::Record;
use crate::pg::value::typed::Typed;

#[pg_extern]
fn table_path_taken() -> Record<2> {
    let taken = access_path::taken();
    Record([taken.direct, taken.plan].map(Typed::number))
}
