//! Tests long values, which the server reads in pieces: a reply is always one complete value, whatever other clients do
//! between the pieces.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::rng::Rng;

/// The lengths of the values of the two keys. Values of equal length can reuse each other's space, so a torn read would
/// mix two values.
const LENGTHS: [(&str, usize); 2] = [("long", 16_000_000), ("longer than a piece", 300_000)];

fn start(conf: &[&str]) -> Door {
    let mut all = vec![
        "pgcache.hot_size = '256MB'",
        "pgcache.hot_max_value = '20MB'",
        "pgcache.resp_max_request = '32MB'",
    ];
    all.extend(conf);
    Door::start(&all)
}

fn value(byte: u8, length: usize) -> Vec<u8> {
    vec![byte; length]
}

/// Checks that an existing value consists of one repeated byte and has this length. Returns whether the value exists.
#[track_caller]
fn is_whole(reply: Reply, length: usize) -> bool {
    match reply {
        Reply::Null => false,
        Reply::Bulk(bytes) => {
            let byte = bytes[0];
            assert!(bytes.iter().all(|each| *each == byte), "of one value only");
            assert_eq!(bytes.len(), length);
            true
        }
        other => panic!("{other:?}"),
    }
}

fn ok(client: &mut Client, words: &[&[u8]]) {
    assert_eq!(client.ask_bytes(words), Reply::status("OK"));
}

#[test]
fn a_reply_is_one_value_under_concurrent_writes() {
    let door = start(&["pgcache.resp_workers = 2"]);
    let ends = AtomicBool::new(false);
    let (whole, absent) = (AtomicU64::new(0), AtomicU64::new(0));
    let (door, ends, whole, absent) = (&door, &ends, &whole, &absent);
    let write = |seed: u64| {
        let (mut rng, mut client) = (Rng::seeded(seed), door.client());
        while !ends.load(SeqCst) {
            let (key, length) = LENGTHS[rng.below(2) as usize];
            let byte = 1 + rng.below(200) as u8;
            let (key, value) = (key.as_bytes(), value(byte, length));
            match rng.below(10) {
                0 => drop(client.ask_bytes(&[b"DEL", key])),
                1 if seed == 1 => ok(&mut client, &[b"FLUSHDB"]),
                2 => ok(&mut client, &[b"SET", key, &value, b"PX", b"20"]),
                3 => drop(client.ask_bytes(&[b"GETDEL", key])),
                _ => ok(&mut client, &[b"SET", key, &value]),
            }
            std::thread::sleep(Duration::from_millis(rng.below(30)));
        }
    };
    let write_by_sql = || {
        let mut session = door.cluster.connect("postgres");
        for byte in (1..=200u8).cycle() {
            if ends.load(SeqCst) {
                return;
            }
            for (key, length) in LENGTHS {
                session.run(&format!(
                    "SELECT cache_set_bytes('{key}', decode(repeat('{byte:02x}', {length}), 'hex'), cache => 'public.door')"
                ));
            }
        }
    };
    let read = |seed: u64| {
        let (mut rng, mut client) = (Rng::seeded(seed), door.client());
        while !ends.load(SeqCst) {
            let (key, length) = LENGTHS[rng.below(2) as usize];
            let replies = match rng.below(6) {
                0 => {
                    ok(&mut client, &[b"MULTI"]);
                    client.ask(&["GET", key]);
                    client.ask(&["GET", key]);
                    let Reply::Array(replies) = client.ask(&["EXEC"]) else {
                        panic!("EXEC replies what its commands do");
                    };
                    replies
                }
                1 => {
                    let Reply::Array(replies) = client.ask(&["MGET", key, "x", key]) else {
                        panic!("MGET replies a value for each key");
                    };
                    replies
                }
                2 => vec![client.ask(&["GETEX", key, "EX", "100"])],
                _ => vec![client.ask(&["GET", key])],
            };
            for reply in replies {
                match is_whole(reply, length) {
                    true => whole.fetch_add(1, SeqCst),
                    false => absent.fetch_add(1, SeqCst),
                };
            }
        }
    };
    std::thread::scope(|scope| {
        let writers = [1, 2].map(|seed| scope.spawn(move || write(seed)));
        let sql = scope.spawn(write_by_sql);
        let readers = [3, 4, 5].map(|seed| scope.spawn(move || read(seed)));
        std::thread::sleep(Duration::from_secs(8));
        ends.store(true, SeqCst);
        for thread in writers.into_iter().chain(readers).chain([sql]) {
            thread.join().expect("no thread has met what must not be");
        }
    });
    let (whole, absent) = (whole.load(SeqCst), absent.load(SeqCst));
    assert!(whole > 50 && absent > 0, "{whole} {absent}");
}

