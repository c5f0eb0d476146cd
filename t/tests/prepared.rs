//! PREPARE TRANSACTION after a write to a table cache is refused.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::refusal::refused;
use postgres::Client;

const WRITES: &[&str] = &[
    "SELECT cache_set('k', 'v')",
    "SELECT cache_set_many('{a,b}', '{1,2}')",
    "SELECT cache_incr('n')",
    "SELECT cache_add('new', 'v')",
    "SELECT cache_touch('there', '1 hour')",
    "SELECT cache_delete('there')",
    "SELECT cache_clear('pgcache.main')",
    "INSERT INTO pgcache.main VALUES ('k', 'v')",
    "UPDATE pgcache.main SET value = 'w'",
    "DELETE FROM pgcache.main",
    "COPY pgcache.main FROM PROGRAM 'printf \"k\\tv\\t\\\\N\\n\"'",
    "MERGE INTO pgcache.main AS m USING (VALUES ('m')) AS s (key) ON m.key = s.key \
     WHEN NOT MATCHED THEN INSERT VALUES (s.key, 'v')",
    "TRUNCATE pgcache.main",
    "SET LOCAL session_replication_role = replica; DELETE FROM pgcache.main",
    "SAVEPOINT s; SELECT cache_set('k', 'v'); RELEASE s",
];

const NO_WRITES: &[&str] = &[
    "SELECT cache_get('there')",
    "SELECT * FROM cache_scan()",
    "SELECT count(*) FROM pgcache.main",
    "CREATE TABLE plain (n int); INSERT INTO plain VALUES (1); TRUNCATE plain",
];

#[test]
fn it_is_refused_after_any_write_and_allowed_again_in_the_next_transaction() {
    let mut session = Cluster::shared().database().connect();
    for write in WRITES {
        session.run("SELECT cache_set('there', 'v')");
        session.run(&format!("BEGIN; {write}"));
        let refusal = refused(session.try_value("PREPARE TRANSACTION 'written'"), "0A000");
        assert!(refusal.hint().is_some(), "{write}: no hint");
        session.run("ROLLBACK");
        session.run("BEGIN; SELECT cache_get('there'); PREPARE TRANSACTION 'next'");
        session.run("COMMIT PREPARED 'next'");
    }
}

#[test]
fn it_is_allowed_where_no_cache_was_written() {
    let mut session = Cluster::shared().database().connect();
    for (number, work) in NO_WRITES.iter().enumerate() {
        session.run(&format!(
            "BEGIN; {work}; PREPARE TRANSACTION 'read{number}'"
        ));
        session.run(&format!("COMMIT PREPARED 'read{number}'"));
    }
}

#[test]
fn a_commit_or_a_rollback_ends_the_note_of_a_write() {
    let mut session = Cluster::shared().database().connect();
    for end in ["COMMIT", "ROLLBACK"] {
        session.run(&format!("BEGIN; SELECT cache_set('k', 'v'); {end}"));
        session.run(&format!(
            "BEGIN; SELECT 1; PREPARE TRANSACTION 'after_{end}'"
        ));
        session.run(&format!("ROLLBACK PREPARED 'after_{end}'"));
    }
}

/// A row that has expired, in a cache of its own; what another session finds of it is what a sweep removes.
fn expired_row(session: &mut Client, cache: &str) {
    session.run(&format!(
        "SELECT cache_create('{cache}', storage => 'logged')"
    ));
    session.run(&format!(
        "INSERT INTO {cache} VALUES ('k', 'v', now() - interval '1 hour')"
    ));
}

