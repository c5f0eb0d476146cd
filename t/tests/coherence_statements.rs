//! Tests that no statement leaves a value in the hot tier that a SELECT would not return.
//!
//! Another session has the cache's key in the hot tier when the statement runs. Afterwards, `cache_get` and SELECT must
//! agree in that other session. Each statement that can run in a transaction block also runs in one that is rolled
//! back.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// Statements on the cache `c` whose only key `k` has the value `old`, and the value of `k` afterwards.
const STATEMENTS: &[(&str, Option<&str>)] = &[
    ("UPDATE c SET value = 'new'", Some("new")),
    ("SELECT cache_set('k', 'new', cache => 'c')", Some("new")),
    (
        "SET LOCAL pgcache.hot_tier = off; SELECT cache_set('k', 'new', cache => 'c')",
        Some("new"),
    ),
    (
        "SET LOCAL pgcache.hot_tier = off; UPDATE c SET value = 'new'",
        Some("new"),
    ),
    ("UPDATE c SET expires_at = now() - interval '1 s'", None),
    ("UPDATE c SET key = 'other'", None),
    (
        "INSERT INTO c VALUES ('k') ON CONFLICT (key) DO UPDATE SET value = 'new'",
        Some("new"),
    ),
    ("DELETE FROM c", None),
    (
        "DELETE FROM c; INSERT INTO c VALUES ('k', 'new')",
        Some("new"),
    ),
    (
        "MERGE INTO c USING (VALUES ('k')) AS s (k) ON c.key = s.k \
      WHEN MATCHED THEN UPDATE SET value = 'new'",
        Some("new"),
    ),
    (
        "MERGE INTO c USING (VALUES ('k')) AS s (k) ON c.key = s.k WHEN MATCHED THEN DELETE",
        None,
    ),
    (
        "DELETE FROM c; COPY c (key, value) FROM PROGRAM 'echo k,new' (FORMAT csv)",
        Some("new"),
    ),
    ("TRUNCATE c", None),
    ("TRUNCATE c; INSERT INTO c VALUES ('k', 'new')", Some("new")),
    (
        "TRUNCATE c; SELECT cache_set('k', 'new', cache => 'c')",
        Some("new"),
    ),
    (
        "SELECT cache_set('k', 'new', cache => 'c'); TRUNCATE c",
        None,
    ),
    (
        "SELECT cache_set('k', 'new', cache => 'c'); DROP TABLE c; SELECT cache_create('c')",
        None,
    ),
    ("SELECT cache_clear('c')", None),
    (
        "SET LOCAL session_replication_role = replica; UPDATE c SET value = 'new'",
        Some("new"),
    ),
    (
        "SET LOCAL session_replication_role = replica; TRUNCATE c",
        None,
    ),
    (
        "WITH u AS (UPDATE c SET value = 'new' RETURNING 1) \
      SELECT cache_get('k', 'c') FROM u",
        Some("new"),
    ),
    (
        "WITH d AS (DELETE FROM c RETURNING 1) SELECT cache_get('k', 'c') FROM d",
        None,
    ),
    ("DELETE FROM source", None),
    ("UPDATE source SET key = 'gone' WHERE key = 'k'", None),
    (
        "SELECT cache_expire('c'); UPDATE c SET value = 'new'",
        Some("new"),
    ),
    (
        "SAVEPOINT s; UPDATE c SET value = 'undone'; ROLLBACK TO s",
        Some("old"),
    ),
    (
        "SAVEPOINT s; UPDATE c SET value = 'new'; RELEASE s",
        Some("new"),
    ),
    (
        "UPDATE c SET value = 'new'; SAVEPOINT s; TRUNCATE c; ROLLBACK TO s",
        Some("new"),
    ),
    (
        "UPDATE c SET value = 'new'; SAVEPOINT s; DELETE FROM c WHERE key = 'l'; ROLLBACK TO s",
        Some("new"),
    ),
    (
        "SAVEPOINT s; DROP TABLE c; ROLLBACK TO s; UPDATE c SET value = 'new'",
        Some("new"),
    ),
    (
        "DO $$ BEGIN UPDATE c SET value = 'undone'; PERFORM cache_get('k', 'c'); RAISE 'x'; \
      EXCEPTION WHEN raise_exception THEN PERFORM cache_get('k', 'c'); END $$",
        Some("old"),
    ),
    (
        "DECLARE u CURSOR FOR SELECT * FROM c FOR UPDATE; FETCH u; \
      UPDATE c SET value = 'new' WHERE CURRENT OF u; CLOSE u",
        Some("new"),
    ),
    (
        "ALTER TABLE c ALTER COLUMN value TYPE text USING 'new'",
        Some("new"),
    ),
    ("ALTER TABLE c SET LOGGED", Some("old")),
    (
        "UPDATE c SET value = 'new'; ALTER TABLE c SET LOGGED",
        Some("new"),
    ),
    (
        "ALTER TABLE c DISABLE TRIGGER ALL; UPDATE c SET value = 'new'; \
      ALTER TABLE c ENABLE TRIGGER ALL",
        Some("new"),
    ),
    (
        "ALTER TABLE c DISABLE TRIGGER ALL; UPDATE c SET value = 'new'",
        Some("new"),
    ),
    (
        "ALTER TABLE c ADD COLUMN more text DEFAULT 'x'; UPDATE c SET value = 'new'",
        Some("new"),
    ),
    (
        "ALTER TABLE c ADD COLUMN more text; ALTER TABLE c DROP COLUMN more",
        Some("old"),
    ),
    (
        "CREATE TABLE child () INHERITS (c); INSERT INTO child VALUES ('k', 'of the child')",
        Some("old"),
    ),
    (
        "CREATE TABLE child () INHERITS (c); UPDATE c SET value = 'new'",
        Some("new"),
    ),
    (
        "CREATE RULE r AS ON INSERT TO c DO ALSO DELETE FROM c WHERE key = 'k'; \
      INSERT INTO c VALUES ('l', '1')",
        None,
    ),
    ("DROP TABLE c; SELECT cache_create('c')", None),
    (
        "DROP TABLE c; SELECT cache_create('c'); INSERT INTO c VALUES ('k', 'new')",
        Some("new"),
    ),
    (
        "ALTER TABLE c RENAME TO former; SELECT cache_create('c'); \
      SELECT cache_set('k', 'new', cache => 'c')",
        Some("new"),
    ),
    (
        "CREATE SCHEMA other; ALTER TABLE c SET SCHEMA other; SELECT cache_create('c')",
        None,
    ),
    (
        "CREATE SCHEMA other; ALTER TABLE c SET SCHEMA other; \
      UPDATE other.c SET value = 'new'; ALTER TABLE other.c SET SCHEMA public",
        Some("new"),
    ),
];

