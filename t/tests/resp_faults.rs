//! Tests the Redis protocol under faults and overload: without file descriptors or worker slots, during a shutdown, and
//! with clients that disconnect, send one byte at a time, or send nothing.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Shutdown;
use pgcache_tests::keys::Keys;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::stage::succeed;
use pgcache_tests::wait::wait_until;

const NETWORK: &str = "pgcache resp network";
const PONG: fn() -> Reply = || Reply::status("PONG");

fn front_of(door: &Door) -> i32 {
    wait_until("the network process is there", || {
        door.processes(NETWORK).len() == 1
    });
    door.processes(NETWORK)[0]
}

/// Returns the processor time that a process has used, in hundredths of a second.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Returns the private memory of the process, in bytes.
fn memory(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

#[test]
fn without_descriptors_connected_clients_are_served() {
    let door = Door::start(&[]);
    let mut known = door.client();
    assert_eq!(known.ask(&["SET", "k", "v"]), Reply::status("OK"));
    let network = front_of(&door);
    let open = std::fs::read_dir(format!("/proc/{network}/fd"))
        .unwrap()
        .count();
    // The command runs as the server's user, because only that user may change the limit.
    let mut limit = door.cluster.stage.command("/usr/bin/env");
    limit.args(["prlimit", "--pid", &network.to_string()]);
    succeed(limit.arg(format!("--nofile={}:", open + 3)));
    let mut more: Vec<Client> = (0..10).map(|_| door.tcp()).collect();
    let says = || {
        door.cluster
            .log_text()
            .matches("could not accept a connection of the Redis protocol")
            .count()
    };
    wait_until("the log says so", || says() == 1);
    let before = ticks(network);
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let used = ticks(network) - before;
    assert!(used < 60, "{used} hundredths of a second in two");
    assert_eq!(says(), 1, "once");
    // A waiting connection is accepted once other clients disconnect.
    for mut client in more.drain(..) {
        assert_eq!(client.ask(&["PING"]), PONG());
    }
    assert_eq!(says(), 1, "once");
}

#[test]
fn without_worker_slots_the_server_starts_and_says_why() {
    let door = Door::fresh(&[
        "max_worker_processes = 2",
        "max_logical_replication_workers = 0",
        "pgcache.expire_interval = 0",
    ]);
    door.cluster.up();
    let says = |words: &str| door.cluster.log_text().matches(words).count();
    assert_eq!(
        says("max_worker_processes is too low for the Redis protocol"),
        1
    );
    let started = "could not start a process of the Redis protocol";
    wait_until("the log says so", || says(started) == 1);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(says(started), 1, "once");
    assert_eq!(door.cluster.connect("postgres").text("SELECT 1::text"), "1");
    assert!(door.try_client().is_none());
}

#[test]
fn a_client_is_served_where_there_is_room_for_some_of_the_executors() {
    let door = Door::fresh(&[
        "pgcache.resp_executors = 6",
        "max_worker_processes = 5",
        "max_logical_replication_workers = 0",
        "pgcache.expire_interval = 0",
    ]);
    door.cluster.up();
    wait_until("a client is served", || door.try_client().is_some());
    let log = door.cluster.log_text();
    assert!(
        log.contains("Raise max_worker_processes to at least 9"),
        "{log}"
    );
}

#[test]
fn a_smart_shutdown_waits_for_sessions_and_not_for_clients() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
    let session = door.cluster.connect("postgres");
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| door.cluster.down(Shutdown::Smart));
        wait_until("no session can come", || {
            door.cluster.try_connect("postgres", "postgres").is_err()
        });
        for _ in 0..20 {
            assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
            assert_eq!(door.client().ask(&["GET", "k"]), Reply::bulk("v"));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!ends.is_finished());
        drop(session);
        ends.join().unwrap();
    });
    client.wait_for_end();
    door.cluster.up();
    assert_eq!(door.client().ask(&["GET", "k"]), Reply::Null);
}

