//! Tests memory caches: changes take effect at once, a rollback does not undo them, and a write evicts entries but is
//! never refused.

use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::{PRELOAD, Tiered};
use postgres::Client;

pub(crate) const CREATE: &str = "SELECT cache_create('m', storage => 'memory')";

pub(crate) fn with_cache() -> Database<'static> {
    let database = Cluster::hot().database();
    database.connect().run(CREATE);
    database
}

fn entries(session: &mut Client) -> i64 {
    session.number("SELECT hot_entries FROM pgcache.stats WHERE cache = 'm'::regclass")
}

#[test]
fn a_write_acts_at_once_and_outlives_its_transaction() {
    let database = with_cache();
    let (mut one, mut other) = (database.connect(), database.connect());
    one.run("BEGIN; SELECT cache_set('k', '1', cache => 'm')");
    assert_eq!(other.text("SELECT cache_get('k', 'm')"), "1");
    one.run("SAVEPOINT s; SELECT cache_incr('k', cache => 'm'); ROLLBACK TO s");
    one.run("SELECT cache_delete('absent', 'm'); ROLLBACK");
    assert_eq!(other.text("SELECT cache_get('k', 'm')"), "2");
}

#[test]
fn a_memory_cache_is_written_under_every_isolation_level_and_read_only() {
    let mut session = with_cache().connect();
    for mode in [
        "ISOLATION LEVEL READ COMMITTED READ ONLY",
        "ISOLATION LEVEL REPEATABLE READ READ ONLY",
        "ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
        "ISOLATION LEVEL SERIALIZABLE",
    ] {
        session.run(&format!("BEGIN {mode}"));
        session.run("SELECT cache_set('k', 'set', cache => 'm'), cache_incr('n', cache => 'm')");
        assert_eq!(session.text("SELECT cache_take('k', 'm')"), "set", "{mode}");
        session.run("SELECT cache_clear('m'); COMMIT");
        assert_eq!(entries(&mut session), 0, "{mode}");
    }
}

#[test]
fn a_standby_reads_and_writes_its_own_memory_caches() {
    let primary = Cluster::with_tier(&[]);
    let mut session = primary.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run(CREATE);
    session.run("SELECT cache_set('k', 'primary', cache => 'm')");
    let standby = primary.standby();
    let mut replica = standby.connect("postgres");
    assert_eq!(replica.value("SELECT cache_get('k', 'm')"), None);
    replica.run("SELECT cache_set('k', 'standby', cache => 'm')");
    assert_eq!(replica.text("SELECT cache_get('k', 'm')"), "standby");
    assert_eq!(replica.number("SELECT cache_incr('n', 5, cache => 'm')"), 5);
    assert!(replica.holds("SELECT cache_delete('n', 'm')"));
    assert_eq!(replica.lines("SELECT key, value FROM m"), ["k|standby"]);
    assert_eq!(session.text("SELECT cache_get('k', 'm')"), "primary");
    replica.run("SELECT cache_clear('m')");
    assert_eq!(replica.value("SELECT cache_get('k', 'm')"), None);
}

#[test]
fn after_a_restart_a_memory_cache_is_empty_and_works() {
    let cluster = Cluster::with_tier(&[]);
    cluster.connect("postgres").run("CREATE EXTENSION pgcache");
    cluster.connect("postgres").run(CREATE);
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        let mut session = cluster.connect("postgres");
        session.run("SELECT cache_set('k', '1', cache => 'm')");
        drop(session);
        cluster.restart(how);
        let mut session = cluster.connect("postgres");
        assert_eq!(session.value("SELECT cache_get('k', 'm')"), None);
        assert_eq!(session.lines("SELECT * FROM m"), Vec::<String>::new());
        session.run("SELECT cache_set('k', '1', cache => 'm')");
        assert_eq!(session.text("SELECT cache_get('k', 'm')"), "1");
        session.run("SELECT cache_clear('m')");
    }
}

