//! Tests leases with several sessions and transactions: sessions that win a lease, sessions that wait for one, writes
//! that void a lease, and timeouts. sql/leases.sql covers a single session.

use std::thread::{self, sleep};
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::parallel;
use pgcache_tests::refusal::refused;
use pgcache_tests::wait::wait_until;
use postgres::Client;

use crate::fetch::tiered;

fn with_caches() -> Database<'static> {
    let database = tiered().database();
    database
        .connect()
        .run("SELECT cache_create('tab'), cache_create('mem', storage => 'memory')");
    database
}

/// Wins the lease of `k`, which must be free.
fn win(session: &mut Client, cache: &str) -> i64 {
    let answer = session.lines(&format!(
        "SELECT state, lease FROM cache_lease('k', cache => '{cache}')"
    ));
    match answer[0].split_once('|') {
        Some(("win", lease)) => lease.parse().expect("a lease is a number"),
        _ => panic!("no win: {answer:?}"),
    }
}

fn state(session: &mut Client, cache: &str) -> String {
    session.text(&format!(
        "SELECT state FROM cache_lease('k', cache => '{cache}')"
    ))
}

fn store(session: &mut Client, lease: i64, cache: &str) -> bool {
    session.holds(&format!(
        "SELECT cache_set_leased('k', 'mine', {lease}, cache => '{cache}')"
    ))
}

#[test]
fn a_lease_is_good_in_any_session_and_for_one_store() {
    for cache in ["tab", "mem"] {
        let database = with_caches();
        let (mut one, mut other) = (database.connect(), database.connect());
        let lease = win(&mut one, cache);
        assert_eq!(state(&mut other, cache), "busy");
        drop(one);
        assert!(store(&mut other, lease, cache));
        assert_eq!(state(&mut other, cache), "hit");
        assert!(!store(&mut other, lease, cache), "{cache}: it was used up");
    }
}

/// Any role may declare its own function parallel safe, even one that takes a lease.
#[test]
fn a_process_of_a_parallel_query_that_fails_leaves_no_lease_behind() {
    for cache in ["tab", "mem"] {
        let mut session = with_caches().connect();
        parallel::always(&mut session);
        let leader = session.number("SELECT pg_backend_pid()");
        session.run(&format!(
            "CREATE FUNCTION load(i int) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS \
             $$BEGIN IF pg_backend_pid() = {leader} THEN RETURN NULL; END IF; \
             RETURN cache_fetch('k', 'SELECT 1 / (length($1) - 1)', cache => '{cache}'); END$$; \
             CREATE TABLE rows AS SELECT generate_series(1, 1000) AS i; ANALYZE rows; \
             SET parallel_leader_participation = off"
        ));
        let query = "SELECT count(load(i)) FROM rows";
        assert!(parallel::is_planned(&mut session, query));
        // If no worker process is free, the leader does all the work and nothing fails. So repeat the query.
        wait_until("a parallel worker runs the query", || {
            match session.try_value(query) {
                Ok(_) => false,
                failed => {
                    refused(failed, "22012");
                    true
                }
            }
        });
        session.run("SET pgcache.fetch_wait = 0");
        session.run(&format!(
            "SELECT cache_fetch('k', 'SELECT 1', cache => '{cache}')"
        ));
        let get = format!("SELECT cache_get('k', '{cache}')");
        assert_eq!(session.text(&get), "1", "{cache}: the lease was free");
    }
}

#[test]
fn an_expired_lease_is_refused_and_goes_to_the_next() {
    for cache in ["tab", "mem"] {
        let mut session = with_caches().connect();
        session.run("SET pgcache.lease_time = '50ms'");
        let late = win(&mut session, cache);
        sleep(Duration::from_millis(100));
        assert!(!store(&mut session, late, cache), "{cache}: expired");
        let release = format!("SELECT cache_release('k', {late}, '{cache}')");
        assert!(!session.holds(&release), "{cache}: expired");
        session.run("SET pgcache.lease_time = '10min'");
        let next = win(&mut session, cache);
        assert!(!store(&mut session, late, cache), "{cache}: stolen");
        assert!(store(&mut session, next, cache));
    }
}

/// Another session's change of the key voids a table cache's lease when the change commits, and not before.
#[test]
fn a_committed_change_voids_a_lease_and_a_rolled_back_one_does_not() {
    for change in [
        "SELECT cache_set('k', 'x', cache => 'tab')",
        "SELECT cache_delete('k', 'tab')",
        "SELECT cache_delete_many('{k}', 'tab')",
        "SELECT cache_take('k', 'tab')",
        "SELECT cache_delete_prefix('k', 'tab')",
        "INSERT INTO tab VALUES ('k', 'x')",
        "INSERT INTO tab VALUES ('k', 'x'); UPDATE tab SET value = 'y'",
        "INSERT INTO tab VALUES ('k', 'x'); DELETE FROM tab",
    ] {
        let database = with_caches();
        let (mut one, mut other) = (database.connect(), database.connect());
        let lease = win(&mut one, "tab");
        other.run(&format!("BEGIN; {change}; ROLLBACK"));
        assert_eq!(state(&mut one, "tab"), "busy", "rolled back: {change}");
        other.run(&format!("BEGIN; {change}"));
        assert_eq!(state(&mut one, "tab"), "busy", "not yet: {change}");
        other.run("COMMIT");
        assert!(!store(&mut one, lease, "tab"), "committed: {change}");
    }
}

