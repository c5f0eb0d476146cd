//! Tests that Redis commands on table caches have the same effect as the SQL functions and need the same privileges.
//! `resp_differential.rs` compares the replies with Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::wait::wait_until;
use postgres::Client as Session;

/// The caches of databases 0 to 4.
const CACHES: &str = "public.bytes, public.logged, public.words, public.json, public.numbered";

fn start() -> (Door, Session) {
    let door = Door::start(&[
        &format!("pgcache.resp_caches = '{CACHES}'"),
        "pgcache.expire_interval = 0",
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "SELECT cache_create('bytes', value_type => 'bytea'),
                cache_create('logged', storage => 'logged', value_type => 'bytea'),
                cache_create('words'),
                cache_create('json', value_type => 'jsonb');
         CREATE TABLE numbered (id bigint PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('numbered', key_column => 'id')",
    );
    (door, session)
}

fn client(door: &Door, database: &str) -> Client {
    let mut client = door.client();
    assert_eq!(client.ask(&["SELECT", database]), ok());
    client
}

/// Connects a client as this role.
fn client_as(door: &Door, role: &str, database: &str) -> Client {
    let mut client = door.client();
    assert_eq!(client.ask(&["AUTH", role, "x"]), ok());
    assert_eq!(client.ask(&["SELECT", database]), ok());
    client
}

fn ok() -> Reply {
    Reply::status("OK")
}

fn number(number: i64) -> Reply {
    Reply::Integer(number)
}

fn list(replies: &[&str]) -> Reply {
    Reply::Array(replies.iter().map(Reply::bulk).collect())
}

/// Returns the cursor and the keys of a SCAN.
#[track_caller]
fn scanned(reply: Reply) -> (String, Vec<String>) {
    let Reply::Array(both) = reply else {
        panic!("expected a list, got {reply:?}");
    };
    let [cursor, Reply::Array(keys)] = &both[..] else {
        panic!("a cursor and keys were to come, not {both:?}");
    };
    let keys = keys.iter().map(|key| key.clone().text()).collect();
    (cursor.clone().text(), keys)
}

#[test]
fn entries_are_shared_with_sql_both_ways() {
    let (door, mut session) = start();
    for (database, cache) in [("0", "bytes"), ("1", "logged")] {
        let mut client = client(&door, database);
        assert_eq!(client.ask_bytes(&[b"SET", b"k", b"a\0\xffb"]), ok());
        let read = format!("SELECT cache_get_bytes('k', '{cache}')");
        assert_eq!(session.text(&read), "\\x6100ff62");
        session.run(&format!(
            "SELECT cache_set_bytes('k', '\\x00', '1 hour', '{cache}')"
        ));
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk([0]));
        assert_eq!(client.ask(&["TTL", "k"]), number(3600));
        assert_eq!(client.ask(&["PERSIST", "k"]), number(1));
        assert_eq!(
            session.lines(&format!("SELECT key, expires_at FROM {cache}")),
            ["k|"]
        );
        session.run(&format!("DELETE FROM {cache}"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        assert_eq!(client.ask(&["INCRBY", "n", "7"]), number(7));
        session.run(&format!("SELECT cache_incr('n', cache => '{cache}')"));
        assert_eq!(client.ask(&["INCR", "n"]), number(9));
    }
}

#[test]
fn a_copy_in_the_tier_is_the_last_value_of_any_writer() {
    let (door, mut session) = start();
    let mut client = client(&door, "2");
    let figures = "SELECT hot_hits, table_hits FROM pgcache.stats WHERE cache = 'words'::regclass";
    assert_eq!(client.ask(&["SET", "k", "1"]), ok());
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1")); // the read bypasses the tier and fills the copy
    assert_eq!(session.lines(figures), ["0|1"]);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"));
    assert_eq!(session.lines(figures), ["1|1"]);
    for value in ["2", "3"] {
        assert_eq!(client.ask(&["SET", "k", value]), ok());
        assert_eq!(session.text("SELECT cache_get('k', 'words')"), value);
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk(value));
    }
    session.run("UPDATE words SET value = '4'");
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("4"));
    assert_eq!(client.ask(&["APPEND", "k", "5"]), number(2));
    assert_eq!(session.text("SELECT cache_get('k', 'words')"), "45");
    assert_eq!(client.ask(&["DEL", "k"]), number(1));
    assert_eq!(session.value("SELECT cache_get('k', 'words')"), None);
    assert_eq!(
        session.number("SELECT count(*) FROM pgcache.verify('words')"),
        0
    );
}

#[test]
fn an_expired_row_is_a_miss() {
    let (door, mut session) = start();
    let mut client = client(&door, "2");
    let expire =
        "INSERT INTO words (key, value, expires_at) VALUES ('k', 'old', now() - interval '1 h')
                  ON CONFLICT (key) DO UPDATE SET value = 'old', expires_at = excluded.expires_at";
    for (words, reply) in [
        (&["GET", "k"][..], Reply::Null),
        (&["EXISTS", "k"], number(0)),
        (&["TTL", "k"], number(-2)),
        (&["STRLEN", "k"], number(0)),
        (&["TYPE", "k"], Reply::status("none")),
        (&["EXPIRE", "k", "10"], number(0)),
        (&["PERSIST", "k"], number(0)),
        (&["DEL", "k"], number(0)),
        (&["GETDEL", "k"], Reply::Null),
        (&["DELEX", "k", "IFEQ", "old"], number(0)),
        (&["SET", "k", "v", "XX"], Reply::Null),
        (&["SET", "k", "v", "IFEQ", "old"], Reply::Null),
        (&["GETSET", "k", "v"], Reply::Null),
        (&["SETNX", "k", "v"], number(1)),
        (&["APPEND", "k", "v"], number(1)),
        (&["INCR", "k"], number(1)),
        (&["MSETNX", "k", "1", "l", "2"], number(1)),
        (&["COPY", "k", "x"], number(0)),
        (&["DBSIZE"], number(0)),
        (&["RANDOMKEY"], Reply::Null),
        (&["KEYS", "*"], list(&[])),
        (
            &["MGET", "k", "k"],
            Reply::Array(vec![Reply::Null, Reply::Null]),
        ),
    ] {
        session.run("DELETE FROM words");
        session.run(expire);
        assert_eq!(client.ask(words), reply, "{words:?}");
    }
    session.run(expire);
    assert_eq!(client.ask(&["RENAME", "k", "l"]).error(), "ERR no such key");
    assert_eq!(scanned(client.ask(&["SCAN", "0"])), ("0".into(), vec![]));
    // An entry may be stored with a deadline in the past.
    assert_eq!(client.ask(&["SET", "k", "v", "PXAT", "1"]), ok());
    assert_eq!(client.ask(&["EXISTS", "k"]), number(0));
}

#[test]
fn a_default_ttl_and_negative_entries_are_those_of_the_cache() {
    let (door, mut session) = start();
    let mut client = client(&door, "2");
    session.run(
        "SELECT cache_alter('words', ttl => '1 hour'), cache_set('none', NULL, cache => 'words')",
    );
    assert_eq!(client.ask(&["SET", "k", "v"]), ok());
    assert_eq!(client.ask(&["TTL", "k"]), number(3600));
    assert_eq!(client.ask(&["MSET", "l", "v"]), ok());
    assert_eq!(client.ask(&["TTL", "l"]), number(3600));
    assert_eq!(client.ask(&["SET", "k", "v", "EX", "60"]), ok());
    assert_eq!(client.ask(&["INCR", "n"]), number(1));
    assert_eq!(client.ask(&["TTL", "n"]), number(3600));
    assert_eq!(client.ask(&["TTL", "k"]), number(60));
    assert_eq!(client.ask(&["GET", "none"]), Reply::Null);
    assert_eq!(client.ask(&["EXISTS", "none"]), number(1));
    assert_eq!(client.ask(&["SETNX", "none", "v"]), number(0));
    assert_eq!(client.ask(&["RENAME", "none", "other"]), ok());
    assert_eq!(
        session.lines("SELECT found, value FROM cache_lookup('other', 'words')"),
        ["t|"]
    );
    assert_eq!(client.ask(&["INCR", "other"]), number(1));
}

#[test]
fn every_command_needs_the_privileges_of_its_function() {
    let (door, mut session) = start();
    session.run(
        "CREATE ROLE reader LOGIN; GRANT SELECT ON words TO reader;
         CREATE ROLE writer LOGIN; GRANT SELECT, INSERT, UPDATE ON words TO writer;
         CREATE ROLE remover LOGIN; GRANT DELETE ON words TO remover;
         CREATE ROLE emptier LOGIN; GRANT TRUNCATE ON words TO emptier;
         CREATE ROLE taker LOGIN; GRANT SELECT, DELETE ON words TO taker;
         SELECT cache_set('k', 'v', cache => 'words')",
    );
    let read: &[&[&str]] = &[
        &["GET", "k"],
        &["MGET", "k", "l"],
        &["EXISTS", "k"],
        &["TTL", "k"],
        &["DBSIZE"],
        &["SCAN", "0"],
        &["KEYS", "*"],
        &["RANDOMKEY"],
        &["OBJECT", "ENCODING", "k"],
    ];
    let write: &[&[&str]] = &[
        &["SET", "k", "v"],
        &["SETNX", "k", "v"],
        &["MSET", "k", "v"],
        &["INCR", "n"],
        &["APPEND", "k", "v"],
        &["PERSIST", "k"],
    ];
    let take: &[&[&str]] = &[&["GETDEL", "none"], &["DELEX", "none", "IFEQ", "x"]];
    let all: &[&[&str]] = &[&["EXPIRE", "k", "100"], &["RENAME", "none", "other"]];
    for (role, allowed) in [
        ("reader", vec![read]),
        ("writer", vec![read, write]),
        ("remover", vec![&[&["DEL", "none"][..]][..]]),
        ("emptier", vec![&[&["FLUSHDB"][..]][..]]),
        ("taker", vec![read, take, &[&["DEL", "none"][..]]]),
    ] {
        let mut client = client_as(&door, role, "2");
        let others: &[&[&str]] = &[&["DEL", "none"], &["FLUSHDB"]];
        for group in [read, write, take, all, others] {
            for words in group {
                let may = allowed.iter().any(|some| some.contains(words));
                let reply = client.ask(words);
                let refused = matches!(&reply, Reply::Error(words) if words.starts_with("NOPERM"));
                assert_eq!(refused, !may, "{role}: {words:?} gave {reply:?}");
            }
        }
    }
    let mut client = client_as(&door, "reader", "2");
    client.ask(&["GET", "k"]);
    session.run("REVOKE SELECT ON words FROM reader");
    let refused = client.ask(&["GET", "k"]).error();
    assert!(refused.starts_with("NOPERM"), "{refused}");
}

#[test]
fn policies_apply_to_the_role_of_the_client() {
    let (door, mut session) = start();
    session.run(
        "SELECT cache_set(k, 'v', cache => 'words') FROM unnest('{mine,mine2,theirs}'::text[]) AS k;
         CREATE ROLE app LOGIN; GRANT ALL ON words TO app;
         ALTER TABLE words ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON words TO app USING (key LIKE 'mine%')",
    );
    let mut client = client_as(&door, "app", "2");
    assert_eq!(client.ask(&["GET", "mine"]), Reply::bulk("v"));
    assert_eq!(client.ask(&["GET", "theirs"]), Reply::Null);
    assert_eq!(
        client.ask(&["MGET", "mine", "theirs"]),
        Reply::Array(vec![Reply::bulk("v"), Reply::Null])
    );
    assert_eq!(client.ask(&["EXISTS", "mine", "theirs"]), number(1));
    assert_eq!(client.ask(&["DBSIZE"]), number(2));
    assert_eq!(client.ask(&["KEYS", "*"]), list(&["mine", "mine2"]));
    let (_, keys) = scanned(client.ask(&["SCAN", "0"]));
    assert_eq!(keys, ["mine", "mine2"]);
    assert_eq!(client.ask(&["DEL", "theirs"]), number(0));
    assert_eq!(client.ask(&["GETDEL", "theirs"]), Reply::Null);
    assert_eq!(client.ask(&["DELEX", "theirs", "IFEQ", "v"]), number(0));
    assert_eq!(client.ask(&["EXPIRE", "theirs", "100"]), number(0));
    for words in [
        &["SET", "theirs", "x"][..],
        &["SETNX", "theirs", "x"],
        &["APPEND", "theirs", "x"],
        &["MSET", "theirs", "x"],
    ] {
        let refused = client.ask(words).error();
        assert!(refused.starts_with("NOPERM"), "{words:?}: {refused}");
    }
    for (words, reply) in [
        (&["SET", "mine", "1"][..], ok()),
        (&["INCR", "mine"], number(2)),
        (&["APPEND", "mine", "0"], number(2)),
        (
            &["SET", "mine", "x", "IFEQ", "20", "GET"],
            Reply::bulk("20"),
        ),
        (&["EXPIRE", "mine", "100", "NX"], number(1)),
        (&["DELEX", "mine2", "IFEQ", "v"], number(1)),
        (&["RENAME", "mine", "mine3"], ok()),
        (&["GETDEL", "mine3"], Reply::bulk("x")),
    ] {
        assert_eq!(client.ask(words), reply, "{words:?}");
    }
    assert_eq!(session.lines("SELECT key, value FROM words"), ["theirs|v"]);
}

#[test]
fn text_and_json_caches_refuse_invalid_values() {
    let (door, mut session) = start();
    let mut words = client(&door, "2");
    let no_text = "ERR value is not valid text in the server encoding, which this cache needs; \
                   a cache of value_type bytea accepts any bytes";
    for value in [&b"\xff"[..], b"a\0b"] {
        for command in [
            &[&b"SET"[..], b"k", value][..],
            &[b"MSET", b"k", value],
            &[b"SETNX", b"k", value],
            &[b"APPEND", b"k", value],
            &[b"GETSET", b"k", value],
            &[b"SET", b"k", value, b"GET"],
        ] {
            assert_eq!(words.ask_bytes(command).error(), no_text);
        }
    }
    assert_eq!(words.ask(&["SETRANGE", "k", "3", "x"]).error(), no_text);
    assert_eq!(words.ask(&["DBSIZE"]), number(0));

    let mut json = client(&door, "3");
    let given = "{\"b\":[1, 2],\"a\":null}";
    assert_eq!(json.ask(&["SET", "k", given]), ok());
    let printed = "{\"a\": null, \"b\": [1, 2]}";
    assert_eq!(json.ask(&["GET", "k"]), Reply::bulk(printed));
    assert_eq!(json.ask(&["GET", "k"]), Reply::bulk(printed)); // the second read uses the copy
    assert_eq!(json.ask(&["STRLEN", "k"]), number(printed.len() as i64));
    assert_eq!(json.ask(&["SET", "k", "1", "IFEQ", printed]), ok());
    assert_eq!(json.ask(&["INCRBY", "k", "41"]), number(42));
    assert_eq!(session.text("SELECT value FROM json"), "42");
    for (value, message) in [
        ("{", "ERR value is not valid JSON"),
        (
            "\"\\u0000\"",
            "ERR value contains a character that is not valid in jsonb or in the server encoding",
        ),
        ("\u{0}", no_text),
    ] {
        for words in [
            &["SET", "k", value][..],
            &["SET", "k", value, "GET"],
            &["MSET", "l", "1", "k", value],
            &["SETNX", "x", value],
        ] {
            assert_eq!(json.ask(words).error(), message, "{words:?}");
        }
    }
    assert_eq!(
        json.ask(&["APPEND", "k", "x"]).error(),
        "ERR value is not valid JSON"
    );
    // A command that fails does not affect the rest of its pipeline.
    json.send(
        &[
            Client::request(&[b"SET", b"a", b"1"]),
            Client::request(&[b"SET", b"b", b"{"]),
            Client::request(&[b"SET", b"c", b"2"]),
        ]
        .concat(),
    );
    assert_eq!(json.reply(), Some(ok()));
    json.reply().expect("a reply").error();
    assert_eq!(json.reply(), Some(ok()));
    assert_eq!(json.ask(&["MGET", "a", "b", "c", "k"]), {
        let (one, two, k) = (Reply::bulk("1"), Reply::bulk("2"), Reply::bulk("42"));
        Reply::Array(vec![one, Reply::Null, two, k])
    });
}

#[test]
fn a_key_that_sql_could_not_read_is_refused_and_never_found() {
    let (door, _session) = start();
    let mut client = client(&door, "0");
    let long = vec![b'k'; 2049];
    for key in [&b""[..], b"a\0", b"\xff", &long] {
        for command in [
            &[&b"SET"[..], key, b"v"][..],
            &[b"SET", key, b"v", b"GET"],
            &[b"SETNX", key, b"v"],
            &[b"MSET", b"a", b"v", key, b"v"],
            &[b"MSETNX", b"a", b"v", key, b"v"],
            &[b"INCR", key],
            &[b"APPEND", key, b"v"],
        ] {
            assert_eq!(
                client.ask_bytes(command).error(),
                "ERR a key must have 1 to 2048 bytes and be valid text in the server encoding"
            );
        }
        for (command, reply) in [
            (&[&b"GET"[..], key][..], Reply::Null),
            (&[b"EXISTS", key], number(0)),
            (&[b"TTL", key], number(-2)),
            (&[b"DEL", key], number(0)),
            (&[b"GETDEL", key], Reply::Null),
            (&[b"DELEX", key], number(0)),
            (&[b"EXPIRE", key, b"100"], number(0)),
            (&[b"PERSIST", key], number(0)),
            (&[b"COPY", key, b"b"], number(0)),
            (&[b"MGET", key], Reply::Array(vec![Reply::Null])),
        ] {
            assert_eq!(client.ask_bytes(command), reply);
        }
    }
    assert_eq!(client.ask(&["DBSIZE"]), number(0));
}

#[test]
fn an_attached_table_is_served_by_its_own_keys() {
    let (door, mut session) = start();
    let mut client = client(&door, "4");
    assert_eq!(client.ask(&["SET", "10", "ten"]), ok());
    assert_eq!(client.ask(&["SET", " 9", "nine", "EX", "100"]), ok());
    assert_eq!(client.ask(&["GET", "+10"]), Reply::bulk("ten"));
    assert_eq!(
        client.ask(&["MGET", "9", "x", "010"]),
        Reply::Array(vec![Reply::bulk("nine"), Reply::Null, Reply::bulk("ten")])
    );
    assert_eq!(client.ask(&["KEYS", "*"]), list(&["9", "10"]));
    assert_eq!(client.ask(&["KEYS", "1*"]), list(&["10"]));
    assert_eq!(scanned(client.ask(&["SCAN", "0", "COUNT", "1"])).1, ["9"]);
    assert_eq!(client.ask(&["GET", "word"]), Reply::Null);
    assert_eq!(
        client.ask(&["SET", "word", "v"]).error(),
        "ERR a key must have 1 to 2048 bytes and be valid text in the server encoding"
    );
    assert_eq!(
        session.lines("SELECT id FROM numbered ORDER BY id"),
        ["9", "10"]
    );
}

/// Stops the other threads of a test when it is dropped, even if the test's own thread has panicked.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_scan_meets_every_key_that_stays() {
    let (door, mut session) = start();
    session.run(
        "SELECT cache_set('stays' || i, 'v', cache => 'words') FROM generate_series(1, 2000) AS i",
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (door, stop) = (&door, &stop);
        scope.spawn(move || {
            let mut session = door.cluster.connect("postgres");
            while !stop.load(SeqCst) {
                // Rows whose keys stay move within the table; other keys are added and removed before and after them.
                session.run(
                    "UPDATE words SET value = repeat('v', 200) || random() WHERE key LIKE 'stays%' AND random() < 0.3;
                     INSERT INTO words (key, value) SELECT r || 'x' || random(), 'v' FROM unnest('{a,s,stays1,z}'::text[]) AS r;
                     DELETE FROM words WHERE key LIKE '%x%' AND random() < 0.5",
                );
            }
        });
        scope.spawn(move || {
            let _stop = Stop(stop);
            let mut client = client(door, "2");
            for count in ["7", "100", "1000"] {
                for pattern in ["*", "stays*"] {
                    let (mut cursor, mut met) = ("0".to_owned(), BTreeSet::new());
                    loop {
                        let asked = ["SCAN", &cursor, "COUNT", count, "MATCH", pattern];
                        let (next, keys) = scanned(client.ask(&asked));
                        met.extend(keys.into_iter().filter(|key| {
                            key.strip_prefix("stays")
                                .is_some_and(|rest| rest.parse::<u32>().is_ok())
                        }));
                        if next == "0" {
                            break;
                        }
                        cursor = next;
                    }
                    assert_eq!(met.len(), 2000, "COUNT {count} MATCH {pattern}");
                }
            }
        });
    });
}

