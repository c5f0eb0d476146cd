//! Tests the triggers of a dependency: cases in which they do not fire, and the cost of their work.

use std::thread::{self, sleep};
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::tier::Tiered;
use postgres::Client;

fn with_source(storage: &str) -> Client {
    let mut session = Cluster::hot().database().connect();
    session.run(&format!(
        "CREATE TABLE src (k text PRIMARY KEY, v text); INSERT INTO src VALUES ('k', 'old'); \
         SELECT cache_create('c', storage => '{storage}'); SELECT cache_depend('src', 'k', 'c')"
    ));
    session
}

/// With each of these settings the triggers do not fire in every session, so pgcache misses changes. Once the triggers
/// fire in every session again, no entry from that time may remain.
#[test]
fn a_trigger_that_did_not_fire_for_all_leaves_nothing_when_it_does_again() {
    let each = |how: &str| {
        let kinds = ["insert", "change", "truncate"];
        kinds.map(|kind| format!("ALTER TABLE src {how} TRIGGER pgcache_depend_1_{kind}"))
    };
    let apply = "SET session_replication_role = replica; UPDATE src SET v = 'new'; \
                 RESET session_replication_role";
    for storage in ["unlogged", "memory"] {
        for (how, update) in [
            ("ENABLE REPLICA", "UPDATE src SET v = 'new'"),
            ("ENABLE", apply),
            ("DISABLE", "UPDATE src SET v = 'new'"),
        ] {
            let mut session = with_source(storage);
            session.run(&each(how).join("; "));
            session.run("SELECT cache_set('k', 'old', cache => 'c')");
            session.run(update);
            session.run(&each("ENABLE ALWAYS").join("; "));
            let left = session.value("SELECT cache_get('k', 'c')");
            assert_eq!(left, None, "{storage}: {how}");
        }
    }
}

/// The altered table is in a schema on which the table's owner lacks USAGE. pgcache must still make its triggers fire
/// in every session.
#[test]
fn triggers_are_enabled_with_any_privileges_of_the_tables_owner() {
    let cluster = Cluster::hot();
    let database = cluster.database();
    let role = cluster.role();
    let mut session = database.connect();
    session.run(&format!(
        "CREATE SCHEMA s; CREATE TABLE s.src (k text PRIMARY KEY, v text); INSERT INTO s.src VALUES ('k', 'old'); \
         SELECT cache_create('c'); SELECT cache_depend('s.src', 'k', 'c'); \
         ALTER TABLE s.src OWNER TO {role}; GRANT DELETE ON c TO {role}; \
         ALTER TABLE s.src DISABLE TRIGGER ALL"
    ));
    session.run("ALTER TABLE s.src ENABLE TRIGGER ALL");
    let not_always =
        "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%' AND tgenabled <> 'A'";
    assert_eq!(session.number(not_always), 0);
    session.run(
        "SELECT cache_set('k', 'old', cache => 'c'); SET session_replication_role = replica; \
         UPDATE s.src SET v = 'new'",
    );
    assert_eq!(session.value("SELECT cache_get('k', 'c')"), None);
}

/// Disables and enables triggers on each table as pg_restore --disable-triggers does, one statement at a time. The
/// triggers that Postgres cloned to partitions change with them.
#[test]
fn triggers_that_were_disabled_and_enabled_fire_for_all_sessions_again() {
    for storage in ["unlogged", "memory"] {
        let mut session = with_source(storage);
        session.run(
            "CREATE TABLE parts (k text, v text) PARTITION BY LIST (k); \
             CREATE TABLE part PARTITION OF parts DEFAULT; SELECT cache_depend('parts', 'k', 'c'); \
             INSERT INTO parts VALUES ('k', 'old')",
        );
        for table in ["src", "parts", "part"] {
            session.run(&format!("ALTER TABLE {table} DISABLE TRIGGER ALL"));
            session.run(&format!(
                "BEGIN; ALTER TABLE {table} ENABLE TRIGGER ALL; DECLARE cursor CURSOR FOR SELECT * FROM {table}"
            ));
            session.run("COMMIT");
            for change in ["UPDATE TABLE SET v = 'new'", "TRUNCATE TABLE"] {
                session.run("SELECT cache_set('k', 'old', cache => 'c')");
                let change = change.replace("TABLE", table);
                session.run("SET session_replication_role = replica");
                session.run(&change);
                session.run("RESET session_replication_role");
                let left = session.value("SELECT cache_get('k', 'c')");
                assert_eq!(left, None, "{storage}: {change}");
            }
            session.run(&format!("INSERT INTO {table} VALUES ('k', 'old')"));
        }
        let not_always =
            "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache%' AND tgenabled <> 'A'";
        assert_eq!(session.number(not_always), 0);
    }
}

/// A session changes rows and reads the cache in turn. Each key must be removed only once, and once more at the commit.
#[test]
fn rows_changed_and_entries_read_in_turn_cost_as_much_as_the_rows() {
    let mut session = with_source("unlogged");
    session.run("INSERT INTO src SELECT g, 'old' FROM generate_series(1, 400) AS g");
    session.run(
        "SET pgcache.table_path = plan; BEGIN; DO $$ BEGIN FOR i IN 1..400 LOOP UPDATE src SET v = 'new' WHERE k = i::text; \
         PERFORM cache_get(i::text, 'c'); END LOOP; END $$",
    );
    let looked = session.number(
        "SELECT idx_scan + seq_scan FROM pg_stat_xact_user_tables WHERE relid = 'c'::regclass",
    );
    assert!(looked < 4_000, "{looked} lookups for 400 rows");
    session.run("ROLLBACK");
}

