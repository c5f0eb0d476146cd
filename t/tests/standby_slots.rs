//! Tests slots on a standby, which replays DROP without any call of pgcache. The standby's memory caches must still be
//! able to reuse the slots of dropped caches, and must never see the entries of a dropped cache.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::native::reuse;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use postgres::Client;

use crate::standby::wait_for_replay;

/// The size of the tier.
const SIZE: &str = "pgcache.hot_size = '2MB'";
/// The number of slots in a tier of this size.
const SLOTS: usize = 32;

/// Starts a primary and its standby, each with a session in the database `postgres`.
fn pair(conf: &[&str]) -> (&'static Cluster, Cluster, Client, Client) {
    let primary = Cluster::with_tier(&[&[SIZE], conf].concat());
    let mut session = primary.counting_oids("postgres");
    session.run("CREATE EXTENSION pgcache");
    let standby = primary.standby();
    let mut replica = standby.connect("postgres");
    wait_for_replay(&mut session, &mut replica);
    (primary, standby, session, replica)
}

fn set_and_get(replica: &mut Client, value: &str) {
    replica.run(&format!("SELECT cache_set('k', '{value}', cache => 'm')"));
    assert_eq!(replica.text("SELECT cache_get('k', 'm')"), value);
}

#[test]
fn caches_that_come_and_go_do_not_use_up_its_slots() {
    let (_primary, _standby, mut session, mut replica) = pair(&[]);
    for round in 0..SLOTS + 13 {
        session.run("SELECT cache_create('m', storage => 'memory')");
        wait_for_replay(&mut session, &mut replica);
        assert_eq!(replica.value("SELECT cache_get('k', 'm')"), None, "{round}");
        set_and_get(&mut replica, &round.to_string());
        session.run("SELECT cache_drop('m')");
        wait_for_replay(&mut session, &mut replica);
        refused(replica.try_value("SELECT cache_get('k', 'm')"), "42P01");
    }
    replica.sums_up();
}

#[test]
fn databases_that_come_and_go_do_not_use_up_its_slots() {
    let (primary, standby, mut session, mut replica) = pair(&[]);
    for round in 0..3 {
        session.run("CREATE DATABASE passing");
        let mut inside = primary.connect("passing");
        inside.run("CREATE EXTENSION pgcache");
        inside.run(
            "SELECT cache_create('m' || i, storage => 'memory') FROM generate_series(1, 14) AS i",
        );
        wait_for_replay(&mut session, &mut replica);
        let mut guest = standby.connect("passing");
        for i in 1..=14 {
            guest.run(&format!(
                "SELECT cache_set('k', '{round}', cache => 'm{i}')"
            ));
        }
        drop((inside, guest));
        session.run("DROP DATABASE passing WITH (FORCE)");
        wait_for_replay(&mut session, &mut replica);
    }
    replica.sums_up();
}

/// Without a free slot, one more memory cache fails with 53400, and all other caches still return their own entries.
#[test]
fn slots_in_use_are_not_given_to_other_caches() {
    // The primary needs slots for all caches, because it gives each cache its slot when the cache is created.
    let (_primary, standby, mut session, replica) = pair(&["pgcache.hot_size = '64MB'"]);
    drop(replica);
    standby.configure(&[SIZE]);
    standby.restart(Shutdown::Fast);
    let mut replica = standby.connect("postgres");
    session.run(&format!(
        "SELECT cache_create('m' || i, storage => 'memory') FROM generate_series(1, {SLOTS} + 1) AS i"
    ));
    session.run("SELECT cache_create('kept', storage => 'logged')");
    session.run("SELECT cache_set('k', 'row', cache => 'kept')");
    wait_for_replay(&mut session, &mut replica);
    for i in 1..=SLOTS {
        replica.run(&format!("SELECT cache_set('k', '{i}', cache => 'm{i}')"));
    }
    let beyond = format!("SELECT cache_set('k', 'x', cache => 'm{}')", SLOTS + 1);
    refused(replica.try_value(&beyond), "53400");
    for i in 1..=SLOTS {
        let value = replica.text(&format!("SELECT cache_get('k', 'm{i}')"));
        assert_eq!(value, i.to_string());
    }
    for value in ["row", "next"] {
        assert_eq!(replica.text("SELECT cache_get('k', 'kept')"), value);
        session.run("UPDATE kept SET value = 'next'");
        wait_for_replay(&mut session, &mut replica);
    }
    session.run("SELECT cache_drop('m7')");
    wait_for_replay(&mut session, &mut replica);
    replica.run(&beyond);
}

/// Several memory caches, and at last a table cache, get the OID of a dropped memory cache.
#[test]
fn a_cache_with_the_oid_of_a_dropped_one_has_none_of_its_entries() {
    let (_primary, standby, mut session, mut replica) = pair(&[]);
    let create = "SELECT cache_create('m', storage => 'memory')";
    session.run(create);
    let oid = session.number("SELECT 'm'::regclass::oid");
    for round in 0..3 {
        wait_for_replay(&mut session, &mut replica);
        assert_eq!(replica.value("SELECT cache_get('k', 'm')"), None, "{round}");
        set_and_get(&mut replica, &round.to_string());
        session.run("SELECT cache_drop('m')");
        reuse(&mut session, oid, create);
        assert_eq!(session.number("SELECT 'm'::regclass::oid"), oid);
    }
    wait_for_replay(&mut session, &mut replica);
    assert_eq!(replica.value("SELECT cache_get('k', 'm')"), None);
    set_and_get(&mut replica, "last");
    session.run("SELECT cache_drop('m')");
    session.run("VACUUM pg_class");
    wait_for_replay(&mut session, &mut replica);
    standby.promote();
    reuse(&mut replica, oid, "SELECT cache_create('t')");
    assert_eq!(replica.number("SELECT 't'::regclass::oid"), oid);
    assert_eq!(replica.value("SELECT cache_get('k', 't')"), None);
    replica.run("SELECT cache_set('k', 'old', cache => 't')");
    assert_eq!(replica.heat("k", "t").as_deref(), Some("old"));
    standby
        .connect("postgres")
        .run("UPDATE t SET value = 'new'");
    assert_eq!(replica.agrees("k", "t").as_deref(), Some("new"));
}

/// If the worker runs, it frees the memory of dropped caches even before another cache needs the slot.
#[test]
fn the_worker_frees_the_memory_of_dropped_caches() {
    let (_primary, _standby, mut session, mut replica) =
        pair(&["pgcache.expire_interval = '200ms'"]);
    session.run("SELECT cache_create('m', storage => 'memory')");
    wait_for_replay(&mut session, &mut replica);
    set_and_get(&mut replica, "1");
    session.run("SELECT cache_drop('m')");
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while replica.number("SELECT entries FROM pgcache.hot_tier") > 0 {
        assert!(std::time::Instant::now() < patience, "the entry stays");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
