//! Tests that every function refuses a table that Citus has distributed. Citus keeps the rows on shards, so the table
//! itself is empty, and without the refusal each read would be an unnoticed miss.
//!
//! Here a plain table replaces Citus' catalog; `citus.rs` tests distributed tables with Citus.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::needs::Needs::{Nothing, Trigger};
use pgcache_tests::needs::present;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// Creates a database with an empty table under the name of Citus' catalog of distributed tables.
fn database() -> (Database<'static>, Client) {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "SET allow_system_table_mods = on;
         CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod \"char\" NOT NULL);
         RESET allow_system_table_mods",
    );
    (database, session)
}

/// Marks a table as distributed, as Citus does: inserts a row into the catalog, and invalidates the relation for all
/// sessions.
fn distribute(session: &mut Client, table: &str) {
    session.run(&format!(
        "INSERT INTO pg_catalog.pg_dist_partition VALUES ('{table}', 'h'); COMMENT ON TABLE {table} IS NULL;
         ALTER TABLE {table} SET (toast_tuple_target = 2000)"
    ));
}

#[test]
fn every_function_refuses_a_distributed_table_in_sessions_that_know_it_as_a_cache() {
    let (database, mut session) = database();
    session.run(
        "SELECT cache_create('c'), cache_create('beside');
         SELECT cache_set('k', '1', cache => 'c'), cache_set('k', '1', cache => 'beside')",
    );
    let mut other = database.connect();
    for _ in 0..2 {
        assert_eq!(other.text("SELECT cache_get('k', 'c')"), "1");
    }
    distribute(&mut session, "c");
    let error = refused(other.try_lines("SELECT cache_get('k', 'c')"), "42809");
    assert_eq!(error.message(), "\"c\" is distributed by Citus");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("undistribute_table()")),
        "{error:?}"
    );

    // A function needs no cache if it has a view's row type, or if only a trigger calls it.
    let shown = [
        "cache_settings",
        "refresh_settings",
        "touch_after",
        "share",
        "hiding",
        "put_default",
    ];
    let mut asked = 0;
    for (name, needs, call) in present(&mut session) {
        if !call.contains("$c") || shown.contains(&name) || matches!(needs, Nothing | Trigger) {
            continue;
        }
        let call = format!("SELECT {}", call.replace("$c", "'c'"));
        let error = refused(session.try_lines(&call), "42809");
        assert_eq!(error.message(), "\"c\" is distributed by Citus", "{call}");
        asked += 1;
    }
    assert!(asked > 40, "only {asked} functions were asked");
    assert_eq!(session.text("SELECT cache_get('k', 'beside')"), "1");

    // Functions over all caches continue to work.
    assert_eq!(
        session.text("SELECT storage FROM pgcache.caches WHERE cache = 'beside'::regclass"),
        "unlogged"
    );
    assert!(
        session.holds("SELECT storage IS NULL FROM pgcache.caches WHERE cache = 'c'::regclass")
    );
    session.run("SELECT cache_set('short', '1', '1 ms', 'beside'), pg_sleep(0.01)");
    assert_eq!(session.number("SELECT cache_expire()"), 1);
}

#[test]
fn a_table_that_is_distributed_no_more_is_a_cache_again() {
    let (_database, mut session) = database();
    session.run("SELECT cache_create('c'); SELECT cache_set('k', '1', cache => 'c')");
    distribute(&mut session, "c");
    refused(session.try_lines("SELECT cache_get('k', 'c')"), "42809");
    session.run("DELETE FROM pg_catalog.pg_dist_partition");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "1");
}

#[test]
fn a_change_of_a_source_is_refused_while_its_entries_are_on_shards() {
    let (_database, mut session) = database();
    session.run(
        "SELECT cache_create('c'); CREATE TABLE source (id text PRIMARY KEY); SELECT cache_depend('source', 'id', 'c');
         INSERT INTO source VALUES ('before')",
    );
    distribute(&mut session, "c");
    let error = refused(
        session.try_lines("INSERT INTO source VALUES ('k')"),
        "42809",
    );
    assert_eq!(error.message(), "\"c\" is distributed by Citus");
    refused(session.try_lines("TRUNCATE source"), "42809");
    assert_eq!(session.lines("SELECT id FROM source"), ["before"]);
    session.run("SELECT cache_undepend('source', 'c'); INSERT INTO source VALUES ('k')");
}

#[test]
fn a_distributed_table_becomes_neither_a_cache_nor_a_source() {
    let (_database, mut session) = database();
    session.run("CREATE TABLE theirs (key text PRIMARY KEY, value text); SELECT cache_create('c')");
    distribute(&mut session, "theirs");
    for call in [
        "SELECT cache_attach('theirs')",
        "SELECT cache_depend('theirs', 'key', 'c')",
    ] {
        let error = refused(session.try_lines(call), "42809");
        assert_eq!(error.message(), "\"theirs\" is distributed by Citus");
    }
    assert!(!session.holds("SELECT relhastriggers FROM pg_class WHERE oid = 'theirs'::regclass"));
    refused(
        session.try_lines("SELECT cache_create('theirs', if_not_exists => true)"),
        "42809",
    );
}

#[test]
fn a_table_of_that_name_in_another_schema_says_nothing() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE pg_dist_partition (logicalrelid regclass); SELECT cache_create('c');
         INSERT INTO pg_dist_partition VALUES ('c'); SET search_path = public, pg_catalog; SELECT cache_set('k', '1', cache => 'c')",
    );
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "1");
}

#[test]
fn without_citus_nothing_is_distributed() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    let error = refused(session.try_lines("SELECT cache_distribute('c')"), "0A000");
    assert_eq!(error.message(), "Citus is not installed in this database");
    refused(session.try_lines("SELECT cache_distribute(NULL)"), "22004");
    refused(
        session.try_lines("SELECT * FROM pgcache.at_key('k', 0, 'pg_sleep', ARRAY['=1'])"),
        "22023",
    );
}
