//! Tests that the statements of known applications still work after one of their tables has become a cache.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// Laravel's `cache` has deadlines in Unix seconds, and keys with the application's prefix.
#[test]
fn laravels_cache_store() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE cache (key varchar(255) NOT NULL, value text NOT NULL, expiration integer NOT NULL);
         ALTER TABLE cache ADD PRIMARY KEY (key);
         SELECT cache_attach('cache', expires_column => 'expiration', expires_unit => 's');",
    );
    let put = |session: &mut Client, key: &str, value: &str, seconds: i32| {
        session.run(&format!(
            "INSERT INTO cache (expiration, key, value)
             VALUES (extract(epoch FROM now())::int + {seconds}, 'app_{key}', '{value}')
             ON CONFLICT (key) DO UPDATE SET expiration = excluded.expiration, key = excluded.key, value = excluded.value"
        ));
    };
    put(&mut session, "a", "s:1:\"x\";", 60);
    put(&mut session, "forever", "i:1;", 315_360_000);
    let get = "SELECT cache_get('app_a', 'cache'), cache_ttl('app_a', 'cache') > '50 seconds'";
    assert_eq!(session.lines(get), ["s:1:\"x\";|t"]);
    put(&mut session, "a", "i:2;", 60);
    assert_eq!(session.lines(get), ["i:2;|t"]);
    session.run("SELECT cache_set('app_b', 'i:5;', '1 hour', 'cache')");
    let many = "SELECT key, value FROM cache WHERE key IN ('app_a', 'app_b') AND expiration > extract(epoch FROM now()) ORDER BY key";
    assert_eq!(session.lines(many), ["app_a|i:2;", "app_b|i:5;"]);
    // increment: a locking read, then an update of the value only
    session.run(
        "BEGIN; SELECT * FROM cache WHERE key = 'app_b' LIMIT 1 FOR UPDATE;
         UPDATE cache SET value = 'i:6;' WHERE key = 'app_b'; COMMIT",
    );
    assert_eq!(
        session.lines("SELECT cache_get('app_b', 'cache')"),
        ["i:6;"]
    );
    // add: insertOrIgnore
    let add =
        "WITH i AS (INSERT INTO cache (key, value, expiration) VALUES ('app_b', 'i:0;', 2000000000)
               ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM i";
    assert_eq!(session.number(add), 0);
    put(&mut session, "a", "old", -1);
    assert_eq!(
        session.lines("SELECT cache_exists('app_a', 'cache')"),
        ["f"]
    );
    session.run(
        "DELETE FROM cache WHERE key IN ('app_a') AND expiration <= extract(epoch FROM now())",
    );
    put(&mut session, "a", "old", -1);
    assert_eq!(session.number("SELECT cache_expire('cache')"), 1);
    session.run("DELETE FROM cache"); // flush
    assert_eq!(
        session.lines("SELECT cache_exists('app_forever', 'cache')"),
        ["f"]
    );
}

