//! Tests the promotion of a standby whose memory caches were in use. Entries that depend on a source are removed,
//! because replay does not remove the entries of changed rows; entries without dependencies stay.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::resp::{Client as Resp, Door, Reply};
use pgcache_tests::tables;
use pgcache_tests::wait::wait_until;
use postgres::Client;

use crate::standby::wait_for_replay;

const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'dep')";

/// Starts a primary with a source, a memory cache that depends on the source, and a memory cache without dependencies.
fn primary(conf: &[&str]) -> (&'static Cluster, Client) {
    let primary = Cluster::with_tier(conf);
    let mut session = primary.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session
        .run("CREATE TABLE src (k text PRIMARY KEY, v text); INSERT INTO src VALUES ('k', 'w1')");
    session.run(
        "SELECT cache_create('dep', storage => 'memory'), cache_create('own', storage => 'memory')",
    );
    session.run("SELECT cache_depend('src', 'k', 'dep')");
    (primary, session)
}

fn follower(of: &Cluster, session: &mut Client) -> (Cluster, Client) {
    let standby = of.standby();
    let mut replica = standby.connect("postgres");
    wait_for_replay(session, &mut replica);
    (standby, replica)
}

#[test]
fn a_fetch_on_a_standby_stores_nothing_that_a_replayed_change_makes_old() {
    let (primary, mut session) = primary(&[]);
    let (_standby, mut replica) = follower(primary, &mut session);
    assert_eq!(replica.text(FETCH), "w1");
    assert_eq!(replica.value("SELECT cache_get('k', 'dep')"), None);
    let lease = replica.text("SELECT lease FROM cache_lease('k', cache => 'dep')");
    assert!(!replica.holds(&format!(
        "SELECT cache_set_leased('k', 'w1', {lease}, cache => 'dep')"
    )));
    session.run("UPDATE src SET v = 'w2'");
    wait_for_replay(&mut session, &mut replica);
    assert_eq!(replica.text(FETCH), "w2");
    // A value of a cache without dependencies is stored.
    assert_eq!(
        replica.text("SELECT cache_fetch('k', 'SELECT ''v''', cache => 'own')"),
        "v"
    );
    assert_eq!(replica.text("SELECT cache_get('k', 'own')"), "v");
    let lease = replica.text("SELECT lease FROM cache_lease('l', cache => 'own')");
    assert!(replica.holds(&format!(
        "SELECT cache_set_leased('l', 'v', {lease}, cache => 'own')"
    )));
}

/// The first reads after the promotion. Each must not find the old entry.
const LOOKS: &[&str] = &[
    "SELECT cache_get('k', 'dep')",
    "SELECT value FROM dep WHERE key = 'k'",
    "SELECT value FROM cache_scan(cache => 'dep')",
    "SELECT * FROM cache_keys(cache => 'dep')",
    "SELECT nullif(cache_count('dep'), 0)",
    "SELECT nullif(cache_exists('k', 'dep'), false)",
    "SELECT nullif(cache_add('k', 'x', cache => 'dep'), true)",
    "SELECT nullif(cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'dep'), 'w2')",
];

