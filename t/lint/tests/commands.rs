//! Ensures that the table in crates/resp is the only list of Redis commands: outside the handlers, no code compares a
//! command's name or lists variants of `Command`.

#![allow(clippy::unwrap_used, reason = "a test reports a failure by a panic")]

use pgcache_lint::commands::findings;
use pgcache_lint::read;
use pgcache_lint::tree::load;

/// Functions that dispatch commands by name or variant, with different code in each arm.
const HANDLERS: &[&str] = &[
    "resp::server::client",
    "resp::commands",
    "resp::server",
    "resp::server::slow_commands",
    "resp::server::tracking_commands",
];

#[test]
fn the_table_is_the_only_list_of_commands() {
    let (handlers, others): (Vec<_>, Vec<_>) = findings(&load("src/lib.rs", &read).unwrap())
        .into_iter()
        .partition(|(module, _)| HANDLERS.contains(&&**module));
    assert!(others.is_empty(), "{others:#?}");
    for handler in HANDLERS {
        let decides = handlers.iter().any(|(module, _)| module == handler);
        assert!(decides, "{handler} decides nothing by names: strike it out");
    }
}