#[test]
fn a_deletion_of_an_absent_key_voids_its_lease() {
    let database = with_caches();
    let (mut one, mut other) = (database.connect(), database.connect());
    for cache in ["tab", "mem"] {
        for deletion in [
            "cache_delete('k', 'C')",
            "cache_delete_many('{a,k,z}', 'C')",
            "cache_take('k', 'C')",
            "cache_take_bytes('k', 'C')",
            "cache_delete_prefix('k', 'C')",
        ] {
            let lease = win(&mut one, cache);
            other.run(&format!("SELECT {}", deletion.replace('C', cache)));
            assert!(!store(&mut one, lease, cache), "{cache}: {deletion}");
        }
    }
}

#[test]
fn clearing_and_truncating_void_exactly_the_leases_of_the_cache() {
    for (change, cache) in [
        ("SELECT cache_clear('tab')", "tab"),
        ("TRUNCATE tab", "tab"),
        ("SELECT cache_clear('mem')", "mem"),
    ] {
        let database = with_caches();
        let (mut one, mut other) = (database.connect(), database.connect());
        let (tab, mem) = (win(&mut one, "tab"), win(&mut one, "mem"));
        other.run(change);
        assert_eq!(store(&mut one, tab, "tab"), cache != "tab", "{change}");
        assert_eq!(store(&mut one, mem, "mem"), cache != "mem", "{change}");
    }
}

/// Changes of other keys, reads, and the removal of an expired row do not affect a lease.
#[test]
fn a_lease_survives_everything_but_changes_of_its_key() {
    for cache in ["tab", "mem"] {
        let database = with_caches();
        let (mut one, mut other) = (database.connect(), database.connect());
        other.run(&format!(
            "SELECT cache_set('k', 'old', '1 ms', '{cache}'), pg_sleep(0.01)"
        ));
        let lease = win(&mut one, cache);
        other.run(&format!("SELECT cache_set('l', 'x', cache => '{cache}')"));
        other.run(&format!("SELECT cache_delete('m', '{cache}')"));
        other.run(&format!(
            "SELECT cache_get('k', '{cache}'), cache_ttl('k', '{cache}')"
        ));
        assert_eq!(other.number(&format!("SELECT cache_expire('{cache}')")), 1);
        assert!(store(&mut one, lease, cache), "{cache}");
    }
}

/// A trigger of the swept cache changes a row of that cache or of another cache, or a foreign key removes a row. Such a
/// row is not removed because it expired, so its lease is void.
#[test]
fn changes_made_by_triggers_of_a_sweep_void_a_lease() {
    for (change, cache) in [
        ("PERFORM cache_set('k', 'new', cache => 'tab')", "tab"),
        ("PERFORM cache_delete('k', 'tab')", "tab"),
        ("INSERT INTO tab VALUES ('k', 'new')", "tab"),
        ("PERFORM cache_set('k', 'new', cache => 'swept')", "swept"),
        ("PERFORM cache_delete('k', 'swept')", "swept"),
        ("INSERT INTO swept VALUES ('k', 'new')", "swept"),
        ("DELETE FROM swept AS pgcache_c WHERE key = 'k'", "swept"),
        ("PERFORM 1", "child"),
    ] {
        let database = with_caches();
        let (mut one, mut other) = (database.connect(), database.connect());
        other.run(&format!(
            "SELECT cache_create('swept'), cache_create('child'); \
             ALTER TABLE child ADD CONSTRAINT parent FOREIGN KEY (value) REFERENCES swept (key) ON DELETE CASCADE; \
             CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {change}; RETURN NULL; END$$; \
             CREATE TRIGGER change AFTER DELETE ON swept FOR EACH ROW WHEN (OLD.key = 'x') EXECUTE FUNCTION change()"
        ));
        // `x` is removed first. The other two rows have expired, so their keys count as missing.
        other.run("INSERT INTO swept VALUES ('x', 'x', now())");
        if change.starts_with("DELETE") {
            other.run("INSERT INTO swept VALUES ('k', 'old', now())");
        }
        other.run("INSERT INTO child VALUES ('k', 'x', now())");
        let lease = win(&mut one, cache);
        assert_eq!(other.number("SELECT cache_expire('swept', 1)"), 1);
        assert!(!store(&mut one, lease, cache), "{change} {cache}");
    }
}