#[test]
fn a_sleeping_network_process_obeys_each_signal() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let network = front_of(&door);
    // Each DROP DATABASE waits until every process has answered its signal, and no other event wakes a network process
    // without clients.
    session.run("SET statement_timeout = '30s'");
    for _ in 0..5 {
        session.run("CREATE DATABASE short_lived");
        session.run("DROP DATABASE short_lived");
    }
    // With a client the process alternates between work and sleep, and the signal may arrive at any point.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = door.client();
            while !done.load(Ordering::Relaxed) {
                assert_eq!(client.ask(&["PING"]), PONG());
            }
        });
        for _ in 0..20 {
            session.run("CREATE DATABASE short_lived");
            session.run("DROP DATABASE short_lived");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        door.processes(NETWORK),
        [network],
        "it was not started anew"
    );
    session.run(&format!("SELECT pg_terminate_backend({network})"));
    wait_until("it ends, and there is another", || {
        door.processes(NETWORK)
            .first()
            .is_some_and(|&other| other != network)
    });
    assert_eq!(door.client().ask(&["PING"]), PONG());
}

#[test]
fn sessions_that_hold_the_served_database_can_be_seen() {
    let door = Door::start(&["pgcache.resp_database = 'served'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE DATABASE served");
    assert_eq!(door.client().ask(&["PING"]), PONG());
    let told = session.batch_execute("DROP DATABASE served").unwrap_err();
    let told = told.as_db_error().unwrap();
    assert_eq!(told.code().code(), "55006");
    assert!(
        told.detail()
            .is_some_and(|detail| detail.contains("session"))
    );
    let holders = "SELECT string_agg(DISTINCT backend_type, ', ' ORDER BY backend_type)
                     FROM pg_stat_activity WHERE datname = 'served'";
    assert_eq!(
        session.text(holders),
        "pgcache resp executor, pgcache resp network"
    );
}

#[test]
fn tcp_keepalive_follows_the_setting() {
    let door = Door::start(&["pgcache.resp_keepalive = 30"]);
    let mut client = door.tcp();
    assert_eq!(client.ask(&["PING"]), PONG());
    // Read the state of the server's end of the connection: the active timer, and the hundredths of a second until it
    // fires.
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", door.port);
    let timer = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[1].ends_with(&port) && fields[3] == "01").then(|| fields[5].to_owned())
    });
    let timer = timer.expect("there is one connection");
    let (kind, left) = timer.split_once(':').unwrap();
    let left = u32::from_str_radix(left, 16).unwrap();
    assert_eq!(kind, "02", "the timer of keepalive: {timer}");
    assert!((2000..=3000).contains(&left), "{left}");
}

#[test]
fn a_stranger_that_says_a_byte_at_a_time_is_ended_in_time() {
    let door = Door::start(&[
        "pgcache.resp_authentication_timeout = 2",
        "pgcache.resp_default_role = ''",
    ]);
    let mut strangers: Vec<Client> = (0..100).map(|_| door.client()).collect();
    let words = Client::request(&[b"AUTH", b"nobody", &b"x".repeat(200)]);
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(30) {
        let byte = &words[sent % words.len()..][..1];
        strangers.retain_mut(|stranger| stranger.send(byte));
        if strangers.is_empty() {
            break;
        }
        sent += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(strangers.is_empty());
    assert!(begun.elapsed() > Duration::from_millis(1500), "too early");
}

#[test]
fn a_client_at_rest_costs_little_memory() {
    const CLIENTS: usize = 1000;
    let door = Door::fresh(&["pgcache.resp_tls = on"]);
    let keys = Keys::beside(door.cluster);
    let settings = keys.settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    door.cluster.configure(&settings);
    door.cluster.up();
    door.cluster.connect("postgres").run(&format!(
        "CREATE EXTENSION pgcache;
         SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
    ));
    let long = "x".repeat(60_000);
    let use_it = |client: &mut Client| {
        assert_eq!(client.ask(&["SET", "k", &long]), Reply::status("OK"));
        assert_eq!(client.ask(&["GET", "k"]).text().len(), long.len());
    };
    let config = keys.client(None);
    let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let encrypted = || door.try_tls(home, &config).unwrap();
    // These connections allocate everything that is allocated only once.
    let mut first = [door.client(), encrypted()];
    first.iter_mut().for_each(use_it);
    let network = front_of(&door);
    let cost = |connect: &dyn Fn() -> Client| {
        let before = memory(network);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect()).collect();
        clients.iter_mut().for_each(use_it);
        (memory(network).saturating_sub(before)) / CLIENTS
    };
    let (plain, encrypted) = (cost(&|| door.client()), cost(&encrypted));
    println!("bytes a client at rest: {plain} plain, {encrypted} encrypted");
    assert!(plain > 0 && plain <= 16 << 10, "{plain}");
    assert!(encrypted <= 16 << 10, "{encrypted}");
}
