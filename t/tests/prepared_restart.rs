//! Tests prepared transactions that are still open after a clean restart, a crash or a promotion, which lose the marks
//! in shared memory. Until the transaction is committed or rolled back, no entry of the caches that it changed is
//! copied, leased or stored, whether or not the server had a hot tier before.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::tier::{PRELOAD, Tiered};
use postgres::Client;

use crate::prepared::{fetched, make_sources, stored};
use crate::standby::wait_for_replay;

/// Changes the cache `d` and the source of `c` and `m`, and prepares the transaction.
fn prepare(session: &mut Client, tier: bool) {
    session.run("CREATE EXTENSION pgcache");
    make_sources(session, tier);
    session.run(
        "SELECT cache_create('d', storage => 'logged'), cache_create('free', storage => 'logged')",
    );
    session.run("SELECT cache_set(k, 'old', cache => 'd') FROM unnest('{k,l}'::text[]) AS k");
    session.run("SELECT cache_set('k', 'v', cache => 'free')");
    fetched(session, "c", "k");
    session.run("BEGIN; SELECT cache_set('k', 'new', cache => 'd'); UPDATE source SET n = 2 WHERE key = 'k'");
    session.run("PREPARE TRANSACTION 'p'");
}

/// Checks that no new value is visible, and that no old value is stored.
fn old_and_nothing_stored(session: &mut Client, tier: bool, case: &str) {
    for key in ["k", "l"] {
        assert_eq!(session.agrees(key, "d").as_deref(), Some("old"), "{case}");
    }
    assert_eq!(
        session.text("SELECT n FROM source WHERE key = 'k'"),
        "1",
        "{case}"
    );
    session.run("SET lock_timeout = '20s'");
    let caches = if tier { &["c", "m"][..] } else { &["c"] };
    for cache in caches {
        // The transaction removes the row of `c`, but a fetch still finds it. The other key has no row.
        fetched(session, cache, "k");
        fetched(session, cache, "other");
        assert_eq!(stored(session, cache, "other"), None, "{cache}, {case}");
    }
    if tier {
        assert_eq!(stored(session, "m", "k"), None, "{case}");
        session.run("SELECT cache_set('k', '1', cache => 'm')");
        assert_eq!(stored(session, "m", "k"), None, "{case}");
        assert_eq!(session.heat("k", "free").as_deref(), Some("v"), "{case}");
        assert_eq!(session.hot_hits("d"), 0, "{case}");
    }
    let listed = "SELECT cache, whole_cache FROM pgcache.prepared WHERE cache::text IN ('c', 'd') ORDER BY 1";
    let mut listed = session.lines(listed);
    listed.sort();
    assert_eq!(listed, ["c|t", "d|t"], "{case}");
}

fn all_new(session: &mut Client, commits: bool, tier: bool, case: &str) {
    let (value, n) = if commits { ("new", 2) } else { ("old", 1) };
    assert_eq!(session.agrees("k", "d").as_deref(), Some(value), "{case}");
    let caches = if tier { &["c", "m"][..] } else { &["c"] };
    for cache in caches {
        assert_eq!(fetched(session, cache, "k"), n, "{cache}, {case}");
        assert_eq!(
            stored(session, cache, "k"),
            Some(n.to_string()),
            "{cache}, {case}"
        );
        fetched(session, cache, "other");
        assert!(stored(session, cache, "other").is_some(), "{cache}, {case}");
    }
    if tier {
        assert_eq!(session.heat("k", "d").as_deref(), Some(value), "{case}");
        session.nothing_pending();
    }
    session.run("UPDATE source SET n = 3 WHERE key = 'k'");
    for cache in caches {
        assert_eq!(stored(session, cache, "k"), None, "{cache}, {case}");
    }
}

#[test]
fn a_restart_forgets_marks_and_keeps_prepared_caches_out_of_the_tier() {
    let none = "shared_preload_libraries = ''";
    for (before, after, how) in [
        (PRELOAD, PRELOAD, Shutdown::Immediate),
        (PRELOAD, PRELOAD, Shutdown::Fast),
        (none, PRELOAD, Shutdown::Immediate),
        (PRELOAD, none, Shutdown::Immediate),
        (none, none, Shutdown::Fast),
    ] {
        for commits in [true, false] {
            let case = format!("{before}, then {after}, commits: {commits}");
            // A memory cache cannot be used without a tier.
            let tier = before == PRELOAD && after == PRELOAD;
            let cluster = Cluster::start(&[before]);
            prepare(&mut cluster.connect("postgres"), tier);
            cluster.configure(&[after]);
            cluster.restart(how);
            let mut session = cluster.connect("postgres");
            session.run("SELECT cache_get('k')"); // loads the library and its settings
            if after == PRELOAD {
                old_and_nothing_stored(&mut session, tier, &case);
            } else {
                assert_eq!(session.agrees("k", "d").as_deref(), Some("old"), "{case}");
                fetched(&mut session, "c", "other");
                assert_eq!(stored(&mut session, "c", "other"), None, "{case}");
            }
            let verb = if commits { "COMMIT" } else { "ROLLBACK" };
            cluster
                .connect("postgres")
                .run(&format!("{verb} PREPARED 'p'"));
            all_new(&mut session, commits, tier, &case);
        }
    }
}

/// A process that waits for a lock does not check its shutdown flag, so SIGTERM itself must interrupt the wait.
#[test]
fn a_server_stops_although_the_launcher_waits_for_a_prepared_transaction() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '100ms'", "autovacuum = off"]);
    let mut session = cluster.connect("postgres");
    session.run("BEGIN; LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'p'");
    pgcache_tests::wait::wait_until("the launcher waits", || {
        session.number("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0
    });
    drop(session);
    cluster.down(Shutdown::Fast);
}

#[test]
fn a_promoted_standby_keeps_prepared_caches_out_of_its_tier() {
    let primary = Cluster::with_tier(&[]);
    let standby = primary.standby();
    let mut session = primary.connect("postgres");
    prepare(&mut session, true);
    let mut replica = standby.connect("postgres");
    wait_for_replay(&mut session, &mut replica);
    // On the standby, replay does not remove the entries of `m`.
    replica.run("SELECT cache_set('k', '1', cache => 'm')");
    assert_eq!(stored(&mut replica, "m", "k").as_deref(), Some("1"));
    replica.run("SELECT cache_delete('k', 'm')");
    standby.promote();
    old_and_nothing_stored(&mut replica, true, "promoted");
    standby.connect("postgres").run("COMMIT PREPARED 'p'");
    all_new(&mut replica, true, true, "promoted");
    session.run("ROLLBACK PREPARED 'p'");
}
