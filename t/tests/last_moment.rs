//! Tests user-defined triggers of a cache that fire while a commit removes entries. They must fire early enough that
//! Postgres can still close the cursors and remote connections that they leave open, or not at all.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// Creates a cache with one entry that depends on a table. The cache has a trigger that runs `body` before an entry is
/// removed.
fn cache_with_trigger(session: &mut Client, body: &str) {
    session.run(&format!(
        "SELECT cache_create('c'); CREATE TABLE source (id text PRIMARY KEY, v int); SELECT cache_depend('source', 'id', 'c');
         INSERT INTO source VALUES ('k', 1);
         CREATE TABLE many AS SELECT g AS i, repeat('x', 500) AS t FROM generate_series(1, 2000) g;
         CREATE TABLE went (key text);
         CREATE FUNCTION goes() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE r record; cursor refcursor := 'left open'; BEGIN
             INSERT INTO public.went VALUES (old.key); {body} RETURN old; END $$;
         CREATE TRIGGER goes BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION goes();
         SELECT cache_set('k', 'v', cache => 'c')"
    ));
}

/// Writes that commit in every way: as a single statement, in a transaction block, under a savepoint, in a procedure,
/// and in a deferred trigger.
const WRITES: &[&[&str]] = &[
    &["UPDATE source SET v = v + 1"],
    &[
        "BEGIN",
        "UPDATE source SET v = v + 1",
        "DECLARE own CURSOR FOR SELECT 1",
        "COMMIT",
    ],
    &[
        "BEGIN",
        "SAVEPOINT s",
        "UPDATE source SET v = v + 1",
        "ROLLBACK TO s",
        "SAVEPOINT t",
        "UPDATE source SET v = v + 1",
        "RELEASE t",
        "COMMIT",
    ],
    &["CALL writes()"],
    &["INSERT INTO first VALUES (1)"],
];

/// Runs each of `WRITES`. Checks that the commit removes the entry, fires the trigger once, leaves no cursor open and
/// does not damage the table that the trigger reads.
fn goes_each_time(session: &mut Client) {
    session.run(
        "CREATE OR REPLACE PROCEDURE writes() LANGUAGE plpgsql AS $$ BEGIN UPDATE source SET v = v + 1; COMMIT; END $$;
         CREATE OR REPLACE FUNCTION follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE source SET v = v + 1; RETURN NULL; END $$;
         DROP TABLE IF EXISTS first; CREATE TABLE first (i int);
         CREATE CONSTRAINT TRIGGER f AFTER INSERT ON first DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION follows()",
    );
    for &write in WRITES {
        session.run("TRUNCATE went; SELECT cache_set('k', 'v', cache => 'c')");
        for statement in write {
            session.run(statement);
        }
        assert_eq!(
            session.value("SELECT cache_get('k', 'c')"),
            None,
            "{write:?}"
        );
        assert_eq!(session.number("SELECT count(*) FROM went"), 1, "{write:?}");
        assert_eq!(
            session.number("SELECT count(*) FROM pg_cursors"),
            0,
            "{write:?}"
        );
        assert_eq!(
            session.number("SELECT count(*) FROM many"),
            2000,
            "{write:?}"
        );
    }
}

#[test]
fn a_cursor_that_a_trigger_leaves_open_ends_with_the_transaction() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    cache_with_trigger(
        &mut session,
        "OPEN cursor FOR SELECT * FROM public.many; FETCH cursor INTO r;",
    );
    goes_each_time(&mut session);
    refused(session.try_lines("FETCH \"left open\""), "34000");
    let log = cluster.log_text();
    assert!(!log.contains("leak"), "{log}");
}

