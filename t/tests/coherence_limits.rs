//! Tests the coherence protocol at its limits: without a free slot, with too many keys, and with transactions that fail
//! late.

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::{wait_for, wait_until};
use pgcache_tests::windows::LetGo;
use postgres::Client;

/// Creates a database with the cache `c`, whose key `k` is hot in the second session.
pub(crate) fn hot_cache(cluster: &Cluster) -> (Database<'_>, Client, Client) {
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer.run("SELECT cache_create('c')");
    writer.run("SELECT cache_set('k', 'old', cache => 'c')");
    assert_eq!(reader.heat("k", "c").as_deref(), Some("old"));
    (database, writer, reader)
}

#[test]
fn more_caches_than_slots_stay_right() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '2MB'"]);
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for i in 0..45 {
        writer.run(&format!("SELECT cache_create('c{i}')"));
        writer.run(&format!("SELECT cache_set('k', 'old', cache => 'c{i}')"));
        reader.run(&format!("SELECT cache_get('k', 'c{i}')"));
    }
    refused(
        writer.try_value("SELECT cache_create('m', storage => 'memory')"),
        "53400",
    );
    for i in 0..45 {
        writer.run(&format!("SELECT cache_set('k', 'new', cache => 'c{i}')"));
        assert_eq!(reader.agrees("k", &format!("c{i}")).as_deref(), Some("new"));
        writer.run(&format!("TRUNCATE c{i}"));
        assert_eq!(reader.agrees("k", &format!("c{i}")), None);
    }
    reader.nothing_pending();
    writer.run("DROP TABLE c0");
    writer.run("SELECT cache_create('m', storage => 'memory')");
    writer.run("SELECT cache_set('k', '1', cache => 'm')");
    assert_eq!(reader.text("SELECT cache_get('k', 'm')"), "1");
}

/// A writer without a slot locks the cache, and a loader checks the lock.
#[test]
fn a_writer_without_a_slot_keeps_loaders_from_storing() {
    let cluster = Cluster::with_tier(&[
        "pgcache.hot_size = '2MB'",
        "synchronous_standby_names = 'nobody'",
        "synchronous_commit = local",
    ]);
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for i in 0..45 {
        writer.run(&format!("SELECT cache_create('c{i}')"));
        writer.run(&format!("SELECT cache_set('k', 'old', cache => 'c{i}')"));
    }
    writer.run("SELECT cache_create('c', storage => 'logged'), cache_create('own')");
    let fetch = "SELECT cache_fetch('k', 'SELECT ''loaded''', cache => 'c')";
    let row = "SELECT (SELECT value FROM c WHERE key = 'k')";
    let remove = "SELECT cache_delete_prefix('k', 'c')";
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let mut writer = database.connect();
        writer.run("SET synchronous_commit = on");
        let removes = format!("BEGIN; INSERT INTO c VALUES ('x', ''); {remove}; COMMIT");
        scope.spawn(move || writer.run(&removes));
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let pid = wait_for("the commit waits", || reader.value(waiting));
        assert_eq!(reader.text(fetch), "loaded");
        let stored = reader.value(row);
        reader.run(&many_leases());
        assert_eq!(reader.text(fetch), "loaded");
        reader.run("COMMIT");
        let stored_without_a_lease = reader.value(row);
        reader.run(&format!("SELECT pg_cancel_backend({pid})"));
        assert_eq!((stored, stored_without_a_lease), (None, None));
    });
    // The loader has no lease, so only the token shows that the removal happened while the loader ran.
    writer.run("BEGIN; SELECT pg_advisory_lock(42)");
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let gate = "SELECT ''loaded'' FROM pg_advisory_lock_shared(42)";
        let loader = scope.spawn(|| {
            reader.run(&many_leases());
            reader.run(&fetch.replace("SELECT ''loaded''", gate));
            reader.run("COMMIT");
        });
        let mut watch = database.connect();
        let waits = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory'";
        wait_until("the loader waits", || watch.holds(waits));
        watch.run(remove);
        writer.run("SELECT pg_advisory_unlock(42); COMMIT");
        loader.join().expect("it is served");
    });
    assert_eq!(writer.value(row), None, "after the removal");
    writer.nothing_pending();
}

