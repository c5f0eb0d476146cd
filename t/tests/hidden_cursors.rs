//! Tests that the settings and the role with which a cursor was opened decide whether it shows expired rows. Later
//! changes of the settings or the role do not affect it.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::parallel;
use pgcache_tests::wait::wait_until;
use postgres::Client;

const SHOW: &str = "SET pgcache.show_expired = on";
const HIDE: &str = "SET pgcache.show_expired = off";

/// Creates a cache with one live row and one expired row.
fn scene<'c>(cluster: &'c Cluster) -> (Database<'c>, Client) {
    let database = cluster.database();
    let mut session = database.connect();
    session.run(
        "SELECT cache_create('c', '1 hour', grace => '1 day');
         INSERT INTO c VALUES ('dead', 'v', clock_timestamp() - interval '1 minute'), ('live', 'v', NULL)",
    );
    (database, session)
}

/// Returns the remaining keys of a cursor.
fn rest(session: &mut Client, cursor: &str) -> Vec<String> {
    session.lines(&format!("FETCH ALL FROM {cursor}"))
}

#[test]
fn a_cursor_of_a_security_definer_function_hides_them_for_any_caller() {
    let (database, mut owner) = scene(Cluster::shared());
    owner.run(
        "CREATE FUNCTION opened(refcursor) RETURNS refcursor SECURITY DEFINER LANGUAGE plpgsql AS
             'BEGIN OPEN $1 FOR SELECT key FROM public.c ORDER BY key; RETURN $1; END';
         CREATE FUNCTION prepared(refcursor) RETURNS refcursor SECURITY DEFINER LANGUAGE plpgsql AS
             'BEGIN OPEN $1 FOR EXECUTE ''SELECT key FROM public.c ORDER BY key''; RETURN $1; END';
         CREATE FUNCTION declared() RETURNS void SECURITY DEFINER LANGUAGE sql AS
             'DECLARE d CURSOR FOR SELECT key FROM public.c ORDER BY key;
              DECLARE h CURSOR WITH HOLD FOR SELECT key FROM public.c ORDER BY key'",
    );
    let mut caller = database.connect_as(&database.cluster.role());
    caller.run("SELECT cache_forever()");
    caller.run(SHOW);
    // In the second round the functions use saved plans.
    for round in 0..2 {
        caller.run("BEGIN; SELECT opened('o'), prepared('p'); SELECT declared()");
        for cursor in ["o", "p", "d"] {
            assert_eq!(rest(&mut caller, cursor), ["live"], "{cursor}, {round}");
        }
        caller.run("COMMIT");
        assert_eq!(rest(&mut caller, "h"), ["live"], "{round}");
        caller.run("CLOSE h");
    }
}

#[test]
fn a_cursor_keeps_the_setting_under_which_it_was_opened() {
    let (_database, mut session) = scene(Cluster::shared());
    session.run(
        "CREATE FUNCTION shows(refcursor) RETURNS refcursor SET pgcache.show_expired = on LANGUAGE plpgsql AS
             'BEGIN OPEN $1 FOR SELECT key FROM c ORDER BY key; RETURN $1; END';
         CREATE FUNCTION hides(refcursor) RETURNS refcursor SET pgcache.show_expired = off LANGUAGE plpgsql AS
             'BEGIN OPEN $1 FOR SELECT key FROM c ORDER BY key; RETURN $1; END';
         CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM c); END'",
    );
    let (all, live) = (["dead", "live"], ["live"]);
    // Some cursors are not read before the setting changes. One is read partly before and partly after the change.
    session.run("BEGIN; DECLARE hid CURSOR FOR SELECT key FROM c ORDER BY key");
    session.run("DECLARE held CURSOR WITH HOLD FOR SELECT key FROM c ORDER BY key");
    session.run(SHOW);
    session.run("DECLARE shown SCROLL CURSOR FOR SELECT key FROM c ORDER BY key");
    session.run("DECLARE inner_ones CURSOR FOR SELECT counted() FROM generate_series(1, 2)");
    session.run("SELECT hides('h')");
    assert_eq!(rest(&mut session, "hid"), live);
    assert_eq!(rest(&mut session, "h"), live);
    session.run(HIDE);
    session.run("SELECT shows('s')");
    assert_eq!(rest(&mut session, "s"), all);
    assert_eq!(session.lines("FETCH 1 FROM shown"), ["dead"]);
    assert_eq!(rest(&mut session, "shown"), ["live"]);
    session.run("MOVE ABSOLUTE 0 IN shown");
    assert_eq!(rest(&mut session, "shown"), all);
    // The statements inside a function begin when the function is called, so they use the settings of that moment.
    assert_eq!(session.lines("FETCH 1 FROM inner_ones"), ["1"]);
    session.run(SHOW);
    assert_eq!(session.lines("FETCH 1 FROM inner_ones"), ["2"]);
    session.run("COMMIT");
    assert_eq!(rest(&mut session, "held"), live);
    session.run("CLOSE held");
    // An error between two fetches leaves no state behind.
    session.run("BEGIN; DECLARE shown CURSOR FOR SELECT key FROM c ORDER BY key; SAVEPOINT s");
    assert!(
        session
            .try_lines("SELECT 1 / count(*) FROM c WHERE key = ''")
            .is_err()
    );
    session.run("ROLLBACK TO s");
    session.run(HIDE);
    assert_eq!(session.number("SELECT count(*) FROM c"), 1);
    assert_eq!(rest(&mut session, "shown"), all);
    session.run("ROLLBACK");
}

