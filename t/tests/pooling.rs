//! Tests pgcache behind pgbouncer in transaction mode, where two statements of a client may run in two server sessions:
//! features that work unchanged, and features that do not (docs/tuning.md lists both).

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::pooler::Pooler;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::Type;

const PID: &str = "SELECT pg_backend_pid()";

/// Connects a client whose open transaction occupies a server session: the session that was used last.
fn occupying(pooler: &Pooler) -> Client {
    let mut other = pooler.connect();
    other.run("BEGIN");
    other.run("SELECT 1");
    other
}

#[test]
fn many_clients_share_few_sessions_and_lose_nothing() {
    let database = Cluster::hot().database();
    database
        .connect()
        .run("SELECT cache_create('m', storage => 'memory')");
    let pooler = Pooler::before(&database, 2);
    let sessions: BTreeSet<String> = thread::scope(|scope| {
        let clients = (0..8).map(|number| {
            let pooler = &pooler;
            scope.spawn(move || work(&mut pooler.connect(), number))
        });
        let clients: Vec<_> = clients.collect();
        let pids = clients.into_iter().flat_map(|client| client.join());
        pids.flatten().collect()
    });
    assert!((1..=2).contains(&sessions.len()), "{sessions:?}");
    let mut direct = database.connect();
    for cache in ["pgcache.main", "m"] {
        let sum = direct.number(&format!("SELECT cache_get('sum', '{cache}')"));
        assert_eq!(sum, 8 * 50, "{cache}");
        direct.verified(cache);
    }
}

/// Sets, reads and counts. Returns the server sessions in which the client's statements ran.
fn work(client: &mut Client, number: i32) -> BTreeSet<String> {
    let mut pids = BTreeSet::new();
    for round in 0..50 {
        for cache in ["pgcache.main", "m"] {
            let (key, value) = (format!("k{number}"), round.to_string());
            client.run(&format!(
                "SELECT cache_set('{key}', '{value}', cache => '{cache}')"
            ));
            let get = format!("SELECT cache_get($1, '{cache}')");
            let rows = client.query_typed(&get, &[(&key, Type::TEXT)]);
            let got: Option<String> = rows.expect("an unnamed statement works")[0].get(0);
            assert_eq!(got, Some(value), "{cache}");
            client.run(&format!("SELECT cache_incr('sum', cache => '{cache}')"));
        }
        pids.insert(client.text(PID));
    }
    pids
}

#[test]
fn set_local_holds_for_its_transaction_only() {
    let database = Cluster::hot().database();
    let pooler = Pooler::before(&database, 1);
    let mut client = pooler.connect();
    client.run("SELECT cache_set('k', 'v')");
    client.heat("k", "pgcache.main");
    let before = client.hot_hits("pgcache.main");
    client.run("BEGIN; SET LOCAL pgcache.hot_tier = off");
    assert_eq!(client.text("SELECT cache_get('k')"), "v");
    client.run("COMMIT");
    assert_eq!(client.hot_hits("pgcache.main"), before, "past the tier");
    assert_eq!(pooler.connect().text("SHOW pgcache.hot_tier"), "on");
    client.heat("k", "pgcache.main");
}

#[test]
fn a_plain_set_affects_the_next_client_of_the_session() {
    let database = Cluster::hot().database();
    let pooler = Pooler::before(&database, 1);
    pooler.connect().run("SET pgcache.fetch_wait = '1s'");
    assert_eq!(pooler.connect().text("SHOW pgcache.fetch_wait"), "1s");
}

#[test]
fn a_setting_of_the_role_is_everywhere() {
    let database = Cluster::hot().database();
    database.connect().run(&format!(
        "ALTER ROLE postgres IN DATABASE {} SET pgcache.fetch_wait = '2s'",
        database.name
    ));
    let pooler = Pooler::before(&database, 2);
    let mut client = pooler.connect();
    assert_eq!(client.text("SHOW pgcache.fetch_wait"), "2s");
    let _other = occupying(&pooler);
    assert_eq!(client.text("SHOW pgcache.fetch_wait"), "2s");
}

/// Of three server sessions, two wait for the third. The other clients wait for a server session.
#[test]
fn a_fetch_loads_once_for_all_clients() {
    let database = Cluster::hot().database();
    let mut direct = database.connect();
    direct.run("CREATE UNLOGGED SEQUENCE runs");
    let pooler = Pooler::before(&database, 3);
    let crowd = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = pooler.connect();
                crowd.wait();
                let fetch =
                    "SELECT cache_fetch('k', $$SELECT nextval('runs')::text || pg_sleep(0.3)$$)";
                assert_eq!(client.text(fetch), "1");
            });
        }
    });
    assert_eq!(direct.number("SELECT last_value FROM runs"), 1);
}

