//! Names point down only, and in no circle: the plan of the floors. ARCHITECTURE.md tells what stands on each.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_lint::floors::{Floors, findings};
use pgcache_lint::read;
use pgcache_lint::tree::load;

/// The highest first. A file names modules of lower floors, and its own folder; those on one floor not each other.
const FLOORS: Floors = Floors {
    of: &[],
    floors: &[
        &["api", "worker"],
        &["cache"],
        &["guc"],
        &["pg"],
        &["error"],
    ],
};
const FLOORS_OF_CACHE: Floors = Floors {
    of: &["cache"],
    floors: &[
        &["observer"],
        &["fetch", "definition"],
        &["entries", "limit"],
        &["expiry"],
        &["memory"],
        &["open"],
        &["commit"],
        &["table"],
        &["catalog"],
        &["tier"],
        &["model"],
    ],
};

/// Whether src/cache lies on its floors yet; until then its files may name each other.
const CACHE_HAS_FLOORS: bool = false;

/// Names that break the plan and are there still, as pairs of modules or folders. One that nothing needs any more is
/// found, too: the list only shrinks.
const LEFT: &[&str] = &[
    "error -> cache::key",
    "error -> pg::encoding",
    "pg::tier -> guc",
    "pg::board -> pg::tier",
    "pg::datum -> pg::typed",
    "pg::datum -> pg::rows",
    "pg::reserve -> pg::memory",
    "pg::events -> pg",
    "pg::shape -> pg::table_target",
    "worker::visit -> worker",
];
const LEFT_IN_STORE: &[&str] = &[
    "arena -> partition",
    "arena -> pool",
    "region -> partition",
    "region -> stats",
    "stats -> eviction",
    "stats -> partition",
];

fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn names_in_the_extension_point_down() {
    let files = load("src/lib.rs", &read).unwrap();
    let (plan, left) = if CACHE_HAS_FLOORS {
        (vec![FLOORS, FLOORS_OF_CACHE], LEFT.to_vec())
    } else {
        (vec![FLOORS], [LEFT, &["cache -> cache"]].concat())
    };
    assert_none(findings(&files, &plan, &left));
}

#[test]
fn names_in_the_store_make_no_circle() {
    let files = load("crates/store/src/lib.rs", &read).unwrap();
    assert_none(findings(&files, &[], LEFT_IN_STORE));
}
