//! Ensures that each file imports only from its own folder and from lower floors (layers), and that imports form no
//! cycle. ARCHITECTURE.md describes the floors.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test reports a failure by a panic"
)]

use pgcache_lint::floors::{Floors, findings};
use pgcache_lint::read;
use pgcache_lint::tree::load;

/// The floors, the highest first. A file may refer to modules of lower floors, and to its own folder; modules on one
/// floor do not refer to each other.
const FLOORS: &[Floors] = &[
    Floors {
        of: &[],
        floors: &[
            &["api", "resp", "worker"],
            &["cache"],
            &["guc"],
            &["pg"],
            &["error"],
        ],
    },
    Floors {
        of: &["cache"],
        floors: &[
            &["observer"],
            &["distribute"],
            &["fetch"],
            &["definition"],
            &["limit"],
            &["entries"],
            &["expiry"],
            &["memory"],
            &["open"],
            &["commit"],
            &["table"],
            &["lease"],
            &["catalog"],
            &["tier"],
            &["model"],
        ],
    },
    Floors {
        of: &["resp"],
        floors: &[
            &["network", "executor", "supervisor"],
            &["dispatch"],
            &["server"],
            &["shared"],
            &["tracking"],
            &["session"],
            &["commands", "ipc"],
            &["auth"],
            &["net"],
        ],
    },
    Floors {
        of: &["resp", "network"],
        floors: &[
            &["event_loop"],
            &["accept", "serve"],
            &["balance", "handshake", "listen"],
        ],
    },
    Floors {
        of: &["pg"],
        floors: &[
            &["resp", "spi", "table"],
            &["hooks"],
            &["catalog"],
            &["value", "shmem"],
            &["worker"],
            &["session"],
            &["memory", "events"],
            &["encoding", "version"],
        ],
    },
];

/// The floors of crates/resp.
const RESP: &[Floors] = &[Floors {
    of: &[],
    floors: &[
        &["command"],
        &["batch"],
        &["describe"],
        &["batch"],
        &["float"],
        &["redis_error", "request"],
        &["reply", "table", "inline", "structures"],
        &["args"],
        &["number", "glob"],
    ],
}];

/// References that still break the plan, as pairs of modules or folders. A pair that no file needs any more is a
/// finding, too, so that the list only shrinks.
const LEFT: &[&str] = &[
    // `error` writes its messages in the server's encoding. This makes no cycle, because `pg::encoding` refers to no
    // other file.
    "error -> pg::encoding",
    // Postgres' shared-memory hook needs the size of the tier, and takes no arguments.
    "pg::shmem::tier -> guc",
];

fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn names_in_the_extension_point_down() {
    let files = load("src/lib.rs", &read).unwrap();
    assert_none(findings(&files, FLOORS, LEFT));
}

#[test]
fn names_in_the_store_make_no_circle() {
    let files = load("crates/store/src/lib.rs", &read).unwrap();
    assert_none(findings(&files, &[], &[]));
}

#[test]
fn names_in_the_protocol_make_no_circle() {
    let files = load("crates/resp/src/lib.rs", &read).unwrap();
    assert_none(findings(&files, RESP, &[]));
}
