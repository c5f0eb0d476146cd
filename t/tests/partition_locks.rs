//! Tests statements that write one partition of a cache: they lock only that partition, need only its privileges, and
//! fire only its triggers. Also tests caches that are partitions of an ordinary table, and the trigger that pgcache
//! creates on them.

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::succeed;
use pgcache_tests::wait::wait_until;
use postgres::Client;

/// Two partitions, each with an expired row and a live row.
const PARTED: &str =
    "CREATE TABLE c (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY LIST (key);
     CREATE TABLE c_1 PARTITION OF c FOR VALUES IN ('a', 'b');
     CREATE TABLE c_2 PARTITION OF c FOR VALUES IN ('x', 'y', 'z');
     SELECT cache_attach('c', '1 hour');
     INSERT INTO c VALUES ('a', 'dead', '-infinity'), ('b', 'live', NULL), ('y', 'dead', '-infinity'), ('z', 'dead', '-infinity')";

/// Runs a statement in a separate session, and returns once it waits for a lock.
fn waiting(
    database: &Database<'static>,
    witness: &mut Client,
    sql: &'static str,
) -> thread::JoinHandle<()> {
    let mut session = database.connect();
    let pid = session.number("SELECT pg_backend_pid()");
    let done = thread::spawn(move || session.run(sql));
    let waits = format!(
        "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = {pid}"
    );
    wait_until("it waits", || witness.holds(&waits));
    done
}

/// DETACH PARTITION and cache_alter lock the whole table, and then wait for a partition that a statement has locked by
/// the partition's name. So neither the statement nor its commit may need a lock on the whole table; otherwise the two
/// sessions would deadlock.
#[test]
fn a_write_to_a_partition_by_name_takes_no_lock_on_the_whole() {
    let database = Cluster::hot().database();
    let (mut session, mut witness) = (database.connect(), database.connect());
    session.run(PARTED);
    session.run("SELECT cache_watch('c')");
    for ddl in [
        "SELECT cache_alter('c', ttl => '2 hours')",
        "ALTER TABLE c DETACH PARTITION c_2",
    ] {
        // Postgres itself locks the whole table when a session writes its first row, because it reads the partition's
        // bounds.
        session.run("INSERT INTO c_2 VALUES ('x', 'first', NULL)");
        // Lock the partition without writing a key.
        session.run("BEGIN; SET LOCAL statement_timeout = '60s'; DELETE FROM c_2 WHERE key = 'x'");
        let done = waiting(&database, &mut witness, ddl);
        session.run("INSERT INTO c_2 VALUES ('x', 'mine', NULL)");
        session.run("INSERT INTO c_2 (key, value) VALUES ('y', 'new') ON CONFLICT DO NOTHING");
        session.run("UPDATE c_2 SET key = 'z' WHERE key = 'x'; COPY c_2 (key, value) FROM PROGRAM 'echo x,copied' (FORMAT csv)");
        session.run("COMMIT");
        done.join().expect("the definition is changed");
        assert_eq!(
            session.lines("SELECT key, value FROM c_2 ORDER BY key"),
            ["x|copied", "y|new", "z|mine"],
            "{ddl}"
        );
        session.run("DELETE FROM c_2; UPDATE c SET expires_at = '-infinity'");
        session
            .run("INSERT INTO c_2 VALUES ('y', 'dead', '-infinity'), ('z', 'dead', '-infinity')");
    }
}

/// A statement on the whole table locks only the partitions that it writes.
#[test]
fn a_write_of_one_key_does_not_wait_for_other_partitions() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(PARTED);
    other.run("BEGIN; LOCK TABLE c_1 IN ACCESS EXCLUSIVE MODE");
    session.run("SET lock_timeout = '2s'");
    session.run("INSERT INTO c (key, value) VALUES ('y', 'new')");
    session.run("COPY c (key, value) FROM PROGRAM 'echo z,copied' (FORMAT csv)");
    refused(
        session.try_lines("INSERT INTO c VALUES ('a', 'new')"),
        "55P03",
    );
    other.run("COMMIT");
    assert_eq!(
        session.lines("SELECT key, value FROM c ORDER BY key"),
        ["b|live", "y|new", "z|copied"]
    );
}

/// A removal that runs as a partition's owner checks only the triggers of that partition.
#[test]
fn a_strangers_trigger_counts_in_its_own_partition_alone() {
    let database = Cluster::shared().database();
    let stranger = database.cluster.role();
    let mut session = database.connect();
    session.run(PARTED);
    session.run(&format!(
        "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
         ALTER FUNCTION theirs() OWNER TO {stranger};
         CREATE TRIGGER theirs BEFORE DELETE ON c_1 FOR EACH ROW EXECUTE FUNCTION theirs()"
    ));
    session.run("INSERT INTO c (key, value) VALUES ('y', 'new')");
    refused(
        session.try_lines("INSERT INTO c (key) VALUES ('a')"),
        "42501",
    );
    // Each partition has its own owner.
    session.run(&format!(
        "ALTER TABLE c_1 OWNER TO {stranger}; INSERT INTO c (key, value) VALUES ('a', 'new')"
    ));
    assert_eq!(
        session.lines("SELECT key, value FROM c ORDER BY key"),
        ["a|new", "b|live", "y|new"]
    );
}

