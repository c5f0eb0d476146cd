//! Tests values that are loaded while their source changes: whichever session waits, the cache converges to the source.
//! Commits wait for a synchronous standby that never answers, until the test cancels the wait.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::source::{UPDATE, session, with_source};
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

const STORAGES: [&str; 2] = ["unlogged", "logged"];
const NOBODY: &str = "synchronous_standby_names = 'nobody'";
/// Only a session that sets synchronous_commit waits for the standby.
const LOCAL: &str = "synchronous_commit = local";
const LOADER: &str = "SELECT v FROM src WHERE k = $1";
/// A loader that reads the source and then waits at the gate.
const GATED: &str = "SELECT pass(v) FROM src WHERE k = $1";

fn hanging() -> &'static Cluster {
    Cluster::hot_with(&[NOBODY, LOCAL, "pgcache.hot_size = '256MB'"])
}

fn unloaded() -> &'static Cluster {
    Cluster::with(&[NOBODY, LOCAL, "shared_preload_libraries = ''"])
}

/// Creates a source with its cache, and a gate at which loaders can wait.
fn with_gate<'c>(cluster: &'c Cluster, storage: &str) -> Database<'c> {
    let database = with_source(cluster, storage);
    database.connect().run(
        "CREATE FUNCTION pass(value text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_advisory_lock_shared(42); PERFORM pg_advisory_unlock_shared(42); RETURN value; END $$",
    );
    database
}

const HANGING: &str =
    "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()";

/// Cancels the commit's wait for the standby when it is dropped, even after a failed assertion.
struct End(Client);

impl Drop for End {
    fn drop(&mut self) {
        drop(
            self.0
                .try_value(&format!("SELECT pg_cancel_backend(pid) {HANGING}")),
        );
    }
}

/// Runs `meanwhile` while the commit of `change` waits, and then ends that wait.
fn during(database: &Database, change: &str, meanwhile: impl FnOnce()) {
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = session(database);
            writer.run("SET synchronous_commit = on");
            writer.run(change);
        });
        let mut watch = session(database);
        wait_until("the commit waits", || {
            watch.holds(&format!("SELECT count(*) = 1 {HANGING}"))
        });
        let end = End(watch);
        meanwhile();
        drop(end);
        writer.join().expect("the commit stands");
    });
}

fn fetch_with(session: &mut Client, loader: &str) -> String {
    session.text(&format!(
        "SELECT cache_fetch('k', '{loader}', cache => 'c')"
    ))
}

fn fetch(session: &mut Client) -> String {
    fetch_with(session, LOADER)
}

/// Returns the value of the key in the table.
fn row(session: &mut Client) -> Option<String> {
    session.value("SELECT (SELECT value FROM c WHERE key = 'k')")
}

/// Checks that every session finds the new value, and that no copy of the old value remains.
fn converged(database: &Database, what: &str) {
    let mut session = session(database);
    let value = session.value("SELECT cache_get('k', 'c')");
    assert_ne!(value.as_deref(), Some("old"), "{what}");
    assert_eq!(fetch(&mut session), "new", "{what}");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "new", "{what}");
    wait_until("no lock is left", || {
        !session.holds(
            "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND \
         database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
    });
}

#[test]
fn a_value_loaded_during_the_sources_commit_is_returned_and_not_stored() {
    for cluster in [hanging(), unloaded()] {
        for storage in STORAGES {
            let database = with_gate(cluster, storage);
            let mut reader = session(&database);
            during(&database, UPDATE, || {
                for _ in 0..3 {
                    assert_eq!(fetch(&mut reader), "old");
                }
                assert_eq!(row(&mut reader), None);
                reader.run("BEGIN");
                assert_eq!(fetch(&mut reader), "old");
                reader.run("COMMIT");
            });
            converged(&database, storage);
        }
    }
}

fn each() -> impl Iterator<Item = (&'static Cluster, &'static str)> {
    [hanging(), unloaded()]
        .into_iter()
        .flat_map(|cluster| STORAGES.map(|storage| (cluster, storage)))
}

