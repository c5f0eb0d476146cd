//! Tests the Redis command COPY between a table and a memory cache.

use std::time::Instant;

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::tables::{LOGGED, UNLOGGED, client_in, reply, send, start};
use pgcache_tests::wait::wait_until;

const OK: fn() -> Reply = || Reply::status("OK");

#[test]
fn copy_keeps_value_and_ttl_and_replaces_only_on_request() {
    let door = start(&[]);
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        let (mut source, mut target) = (client_in(&door, from, None), client_in(&door, to, None));
        let db = to.to_string();
        assert_eq!(
            source.ask(&["COPY", "none", "k", "DB", &db]),
            Reply::Integer(0)
        );
        assert_eq!(source.ask(&["SET", "k", "v", "PX", "500000"]), OK());
        assert_eq!(
            source.ask(&["COPY", "k", "k", "DB", &db]),
            Reply::Integer(1)
        );
        assert_eq!(target.ask(&["GET", "k"]), Reply::bulk("v"));
        let deadline = source.ask(&["PEXPIRETIME", "k"]);
        assert_eq!(target.ask(&["PEXPIRETIME", "k"]), deadline);
        assert_eq!(source.ask(&["SET", "k", "w"]), OK());
        assert_eq!(
            source.ask(&["COPY", "k", "k", "DB", &db]),
            Reply::Integer(0)
        );
        assert_eq!(target.ask(&["GET", "k"]), Reply::bulk("v"));
        assert_eq!(
            source.ask(&["COPY", "k", "k", "DB", &db, "REPLACE"]),
            Reply::Integer(1)
        );
        assert_eq!(target.ask(&["GET", "k"]), Reply::bulk("w"));
        assert_eq!(target.ask(&["TTL", "k"]), Reply::Integer(-1));
        assert_eq!(source.ask(&["DEL", "k"]), Reply::Integer(1));
        assert_eq!(target.ask(&["DEL", "k"]), Reply::Integer(1));
    }
}

#[test]
fn copy_needs_the_privileges_on_both_caches_and_leaves_no_half() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; GRANT ALL ON {CACHE}, {UNLOGGED}, {LOGGED} TO app"
    ));
    let mut clients = [0, 1].map(|database| client_in(&door, database, Some("app")));
    for client in &mut clients {
        assert_eq!(client.ask(&["SET", "k", "v"]), OK());
    }
    for (source, target) in [(0, 1), (1, 0)] {
        let caches = [CACHE, UNLOGGED];
        let db = target.to_string();
        let copy = ["COPY", "k", "new", "DB", &db];
        for (right, cache) in [("SELECT", caches[source]), ("INSERT", caches[target])] {
            session.run(&format!("REVOKE {right} ON {cache} FROM app"));
            let words = clients[source].ask(&copy).error();
            assert!(words.starts_with("NOPERM"), "{words}");
            session.run(&format!("GRANT {right} ON {cache} TO app"));
            assert_eq!(clients[target].ask(&["EXISTS", "new"]), Reply::Integer(0));
        }
        assert_eq!(clients[source].ask(&["MULTI"]), OK());
        assert_eq!(clients[source].ask(&copy), Reply::status("QUEUED"));
        clients[source].ask(&["EXEC"]);
        assert_eq!(clients[target].ask(&["EXISTS", "new"]), Reply::Integer(0));
    }
}

/// Creates a session that has locked a row, a client whose COPY from a memory cache waits for that row, and a client of
/// the row's table.
fn waiting(door: &Door) -> (postgres::Client, Client, Client) {
    let mut session = door.cluster.connect("postgres");
    let (mut memory, mut table) = (client_in(door, 0, None), client_in(door, 1, None));
    assert_eq!(memory.ask(&["SET", "k", "v"]), OK());
    assert_eq!(table.ask(&["SET", "k", "old"]), OK());
    session.run(&format!(
        "BEGIN; UPDATE {UNLOGGED} SET value = 'sql' WHERE key = 'k'"
    ));
    send(&mut memory, &["COPY", "k", "k", "DB", "1", "REPLACE"]);
    let mut watcher = door.cluster.connect("postgres");
    wait_until("an executor waits for the row", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
    (session, memory, table)
}

#[test]
fn copy_waits_for_a_row_that_is_locked() {
    let door = start(&["pgcache.resp_executors = 3"]);
    let (mut session, mut memory, mut table) = waiting(&door);
    // COPY in the other direction does not wait, and reads the committed row.
    assert_eq!(
        table.ask(&["COPY", "k", "copied", "DB", "0"]),
        Reply::Integer(1)
    );
    session.run("COMMIT");
    assert_eq!(reply(&mut memory), Reply::Integer(1));
    assert_eq!(table.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(memory.ask(&["GET", "copied"]), Reply::bulk("old"));
}

#[test]
fn slow_commands_continue_while_copy_waits() {
    let door = start(&["pgcache.resp_executors = 2"]);
    let (mut session, mut memory, mut table) = waiting(&door);
    let begun = Instant::now();
    for _ in 0..3 {
        let keys = table.ask(&["KEYS", "*"]);
        assert_eq!(keys, Reply::Array(vec![Reply::bulk("k")]));
    }
    assert!(begun.elapsed().as_secs() < 3, "{:?}", begun.elapsed());
    session.run("COMMIT");
    assert_eq!(reply(&mut memory), Reply::Integer(1));
    assert_eq!(table.ask(&["GET", "k"]), Reply::bulk("v"));
}
