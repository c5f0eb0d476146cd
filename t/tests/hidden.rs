//! Tests that plain SQL does not see expired rows: when rows disappear, how older databases and dumps behave, and which
//! roles still see the rows. `sql/hidden.sql` and the files beside it cover single sessions.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::parallel;
use pgcache_tests::stage::succeed;
use postgres::Client;

const NO_PRELOAD: &str = "shared_preload_libraries = ''";

/// A cache with one live row and one expired row.
const ROWS: &str = "SELECT cache_create('c', ttl => '1 hour'); \
     INSERT INTO c VALUES ('live', 'v', NULL), ('dead', 'v', now() - interval '1 hour')";
const COUNT: &str = "SELECT count(*) FROM c";

fn hides(session: &mut Client) -> String {
    session.text("SELECT hides_expired::text || coalesce(' ' || not_hidden_because, '') FROM pgcache.caches WHERE cache::text = 'c'")
}

#[test]
fn a_session_hides_expired_rows_once_it_loads_the_library() {
    let cluster = Cluster::start(&[NO_PRELOAD]);
    let database = cluster.empty_database("");
    database
        .connect()
        .run(&format!("CREATE EXTENSION pgcache; {ROWS}"));
    let mut session = database.connect();
    session.run("SET plan_cache_mode = force_generic_plan; PREPARE kept AS SELECT count(*) FROM c");
    session.run(
        "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM c); END'",
    );
    assert_eq!(session.number(COUNT), 2);
    assert_eq!(session.number("EXECUTE kept"), 2);
    assert_eq!(session.number("SELECT counted()"), 2);
    let why = hides(&mut session);
    assert!(
        why.starts_with(
            "false pgcache is in neither shared_preload_libraries nor session_preload_libraries"
        ),
        "{why}"
    );
    assert_eq!(session.number(COUNT), 1);
    assert_eq!(session.number("EXECUTE kept"), 1);
    assert_eq!(session.number("SELECT counted()"), 1);
    session.run("INSERT INTO c VALUES ('dead', 'new')");
    assert_eq!(session.number(COUNT), 2);

    for libraries in ["pgcache", "plpgsql, '$libdir/pgcache.so'"] {
        let name = &database.name;
        session.run(&format!(
            "ALTER DATABASE \"{name}\" SET session_preload_libraries = {libraries}"
        ));
        let mut loaded = database.connect();
        loaded.run("SET pgcache.show_expired = off");
        loaded.run("UPDATE c AS pgcache_c SET expires_at = '-infinity' WHERE key = 'dead'");
        assert_eq!(loaded.number(COUNT), 1, "{libraries}");
        assert_eq!(hides(&mut loaded), "true", "{libraries}");
    }
}

#[test]
fn revoked_default_privileges_do_not_prevent_reads_and_writes() {
    let cluster = Cluster::shared();
    let database = cluster.empty_database("");
    let role = cluster.role();
    let mut session = database.connect();
    session
        .run("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; CREATE EXTENSION pgcache");
    session.run(ROWS);
    session.run(&format!("GRANT SELECT, INSERT, UPDATE ON c TO {role}"));
    database.loads_the_library();
    let mut other = database.connect_as(&role);
    assert_eq!(other.number(COUNT), 1);
    other.run(
        "INSERT INTO c VALUES ('dead', 'new') ON CONFLICT (key) DO UPDATE SET value = 'not this'",
    );
    assert_eq!(
        other.lines("SELECT key, value FROM c ORDER BY key"),
        ["dead|new", "live|v"]
    );
}

#[test]
fn a_role_that_may_only_select_sees_live_rows() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let role = cluster.role();
    let mut session = database.connect();
    session.run(ROWS);
    session.run(&format!("GRANT SELECT ON c TO {role}"));
    database.loads_the_library();
    let mut other = database.connect_as(&role);
    assert_eq!(other.lines("SELECT key FROM c"), ["live"]);
    session.run("VACUUM c");
    assert_eq!(other.lines("SELECT key FROM c"), ["live"]);
}