/// A session that holds 64 leases fetches without one. Its value is stored only if no change of the key is pending.
#[test]
fn without_a_lease_nothing_old_is_stored_while_the_source_commits() {
    for (cluster, storage) in each() {
        let database = with_gate(cluster, storage);
        let mut reader = session(&database);
        during(&database, UPDATE, || {
            reader.run("BEGIN");
            take_own_leases(&mut reader);
            assert_eq!(fetch(&mut reader), "old");
            reader.run("COMMIT");
        });
        converged(&database, storage);
    }
}

fn take_own_leases(reader: &mut Client) {
    reader.run(
        "SELECT count(cache_fetch('x' || g, 'SELECT 1', cache => 'c')) FROM generate_series(1, 70) AS g",
    );
    // Without a lease, a value is not stored if a change of the key or of the whole cache is pending.
    assert!(reader.number("SELECT count(*) FROM c WHERE key LIKE 'x%'") >= 60);
}

/// Runs a fetch whose loader reads the old value before the source changes and commits. The fetch stores after the
/// commit.
fn loaded_before(
    database: &Database,
    prepare: &(impl Fn(&mut Client) + Sync),
    change: &str,
    isolation: &str,
) {
    let mut gate = session(database);
    gate.run("SELECT pg_advisory_lock(42)");
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reader = session(database);
            reader.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            prepare(&mut reader);
            assert_eq!(fetch_with(&mut reader, GATED), "old");
            reader.run("COMMIT");
        });
        wait_until("the loader stands at the gate", || {
            gate.holds(
                "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' \
             AND datname = current_database()",
            )
        });
        let writer = scope.spawn(|| session(database).run(change));
        // Without shared memory the writer waits for the loader.
        wait_until("the writer waits, or is done", || {
            writer.is_finished()
                || gate.holds(
                    "SELECT count(*) = 2 FROM pg_stat_activity \
             WHERE state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()",
                )
        });
        sleep(Duration::from_millis(30));
        gate.run("SELECT pg_advisory_unlock(42)");
        reader.join().expect("the reader is served");
        writer.join().expect("the writer commits");
    });
}

#[test]
fn a_value_loaded_before_the_source_changed_is_not_stored_after_it() {
    for cluster in [hanging(), unloaded()] {
        for storage in STORAGES {
            let database = with_gate(cluster, storage);
            loaded_before(&database, &|_| (), UPDATE, "READ COMMITTED");
            converged(&database, storage);
        }
    }
}

#[test]
fn a_value_loaded_without_a_lease_before_the_source_changed_is_not_stored_after_it() {
    for cluster in [hanging(), unloaded()] {
        for storage in STORAGES {
            let database = with_gate(cluster, storage);
            loaded_before(&database, &take_own_leases, UPDATE, "READ COMMITTED");
            converged(&database, storage);
        }
    }
}

/// Another session has taken leases until it gets no more. Tests a table and a memory cache, with every kind of change.
#[test]
fn with_all_records_taken_nothing_old_is_stored() {
    let cluster = Cluster::with_tier(&[NOBODY, LOCAL, "pgcache.hot_size = '2MB'"]);
    for (storage, changes) in [
        ("unlogged", vec![UPDATE]),
        (
            "memory",
            vec![
                UPDATE,
                "BEGIN; UPDATE src SET v = ''new'' WHERE k = ''k''; COMMIT; SELECT cache_delete(''k'', ''c'')",
            ],
        ),
    ] {
        for change in changes {
            let database = with_gate(cluster, storage);
            let mut other = session(&database);
            other.run("SET pgcache.lease_time = '1h'");
            other.run("SELECT cache_create('other')");
            other.run(
                "SELECT state FROM generate_series(1, 6000) AS g, \
                 LATERAL cache_lease('y' || g, cache => 'other')",
            );
            assert_eq!(
                other.value("SELECT lease FROM cache_lease('z', cache => 'other')"),
                None
            );
            loaded_before(
                &database,
                &|_| (),
                &change.replace("''", "'"),
                "READ COMMITTED",
            );
            converged(&database, storage);
            if storage == "unlogged" {
                other.run("UPDATE src SET v = 'old' WHERE k = 'k'");
                let mut reader = session(&database);
                during(&database, UPDATE, || assert_eq!(fetch(&mut reader), "old"));
                converged(&database, storage);
            }
            other.run("SELECT cache_clear('other')");
        }
    }
}

