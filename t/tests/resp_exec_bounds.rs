//! Tests the bounds on the work of one EXEC. Without bounds an EXEC would stall all clients of its network process,
//! because the event loop serves no other client while the EXEC runs.

use std::time::{Duration, Instant};

use pgcache_tests::resp::{Client, Door, Reply};

/// The longest time that another client may wait. On an idle machine it waits a quarter of a second; without the bounds
/// it waited for seconds.
const LONGEST: Duration = Duration::from_millis(800);

fn ok() -> Reply {
    Reply::status("OK")
}

/// Encodes MULTI, this many copies of a request, and EXEC.
fn transaction(request: &[&[u8]], times: usize) -> Vec<u8> {
    let mut sent = Client::request(&[b"MULTI"]);
    sent.extend(Client::request(request).repeat(times));
    sent.extend(Client::request(&[b"EXEC"]));
    sent
}

/// Sends the request, and lets another client send commands until the request's last reply has arrived. Checks that the
/// other client never waits long. Returns the last reply.
#[track_caller]
fn others_are_served(door: &Door, client: Client, sent: Vec<u8>, queued: usize) -> Option<Reply> {
    let mut other = door.client();
    assert_eq!(other.ask(&["SET", "hot", "v"]), ok());
    let mut client = client;
    let busy = std::thread::spawn(move || {
        assert!(client.send(&sent));
        for _ in 0..=queued {
            client.reply().expect("QUEUED, or why not");
        }
        client.reply()
    });
    let mut longest = Duration::ZERO;
    while !busy.is_finished() {
        let sent = Instant::now();
        assert_eq!(other.ask(&["GET", "hot"]), Reply::bulk("v"));
        longest = longest.max(sent.elapsed());
    }
    assert!(longest < LONGEST, "{longest:?}");
    busy.join().expect("replies come")
}

fn refused(reply: Option<Reply>) -> String {
    let words = reply.expect("EXEC is answered").error();
    assert!(words.starts_with("EXECABORT "), "{words}");
    words
}

#[test]
fn an_exec_that_would_copy_too_much_does_nothing() {
    let door = Door::start(&[]);
    let big = vec![b'v'; 1_000_000];
    assert_eq!(door.client().ask_bytes(&[b"SET", b"big", &big]), ok());
    let words: [&[&[u8]]; 5] = [
        &[b"SETRANGE", b"big", b"900000", b"x"],
        &[b"GET", b"big"],
        &[b"DIGEST", b"big"],
        &[b"COPY", b"big", b"other", b"REPLACE"],
        &[b"SET", b"big", b"x", b"IFEQ", b"y"],
    ];
    for words in words {
        let sent = transaction(words, 4_000);
        let words = refused(others_are_served(&door, door.client(), sent, 4_000));
        assert!(words.contains("128 MB"), "{words}");
    }
    // The bound also counts a value that the EXEC itself creates and extends.
    let piece = vec![b'p'; 500];
    let sent = transaction(&[b"APPEND", b"grows", &piece], 2_000);
    refused(others_are_served(&door, door.client(), sent, 2_000));
    let mut client = door.client();
    assert_eq!(client.ask(&["EXISTS", "grows", "other"]), Reply::Integer(0));
    assert_eq!(client.ask(&["GET", "big"]), Reply::bulk(big));
    // An EXEC of many small commands runs, and so does an EXEC of a few large commands.
    let sent = transaction(&[b"INCR", b"n"], 20_000);
    let done = others_are_served(&door, door.client(), sent, 20_000);
    assert!(matches!(done, Some(Reply::Array(all)) if all.len() == 20_000));
    let sent = transaction(&[b"SETRANGE", b"big", b"900000", b"x"], 50);
    let done = others_are_served(&door, door.client(), sent, 50);
    assert_eq!(
        done,
        Some(Reply::Array(vec![Reply::Integer(1_000_000); 50]))
    );
}

#[test]
fn commands_about_the_server_are_bounded_inside_exec() {
    let door = Door::start(&[]);
    let words: [&[&[u8]]; 5] = [
        &[b"COMMAND"],
        &[b"INFO"],
        &[b"COMMAND", b"DOCS"],
        &[b"CLIENT", b"LIST"],
        &[b"CONFIG", b"GET", b"*"],
    ];
    for words in words {
        let sent = transaction(words, 8_000);
        // If the reply is too long, the client is disconnected. Otherwise the commands that did not run return errors.
        let mut client = door.client();
        assert_eq!(client.ask(&["CLIENT", "SETNAME", "busy"]), ok());
        others_are_served(&door, client, sent, 8_000);
    }
}

