//! Tests that the key of a dependency is independent of the settings of the session that changes a row, and that
//! expressions stored as text keep their meaning under other settings.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// A column's type, a value, and a key expression over it whose result depends on settings.
const KEYS: &[(&str, &str, &str)] = &[
    ("date", "2026-07-04", "d::text"),
    ("date", "2026-07-04", "'day:' || d"),
    ("date", "2026-07-04", "concat('day:', d)"),
    ("date", "2026-07-04", "format('%s', d)"),
    ("date", "2026-07-04", "to_char(d, 'YYYY-MM-DD TZ')"),
    (
        "date",
        "2026-07-04",
        "(d::timestamptz AT TIME ZONE 'UTC')::text",
    ),
    ("timestamp", "2026-07-04 12:00", "d::text"),
    ("timestamptz", "2026-07-04 23:30+00", "d::text"),
    (
        "timestamptz",
        "2026-07-04 23:30+00",
        "to_char(d, 'YYYY-MM-DD')",
    ),
    ("timestamptz", "2026-07-04 23:30+00", "d::date::text"),
    (
        "timestamptz",
        "2026-07-04 23:30+00",
        "extract(day FROM d)::text",
    ),
    (
        "timestamptz",
        "2026-07-04 23:30+00",
        "date_trunc('day', d)::text",
    ),
    ("timestamptz", "2026-07-04 23:30+00", "to_json(d)::text"),
    ("timestamptz", "2026-07-04 23:30+00", "to_jsonb(d)::text"),
    (
        "timestamptz",
        "2026-07-04 23:30+00",
        "(d > '2026-07-05'::date)::text",
    ),
    ("interval", "-1 day 02:03", "d::text"),
    ("bytea", "\\x00ff", "d::text"),
    ("bytea", "\\x00ff", "'b:' || d::text"),
    ("float8", "0.1", "d::text"),
    ("float4", "0.1", "'f:' || d"),
    ("date[]", "{2026-07-04}", "d::text"),
    ("date[]", "{2026-07-04}", "array_to_string(d, ',')"),
    ("daterange", "[2026-07-04,2026-07-09)", "d::text"),
    ("text", "04.07.2026", "(d::date - '2026-01-01'::date)::text"),
];

/// Settings of a writer that change the text form of all these types, in output and input.
const OTHER: &str = "SET DateStyle = 'German, DMY'; SET IntervalStyle = 'iso_8601'; SET TimeZone = 'Pacific/Auckland';
    SET bytea_output = 'escape'; SET extra_float_digits = -10";
/// Settings of the session that declares the dependency.
const OWN: &str = "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'postgres_verbose'; SET TimeZone = 'Europe/Berlin';
    SET bytea_output = 'hex'; SET extra_float_digits = 3";
const SHOWN: &str = "SELECT string_agg(current_setting(name), '|' ORDER BY name) FROM pg_settings
    WHERE name IN ('DateStyle', 'IntervalStyle', 'TimeZone', 'bytea_output', 'extra_float_digits')";

fn sessions(database: &Database) -> (Client, Client) {
    let (mut owner, mut writer) = (database.connect(), database.connect());
    owner.run(OWN);
    writer.run(OTHER);
    (owner, writer)
}

/// Checks that the writer's change removes the entry that the owner stored under the key.
#[track_caller]
fn follows(owner: &mut Client, writer: &mut Client, key: &str, change: &str) {
    let of_rows = format!("SELECT string_agg(DISTINCT {key}, '') FROM src");
    owner.run(&format!(
        "SELECT cache_set(({of_rows}), 'old', cache => 'c')"
    ));
    let before = writer.text(SHOWN);
    writer.run(change);
    assert_eq!(writer.text(SHOWN), before, "{key}");
    assert_eq!(
        owner.value("SELECT string_agg(key, ', ') FROM c"),
        None,
        "{key}, {change}"
    );
}

#[test]
fn a_key_does_not_follow_the_writers_settings() {
    let cluster = Cluster::shared();
    for storage in ["unlogged", "memory"] {
        let database = cluster.database();
        let (mut owner, mut writer) = sessions(&database);
        if storage == "memory" && owner.number("SELECT size FROM pgcache.hot_tier") == 0 {
            continue;
        }
        for (of, value, key) in KEYS {
            owner.run(&format!(
                "SET DateStyle = 'SQL, DMY'; CREATE TABLE src (id int PRIMARY KEY, d {of}, v int DEFAULT 0);
                 SELECT cache_create('c', storage => '{storage}');
                 INSERT INTO src VALUES (1, $${value}$$)"
            ));
            owner.run(&format!("SELECT cache_depend('src', $${key}$$, 'c')"));
            follows(&mut owner, &mut writer, key, "UPDATE src SET v = v + 1");
            follows(
                &mut owner,
                &mut writer,
                key,
                "BEGIN; UPDATE src SET v = 7; COMMIT",
            );
            let of_rows = owner.text(&format!("SELECT {key} FROM src"));
            owner.run(&format!(
                "SELECT cache_set('{of_rows}', 'old', cache => 'c')"
            ));
            writer.run("DELETE FROM src");
            assert_eq!(
                owner.value("SELECT string_agg(key, ', ') FROM c"),
                None,
                "{key}"
            );
            owner.run("SELECT cache_drop('c'); DROP TABLE src");
        }
    }
}

