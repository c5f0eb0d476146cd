//! Tests that the built-in worker sweeps every database without any setup, and that it delays no session.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::tier::{PRELOAD, Tiered};
use pgcache_tests::wait::wait_until;
use postgres::Client;

const OFTEN: &str = "pgcache.expire_interval = '300ms'";

/// Returns the cluster of the tests that do not stop the worker.
fn shared() -> &'static Cluster {
    Cluster::hot_with(&[OFTEN])
}

fn put(session: &mut Client, cache: &str) {
    session.run(&format!(
        "SELECT cache_set('old', '1', '1 ms', '{cache}'), cache_set('new', '1', '1 hour', '{cache}')"
    ));
}

fn wait_until_swept(session: &mut Client, cache: &str) {
    let old = format!("SELECT EXISTS (SELECT FROM ONLY {cache} AS pgcache_c WHERE key = 'old')");
    wait_until(&format!("a sweep of {cache}"), || !session.holds(&old));
    let rest = session.lines(&format!("SELECT key FROM ONLY {cache} AS pgcache_c"));
    assert_eq!(rest, ["new"]);
}

fn workers(session: &mut Client, kind: &str) -> Vec<String> {
    session.lines(&format!(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = '{kind}'"
    ))
}

#[test]
fn every_database_with_the_extension_is_swept_without_setup() {
    let cluster = shared();
    for _ in 0..2 {
        let mut session = cluster.database().connect();
        session.run("SELECT cache_create('c'), cache_create('d', storage => 'logged')");
        for cache in ["pgcache.main", "c", "d"] {
            put(&mut session, cache);
        }
        for cache in ["pgcache.main", "c", "d"] {
            wait_until_swept(&mut session, cache);
        }
    }
}

#[test]
fn a_copy_of_a_database_is_swept_and_the_worker_does_not_prevent_copying() {
    let template = shared().database();
    template.connect().run("SELECT cache_create('c')");
    let copies: Vec<_> = (0..10)
        .map(|_| shared().empty_database(&format!("TEMPLATE {}", template.name)))
        .collect();
    for copy in &copies {
        let mut session = copy.connect();
        put(&mut session, "c");
        wait_until_swept(&mut session, "c");
    }
}

#[test]
fn databases_are_dropped_and_renamed_while_the_worker_comes_and_goes() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '100ms'"]);
    let mut session = cluster.connect("postgres");
    for round in 0..15 {
        let database = cluster.database();
        let mut inside = database.connect();
        inside.run(
            "INSERT INTO pgcache.main SELECT i, repeat('x', 100), now() FROM generate_series(1, 20000) AS i",
        );
        drop(inside);
        wait_until("the session has ended", || {
            !session.holds(&format!(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '{}' \
                 AND backend_type = 'client backend')",
                database.name
            ))
        });
        let renamed = format!("renamed{round}");
        session.run(&format!(
            "ALTER DATABASE {} RENAME TO {renamed}",
            database.name
        ));
        session.run(&format!("DROP DATABASE {renamed}"));
    }
}

/// Creates 60 expired rows whose removal takes a second each. They form one step, so a visit lasts until the launcher
/// ends the step after half a minute.
fn put_slow_rows(session: &mut Client) {
    session.run("SELECT cache_create('c')");
    session.run(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN PERFORM pg_sleep(1); RETURN OLD; END$$; \
         CREATE TRIGGER wait BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    session.run("INSERT INTO c SELECT i, '1', now() FROM generate_series(1, 60) AS i");
}

fn wait_for_visit(session: &mut Client, database: &str) {
    let visit = format!(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker' \
         AND datname = '{database}' AND query = 'sweeping c')"
    );
    wait_until("a visit", || session.holds(&visit));
}

#[test]
fn a_database_is_dropped_in_the_middle_of_a_long_visit() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    put_slow_rows(&mut database.connect());
    let mut session = cluster.connect("postgres");
    wait_for_visit(&mut session, &database.name);
    session.run(&format!("DROP DATABASE {}", database.name));
}