#[test]
fn an_older_extension_shows_expired_rows_until_it_is_updated() {
    let cluster = Cluster::shared();
    for version in ["0.1.0", "0.2.0", "0.3.0"] {
        let database = cluster.empty_database("");
        let mut session = database.connect();
        session.run(&format!("CREATE EXTENSION pgcache VERSION '{version}'"));
        session.run(ROWS);
        session.run("CREATE TABLE bare (key text PRIMARY KEY, value text, expires_at timestamptz)");
        session.run(
            "SET plan_cache_mode = force_generic_plan; PREPARE kept AS SELECT count(*) FROM c",
        );
        assert_eq!(session.number("EXECUTE kept"), 2, "{version}");
        session.run("INSERT INTO c VALUES ('dead', 'new') ON CONFLICT (key) DO UPDATE SET value = 'old way'");
        let file = "SELECT pg_relation_filenode('c')";
        let before = session.number(file);
        database.connect().run("ALTER EXTENSION pgcache UPDATE");
        assert_eq!(session.number("EXECUTE kept"), 1, "{version}");
        session.run("INSERT INTO c VALUES ('dead', 'new')");
        assert_eq!(
            session.lines(
                "SELECT key, value, expires_at > now() + interval '59 min' FROM c ORDER BY key"
            ),
            ["dead|new|t", "live|v|"],
            "{version}"
        );
        assert_eq!(session.number(file), before, "{version}: rewritten");
    }
}

#[test]
fn a_statement_sees_the_same_rows_from_its_beginning_to_its_end() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    session.run("INSERT INTO c SELECT n::text, 'v', clock_timestamp() + interval '500 ms' FROM generate_series(1, 5) AS n");
    assert_eq!(
        session.number("SELECT count(pg_sleep(0.2)::text) FROM c"),
        5
    );
    assert_eq!(session.number(COUNT), 0);
}

fn version(session: &mut Client) -> i64 {
    session.number("SHOW server_version_num") / 10_000
}

#[test]
fn joins_of_a_cache_with_itself_that_are_taken_out_hide_all_the_same() {
    let mut session = Cluster::shared().database().connect();
    session.run(ROWS);
    let is_eliminated = version(&mut session) >= 18;
    for (query, found) in [
        ("SELECT a.key FROM c AS a JOIN c AS b USING (key)", "live"),
        (
            "SELECT b.key FROM c AS a, c AS b WHERE a.key = b.key AND b.value = 'v'",
            "live",
        ),
        // A query with only the alias `pgcache_c` would see the expired row, a query with only the other alias would
        // not.
        (
            "SELECT a.key FROM c AS a JOIN c AS pgcache_c USING (key)",
            "live",
        ),
        (
            "SELECT pgcache_c.key FROM c AS pgcache_c JOIN c AS b USING (key)",
            "live",
        ),
        (
            "SELECT a.key FROM c AS a WHERE EXISTS (SELECT FROM c AS b WHERE b.key = a.key)",
            "live",
        ),
        (
            "SELECT a.key FROM c AS a LEFT JOIN c AS b USING (key)",
            "live",
        ),
    ] {
        for settled in [false, true] {
            if settled {
                session.run("VACUUM ANALYZE c");
            }
            assert_eq!(session.lines(query), [found], "{query}");
        }
    }
    let plan =
        session.lines("EXPLAIN (COSTS OFF) SELECT a.key FROM c AS a JOIN c AS b USING (key)");
    let scans = plan.iter().filter(|line| line.contains("Scan")).count();
    assert_eq!(scans == 1, is_eliminated, "{plan:?}");
}

#[test]
fn merge_passes_over_expired_rows_in_all_its_arms() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('c', ttl => '1 hour')");
    let start = "TRUNCATE c; INSERT INTO c VALUES ('live', 'v', NULL), ('more', 'v', NULL), ('dead', 'v', '-infinity'), ('dead 2', 'v', '-infinity')";
    let left = "SELECT key, value FROM c ORDER BY key";
    let stored = "SELECT count(*) FROM c AS pgcache_c";
    for (arms, rows, number) in [
        (
            "WHEN MATCHED THEN UPDATE SET value = c.value || 'u' WHEN NOT MATCHED THEN INSERT (key, value) VALUES (s.key, 'i')",
            &["dead|i", "live|vu", "more|v", "new|i"][..],
            5,
        ),
        (
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING",
            &["more|v"],
            3,
        ),
        (
            "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED AND s.key = 'dead' THEN INSERT VALUES (s.key, 'i', NULL)",
            &["dead|i", "live|v", "more|v"],
            4,
        ),
    ] {
        session.run(start);
        session.run(&format!(
            "MERGE INTO c USING (VALUES ('live'), ('dead'), ('new')) AS s (key) ON c.key = s.key {arms}"
        ));
        assert_eq!(session.lines(left), rows, "{arms}");
        assert_eq!(session.number(stored), number, "{arms}");
    }
    if version(&mut session) < 17 {
        return;
    }
    for (arms, expected, rows, number) in [
        (
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET value = 'left', key = c.key || '' \
             WHEN NOT MATCHED BY TARGET THEN INSERT (key, value) VALUES (s.key, 'i')",
            &["INSERT|dead", "INSERT|new", "UPDATE|more"][..],
            &["dead|i", "live|v", "more|left", "new|i"][..],
            5,
        ),
        (
            "WHEN MATCHED THEN UPDATE SET key = s.key, value = 'u' WHEN NOT MATCHED BY SOURCE THEN DELETE",
            &["DELETE|more", "UPDATE|live"],
            &["live|u"],
            3,
        ),
    ] {
        session.run(start);
        let mut notified = session.lines(&format!(
            "MERGE INTO c USING (VALUES ('live'), ('dead'), ('new')) AS s (key) ON c.key = s.key {arms} \
             RETURNING merge_action(), c.key"
        ));
        notified.sort();
        assert_eq!(notified, expected, "{arms}");
        assert_eq!(session.lines(left), rows, "{arms}");
        assert_eq!(session.number(stored), number, "{arms}");
    }
}

