//! Tests marks at their limits: the table of marks is full, or a cache has no slot when a writer marks it.

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use pgcache_tests::windows::{LetGo, NO_SLOT_TO_MARK, paused, stay_in, until_inside};

/// Configures a standby that never answers. Only a session that sets synchronous_commit waits for it.
const HANGING: [&str; 2] = [
    "synchronous_standby_names = 'nobody'",
    "synchronous_commit = local",
];

/// Creates a cache with this many entries and the key `k`. It is logged, so that commits wait for the standby. It was
/// never read, so it has no slot.
fn with_cache(cluster: &Cluster, entries: u32) -> Database<'_> {
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'logged')");
    session.run(&format!(
        "INSERT INTO c SELECT 'x' || i, 'old' FROM generate_series(1, {entries}) AS i"
    ));
    session.run("INSERT INTO c VALUES ('k', 'old')");
    database
}

/// Runs `meanwhile` after the commit of `change` has set its marks and before it is visible.
fn while_it_commits(database: &Database, role: &str, change: &str, meanwhile: impl FnOnce()) {
    thread::scope(|scope| {
        let _go = LetGo(database.cluster);
        let mut writer = database.connect_as(role);
        writer.run("SET synchronous_commit = on");
        let backend = writer.number("SELECT pg_backend_pid()");
        let writer = scope.spawn(move || writer.run(change));
        let mut watch = database.connect();
        wait_until("the commit waits", || {
            watch.holds(&format!(
                "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'SyncRep'"
            ))
        });
        meanwhile();
        watch.run(&format!("SELECT pg_cancel_backend({backend})"));
        writer.join().expect("the commit stands");
    });
}

/// The keys of one transaction use up its role's share of the table of marks.
#[test]
fn a_key_that_finds_no_place_keeps_readers_off_its_cache() {
    let cluster = Cluster::with_tier(&HANGING);
    let database = with_cache(cluster, 9_900);
    let mut reader = database.connect();
    reader.heat("k", "c");
    let all = "SELECT count(cache_get('x' || i, 'c')) FROM generate_series(1, 9900) AS i";
    while_it_commits(&database, "postgres", "UPDATE c SET value = 'new'", || {
        reader.run(all);
        reader.run(all);
    });
    let old = "SELECT count(*) FROM generate_series(1, 9900) AS i \
               WHERE cache_get('x' || i, 'c') = 'old'";
    assert_eq!(reader.number(old), 0);
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
    reader.nothing_pending();
}

/// One role has used up its share of the table of marks. Another role, whose OID has the same low bits, still has its
/// own share.
#[test]
fn each_role_has_its_own_share_of_the_marks() {
    let cluster = Cluster::with_tier(&HANGING);
    let database = with_cache(cluster, 9_900);
    let mut admin = database.connect();
    let mut oid_of = |role: &str| admin.number(&format!("SELECT '{role}'::regrole::oid::int8"));
    let first = cluster.role();
    let first_oid = oid_of(&first);
    let second = (0..1000)
        .map(|_| cluster.role())
        .find(|role| oid_of(role) % 64 == first_oid % 64)
        .expect("one of 64 roles is like that");
    admin.run("SELECT cache_create('d'); INSERT INTO d SELECT 'x' || i, 'v' FROM generate_series(1, 20) AS i");
    admin.run(&format!(
        "GRANT SELECT, UPDATE ON c TO {first}; GRANT ALL ON d TO {second}"
    ));
    while_it_commits(&database, &first, "UPDATE c SET value = 'new'", || {
        let mut writer = database.connect_as(&second);
        writer.run("BEGIN; SELECT cache_delete('k' || g, 'd') FROM generate_series(1, 10) AS g; PREPARE TRANSACTION 'p'");
        let mut reader = database.connect();
        let all = "SELECT count(cache_get('x' || i, 'd')) FROM generate_series(1, 20) AS i";
        reader.run(all);
        let before = reader.hot_hits("d");
        reader.run(all);
        assert_eq!(
            reader.hot_hits("d") - before,
            20,
            "all others have their copies"
        );
        reader.run("COMMIT PREPARED 'p'");
    });
    admin.nothing_pending();
}

/// The writer has changed more keys than it marks one by one, and the cache has no slot.
#[test]
fn a_slot_that_is_made_while_a_writer_commits_is_not_filled() {
    let cluster = Cluster::with_tier(&HANGING);
    let database = with_cache(cluster, 10_050);
    let mut reader = database.connect();
    while_it_commits(&database, "postgres", "UPDATE c SET value = 'new'", || {
        for _ in 0..3 {
            assert_eq!(reader.text("SELECT cache_get('k', 'c')"), "old");
        }
    });
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"));
    reader.heat("k", "c");
    reader.nothing_pending();
}

