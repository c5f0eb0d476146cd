//! Tests that a hot standby reads logged caches, finds unlogged caches empty and writes nothing.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// Functions that read, each with its answer if the entry `k` exists with the value 1, and its answer if the entry does
/// not exist.
const READS: &[(&str, &str, &str)] = &[
    ("SELECT cache_get('k', $c)", "1", ""),
    ("SELECT cache_get_json('k', $c)", "1", ""),
    ("SELECT cache_get_bytes('k', $c)", "\\x31", ""),
    ("SELECT cache_exists('k', $c)", "t", "f"),
    ("SELECT cache_ttl('k', $c) > '0'", "t", ""),
    (
        "SELECT found, value FROM cache_lookup('k', $c)",
        "t|1",
        "f|",
    ),
    (
        "SELECT * FROM cache_get_many('{k,l}', $c)",
        "k|1,l|",
        "k|,l|",
    ),
    (
        "SELECT * FROM cache_get_many_bytes('{k}', $c)",
        "k|\\x31",
        "k|",
    ),
    ("SELECT key, value FROM cache_scan(cache => $c)", "k|1", ""),
    (
        "SELECT key, value FROM cache_scan_bytes(cache => $c)",
        "k|\\x31",
        "",
    ),
    ("SELECT * FROM cache_keys(cache => $c)", "k", ""),
    ("SELECT cache_count($c)", "1", "0"),
    (
        "SELECT found, value FROM cache_lookup_bytes('k', $c)",
        "t|\\x31",
        "f|",
    ),
    (
        "SELECT key, found, value FROM cache_lookup_many('{k,l}', $c)",
        "k|t|1,l|f|",
        "k|f|,l|f|",
    ),
    (
        "SELECT key, found, value FROM cache_lookup_many_bytes('{k}', $c)",
        "k|t|\\x31",
        "k|f|",
    ),
];

const WRITES: &[&str] = &[
    "cache_set('k', '2', cache => $c)",
    "cache_set_json('k', '2', cache => $c)",
    "cache_set_bytes('k', '2', cache => $c)",
    "cache_add('k', '2', cache => $c)",
    "cache_replace('k', '2', cache => $c)",
    "cache_cas('k', '1', '2', cache => $c)",
    "cache_incr('k', cache => $c)",
    "cache_touch('k', '1 hour', $c)",
    "cache_persist('k', $c)",
    "cache_get_touch('k', '1 hour', $c)",
    "cache_delete('k', $c)",
    "cache_delete_if('k', '1', $c)",
    "cache_delete_prefix('k', $c)",
    "cache_delete_many('{k}', $c)",
    "cache_take('k', $c)",
    "cache_set_many('{k}', '{2}', cache => $c)",
    "cache_set_many_bytes('{k}', '{2}', cache => $c)",
    "cache_add_bytes('k', '2', cache => $c)",
    "cache_replace_bytes('k', '2', cache => $c)",
    "cache_cas_bytes('k', '1', '2', cache => $c)",
    "cache_incr_existing('k', cache => $c)",
    "cache_get_touch_bytes('k', '1 hour', $c)",
    "cache_delete_if_bytes('k', '1', $c)",
    "cache_take_bytes('k', $c)",
    "cache_clear($c)",
    "cache_expire($c)",
    "cache_expire()",
    "cache_alter($c, ttl => '1 hour')",
    "cache_drop($c)",
    "cache_create('another')",
    "cache_schedule_expiry()",
];

fn in_cache(call: &str, cache: &str) -> String {
    call.replace("$c", &format!("'{cache}'"))
}

fn refuses_writes(session: &mut Client, cache: &str) {
    for write in WRITES {
        refused(
            session.try_value(&format!("SELECT {}", in_cache(write, cache))),
            "25006",
        );
    }
}

pub(crate) fn wait_for_replay(primary: &mut Client, standby: &mut Client) {
    let end = primary.text("SELECT pg_current_wal_lsn()");
    let deadline = Instant::now() + Duration::from_secs(120);
    while !standby.holds(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'")) {
        assert!(Instant::now() < deadline, "the standby does not follow");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_standby_misses_unlogged_entries_reads_logged_ones_and_can_be_promoted() {
    let primary = Cluster::start(&[]);
    let mut session = primary.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('kept', storage => 'logged'), cache_create('lost')");
    let standby = primary.standby();
    for cache in ["kept", "lost"] {
        session.run(&format!("SELECT cache_set('k', '1', '1 hour', '{cache}')"));
    }
    let mut replica = standby.connect("postgres");
    wait_for_replay(&mut session, &mut replica);
    for (read, there, missing) in READS {
        assert_eq!(
            replica.lines(&in_cache(read, "kept")).join(","),
            *there,
            "{read}"
        );
        assert_eq!(
            replica.lines(&in_cache(read, "lost")).join(","),
            *missing,
            "{read}"
        );
    }
    for cache in ["kept", "lost"] {
        refuses_writes(&mut replica, cache);
    }
    standby.promote();
    for (cache, sum) in [("kept", 2), ("lost", 1)] {
        assert_eq!(
            replica.number(&format!("SELECT cache_incr('k', cache => '{cache}')")),
            sum
        );
    }
}

#[test]
fn a_read_only_transaction_reads_and_refuses_writes() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('kept')");
    session.run("SELECT cache_set('k', '1', '1 hour', 'kept')");
    session.run("SET default_transaction_read_only = on");
    for (read, there, _) in READS {
        assert_eq!(
            session.lines(&in_cache(read, "kept")).join(","),
            *there,
            "{read}"
        );
    }
    refuses_writes(&mut session, "kept");
}

/// A snapshot on a standby may be older than the changes that were replayed, and replay removes no entries.
#[test]
fn an_old_snapshot_of_a_standby_stores_nothing() {
    let primary = Cluster::with_tier(&[]);
    let database = primary.database();
    let mut admin = database.connect();
    admin.run(
        "CREATE TABLE source (v text); INSERT INTO source VALUES ('old'); SELECT cache_create('m', storage => 'memory')",
    );
    let mut writer = database.connect();
    writer.run("BEGIN; UPDATE source SET v = 'new'");
    admin.run("CREATE TABLE later ()"); // a younger transaction ends first
    let standby = primary.standby();
    let (mut old, mut reader) = (
        standby.connect(&database.name),
        standby.connect(&database.name),
    );
    wait_for_replay(&mut admin, &mut reader);
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE later");
    writer.run("COMMIT");
    wait_for_replay(&mut admin, &mut reader);
    let fetch = "SELECT cache_fetch('k', 'SELECT v FROM source', cache => 'm')";
    assert_eq!(old.text(fetch), "old");
    old.run("COMMIT");
    assert!(reader.holds("SELECT NOT cache_exists('k', 'm')"));
    assert_eq!(reader.text(fetch), "new");
    assert_eq!(reader.text("SELECT cache_get('k', 'm')"), "new");
}
