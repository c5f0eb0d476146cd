//! Tests that the memory of all clients together is bounded, and that clients whose role may no longer log in are
//! disconnected.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::wait::wait_until;

const LONG: usize = 900_000;

fn ok() -> Reply {
    Reply::status("OK")
}

fn start(conf: &[&str]) -> Door {
    let door = Door::start(&[&["pgcache.resp_max_clients_memory = '20MB'"], conf].concat());
    door.cluster.connect("postgres").run(&format!(
        "SELECT cache_set_bytes('long', convert_to(repeat('v', {LONG}), 'UTF8'), cache => '{CACHE}')"
    ));
    door
}

/// Connects a client that queues requests of some megabytes after MULTI.
fn collects(door: &Door, megabytes: usize) -> Client {
    let mut client = door.client();
    assert_eq!(client.ask(&["MULTI"]), ok());
    for _ in 0..megabytes {
        let queued = client.ask(&["SET", "k", &"v".repeat(LONG)]);
        assert_eq!(queued, Reply::status("QUEUED"));
    }
    client
}

/// Requests some megabytes of values without reading the replies.
fn request_megabytes(client: &mut Client, megabytes: usize) {
    assert!(client.send(&Client::request(&[b"GET", b"long"]).repeat(megabytes)));
}

/// Waits until more than this many bytes of replies are pending for a client.
fn waits(door: &Door, number: i64, bytes: i64) {
    let sql =
        format!("SELECT unsent_bytes > {bytes} FROM pgcache.resp_clients WHERE id = {number}");
    let mut session = door.cluster.connect("postgres");
    wait_until("its replies wait", || session.holds(&sql));
}

fn figure(door: &Door, name: &str) -> i64 {
    let sql = format!("SELECT {name} FROM pgcache.resp_stats");
    door.cluster.connect("postgres").number(&sql)
}

fn id(client: &mut Client) -> i64 {
    match client.ask(&["CLIENT", "ID"]) {
        Reply::Integer(id) => id,
        other => panic!("expected a number, got {other:?}"),
    }
}

fn is_there(door: &Door, id: i64) -> bool {
    let sql = format!("SELECT count(*) > 0 FROM pgcache.resp_clients WHERE id = {id}");
    door.cluster.connect("postgres").holds(&sql)
}

#[test]
fn the_client_that_uses_most_is_disconnected_first() {
    let door = start(&[]);
    let mut small: Vec<Client> = (0..5).map(|_| collects(&door, 2)).collect();
    let mut large = door.client();
    let number = id(&mut large);
    request_megabytes(&mut large, 4);
    waits(&door, number, 3_000_000);
    assert_eq!(figure(&door, "evicted_clients"), 0);
    let mut larger = door.client();
    let number = id(&mut larger);
    request_megabytes(&mut larger, 12);
    wait_until("the largest is gone", || !is_there(&door, number));
    assert_eq!(figure(&door, "evicted_clients"), 1);
    assert!(figure(&door, "client_memory") <= 20 << 20);
    larger.wait_for_end();
    let words = format!(
        "disconnected client {number} of the Redis protocol because clients use too much memory"
    );
    assert_eq!(door.cluster.log_text().matches(&words).count(), 1);
    // The other clients are unaffected.
    for _ in 0..4 {
        assert_eq!(large.reply(), Some(Reply::bulk("v".repeat(LONG))));
    }
    for client in &mut small {
        assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![ok(); 2]));
    }
    wait_until("nothing waits", || figure(&door, "client_memory") < 1 << 20);
    let info = small[0].ask(&["INFO"]).text();
    assert!(info.contains("evicted_clients:1\r\n"), "{info}");
    // A superuser's client can be exempt. pgcache then disconnects other clients instead.
    let mut exempt = door.client();
    assert_eq!(exempt.ask(&["CLIENT", "NO-EVICT", "ON"]), ok());
    let number = id(&mut exempt);
    request_megabytes(&mut exempt, 18);
    wait_until("its replies wait", || {
        figure(&door, "client_memory") > 15 << 20
    });
    let mut other = door.client();
    request_megabytes(&mut other, 8);
    wait_until("the other is disconnected", || {
        figure(&door, "evicted_clients") == 2
    });
    other.wait_for_end();
    assert!(is_there(&door, number));
    drop(exempt);
    wait_until("nothing waits", || figure(&door, "client_memory") < 1 << 20);
    // 0 means no limit.
    door.cluster
        .configure(&["pgcache.resp_max_clients_memory = 0"]);
    door.cluster
        .connect("postgres")
        .run("SELECT pg_reload_conf()");
    wait_until("the setting counts", || {
        small[0].ask(&["CONFIG", "GET", "maxmemory-clients"])
            == Reply::Array(vec![Reply::bulk("maxmemory-clients"), Reply::bulk("0")])
    });
    request_megabytes(&mut small[1], 12);
    request_megabytes(&mut small[2], 12);
    wait_until("all of it waits", || {
        figure(&door, "client_memory") > 20 << 20
    });
    assert_eq!(figure(&door, "evicted_clients"), 2);
}