/// If the transaction that stored a value rolls back, the value is gone and the lease is valid again.
#[test]
fn a_rolled_back_store_gives_the_lease_back() {
    let database = with_caches();
    let (mut one, mut other) = (database.connect(), database.connect());
    let lease = win(&mut one, "tab");
    one.run("BEGIN");
    assert!(store(&mut one, lease, "tab"));
    assert_eq!(state(&mut other, "tab"), "busy", "not committed yet");
    one.run("ROLLBACK");
    assert_eq!(state(&mut other, "tab"), "busy", "still the first one's");
    one.run("BEGIN; SAVEPOINT s");
    assert!(store(&mut one, lease, "tab"));
    one.run("ROLLBACK TO s");
    assert!(store(&mut one, lease, "tab"));
    one.run("COMMIT");
    assert_eq!(state(&mut other, "tab"), "hit");
}

/// The deletion has more keys than are marked one by one. So it voids the lease without waiting for the row.
#[test]
fn a_store_that_is_rolled_back_after_a_change_gives_no_lease_back() {
    let database = with_caches();
    let (mut one, mut other) = (database.connect(), database.connect());
    let lease = win(&mut one, "tab");
    one.run("BEGIN");
    assert!(store(&mut one, lease, "tab"));
    other.run("SET statement_timeout = '60s'");
    other.run("SELECT count(cache_delete('k' || g, 'tab')) FROM generate_series(1, 10050) AS g");
    one.run("ROLLBACK");
    assert_eq!(state(&mut other, "tab"), "win");
    assert!(!store(&mut one, lease, "tab"));
}

/// The deletion waits for the row that is being stored. The rollback of the store must not restore the lease.
#[test]
fn a_store_that_is_rolled_back_under_a_deletion_gives_no_lease_back() {
    let database = with_caches();
    let (mut one, mut other) = (database.connect(), database.connect());
    let lease = win(&mut one, "tab");
    one.run("BEGIN");
    assert!(store(&mut one, lease, "tab"));
    thread::scope(|scope| {
        let deleting = scope.spawn(|| other.run("SELECT cache_delete('k', 'tab')"));
        let mut watch = database.connect();
        wait_until("the deletion waits", || {
            watch.holds("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()")
        });
        one.run("ROLLBACK");
        deleting.join().expect("it deletes");
    });
    assert_eq!(state(&mut other, "tab"), "win");
    assert!(!store(&mut one, lease, "tab"));
}

/// The store waits for the row of a transaction that voids the lease. That transaction's value stays.
#[test]
fn a_store_that_waited_for_a_newer_value_is_undone() {
    let database = with_caches();
    let (mut one, mut other) = (database.connect(), database.connect());
    let lease = win(&mut one, "tab");
    other.run("BEGIN; SELECT cache_set('k', 'newer', cache => 'tab')");
    thread::scope(|scope| {
        let storing = scope.spawn(|| store(&mut one, lease, "tab"));
        let mut watch = database.connect();
        while !watch.holds("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()") {
            sleep(Duration::from_millis(10));
        }
        other.run("COMMIT");
        assert!(
            !storing.join().expect("the session ends"),
            "the older value was stored"
        );
    });
    assert_eq!(other.text("SELECT cache_get('k', 'tab')"), "newer");
}

#[test]
fn a_waiter_gets_the_value_or_the_lease_as_soon_as_one_exists() {
    for cache in ["tab", "mem"] {
        for (end, expected) in [("store", "hit"), ("release", "win"), ("delete", "win")] {
            let database = with_caches();
            let (mut one, mut other) = (database.connect(), database.connect());
            other.run("SET statement_timeout = '60s'");
            let lease = win(&mut one, cache);
            thread::scope(|scope| {
                let ask = format!("SELECT state FROM cache_lease('k', '5 minutes', '{cache}')");
                let waiting = scope.spawn(move || other.text(&ask));
                let mut watch = database.connect();
                while !watch.holds("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgcacheFetch' AND datname = current_database()") {
                    sleep(Duration::from_millis(10));
                }
                match end {
                    "store" => assert!(store(&mut one, lease, cache)),
                    "release" => one.run(&format!("SELECT cache_release('k', {lease}, '{cache}')")),
                    _ => one.run(&format!("SELECT cache_delete('k', '{cache}')")),
                }
                assert_eq!(
                    waiting.join().expect("it waits in peace"),
                    expected,
                    "{cache} {end}"
                );
            });
        }
    }
}

#[test]
fn of_a_crowd_one_wins() {
    for cache in ["tab", "mem"] {
        let database = with_caches();
        let states: Vec<String> = thread::scope(|scope| {
            let crowd: Vec<_> = (0..20)
                .map(|_| scope.spawn(|| state(&mut database.connect(), cache)))
                .collect();
            crowd
                .into_iter()
                .map(|one| one.join().expect("an answer"))
                .collect()
        });
        let won = states.iter().filter(|state| *state == "win").count();
        assert_eq!(won, 1, "{cache}: {states:?}");
    }
}

#[test]
fn without_preload_a_lease_is_refused_with_the_way_out() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut session = cluster.database().connect();
    for call in [
        "cache_lease('k')",
        "cache_set_leased('k', 'v', 1)",
        "cache_release('k', 1)",
    ] {
        let error = refused(session.try_value(&format!("SELECT {call}")), "55000");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("shared_preload_libraries"))
        );
    }
    assert_eq!(session.text("SELECT cache_fetch('k', 'SELECT 1')"), "1");
}
