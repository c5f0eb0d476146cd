//! Tests partitioned tables as caches, with several sessions, the worker and a dump. Also tests that COPY releases the
//! resources that it keeps open between rows.

use std::io::Write;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::succeed;
use pgcache_tests::wait::wait_until;
use postgres::fallible_iterator::FallibleIterator;

/// A cache with two partitions, whose columns are in different orders.
const PARTED: &str =
    "CREATE TABLE c (id text PRIMARY KEY, v text, e timestamptz) PARTITION BY LIST (id);
     CREATE TABLE c_1 PARTITION OF c FOR VALUES IN ('a', 'b');
     CREATE TABLE c_2 (e timestamptz, id text NOT NULL, v text);
     ALTER TABLE c ATTACH PARTITION c_2 FOR VALUES IN ('y', 'z');
     SELECT cache_attach('c', '1 hour', 'id', 'v', 'e')";

#[test]
fn a_partitioned_cache_comes_back_from_a_dump() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(PARTED);
    session.run("SELECT cache_set('a', '1', cache => 'c'), cache_set('z', '2', cache => 'c')");
    session.run("INSERT INTO c_1 VALUES ('b', 'dead', '-infinity')");
    for options in [&[][..], &["--load-via-partition-root"], &["--inserts"]] {
        let copy = restored(&database, options);
        let mut session = copy.connect();
        assert_eq!(
            session.lines("SELECT key, value FROM cache_scan(cache => 'c')"),
            ["a|1", "z|2"],
            "{options:?}"
        );
        let caches = "SELECT cache, ttl FROM pgcache.caches WHERE cache::text LIKE 'c%'";
        assert_eq!(session.lines(caches), ["c|01:00:00"], "{options:?}");
        session.run("INSERT INTO c VALUES ('b', 'new'); INSERT INTO c_2 (id) VALUES ('y')");
        let deadlines = "SELECT count(*) FROM c WHERE e > now() + interval '50 minutes'";
        assert_eq!(session.number(deadlines), 4, "{options:?}");
        session.run("SELECT cache_detach('c')");
        assert_eq!(session.number("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'c%'"), 0);
    }
}

/// Restores the original's dump in a new database.
fn restored(original: &Database, options: &[&str]) -> Database<'static> {
    let file = original
        .cluster
        .folder
        .join(format!("{}.sql", original.name));
    let mut dump = original.cluster.program("pg_dump");
    succeed(dump.args(options).arg("-f").arg(&file).arg(&original.name));
    let copy = Cluster::shared().empty_database("");
    let mut psql = original.cluster.program("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &copy.name, "-f"]);
    succeed(psql.arg(&file));
    copy
}

#[test]
fn watchers_get_changes_of_a_partition_under_the_name_of_the_whole() {
    let database = Cluster::shared().database();
    let (mut session, mut watcher) = (database.connect(), database.connect());
    session.run(PARTED);
    let channel = session.text("SELECT cache_watch('c')");
    watcher.run(&format!("LISTEN {channel}"));
    session.run("INSERT INTO c_2 (id, v) VALUES ('y', '1')");
    session.run("UPDATE c SET id = 'a' WHERE id = 'y'");
    session.run("TRUNCATE c_1");
    let mut notifications = watcher.notifications();
    let arriving = notifications.timeout_iter(Duration::from_secs(1));
    let received: Vec<String> = arriving
        .map(|one| Ok(one.payload().into()))
        .collect()
        .unwrap();
    let received = received.join("\n");
    for word in ["\"y\"", "\"a\"", "clear"] {
        assert!(received.contains(word), "{word}: {received}");
    }
}

