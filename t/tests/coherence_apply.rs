//! Tests that copies stay coherent with writes that come from no ordinary session: from the apply worker of logical
//! replication, and from pg_restore with disabled triggers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::stage::succeed;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

/// Waits until the table has the value, and reads the key during the wait, so that it stays hot. Then checks the hot
/// tier: if the tier missed the change, `cache_get` still returns the old copy.
fn arrives(session: &mut Client, expected: Option<&str>) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let row = session.value("SELECT value FROM c WHERE key = 'k'");
        if row.as_deref() == expected {
            break;
        }
        session.run("SELECT cache_get('k', 'c')");
        assert!(
            Instant::now() < deadline,
            "the subscriber does not follow to {expected:?}"
        );
    }
    assert_eq!(session.agrees("k", "c").as_deref(), expected);
}

#[test]
fn rows_applied_by_logical_replication_are_seen() {
    let publisher = Cluster::with_tier(&["wal_level = logical"]);
    let subscriber = Cluster::with_tier(&[]);
    let (mut source, mut target) = (
        publisher.connect("postgres"),
        subscriber.connect("postgres"),
    );
    for session in [&mut source, &mut target] {
        session.run("CREATE EXTENSION pgcache");
        session.run("SELECT cache_create('c', storage => 'logged')");
    }
    source.run("INSERT INTO c VALUES ('k', 'copied')");
    source.run("CREATE PUBLICATION p FOR TABLE c");
    target.run(&format!(
        "CREATE SUBSCRIPTION s CONNECTION 'host={} user=postgres dbname=postgres' PUBLICATION p \
         WITH (two_phase = true)",
        publisher.folder.display()
    ));
    arrives(&mut target, Some("copied"));
    for (change, expected) in [
        ("UPDATE c SET value = 'updated'", Some("updated")),
        ("SELECT cache_set('k', 'set', cache => 'c')", Some("set")),
        ("TRUNCATE c", None),
        ("INSERT INTO c VALUES ('k', 'inserted')", Some("inserted")),
        (
            "BEGIN; TRUNCATE c; INSERT INTO c VALUES ('k', 'again'); COMMIT",
            Some("again"),
        ),
        ("DELETE FROM c", None),
    ] {
        target.run("SELECT cache_get('k', 'c'), cache_get('k', 'c')");
        source.run(change);
        arrives(&mut target, expected);
    }
    // With two-phase commit, the apply worker finishes the prepared transaction without running a statement on the
    // cache.
    wait_until("two phases are on", || {
        target.holds("SELECT subtwophasestate = 'e' FROM pg_subscription")
    });
    source.run("INSERT INTO c VALUES ('k', 'whole')");
    arrives(&mut target, Some("whole"));
    for (commits, expected) in [(false, "whole"), (true, "phased")] {
        source.run("BEGIN; UPDATE c SET value = 'phased'; PREPARE TRANSACTION 'p'");
        wait_until("it is prepared there", || {
            target.number("SELECT count(*) FROM pgcache.prepared WHERE cache = 'c'::regclass") == 1
        });
        assert_eq!(target.agrees("k", "c").as_deref(), Some("whole"));
        let verb = if commits { "COMMIT" } else { "ROLLBACK" };
        source.run(&format!("{verb} PREPARED 'p'"));
        wait_until("it is decided there", || {
            target.number("SELECT count(*) FROM pg_prepared_xacts") == 0
        });
        assert_eq!(target.heat("k", "c").as_deref(), Some(expected));
    }
    target.run("DROP SUBSCRIPTION s");
    target.nothing_pending();
}

/// Dumps the rows of the cache `c` into a file from which pg_restore loads them with disabled triggers. Returns the
/// file.
fn dump(cluster: &Cluster, database: &str) -> std::path::PathBuf {
    let file = cluster.folder.join(format!("{database}.dump"));
    let mut dump = cluster.program("pg_dump");
    dump.args([
        "-Fc",
        "--data-only",
        "--disable-triggers",
        "-t",
        "c",
        "-d",
        database,
        "-f",
    ]);
    succeed(dump.arg(&file));
    file
}

#[test]
fn a_restore_with_triggers_disabled_is_seen_by_concurrent_gets() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run("INSERT INTO c SELECT 'k' || i, 'restored' FROM generate_series(1, 200) AS i");
    let file = dump(database.cluster, &database.name);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = database.connect();
                while !ends.load(Ordering::SeqCst) {
                    reader.run("SELECT cache_get('k' || i, 'c') FROM generate_series(1, 200) AS i");
                }
            });
        }
        for round in 0..8 {
            session.run("DELETE FROM c WHERE key > 'k1'; UPDATE c SET value = 'old'");
            session.run("TRUNCATE c");
            let mut restore = database.cluster.program("pg_restore");
            restore.args(["--data-only", "--disable-triggers", "-d", &database.name]);
            succeed(restore.arg(&file));
            for key in ["k1", "k100", "k200"] {
                assert_eq!(
                    session.agrees(key, "c").as_deref(),
                    Some("restored"),
                    "{round}"
                );
            }
            session.run("DELETE FROM c WHERE key = 'k100'");
            assert_eq!(session.agrees("k100", "c"), None, "{round}");
        }
        ends.store(true, Ordering::SeqCst);
    });
}
