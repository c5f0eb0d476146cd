//! Tests that every function finds an entry before the entry's deadline, and none finds it from the deadline on.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::rng::Rng;
use postgres::Client;

/// The server's wall clock in microseconds.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// For each function, a probe that shows whether the entry `$k`, whose value is 1, exists. A probe runs in a
/// transaction that is rolled back, because some functions change the entry.
const PROBES: &[&str] = &[
    "cache_get($k, 'brief') = '1'",
    "cache_get_json($k, 'brief') = '1'",
    "cache_get_bytes($k, 'brief') = '1'",
    "cache_exists($k, 'brief')",
    "cache_ttl($k, 'brief') > '0'",
    "(SELECT found FROM cache_lookup($k, 'brief'))",
    "(SELECT value = '1' FROM cache_get_many(ARRAY[$k], 'brief'))",
    "(SELECT value = '1' FROM cache_get_many_bytes(ARRAY[$k], 'brief'))",
    "(SELECT count(*) = 1 FROM cache_scan($k, cache => 'brief'))",
    "cache_get_touch($k, '1 hour', 'brief') = '1'",
    "cache_touch($k, '1 hour', 'brief')",
    "cache_persist($k, 'brief')",
    "cache_replace($k, '2', cache => 'brief')",
    "cache_cas($k, '1', '2', cache => 'brief')",
    "NOT cache_cas($k, NULL, '2', cache => 'brief')",
    "NOT cache_add($k, '2', cache => 'brief')",
    "cache_incr($k, cache => 'brief') = 2",
    "cache_delete($k, 'brief')",
    "cache_delete_if($k, '1', 'brief')",
    "cache_delete_many(ARRAY[$k], 'brief') = 1",
    "cache_delete_prefix($k, 'brief') = 1",
    "cache_take($k, 'brief') = '1'",
];

/// A key and its deadline on the server's clock.
type Brief = (String, i64);

fn brief_cache() -> Database<'static> {
    let database = Cluster::shared().database();
    database.connect().run("SELECT cache_create('brief')");
    database
}

/// Sets entries with a ttl of 5 to 50 ms, one after the other. `recent` has the latest of them.
fn fill(database: &Database, recent: &Mutex<VecDeque<Brief>>, until: Instant) {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(1));
    for number in 10_000_000.. {
        if Instant::now() > until {
            break;
        }
        let ttl = 5 + rng.below(46);
        session.run(&format!(
            "SELECT cache_set('k{number}', '1', '{ttl} ms', 'brief')"
        ));
        let deadline = session.number(&format!(
            "SELECT (extract(epoch FROM expires_at) * 1000000)::bigint FROM brief AS pgcache_c WHERE key = 'k{number}'"
        ));
        let mut recent = recent.lock().expect("no session failed");
        recent.push_back((format!("k{number}"), deadline));
        if recent.len() > 30 {
            recent.pop_front();
        }
    }
}

/// Returns whether the probe found the entry, and the server's clock before and after the probe.
fn probe(session: &mut Client, probe: &str, key: &str) -> (bool, i64, i64) {
    let probe = probe.replace("$k", &format!("'{key}'"));
    let sql = format!("SELECT {NOW}, coalesce({probe}, false), {NOW}");
    session.run("BEGIN");
    let answer = session.lines(&sql).remove(0);
    session.run("ROLLBACK");
    let columns: Vec<&str> = answer.split('|').collect();
    let clock = |column: &str| column.parse().expect("the clock is a number");
    (columns[1] == "t", clock(columns[0]), clock(columns[2]))
}