/// An ordinary table with one partition that is a cache.
const ABOVE: &str =
    "CREATE TABLE above (region text, key text COLLATE \"C\", value text, expires_at timestamptz) PARTITION BY LIST (region);
     SELECT cache_create('c'); ALTER TABLE c ADD region text; INSERT INTO c VALUES ('k', 'dead', '-infinity', 'c');
     ALTER TABLE above ATTACH PARTITION c FOR VALUES IN ('c')";

const PUT: &str = "INSERT INTO above VALUES ('c', 'k', 'new', NULL)";
/// A statement that loads the library on a server without preload. Without the library, a session does not notice DDL
/// on a cache.
const LOAD: &str = "SELECT cache_forever()";
const TRIGGERS: &str = "SELECT count(*) FROM pg_trigger WHERE tgname = 'pgcache_renew'";

fn above(session: &mut Client) {
    // The columns of a partition may be in a different order.
    for statement in ABOVE.split(';') {
        session.run(statement);
    }
}

#[test]
fn a_cache_in_a_plain_table_comes_back_from_a_dump_and_from_an_older_version() {
    let cluster = Cluster::shared();
    let of_now = cluster.database();
    above(&mut of_now.connect());
    let older = cluster.empty_database("");
    older
        .connect()
        .run("CREATE EXTENSION pgcache VERSION '0.3.0'");
    above(&mut older.connect());
    assert_eq!(older.connect().number(TRIGGERS), 0);
    for (original, brings_it) in [(&of_now, 1), (&older, 0)] {
        let file = cluster.folder.join(format!("{}.sql", original.name));
        succeed(
            cluster
                .program("pg_dump")
                .arg("-f")
                .arg(&file)
                .arg(&original.name),
        );
        let copy = cluster.empty_database("");
        let mut psql = cluster.program("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &copy.name, "-f"]);
        succeed(psql.arg(&file));
        let mut session = copy.connect();
        assert_eq!(session.number(TRIGGERS), brings_it);
        session.run("SELECT pgcache.put_default('c')");
        assert_eq!(session.number(TRIGGERS), 1);
        session.run(PUT);
        assert_eq!(session.lines("SELECT value FROM c"), ["new"]);
    }
    let mut session = older.connect();
    session.run("ALTER EXTENSION pgcache UPDATE");
    assert_eq!(session.number(TRIGGERS), 1);
    session.run(PUT);
    assert_eq!(session.lines("SELECT value FROM c"), ["new"]);
}

/// The trigger is created as the cache's owner, whichever role is current at the end of the transaction. It is rolled
/// back with the transaction and its savepoints, and removed by DETACH CONCURRENTLY, which takes two transactions.
#[test]
fn the_trigger_of_a_cache_in_a_plain_table_follows_its_partition() {
    let database = Cluster::shared().database();
    let (owner, mut session) = (database.cluster.role(), database.connect());
    session.run(&format!("GRANT CREATE ON SCHEMA public TO {owner}"));
    above(&mut session);
    session.run(&format!(
        "ALTER TABLE above OWNER TO {owner}; ALTER TABLE c OWNER TO {owner}"
    ));
    let mut owners = database.connect_as(&owner);
    owners.run(LOAD);
    owners.run("ALTER TABLE above DETACH PARTITION c CONCURRENTLY");
    assert_eq!(session.number(TRIGGERS), 0);
    owners.run(
        "CREATE FUNCTION attach() RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = public AS
         $$ALTER TABLE above ATTACH PARTITION c FOR VALUES IN ('c')$$",
    );
    let mut stranger = database.connect_as(&database.cluster.role());
    stranger.run(LOAD);
    stranger.run("SELECT attach()");
    assert_eq!(session.number(TRIGGERS), 1);
    session.run(PUT);
    owners.run("BEGIN; ALTER TABLE above DETACH PARTITION c; SAVEPOINT s");
    owners.run("ALTER TABLE above ATTACH PARTITION c FOR VALUES IN ('c'); ROLLBACK TO s; COMMIT");
    assert_eq!(session.number(TRIGGERS), 0);
    owners.run(
        "BEGIN; ALTER TABLE above ATTACH PARTITION c FOR VALUES IN ('c'); DROP TABLE above; COMMIT",
    );
    assert_eq!(session.number(TRIGGERS), 0);
}

/// Statements that make a cache `c`: partitions on two levels with a default partition, values of type json, and both.
const LAYOUTS: &[&str] = &[
    "CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY LIST (key);
     CREATE TABLE c_1 PARTITION OF c FOR VALUES IN ('k', 'l', 'x');
     CREATE TABLE c_2 PARTITION OF c DEFAULT PARTITION BY HASH (key);
     CREATE TABLE c_2_1 PARTITION OF c_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
     CREATE TABLE c_2_2 PARTITION OF c_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "CREATE TABLE c (key text PRIMARY KEY, value json, expires_at timestamptz)",
    "CREATE TABLE c (value json, key text PRIMARY KEY, expires_at timestamptz) PARTITION BY RANGE (key);
     CREATE TABLE c_1 PARTITION OF c FOR VALUES FROM (MINVALUE) TO (MAXVALUE)",
];

fn laid_out(database: &Database, layout: &str) -> Client {
    let mut session = database.connect();
    session.run("DROP TABLE IF EXISTS c, src");
    session.run(layout);
    session.run(
        "CREATE TABLE src (k text PRIMARY KEY, v text); INSERT INTO src VALUES ('k', '1'), ('m', '1');
         SELECT cache_attach('c', '1 hour'), cache_depend('src', 'k', 'c')",
    );
    session
}

/// While a fetch is open, a commit that removes a key without a row, by hand or because its source has changed, waits
/// for no writer of other keys. Otherwise two such commits that have written other keys would deadlock.
#[test]
fn a_removal_waits_for_no_writer_of_another_key() {
    let database = Cluster::hot().database();
    for layout in LAYOUTS {
        let mut session = laid_out(&database, layout);
        let (mut loads, mut writes) = (database.connect(), database.connect());
        session.run("SET lock_timeout = '2s'");
        loads.run("BEGIN; SELECT cache_fetch('loaded', 'SELECT 1', cache => 'c')");
        writes.run(
            "BEGIN; SELECT cache_set_json(k, '1', cache => 'c') FROM unnest('{x,y}'::text[]) AS k",
        );
        for removal in [
            "SELECT cache_delete('k', 'c')",
            "SELECT cache_delete_many('{k,l,m,n}', 'c')",
            "UPDATE src SET v = '2'",
        ] {
            for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
                session.run(&format!("BEGIN ISOLATION LEVEL {level}; {removal}"));
                session.run("SELECT cache_set_json('z', '1', cache => 'c')");
                if let Err(error) = session.try_lines("COMMIT") {
                    panic!("{layout}; {removal}; {level}: {error}");
                }
            }
        }
        loads.run("COMMIT");
        writes.run("COMMIT");
    }
}

