//! Tests each window of the lease protocol: one session waits between two steps, until the test releases it, while
//! another session acts. The tests are skipped unless the library was built with the cargo feature `pauses`
//! (scripts/storm.sh).

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::source::{UPDATE, with_source};
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use pgcache_tests::windows::{
    ANNOUNCED_TO_WRITTEN, LOAD_TO_STORE, LOOK_TO_REQUEST, LetGo, MARK_TO_REMOVE, MARK_TO_VISIBLE,
    VISIBLE_TO_UNMARK, WRITTEN_TO_CHECKED, is_inside, paused, stay_in, until_inside,
};
use postgres::Client;

const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')";
const GET: &str = "SELECT cache_get('k', 'c')";

/// Changes the source while a session waits in a window. Releases that session once the change is done or waits for the
/// session.
fn change_meanwhile(cluster: &Cluster, database: &Database, watch: &mut Client) {
    let mut writer = database.connect();
    let backend = writer.number("SELECT pg_backend_pid()");
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let writer = scope.spawn(move || writer.run(UPDATE));
        let waits = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {backend} AND wait_event_type = 'Lock'"
        );
        wait_until("the change is done, or waits", || {
            writer.is_finished() || watch.holds(&waits)
        });
        cluster.hold_windows(false);
        writer.join().expect("it commits");
    });
}

/// Checks that every session finds the new value, and that no copy of the old value remains.
fn converged(database: &Database, what: &str) {
    let mut session = database.connect();
    assert_ne!(session.value(GET).as_deref(), Some("old"), "{what}");
    assert_eq!(session.text(FETCH), "new", "{what}");
    assert_eq!(session.text(GET), "new", "{what}");
}

/// For each window of a fetch: the source changes and commits while the fetch waits there.
#[test]
fn a_change_in_any_window_of_a_fetch_leaves_nothing_old() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(cluster) {
        return;
    }
    for storage in ["unlogged", "memory"] {
        for leased in [true, false] {
            for window in [LOAD_TO_STORE, ANNOUNCED_TO_WRITTEN, WRITTEN_TO_CHECKED] {
                if storage == "memory" && window != LOAD_TO_STORE {
                    continue; // the other windows exist only for tables
                }
                let what = format!("{storage}, leased: {leased}, window {window}");
                let database = with_source(cluster, storage);
                let mut reader = database.connect();
                reader.run("SELECT cache_create('own')");
                let mut begun = "BEGIN";
                if !leased {
                    begun = "BEGIN; SELECT count(cache_fetch('x' || g, 'SELECT 1', cache => 'own')) \
                             FROM generate_series(1, 70) AS g";
                }
                reader.run(begun);
                let backend = stay_in(cluster, &mut reader, window);
                let mut watch = database.connect();
                thread::scope(|scope| {
                    let _go = LetGo(cluster);
                    let reader = scope.spawn(move || {
                        assert_eq!(reader.text(FETCH), "old");
                        reader.run("COMMIT");
                    });
                    until_inside(&mut watch, backend, &what);
                    change_meanwhile(cluster, &database, &mut watch);
                    reader.join().expect("it is served");
                });
                converged(&database, &what);
            }
        }
    }
    cluster.connect("postgres").run("CREATE EXTENSION pgcache");
    cluster.connect("postgres").nothing_pending();
}

/// For each window of a change: while the change waits there, other sessions fetch, take a lease as a client does, and
/// store a value.
#[test]
fn in_any_window_of_a_change_nothing_old_is_stored() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(cluster) {
        return;
    }
    for storage in ["unlogged", "memory"] {
        for window in [MARK_TO_REMOVE, MARK_TO_VISIBLE, VISIBLE_TO_UNMARK] {
            if (storage, window) == ("memory", MARK_TO_REMOVE) {
                continue; // this window exists only for tables
            }
            let what = format!("{storage}, window {window}");
            let database = with_source(cluster, storage);
            let mut reader = database.connect();
            thread::scope(|scope| {
                let _go = LetGo(cluster);
                let mut writer = database.connect();
                let backend = stay_in(cluster, &mut writer, window);
                let mut watch = database.connect();
                let writer = scope.spawn(move || writer.run(UPDATE));
                until_inside(&mut watch, backend, &what);
                let seen = if window == VISIBLE_TO_UNMARK {
                    "new"
                } else {
                    "old"
                };
                assert_eq!(reader.text(FETCH), seen, "{what}");
                assert_eq!(reader.value(GET), None, "{what}");
                let won = reader
                    .lines("SELECT state, lease FROM cache_lease('k', cache => 'c')")
                    .remove(0);
                let lease = won
                    .strip_prefix("win|")
                    .expect("the session gets the lease");
                assert!(!reader.holds(&format!(
                    "SELECT cache_set_leased('k', '{seen}', {lease}, cache => 'c')"
                )));
                if storage == "memory" {
                    reader.run("SELECT cache_set('k', 'old', cache => 'c')");
                }
                assert_eq!(reader.value(GET), None, "{what}");
                assert!(is_inside(&mut watch, backend), "the window is over: {what}");
                cluster.hold_windows(false);
                writer.join().expect("it commits");
            });
            converged(&database, &what);
        }
    }
    cluster.connect("postgres").run("CREATE EXTENSION pgcache");
    cluster.connect("postgres").nothing_pending();
}

/// Two sessions find no entry. The session that gets the lease second finds the value that the first session stored.
#[test]
fn a_fetch_that_wins_after_another_has_stored_loads_nothing() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(cluster) {
        return;
    }
    for storage in ["unlogged", "memory"] {
        let database = with_source(cluster, storage);
        let (mut late, mut watch) = (database.connect(), database.connect());
        let backend = stay_in(cluster, &mut late, LOOK_TO_REQUEST);
        thread::scope(|scope| {
            let _go = LetGo(cluster);
            let own = "SELECT cache_fetch('k', 'SELECT ''late''', cache => 'c')";
            let late = scope.spawn(move || late.text(own));
            until_inside(&mut watch, backend, storage);
            assert_eq!(watch.text(FETCH), "old", "{storage}");
            cluster.hold_windows(false);
            assert_eq!(late.join().expect("it is served"), "old", "{storage}");
        });
    }
}
