//! Tests that a client can distribute keys over several servers: client and servers agree on the server of each key, a
//! server that is down affects only its own keys, and a server that is added takes over only its share. The client's
//! arithmetic is the Python of docs/scaling.md.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::readme::page;
use pgcache_tests::refusal::refused;
use postgres::{Client, Error};

const PARTS: usize = 1024;

/// Runs the page's programs, one after the other, and then these lines. Returns the output.
fn python(lines: &str) -> Vec<usize> {
    let page = page("docs/scaling.md");
    let programs = page.split("```python\n").skip(1);
    let programs: Vec<&str> = programs
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(programs.len() > 3, "{} programs", programs.len());
    let mut python = Command::new("python3")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there: scripts/need.sh python");
    let asked = format!("{}\n{lines}\n", programs.join("\n"));
    let mut input = python.stdin.take().expect("asked for");
    input
        .write_all(asked.as_bytes())
        .expect("python3 reads its program");
    drop(input);
    let output = python.wait_with_output().expect("python3 ends");
    assert!(output.status.success(), "the page's programs fail");
    let lines = String::from_utf8(output.stdout).expect("numbers are ASCII");
    lines
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect()
}

/// Returns the part of each key as a client computes it; `bytes` has a Python expression for the bytes of each key.
fn computed(bytes: &[String], parts: usize) -> Vec<usize> {
    let keys = bytes.join(", ");
    let found = python(&format!(
        "for key in [{keys}]:\n    print(part_of(key, {parts}))"
    ));
    assert_eq!(found.len(), bytes.len());
    found
}

fn as_text(key: &str) -> String {
    let bytes: Vec<String> = key.bytes().map(|byte| byte.to_string()).collect();
    format!("bytes([{}])", bytes.join(", "))
}

/// A key type, the SQL that makes a key from a number, and the Python expression for the bytes of a key, given the text
/// that the server returns.
type Kind = (&'static str, &'static str, fn(&str) -> String);

const KINDS: [Kind; 4] = [
    ("text", "repeat(md5(i::text), 2)::text", as_text),
    (
        "varchar(80)",
        "left(repeat('é' || i, 20), 1 + i % 70) || i",
        as_text,
    ),
    ("uuid", "md5(i::text)::uuid", |key| {
        format!("bytes.fromhex('{}')", key.replace('-', ""))
    }),
    ("bigint", "(i - 500) * 12345678901", |key| {
        format!("four_bytes({key})")
    }),
];

#[test]
fn a_key_of_each_type_is_where_a_hash_partition_and_a_client_have_it() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    for (number, (kind, made, bytes)) in KINDS.into_iter().enumerate() {
        let (cache, whole) = (format!("c{number}"), format!("p{number}"));
        session.run(&format!(
            "CREATE TABLE {cache} (key {kind} PRIMARY KEY, value text); SELECT cache_attach('{cache}');
             CREATE TABLE {whole} (key {kind}) PARTITION BY HASH (key)"
        ));
        for remainder in 0..7 {
            session.run(&format!(
                "CREATE TABLE {whole}_{remainder} PARTITION OF {whole} FOR VALUES WITH (MODULUS 7, REMAINDER {remainder})"
            ));
        }
        session.run(&format!(
            "INSERT INTO {whole} SELECT {made} FROM generate_series(1, 1000) AS i"
        ));
        let elsewhere = session.number(&format!(
            "SELECT count(*) FROM {whole} WHERE tableoid::regclass::text <> '{whole}_' || pgcache.node_of('{cache}', key::text, 7)"
        ));
        assert_eq!(elsewhere, 0, "keys of type {kind}");
        let of = |parts| {
            format!(
                "SELECT pgcache.node_of('{cache}', key::text, {parts}) FROM {whole} ORDER BY key"
            )
        };
        let said: Vec<usize> = session
            .lines(&of(PARTS))
            .iter()
            .map(|one| one.parse().unwrap())
            .collect();
        let keys = session.lines(&format!("SELECT key FROM {whole} ORDER BY key"));
        let keys: Vec<String> = keys.iter().map(|key| bytes(key)).collect();
        assert_eq!(computed(&keys, PARTS), said, "keys of type {kind}");
        assert!(session.lines(&of(1)).iter().all(|part| part == "0"));
    }
    // All spellings of a key have the same part.
    session.run("INSERT INTO c2 SELECT key FROM p2");
    assert!(session.holds("SELECT bool_and(pgcache.node_of('c2', upper(key::text), 99) = pgcache.node_of('c2', key::text, 99)) FROM c2"));
    assert!(
        session.holds("SELECT pgcache.node_of('c3', ' +7', 99) = pgcache.node_of('c3', '7', 99)")
    );
}

