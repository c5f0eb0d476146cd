//! Tests consecutive pages of a memory cache: their contents while other sessions write, and the cost of reading them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::{refused, sqlstate};
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

use crate::memory_caches::{CREATE, with_cache};

/// Starts a server with a tier of this size that no other test uses, and the cache `m`.
fn alone(hot_size: &str) -> (&'static Cluster, Client) {
    let cluster = Cluster::with_tier(&[&format!("pgcache.hot_size = '{hot_size}'")]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run(CREATE);
    (cluster, session)
}

/// Returns one page of keys, read by `cache_keys` or by a scan.
fn page(session: &mut Client, from: &str, after: Option<&str>, length: usize) -> Vec<String> {
    let after = after.map_or("NULL".into(), |after| format!("'{after}'"));
    session.lines(&format!(
        "SELECT key FROM {from}('', {after}, {length}, 'm')"
    ))
}

/// Returns the keys of all pages of this length. The first page that is shorter is the last.
fn all(session: &mut Client, from: &str, length: usize) -> Vec<String> {
    let mut keys = page(session, from, None, length);
    while keys.len().is_multiple_of(length)
        && let Some(last) = keys.last().cloned()
    {
        let next = page(session, from, Some(&last), length);
        let is_last = next.is_empty();
        keys.extend(next);
        if is_last {
            break;
        }
    }
    keys
}

#[test]
fn a_page_shows_changes_of_other_sessions_made_before_its_request() {
    let database = with_cache();
    let (mut one, mut other) = (database.connect(), database.connect());
    other.run("SELECT cache_set_many(array_agg('k' || i), array_agg('v'::text), cache => 'm') FROM generate_series(100, 299) AS i");
    for from in ["cache_keys", "cache_scan", "cache_scan_bytes"] {
        assert_eq!(page(&mut one, from, None, 2), ["k100", "k101"]);
        other.run("SELECT cache_set('k101a', 'v', cache => 'm'), cache_delete('k102', 'm'), cache_set('k0', 'v', cache => 'm'), \
                   cache_set('k103', 'v', '1 millisecond', 'm'), pg_sleep(0.01)");
        assert_eq!(
            page(&mut one, from, Some("k101"), 3),
            ["k101a", "k104", "k105"],
            "{from}"
        );
        // This is more than the journals hold.
        other.run("SELECT count(cache_set('k105.' || i, 'v', cache => 'm')) FROM generate_series(10000, 49999) AS i");
        assert_eq!(
            page(&mut one, from, Some("k105"), 2),
            ["k105.10000", "k105.10001"],
            "{from}"
        );
        other.run("SELECT cache_delete_prefix('k105.', 'm')");
        assert_eq!(page(&mut one, from, Some("k105.10001"), 1), ["k106"]);
        other.run("SELECT cache_clear('m')");
        assert_eq!(page(&mut one, from, Some("k106"), 2), Vec::<String>::new());
        other.run("SELECT cache_set_many(array_agg('k' || i), array_agg('v'::text), cache => 'm') FROM generate_series(100, 299) AS i");
        assert_eq!(page(&mut one, from, Some("k298"), 2), ["k299"]);
    }
}

#[test]
fn pages_return_each_lasting_entry_once_while_sessions_write() {
    let database = with_cache();
    let stable: BTreeSet<String> = (0..3000).map(|i| format!("k{:05}s", i * 7)).collect();
    let mut session = database.connect();
    session.run("SELECT count(cache_set('k' || to_char(i * 7, 'FM00000') || 's', 'v', cache => 'm')) FROM generate_series(0, 2999) AS i");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (database, done) = (&database, &done);
            scope.spawn(move || {
                let mut session = database.connect();
                let mut round = 0;
                while !done.load(Relaxed) {
                    round += 1;
                    // Add and remove keys with one more character; only overwrite the stable keys.
                    session.run(&format!(
                        "SELECT cache_set('k' || to_char((i * 7919 + {round} * 13) % 21000, 'FM00000') || 'w{writer}', 'v', \
                                          CASE WHEN i % 3 = 0 THEN interval '2 ms' END, 'm'), \
                                cache_delete('k' || to_char((i * 104729 + {round}) % 21000, 'FM00000') || 'w{writer}', 'm'), \
                                cache_set('k' || to_char(i * 7, 'FM00000') || 's', repeat('v', (i + {round}) % 900), cache => 'm') \
                         FROM generate_series(0, 2999, 3) AS i"
                    ));
                }
            });
        }
        let mut rng = Rng::seeded(7);
        for round in 0..30 {
            let length = *rng.pick(&[1, 40, 700, 1024, 5000, 100_000]);
            let length = if length == 1 && round > 0 { 17 } else { length };
            let from = *rng.pick(&["cache_keys", "cache_scan"]);
            let keys = all(&mut session, from, length);
            assert!(keys.is_sorted_by(|one, next| one < next), "{from} {length}");
            let met: BTreeSet<String> = keys.into_iter().filter(|key| key.ends_with('s')).collect();
            assert!(met == stable, "{from} by {length}: {} of 3000", met.len());
        }
        done.store(true, Relaxed);
    });
    // Wait until the last entries with a ttl of 2 ms have expired, so that none expires between the two counts.
    thread::sleep(Duration::from_millis(20));
    let counted = session.number("SELECT cache_count('m')");
    assert_eq!(counted, session.number("SELECT count(*) FROM m"));
    session.sums_up();
}