/// Symfony's PdoAdapter stores a time and a lifetime. A generated column computes the deadline from these two.
#[test]
fn symfonys_pdo_adapter() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE cache_items (item_id VARCHAR(255) NOT NULL PRIMARY KEY, item_data BYTEA NOT NULL,
             item_lifetime INTEGER, item_time INTEGER NOT NULL);
         ALTER TABLE cache_items ADD expires_at integer GENERATED ALWAYS AS (item_time + item_lifetime) STORED;
         SELECT cache_attach('cache_items', NULL, 'item_id', 'item_data', expires_unit => 's');",
    );
    let save = |session: &mut Client, id: &str, data: &str, lifetime: &str, age: i32| {
        session.run(&format!(
            "INSERT INTO cache_items (item_id, item_data, item_lifetime, item_time)
             VALUES ('{id}', '{data}', {lifetime}, extract(epoch FROM now())::int - {age})
             ON CONFLICT (item_id) DO UPDATE SET (item_data, item_lifetime, item_time) =
                 (EXCLUDED.item_data, EXCLUDED.item_lifetime, EXCLUDED.item_time)"
        ));
    };
    save(&mut session, "one", "s:3:\"one\"", "60", 0);
    save(&mut session, "always", "s:3:\"two\"", "NULL", 100_000);
    save(&mut session, "dead", "x", "60", 61);
    let get = "SELECT cache_get('one', 'cache_items'), cache_get('always', 'cache_items'), cache_get('dead', 'cache_items')";
    assert_eq!(session.lines(get), ["s:3:\"one\"|s:3:\"two\"|"]);
    save(&mut session, "one", "new", "60", 0);
    assert!(session.lines(get)[0].starts_with("new|"));
    refused(
        session.try_lines("SELECT cache_set('one', 'x', cache => 'cache_items')"),
        "0A000",
    );
    assert_eq!(session.number("SELECT cache_expire('cache_items')"), 1);
    assert_eq!(session.number("SELECT count(*) FROM cache_items"), 2);
    session.run("DELETE FROM cache_items WHERE item_id IN ('one')");
    assert_eq!(session.lines(get), ["|s:3:\"two\"|"]);
    session.run("DELETE FROM cache_items WHERE item_id LIKE 'alw%'; TRUNCATE TABLE cache_items");
    assert_eq!(session.lines(get), ["||"]);
}

/// Solid Cache finds entries by a hash that is not the primary key, and has no deadlines: its rows are swept by age.
#[test]
fn solid_caches_entries_are_swept() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE solid_cache_entries (id bigserial PRIMARY KEY, key bytea NOT NULL, value bytea NOT NULL,
             created_at timestamp(6) NOT NULL, key_hash bigint NOT NULL, byte_size integer NOT NULL);
         CREATE INDEX ON solid_cache_entries (byte_size);
         CREATE UNIQUE INDEX ON solid_cache_entries (key_hash);
         ALTER TABLE solid_cache_entries ADD expires_at timestamptz
             GENERATED ALWAYS AS ((created_at + interval '14 days') AT TIME ZONE 'UTC') STORED;",
    );
    refused(
        session.try_lines("SELECT cache_attach('solid_cache_entries', key_column => 'key_hash')"),
        "42804",
    );
    session
        .run("SELECT cache_attach('solid_cache_entries', key_column => 'id', max_entries => 1000)");
    let write = |session: &mut Client, hash: i64, age: &str| {
        session.run(&format!(
            "INSERT INTO solid_cache_entries (key, value, key_hash, byte_size, created_at)
             VALUES ('k{hash}', 'v', {hash}, 142, now() AT TIME ZONE 'UTC' - interval '{age}')
             ON CONFLICT (key_hash) DO UPDATE SET key = excluded.key, value = excluded.value, byte_size = excluded.byte_size
             RETURNING id"
        ));
    };
    write(&mut session, 1, "1 hour");
    write(&mut session, -2, "15 days");
    write(&mut session, 1, "1 hour");
    assert_eq!(
        session.number("SELECT cache_expire('solid_cache_entries')"),
        1
    );
    let read = "SELECT key, value FROM solid_cache_entries WHERE key_hash IN (1, -2)";
    assert_eq!(session.lines(read), ["\\x6b31|\\x76"]);
    let id = session.text("SELECT id FROM solid_cache_entries");
    assert_eq!(
        session.lines(&format!("SELECT cache_get('{id}', 'solid_cache_entries')")),
        ["v"]
    );
    refused(
        session.try_lines("SELECT cache_set('7', 'x', cache => 'solid_cache_entries')"),
        "0A000",
    );
    session.run("INSERT INTO solid_cache_entries (key, value, key_hash, byte_size, created_at) \
                 SELECT 'k', 'v', g, 142, now() AT TIME ZONE 'UTC' FROM generate_series(10, 4000) AS g");
    session.run("SELECT cache_expire('solid_cache_entries')");
    assert!(session.number("SELECT count(*) FROM solid_cache_entries") <= 2000);
}
