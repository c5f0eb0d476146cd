//! Tests that counters are exact: a client that counts its own hits and misses finds the same numbers in
//! `pgcache.stats`, and, over the Redis protocol, in INFO and `pgcache.resp_stats`.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::resp::{Client, Door, Reply};
use postgres::Client as Session;

/// A call on a cache that has the keys `k` and `n` but not `x` and `y`, and the numbers of hits and misses that it must
/// count.
type Counted = (&'static str, i64, i64);

/// Calls that read.
const CALLS: &[Counted] = &[
    ("cache_get('k', CACHE)", 1, 0),
    ("cache_get('x', CACHE)", 0, 1),
    ("cache_get_bytes('k', CACHE)", 1, 0),
    ("cache_lookup('k', CACHE)", 1, 0),
    ("cache_lookup('x', CACHE)", 0, 1),
    ("cache_exists('k', CACHE)", 1, 0),
    ("cache_exists('x', CACHE)", 0, 1),
    ("cache_ttl('k', CACHE)", 1, 0),
    ("cache_get_many(ARRAY['k', 'n', 'x'], CACHE)", 2, 1),
    ("cache_lookup_many(ARRAY['k', 'x', 'y'], CACHE)", 1, 2),
    ("cache_fetch('k', 'SELECT 1', cache => CACHE)", 1, 0),
    ("cache_fetch('x', 'SELECT 1', cache => CACHE)", 0, 1),
    ("cache_fetch('x', NULL, cache => CACHE)", 0, 0), // refused
    ("cache_lease('k', cache => CACHE)", 1, 0),
    ("cache_lease('x', cache => CACHE)", 0, 1),
    ("cache_get_touch('k', '1 hour', CACHE)", 1, 0),
    ("cache_get_touch('k', NULL, CACHE)", 1, 0),
    ("cache_get_touch('x', '1 hour', CACHE)", 0, 1),
    ("cache_get_touch('x', NULL, CACHE)", 0, 1),
    ("cache_take('k', CACHE)", 1, 0),
    ("cache_take('x', CACHE)", 0, 1),
    ("cache_take_bytes('k', CACHE)", 1, 0),
    ("cache_rate_limit('n', 100, '1 hour', CACHE)", 1, 0),
    ("cache_rate_limit('x', 100, '1 hour', CACHE)", 0, 1),
    // These calls only write.
    ("cache_touch('k', '1 hour', CACHE)", 0, 0),
    ("cache_touch('k', NULL, CACHE)", 0, 0),
    ("cache_persist('k', CACHE)", 0, 0),
    ("cache_set('k', '1', cache => CACHE)", 0, 0),
    ("cache_add('k', '1', cache => CACHE)", 0, 0),
    ("cache_replace('k', '1', cache => CACHE)", 0, 0),
    ("cache_cas('k', '1', '2', cache => CACHE)", 0, 0),
    ("cache_incr('n', cache => CACHE)", 0, 0),
    ("cache_delete('k', CACHE)", 0, 0),
    ("cache_delete_if('k', '1', CACHE)", 0, 0),
    ("cache_delete_prefix('k', CACHE)", 0, 0),
    ("cache_count(CACHE)", 0, 0),
    ("cache_keys('', cache => CACHE)", 0, 0),
    ("cache_scan('', cache => CACHE)", 0, 0),
];

fn reads(session: &mut Session, cache: &str) -> (i64, i64) {
    let read = |session: &mut Session, what: &str| {
        session.number(&format!(
            "SELECT {what} FROM pgcache.stats WHERE cache = '{cache}'::regclass"
        ))
    };
    (
        read(session, "hot_hits + table_hits"),
        read(session, "misses"),
    )
}

#[test]
fn each_function_counts_as_its_caller_does() {
    let cluster = Cluster::hot();
    let database = cluster.database();
    let mut session = database.connect();
    for storage in ["unlogged", "logged", "memory"] {
        for (at, (call, hits, misses)) in CALLS.iter().enumerate() {
            for is_read_before in [false, true] {
                let cache = format!("{storage}_{at}_{is_read_before}");
                session.run(&format!(
                    "SELECT cache_create('{cache}', storage => '{storage}', ttl => '1 day');
                     SELECT cache_set('k', '1', cache => '{cache}'), cache_set('n', '2', cache => '{cache}')"
                ));
                if is_read_before {
                    session.run(&format!(
                        "SELECT cache_get('k', '{cache}'), cache_get('n', '{cache}')"
                    ));
                }
                let before = reads(&mut session, &cache);
                let run = format!("SELECT {}", call.replace("CACHE", &format!("'{cache}'")));
                let _ = session.try_lines(&run);
                let after = reads(&mut session, &cache);
                let counted = (after.0 - before.0, after.1 - before.1);
                assert_eq!(
                    counted,
                    (*hits, *misses),
                    "{run}, read before: {is_read_before}"
                );
                session.run(&format!("SELECT cache_drop('{cache}')"));
            }
        }
    }
}

/// A fetch that waits for another fetch counts one miss, however often it looks the key up.
#[test]
fn a_fetch_that_waits_counts_one_miss() {
    let cluster = Cluster::hot();
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'memory')");
    let before = reads(&mut session, "c");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut other = database.connect();
            scope.spawn(move || {
                other
                    .run("SELECT cache_fetch('slow', 'SELECT 1 FROM pg_sleep(0.5)', cache => 'c')");
            });
        }
    });
    let after = reads(&mut session, "c");
    let answered = (after.0 - before.0) + (after.1 - before.1);
    assert_eq!(answered, 4, "hits and misses of four calls");
}

