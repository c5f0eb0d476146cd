//! Tests direct access to the table under stress: writers of one key with and without direct access, cancelled
//! statements, rebuilt indexes, vacuum and a crash.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::amcheck::Amcheck;
use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::database::Database;
use pgcache_tests::parallel;
use pgcache_tests::refusal::{refused, sqlstate};
use pgcache_tests::rng::Rng;
use postgres::Client;

const SESSIONS: u64 = 8;
const PATHS: [&str; 2] = ["auto", "plan"];

/// Opens a session with this `pgcache.table_path`.
fn on_path(database: &Database, path: &str) -> Client {
    let mut session = database.connect();
    session.run(&format!("SET pgcache.table_path = {path}"));
    session
}

/// Checks that all calls of the session used that path.
fn took(session: &mut Client, path: &str) {
    let other = if path == "auto" { "plan" } else { "direct" };
    let wrong = session.number(&format!("SELECT {other} FROM pgcache.table_path_taken()"));
    assert_eq!(wrong, 0, "calls that went by {other}");
}

fn database_with_cache(options: &str) -> Database<'static> {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.add_amcheck();
    session.run(&format!("SELECT cache_create('c'{options})"));
    database
}

/// Checks that rows and index agree, and that no key exists twice.
fn is_sound(session: &mut Client) {
    session.pages_are_sound("c", "");
    session.run(
        "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off",
    );
    let twice = session.lines("SELECT key FROM c GROUP BY key HAVING count(*) > 1");
    assert_eq!(twice, Vec::<String>::new());
}

#[test]
fn increments_of_one_counter_over_both_paths_at_once_are_all_there() {
    let database = database_with_cache("");
    thread::scope(|scope| {
        for number in 0..SESSIONS {
            let database = &database;
            scope.spawn(move || {
                let path = PATHS[number as usize % 2];
                let mut session = on_path(database, path);
                for _ in 0..2_000 {
                    session.run("SELECT cache_incr('n', cache => 'c')");
                }
                took(&mut session, path);
            });
        }
    });
    let mut session = database.connect();
    assert_eq!(session.text("SELECT value FROM c"), "16000");
    is_sound(&mut session);
}

/// Returns a call and its key, which is one of a few keys. A value always begins with its key.
fn call_on(rng: &mut Rng) -> (u64, String) {
    let (key, other, n) = (rng.below(6), rng.below(6), rng.below(1000));
    let filler = ["", "long ", "x"][rng.below(3) as usize].repeat(rng.below(40) as usize);
    let value = format!("k{key}:{n}{filler}");
    let call = match rng.below(9) {
        0..=2 => format!("SELECT cache_set('k{key}', '{value}', cache => 'c')"),
        3 => format!("SELECT cache_delete('k{key}', 'c')"),
        4 => format!("SELECT cache_add('k{key}', '{value}', cache => 'c')"),
        5 => format!("SELECT cache_take('k{key}', 'c')"),
        6 => format!("SELECT cache_get_touch('k{key}', '1 hour', 'c')"),
        7 => format!(
            "SELECT cache_set_many('{{k{key},k{other}}}', '{{k{key}:1,k{other}:1}}', cache => 'c')"
        ),
        _ => format!("SELECT cache_get('k{key}', 'c')"),
    };
    (key, call)
}

/// Checks that the answer to a call that returns a value is a value of this key.
fn is_of(key: u64, call: &str, said: Option<&str>) {
    let of_the_key = |value: &str| value.starts_with(&format!("k{key}:"));
    let returns_values = ["cache_get", "cache_take"]
        .iter()
        .any(|name| call.contains(name));
    assert!(
        !returns_values || said.is_none_or(of_the_key),
        "{call}: {said:?}"
    );
}

/// Returns whether the error comes from a rebuilt index. In Postgres, ON CONFLICT uses the old index of the key. While
/// REINDEX CONCURRENTLY runs, Postgres also checks the new index, or the old index that is being dropped, for
/// duplicates. If two writers of one key conflict in that index, one of them fails with 23505. The two indexes swap
/// names, so the error may name either.
fn is_of_a_new_index(error: &postgres::Error) -> bool {
    let constraint = error.as_db_error().map_or("", |error| error.message());
    sqlstate(error) == "23505" && constraint.contains("\"c_pkey")
}

