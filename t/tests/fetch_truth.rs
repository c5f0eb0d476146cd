//! Values of fetches and leases in unusual places: inside of a statement that writes the source, under an
//! old snapshot, while the loader's session waits for the writer. And how long a commit may wait for them.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::source::{UPDATE, five_changes_among, session, with_source};
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

const LOADER: &str = "SELECT v FROM src WHERE k = $1";
const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')";

fn loaded() -> &'static Cluster {
    static LOADED: OnceLock<Cluster> = OnceLock::new();
    LOADED.get_or_init(|| Cluster::with_tier(&["deadlock_timeout = '200ms'"]))
}

fn unloaded() -> &'static Cluster {
    static UNLOADED: OnceLock<Cluster> = OnceLock::new();
    UNLOADED.get_or_init(|| {
        Cluster::start(&[
            "deadlock_timeout = '200ms'",
            "shared_preload_libraries = ''",
        ])
    })
}

/// Whether so many sessions wait for a lock of Postgres'.
fn waiting(watch: &mut Client, sessions: usize) -> bool {
    watch.holds(&format!(
        "SELECT count(*) = {sessions} FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
         AND datname = current_database()"
    ))
}

/// The statement has changed the rows, and its triggers have not said so yet.
#[test]
fn a_fetch_inside_of_the_statement_that_changes_the_source_leaves_nothing_if_that_is_rolled_back() {
    let fetch = format!("cache_fetch('k', '{LOADER}', cache => 'c')");
    for statement in [
        format!("{UPDATE} RETURNING {fetch}"),
        format!(
            "WITH u AS ({UPDATE} RETURNING k) SELECT cache_fetch(k, '{LOADER}', cache => 'c') FROM u"
        ),
        format!(
            "SELECT count(x), min(x) FROM (SELECT {fetch} AS x FROM generate_series(1, 70)) AS y; {UPDATE} RETURNING {fetch}"
        ),
        format!("SAVEPOINT s; {UPDATE} RETURNING {fetch}, 1 / 0"),
    ] {
        for storage in ["memory", "unlogged"] {
            let database = with_source(loaded(), storage);
            let (mut writer, mut other) = (session(&database), session(&database));
            writer.run("BEGIN");
            drop(writer.try_lines(&statement));
            let seen = other.value("SELECT cache_get('k', 'c')");
            assert_ne!(seen.as_deref(), Some("new"), "{storage}: {statement}");
            writer.run("ROLLBACK");
            let left = other.value("SELECT cache_get('k', 'c')");
            assert_ne!(left.as_deref(), Some("new"), "{storage}: {statement}");
            assert_eq!(other.text(FETCH), "old");
        }
    }
}

/// A trigger of the user's whose name comes before that of ours.
#[test]
fn a_fetch_in_a_trigger_of_the_source_leaves_nothing_if_that_is_rolled_back() {
    for storage in ["memory", "unlogged"] {
        let database = with_source(loaded(), storage);
        let (mut writer, mut other) = (session(&database), session(&database));
        writer.run(&format!(
            "CREATE FUNCTION early() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN \
             PERFORM cache_fetch(new.k, '{LOADER}', cache => 'c'); RETURN NULL; END $f$"
        ));
        writer.run("CREATE TRIGGER a AFTER UPDATE ON src FOR EACH ROW EXECUTE FUNCTION early()");
        writer.run(&format!("BEGIN; {UPDATE}"));
        let seen = other.value("SELECT cache_get('k', 'c')");
        assert_ne!(seen.as_deref(), Some("new"), "{storage}");
        writer.run("ROLLBACK");
        let left = other.value("SELECT cache_get('k', 'c')");
        assert_ne!(left.as_deref(), Some("new"), "{storage}");
        writer.run(UPDATE);
        assert_eq!(other.text(FETCH), "new");
    }
}

/// The source is changed by a transaction of before, not by this one: it is stored as ever.
#[test]
fn a_fetch_in_a_transaction_that_has_written_something_else_stores_in_memory() {
    let database = with_source(loaded(), "memory");
    let mut session = session(&database);
    session.run("CREATE TABLE log (x text); BEGIN; INSERT INTO log VALUES ('x')");
    session.run("UPDATE src SET v = 'other' WHERE k = 'l'");
    assert_eq!(session.text(FETCH), "old");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "old");
    session.run("ROLLBACK");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "old");
}

