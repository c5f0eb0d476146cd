//! Tests `cache_depend` with several sessions: values that other sessions store at the same time, replication, and
//! dumps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::parallel;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::{wait_for, wait_until};
use postgres::Client;

const SOURCE: &str =
    "CREATE TABLE src (id int PRIMARY KEY, v text); INSERT INTO src VALUES (1, 'old')";
const DEPEND: &str = "SELECT cache_depend('src', $$'p:' || id$$, 'c')";

fn source_and_cache(session: &mut Client, storage: &str) {
    session.run(SOURCE);
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    session.run(DEPEND);
}

/// Another session stores a value computed from the old row before the change commits. The commit must remove that
/// value.
#[test]
fn values_stored_between_the_change_and_the_commit_are_removed() {
    let database = Cluster::shared().database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut writer, "unlogged");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        writer.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        writer.run("UPDATE src SET v = v || '.'");
        other.run("SELECT cache_set('p:1', 'old', cache => 'c')");
        writer.run("COMMIT");
        assert_eq!(other.value("SELECT cache_get('p:1', 'c')"), None, "{level}");
    }
    other.run("SELECT cache_set('p:1', 'new', cache => 'c')");
    writer.run("BEGIN; UPDATE src SET v = 'never'; ROLLBACK");
    assert_eq!(other.text("SELECT cache_get('p:1', 'c')"), "new");
}

/// The loading session cannot see the uncommitted new row.
#[test]
fn a_writer_of_a_row_reads_no_value_made_of_the_old_one() {
    let database = Cluster::shared().database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut writer, "unlogged");
    let fetch = "SELECT cache_fetch('p:1', $$SELECT v FROM src WHERE id = 1$$, cache => 'c')";
    other.run(
        "SELECT cache_set('p:0', 'kept', cache => 'c'), cache_set('p:2', 'kept', cache => 'c')",
    );
    for change in [
        "UPDATE src SET v = 'new'",
        "SAVEPOINT s; UPDATE src SET v = 'new'",
    ] {
        writer.run(&format!("BEGIN; {change}"));
        assert_eq!(writer.value("SELECT cache_get('p:1', 'c')"), None);
        other.run("SELECT cache_set('p:1', 'old', cache => 'c')");
        for (read, found) in [
            ("SELECT cache_get('p:1', 'c')", ""),
            ("SELECT cache_exists('p:1', 'c')", "f"),
            ("SELECT found FROM cache_lookup('p:1', 'c')", "f"),
            ("SELECT cache_ttl('p:1', 'c') IS NULL", "t"),
            (
                "SELECT string_agg(coalesce(value, '-'), '') FROM cache_get_many('{p:2,p:1}', 'c')",
                "kept-",
            ),
            (
                "SELECT string_agg(key, ' ') FROM cache_scan('p', max_rows => 2, cache => 'c')",
                "p:0 p:2",
            ),
            (fetch, "new"),
            ("SELECT cache_get('p:1', 'c')", "new"),
            (
                "SELECT string_agg(key, ' ') FROM cache_scan('p', cache => 'c')",
                "p:0 p:1 p:2",
            ),
        ] {
            assert_eq!(writer.lines(read), [found], "{read} after {change}");
        }
        writer.run("ROLLBACK");
        assert_eq!(writer.text("SELECT cache_get('p:1', 'c')"), "old");
        other.run("SELECT cache_delete('p:1', 'c')");
    }
}

/// The functions that change an entry do not find a value that other sessions computed from the old row; neither do the
/// functions that read. They do find a value that the session itself has stored.
#[test]
fn a_writer_of_a_row_changes_no_value_made_of_the_old_one() {
    let database = Cluster::shared().database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut writer, "unlogged");
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        for (call, answer, left) in [
            ("cache_add('p:1', '7', cache => 'c')", "t", "7"),
            ("cache_replace('p:1', '7', cache => 'c')", "f", ""),
            ("cache_cas('p:1', '41', '7', cache => 'c')", "f", ""),
            ("cache_cas('p:1', NULL, '7', cache => 'c')", "t", "7"),
            ("cache_incr('p:1', cache => 'c')", "1", "1"),
            ("cache_touch('p:1', '1 hour', 'c')", "f", ""),
            ("cache_get_touch('p:1', '1 hour', 'c')", "", ""),
            ("cache_persist('p:1', 'c')", "f", ""),
            ("cache_delete('p:1', 'c')", "f", ""),
            ("cache_delete_many('{p:1}', 'c')", "0", ""),
            ("cache_delete_prefix('p:1', 'c')", "0", ""),
            ("cache_take('p:1', 'c')", "", ""),
            ("cache_delete_if('p:1', '41', 'c')", "f", ""),
            (
                "(cache_rate_limit('p:1', 1, '1 hour', 'c')).allowed",
                "t",
                "1",
            ),
        ] {
            // A transaction that keeps one snapshot cannot overwrite a row newer than the snapshot.
            if isolation != "READ COMMITTED" && !left.is_empty() {
                continue;
            }
            writer.run(&format!(
                "BEGIN ISOLATION LEVEL {isolation}; UPDATE src SET v = 'new'"
            ));
            assert_eq!(writer.value("SELECT cache_get('p:1', 'c')"), None);
            other.run("SELECT cache_set('p:1', '41', cache => 'c')");
            assert_eq!(writer.lines(&format!("SELECT {call}")), [answer], "{call}");
            assert_eq!(
                writer.lines("SELECT cache_get('p:1', 'c')"),
                [left],
                "{call}"
            );
            writer.run("ROLLBACK");
            other.run("SELECT cache_delete('p:1', 'c')");
        }
    }
    for (call, answer, left) in [
        ("cache_add('p:1', '7', cache => 'c')", "f", "5"),
        ("cache_replace('p:1', '7', cache => 'c')", "t", "7"),
        ("cache_cas('p:1', '5', '7', cache => 'c')", "t", "7"),
        ("cache_incr('p:1', cache => 'c')", "6", "6"),
        ("cache_touch('p:1', '1 hour', 'c')", "t", "5"),
        ("cache_persist('p:1', 'c')", "t", "5"),
        ("cache_delete('p:1', 'c')", "t", ""),
        ("cache_take('p:1', 'c')", "5", ""),
        ("cache_delete_if('p:1', '5', 'c')", "t", ""),
    ] {
        writer.run("BEGIN; UPDATE src SET v = 'new'; SELECT cache_set('p:1', '5', cache => 'c')");
        assert_eq!(
            writer.lines(&format!("SELECT {call}")),
            [answer],
            "{call} of its own"
        );
        assert_eq!(
            writer.lines("SELECT cache_get('p:1', 'c')"),
            [left],
            "{call} of its own"
        );
        writer.run("ROLLBACK");
    }
}