#[test]
fn an_immutable_key_keeps_no_settings() {
    let database = Cluster::shared().database();
    let (mut owner, _) = sessions(&database);
    owner.run("CREATE TABLE src (id int PRIMARY KEY, d date, n numeric); SELECT cache_create('c')");
    for key in [
        "'p:' || id",
        "id::text",
        "lower(n::text)",
        "(d - '2000-01-01'::date)::text",
    ] {
        owner.run(&format!("SELECT cache_depend('src', $${key}$$, 'c')"));
    }
    let kept = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'src'::regclass AND pg_get_triggerdef(oid) LIKE '%DateStyle%'";
    assert_eq!(owner.number(kept), 0);
    owner.run("SELECT cache_depend('src', 'd::text', 'c')");
    assert_eq!(owner.number(kept), 3);
}

#[test]
fn a_key_that_follows_more_than_settings_is_refused() {
    let database = Cluster::shared().database();
    let mut owner = database.connect();
    owner.run(
        "CREATE TABLE src (id int PRIMARY KEY, d date, t timetz, o oid, at timestamptz, a oid[]);
         CREATE TYPE pair AS (one date, two int);
         CREATE FUNCTION stable_one(int) RETURNS text LANGUAGE sql STABLE RETURN current_setting('DateStyle');
         CREATE FUNCTION wrapped(date) RETURNS text IMMUTABLE LANGUAGE sql SET DateStyle = 'ISO' RETURN $1::text;
         SELECT cache_create('c')",
    );
    for key in [
        "now()::text",
        "CURRENT_DATE::text",
        "CURRENT_USER::text",
        "current_setting('DateStyle')",
        "age(at)::text",
        "o::regclass::text",
        "a::regclass[]::text",
        "(ROW(d, id)::pair)::text",
        "(t AT TIME ZONE 'UTC')::text",
        "stable_one(id)",
        "concat(o::regclass, id)",
        "format('%s', o::regtype)",
        "pg_get_userbyid(o)::text",
        "to_tsvector(id::text)::text",
    ] {
        let error = refused(
            owner.try_lines(&format!("SELECT cache_depend('src', $${key}$$, 'c')")),
            "0A000",
        );
        assert!(
            error.hint().unwrap_or("").contains("IMMUTABLE"),
            "{error:?}"
        );
    }
    owner.run("SELECT cache_depend('src', 'wrapped(d)', 'c')");
}

/// Declares a dependency as pgcache did before version 0.5.0.
fn declare_without_settings(session: &mut Client, key: &str) {
    for (name, when, row) in [
        ("insert", "INSERT", "new"),
        ("change", "UPDATE OR DELETE", "old"),
    ] {
        session.run(&format!(
            "CREATE TRIGGER pgcache_depend_1_{name} AFTER {when} ON src FOR EACH ROW
                 WHEN (true OR pgcache.depends('c'::regclass, {})) EXECUTE FUNCTION pgcache.invalidate();
             ALTER TABLE src ENABLE ALWAYS TRIGGER pgcache_depend_1_{name}",
            key.replace("ROW", row)
        ));
    }
    session.run(
        "CREATE TRIGGER pgcache_depend_1_truncate BEFORE TRUNCATE ON src FOR EACH STATEMENT
             WHEN (true OR pgcache.depends('c'::regclass, '')) EXECUTE FUNCTION pgcache.invalidate_all();
         ALTER TABLE src ENABLE ALWAYS TRIGGER pgcache_depend_1_truncate",
    );
}

