//! Tests that a cache with the OID of a dropped cache inherits nothing from it, for all kinds of caches, even in a
//! session that still has cached information about the dropped cache.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::native::reuse;
use pgcache_tests::tier::Tiered;
use postgres::Client;

const KINDS: &[&str] = &[
    "value_type => 'text', storage => 'memory'",
    "value_type => 'jsonb', storage => 'memory'",
    "value_type => 'text'",
    "value_type => 'jsonb'",
    "value_type => 'bytea'",
];

const OID: &str = "SELECT 'c'::regclass::oid";

fn create(kind: &str) -> String {
    format!("SELECT cache_create('c', {kind})")
}

/// Checks that no entry exists, with every function that reads.
fn is_empty(session: &mut Client, case: &str) {
    for _ in 0..2 {
        assert_eq!(session.value("SELECT cache_get('k', 'c')"), None, "{case}");
        assert!(!session.holds("SELECT cache_exists('k', 'c')"), "{case}");
        assert!(
            !session.holds("SELECT found FROM cache_lookup('k', 'c')"),
            "{case}"
        );
        let many = session.lines("SELECT value FROM cache_get_many('{k,l}', 'c')");
        assert_eq!(many, ["", ""], "{case}");
        assert!(
            session
                .lines("SELECT * FROM cache_scan(cache => 'c')")
                .is_empty(),
            "{case}"
        );
    }
}

/// Creates an entry, and checks that both sessions find its value in the tier.
fn fill(session: &mut Client, reader: &mut Client, value: i64) {
    session.run(&format!("SELECT cache_set('k', '{value}', cache => 'c')"));
    assert_eq!(reader.heat("k", "c"), Some(value.to_string()));
    assert_eq!(session.heat("k", "c"), Some(value.to_string()));
}

#[test]
fn a_cache_under_the_oid_of_a_dropped_one_has_nothing_of_it() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = cluster.counting_oids(&database.name);
    let mut reader = database.connect();
    // Older minor versions of Postgres cannot drop a view whose OID belonged to a table while a session still has
    // statistics of that table. So this session gathers no statistics.
    reader.run("SET track_counts = off");
    session.run(&create(KINDS[0]));
    let oid = session.number(OID);
    let mut value = 1;
    for former in KINDS {
        for next in KINDS {
            let case = format!("{next} after {former}");
            session.run("SELECT cache_drop('c')");
            reuse(&mut session, oid, &create(former));
            assert_eq!(session.number(OID), oid, "{case}");
            fill(&mut session, &mut reader, value);
            session.run("SELECT cache_drop('c')");
            reuse(&mut session, oid, &create(next));
            assert_eq!(session.number(OID), oid, "{case}");
            is_empty(&mut session, &case);
            is_empty(&mut reader, &case);
            is_empty(&mut database.connect(), &case);
            fill(&mut session, &mut reader, value + 1);
            value += 2;
        }
    }
    session.nothing_pending();
    session.sums_up();
}

#[test]
fn a_cache_under_the_oid_of_a_rolled_back_one_has_nothing_of_it() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = cluster.counting_oids(&database.name);
    let mut reader = database.connect();
    for former in KINDS {
        for end in ["ROLLBACK", "ROLLBACK TO s; COMMIT"] {
            let case = format!("{former}, {end}");
            session.run(&format!("BEGIN; SAVEPOINT s; {}", create(former)));
            session.run("SELECT cache_set('k', '1', cache => 'c'), cache_get('k', 'c')");
            let oid = session.number(OID);
            session.run(end);
            reuse(&mut session, oid, &create(KINDS[0]));
            assert_eq!(session.number(OID), oid, "{case}");
            is_empty(&mut session, &case);
            is_empty(&mut reader, &case);
            fill(&mut session, &mut reader, 2);
            session.run("SELECT cache_drop('c')");
        }
    }
}

#[test]
fn a_cache_in_a_database_under_the_oid_of_a_dropped_one_has_nothing_of_it() {
    let cluster = Cluster::with_tier(&[]);
    let mut session = cluster.counting_oids("postgres");
    let mut former = None;
    for kind in KINDS {
        session.run("CREATE DATABASE reused OID = 70000"); // an OID that the counter does not reach
        let mut inside = cluster.connect("reused");
        inside.run("CREATE EXTENSION pgcache");
        if let Some(former) = former {
            inside.run("CREATE FUNCTION set_next_oid(oid) RETURNS void LANGUAGE c AS 'pgcache_oids', 'set_next_oid'");
            reuse(&mut inside, former, &create(kind));
            assert_eq!(inside.number(OID), former, "{kind}");
            is_empty(&mut inside, kind);
        } else {
            inside.run(&create(kind));
        }
        former = Some(inside.number(OID));
        let mut reader = cluster.connect("reused");
        fill(&mut inside, &mut reader, 1);
        drop((inside, reader));
        session.run("DROP DATABASE reused WITH (FORCE)");
    }
}
