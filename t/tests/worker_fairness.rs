//! Tests that the built-in worker divides its time between caches, so that no cache of a database delays the sweeps of
//! other caches for long.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::wait::wait_until_within;
use postgres::Client;

/// The smallest batch, so that a slow cache has many batches.
const SETTINGS: [&str; 2] = [
    "pgcache.expire_interval = '500ms'",
    "pgcache.expire_batch = 100",
];
/// The duration of a slow cache's step.
const STEP: Duration = Duration::from_secs(3);
/// The number of rows of slow caches that may be removed while other caches wait: one step of each slow cache, and some
/// more.
const MEANWHILE: i64 = 700;
const PATIENCE: Duration = Duration::from_secs(120);

/// Creates a cache whose slow trigger fires for each removed row or for each statement, according to `level`.
fn put_slow(session: &mut Client, cache: &str, level: &str) {
    session.run(&format!(
        "SELECT cache_create('{cache}'); \
         CREATE TRIGGER slow AFTER DELETE ON {cache} FOR EACH {level} EXECUTE FUNCTION slow()"
    ));
}

fn fill_slow(session: &mut Client, cache: &str) {
    session.run(&format!(
        "INSERT INTO {cache} SELECT i, '1', now() FROM generate_series(1, 3000) AS i"
    ));
}

fn declare_slow(session: &mut Client, seconds: f64) {
    session.run(&format!(
        "CREATE EXTENSION IF NOT EXISTS pgcache; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END$$"
    ));
}

fn put_others(session: &mut Client) {
    for i in 0..10 {
        session.run(&format!("SELECT cache_create('c{i}')"));
    }
}

/// Returns the number of these slow caches' rows that were removed while the other caches waited for their sweep.
fn expire_others(session: &mut Client, slow: &[&str]) -> i64 {
    let there = |session: &mut Client| slow.iter().map(|cache| rows(session, cache)).sum::<i64>();
    let before = there(session);
    for i in 0..10 {
        session.run(&format!(
            "INSERT INTO c{i} SELECT i, '1', now() FROM generate_series(1, 50) AS i"
        ));
    }
    let left: Vec<String> = (0..10)
        .map(|i| format!("(SELECT count(*) FROM c{i} AS pgcache_c)"))
        .collect();
    let left = format!("SELECT {}", left.join(" + "));
    wait_until_within(PATIENCE, "the others are swept", || {
        session.number(&left) == 0
    });
    before - there(session)
}

fn rows(session: &mut Client, cache: &str) -> i64 {
    session.number(&format!("SELECT count(*) FROM {cache} AS pgcache_c"))
}

#[test]
fn a_cache_whose_trigger_is_slow_leaves_other_caches_their_time() {
    let cluster = Cluster::with_tier(&SETTINGS);
    let mut session = cluster.connect("postgres");
    declare_slow(&mut session, STEP.as_secs_f64());
    put_slow(&mut session, "slow", "STATEMENT");
    put_others(&mut session);
    fill_slow(&mut session, "slow");
    for _ in 0..5 {
        let went = expire_others(&mut session, &["slow"]);
        assert!(went <= MEANWHILE, "{went} rows before the others");
    }
    // The slow cache also gets its time.
    let now = rows(&mut session, "slow");
    assert!(now > 0, "the slow one was done before the others came");
    wait_until_within(PATIENCE, "the slow cache is swept further", || {
        rows(&mut session, "slow") < now
    });
    expire_others(&mut session, &["slow"]);
}

#[test]
fn several_slow_caches_share_the_remaining_time() {
    let cluster = Cluster::with_tier(&SETTINGS);
    let mut session = cluster.connect("postgres");
    declare_slow(&mut session, STEP.as_secs_f64() * 2.0 / 3.0);
    let slow = ["slow_a", "slow_b", "slow_c"];
    for cache in slow {
        put_slow(&mut session, cache, "STATEMENT");
    }
    put_others(&mut session);
    for cache in slow {
        fill_slow(&mut session, cache);
    }
    for _ in 0..5 {
        let went = expire_others(&mut session, &slow);
        assert!(went <= MEANWHILE, "{went} rows before the others");
    }
    let before = slow.map(|cache| rows(&mut session, cache));
    for (cache, before) in slow.iter().zip(before) {
        wait_until_within(PATIENCE, "each slow cache is swept further", || {
            rows(&mut session, cache) < before
        });
    }
    expire_others(&mut session, &slow);
}

