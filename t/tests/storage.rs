//! Tests a change of a cache's storage as docs/behaviour.md describes it: which properties stay, which entries a later
//! crash leaves, and that no stale entry appears.

use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

const SETTINGS: &str =
    "SELECT ttl, max_entries, grace, negative_ttl FROM pgcache.caches WHERE cache = 'c'::regclass";
const GRANTED: &str = "SELECT array_to_string(relacl, ' ') FROM pg_class WHERE oid = 'c'::regclass";

/// Creates a cache `c` with settings, a privilege, a source, an entry without a deadline, and an entry with a deadline
/// in an hour.
fn cache(session: &mut Client, storage: &str) {
    session.run("CREATE TABLE source (id int PRIMARY KEY, name text)");
    session.run(&format!(
        "SELECT cache_create('c', '1 hour', '{storage}', max_entries => 1000, grace => '1 minute')"
    ));
    session.run("SELECT cache_tune('c', negative_ttl => '5 seconds')");
    session.run("GRANT SELECT ON c TO pg_monitor");
    session.run("SELECT cache_depend('source', 'id::text', 'c')");
    session.run(
        "SELECT cache_set('1', 'one', cache => 'c'), cache_set('2', 'two', cache_forever(), 'c')",
    );
}

/// Returns the page's statements for a move of a cache to `storage`. `relation` is the kind of the old relation, TABLE
/// or VIEW.
fn moved(relation: &str, storage: &str) -> [String; 4] {
    [
        "LOCK TABLE source IN SHARE ROW EXCLUSIVE MODE".to_owned(),
        format!(
            "ALTER {relation} c RENAME TO before;
             SELECT cache_create('c', '1 hour', '{storage}', max_entries => 1000, grace => '1 minute')"
        ),
        "SELECT count(cache_set(key, value, CASE WHEN expires_at IS NULL THEN cache_forever() ELSE make_interval(
                         secs => greatest(extract(epoch FROM expires_at - clock_timestamp()), 0.001)) END, 'c'))
           FROM before WHERE expires_at IS NULL OR expires_at > clock_timestamp()"
            .to_owned(),
        "SELECT cache_depend('source', 'id::text', 'c'), cache_drop('before')".to_owned(),
    ]
}

fn listening(database: &Database) -> Client {
    let mut watcher = database.connect();
    let channel = watcher.text("SELECT cache_watch('c')");
    watcher.run(&format!("LISTEN {channel}"));
    watcher
}

fn received(watcher: &mut Client) -> Option<String> {
    let mut notifications = watcher.notifications();
    let mut arriving = notifications.timeout_iter(Duration::from_secs(60));
    let first = arriving.next().expect("the connection holds");
    first.map(|notification| notification.payload().to_owned())
}

#[test]
fn set_logged_and_back_keeps_all_that_hangs_on_a_cache() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    cache(&mut session, "unlogged");
    let mut watcher = listening(&database);
    let kept = [SETTINGS, GRANTED, "SELECT * FROM c ORDER BY key"];
    let before = kept.map(|question| session.lines(question));
    for (alter, storage) in [("LOGGED", "logged"), ("UNLOGGED", "unlogged")] {
        session.heat("2", "c");
        session.run(&format!("ALTER TABLE c SET {alter}"));
        let stored = "SELECT storage FROM pgcache.caches WHERE cache = 'c'::regclass";
        assert_eq!(session.text(stored), storage);
        assert_eq!(kept.map(|question| session.lines(question)), before);
        session.verified("c");
        session.heat("1", "c");
        session.run("INSERT INTO source VALUES (1, 'x')");
        let expected = "{\"op\": \"delete\", \"key\": \"1\"}";
        assert_eq!(
            received(&mut watcher).as_deref(),
            Some(expected),
            "{storage}"
        );
        assert_eq!(
            session.value("SELECT cache_get('1', 'c')"),
            None,
            "{storage}"
        );
        session.run("DELETE FROM source");
        let deadline = &before[2][0]
            .split('|')
            .nth(2)
            .expect("three columns")
            .to_owned();
        session.run(&format!("INSERT INTO c VALUES ('1', 'one', '{deadline}')"));
        let expected = "{\"op\": \"set\", \"key\": \"1\"}";
        assert_eq!(
            received(&mut watcher).as_deref(),
            Some(expected),
            "{storage}"
        );
    }
}