#[test]
fn a_session_that_waits_for_a_lock_of_the_worker_cancels_it() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    let mut session = database.connect();
    put_slow_rows(&mut session);
    wait_for_visit(&mut session, &database.name);
    // The visit's work was rolled back. The lock prevents the next visit from removing rows before the count.
    session.run("BEGIN; LOCK TABLE c");
    assert_eq!(session.number("SELECT count(*) FROM c AS pgcache_c"), 60);
    session.run("ROLLBACK");
    assert!(
        !cluster.log_text().contains("could not"),
        "{}",
        cluster.log_text()
    );
}

#[test]
fn the_worker_works_again_after_a_restart_its_crash_and_its_termination() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    cluster
        .connect("postgres")
        .run("CREATE EXTENSION pgcache; SELECT cache_create('c')");
    let swept = || {
        let mut session = cluster.connect("postgres");
        put(&mut session, "c");
        wait_until_swept(&mut session, "c");
    };
    swept();
    cluster.restart(Shutdown::Fast);
    swept();
    let mut session = cluster.connect("postgres");
    let launcher = workers(&mut session, "pgcache launcher");
    cluster.kill_backend(launcher[0].parse().expect("a pid"));
    wait_until("the crash is noticed", || {
        session.try_value("SELECT 1").is_err()
    });
    cluster.wait_until_up();
    swept();
    let mut session = cluster.connect("postgres");
    let launcher = workers(&mut session, "pgcache launcher");
    session.run(&format!("SELECT pg_terminate_backend({})", launcher[0]));
    wait_until("another launcher", || {
        let now = workers(&mut session, "pgcache launcher");
        now.len() == 1 && now != launcher
    });
    swept();
}

#[test]
fn a_locked_cache_is_skipped_and_swept_later() {
    let database = shared().database();
    let (mut locker, mut session) = (database.connect(), database.connect());
    session.run("SELECT cache_create('a'), cache_create('b')");
    locker.run("BEGIN; LOCK TABLE a IN SHARE ROW EXCLUSIVE MODE");
    // From here on, only `locker` can write to `a`.
    put(&mut locker, "a");
    put(&mut session, "b");
    locker.run("SAVEPOINT s");
    wait_until_swept(&mut session, "b");
    locker.run("COMMIT");
    wait_until_swept(&mut session, "a");
}

const RAISE: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
    $$BEGIN RAISE 'this row stays'; END$$; \
    CREATE TRIGGER refuse BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION refuse()";

#[test]
fn a_cache_whose_trigger_fails_is_reported_once_put_off_and_stops_no_other() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('a'), cache_create('b')");
    session.run(RAISE);
    put(&mut session, "a");
    for _ in 0..4 {
        put(&mut session, "b");
        wait_until_swept(&mut session, "b");
    }
    let complaint = "could not remove expired entries of cache \"a\"";
    wait_until("a complaint", || cluster.log_text().contains(complaint));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(cluster.log_text().matches(complaint).count(), 1);
    assert!(cluster.log_text().contains("this row stays"));
    session.run("DROP TRIGGER refuse ON a");
    wait_until_swept(&mut session, "a");
}

#[test]
fn a_trigger_that_never_returns_is_ended_put_off_and_stops_no_other() {
    // After a failure the worker postpones the cache by twice the interval. With an interval this long, the next visit
    // begins before the delay ends, even on a busy machine.
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '5s'"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('a'), cache_create('b')");
    // The trigger also ignores cancellation.
    session.run(
        "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN LOOP BEGIN PERFORM pg_sleep(600); \
         EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$; \
         CREATE TRIGGER stay BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION stay()",
    );
    put(&mut session, "a");
    wait_until("a worker is stuck", || {
        session.holds("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker' AND wait_event = 'PgSleep')")
    });
    put(&mut session, "b");
    wait_until_swept(&mut session, "b");
    let log = cluster.log_text();
    assert!(
        log.contains("one step of its sweep takes too long"),
        "{log}"
    );
    // Postgres' log entry about the worker's end names the code that ran.
    assert!(log.contains("PL/pgSQL function public.stay()"), "{log}");
}