/// Probes until the time is up. Returns how often the entry did not exist, and how often it existed.
fn watch(
    database: &Database,
    recent: &Mutex<VecDeque<Brief>>,
    until: Instant,
    seed: u64,
) -> [u32; 2] {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(seed));
    let mut count = [0, 0];
    while Instant::now() < until {
        let some = {
            let recent = recent.lock().expect("no session failed");
            let among = recent.len() as u64;
            (among > 0).then(|| recent[rng.below(among) as usize].clone())
        };
        let Some((key, deadline)) = some else {
            continue;
        };
        let question = rng.pick(PROBES);
        let (there, before, after) = probe(&mut session, question, &key);
        match there {
            true => assert!(
                before < deadline,
                "{question}: live {} us late",
                before - deadline
            ),
            false => assert!(
                after >= deadline,
                "{question}: gone {} us early",
                deadline - after
            ),
        }
        count[there as usize] += 1;
    }
    count
}

#[test]
fn every_function_respects_deadlines_to_the_microsecond() {
    let database = brief_cache();
    let (mut gone, mut there) = (0, 0);
    // On a slow machine, repeat this until there are enough results.
    for _ in 0..10 {
        let counts = probe_for_some_seconds(&database);
        gone += counts.iter().map(|count| count[0]).sum::<u32>();
        there += counts.iter().map(|count| count[1]).sum::<u32>();
        if there > 50 && gone > 50 {
            return;
        }
    }
    panic!("{there} times there, {gone} times gone");
}

fn probe_for_some_seconds(database: &Database) -> Vec<[u32; 2]> {
    let recent = Mutex::default();
    let until = Instant::now() + Duration::from_secs(6);
    thread::scope(|scope| {
        let recent = &recent;
        scope.spawn(move || fill(database, recent, until));
        let watchers: Vec<_> = (0..6)
            .map(|seed| scope.spawn(move || watch(database, recent, until, seed + 2)))
            .collect();
        watchers
            .into_iter()
            .map(|watcher| watcher.join().expect("a probe failed"))
            .collect()
    })
}

#[test]
fn a_long_transaction_does_not_keep_entries_alive() {
    let database = brief_cache();
    let mut session = database.connect();
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for question in PROBES {
            session.run("SELECT cache_set('k', '1', '20 ms', 'brief')");
            session.run(&format!(
                "BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM brief"
            ));
            session.run("SELECT pg_sleep(0.025)");
            let question_now = question.replace("$k", "'k'");
            let there = session.value(&format!("SELECT coalesce({question_now}, false)"));
            assert_eq!(there.as_deref(), Some("f"), "{question} in {isolation}");
            session.run("ROLLBACK");
        }
    }
}

#[test]
fn a_long_statement_does_not_keep_entries_alive() {
    let mut session = brief_cache().connect();
    session.run("SELECT cache_set('k', '1', '2 s', 'brief')");
    let answer = session.lines(
        "SELECT cache_get('k', 'brief'), (SELECT 1 FROM pg_sleep(2.1)), cache_get('k', 'brief')",
    );
    assert_eq!(answer, ["1|1|"]);
}

#[test]
fn a_sweep_removes_expired_entries_and_nothing_else() {
    let database = brief_cache();
    let mut session = database.connect();
    session.run(
        "INSERT INTO brief SELECT 'k' || i, '1', clock_timestamp() + CASE WHEN i % 2 = 0 \
         THEN interval '1 hour' ELSE interval '-1 ms' END FROM generate_series(1, 1000) AS i",
    );
    let swept: Vec<i64> = thread::scope(|scope| {
        let sweep = || {
            database
                .connect()
                .number("SELECT cache_expire('brief', 400)")
        };
        let sweepers: Vec<_> = (0..3).map(|_| scope.spawn(sweep)).collect();
        sweepers
            .into_iter()
            .map(|sweeper| sweeper.join().expect("a sweep failed"))
            .collect()
    });
    let rest = session.number("SELECT cache_expire('brief')");
    assert_eq!(
        swept.iter().sum::<i64>() + rest,
        500,
        "{swept:?} and {rest}"
    );
    assert_eq!(
        session.number("SELECT count(*) FROM brief AS pgcache_c WHERE expires_at > now()"),
        500
    );
}
