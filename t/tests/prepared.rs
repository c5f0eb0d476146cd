//! PREPARE TRANSACTION after a write to a table cache is refused.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;

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
