//! Tests the notifications that watchers receive after `cache_watch`, and `cache_rate_limit` with many sessions.

use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

/// Returns the next `count` payloads, in the order of their arrival.
fn received(watcher: &mut Client, count: usize) -> Vec<String> {
    let mut payloads = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while payloads.len() < count && Instant::now() < deadline {
        let mut notifications = watcher.notifications();
        let mut arriving = notifications.timeout_iter(Duration::from_secs(1));
        while payloads.len() < count {
            match arriving.next().expect("the connection holds") {
                Some(notification) => payloads.push(notification.payload().to_owned()),
                None => break,
            }
        }
    }
    payloads
}

/// Opens a session that listens to the cache's channel.
fn watcher(database: &Database, cache: &str) -> Client {
    let mut owner = database.connect();
    let channel = owner.text(&format!("SELECT cache_watch('{cache}')"));
    let mut watcher = database.connect();
    watcher.run(&format!("LISTEN {channel}"));
    watcher
}

fn payload(op: &str, key: &str) -> String {
    format!("{{\"op\": \"{op}\", \"key\": \"{key}\"}}")
}

fn check_notifications(database: &Database, storage: &str) {
    let mut session = database.connect();
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    let mut watcher = watcher(database, "c");
    session.run("BEGIN; SELECT cache_set('never', '1', cache => 'c'); ROLLBACK");
    session
        .run("BEGIN; SELECT cache_set('a', '1', cache => 'c'), cache_set('b', '1', cache => 'c')");
    session.run("SELECT cache_set('a', '2', cache => 'c'); SAVEPOINT s");
    session.run("SELECT cache_set('rolled back', '1', cache => 'c'); ROLLBACK TO s; COMMIT");
    session
        .run("SELECT cache_delete('a', 'c'), cache_incr('n', cache => 'c'), cache_take('b', 'c')");
    session.run("SELECT cache_set('e', '1', '1 ms', 'c'), pg_sleep(0.05)");
    session.run("SELECT cache_expire('c')");
    session.run("SELECT cache_clear('c')");
    session.run("SELECT cache_set(repeat(chr(1), 2048), '1', cache => 'c')");
    session.run("SELECT cache_set('quo\"te', '1', cache => 'c')");
    let expected = [
        payload("set", "b"),
        payload("set", "a"),
        payload("delete", "a"),
        payload("set", "n"),
        payload("delete", "b"),
        payload("set", "e"),
        payload("expire", "e"),
        "{\"op\": \"clear\", \"key\": null}".into(),
        "{\"op\": \"set\", \"key\": null}".into(),
        payload("set", "quo\\\"te"),
    ];
    assert_eq!(
        received(&mut watcher, expected.len()),
        expected,
        "{storage}"
    );
    session.run("SELECT cache_unwatch('c')");
    session.run("SELECT cache_set('unheard', '1', cache => 'c'), cache_watch('c')");
    assert_eq!(received_within_a_second(&mut watcher), Vec::<String>::new());
}

fn received_within_a_second(watcher: &mut Client) -> Vec<String> {
    let mut notifications = watcher.notifications();
    let arriving = notifications.timeout_iter(Duration::from_secs(1));
    let payloads = arriving.map(|notification| Ok(notification.payload().to_owned()));
    payloads.collect().expect("the connection holds")
}

#[test]
fn each_change_is_sent_once_in_commit_order_and_none_of_a_rollback() {
    check_notifications(&Cluster::shared().database(), "unlogged");
}

#[test]
fn memory_caches_notify_when_the_caller_commits() {
    check_notifications(&Cluster::hot().database(), "memory");
}

#[test]
fn changes_by_plain_sql_and_dependencies_are_sent() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    session.run("CREATE TABLE src (k text); SELECT cache_depend('src', 'k', 'c')");
    let mut watcher = watcher(&database, "c");
    session.run("INSERT INTO c VALUES ('k', 'v')");
    session.run("UPDATE c SET key = 'l'");
    session.run("INSERT INTO src VALUES ('l')");
    session.run("TRUNCATE c");
    let expected = [
        payload("set", "k"),
        payload("delete", "k"),
        payload("set", "l"),
        payload("delete", "l"),
        "{\"op\": \"clear\", \"key\": null}".into(),
    ];
    assert_eq!(received(&mut watcher, expected.len()), expected);
}

