//! Tests pgcache with new features of Postgres 19: REPACK, ON CONFLICT DO SELECT, WAIT FOR LSN, parallel autovacuum
//! workers. On older servers these tests do nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::stage::Stage;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

fn is_older() -> bool {
    Stage::current().major() < 19
}

/// For each type of deadline: the statement that creates a table `t` for DO SELECT, and a deadline that has passed.
const TABLES: &[(&str, &str)] = &[
    (
        "SELECT cache_create('t', ttl => NULL)",
        "now() - interval '1 hour'",
    ),
    (
        "SELECT cache_create('t', storage => 'logged')",
        "now() - interval '1 hour'",
    ),
    (
        "CREATE TABLE t (key varchar(20) PRIMARY KEY, value text, expires_at timestamptz(0) NOT NULL DEFAULT 'infinity'); \
         SELECT cache_attach('t')",
        "now() - interval '1 hour'",
    ),
    (
        "CREATE TABLE t (key text PRIMARY KEY, value text, expires_at bigint NOT NULL DEFAULT 0); \
         SELECT cache_attach('t', expires_unit => 'ms')",
        "1",
    ),
    (
        "CREATE TABLE t (key text PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY HASH (key); \
         CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0); \
         CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1); \
         SELECT cache_attach('t')",
        "now() - interval '1 hour'",
    ),
];

#[test]
fn on_conflict_do_select_returns_live_rows_and_takes_the_place_of_expired_ones() {
    if is_older() {
        return;
    }
    for (table, past) in TABLES {
        let mut session = Cluster::hot().database().connect();
        session.run(table);
        session.run("INSERT INTO t (key, value) VALUES ('live', 'old')");
        for lock in ["", "FOR UPDATE", "FOR KEY SHARE"] {
            let insert = format!(
                "INSERT INTO t (key, value) VALUES ('live', 'new'), ('dead', 'new') \
                 ON CONFLICT (key) DO SELECT {lock} RETURNING key, value"
            );
            session.run(&format!(
                "SET pgcache.show_expired = on; DELETE FROM t WHERE key = 'dead'; \
                 INSERT INTO t VALUES ('dead', 'old', {past}); RESET pgcache.show_expired"
            ));
            assert_eq!(session.lines("SELECT key FROM t"), ["live"], "{table}");
            let given = session.lines(&insert);
            assert_eq!(given, ["live|old", "dead|new"], "{table} {lock}");
            assert_eq!(session.lines(&insert), given, "{table} {lock}");
            assert_eq!(
                session.value("SELECT cache_get('dead', 't')").as_deref(),
                Some("new"),
                "{table} {lock}"
            );
            session.run("DELETE FROM t WHERE key = 'dead'");
        }
    }
}

/// DO SELECT evaluates its condition only for the live row.
#[test]
fn a_condition_of_do_select_never_sees_an_expired_value() {
    if is_older() {
        return;
    }
    let mut session = Cluster::hot().database().connect();
    session.run("SELECT cache_create('c')");
    for value in ["old", "new"] {
        session.run("SELECT cache_set('k', 'old', ttl => '1 ms', cache => 'c'), pg_sleep(0.01)");
        let given = session.lines(&format!(
            "INSERT INTO c (key, value) VALUES ('k', 'new') ON CONFLICT (key) \
             DO SELECT WHERE c.value = '{value}' RETURNING value"
        ));
        assert_eq!(given, ["new"], "{value}");
        let again = session.lines(&format!(
            "INSERT INTO c (key, value) VALUES ('k', 'newer') ON CONFLICT (key) \
             DO SELECT WHERE c.value = '{value}' RETURNING value"
        ));
        let expected: &[&str] = if value == "new" { &["new"] } else { &[] };
        assert_eq!(again, expected, "{value}");
        session.run("SELECT cache_delete('k', 'c')");
    }
    // The control: a session that shows expired rows finds the expired row.
    session.run("SELECT cache_set('k', 'old', ttl => '1 ms', cache => 'c'), pg_sleep(0.01)");
    session.run("SET pgcache.show_expired = on");
    let shown = "INSERT INTO c (key, value) VALUES ('k', 'new') ON CONFLICT (key) DO SELECT WHERE c.value = 'old' RETURNING value";
    assert_eq!(session.lines(shown), ["old"]);
}

