//! Tests that a deletion wins over a fetch that began before it: a value loaded before the deletion is not served after
//! both have ended. In these tests the source's change is already committed, and no dependency could remove the entry.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::wait::wait_until;

const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')";
const GET: &str = "SELECT cache_get('k', 'c')";

/// Creates a source on which no entry depends, and two caches.
fn scene<'c>(cluster: &'c Cluster, storage: &str) -> Database<'c> {
    let database = cluster.database();
    let mut session = database.connect();
    session
        .run("CREATE TABLE src (k text PRIMARY KEY, v text); INSERT INTO src VALUES ('k', 'old')");
    session.run(&format!(
        "SELECT cache_create('c', storage => '{storage}'), cache_create('own')"
    ));
    database
}

/// Statements that delete the entry.
const DELETIONS: &[&str] = &[
    "SELECT cache_delete('k', 'c')",
    "SELECT cache_delete_many('{a,k,z}', 'c')",
    "SELECT cache_take('k', 'c')",
    "SELECT cache_take_bytes('k', 'c')",
    "SELECT cache_delete_prefix('', 'c')",
    "SELECT cache_delete_prefix('k', 'c')",
    "BEGIN; SELECT cache_delete('k', 'c'); SAVEPOINT s; SELECT cache_set('x', 'v', cache => 'c'); ROLLBACK TO s; COMMIT",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT cache_delete('k', 'c'); COMMIT",
];

const STORES: &[&str] = &[
    FETCH,
    "SELECT count(cache_fetch('x' || g, 'SELECT 1', cache => 'own')) FROM generate_series(1, 70) AS g; \
     SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')",
    "SELECT cache_set_leased('k', (SELECT v FROM src), (SELECT lease FROM cache_lease('k', cache => 'c')), cache => 'c')",
];

fn deleted_meanwhile(database: &Database, store: &str, deletion: &str) {
    let what = format!("{store}; {deletion}");
    let (mut loads, mut deletes) = (database.connect(), database.connect());
    let mut watch = database.connect();
    let backend = deletes.number("SELECT pg_backend_pid()");
    deletes
        .run("DELETE FROM src; INSERT INTO src VALUES ('k', 'old'); SELECT cache_delete('k', 'c')");
    loads.run(&format!("BEGIN; {store}"));
    thread::scope(|scope| {
        let deletes = scope.spawn(move || {
            deletes.run("UPDATE src SET v = 'new'");
            deletes.run("SET statement_timeout = '60s'");
            deletes.run(deletion);
        });
        let waits = format!(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = {backend} AND wait_event_type = 'Lock'"
        );
        wait_until("it is over, or waits for what is stored", || {
            deletes.is_finished() || watch.holds(&waits)
        });
        loads.run("COMMIT");
        deletes.join().expect("it deletes");
    });
    let found = loads.value(GET);
    assert_ne!(found.as_deref(), Some("old"), "{what}");
    assert_eq!(loads.text(FETCH), "new", "{what}");
}

#[test]
fn a_deletion_wins_over_a_fetch_whose_row_it_cannot_see() {
    for storage in ["unlogged", "logged", "memory"] {
        let database = scene(Cluster::hot(), storage);
        for store in STORES {
            for deletion in DELETIONS {
                deleted_meanwhile(&database, store, deletion);
            }
        }
    }
}

/// Deletions also win over fetches into a table with a user-defined trigger.
#[test]
fn a_deletion_wins_in_a_table_with_user_defined_triggers() {
    let database = scene(Cluster::hot(), "unlogged");
    database.connect().run(
        "CREATE TABLE log (k text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO public.log VALUES (OLD.key); RETURN NULL; END$$; \
         CREATE TRIGGER note AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION note()",
    );
    for store in STORES {
        for deletion in DELETIONS {
            deleted_meanwhile(&database, store, deletion);
        }
    }
    assert!(database.connect().number("SELECT count(*) FROM log") > 0);
}

