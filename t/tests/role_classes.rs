//! Tests which roles may take space in shared structures, as SECURITY.md promises. A role that may create nothing, or
//! only temporary relations, takes no space. Only a role with CREATE on a schema can create a cache with a slot.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// Returns a cluster whose tier has few slots.
fn small() -> &'static Cluster {
    Cluster::with_tier(&["pgcache.hot_size = '4MB'"])
}

/// Returns the number of caches of this database that have a slot.
fn slots(admin: &mut Client) -> i64 {
    admin.number("SELECT count(*) FROM pgcache.figures()")
}

fn records(admin: &mut Client) -> i64 {
    admin.number("SELECT count(*) FROM pgcache.sweep_figures()")
}

/// Returns the statement for a view like that of a memory cache, but with this id.
fn view(kind: &str, name: &str, id: &str) -> String {
    format!(
        "CREATE {kind} VIEW {name} AS SELECT e.key, e.value, e.expires_at FROM pgcache.memory_entries('id={id}') \
         AS e (key text COLLATE \"C\", value text, expires_at timestamptz)"
    )
}

/// Returns the statements for a table that is made a cache by hand, with both triggers.
fn table(kind: &str, name: &str) -> String {
    format!(
        "CREATE {kind} TABLE {name} (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz); \
         CREATE TRIGGER r AFTER INSERT OR UPDATE OR DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION pgcache.record(); \
         CREATE TRIGGER t BEFORE TRUNCATE ON {name} FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate(); \
         ALTER TABLE {name} ENABLE ALWAYS TRIGGER r, ENABLE ALWAYS TRIGGER t"
    )
}

/// Opens a session of a role that has only the privileges of PUBLIC: it may log in and create temporary relations.
fn stranger(database: &Database<'static>) -> Client {
    database.connect_as(&database.cluster.role())
}

#[test]
fn a_temporary_view_is_no_memory_cache() {
    let database = small().database();
    let (mut admin, mut mallory) = (database.connect(), stranger(&database));
    admin.run(
        "SELECT cache_create('m', storage => 'memory'); SELECT cache_set('k', 'v', cache => 'm')",
    );
    let before = slots(&mut admin);
    for number in 1..20 {
        mallory.run(&view("TEMP", &format!("t{number}"), &number.to_string()));
        for call in [
            "cache_set('k', 'v', cache => '$c')",
            "cache_get('k', '$c')",
            "cache_set_many('{k}', '{v}', cache => '$c')",
            "cache_incr('k', cache => '$c')",
            "cache_fetch('k', 'SELECT ''v''::text', cache => '$c')",
            "cache_lease('k', cache => '$c')",
            "cache_clear('$c')",
            "cache_expire('$c')",
            "cache_alter('$c', ttl => '1 hour')",
            "cache_watch('$c')",
        ] {
            let call = call.replace("$c", &format!("t{number}"));
            let error = refused(mallory.try_value(&format!("SELECT {call}")), "42809");
            assert!(
                error
                    .hint()
                    .is_some_and(|hint| hint.contains("cache_create")),
                "{call}: {error:?}"
            );
        }
        refused(
            mallory.try_lines(&format!("SELECT * FROM t{number}")),
            "42P01",
        );
    }
    // A view is also temporary if it names a temporary relation.
    mallory.run("CREATE TEMP TABLE other (i int)");
    mallory.run(&view("TEMP", "mixed", "99").replace(" FROM ", " FROM other, "));
    refused(
        mallory.try_value("SELECT cache_set('k', 'v', cache => 'mixed')"),
        "42809",
    );
    assert_eq!(slots(&mut admin), before);
    assert_eq!(admin.number("SELECT entries FROM pgcache.hot_tier"), 1);
    // A temporary view with the id of another role's cache does not make that cache unreadable, neither before nor
    // after a restore.
    let id = admin.text("SELECT substring(pg_get_viewdef('m') FROM 'id=([0-9]+)')");
    mallory.run(&view("TEMP", "same", &id));
    assert_eq!(admin.lines("SELECT key, value FROM m"), ["k|v"]);
    admin.run(&view("OR REPLACE", "m", &id));
    assert_eq!(admin.lines("SELECT key, value FROM m"), ["k|v"]);
}

