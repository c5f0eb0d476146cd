//! Tests the values that fetches and leases store in unusual situations: inside a statement that writes the source,
//! under an old snapshot, or while the loader's session waits for the writer. Also tests how long a commit may wait for
//! fetches.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::parallel;
use pgcache_tests::refusal::refused;
use pgcache_tests::source::{UPDATE, session, with_source};
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::wait_until;
use postgres::Client;

const LOADER: &str = "SELECT v FROM src WHERE k = $1";
const FETCH: &str = "SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')";

fn loaded() -> &'static Cluster {
    Cluster::hot_with(&["deadlock_timeout = '200ms'"])
}

fn unloaded() -> &'static Cluster {
    Cluster::with(&[
        "deadlock_timeout = '200ms'",
        "shared_preload_libraries = ''",
    ])
}

/// Returns whether this many sessions wait for a heavyweight lock.
fn waiting(watch: &mut Client, sessions: usize) -> bool {
    watch.holds(&format!(
        "SELECT count(*) = {sessions} FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
         AND datname = current_database()"
    ))
}

/// The fetch runs after the statement has changed the rows and before its triggers report the changes.
#[test]
fn a_fetch_inside_a_change_of_its_source_leaves_nothing_after_a_rollback() {
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

/// The fetch runs in a user-defined trigger whose name sorts before the name of pgcache's trigger.
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

/// The transaction has written to another table and changed another row of the source. The value of this key does not
/// depend on them, so it is stored as usual.
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

/// The row with the old value is not committed, and its session waits for the writer.
#[test]
fn an_old_value_whose_session_waits_for_the_writer_goes_with_the_change() {
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
                // This is a deadlock, so either of the two sessions may fail.
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

/// The client reads the source under a snapshot older than the removal.
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
            let lease = won[0]
                .strip_prefix("win|")
                .expect("no other session has the lease");
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

/// If the inner fetch may not store its value, the outer fetch does not store its value either. Otherwise no removal
/// from the inner cache would remove the outer value.
#[test]
fn a_fetch_stores_no_value_computed_from_one_that_could_not_be_stored() {
    let cluster = Cluster::with_tier(&[
        "synchronous_standby_names = 'nobody'",
        "synchronous_commit = local",
    ]);
    for storage in ["memory", "unlogged"] {
        let database = with_source(cluster, "unlogged");
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

/// The time after which a commit counts as endless. By default no timeout of the server applies during a commit.
const FOREVER: Duration = Duration::from_secs(90);

/// Changes the source repeatedly while four sessions run `others` on the entry. Each change must commit.
fn changes_beside(database: &Database, others: &str, mut each: impl FnMut(&mut Client, usize)) {
    let (done, began) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = session(database);
                while !done.load(SeqCst) && began.elapsed() < FOREVER {
                    session.run(others);
                }
            });
        }
        let mut writer = session(database);
        for number in 0..5 {
            each(&mut writer, number);
        }
        done.store(true, SeqCst);
    });
    assert!(began.elapsed() < FOREVER, "it waited until the others went");
}

fn update(writer: &mut Client, number: usize) {
    writer.run(&format!("UPDATE src SET v = '{number}' WHERE k = 'k'"));
}

/// Other sessions overwrite the entry, one after the other.
#[test]
fn a_commit_ends_while_other_sessions_keep_writing_the_entry() {
    let database = with_source(loaded(), "unlogged");
    let mut open = session(&database);
    open.run("BEGIN");
    open.run(&FETCH.replace("('k'", "('l'"));
    let set = "BEGIN; SELECT cache_set('k', 'set', cache => 'c'); SELECT pg_sleep(0.02); COMMIT";
    changes_beside(&database, set, update);
    open.run("COMMIT");
}

/// Selects whether a writer waits in the queue for a session that loads a key. While it waits, it keeps new loaders
/// out.
const SHUT: &str = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 3 AND mode = 'AccessExclusiveLock' \
     AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The writer waits for the session that is loading the key when the writer enters the queue. Later loaders store