/// After the writer has found no slot, and before it sets its marks, a reader gives the cache a slot and copies the
/// row.
#[test]
fn a_slot_that_is_made_while_a_writer_marks_is_found() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(cluster) {
        return;
    }
    for change in [
        "UPDATE c SET value = 'new' WHERE key = 'k'",
        "UPDATE c SET value = 'new'",
    ] {
        let database = with_cache(cluster, 10_050);
        let (mut reader, mut writer) = (database.connect(), database.connect());
        let backend = stay_in(cluster, &mut writer, NO_SLOT_TO_MARK);
        thread::scope(|scope| {
            let _go = LetGo(cluster);
            let writer = scope.spawn(move || writer.run(change));
            until_inside(&mut reader, backend, change);
            assert_eq!(reader.heat("k", "c").as_deref(), Some("old"));
            cluster.hold_windows(false);
            writer.join().expect("it commits");
        });
        assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"), "{change}");
        reader.nothing_pending();
    }
}

/// The writer changes the definition and a row. Its note about the definition does not cover the row, so the row must
/// be marked, too, although the cache has no slot yet.
#[test]
fn a_row_that_changes_beside_the_definition_is_marked_without_a_slot() {
    for definition in [
        "SAVEPOINT s; TRUNCATE c; ROLLBACK TO s",
        "SAVEPOINT s; ALTER TABLE c SET (fillfactor = 90); ROLLBACK TO s",
        "SAVEPOINT s; CREATE TRIGGER t AFTER INSERT ON c EXECUTE FUNCTION suppress_redundant_updates_trigger(); ROLLBACK TO s",
    ] {
        for order in [0, 1] {
            let database = Cluster::hot().database();
            let (mut writer, mut reader) = (database.connect(), database.connect());
            writer.run("SELECT cache_create('c'); INSERT INTO c VALUES ('k', 'old')");
            let update = "UPDATE c SET value = 'new' WHERE key = 'k'";
            let changes = [definition, update];
            let (first, second) = (changes[order], changes[1 - order]);
            writer.run(&format!(
                "BEGIN; {first}; {second}; PREPARE TRANSACTION 'p'"
            ));
            for _ in 0..3 {
                assert_eq!(reader.text("SELECT cache_get('k', 'c')"), "old");
            }
            writer.run("COMMIT PREPARED 'p'");
            assert_eq!(
                reader.text("SELECT cache_get('k', 'c')"),
                "new",
                "{first}; {second}"
            );
            assert_eq!(
                reader.lines("SELECT * FROM pgcache.verify('c')"),
                Vec::<String>::new()
            );
        }
    }
}

/// Other prepared transactions have used up the role's room for keys. A reader gives the cache a slot after the writer
/// has found no slot. So the marks that find no room refer to no slot.
#[test]
fn prepared_keys_without_room_stand_for_a_slot_that_was_made_meanwhile() {
    let cluster =
        Cluster::with_tier(&["pgcache.hot_size = '8MB'", "max_prepared_transactions = 60"]);
    if !paused(cluster) {
        return;
    }
    let database = with_cache(cluster, 100);
    let (mut reader, mut writer) = (database.connect(), database.connect());
    reader.use_up_room("pgcache.main", 32);
    let backend = stay_in(cluster, &mut writer, NO_SLOT_TO_MARK);
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let writer = scope.spawn(move || {
            writer.run("BEGIN; UPDATE c SET value = 'new'; PREPARE TRANSACTION 'p'")
        });
        until_inside(&mut reader, backend, "it has found no slot");
        assert_eq!(reader.heat("k", "c").as_deref(), Some("old"));
        cluster.hold_windows(false);
        writer.join().expect("it is prepared");
    });
    let all = "SELECT count(cache_get('x' || g, 'c')) FROM generate_series(1, 100) AS g";
    reader.run(&format!("{all}; {all}"));
    reader.run("COMMIT PREPARED 'p'");
    reader.give_room_back(32);
    reader.verified("c");
    let old =
        "SELECT count(*) FROM generate_series(1, 100) AS g WHERE cache_get('x' || g, 'c') = 'old'";
    assert_eq!(reader.number(old), 0);
    reader.nothing_pending();
}
