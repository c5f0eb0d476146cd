//! Tests a wall clock that is set back: expired rows that were not yet swept may become live again, but nothing else
//! changes.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::tier::{PRELOAD, Tiered};
use postgres::Client;

const DAY: i64 = 86_400;
const CACHES: [&str; 2] = ["c", "m"];

/// Starts a server with the tier and a clock that can be moved, a table cache `c` and a memory cache `m`.
fn cluster(conf: &[&str]) -> (Cluster, Client) {
    let cluster = Cluster::start_with_clock(&[&[PRELOAD], conf].concat());
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('c'), cache_create('m', storage => 'memory')");
    (cluster, session)
}

/// Returns an entry's remaining ttl in seconds.
fn left(session: &mut Client, key: &str, cache: &str) -> Option<f64> {
    let ask = format!("SELECT extract(epoch FROM cache_ttl('{key}', '{cache}'))");
    session
        .value(&ask)
        .map(|left| left.parse().expect("a number"))
}

/// Checks that the remaining ttl is at most `expected` seconds, and less by at most ten minutes, which the test itself
/// may take.
fn about(left: Option<f64>, expected: i64, case: &str) {
    let (left, expected) = (
        left.unwrap_or_else(|| panic!("{case}: no ttl")),
        expected as f64,
    );
    assert!(
        left <= expected && left > expected - 600.0,
        "{case}: {left} of {expected}"
    );
}

#[test]
fn an_expired_entry_may_live_again_and_live_ones_live_as_much_longer() {
    let (cluster, mut session) = cluster(&[]);
    for cache in CACHES {
        session.run(&format!("SELECT cache_set('k', 'v', '1 hour', '{cache}'), cache_set('f', 'v', cache => '{cache}')"));
        session.heat("k", cache);
        cluster.move_clock(DAY);
        let gone = |session: &mut Client, key: &str| {
            session.value(&format!("SELECT cache_get('{key}', '{cache}')"))
        };
        assert_eq!(gone(&mut session, "k"), None, "{cache}");
        assert_eq!(left(&mut session, "k", cache), None, "{cache}");
        session.run(&format!("SELECT cache_set('l', 'v', '1 hour', '{cache}')"));
        session.heat("l", cache);
        cluster.move_clock(0);
        assert_eq!(gone(&mut session, "k").as_deref(), Some("v"), "{cache}");
        about(left(&mut session, "k", cache), 3600, cache);
        assert_eq!(gone(&mut session, "l").as_deref(), Some("v"), "{cache}");
        about(left(&mut session, "l", cache), DAY + 3600, cache);
        cluster.move_clock(-365 * DAY);
        about(left(&mut session, "k", cache), 365 * DAY + 3600, cache);
        assert_eq!(left(&mut session, "f", cache), None, "{cache}");
        for call in [
            "cache_touch('l', '1 hour', '$c')",
            "cache_persist('k', '$c')",
            "cache_incr('n', ttl => '1 hour', cache => '$c') = 1",
            "cache_add('a', 'v', '1 hour', '$c')",
            "cache_delete('f', '$c')",
        ] {
            assert!(
                session.holds(&format!("SELECT {}", call.replace("$c", cache))),
                "{call}"
            );
        }
        about(left(&mut session, "l", cache), 3600, cache);
        about(left(&mut session, "n", cache), 3600, cache);
        assert_eq!(left(&mut session, "k", cache), None, "{cache}");
        cluster.move_clock(0);
        assert_eq!(gone(&mut session, "a"), None, "{cache}");
    }
    session.agrees("k", "c");
    session.sums_up();
}

#[test]
fn sweeps_continue() {
    let (cluster, mut session) = cluster(&["pgcache.expire_interval = '200ms'"]);
    for (round, moved) in [DAY, -DAY, -400 * DAY].into_iter().enumerate() {
        cluster.move_clock(moved);
        session.run("SELECT cache_set('k' || i, 'v', '1 ms', c) FROM generate_series(1, 100) AS i, unnest('{c,m}'::regclass[]) AS c");
        let patience = Instant::now() + Duration::from_secs(90);
        while session.number("SELECT count(*) FROM c AS pgcache_c") > 0
            || session.number(IN_MEMORY) > 0
        {
            assert!(Instant::now() < patience, "round {round}: no worker sweeps");
            sleep(Duration::from_millis(50));
        }
        assert_eq!(session.number("SELECT cache_expire()"), 0);
    }
    session.sums_up();
}

const IN_MEMORY: &str = "SELECT hot_entries FROM pgcache.stats WHERE cache = 'm'::regclass";

#[test]
fn rate_limits_continue() {
    let (cluster, mut session) = cluster(&[]);
    let mut hit = |key: &str, cache: &str| {
        session.text(&format!(
            "SELECT allowed || ' ' || remaining || ' ' || (retry_after >= '0' AND retry_after <= '1 day 1 hour') \
             FROM cache_rate_limit('{key}', 2, '1 hour', '{cache}')"
        ))
    };
    for cache in CACHES {
        cluster.move_clock(DAY);
        for verdict in ["true 1 true", "true 0 true", "false 0 true"] {
            assert_eq!(hit("r", cache), verdict, "{cache}");
        }
        cluster.move_clock(0);
        assert_eq!(
            hit("r", cache),
            "false 0 true",
            "{cache}: the window is longer now"
        );
        for verdict in ["true 1 true", "true 0 true", "false 0 true"] {
            assert_eq!(hit("s", cache), verdict, "{cache}");
        }
        cluster.move_clock(DAY + 3601);
        for key in ["r", "s"] {
            assert_eq!(hit(key, cache), "true 1 true", "{cache}");
        }
    }
}

/// A lease ends by the wall clock, but calls that wait for a value measure their wait by a monotonic clock.
#[test]
fn setting_the_clock_back_prolongs_no_wait_for_a_value() {
    let (cluster, mut session) =
        cluster(&["pgcache.lease_time = '1h'", "pgcache.fetch_wait = '2s'"]);
    for cache in CACHES {
        cluster.move_clock(0);
        let key = format!("'k', cache => '{cache}'");
        assert_eq!(
            session.text(&format!("SELECT state FROM cache_lease({key})")),
            "win"
        );
        let answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(500));
                cluster.move_clock(-DAY);
                // The server's own timeouts follow the wall clock. Setting the clock to the true time releases a
                // session whose wait has not ended in time.
                let patience = Instant::now() + Duration::from_secs(60);
                while !answered.load(SeqCst) && Instant::now() < patience {
                    sleep(Duration::from_millis(50));
                }
                cluster.move_clock(0);
            });
            let mut other = cluster.connect("postgres");
            let began = Instant::now();
            let load = format!("SELECT cache_fetch('k', 'SELECT 42', cache => '{cache}')");
            assert_eq!(other.text(&load), "42", "{cache}");
            other.run(&format!(
                "SELECT state FROM cache_lease('l', '2 s', '{cache}')"
            ));
            let state = other.text(&format!(
                "SELECT state FROM cache_lease('l', '2 s', '{cache}')"
            ));
            answered.store(true, SeqCst);
            assert_eq!(state, "busy", "{cache}");
            assert!(began.elapsed() < Duration::from_secs(60), "{cache}");
        });
    }
}