/// Commands on the same cache, and their hits and misses as Redis counts them.
const COMMANDS: &[Counted] = &[
    ("GET k", 1, 0),
    ("GET x", 0, 1),
    ("MGET k n x", 2, 1),
    ("EXISTS k x", 1, 1),
    ("TOUCH k x", 1, 1),
    ("STRLEN k", 1, 0),
    ("GETRANGE k 0 1", 1, 0),
    ("TTL k", 1, 0),
    ("TTL x", 0, 1),
    ("GETEX k", 1, 0),
    ("GETEX k EX 100", 1, 0),
    ("GETEX x EX 100", 0, 1),
    ("GETEX k PERSIST", 1, 0),
    ("GETDEL k", 1, 0),
    ("GETDEL x", 0, 1),
    ("GETSET k v", 1, 0),
    ("SET x v GET", 0, 1),
    ("SET k v NX GET", 1, 0),
    ("DIGEST k", 1, 0),
    // These commands only write.
    ("SET k v", 0, 0),
    ("SET k v XX", 0, 0),
    ("SETNX x v", 0, 0),
    ("MSET k v x w", 0, 0),
    ("APPEND k v", 0, 0),
    ("INCR n", 0, 0),
    ("DEL k x", 0, 0),
    ("EXPIRE k 100", 0, 0),
    ("PERSIST k", 0, 0),
    ("DBSIZE", 0, 0),
];

fn keyspace(client: &mut Client) -> (i64, i64) {
    let info = client.ask(&["INFO", "stats"]).text();
    let figure = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {info}"))
            .trim()
            .parse::<i64>()
            .unwrap()
    };
    (figure("keyspace_hits:"), figure("keyspace_misses:"))
}

#[test]
fn each_command_counts_as_its_client_does() {
    let door = Door::start(&[
        "pgcache.resp_caches = 'public.here, public.table'",
        "pgcache.expire_interval = 0",
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "SELECT cache_create('here', storage => 'memory', value_type => 'bytea'),
                cache_create('\"table\"', value_type => 'bytea')",
    );
    for (database, cache) in [("0", "here"), ("1", "\"table\"")] {
        let mut client = door.client();
        assert_eq!(client.ask(&["SELECT", database]), Reply::status("OK"));
        for (command, hits, misses) in COMMANDS {
            for is_read_before in [false, true] {
                client.ask(&["FLUSHDB"]);
                client.ask(&["MSET", "k", "v", "n", "1"]);
                if is_read_before {
                    client.ask(&["MGET", "k", "n"]);
                    client.ask(&["MGET", "k", "n"]);
                }
                let before = (reads(&mut session, cache), keyspace(&mut client));
                let reply = client.ask(&command.split(' ').collect::<Vec<_>>());
                assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
                let after = (reads(&mut session, cache), keyspace(&mut client));
                let grown = |before: (i64, i64), after: (i64, i64)| {
                    (after.0 - before.0, after.1 - before.1)
                };
                let expected = (*hits, *misses);
                assert_eq!(
                    grown(before.0, after.0),
                    expected,
                    "{command} of {cache}, pgcache.stats"
                );
                assert_eq!(
                    grown(before.1, after.1),
                    expected,
                    "{command} of {cache}, INFO"
                );
            }
        }
    }
}