#[test]
fn plans_made_anew_inside_triggers_hide_expired_rows_from_users_only() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "SELECT cache_create('c', grace => '1 day'); CREATE TABLE told (event text, n int);
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO told VALUES (TG_OP, (SELECT count(*) FROM c));
             RETURN NULL;
         END $$;
         CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION tell();
         INSERT INTO c VALUES ('dead', 'stale', clock_timestamp() - interval '1 hour'), ('gone', 'v', '-infinity')",
    );
    let renew_plans = |other: &mut Client, fill: i32| {
        other.run(&format!("ALTER TABLE c SET (fillfactor = {fill})"));
    };
    for fill in [70, 75] {
        session.run("TRUNCATE told");
        // Run pgcache's own statements while the trigger has a saved plan. The second ALTER invalidates the plan, so
        // Postgres plans the trigger's query again inside pgcache's statement.
        renew_plans(&mut other, fill);
        session.run("SELECT cache_set('a', 'v', cache => 'c'), cache_set('b', 'v', cache => 'c')");
        renew_plans(&mut other, fill + 1);
        session.run("SELECT cache_touch('a', '1 hour', 'c'), cache_delete('b', 'c')");
        let told = session.lines("SELECT event, n FROM told");
        assert!(
            told.iter()
                .all(|line| line.ends_with("|1") || line.ends_with("|2")),
            "{told:?}"
        );
        assert!(
            told.last().is_some_and(|line| line == "DELETE|1"),
            "{told:?}"
        );
        // pgcache's own statements are planned anew while a user-defined function runs that must not see expired rows.
        renew_plans(&mut other, fill + 2);
        let both = "SELECT (SELECT count(*) FROM c WHERE key = 'dead'), cache_fetch('dead', $$SELECT 'fresh'$$, '1 hour', 'c')";
        session.run(&format!("BEGIN; {both}; ROLLBACK"));
    }
    session.run("DROP TRIGGER tell ON c");
    assert_eq!(
        session.number("SELECT cache_expire('c')"),
        1,
        "only what is past its grace"
    );
}

#[test]
fn kept_plans_follow_changes_of_the_cache() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(ROWS);
    session.run("SET plan_cache_mode = force_generic_plan; PREPARE kept AS SELECT count(*) FROM c");
    session.run(
        "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM c); END'",
    );
    let both = |session: &mut Client| {
        [
            session.number("EXECUTE kept"),
            session.number("SELECT counted()"),
        ]
    };
    assert_eq!(both(&mut session), [1, 1]);
    for change in [
        "SELECT cache_alter('c', ttl => '2 hours')",
        "SELECT cache_alter('c', max_entries => 5)",
        "ALTER TABLE c ALTER expires_at DROP DEFAULT, ADD more int",
        "ALTER TABLE c RENAME TO d; ALTER TABLE d RENAME TO c",
    ] {
        other.run(change);
        assert_eq!(both(&mut session), [1, 1], "{change}");
    }
    other.run("SELECT cache_detach('c')");
    assert_eq!(both(&mut session), [2, 2]);
    other.run("ALTER TABLE c DROP more; SELECT cache_attach('c')");
    assert_eq!(both(&mut session), [1, 1]);
    other.run("SELECT cache_drop('c'); CREATE TABLE c (key text, value text, expires_at timestamptz); INSERT INTO c VALUES ('dead', 'v', '-infinity')");
    assert_eq!(both(&mut session), [1, 1]);
    other.run("DROP TABLE c");
    other.run(ROWS);
    assert_eq!(both(&mut session), [1, 1]);
}