#[test]
fn both_paths_at_once_under_vacuum_and_reindex_keep_one_row_a_key_and_sound_indexes() {
    let database = database_with_cache("");
    let (until, ended) = (
        Instant::now() + Duration::from_secs(5),
        AtomicBool::new(false),
    );
    thread::scope(|scope| {
        let writers: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let database = &database;
                scope.spawn(move || {
                    let mut session = on_path(database, PATHS[number as usize % 2]);
                    session.run("SET pgcache.hot_tier = off");
                    let mut rng = Rng::seeded(number + 1);
                    while Instant::now() < until {
                        let (key, call) = call_on(&mut rng);
                        match session.try_value(&call) {
                            Ok(said) => is_of(key, &call, said.as_deref()),
                            Err(error) => assert!(is_of_a_new_index(&error), "{call}: {error:?}"),
                        }
                    }
                })
            })
            .collect();
        for upkeep in ["VACUUM c", "REINDEX INDEX CONCURRENTLY c_pkey"] {
            let (database, ended) = (&database, &ended);
            scope.spawn(move || {
                let mut session = database.connect();
                while !ended.load(Ordering::SeqCst) {
                    // If two maintenance commands wait for each other, one of them fails.
                    if let Err(error) = session.batch_execute(upkeep) {
                        assert_eq!(sqlstate(&error), "40P01", "{error:?}");
                    }
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::SeqCst);
        assert!(results.iter().all(Result::is_ok), "a writer failed");
    });
    is_sound(&mut database.connect());
}

/// Returns a call with large values, so that the test can cancel the statement while it writes a value out of line.
fn large_call(rng: &mut Rng) -> String {
    let key = rng.below(10);
    let large = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 300))";
    match rng.below(4) {
        0 => format!("SELECT cache_set('k{key}', {large}, cache => 'c')"),
        1 => format!(
            "SELECT cache_set_many(array_agg('k' || i), array_agg({large} || i), cache => 'c') \
             FROM generate_series(0, 9) AS i"
        ),
        2 => format!("SELECT cache_touch('k{key}', '1 hour', 'c')"),
        _ => format!("SELECT cache_delete('k{key}', 'c')"),
    }
}

#[test]
fn statements_cancelled_anywhere_leave_a_sound_table_and_no_orphans() {
    let database = database_with_cache("");
    let until = Instant::now() + Duration::from_secs(5);
    let cancelled: usize = thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let database = &database;
                scope.spawn(move || {
                    let mut session = on_path(database, "auto");
                    let (mut rng, mut cancelled) = (Rng::seeded(number + 1), 0);
                    while Instant::now() < until {
                        let patience = 1 + rng.below(12);
                        // Repeat SET until it succeeds, because the previous timeout may cancel it.
                        let set = format!("SET statement_timeout = {patience}");
                        while session.simple_query(&set).is_err() {}
                        if let Err(error) = session.simple_query(&large_call(&mut rng)) {
                            assert_eq!(sqlstate(&error), "57014", "{error:?}");
                            cancelled += 1;
                        }
                    }
                    cancelled
                })
            })
            .collect();
        let ended = sessions
            .into_iter()
            .map(|session| session.join().expect("no session fails"));
        ended.sum()
    });
    assert!(cancelled > 20, "only {cancelled} statements were cancelled");
    let mut session = database.connect();
    is_sound(&mut session);
    let toast = session.text("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'c'");
    let outside = session.number(&format!("SELECT count(DISTINCT chunk_id) FROM {toast}"));
    assert_eq!(
        outside,
        session.number("SELECT count(*) FROM c WHERE length(value) > 4000")
    );
}