#[test]
fn a_lease_is_good_in_another_session() {
    let database = Cluster::hot().database();
    let pooler = Pooler::before(&database, 2);
    let mut client = pooler.connect();
    let first = client.text(PID);
    let lease = client.number("SELECT lease FROM cache_lease('k')");
    let _other = occupying(&pooler);
    assert_ne!(client.text(PID), first);
    assert!(client.holds(&format!("SELECT cache_set_leased('k', 'v', {lease})")));
    assert_eq!(client.text("SELECT cache_get('k')"), "v");
}

/// Lets two clients wait for a third client, the winner, with this many server sessions for all three. Returns the two
/// results.
fn waiters_get(sessions: u32) -> [String; 2] {
    let database = Cluster::hot().database();
    let mut direct = database.connect();
    let pooler = Pooler::before(&database, sessions);
    let mut winner = pooler.connect();
    let lease = winner.number("SELECT lease FROM cache_lease('k')");
    thread::scope(|scope| {
        let waiters = [(), ()].map(|()| {
            let mut client = pooler.connect();
            let ask = "SELECT state FROM cache_lease('k', wait => '3 seconds')";
            scope.spawn(move || client.text(ask))
        });
        wait_until("both wait", || {
            let waiting = "SELECT count(*) = 2 FROM pg_stat_activity \
                            WHERE wait_event = 'PgcacheFetch' AND datname = current_database()";
            direct.holds(waiting)
        });
        let stored = format!("SELECT cache_set_leased('k', 'v', {lease})");
        assert!(winner.holds(&stored), "{sessions} sessions");
        waiters.map(|waiter| waiter.join().expect("a waiter is answered"))
    })
}

/// If waiting clients hold all server sessions, the winner cannot store its value. The same happens with a pool in the
/// application.
#[test]
fn waiters_that_hold_all_sessions_keep_the_winner_from_storing() {
    let starved = waiters_get(2);
    assert!(starved.contains(&"busy".to_owned()), "{starved:?}");
    assert_eq!(waiters_get(3), ["hit", "hit"]);
}

#[test]
fn prepared_statements_need_a_pooler_that_keeps_them() {
    let database = Cluster::hot().database();
    let pooler = Pooler::before(&database, 2);
    let mut client = pooler.connect();
    client.run("SELECT cache_set('k', 'v')");
    let named = client.prepare("SELECT cache_get($1)").expect("a statement");
    client.run("PREPARE in_sql AS SELECT cache_get('k')");
    let mut other = occupying(&pooler);
    let answer = client.query(&named, &[&"k"]);
    match pooler.keeps_statements {
        true => assert_eq!(answer.expect("kept")[0].get::<_, String>(0), "v"),
        false => _ = refused(answer, "26000"),
    }
    refused(client.try_value("EXECUTE in_sql"), "26000");
    let unnamed = client.query_typed("SELECT cache_get($1)", &[(&"k", Type::TEXT)]);
    assert_eq!(unnamed.expect("sent whole")[0].get::<_, String>(0), "v");
    other.run("COMMIT");
}

#[test]
fn a_watcher_needs_a_session_of_its_own() {
    let database = Cluster::hot().database();
    let pooler = Pooler::before(&database, 1);
    let (mut pooled, mut direct) = (pooler.connect(), database.connect());
    let channel = direct.text("SELECT cache_watch('pgcache.main')");
    for watcher in [&mut pooled, &mut direct] {
        watcher.run(&format!("LISTEN {channel}"));
    }
    pooler.connect().run("SELECT cache_set('k', 'v')");
    let expected = ["{\"op\": \"set\", \"key\": \"k\"}"];
    assert_eq!(received(&mut direct, Duration::from_secs(60)), expected);
    assert_eq!(
        received(&mut pooled, Duration::from_secs(1)),
        Vec::<String>::new()
    );
}

/// Returns the first notification, or nothing if none arrives within `patience`.
fn received(watcher: &mut Client, patience: Duration) -> Vec<String> {
    let mut notifications = watcher.notifications();
    let arriving = notifications.timeout_iter(patience).take(1);
    let payloads = arriving.map(|notification| Ok(notification.payload().to_owned()));
    payloads.collect().expect("the connection holds")
}
