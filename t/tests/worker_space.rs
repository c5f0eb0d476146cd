//! Tests that the number of entries and the space on disk stay bounded, and that a sweep reads rows by their addresses
//! and reads no more rows than it needs.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

fn fill(session: &mut Client, cache: &str, prefix: &str, rows: u32) {
    session.run(&format!(
        "INSERT INTO {cache} SELECT '{prefix}' || i, repeat('x', 100) FROM generate_series(1, {rows}) AS i"
    ));
}

#[test]
fn a_sweep_finds_rows_by_their_addresses_and_stops_when_it_has_enough() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('c')");
    session.run(
        "INSERT INTO c AS pgcache_c SELECT i, repeat('x', 500), CASE WHEN i % 2 = 0 THEN now() END \
         FROM generate_series(1, 40000) AS i",
    );
    let blocks = session.number("SELECT pg_relation_size('c') / 8192");
    assert!(blocks > 2000, "{blocks} blocks");
    session.run("SELECT cache_expire('c', 1)");
    let plan =
        session.lines("EXPLAIN (ANALYZE, BUFFERS, TIMING off) SELECT cache_expire('c', 100)");
    let shared = plan
        .iter()
        .find_map(|line| line.split("shared hit=").nth(1));
    let hit: i64 = shared
        .and_then(|rest| rest.split(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no buffer count in {plan:?}"));
    // A chunk of 512 blocks is read twice; the rest is the cost of deleted rows.
    assert!(hit < 512 * 2 + 600, "{hit} of {blocks} blocks for 100 rows");
    assert_eq!(
        session.number("SELECT cache_expire('c', 30000)"),
        20000 - 101
    );
    session.run("SELECT pg_stat_force_next_flush()");
    let scans =
        session.lines("SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'c'");
    // There is at most one sequential scan, from the creation of the primary key's index, and none from a sweep.
    assert!(
        ["0|0", "1|0"].contains(&scans[0].as_str()),
        "seq_scan, idx_scan: {scans:?}"
    );
}

/// Returns the number of updates of the cache so far, and the number of HOT updates.
fn updates(session: &mut Client) -> (i64, i64) {
    session.run("SELECT pg_stat_force_next_flush()");
    let all = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'c'";
    let hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'c'";
    (session.number(all), session.number(hot))
}

#[test]
fn overwriting_rows_stays_hot_while_they_are_swept() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('c')");
    fill(&mut session, "c", "k", 5000);
    session.run("VACUUM c");
    // The space of a dead row is free as soon as no snapshot can see the row. While autovacuum runs ANALYZE on any
    // table of the database, it holds a snapshot, and on pages that fill up during that time no update is HOT. The test
    // therefore takes the best of several rounds.
    let mut shares = Vec::new();
    while shares.iter().all(|share| *share < 95) {
        assert!(shares.len() < 15, "of the updates were HOT: {shares:?} %");
        let before = updates(&mut session);
        for part in 0..20 {
            session.run(&format!(
                "SELECT cache_set('k' || i, repeat('y', 100), '1 hour', 'c') \
                 FROM generate_series(1 + {part}, 5000, 20) AS i"
            ));
        }
        session.run("SELECT cache_expire('c')");
        let after = updates(&mut session);
        shares.push(100 * (after.1 - before.1) / (after.0 - before.0));
    }
}

#[test]
fn a_cache_is_trimmed_to_its_limit_oldest_entries_first() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('c', max_entries => 3000)");
    for prefix in ["a", "b", "c", "d"] {
        fill(&mut session, "c", prefix, 2000);
    }
    // This update makes the first rows of the table the youngest.
    session.run("UPDATE c SET value = 'y' WHERE key LIKE 'a%'");
    session.run("INSERT INTO c SELECT 'x' || i, '1', now() FROM generate_series(1, 500) AS i");
    assert_eq!(session.number("SELECT cache_expire('c', 100)"), 100);
    let left =
        session.lines("SELECT left(key, 1), count(*) FROM c AS pgcache_c GROUP BY 1 ORDER BY 1");
    assert_eq!(left, ["a|2000", "d|1000"]);
    assert_eq!(session.number("SELECT cache_expire('c')"), 0);
    assert_eq!(session.number("SELECT count(*) FROM c AS pgcache_c"), 3000);
}