/// A parallel query cannot remove an entry, so it must not find an entry that is due for removal.
#[test]
fn a_parallel_query_finds_nothing_of_a_row_that_the_session_has_changed() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    source_and_cache(&mut session, "unlogged");
    session.run("SELECT cache_set('p:' || i, 'old', cache => 'c') FROM generate_series(1, 4) AS i");
    parallel::always(&mut session);
    session.run("BEGIN; UPDATE src SET v = 'new'");
    for (read, found) in [
        ("cache_get('p:1', 'c')", ""),
        ("cache_exists('p:1', 'c')", "f"),
        ("cache_get('p:2', 'c')", "old"),
        (
            "(SELECT string_agg(coalesce(value, '-'), '') FROM cache_get_many('{p:1,p:2}', 'c'))",
            "-old",
        ),
        (
            "(SELECT string_agg(key, '') FROM cache_scan('p', max_rows => 2, cache => 'c'))",
            "p:2p:3",
        ),
    ] {
        let query = format!("SELECT DISTINCT {read} FROM pg_class WHERE oid > 0");
        assert!(parallel::is_planned(&mut session, &query), "{query}");
        assert_eq!(session.lines(&query), [found], "{read}");
    }
    session.run("TRUNCATE src");
    let all = "SELECT DISTINCT (SELECT count(*) FROM cache_scan(cache => 'c')) FROM pg_class WHERE oid > 0";
    assert_eq!(session.lines(all), ["0"]);
    session.run("ROLLBACK");
    assert_eq!(session.text("SELECT cache_get('p:1', 'c')"), "old");
}

/// A parallel query cannot remove rows of dependent caches, so it must not find rows that are due for removal.
#[test]
fn a_parallel_query_finds_no_entry_that_depends_on_rows_it_does_not_see() {
    let database = Cluster::with_tier(&[]);
    let mut session = database.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    source_and_cache(&mut session, "unlogged");
    session.run(
        "SELECT cache_create('behind'), cache_create('far', storage => 'memory'), cache_create('aside'); \
         SELECT cache_depend('c', 'key', 'behind'), cache_depend('behind', 'key', 'far')",
    );
    for cache in ["c", "behind", "far", "aside"] {
        session.run(&format!(
            "SELECT cache_set('p:1', 'old', cache => '{cache}'); SELECT cache_get('p:1', '{cache}')"
        ));
    }
    parallel::always(&mut session);
    session.run("BEGIN; UPDATE src SET v = 'new'");
    let found = |session: &mut Client, read: &str| {
        let query = format!("SELECT DISTINCT {read} FROM pg_class WHERE oid > 0");
        assert!(parallel::is_planned(session, &query), "{query}");
        session.text(&query)
    };
    for (cache, there) in [
        ("c", false),
        ("behind", false),
        ("far", false),
        ("aside", true),
    ] {
        for read in [
            format!("cache_exists('p:1', '{cache}')"),
            format!("(SELECT count(value) > 0 FROM cache_get_many('{{p:1}}', '{cache}'))"),
            format!("(SELECT count(*) > 0 FROM cache_scan(cache => '{cache}'))"),
        ] {
            let said = found(&mut session, &read);
            assert_eq!(said, if there { "t" } else { "f" }, "{read}");
        }
    }
    session.run("SELECT cache_depend('c', 'key', 'aside')");
    assert_eq!(found(&mut session, "cache_exists('p:1', 'aside')"), "f");
    session.run("ROLLBACK");
    for cache in ["c", "behind", "far", "aside"] {
        assert_eq!(
            session.text(&format!("SELECT cache_get('p:1', '{cache}')")),
            "old"
        );
    }
}

/// pgcache catches an error for each invalid key. It must also free the errors, because Postgres has room for only five
/// at a time.
#[test]
fn a_statement_may_change_many_rows_with_keys_invalid_for_the_cache() {
    let mut session = Cluster::shared().database().connect();
    session.run(
        "CREATE TABLE src (id int, name text); CREATE TABLE c (key uuid PRIMARY KEY, value text, expires_at timestamptz); \
         SELECT cache_attach('c'), cache_depend('src', 'name', 'c')",
    );
    session.run("INSERT INTO src SELECT n, 'no uuid ' || n FROM generate_series(1, 50) AS n");
    session.run("UPDATE src SET id = -id");
    assert_eq!(session.number("SELECT count(*) FROM src WHERE id < 0"), 50);
}

