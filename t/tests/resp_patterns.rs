//! Tests subscriptions to patterns that take long to match: they must not delay other clients.

use std::time::{Duration, Instant};

use pgcache_tests::network_processes;
use pgcache_tests::resp::{Client, Door, Reply};

/// The longest time that another client may wait. On an idle machine it waits a quarter of a second; without the bounds
/// it waited for seconds.
const LONGEST: Duration = Duration::from_millis(800);

/// Connects clients, each subscribed to 4,000 patterns. Matching a name of `a`s against one of them takes a comparison
/// of the whole name.
fn readers(door: &Door, patterns: impl Fn(usize) -> String, clients: usize) -> Vec<Client> {
    let subscribed = |client_number: usize| {
        let mut client = door.client();
        let mut words = vec![b"PSUBSCRIBE".to_vec()];
        words.extend((0..4_000).map(|at| patterns(client_number * 4_000 + at).into_bytes()));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert!(client.send(&Client::request(&words)));
        for _ in 0..4_000 {
            assert!(matches!(client.reply(), Some(Reply::Array(_))));
        }
        client
    };
    (0..clients).map(subscribed).collect()
}

/// Sends a request as a new client and returns the reply. Checks that PINGs of other clients are answered soon, as long
/// as the reply is pending.
#[track_caller]
fn others_are_served(door: &Door, words: &[&[u8]]) -> Reply {
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    others_than(door, client, Client::request(words))
}

/// Sends a request as this client and returns the reply. Checks that PINGs of other clients are answered soon, as long
/// as the reply is pending.
#[track_caller]
fn others_than(door: &Door, mut client: Client, sent: Vec<u8>) -> Reply {
    let mut others: Vec<Client> = (0..3).map(|_| door.client()).collect();
    let busy = std::thread::spawn(move || {
        assert!(client.send(&sent));
        client.reply()
    });
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    while !busy.is_finished() || began.elapsed() < Duration::from_millis(300) {
        for other in &mut others {
            let sent = Instant::now();
            assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
            longest = longest.max(sent.elapsed());
        }
    }
    assert!(longest < LONGEST, "{longest:?}");
    busy.join().expect("it ran").expect("it is answered")
}

#[test]
fn a_message_that_many_patterns_compare_stalls_no_client() {
    for door in [Door::start(&[]), network_processes::three(&[])] {
        let stars = "*a".repeat(30);
        let readers = readers(&door, |number| format!("{stars}*b{number}"), 2);
        let mut plain = door.client();
        plain.ask(&["PSUBSCRIBE", "a*"]);
        let mut direct = door.client();
        direct.ask(&["SUBSCRIBE", "news"]);

        let words = others_are_served(&door, &[b"PUBLISH", &vec![b'a'; 60_000], b"m"]).error();
        assert!(words.contains("2048 bytes"), "{words}");
        let words = others_are_served(&door, &[b"PUBLISH", &vec![b'a'; 2_048], b"m"]).error();
        assert!(words.contains("patterns"), "{words}");
        // The refused message has reached no client.
        assert!(plain.is_silent());
        // Names of ordinary length reach every subscriber.
        let channel = "a".repeat(70);
        let reached = others_are_served(&door, &[b"PUBLISH", channel.as_bytes(), b"m"]);
        assert_eq!(reached, Reply::Integer(1));
        assert!(matches!(plain.reply(), Some(Reply::Array(_))));
        assert_eq!(
            others_are_served(&door, &[b"PUBLISH", b"news", b"m"]),
            Reply::Integer(1)
        );
        assert!(matches!(direct.reply(), Some(Reply::Array(_))));
        drop(readers);
    }
}

#[test]
fn a_message_of_sql_that_many_patterns_compare_stalls_no_client() {
    let door = Door::start(&[]);
    let stars = "*a".repeat(30);
    let _nasty = readers(&door, |number| format!("{stars}*b{number}"), 2);
    let mut plain = door.client();
    plain.ask(&["PSUBSCRIBE", "a*"]);
    let mut session = door.cluster.connect("postgres");
    let mut other = door.client();
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
    for _ in 0..5 {
        session
            .batch_execute("SELECT pgcache.publish(repeat('a', 2048), 'm')")
            .expect("it is published");
        let sent = Instant::now();
        assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
        assert!(sent.elapsed() < LONGEST, "{:?}", sent.elapsed());
        assert!(matches!(plain.reply(), Some(Reply::Array(_))));
    }
    // The network process serves other clients before it delivers the rest of a message. Messages still arrive in their
    // order.
    for number in 0..3 {
        session
            .batch_execute(&format!(
                "SELECT pgcache.publish(repeat('a', 2000), '{number}')"
            ))
            .expect("it is published");
    }
    for number in 0..3 {
        let Some(Reply::Array(parts)) = plain.reply() else {
            panic!("expected a message")
        };
        assert_eq!(parts.last(), Some(&Reply::bulk(number.to_string())));
    }
    let mut last = door.client();
    last.ask(&["PSUBSCRIBE", "zzz*", "a*", "a?*"]);
    (0..2).for_each(|_| drop(last.reply()));
    session
        .batch_execute("SELECT pgcache.publish(repeat('a', 2000), 'all')")
        .expect("it is published");
    for pattern in ["a*", "a?*"] {
        let Some(Reply::Array(parts)) = last.reply() else {
            panic!("expected a message")
        };
        assert_eq!(parts.get(1), Some(&Reply::bulk(pattern)));
    }
    let refused = session.batch_execute("SELECT pgcache.publish(repeat('a', 2049), 'm')");
    let refused = refused.expect_err("it is too long");
    assert_eq!(refused.code().map(|code| code.code()), Some("54000"));
}