#[test]
fn a_trigger_may_fail() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    // A Postgres with assertions crashes on an exception block inside COMMIT, even one in a deferred trigger without
    // pgcache.
    let asserts = session.text("SHOW debug_assertions") == "on";
    cache_with_trigger(
        &mut session,
        match asserts {
            true => "PERFORM 1;",
            false => "BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN PERFORM 1; END;",
        },
    );
    goes_each_time(&mut session);
    session.run(
        "CREATE OR REPLACE FUNCTION goes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / 0; RETURN old; END $$;
         SELECT cache_set('k', 'v', cache => 'c')",
    );
    for _ in 0..3 {
        refused(session.try_lines("UPDATE source SET v = v + 1"), "22012");
        assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
    }
    session.run(
        "CREATE OR REPLACE FUNCTION goes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.went VALUES (old.key); RETURN old; END $$",
    );
    goes_each_time(&mut session);
}

#[test]
fn a_trigger_may_read_a_table_of_another_server() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    if !connect_to_itself(&database, &mut session) {
        return;
    }
    cache_with_trigger(&mut session, "PERFORM i FROM public.far;");
    goes_each_time(&mut session);
    // Repeat with a postgres_fdw connection that is already open, then with the write as the first statement of a
    // session.
    session.run("SELECT i FROM far");
    goes_each_time(&mut session);
    let mut session = database.connect();
    session.run("UPDATE source SET v = v + 1");
    assert!(!cluster.log_text().contains("PANIC"));
}

/// Connects the database to itself through postgres_fdw. Returns false if this Postgres lacks postgres_fdw.
fn connect_to_itself(database: &Database, session: &mut Client) -> bool {
    let there = "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'";
    if session.number(there) == 0 {
        return false;
    }
    let (folder, port) = (
        session.text("SHOW unix_socket_directories"),
        session.text("SHOW port"),
    );
    session.run(&format!(
        "CREATE TABLE near (i int); CREATE EXTENSION postgres_fdw;
         CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{folder}', port '{port}', dbname '{}');
         CREATE USER MAPPING FOR CURRENT_USER SERVER itself OPTIONS (user 'postgres');
         CREATE FOREIGN TABLE far (i int) SERVER itself OPTIONS (table_name 'near')",
        database.name
    ));
    true
}

#[test]
fn closing_all_cursors_keeps_entries_only_where_triggers_would_run_too_late() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    cache_with_trigger(&mut session, "");
    session.run("SELECT cache_set('k', 'v', cache => 'c')");
    session.run("BEGIN; UPDATE source SET v = 2; CLOSE ALL");
    refused(session.try_lines("COMMIT"), "0A000");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
    session.run("BEGIN; UPDATE source SET v = 3; CLOSE ALL; UPDATE source SET v = 4");
    session.run("COMMIT");
    assert_eq!(session.value("SELECT cache_get('k', 'c')"), None);
    session.run("DROP TRIGGER goes ON c; SELECT cache_set('k', 'v', cache => 'c')");
    session.run("BEGIN; UPDATE source SET v = 5; CLOSE ALL");
    session.run("COMMIT");
    assert_eq!(session.value("SELECT cache_get('k', 'c')"), None);
}

/// A table cannot be altered while a cursor reads it. Postgres closes portals in the order of their names' hashes, so
/// the test tries several names.
#[test]
fn cursors_on_rows_that_a_commit_changes_are_closed_before() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    cache_with_trigger(&mut session, "");
    for name in ["a", "b", "c", "d", "e", "f"] {
        for hold in ["", "WITH HOLD"] {
            session.run("SELECT cache_set('k', 'v', cache => 'c')");
            session.run(&format!(
                "BEGIN; TRUNCATE source; DECLARE {name} CURSOR {hold} FOR SELECT key FROM c; FETCH {name}"
            ));
            session.run("COMMIT");
            assert_eq!(session.value("SELECT cache_get('k', 'c')"), None);
            session.run(&format!(
                "BEGIN; CREATE TABLE child () INHERITS (source); DECLARE {name}{name} CURSOR {hold} FOR SELECT * FROM source"
            ));
            session.run("COMMIT");
            session.run("SELECT cache_set('x', 'v', cache => 'c'); INSERT INTO child VALUES ('x')");
            assert_eq!(session.value("SELECT cache_get('x', 'c')"), None);
            session.run("CLOSE ALL; DROP TABLE child");
        }
    }
}