/// Only a superuser can be exempt from the limit.
#[test]
fn no_evict_of_an_ordinary_role_does_not_count() {
    let door = start(&["pgcache.resp_default_role = 'app'"]);
    door.cluster.connect("postgres").run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT ON {CACHE} TO app"
    ));
    let mut client = door.client();
    assert_eq!(client.ask(&["CLIENT", "NO-EVICT", "ON"]), ok());
    request_megabytes(&mut client, 30);
    wait_until("it is disconnected", || {
        figure(&door, "evicted_clients") == 1
    });
    client.wait_for_end();
}

/// Messages to clients that do not read count against the limit while they are distributed, not only at the next turn
/// of the event loop.
#[test]
fn messages_to_clients_that_do_not_read_are_bounded() {
    let door = start(&[]);
    let mut readers: Vec<Client> = (0..40).map(|_| door.client()).collect();
    for reader in &mut readers {
        assert!(matches!(reader.ask(&["SUBSCRIBE", "c"]), Reply::Array(_)));
    }
    let mut publisher = door.client();
    let message = "m".repeat(LONG);
    for _ in 0..3 {
        publisher.ask(&["PUBLISH", "c", &message]);
        assert!(figure(&door, "client_memory") <= 20 << 20);
    }
    let evicted = figure(&door, "evicted_clients");
    assert!((10..40).contains(&evicted), "{evicted} were disconnected");
}

/// The network process that notices the excess need not be the process of the largest client.
#[test]
fn the_largest_client_of_all_processes_is_disconnected() {
    let door = start(&["pgcache.resp_workers = 2"]);
    let mut session = door.cluster.connect("postgres");
    let mut network = |id: i64| {
        session.number(&format!(
            "SELECT pid::bigint FROM pgcache.resp_clients WHERE id = {id}"
        ))
    };
    let mut one = door.client();
    let first = id(&mut one);
    let of_first = network(first);
    let mut others: Vec<(i64, Client)> = Vec::new();
    wait_until("a client of the other process", || {
        let mut client = door.client();
        let number = id(&mut client);
        others.push((number, client));
        network(number) != of_first
    });
    let (second, mut two) = others.pop().expect("it was made");
    request_megabytes(&mut one, 14);
    wait_until("its replies wait", || {
        figure(&door, "client_memory") > 10 << 20
    });
    request_megabytes(&mut two, 12);
    let since = Instant::now();
    wait_until("the largest is gone", || !is_there(&door, first));
    assert!(since.elapsed() < Duration::from_secs(5));
    assert!(is_there(&door, second));
    assert_eq!(figure(&door, "evicted_clients"), 1);
}

#[test]
fn clients_of_a_role_that_may_no_longer_log_in_are_disconnected() {
    let door = Door::start(&["pgcache.resp_default_role = 'guest'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE guest LOGIN; CREATE ROLE stays LOGIN");
    for (taken, given) in [
        ("ALTER ROLE guest NOLOGIN", "ALTER ROLE guest LOGIN"),
        (
            "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO stays",
            "GRANT CONNECT ON DATABASE postgres TO PUBLIC",
        ),
        ("DROP ROLE guest", "CREATE ROLE guest LOGIN"),
    ] {
        let mut clients: Vec<Client> = (0..4).map(|_| door.client()).collect();
        assert!(matches!(
            clients[0].ask(&["SUBSCRIBE", "c"]),
            Reply::Array(_)
        ));
        clients[1].ask(&["HELLO", "3"]);
        clients[1].ask(&["SUBSCRIBE", "c"]);
        clients[2].ask(&["CLIENT", "TRACKING", "ON"]);
        clients[3].ask(&["PING"]);
        let mut stays = door.client();
        assert_eq!(stays.ask(&["AUTH", "stays", "x"]), ok());
        assert!(matches!(stays.ask(&["SUBSCRIBE", "c"]), Reply::Array(_)));
        // A change of the role `stays` does not disconnect clients of another role.
        session.run("ALTER ROLE stays CREATEDB; ALTER ROLE stays NOCREATEDB");
        std::thread::sleep(Duration::from_millis(2500));
        assert!(clients.iter_mut().all(Client::is_silent));
        session.run(taken);
        let since = Instant::now();
        for client in &mut clients {
            client.wait_for_end();
        }
        assert!(
            since.elapsed() < Duration::from_secs(5),
            "{taken}: {:?}",
            since.elapsed()
        );
        assert!(stays.is_silent());
        session.run("SELECT pgcache.publish('c', 'm')");
        assert!(
            matches!(stays.reply(), Some(Reply::Array(_))),
            "it is still connected"
        );
        session.run(given);
    }
    let log = door.cluster.log_text();
    assert!(
        log.contains(
            "disconnected 4 clients of the Redis protocol whose roles may no longer log in"
        ),
        "{log}"
    );
    assert_eq!(figure(&door, "killed"), 12);
}