#[test]
fn a_cursor_is_of_its_cache_and_role_and_good_on_every_connection() {
    let (door, mut session) = start();
    session.run(
        "SELECT cache_set('k' || i, 'v', cache => 'words') FROM generate_series(1, 9) AS i;
         SELECT cache_set_bytes('k' || i, 'v', cache => 'bytes') FROM generate_series(1, 9) AS i;
         CREATE ROLE app LOGIN; GRANT SELECT ON words TO app",
    );
    let mut one = client(&door, "2");
    let (cursor, keys) = scanned(one.ask(&["SCAN", "0", "COUNT", "4"]));
    assert_eq!(keys, ["k1", "k2", "k3", "k4"]);
    let mut other = client(&door, "2");
    for _ in 0..2 {
        let (_, keys) = scanned(other.ask(&["SCAN", &cursor, "COUNT", "3"]));
        assert_eq!(keys, ["k5", "k6", "k7"]);
    }
    let (end, keys) = scanned(other.ask(&["SCAN", &cursor, "COUNT", "100"]));
    assert_eq!((&*end, keys.len()), ("0", 5));
    let lost = "ERR invalid cursor";
    assert_eq!(client(&door, "0").ask(&["SCAN", &cursor]).error(), lost);
    assert_eq!(
        client_as(&door, "app", "2").ask(&["SCAN", &cursor]).error(),
        lost
    );
    let near = (cursor.parse::<u64>().expect("a number") + 1).to_string();
    for cursor in ["1", "18446744073709551615", &near] {
        assert_eq!(one.ask(&["SCAN", cursor]).error(), lost, "{cursor}");
    }
    door.cluster.restart(pgcache_tests::cluster::Shutdown::Fast);
    assert_eq!(client(&door, "2").ask(&["SCAN", &cursor]).error(), lost);
}

