//! Tests that the hot tier is consistent however a backend or the server ends.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

fn cluster_with_caches() -> &'static Cluster {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '4MB'"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run(
        "SELECT cache_create('kept', storage => 'logged'), cache_create('lost'), \
         cache_create('m', storage => 'memory')",
    );
    cluster
}

const CACHES: [&str; 3] = ["kept", "lost", "m"];

/// Returns a random call of one of many functions, on a few keys of all caches.
fn something(rng: &mut Rng) -> String {
    let (cache, key) = (CACHES[rng.below(3) as usize], rng.below(20));
    let size = 1 + rng.below(3000);
    match rng.below(5) {
        0 => format!("SELECT cache_get('k{key}', '{cache}')"),
        1 => format!("SELECT cache_delete('k{key}', '{cache}')"),
        2 => format!(
            "SELECT cache_set('k' || i % 20, repeat('x', {size}), cache => '{cache}') \
             FROM generate_series(1, 300) AS i"
        ),
        3 => format!("SELECT cache_set('k{key}', repeat('x', {size}), cache => '{cache}')"),
        _ => format!("SELECT * FROM cache_scan(cache => '{cache}')"),
    }
}

/// Runs random calls until the session breaks or `ends` is set. Errors of calls are ignored.
fn work(mut session: Client, seed: u64, ends: &AtomicBool) {
    let mut rng = Rng::seeded(seed);
    while !ends.load(Ordering::SeqCst) && !session.is_closed() {
        let _ = session.try_value(&something(&mut rng));
    }
}

/// Checks that on an idle server no key is marked, every byte is accounted for, and no copy differs from its row.
fn is_sound(session: &mut Client) {
    session.nothing_pending();
    session.sums_up();
    for cache in ["kept", "lost"] {
        session.verified(cache);
        for key in 0..20 {
            session.agrees(&format!("k{key}"), cache);
        }
    }
}

#[test]
fn after_a_backend_is_killed_in_the_middle_of_sets_the_tier_is_sound() {
    let cluster = cluster_with_caches();
    for seed in 0..3 {
        let (victim, ends) = (AtomicI32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for worker in 0..4 {
                let mut session = cluster.connect("postgres");
                let pid = session.number("SELECT pg_backend_pid()") as i32;
                victim.store(pid, Ordering::SeqCst);
                let ends = &ends;
                scope.spawn(move || work(session, seed * 10 + worker, ends));
            }
            thread::sleep(Duration::from_millis(300 + 37 * seed));
            cluster.kill_backend(victim.load(Ordering::SeqCst));
        });
        cluster.wait_until_up();
        let mut session = cluster.connect("postgres");
        for cache in ["lost", "m"] {
            let rows = session.lines(&format!("SELECT * FROM {cache}"));
            assert_eq!(rows, Vec::<String>::new(), "{cache} after a crash");
        }
        is_sound(&mut session);
    }
}

#[test]
fn after_an_immediate_shutdown_and_a_clean_restart_the_tier_is_sound() {
    let cluster = cluster_with_caches();
    for how in [Shutdown::Immediate, Shutdown::Fast] {
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for worker in 0..4 {
                let session = cluster.connect("postgres");
                let ends = &ends;
                scope.spawn(move || work(session, worker, ends));
            }
            thread::sleep(Duration::from_millis(300));
            cluster.down(how);
        });
        cluster.up();
        let mut session = cluster.connect("postgres");
        session.run("SELECT cache_set('k1', 'again', cache => 'lost')");
        is_sound(&mut session);
        assert_eq!(session.lines("SELECT * FROM m"), Vec::<String>::new());
    }
}

#[test]
fn timeouts_cancels_and_terminations_at_random_leave_the_tier_sound() {
    let cluster = cluster_with_caches();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (cluster, ends) = (&cluster, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    let Ok(mut session) = cluster.try_connect("postgres", "postgres") else {
                        continue; // terminated at its start
                    };
                    let limit = 3 + worker * 4;
                    let _ = session.try_value(&format!("SET statement_timeout = '{limit}ms'"));
                    work(session, worker, ends);
                }
            });
        }
        let (mut session, mut rng) = (cluster.connect("postgres"), Rng::seeded(99));
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let end = if rng.below(20) == 0 {
                "pg_terminate_backend"
            } else {
                "pg_cancel_backend"
            };
            session.run(&format!(
                "SELECT {end}(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                 AND backend_type = 'client backend' ORDER BY random() LIMIT 1"
            ));
            thread::sleep(Duration::from_millis(rng.below(6)));
        }
        ends.store(true, Ordering::SeqCst);
    });
    let mut session = cluster.connect("postgres");
    is_sound(&mut session);
    session.run("SELECT cache_clear('m'), cache_clear('kept'), cache_clear('lost')");
    session.sums_up();
}
