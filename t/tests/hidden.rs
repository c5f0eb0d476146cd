//! Expired rows do not exist for plain SQL: where that begins, what older databases and dumps make of it, and who is
//! kept from nothing by it. What single sessions see is in `sql/hidden.sql` and its neighbours.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
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
fn a_session_hides_them_from_the_moment_on_at_which_it_loads_the_library() {
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
        why.starts_with("false neither shared_preload_libraries nor session_preload_libraries"),
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
fn default_privileges_that_were_revoked_keep_nobody_from_reading_and_writing() {
    let cluster = Cluster::shared();
    let database = cluster.empty_database("");
    let role = cluster.role();
    let mut session = database.connect();
    session
        .run("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; CREATE EXTENSION pgcache");
    session.run(ROWS);
    session.run(&format!("GRANT SELECT, INSERT, UPDATE ON c TO {role}"));
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
    let mut other = database.connect_as(&role);
    assert_eq!(other.lines("SELECT key FROM c"), ["live"]);
    session.run("VACUUM c");
    assert_eq!(other.lines("SELECT key FROM c"), ["live"]);
}

#[test]
fn a_database_whose_extension_is_older_shows_them_until_it_is_updated() {
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
fn a_statement_sees_to_its_end_what_it_has_begun_to_read() {
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
    let mut session = database.connect();
    session.run(
        "SELECT cache_create('c', ttl => '1 hour'); \
         CREATE TABLE shelf (id int PRIMARY KEY); INSERT INTO shelf VALUES (1), (2), (3); \
         ALTER TABLE c ADD COLUMN shelf int REFERENCES shelf ON DELETE CASCADE; \
         CREATE UNLOGGED TABLE refers (key text REFERENCES c ON DELETE CASCADE); \
         INSERT INTO c VALUES ('dead', 'v', '-infinity', 1), ('dead 2', 'v', '-infinity', 2), ('live', 'v', NULL, 3); \
         INSERT INTO refers VALUES ('live')",
    );
    // Left behind by a cascade that did not see it, the child would keep the dump from coming back.
    session.run("DELETE FROM shelf WHERE id = 1");
    assert_eq!(session.lines(ALL), ["dead 2|2", "live|3"]);
    let back = restored(cluster, &dumped(&database, &[]), "");
    assert_eq!(back.connect().lines(ALL), ["dead 2|2", "live|3"]);
    assert_eq!(back.connect().lines("SELECT key FROM c"), ["live"]);
    // A dump by SELECT has what SELECT shows.
    let back = restored(cluster, &dumped(&database, &["--inserts"]), "");
    assert_eq!(back.connect().lines(ALL), ["live|3"]);
    assert_eq!(back.connect().lines(REFERS), ["live"]);
    // What refers to an expired row comes back where a session asks to see it.
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
