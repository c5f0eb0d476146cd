//! Tests PREPARE TRANSACTION after a write to a cache. Until COMMIT PREPARED or ROLLBACK PREPARED, in whichever session
//! it runs, no session gets a copy that a SELECT would not return. A forgotten prepared transaction only costs hits.
//! `prepared_restart.rs` tests restarts.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use postgres::Client;

const WRITES: &[&str] = &[
    "SELECT cache_set('k', 'v')",
    "SELECT cache_set_many('{a,b}', '{1,2}')",
    "SELECT cache_incr('n')",
    "SELECT cache_add('new', 'v')",
    "SELECT cache_touch('there', '1 hour')",
    "SELECT cache_delete('there')",
    "SELECT cache_clear('pgcache.main')",
    "INSERT INTO pgcache.main VALUES ('k', 'v')",
    "UPDATE pgcache.main SET value = 'w'",
    "DELETE FROM pgcache.main",
    "COPY pgcache.main FROM PROGRAM 'printf \"k\\tv\\t\\\\N\\n\"'",
    "MERGE INTO pgcache.main AS m USING (VALUES ('m')) AS s (key) ON m.key = s.key \
     WHEN NOT MATCHED THEN INSERT VALUES (s.key, 'v')",
    "TRUNCATE pgcache.main",
    "SET LOCAL session_replication_role = replica; DELETE FROM pgcache.main",
    "SAVEPOINT s; SELECT cache_set('k', 'v'); RELEASE s",
];

const NO_WRITES: &[&str] = &[
    "SELECT cache_get('there')",
    "SELECT * FROM cache_scan()",
    "SELECT count(*) FROM pgcache.main",
    "CREATE TABLE plain (n int); INSERT INTO plain VALUES (1); TRUNCATE plain",
];

/// Ends a prepared transaction, which any session may have prepared.
fn end(session: &mut Client, gid: &str, commits: bool) {
    let verb = if commits { "COMMIT" } else { "ROLLBACK" };
    session.run(&format!("{verb} PREPARED '{gid}'"));
}

/// Returns the rows of the cache, as a SELECT shows them.
fn rows(session: &mut Client) -> Vec<String> {
    session.lines("SELECT key, value FROM pgcache.main ORDER BY key")
}

/// Checks that `cache_get` and SELECT agree on all keys that occur in the writes.
fn agrees(session: &mut Client, case: &str) {
    for key in ["k", "a", "n", "new", "there", "m"] {
        let row = session.value(&format!(
            "SELECT value FROM pgcache.main WHERE key = '{key}'"
        ));
        for _ in 0..3 {
            let said = session.value(&format!("SELECT cache_get('{key}')"));
            assert_eq!(said, row, "{key}: {case}");
        }
    }
}

#[test]
fn a_write_that_is_prepared_is_seen_from_its_commit_on_and_never_before() {
    let database = Cluster::shared().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for write in WRITES {
        for commits in [true, false] {
            let case = format!("{write}, commits: {commits}");
            reader.run("TRUNCATE pgcache.main; SELECT cache_set('there', 'v')");
            agrees(&mut reader, &case);
            let before = rows(&mut reader);
            writer.run(&format!("BEGIN; {write}"));
            let after = rows(&mut writer);
            writer.run("PREPARE TRANSACTION 'write'");
            // The session that prepared the transaction may continue to work, even on the same key.
            let locks_all = write.contains("TRUNCATE") || write.contains("cache_clear");
            if !locks_all {
                agrees(&mut reader, &case);
                agrees(&mut writer, &case);
            }
            end(&mut reader, "write", commits);
            agrees(&mut reader, &case);
            let expected = if commits { after } else { before };
            assert_eq!(rows(&mut reader), expected, "{case}");
            assert_eq!(prepared_locks(&mut reader), 0, "{case}");
        }
    }
}

