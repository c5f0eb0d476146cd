//! Raises a notice if a publication of all tables, or of a whole schema, includes a new cache.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{OIDOID, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::pg::catalog::relation;
use crate::pg::encoding::{decode, printable};
use crate::pg::spi::plan::query_once;
use crate::pg::value::typed::Typed;

/// Raises a notice if a publication of all tables, or of all tables of a schema, includes the cache: a subscriber that
/// lacks the table stops at the cache's first entry.
pub fn notice_publication(cache: Oid) {
    let first = query_once(OF_ALL, &[OIDOID], &[Typed::oid(cache)], |output| {
        Some(decode(output.text(0, 0)?.bytes()))
    });
    let Some(publication) = first else {
        return;
    };
    let cache = relation::display_name(cache);
    let message = format!("publication \"{publication}\" includes cache \"{cache}\"");
    let code = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
    ErrorReport::new(code, printable(message), "cache_create")
        .set_hint("Create the cache on each subscriber before it gets entries, or use storage unlogged, which is not published.")
        .report(PgLogLevel::NOTICE);
}

/// The first publication by name that includes table $1 without listing it.
const OF_ALL: &CStr = c"SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication AS p \
    WHERE p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS n, pg_catalog.pg_class AS c \
        WHERE n.pnpubid OPERATOR(pg_catalog.=) p.oid AND n.pnnspid OPERATOR(pg_catalog.=) c.relnamespace \
        AND c.oid OPERATOR(pg_catalog.=) $1) \
    ORDER BY p.pubname LIMIT 1";