#[test]
fn after_a_reply_that_is_too_long_writes_run_and_reads_do_not() {
    let door = Door::start(&["pgcache.resp_max_output = '1MB'"]);
    let value = vec![b'v'; 100_000];
    let mut client = door.client();
    assert_eq!(client.ask_bytes(&[b"SET", b"k", &value]), ok());
    let mut sent = Client::request(&[b"MULTI"]);
    sent.extend(Client::request(&[b"SET", b"one", b"1"]));
    sent.extend(Client::request(&[b"GET", b"k"]).repeat(20));
    sent.extend(Client::request(&[b"SET", b"other", b"1"]));
    sent.extend(Client::request(&[b"EXEC"]));
    assert!(client.send(&sent));
    client.wait_for_end();
    let mut client = door.client();
    assert_eq!(client.ask(&["EXISTS", "one", "other"]), Reply::Integer(2));
}

#[test]
fn auth_is_refused_when_it_is_queued() {
    let door = Door::start(&[]);
    for words in [
        &["AUTH", "postgres", "x"][..],
        &["AUTH", "x"],
        &["HELLO", "3", "AUTH", "postgres", "x"],
    ] {
        let mut client = door.client();
        assert_eq!(client.ask(&["MULTI"]), ok());
        assert_eq!(
            client.ask(words).error(),
            "ERR Command not allowed inside a transaction",
            "{words:?}"
        );
        assert_eq!(
            client.ask(&["EXEC"]).error(),
            "EXECABORT Transaction discarded because of previous errors."
        );
        assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    }
    // HELLO without AUTH stays allowed.
    let mut client = door.client();
    assert_eq!(client.ask(&["MULTI"]), ok());
    assert_eq!(client.ask(&["HELLO", "3"]), Reply::status("QUEUED"));
    assert!(matches!(client.ask(&["EXEC"]), Reply::Array(_)));
}

/// A GRANT voids the permissions of all clients, so the server must read those of both databases again.
#[test]
fn an_exec_over_several_databases_does_all_of_its_work_after_a_grant() {
    let door = Door::start(&["pgcache.resp_caches = 'public.door, public.more'"]);
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute(
            "SELECT cache_create('more', storage => 'memory', value_type => 'bytea'); CREATE ROLE other",
        )
        .expect("a cache");
    let mut client = door.client();
    for database in ["1", "0"] {
        assert_eq!(client.ask(&["SELECT", database]), ok());
        assert_eq!(client.ask(&["GET", "a"]), Reply::Null);
    }
    for round in 0..5 {
        assert_eq!(client.ask(&["MULTI"]), ok());
        for words in [
            &["SET", "a", "1"][..],
            &["SELECT", "1"],
            &["SET", "b", "1"],
            &["COPY", "b", "c", "DB", "0", "REPLACE"],
            &["SELECT", "0"],
            &["INCR", "a"],
        ] {
            assert_eq!(client.ask(words), Reply::status("QUEUED"));
        }
        session
            .batch_execute("GRANT SELECT ON more TO other")
            .expect("a grant");
        let replies = vec![ok(), ok(), ok(), Reply::Integer(1), ok(), Reply::Integer(2)];
        assert_eq!(client.ask(&["EXEC"]), Reply::Array(replies), "{round}");
    }
}

#[test]
fn an_exec_over_several_databases_is_judged_by_the_entries_of_each() {
    let door = Door::start(&["pgcache.resp_caches = 'public.door, public.more'"]);
    door.cluster
        .connect("postgres")
        .batch_execute("SELECT cache_create('more', storage => 'memory', value_type => 'bytea')")
        .expect("a cache");
    let mut client = door.client();
    // The privileges of this client on the other cache are known before the EXEC.
    assert_eq!(client.ask(&["SELECT", "1"]), ok());
    assert_eq!(client.ask(&["SET", "k", "v"]), ok());
    assert_eq!(client.ask(&["SELECT", "0"]), ok());
    let other: &[&[u8]] = &[b"SELECT", b"1"];
    let mut exec = |commands: &[(&[&[u8]], usize)]| {
        let mut sent = Client::request(&[b"MULTI"]);
        let mut queued = 1;
        for (words, times) in commands {
            sent.extend(Client::request(words).repeat(*times));
            queued += times;
        }
        sent.extend(Client::request(&[b"EXEC"]));
        assert!(client.send(&sent));
        (0..queued).for_each(|_| drop(client.reply()));
        client.reply()
    };
    let done = exec(&[
        (other, 1),
        (&[b"GET", b"k"], 2_000),
        (&[b"SELECT", b"0"], 1),
    ]);
    assert!(matches!(done, Some(Reply::Array(all)) if all.len() == 2_002));
    // The bound still counts a value that grew before another SELECT.
    let grows: &[&[u8]] = &[b"SETRANGE", b"k", b"900000", b"x"];
    refused(exec(&[
        (other, 1),
        (grows, 1),
        (&[b"SELECT", b"0"], 1),
        (other, 1),
        (&[b"DIGEST", b"k"], 4_000),
    ]));
    refused(exec(&[
        (&[b"SETRANGE", b"a", b"900000", b"x"], 1),
        (&[b"COPY", b"a", b"b", b"DB", b"1"], 1),
        (other, 1),
        (&[b"DIGEST", b"b"], 4_000),
    ]));
}