#[test]
fn a_forgotten_transaction_keeps_only_its_own_keys_from_being_copied() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer.run("SELECT cache_create('c'), cache_create('other')");
    writer.run("INSERT INTO c SELECT 'k' || i, 'old' FROM generate_series(1, 100) AS i");
    writer.run("BEGIN; SELECT cache_set('k1', 'new', cache => 'c'); PREPARE TRANSACTION 'p'");
    for key in ["k2", "k50", "k100"] {
        assert_eq!(reader.heat(key, "c").as_deref(), Some("old"));
    }
    let before = reader.hot_hits("c");
    for _ in 0..3 {
        assert_eq!(reader.text("SELECT cache_get('k1', 'c')"), "old");
    }
    assert_eq!(reader.hot_hits("c"), before);
    let listed = "SELECT gid, cache, whole_cache, age < '1 hour' FROM pgcache.prepared";
    assert_eq!(reader.lines(listed), ["p|c|f|t"]);
    // Other sessions write, sweep and define caches as usual.
    reader.run("SET lock_timeout = '10s'; SELECT cache_set('k2', 'mine', cache => 'c')");
    reader.run("SELECT cache_expire('c'), cache_alter('other', '1 hour'), cache_drop('other')");
    reader.run("SELECT cache_delete_prefix('k9', 'c')");
    assert_eq!(reader.agrees("k2", "c").as_deref(), Some("mine"));
    end(&mut reader, "p", true);
    assert_eq!(reader.heat("k1", "c").as_deref(), Some("new"));
    reader.nothing_pending();
    assert_eq!(reader.lines("SELECT * FROM pgcache.prepared"), [""; 0]);
}

#[test]
fn thousands_of_keys_are_marked_one_by_one_or_as_their_cache() {
    for (conf, keys) in [
        ("pgcache.hot_size = '64MB'", 9_000),
        ("pgcache.hot_size = '64MB'", 12_000),
        // The pool has no room for so many keys.
        ("pgcache.hot_size = '4MB'", 9_000),
    ] {
        for commits in [true, false] {
            let cluster = Cluster::with_tier(&[conf]);
            let database = cluster.database();
            let (mut writer, mut reader) = (database.connect(), database.connect());
            writer.run("SELECT cache_create('c')");
            let all = format!("FROM generate_series(1, {keys}) AS i");
            writer.run(&format!("INSERT INTO c SELECT 'k' || i, 'old' {all}"));
            for key in ["k1", "k8000"] {
                assert_eq!(reader.heat(key, "c").as_deref(), Some("old"));
            }
            writer.run("BEGIN; UPDATE c SET value = 'new'; PREPARE TRANSACTION 'p'");
            for key in ["k1", "k8000"] {
                assert_eq!(reader.agrees(key, "c").as_deref(), Some("old"));
            }
            end(&mut reader, "p", commits);
            let expected = if commits { "new" } else { "old" };
            for key in ["k1", "k8000"] {
                assert_eq!(reader.heat(key, "c").as_deref(), Some(expected));
            }
            reader.verified("c");
            reader.nothing_pending();
        }
    }
}

/// The first transactions take all the room that their role may have for keys of prepared transactions, but few marks.
/// They release the room while the last transaction is still prepared.
#[test]
fn a_key_that_finds_no_room_is_not_copied_either() {
    let cluster =
        Cluster::with_tier(&["pgcache.hot_size = '4MB'", "max_prepared_transactions = 40"]);
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer.run("SELECT cache_create('c'), cache_create('d')");
    let keys = |value| {
        format!(
            "SELECT cache_set('k' || g, '{value}', cache => 'd') FROM generate_series(1, 20) AS g"
        )
    };
    writer.run(&keys("old"));
    for key in 1..=20 {
        reader.heat(&format!("k{key}"), "d");
    }
    writer.use_up_room("c", 16);
    writer.run(&format!(
        "BEGIN; {}; PREPARE TRANSACTION 'last'",
        keys("new")
    ));
    writer.give_room_back(16);
    for key in 1..=20 {
        assert_eq!(
            reader.agrees(&format!("k{key}"), "d").as_deref(),
            Some("old")
        );
    }
    end(&mut reader, "last", true);
    for key in 1..=20 {
        assert_eq!(
            reader.agrees(&format!("k{key}"), "d").as_deref(),
            Some("new")
        );
    }
    reader.nothing_pending();
}