#[test]
fn a_write_that_meets_a_newer_one_under_repeatable_read_is_refused() {
    let database = database_with_cache("");
    let (mut one, mut other) = (on_path(&database, "auto"), on_path(&database, "auto"));
    for call in [
        "SELECT cache_set('k', 'mine', cache => 'c')",
        "SELECT cache_touch('k', '1 hour', 'c')",
        "SELECT cache_delete('k', 'c')",
    ] {
        other.run("SELECT cache_set('k', 'old', cache => 'c')");
        one.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM c");
        other.run("SELECT cache_set('k', 'new', cache => 'c')");
        assert_eq!(one.text("SELECT cache_get('k', 'c')"), "old");
        refused(one.simple_query(call), "40001");
        one.run("ROLLBACK");
    }
    assert_eq!(one.text("SELECT cache_get('k', 'c')"), "new");
}

/// A waiting writer pins no page of the index, so vacuum can process the leaf page that the writer has read. The rows
/// are wide, so that the removed rows are not on the page with the row that the writer waits for.
#[test]
fn vacuum_does_not_wait_for_a_writer_that_waits() {
    let database = database_with_cache("");
    let (mut first, mut vacuum) = (database.connect(), database.connect());
    first.run("SELECT cache_set('k' || i, repeat('v', 1000), cache => 'c') FROM generate_series(1, 50) AS i");
    first.run("SELECT cache_delete('k' || i, 'c') FROM generate_series(10, 50) AS i");
    first.run(
        "BEGIN; SELECT cache_set('new', '1', cache => 'c'), cache_set('k1', '1', cache => 'c')",
    );
    thread::scope(|scope| {
        for call in [
            "SELECT cache_set('new', '2', cache => 'c')",
            "SELECT cache_set('k1', '2', cache => 'c')",
            "SELECT cache_incr('k1', cache => 'c')",
        ] {
            let database = &database;
            scope.spawn(move || {
                // The call may find '1' or '2'. It only has to end.
                on_path(database, "auto").run(call);
            });
        }
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND datname = current_database()";
        while vacuum.number(waiting) < 3 {
            thread::sleep(Duration::from_millis(10));
        }
        let done = vacuum
            .batch_execute("SET statement_timeout = '60s'")
            .and_then(|()| vacuum.batch_execute("VACUUM (INDEX_CLEANUP ON) c"));
        first.run("COMMIT");
        done.expect("vacuum waits for no session");
    });
    is_sound(&mut vacuum);
}

/// Sets increasing numbers until the server stops. Returns the last acknowledged number.
fn set_until_the_end(cluster: &Cluster, writer: u64, ready: &AtomicBool) -> u64 {
    let mut session = cluster.connect("postgres");
    for n in 1.. {
        let set = format!("SELECT cache_set('w{writer}', '{n}', cache => 'c')");
        if session.simple_query(&set).is_err() {
            return n - 1;
        }
        if n == 200 {
            ready.store(true, Ordering::SeqCst);
        }
    }
    0
}

#[test]
fn direct_writes_to_a_logged_cache_survive_a_crash_with_sound_indexes() {
    let cluster = Cluster::start(&["pgcache.table_path = auto"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.add_amcheck();
    session.run("SELECT cache_create('c', storage => 'logged')");
    let ready = AtomicBool::new(false);
    let acknowledged: Vec<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (cluster, ready) = (&cluster, &ready);
                scope.spawn(move || set_until_the_end(cluster, writer, ready))
            })
            .collect();
        while !ready.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        cluster.down(Shutdown::Immediate);
        let ended = writers
            .into_iter()
            .map(|writer| writer.join().expect("no writer fails"));
        ended.collect()
    });
    cluster.up();
    let mut session = cluster.connect("postgres");
    for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
        let kept = session.number(&format!(
            "SELECT coalesce((SELECT value FROM c WHERE key = 'w{writer}'), '0')"
        ));
        // The last number may have been committed although the session received no answer.
        let fits = [acknowledged, acknowledged + 1].contains(&(kept as u64));
        assert!(
            fits,
            "writer {writer}: {acknowledged} acknowledged, {kept} kept"
        );
    }
    is_sound(&mut session);
}