#[test]
fn a_parallel_query_hides_expired_rows_except_from_pgcaches_own_statements() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('c', grace => '1 day')");
    session.run("INSERT INTO c SELECT n::text, 'v', CASE WHEN n % 2 = 0 THEN clock_timestamp() - interval '1 hour' END FROM generate_series(1, 1000) AS n");
    parallel::always(&mut session);
    session.run("ALTER TABLE c SET (parallel_workers = 2)");
    for (table, rows) in [("c", 500), ("c AS pgcache_c", 1000)] {
        let query = format!("SELECT count(value) FROM {table}");
        assert!(parallel::is_planned(&mut session, &query), "{query}");
        assert_eq!(session.number(&query), rows, "{query}");
    }
    assert_eq!(session.number("SELECT cache_count('c')"), 500);
    session.run("SET pgcache.show_expired = on");
    assert_eq!(
        session.number("SELECT count(value) FROM c"),
        1000,
        "parallel workers use the setting"
    );
}

#[test]
fn a_row_goes_at_its_deadline_under_every_isolation_level() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('c')");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        session.run(
            "TRUNCATE c; INSERT INTO c VALUES ('soon', 'v', clock_timestamp() + interval '400 ms'), ('live', 'v', NULL)",
        );
        session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(session.number(COUNT), 2, "{level}");
        session.run("SAVEPOINT s; SELECT pg_sleep(0.45)");
        assert_eq!(session.number(COUNT), 1, "{level}");
        session.run("ROLLBACK TO s");
        assert_eq!(session.number(COUNT), 1, "{level}");
        let changed = "WITH u AS (UPDATE c SET value = 'w' RETURNING 1) SELECT count(*) FROM u";
        assert_eq!(session.number(changed), 1, "{level}");
        session.run("COMMIT");
    }
}

fn dumped(database: &Database, options: &[&str]) -> std::path::PathBuf {
    let file = database
        .cluster
        .folder
        .join(format!("{}.sql", database.name));
    let mut pg_dump = database.cluster.program("pg_dump");
    pg_dump
        .args(options)
        .arg("-f")
        .arg(&file)
        .arg(&database.name);
    succeed(&mut pg_dump);
    file
}

fn restored<'c>(cluster: &'c Cluster, file: &std::path::Path, options: &str) -> Database<'c> {
    let database = cluster.empty_database("");
    database.loads_the_library();
    let mut psql = cluster.program("psql");
    psql.env("PGOPTIONS", options)
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &database.name])
        .arg("-f")
        .arg(file);
    succeed(&mut psql);
    database
}

#[test]
fn dumps_with_foreign_keys_in_both_directions_come_back() {
    const ALL: &str = "SELECT key, shelf FROM c AS pgcache_c ORDER BY key";
    const REFERS: &str = "SELECT key FROM refers ORDER BY key";
    let cluster = Cluster::shared();
    let database = cluster.database();
    database.loads_the_library();
    let mut session = database.connect();
    session.run(
        "SELECT cache_create('c', ttl => '1 hour'); \
         CREATE TABLE shelf (id int PRIMARY KEY); INSERT INTO shelf VALUES (1), (2), (3); \
         ALTER TABLE c ADD COLUMN shelf int REFERENCES shelf ON DELETE CASCADE; \
         CREATE UNLOGGED TABLE refers (key text REFERENCES c ON DELETE CASCADE); \
         INSERT INTO c VALUES ('dead', 'v', '-infinity', 1), ('dead 2', 'v', '-infinity', 2), ('live', 'v', NULL, 3); \
         INSERT INTO refers VALUES ('live')",
    );
    // If the cascade did not see the child row, the child row would remain without its parent, and the dump could not
    // be restored.
    session.run("DELETE FROM shelf WHERE id = 1");
    assert_eq!(session.lines(ALL), ["dead 2|2", "live|3"]);
    let back = restored(cluster, &dumped(&database, &[]), "");
    assert_eq!(back.connect().lines(ALL), ["dead 2|2", "live|3"]);
    assert_eq!(back.connect().lines("SELECT key FROM c"), ["live"]);
    // A dump that is made of INSERTs contains only the rows that SELECT shows.
    let back = restored(cluster, &dumped(&database, &["--inserts"]), "");
    assert_eq!(back.connect().lines(ALL), ["live|3"]);
    assert_eq!(back.connect().lines(REFERS), ["live"]);
    // A row that refers to an expired row can be restored in a session with pgcache.show_expired.
    session.run("INSERT INTO refers VALUES ('dead 2')");
    let back = restored(
        cluster,
        &dumped(&database, &[]),
        "-c pgcache.show_expired=on",
    );
    assert_eq!(back.connect().lines(REFERS), ["dead 2", "live"]);
    let mut session = back.connect();
    session.run("INSERT INTO c VALUES ('fresh', 'v')");
    assert_eq!(
        session.number("SELECT count(*) FROM c WHERE expires_at > now() + interval '59 min'"),
        1,
        "the DEFAULT is there"
    );
}
