//! Tests that one role's caches do not affect another role's caches. The attacker runs open, waiting, rolled-back and
//! prepared transactions on its own caches. During these transactions pgcache must store the victim's fetches, fill its
//! copies, and free its slots. Each attack is a line in one of the lists.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

/// The number of attempts of each kind; `ENOUGH` of them must succeed.
const TRIES: i64 = 100;
const ENOUGH: i64 = 95;
/// The number of keys that one batch reads.
const BATCH: i64 = 3000;

/// A victim, which uses the table `cache`, and an attacker with the schema `own`.
struct Scene<'c> {
    database: Database<'c>,
    attacker: String,
}

/// Fetches keys one by one into an empty cache. Returns the number of stored values.
fn fetched(victim: &mut Client, cache: &str) -> i64 {
    for n in 0..TRIES {
        victim.run(&format!(
            "SELECT cache_fetch('one {n}', 'SELECT 1', cache => '{cache}')"
        ));
    }
    victim.number(&format!("SELECT count(*) FROM {cache}"))
}

/// Creates a scene in which the attacker has a cache that depends on a source, and a cache without dependencies.
fn scene(cluster: &Cluster) -> Scene<'_> {
    let database = cluster.database();
    let attacker = cluster.role();
    let mut admin = database.connect();
    admin.run("SELECT cache_create('cache'); SELECT cache_set('x', 'v', cache => 'cache')");
    admin.run(&format!("CREATE SCHEMA own AUTHORIZATION {attacker}"));
    admin.run(&format!(
        "SET ROLE {attacker}; SELECT cache_create('own.plain'), cache_create('own.low'); \
         CREATE TABLE own.s (id int PRIMARY KEY, v int); \
         INSERT INTO own.s SELECT g, 0 FROM generate_series(1, 10001) AS g; \
         SELECT cache_depend('own.s', 'id::text', 'own.low'); \
         SELECT cache_set(g::text, 'v', cache => 'own.low') FROM generate_series(1, 100) AS g"
    ));
    Scene { database, attacker }
}

impl Scene<'_> {
    fn attack(&self) -> Client {
        self.database.connect_as(&self.attacker)
    }

    /// Checks for each way to store a value that the victim's values are stored and its copies are served.
    fn victim_is_unaffected(&self, what: &str) {
        let mut victim = self.database.connect();
        victim.run("SET statement_timeout = '120s'");
        victim.run("DELETE FROM cache");
        let stored = |victim: &mut Client| victim.number("SELECT count(*) FROM cache");
        let found = fetched(&mut victim, "cache");
        assert!(
            found >= ENOUGH,
            "{what}: {found} of {TRIES} fetches are stored"
        );

        victim.run("DELETE FROM cache");
        let slow = "SELECT 1 FROM pg_sleep(0.005)";
        victim.run(&format!(
            "SELECT count(cache_fetch('many ' || g, '{slow}', cache => 'cache')) FROM generate_series(1, 64 + {TRIES}) AS g"
        ));
        let found = stored(&mut victim) - 64;
        assert!(
            found >= ENOUGH,
            "{what}: {found} of {TRIES} fetches without a lease are stored"
        );

        victim.run("DELETE FROM cache");
        let mut others = self.attack();
        for n in 0..TRIES {
            victim.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
            others.run(
                "INSERT INTO own.s VALUES (0, 0) ON CONFLICT (id) DO UPDATE SET v = own.s.v + 1",
            );
            victim.run(&format!(
                "SELECT cache_fetch('old {n}', 'SELECT 1', cache => 'cache'); COMMIT"
            ));
        }
        let found = stored(&mut victim);
        assert!(
            found >= ENOUGH,
            "{what}: {found} of {TRIES} fetches with an old snapshot are stored"
        );

        victim.run("DELETE FROM cache");
        victim.run(&format!(
            "INSERT INTO cache SELECT 'copy ' || g, 'v' FROM generate_series(1, {TRIES}) AS g"
        ));
        victim.run(
            "SELECT count(cache_get('copy ' || g, 'cache')) FROM generate_series(1, 100) AS g",
        );
        let before = victim.hot_hits("cache");
        victim.run(
            "SELECT count(cache_get('copy ' || g, 'cache')) FROM generate_series(1, 100) AS g",
        );
        let found = victim.hot_hits("cache") - before;
        assert!(
            found >= ENOUGH,
            "{what}: {found} of {TRIES} copies are served"
        );

        victim.run(&format!(
            "INSERT INTO cache SELECT 'batch ' || g, 'v' FROM generate_series(1, {BATCH}) AS g"
        ));
        let read = format!(
            "SELECT count(value) FROM cache_get_many(ARRAY(SELECT 'batch ' || g FROM generate_series(1, {BATCH}) AS g), 'cache')"
        );
        assert_eq!(victim.number(&read), BATCH);
        let before = victim.hot_hits("cache");
        assert_eq!(victim.number(&read), BATCH);
        let found = victim.hot_hits("cache") - before;
        assert!(
            found * 100 >= ENOUGH * BATCH,
            "{what}: {found} of {BATCH} copies of a batch are served"
        );
    }
}