/// Keys of rows may change while a table has no primary key. An index that is created afterwards contains only the new
/// key of a row. So the index leads to a row that an older snapshot sees under the row's old key.
#[test]
fn an_index_younger_than_the_snapshot_does_not_lead_to_a_row_of_another_key() {
    let database = database_with_cache("");
    for path in PATHS {
        let (mut reader, mut other) = (on_path(&database, path), database.connect());
        other.run("TRUNCATE c");
        other.run("SELECT cache_set('former', 'v', cache => 'c')");
        reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class");
        other.run("ALTER TABLE c DROP CONSTRAINT c_pkey");
        other.run("UPDATE c SET key = 'newer'");
        other.run("ALTER TABLE c ADD PRIMARY KEY (key)");
        assert_eq!(reader.text("SELECT key FROM c"), "former");
        assert_eq!(reader.text("SELECT cache_get('former', 'c')"), "v");
        assert_eq!(reader.value("SELECT cache_get('newer', 'c')"), None);
        let both = "SELECT * FROM cache_get_many('{former, newer}', 'c')";
        assert_eq!(reader.lines(both), ["former|v", "newer|"]);
        reader.run("COMMIT");
        assert_eq!(reader.text("SELECT cache_get('newer', 'c')"), "v");
    }
}

/// When the parallel workers read the cache, CREATE TABLE AS has already begun to write the new table.
#[test]
fn a_table_can_be_created_from_a_parallel_query() {
    let database = database_with_cache("");
    for path in PATHS {
        let mut session = on_path(&database, path);
        session.run("SET pgcache.hot_tier = off; SELECT cache_set('k', 'v', cache => 'c')");
        parallel::always(&mut session);
        for read in [
            "cache_get('k', 'c')",
            "(SELECT value FROM cache_get_many('{k}', 'c'))",
            "(SELECT value FROM cache_scan(cache => 'c'))",
        ] {
            let query = format!("SELECT DISTINCT {read} FROM pg_class WHERE oid > 0");
            assert!(parallel::is_planned(&mut session, &query), "{query}");
            session.run(&format!("CREATE TABLE made AS {query}"));
            assert_eq!(session.lines("SELECT * FROM made"), ["v"], "{path}: {read}");
            session.run("DROP TABLE made");
        }
    }
}

/// From version 18 on, a generated column may be virtual, which means that no row stores its value.
#[test]
fn a_column_that_is_computed_when_it_is_read_is_read_so() {
    let database = Cluster::shared().database();
    let mut session = on_path(&database, "auto");
    if Cluster::shared().stage.major() < 18 {
        return;
    }
    session.run(
        "CREATE TABLE c (key text COLLATE \"C\" PRIMARY KEY, small text, ends float8, \
         value text GENERATED ALWAYS AS (upper(small)) VIRTUAL, \
         expires_at timestamptz GENERATED ALWAYS AS (to_timestamp(ends)) VIRTUAL)",
    );
    session.run(
        "CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON c \
         FOR EACH ROW EXECUTE FUNCTION pgcache.record()",
    );
    session.run("INSERT INTO c VALUES ('live', 'v', 4e9), ('expired', 'v', 1)");
    assert_eq!(session.text("SELECT cache_get('live', 'c')"), "V");
    assert_eq!(session.value("SELECT cache_get('expired', 'c')"), None);
    let both = "SELECT * FROM cache_get_many('{live, expired}', 'c')";
    assert_eq!(session.lines(both), ["live|V", "expired|"]);
}

/// If the primary key is deferrable, an upsert cannot know before the end of the transaction whether a key exists.
#[test]
fn a_table_with_a_deferrable_key_is_no_cache() {
    let database = database_with_cache("");
    for path in PATHS {
        let mut session = on_path(&database, path);
        session.run("ALTER TABLE c DROP CONSTRAINT c_pkey, ADD PRIMARY KEY (key) DEFERRABLE");
        for call in [
            "SELECT cache_get('k', 'c')",
            "SELECT cache_set('k', 'v', cache => 'c')",
        ] {
            refused(session.simple_query(call), "42809");
        }
        session.run("ALTER TABLE c DROP CONSTRAINT c_pkey, ADD PRIMARY KEY (key)");
        session.run("SELECT cache_set('k', 'v', cache => 'c')");
    }
}