/// From version 18 on, a generated column may be virtual, which means that no row stores its value.
#[test]
fn a_key_can_be_made_of_a_column_that_is_computed_when_it_is_read() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    if Cluster::shared().stage.major() < 18 {
        return;
    }
    session.run(
        "CREATE TABLE src (id text, other int, tag text GENERATED ALWAYS AS (id || '!') VIRTUAL); \
         INSERT INTO src VALUES ('a', 1)",
    );
    session.run("SELECT cache_create('c')");
    session.run("SELECT cache_depend('src', $$'p:' || tag$$, 'c')");
    for (change, left) in [
        ("UPDATE src SET other = 2", "p:b!"),
        ("UPDATE src SET id = 'b'", ""),
        ("UPDATE src SET id = 'c'", "p:a!"),
        ("INSERT INTO src VALUES ('a', 1)", "p:b!"),
        ("DELETE FROM src WHERE id = 'a'", "p:b!"),
    ] {
        session.run("SELECT cache_set_many('{p:a!,p:b!}', '{1,1}', cache => 'c')");
        session.run(change);
        let keys = session.value("SELECT string_agg(key, '' ORDER BY key) FROM c");
        assert_eq!(keys.unwrap_or_default(), left, "{change}");
    }
}

/// Postgres allows a change of the expression from version 17 on. From 18 on the column may also be virtual, and then
/// Postgres rewrites no row.
#[test]
fn another_expression_of_a_generated_column_clears_the_cache() {
    let major = Cluster::shared().stage.major();
    for (kind, from) in [("STORED", 17), ("VIRTUAL", 18)] {
        if major < from {
            continue;
        }
        let mut session = Cluster::shared().database().connect();
        session.run(&format!(
            "CREATE TABLE src (id int, v int GENERATED ALWAYS AS (id * 2) {kind}); INSERT INTO src VALUES (1)"
        ));
        session.run("SELECT cache_create('c')");
        session.run(DEPEND);
        session.run("SELECT cache_set('p:1', '2', cache => 'c')");
        session.run("ALTER TABLE src ALTER COLUMN v SET EXPRESSION AS (id * 3)");
        assert_eq!(
            session.value("SELECT cache_get('p:1', 'c')"),
            None,
            "{kind}"
        );
    }
}

/// A dump contains the triggers on inheritance children like those on any table.
#[test]
fn children_are_followed_after_a_dump_too() {
    let cluster = Cluster::shared();
    let (from, to) = (cluster.database(), cluster.empty_database(""));
    let mut session = from.connect();
    source_and_cache(&mut session, "unlogged");
    session.run("CREATE TABLE child () INHERITS (src); INSERT INTO child VALUES (2, 'old')");
    from.copy_to(&to);
    let mut session = to.connect();
    session.run("SELECT cache_set('p:2', 'v', cache => 'c')");
    session.run("UPDATE src SET v = 'new' WHERE id = 2");
    assert_eq!(session.value("SELECT cache_get('p:2', 'c')"), None);
    session.run("SELECT cache_undepend('src', 'c')");
    let left = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%'";
    assert_eq!(session.number(left), 0);
}

/// Another session may store the old value before the commit, which must remove the value.
#[test]
fn values_stored_while_a_source_is_altered_or_dropped_are_removed() {
    let database = Cluster::shared().database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut writer, "unlogged");
    for change in [
        "ALTER TABLE src ALTER v TYPE text USING upper(v)",
        "DROP TABLE src",
    ] {
        writer.run("BEGIN");
        writer.run(change);
        other.run("SELECT cache_set('p:1', 'old', cache => 'c')");
        writer.run("COMMIT");
        assert_eq!(
            other.value("SELECT cache_get('p:1', 'c')"),
            None,
            "{change}"
        );
    }
}

/// Starts a server where a commit with `synchronous_commit = on` waits for a standby that does not exist.
fn without_its_standby() -> &'static Cluster {
    let cluster = Cluster::with_tier(&["synchronous_standby_names = 'nobody'"]);
    let mut session = cluster.connect("postgres");
    session.run("ALTER SYSTEM SET synchronous_commit = local");
    session.run("SELECT pg_reload_conf()");
    wait_until("commits are local", || {
        session.text("SHOW synchronous_commit") == "local"
    });
    cluster
}

/// Runs `meanwhile` after the commit of `change` has set its marks and before it is visible. So a value that
/// `meanwhile` loads is old.
fn between_mark_and_visible(
    database: &Database,
    change: &str,
    session: &mut Client,
    meanwhile: impl FnOnce(&mut Client),
) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = database.connect();
            writer.run("SET synchronous_commit = on");
            writer.run(change);
        });
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let pid = wait_for("the commit waits", || session.value(waiting));
        // The commit must end even after a failed assertion; otherwise the test would hang instead of reporting the
        // failure.
        let outcome = catch_unwind(AssertUnwindSafe(|| meanwhile(session)));
        session.run(&format!("SELECT pg_cancel_backend({pid})"));
        outcome.unwrap_or_else(|failure| resume_unwind(failure));
    });
}