/// The rollback of a savepoint does not restore entries that were removed before the savepoint.
#[test]
fn savepoints_rolled_back_and_entries_read_in_turn_cost_as_the_rows() {
    let mut session = with_source("unlogged");
    session.run("INSERT INTO src SELECT g, 'old' FROM generate_series(1, 400) AS g");
    session.run(
        "SET pgcache.table_path = plan; BEGIN; UPDATE src SET v = 'new'; DO $$ BEGIN FOR i IN 1..400 LOOP \
         PERFORM cache_get(i::text, 'c'); \
         BEGIN UPDATE src SET v = 'newer' WHERE k = i::text; PERFORM cache_get(i::text, 'c'); RAISE division_by_zero; \
         EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$",
    );
    let looked = session.number(
        "SELECT idx_scan + seq_scan FROM pg_stat_xact_user_tables WHERE relid = 'c'::regclass",
    );
    assert!(looked < 8_000, "{looked} lookups for 400 rows");
    session.run("ROLLBACK");
}

/// Each savepoint's rollback restores exactly the entries that were removed under it, even if the removals were noted
/// under other savepoints.
#[test]
fn nested_savepoints_restore_the_entries_removed_under_them() {
    let mut session = with_source("unlogged");
    session.run("INSERT INTO src VALUES ('a', 'old'), ('b', 'old'), ('d', 'old')");
    session.run("SELECT cache_set(k, 'old', cache => 'c') FROM unnest(ARRAY['a', 'b', 'd']) AS k");
    let change = |key: &str| format!("UPDATE src SET v = 'new' WHERE k = '{key}'");
    let found = |session: &mut Client| {
        session.lines("SELECT string_agg(key, '' ORDER BY key) FROM cache_scan(cache => 'c')")
    };
    session.run(&format!(
        "BEGIN; {}; SAVEPOINT one; {}",
        change("a"),
        change("b")
    ));
    session.run(&format!("SAVEPOINT two; {}; SAVEPOINT three", change("d")));
    assert_eq!(found(&mut session), [""]);
    session.run("RELEASE three");
    assert_eq!(found(&mut session), [""]);
    session.run("ROLLBACK TO two"); // all are back, and a and b are due for removal
    assert_eq!(found(&mut session), ["d"]);
    session.run("RELEASE two; SAVEPOINT four");
    assert_eq!(found(&mut session), ["d"]);
    session.run("ROLLBACK TO one"); // b stays, too
    assert_eq!(found(&mut session), ["bd"]);
    session.run(&format!("SAVEPOINT five; {}", change("b")));
    assert_eq!(found(&mut session), ["d"]);
    session.run("RELEASE five; RELEASE one");
    assert_eq!(found(&mut session), ["d"]);
    session.run("COMMIT");
    assert_eq!(found(&mut session), ["d"]);
}

/// The rollback of a savepoint restores the entries that were removed under it, even if the source changed before the
/// savepoint. But the session must still not find an entry whose source row it changed before the savepoint.
#[test]
fn a_writer_of_the_source_does_not_find_entries_restored_by_a_savepoint() {
    let mut session = with_source("unlogged");
    session.run("INSERT INTO src VALUES ('l', 'old')");
    session.run("SELECT cache_set('k', 'old', cache => 'c'), cache_set('l', 'old', cache => 'c')");
    session.run("BEGIN; UPDATE src SET v = 'new' WHERE k = 'k'; SAVEPOINT s");
    let get =
        |session: &mut Client, key: &str| session.value(&format!("SELECT cache_get('{key}', 'c')"));
    assert_eq!(get(&mut session, "k"), None);
    session.run("UPDATE src SET v = 'new' WHERE k = 'l'");
    assert_eq!(get(&mut session, "l"), None);
    session.run("ROLLBACK TO s");
    assert_eq!(get(&mut session, "k"), None);
    assert_eq!(get(&mut session, "l").as_deref(), Some("old"));
    session.run("COMMIT");
    assert_eq!(get(&mut session, "k"), None);
    assert_eq!(get(&mut session, "l").as_deref(), Some("old"));
}

/// The process is terminated while it walks over the tier, because the walk takes most of the commit's time.
#[test]
fn termination_while_a_commit_clears_a_memory_cache_leaves_no_locks_or_marks() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '256MB'"]);
    let database = cluster.database();
    let mut watch = database.connect();
    watch.run(
        "CREATE TABLE src (k text PRIMARY KEY, v text); SELECT cache_create('c', storage => 'memory'); \
         SELECT cache_depend('src', 'k', 'c')",
    );
    for round in 0..40 {
        watch.run("SELECT cache_set('k', 'v', cache => 'c')");
        let mut writer = database.connect();
        let process = writer.number("SELECT pg_backend_pid()");
        writer.run("BEGIN; TRUNCATE src");
        thread::scope(|scope| {
            scope.spawn(move || drop(writer.try_lines("COMMIT")));
            sleep(Duration::from_micros(500 * round));
            watch.run(&format!("SELECT pg_terminate_backend({process}, 60000)"));
        });
        let left = watch.lines(&format!("SELECT mode FROM pg_locks WHERE pid = {process}"));
        assert_eq!(left, Vec::<String>::new(), "round {round}");
        assert_eq!(cluster.log_text().matches("internal error").count(), 0);
    }
    watch.nothing_pending();
}