/// When the source changes, the row with the old value is written and not committed. The writer of the source cannot
/// see that row, so it waits for the row's transaction.
#[test]
fn an_old_value_that_is_stored_and_not_committed_goes_with_the_change_of_its_source() {
    for cluster in [hanging(), unloaded()] {
        for storage in STORAGES {
            for leased in [true, false] {
                let database = with_gate(cluster, storage);
                let mut reader = session(&database);
                reader.run("BEGIN");
                if !leased {
                    take_own_leases(&mut reader);
                }
                assert_eq!(fetch(&mut reader), "old");
                commits_before(&database, &mut reader);
                converged(&database, storage);
            }
        }
    }
}

/// Changes the source in another session, and commits the reader's transaction shortly afterwards. Then the writer can
/// commit, too.
fn commits_before(database: &Database, reader: &mut Client) {
    thread::scope(|scope| {
        let writer = scope.spawn(|| session(database).run(UPDATE));
        sleep(Duration::from_millis(100));
        reader.run("COMMIT");
        writer.join().expect("it commits");
    });
}

#[test]
fn an_uncommitted_old_value_of_a_client_goes_with_the_change_of_its_source() {
    for storage in STORAGES {
        let database = with_gate(hanging(), storage);
        let mut client = session(&database);
        let lease = client.text("SELECT lease FROM cache_lease('k', cache => 'c')");
        client.run("BEGIN");
        assert!(client.holds(&format!(
            "SELECT cache_set_leased('k', 'old', {lease}, cache => 'c')"
        )));
        commits_before(&database, &mut client);
        converged(&database, storage);
    }
}

/// The commit of the old value waits for a standby while the source changes.
#[test]
fn an_old_value_whose_commit_waits_goes_with_the_change_of_its_source() {
    let database = with_gate(hanging(), "logged");
    let get = format!("SELECT cache_fetch('k', '{LOADER}', cache => 'c')");
    thread::scope(|scope| {
        let mut writer = None;
        during(&database, &get, || {
            writer = Some(scope.spawn(|| session(&database).run(UPDATE)));
            sleep(Duration::from_millis(100));
        });
        let writer = writer.expect("the source has changed");
        writer.join().expect("it commits");
    });
    converged(&database, "logged");
}

/// Only the client that gets the lease computes a value. The value is not stored.
#[test]
fn a_lease_that_is_won_while_a_deletion_commits_stores_nothing() {
    let rest = "BEGIN; UPDATE src SET v = 'new'; ";
    for storage in STORAGES {
        for deletion in [
            "SELECT cache_delete('k', 'c')",
            "SELECT cache_delete_prefix('k', 'c')",
        ] {
            let database = with_gate(hanging(), storage);
            let (mut client, mut other) = (session(&database), session(&database));
            client.run("SELECT cache_undepend('src', 'c')");
            let ask = "SELECT state, lease FROM cache_lease('k', cache => 'c')";
            let mut lease = String::new();
            during(&database, &format!("{rest}{deletion}; COMMIT"), || {
                let won = client.lines(ask).remove(0);
                let (state, number) = won.split_once('|').expect("two columns");
                assert_eq!(state, "win");
                lease = number.to_owned();
                assert_eq!(other.lines(ask), ["busy|"]);
                assert!(!stores(&mut client, &lease));
                assert_eq!(fetch(&mut client), "old");
                assert_eq!(row(&mut client), None);
            });
            assert!(!stores(&mut client, &lease), "{storage}: {deletion}");
            let next = other.lines(ask).remove(0);
            let (state, number) = next.split_once('|').expect("two columns");
            assert_eq!(state, "win", "{storage}: {deletion}");
            assert!(stores(&mut client, number));
        }
    }
}

