//! Tests on memory caches what the comparison with Redis cannot cover: effects between SQL and Redis commands, missing
//! privileges, and commands of later Redis versions.

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};

fn integer(number: i64) -> Reply {
    Reply::Integer(number)
}

fn ok() -> Reply {
    Reply::status("OK")
}

#[test]
fn an_entry_is_the_same_by_sql_and_redis() {
    let door = Door::start(&[]);
    let (mut sql, mut client) = (door.cluster.connect("postgres"), door.client());
    assert_eq!(client.ask(&["SET", "k", "v", "EX", "100"]), ok());
    assert_eq!(
        sql.text(&format!(
            "SELECT cache_get('k', '{CACHE}') || (cache_ttl('k', '{CACHE}') > '90 s')"
        )),
        "vtrue"
    );
    sql.run(&format!("SELECT cache_set('k', 'w', '1 hour', '{CACHE}')"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("w"));
    assert_eq!(client.ask(&["TTL", "k"]), integer(3600));
    // A negative entry exists, and GET returns nil for it.
    sql.run(&format!("SELECT cache_set('none', NULL, NULL, '{CACHE}')"));
    assert_eq!(client.ask(&["GET", "none"]), Reply::Null);
    assert_eq!(client.ask(&["EXISTS", "none"]), integer(1));
    assert_eq!(client.ask(&["SETNX", "none", "x"]), integer(0));
    assert_eq!(client.ask(&["INCR", "none"]), integer(1));
    sql.run(&format!("SELECT cache_set('none', NULL, NULL, '{CACHE}')"));
    assert_eq!(client.ask(&["APPEND", "none", "x"]), integer(1));
    assert_eq!(client.ask(&["RENAME", "none", "some"]), ok());
    assert_eq!(
        sql.text(&format!("SELECT cache_get('some', '{CACHE}')")),
        "x"
    );
    // Removals through one protocol are visible through the other protocol.
    assert_eq!(client.ask(&["DEL", "k", "some", "never"]), integer(2));
    assert_eq!(sql.text(&format!("SELECT cache_count('{CACHE}')")), "0");
    sql.run(&format!(
        "SELECT cache_set('k', 'w', '1 ms', '{CACHE}'), pg_sleep(0.01)"
    ));
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(client.ask(&["SETNX", "k", "x"]), integer(1));
    // A Redis command that writes a key voids the key's lease.
    let lease = sql.text(&format!(
        "SELECT lease FROM cache_lease('l', '0', '{CACHE}')"
    ));
    assert_eq!(client.ask(&["SET", "l", "door"]), ok());
    assert_eq!(
        sql.text(&format!(
            "SELECT cache_set_leased('l', 'late', {lease}, NULL, '{CACHE}')"
        )),
        "f"
    );
    assert_eq!(client.ask(&["GET", "l"]), Reply::bulk("door"));
    for (deletion, reply) in [
        (&["DEL", "m"][..], integer(0)),
        (&["EXPIRE", "m", "-1"], integer(0)),
        (&["GETDEL", "m"], Reply::Null),
    ] {
        let lease = sql.text(&format!(
            "SELECT lease FROM cache_lease('m', '0', '{CACHE}')"
        ));
        assert_eq!(client.ask(deletion), reply);
        assert_eq!(
            sql.text(&format!(
                "SELECT cache_set_leased('m', 'late', {lease}, NULL, '{CACHE}')"
            )),
            "f",
            "{deletion:?}"
        );
    }
}

#[test]
fn a_cache_of_its_own_settings_keeps_them() {
    let door = Door::start(&["pgcache.resp_caches = 'public.t, public.j, public.w'"]);
    let mut sql = door.cluster.connect("postgres");
    sql.run("SELECT cache_create('t', ttl => '10 minutes', storage => 'memory')");
    sql.run("SELECT cache_create('j', storage => 'memory', value_type => 'jsonb')");
    sql.run("SELECT cache_create('w', storage => 'memory', value_type => 'bytea')");
    sql.run("SELECT cache_watch('w')");
    let mut client = door.client();
    // The cache's default TTL applies where Redis would set none.
    for words in [
        &["SET", "a", "1"][..],
        &["SETNX", "b", "1"],
        &["MSET", "c", "1"],
        &["INCR", "d"],
        &["APPEND", "e", "1"],
        &["GETSET", "f", "1"],
    ] {
        client.ask(words);
        assert_eq!(client.ask(&["TTL", words[1]]), integer(600), "{words:?}");
    }
    assert_eq!(client.ask(&["PERSIST", "a"]), integer(1));
    assert_eq!(client.ask(&["INCR", "a"]), integer(2));
    assert_eq!(client.ask(&["TTL", "a"]), integer(-1));
    assert_eq!(client.ask(&["SET", "b", "2", "KEEPTTL"]), ok());
    // A text cache accepts text.
    assert_eq!(client.ask_bytes(&[b"SET", b"k", "é".as_bytes()]), ok());
    for request in [
        &[&b"SET"[..], b"k", b"\xff"],
        &[b"APPEND", b"k", b"\xc3"],
        &[b"SET", b"k", b"a\0"],
    ] {
        assert!(
            client.ask_bytes(request).error().contains("bytea"),
            "{request:?}"
        );
    }
    assert!(
        client
            .ask(&["SETRANGE", "new", "3", "x"])
            .error()
            .contains("bytea")
    );
    assert!(
        client
            .ask_bytes(&[b"MSET", b"m", b"1", b"n", b"\xff"])
            .error()
            .contains("bytea")
    );
    assert_eq!(client.ask(&["EXISTS", "m", "n"]), integer(0));
    // A jsonb cache is not served, and the error says so.
    assert_eq!(client.ask(&["SELECT", "1"]), ok());
    assert!(client.ask(&["GET", "k"]).error().contains("jsonb"));
    // A cache with watchers is read only, because a write through this protocol would not notify the watchers.
    assert_eq!(client.ask(&["SELECT", "2"]), ok());
    sql.run("SELECT cache_set('k', 'v', NULL, 'w')");
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    assert!(client.ask(&["SET", "k", "w"]).error().contains("watch"));
    assert!(client.ask(&["FLUSHDB"]).error().contains("watch"));
}

#[test]
fn keys_that_sql_could_not_read_are_refused_and_missed() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let long = [b'k'; 2049];
    for key in [&b""[..], b"a\0b", b"\xff", &long] {
        for request in [
            &[&b"SET"[..], key, b"v"][..],
            &[b"SETNX", key, b"v"],
            &[b"INCR", key],
            &[b"APPEND", key, b"v"],
            &[b"MSET", b"ok", b"1", key, b"v"],
            &[b"MSETNX", b"ok", b"1", key, b"v"],
            &[b"INCRBYFLOAT", key, b"1"],
            &[b"SETRANGE", key, b"1", b"v"],
        ] {
            let error = client.ask_bytes(request).error();
            assert!(error.starts_with("ERR a key must have"), "{error}");
        }
        assert_eq!(client.ask_bytes(&[b"GET", key]), Reply::Null);
        assert_eq!(client.ask_bytes(&[b"DEL", key]), integer(0));
        assert_eq!(
            client.ask_bytes(&[b"MGET", key, b"ok"]),
            Reply::Array(vec![Reply::Null, Reply::Null])
        );
        assert_eq!(client.ask_bytes(&[b"EXPIRE", key, b"1"]), integer(0));
    }
    assert_eq!(client.ask_bytes(&[b"SET", &[b'k'; 2048], b"v"]), ok());
    assert_eq!(client.ask_bytes(&[b"GET", &[b'k'; 2048]]), Reply::bulk("v"));
    client.ask(&["SET", "ok", "v"]);
    assert!(
        client
            .ask(&["RENAME", "ok", ""])
            .error()
            .contains("a key must have")
    );
    assert_eq!(client.ask(&["GET", "ok"]), Reply::bulk("v"));
    // The tier cannot hold this value.
    let value = vec![b'v'; 3 << 20];
    let door = Door::start(&["pgcache.hot_max_value = '1MB'"]);
    let mut client = door.client();
    client.ask(&["PING"]);
    assert!(
        client
            .ask_bytes(&[b"SET", b"k", &value])
            .error()
            .contains("hot_max_value")
    );
    assert!(
        client
            .ask(&["SETRANGE", "k", "2000000", "x"])
            .error()
            .contains("hot_max_value")
    );
    assert_eq!(client.ask(&["EXISTS", "k"]), integer(0));
    let value = vec![b'v'; 1 << 20];
    assert_eq!(client.ask_bytes(&[b"SET", b"k", &value]), ok());
    assert_eq!(client.ask(&["GET", "k"]), Reply::Bulk(value));
}