#[test]
fn commands_on_several_keys_are_all_or_nothing_and_never_wait_in_a_circle() {
    let (door, mut session) = start();
    session.run("SELECT cache_set(k, '0', cache => 'words') FROM unnest('{a,b,c,d}'::text[]) AS k");
    std::thread::scope(|scope| {
        for who in 0..4 {
            let door = &door;
            scope.spawn(move || {
                let mut client = client(door, "2");
                for round in 0..150 {
                    let value = format!("{who}-{round}");
                    let mut keys = ["a", "b", "c", "d"];
                    keys.rotate_left((who + round) % 4);
                    let mut words = vec!["MSET"];
                    keys.iter().for_each(|key| words.extend([*key, &value]));
                    assert_eq!(client.ask(&words), ok());
                    let Reply::Array(values) = client.ask(&["MGET", "a", "b", "c", "d"]) else {
                        panic!("expected a list");
                    };
                    assert!(values.iter().all(|one| *one == values[0]), "{values:?}");
                    assert_eq!(client.ask(&["RENAME", keys[0], keys[0]]), ok());
                    words[0] = "MSETNX";
                    assert_eq!(client.ask(&words), number(0));
                }
            });
        }
    });
    let mut client = client(&door, "2");
    assert_eq!(client.ask(&["MSETNX", "x", "1", "a", "1"]), number(0));
    assert_eq!(client.ask(&["EXISTS", "x"]), number(0));
    assert_eq!(
        client.ask(&["MSETEX", "2", "x", "1", "a", "1", "XX"]),
        number(0)
    );
    assert_eq!(
        client.ask(&["MSETEX", "2", "b", "1", "a", "1", "XX", "EX", "50"]),
        number(1)
    );
    assert_eq!(client.ask(&["TTL", "b"]), number(50));
    assert_eq!(
        client.ask(&["MSETEX", "2", "b", "2", "x", "1", "KEEPTTL"]),
        number(1)
    );
    assert_eq!(client.ask(&["TTL", "b"]), number(50));
    assert_eq!(client.ask(&["TTL", "x"]), number(-1));
    assert_eq!(client.ask(&["MSETNX", "y", "1", "y", "2"]), number(1));
    assert_eq!(client.ask(&["GET", "y"]), Reply::bulk("2"));
}