/// Writes of transactions that stay open: prepared, idle or waiting.
const PREPARED: &[&str] = &[
    "UPDATE own.s SET v = v + 1 WHERE id <= 9900",
    "UPDATE own.s SET v = v + 1 WHERE id BETWEEN 1 AND 10001",
    "SELECT cache_set('p' || g, 'v', cache => 'own.plain') FROM generate_series(1, 9900) AS g",
    "SELECT cache_delete_prefix('p', 'own.plain')",
    "SELECT cache_delete('p' || g, 'own.plain') FROM generate_series(1, 9900) AS g",
    "TRUNCATE own.plain",
];

#[test]
fn prepared_transactions_affect_no_other_cache() {
    let cluster = Cluster::with_tier(&[]);
    for write in PREPARED {
        let scene = scene(cluster);
        let mut attacker = scene.attack();
        attacker.run(&format!("BEGIN; {write}; PREPARE TRANSACTION 'p'"));
        scene.victim_is_unaffected(write);
        attacker.run("COMMIT PREPARED 'p'");
        scene.victim_is_unaffected("after it");
    }
}

/// One role uses its whole share of the pool for keys of prepared transactions. A transaction of another role still
/// finds room, so each of its keys gets its own mark, even in a cache that both roles use.
#[test]
fn prepared_transactions_of_one_role_leave_room_for_keys_of_another() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '8MB'"]);
    let scene = scene(cluster);
    let mut attacker = scene.attack();
    attacker.run(&format!(
        "BEGIN; {}; PREPARE TRANSACTION 'full'",
        PREPARED[4]
    ));
    let role = cluster.role();
    let mut admin = scene.database.connect();
    admin.run(&format!("GRANT ALL ON cache TO {role}"));
    let mut other = scene.database.connect_as(&role);
    other.run("BEGIN; SELECT cache_delete('other ' || g, 'cache') FROM generate_series(1, 100) AS g; PREPARE TRANSACTION 'other'");
    scene.victim_is_unaffected("keys of the same cache");
    admin.run("COMMIT PREPARED 'other'");
    admin.run("ROLLBACK PREPARED 'full'");
    scene.victim_is_unaffected("after it");
    admin.nothing_pending();
}

/// Four roles use all the room and all the marks that they may have.
#[test]
fn prepared_transactions_of_four_roles_leave_room_for_keys_of_another() {
    for size in ["8MB", "64MB"] {
        four_roles_prepare(size);
    }
}