#[test]
fn definitions_that_are_prepared_count() {
    let database = Cluster::shared().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for (number, (work, there)) in [
        ("SELECT cache_drop('c')", false),
        ("DROP TABLE c", false),
        (
            "ALTER TABLE c DISABLE TRIGGER ALL; UPDATE c SET value = 'new'",
            true,
        ),
        ("ALTER TABLE c SET LOGGED", true),
        ("SELECT cache_alter('c', '1 hour')", true),
        (
            "TRUNCATE c; SELECT cache_set('k', 'new', cache => 'c')",
            true,
        ),
        (
            "SELECT cache_create('d'); SELECT cache_set('k', 'v', cache => 'd')",
            true,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        for commits in [true, false] {
            let gid = format!("defined{number}{commits}");
            reader.run("SELECT cache_create('c', if_not_exists => true)");
            reader.run(
                "DROP TABLE IF EXISTS d; ALTER TABLE c ENABLE ALWAYS TRIGGER pgcache_record, \
                 ENABLE ALWAYS TRIGGER pgcache_record_truncate",
            );
            reader.run("SELECT cache_set('k', 'old', cache => 'c')");
            assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));
            writer.run(&format!("BEGIN; {work}; PREPARE TRANSACTION '{gid}'"));
            end(&mut reader, &gid, commits);
            match there || !commits {
                true => drop(reader.agrees("k", "c")),
                false => {
                    refused(reader.try_value("SELECT cache_get('k', 'c')"), "42P01");
                }
            }
            let made = reader.number("SELECT count(*) FROM pgcache.caches WHERE cache::text = 'd'");
            assert_eq!(made == 1, commits && work.contains("'d'"), "{work}");
            if made == 1 {
                assert_eq!(reader.agrees("k", "d").as_deref(), Some("v"));
            }
        }
    }
}

#[test]
fn caches_that_come_and_go_in_prepared_transactions_use_up_no_slots() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '2MB'"]);
    let database = cluster.database();
    let mut session = database.connect();
    for round in 0..40 {
        let commits = round % 2 == 0;
        session.run("BEGIN; SELECT cache_create('c'); SELECT cache_set('k', 'v', cache => 'c')");
        session.run("PREPARE TRANSACTION 'p'");
        end(&mut session, "p", commits);
        if commits {
            assert_eq!(session.heat("k", "c").as_deref(), Some("v"), "{round}");
            session.run("BEGIN; SELECT cache_drop('c'); PREPARE TRANSACTION 'p'");
            end(&mut session, "p", true);
        }
    }
    session.nothing_pending();
    session.sums_up();
}

#[test]
fn savepoints_count_as_they_do_for_a_commit() {
    let database = Cluster::shared().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    reader.run("SELECT cache_create('c'); SELECT cache_set('k', 'old', cache => 'c')");
    writer.run(
        "BEGIN; SELECT cache_set('l', 'kept', cache => 'c'); SAVEPOINT s; \
         SELECT cache_set('k', 'undone', cache => 'c'); SELECT cache_create('gone'); ROLLBACK TO s; \
         PREPARE TRANSACTION 'savepoint'",
    );
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));
    assert_eq!(reader.agrees("l", "c"), None);
    end(&mut reader, "savepoint", true);
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));
    assert_eq!(reader.agrees("l", "c").as_deref(), Some("kept"));
}

/// Creates a source and the caches that depend on it: the table cache `c`, and with a tier the memory cache `m`.
pub fn make_sources(session: &mut Client, tier: bool) {
    session.run(
        "CREATE TABLE source (key text PRIMARY KEY, n int); \
         INSERT INTO source VALUES ('k', 1), ('other', 1); \
         SELECT cache_create('c', storage => 'logged')",
    );
    session.run("SELECT cache_depend('source', 'key', 'c')");
    if tier {
        session.run("SELECT cache_create('m', storage => 'memory')");
        session.run("SELECT cache_depend('source', 'key', 'm')");
    }
}