#[test]
fn watchers_and_dependencies_see_changes_of_a_client() {
    let (door, mut session) = start();
    let channel = session.text("SELECT cache_watch('words')");
    session.run(&format!("LISTEN {channel}"));
    let mut client = client(&door, "2");
    let mut check_notified = |words: &[&str], expected: &[&str]| {
        client.ask(words);
        let mut received = Vec::new();
        wait_until("the watcher has heard", || {
            session.run("SELECT 1");
            let mut notifications = session.notifications();
            let mut all = notifications.iter();
            while let Ok(Some(one)) = postgres::fallible_iterator::FallibleIterator::next(&mut all)
            {
                received.push(one.payload().to_owned());
            }
            received.len() >= expected.len()
        });
        received.sort();
        assert_eq!(received, expected, "{words:?}");
    };
    check_notified(&["SET", "k", "v"], &["{\"op\": \"set\", \"key\": \"k\"}"]);
    check_notified(
        &["EXPIRE", "k", "100"],
        &["{\"op\": \"set\", \"key\": \"k\"}"],
    );
    check_notified(
        &["RENAME", "k", "l"],
        &[
            "{\"op\": \"delete\", \"key\": \"k\"}",
            "{\"op\": \"set\", \"key\": \"l\"}",
        ],
    );
    check_notified(&["GETDEL", "l"], &["{\"op\": \"delete\", \"key\": \"l\"}"]);
    check_notified(&["FLUSHDB"], &["{\"op\": \"clear\", \"key\": null}"]);

    // A lease is void once a client has set the key or deleted it, by any command.
    for command in VOIDS {
        client.ask(&["DEL", "leased"]);
        let lease = session.text("SELECT lease FROM cache_lease('leased', cache => 'words')");
        client.ask(command);
        assert!(
            !session.holds(&format!(
                "SELECT cache_set_leased('leased', 'ours', {lease}, cache => 'words')"
            )),
            "{command:?}"
        );
    }
}