/// A session computes a value while another session writes a partition by the partition's name. The first session does
/// not overwrite that write.
#[test]
fn a_write_to_a_partition_voids_the_lease_of_its_key() {
    let database = Cluster::hot().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(PARTED);
    let lease = session.text("SELECT lease FROM cache_lease('z', cache => 'c')");
    other.run("INSERT INTO c_2 (id, v) VALUES ('z', 'written')");
    let store = format!("SELECT cache_set_leased('z', 'computed', {lease}, cache => 'c')");
    assert_eq!(session.lines(&store), ["f"]);
    assert_eq!(session.lines("SELECT cache_get('z', 'c')"), ["written"]);
    // A get leaves no copy that could become wrong when a partition is attached or detached.
    for _ in 0..5 {
        session.run("SELECT cache_get('z', 'c')");
    }
    assert_eq!(
        session.number("SELECT hot_entries FROM pgcache.stats WHERE cache = 'c'::regclass"),
        0
    );
    other.run("ALTER TABLE c DETACH PARTITION c_2");
    assert_eq!(session.lines("SELECT cache_get('z', 'c') IS NULL"), ["t"]);
}

#[test]
fn the_worker_sweeps_partition_by_partition_and_waits_for_none() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '300ms'"]);
    let database = cluster.database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(PARTED);
    let all = "SELECT string_agg(id, '' ORDER BY id) FROM c AS pgcache_c";
    let put = "INSERT INTO c VALUES ('a', 'dead', '-infinity'), ('b', 'live', NULL), ('y', 'dead', '-infinity'), ('z', 'live', NULL)";
    other.run("BEGIN; LOCK TABLE c_1 IN SHARE MODE");
    session
        .run("INSERT INTO c_2 (id, v, e) VALUES ('y', 'dead', '-infinity'), ('z', 'live', NULL)");
    let second = "SELECT string_agg(id, '') FROM c_2 AS pgcache_c";
    wait_until("a sweep past the locked partition", || {
        session.text(second) == "z"
    });
    other.run("COMMIT");
    session.run("TRUNCATE c");
    session.run(put);
    wait_until("a sweep of both", || session.text(all) == "bz");
    // While the cache is idle, attach a new partition with expired rows.
    std::thread::sleep(Duration::from_secs(2));
    session.run(
        "CREATE TABLE c_3 (LIKE c); INSERT INTO c_3 VALUES ('m', 'dead', '-infinity'), ('n', 'live', NULL);
         ALTER TABLE c ATTACH PARTITION c_3 FOR VALUES IN ('m', 'n')",
    );
    wait_until("a sweep of the new one", || session.text(all) == "bnz");
    session.run("INSERT INTO c VALUES ('m', 'later', clock_timestamp() + interval '1 s')");
    wait_until("its deadline", || session.text(all) == "bnz");
    session.run("ALTER TABLE c DETACH PARTITION c_2; UPDATE c_2 SET e = '-infinity'");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(session.text(second), "z");
}

/// COPY releases the resources that it keeps open even if it fails, and even inside a savepoint.
#[test]
fn copy_renews_after_a_copy_that_failed_and_beside_writers() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "SELECT cache_create('c'), cache_create('d');
         INSERT INTO c SELECT 'k' || n, 'dead', '-infinity' FROM generate_series(1, 20) AS n;
         INSERT INTO d SELECT 'k' || n, 'dead', '-infinity' FROM generate_series(1, 20) AS n;
         CREATE TABLE lines (n int, key text);
         INSERT INTO lines SELECT n, 'k' || n FROM generate_series(1, 10) AS n",
    );
    let folder = database.cluster.folder.join(&database.name);
    let file = folder.to_str().unwrap();
    session.run(&format!(
        "COPY (SELECT key, 'new' FROM lines ORDER BY n) TO '{file}'"
    ));
    // Run another COPY, and a COPY that fails, while this COPY runs.
    session.run(&format!(
        "CREATE FUNCTION inner_copies() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.key = 'k3' THEN
                 BEGIN COPY d (key, value) FROM '{file}'; RAISE division_by_zero;
                 EXCEPTION WHEN division_by_zero THEN NULL; END;
                 BEGIN COPY d (key) FROM '{file}'; EXCEPTION WHEN OTHERS THEN NULL; END;
             ELSIF NEW.key = 'k5' THEN COPY d (key, value) FROM '{file}';
             END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER inner_copies BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION inner_copies()"
    ));
    let copy = format!("COPY c (key, value) FROM '{file}'");
    refused(
        session.try_lines(
            "COPY c (key, value, expires_at) FROM PROGRAM 'printf \"k1\\\\tv\\\\tnever\\\\n\"'",
        ),
        "22007",
    );
    session.run(&copy);
    let both = "SELECT (SELECT count(*) FROM c WHERE value = 'new'), (SELECT count(*) FROM d WHERE value = 'new')";
    assert_eq!(session.lines(both), ["10|10"]);
    session.run("DROP TRIGGER inner_copies ON c; UPDATE c SET expires_at = '-infinity'");
    // COPY fails while it waits for a row. Later COPY commands begin a new scan.
    other.run("BEGIN; UPDATE c AS pgcache_c SET value = 'theirs' WHERE key = 'k4'");
    session.run("SET lock_timeout = '300ms'");
    for _ in 0..2 {
        refused(session.try_lines(&copy), "55P03");
    }
    session.run("BEGIN; SAVEPOINT s");
    refused(session.try_lines(&copy), "55P03");
    session.run("ROLLBACK TO s");
    other.run("COMMIT");
    session.run(&format!("{copy}; COMMIT"));
    assert_eq!(session.lines(both), ["10|10"]);
}

