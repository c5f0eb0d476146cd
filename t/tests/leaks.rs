//! Tests for memory leaks: after many calls of each function, including failing ones, a backend's memory is as it was
//! after the first call. `PGCACHE_LEAK_CALLS=1000000` is the long form (an hour).

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::needs::{self, Needs};
use postgres::Client;

/// The number of calls of one statement, each in its own transaction, so that no memory is held until a transaction
/// ends.
const ROUND: u64 = 200;
/// The growth that is allowed, for example for a rebuilt relcache entry, or for a plan that is made at a statement's
/// second use.
const SLACK_KB: i64 = 250;

fn calls() -> u64 {
    let given = std::env::var("PGCACHE_LEAK_CALLS").ok();
    given.map_or(2_000, |n| {
        n.parse().expect("PGCACHE_LEAK_CALLS is a number")
    })
}

/// Returns a backend's own memory in kB: the size of Postgres' contexts, and all memory that is not shared. Subtracts
/// the size of the catalog caches, which grow with every CREATE and DROP of any object.
fn memory(session: &mut Client) -> (i64, i64) {
    let contexts = session.lines(
        "SELECT (sum(total_bytes) FILTER (WHERE name <> 'CacheMemoryContext') / 1024)::bigint, \
         (sum(used_bytes) FILTER (WHERE name = 'CacheMemoryContext') / 1024)::bigint, \
         pg_backend_pid() FROM pg_backend_memory_contexts",
    );
    let numbers: Vec<i64> = contexts[0]
        .split('|')
        .map(|n| n.parse().expect("a number"))
        .collect();
    let status = std::fs::read_to_string(format!("/proc/{}/status", numbers[2]));
    let status = status.expect("the backend lives");
    let anonymous = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let anonymous = anonymous
        .expect("Linux counts it")
        .trim()
        .trim_end_matches(" kB");
    (
        numbers[0],
        anonymous.parse::<i64>().expect("a number") - numbers[1],
    )
}

/// Runs a statement repeatedly, and checks that memory does not grow after the first tenth of the rounds.
fn does_not_grow(session: &mut Client, statement: &str, rounds: u64) {
    let repeat = |times: u64, session: &mut Client| {
        for _ in 0..times {
            let done = session.try_lines(statement);
            assert!(done.is_ok(), "{statement}: {done:?}");
        }
    };
    repeat(rounds / 10 + 2, session);
    let before = memory(session);
    repeat(rounds, session);
    let after = memory(session);
    println!("{before:?} {after:?} {statement}");
    assert!(
        after.0 - before.0 < SLACK_KB && after.1 - before.1 < SLACK_KB,
        "{rounds} rounds took memory from {before:?} to {after:?} kB: {statement}"
    );
}

/// Returns a statement that makes a round of calls. If `fails`, each call fails in a PL/pgSQL block that catches the
/// error.
fn round_of(call: &str, cache: &str, fails: bool) -> String {
    let key = if fails { "''" } else { "('k' || i % 50)" };
    let call = call
        .replace("$c", &format!("'{cache}'"))
        .replace("'k'", key);
    if !fails {
        return match call.strip_prefix("count(*) FROM ") {
            Some(rows) => format!(
                "SELECT count(*) FROM generate_series(1, {ROUND}) AS i, LATERAL {rows} AS r"
            ),
            None => format!("SELECT count({call}) FROM generate_series(1, {ROUND}) AS i"),
        };
    }
    format!(
        "DO $do$BEGIN FOR i IN 1..{ROUND} LOOP BEGIN PERFORM {call}; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END$do$"
    )
}