/// The fetch commits, and so ends its lease, between the deletion's lookup and the deletion's commit.
#[test]
fn a_deletion_wins_over_a_fetch_that_commits_between_its_check_and_its_commit() {
    let database = scene(Cluster::hot(), "unlogged");
    let (mut loads, mut deletes) = (database.connect(), database.connect());
    for deletion in [
        "SELECT cache_delete('k', 'c')",
        "SELECT cache_delete_prefix('', 'c')",
    ] {
        for store in STORES {
            deletes.run("UPDATE src SET v = 'old'; SELECT cache_delete('k', 'c')");
            loads.run(&format!("BEGIN; {store}"));
            deletes.run("UPDATE src SET v = 'new'");
            deletes.run(&format!("BEGIN; {deletion}"));
            loads.run("COMMIT");
            deletes.run("COMMIT");
            assert_eq!(loads.value(GET), None, "{store}; {deletion}");
        }
    }
}

/// The loader has read the source. A lock makes it wait until the deletion has looked up the row.
#[test]
fn a_deletion_wins_over_a_fetch_that_stores_between_its_checks() {
    let database = scene(Cluster::hot(), "unlogged");
    let (mut gate, mut deletes) = (database.connect(), database.connect());
    for deletion in [
        "SELECT cache_delete('k', 'c')",
        "SELECT cache_delete_prefix('k', 'c')",
    ] {
        deletes.run("DELETE FROM src; INSERT INTO src VALUES ('k', 'old')");
        gate.run("SELECT pg_advisory_lock(42)");
        thread::scope(|scope| {
            let mut loads = database.connect();
            let loads = scope.spawn(move || {
                let loader = "SELECT v FROM src, pg_advisory_xact_lock_shared(42) WHERE k = $1";
                loads.text(&format!(
                    "SELECT cache_fetch('k', '{loader}', cache => 'c')"
                ))
            });
            wait_until("the loader waits", || {
                gate.holds(
                    "SELECT count(*) = 1 FROM pg_stat_activity \
                     WHERE wait_event = 'advisory' AND datname = current_database()",
                )
            });
            deletes.run("UPDATE src SET v = 'new'");
            deletes.run(&format!("BEGIN; {deletion}"));
            gate.run("SELECT pg_advisory_unlock(42)");
            assert_eq!(loads.join().expect("it is served"), "old", "{deletion}");
            deletes.run("COMMIT");
        });
        assert_eq!(deletes.value(GET), None, "{deletion}");
    }
}

/// A value that the transaction itself sets after its deletion stays, whatever other sessions store.
#[test]
fn a_value_set_after_the_deletion_stays() {
    let database = scene(Cluster::hot(), "unlogged");
    let (mut other, mut session) = (database.connect(), database.connect());
    for deletion in [
        "SELECT cache_delete('k', 'c')",
        "SELECT cache_delete_prefix('', 'c')",
    ] {
        session.run(&format!(
            "BEGIN; {deletion}; SELECT cache_set('k', 'mine', cache => 'c')"
        ));
        other.run("SELECT cache_fetch('other', 'SELECT 1', cache => 'c')");
        session.run("COMMIT");
        assert_eq!(session.text(GET), "mine", "{deletion}");
        session.run("SELECT cache_delete_prefix('', 'c')");
        // If the set is rolled back with its savepoint, the deletion counts again.
        other.run("BEGIN; SELECT cache_fetch('k', 'SELECT ''theirs''', cache => 'c')");
        session.run(&format!("BEGIN; {deletion}; COMMIT").replace("COMMIT", "SAVEPOINT s"));
        session.run("ROLLBACK TO s");
        thread::scope(|scope| {
            let session = &mut session;
            let commits = scope.spawn(move || session.run("COMMIT"));
            thread::sleep(Duration::from_millis(100));
            other.run("COMMIT");
            commits.join().expect("it commits");
        });
        assert_eq!(session.value(GET), None, "{deletion}");
    }
}