/// Returns statements that begin a transaction and take as many leases as a session may have.
fn many_leases() -> String {
    let key = "'x' || pg_backend_pid() || '-' || g || clock_timestamp()";
    format!(
        "BEGIN; SELECT count(cache_fetch({key}, 'SELECT 1', cache => 'own')) FROM generate_series(1, 70) AS g"
    )
}

/// The triggers were disabled before the cache had a slot, so no write could suspend the slot.
#[test]
fn a_new_slot_of_a_cache_whose_triggers_are_disabled_is_not_filled() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("BEGIN; SELECT cache_create('c'); ALTER TABLE c DISABLE TRIGGER ALL; COMMIT");
    session.run("INSERT INTO c VALUES ('k', 'old')");
    assert_eq!(session.agrees("k", "c").as_deref(), Some("old"));
    session.run("UPDATE c SET value = 'new'");
    assert_eq!(session.agrees("k", "c").as_deref(), Some("new"));
}

#[test]
fn creations_that_are_rolled_back_leave_no_slot() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '2MB'"]);
    let mut session = cluster.database().connect();
    for storage in ["unlogged", "memory"] {
        let create = format!("SELECT cache_create('c', storage => '{storage}')");
        let rounds = 500;
        for round in 0..rounds {
            session.run(&format!("BEGIN; {create}; SAVEPOINT s"));
            session.run("SELECT cache_set('k', '1', cache => 'c'); SELECT cache_get('k', 'c')");
            session.run(if round % 2 == 0 {
                "ROLLBACK"
            } else {
                "ROLLBACK TO s; ROLLBACK"
            });
            session.run(&format!("BEGIN; SAVEPOINT s; {create}"));
            session.run("SELECT cache_set('k', '1', cache => 'c'); ROLLBACK TO s; COMMIT");
        }
    }
    session.run("SELECT cache_create('m', storage => 'memory'), cache_create('c')");
    session.run("SELECT cache_set('k', '1', cache => 'm'), cache_set('k', '1', cache => 'c')");
    session.heat("k", "c");
    session.nothing_pending();
}

#[test]
fn more_keys_than_a_transaction_remembers_mark_the_cache() {
    let (database, mut writer, mut reader) = hot_cache(Cluster::hot());
    let mut rival = database.connect();
    for round in 0..3 {
        writer.run("BEGIN; DELETE FROM c");
        writer.run("INSERT INTO c SELECT 'x' || i, 'v' FROM generate_series(1, 10050) AS i");
        let set = format!("SELECT cache_set('k', '{round}', cache => 'c')");
        thread::scope(|scope| {
            scope.spawn(|| rival.run(&set));
            reader.run("SELECT cache_get('k', 'c')");
            writer.run("COMMIT");
        });
        assert_eq!(reader.agrees("k", "c"), Some(round.to_string()));
        reader.agrees("x10050", "c");
        reader.heat("k", "c");
    }
    writer.run("UPDATE c SET value = 'all'");
    assert_eq!(reader.agrees("x1", "c").as_deref(), Some("all"));
}

#[test]
fn a_transaction_that_is_prepared_leaves_nothing_marked_when_it_is_rolled_back() {
    for preload in ["pgcache", ""] {
        let preload = format!("shared_preload_libraries = '{preload}'");
        let cluster = Cluster::start(&[&preload]);
        let mut session = cluster.database().connect();
        session.run("SELECT cache_create('c')");
        session.run("SELECT cache_set('k', 'old', cache => 'c')");
        for write in [
            "SELECT cache_set('k', 'new', cache => 'c')",
            "UPDATE c SET value = 'new'",
            "TRUNCATE c",
            "SAVEPOINT s; UPDATE c SET value = 'new'; ROLLBACK TO s; DELETE FROM c",
        ] {
            session.run(&format!("BEGIN; {write}; PREPARE TRANSACTION 'p'"));
            session.run("ROLLBACK PREPARED 'p'");
            assert_eq!(session.text("SELECT cache_get('k', 'c')"), "old", "{write}");
        }
        session.run("BEGIN; CREATE TABLE other (); PREPARE TRANSACTION 'p'");
        session.run("COMMIT PREPARED 'p'");
        session.nothing_pending();
    }
}