/// Changes of the source that fence one key, all keys, and more keys than there are fences. Each is listed with a key
/// that it fences.
const FENCING: [(&str, &str); 4] = [
    ("ALTER TABLE src ALTER v TYPE text USING upper(v)", "p:3"),
    ("UPDATE src SET v = 'new' WHERE id = 1", "p:1"),
    ("TRUNCATE src", "p:7"),
    (
        "INSERT INTO src SELECT i, 'new' FROM generate_series(1, 5000) AS i",
        "p:4999",
    ),
];

#[test]
fn a_key_of_a_memory_cache_is_fenced_until_the_commit_is_visible() {
    let cluster = without_its_standby();
    let database = cluster.database();
    let mut loader = database.connect();
    source_and_cache(&mut loader, "memory");
    loader.run("SELECT cache_create('apart', storage => 'memory')");
    for (change, fenced) in FENCING {
        let set = format!("SELECT cache_set('{fenced}', 'old', cache => 'c')");
        let get = format!("SELECT cache_get('{fenced}', 'c')");
        loader.run(&set);
        between_mark_and_visible(&database, change, &mut loader, |loader| {
            assert_eq!(loader.value(&get), None, "{change}");
            loader.run(&set);
            loader.run(&format!(
                "SELECT cache_add('{fenced}', 'old', cache => 'c')"
            ));
            assert_eq!(loader.value(&get), None, "{change}");
            loader.run("SELECT cache_set('p:1', 'v', cache => 'apart')");
            assert_eq!(loader.text("SELECT cache_get('p:1', 'apart')"), "v");
        });
        assert_eq!(loader.value(&get), None, "{change}");
        loader.run(&format!(
            "SELECT cache_set('{fenced}', 'new', cache => 'c')"
        ));
        assert_eq!(loader.text(&get), "new", "{change}");
    }
    loader.nothing_pending();
}

/// Checks leases of sessions that compute a value from the old row, before the commit begins and after it has begun.
fn check_leases(cluster: &Cluster, storage: &str, changes: &[(&str, &str)]) {
    let database = cluster.database();
    let mut loader = database.connect();
    source_and_cache(&mut loader, storage);
    loader.run("SET pgcache.lease_time = '10 min'");
    for (change, key) in changes {
        let get = format!("SELECT cache_get('{key}', 'c')");
        let win =
            format!("SELECT lease FROM cache_lease('{key}', cache => 'c') WHERE state = 'win'");
        let store = |session: &mut Client, lease: i64| {
            session.holds(&format!(
                "SELECT cache_set_leased('{key}', 'old', {lease}, cache => 'c')"
            ))
        };
        let before = loader.number(&win);
        let mut behind = 0;
        between_mark_and_visible(&database, change, &mut loader, |loader| {
            assert!(!store(loader, before), "void once {change} commits");
            behind = loader.number(&win);
        });
        assert!(!store(&mut loader, before), "{storage}: {change}");
        assert!(!store(&mut loader, behind), "{storage}: {change}");
        assert_eq!(loader.value(&get), None, "{storage}: {change}");
        let after = loader.number(&win);
        assert!(store(&mut loader, after), "{storage}: {change}");
        loader.run(&format!("SELECT cache_delete('{key}', 'c')"));
    }
    loader.nothing_pending();
}

#[test]
fn a_lease_from_before_a_commit_is_visible_stores_nothing() {
    let cluster = without_its_standby();
    check_leases(cluster, "memory", &FENCING);
    check_leases(cluster, "unlogged", &FENCING[1..2]); // no entry exists
}

#[test]
fn a_rollback_leaves_a_memory_cache_alone() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    source_and_cache(&mut session, "memory");
    session.run("SELECT cache_set('p:1', 'v', cache => 'c')");
    session.run("BEGIN; UPDATE src SET v = 'x'; TRUNCATE src; ROLLBACK");
    assert_eq!(session.text("SELECT cache_get('p:1', 'c')"), "v");
    session.run("BEGIN; SAVEPOINT s; DELETE FROM src; ROLLBACK TO s; COMMIT");
    assert_eq!(session.text("SELECT cache_get('p:1', 'c')"), "v");
    session.run("DELETE FROM src");
    assert_eq!(session.value("SELECT cache_get('p:1', 'c')"), None);
}

/// Bulk changes use the planner's choice of a plan, and change more keys than pgcache notes one by one.
#[test]
fn many_rows_at_once_are_all_gone() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    source_and_cache(&mut session, "unlogged");
    let set = "SELECT cache_set('p:' || i, 'v', cache => 'c') FROM generate_series(1, 30000) AS i";
    session.run(set);
    session.run("INSERT INTO src SELECT i, 'v' FROM generate_series(2, 25000) AS i");
    assert_eq!(session.number("SELECT count(*) FROM c"), 5001);
    session.run(set);
    session.run("UPDATE src SET v = 'w' WHERE id <= 12000");
    assert_eq!(session.number("SELECT count(*) FROM c"), 18000);
    assert_eq!(session.value("SELECT cache_get('p:12000', 'c')"), None);
    assert_eq!(session.text("SELECT cache_get('p:12001', 'c')"), "v");
    // There are few keys compared with the entries, so the commit looks up each key.
    session.run("UPDATE src SET v = 'x' WHERE id % 1000 = 0; DELETE FROM src WHERE id = 24999");
    assert_eq!(session.number("SELECT count(*) FROM c"), 17986);
    assert_eq!(session.value("SELECT cache_get('p:13000', 'c')"), None);
}