#[test]
fn a_promoted_standby_answers_with_nothing_from_before_a_change() {
    let (primary, mut session) = primary(&["max_prepared_transactions = 5"]);
    for number in 0..LOOKS.len() {
        session.run(&format!(
            "SELECT cache_create('dep{number}', storage => 'memory'); SELECT cache_depend('src', 'k', 'dep{number}')"
        ));
    }
    let (standby, mut replica) = follower(primary, &mut session);
    for number in 0..LOOKS.len() {
        replica.run(&format!(
            "SELECT cache_set('k', 'w1', cache => 'dep{number}')"
        ));
    }
    replica.run("SELECT cache_set('k', 'mine', cache => 'own'), cache_incr('n', cache => 'own')");
    session.run("BEGIN; UPDATE src SET v = 'w2'; PREPARE TRANSACTION 'p'");
    session.run("COMMIT PREPARED 'p'");
    wait_for_replay(&mut session, &mut replica);
    standby.promote();
    let mut other = standby.connect("postgres");
    for (number, look) in LOOKS.iter().enumerate() {
        let named = |sql: &str| sql.replace("dep", &format!("dep{number}"));
        // The first read comes from a session that is older than the promotion, or from a new session.
        let first = if number % 2 == 0 {
            &mut replica
        } else {
            &mut other
        };
        assert_eq!(first.value(&named(look)), None, "{look}");
        let old = other.value(&named("SELECT cache_get('k', 'dep')"));
        assert_ne!(old.as_deref(), Some("w1"), "{look}");
        other.run(&named("SELECT cache_delete('k', 'dep')"));
        assert_eq!(other.text(&named(FETCH)), "w2");
        assert_eq!(
            replica.text(&named("SELECT cache_get('k', 'dep')")),
            "w2",
            "{look}"
        );
    }
    assert_eq!(other.text("SELECT cache_get('k', 'own')"), "mine");
    assert_eq!(replica.text("SELECT cache_get('n', 'own')"), "1");
    other.run("UPDATE src SET v = 'w3'");
    assert_eq!(replica.text(FETCH), "w3");
}

/// The transactions begin on the standby, and end after its promotion to a primary.
#[test]
fn a_load_that_began_before_the_promotion_stores_nothing_after_it() {
    let (primary, mut session) = primary(&[]);
    let (standby, mut replica) = follower(primary, &mut session);
    let mut leases = standby.connect("postgres");
    let lease = leases.text("SELECT lease FROM cache_lease('k', cache => 'dep')");
    leases.run("SELECT pg_advisory_lock(42)");
    thread::scope(|scope| {
        let slow = scope.spawn(move || {
            replica.text(
                "SELECT cache_fetch('k', 'SELECT v FROM src, pg_advisory_xact_lock_shared(42) WHERE k = $1', cache => 'dep')",
            )
        });
        let mut watch = standby.connect("postgres");
        wait_until("it loads", || {
            watch.holds("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'advisory'")
        });
        session.run("UPDATE src SET v = 'w2'");
        wait_for_replay(&mut session, &mut watch);
        standby.promote();
        leases.run("SELECT pg_advisory_unlock(42)");
        assert_eq!(slow.join().expect("it loads"), "w1");
    });
    assert_eq!(leases.value("SELECT cache_get('k', 'dep')"), None);
    assert!(!leases.holds(&format!(
        "SELECT cache_set_leased('k', 'w1', {lease}, cache => 'dep')"
    )));
    assert_eq!(leases.text(FETCH), "w2");
}

#[test]
fn a_standby_of_a_standby_is_promoted_as_well() {
    let (primary, mut session) = primary(&[]);
    let (middle, _relay) = follower(primary, &mut session);
    let (standby, mut replica) = follower(&middle, &mut session);
    replica
        .run("SELECT cache_set('k', 'w1', cache => 'dep'), cache_set('k', 'mine', cache => 'own')");
    session.run("UPDATE src SET v = 'w2'");
    wait_for_replay(&mut session, &mut replica);
    standby.promote();
    assert_eq!(replica.value("SELECT cache_get('k', 'dep')"), None);
    assert_eq!(replica.text("SELECT cache_get('k', 'own')"), "mine");
}