/// A tier with small entries needs a larger index. `pgcache.hot_entry_size` takes precedence over the entry size of the
/// last run.
#[test]
fn the_index_is_made_for_the_entries_of_the_last_run() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '16MB'"]);
    let mut session = cluster.connect("postgres");
    session.run(&format!("CREATE EXTENSION pgcache; {CREATE}"));
    drop(session);
    let bookkeeping = || {
        let mut session = cluster.connect("postgres");
        session.number("SELECT bookkeeping FROM pgcache.hot_tier")
    };
    let after = |value: u32| {
        cluster.connect("postgres").run(&format!(
            "SELECT cache_clear('m'); SELECT count(cache_set('k' || i, repeat('v', {value}), cache => 'm')) \
             FROM generate_series(1, 2000) AS i"
        ));
        cluster.restart(Shutdown::Fast);
        bookkeeping()
    };
    let stock = bookkeeping();
    let small = after(8);
    assert!(small > stock * 5 / 4, "{stock} bytes, then {small}");
    cluster.restart(Shutdown::Fast);
    assert_eq!(
        bookkeeping(),
        small,
        "a run without entries changed the index"
    );
    let large = after(900);
    assert!(large < stock * 4 / 5, "{stock} bytes, then {large}");
    cluster
        .connect("postgres")
        .run("ALTER SYSTEM SET pgcache.hot_entry_size = '8B'");
    assert!(after(900) > stock * 5 / 4);
}

#[test]
fn no_remembered_entry_size_keeps_the_tier_off() {
    let cluster = Cluster::own(&[PRELOAD, "pgcache.hot_size = '210kB'"]);
    let bookkeeping = || {
        let mut session = cluster.connect("postgres");
        session.run("CREATE EXTENSION IF NOT EXISTS pgcache");
        session.number("SELECT bookkeeping FROM pgcache.hot_tier")
    };
    let stock = bookkeeping();
    assert!(stock > 0, "the tier is on by default");
    let file = cluster.data().join("pg_stat/pgcache.entry_size");
    let long = "9".repeat(1 << 20);
    for content in [
        "",
        "-1",
        "188 bytes",
        "\u{0}",
        "99999999999999999999",
        &long,
    ] {
        cluster.down(Shutdown::Fast);
        std::fs::write(&file, content).unwrap();
        cluster.up();
        assert_eq!(bookkeeping(), stock, "{:.20}", content);
    }
    for content in ["0", "1", "1000000"] {
        cluster.down(Shutdown::Fast);
        std::fs::write(&file, content).unwrap();
        cluster.up();
        assert!(bookkeeping() > 0, "{content}: the tier is on");
    }
}

#[test]
fn eviction_never_fails_a_write() {
    let cluster = Cluster::with_tier(&[
        "pgcache.hot_size = '8MB'",
        "pgcache.hot_max_value = '256kB'",
    ]);
    let database = cluster.database();
    database.connect().run(CREATE);
    thread::scope(|scope| {
        for writer in 0..4 {
            let database = &database;
            scope.spawn(move || fill(&mut database.connect(), writer));
        }
    });
    let mut session = database.connect();
    session.sums_up();
    assert!(session.holds("SELECT evictions > 100 AND used <= size FROM pgcache.hot_tier"));
    assert!(session.holds("SELECT size <= 8 * 1024 * 1024 FROM pgcache.hot_tier"));
    session.run("SELECT cache_clear('m')");
    assert_eq!(session.number("SELECT entries FROM pgcache.hot_tier"), 0);
    assert_eq!(entries(&mut session), 0);
    assert!(session.holds("SELECT hot_bytes = 0 FROM pgcache.stats WHERE cache = 'm'::regclass"));
}