#[test]
fn rights_are_those_of_the_functions() {
    let door = Door::start(&["pgcache.resp_default_role = 'reader'"]);
    let mut sql = door.cluster.connect("postgres");
    sql.run("CREATE ROLE reader LOGIN");
    sql.run(&format!("SELECT cache_set('k', 'v', NULL, '{CACHE}')"));
    // Commands, each with the privileges that it needs.
    let commands: [(&str, &[&str]); 9] = [
        ("SELECT", &["GET", "k"]),
        ("SELECT", &["SCAN", "0"]),
        ("SELECT, INSERT, UPDATE", &["SET", "k", "v"]),
        ("SELECT, INSERT, UPDATE", &["MSET", "k", "v"]),
        ("SELECT, INSERT, UPDATE", &["PERSIST", "k"]),
        ("DELETE", &["DEL", "none"]),
        ("SELECT, DELETE", &["GETDEL", "none"]),
        ("SELECT, INSERT, UPDATE, DELETE", &["EXPIRE", "k", "100"]),
        ("TRUNCATE", &["FLUSHDB"]),
    ];
    for (rights, words) in commands {
        for missing in rights.split(", ") {
            sql.run(&format!("REVOKE ALL ON {CACHE} FROM reader"));
            let others: Vec<&str> = rights
                .split(", ")
                .filter(|right| *right != missing)
                .collect();
            if !others.is_empty() {
                sql.run(&format!("GRANT {} ON {CACHE} TO reader", others.join(", ")));
            }
            let error = door.client().ask(words).error();
            assert!(
                error.starts_with("NOPERM "),
                "{words:?} without {missing}: {error}"
            );
        }
        sql.run(&format!("REVOKE ALL ON {CACHE} FROM reader"));
        sql.run(&format!("GRANT {rights} ON {CACHE} TO reader"));
        let reply = door.client().ask(words);
        assert!(
            !matches!(reply, Reply::Error(_)),
            "{words:?} with {rights}: {reply:?}"
        );
    }
}