/// Runs all kinds of deletions and stores at once, repeatedly.
#[test]
fn no_deletion_of_many_leaves_the_old_value() {
    for storage in ["unlogged", "memory"] {
        let database = scene(Cluster::hot(), storage);
        let (mut loads, mut leases) = (database.connect(), database.connect());
        let mut deletes = database.connect();
        let barrier = Barrier::new(3);
        let mut stale = 0;
        const ROUNDS: i64 = 400;
        thread::scope(|scope| {
            let barrier = &barrier;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    loads.run(FETCH);
                    barrier.wait();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    let lease = leases.value("SELECT lease FROM cache_lease('k', cache => 'c')");
                    // The value is loaded under the lease.
                    let loaded = leases.text("SELECT v FROM src");
                    if let Some(lease) = lease {
                        leases.run(&format!(
                            "SELECT cache_set_leased('k', '{loaded}', {lease}, cache => 'c')"
                        ));
                    }
                    barrier.wait();
                }
            });
            for round in 0..ROUNDS {
                barrier.wait();
                deletes.run(&format!("UPDATE src SET v = 'round {round}'"));
                deletes.run("SELECT cache_delete('k', 'c')");
                barrier.wait();
                let found = deletes.value(GET);
                stale += i64::from(found.is_some_and(|found| found != format!("round {round}")));
                deletes.run("SELECT cache_delete('k', 'c')");
            }
        });
        assert_eq!(stale, 0, "of {ROUNDS} rounds, {storage}");
    }
}

/// Deletes in an open transaction while another session stores values. Returns the value that the other session finds
/// under `k` after the commit.
fn after_a_deletion(deletion: &str, meanwhile: &str) -> Option<String> {
    let database = scene(Cluster::hot(), "unlogged");
    let (mut deletes, mut other) = (database.connect(), database.connect());
    deletes.run(&format!("BEGIN; {deletion}"));
    other.run(meanwhile);
    other.run("SELECT cache_fetch('q', 'SELECT $1', cache => 'c')");
    deletes.run("COMMIT");
    other.value(GET)
}

#[test]
fn a_deletion_that_was_rolled_back_removes_nothing() {
    let set = "SELECT cache_set('k', 'kept', cache => 'c')";
    for deletion in [
        "SAVEPOINT s; SELECT cache_delete('k', 'c'); ROLLBACK TO s",
        "SAVEPOINT s; SELECT cache_delete_prefix('', 'c'); ROLLBACK TO s",
        "SAVEPOINT s; SELECT cache_delete('k', 'c'), cache_set('k', 'own', cache => 'c'); ROLLBACK TO s",
        "DO 'BEGIN PERFORM cache_delete(''k'', ''c''); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END'",
    ] {
        let found = after_a_deletion(deletion, set);
        assert_eq!(found.as_deref(), Some("kept"), "{deletion}");
    }
}

/// The deletion wins even if its transaction has also changed the whole cache.
#[test]
fn a_deletion_wins_beside_a_change_of_the_whole_cache() {
    let many = "SELECT cache_set_many(array_agg('x' || g), array_agg('v'::text), cache => 'c') FROM generate_series(1, 10001) AS g";
    let database = scene(Cluster::hot(), "unlogged");
    for deletion in [
        "BEGIN; SELECT cache_delete('k', 'c'); ALTER TABLE c SET (fillfactor = 90); COMMIT",
        "BEGIN; ALTER TABLE c SET (fillfactor = 80); SELECT cache_delete('k', 'c'); COMMIT",
        "BEGIN; ALTER TABLE c SET (fillfactor = 70); SELECT cache_delete_prefix('k', 'c'); COMMIT",
        "BEGIN; SAVEPOINT s; SELECT cache_set('k', 'x', cache => 'c'); ROLLBACK TO s; SELECT cache_delete_prefix('', 'c'); COMMIT",
        &format!("BEGIN; {many}; SELECT cache_delete('k', 'c'); COMMIT"),
        &format!("BEGIN; SELECT cache_delete('k', 'c'); {many}; COMMIT"),
        &format!("BEGIN; {many}; SELECT cache_delete_prefix('k', 'c'); COMMIT"),
    ] {
        deleted_meanwhile(&database, FETCH, deletion);
    }
}