#[test]
fn node_of_refuses_other_relations_and_bad_counts_of_servers() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("CREATE TABLE of_uuids (key uuid PRIMARY KEY, value text); SELECT cache_attach('of_uuids'); SELECT cache_create('c')");
    assert_eq!(session.value("SELECT pgcache.node_of('c', NULL, 3)"), None);
    for (call, state) in [
        ("pgcache.node_of('c', 'k', NULL)", "22004"),
        ("pgcache.node_of(NULL, 'k', 3)", "22004"),
        ("pgcache.node_of('c', 'k', 0)", "22023"),
        ("pgcache.node_of('c', 'k', -3)", "22023"),
        ("pgcache.node_of('c', '', 3)", "22023"),
        ("pgcache.node_of('c', repeat('k', 2049), 3)", "22001"),
        ("pgcache.node_of('of_uuids', 'k', 3)", "22P02"),
        ("pgcache.node_of('pg_class', 'k', 3)", "42809"),
        ("pgcache.node_of('pg_class', NULL, 3)", "42809"),
    ] {
        refused(session.try_lines(&format!("SELECT {call}")), state);
    }
    // The result reveals nothing about the entry: no entry is read, and no read is counted.
    assert!(session.holds("SELECT pgcache.node_of('c', 'k', 2147483647) BETWEEN 0 AND 2147483646"));
}

/// Servers that are set up as the page describes, and the server of each part.
struct Spread {
    servers: Vec<&'static Cluster>,
    parts: Vec<usize>,
}

impl Spread {
    fn of(servers: usize) -> Spread {
        let mut spread = Spread {
            servers: Vec::new(),
            parts: (0..PARTS).map(|part| part % servers).collect(),
        };
        (0..servers).for_each(|_| spread.add());
        spread
    }

    fn add(&mut self) {
        let server = Cluster::with_tier(&["pgcache.hot_size = '16MB'"]);
        server.connect("postgres").run(
            "CREATE EXTENSION pgcache;
             SELECT cache_create('kept', storage => 'logged'), cache_create('quick', storage => 'memory')",
        );
        self.servers.push(server);
    }

    fn session(&self, server: usize) -> Result<Client, Error> {
        self.servers[server].try_connect("postgres", "postgres")
    }

    /// Returns the keys by server.
    fn by_server<'k>(&self, keys: &'k BTreeMap<String, usize>) -> Vec<Vec<&'k str>> {
        let mut all = vec![Vec::new(); self.servers.len()];
        for (key, &part) in keys {
            all[self.parts[part]].push(key.as_str());
        }
        all
    }

    fn fill(&self, keys: &BTreeMap<String, usize>) {
        for (server, keys) in self.by_server(keys).iter().enumerate() {
            let mut session = self.session(server).expect("it is up");
            for cache in ["kept", "quick"] {
                session
                    .query(
                        "SELECT cache_set_many($1, $1, cache => $2::text::regclass)",
                        &[keys, &cache],
                    )
                    .expect("a batch is stored");
            }
        }
    }

    /// Returns the number of keys that are found on their servers. Counts no key of a server that is down.
    fn found(&self, keys: &BTreeMap<String, usize>, cache: &str) -> i64 {
        let count = |(server, keys): (usize, &Vec<&str>)| -> i64 {
            let Ok(mut session) = self.session(server) else {
                return 0;
            };
            session
                .query_one(
                    "SELECT count(*) FROM cache_get_many($1, $2::text::regclass) WHERE value = key",
                    &[keys, &cache],
                )
                .expect("a batch is read")
                .get(0)
        };
        self.by_server(keys).iter().enumerate().map(count).sum()
    }
}