#[test]
fn a_sweep_over_all_caches_warns_of_a_failing_trigger_and_continues() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('a'), cache_create('b')");
    session.run(RAISE);
    put(&mut session, "a");
    put(&mut session, "b");
    assert_eq!(session.number("SELECT cache_expire()"), 1);
    assert_eq!(session.lines("SELECT key FROM b AS pgcache_c"), ["new"]);
    assert_eq!(session.number("SELECT count(*) FROM a AS pgcache_c"), 2);
}

#[test]
fn an_interval_of_zero_turns_it_off_until_the_settings_are_reloaded() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = 0"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('c')");
    put(&mut session, "c");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(session.number("SELECT count(*) FROM c AS pgcache_c"), 2);
    for set in [
        "SET pgcache.expire_interval = '300ms'",
        "RESET pgcache.expire_interval",
    ] {
        session.run(&format!("ALTER SYSTEM {set}"));
        session.run("SELECT pg_reload_conf()");
        if set.starts_with("SET") {
            wait_until_swept(&mut session, "c");
        }
    }
}

#[test]
fn a_temporary_cache_of_a_session_is_left_to_that_session() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    session.run(
        "CREATE TEMP TABLE mine (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz); \
         CREATE TRIGGER mine AFTER INSERT OR UPDATE OR DELETE ON mine \
         FOR EACH ROW EXECUTE FUNCTION pgcache.record()",
    );
    put(&mut session, "mine");
    put(&mut session, "c");
    wait_until_swept(&mut session, "c");
    put(&mut session, "c");
    wait_until_swept(&mut session, "c");
    assert_eq!(session.number("SELECT count(*) FROM mine AS pgcache_c"), 2);
    assert_eq!(session.number("SELECT cache_expire()"), 1);
    assert!(
        !cluster.log_text().contains("could not"),
        "{}",
        cluster.log_text()
    );
}

#[test]
fn settings_of_a_database_do_not_stop_it() {
    let database = shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    put(&mut session, "c");
    let mut other = database.connect();
    for setting in [
        "default_transaction_read_only = on",
        "default_transaction_isolation = 'serializable'",
        "session_replication_role = replica",
        "search_path = nowhere",
        "enable_tidscan = off",
    ] {
        session.run(&format!("ALTER DATABASE {} SET {setting}", database.name));
    }
    if shared().stage.major() >= 17 {
        session.run(&format!(
            "ALTER DATABASE {} SET transaction_timeout = '1ms'",
            database.name
        ));
    }
    other.run("INSERT INTO c VALUES ('old', '1', now()) ON CONFLICT (key) DO UPDATE SET expires_at = now()");
    wait_until_swept(&mut other, "c");
}

#[test]
fn a_role_that_a_database_sets_does_not_stop_it_either() {
    let database = shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c'); ALTER TABLE c ENABLE ROW LEVEL SECURITY");
    session.run(&format!(
        "ALTER DATABASE {} SET role = pg_monitor",
        database.name
    ));
    session.run("INSERT INTO c SELECT i, '1', now() FROM generate_series(1, 1000) AS i");
    wait_until("a sweep", || {
        session.number("SELECT count(*) FROM c AS pgcache_c") == 0
    });
    wait_until("a vacuum", || {
        session.holds("SELECT vacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'c'")
    });
}