/// Returns the result of a fetch of a key.
pub fn fetched(session: &mut Client, cache: &str, key: &str) -> i64 {
    session.number(&format!(
        "SELECT cache_fetch('{key}', 'SELECT n FROM source WHERE key = $1', cache => '{cache}')"
    ))
}

/// Returns the stored value.
pub fn stored(session: &mut Client, cache: &str, key: &str) -> Option<String> {
    session.value(&format!("SELECT cache_get('{key}', '{cache}')"))
}

#[test]
fn a_value_loaded_from_the_old_row_is_not_stored_until_it_is_decided() {
    for tier in [true, false] {
        let cluster = match tier {
            true => Cluster::with_tier(&[]),
            false => Cluster::start(&["shared_preload_libraries = ''"]),
        };
        let database = cluster.database();
        let (mut writer, mut reader) = (database.connect(), database.connect());
        make_sources(&mut writer, tier);
        let caches = if tier { &["c", "m"][..] } else { &["c"] };
        for (number, commits) in [(2, true), (3, false)] {
            writer.run("DELETE FROM c");
            for cache in caches {
                writer.run(&format!("SELECT cache_delete('k', '{cache}')"));
            }
            let old = reader.number("SELECT n FROM source WHERE key = 'k'");
            writer.run(&format!(
                "BEGIN; UPDATE source SET n = {number} WHERE key = 'k'"
            ));
            writer.run("PREPARE TRANSACTION 'p'");
            for cache in caches {
                for _ in 0..2 {
                    assert_eq!(fetched(&mut reader, cache, "k"), old, "{cache}");
                    assert_eq!(stored(&mut reader, cache, "k"), None, "{cache}");
                }
                if tier {
                    fetched(&mut reader, cache, "other");
                    assert!(stored(&mut reader, cache, "other").is_some(), "{cache}");
                }
            }
            if tier {
                // A client may get a lease and compute the value, but the value is not stored.
                let lease = "SELECT lease FROM cache_lease('k', cache => 'm')";
                if let Some(lease) = reader.value(lease) {
                    let set =
                        format!("SELECT cache_set_leased('k', '{old}', {lease}, cache => 'm')");
                    assert!(!reader.holds(&set));
                }
                reader.run(&format!("SELECT cache_set('k', '{old}', cache => 'm')"));
                assert_eq!(stored(&mut reader, "m", "k"), None);
            }
            end(&mut reader, "p", commits);
            let now = reader.number("SELECT n FROM source WHERE key = 'k'");
            for cache in caches {
                assert_eq!(fetched(&mut reader, cache, "k"), now, "{cache}");
                assert_eq!(
                    stored(&mut reader, cache, "k"),
                    Some(now.to_string()),
                    "{cache}"
                );
            }
            if tier {
                reader.nothing_pending();
            }
        }
    }
}

#[test]
fn a_value_that_a_prepared_transaction_has_loaded_goes_when_its_source_changes() {
    for tier in [true, false] {
        let cluster = match tier {
            true => Cluster::with_tier(&[]),
            false => Cluster::start(&["shared_preload_libraries = ''"]),
        };
        let database = cluster.database();
        let (mut loader, mut writer) = (database.connect(), database.connect());
        make_sources(&mut loader, false);
        loader.run("BEGIN");
        assert_eq!(fetched(&mut loader, "c", "k"), 1);
        loader.run("PREPARE TRANSACTION 'p'");
        // The transaction that loaded the value is prepared, so no session waits for its lease.
        writer.run("SET pgcache.fetch_wait = '60s'; SET statement_timeout = '30s'");
        assert_eq!(fetched(&mut writer, "c", "k"), 1);
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                let mut writer = database.connect();
                writer.run("UPDATE source SET n = 2 WHERE key = 'k'");
            });
            pgcache_tests::wait::wait_until("the writer waits for the row", || {
                loader.number(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                     AND datname = current_database()",
                ) == 1
            });
            end(&mut loader, "p", true);
            change.join().expect("the writer ends");
        });
        assert_eq!(stored(&mut writer, "c", "k"), None, "tier: {tier}");
        assert_eq!(fetched(&mut writer, "c", "k"), 2, "tier: {tier}");
    }
}