/// Commands that void the lease on a key without an entry.
const VOIDS: &[&[&str]] = &[
    &["SET", "leased", "theirs"],
    &["DEL", "leased"],
    &["UNLINK", "leased"],
    &["DELEX", "leased"],
    &["GETDEL", "leased"],
    &["EXPIRE", "leased", "-1"],
    &["PEXPIRE", "leased", "0"],
    &["EXPIREAT", "leased", "1"],
    &["PEXPIREAT", "leased", "1"],
];

#[test]
fn a_random_key_is_any_existing_key() {
    let (door, mut session) = start();
    let mut client = client(&door, "2");
    assert_eq!(client.ask(&["RANDOMKEY"]), Reply::Null);
    session.run(
        "INSERT INTO words (key, value) SELECT 'k' || i, repeat('v', 500) FROM generate_series(1, 300) AS i",
    );
    let met: BTreeSet<String> = (0..200)
        .map(|_| client.ask(&["RANDOMKEY"]).text())
        .collect();
    assert!(met.len() > 3, "{met:?}");
    session.run("DELETE FROM words WHERE key <> 'k7'");
    assert_eq!(client.ask(&["RANDOMKEY"]), Reply::bulk("k7"));
}

#[test]
fn random_keys_are_about_equally_likely() {
    let (door, mut session) = start();
    let mut client = client(&door, "2");
    // In the last case the table has more blocks than are read at once, and half of its rows are deleted.
    for (keys, length, per_key) in [
        (2, 1, 50),
        (7, 1, 40),
        (50, 1, 30),
        (400, 1, 20),
        (200, 600, 20),
    ] {
        session.run(&format!(
            "TRUNCATE words;
             INSERT INTO words (key, value)
             SELECT 'k' || i, repeat('v', {length}) FROM generate_series(1, 400) AS i;
             DELETE FROM words WHERE substr(key, 2)::int > {keys}"
        ));
        let mut met: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..keys * per_key {
            *met.entry(client.ask(&["RANDOMKEY"]).text()).or_default() += 1;
        }
        assert_eq!(met.len(), keys, "{met:?}");
        let (least, most) = (met.values().min(), met.values().max());
        let within = |count: Option<&usize>| {
            count.is_some_and(|count| (per_key / 6..=per_key * 3).contains(count))
        };
        assert!(within(least) && within(most), "{keys}: {least:?} {most:?}");
    }
}