/// Returns every key of a full SCAN, from cursor 0 back to 0.
fn scanned(client: &mut Client, options: &[&str]) -> Vec<String> {
    let (mut cursor, mut keys) = (String::from("0"), Vec::new());
    loop {
        let words = [&["SCAN", &cursor][..], options].concat();
        let Reply::Array(parts) = client.ask(&words) else {
            panic!("SCAN gives an array");
        };
        let [next, Reply::Array(found)] = &parts[..] else {
            panic!("of two");
        };
        keys.extend(found.iter().map(|key| key.clone().text()));
        cursor = next.clone().text();
        if cursor == "0" {
            return keys;
        }
    }
}

#[test]
fn a_scan_meets_every_key_that_stays_once() {
    let door = Door::start(&[]);
    let (mut sql, mut client) = (door.cluster.connect("postgres"), door.client());
    sql.run(&format!(
        "SELECT cache_set('stays' || i, 'v', NULL, '{CACHE}') FROM generate_series(1, 5000) i"
    ));
    // Keys are added and removed, and values grow, while SCAN continues on one connection after another, as with a
    // pool.
    let (mut cursor, mut met) = (String::from("0"), Vec::new());
    for round in 0.. {
        let churn = format!("churn{round}");
        client.ask(&["SET", &churn, "v"]);
        client.ask(&["DEL", &format!("churn{}", round - 1)]);
        client.ask_bytes(&[b"SET", b"stays17", &vec![b'x'; 100 * (round as usize % 50)]]);
        let mut another = door.client();
        let Reply::Array(parts) = another.ask(&["SCAN", &cursor, "COUNT", "50"]) else {
            panic!("SCAN gives an array");
        };
        let [next, Reply::Array(found)] = &parts[..] else {
            panic!("of two");
        };
        met.extend(
            found
                .iter()
                .map(|key| key.clone().text())
                .filter(|key| key.starts_with("stays")),
        );
        cursor = next.clone().text();
        if cursor == "0" {
            break;
        }
    }
    let count = met.len();
    let met: std::collections::BTreeSet<String> = met.into_iter().collect();
    let missing = (1..=5000).find(|number| !met.contains(&format!("stays{number}")));
    assert_eq!((missing, count), (None, 5000));
    client.ask(&["FLUSHDB"]);
    for number in 0..2000 {
        client.ask(&[
            "SET",
            &format!("k{number}"),
            "v",
            "PX",
            if number % 2 == 0 { "1" } else { "1000000" },
        ]);
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(scanned(&mut client, &["COUNT", "1000"]).len(), 1000);
    assert_eq!(scanned(&mut client, &["MATCH", "k1?"]).len(), 5);
    assert_eq!(scanned(&mut client, &["TYPE", "list"]).len(), 0);
    // Cursors that the server has never returned.
    for cursor in ["18446744073709551615", "123456789", "1"] {
        assert!(matches!(client.ask(&["SCAN", cursor]), Reply::Array(_)));
    }
    // Keys of other caches do not appear.
    let Reply::Array(keys) = client.ask(&["KEYS", "k*9"]) else {
        panic!("KEYS gives an array");
    };
    assert_eq!(keys.len(), 200);
    sql.run("SELECT cache_create('other', storage => 'memory')");
    sql.run("SELECT cache_set('foreign', 'v', NULL, 'other')");
    assert_eq!(client.ask(&["KEYS", "foreign"]), Reply::Array(Vec::new()));
    let key = client.ask(&["RANDOMKEY"]).text();
    assert_eq!(client.ask(&["EXISTS", &key]), integer(1));
    assert_eq!(client.ask(&["FLUSHDB", "ASYNC"]), ok());
    assert_eq!(client.ask(&["RANDOMKEY"]), Reply::Null);
    assert_eq!(client.ask(&["DBSIZE"]), integer(0));
    assert_eq!(sql.text("SELECT cache_get('foreign', 'other')"), "v");
}

#[test]
fn long_commands_are_answered_whole() {
    let door = Door::start(&[]);
    let mut client = door.client();
    client.ask(&["PING"]);
    let keys: Vec<String> = (0..20_000).map(|number| format!("key{number}")).collect();
    let mut words = vec!["MSET"];
    for key in &keys {
        words.extend([key.as_str(), "value"]);
    }
    assert_eq!(client.ask(&words), ok());
    let with = |name: &'static str| {
        [
            &[name][..],
            &keys.iter().map(String::as_str).collect::<Vec<_>>(),
        ]
        .concat()
    };
    assert_eq!(client.ask(&["DBSIZE"]), integer(20_000));
    assert_eq!(
        client.ask(&with("MGET")),
        Reply::Array(vec![Reply::bulk("value"); 20_000])
    );
    assert_eq!(client.ask(&with("EXISTS")), integer(20_000));
    assert_eq!(client.ask(&["DEL", "key1", "key1", "key2"]), integer(2));
    assert_eq!(client.ask(&with("UNLINK")), integer(19_998));
    assert_eq!(client.ask(&["DBSIZE"]), integer(0));
    // A command runs in pieces of 128 keys. Test key counts around one piece and two pieces.
    for count in [127, 128, 129, 256, 257] {
        let keys: Vec<&str> = keys.iter().take(count).map(String::as_str).collect();
        let words = [&["MGET"][..], &keys].concat();
        assert_eq!(client.ask(&words), Reply::Array(vec![Reply::Null; count]));
    }
}