#[test]
fn no_function_leaks_memory_whether_it_succeeds_or_fails() {
    let cluster = Cluster::start(&["autovacuum_naptime = 5s"]);
    let database = cluster.database();
    let mut maker = database.connect();
    maker.run("SELECT cache_create('c'), cache_create('j', value_type => 'jsonb')");
    let mut caches = vec!["c", "j"];
    if maker.holds("SELECT size > 0 FROM pgcache.hot_tier") {
        maker.run("SELECT cache_create('m', storage => 'memory')");
        caches.push("m");
    }
    let functions = needs::present(&mut maker);
    for cache in caches {
        let mut session = database.connect();
        for &(function, needs, call) in &functions {
            // The next test covers functions that create and drop definitions.
            if matches!(needs, Needs::Elsewhere | Needs::Trigger | Needs::Owner(_))
                || function == "cache_clear"
            {
                continue;
            }
            // The second cache only tests conversions.
            if cache == "j"
                && ![
                    "cache_get",
                    "cache_set",
                    "cache_get_bytes",
                    "cache_incr",
                    "cache_scan",
                    "cache_take_bytes",
                    "cache_lookup_many_bytes",
                    "cache_incr_existing",
                ]
                .contains(&function)
            {
                continue;
            }
            session.run(&format!(
                "SELECT cache_delete('n', '{cache}'), cache_set('k1', '1', cache => '{cache}')"
            ));
            does_not_grow(&mut session, &round_of(call, cache, false), calls() / ROUND);
            if call.contains("'k'") && cache != "j" {
                does_not_grow(
                    &mut session,
                    &round_of(call, cache, true),
                    calls() / ROUND / 10,
                );
            }
        }
    }
}

#[test]
fn making_using_and_dropping_caches_leaks_no_memory() {
    let cluster = Cluster::with_tier(&[]);
    let mut session = cluster.database().connect();
    let (rounds, tables) = (calls() / 60, ["unlogged", "memory"]);
    for storage in tables {
        does_not_grow(
            &mut session,
            &format!(
                "SELECT cache_create('c', storage => '{storage}'); SELECT cache_set('k', 'v', cache => 'c'); SELECT cache_get('k', 'c'); \
                 SELECT cache_alter('c', ttl => '1 hour'); SELECT cache_clear('c'); SELECT cache_drop('c')"
            ),
            rounds,
        );
    }
}

#[test]
fn attaching_and_detaching_leaks_no_memory() {
    let mut session = Cluster::shared().database().connect();
    does_not_grow(
        &mut session,
        "CREATE TABLE a (id bigint PRIMARY KEY, value json, e int); \
         SELECT cache_attach('a', '1 hour', 'id', 'value', 'e', expires_unit => 's'); \
         SELECT cache_set('1', '{}', cache => 'a'); SELECT cache_get('01', 'a'); \
         INSERT INTO a VALUES (1, '[]') ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value; \
         SELECT cache_detach('a'); DROP TABLE a",
        calls() / 60,
    );
}

/// In each round the previous round's rows have expired, so the statements hide and replace these rows.
#[test]
fn plain_sql_over_expired_rows_leaks_no_memory() {
    let mut session = Cluster::shared().database().connect();
    session.run(
        "CREATE TABLE words (key varchar(20) PRIMARY KEY, value text, e timestamptz);
         CREATE TABLE numbers (key bigint PRIMARY KEY, value bytea, e int);
         CREATE TABLE uuids (key uuid PRIMARY KEY, value jsonb, e bigint);
         SELECT cache_attach('words', expires_column => 'e'),
                cache_attach('numbers', expires_column => 'e', expires_unit => 's'),
                cache_attach('uuids', expires_column => 'e', expires_unit => 'ms')",
    );
    for (table, key, value, past) in [
        ("words", "'k' || i", "'v'", "now() - interval '1 hour'"),
        ("numbers", "i", "'v'", "1"),
        ("uuids", "md5(i::text)::uuid", "'{}'", "1"),
    ] {
        let write = format!(
            "INSERT INTO {table} SELECT {key}, {value}, {past} FROM generate_series(1, {ROUND}) AS i"
        );
        for statement in [
            write.clone(),
            format!("{write} ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, e = {past}"),
            format!(
                "SELECT count(*) FROM {table}; UPDATE {table} SET value = NULL; DELETE FROM {table}"
            ),
            format!(
                "DO $$BEGIN FOR i IN 1..{ROUND} LOOP PERFORM FROM {table} WHERE key = {key}; END LOOP; END$$"
            ),
        ] {
            does_not_grow(&mut session, &statement, calls() / ROUND);
        }
        let expired =
            format!("SET pgcache.show_expired = on; SELECT count(*) = {ROUND} FROM {table}");
        assert_eq!(session.lines(&expired), ["t"], "{table}");
        session.run("RESET pgcache.show_expired");
    }
}