#[test]
fn entries_that_the_tier_knows_to_be_used_are_trimmed_last() {
    let mut session = Cluster::hot().database().connect();
    session.run("SELECT cache_create('c', max_entries => 3000)");
    for prefix in ["a", "b", "c", "d"] {
        fill(&mut session, "c", prefix, 2000);
    }
    let read = "SELECT count(cache_get('a' || i, 'c')) FROM generate_series(1, 500) AS i";
    // pgcache makes no copy while autovacuum works on the table.
    wait_until("all that is read comes from the tier", || {
        let before = session.hot_hits("c");
        assert_eq!(session.number(read), 500);
        session.hot_hits("c") >= before + 500
    });
    session.run("SELECT cache_expire('c')");
    let left =
        session.lines("SELECT left(key, 1), count(*) FROM c AS pgcache_c GROUP BY 1 ORDER BY 1");
    assert_eq!(left, ["a|500", "c|500", "d|2000"]);
    session.verified("c");
    session.run("SELECT cache_alter('c', max_entries => 100); SELECT cache_expire('c')");
    assert_eq!(session.number("SELECT count(*) FROM c AS pgcache_c"), 100);
    let trimmed = "SELECT trimmed FROM pgcache.stats WHERE cache = 'c'::regclass";
    assert_eq!(session.number(trimmed), 7900);
}

#[test]
fn the_worker_holds_a_cache_to_its_limit_while_it_is_filled() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '300ms'"]);
    let mut session = cluster.database().connect();
    session.run("SELECT cache_create('c', max_entries => 5000)");
    let until = Instant::now() + Duration::from_secs(4);
    for round in 0.. {
        if Instant::now() > until && round > 20 {
            break;
        }
        fill(&mut session, "c", &format!("{round}-"), 500);
    }
    wait_until("a sweep at rest", || {
        session.number("SELECT count(*) FROM c AS pgcache_c") <= 5000
    });
    assert_eq!(session.number("SELECT count(*) FROM c AS pgcache_c"), 5000);
}

#[test]
fn a_smaller_limit_counts_at_the_next_sweep_of_a_table_in_which_nothing_has_changed() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '300ms'"]);
    let mut session = cluster.database().connect();
    session.run("SELECT cache_create('c', max_entries => 5000)");
    fill(&mut session, "c", "k", 3000);
    session.run("SELECT pg_stat_force_next_flush()");
    let last_sweep = "SELECT coalesce(extract(epoch FROM last_sweep) * 1000000, 0)::bigint \
                      FROM pgcache.stats WHERE cache = 'c'::regclass";
    // The first pass may have begun before the rows were counted; the third pass finds the table idle.
    for _ in 0..3 {
        let former = session.number(last_sweep);
        wait_until("a sweep", || session.number(last_sweep) > former);
    }
    session.run("SELECT cache_alter('c', max_entries => 100)");
    wait_until("a sweep that counts the limit", || {
        session.number("SELECT count(*) FROM c AS pgcache_c") == 100
    });
}