#[test]
fn commands_of_later_versions_match_their_pages() {
    let door = Door::start(&[]);
    let mut client = door.client();
    // XXH3 of "hello", as every implementation computes it.
    client.ask(&["SET", "k", "hello"]);
    assert_eq!(
        client.ask(&["DIGEST", "k"]),
        Reply::bulk("9555e8555c62dcfd")
    );
    assert_eq!(client.ask(&["DIGEST", "none"]), Reply::Null);
    assert_eq!(client.ask(&["SET", "k", "a", "IFEQ", "x"]), Reply::Null);
    assert_eq!(client.ask(&["SET", "k", "a", "IFEQ", "hello"]), ok());
    assert_eq!(client.ask(&["SET", "k", "b", "IFNE", "a"]), Reply::Null);
    assert_eq!(client.ask(&["SET", "k", "b", "IFNE", "x"]), ok());
    assert_eq!(client.ask(&["SET", "none", "b", "IFEQ", "x"]), Reply::Null);
    assert_eq!(client.ask(&["SET", "new", "b", "IFNE", "x"]), ok());
    let digest = client.ask(&["DIGEST", "k"]).text();
    assert_eq!(
        client.ask(&["SET", "k", "c", "IFDNE", &digest]),
        Reply::Null
    );
    assert_eq!(
        client.ask(&["SET", "k", "c", "IFDEQ", &digest.to_uppercase(), "GET"]),
        Reply::bulk("b")
    );
    assert_eq!(
        client.ask(&["SET", "k", "d", "IFEQ", "x", "GET"]),
        Reply::bulk("c")
    );
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("c"));
    assert_eq!(client.ask(&["DELEX", "k", "IFEQ", "x"]), integer(0));
    assert_eq!(client.ask(&["DELEX", "k", "IFNE", "c"]), integer(0));
    assert_eq!(
        client.ask(&[
            "DELEX",
            "k",
            "IFDNE",
            &client_digest(&mut door.client(), "k")
        ]),
        integer(0)
    );
    assert_eq!(client.ask(&["DELEX", "k", "IFEQ", "c"]), integer(1));
    assert_eq!(client.ask(&["DELEX", "new"]), integer(1));
    assert_eq!(client.ask(&["DELEX", "new"]), integer(0));
    assert_eq!(
        client.ask(&["MSETEX", "2", "a", "1", "b", "2", "EX", "100"]),
        integer(1)
    );
    assert_eq!(client.ask(&["TTL", "b"]), integer(100));
    assert_eq!(
        client.ask(&["MSETEX", "2", "b", "3", "c", "3", "NX"]),
        integer(0)
    );
    assert_eq!(
        client.ask(&["MSETEX", "2", "b", "3", "c", "3", "XX"]),
        integer(0)
    );
    assert_eq!(client.ask(&["EXISTS", "c"]), integer(0));
    assert_eq!(
        client.ask(&["MSETEX", "2", "a", "3", "b", "3", "XX", "KEEPTTL"]),
        integer(1)
    );
    assert_eq!(client.ask(&["TTL", "b"]), integer(100));
    assert_eq!(client.ask(&["GET", "b"]), Reply::bulk("3"));
    assert_eq!(client.ask(&["OBJECT", "REFCOUNT", "a"]), integer(1));
    assert_eq!(client.ask(&["OBJECT", "ENCODING", "a"]), Reply::bulk("int"));
    assert_eq!(client.ask(&["OBJECT", "ENCODING", "none"]), Reply::Null);
    assert!(matches!(
        client.ask(&["MEMORY", "USAGE", "a"]),
        Reply::Integer(64)
    ));
    assert_eq!(
        client.ask(&["MEMORY", "USAGE", "none", "SAMPLES", "5"]),
        Reply::Null
    );
}