/// Sets values from 1 byte to the largest size, in phases and mixed. Checks that every entry that remains is correct.
fn fill(session: &mut Client, writer: u64) {
    for size in [
        "1",
        "200",
        "262140",
        "1 + k * 7919 % 262140",
        "1 + (k % 90) ^ 2",
    ] {
        session.run(&format!(
            "SELECT cache_set('{writer}-' || k, repeat(chr(97 + (k % 26)::int), ({size})::int), cache => 'm') \
             FROM generate_series(1, 400) AS k"
        ));
        let wrong = format!(
            "SELECT count(*) FROM generate_series(1, 400) AS k, cache_get('{writer}-' || k, 'm') AS v \
             WHERE v IS NOT NULL AND v <> repeat(chr(97 + (k % 26)::int), ({size})::int)"
        );
        assert_eq!(session.number(&wrong), 0, "{size}");
    }
}

#[test]
fn a_value_that_cannot_fit_is_refused_without_a_change() {
    let cluster =
        Cluster::with_tier(&["pgcache.hot_size = '4MB'", "pgcache.hot_max_value = '16kB'"]);
    let mut session = cluster.database().connect();
    session.run(CREATE);
    session.run("SELECT cache_set('k', 'before', cache => 'm')");
    for write in [
        "cache_set('k', repeat('x', 16385), cache => 'm')",
        "cache_replace('k', repeat('x', 16385), cache => 'm')",
        "cache_cas('k', 'before', repeat('x', 16385), cache => 'm')",
        "cache_add('new', repeat('x', 16385), cache => 'm')",
    ] {
        refused(session.try_value(&format!("SELECT {write}")), "54000");
    }
    assert_eq!(session.text("SELECT cache_get('k', 'm')"), "before");
    assert!(!session.holds("SELECT cache_exists('new', 'm')"));
    session.run("SELECT cache_set('k', repeat('x', 16384), cache => 'm')");
    assert_eq!(session.number("SELECT length(cache_get('k', 'm'))"), 16384);
}

#[test]
fn counters_lose_nothing() {
    let database = with_cache();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                database.connect().run(
                    "SELECT count(cache_incr('n', cache => 'm')) FROM generate_series(1, 10000)",
                );
            });
        }
    });
    let mut session = database.connect();
    assert_eq!(session.text("SELECT cache_get('n', 'm')"), "80000");
}

/// Of several concurrent calls of `cache_add` or `cache_cas`, exactly one succeeds.
#[test]
fn add_and_cas_have_one_winner_each_time() {
    let database = with_cache();
    let won: i64 = thread::scope(|scope| {
        let racers: Vec<_> = (0..6)
            .map(|racer| {
                let database = &database;
                scope.spawn(move || {
                    database.connect().number(&format!(
                        "SELECT count(*) FILTER (WHERE cache_add('a' || k, '{racer}', cache => 'm')) + \
                         count(*) FILTER (WHERE cache_cas('c', k::text, (k + 1)::text, cache => 'm') \
                         OR k = 1 AND cache_cas('c', NULL, '2', cache => 'm')) FROM generate_series(1, 2000) AS k"
                    ))
                })
            })
            .collect();
        racers
            .into_iter()
            .map(|r| r.join().expect("a racer failed"))
            .sum()
    });
    let reached = database.connect().number("SELECT cache_get('c', 'm')");
    assert_eq!(won, 2000 + reached - 1);
}

#[test]
fn clear_prefix_and_scan_hold_under_load() {
    let database = with_cache();
    thread::scope(|scope| {
        for writer in 0..4 {
            let database = &database;
            scope.spawn(move || {
                database.connect().run(&format!(
                    "SELECT cache_set('w{writer}-' || k % 500, 'w{writer}-' || k % 500, cache => 'm') \
                     FROM generate_series(1, 20000) AS k"
                ));
            });
        }
        let mut session = database.connect();
        for round in 0..40 {
            let wrong = "SELECT count(*) FROM cache_scan(max_rows => 1000, cache => 'm') WHERE key <> value";
            assert_eq!(session.number(wrong), 0);
            session.run(match round % 10 {
                0 => "SELECT cache_clear('m')",
                _ => "SELECT cache_delete_prefix('w1', 'm')",
            });
        }
    });
    let mut session = database.connect();
    session.run("SELECT cache_delete_prefix('w', 'm')");
    assert_eq!(session.lines("SELECT * FROM m"), Vec::<String>::new());
    assert_eq!(entries(&mut session), 0);
}