/// Writes its own keys and reads each immediately, with functions and plain SQL in turn. Returns the number of writes.
fn write_until(database: &Database, name: &str, ends: &AtomicBool) -> usize {
    let (mut writer, mut reader) = (database.connect(), database.connect());
    let mut turns = 0;
    while !ends.load(Ordering::Relaxed) {
        let (key, value) = (format!("{name}{}", turns % 5), turns.to_string());
        let write = match turns % 4 {
            0 => format!("SELECT cache_set('{key}', '{value}', cache => 'c')"),
            1 => format!(
                "INSERT INTO c (key, value) VALUES ('{key}', '{value}') \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            ),
            2 => format!(
                "SELECT cache_delete('{key}', 'c'); SELECT cache_add('{key}', '{value}', cache => 'c')"
            ),
            _ => format!(
                "DELETE FROM c WHERE key = '{key}'; INSERT INTO c (key, value) VALUES ('{key}', '{value}')"
            ),
        };
        writer.run(&write);
        // The first read may use the table, the second read the copy.
        for _ in 0..2 {
            let read = reader.value(&format!("SELECT cache_get('{key}', 'c')"));
            assert_eq!(read.as_deref(), Some(value.as_str()), "{key} after {write}");
        }
        turns += 1;
    }
    turns
}

/// Changes a row of the source, and reads the key that depends on it: the old value must be gone.
fn change_source_until(database: &Database, ends: &AtomicBool) -> usize {
    let (mut writer, mut reader) = (database.connect(), database.connect());
    let mut turns = 0;
    while !ends.load(Ordering::Relaxed) {
        let fetch = "SELECT cache_fetch('s:1', 'SELECT n FROM source WHERE id = 1', cache => 'c')";
        writer.run(&format!("UPDATE source SET n = {turns} WHERE id = 1"));
        for _ in 0..2 {
            assert_eq!(reader.text(fetch), turns.to_string());
        }
        turns += 1;
    }
    turns
}

fn repack(session: &mut Client, table: &str) {
    session.run(&format!("REPACK (CONCURRENTLY) {table}"));
}

#[test]
fn writes_during_repack_concurrently_are_read_at_once() {
    if is_older() {
        return;
    }
    let database = Cluster::hot_with(&["wal_level = replica"]).database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run(
        "CREATE TABLE source (id int PRIMARY KEY, n int); INSERT INTO source VALUES (1, 0); \
         SELECT cache_depend('source', $$'s:' || id$$, 'c')",
    );
    session.run("SELECT cache_set('quiet', 'kept', cache => 'c')");
    session
        .run("INSERT INTO c SELECT 'row' || i, repeat('x', 500) FROM generate_series(1, 3000) i");
    let triggers = "SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid IN ('c'::regclass, 'source'::regclass) ORDER BY 1";
    let (before, file) = (
        session.lines(triggers),
        session.text("SELECT pg_relation_filenode('c')"),
    );
    let ends = AtomicBool::new(false);
    let turns = thread::scope(|scope| {
        let writers = ["a", "b"].map(|name| {
            let (database, ends) = (&database, &ends);
            scope.spawn(move || write_until(database, name, ends))
        });
        let changes = scope.spawn(|| change_source_until(&database, &ends));
        for _ in 0..20 {
            repack(&mut session, "c");
            repack(&mut session, "source");
        }
        ends.store(true, Ordering::Relaxed);
        let turns = writers.map(|writer| writer.join().unwrap());
        [turns[0], turns[1], changes.join().unwrap()]
    });
    assert!(turns.iter().all(|&turns| turns > 20), "{turns:?}");
    assert_ne!(session.text("SELECT pg_relation_filenode('c')"), file);
    assert_eq!(session.lines(triggers), before);
    assert_eq!(session.agrees("quiet", "c").as_deref(), Some("kept"));
    for key in ["a0", "a1", "b0", "b1"] {
        session
            .agrees(key, "c")
            .expect("each writer has written it");
    }
    session.sums_up();
    session.nothing_pending();
}

/// A snapshot taken before the rewrite sees no row of the new file. pgcache must not store this empty result as a copy,
/// nor return it to other sessions.
#[test]
fn a_snapshot_from_before_repack_concurrently_leaves_no_old_answer() {
    if is_older() {
        return;
    }
    let database = Cluster::hot_with(&["wal_level = replica"]).database();
    let (mut session, mut old) = (database.connect(), database.connect());
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run("CREATE TABLE other (n int); INSERT INTO other VALUES (1)");
    session.run("SELECT cache_set('k', 'kept', cache => 'c')");
    session.heat("k", "c");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT n FROM other";
    old.run(begin);
    repack(&mut session, "c");
    session.run("SELECT cache_set('l', 'later', cache => 'c')");
    for key in ["k", "l"] {
        old.run(&format!(
            "SELECT cache_get('{key}', 'c'), cache_exists('{key}', 'c')"
        ));
    }
    old.run("COMMIT");
    for (key, value) in [("k", "kept"), ("l", "later")] {
        assert_eq!(session.agrees(key, "c").as_deref(), Some(value));
        assert_eq!(
            old.value(&format!("SELECT cache_get('{key}', 'c')"))
                .as_deref(),
            Some(value)
        );
    }
}

#[test]
fn wait_for_lsn_lets_a_session_read_its_own_writes_on_a_standby() {
    if is_older() {
        return;
    }
    let primary = Cluster::start(&["shared_preload_libraries = 'pgcache'"]);
    let mut session = primary.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run("SELECT cache_set('k', '0', cache => 'c')");
    let standby = primary.standby();
    let mut reader = standby.connect("postgres");
    let wait = |lsn: &str, options: &str| format!("WAIT FOR LSN '{lsn}' WITH ({options})");
    for value in ["1", "2", "3"] {
        reader.run("SELECT cache_get('k', 'c')");
        session.run(&format!("SELECT cache_set('k', '{value}', cache => 'c')"));
        let lsn = session.text("SELECT pg_current_wal_insert_lsn()");
        assert_eq!(reader.lines(&wait(&lsn, "TIMEOUT '60s'")), ["success"]);
        assert_eq!(reader.text("SELECT cache_get('k', 'c')"), value);
    }
    // While replay is paused, WAIT FOR LSN does not return success.
    reader.run("SELECT pg_wal_replay_pause()");
    wait_until("the replay is paused", || {
        reader.text("SELECT pg_get_wal_replay_pause_state()") == "paused"
    });
    session.run("SELECT cache_set('k', '4', cache => 'c')");
    let lsn = session.text("SELECT pg_current_wal_insert_lsn()");
    let given = reader.lines(&wait(&lsn, "TIMEOUT '200ms', NO_THROW"));
    assert_eq!(given, ["timeout"]);
    assert_eq!(reader.text("SELECT cache_get('k', 'c')"), "3");
    reader.run("SELECT pg_wal_replay_resume()");
    assert_eq!(reader.lines(&wait(&lsn, "TIMEOUT '60s'")), ["success"]);
    assert_eq!(reader.text("SELECT cache_get('k', 'c')"), "4");
}

#[test]
fn autovacuum_with_parallel_workers_cleans_a_cache_and_keeps_its_copies() {
    if is_older() {
        return;
    }
    let cluster = Cluster::hot_with(&[
        "autovacuum_naptime = 1",
        "autovacuum_max_parallel_workers = 2",
        "min_parallel_index_scan_size = 0",
        "log_autovacuum_min_duration = 0",
    ]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run("CREATE INDEX ON c (value)");
    session.run("SELECT cache_set('kept', 'v', cache => 'c')");
    session.heat("kept", "c");
    session.run("INSERT INTO c SELECT 'k' || i, repeat('v', 50) FROM generate_series(1, 3000) i");
    session.run("SELECT cache_delete_prefix('k0', 'c'), cache_delete_prefix('k1', 'c'), cache_delete_prefix('k2', 'c')");
    session.run(
        "ALTER TABLE c SET (autovacuum_parallel_workers = 2, autovacuum_vacuum_threshold = 0, \
         autovacuum_vacuum_scale_factor = 0)",
    );
    let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'c'::regclass";
    wait_until("autovacuum has been there", || {
        session
            .number("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relid = 'c'::regclass")
            > 0
            && session.number(dead) == 0
    });
    let name = format!("automatic vacuum of table \"{}.public.c\"", database.name);
    let log = cluster.log_text();
    let report = log.split(&name).nth(1).expect("it is reported");
    assert!(
        report.contains("parallel workers: index vacuum: 1 planned"),
        "{report}"
    );
    assert_eq!(session.heat("kept", "c").as_deref(), Some("v"));
    session.verified("c");
    let scored = "SELECT count(*) FROM pg_stat_autovacuum_scores WHERE relid = 'c'::regclass";
    assert_eq!(session.number(scored), 1);
}