/// Removing a row of `a` also removes a row of `b`, so the sweep waits for the session that has locked that row.
#[test]
fn a_sweep_that_has_to_wait_gives_up_before_a_session_finds_a_deadlock() {
    let cluster = Cluster::with_tier(&[OFTEN, "deadlock_timeout = '4s'"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('a'), cache_create('b')");
    session.run("SELECT cache_depend('a', 'key', 'b')");
    session.run("SELECT cache_set('k', '1', '2 s', 'a')");
    session.run("SELECT cache_set('k', '1', cache => 'b')");
    session.run("BEGIN; SELECT cache_set('k', '2', cache => 'b')");
    // The pause is longer than the deadline and deadlock_timeout together, so if the sweep still waited, it would
    // already have checked for deadlocks.
    std::thread::sleep(Duration::from_secs(8));
    session.run("SELECT cache_set('k', '2', cache => 'a'); COMMIT");
    assert!(
        !cluster.log_text().contains("could not"),
        "{}",
        cluster.log_text()
    );
}

#[test]
fn the_worker_is_recognizable_in_pg_stat_activity() {
    let mut session = shared().connect("postgres");
    // The launcher sleeps most of the time.
    wait_until("the launcher shows its name and that it waits", || {
        session.lines(
            "SELECT application_name, datname, wait_event_type FROM pg_stat_activity \
             WHERE backend_type = 'pgcache launcher'",
        ) == ["pgcache launcher||Extension"]
    });
    let database = shared().database();
    let mut inside = database.connect();
    wait_until("a visit shows its name and place", || {
        inside.run("INSERT INTO pgcache.main SELECT i, repeat('x', 500), now() FROM generate_series(1, 30000) AS i ON CONFLICT DO NOTHING");
        session.holds(&format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker' \
             AND datname = '{}' AND query ~ '^(looking for caches|(sweeping|vacuuming) main)$')",
            database.name
        ))
    });
}

#[test]
fn memory_caches_are_swept_and_held_to_their_limit() {
    let mut session = shared().database().connect();
    session.run("SELECT cache_create('m', storage => 'memory')");
    session.run("SELECT cache_create('few', storage => 'memory', max_entries => 1000)");
    session.run(
        "SELECT cache_set('k' || i, '1', CASE WHEN i <= 10 THEN interval '1 hour' ELSE '1 ms' END, 'm'), \
         cache_set('k' || i, '1', cache => 'few') FROM generate_series(1, 5000) AS i",
    );
    let entries = "SELECT hot_entries FROM pgcache.stats WHERE cache = $c::regclass";
    for (cache, left) in [("m", 10), ("few", 1000)] {
        let entries = entries.replace("$c", &format!("'{cache}'"));
        wait_until(&format!("{cache} is swept"), || {
            session.number(&entries) <= left
        });
        assert_eq!(session.number(&entries), left, "{cache}");
    }
}

#[test]
fn memory_caches_are_swept_on_a_standby_and_tables_after_its_promotion() {
    let primary = Cluster::with_tier(&[OFTEN]);
    let mut session = primary.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run(
        "SELECT cache_create('m', storage => 'memory'), cache_create('c', storage => 'logged')",
    );
    let standby = primary.standby();
    let mut replica = standby.connect("postgres");
    replica.run("SELECT cache_set('k', '1', '1 ms', 'm')");
    wait_until("a sweep on the standby", || {
        replica.number("SELECT hot_entries FROM pgcache.stats WHERE cache = 'm'::regclass") == 0
    });
    standby.promote();
    put(&mut replica, "c");
    wait_until_swept(&mut replica, "c");
    assert!(
        !standby.log_text().contains("could not"),
        "{}",
        standby.log_text()
    );
}

#[test]
fn the_stats_report_the_results_of_a_sweep() {
    let database = shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    put(&mut session, "c");
    wait_until_swept(&mut session, "c");
    wait_until("the figures", || {
        session.holds(
            "SELECT expired = 1 AND trimmed = 0 AND last_sweep > now() - interval '1 hour' \
               AND sweep_lag >= '0' AND waiting = 0 AND bytes >= 8192 \
               FROM pgcache.stats WHERE cache = 'c'::regclass",
        )
    });
}

#[test]
fn the_worker_shares_the_work_with_sessions_that_sweep_too() {
    let cluster = Cluster::start(&[PRELOAD, "pgcache.expire_interval = '100ms'"]);
    let database = cluster.database();
    database
        .connect()
        .run("SELECT cache_create('c', ttl => '1 ms')");
    let until = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let database = &database;
            scope.spawn(move || {
                let mut session = database.connect();
                while Instant::now() < until {
                    session.run(&format!(
                        "SELECT cache_set('{writer}-' || i, '1', cache => 'c') FROM generate_series(1, 500) AS i"
                    ));
                    session.run("SELECT cache_expire(), cache_expire('c')");
                }
            });
        }
    });
    let mut session = database.connect();
    wait_until("all is swept", || {
        session.number("SELECT count(*) FROM c AS pgcache_c") == 0
    });
    session.verified("c");
    assert!(
        !cluster.log_text().contains("could not remove"),
        "{}",
        cluster.log_text()
    );
}