#[test]
fn an_older_dependency_works_is_named_and_is_mended_by_the_statement() {
    let database = Cluster::shared().database();
    let (mut owner, mut writer) = sessions(&database);
    owner.run(
        "CREATE TABLE src (id int PRIMARY KEY, d date, v int DEFAULT 0); INSERT INTO src VALUES (1, '2026-07-04');
         SELECT cache_create('c')",
    );
    declare_without_settings(&mut owner, "ROW.d::text");
    let key = "d::text";
    // A dependency without recorded settings still works if the owner and the writer have the same settings.
    owner.run(
        "SELECT cache_set((SELECT d::text FROM src), 'old', cache => 'c'); UPDATE src SET v = 1",
    );
    assert_eq!(owner.number("SELECT count(*) FROM c"), 0);

    let statement = owner.text("SELECT statement FROM pgcache.verify_dependencies()");
    owner.run(&statement);
    follows(&mut owner, &mut writer, key, "UPDATE src SET v = v + 1");
    assert_eq!(
        owner.value("SELECT statement FROM pgcache.verify_dependencies()"),
        None
    );
    assert_eq!(
        owner.number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'src'::regclass AND tgname LIKE 'pgcache%'"),
        3
    );
    // If the dependency is declared again under other settings, it uses the new settings.
    owner.run("SET DateStyle = 'ISO, MDY'; SELECT cache_depend('src', 'd::text', 'c')");
    follows(&mut owner, &mut writer, key, "UPDATE src SET v = v + 1");
    assert_eq!(owner.number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'src'::regclass AND tgname LIKE 'pgcache%'"), 3);
}

#[test]
fn an_older_dependency_that_no_settings_fix_is_named_without_a_statement() {
    let database = Cluster::shared().database();
    let mut owner = database.connect();
    owner.run("CREATE TABLE src (id int PRIMARY KEY, d date); SELECT cache_create('c')");
    declare_without_settings(&mut owner, "(ROW.id || now()::text)");
    assert_eq!(
        owner.lines("SELECT source, cache, statement FROM pgcache.verify_dependencies()"),
        ["src|c|"]
    );
}

#[test]
fn settings_go_with_a_child_a_partition_and_a_dump() {
    // The session that creates the child does not use pgcache, so the library must be preloaded.
    let database = Cluster::hot().database();
    let (mut owner, mut writer) = sessions(&database);
    owner.run(
        "CREATE TABLE src (id int, d date, v int DEFAULT 0); CREATE TABLE parts (id int, d date, v int DEFAULT 0) PARTITION BY LIST (id);
         SELECT cache_create('c'); SELECT cache_depend('src', 'd::text', 'c'), cache_depend('parts', 'd::text', 'c')",
    );
    writer
        .run("CREATE TABLE child () INHERITS (src); CREATE TABLE part PARTITION OF parts DEFAULT");
    for table in ["child", "part"] {
        owner.run(&format!("INSERT INTO {table} VALUES (1, '04/07/2026')"));
        owner.run(&format!(
            "SELECT cache_set((SELECT d::text FROM {table}), 'old', cache => 'c')"
        ));
        writer.run(&format!("UPDATE {table} SET v = v + 1"));
        assert_eq!(owner.number("SELECT count(*) FROM c"), 0, "{table}");
    }
    let defined = "SELECT string_agg(pg_get_triggerdef(oid), '|' ORDER BY tgrelid::regclass::text, tgname) FROM pg_trigger
        WHERE tgname LIKE 'pgcache_depend%'";
    let before = owner.text(defined);
    assert!(before.contains("SQL, DMY"), "{before}");
    let copy = Cluster::hot().empty_database("");
    database.copy_to(&copy);
    assert_eq!(copy.connect().text(defined), before);
}

#[test]
fn a_former_default_comes_back_as_it_was() {
    let database = Cluster::shared().database();
    let (mut owner, mut other) = sessions(&database);
    let default =
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'c'::regclass";
    for ends in [
        "cache_detach('c')",
        "cache_alter('c', ttl => cache_forever())",
    ] {
        for own in ["German, DMY", "SQL, DMY", "ISO, YMD"] {
            owner.run(&format!("SET DateStyle = '{own}'"));
            for value in [
                "DATE '2030-07-04' + INTERVAL '-1 day +2:03'",
                "TIMESTAMPTZ '2030-07-04 12:00+02'",
            ] {
                other.run("RESET DateStyle; RESET TimeZone; RESET IntervalStyle");
                other.run(&format!(
                    "CREATE TABLE c (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz DEFAULT {value})"
                ));
                let before = other.text(default);
                owner.run("SELECT cache_attach('c', ttl => '1 hour')");
                assert_ne!(other.text(default), before);
                other.run("SET DateStyle = 'SQL, MDY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Asia/Tokyo'");
                other.run(&format!("SELECT {ends}"));
                other.run("RESET DateStyle; RESET TimeZone; RESET IntervalStyle");
                assert_eq!(other.text(default), before, "{own}, {ends}");
                other.run("DROP TABLE c CASCADE");
            }
        }
    }
}