fn four_roles_prepare(size: &str) {
    let cluster = Cluster::with_tier(&[&format!("pgcache.hot_size = '{size}'")]);
    let scene = scene(cluster);
    let mut admin = scene.database.connect();
    admin.run(
        "CREATE TABLE source (id int PRIMARY KEY, v int); INSERT INTO source VALUES (1, 0), (2, 0), (3, 0);
         SELECT cache_create('memory', storage => 'memory'); SELECT cache_depend('source', 'id::text', 'memory');
         SELECT cache_create('copied'); SELECT cache_depend('source', 'id::text', 'copied')",
    );
    for number in 0..4 {
        let role = cluster.role();
        admin.run(&format!("CREATE SCHEMA s{number} AUTHORIZATION {role}"));
        let mut session = scene.database.connect_as(&role);
        for cache in 0..2 {
            session.run(&format!(
                "SELECT cache_create('s{number}.c{cache}'); BEGIN;
                 SELECT count(cache_set('k' || g, 'v', cache => 's{number}.c{cache}')) FROM generate_series(1, 9900) AS g;
                 PREPARE TRANSACTION 'full {number} {cache}'"
            ));
        }
    }
    admin.run("BEGIN; UPDATE source SET v = 1; PREPARE TRANSACTION 'small'");
    let mut victim = scene.database.connect();
    let found = fetched(&mut victim, "memory");
    assert!(
        found >= ENOUGH,
        "{size}: {found} of {TRIES} fetches are stored"
    );
    admin.run("ROLLBACK PREPARED 'small'");
    for number in 0..4 {
        for cache in 0..2 {
            admin.run(&format!("ROLLBACK PREPARED 'full {number} {cache}'"));
        }
    }
    admin.nothing_pending();
}

/// A transaction that changes many caches finds room for PREPARE TRANSACTION, even if its role has used up its share
/// with other prepared transactions.
#[test]
fn a_transaction_that_changes_many_caches_can_be_prepared() {
    let cluster = Cluster::with_tier(&[
        "pgcache.hot_size = '8MB'",
        "max_locks_per_transaction = 256",
    ]);
    let scene = scene(cluster);
    let mut attacker = scene.attack();
    attacker.run(&format!(
        "BEGIN; {}; PREPARE TRANSACTION 'full'",
        PREPARED[4]
    ));
    let role = cluster.role();
    let mut admin = scene.database.connect();
    admin.run(&format!("CREATE SCHEMA other AUTHORIZATION {role}"));
    let mut other = scene.database.connect_as(&role);
    let mut victim = scene.database.connect();
    for (session, schema, caches) in [(&mut other, "other", 12), (&mut attacker, "own", 64)] {
        session.run(&format!(
            "SELECT cache_create(format('{schema}.c%s', g)) FROM generate_series(1, {caches}) AS g"
        ));
        let keys = "SELECT cache_set(format('k%s', k), 'v', cache => format('{schema}.c%s', g))";
        let changes = [
            keys,
            "SELECT cache_delete_prefix('k', format('{schema}.c%s', g))",
        ];
        for change in changes.map(|change| change.replace("{schema}", schema)) {
            session.run(&format!(
                "BEGIN; {change} FROM generate_series(1, {caches}) AS g, generate_series(1, 3) AS k; \
                 PREPARE TRANSACTION 'wide'"
            ));
            for cache in [1, caches] {
                let found = victim.number(&format!(
                    "SELECT count(cache_get('k1', '{schema}.c{cache}')) FROM generate_series(1, 3)"
                ));
                assert_eq!(found % 3, 0, "one answer");
            }
            session.run("COMMIT PREPARED 'wide'");
            victim.verified(&format!("{schema}.c1"));
        }
        assert_eq!(
            victim.value(&format!("SELECT cache_get('k1', '{schema}.c1')")),
            None
        );
    }
    admin.run("ROLLBACK PREPARED 'full'");
    admin.nothing_pending();
}

#[test]
fn open_transactions_affect_no_other_cache() {
    let cluster = Cluster::with_tier(&[]);
    for write in PREPARED {
        let scene = scene(cluster);
        let mut attacker = scene.attack();
        attacker.run(&format!("BEGIN; {write}"));
        scene.victim_is_unaffected(write);
        attacker.run("ROLLBACK");
    }
}