/// COPY keeps no page pinned between two rows, so VACUUM does not wait for a COPY that waits for its client.
#[test]
fn a_copy_that_waits_for_its_client_blocks_no_session() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "SELECT cache_create('c');
         INSERT INTO c VALUES ('a', 'live', NULL), ('b', 'dead', '-infinity'), ('c', 'live', NULL)",
    );
    let mut copy = session
        .copy_in("COPY c (key, value) FROM STDIN WHERE key = 'b'")
        .unwrap();
    copy.write_all(b"b\tnew\na\tleft out\n").unwrap();
    copy.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    other.run("SET statement_timeout = '10s'; ");
    other.run("DELETE FROM c WHERE key = 'c'");
    other.run("VACUUM (FREEZE, INDEX_CLEANUP on) c");
    assert_eq!(copy.finish().unwrap(), 1);
    assert_eq!(
        session.lines("SELECT value FROM c WHERE key = 'b'"),
        ["new"]
    );
}

/// A trigger that COPY fires may empty or drop the cache that COPY writes. An error that the trigger catches leaves no
/// resource open.
#[test]
fn resources_that_copy_keeps_open_block_none_of_its_triggers() {
    let database = Cluster::shared().database();
    let (mut session, notices) = database.cluster.connect_with_notices(&database.name);
    let mut other = database.connect();
    let run = |session: &mut postgres::Client, sql: &str| {
        if let Err(error) = session.batch_execute(sql) {
            panic!("{sql}: {error:?}");
        }
    };
    let copy = |session: &mut postgres::Client, keys: &[u8]| {
        let mut copy = session.copy_in("COPY c (key) FROM STDIN").unwrap();
        copy.write_all(keys).unwrap();
        copy.finish().unwrap_or_else(|error| panic!("{error:?}"))
    };
    run(
        &mut session,
        "SET client_min_messages = warning;
         SELECT cache_create('c'), cache_create('d');
         INSERT INTO c VALUES ('taken', '', 'infinity'); INSERT INTO d VALUES ('k', 'dead', '-infinity');
         CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO d (key) VALUES ('k');
             TRUNCATE d;
             IF NEW.key = 'b' THEN DROP TABLE d; CREATE TEMP TABLE d (key text); END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER elsewhere BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION elsewhere()",
    );
    assert_eq!(copy(&mut session, b"a\nb\nc\n"), 3);
    run(
        &mut session,
        "DROP TRIGGER elsewhere ON c;
         CREATE FUNCTION besides() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF pg_trigger_depth() = 1 THEN
                 BEGIN INSERT INTO c (key) VALUES ('taken'); EXCEPTION WHEN lock_not_available THEN NULL; END;
             END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER besides BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION besides();
         SET lock_timeout = '100ms'",
    );
    other.run("BEGIN; UPDATE c SET value = 'theirs' WHERE key = 'taken'");
    assert_eq!(copy(&mut session, b"e\nf\n"), 2);
    other.run("ROLLBACK");
    run(&mut session, "SELECT 1");
    let received: Vec<String> = notices.try_iter().map(|one| one.message().into()).collect();
    assert_eq!(received, [""; 0]);
}