/// The keys are in all partitions of the tier, and the commit must change each partition. They are few enough to be
/// noted one by one.
#[test]
fn of_many_copies_and_memory_entries_none_stays() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    source_and_cache(&mut session, "unlogged");
    session.run("SELECT cache_create('m', storage => 'memory')");
    session.run("SELECT cache_depend('src', $$'p:' || id$$, 'm')");
    session.run("INSERT INTO src SELECT i, 'v' FROM generate_series(2, 9000) AS i");
    for cache in ["c", "m"] {
        let per_key =
            |call: &str| format!("SELECT count({call}) FROM generate_series(1, 10000) AS i");
        let set = per_key(&format!("cache_set('p:' || i, 'v', cache => '{cache}')"));
        let get = per_key(&format!("cache_get('p:' || i, '{cache}')"));
        session.run(&set);
        (0..3).for_each(|_| assert_eq!(session.number(&get), 10_000, "{cache}"));
        session.run("UPDATE src SET v = v || '.'");
        assert_eq!(session.number(&get), 1000, "{cache}");
    }
    assert!(session.hot_hits("c") > 0, "nothing was hot");
    session.verified("c");
}

/// A bulk removal finds an entry that another session is changing. It waits for that session, and then removes the
/// changed entry, too.
#[test]
fn an_entry_that_changes_while_many_are_removed_is_gone() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut session, "unlogged");
    session.run("INSERT INTO src SELECT i, 'v' FROM generate_series(2, 5000) AS i");
    let set =
        "SELECT count(cache_set('p:' || i, 'v', cache => 'c')) FROM generate_series(1, 5000) AS i";
    for (waited_for, left) in [("COMMIT", 0), ("ROLLBACK", 0)] {
        session.run(set);
        other.run("BEGIN; SELECT cache_set('p:4711', repeat('longer', 100), cache => 'c')");
        let pid = session.number("SELECT pg_backend_pid()");
        thread::scope(|scope| {
            scope.spawn(|| session.run("UPDATE src SET v = v || '.'"));
            let blocked = format!("SELECT 1 WHERE cardinality(pg_blocking_pids({pid})) > 0");
            let mut third = database.connect();
            wait_for("the bulk removal waits", || third.value(&blocked));
            other.run(waited_for);
        });
        assert_eq!(
            session.number("SELECT count(*) FROM c"),
            left,
            "{waited_for}"
        );
    }
}

#[test]
fn a_source_that_is_changed_in_two_phases_counts() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    source_and_cache(&mut session, "unlogged");
    session.run("BEGIN; UPDATE src SET v = 'x'; PREPARE TRANSACTION 'source'");
    session.run("ROLLBACK PREPARED 'source'");
    session.run("SELECT cache_set('p:1', 'old', cache => 'c')");
    session.run("BEGIN; UPDATE src SET v = 'x'; PREPARE TRANSACTION 'source'");
    assert_eq!(session.agrees("p:1", "c").as_deref(), Some("old"));
    session.run("COMMIT PREPARED 'source'");
    assert_eq!(session.number("SELECT cache_count('c')"), 0);
}

#[test]
fn rows_applied_by_logical_replication_remove_entries() {
    let publisher = Cluster::start(&["wal_level = logical"]);
    let subscriber = Cluster::start(&[]);
    let mut source = publisher.connect("postgres");
    let mut target = subscriber.connect("postgres");
    source.run(SOURCE);
    source.run("CREATE PUBLICATION p FOR TABLE src");
    target.run("CREATE EXTENSION pgcache; CREATE TABLE src (id int PRIMARY KEY, v text)");
    target.run("SELECT cache_create('c')");
    target.run(DEPEND);
    target.run(&format!(
        "CREATE SUBSCRIPTION s CONNECTION 'host={} user=postgres dbname=postgres' PUBLICATION p",
        publisher.folder.display()
    ));
    wait_for("the row has come to the subscriber", || {
        target.value("SELECT v FROM src WHERE v = 'old'")
    });
    for (change, arrived) in [
        (
            "UPDATE src SET v = 'new'",
            "SELECT v FROM src WHERE v = 'new'",
        ),
        (
            "DELETE FROM src",
            "SELECT 1 WHERE NOT EXISTS (SELECT FROM src)",
        ),
        (
            "INSERT INTO src VALUES (1, 'again')",
            "SELECT v FROM src WHERE v = 'again'",
        ),
        (
            "TRUNCATE src",
            "SELECT 1 WHERE NOT EXISTS (SELECT FROM src)",
        ),
    ] {
        target.run("SELECT cache_set('p:1', 'v', cache => 'c')");
        source.run(change);
        wait_for("the change has come to the subscriber", || {
            target.value(arrived)
        });
        assert_eq!(
            target.value("SELECT cache_get('p:1', 'c')"),
            None,
            "{change}"
        );
    }
    target.run("DROP SUBSCRIPTION s");
}