#[test]
fn repeated_publishes_inside_exec_stall_no_client() {
    let door = Door::start(&[]);
    let stars = "*a".repeat(30);
    let _readers = readers(&door, |number| format!("{stars}*b{number}"), 2);
    let mut client = door.client();
    let channel = vec![b'a'; 150];
    let mut sent = Client::request(&[b"MULTI"]);
    sent.extend(Client::request(&[b"PUBLISH", &channel, b"m"]).repeat(2_000));
    sent.extend(Client::request(&[b"EXEC"]));
    let busy = std::thread::spawn(move || {
        assert!(client.send(&sent));
        (0..2_001).for_each(|_| drop(client.reply()));
        client.reply()
    });
    let (mut other, mut longest) = (door.client(), Duration::ZERO);
    while !busy.is_finished() {
        let sent = Instant::now();
        assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
        longest = longest.max(sent.elapsed());
    }
    assert!(longest < LONGEST, "{longest:?}");
    let Some(Reply::Array(replies)) = busy.join().expect("it ran") else {
        panic!("EXEC has replies")
    };
    assert_eq!(replies.len(), 2_000);
    assert_eq!(replies.first(), Some(&Reply::Integer(0)));
    let last = replies.last().expect("there are some").clone().error();
    assert!(last.contains("EXEC has run too long"), "{last}");
}

#[test]
fn long_patterns_of_other_commands_stall_no_client() {
    let door = Door::start(&[]);
    let mut reader = door.client();
    let mut words = vec![b"SUBSCRIBE".to_vec()];
    words.extend((0..4_000).map(|at| format!("{}{at}", "a".repeat(100)).into_bytes()));
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    assert!(reader.send(&Client::request(&words)));
    (0..4_000).for_each(|_| drop(reader.reply()));
    let long = [b"*[".to_vec(), vec![b'b'; 8 << 20], b"]x".to_vec()].concat();
    let stars = [b"*a".repeat(900), b"*[b-z][b-z]".to_vec()].concat();
    for pattern in [&long[..], &stars] {
        let listed: [&[&[u8]]; 3] = [
            &[b"PUBSUB", b"CHANNELS", pattern],
            &[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", pattern],
            &[b"CONFIG", b"GET", pattern],
        ];
        for words in listed {
            let reply = others_are_served(&door, words);
            assert_eq!(reply, Reply::Array(Vec::new()));
        }
    }
    // A client's own names are found among thousands.
    let last = format!("{}3999", "a".repeat(100)).into_bytes();
    for (word, name) in [
        (&b"SUBSCRIBE"[..], &last[..]),
        (b"UNSUBSCRIBE", b"x"),
        (b"PUNSUBSCRIBE", b"x"),
    ] {
        let mut client = door.client();
        assert!(client.send(&Client::request(&words)));
        (0..4_000).for_each(|_| drop(client.reply()));
        let again = [&[word][..], &vec![name; 100_000]].concat();
        others_than(&door, client, Client::request(&again));
    }
    let listed = others_are_served(&door, &[b"PUBSUB", b"CHANNELS", b"a*7"]);
    assert!(matches!(listed, Reply::Array(names) if names.len() == 400));
}

#[test]
fn a_command_that_describes_one_again_and_again_stalls_no_client() {
    let door = Door::start(&[]);
    for word in [&b"INFO"[..], b"DOCS"] {
        let words = [&[&b"COMMAND"[..], word][..], &vec![&b"client"[..]; 600_000]].concat();
        let refused = others_are_served(&door, &words).error();
        assert!(refused.contains("4096"), "{refused}");
        let Reply::Array(all) = others_are_served(&door, &[b"COMMAND", word, b"get", b"set"])
        else {
            panic!("expected an array")
        };
        assert!(all.len() >= 2);
    }
}
