//! Tests that a set keeps the copy of the entry that it overwrites: the commit publishes the new row's value, and never
//! another value.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::tier::Tiered;
use pgcache_tests::windows::{LetGo, VISIBLE_TO_UNMARK, paused, stay_in, until_inside};
use postgres::Client;

fn scene(storage: &str) -> (Database<'static>, Client) {
    let database = Cluster::hot().database();
    let mut session = connect_directly(&database);
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    (database, session)
}

/// Connects a session whose sets access the table directly, because a set through a plan leaves no copy.
fn connect_directly(database: &Database) -> Client {
    let mut session = database.connect();
    session.run("SET pgcache.table_path = auto");
    session
}

const GET: &str = "SELECT cache_get('k', 'c')";

/// Returns whether the next get is served from the tier.
fn is_hot(session: &mut Client) -> bool {
    let before = session.hot_hits("c");
    let said = session.value(GET);
    assert_eq!(said, session.value("SELECT value FROM c WHERE key = 'k'"));
    session.hot_hits("c") > before
}

fn warm(session: &mut Client) {
    session.run("SELECT cache_set('k', 'warm', cache => 'c')");
    session.heat("k", "c");
}

/// Sets that leave a copy of the new row.
const KEPT: &[&str] = &[
    "SELECT cache_set('k', 'new', cache => 'c')",
    "SELECT cache_set('k', NULL, cache => 'c')",
    "SELECT cache_set('k', 'new', '1 hour', cache => 'c')",
    "SELECT cache_set('k', repeat('long ', 20000), cache => 'c')",
    "SELECT cache_set_many('{a,k}', '{1,2}', cache => 'c')",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); SELECT cache_set('k', '2', cache => 'c'); COMMIT",
    "BEGIN; SAVEPOINT s; SELECT cache_set('k', '1', cache => 'c'); RELEASE s; COMMIT",
];

/// Transactions whose set leaves no copy, because the transaction also writes in another way, or rolls the set back.
const DROPPED: &[&str] = &[
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); UPDATE c SET value = '2' WHERE key = 'k'; COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); DELETE FROM c; COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); TRUNCATE c; COMMIT",
    "BEGIN; TRUNCATE c; SELECT cache_set('k', '1', cache => 'c'); COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); SAVEPOINT s; \
     SELECT cache_set('k', '2', cache => 'c'); ROLLBACK TO s; COMMIT",
    "BEGIN; SAVEPOINT s; SELECT cache_set('k', '2', cache => 'c'); ROLLBACK TO s; COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); SELECT cache_delete('k', 'c'); COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); SELECT cache_delete_prefix('k', 'c'); COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); SELECT cache_touch('k', '1 hour', 'c'); COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); ALTER TABLE c ADD COLUMN more int; COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'c'); \
     INSERT INTO c SELECT g::text, 'v' FROM generate_series(1, 10001) AS g; COMMIT",
];

#[test]
fn a_set_keeps_the_copy_of_the_entry_it_overwrites() {
    for storage in ["unlogged", "logged"] {
        let (_database, mut session) = scene(storage);
        for set in KEPT {
            warm(&mut session);
            session.run(set);
            assert!(is_hot(&mut session), "{set}");
            session.verified("c");
        }
        for set in DROPPED {
            warm(&mut session);
            session.run(set);
            is_hot(&mut session);
            session.verified("c");
        }
        warm(&mut session);
        session.run("BEGIN; SELECT cache_set('k', '1', cache => 'c'); PREPARE TRANSACTION 'set'");
        session.run("COMMIT PREPARED 'set'");
        is_hot(&mut session);
        session.verified("c");
    }
}

#[test]
fn a_set_of_an_unread_entry_makes_no_copy() {
    let (_database, mut session) = scene("unlogged");
    session.run("SELECT cache_get('x', 'c')");
    let entries = "SELECT hot_entries FROM pgcache.stats WHERE cache = 'c'::regclass";
    for round in 0..2 {
        session.run(&format!(
            "SELECT cache_set('n' || g, '{round}', cache => 'c') FROM generate_series(1, 200) AS g"
        ));
        assert_eq!(session.number(entries), 0);
    }
}