/// Returns the clock ticks that a session's backend has used.
fn ticks(pid: i64) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the backend lives");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    [11, 12]
        .iter()
        .map(|&at| fields[at].parse::<u64>().unwrap())
        .sum()
}

/// A walk over this tier costs about as much as looking up a thousand keys.
#[test]
fn a_page_that_continues_makes_no_walk() {
    let (_cluster, mut session) = alone("64MB");
    session.run("SELECT count(cache_set('k' || to_char(i, 'FM00000'), 'v', cache => 'm')) FROM generate_series(0, 19999) AS i");
    let pid = session.number("SELECT pg_backend_pid()");
    let mut cost = |pages: &str| {
        let before = ticks(pid);
        assert_eq!(session.number(pages), 20_000);
        ticks(pid) - before
    };
    let going_on = cost(
        "SELECT sum((SELECT count(*) FROM cache_keys('', CASE WHEN i > 0 THEN 'k' || to_char(i * 50 - 1, 'FM00000') END, 50, 'm'))) \
         FROM generate_series(0, 399) AS i",
    );
    // Read the pages from the last page to the first, so that each page needs a separate walk.
    let apart = cost(
        "SELECT sum((SELECT count(*) FROM cache_keys('', CASE WHEN i > 0 THEN 'k' || to_char(i * 50 - 1, 'FM00000') END, 50, 'm'))) \
         FROM generate_series(399, 0, -1) AS i",
    );
    assert!(
        going_on * 5 < apart,
        "{going_on} ticks for pages that continue, {apart} for pages that do not"
    );
}

#[test]
fn a_session_keeps_only_a_few_megabytes_of_keys() {
    let (_cluster, mut session) = alone("256MB");
    session.run("SELECT count(cache_set(to_char(i, 'FM00000') || repeat('k', 2000), 'v', cache => 'm')) FROM generate_series(0, 19999) AS i");
    let pid = session.number("SELECT pg_backend_pid()");
    let held = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kilobytes.parse::<u64>().unwrap()
    };
    session.run("SELECT key FROM cache_keys(max_rows => 1, cache => 'm')");
    let before = held();
    let pages = "SELECT count(*) || ' ' || count(DISTINCT key) FROM (SELECT i, lag(left(key, 5), 100) OVER () FROM generate_series(0, 199) AS i, \
                 LATERAL (SELECT key FROM cache_keys('', CASE WHEN i > 0 THEN to_char(i * 100 - 1, 'FM00000') || repeat('k', 2000) END, 100, 'm') \
                          OFFSET 0) AS p) AS a (i, key)";
    session.run(pages);
    // The statement stops reading in the middle, so the session keeps the remaining keys.
    session.run("SELECT count(*) FROM cache_keys(max_rows => 15000, cache => 'm')");
    let after = held();
    assert!(after < before + 16_000, "{before} kB, then {after}");
    assert_eq!(
        session.number(
            "SELECT count(DISTINCT key) FROM cache_keys(max_rows => 2147483647, cache => 'm')"
        ),
        20_000
    );
}