fn stores(session: &mut Client, lease: &str) -> bool {
    session.holds(&format!(
        "SELECT cache_set_leased('k', 'old', {lease}, cache => 'c')"
    ))
}

/// The fetching session's snapshot is older than the source's change and the removal. The fetch stores nothing,
/// although its session has already processed the messages about both.
#[test]
fn a_fetch_under_an_old_snapshot_stores_nothing_that_was_removed_since() {
    for storage in ["unlogged", "logged", "memory"] {
        for removal in [
            "cache_delete('k', 'c')",
            "cache_delete_prefix('k', 'c')",
            "cache_clear('c')",
        ] {
            let database = with_gate(hanging(), storage);
            let mut reader = session(&database);
            reader.run("SELECT cache_undepend('src', 'c')");
            reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
            assert_eq!(reader.text("SELECT v FROM src WHERE k = 'k'"), "old");
            session(&database).run(&format!("{UPDATE}; SELECT {removal}"));
            assert_eq!(fetch(&mut reader), "old");
            reader.run("COMMIT");
            converged(&database, removal);
        }
    }
}

/// The change has more than 10,000 keys, so it marks the whole cache. The test runs with a slot, and with all slots
/// taken.
#[test]
fn a_whole_cache_that_is_marked_gives_no_lease() {
    let full = Cluster::with_tier(&[NOBODY, LOCAL, "pgcache.hot_size = '2MB'"]);
    for (cluster, storage) in [
        (hanging(), "unlogged"),
        (hanging(), "logged"),
        (full, "unlogged"),
    ] {
        let database = cluster.database();
        let mut reader = session(&database);
        if !std::ptr::eq(cluster, hanging()) {
            take_slots(&mut reader);
        }
        drop(database);
        let database = with_gate(cluster, storage);
        let mut reader = session(&database);
        reader.run("INSERT INTO src SELECT 'n' || g, 'old' FROM generate_series(1, 10050) AS g");
        during(&database, "UPDATE src SET v = 'new'", || {
            assert_eq!(fetch(&mut reader), "old");
            reader.run("BEGIN");
            reader.run("SELECT count(cache_fetch('x' || g, 'SELECT 1', cache => 'c')) FROM generate_series(1, 70) AS g");
            assert_eq!(fetch(&mut reader), "old");
            reader.run("COMMIT");
            assert_eq!(row(&mut reader), None);
        });
        converged(&database, storage);
        session(&database).run("UPDATE src SET v = 'old'");
        loaded_before(
            &database,
            &|_| (),
            "UPDATE src SET v = 'new'",
            "READ COMMITTED",
        );
        converged(&database, storage);
    }
}

fn take_slots(session: &mut Client) {
    for number in 0..40 {
        drop(session.try_value(&format!(
            "SELECT cache_create('s{number}', storage => 'memory')"
        )));
        drop(session.try_value(&format!("SELECT cache_set('k', 'v', cache => 's{number}')")));
    }
    let slots = session.number(
        "SELECT count(*) FROM generate_series(0, 39) AS g WHERE \
         (SELECT hot_entries > 0 FROM pgcache.stats WHERE cache = to_regclass('s' || g))",
    );
    assert!(slots < 40, "the slots are not all taken: {slots}");
}

/// TRUNCATE of the source clears the cache.
#[test]
fn a_value_loaded_before_the_source_was_truncated_is_not_stored_after_it() {
    let other = "SELECT pass((SELECT v FROM second WHERE k = $1))";
    for cluster in [hanging(), unloaded()] {
        for storage in STORAGES {
            for leased in [true, false] {
                let database = with_gate(cluster, storage);
                session(&database).run("CREATE TABLE second AS SELECT * FROM src");
                truncated(&database, other, leased);
                let mut session = session(&database);
                let stale = session.value("SELECT cache_get('k', 'c')");
                assert_eq!(stale, None, "{storage}");
            }
        }
    }
}