/// A removal waits for the row of a fetch that is not committed, in each layout, and removes it.
#[test]
fn a_removal_waits_for_the_loaded_row_of_its_key_in_any_partition() {
    let database = Cluster::hot().database();
    let mut witness = database.connect();
    for layout in LAYOUTS {
        let mut session = laid_out(&database, layout);
        for key in ["k", "m"] {
            for removal in [
                "SELECT cache_delete(k, 'c') FROM src WHERE k = ",
                "UPDATE src SET v = v || '0' WHERE k = ",
            ] {
                session.run(&format!(
                    "BEGIN; SELECT cache_fetch_json('{key}', 'SELECT v::jsonb FROM src WHERE k = $1', cache => 'c')"
                ));
                let removal = format!("{removal}'{key}'");
                let removed = waiting(&database, &mut witness, removal.leak());
                session.run("COMMIT");
                removed.join().expect("the removal");
                let left = format!("SELECT count(*) FROM c WHERE key = '{key}'");
                assert_eq!(session.number(&left), 0, "{layout}; {key}");
            }
        }
    }
}

/// Another session attaches the partition of a key and loads the key's row in one transaction, which the removing
/// session cannot see yet.
#[test]
fn a_removal_waits_for_a_loaded_row_in_a_partition_that_is_being_attached() {
    let database = Cluster::hot().database();
    for default in ["", "CREATE TABLE c_0 PARTITION OF c DEFAULT;"] {
        let mut session = laid_out(
            &database,
            &format!(
                "DROP TABLE IF EXISTS c_2;
                 CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY LIST (key);
                 CREATE TABLE c_1 PARTITION OF c FOR VALUES IN ('a'); {default}
                 CREATE TABLE c_2 (key text PRIMARY KEY, value text, expires_at timestamptz)"
            ),
        );
        let (mut loads, mut witness) = (database.connect(), database.connect());
        session.run("BEGIN; UPDATE src SET v = '2' WHERE k = 'k'");
        loads.run("BEGIN; SET LOCAL lock_timeout = '20s'");
        loads.run("ALTER TABLE c ATTACH PARTITION c_2 FOR VALUES IN ('k')");
        loads.run("SELECT cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'c')");
        let pid = session.number("SELECT pg_backend_pid()");
        let committed = thread::spawn(move || session.run("COMMIT"));
        let waits = format!(
            "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = {pid}"
        );
        wait_until("the removal waits", || witness.holds(&waits));
        loads.run("COMMIT");
        committed.join().expect("the removal");
        let left = "SELECT count(*) FROM c WHERE key = 'k'";
        assert_eq!(loads.number(left), 0, "{default}");
    }
}