/// Returns keys and their parts, as the page's client computes them.
fn keys() -> BTreeMap<String, usize> {
    let keys: Vec<String> = (0..3000).map(|i| format!("user:{i}")).collect();
    let bytes: Vec<String> = keys.iter().map(|key| as_text(key)).collect();
    keys.into_iter().zip(computed(&bytes, PARTS)).collect()
}

#[test]
fn a_server_that_goes_costs_its_keys_and_one_that_comes_its_share() {
    let mut spread = Spread::of(3);
    let keys = keys();
    let all = keys.len() as i64;
    spread.fill(&keys);

    // Every server agrees on which keys are its own, and no server exceeds its share by much.
    for (server, own) in spread.by_server(&keys).iter().enumerate() {
        let parts: Vec<i32> = (0..PARTS)
            .filter(|&part| spread.parts[part] == server)
            .map(|part| part as i32)
            .collect();
        let asked = "SELECT count(*) FROM kept WHERE pgcache.node_of('kept', key, 1024) = ANY ($1)";
        let counted: i64 = spread
            .session(server)
            .unwrap()
            .query_one(asked, &[&parts])
            .unwrap()
            .get(0);
        assert_eq!(counted, own.len() as i64);
        assert!(
            (900..1100).contains(&own.len()),
            "server {server} has {} keys",
            own.len()
        );
    }
    assert_eq!(
        (spread.found(&keys, "kept"), spread.found(&keys, "quick")),
        (all, all)
    );

    // Kill and restart one server.
    let lost = spread.by_server(&keys)[1].len() as i64;
    spread.servers[1].down(Shutdown::Immediate);
    assert_eq!(
        (spread.found(&keys, "kept"), spread.found(&keys, "quick")),
        (all - lost, all - lost)
    );
    spread.servers[1].up();
    assert_eq!(
        (spread.found(&keys, "kept"), spread.found(&keys, "quick")),
        (all, all - lost)
    );
    spread.fill(&keys);

    // Add a server in the way that the page describes.
    spread.add();
    let before = spread.parts.clone();
    spread.parts = python("for part in parts:\n    print(part)");
    let moved = keys
        .values()
        .filter(|&&part| spread.parts[part] == 3)
        .count() as i64;
    assert!(
        (all / 5..all * 3 / 10).contains(&moved),
        "{moved} of {all} keys move"
    );
    assert_eq!(
        (spread.found(&keys, "kept"), spread.found(&keys, "quick")),
        (all - moved, all - moved)
    );
    for (server, own) in spread.by_server(&keys).iter().enumerate() {
        assert!(
            (600..900).contains(&own.len()),
            "server {server} has {} keys",
            own.len()
        );
    }

    // Remove the moved keys from their former servers, so that they do not reappear when a part moves back.
    for server in 0..3 {
        let gone: Vec<i32> = (0..PARTS)
            .filter(|&part| spread.parts[part] == 3)
            .map(|part| part as i32)
            .collect();
        let mut session = spread.session(server).unwrap();
        session
            .execute(
                "DELETE FROM kept WHERE pgcache.node_of('kept', key, 1024) = ANY ($1)",
                &[&gone],
            )
            .unwrap();
        session
            .execute("SELECT cache_delete_many(array_agg(key), 'quick') FROM quick WHERE pgcache.node_of('quick', key, 1024) = ANY ($1)", &[&gone])
            .unwrap();
    }
    spread.parts = before;
    assert_eq!(
        (spread.found(&keys, "kept"), spread.found(&keys, "quick")),
        (all - moved, all - moved)
    );
}
