//! Creates a database with caches of all kinds, and lists everything in it that dump and restore, or an upgrade to
//! another major version, must preserve.

use postgres::Client;

use crate::ask::Ask;

pub const CACHES: &str = r#"
    CREATE SCHEMA shop;
    SELECT cache_create('shop.products', '1 hour', 'unlogged', 'jsonb', 500, '5 minutes');
    SELECT cache_create('"Odd name"', '1 month 2 days 3.5 seconds', 'logged', 'bytea');
    SELECT cache_create('plain');
    SELECT cache_tune('shop.products', '10 seconds', 0.25, 1.5, 5000000, touch_after => 0.125);
    SELECT cache_watch('plain');
    SELECT cache_set_json('p:1', '{"name": "teapot"}', cache => 'shop.products');
    SELECT cache_set_bytes('b', '\x00ff', cache_forever(), '"Odd name"');
    SELECT cache_set('k', 'line' || chr(10) || 'tab' || chr(9) || '\', cache => 'plain');
    SELECT cache_set('negative', NULL, cache => 'plain');
    INSERT INTO plain VALUES ('expired', 'x', '2020-01-01');
    SELECT cache_set('in main', 'v'), cache_set('with a deadline', 'w', '1 day');
    ALTER TABLE plain ADD COLUMN tag text DEFAULT 'mine';
    CREATE INDEX ON plain (tag);
    CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    CREATE TRIGGER own BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION nothing();
    GRANT SELECT ON plain TO PUBLIC;
    GRANT SELECT, INSERT ON shop.products TO pg_monitor;
"#;

/// Queries for everything that must be restored, except entries. An owner's privilege MAINTAIN (m) exists from Postgres
/// 17 on, so it is omitted.
const DEFINITIONS: &[&str] = &[
    "SELECT * FROM pgcache.caches ORDER BY cache::text",
    "SELECT tgrelid::regclass, tgname, tgenabled, pg_get_triggerdef(t.oid) FROM pg_trigger AS t \
      WHERE NOT tgisinternal ORDER BY tgrelid::regclass::text, tgname",
    "SELECT oid::regclass, relowner::regrole, replace(relacl::text, 'tm/', 't/'), relpersistence, reloptions FROM pg_class AS c \
      WHERE oid IN (SELECT cache FROM pgcache.caches WHERE cache::text NOT LIKE 'pgcache.%') \
      ORDER BY oid::regclass::text",
    "SELECT table_name, column_default FROM information_schema.columns WHERE column_name = 'expires_at' ORDER BY 1",
    "SELECT indexdef FROM pg_indexes WHERE tablename = 'plain' ORDER BY 1",
];

pub const ENTRIES: &[&str] = &[
    "SELECT * FROM shop.products ORDER BY key",
    "SELECT * FROM \"Odd name\" ORDER BY key",
    "SELECT * FROM plain ORDER BY key",
    "SELECT * FROM pgcache.main ORDER BY key",
];

pub fn answers(session: &mut Client, questions: &[&str]) -> Vec<String> {
    questions
        .iter()
        .flat_map(|question| session.lines(question))
        .collect()
}

/// Returns definitions and entries, for a comparison of the database before the dump and after the restore.
pub fn contents(session: &mut Client) -> Vec<String> {
    let definitions = answers(session, DEFINITIONS);
    session.run("SET pgcache.show_expired = on");
    let entries = answers(session, ENTRIES);
    session.run("RESET pgcache.show_expired");
    [definitions, entries].concat()
}

/// Checks that the restored objects work.
pub fn check_works(session: &mut Client) {
    session.run("SELECT cache_set_json('p:2', '1', cache => 'shop.products')");
    // The ttl is an hour, from which jitter takes at most a quarter.
    assert!(
        session.holds("SELECT cache_ttl('p:2', 'shop.products') BETWEEN '44 minutes' AND '1 hour'")
    );
    assert!(session.holds("SELECT cache_exists('negative', 'plain')"));
    assert!(!session.holds("SELECT cache_exists('expired', 'plain')"));
    assert_eq!(session.text("SELECT cache_get('in main')"), "v");
}