#[test]
fn transactions_that_cannot_be_prepared_are_refused_as_by_postgres() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('w'); CREATE TABLE s (key text)");
    session.run("SELECT cache_depend('s', 'key', 'w')");
    for (work, sqlstate) in [
        (
            "CREATE TEMP TABLE t (key text PRIMARY KEY, value text, expires_at timestamptz); \
             CREATE TRIGGER r AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION pgcache.record(); \
             INSERT INTO t VALUES ('k', 'v')",
            "0A000",
        ),
        (
            "DECLARE d CURSOR WITH HOLD FOR SELECT 1; INSERT INTO s VALUES ('k')",
            "0A000",
        ),
    ] {
        session.run(&format!("BEGIN; {work}"));
        refused(session.try_value("PREPARE TRANSACTION 'p'"), sqlstate);
        session.run("ROLLBACK; SELECT cache_set('k', 'v', cache => 'w')");
        assert_eq!(session.agrees("k", "w").as_deref(), Some("v"), "{work}");
    }
    let none = Cluster::start(&["max_prepared_transactions = 0"]);
    let mut session = none.database().connect();
    session.run("SELECT cache_create('c'); SELECT cache_set('k', 'old', cache => 'c')");
    session.run("BEGIN; SELECT cache_set('k', 'new', cache => 'c')");
    refused(session.try_value("PREPARE TRANSACTION 'p'"), "55000");
    assert_eq!(session.agrees("k", "c").as_deref(), Some("old"));
}

#[test]
fn prepare_transaction_is_allowed_where_no_cache_was_written() {
    let mut session = Cluster::shared().database().connect();
    for (number, work) in NO_WRITES.iter().enumerate() {
        session.run(&format!(
            "BEGIN; {work}; PREPARE TRANSACTION 'read{number}'"
        ));
        session.run(&format!("COMMIT PREPARED 'read{number}'"));
    }
}

#[test]
fn a_commit_or_a_rollback_ends_the_note_of_a_write() {
    let mut session = Cluster::shared().database().connect();
    for end in ["COMMIT", "ROLLBACK"] {
        session.run(&format!("BEGIN; SELECT cache_set('k', 'v'); {end}"));
        session.run(&format!(
            "BEGIN; SELECT 1; PREPARE TRANSACTION 'after_{end}'"
        ));
        session.run(&format!("ROLLBACK PREPARED 'after_{end}'"));
    }
}

/// Creates an expired row in a separate cache. A sweep by another session would remove the row.
fn expired_row(session: &mut Client, cache: &str) {
    session.run(&format!(
        "SELECT cache_create('{cache}', storage => 'logged')"
    ));
    session.run(&format!(
        "INSERT INTO {cache} VALUES ('k', 'v', now() - interval '1 hour')"
    ));
}