#[test]
fn no_mark_outlives_its_transaction() {
    let cluster = Cluster::with_tier(&[]);
    let (database, mut writer, mut reader) = hot_cache(cluster);
    writer.run("BEGIN; UPDATE c SET value = 'undone'");
    let pid = writer.text("SELECT pg_backend_pid()");
    reader.run(&format!("SELECT pg_terminate_backend({pid}, 60000)"));
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));

    let mut writer = database.connect();
    writer.run("SET statement_timeout = '30ms'");
    let slow = "WITH u AS (UPDATE c SET value = 'undone' RETURNING 1) SELECT pg_sleep(9) FROM u";
    refused(writer.try_value(slow), "57014");
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));

    writer.run(
        "RESET statement_timeout; CREATE TABLE t (i int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    );
    writer.run("BEGIN; INSERT INTO t VALUES (1), (1); UPDATE c SET value = 'undone'");
    refused(writer.try_value("COMMIT"), "23505");
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));

    reader.nothing_pending();
}

/// Postgres checks for write skew only after pgcache has set its mark, so the commit can still fail.
#[test]
fn a_commit_that_fails_after_its_mark_takes_the_mark_back() {
    let cluster = Cluster::with_tier(&[]);
    let (database, mut one, mut reader) = hot_cache(cluster);
    one.run("SELECT cache_set('l', 'old', cache => 'c')");
    for round in 0..3 {
        let mut other = database.connect();
        for session in [&mut one, &mut other] {
            session.run("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM c");
        }
        one.run(&format!("UPDATE c SET value = '{round}' WHERE key = 'k'"));
        other.run("UPDATE c SET value = 'undone' WHERE key = 'l'");
        one.run("COMMIT");
        refused(other.try_value("COMMIT"), "40001");
        reader.nothing_pending();
        assert_eq!(reader.heat("k", "c"), Some(round.to_string()));
        assert_eq!(reader.heat("l", "c").as_deref(), Some("old"));
    }
}

/// The trigger of a deferred constraint writes at commit, after all statements have ended.
#[test]
fn a_deferred_trigger_that_writes_is_seen() {
    let (_database, mut writer, mut reader) = hot_cache(Cluster::hot());
    writer.run(
        "CREATE TABLE source (i int); \
         CREATE FUNCTION writes() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN UPDATE c SET value = 'new'; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER w AFTER INSERT ON source DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION writes()",
    );
    writer.run("INSERT INTO source VALUES (1)");
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
    writer.run("CREATE TEMP TABLE gone (i int) ON COMMIT DROP");
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
}

#[test]
fn cache_set_stores_the_value_changed_by_the_users_trigger() {
    let (_database, mut writer, mut reader) = hot_cache(Cluster::hot());
    writer.run(
        "CREATE FUNCTION shouts() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.value := upper(NEW.value); NEW.key := NEW.key || '!'; RETURN NEW; END $$; \
         CREATE TRIGGER s BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION shouts()",
    );
    writer.run("SELECT cache_set('l', 'new', cache => 'c')");
    assert_eq!(reader.agrees("l", "c"), None);
    assert_eq!(reader.agrees("l!", "c").as_deref(), Some("NEW"));
}

#[test]
fn a_dropped_database_leaves_no_slot_and_no_entry() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '2MB'"]);
    let mut session = cluster.connect("postgres");
    for _ in 0..3 {
        let (database, writer, mut reader) = hot_cache(cluster);
        for i in 0..14 {
            reader.run(&format!("SELECT cache_create('m{i}', storage => 'memory')"));
            reader.run(&format!("SELECT cache_set('k', '1', cache => 'm{i}')"));
        }
        drop((writer, reader));
        session.run(&format!("DROP DATABASE {} WITH (FORCE)", database.name));
    }
    session.run("CREATE EXTENSION pgcache");
    assert_eq!(session.number("SELECT entries FROM pgcache.hot_tier"), 0);
    session.nothing_pending();
    session.sums_up();
}