/// The row with the old value is there and nobody else sees it; its session waits for the writer.
#[test]
fn an_old_value_does_not_outlive_the_change_because_its_session_waits_for_the_writer() {
    for cluster in [loaded(), unloaded()] {
        for storage in ["unlogged", "logged"] {
            let database = with_source(cluster, storage);
            let (mut reader, mut writer) = (session(&database), session(&database));
            writer.run("CREATE TABLE other (x int); INSERT INTO other VALUES (1)");
            reader.run("BEGIN");
            assert_eq!(reader.text(FETCH), "old");
            writer.run("BEGIN");
            writer.run(UPDATE);
            writer.run("UPDATE other SET x = 2");
            thread::scope(|scope| {
                let mut watch = session(&database);
                let reader = scope.spawn(move || {
                    let waited = reader.try_lines("UPDATE other SET x = 3");
                    waited.and_then(|_| reader.try_lines("COMMIT"))
                });
                wait_until("the reader waits for a lock", || waiting(&mut watch, 1));
                // One of the two may fail, as in any deadlock.
                drop(writer.try_lines("COMMIT"));
                drop(reader.join());
            });
            let mut after = session(&database);
            let left = after.value("SELECT cache_get('k', 'c')");
            let stale = after.text("SELECT v FROM src WHERE k = 'k'") == "new";
            assert!(left.is_none() || !stale, "{storage}: {left:?}");
        }
    }
}

/// A client that reads the source under a snapshot which is older than the removal.
#[test]
fn a_lease_under_an_old_snapshot_stores_nothing_that_was_removed_since() {
    for storage in ["unlogged", "logged", "memory"] {
        for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
            let database = with_source(loaded(), storage);
            let mut client = session(&database);
            client.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            assert_eq!(client.text("SELECT v FROM src WHERE k = 'k'"), "old");
            session(&database).run(UPDATE);
            let won = client
                .lines("SELECT state, coalesce(lease, 0) FROM cache_lease('k', cache => 'c')");
            let lease = won[0].strip_prefix("win|").expect("nobody else has it");
            drop(client.try_lines(&format!(
                "SELECT cache_set_leased('k', (SELECT v FROM src WHERE k = 'k'), {lease}, cache => 'c')"
            )));
            drop(client.try_lines("COMMIT"));
            let mut after = session(&database);
            let left = after.value("SELECT cache_get('k', 'c')");
            assert_ne!(left.as_deref(), Some("old"), "{storage}");
            assert_eq!(after.text(FETCH), "new");
        }
    }
}

/// What an inner fetch may not store, an outer one does not store either: no row of the inner cache will go.
#[test]
fn a_fetch_stores_nothing_that_was_made_of_what_another_fetch_could_not_store() {
    let cluster = Cluster::with_tier(&[
        "synchronous_standby_names = 'nobody'",
        "synchronous_commit = local",
    ]);
    for storage in ["memory", "unlogged"] {
        let database = with_source(&cluster, "unlogged");
        let mut reader = session(&database);
        reader.run(&format!(
            "SELECT cache_create('outer_c', storage => '{storage}')"
        ));
        reader.run("SELECT cache_depend('c', 'key', 'outer_c')");
        let outer = "SELECT cache_fetch('k', 'SELECT cache_fetch($1, ''SELECT v FROM src WHERE k = $1'', \
                     cache => ''c'')', cache => 'outer_c')";
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut writer = session(&database);
                writer.run("SET synchronous_commit = on");
                writer.run(UPDATE);
            });
            let hanging = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()";
            let mut watch = session(&database);
            wait_until("the commit waits", || {
                watch.holds(&format!("SELECT count(*) = 1 {hanging}"))
            });
            let given = reader.text(outer);
            watch.run(&format!("SELECT pg_cancel_backend(pid) {hanging}"));
            writer.join().expect("it commits");
            assert_eq!(given, "old");
        });
        let left = reader.value("SELECT cache_get('k', 'outer_c')");
        assert_ne!(left.as_deref(), Some("old"), "{storage}");
        assert_eq!(reader.text(outer), "new");
        wait_until("the outer cache has the new value", || {
            reader.run(outer);
            reader.value("SELECT cache_get('k', 'outer_c')").as_deref() == Some("new")
        });
    }
}

/// Others overwrite the entry, one after the other.
#[test]
fn a_commit_ends_while_others_write_the_entry_again_and_again() {
    let database = with_source(loaded(), "unlogged");
    let mut open = session(&database);
    open.run("BEGIN");
    open.run(&FETCH.replace("('k'", "('l'"));
    let took = five_changes_among(
        &database,
        "BEGIN; SELECT cache_set('k', 'set', cache => 'c'); SELECT pg_sleep(0.02); COMMIT",
    );
    open.run("COMMIT");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Somebody who loads the key again and again, and rolls back each time, does not keep the writer waiting.
#[test]
fn without_preload_a_commit_gets_past_those_who_load_again_and_again() {
    let database = with_source(unloaded(), "unlogged");
    let took = five_changes_among(
        &database,
        &format!("BEGIN; {FETCH}; SELECT pg_sleep(0.02); ROLLBACK"),
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn nothing_is_left_pending() {
    let database = loaded().database();
    let mut session = session(&database);
    session.nothing_pending();
}