#[test]
fn a_portal_of_the_protocol_keeps_the_setting_under_which_it_was_bound() {
    let (_database, mut session) = scene(Cluster::shared());
    session.run("INSERT INTO c SELECT 'dead ' || n, 'v', clock_timestamp() - interval '1 minute' FROM generate_series(1, 1000) AS n");
    session.run("ALTER TABLE c SET (parallel_workers = 2)");
    parallel::always(&mut session);
    session.run("SET parallel_leader_participation = off");
    let query = "SELECT key FROM c";
    assert!(parallel::is_planned(&mut session, query));
    let statement = session.prepare(query).unwrap();
    for (bound, fetched, rows) in [(HIDE, SHOW, 1), (SHOW, HIDE, 1002)] {
        session.run(bound);
        let mut transaction = session.transaction().unwrap();
        let (whole, parts) = (
            transaction.bind(&statement, &[]).unwrap(),
            transaction.bind(&statement, &[]).unwrap(),
        );
        transaction.simple_query(fetched).unwrap();
        assert_eq!(
            transaction.query_portal(&whole, 0).unwrap().len(),
            rows,
            "{bound}"
        );
        let first = transaction.query_portal(&parts, 1).unwrap().len();
        let rest = transaction.query_portal(&parts, 0).unwrap().len();
        assert_eq!(first + rest, rows, "{bound}");
        transaction.commit().unwrap();
    }
}

#[test]
fn a_cursor_that_a_cascade_reads_hides_the_same_rows_as_when_opened() {
    let (_database, mut session) = scene(Cluster::shared());
    session.run(
        "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1);
         CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE); INSERT INTO child VALUES (1);
         CREATE TABLE read (key text);
         CREATE FUNCTION reads() RETURNS trigger LANGUAGE plpgsql AS
             'DECLARE opened refcursor := ''o''; own CURSOR FOR SELECT ''own '' || key FROM c; k text;
              BEGIN
                  LOOP FETCH opened INTO k; EXIT WHEN NOT FOUND; INSERT INTO read VALUES (k); END LOOP;
                  OPEN own;
                  LOOP FETCH own INTO k; EXIT WHEN NOT FOUND; INSERT INTO read VALUES (k); END LOOP;
                  RETURN OLD;
              END';
         CREATE TRIGGER reads BEFORE DELETE ON child FOR EACH ROW EXECUTE FUNCTION reads()",
    );
    session.run("BEGIN; DECLARE o CURSOR FOR SELECT key FROM c; DELETE FROM parent; COMMIT");
    assert_eq!(
        session.lines("SELECT key FROM read ORDER BY key"),
        ["live", "own dead", "own live"]
    );
}

#[test]
fn a_row_that_is_shown_is_still_shown_after_the_wait_for_its_writer() {
    let (database, mut session) = scene(Cluster::shared());
    let mut writer = database.connect();
    let backend = session.number("SELECT pg_backend_pid()");
    session.run(SHOW);
    writer.run("BEGIN; UPDATE c AS pgcache_c SET value = 'w' WHERE key = 'dead'");
    std::thread::scope(|scope| {
        let changed = scope.spawn(|| {
            session.lines("WITH u AS (UPDATE c SET value = value || '!' RETURNING key, value) SELECT * FROM u ORDER BY key")
        });
        wait_until("it waits for the row", || {
            let mut watch = database.connect();
            watch.holds(&format!(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {backend} AND NOT granted)"
            ))
        });
        writer.run("COMMIT");
        assert_eq!(changed.join().unwrap(), ["dead|w!", "live|v!"]);
    });
}
