//! The windows of the lease protocol, one by one: what happens in each while somebody else goes on. They are
//! as wide as `pgcache.pause` says where the library was built with the cargo feature `pauses` (scripts/storm.sh);
//! else there is nothing to prove here.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// Counts its runs, in a way that everybody sees at once.
const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v || left(nextval(''runs'')::text, 0) FROM src WHERE k = $1', cache => 'c')";
const UPDATE: &str = "UPDATE src SET v = 'new' WHERE k = 'k'";
const GET: &str = "SELECT cache_get('k', 'c')";

/// Numbers of `pg::session::pause::Window`.
const MARK_TO_VISIBLE: u32 = 0;
const VISIBLE_TO_UNMARK: u32 = 1;
const MARK_TO_REMOVE: u32 = 4;
const LOAD_TO_STORE: u32 = 5;
const TOLD_TO_WRITTEN: u32 = 6;
const WRITTEN_TO_ASKED: u32 = 7;

/// As wide as a window is.
const WIDE: Duration = Duration::from_secs(2);
/// Long enough to come into it, and so short that most of it is left.
const INTO: Duration = Duration::from_millis(300);

fn with_source<'c>(cluster: &'c Cluster, storage: &str) -> Database<'c> {
    let database = cluster.database();
    let mut session = database.connect();
    session.run("CREATE TABLE src (k text PRIMARY KEY, v text); CREATE SEQUENCE runs");
    session.run("INSERT INTO src VALUES ('k', 'old'), ('l', 'old')");
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    session.run("SELECT cache_depend('src', 'k', 'c')");
    database
}

fn paused(cluster: &Cluster) -> bool {
    let mut session = cluster.database().connect();
    session.holds("SELECT count(*) = 2 FROM pg_settings WHERE name LIKE 'pgcache.pause%'")
}

fn widen(session: &mut Client, window: u32) {
    session.run(&format!(
        "SET pgcache.pause = {}; SET pgcache.pause_window = {window}",
        WIDE.as_millis()
    ));
}

fn until_loaded(watch: &mut Client, runs: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while watch.number("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM runs") < runs {
        assert!(Instant::now() < deadline, "nobody loads");
        sleep(Duration::from_millis(5));
    }
    sleep(INTO);
}

/// From now on everybody finds the new value, and nothing is left of the old one.
fn converged(database: &Database, what: &str) {
    let mut session = database.connect();
    assert_ne!(session.value(GET).as_deref(), Some("old"), "{what}");
    assert_eq!(session.text(FETCH), "new", "{what}");
    assert_eq!(session.text(GET), "new", "{what}");
}

/// The source changes and commits while a fetch is in each of its windows.
#[test]
fn a_change_in_any_window_of_a_fetch_leaves_nothing_old() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(&cluster) {
        return;
    }
    for storage in ["unlogged", "memory"] {
        for leased in [true, false] {
            for window in [LOAD_TO_STORE, TOLD_TO_WRITTEN, WRITTEN_TO_ASKED] {
                let what = format!("{storage}, leased: {leased}, window {window}");
                let database = with_source(&cluster, storage);
                let mut reader = database.connect();
                reader.run("SELECT cache_create('own')");
                let (mut runs, mut begun) = (1, "BEGIN");
                if !leased {
                    begun = "BEGIN; SELECT count(cache_fetch('x' || g, 'SELECT nextval(''runs'')', cache => 'own')) \
                             FROM generate_series(1, 70) AS g";
                    runs += 70;
                }
                reader.run(begun);
                widen(&mut reader, window);
                thread::scope(|scope| {
                    let mut watch = database.connect();
                    let reader = scope.spawn(move || {
                        assert_eq!(reader.text(FETCH), "old");
                        reader.run("COMMIT");
                    });
                    until_loaded(&mut watch, runs);
                    watch.run(UPDATE);
                    reader.join().expect("it is served");
                });
                converged(&database, &what);
            }
        }
    }
    cluster.connect("postgres").run("CREATE EXTENSION pgcache");
    cluster.connect("postgres").nothing_pending();
}

/// A fetch, a client's lease and a value of somebody's own while a change is in each of its windows.
#[test]
fn in_any_window_of_a_change_nothing_old_is_stored() {
    let cluster = Cluster::with_tier(&[]);
    if !paused(&cluster) {
        return;
    }
    for storage in ["unlogged", "memory"] {
        for window in [MARK_TO_REMOVE, MARK_TO_VISIBLE, VISIBLE_TO_UNMARK] {
            if (storage, window) == ("memory", MARK_TO_REMOVE) {
                continue; // it is of tables
            }
            let what = format!("{storage}, window {window}");
            let database = with_source(&cluster, storage);
            let mut reader = database.connect();
            thread::scope(|scope| {
                let mut writer = database.connect();
                widen(&mut writer, window);
                let began = Instant::now();
                let writer = scope.spawn(move || writer.run(UPDATE));
                sleep(INTO);
                let seen = if window == VISIBLE_TO_UNMARK {
                    "new"
                } else {
                    "old"
                };
                assert_eq!(reader.text(FETCH), seen, "{what}");
                assert_eq!(reader.value(GET), None, "{what}");
                let won = reader
                    .lines("SELECT state, lease FROM cache_lease('k', cache => 'c')")
                    .remove(0);
                let lease = won.strip_prefix("win|").expect("it is told to compute");
                assert!(!reader.holds(&format!(
                    "SELECT cache_set_leased('k', '{seen}', {lease}, cache => 'c')"
                )));
                if storage == "memory" {
                    reader.run("SELECT cache_set('k', 'old', cache => 'c')");
                }
                assert_eq!(reader.value(GET), None, "{what}");
                assert!(began.elapsed() < WIDE, "the window was over: {what}");
                writer.join().expect("it commits");
            });
            converged(&database, &what);
        }
    }
    cluster.connect("postgres").run("CREATE EXTENSION pgcache");
    cluster.connect("postgres").nothing_pending();
}