#[test]
fn the_state_after_a_crash_follows_the_storage() {
    let cluster = Cluster::start(&[]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session
        .run("SELECT cache_create('to_logged'), cache_create('to_unlogged', storage => 'logged')");
    for cache in ["to_logged", "to_unlogged"] {
        session.run(&format!("SELECT cache_set('k', 'v', cache => '{cache}')"));
    }
    session.run("ALTER TABLE to_logged SET LOGGED");
    session.run("ALTER TABLE to_unlogged SET UNLOGGED");
    cluster.restart(Shutdown::Immediate);
    let mut session = cluster.connect("postgres");
    let get = |cache: &str| format!("SELECT cache_get('k', '{cache}')");
    assert_eq!(session.value(&get("to_logged")).as_deref(), Some("v"));
    assert_eq!(session.value(&get("to_unlogged")), None);
}

/// Moves a cache while another session has changed a source and has not yet committed. Checks that no old entry is
/// moved.
fn no_old_entry_comes_along(from: &str, relation: &str, to: &str) {
    let database = Cluster::hot().database();
    let (mut writer, mut mover) = (database.connect(), database.connect());
    cache(&mut writer, from);
    writer.run("BEGIN; INSERT INTO source VALUES (1, 'x')");
    let pid = mover.text("SELECT pg_backend_pid()");
    let mut writer = thread::scope(|scope| {
        let mut writer = writer; // dropped if this closure fails, so that no session waits for it
        let moving = scope.spawn(move || {
            mover.run("BEGIN");
            for step in moved(relation, to) {
                mover.run(&step);
            }
            mover.run("COMMIT");
        });
        wait_until("the move waits for the writer", || {
            database.connect().holds(&format!(
                "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = {pid}"
            ))
        });
        writer.run("COMMIT");
        moving.join().expect("the move ends");
        writer
    });
    let rows = "SELECT key, value, expires_at IS NULL FROM cache_scan(cache => 'c')";
    assert_eq!(writer.lines(rows), ["2|two|t"], "{from} to {to}");
    writer.run("SELECT cache_set('5', 'five', cache => 'c'); INSERT INTO source VALUES (5, 'x')");
    assert_eq!(
        writer.lines(rows),
        ["2|two|t"],
        "{to}: the dependency is there"
    );
    assert_eq!(
        writer.text("SELECT storage FROM pgcache.caches WHERE cache = 'c'::regclass"),
        to
    );
}

#[test]
fn a_move_to_memory_waits_for_writers_of_a_source() {
    no_old_entry_comes_along("unlogged", "TABLE", "memory");
}

#[test]
fn a_move_from_memory_waits_for_writers_of_a_source() {
    no_old_entry_comes_along("memory", "VIEW", "unlogged");
}

/// Uses a deadline in winter and a deadline in summer: if the statements depended on the time zone, one of the two
/// would move by an hour.
#[test]
fn deadlines_come_along_in_every_time_zone() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    cache(&mut session, "unlogged");
    session.run("SET timezone = 'America/New_York'");
    session.run("INSERT INTO c VALUES ('winter', '', '2100-01-01'), ('summer', '', '2100-07-01')");
    let deadlines =
        "SELECT key, round(extract(epoch FROM expires_at)) FROM cache_scan(cache => 'c')";
    let before = session.lines(deadlines);
    session.run("BEGIN");
    for step in moved("TABLE", "memory") {
        session.run(&step);
    }
    session.run("COMMIT");
    assert_eq!(session.lines(deadlines), before);
}

/// The waiting call fails with an error that advises to repeat the call. A later call finds the new cache.
#[test]
fn a_call_that_has_waited_for_a_move_must_be_repeated() {
    let database = Cluster::hot().database();
    let (mut mover, mut reader) = (database.connect(), database.connect());
    cache(&mut mover, "unlogged");
    reader.run("SET pgcache.hot_tier = off");
    let pid = reader.text("SELECT pg_backend_pid()");
    mover.run("BEGIN");
    for step in moved("TABLE", "memory") {
        mover.run(&step);
    }
    let get = "SELECT cache_get('1', 'c')";
    let waited = thread::scope(|scope| {
        let mut mover = mover; // dropped if this closure fails, so that no session waits for it
        let reading = scope.spawn(|| reader.try_value(get));
        wait_until("the reader waits for the move", || {
            database.connect().holds(&format!(
                "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = {pid}"
            ))
        });
        mover.run("COMMIT");
        reading.join().expect("the reader ends")
    });
    assert!(
        refused(waited, "42P01")
            .hint()
            .is_some_and(|hint| hint.contains("run the statement again"))
    );
    assert_eq!(reader.text(get), "one");
}

#[test]
fn a_move_that_is_rolled_back_leaves_the_cache_as_it_was() {
    for (from, relation, to) in [
        ("unlogged", "TABLE", "memory"),
        ("memory", "VIEW", "logged"),
    ] {
        let database = Cluster::hot().database();
        let mut session = database.connect();
        cache(&mut session, from);
        session.run("BEGIN");
        for step in moved(relation, to) {
            session.run(&step);
        }
        session.run("ROLLBACK");
        let stored = "SELECT storage FROM pgcache.caches WHERE cache = 'c'::regclass";
        assert_eq!(session.text(stored), from);
        let rows = "SELECT key, value FROM cache_scan(cache => 'c')";
        assert_eq!(session.lines(rows), ["1|one", "2|two"], "{from}");
        session.run("INSERT INTO source VALUES (1, 'x')");
        assert_eq!(
            session.lines(rows),
            ["2|two"],
            "{from}: the dependency is there"
        );
    }
}
