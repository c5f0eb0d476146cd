//! Tests copies of table caches in the tier: a Redis client gets exactly the values that a SQL session would get from
//! the copies.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::rng::Rng;
use postgres::Client as Session;

const TABLE: &str = "public.tab";

fn start() -> Door {
    let door = Door::start(&[
        "pgcache.resp_caches = 'public.door, public.tab'",
        "pgcache.expire_interval = 0",
        "max_connections = 60",
    ]);
    door.cluster
        .connect("postgres")
        .run(&format!("SELECT cache_create('{TABLE}')"));
    door
}

fn client(door: &Door) -> Client {
    let mut client = door.client();
    assert_eq!(client.ask(&["SELECT", "1"]), Reply::status("OK"));
    client
}

fn set(session: &mut Session, key: &str, value: &str) {
    session.run(&format!(
        "SELECT cache_set('{key}', '{value}', cache => '{TABLE}')"
    ));
}

/// Reads the key through SQL, so that the tier has a copy.
fn warm(session: &mut Session, key: &str) {
    session.run(&format!("SELECT cache_get('{key}', '{TABLE}')"));
}

fn hot_hits(session: &mut Session) -> i64 {
    session.number("SELECT hot_hits FROM pgcache.stats WHERE cache = 'tab'::regclass")
}

/// Sends a command, and checks the reply and the number of reads that a copy served.
#[track_caller]
fn check_reply(
    session: &mut Session,
    client: &mut Client,
    words: &[&str],
    reply: Reply,
    hits: i64,
) {
    let before = hot_hits(session);
    assert_eq!(client.ask(words), reply, "{words:?}");
    assert_eq!(hot_hits(session) - before, hits, "{words:?}");
}

#[test]
fn reads_of_hot_entries_are_served_from_the_tier() {
    let door = start();
    let mut session = door.cluster.connect("postgres");
    let mut client = client(&door);
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null); // the tier does not know the cache yet
    set(&mut session, "k", "value");
    set(&mut session, "cold", "value");
    session.run(&format!(
        "SELECT cache_set('short', 'v', '1 hour', '{TABLE}'), cache_set('none', NULL, cache => '{TABLE}'),
                cache_set('past', 'v', '300 ms', '{TABLE}')"
    ));
    for key in ["k", "short", "none", "past"] {
        warm(&mut session, key);
    }
    let number = Reply::Integer;
    for (words, reply, hits) in [
        (&["GET", "k"][..], Reply::bulk("value"), 1),
        (&["STRLEN", "k"], number(5), 1),
        (&["GETRANGE", "k", "1", "2"], Reply::bulk("al"), 1),
        (&["TYPE", "k"], Reply::status("string"), 1),
        (&["EXISTS", "k", "short", "k"], number(3), 3),
        (&["TTL", "k"], number(-1), 1),
        (&["TTL", "short"], number(3600), 1),
        (&["GET", "none"], Reply::Null, 1),
        (&["EXISTS", "none"], number(1), 1),
        (
            &["MGET", "k", "none", "short"],
            Reply::Array(vec![Reply::bulk("value"), Reply::Null, Reply::bulk("v")]),
            3,
        ),
        (&["GET", "cold"], Reply::bulk("value"), 0),
        (&["GET", "cold"], Reply::bulk("value"), 1),
    ] {
        check_reply(&mut session, &mut client, words, reply, hits);
    }
    std::thread::sleep(Duration::from_millis(400));
    check_reply(&mut session, &mut client, &["GET", "past"], Reply::Null, 0);
    assert_eq!(
        client.ask(&["CLIENT", "TRACKING", "ON"]),
        Reply::status("OK")
    );
    client.ask(&["CLIENT", "TRACKING", "OFF"]);
}