#[test]
fn replies_of_a_pipeline_keep_their_order() {
    let door = start(&[]);
    let mut client = door.client();
    let (long, longer) = (value(7, 1_000_000), value(9, 5_000_000));
    ok(&mut client, &[b"SET", b"long", &long]);
    ok(&mut client, &[b"SET", b"longer", &longer]);
    ok(&mut client, &[b"SET", b"short", b"s"]);
    let keys = [
        "short", "long", "none", "longer", "long", "short", "longer", "longer",
    ];
    let sent: Vec<u8> = keys
        .iter()
        .flat_map(|key| Client::request(&[b"GET", key.as_bytes()]))
        .collect();
    assert!(client.send(&sent));
    assert!(client.send(b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n"));
    assert!(client.send(&Client::request(&[b"GET", b"long"])));
    assert!(client.send(&Client::request(&[b"GET", b"short"])));
    for key in keys.iter().chain(&["short"]) {
        let expected = match *key {
            "short" => Reply::bulk("s"),
            "long" => Reply::bulk(&long),
            "longer" => Reply::bulk(&longer),
            _ => Reply::Null,
        };
        assert!(client.reply() == Some(expected), "the reply of {key}");
    }
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_gets_all_later() {
    let door = start(&[]);
    let mut client = door.client();
    let long = value(7, 16_000_000);
    ok(&mut client, &[b"SET", b"long", &long]);
    let mut silent: Vec<Client> = (0..3).map(|_| door.client()).collect();
    for each in &mut silent {
        assert!(each.send(&Client::request(&[b"GET", b"long"]).repeat(3)));
    }
    // This client disconnects in the middle of its reply.
    assert!(door.client().send(&Client::request(&[b"GET", b"long"])));
    let began = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(client.ask(&["DEL", "long"]), Reply::Integer(1));
    for each in &mut silent {
        for _ in 0..3 {
            let reply = each.reply().expect("it was not cut off");
            assert!(matches!(&reply, Reply::Null) || reply == Reply::bulk(&long));
        }
    }
}

/// A client tracks a long value. If the value changes during the read, the reply may contain the old value, so the
/// message about the change must follow the reply.
#[test]
fn a_change_during_a_long_read_is_sent_after_it() {
    let door = start(&["pgcache.resp_workers = 2"]);
    let mut writer = door.client();
    let (key, length) = LENGTHS[0];
    ok(&mut writer, &[b"SET", key.as_bytes(), &value(1, length)]);
    let mut client = door.client();
    client.ask(&["HELLO", "3"]);
    ok(&mut client, &[b"CLIENT", b"TRACKING", b"ON"]);
    for byte in 2..30 {
        assert!(client.send(&Client::request(&[b"GET", key.as_bytes()])));
        std::thread::sleep(Duration::from_millis(u64::from(byte) % 8));
        ok(&mut writer, &[b"SET", key.as_bytes(), &value(byte, length)]);
        // The client keeps the replied value until a message about a change arrives.
        let mut kept = None;
        assert!(client.send(&Client::request(&[b"PING"])));
        loop {
            match client.reply().expect("a reply") {
                Reply::Push(_) => kept = None,
                Reply::Status(_) => break,
                reply => {
                    let Reply::Bulk(bytes) = &reply else {
                        panic!("{reply:?}");
                    };
                    kept = bytes.first().copied();
                    assert!(is_whole(reply, length));
                }
            }
        }
        assert!(kept.is_none_or(|kept| kept == byte), "{kept:?} {byte}");
    }
}
