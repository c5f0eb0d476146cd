//! Tests fetches on a server without preload, where heavyweight locks replace leases. Fetches and commits wait for
//! these locks in Postgres' queue, and no value computed from an old row remains after the commit.

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::{refused, sqlstate};
use pgcache_tests::source::{UPDATE, session, with_source};
use pgcache_tests::wait::wait_until;
use postgres::Client;

const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')";
/// A fetch whose loader returns a value that no other session loads.
const MINE: &str = "SELECT cache_fetch('k', 'SELECT ''mine''', cache => 'c')";

fn unloaded() -> &'static Cluster {
    Cluster::with(&[
        "deadlock_timeout = '200ms'",
        "shared_preload_libraries = ''",
    ])
}

/// Waits until a session queues for the lock of a key (kind 3) or of a cache (kind 6).
fn wait_for_queue(watch: &mut Client, kind: i32, mode: &str) {
    let queued = format!(
        "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = {kind} \
         AND mode = '{mode}' AND NOT granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    wait_until("a session waits in the queue", || watch.holds(&queued));
}

/// Opens a session that has loaded the key. Its transaction stays open.
fn loading(database: &Database) -> Client {
    let mut loader = session(database);
    loader.run("SET idle_in_transaction_session_timeout = '90s'; BEGIN; SAVEPOINT s");
    assert_eq!(loader.text(FETCH), "old");
    loader
}

#[test]
fn a_fetch_waits_in_the_queue_and_keeps_no_lock() {
    let database = with_source(unloaded(), "unlogged");
    let (mut loader, mut watch) = (loading(&database), session(&database));
    let mut next = session(&database);
    next.run("BEGIN");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| next.text(MINE));
        wait_for_queue(&mut watch, 3, "RowShareLock");
        loader.run("COMMIT");
        assert_eq!(waiting.join().expect("it finds the value"), "old");
    });
    // The transaction of `next` is open but holds no lock of the key.
    watch.run("SET lock_timeout = '10s'");
    watch.run(UPDATE);
    assert_eq!(next.text(FETCH), "new");
    next.run("COMMIT");
}

#[test]
fn a_fetch_waits_no_longer_than_its_settings_say() {
    let database = with_source(unloaded(), "unlogged");
    let mut loader = loading(&database);
    for longest in [
        "pgcache.fetch_wait = '300ms'",
        "lock_timeout = '300ms'",
        "lock_timeout = '1h'; SET pgcache.fetch_wait = '300ms'",
    ] {
        let mut next = session(&database);
        next.run(&format!("SET {longest}"));
        let before = next.text("SHOW lock_timeout");
        assert_eq!(next.text(MINE), "mine", "{longest}");
        assert_eq!(next.text("SHOW lock_timeout"), before, "{longest}");
    }
    let mut next = session(&database);
    next.run("SET statement_timeout = '300ms'");
    refused(next.try_value(MINE), "57014");
    assert_eq!(next.text("SHOW lock_timeout"), "0");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| session(&database).try_value(MINE));
        let mut watch = session(&database);
        wait_for_queue(&mut watch, 3, "RowShareLock");
        watch.run("SELECT pg_cancel_backend(pid) FROM pg_locks WHERE objsubid = 3 AND NOT granted");
        refused(waiting.join().expect("no panic"), "57014");
    });
    loader.run("COMMIT");
    assert_eq!(next.text("SELECT cache_get('k', 'c')"), "old");
}