fn truncated(database: &Database, loader: &str, leased: bool) {
    let mut gate = session(database);
    gate.run("SELECT pg_advisory_lock(42)");
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reader = session(database);
            if !leased {
                reader.run("BEGIN; SELECT cache_create('own')");
                reader.run("SELECT count(cache_fetch('x' || g, 'SELECT 1', cache => 'own')) FROM generate_series(1, 70) AS g");
            }
            assert_eq!(fetch_with(&mut reader, loader), "old");
            if !leased {
                reader.run("COMMIT");
            }
        });
        wait_until("the loader stands at the gate", || {
            gate.holds(
                "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' \
             AND datname = current_database()",
            )
        });
        let writer = scope.spawn(|| {
            session(database).run("BEGIN; UPDATE second SET v = 'new'; TRUNCATE src; COMMIT");
        });
        sleep(Duration::from_millis(100));
        gate.run("SELECT pg_advisory_unlock(42)");
        reader.join().expect("the reader is served");
        writer.join().expect("the writer commits");
    });
}

/// The loader reads with a snapshot that is older than the lease.
#[test]
fn a_fetch_under_an_old_snapshot_returns_its_value_and_stores_nothing_old() {
    for (cluster, storage) in [
        (hanging(), "unlogged"),
        (hanging(), "logged"),
        (hanging(), "memory"),
        (unloaded(), "unlogged"),
    ] {
        for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
            let database = with_gate(cluster, storage);
            let mut reader = session(&database);
            reader.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            assert_eq!(reader.text("SELECT v FROM src WHERE k = 'k'"), "old");
            session(&database).run(UPDATE);
            assert_eq!(fetch(&mut reader), "old");
            drop(reader.try_value("COMMIT"));
            converged(&database, storage);
        }
    }
}

/// A fetch stores its value if the source has not changed since the snapshot.
#[test]
fn a_fetch_under_a_fresh_snapshot_stores() {
    let database = with_gate(hanging(), "unlogged");
    let mut reader = session(&database);
    reader.run("SET default_transaction_isolation = 'repeatable read'");
    wait_until("the new row is stored", || {
        assert_eq!(fetch(&mut reader), "old");
        row(&mut reader).is_some()
    });
}

/// Writers and fetchers run with default settings and short pauses. Each key has one writer. After its write has
/// returned, the writer finds no older value in the cache.
#[test]
fn after_a_storm_of_writers_and_fetchers_the_cache_equals_the_source() {
    for cluster in [hanging(), unloaded()] {
        for storage in ["unlogged", "logged"] {
            let database = with_gate(cluster, storage);
            race(&database);
            let mut session = session(&database);
            let stale = "SELECT count(*) FROM c JOIN src ON src.k = c.key WHERE c.value <> src.v";
            assert_eq!(session.number(stale), 0, "{storage}");
            session.run(
                "SELECT cache_fetch(k, 'SELECT v FROM src WHERE k = $1', cache => 'c') FROM src",
            );
            assert_eq!(session.number(stale), 0, "{storage}");
        }
    }
    session(&hanging().database()).nothing_pending();
}

fn race(database: &Database) {
    let end = Instant::now() + Duration::from_secs(4);
    thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || {
                let mut session = session(database);
                let key = ["k", "l"][writer];
                for number in 0.. {
                    session.run(&format!("UPDATE src SET v = '{number}' WHERE k = '{key}'"));
                    sleep(Duration::from_micros(number * 37 % 2_000));
                    let stale = format!("key = '{key}' AND value <> '{number}'");
                    let stale = format!("SELECT count(*) FROM c WHERE {stale}");
                    assert_eq!(session.number(&stale), 0, "write {number} of {key}");
                    if Instant::now() > end {
                        break;
                    }
                }
            });
        }
        for _ in 0..4 {
            scope.spawn(move || {
                let mut session = session(database);
                while Instant::now() < end {
                    fetch(&mut session);
                    session.run(
                        "SELECT cache_fetch('l', 'SELECT v FROM src WHERE k = $1', cache => 'c')",
                    );
                }
            });
        }
    });
}