#[test]
fn a_mix_of_reads_and_writes_is_served_from_the_tier() {
    let (_database, mut session) = scene("unlogged");
    session.run("SELECT cache_set('s' || g, '0', cache => 'c') FROM generate_series(1, 50) AS g");
    session.run("SELECT count(cache_get('s' || g, 'c')) FROM generate_series(1, 50) AS g");
    let before = session.hot_hits("c");
    for round in 1..=10 {
        for key in 1..=50 {
            let get = format!("SELECT cache_get('s{key}', 'c')");
            session.run(&get);
            session.run(&format!(
                "SELECT cache_set('s{key}', '{round}', cache => 'c')"
            ));
            assert_eq!(session.text(&get), round.to_string());
        }
    }
    let hits = session.hot_hits("c") - before;
    assert!(hits >= 900, "{hits} of 1000");
}

/// The second commit begins and ends while the first commit is visible and its mark is still set.
#[test]
fn a_set_publishes_nothing_over_a_later_one() {
    let cluster = Cluster::hot();
    if !paused(cluster) {
        return;
    }
    let (database, mut session) = scene("unlogged");
    for later in [
        "SELECT cache_set('k', 'later', cache => 'c')",
        "UPDATE c SET value = 'later'",
        "DELETE FROM c",
    ] {
        warm(&mut session);
        let mut first = connect_directly(&database);
        let backend = stay_in(cluster, &mut first, VISIBLE_TO_UNMARK);
        thread::scope(|scope| {
            let _go = LetGo(cluster);
            let first =
                scope.spawn(move || first.run("SELECT cache_set('k', 'first', cache => 'c')"));
            until_inside(&mut session, backend, later);
            session.run(later);
            cluster.hold_windows(false);
            first.join().expect("it commits");
        });
        is_hot(&mut session);
        session.agrees("k", "c");
    }
}

/// Commits of other keys on the same stripe begin and end while the first commit is visible and its mark is still set.
#[test]
fn a_set_keeps_the_copy_beside_commits_of_other_keys() {
    let cluster = Cluster::hot();
    if !paused(cluster) {
        return;
    }
    let (database, mut session) = scene("unlogged");
    session.run("INSERT INTO c SELECT 'other ' || g, 'v' FROM generate_series(1, 9000) AS g");
    warm(&mut session);
    let mut first = connect_directly(&database);
    let backend = stay_in(cluster, &mut first, VISIBLE_TO_UNMARK);
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let first = scope.spawn(move || first.run("SELECT cache_set('k', 'new', cache => 'c')"));
        until_inside(&mut session, backend, "others commit");
        for _ in 0..2 {
            session.run("UPDATE c SET value = value || 'w' WHERE key LIKE 'other %'");
        }
        cluster.hold_windows(false);
        first.join().expect("it commits");
    });
    assert!(is_hot(&mut session));
    session.verified("c");
}

/// Writers of all kinds and readers run at once: no copy differs from its row, at any time.
#[test]
fn no_copy_differs_from_its_row_under_writers_of_all_kinds() {
    let (database, mut session) = scene("unlogged");
    warm(&mut session);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for writes in [
            &KEPT[..4],
            &KEPT[4..],
            &DROPPED[..2],
            &DROPPED[2..6],
            &DROPPED[6..],
        ] {
            let (mut writer, stop) = (database.connect(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for write in writes {
                        if writer.batch_execute(write).is_err() {
                            let _ = writer.batch_execute("ROLLBACK");
                        }
                    }
                }
            });
        }
        for _ in 0..100 {
            session.agrees_or_changes();
            session.verified("c");
        }
        stop.store(true, Ordering::Relaxed);
    });
    session.agrees("k", "c");
    session.verified("c");
}

trait Reads {
    fn agrees_or_changes(&mut self);
}

impl Reads for Client {
    fn agrees_or_changes(&mut self) {
        for _ in 0..5 {
            self.value(GET);
        }
    }
}