/// Returns the number of advisory locks that prepared transactions hold in the session's database.
fn prepared_locks(session: &mut Client) -> i64 {
    session.number(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid IS NULL \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
}

#[test]
fn a_prepared_sweep_blocks_no_other_sweep_even_after_a_restart() {
    let cluster = Cluster::start(&["max_prepared_transactions = 10"]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('c', storage => 'logged', max_entries => 10)");
    for (name, sweep) in [
        ("one", "SELECT cache_expire('c')"),
        ("all", "SELECT cache_expire()"),
        (
            "nested",
            "SAVEPOINT s; SELECT cache_expire('c'); RELEASE s; SELECT cache_expire('c')",
        ),
        (
            "undone",
            "SAVEPOINT s; SELECT cache_expire('c'); ROLLBACK TO s",
        ),
        (
            "cursor",
            "DECLARE d CURSOR FOR SELECT cache_expire('c') FROM generate_series(1, 3); FETCH 2 FROM d",
        ),
    ] {
        session.run(&format!("BEGIN; {sweep}; PREPARE TRANSACTION '{name}'"));
        assert_eq!(prepared_locks(&mut session), 0, "{name}");
    }
    cluster.restart(Shutdown::Fast);
    let mut session = cluster.connect("postgres");
    assert_eq!(prepared_locks(&mut session), 0);
    // Only the session that holds the sweep lock removes the rows in excess of `max_entries`.
    session.run("INSERT INTO c SELECT 'k' || i, 'v' FROM generate_series(1, 5000) AS i");
    session.run("SELECT cache_expire('c')");
    assert!(session.number("SELECT count(*) FROM c") <= 1010);
    for name in ["one", "all", "nested", "undone", "cursor"] {
        session.run(&format!("ROLLBACK PREPARED '{name}'"));
    }
}

#[test]
fn a_session_keeps_the_sweep_lock_of_a_cache_until_its_transaction_ends() {
    let database = Cluster::shared().database();
    let (mut first, mut second) = (database.connect(), database.connect());
    first.run("SELECT cache_create('c', max_entries => 10)");
    first.run("INSERT INTO c SELECT 'k' || i, 'v' FROM generate_series(1, 5000) AS i");
    first.run("BEGIN; SELECT cache_expire('c')");
    second.run("SELECT cache_expire('c')");
    first.run("ROLLBACK");
    assert_eq!(first.number("SELECT count(*) FROM c"), 5000);
}

#[test]
fn a_fetch_that_stores_nothing_leaves_no_lock_in_a_prepared_transaction() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "SELECT cache_create('c'); CREATE FUNCTION stays_out() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN IF current_setting('test.out', true) = 'yes' THEN RETURN NULL; END IF; RETURN NEW; END$$; \
         CREATE TRIGGER stays_out BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION stays_out()",
    );
    session.run("SET test.out = 'yes'");
    session.run(
        "BEGIN; SELECT cache_fetch('k', 'SELECT 1', cache => 'c'); PREPARE TRANSACTION 'fetched'",
    );
    assert_eq!(prepared_locks(&mut other), 0);
    other.run("SET pgcache.fetch_wait = '1s'; SELECT cache_fetch('k', 'SELECT 2', cache => 'c')");
    assert_eq!(other.number("SELECT count(*) FROM c"), 1);
    session.run("ROLLBACK PREPARED 'fetched'");
    // If a loader fails and the error is caught, neither a lease remains nor a lock that replaces a lease.
    session.run(
        "BEGIN; DO $$ BEGIN PERFORM cache_fetch('n', 'SELECT 1 / 0'); \
         EXCEPTION WHEN division_by_zero THEN END $$; PREPARE TRANSACTION 'failed'",
    );
    assert_eq!(prepared_locks(&mut other), 0);
    session.run("ROLLBACK PREPARED 'failed'");
    expired_row(&mut session, "kept");
    assert_eq!(other.number("SELECT cache_expire('kept')"), 1);
}

#[test]
fn creating_an_existing_cache_keeps_no_lock_on_its_name() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run("SELECT cache_create('c')");
    session
        .run("BEGIN; SELECT cache_create('c', if_not_exists => true); PREPARE TRANSACTION 'asked'");
    assert_eq!(prepared_locks(&mut other), 0);
    other.run("SET lock_timeout = '60s'; SELECT cache_create('c', if_not_exists => true)");
    session.run("ROLLBACK PREPARED 'asked'");
}