/// How many advisory locks prepared transactions hold in the session's database.
fn prepared_locks(session: &mut Client) -> i64 {
    session.number(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid IS NULL \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
}

#[test]
fn a_sweep_that_is_prepared_keeps_nobody_from_sweeping_not_even_over_a_restart() {
    let cluster = Cluster::start(&["max_prepared_transactions = 10"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('c', storage => 'logged', max_entries => 10)");
    for (name, sweep) in [
        ("one", "SELECT cache_expire('c')"),
        ("all", "SELECT cache_expire()"),
        (
            "nested",
            "SAVEPOINT s; SELECT cache_expire('c'); RELEASE s; SELECT cache_expire('c')",
        ),
        (
            "undone",
            "SAVEPOINT s; SELECT cache_expire('c'); ROLLBACK TO s",
        ),
        (
            "cursor",
            "DECLARE d CURSOR FOR SELECT cache_expire('c') FROM generate_series(1, 3); FETCH 2 FROM d",
        ),
    ] {
        session.run(&format!("BEGIN; {sweep}; PREPARE TRANSACTION '{name}'"));
        assert_eq!(prepared_locks(&mut session), 0, "{name}");
    }
    cluster.restart(Shutdown::Fast);
    let mut session = cluster.connect("postgres");
    assert_eq!(prepared_locks(&mut session), 0);
    // Only who is the one sweeper trims.
    session.run("INSERT INTO c SELECT 'k' || i, 'v' FROM generate_series(1, 5000) AS i");
    session.run("SELECT cache_expire('c')");
    assert!(session.number("SELECT count(*) FROM c") <= 1010);
    for name in ["one", "all", "nested", "undone", "cursor"] {
        session.run(&format!("ROLLBACK PREPARED '{name}'"));
    }
}

#[test]
fn the_one_sweeper_of_a_cache_stays_the_one_until_his_transaction_ends() {
    let database = Cluster::shared().database();
    let (mut first, mut second) = (database.connect(), database.connect());
    first.run("SELECT cache_create('c', max_entries => 10)");
    first.run("INSERT INTO c SELECT 'k' || i, 'v' FROM generate_series(1, 5000) AS i");
    first.run("BEGIN; SELECT cache_expire('c')");
    second.run("SELECT cache_expire('c')");
    first.run("ROLLBACK");
    assert_eq!(first.number("SELECT count(*) FROM c"), 5000);
}

#[test]
fn a_fetch_that_stores_nothing_leaves_no_lock_in_a_prepared_transaction() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "SELECT cache_create('c'); CREATE FUNCTION stays_out() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN IF current_setting('test.out', true) = 'yes' THEN RETURN NULL; END IF; RETURN NEW; END$$; \
         CREATE TRIGGER stays_out BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION stays_out()",
    );
    session.run("SET test.out = 'yes'");
    session.run(
        "BEGIN; SELECT cache_fetch('k', 'SELECT 1', cache => 'c'); PREPARE TRANSACTION 'fetched'",
    );
    assert_eq!(prepared_locks(&mut other), 0);
    other.run("SET pgcache.fetch_wait = '1s'; SELECT cache_fetch('k', 'SELECT 2', cache => 'c')");
    assert_eq!(other.number("SELECT count(*) FROM c"), 1);
    session.run("ROLLBACK PREPARED 'fetched'");
    // A loader that ends in an error that is caught leaves no lease, and no lock that stands for one.
    session.run(
        "BEGIN; DO $$ BEGIN PERFORM cache_fetch('n', 'SELECT 1 / 0'); \
         EXCEPTION WHEN division_by_zero THEN END $$; PREPARE TRANSACTION 'failed'",
    );
    assert_eq!(prepared_locks(&mut other), 0);
    session.run("ROLLBACK PREPARED 'failed'");
    expired_row(&mut session, "kept");
    assert_eq!(other.number("SELECT cache_expire('kept')"), 1);
}

#[test]
fn who_asks_for_a_cache_that_is_there_keeps_its_name_from_nobody() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run("SELECT cache_create('c')");
    session
        .run("BEGIN; SELECT cache_create('c', if_not_exists => true); PREPARE TRANSACTION 'asked'");
    assert_eq!(prepared_locks(&mut other), 0);
    other.run("SET lock_timeout = '60s'; SELECT cache_create('c', if_not_exists => true)");
    session.run("ROLLBACK PREPARED 'asked'");
}
