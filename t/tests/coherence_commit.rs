//! Tests that copies stay coherent during a commit, at every point where a test can make the commit wait, and at the
//! first use of a cache.

use std::sync::Barrier;
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_for;
use pgcache_tests::windows::LetGo;

/// The commit has set its marks and waits for a standby that does not exist, until the test cancels the wait or
/// terminates the session.
#[test]
fn a_commit_that_waits_for_a_standby_is_marked_until_it_is_visible() {
    let cluster = Cluster::with_tier(&["synchronous_standby_names = 'nobody'"]);
    let database = cluster_database(cluster);
    let mut reader = database.connect();
    let mut value = reader.heat("k", "c").expect("it is there");
    for end in ["pg_cancel_backend", "pg_terminate_backend"] {
        thread::scope(|scope| {
            let mut writer = database.connect();
            writer.run("SET synchronous_commit = on");
            // A terminated session gets no answer, but its commit stays.
            scope.spawn(move || drop(writer.try_value(&format!("UPDATE c SET value = '{end}'"))));
            let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            let pid = wait_for("the commit waits", || reader.value(waiting));
            assert!(reader.holds("SELECT pending > 0 FROM pgcache.hot_tier"));
            for _ in 0..3 {
                assert_eq!(reader.text("SELECT cache_get('k', 'c')"), value);
            }
            reader.run(&format!("SELECT {end}({pid})"));
        });
        reader.nothing_pending();
        value = reader.agrees("k", "c").expect("it is there");
        assert_eq!(value, end);
        reader.heat("k", "c");
    }
}

/// When COMMIT PREPARED waits, the commit log already contains the commit, and other sessions do not see the rows yet.
#[test]
fn a_prepared_commit_that_waits_for_a_standby_is_marked_until_it_is_visible() {
    let cluster = Cluster::with_tier(&["synchronous_standby_names = 'nobody'"]);
    let database = cluster_database(cluster);
    let mut reader = database.connect();
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let mut writer = database.connect();
        writer.run("BEGIN; UPDATE c SET value = 'new'; PREPARE TRANSACTION 'p'");
        writer.run("SET synchronous_commit = on");
        scope.spawn(move || writer.run("COMMIT PREPARED 'p'"));
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let pid = wait_for("the commit waits", || reader.value(waiting));
        for _ in 0..3 {
            assert_eq!(reader.text("SELECT cache_get('k', 'c')"), "old");
        }
        reader.run(&format!("SELECT pg_cancel_backend({pid})"));
    });
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
    reader.nothing_pending();
}

fn cluster_database(cluster: &Cluster) -> pgcache_tests::database::Database<'_> {
    let mut session = cluster.connect("postgres");
    session.run("ALTER SYSTEM SET synchronous_commit = local");
    session.run("SELECT pg_reload_conf()");
    let database = wait_for("commits are local", || {
        let local = session.text("SHOW synchronous_commit") == "local";
        local.then(|| cluster.database())
    });
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run("SELECT cache_set('k', 'old', cache => 'c')");
    database
}

#[test]
fn the_first_get_ever_may_race_the_first_write_ever() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for round in 0..60 {
        let cache = format!("c{round}");
        writer.run(&format!("SELECT cache_create('{cache}')"));
        writer.run(&format!("INSERT INTO {cache} VALUES ('k', 'old')"));
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                writer.run(&format!("UPDATE {cache} SET value = 'new'"));
            });
            start.wait();
            reader.run(&format!("SELECT cache_get('k', '{cache}')"));
        });
        assert_eq!(
            reader.agrees("k", &cache).as_deref(),
            Some("new"),
            "{round}"
        );
    }
}

/// A cursor and a running function continue to read while another session commits.
#[test]
fn a_cursor_and_a_function_see_acknowledged_writes() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer.run("SELECT cache_create('c')");
    writer.run("SELECT cache_set('k', 'old', cache => 'c')");
    reader.heat("k", "c");
    reader.run("BEGIN; DECLARE u CURSOR FOR SELECT cache_get('k', 'c') FROM generate_series(1, 9)");
    assert_eq!(reader.lines("FETCH 2 FROM u"), ["old", "old"]);
    writer.run("UPDATE c SET value = 'new'");
    assert_eq!(reader.lines("FETCH 2 FROM u"), ["new", "new"]);
    reader.run("COMMIT");
    reader.run(
        "CREATE FUNCTION asks() RETURNS text STABLE LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_lock(1); RETURN cache_get('k', 'c'); END $$",
    );
    let said = thread::scope(|scope| {
        writer.run("SELECT pg_advisory_lock(1)");
        let asked = scope.spawn(|| reader.text("SELECT asks()"));
        let waits = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        wait_for("the reader waits", || writer.value(waits));
        writer.run("UPDATE c SET value = 'newest'");
        writer.run("SELECT pg_advisory_unlock(1)");
        asked.join().expect("the reader failed")
    });
    assert_eq!(said, "newest");
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("newest"));
}

#[test]
fn expired_rows_go_with_their_copies() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    session.run("SELECT cache_set('k', 'short', '2 s', 'c'), cache_set('l', 'long', cache => 'c')");
    assert_eq!(session.heat("k", "c").as_deref(), Some("short"));
    session.run("SELECT pg_sleep(2.1)");
    assert_eq!(session.agrees("k", "c"), None);
    assert_eq!(session.number("SELECT cache_expire('c')"), 1);
    assert_eq!(session.agrees("k", "c"), None);
    session.run("SELECT cache_add('k', 'next', cache => 'c')");
    assert_eq!(session.heat("k", "c").as_deref(), Some("next"));
    session.run("SELECT cache_touch('k', '1 ms', 'c'), pg_sleep(0.01)");
    assert_eq!(session.agrees("k", "c"), None);
    assert_eq!(session.agrees("l", "c").as_deref(), Some("long"));
}