#[test]
fn changed_rows_are_not_served_from_copies() {
    let door = start();
    let mut session = door.cluster.connect("postgres");
    let mut client = client(&door);
    let hot = |session: &mut Session, client: &mut Client, value: &str| {
        set(session, "k", value);
        warm(session, "k");
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk(value));
    };
    hot(&mut session, &mut client, "1");
    // The client reads the old value until the commit, and never after it.
    let update = format!("UPDATE {TABLE} SET value = 'x'");
    session.run("BEGIN");
    session.run(&update);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"));
    session.run("ROLLBACK");
    warm(&mut session, "k");
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"));
    session.run(&update);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("x"));
    for change in ["DELETE FROM", "TRUNCATE"] {
        hot(&mut session, &mut client, "2");
        session.run(&format!("{change} {TABLE}"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    }
    hot(&mut session, &mut client, "3");
    session.run(&format!("ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY"));
    check_reply(
        &mut session,
        &mut client,
        &["GET", "k"],
        Reply::bulk("3"),
        0,
    );
    session.run(&format!("ALTER TABLE {TABLE} DISABLE ROW LEVEL SECURITY"));
    hot(&mut session, &mut client, "4");
    session.run(&format!("DROP TABLE {TABLE}"));
    let gone = client.ask(&["GET", "k"]).error();
    assert!(gone.starts_with("ERR"), "{gone}");
    session.run(&format!(
        "SELECT cache_create('{TABLE}'); CREATE ROLE app LOGIN; GRANT SELECT ON {TABLE} TO app"
    ));
    hot(&mut session, &mut client, "5");
    let mut app = door.client();
    app.ask(&["AUTH", "app", "x"]);
    app.ask(&["SELECT", "1"]);
    assert_eq!(app.ask(&["GET", "k"]), Reply::bulk("5"));
    session.run(&format!("REVOKE SELECT ON {TABLE} FROM app"));
    let refused = app.ask(&["GET", "k"]).error();
    assert!(refused.starts_with("NOPERM"), "{refused}");
    // The setting `pgcache.hot_tier` also turns the tier off for the Redis protocol.
    warm(&mut session, "k");
    session.run("ALTER SYSTEM SET pgcache.hot_tier = off");
    session.run("SELECT pg_reload_conf()");
    pgcache_tests::wait::wait_until("the door has read its settings", || {
        let before = hot_hits(&mut session);
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("5"));
        hot_hits(&mut session) == before
    });
}

/// Sessions write increasing numbers and read them, so that the tier has copies, while Redis clients read. No reply may
/// be older than a number that was committed before the request. One client tracks, but the test does not check its
/// client-side cache.
#[test]
fn hot_hits_are_never_older_than_a_commit() {
    const KEYS: u64 = 8;
    let door = start();
    let done: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let (stop, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (door, done, stop, hits) = (&door, &done, &stop, &hits);
        for share in 0..2 {
            scope.spawn(move || {
                let mut rng = Rng::seeded(share + 1);
                let mut session = door.cluster.connect("postgres");
                for number in 1.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let at = rng.below(KEYS / 2) * 2 + share;
                    let write = format!("SELECT cache_set('k{at}', '{number}', cache => '{TABLE}')");
                    match rng.below(4) {
                        0 => {
                            session.run(&format!("BEGIN; SELECT cache_set('k{at}', '0', cache => '{TABLE}'); ROLLBACK"));
                            continue;
                        }
                        1 => session.run(&format!("BEGIN; {write}; SELECT pg_sleep(0.002); COMMIT")),
                        _ => session.run(&write),
                    }
                    done[at as usize].store(number, SeqCst);
                    std::thread::sleep(Duration::from_micros(rng.below(1500)));
                }
            });
        }
        for reader in 0..2 {
            scope.spawn(move || {
                let mut rng = Rng::seeded(50 + reader);
                let mut session = door.cluster.connect("postgres");
                while !stop.load(SeqCst) {
                    warm(&mut session, &format!("k{}", rng.below(KEYS)));
                }
            });
        }
        for reader in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::seeded(100 + reader);
                let mut client = client(door);
                let until = std::time::Instant::now() + Duration::from_secs(8);
                while std::time::Instant::now() < until {
                    let at = rng.below(KEYS);
                    let least = done[at as usize].load(SeqCst);
                    if let Reply::Bulk(value) = client.ask(&["GET", &format!("k{at}")]) {
                        hits.fetch_add(1, SeqCst);
                        let number: u64 =
                            String::from_utf8_lossy(&value).parse().expect("a number");
                        assert!(number >= least, "k{at} is {number}, and was {least} before");
                    }
                }
                stop.store(true, SeqCst);
            });
        }
    });
    let hits = hits.load(SeqCst);
    println!("{hits} hits");
    assert!(hits > 100, "{hits} hits");
}