#[test]
fn a_temporary_table_cache_works_and_takes_no_shared_resource() {
    let database = small().database();
    let (mut admin, mut mallory) = (database.connect(), stranger(&database));
    let (before, swept) = (slots(&mut admin), records(&mut admin));
    for number in 0..20 {
        let name = format!("t{number}");
        mallory.run(&table("TEMP", &name));
        mallory.run(&format!(
            "SELECT cache_set('k', repeat('v', 100000), cache => '{name}'); SELECT cache_set('k', 'w', cache => '{name}'); \
             INSERT INTO {name} SELECT i, repeat('x', 2000) FROM generate_series(1, 2000) AS i; \
             DELETE FROM {name} WHERE key <> 'k'; SELECT cache_set('n', '1', '1 ms', '{name}')"
        ));
        assert_eq!(
            mallory.text(&format!("SELECT cache_get('k', '{name}')")),
            "w"
        );
        assert_eq!(
            mallory.text(&format!("SELECT cache_get('k', '{name}')")),
            "w"
        );
        assert_eq!(
            mallory.text(&format!(
                "SELECT cache_fetch('f', 'SELECT ''l''::text', cache => '{name}')"
            )),
            "l"
        );
        mallory.run(&format!(
            "SELECT pg_sleep(0.01); SELECT cache_expire('{name}'), cache_expire()"
        ));
        assert_eq!(
            mallory.value(&format!("SELECT cache_get('n', '{name}')")),
            None
        );
        // Each cache is truncated under a savepoint that is rolled back. Half of the caches are dropped in the
        // transaction that writes.
        mallory.run(&format!("BEGIN; SAVEPOINT s; TRUNCATE {name}; SELECT cache_set('k', '1', cache => '{name}'); ROLLBACK TO s; COMMIT"));
        assert_eq!(
            mallory.text(&format!("SELECT cache_get('k', '{name}')")),
            "w"
        );
        mallory.run(&format!("SELECT cache_clear('{name}')"));
        if number % 2 == 0 {
            mallory.run(&format!(
                "BEGIN; SELECT cache_set('k', '1', cache => '{name}'); DROP TABLE {name}; COMMIT"
            ));
        }
    }
    assert_eq!(slots(&mut admin), before);
    assert_eq!(records(&mut admin), swept);
    // All leases are still available to other roles.
    mallory.run(
        "SELECT l.* FROM generate_series(1, 5000) AS i, cache_lease('k' || i, cache => 't1') AS l",
    );
    assert_eq!(
        mallory.lines("SELECT state, lease IS NULL FROM cache_lease('k', cache => 't1')"),
        ["win|t"]
    );
    admin.run("SELECT cache_create('c')");
    let won = admin.number(
        "SELECT count(l.lease) FROM generate_series(1, 50) AS i, cache_lease('k' || i, cache => 'c') AS l",
    );
    // Not all 50 leases need to succeed, because the hashes of the keys depend on the cache's OID, and many keys may
    // fall into one partition.
    assert!(won >= 30, "leases are left: {won}");
    admin.run("SELECT cache_create('m', storage => 'memory'), cache_set('k', 'v'); SELECT cache_set('k', 'v', cache => 'm')");
    admin.heat("k", "pgcache.main");
}

/// The role may create nothing at all, not even temporary relations.
#[test]
fn a_role_without_temp_and_create_makes_no_cache() {
    let database = small().database();
    let (mut admin, name) = (database.connect(), database.cluster.role());
    admin.run(&format!(
        "REVOKE TEMP ON DATABASE {} FROM PUBLIC",
        database.name
    ));
    let mut session = database.connect_as(&name);
    let before = slots(&mut admin);
    for statement in [
        view("TEMP", "t", "1"),
        view("", "t", "1"),
        table("TEMP", "t"),
        table("", "t"),
        "SELECT cache_create('t')".into(),
        "SELECT cache_create('t', storage => 'memory')".into(),
        "SELECT cache_set('k', 'v')".into(),
    ] {
        refused(session.try_lines(&statement), "42501");
    }
    assert_eq!(slots(&mut admin), before);
}

/// SECURITY.md advises to grant CREATE on a schema only to trusted roles, because their caches keep slots until they
/// are dropped.
#[test]
fn with_create_on_a_schema_caches_take_slots_until_they_are_dropped() {
    let database = small().database();
    let (mut admin, name) = (database.connect(), database.cluster.role());
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {name}"));
    let mut maker = database.connect_as(&name);
    let mut made = 0;
    let refusal = loop {
        let create = format!("SELECT cache_create('c{made}', storage => 'memory')");
        if let Err(error) = maker.try_value(&create) {
            break error;
        }
        maker.run(&format!("SELECT cache_set('k', 'v', cache => 'c{made}')"));
        made += 1;
        assert!(made < 1000, "there is no end of slots");
    };
    refused::<()>(Err(refusal), "53400");
    // Table caches continue without copies, and the next drop frees a slot.
    admin.run("SELECT cache_create('mine'); SELECT cache_set('k', 'v', cache => 'mine')");
    assert_eq!(admin.text("SELECT cache_get('k', 'mine')"), "v");
    maker.run("SELECT cache_drop('c0')");
    admin.run("SELECT cache_create('m', storage => 'memory')");
    admin.run("SELECT cache_set('k', 'v', cache => 'm')");
    assert_eq!(admin.text("SELECT cache_get('k', 'm')"), "v");
}