const BIG: [&str; 2] = [
    "pgcache.hot_size = '256MB'",
    "pgcache.hot_max_value = '128MB'",
];

/// The server takes long to convert the large JSON value to text. So another session can write the key after the call
/// has read it and before the call returns.
#[test]
fn a_deadline_goes_with_the_value_that_the_same_call_returns() {
    let cluster = Cluster::with_tier(&BIG);
    let (mut one, mut other) = (cluster.connect("postgres"), cluster.connect("postgres"));
    one.run("CREATE EXTENSION pgcache");
    one.run("SELECT cache_create('m', storage => 'memory', value_type => 'jsonb')");
    for round in 0..10 {
        one.run(
            "SELECT cache_set_json('k', jsonb_agg(i), '1 hour', 'm') FROM generate_series(1, 500000) AS i",
        );
        let got = thread::scope(|scope| {
            let toucher = scope.spawn(|| one.text("SELECT cache_get_touch('k', '1 minute', 'm')"));
            thread::sleep(Duration::from_millis(10 * (round + 1)));
            other.run("SELECT cache_set('k', '\"new\"', '1 hour', 'm')");
            toucher.join().expect("the session is there")
        });
        let is_touched = other.holds("SELECT cache_ttl('k', 'm') <= '1 minute'");
        assert_eq!(is_touched, got == "\"new\"", "round {round}");
    }
}

/// While the server converts the first value to text, the deadlines of the next values pass.
#[test]
fn a_page_that_is_shorter_than_requested_is_the_last() {
    let cluster = Cluster::with_tier(&BIG);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('m', storage => 'memory', value_type => 'jsonb')");
    session.run(
        "SELECT cache_set_json('a', jsonb_agg(i), cache => 'm') FROM generate_series(1, 2000000) AS i; \
         SELECT cache_set('z', '1', cache => 'm')",
    );
    for _ in 0..5 {
        session.run("SELECT cache_set_many('{b,c,d}', '{1,2,3}', '100 ms', 'm')");
        let page = session.lines("SELECT key FROM cache_scan(max_rows => 3, cache => 'm')");
        let is_last = page.last().is_some_and(|key| key == "z");
        assert!(page.len() == 3 || is_last, "{page:?}");
    }
}

#[test]
fn the_planner_knows_how_many_entries_there_are() {
    let database = with_cache();
    let mut session = database.connect();
    session.run(
        "CREATE ROLE estimates LOGIN;
         CREATE FUNCTION planned(query text) RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE plan json;
         BEGIN
             EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
             RETURN (plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint;
         END $$;",
    );
    let planned = "SELECT planned('SELECT * FROM m')";
    assert_eq!(session.number(planned), 1);
    session.run("SELECT cache_set(n::text, 'v', cache => 'm') FROM generate_series(1, 5000) AS n");
    assert_eq!(session.number(planned), 5000);
    // For a role that may not read the cache, the plan shows a fixed estimate and so reveals no number of entries.
    let settings =
        "(SELECT (regexp_match(pg_get_viewdef('m'::regclass), 'memory_entries\\(''([^'']*)'))[1])";
    let settings = session.text(&format!("SELECT {settings}"));
    let direct = format!(
        "SELECT planned($q$SELECT * FROM pgcache.memory_entries('{settings}') AS e (key text, value text, expires_at timestamptz)$q$)"
    );
    assert_eq!(session.number(&direct), 5000);
    session.run("SET ROLE estimates");
    assert_eq!(session.number(&direct), 1000);
    session.run("RESET ROLE; DROP ROLE estimates");
}