/// Creates a standby that also serves the Redis protocol.
fn follower_with_door(of: &Door, session: &mut Client) -> (Cluster, PathBuf, Client) {
    let standby = of.cluster.standby();
    let socket = standby.folder.join("resp.sock");
    standby.down(Shutdown::Fast);
    standby.configure(&[
        "pgcache.resp_port = 0",
        &format!("pgcache.resp_socket = '{}'", socket.display()),
    ]);
    standby.up();
    let mut replica = standby.connect("postgres");
    wait_for_replay(session, &mut replica);
    // The server accepts sessions before its network process listens.
    wait_until("the network process listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    (standby, socket, replica)
}

/// Redis clients stay connected during the promotion, while sessions load values.
#[test]
fn clients_of_the_protocol_see_a_promotion_as_sessions_do() {
    let door = Door::start(&["pgcache.resp_caches = 'public.dep, public.own'"]);
    let mut session = door.cluster.connect("postgres");
    session
        .run("CREATE TABLE src (k text PRIMARY KEY, v text); INSERT INTO src VALUES ('k', 'w1')");
    session.run(
        "SELECT cache_create('dep', storage => 'memory'), cache_create('own', storage => 'memory')",
    );
    session.run("SELECT cache_depend('src', 'k', 'dep')");
    let (standby, socket, mut replica) = follower_with_door(&door, &mut session);
    let client = |database: &str| {
        let mut client = Resp::at(&socket);
        assert_eq!(client.ask(&["SELECT", database]), Reply::status("OK"));
        client
    };
    let (mut dep, mut own) = (client("0"), client("1"));
    for client in [&mut dep, &mut own] {
        assert_eq!(client.ask(&["SET", "k", "w1"]), Reply::status("OK"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("w1"));
    }
    session.run("UPDATE src SET v = 'w2'");
    wait_for_replay(&mut session, &mut replica);
    standby.promote();
    thread::sleep(Duration::from_millis(1));
    assert_eq!(dep.ask(&["GET", "k"]), Reply::Null, "a client from before");
    assert_eq!(client("0").ask(&["GET", "k"]), Reply::Null, "a new client");
    assert_eq!(dep.ask(&["DBSIZE"]), Reply::Integer(0));
    assert_eq!(own.ask(&["GET", "k"]), Reply::bulk("w1"));
    assert_eq!(own.ask(&["DBSIZE"]), Reply::Integer(1));
    assert_eq!(replica.text(FETCH), "w2");
    assert_eq!(dep.ask(&["GET", "k"]), Reply::bulk("w2"));
}

/// Returns the server's role according to INFO and according to HELLO.
fn roles(client: &mut Resp) -> (String, String) {
    let Reply::Bulk(info) = client.ask(&["INFO", "replication"]) else {
        panic!("expected a text");
    };
    let info = String::from_utf8_lossy(&info).into_owned();
    let mut of_info = info.lines().filter_map(|line| line.strip_prefix("role:"));
    let Reply::Array(hello) = client.ask(&["HELLO", "2"]) else {
        panic!("expected an array");
    };
    let mut of_hello = hello
        .iter()
        .skip_while(|item| **item != Reply::bulk("role"));
    let Some(Reply::Bulk(of_hello)) = of_hello.nth(1) else {
        panic!("HELLO names no role");
    };
    let of_info = of_info.next().unwrap_or_default().to_owned();
    (of_info, String::from_utf8_lossy(of_hello).into_owned())
}

/// Before the promotion, the table caches get slots on the standby, because it reads the caches and counts the reads.
#[test]
fn table_caches_are_read_and_written_by_the_protocol_after_a_promotion() {
    let door = tables::start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "SELECT cache_set('k', 'v', cache => c) FROM unnest('{{{},{}}}'::regclass[]) AS c",
        tables::UNLOGGED,
        tables::LOGGED
    ));
    let (standby, socket, _replica) = follower_with_door(&door, &mut session);
    let mut clients: Vec<Resp> = ["1", "2"]
        .map(|database| {
            let mut client = Resp::at(&socket);
            assert_eq!(client.ask(&["SELECT", database]), Reply::status("OK"));
            client
        })
        .into();
    for (client, expected) in clients.iter_mut().zip([Reply::Null, Reply::bulk("v")]) {
        assert_eq!(client.ask(&["GET", "k"]), expected);
        let refused = client.ask(&["SET", "k", "w"]).error();
        assert!(refused.starts_with("READONLY"), "{refused}");
        assert_eq!(roles(client), ("slave".into(), "replica".into()));
    }
    standby.promote();
    assert_eq!(roles(&mut clients[0]), ("master".into(), "master".into()));
    for (client, expected) in clients.iter_mut().zip([Reply::Null, Reply::bulk("v")]) {
        assert_eq!(client.ask(&["GET", "k"]), expected, "after the promotion");
        assert_eq!(client.ask(&["SET", "k", "w"]), Reply::status("OK"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("w"));
    }
}
