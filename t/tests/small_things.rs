//! Tests small promises: statements can be cancelled, JIT does not compile pgcache's own statements, and counts agree
//! with scans.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;

#[test]
fn a_call_with_a_million_keys_can_be_cancelled() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('t'), cache_create('m', storage => 'memory')");
    session.run("SET statement_timeout = '1500ms'");
    for cache in ["t", "m"] {
        for call in [
            "cache_delete_many(ARRAY(SELECT 'k' || g FROM generate_series(1, 1000000) AS g), CACHE)",
            "cache_set_many(ARRAY(SELECT 'k' || g FROM generate_series(1, 1000000) AS g), \
             ARRAY(SELECT 'v' FROM generate_series(1, 1000000)), cache => CACHE)",
        ] {
            let call = call.replace("CACHE", &format!("'{cache}'"));
            let began = Instant::now();
            let result = session.try_lines(&format!("SELECT {call}"));
            let took = began.elapsed();
            if result.is_err() {
                refused(result, "57014");
            }
            assert!(took < Duration::from_secs(6), "{call} took {took:?}");
        }
    }
}

#[test]
fn no_statement_of_pgcache_is_compiled() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE t (key text PRIMARY KEY, value text, expires_at timestamptz);
         INSERT INTO t SELECT 'k' || g, 'v' FROM generate_series(1, 5000) AS g; ANALYZE t;
         SELECT cache_attach('t');
         SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0; SET jit_optimize_above_cost = 0;
         LOAD 'pgcache'",
    );
    // Postgres loads the JIT provider when it compiles the first statement.
    let loaded = "SELECT count(*) FROM pg_catalog.regexp_split_to_table(pg_read_file('/proc/' || pg_backend_pid() || '/maps'), E'\\n') AS l
        WHERE l LIKE '%llvmjit%'";
    session.run("SET jit = off");
    assert_eq!(session.number(loaded), 0);
    session.run("SET jit = on");
    for call in [
        "SELECT cache_keys('', cache => 't')",
        "SELECT cache_scan('k1', cache => 't')",
        "SELECT cache_count('t')",
        "SELECT cache_delete_prefix('k2', 't')",
        "SELECT cache_expire('t')",
    ] {
        // The calling statement costs less than this, so Postgres does not compile it.
        session.run("SET jit_above_cost = 1e9");
        session.run(call);
        session.run("SET jit = off");
        assert_eq!(session.number(loaded), 0, "{call}");
        session.run("SET jit = on");
    }
    // The control: the check detects the provider's file when Postgres uses it. Postgres 15 has the provider here,
    // other versions may be built without it.
    session.run("SET jit_above_cost = 0; SELECT sum(length(key)) FROM t WHERE value LIKE 'v%'; SET jit = off");
    let compiles = session.number(loaded) > 0;
    assert!(
        compiles || !session.holds("SELECT current_setting('server_version_num')::int < 160000")
    );
}

#[test]
fn a_count_agrees_with_a_scan_about_the_empty_key() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    for storage in ["unlogged", "logged"] {
        session.run(&format!(
            "SELECT cache_create('c', storage => '{storage}'); INSERT INTO c VALUES ('', 'v'), ('k', 'v')"
        ));
        assert_eq!(
            session.number("SELECT count(*) FROM cache_keys('', cache => 'c')"),
            1
        );
        assert_eq!(session.number("SELECT cache_count('c')"), 1);
        session.run("SELECT cache_drop('c')");
    }
    session.run(
        "CREATE TABLE n (id bigint PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('n', key_column => 'id'); INSERT INTO n VALUES (0, 'v'), (7, 'v')",
    );
    assert_eq!(session.number("SELECT cache_count('n')"), 2);
}

#[test]
fn a_rate_limit_counts_down_from_the_largest_number() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c'); SELECT cache_set('k', '-5', cache => 'c')");
    let left = session
        .text("SELECT remaining FROM cache_rate_limit('k', 9223372036854775807, '1 hour', 'c')");
    assert_eq!(left, i64::MAX.to_string());
}

#[test]
fn expiry_continues_until_nothing_is_due_or_its_time_is_over() {
    let cluster = Cluster::hot_with(&["pgcache.expire_interval = 0"]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run(
        "SELECT cache_create('c'); INSERT INTO c SELECT 'k' || g, 'v', '2020-01-01' FROM generate_series(1, 35000) AS g;
         INSERT INTO c VALUES ('live', 'v')",
    );
    let call =
        |time: &str| format!("SELECT removed || ' ' || done FROM pgcache.expire_for('{time}')");
    assert_eq!(session.text(&call("0")), "10000 false");
    assert!(cluster.log_text().contains("and more are due"));
    assert_eq!(session.text(&call("1 minute")), "25000 true");
    assert_eq!(session.text(&call("1 minute")), "0 true");
    assert_eq!(session.number("SELECT cache_count('c')"), 1);
    refused(session.try_lines(&call("-1 second")), "22023");
    refused(
        session.try_lines("BEGIN READ ONLY; SELECT pgcache.expire_for(); COMMIT"),
        "25006",
    );
    session.run("ROLLBACK");
}

/// A loaded value that the function cannot return is not stored, whatever the storage.
#[test]
fn a_fetch_that_cannot_return_its_value_stores_nothing() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    for storage in ["memory", "unlogged"] {
        session.run(&format!(
            "SELECT cache_create('text_{storage}', storage => '{storage}'), \
             cache_create('bytea_{storage}', storage => '{storage}', value_type => 'bytea')"
        ));
        for (call, kind, sqlstate) in [
            (
                "cache_fetch_json('k', $$SELECT '{'$$, cache => ",
                "text",
                "22P02",
            ),
            (
                "cache_fetch('k', $$SELECT '\\xff'::bytea$$, cache => ",
                "bytea",
                "22021",
            ),
        ] {
            let cache = format!("'{kind}_{storage}'");
            refused(
                session.try_lines(&format!("SELECT {call}{cache})")),
                sqlstate,
            );
            let left = format!("SELECT count(*) FROM cache_scan_bytes(cache => {cache})");
            assert_eq!(session.number(&left), 0, "{call}{cache}");
            // The lease has ended, too.
            let lease = format!("SELECT state FROM cache_lease('k', cache => {cache})");
            assert_eq!(session.text(&lease), "win", "{call}{cache}");
        }
    }
}

/// Bytes that are not text are not a counter either: the same error for each storage and way to the table.
#[test]
fn bytes_that_are_not_text_are_not_a_counter() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    for storage in ["memory", "unlogged"] {
        for path in ["auto", "plan"] {
            let cache = format!("'{storage}_{path}'");
            session.run(&format!(
                "SET pgcache.table_path = {path};
                 SELECT cache_create({cache}, storage => '{storage}', value_type => 'bytea');
                 SELECT cache_set_bytes('k', '\\xff31', cache => {cache})"
            ));
            for call in ["cache_incr", "cache_incr_existing"] {
                let call = format!("SELECT {call}('k', cache => {cache})");
                refused(session.try_lines(&call), "22P02");
            }
            session.run(&format!(
                "SELECT cache_set_bytes('k', '-41'::bytea, cache => {cache})"
            ));
            let call = format!("SELECT cache_incr('k', 83, cache => {cache})");
            assert_eq!(session.text(&call), "42");
        }
    }
}