fn client_digest(client: &mut Client, key: &str) -> String {
    client.ask(&["DIGEST", key]).text()
}

#[test]
fn any_change_of_a_watched_key_aborts_exec() {
    let door = Door::start(&[]);
    let (mut sql, mut client, mut other) = (
        door.cluster.connect("postgres"),
        door.client(),
        door.client(),
    );
    let c = CACHE;
    let changes = [
        (
            "another value",
            format!("SELECT cache_set('k', 'new', NULL, '{c}')"),
            true,
        ),
        (
            "the same value",
            format!("SELECT cache_set('k', 'v', NULL, '{c}')"),
            true,
        ),
        (
            "a deadline",
            format!("SELECT cache_touch('k', '1 hour', '{c}')"),
            true,
        ),
        (
            "its removal",
            format!("SELECT cache_delete('k', '{c}')"),
            true,
        ),
        (
            "its removal, and it again",
            format!("SELECT cache_delete('k', '{c}'), cache_set('k', 'v', NULL, '{c}')"),
            true,
        ),
        ("a clear", format!("SELECT cache_clear('{c}')"), true),
        (
            "removal by a prefix",
            format!("SELECT cache_delete_prefix('', '{c}')"),
            true,
        ),
        (
            "another key",
            format!("SELECT cache_set('another', 'v', NULL, '{c}')"),
            false,
        ),
        ("a look", format!("SELECT cache_get('k', '{c}')"), false),
    ];
    for (what, statement, aborts) in changes {
        client.ask(&["SET", "k", "v"]);
        client.ask(&["WATCH", "k"]);
        sql.run(&statement);
        client.ask(&["MULTI"]);
        client.ask(&["SET", "done", what]);
        let reply = client.ask(&["EXEC"]);
        assert_eq!(reply == Reply::Null, aborts, "{what}: {reply:?}");
    }
    // Watch a missing key that is set, a key that expires, a key that the same client changes, and a key that another
    // client changes.
    let run = |client: &mut Client| {
        client.ask(&["MULTI"]);
        client.ask(&["PING"]);
        client.ask(&["EXEC"])
    };
    client.ask(&["DEL", "k"]);
    client.ask(&["WATCH", "k"]);
    other.ask(&["SETNX", "k", "v"]);
    assert_eq!(run(&mut client), Reply::Null);
    client.ask(&["SET", "k", "v", "PX", "30"]);
    client.ask(&["WATCH", "k"]);
    std::thread::sleep(std::time::Duration::from_millis(40));
    assert_eq!(run(&mut client), Reply::Null);
    client.ask(&["SET", "k", "v"]);
    client.ask(&["WATCH", "k"]);
    client.ask(&["SET", "k", "v"]);
    assert_eq!(run(&mut client), Reply::Null);
    client.ask(&["WATCH", "k"]);
    client.ask(&["SET", "k", "v"]);
    client.ask(&["UNWATCH"]);
    assert_eq!(run(&mut client), Reply::Array(vec![Reply::status("PONG")]));
    client.ask(&["WATCH", "k"]);
    other.ask(&["EXPIRE", "k", "100"]);
    assert_eq!(run(&mut client), Reply::Null);
    assert_eq!(run(&mut client), Reply::Array(vec![Reply::status("PONG")]));
}

#[test]
fn counters_lose_nothing_between_sql_and_redis() {
    const TIMES: usize = 2_000;
    let door = Door::start(&[]);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                let mut client = door.client();
                for _ in 0..TIMES {
                    client.ask(&["INCR", "n"]);
                }
            });
        }
        threads.spawn(|| {
            let mut sql = door.cluster.connect("postgres");
            for _ in 0..TIMES {
                sql.run(&format!("SELECT cache_incr('n', 1, NULL, '{CACHE}')"));
            }
        });
    });
    assert_eq!(
        door.client().ask(&["GET", "n"]),
        Reply::bulk((4 * TIMES).to_string())
    );
}