/// All caches of one role are slow, and the worker does not know this yet. It must still sweep the other role's caches
/// in time.
#[test]
fn many_slow_caches_of_one_owner_do_not_come_one_after_the_other() {
    let cluster = Cluster::with_tier(&SETTINGS);
    let mallory = cluster.role();
    let mut session = cluster.connect("postgres");
    declare_slow(&mut session, 1.5);
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {mallory}; SET ROLE {mallory}"
    ));
    let slow: Vec<String> = (0..8).map(|i| format!("slow{i}")).collect();
    for cache in &slow {
        put_slow(&mut session, cache, "STATEMENT");
    }
    session.run("RESET ROLE");
    put_others(&mut session);
    for cache in &slow {
        fill_slow(&mut session, cache);
    }
    let names: Vec<&str> = slow.iter().map(String::as_str).collect();
    let went = expire_others(&mut session, &names);
    assert!(went <= 300, "{went} rows before the others");
    // Each slow cache gets a turn.
    let left: Vec<i64> = names
        .iter()
        .map(|cache| rows(&mut session, cache))
        .collect();
    for (cache, before) in names.iter().zip(left) {
        wait_until_within(PATIENCE, "each slow cache is swept further", || {
            rows(&mut session, cache) < before
        });
    }
}

/// If each row takes long, the worker removes fewer rows in one step.
#[test]
fn a_trigger_that_is_slow_for_each_row_gets_shorter_steps() {
    let cluster = Cluster::with_tier(&[
        "pgcache.expire_interval = '500ms'",
        "pgcache.expire_batch = 500",
    ]);
    let mut session = cluster.connect("postgres");
    declare_slow(&mut session, 0.01);
    put_slow(&mut session, "slow", "ROW");
    fill_slow(&mut session, "slow");
    let mut seen = vec![rows(&mut session, "slow")];
    wait_until_within(Duration::from_secs(90), "some steps", || {
        let now = rows(&mut session, "slow");
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        now < 2200
    });
    let last = seen[seen.len() - 2] - seen[seen.len() - 1];
    assert!(last <= 250, "a step of {last} rows: {seen:?}");
}

/// A sweep that waits for a lock in vain also counts as time spent on its cache.
#[test]
fn caches_whose_sweep_waits_in_vain_leave_other_caches_their_time() {
    let cluster = Cluster::with_tier(&[
        "pgcache.expire_interval = '500ms'",
        "deadlock_timeout = '4s'",
    ]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('b')");
    for i in 0..8 {
        session.run(&format!(
            "SELECT cache_create('a{i}'); SELECT cache_depend('a{i}', 'key', 'b')"
        ));
    }
    put_others(&mut session);
    for i in 0..8 {
        session.run(&format!(
            "INSERT INTO a{i} VALUES ('k', '1', clock_timestamp() + interval '5 s')"
        ));
    }
    session.run("SELECT cache_set('k', '1', cache => 'b')");
    // The removal waits at the commit for half of deadlock_timeout.
    let mut locker = cluster.connect("postgres");
    locker.run("BEGIN; SELECT cache_set('k', '2', cache => 'b')");
    // After this time the sweep of each cache has waited once.
    std::thread::sleep(Duration::from_secs(23));
    // If the eight sweeps waited one after the other in each round, a round would take 16 s.
    let took = [(); 3].map(|()| {
        let began = Instant::now();
        expire_others(&mut session, &[]);
        began.elapsed()
    });
    let least = took.iter().min().copied().unwrap_or_default();
    assert!(least < Duration::from_secs(12), "{took:?}");
    locker.run("ROLLBACK");
    wait_until_within(Duration::from_secs(90), "all of them are swept", || {
        (0..8).all(|i| rows(&mut session, &format!("a{i}")) == 0)
    });
}

/// A call is one transaction, so the caches cannot take turns. Instead they share the number of rows that the call may
/// remove.
#[test]
fn a_sweep_over_all_caches_gives_each_its_share_of_the_rows() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('a'), cache_create('b'), cache_create('c')");
    for (cache, rows) in [("a", 1000), ("b", 20), ("c", 1000)] {
        session.run(&format!(
            "INSERT INTO {cache} SELECT i, '1', now() FROM generate_series(1, {rows}) AS i"
        ));
    }
    let expire = "SELECT cache_expire(max_rows => 200)";
    assert_eq!(session.number(expire), 200);
    let left = ["a", "b", "c"].map(|cache| rows(&mut session, cache));
    assert_eq!(left[1], 0, "{left:?}");
    assert!(left[0] < 1000 && left[2] < 1000, "{left:?}");
    assert_eq!(session.number("SELECT cache_expire()"), 2020 - 200);
}