#[test]
fn a_commit_that_waits_is_felt_by_no_other_cache() {
    let cluster = Cluster::with_tier(&[]);
    let scene = scene(cluster);
    let mut holder = scene.attack();
    holder.run("BEGIN; SELECT count(*) FROM (SELECT * FROM own.low FOR UPDATE) AS rows");
    thread::scope(|scope| {
        let mut waiting = Vec::new();
        for from in [1, 2501, 5001] {
            let mut attacker = scene.attack();
            attacker.run("SET statement_timeout = '300s'");
            let pid = attacker.number("SELECT pg_backend_pid()");
            waiting.push((
                pid,
                scope.spawn(move || {
                    attacker.run(&format!(
                        "UPDATE own.s SET v = v + 1 WHERE id BETWEEN {from} AND {from} + 2499"
                    ));
                }),
            ));
        }
        let mut watch = scene.database.connect();
        // The other two sessions commit without a wait, because their keys have no entry.
        let (first, _) = &waiting[0];
        wait_until("the commit waits", || {
            watch.holds(&format!(
                "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {first} AND wait_event_type = 'Lock'"
            ))
        });
        scene.victim_is_unaffected("a commit waits for a row");
        holder.run("ROLLBACK");
        for (_, one) in waiting {
            one.join().expect("it commits");
        }
    });
    scene.victim_is_unaffected("after it");
}

/// Writes that the attacker repeats constantly.
const LOOPS: &[&str] = &[
    "UPDATE own.s SET v = v + 1 WHERE id <= 300",
    "SELECT cache_delete_prefix('q', 'own.plain')",
    "SELECT cache_delete('q', 'own.plain')",
    "SELECT cache_set('q' || g, 'v', cache => 'own.plain') FROM generate_series(1, 300) AS g",
    "TRUNCATE own.plain",
    "CREATE TEMP TABLE t (key text); SELECT cache_delete_prefix('q', 'own.plain'); DROP TABLE t",
];

#[test]
fn repeated_writes_affect_no_other_cache() {
    let cluster = Cluster::with_tier(&[]);
    for write in LOOPS {
        let scene = scene(cluster);
        round_and_round(&scene, write);
    }
}

/// Repeats the write constantly in two of the attacker's sessions, and checks that the victim is unaffected.
fn round_and_round(scene: &Scene, write: &str) {
    let stop = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        for _ in 0..2 {
            let mut attacker = scene.attack();
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // The two sessions write the same rows, so they may deadlock.
                    let _ = attacker.batch_execute(write);
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scene.victim_is_unaffected(write);
        }));
        stop.store(true, Ordering::Relaxed);
        done
    });
    if let Err(reason) = done {
        std::panic::resume_unwind(reason);
    }
}

/// Starts a server with a small tier, whose slots a test can use up.
fn crowded() -> &'static Cluster {
    Cluster::with_tier(&["pgcache.hot_size = '4MB'"])
}

fn take_all_slots(database: &Database) {
    let mut admin = database.connect();
    let mut taken = 0;
    while admin
        .try_lines(&format!(
            "SELECT cache_create('m{taken}', storage => 'memory'); SELECT cache_set('k', 'v', cache => 'm{taken}')"
        ))
        .is_ok()
    {
        taken += 1;
        assert!(taken < 1000);
    }
}

/// The victim's cache has a slot, and the attacker's has none.
#[test]
fn caches_without_a_slot_affect_no_other_cache() {
    let cluster = crowded();
    for write in [
        "SELECT cache_set('k', 'v', cache => 'own.late')",
        "SELECT cache_delete_prefix('q', 'own.late')",
        "TRUNCATE own.late",
        "SELECT cache_delete('q', 'own.late')",
    ] {
        let scene = scene(cluster);
        take_all_slots(&scene.database);
        let mut attacker = scene.attack();
        attacker.run("SELECT cache_create('own.late')");
        attacker.run(&format!("BEGIN; {write}; PREPARE TRANSACTION 'p'"));
        scene.victim_is_unaffected(write);
        attacker.run("COMMIT PREPARED 'p'");
        round_and_round(&scene, write);
        let mut admin = scene.database.connect();
        admin.run("SELECT cache_drop(c.name) FROM (SELECT 'm' || g AS name FROM generate_series(0, 200) AS g) AS c \
                   WHERE to_regclass(c.name) IS NOT NULL");
    }
}