#[test]
fn copy_goes_from_one_table_to_another() {
    let (door, mut session) = start();
    session.run("CREATE ROLE app LOGIN; GRANT ALL ON bytes TO app; GRANT SELECT ON words TO app");
    let mut words = client(&door, "2");
    let copy = ["COPY", "k", "l", "DB", "0"];
    assert_eq!(words.ask(&copy), number(0));
    assert_eq!(words.ask(&["SET", "k", "v", "EX", "100"]), ok());
    assert_eq!(words.ask(&copy), number(1));
    assert_eq!(words.ask(&copy), number(0));
    assert_eq!(words.ask(&["SET", "k", "w"]), ok());
    assert_eq!(
        words.ask(&["COPY", "k", "l", "DB", "0", "REPLACE"]),
        number(1)
    );
    let mut bytes = client(&door, "0");
    assert_eq!(bytes.ask(&["GET", "l"]), Reply::bulk("w"));
    assert_eq!(bytes.ask(&["TTL", "l"]), number(-1));
    assert_eq!(bytes.ask_bytes(&[b"SET", b"k", b"\xff"]), ok());
    let refused = bytes.ask(&["COPY", "k", "x", "DB", "2"]).error();
    assert!(
        refused.starts_with("ERR value is not valid text"),
        "{refused}"
    );
    let mut app = client_as(&door, "app", "0");
    let refused = app.ask(&["COPY", "l", "x", "DB", "2"]).error();
    assert!(refused.starts_with("NOPERM"), "{refused}");
    let mut app = client_as(&door, "app", "2");
    assert_eq!(app.ask(&["COPY", "k", "mine", "DB", "0"]), number(1));
}