/// The apply worker truncates the partitions themselves, even if the publisher names their parent.
#[test]
fn a_truncate_of_partitions_that_logical_replication_applies_counts() {
    let publisher = Cluster::start(&["wal_level = logical"]);
    let subscriber = Cluster::with_tier(&[]); // without preload the apply worker would not load the library
    let mut source = publisher.connect("postgres");
    let mut target = subscriber.connect("postgres");
    const PARTITIONED: &str = "CREATE TABLE src (id int PRIMARY KEY, v text) PARTITION BY LIST (id); \
         CREATE TABLE one PARTITION OF src FOR VALUES IN (1); \
         CREATE TABLE two PARTITION OF src FOR VALUES IN (2)";
    source.run(PARTITIONED);
    source.run("INSERT INTO src VALUES (1, 'old'), (2, 'old'); CREATE PUBLICATION p FOR TABLE src");
    target.run("CREATE EXTENSION pgcache");
    target.run(PARTITIONED);
    target.run("SELECT cache_create('c'); SELECT cache_create('watching')");
    for cache in ["c", "watching"] {
        target.run(&format!(
            "SELECT cache_depend('src', $$'p:' || id$$, '{cache}')"
        ));
    }
    target.run(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$; \
         CREATE TRIGGER see AFTER DELETE OR TRUNCATE ON watching EXECUTE FUNCTION see()",
    );
    target.run(&format!(
        "CREATE SUBSCRIPTION s CONNECTION 'host={} user=postgres dbname=postgres' PUBLICATION p",
        publisher.folder.display()
    ));
    wait_for("the rows have come to the subscriber", || {
        target.value("SELECT 1 FROM src HAVING count(*) = 2")
    });
    for (change, arrived) in [
        ("TRUNCATE one", "SELECT 1 FROM src HAVING count(*) = 1"),
        ("TRUNCATE src", "SELECT 1 FROM src HAVING count(*) = 0"),
    ] {
        for cache in ["c", "watching"] {
            target.run(&format!("SELECT cache_set('p:2', 'v', cache => '{cache}')"));
        }
        source.run(change);
        wait_for("the change has come to the subscriber", || {
            target.value(arrived)
        });
        for cache in ["c", "watching"] {
            assert_eq!(
                target.value(&format!("SELECT cache_get('p:2', '{cache}')")),
                None,
                "{change}, {cache}"
            );
        }
    }
    target.run("DROP SUBSCRIPTION s");
}

/// A TRUNCATE of either cache clears the other cache through its dependency.
#[test]
fn caches_that_depend_on_each_other_are_cleared_once() {
    let database = Cluster::shared().database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut writer, "unlogged");
    writer.run(
        "SELECT cache_create('d'); SELECT cache_depend('c', 'key', 'd'); \
         SELECT cache_depend('d', 'key', 'c'); SELECT cache_depend('c', 'key', 'c')",
    );
    let pid = writer.number("SELECT pg_backend_pid()");
    for change in [
        "TRUNCATE src",
        "ALTER TABLE src ADD COLUMN more int",
        "BEGIN; DELETE FROM c; TRUNCATE src; COMMIT",
        "DROP TABLE src",
    ] {
        other.run("SELECT cache_set('x', 'v', cache => 'c'), cache_set('y', 'v', cache => 'd')");
        let change_in_time = move |mut writer: Client| {
            writer.run(change);
            writer
        };
        let working = thread::spawn(move || change_in_time(writer));
        for _ in 0..1_000 {
            if working.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let ended = working.is_finished();
        if !ended {
            other.run(&format!("SELECT pg_terminate_backend({pid})"));
        }
        assert!(ended, "{change}");
        writer = working.join().expect("the change is made");
        assert_eq!(other.number("SELECT count(*) FROM c"), 0, "{change}");
        assert_eq!(other.number("SELECT count(*) FROM d"), 0, "{change}");
    }
}

#[test]
fn a_dump_brings_dependencies_and_channels_back() {
    let cluster = Cluster::shared();
    let (from, to) = (cluster.database(), cluster.empty_database(""));
    let mut session = from.connect();
    source_and_cache(&mut session, "unlogged");
    let channel = session.text("SELECT cache_watch('c')");
    from.copy_to(&to);
    let mut session = to.connect();
    session.run("SELECT cache_set('p:1', 'v', cache => 'c')");
    session.run("SET session_replication_role = replica; UPDATE src SET v = 'x'");
    assert_eq!(session.value("SELECT cache_get('p:1', 'c')"), None);
    assert_eq!(session.text("SELECT cache_watch('c')"), channel);
    session.run("SELECT cache_drop('c')");
    assert_eq!(
        session.number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'src'::regclass"),
        0
    );
}

/// A removal that waited for the table's lock uses the definition that the table has after the wait.
#[test]
fn a_trigger_that_comes_while_a_removal_waits_is_fired() {
    let database = Cluster::shared().database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut writer, "unlogged");
    writer.run(
        "SELECT cache_set('p:1', 'old', cache => 'c'); CREATE TABLE seen (key text); \
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO public.seen VALUES (OLD.key); RETURN OLD; END$$",
    );
    other.run("BEGIN; CREATE TRIGGER see AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION see()");
    let pid = writer.number("SELECT pg_backend_pid()");
    let waiting = thread::spawn(move || {
        writer.run("UPDATE src SET v = 'new'");
        writer
    });
    let waits = format!(
        "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = {pid}"
    );
    let mut witness = database.connect();
    wait_until("the update waits", || witness.holds(&waits));
    other.run("COMMIT");
    let mut writer = waiting.join().expect("the update is done");
    assert_eq!(writer.lines("TABLE seen"), ["p:1"]);
    assert!(writer.holds("SELECT NOT cache_exists('p:1', 'c')"));
}