/// A cache has one channel: each watcher receives all events, and selects the events of its own keys.
#[test]
fn a_hundred_watchers_lose_no_event() {
    const WATCHERS: usize = 100;
    const EACH: usize = 10;
    const WRITERS: usize = 10;
    let cluster = Cluster::start(&["max_connections = 150"]);
    let database = cluster.database();
    database.connect().run("SELECT cache_create('c')");
    let watchers: Vec<Client> = (0..WATCHERS).map(|_| watcher(&database, "c")).collect();
    thread::scope(|scope| {
        for (number, mut watcher) in watchers.into_iter().enumerate() {
            scope.spawn(move || {
                let prefix = format!("{{\"op\": \"set\", \"key\": \"{number}:");
                let mut own = received(&mut watcher, WATCHERS * EACH);
                assert_eq!(own.len(), WATCHERS * EACH, "watcher {number}");
                own.retain(|payload| payload.starts_with(&prefix));
                let expected: Vec<_> = (0..EACH)
                    .map(|event| payload("set", &format!("{number}:{event}")))
                    .collect();
                assert_eq!(own, expected, "watcher {number}");
            });
        }
        for writer in 0..WRITERS {
            let mut session = database.connect();
            scope.spawn(move || {
                for number in (writer..WATCHERS).step_by(WRITERS) {
                    for event in 0..EACH {
                        session.run(&format!(
                            "SELECT cache_set('{number}:{event}', 'v', cache => 'c')"
                        ));
                    }
                }
            });
        }
    });
}

fn check_limit(database: &Database, storage: &str) {
    const HITS: i64 = 37;
    let mut session = database.connect();
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    let hit = "SELECT count(*) FILTER (WHERE (cache_rate_limit('k', 37, '1 hour', 'c')).allowed) \
               FROM generate_series(1, 20)";
    let allowed: i64 = thread::scope(|scope| {
        let sessions: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| database.connect().number(hit)))
            .collect();
        sessions
            .into_iter()
            .map(|session| session.join().expect("no session fails"))
            .sum()
    });
    assert_eq!(allowed, HITS, "{storage}");
}

#[test]
fn many_sessions_together_get_exactly_the_limit() {
    check_limit(&Cluster::shared().database(), "unlogged");
}

#[test]
fn many_sessions_together_get_exactly_the_limit_of_a_memory_cache() {
    check_limit(&Cluster::hot().database(), "memory");
}

/// COMMIT PREPARED may run in another session, which has no record of the events to notify about.
#[test]
fn a_transaction_with_pending_notifications_is_not_prepared() {
    let cluster = Cluster::with_tier(&["max_prepared_transactions = 5"]);
    let mut session = cluster.database().connect();
    session.run("SELECT cache_create('m', storage => 'memory')");
    session.run("SELECT cache_watch('m')");
    session.run("BEGIN; SELECT cache_set('k', 'v', cache => 'm')");
    refused(session.try_lines("PREPARE TRANSACTION 'told'"), "0A000");
    session.run("ROLLBACK; SELECT cache_unwatch('m')");
    session.run("BEGIN; SELECT cache_set('k', 'v', cache => 'm'); PREPARE TRANSACTION 'untold'");
    session.run("COMMIT PREPARED 'untold'");
}

/// Returns the private memory of a process, in kB.
fn resident(process: i64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.expect("a number").parse().expect("kB")
}

/// Plain SQL can insert a key that is too long for every function of pgcache, if the key compresses well enough for the
/// index. Its notification has no key, and the session must not keep the key in memory until the commit.
#[test]
fn overlong_keys_use_no_session_memory() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    let mut watcher = watcher(&database, "c");
    let insert = |session: &mut Client, from: i32, count: i32| {
        session.run(&format!(
            "INSERT INTO c (key, value) SELECT g || repeat('x', 100000), 'v' FROM generate_series({from}, {from} + {count} - 1) AS g"
        ));
    };
    let process = session.number("SELECT pg_backend_pid()");
    insert(&mut session, 1, 100);
    session.run("BEGIN");
    let before = resident(process);
    insert(&mut session, 1000, 3000);
    let grown = resident(process).saturating_sub(before);
    assert!(grown < 100_000, "{grown} kB for 3,000 keys");
    session.run("INSERT INTO c (key, value) VALUES ('last', 'v'); COMMIT");
    let null = r#"{"op": "set", "key": null}"#.to_owned();
    assert_eq!(
        received(&mut watcher, 3),
        [null.clone(), null, payload("set", "last")]
    );
}
