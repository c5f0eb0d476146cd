//! Which way the session's calls have taken to the tables of table caches.

use pgrx::prelude::*;

use crate::cache::path;
use crate::pg::datum::Record;
use crate::pg::typed::Typed;

#[pg_extern]
fn table_path_taken() -> Record<2> {
    let taken = path::taken();
    Record([taken.direct, taken.plan].map(Typed::number))
}
