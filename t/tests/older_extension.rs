//! Tests a database whose extension is older than the server's library, the state between a package update and ALTER
//! EXTENSION UPDATE, which may last weeks. The old functions continue to work, and calls that need the newer extension
//! fail with an error that says why.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::needs::{self, Needs};
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::{PRELOAD, Tiered};
use postgres::Client;

const OLDER: [&str; 4] = ["0.1.0", "0.2.0", "0.3.0", "0.4.0"];

fn database<'c>(cluster: &'c Cluster, version: &str) -> Database<'c> {
    let database = cluster.empty_database("");
    let mut session = database.connect();
    session.run(&format!("CREATE EXTENSION pgcache VERSION '{version}'"));
    session
        .run("SELECT cache_create('c'); SELECT cache_set_many('{k,l,n}', '{1,2,3}', cache => 'c')");
    database
}

#[test]
fn every_function_that_it_has_works() {
    for preload in [PRELOAD, "shared_preload_libraries = ''"] {
        let cluster = Cluster::start(&[preload]);
        for version in OLDER {
            let database = database(cluster, version);
            let mut session = database.connect();
            for (function, needs, call) in needs::present(&mut session) {
                if matches!(needs, Needs::Elsewhere | Needs::Trigger) {
                    continue;
                }
                let call = call.replace("$c", "'c'");
                let done = session.try_value(&format!("BEGIN; SELECT {call}"));
                assert!(done.is_ok(), "{function} of {version}: {done:?}");
                session.run("ROLLBACK");
            }
        }
    }
}

/// Reads a key four times, so that a copy serves the later reads if a copy can exist, and checks that all reads agree.
/// The function cannot wait until the copy exists, because 0.1.0 has no counters of hits from copies.
fn said(session: &mut Client, key: &str) -> Option<String> {
    let get = format!("SELECT cache_get('{key}', 'c')");
    let first = session.value(&get);
    (0..3).for_each(|_| assert_eq!(session.value(&get), first, "{key}"));
    first
}

/// One session stays open before, during and after the update.
#[test]
fn copies_of_an_older_extension_are_coherent_and_an_update_takes_nothing_from_open_sessions() {
    let cluster = Cluster::with_tier(&[]);
    for version in OLDER {
        let database = database(cluster, version);
        let mut session = database.connect();
        assert_eq!(said(&mut session, "k").as_deref(), Some("1"));
        session.run("UPDATE c SET value = '4' WHERE key = 'k'; DELETE FROM c WHERE key = 'n'");
        assert_eq!(said(&mut session, "k").as_deref(), Some("4"));
        assert_eq!(said(&mut session, "n"), None);
        database.connect().run("ALTER EXTENSION pgcache UPDATE");
        assert_eq!(session.heat("k", "c").as_deref(), Some("4"));
        assert_eq!(
            session.text("SELECT cache_fetch('f', 'SELECT 5', cache => 'c')"),
            "5"
        );
        session.run("TRUNCATE c");
        assert_eq!(session.agrees("k", "c"), None);
    }
}

fn needs_an_update<T>(result: Result<T, postgres::Error>) {
    let refusal = refused(result, "55000");
    let hint = refusal.hint().unwrap_or_default();
    assert!(
        hint.contains("ALTER EXTENSION pgcache UPDATE"),
        "{refusal:?}"
    );
}

#[test]
fn newer_functions_are_refused_with_the_update_command() {
    let cluster = Cluster::with_tier(&[]);
    let database = database(cluster, "0.1.0");
    let mut session = database.connect();
    let (memory, expire) = (
        "SELECT cache_create('m', storage => 'memory')",
        "SELECT cache_expire()",
    );
    needs_an_update(session.try_value(memory));
    needs_an_update(session.try_value(expire));
    session.run("SELECT cache_expire('c')");
    session.run("ALTER EXTENSION pgcache UPDATE");
    session.run(memory);
    session.run(expire);
}

#[test]
fn a_newer_function_exists_after_the_update() {
    let cluster = Cluster::with_tier(&[]);
    let mut session = database(cluster, "0.2.0").connect();
    let fetch = "SELECT cache_fetch('new', 'SELECT 1::text')";
    refused(session.try_value(fetch), "42883");
    session.run("ALTER EXTENSION pgcache UPDATE");
    session.run(fetch);
}

fn wait_until_swept(session: &mut Client, version: &str) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while session.holds("SELECT EXISTS (SELECT FROM c AS pgcache_c WHERE key = 'old')") {
        assert!(Instant::now() < deadline, "{version} is not swept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The worker sweeps a database only if its extension has a view that 0.1.0 lacks.
#[test]
fn a_database_is_swept_soon_after_its_update_and_from_0_2_0_on_before_it() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '300ms'"]);
    for version in OLDER {
        let database = database(cluster, version);
        let mut session = database.connect();
        let put = "INSERT INTO c VALUES ('old', '1', '2020-01-01')";
        session.run(put);
        if version == "0.1.0" {
            // Let the worker find the old version first. If the update did not notify the worker, it would check the
            // database again only after ten minutes.
            std::thread::sleep(Duration::from_secs(2));
            session.run("ALTER EXTENSION pgcache UPDATE");
        }
        wait_until_swept(&mut session, version);
    }
    let log = cluster.log_text();
    assert!(!log.contains("ERROR") && !log.contains("WARNING"), "{log}");
}

/// The update creates `pgcache.resp`, with preload and without. If a relation already has that name, it stays
/// unchanged.
#[test]
fn an_update_makes_the_doors_cache_unless_the_name_is_taken() {
    for preload in [PRELOAD, "shared_preload_libraries = ''"] {
        let cluster = Cluster::start(&[preload]);
        let updated = database(cluster, "0.3.0");
        let mut session = updated.connect();
        session.run("ALTER EXTENSION pgcache UPDATE");
        let made = "SELECT storage || ' ' || value_type || ' ' || (
                           SELECT relacl IS NULL AND EXISTS (
                                  SELECT FROM pg_depend WHERE objid = 'pgcache.resp'::regclass AND deptype = 'e')
                             FROM pg_class WHERE oid = 'pgcache.resp'::regclass)
                      FROM pgcache.caches WHERE cache = 'pgcache.resp'::regclass";
        assert_eq!(session.text(made), "memory bytea true");
        for theirs in [
            "CREATE TABLE pgcache.resp (theirs integer)",
            "SELECT cache_create('pgcache.resp')",
        ] {
            let database = database(cluster, "0.3.0");
            let mut session = database.connect();
            session.run(theirs);
            let before = session.text("SELECT 'pgcache.resp'::regclass::oid");
            session.run("ALTER EXTENSION pgcache UPDATE");
            assert_eq!(session.text("SELECT 'pgcache.resp'::regclass::oid"), before);
            assert!(
                session.holds(
                    "SELECT relkind = 'r' FROM pg_class WHERE oid = 'pgcache.resp'::regclass"
                )
            );
        }
    }
}
