//! Tests malicious Redis clients: their requests must not stall other clients, and must not give them access.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Shutdown;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::tables::{self, LOGGED, client_in, reply, send};
use pgcache_tests::wait::wait_until;
use postgres::Client as Session;

const OK: fn() -> Reply = || Reply::status("OK");

#[test]
fn a_reply_to_auth_counts_only_for_its_own_request() {
    let door = Door::start(&["pgcache.resp_default_role = 'postgres'"]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "CREATE ROLE low LOGIN PASSWORD 'low';
         CREATE ROLE high LOGIN PASSWORD 'high'",
    );
    let hba = "local all postgres trust\nlocal all low,high scram-sha-256\n";
    let file = door.cluster.folder.join("data").join("pg_hba.conf");
    std::fs::write(file, hba).expect("the file can be written");
    session.run("SELECT pg_reload_conf()");
    wait_until("the file is read", || {
        matches!(door.client().ask(&["AUTH", "low", "x"]), Reply::Error(_))
    });
    let mut client = door.client();
    assert_eq!(client.ask(&["AUTH", "low", "low"]), Reply::status("OK"));
    // The answer to the first AUTH must not count for the second.
    let words: [&[&[u8]]; 3] = [
        &[b"AUTH", b"low", b"low"],
        &[b"AUTH", b"high", b"wrong"],
        &[b"ACL", b"WHOAMI"],
    ];
    assert!(client.send(&words.map(Client::request).concat()));
    let mut replies: Vec<_> = (0..3).map(|_| client.reply().expect("it comes")).collect();
    assert_eq!(replies.pop(), Some(Reply::bulk("low")));
    let refused = replies.pop().expect("AUTH is answered").error();
    assert!(refused.starts_with("WRONGPASS"), "{refused}");
}