/// Replaces rows for some seconds. Returns the largest size of the cache's tables in the second half, divided by the
/// size of a fresh table with `fresh` rows.
fn churn(storage: &str, value: &str, step: &str, fresh: u32) -> f64 {
    let cluster =
        Cluster::with_tier(&["pgcache.expire_interval = '1s'", "shared_buffers = '128MB'"]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    session.run(&format!(
        "SELECT cache_create('fresh', storage => '{storage}'); \
         INSERT INTO fresh SELECT md5(i::text), {value}, now() + interval '1 hour' \
         FROM generate_series(1, {fresh}) AS i"
    ));
    let size = |session: &mut Client, cache: &str| {
        session.number(&format!("SELECT pg_total_relation_size('{cache}')")) as f64
    };
    let fresh = size(&mut session, "fresh");
    let began = Instant::now();
    let mut most: f64 = 0.0;
    for round in 0.. {
        session.run(&step.replace("$r", &round.to_string()).replace("$v", value));
        if began.elapsed() > Duration::from_secs(10) {
            most = most.max(size(&mut session, "c"));
        }
        if began.elapsed() > Duration::from_secs(20) {
            break;
        }
        // Pace the load, so that the number of rows in a fresh table is known in advance even on a busy machine.
        let next = Duration::from_millis(100 * (round + 1));
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    most / fresh
}

#[test]
fn entries_written_once_and_expired_take_bounded_room() {
    // 500 rows each tenth of a second live for 3 s, and up to two intervals longer: 25,000 rows.
    let step = "INSERT INTO c SELECT md5('$r' || '-' || i), $v, clock_timestamp() + interval '3 s' \
                FROM generate_series(1, 500) AS i";
    let share = churn("unlogged", "repeat('x', 100)", step, 25_000);
    assert!(share < 2.0, "{share} times the fresh size");
}

#[test]
fn long_values_overwritten_take_bounded_room() {
    // Of 50 values of 40 kB, which do not compress, each is overwritten twice a second: 200 values within two
    // intervals.
    let step = "SELECT cache_set('k' || (i + 10 * ($r % 5)), $v, '1 hour', 'c') \
                FROM generate_series(1, 10) AS i";
    let value = "(SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 1250) AS n)";
    let share = churn("unlogged", value, step, 200);
    assert!(share < 2.0, "{share} times the fresh size");
}

/// Returns how often a cache's table, or its TOAST table, was vacuumed.
fn vacuums(session: &mut Client, cache: &str, table: &str) -> i64 {
    session.number(&format!(
        "SELECT pg_stat_get_vacuum_count({table}) FROM pg_class WHERE oid = '{cache}'::regclass"
    ))
}

/// Creates a cache of 60 values of 100 kB on a server that sweeps nothing for an hour and vacuums only if a writer
/// requests it.
fn unswept(cluster: &Cluster) -> Client {
    let mut session = cluster.database().connect();
    session.run("SELECT cache_create('c')");
    put_long(&mut session, 0);
    session
}

/// Runs one statement for each value, so that each old row is dead when the next row is written.
fn put_long(session: &mut Client, round: u32) {
    for i in 0..60 {
        session.run(&format!(
            "SELECT cache_set('k{i}', (SELECT string_agg(md5('{round} {i}' || n), '') \
             FROM generate_series(1, 3200) AS n), '1 hour', 'c')"
        ));
    }
}

const UNSWEPT: [&str; 2] = ["pgcache.expire_interval = '1h'", "autovacuum = off"];

#[test]
fn rows_that_die_before_the_next_sweep_are_vacuumed_on_request() {
    let cluster = Cluster::with_tier(&UNSWEPT);
    let mut session = unswept(cluster);
    // The first request makes the launcher find the database, which is then swept once.
    put_long(&mut session, 1);
    wait_until("a sweep", || {
        session
            .holds("SELECT last_sweep IS NOT NULL FROM pgcache.stats WHERE cache = 'c'::regclass")
    });
    let keys = "(SELECT 'k' || i AS key FROM generate_series(0, 59) AS i) AS keys";
    for (how, statement) in [
        (
            "overwritten",
            format!("SELECT cache_set(key, md5(key), '1 hour', 'c') FROM {keys}"),
        ),
        ("updated", "UPDATE c SET value = md5(key)".to_owned()),
        (
            "removed",
            format!("SELECT cache_delete(key, 'c') FROM {keys}"),
        ),
        (
            "removed as one batch",
            format!("SELECT cache_delete_many(array_agg(key), 'c') FROM {keys}"),
        ),
        (
            "taken",
            format!("SELECT length(cache_take(key, 'c')) FROM {keys}"),
        ),
        ("deleted", "DELETE FROM c".to_owned()),
    ] {
        session.run("SELECT cache_drop('c')");
        session.run("SELECT cache_create('c')");
        put_long(&mut session, 0);
        assert_eq!(vacuums(&mut session, "c", "reltoastrelid"), 0, "{how}");
        session.run(&statement);
        wait_until(how, || vacuums(&mut session, "c", "reltoastrelid") > 0);
    }
}

#[test]
fn short_rows_that_die_request_a_vacuum_too() {
    let cluster = Cluster::with_tier(&UNSWEPT);
    let mut session = unswept(cluster);
    fill(&mut session, "c", "short:", 40_000);
    session.run("DELETE FROM c WHERE key LIKE 'short:%'");
    wait_until("vacuum", || vacuums(&mut session, "c", "oid") > 0);
}

#[test]
fn writes_that_leave_no_dead_rows_request_no_vacuum() {
    let cluster = Cluster::with_tier(&UNSWEPT);
    let mut session = unswept(cluster);
    for _ in 0..5 {
        session
            .run("SELECT cache_touch('k' || i, '2 hours', 'c') FROM generate_series(0, 59) AS i");
        session.run("UPDATE c SET expires_at = expires_at + interval '1 s'");
    }
    // If a request existed, the worker would serve it at once.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(vacuums(&mut session, "c", "reltoastrelid"), 0);
    // The control: dead rows do request a VACUUM, and the worker runs it.
    session.run("DELETE FROM c");
    wait_until("vacuum", || vacuums(&mut session, "c", "reltoastrelid") > 0);
}

#[test]
fn values_that_all_die_many_times_between_two_sweeps_take_bounded_room() {
    let cluster = Cluster::with_tier(&UNSWEPT);
    let mut session = unswept(cluster);
    let size = |session: &mut Client| session.number("SELECT pg_total_relation_size('c')") as f64;
    let fresh = size(&mut session);
    for round in 1..=15 {
        let former = vacuums(&mut session, "c", "reltoastrelid");
        put_long(&mut session, round);
        wait_until("vacuum", || {
            vacuums(&mut session, "c", "reltoastrelid") > former
        });
    }
    // Between a request and its VACUUM, the writer may write at most one more round.
    let share = size(&mut session) / fresh;
    assert!(share < 3.0, "{share} times the fresh size");
}

#[test]
fn requests_are_answered_after_a_worker_was_terminated() {
    let cluster = Cluster::with_tier(&UNSWEPT);
    let mut session = unswept(cluster);
    let workers = "FROM pg_stat_activity WHERE backend_type = 'pgcache worker'";
    let mut round = 0;
    // After its last VACUUM the worker stays for a moment, so repeat until one is found.
    wait_until("a worker to be terminated", || {
        round += 1;
        put_long(&mut session, round);
        session.holds(&format!(
            "SELECT coalesce(bool_or(pg_terminate_backend(pid, 10000)), false) {workers}"
        ))
    });
    wait_until("its end", || {
        session.number(&format!("SELECT count(*) {workers}")) == 0
    });
    let former = vacuums(&mut session, "c", "reltoastrelid");
    put_long(&mut session, round + 1);
    wait_until("vacuum", || {
        vacuums(&mut session, "c", "reltoastrelid") > former
    });
}

#[test]
fn rows_held_back_by_an_old_snapshot_are_not_vacuumed_again_and_again() {
    let cluster = Cluster::with_tier(&UNSWEPT);
    let database = cluster.database();
    let (mut session, mut old) = (database.connect(), database.connect());
    session.run("SELECT cache_create('c'); ALTER TABLE c ALTER value SET STORAGE EXTERNAL");
    let mut put = |round: u32| {
        session.run(&format!(
            "SELECT cache_set('k' || i, repeat(chr(97 + {round} % 26), 100000), '1 hour', 'c') \
             FROM generate_series(1, 25) AS i"
        ));
    };
    put(0);
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM c AS pgcache_c");
    for round in 1..=80 {
        // Give the worker time to react.
        std::thread::sleep(Duration::from_millis(100));
        put(round);
    }
    old.run("COMMIT");
    // A VACUUM runs only each time that the table has grown by an eighth.
    let done = vacuums(&mut session, "c", "reltoastrelid");
    assert!(done < 45, "{done} times");
}

#[test]
fn a_database_whose_tables_die_quickly_does_not_keep_the_only_worker() {
    // The launchers of pgcache and of logical replication occupy the other two of the three processes.
    let cluster = Cluster::with_tier(&[
        "max_worker_processes = 3",
        "max_parallel_workers = 0",
        "pgcache.expire_interval = '1s'",
    ]);
    let mut busy = unswept(cluster);
    let mut other = cluster.database().connect();
    let mut round = 0;
    for _ in 0..3 {
        other.run("SELECT cache_set('old', '1', '1 ms')");
        wait_until("a sweep of the other database", || {
            round += 1;
            put_long(&mut busy, round);
            !other.holds("SELECT EXISTS (SELECT FROM pgcache.main)")
        });
    }
}

/// Returns the bytes of holes in the tier, and the bytes of free pages.
fn holes_and_free(session: &mut Client) -> (i64, i64) {
    (
        session.number("SELECT holes FROM pgcache.hot_tier"),
        session.number("SELECT free FROM pgcache.hot_tier"),
    )
}

#[test]
fn large_values_fit_where_a_trim_has_left_holes() {
    const EVICTIONS: &str = "SELECT evictions FROM pgcache.hot_tier";
    let cluster = Cluster::with_tier(&[
        "pgcache.hot_size = '32MB'",
        "pgcache.expire_interval = '1s'",
    ]);
    let mut session = cluster.database().connect();
    session.run("SELECT cache_create('m', storage => 'memory')");
    session.run(
        "SELECT cache_set_many(array_agg(n::text), array_agg(repeat('x', 500)), cache => 'm')
         FROM generate_series(1, 40000) AS n",
    );
    session.run(
        "SELECT cache_delete_many(array_agg(n::text), 'm') FROM generate_series(1, 40000) AS n WHERE n % 8 < 5",
    );
    let kept = session.number("SELECT cache_count('m')");
    let evicted = session.number(EVICTIONS);
    wait_until("the worker closes the holes", || {
        let (holes, free) = holes_and_free(&mut session);
        holes * 4 < free
    });
    assert_eq!(session.number("SELECT cache_count('m')"), kept);
    let (_, free) = holes_and_free(&mut session);
    let values = free * 9 / 10 / 100_000;
    session.run(&format!(
        "SELECT cache_set('large ' || n, repeat('y', 100000), cache => 'm') FROM generate_series(1, {values}) AS n"
    ));
    assert_eq!(session.number(EVICTIONS), evicted);
    assert_eq!(session.number("SELECT cache_count('m')"), kept + values);
    session.sums_up();
}