/// The cache's trigger rolls back its own savepoint and reads the cache. This must not start the removal again.
#[test]
fn a_removal_continues_over_savepoints_of_the_triggers_that_it_fires() {
    let mut session = Cluster::shared().database().connect();
    source_and_cache(&mut session, "unlogged");
    session.run(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \
         BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END; \
         PERFORM public.cache_exists('x', 'public.c'); RETURN OLD; END$$; \
         CREATE TRIGGER look BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION look(); \
         SELECT cache_set('p:1', 'old', cache => 'c'); BEGIN; UPDATE src SET v = 'new'",
    );
    assert!(session.holds("SELECT cache_get('p:1', 'c') IS NULL"));
    session.run("COMMIT");
    assert!(session.holds("SELECT NOT cache_exists('p:1', 'c')"));
}

/// The commit removes the entries of tables first. Triggers of these tables may read a memory cache whose entry is not
/// yet removed.
#[test]
fn a_trigger_that_the_commit_fires_finds_nothing_of_a_changed_row() {
    let mut session = Cluster::hot().database().connect();
    source_and_cache(&mut session, "unlogged");
    session.run(
        "SELECT cache_create('m', storage => 'memory'); \
         SELECT cache_depend('src', $$'p:' || id$$, 'm'); \
         CREATE TABLE seen (how text, v text); \
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \
         INSERT INTO public.seen VALUES \
         ('get', public.cache_get(old.key, 'public.m')), \
         ('scan', (SELECT max(value) FROM public.cache_scan(cache => 'public.m'))), \
         ('view', (SELECT max(value) FROM public.m)), \
         ('fetch', public.cache_fetch(old.key, 'SELECT v FROM public.src', cache => 'public.m')); \
         RETURN NULL; END$$; \
         CREATE TRIGGER look AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION look(); \
         SELECT cache_set('p:1', 'old', cache => 'c'), cache_set('p:1', 'old', cache => 'm')",
    );
    session.run("UPDATE src SET v = 'new'");
    assert_eq!(
        session.lines("SELECT how FROM seen WHERE v IS NOT NULL"),
        ["fetch"]
    );
    assert!(session.holds("SELECT v = 'new' FROM seen WHERE how = 'fetch'"));
    assert_eq!(session.value("SELECT cache_get('p:1', 'm')"), None);
}

/// No entry is visible to this session, but each walk over the cache visits all entries. So the session must walk only
/// once.
#[test]
fn a_page_is_looked_for_once_though_the_session_may_see_no_entry() {
    let mut session = Cluster::hot().database().connect();
    source_and_cache(&mut session, "memory");
    session.run(
        "SELECT count(cache_set('p:' || i, 'old', cache => 'c')) FROM generate_series(1, 60000) AS i; \
         SET statement_timeout = '60 s'; BEGIN; TRUNCATE src",
    );
    let page = "SELECT key FROM cache_scan(max_rows => 1, cache => 'c')";
    assert_eq!(session.value(page), None);
    session.run("SELECT cache_set('p:7', 'new', cache => 'c')");
    assert_eq!(session.text(page), "p:7");
    session.run("ROLLBACK");
    assert_eq!(session.text(page), "p:1");
}

/// The triggers that would report the change are new, not yet created, disabled or dropped, and a rollback restores the
/// old triggers.
#[test]
fn a_fetch_beside_changes_without_triggers_stores_nothing_in_memory() {
    let database = Cluster::hot().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    source_and_cache(&mut session, "memory");
    session.run("CREATE TABLE grown (id int, v text); INSERT INTO grown VALUES (2, 'z')");
    let update = "UPDATE src SET v = 'z'";
    for changes in [
        "CREATE TABLE child () INHERITS (src); INSERT INTO child VALUES (2, 'z')".to_owned(),
        "SAVEPOINT s; CREATE TABLE child () INHERITS (src); RELEASE s; INSERT INTO child VALUES (2, 'z')".to_owned(),
        "ALTER TABLE grown ALTER id SET NOT NULL; TRUNCATE grown; ALTER TABLE grown INHERIT src; \
         INSERT INTO grown VALUES (2, 'z')"
            .to_owned(),
        format!("SELECT cache_undepend('src', 'c'); {update}"),
        format!("SELECT cache_undepend('src', 'c'); {update}; {DEPEND}"),
        format!("ALTER TABLE src DISABLE TRIGGER USER; {update}"),
        format!("ALTER TABLE src DISABLE TRIGGER USER; {update}; ALTER TABLE src ENABLE TRIGGER USER"),
        format!("DROP TRIGGER pgcache_depend_1_change ON src; {update}"),
    ] {
        session.run(&format!("BEGIN; {changes}"));
        let fetch = "SELECT cache_fetch('p:1', 'SELECT max(v) FROM src', cache => 'c')";
        assert_eq!(session.text(fetch), "z", "{changes}");
        session.run("ROLLBACK");
        let seen = other.value("SELECT cache_get('p:1', 'c')");
        assert_eq!(seen, None, "{changes}");
        // The value is not stored while another session's commit on the key's stripe is pending.
        wait_until("it is stored", || {
            assert_eq!(session.text(fetch), "old", "{changes}");
            other.value("SELECT cache_get('p:1', 'c')").as_deref() == Some("old")
        });
        session.run("SELECT cache_delete('p:1', 'c')");
    }
    session.run(&format!(
        "SELECT cache_undepend('src', 'c'); BEGIN; {update}; {DEPEND}"
    ));
    session.run("SELECT cache_fetch('p:1', 'SELECT max(v) FROM src', cache => 'c'); ROLLBACK");
    assert_eq!(other.value("SELECT cache_get('p:1', 'c')"), None);
}

