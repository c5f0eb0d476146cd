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
            &["execute"],
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
            &["serve"],
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

/// Of the crate of the protocol.
const RESP: &[Floors] = &[Floors {
    of: &[],
    floors: &[
        &["command"],
        &["batch"],
        &["describe"],
        &["batch"],
        &["float"],
        &["failure", "request"],
        &["reply", "table", "inline", "structures"],
        &["args", "number", "glob"],
    ],
}];

/// Names that break the plan and are there still, as pairs of modules or folders. One that nothing needs any more is
/// found, too: the list only shrinks.
const LEFT: &[&str] = &[
    // A message is printed in the server's encoding. That file names nothing of ours.
    "error -> pg::encoding",
    // The size is asked for by Postgres' hook before shared memory is made, which takes no argument of ours.
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