/// Writes in a block or transaction that fails.
const LEAKS: &[&str] = &[
    "CREATE TEMP TABLE t (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz); \
     CREATE TRIGGER r AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION pgcache.record(); \
     CREATE TRIGGER u BEFORE TRUNCATE ON t FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate(); \
     ALTER TABLE t ENABLE ALWAYS TRIGGER r, ENABLE ALWAYS TRIGGER u; PERFORM cache_delete_prefix(''a'', ''t'')",
    "PERFORM cache_create(''own.l''); PERFORM cache_delete_prefix(''a'', ''own.l'')",
    "PERFORM cache_create(''own.l''); PERFORM cache_set(''a'', ''v'', cache => ''own.l''); TRUNCATE own.l",
    "PERFORM cache_create(''own.l'', storage => ''memory''); PERFORM cache_set(''a'', ''v'', cache => ''own.l'')",
    "PERFORM cache_create(''own.l''); PERFORM cache_get(''a'', ''own.l''); PERFORM cache_drop(''own.l'')",
];

#[test]
fn a_slot_is_freed_when_its_taker_ends() {
    let cluster = crowded();
    for leak in LEAKS {
        let scene = scene(cluster);
        let mut attacker = scene.attack();
        attacker.run(&format!(
            "CREATE FUNCTION own.leak() RETURNS void LANGUAGE plpgsql AS \
             $$BEGIN EXECUTE 'DO $d$BEGIN {leak}; RAISE division_by_zero; END$d$'; \
             EXCEPTION WHEN division_by_zero THEN END$$"
        ));
        for end in ["COMMIT", "ROLLBACK"] {
            for _ in 0..40 {
                attacker.run(&format!("BEGIN; SELECT own.leak(); {end}"));
            }
        }
        let mut admin = scene.database.connect();
        admin.run("SELECT cache_create('mem', storage => 'memory'); SELECT cache_set('k', 'v', cache => 'mem')");
        assert_eq!(admin.text("SELECT cache_get('k', 'mem')"), "v", "{leak}");
        admin.run("SELECT cache_drop('mem')");
        admin.run("DROP SCHEMA own CASCADE; SELECT cache_drop('cache')");
    }
}

#[test]
fn a_memory_cache_has_its_slot_from_the_start() {
    let cluster = crowded();
    let database = cluster.database();
    let mut admin = database.connect();
    for n in 0..1000 {
        let made = admin.try_lines(&format!("SELECT cache_create('m{n}', storage => 'memory')"));
        if made.is_err() {
            refused(made, "53400");
            assert!(n > 0);
            admin.run(&format!(
                "SELECT cache_set('k', 'v', cache => 'm{}')",
                n - 1
            ));
            return;
        }
    }
    panic!("no end of slots");
}

#[test]
fn a_role_takes_at_most_half_of_the_leases() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let roles = [cluster.role(), cluster.role()];
    let mut admin = database.connect();
    admin.run("SELECT cache_create('c')");
    let taken = roles.map(|role| {
        admin.run(&format!("GRANT SELECT ON c TO {role}"));
        let mut session = database.connect_as(&role);
        session.run("SET pgcache.lease_time = '1h'");
        session.number(
            "SELECT count(lease) FROM generate_series(1, 10000) AS g, \
             cache_lease(current_user || g, cache => 'c')",
        )
    });
    admin.run("SELECT cache_clear('c')");
    assert!(taken[0] > 0);
    assert_eq!(taken[0], taken[1], "the second role has its half");
}
