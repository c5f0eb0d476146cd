//! Tests the built-in worker against roles that try to stop or monopolize it: no role can prevent the sweeps of other
//! roles' caches.

use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::wait::wait_until_within;
use postgres::Client;

const OFTEN: &str = "pgcache.expire_interval = '300ms'";
/// The longest wait for an event. It is long, because the tests check only that the event happens at all, and must pass
/// on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn put(session: &mut Client, cache: &str) {
    session.run(&format!(
        "SELECT cache_set('old', '1', '1 ms', '{cache}'), cache_set('new', '1', '1 hour', '{cache}')"
    ));
}

fn wait_until_swept(session: &mut Client, cache: &str) {
    let old = format!("SELECT EXISTS (SELECT FROM ONLY {cache} AS pgcache_c WHERE key = 'old')");
    wait_until_within(PATIENCE, &format!("a sweep of {cache}"), || {
        !session.holds(&old)
    });
}

/// Creates an ordinary role with a cache `a`, and a cache of another role that comes after it in the worker's list.
fn with_neighbours<'c>(cluster: &'c Cluster) -> (Database<'c>, Client, Client) {
    let database = cluster.database();
    let mallory = cluster.role();
    let mut session = database.connect();
    session.run(&format!("GRANT CREATE ON SCHEMA public TO {mallory}"));
    let mut owner = database.connect_as(&mallory);
    owner.run("SELECT cache_create('a')");
    session.run("SELECT cache_create('b')");
    (database, session, owner)
}

/// The error ends the worker process, which therefore cannot record that this cache caused it.
#[test]
fn a_trigger_that_ends_its_process_is_put_off_and_stops_no_other() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let mut ways = vec!["PERFORM set_config('exit_on_error', 'on', false); RAISE 'away'"];
    if cluster.stage.major() >= 17 {
        ways.push("PERFORM set_config('transaction_timeout', '1', false); PERFORM pg_sleep(60)");
    }
    for way in ways {
        let before = cluster.log_text().matches("FATAL").count();
        let (_database, mut session, mut owner) = with_neighbours(cluster);
        owner.run(&format!(
            "CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {way}; RETURN OLD; END$$; \
             CREATE TRIGGER away BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION away()"
        ));
        put(&mut owner, "a");
        // A session's changes appear in the statistics a second later.
        wait_until_within(PATIENCE, "a worker's end", || {
            cluster.log_text().matches("FATAL").count() > before
        });
        for _ in 0..3 {
            put(&mut session, "b");
            wait_until_swept(&mut session, "b");
        }
        owner.run("DROP TRIGGER away ON a");
        wait_until_swept(&mut owner, "a");
    }
    let log = cluster.log_text();
    assert!(
        log.contains("because a pgcache worker ended during the sweep"),
        "{log}"
    );
}

/// The cursor of an index-only scan keeps a page of the index pinned, and VACUUM waits until the page is unpinned.
#[test]
fn a_cursor_that_vacuum_waits_for_keeps_no_other_cache_from_its_sweep() {
    let cluster = Cluster::with_tier(&[OFTEN, "autovacuum = off"]);
    let (database, mut session, mut owner) = with_neighbours(cluster);
    owner.run("INSERT INTO a SELECT i, '1' FROM generate_series(1, 5000) AS i; GRANT SELECT ON a TO PUBLIC");
    owner.run("CREATE INDEX ON a (key, expires_at)");
    // No VACUUM may run before the cursor exists. The rows are already dead when the cursor takes its snapshot, so that
    // VACUUM can remove them.
    let mut guard = database.connect();
    guard.run("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE");
    owner.run("DELETE FROM a WHERE key > '2'");
    let mut reader = database.connect_as(&cluster.role());
    reader.run("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_incremental_sort = off");
    reader.run(
        "BEGIN; DECLARE c CURSOR FOR SELECT key FROM a WHERE key > '' ORDER BY key, expires_at; FETCH 1 FROM c",
    );
    guard.run("ROLLBACK");
    wait_until_within(PATIENCE, "a VACUUM that waits", || {
        session.holds("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker' AND wait_event IN ('BufferPin', 'BufferCleanup'))")
    });
    for _ in 0..2 {
        put(&mut session, "b");
        wait_until_swept(&mut session, "b");
    }
    reader.run("COMMIT");
    wait_until_within(PATIENCE, "a VACUUM that ends", || {
        session.holds("SELECT vacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'a'")
    });
    let log = cluster.log_text();
    assert!(!log.contains("could not"), "{log}");
}

/// No database may be able to make its VACUUM take hours, because all databases share three workers.
#[test]
fn a_database_cannot_make_its_vacuum_last() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c')");
    for setting in ["vacuum_cost_delay = 100", "vacuum_cost_limit = 1"] {
        session.run(&format!("ALTER DATABASE {} SET {setting}", database.name));
    }
    session.run(
        "INSERT INTO c SELECT i, repeat('x', 1000), now() FROM generate_series(1, 20000) AS i",
    );
    wait_until_within(PATIENCE, "a VACUUM", || {
        session.holds("SELECT vacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'c'")
    });
}

