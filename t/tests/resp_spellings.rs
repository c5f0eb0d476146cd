//! Tests types whose keys have several spellings for one entry: a bigint with a sign or leading zeros, a uuid in
//! capitals.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::{reply, send};
use pgcache_tests::wait::wait_until;
use postgres::Client as Session;

/// A column type, three spellings of one of its keys, and another key.
struct Spelled {
    key_type: &'static str,
    spellings: [&'static str; 3],
    /// Whether the type treats these spellings as one key.
    same: bool,
    other: &'static str,
}

const TYPES: [Spelled; 4] = [
    Spelled {
        key_type: "bigint",
        spellings: ["7", "007", " +7"],
        same: true,
        other: "8",
    },
    Spelled {
        key_type: "uuid",
        spellings: [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
        ],
        same: true,
        other: "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    },
    Spelled {
        key_type: "text COLLATE \"C\"",
        spellings: ["a", "A", " a"],
        same: false,
        other: "b",
    },
    Spelled {
        key_type: "varchar(40) COLLATE \"C\"",
        spellings: ["7", "007", "+7"],
        same: false,
        other: "8",
    },
];

fn ok() -> Reply {
    Reply::status("OK")
}

/// Attaches a table with a key of this type, and connects a client of it.
fn start(spelled: &Spelled) -> (Door, Session, Client) {
    let door = Door::start(&["pgcache.resp_caches = 'public.t'"]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE TABLE t (id {} PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('t', key_column => 'id')",
        spelled.key_type
    ));
    let client = door.client();
    (door, session, client)
}

fn rows(session: &mut Session) -> Vec<String> {
    session.lines("SELECT value FROM t ORDER BY value")
}

#[test]
fn a_command_on_two_spellings_of_a_key_is_on_one_entry() {
    for spelled in &TYPES {
        let (_door, mut session, mut client) = start(spelled);
        let [one, two, three] = spelled.spellings;
        let other = spelled.other;
        let (kind, same) = (spelled.key_type, spelled.same);
        assert_eq!(client.ask(&["SET", one, "v"]), ok());

        let renamed = client.ask(&["RENAMENX", one, two]);
        assert_eq!(renamed, Reply::Integer(i64::from(!same)), "{kind}");
        assert_eq!(rows(&mut session), ["v"], "{kind}");
        let now = if same { one } else { two };
        assert_eq!(client.ask(&["RENAME", now, three]), ok(), "{kind}");
        assert_eq!(client.ask(&["GET", three]), Reply::bulk("v"), "{kind}");
        assert_eq!(rows(&mut session), ["v"], "{kind}");

        let copied = client.ask(&["COPY", three, one, "REPLACE"]);
        match same {
            true => assert!(copied.error().contains("objects are the same"), "{kind}"),
            false => assert_eq!(copied, Reply::Integer(1), "{kind}"),
        }
        assert_eq!(rows(&mut session).len(), if same { 1 } else { 2 }, "{kind}");
        client.ask(&["DEL", one, two, three]);

        assert_eq!(client.ask(&["MSET", one, "1", other, "o", two, "2"]), ok());
        let last = if same { "2" } else { "1" };
        assert_eq!(client.ask(&["GET", one]), Reply::bulk(last), "{kind}");
        let gone = client.ask(&["DEL", one, two, other]);
        assert_eq!(gone, Reply::Integer(if same { 2 } else { 3 }), "{kind}");
        let words = ["MSETNX", one, "1", two, "2"];
        assert_eq!(client.ask(&words), Reply::Integer(1), "{kind}");
        assert_eq!(client.ask(&["GET", one]), Reply::bulk(last), "{kind}");
        let words = ["MSETEX", "2", one, "3", two, "4", "XX", "KEEPTTL"];
        assert_eq!(client.ask(&words), Reply::Integer(1), "{kind}");
        let last = if same { "4" } else { "3" };
        assert_eq!(client.ask(&["GET", one]), Reply::bulk(last), "{kind}");
        assert_eq!(client.ask(&["GET", two]), Reply::bulk("4"), "{kind}");
        client.ask(&["DEL", one, two]);
        assert!(rows(&mut session).is_empty(), "{kind}");

        // redlock's script acquires several keys. A key that occurs twice is acquired once.
        let acquire = "96da70f7716f27d278a5218544df37fd8b0a5e4c";
        let words = ["EVALSHA", acquire, "2", one, two, "mine", "10000"];
        assert_eq!(client.ask(&words), Reply::Integer(2), "{kind}");
        assert_eq!(rows(&mut session).len(), if same { 1 } else { 2 }, "{kind}");
    }
}

#[test]
fn a_key_is_watched_in_each_of_its_spellings() {
    for spelled in TYPES.iter().filter(|spelled| spelled.same) {
        let (door, mut session, mut client) = start(spelled);
        let [one, two, three] = spelled.spellings;
        let mut other = door.client();
        assert_eq!(client.ask(&["WATCH", one, two]), ok());
        assert_eq!(other.ask(&["SET", three, "theirs"]), ok());
        assert_eq!(client.ask(&["MULTI"]), ok());
        client.ask(&["SET", two, "ours"]);
        assert_eq!(client.ask(&["EXEC"]), Reply::Null, "{}", spelled.key_type);
        assert_eq!(client.ask(&["WATCH", two]), ok());
        assert_eq!(client.ask(&["MULTI"]), ok());
        client.ask(&["SET", one, "ours"]);
        client.ask(&["GET", three]);
        let replies = Reply::Array(vec![ok(), Reply::bulk("ours")]);
        assert_eq!(client.ask(&["EXEC"]), replies, "{}", spelled.key_type);
        assert_eq!(rows(&mut session), ["ours"]);
    }
}

#[test]
fn commands_lock_rows_in_key_order_in_any_spelling() {
    let (door, mut session, mut client) = start(&TYPES[0]);
    assert_eq!(client.ask(&["MSET", "7", "a", "10", "b"]), ok());
    // In the canonical spelling, 10 sorts before 7 as text; in the commands' spelling, 10 sorts after 007.
    for words in [
        &["RENAME", "007", "10"][..],
        &["MSETEX", "2", "007", "x", "10", "y", "XX", "KEEPTTL"],
    ] {
        session.run("BEGIN; SELECT cache_set('7', 'held', cache => 't')");
        let mut waiting = door.client();
        send(&mut waiting, words);
        wait_until("it waits for 7", || {
            door.cluster.connect("postgres").holds(
                "SELECT count(*) > 0 FROM pg_stat_activity
                  WHERE backend_type = 'pgcache resp executor' AND wait_event_type = 'Lock'",
            )
        });
        // The transaction holds the key 10, except for moments in which it releases its locks for other sessions.
        let mut other = door.cluster.connect("postgres");
        let lock = "SELECT value FROM t WHERE id = 10 FOR UPDATE NOWAIT";
        let began = Instant::now();
        let mut held = false;
        while !held && began.elapsed() < Duration::from_secs(3) {
            held = other.batch_execute(lock).is_err();
        }
        session.run("COMMIT");
        reply(&mut waiting);
        assert!(held, "{words:?}");
        assert_eq!(client.ask(&["MSET", "7", "a", "10", "b"]), ok());
    }
}

#[test]
fn arrays_of_sql_with_two_spellings_of_a_key_mean_one_entry() {
    for spelled in &TYPES {
        let (_door, mut session, _) = start(spelled);
        let (kind, same) = (spelled.key_type, spelled.same);
        let [one, two, three] = spelled.spellings;
        let count = if same { 1 } else { 3 };
        let keys = format!("ARRAY['{one}', '{two}', '{three}']");
        let set = format!("SELECT cache_set_many({keys}, ARRAY['1', '2', '3'], cache => 't')");
        assert_eq!(session.number(&set), count, "{kind}");
        let expected = if same {
            ["3", "3", "3"]
        } else {
            ["1", "2", "3"]
        };
        for function in ["cache_get_many", "cache_lookup_many"] {
            // The second read uses copies.
            for _ in 0..2 {
                let get = format!("SELECT value FROM {function}({keys}, cache => 't')");
                assert_eq!(session.lines(&get), expected, "{kind}");
            }
            let shown = format!("SELECT key FROM {function}({keys}, cache => 't')");
            assert_eq!(session.lines(&shown), spelled.spellings, "{kind}");
        }
        let delete = format!("SELECT cache_delete_many({keys}, cache => 't')");
        assert_eq!(session.number(&delete), count, "{kind}");
        assert_eq!(session.number("SELECT count(*) FROM t"), 0, "{kind}");
    }
}

#[test]
fn a_type_with_other_ways_to_be_equal_is_no_key() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    );
    for kind in [
        "numeric",
        "timestamptz",
        "char(8)",
        "text COLLATE folded",
        "int",
    ] {
        session.run(&format!(
            "CREATE TABLE other (id {kind} PRIMARY KEY, value text, expires_at timestamptz)"
        ));
        let attach = "SELECT cache_attach('other', key_column => 'id')";
        let refused = session.batch_execute(attach);
        assert!(refused.is_err(), "{kind}");
        session.run("DROP TABLE other");
    }
}