/// A record has space for 74 caches that are changed as a whole, even after the role has used up its share of the pool.
/// A transaction that changes more such caches cannot be prepared.
#[test]
fn transactions_that_find_no_record_are_refused() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '4MB'"]);
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer.run("SELECT cache_create('c' || i) FROM generate_series(1, 101) AS i");
    writer.run("INSERT INTO c1 SELECT 'k' || i, 'old' FROM generate_series(1, 9000) AS i");
    let clear_all = "SELECT cache_set('k', 'new', cache => ('c' || i)::regclass), \
                     cache_clear(('c' || i)::regclass) FROM generate_series(2, 101) AS i";
    writer.run("BEGIN; UPDATE c1 SET value = 'new'; PREPARE TRANSACTION 'keys'");
    writer.run(&format!("BEGIN; {clear_all}"));
    refused(writer.try_value("PREPARE TRANSACTION 'caches'"), "53400");
    reader.run("ROLLBACK PREPARED 'keys'");
    reader.nothing_pending();
    writer.run(&format!(
        "ROLLBACK; BEGIN; {clear_all}; PREPARE TRANSACTION 'caches'"
    ));
    reader.run("COMMIT PREPARED 'caches'");
    reader.nothing_pending();
    assert_eq!(reader.number("SELECT cache_count('c2')"), 0);
}

/// After a role has used up its share of the pool, all marks of one cache share one entry of the record. All of them
/// must be undone when the transaction ends; otherwise no entry of that cache would ever be copied or leased again.
#[test]
fn marks_that_share_a_place_fall_together() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '4MB'"]);
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer
        .run("SELECT cache_create('c'), cache_create('d'), cache_create('m', storage => 'memory')");
    writer.run("SELECT cache_create('f' || i) FROM generate_series(1, 9) AS i");
    writer.run("CREATE TABLE s (key text)");
    writer.run("SELECT cache_depend('s', 'key', 'd'), cache_depend('s', 'key', 'm')");
    // These caches use up the record's space for whole caches.
    let first =
        "SELECT cache_delete_prefix('a', ('f' || i)::regclass) FROM generate_series(1, 9) AS i";
    writer.run("INSERT INTO c SELECT 'k' || i, 'old' FROM generate_series(1, 9000) AS i");
    writer.run("BEGIN; UPDATE c SET value = 'new'; PREPARE TRANSACTION 'keys'");
    let pending = "SELECT pending FROM pgcache.hot_tier";
    let before = reader.number(pending);
    for work in [
        "SELECT cache_delete_prefix('a', 'd'); SELECT cache_delete_prefix('b', 'd')",
        "INSERT INTO s VALUES ('a'); SELECT cache_delete_prefix('b', 'd')",
        "SELECT cache_set('a', 'v', cache => 'd'); SELECT cache_clear('d')",
        "INSERT INTO s VALUES ('a'); TRUNCATE s",
    ] {
        for end in ["COMMIT", "ROLLBACK"] {
            writer.run(&format!(
                "BEGIN; {first}; {work}; PREPARE TRANSACTION 'shares'"
            ));
            reader.run(&format!("{end} PREPARED 'shares'"));
            assert_eq!(reader.number(pending), before, "{work}; {end}");
        }
    }
    reader.run("ROLLBACK PREPARED 'keys'");
    reader.nothing_pending();
}

/// PREPARE TRANSACTION of a failed transaction is a ROLLBACK, and has no effect on the next transaction.
#[test]
fn a_prepare_that_is_a_rollback_is_forgotten() {
    let mut session = Cluster::shared().database().connect();
    session.run(
        "SELECT cache_create('c'); CREATE TABLE s (key text); SELECT cache_depend('s', 'key', 'c'); \
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN old; END'; \
         CREATE TRIGGER t BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION f()",
    );
    session.run("BEGIN");
    refused(session.try_value("SELECT 1 / 0"), "22012");
    session.run("PREPARE TRANSACTION 'failed'");
    session.run("BEGIN; INSERT INTO s VALUES ('k')");
    // Postgres closes portals in hash order of their names, so it closes some of these cursors before pgcache's portal
    // and some after it.
    for number in 0..32 {
        session.run(&format!("DECLARE c{number} CURSOR WITH HOLD FOR SELECT 1"));
    }
    session.run("COMMIT");
    assert_eq!(session.number("SELECT count(*) FROM s"), 1);
}