#[test]
fn a_page_that_is_cancelled_leaves_the_next_one_whole() {
    let database = with_cache();
    let mut session = database.connect();
    session.run(
        "SELECT count(cache_set('k' || i, 'v', cache => 'm')) FROM generate_series(1, 60000) AS i",
    );
    let mut cancelled = 0;
    for millis in (1..400).cycle().take(2000) {
        page(&mut session, "cache_keys", None, 3);
        session.run(&format!("SET statement_timeout = {millis}"));
        let page = session.try_lines(
            "SELECT count(*) FROM cache_scan(after => 'k2', max_rows => 50000, cache => 'm')",
        );
        session.run("SET statement_timeout = 0");
        if let Err(error) = page {
            assert_eq!(sqlstate(&error), "57014");
            cancelled += 1;
        }
        if cancelled == 12 {
            break;
        }
    }
    assert_eq!(cancelled, 12, "pages that were cancelled");
    assert_eq!(all(&mut session, "cache_keys", 997).len(), 60_000);
}

#[test]
fn a_cache_dropped_between_two_pages_shows_nothing_in_a_new_one_of_its_name() {
    let database = with_cache();
    let (mut one, mut other) = (database.connect(), database.connect());
    for round in 0..20 {
        other.run(&format!(
            "SELECT count(cache_set('r{round}-' || to_char(i, 'FM000'), 'v', cache => 'm')) FROM generate_series(0, 199) AS i"
        ));
        let keys = page(&mut one, "cache_keys", None, 100);
        assert_eq!(keys.len(), 100);
        assert!(
            keys.iter()
                .all(|key| key.starts_with(&format!("r{round}-")))
        );
        other.run("SELECT cache_drop('m')");
        let gone = one.try_lines("SELECT * FROM cache_keys(cache => 'm')");
        assert_eq!(sqlstate(&gone.expect_err("it is gone")), "42P01");
        other.run("SELECT cache_create('m', storage => 'memory')");
        let next = page(&mut one, "cache_keys", keys.last().map(String::as_str), 100);
        assert_eq!(next, Vec::<String>::new());
    }
}

/// The session keeps the pages that another role has read. A role that may not read the cache must not get them.
#[test]
fn each_page_checks_the_privileges_of_its_own_caller() {
    let database = with_cache();
    let mut session = database.connect();
    session.run("SELECT cache_set_many('{a,b,c}', '{1,2,3}', cache => 'm')");
    session.run(
        "DO $$ BEGIN CREATE ROLE pages_reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    );
    assert_eq!(page(&mut session, "cache_keys", None, 1), ["a"]);
    session.run("SET ROLE pages_reader");
    for call in [
        "cache_keys(after => 'a', cache => 'm')",
        "cache_scan(after => 'a', cache => 'm')",
        "cache_scan_bytes(after => 'a', cache => 'm')",
        "cache_count('m')",
    ] {
        refused(session.try_lines(&format!("SELECT * FROM {call}")), "42501");
    }
    session.run("RESET ROLE");
    assert_eq!(page(&mut session, "cache_keys", Some("a"), 9), ["b", "c"]);
}

/// The test needs a tier in which new keys constantly evict older keys. The shared server may be full of other tests'
/// entries.
#[test]
fn under_eviction_pages_are_in_order_and_end() {
    let (cluster, mut session) = alone("4MB");
    let mut writer = cluster.connect("postgres");
    for round in 0..15 {
        writer.run(&format!("SELECT count(cache_set('k' || (i * 7919 + {round}) % 40000, repeat('v', i % 700), cache => 'm')) FROM generate_series(1, 20000) AS i"));
        let keys = all(&mut session, "cache_keys", 50);
        assert!(keys.is_sorted_by(|one, next| one < next));
        // No session writes during the walk, so the pages contain all entries.
        assert_eq!(
            keys.len() as i64,
            session.number("SELECT cache_count('m')"),
            "round {round}"
        );
    }
}