#[test]
fn a_locked_cache_does_not_block_new_clients() {
    let door = Door::start(&["max_prepared_transactions = 2"]);
    let mut session = door.cluster.connect("postgres");
    session
        .run("CREATE ROLE one LOGIN; CREATE ROLE other LOGIN; GRANT SELECT ON public.door TO one");
    let lock = || {
        let lock =
            format!("BEGIN; LOCK TABLE {CACHE} IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'p'");
        door.cluster.connect("postgres").run(&lock);
    };
    lock();
    let mut waiting = door.client();
    assert_eq!(waiting.ask(&["AUTH", "one", "x"]), Reply::status("OK"));
    assert!(waiting.send(&Client::request(&[b"GET", b"k"])));
    let began = Instant::now();
    for _ in 0..10 {
        let mut client = door.client();
        assert_eq!(client.ask(&["AUTH", "other", "x"]), Reply::status("OK"));
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    // A client that waits for the cache continues once the lock is released.
    session.run("ROLLBACK PREPARED 'p'");
    assert_eq!(waiting.reply(), Some(Reply::Null));
    assert!(!door.cluster.log_text().contains("you don't own a lock"));
    // The server also stops while a prepared transaction has the cache locked.
    session.run("GRANT INSERT ON public.door TO one");
    lock();
    assert!(waiting.send(&Client::request(&[b"GET", b"k"])));
    std::thread::sleep(Duration::from_millis(300));
    drop(session);
    let began = Instant::now();
    door.cluster.down(Shutdown::Fast);
    assert!(began.elapsed() < Duration::from_secs(30));
}

/// Starts a command in an executor. A trigger makes the command wait until the session releases the lock.
fn wait_in_a_trigger(door: &Door, session: &mut Session) -> Client {
    session.run(&format!(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
         CREATE TRIGGER waits BEFORE INSERT ON {LOGGED} FOR EACH ROW EXECUTE FUNCTION waits();
         SELECT pg_advisory_lock(1)"
    ));
    let mut waiting = client_in(door, 2, None);
    send(&mut waiting, &["SET", "k", "v"]);
    wait_until("the trigger waits", || {
        session
            .holds("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    });
    waiting
}

#[test]
fn a_slow_trigger_does_not_block_new_clients() {
    let door = tables::start(&["password_encryption = 'scram-sha-256'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE one LOGIN PASSWORD 'right'; GRANT SELECT ON public.door TO one");
    let hba = door.cluster.folder.join("data/pg_hba.conf");
    let lines = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("local all one scram-sha-256\n{lines}")).unwrap();
    session.run("SELECT pg_reload_conf()");
    wait_until("the password is asked for", || {
        door.client().ask(&["AUTH", "one", "wrong"]) != OK()
    });
    let mut waiting = wait_in_a_trigger(&door, &mut session);
    for _ in 0..5 {
        // Connect a client that does not authenticate, and a client that sends a password.
        assert_eq!(door.client().ask(&["GET", "k"]), Reply::Null);
        let mut client = door.client();
        assert!(matches!(
            client.ask(&["AUTH", "one", "wrong"]),
            Reply::Error(_)
        ));
        assert_eq!(client.ask(&["AUTH", "one", "right"]), OK());
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    }
    session.run("SELECT pg_advisory_unlock(1)");
    assert_eq!(reply(&mut waiting), OK());
}

#[test]
fn authentication_behind_a_locked_catalog_blocks_no_table_command() {
    let door = tables::start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE one LOGIN");
    let mut others = client_in(&door, 1, None);
    assert_eq!(others.ask(&["SET", "k", "v"]), OK());
    let mut waiting = wait_in_a_trigger(&door, &mut session);
    let mut locks = door.cluster.connect("postgres");
    locks.run("BEGIN; LOCK TABLE pg_authid IN ACCESS EXCLUSIVE MODE");
    // The only free executor must not wait for the lock, so the AUTH request stays queued until another executor is
    // free.
    let mut stranger = door.client();
    send(&mut stranger, &["AUTH", "one", "x"]);
    for number in 0..20 {
        let number = number.to_string();
        assert_eq!(others.ask(&["SET", "k", &number]), OK());
        assert_eq!(others.ask(&["GET", "k"]), Reply::bulk(&number));
    }
    session.run("SELECT pg_advisory_unlock(1)");
    assert_eq!(reply(&mut waiting), OK());
    locks.run("COMMIT");
    assert_eq!(reply(&mut stranger), OK());
}

/// Checks that another client gets its replies within `longest` while a client is busy with its requests.
#[track_caller]
fn stalls(door: &Door, sent: &[u8], longest: Duration) {
    let mut busy = door.client();
    let mut other = door.client();
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
    let began = Instant::now();
    assert!(busy.send(sent));
    while began.elapsed() < Duration::from_millis(500) {
        let sent = Instant::now();
        assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
        assert!(sent.elapsed() < longest, "{:?}", sent.elapsed());
    }
    assert!(busy.reply().is_some());
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_long_request_stalls_no_client() {
    let door = Door::start(&[]);
    assert_eq!(door.client().ask(&["SET", "a", "1"]), Reply::status("OK"));
    let mut words: Vec<&[u8]> = vec![b"EXISTS"];
    words.resize(1_000_001, b"a");
    stalls(&door, &Client::request(&words), Duration::from_secs(2));
}

#[test]
fn a_pattern_stalls_no_client() {
    let door = Door::start(&[]);
    let key = "a".repeat(2048);
    assert_eq!(door.client().ask(&["SET", &key, "1"]), Reply::status("OK"));
    let pattern = [b"*[".to_vec(), vec![b'b'; 2 << 20], b"]x".to_vec()].concat();
    let sent = Client::request(&[b"KEYS", &pattern]);
    stalls(&door, &sent, Duration::from_secs(2));
}

#[test]
fn names_of_channels_are_bounded() {
    let door = Door::start(&[]);
    let mut client = door.client();
    for word in [&b"SUBSCRIBE"[..], b"PSUBSCRIBE"] {
        let refused = client.ask_bytes(&[word, &[b'c'; 2049]]).error();
        assert!(refused.contains("2048 bytes"), "{refused}");
    }
    let names: Vec<Vec<u8>> = (0..600)
        .map(|at| format!("{at:02048}").into_bytes())
        .collect();
    for name in &names[..512] {
        let reply = client.ask_bytes(&[b"SUBSCRIBE", name]);
        assert!(matches!(reply, Reply::Array(_)));
    }
    let refused = client.ask_bytes(&[b"SUBSCRIBE", b"one"]).error();
    assert!(refused.contains("1 MB"), "{refused}");
    // The space of a removed subscription can be used again.
    for (gone, new) in names.iter().zip(&names[512..]).take(20) {
        let reply = client.ask_bytes(&[b"UNSUBSCRIBE", gone]);
        assert!(matches!(reply, Reply::Array(_)));
        let reply = client.ask_bytes(&[b"PSUBSCRIBE", new]);
        assert!(matches!(reply, Reply::Array(_)));
    }
}

#[test]
fn prefixes_of_clients_that_track_are_bounded() {
    let door = Door::start(&[]);
    let prefixes: Vec<String> = (0..20_000).map(|at| format!("{at:05}")).collect();
    let with = |count: usize| {
        let mut words = vec!["CLIENT", "TRACKING", "ON", "BCAST"];
        for prefix in prefixes.iter().take(count) {
            words.extend(["PREFIX", prefix]);
        }
        words
    };
    let mut client = door.client();
    client.ask(&["HELLO", "3"]);
    let began = Instant::now();
    let refused = client.ask(&with(20_000)).error();
    assert!(refused.contains("64 prefixes"), "{refused}");
    assert!(began.elapsed() < Duration::from_millis(500));
    let long = "p".repeat(1 << 20);
    let words = ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", &long];
    let refused = client.ask(&words).error();
    assert!(
        refused.contains("longer than the longest possible key"),
        "{refused}"
    );
    assert_eq!(client.ask(&with(64)), Reply::status("OK"));
    let one_more = ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x"];
    assert!(client.ask(&one_more).error().contains("64 prefixes"));
}

#[test]
fn each_prefix_of_a_key_is_found() {
    let door = Door::start(&[]);
    let invalidation = |key: &str| {
        let keys = Reply::Array(vec![Reply::bulk(key)]);
        Reply::Push(vec![Reply::bulk("invalidate"), keys])
    };
    // The prefixes of one client must not overlap. The prefixes of different clients may overlap.
    let all = ["", "a", "ab", "abb", "abc", "abcd", "abd", "b", "abc\0"];
    let mut readers: Vec<(&str, Client)> = all
        .into_iter()
        .map(|prefix| {
            let mut client = door.client();
            client.ask(&["HELLO", "3"]);
            let words = ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix];
            assert_eq!(client.ask(&words), Reply::status("OK"));
            (prefix, client)
        })
        .collect();
    let mut writer = door.client();
    for key in ["abc", "abcde", "a", "abbz", "c", "aa", "abc!", "b"] {
        assert_eq!(writer.ask(&["SET", key, "v"]), Reply::status("OK"));
        for (prefix, client) in &mut readers {
            if key.starts_with(*prefix) {
                assert_eq!(
                    client.reply(),
                    Some(invalidation(key)),
                    "{prefix:?} {key:?}"
                );
            }
            assert_eq!(client.ask(&["PING"]), Reply::status("PONG"), "{prefix:?}");
        }
    }
}

#[test]
fn reading_many_keys_at_once_stalls_no_client_and_tracks_all() {
    let door = Door::start(&[]);
    let mut client = door.client();
    client.ask(&["HELLO", "3"]);
    assert_eq!(
        client.ask(&["CLIENT", "TRACKING", "ON"]),
        Reply::status("OK")
    );
    let keys: Vec<String> = (0..200_000).map(|key| format!("k{key}")).collect();
    let mut words = vec!["EXISTS"];
    words.extend(keys.iter().map(String::as_str));
    assert_eq!(client.ask(&words), Reply::Integer(0));
    let invalidation = Reply::Push(vec![Reply::bulk("invalidate"), Reply::Null]);
    // Recorded keys may come before or after this message.
    let mut pushes = vec![client.reply().expect("a message comes")];
    assert!(client.send(&Client::request(&[b"INFO", b"clients"])));
    let info = loop {
        match client.reply().expect("a reply comes") {
            push @ Reply::Push(_) => pushes.push(push),
            other => break other.text(),
        }
    };
    assert!(pushes.contains(&invalidation), "{pushes:?}");
    assert!(info.contains("total_tracking_keys:4096\r\n"), "{info}");
    // If only a few keys are read, they are recorded one by one again.
    assert_eq!(client.ask(&["GET", "few"]), Reply::Null);
    assert_eq!(door.client().ask(&["SET", "few", "v"]), Reply::status("OK"));
    let few = Reply::Array(vec![Reply::bulk("few")]);
    let few = Reply::Push(vec![Reply::bulk("invalidate"), few]);
    assert_eq!(client.reply(), Some(few));
}

#[test]
fn readers_of_keys_are_bounded() {
    let door = Door::start(&["pgcache.resp_tracking_keys = 2"]);
    let mut readers: Vec<Client> = (0..65)
        .map(|_| {
            let mut client = door.client();
            client.ask(&["HELLO", "3"]);
            client.ask(&["CLIENT", "TRACKING", "ON"]);
            client
        })
        .collect();
    let invalidation = |key: &str| {
        let keys = Reply::Array(vec![Reply::bulk(key)]);
        Reply::Push(vec![Reply::bulk("invalidate"), keys])
    };
    // There is room for 128 readers of two keys: the next readers evict one of the keys.
    for client in readers.iter_mut().take(64) {
        for key in ["a", "b"] {
            assert_eq!(client.ask(&["GET", key]), Reply::Null);
        }
    }
    let last = readers.last_mut().expect("there are some");
    let mut came = Vec::new();
    assert!(last.send(&Client::request(&[b"GET", b"a"])));
    assert!(last.send(&Client::request(&[b"PING"])));
    loop {
        match last.reply().expect("a reply comes") {
            reply if reply == Reply::status("PONG") => break,
            reply => came.push(reply),
        }
    }
    let first = readers.first_mut().expect("there are some");
    let went = first.reply();
    assert!(
        went == Some(invalidation("a")) || went == Some(invalidation("b")),
        "{went:?}"
    );
    assert!(came.contains(&Reply::Null));
}

#[test]
fn a_client_that_changes_its_role_gets_no_messages_of_the_old_one() {
    let door = Door::start(&[]);
    door.cluster
        .connect("postgres")
        .run("CREATE ROLE app LOGIN; GRANT SELECT ON public.door TO app");
    let mut other = door.client();
    other.ask(&["HELLO", "3"]);
    let Reply::Integer(number) = other.ask(&["CLIENT", "ID"]) else {
        panic!("expected a number")
    };
    let number = number.to_string();
    let mut client = door.client();
    assert_eq!(client.ask(&["AUTH", "app", "x"]), Reply::status("OK"));
    let words = ["CLIENT", "TRACKING", "ON", "REDIRECT", &number];
    let refused = client.ask(&words).error();
    assert!(refused.contains("does not exist"), "{refused}");
    // A client that changes its role gets no further messages.
    assert_eq!(other.ask(&["AUTH", "app", "x"]), Reply::status("OK"));
    assert_eq!(client.ask(&words), Reply::status("OK"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(other.ask(&["AUTH", "postgres", "x"]), Reply::status("OK"));
    let mut writer = door.client();
    assert_eq!(writer.ask(&["SET", "k", "v"]), Reply::status("OK"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
}

/// Sends a long MGET and a PING, and runs `act` as soon as the server has read the MGET. Checks that the reply to MGET
/// has an element for each key, or is an error.
#[track_caller]
fn keeps_its_length(mut client: Client, act: impl FnOnce()) {
    const KEYS: usize = 1_000_000;
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.resize(KEYS + 1, b"0");
    let sent = [Client::request(&words), Client::request(&[b"PING"])].concat();
    // When the client has sent everything, the server has read nearly everything, and the command begins soon.
    assert!(client.send(&sent));
    act();
    match client.reply() {
        Some(Reply::Array(values)) => assert_eq!(values.len(), KEYS),
        // `act` took effect before the command began, so the command was refused.
        Some(Reply::Error(_)) => {}
        other => panic!("expected an array, got {other:?}"),
    }
    assert_eq!(client.reply(), Some(Reply::status("PONG")));
}

#[test]
fn a_cache_that_goes_does_not_change_the_length_of_a_reply() {
    let door = Door::start(&[]);
    let client = {
        let mut client = door.client();
        assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
        client
    };
    let mut session = door.cluster.connect("postgres");
    session.run(&format!("BEGIN; DROP VIEW {CACHE}"));
    keeps_its_length(client, || session.run("COMMIT"));
}

#[test]
fn a_tier_that_is_switched_off_does_not_change_the_length_of_a_reply() {
    let door = Door::start(&[
        "pgcache.resp_caches = 'public.door, public.tab'",
        "pgcache.resp_max_output = '1GB'",
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "SELECT cache_create('public.tab'); SELECT cache_set('0', 'v', cache => 'public.tab')",
    );
    session.run("SELECT cache_get('0', 'public.tab')");
    session.run("ALTER SYSTEM SET pgcache.hot_tier = off");
    let mut client = door.client();
    assert_eq!(client.ask(&["SELECT", "1"]), Reply::status("OK"));
    assert_eq!(client.ask(&["GET", "0"]), Reply::bulk("v"));
    keeps_its_length(client, || session.run("SELECT pg_reload_conf()"));
}
