//! Tests that `cache_attach` refuses a table that cannot become a cache and leaves it unchanged, and that the error
//! names the change that the table needs.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;

/// A table, the arguments of `cache_attach`, and words that the error's detail or hint must contain.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "(key char(9) PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "text, varchar, uuid or bigint",
    ),
    (
        "(key dom PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "of type dom",
    ),
    (
        "(key int PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "of type integer",
    ),
    (
        "(key text PRIMARY KEY, value dom, expires_at timestamptz)",
        "",
        "of type dom",
    ),
    (
        "(key text PRIMARY KEY, value xml, expires_at timestamptz)",
        "",
        "of type xml",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamp)",
        "",
        "AT TIME ZONE",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at bigint)",
        "",
        "expires_unit => 's'",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamptz)",
        ", expires_unit => 's'",
        "integer or bigint",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at date)",
        "",
        "timestamptz",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamptz)",
        ", value_column => 'key'",
        "three different columns",
    ),
    (
        "(key text UNIQUE NOT NULL, value text, expires_at timestamptz)",
        "",
        "primary key",
    ),
    (
        "(key text PRIMARY KEY DEFERRABLE, value text, expires_at timestamptz)",
        "",
        "primary key",
    ),
    (
        "(key text, n int, value text, expires_at timestamptz, PRIMARY KEY (key, n))",
        "",
        "primary key",
    ),
    (
        "(n int PRIMARY KEY, key text UNIQUE, value text, expires_at timestamptz)",
        "",
        "primary key",
    ),
    (
        "(key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "generated",
    ),
    (
        "(a text, key text GENERATED ALWAYS AS (lower(a)) STORED PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "generated",
    ),
    (
        "(key text, value text, expires_at timestamptz) PARTITION BY HASH (key)",
        "",
        "primary key",
    ),
];

#[test]
fn tables_that_cannot_be_caches_are_refused_unchanged() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("CREATE DOMAIN dom AS text");
    for (table, arguments, words) in REFUSED {
        session.run(&format!("CREATE TABLE c {table}"));
        let attached = session.try_lines(&format!("SELECT cache_attach('c'{arguments})"));
        let error = refused(attached, "42804");
        let said = format!("{:?} {:?}", error.detail(), error.hint());
        assert!(said.contains(words), "{table}: {said}");
        let triggers =
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'c'::regclass AND NOT tgisinternal";
        assert_eq!(session.number(triggers), 0, "{table}");
        session.run("DROP TABLE c");
    }
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz);
         CREATE TABLE p (key text, value text, expires_at timestamptz) PARTITION BY LIST (key);
         CREATE TABLE p1 PARTITION OF p (PRIMARY KEY (key)) FOR VALUES IN ('a');
         CREATE TEMP TABLE t (key text PRIMARY KEY, value text, expires_at timestamptz);
         CREATE VIEW v AS SELECT * FROM c;",
    );
    for (name, why) in [
        ("p1", "partition"),
        ("t", "temporary"),
        ("v", "not a table"),
        ("pg_class", "belongs to Postgres"),
        ("information_schema.sql_features", "belongs to Postgres"),
    ] {
        let error = refused(
            session.try_lines(&format!("SELECT cache_attach('{name}')")),
            "42804",
        );
        assert!(error.detail().unwrap().contains(why), "{name}: {error:?}");
    }
    for (arguments, state) in [
        ("NULL", "22004"),
        ("'c', key_column => NULL", "22004"),
        ("'c', key_column => 'none'", "42703"),
        ("'c', value_column => 'ctid'", "42703"),
        (
            "'c', expires_column => 'none', expires_unit => 's'",
            "42703",
        ),
        ("'c', expires_unit => 'h'", "22023"),
        ("'c', ttl => '0'", "22023"),
        ("'pgcache.main'", "42P07"),
    ] {
        refused(
            session.try_lines(&format!("SELECT cache_attach({arguments})")),
            state,
        );
    }
    session.run("SELECT cache_attach('c')");
    refused(session.try_lines("SELECT cache_attach('c')"), "42P07");
    refused(
        session.try_lines("SELECT cache_detach('pgcache.main')"),
        "0A000",
    );
    refused(session.try_lines("SELECT cache_detach('v')"), "42809");
    let stranger = Cluster::shared().role();
    session.run(&format!(
        "CREATE TABLE mine (key text PRIMARY KEY, value text); SET ROLE {stranger}"
    ));
    refused(session.try_lines("SELECT cache_attach('mine')"), "42501");
    refused(session.try_lines("SELECT cache_detach('c')"), "42501");
}

#[test]
fn a_nondeterministic_collation_is_refused() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let made = session.try_lines(
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    );
    if made.is_err() {
        return; // a server without ICU
    }
    session.run("CREATE TABLE c (key text COLLATE loose PRIMARY KEY, value text)");
    refused(session.try_lines("SELECT cache_attach('c')"), "42804");
}