/// nothing, so the writer does not wait for them.
#[test]
fn without_preload_a_commit_waits_only_for_current_loaders_of_the_key() {
    for storage in ["unlogged", "logged"] {
        let database = with_source(unloaded(), storage);
        let (mut next, mut watch) = (session(&database), session(&database));
        thread::scope(|scope| {
            let mut loader = session(&database);
            loader.run("BEGIN");
            assert_eq!(loader.text(FETCH), "old");
            let writer = scope.spawn(|| session(&database).run(UPDATE));
            wait_until("new loaders are kept out", || watch.holds(SHUT));
            next.run("BEGIN");
            assert_eq!(next.text(FETCH), "old");
            assert_eq!(next.text(&FETCH.replace("('k'", "('l'")), "old");
            assert_eq!(next.lines("SELECT key FROM c"), ["l"]);
            loader.run("COMMIT");
            writer.join().expect("it commits");
            assert_eq!(next.text(FETCH), "new");
            next.run("COMMIT");
        });
        assert!(!watch.holds(SHUT), "{storage}");
        assert_eq!(watch.text("SELECT cache_get('k', 'c')"), "new", "{storage}");
    }
}

/// `lock_timeout` is the only timeout that applies during a commit.
#[test]
fn without_preload_lock_timeout_ends_the_wait_for_a_loader() {
    let database = with_source(unloaded(), "unlogged");
    let (mut loader, mut writer) = (session(&database), session(&database));
    loader.run("SET idle_in_transaction_session_timeout = '90s'; BEGIN");
    assert_eq!(loader.text(FETCH), "old");
    writer.run("SET lock_timeout = '500ms'");
    let ended = refused(writer.try_lines(UPDATE), "55P03");
    assert_eq!(ended.message(), "canceling statement due to lock timeout");
    loader.run("COMMIT");
    writer.run(UPDATE);
    assert_eq!(loader.text(FETCH), "new");
}

/// Sessions load the key repeatedly and roll back each time. They must not starve the writer.
#[test]
fn without_preload_a_commit_is_not_starved_by_repeated_loads() {
    let database = with_source(unloaded(), "unlogged");
    let mut watch = session(&database);
    watch.run(
        "CREATE SEQUENCE stored; CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN \
         PERFORM nextval('stored'); RETURN NULL; END $f$; \
         CREATE TRIGGER tell AFTER INSERT ON c FOR EACH ROW EXECUTE FUNCTION tell()",
    );
    let stored = "SELECT last_value FROM stored";
    let load = format!("BEGIN; {FETCH}; SELECT pg_sleep(0.3); ROLLBACK");
    let mut waited = 0;
    changes_beside(&database, &load, |writer, number| {
        let mut later = 0;
        thread::scope(|scope| {
            let update = scope.spawn(|| update(writer, number));
            wait_until("the writer waits or is done", || {
                update.is_finished() || watch.holds(SHUT)
            });
            if !update.is_finished() {
                waited += 1;
                later = watch.number(stored);
            }
            update.join().expect("it commits");
        });
        // Each of the four sessions may have passed the check before the writer entered the queue.
        let most = if later == 0 { i64::MAX } else { later + 4 };
        assert!(watch.number(stored) <= most, "others came first");
    });
    assert!(waited > 0, "the writer waited for no loader");
}

#[test]
fn nothing_is_left_pending() {
    let database = loaded().database();
    let mut session = session(&database);
    session.nothing_pending();
}

/// A parallel worker sees the rows that its leader has changed, but lacks the leader's notes about the changes.
#[test]
fn a_parallel_worker_stores_nothing() {
    let cluster = Cluster::hot();
    let database = cluster.database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE src (id int PRIMARY KEY, v text); INSERT INTO src SELECT g, 'old' FROM generate_series(1, 500) AS g;
         SELECT cache_create('c', storage => 'memory'); SELECT cache_depend('src', $$'p' || id$$, 'c');
         CREATE FUNCTION wrongly_marked(id int) RETURNS text LANGUAGE sql PARALLEL SAFE AS
             $$ SELECT cache_fetch('p' || id, 'SELECT v FROM src WHERE id = substr($1, 2)::int', cache => 'c') $$;
         ANALYZE src",
    );
    parallel::always(&mut session);
    session.run("SET parallel_leader_participation = off");
    let query = "SELECT count(*) FROM src WHERE wrongly_marked(id) = 'never'";
    assert!(parallel::is_planned(&mut session, query));
    session.run("BEGIN; UPDATE src SET v = 'never'");
    assert_eq!(session.number(query), 500);
    session.run("ROLLBACK");
    assert_eq!(
        session.number("SELECT count(*) FROM c WHERE value = 'never'"),
        0
    );
}