/// A cache is a table, so entries of another cache may depend on it.
#[test]
fn a_chain_of_dependencies_is_followed_at_once() {
    let mut session = Cluster::shared().database().connect();
    source_and_cache(&mut session, "unlogged");
    // Each statement is a separate transaction, because the entry of d must exist when the row changes.
    for statement in [
        "SELECT cache_create('d')",
        "SELECT cache_depend('c', 'key', 'd')",
        "SELECT cache_set('p:1', 'old', cache => 'c')",
        "SELECT cache_set('p:1', 'old', cache => 'd')",
    ] {
        session.run(statement);
    }
    session.run("BEGIN; UPDATE src SET v = 'new'");
    assert!(session.holds("SELECT cache_get('p:1', 'd') IS NULL"));
    session.run("COMMIT");
}

/// One session removes from the second cache and then, through its dependency, from the first. Another session does so
/// in the reverse order. Postgres' deadlock detector decides which of the two fails.
#[test]
fn writers_that_keep_loaders_out_in_different_orders_do_not_wait_forever() {
    for conf in [&[][..], &["shared_preload_libraries = ''"][..]] {
        let cluster = Cluster::start(conf);
        let database = cluster.database();
        let mut session = database.connect();
        session.run(
            "SELECT cache_create('one'), cache_create('two'); CREATE TABLE src (k text); CREATE TABLE wide (k text); \
             INSERT INTO src VALUES ('k'); INSERT INTO wide VALUES ('k'); \
             SELECT cache_depend('src', 'k', 'two'), cache_depend('two', 'key', 'one'), \
             cache_depend('wide', 'k', 'one'), cache_depend('wide', 'k', 'two'); \
             INSERT INTO two VALUES ('k', 'v'); \
             CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END$$; \
             CREATE TRIGGER dawdle AFTER DELETE ON two FOR EACH ROW EXECUTE FUNCTION dawdle()",
        );
        let update = |table: &str| {
            let mut writer = database.connect();
            writer.run("SET statement_timeout = '60s'");
            writer.try_lines(&format!("UPDATE {table} SET k = k"))
        };
        let ends = thread::scope(|scope| {
            let first = scope.spawn(|| update("src"));
            thread::sleep(Duration::from_millis(500));
            let second = scope.spawn(|| update("wide"));
            [first, second].map(|writer| writer.join().expect("an answer"))
        });
        let failed: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
        assert!(failed.len() <= 1, "{conf:?}: {failed:?}");
        for error in failed {
            drop(refused::<()>(Err(error), "40P01"));
        }
    }
}

/// A crash would empty the unlogged source but leave the entries of the logged cache.
#[test]
fn a_logged_cache_is_refused_a_source_that_a_crash_empties() {
    let mut session = Cluster::shared().database().connect();
    session.run(
        "SELECT cache_create('kept', storage => 'logged'), cache_create('c'); \
         CREATE UNLOGGED TABLE fleeting (k text); CREATE TABLE plain (k text); \
         CREATE UNLOGGED TABLE child () INHERITS (plain); \
         CREATE TABLE parted (k text) PARTITION BY LIST (k); \
         CREATE UNLOGGED TABLE part PARTITION OF parted DEFAULT",
    );
    for source in ["fleeting", "plain", "parted"] {
        let depend = |cache: &str| format!("SELECT cache_depend('{source}', 'k', '{cache}')");
        refused(session.try_lines(&depend("kept")), "55000");
        session.run(&depend("c"));
    }
    for table in ["fleeting", "child", "part"] {
        session.run(&format!("ALTER TABLE {table} SET LOGGED"));
    }
    for source in ["fleeting", "plain", "parted"] {
        session.run(&format!("SELECT cache_depend('{source}', 'k', 'kept')"));
    }
}

/// The keys of dependent entries take at most 64 MB in a transaction. Beyond this limit the whole cache is cleared.
#[test]
fn more_keys_than_a_transaction_has_room_for_clear_the_cache() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("CREATE TABLE wide (id int PRIMARY KEY, k text, v int)");
    session.run(
        "INSERT INTO wide SELECT g, g || repeat('x', 2000), 0 FROM generate_series(1, 40000) AS g",
    );
    for storage in ["unlogged", "memory"] {
        session.run(&format!(
            "SELECT cache_create('{storage}', storage => '{storage}')"
        ));
        session.run(&format!("SELECT cache_depend('wide', 'k', '{storage}')"));
    }
    let set = |session: &mut Client| {
        for storage in ["unlogged", "memory"] {
            session.run(&format!(
                "SELECT cache_set(k, 'v', cache => '{storage}') FROM wide WHERE id IN (1, 40000)"
            ));
            session.run(&format!(
                "SELECT cache_set('other', 'v', cache => '{storage}')"
            ));
        }
    };
    let left = |session: &mut Client| {
        ["unlogged", "memory"]
            .map(|storage| session.number(&format!("SELECT cache_count('{storage}')")))
    };
    set(&mut session);
    session.run("UPDATE wide SET v = v + 1 WHERE id <= 10000");
    assert_eq!(left(&mut session), [2, 2]);
    set(&mut session);
    session.run("UPDATE wide SET v = v + 1");
    assert_eq!(left(&mut session), [0, 0]);
}
