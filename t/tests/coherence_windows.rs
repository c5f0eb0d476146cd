//! Tests each window of the coherence protocol, which is an interval between two steps in which another session may
//! act. A get runs while a change waits in each of its windows, and a change runs while a get waits in each of its
//! windows. The tests are skipped unless the library was built with the cargo feature `pauses`.

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use pgcache_tests::windows::{
    LetGo, MARK_TO_VISIBLE, READ_TO_FILL, TOKEN_TO_SNAPSHOT, VISIBLE_TO_UNMARK, paused, stay_in,
    until_inside,
};

/// A change of one key, and a change of more keys than a transaction notes one by one, which marks the whole cache.
const CHANGES: [&str; 2] = [
    "UPDATE c SET value = 'new' WHERE key = 'k'",
    "UPDATE c SET value = 'new'",
];
const GET: &str = "SELECT cache_get('k', 'c')";

/// Creates a cache in which no entry has a copy yet.
fn with_cache(cluster: &Cluster) -> Database<'_> {
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run("INSERT INTO c SELECT 'x' || i, 'old' FROM generate_series(1, 10050) AS i");
    session.run("INSERT INTO c VALUES ('k', 'old')");
    database
}

/// In the first window the change is marked and waits for a standby, so no other session sees it. In the second window
/// all sessions see the change, and it is still marked.
#[test]
fn in_each_window_of_a_change_a_get_fills_nothing_old() {
    let cluster = Cluster::with_tier(&[
        "synchronous_standby_names = 'nobody'",
        "synchronous_commit = local",
    ]);
    if !paused(cluster) {
        return;
    }
    for change in CHANGES {
        for hot in [true, false] {
            let database = with_cache(cluster);
            let mut reader = database.connect();
            if hot {
                reader.heat("k", "c");
            }
            thread::scope(|scope| {
                let _go = LetGo(cluster);
                let mut writer = database.connect();
                writer.run("SET synchronous_commit = on");
                let backend = stay_in(cluster, &mut writer, VISIBLE_TO_UNMARK);
                let writer = scope.spawn(move || writer.run(change));
                let waits = format!(
                    "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'SyncRep'"
                );
                wait_until("the commit waits", || reader.holds(&waits));
                for _ in 0..3 {
                    assert_eq!(reader.text(GET), "old", "{change}, hot: {hot}");
                }
                reader.run(&format!("SELECT pg_cancel_backend({backend})"));
                until_inside(&mut reader, backend, change);
                for _ in 0..3 {
                    assert_eq!(reader.text(GET), "new", "{change}, hot: {hot}");
                }
                cluster.hold_windows(false);
                writer.join().expect("it commits");
            });
            assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
            reader.nothing_pending();
        }
    }
}

#[test]
fn a_change_in_each_window_of_a_get_leaves_no_old_copy() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(cluster) {
        return;
    }
    for change in CHANGES {
        for window in [TOKEN_TO_SNAPSHOT, READ_TO_FILL] {
            let database = with_cache(cluster);
            let mut writer = database.connect();
            // A new slot begins suspended; this read ends the suspension.
            assert_eq!(writer.heat("x1", "c").as_deref(), Some("old"));
            let mut reader = database.connect();
            let backend = stay_in(cluster, &mut reader, window);
            thread::scope(|scope| {
                let _go = LetGo(cluster);
                let reader = scope.spawn(move || reader.text(GET));
                until_inside(&mut writer, backend, change);
                writer.run(change);
                cluster.hold_windows(false);
                let seen = if window == READ_TO_FILL { "old" } else { "new" };
                assert_eq!(reader.join().expect("it is answered"), seen, "{change}");
            });
            assert_eq!(writer.agrees("k", "c").as_deref(), Some("new"), "{change}");
        }
    }
}

/// The commit that disables the triggers is not visible yet when the get finds the cache suspended and checks the
/// triggers.
#[test]
fn a_get_beside_a_commit_that_disables_triggers_lifts_no_suspension() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(cluster) {
        return;
    }
    let database = with_cache(cluster);
    let (mut reader, mut watch) = (database.connect(), database.connect());
    reader.heat("k", "c");
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let mut owner = database.connect();
        let backend = stay_in(cluster, &mut owner, MARK_TO_VISIBLE);
        let owner = scope.spawn(move || owner.run("ALTER TABLE c DISABLE TRIGGER ALL"));
        until_inside(&mut watch, backend, "the triggers go");
        for _ in 0..3 {
            assert_eq!(reader.text(GET), "old");
        }
        cluster.hold_windows(false);
        owner.join().expect("it commits");
    });
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));
    watch.run("UPDATE c SET value = 'new' WHERE key = 'k'");
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
}