/// The lock's holder waits for a lock of the session that waits for it. Postgres detects this deadlock.
#[test]
fn a_fetch_in_a_deadlock_loads_for_itself() {
    let database = with_source(unloaded(), "unlogged");
    let (mut loader, mut next) = (loading(&database), session(&database));
    next.run("SELECT pg_advisory_lock(7)");
    thread::scope(|scope| {
        let holder = scope.spawn(move || {
            loader.run("SET deadlock_timeout = '1h'");
            loader.run("SELECT pg_advisory_xact_lock(7); COMMIT");
        });
        let mut watch = session(&database);
        wait_until("the holder waits", || {
            watch.holds("SELECT count(*) > 0 FROM pg_locks WHERE objid = 7 AND NOT granted")
        });
        assert_eq!(next.text(MINE), "mine");
        next.run("SELECT pg_advisory_unlock(7)");
        holder.join().expect("the holder gets the lock");
    });
    assert_eq!(next.text("SELECT cache_get('k', 'c')"), "old");
}

/// A commit that changes too many keys to lock each of them waits for the lock of the whole cache.
#[test]
fn a_commit_of_many_keys_waits_in_the_queue_for_all_loaders_of_the_cache() {
    for end in ["COMMIT", "ROLLBACK TO s", "ROLLBACK"] {
        let database = with_source(unloaded(), "unlogged");
        let mut watch = session(&database);
        watch.run("INSERT INTO src SELECT 'x' || g, 'old' FROM generate_series(1, 70) AS g");
        let mut loader = loading(&database);
        thread::scope(|scope| {
            let writer = scope.spawn(|| session(&database).run("UPDATE src SET v = 'new'"));
            wait_for_queue(&mut watch, 6, "ExclusiveLock");
            let other = FETCH.replace("('k'", "('l'");
            assert_eq!(watch.text(&other), "old");
            assert_eq!(watch.value("SELECT cache_get('l', 'c')"), None, "{end}");
            loader.run(end);
            writer.join().expect("it commits");
        });
        assert_eq!(watch.value("SELECT cache_get('k', 'c')"), None, "{end}");
        assert_eq!(watch.text(FETCH), "new", "{end}");
    }
}

/// A loader and a writer wait for each other, before or after the loader has read the row that the writer changes.
/// Postgres may abort one of the two transactions. Either the change fails, or no old value remains.
#[test]
fn a_deadlock_of_a_loader_and_a_commit_leaves_nothing_old() {
    for (change, loader) in [
        (UPDATE, "SELECT v FROM src WHERE k = $1 FOR UPDATE"),
        (UPDATE, "SELECT read_then_wait($1)"),
        ("TRUNCATE src", "SELECT v FROM src WHERE k = $1"),
        ("TRUNCATE src", "SELECT read_then_wait($1)"),
    ] {
        let database = with_source(unloaded(), "unlogged");
        let mut writer = session(&database);
        writer.run(
            "CREATE TABLE other (x int); INSERT INTO other VALUES (1); \
             CREATE FUNCTION read_then_wait(key text) RETURNS text LANGUAGE plpgsql AS $f$ DECLARE found text; \
             BEGIN SELECT v INTO found FROM src WHERE k = key; PERFORM x FROM other FOR UPDATE; RETURN found; END $f$",
        );
        writer.run(&format!("BEGIN; UPDATE other SET x = 2; {change}"));
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let fetch = format!("SELECT cache_fetch('k', '{loader}', cache => 'c')");
                session(&database).try_value(&fetch)
            });
            let mut watch = session(&database);
            wait_until("the loader waits", || {
                watch.holds(
                    "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                     AND datname = current_database()",
                )
            });
            let committed = writer.try_lines("COMMIT").map(drop);
            let loaded = reader.join().expect("no panic").map(drop);
            match (committed, loaded) {
                (Err(_), Err(_)) => panic!("both fail: {change}, {loader}"),
                (Err(error), _) | (_, Err(error)) => assert_eq!(sqlstate(&error), "40P01"),
                _ => {}
            }
        });
        let mut after = session(&database);
        let source = after.value("SELECT (SELECT v FROM src WHERE k = 'k')");
        let left = after.value("SELECT cache_get('k', 'c')");
        assert!(left.is_none() || left == source, "{loader}: {left:?}");
        assert_eq!(after.value(FETCH), source, "{loader}");
    }
}