/// The database gets every planner setting, with a value different from the server's. A trigger reports the settings in
/// effect.
#[test]
fn a_database_cannot_choose_how_the_workers_steps_are_planned() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    let mut session = database.connect();
    let about_plans = "SELECT name, setting FROM pg_settings WHERE category LIKE 'Query Tuning%' \
        OR name IN ('work_mem', 'hash_mem_multiplier', 'max_parallel_workers_per_gather', 'parallel_leader_participation', \
        'debug_parallel_query', 'force_parallel_mode')";
    session.run(&format!(
        "SELECT cache_create('c'); CREATE TABLE seen (name text, setting text); \
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO public.seen {about_plans}; RETURN OLD; END $$; \
         CREATE TRIGGER tell AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION tell(); \
         CREATE TABLE of_server AS {about_plans}"
    ));
    let others = session.number(
        "SELECT count(set_config('others.' || name, other, false)) FROM (SELECT s.name, CASE \
             WHEN s.vartype = 'bool' THEN CASE s.setting WHEN 'on' THEN 'off' ELSE 'on' END \
             WHEN s.vartype = 'enum' THEN (SELECT min(v) FROM unnest(s.enumvals) AS v WHERE v <> s.setting) \
             WHEN s.setting <> s.min_val THEN s.min_val ELSE '1' END AS other \
         FROM pg_settings AS s JOIN of_server AS o ON o.name = s.name) AS x",
    );
    assert!(others > 40, "{others}");
    session.run(&format!(
        "DO $$ DECLARE n text; BEGIN FOR n IN SELECT name FROM of_server LOOP \
             EXECUTE format('ALTER DATABASE {} SET %I = %L', n, current_setting('others.' || n)); END LOOP; END $$",
        database.name
    ));
    let mut reader = database.connect();
    let differ = "SELECT count(*) FROM pg_settings AS s JOIN of_server AS o ON o.name = s.name AND o.setting <> s.setting";
    assert_eq!(reader.number(differ), others);
    put(&mut session, "c");
    wait_until_swept(&mut session, "c");
    let taken = "SELECT coalesce(string_agg(s.name, ' '), '') FROM seen AS s \
         JOIN of_server AS o ON o.name = s.name AND o.setting <> s.setting WHERE s.name <> 'jit'";
    assert_eq!(session.text(taken), "");
    // JIT is off whatever the server's setting is, because pgcache's own statements are never compiled.
    assert!(session.holds("SELECT bool_and(setting = 'off') FROM seen WHERE name = 'jit'"));
    assert!(session.holds("SELECT count(DISTINCT name) > 40 FROM seen"));
}

/// The worker reads the list of caches from a view. A setting of the database that restricts access to views must
/// affect sessions only.
#[test]
fn a_database_cannot_keep_the_worker_from_its_list_of_caches() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    let mut session = database.connect();
    let setting = "restrict_nonsystem_relation_kind";
    if !session.holds(&format!(
        "SELECT EXISTS (SELECT FROM pg_settings WHERE name = '{setting}')"
    )) {
        return; // an earlier minor version
    }
    session.run(&format!(
        "SELECT cache_create('c'); ALTER DATABASE {} SET {setting} = 'view, foreign-table'",
        database.name
    ));
    for _ in 0..3 {
        put(&mut session, "c");
        wait_until_swept(&mut session, "c");
    }
    let log = cluster.log_text();
    assert!(!log.contains("could not list"), "{log}");
}

/// The catalog rows of one cache are invalid.
#[test]
fn a_cache_that_cannot_be_looked_at_is_put_off_and_stops_no_other() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '1s'"]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('a', storage => 'memory'), cache_create('b')");
    session.run("SET allow_system_table_mods = on; DELETE FROM pg_attribute WHERE attrelid = 'a'::regclass AND attname = 'key'");
    for _ in 0..3 {
        put(&mut session, "b");
        wait_until_swept(&mut session, "b");
    }
    let complaint = "could not remove expired entries of cache \"a\"";
    wait_until_within(PATIENCE, "a complaint", || {
        cluster.log_text().contains(complaint)
    });
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(cluster.log_text().matches(complaint).count(), 1);
    assert!(!cluster.log_text().contains("could not list"));
}

/// A worker stays in the database, because a table's rows expire quickly. While the worker is connected, the extension
/// is dropped, and a role creates a view with the name of pgcache's view.
#[test]
fn a_worker_that_stays_reads_no_view_that_is_not_the_extensions() {
    let cluster = Cluster::with_tier(&[OFTEN]);
    let database = cluster.database();
    let mallory = cluster.role();
    let mut session = database.connect();
    session.run(&format!(
        "SELECT cache_create('c'); CREATE TABLE stolen (by name); GRANT INSERT ON stolen TO PUBLIC; \
         GRANT CREATE ON SCHEMA public TO {mallory}"
    ));
    database.connect_as(&mallory).run(
        "CREATE FUNCTION trap() RETURNS SETOF oid LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO public.stolen VALUES (current_user); END$$",
    );
    let stays = |session: &mut Client| {
        session.run("INSERT INTO c SELECT i, repeat('x', 1000), now() FROM generate_series(1, 3000) AS i ON CONFLICT DO NOTHING");
        session.holds("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker' AND datname = current_database() AND query = 'vacuuming c' AND now() - backend_start > interval '2 s')")
    };
    wait_until_within(PATIENCE, "a worker that stays", || stays(&mut session));
    session.run(&format!(
        "DROP EXTENSION pgcache CASCADE; CREATE SCHEMA pgcache AUTHORIZATION {mallory}; \
         SET ROLE {mallory}; CREATE VIEW pgcache.all_caches AS SELECT trap AS cache FROM public.trap(); RESET ROLE"
    ));
    wait_until_within(PATIENCE, "the worker's end", || {
        !session.holds("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker' AND datname = current_database())")
    });
    assert_eq!(session.lines("TABLE stolen"), [""; 0]);
}