/// Statements that end a transaction or cannot run in a transaction block, each with the value of `k` afterwards.
const OUTSIDE: &[(&[&str], Option<&str>)] = &[
    (
        &["UPDATE c SET value = 'new'", "VACUUM FULL c"],
        Some("new"),
    ),
    (
        &["CLUSTER c USING c_pkey", "UPDATE c SET value = 'new'"],
        Some("new"),
    ),
    (&["REINDEX TABLE CONCURRENTLY c", "DELETE FROM c"], None),
    (
        &[
            "DO $$ BEGIN UPDATE c SET value = 'a'; COMMIT; UPDATE c SET value = 'b'; ROLLBACK; END $$",
        ],
        Some("a"),
    ),
    (
        &[
            "ALTER TABLE c DISABLE TRIGGER ALL",
            "UPDATE c SET value = 'new'",
            "ALTER TABLE c ENABLE TRIGGER ALL",
        ],
        Some("new"),
    ),
    (&["ALTER TABLE c DISABLE TRIGGER ALL", "TRUNCATE c"], None),
    (
        &[
            "ALTER TABLE c SET LOGGED",
            "UPDATE c SET value = 'new'",
            "ALTER TABLE c SET UNLOGGED",
        ],
        Some("new"),
    ),
];

/// Recreates a cache with one hot key, and a table `source` that contains the key.
pub(crate) fn set_up(writer: &mut Client, reader: &mut Client) {
    writer.run(
        "DROP SCHEMA IF EXISTS other CASCADE; DROP TABLE IF EXISTS c, former, source CASCADE; \
         CREATE UNLOGGED TABLE source (key text COLLATE \"C\" PRIMARY KEY); \
         INSERT INTO source VALUES ('k'), ('l'); SELECT cache_create('c')",
    );
    writer.run("SELECT cache_set('k', 'old', cache => 'c')");
    assert_eq!(reader.heat("k", "c").as_deref(), Some("old"));
}

/// A foreign key that removes the entries of deleted rows of `source`, and renames the entries of rows whose key
/// changes.
const CASCADE: &str = "ALTER TABLE c ADD FOREIGN KEY (key) REFERENCES source \
                       ON DELETE CASCADE ON UPDATE CASCADE";

fn set_up_for(statement: &str, writer: &mut Client, reader: &mut Client) {
    set_up(writer, reader);
    if statement.contains("source") {
        writer.run(CASCADE);
        reader.heat("k", "c");
    }
}

/// Checks that, while the writer's transaction is open, the reader gets the old value or has to wait.
pub(crate) fn sees_nothing_of_it(reader: &mut Client, statement: &str) {
    reader.run("SET lock_timeout = '20ms'");
    for _ in 0..3 {
        match reader.try_value("SELECT cache_get('k', 'c')") {
            Ok(value) => assert_eq!(value.as_deref(), Some("old"), "{statement}, uncommitted"),
            Err(error) => assert_eq!(sqlstate(&error), "55P03", "{statement}"),
        }
    }
    reader.run("RESET lock_timeout");
}

#[test]
fn after_any_statement_function_and_select_agree() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for (statement, expected) in STATEMENTS {
        set_up_for(statement, &mut writer, &mut reader);
        writer.run("BEGIN");
        writer.run(statement);
        writer.run("COMMIT");
        assert_eq!(reader.agrees("k", "c").as_deref(), *expected, "{statement}");
    }
}

#[test]
fn other_sessions_never_see_a_rolled_back_statement() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for (statement, _) in STATEMENTS {
        set_up_for(statement, &mut writer, &mut reader);
        writer.run("BEGIN");
        writer.run(statement);
        sees_nothing_of_it(&mut reader, statement);
        writer.run("ROLLBACK");
        assert_eq!(
            reader.agrees("k", "c").as_deref(),
            Some("old"),
            "{statement}"
        );
        reader.heat("k", "c");
    }
}

#[test]
fn after_commands_that_end_transactions_function_and_select_agree() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for (commands, expected) in OUTSIDE {
        set_up(&mut writer, &mut reader);
        for command in *commands {
            writer.run(command);
            reader.agrees("k", "c");
        }
        assert_eq!(
            reader.agrees("k", "c").as_deref(),
            *expected,
            "{commands:?}"
        );
    }
}

#[test]
fn a_writer_sees_its_own_statement_at_once() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    for (statement, expected) in STATEMENTS {
        set_up_for(statement, &mut writer, &mut reader);
        writer.heat("k", "c");
        writer.run("BEGIN");
        writer.run(statement);
        assert_eq!(writer.agrees("k", "c").as_deref(), *expected, "{statement}");
        writer.run("ROLLBACK");
    }
}
