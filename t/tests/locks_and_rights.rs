//! Tests when a relation that a caller names is locked: only after the caller's privileges were checked. The check is
//! repeated once the lock is held.

use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::needs::{self, Needs};
use pgcache_tests::refusal::refused;
use postgres::Client;

fn database() -> Database<'static> {
    Cluster::hot().database()
}

/// Returns a session in which a call that waits for a lock fails with 55P03.
fn impatient(mut session: Client) -> Client {
    session.run("SET lock_timeout = '300ms'");
    session
}

/// Returns the relations with names like `like` on which a session holds locks.
fn locked(session: &mut Client, like: &str) -> Vec<String> {
    session.lines(&format!(
        "SELECT relation::regclass, mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' \
         AND relation IN (SELECT oid FROM pg_class WHERE relname LIKE '{like}')"
    ))
}

const ROW: &str = "AS e (key text COLLATE \"C\", value text, expires_at timestamptz)";

fn id_of(session: &mut Client, view: &str) -> String {
    session.text(&format!(
        "SELECT substring(pg_get_viewdef('{view}') FROM 'id=([0-9]+)')"
    ))
}

#[test]
fn invented_settings_neither_lock_nor_wait_for_the_relations_they_name() {
    let database = database();
    let (mut owner, mut admin) = (database.connect(), database.connect());
    let role = database.cluster.role();
    admin.run(
        "CREATE TABLE secret_table (i int); CREATE VIEW secret_view AS SELECT 1; SELECT cache_create('secret_cache'); \
         SELECT cache_create('secret_memory', storage => 'memory'), cache_create('secret_other', storage => 'memory'); \
         SELECT cache_set('k', 'v', cache => 'secret_memory')",
    );
    let id = id_of(&mut admin, "secret_memory");
    let names = "'secret_table', 'secret_view', 'secret_cache', 'secret_memory', 'secret_other'";
    let oids = admin.lines(&format!("SELECT unnest(ARRAY[{names}]::regclass[])::oid"));
    for is_locked in [false, true] {
        if is_locked {
            owner.run("BEGIN; LOCK TABLE secret_table, secret_cache; ALTER VIEW secret_view OWNER TO postgres; \
                       ALTER VIEW secret_memory OWNER TO postgres; ALTER VIEW secret_other OWNER TO postgres");
        }
        let mut mallory = impatient(database.connect_as(&role));
        for oid in &oids {
            for (settings, state) in [
                (format!("id=7 oid={oid}"), "42P01"),
                (format!("id={id} oid={oid}"), "42501"),
                (format!("id={id}"), "42501"),
                (format!("oid={oid}"), "42P01"),
            ] {
                let call = format!("SELECT * FROM pgcache.memory_entries('{settings}') {ROW}");
                mallory.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT s");
                refused(mallory.try_lines(&call), state);
                // The call must not take a lock even for a moment, although an exception handler would release it.
                mallory.run("ROLLBACK TO s");
                mallory.run(&format!(
                    "DO $$BEGIN PERFORM * FROM pgcache.memory_entries('{settings}') {ROW}; \
                     EXCEPTION WHEN OTHERS THEN END$$"
                ));
                assert_eq!(locked(&mut mallory, "secret%"), [""; 0], "{settings}");
                mallory.run("ROLLBACK");
            }
        }
    }
    owner.run("ROLLBACK");
}

/// After a restore, the id in a view's definition may be the OID of another relation.
#[test]
fn a_reader_whose_view_names_another_relation_waits_for_none_but_his_own() {
    let database = database();
    let (mut admin, mut holder) = (database.connect(), database.connect());
    let role = database.cluster.role();
    admin.run(&format!(
        "CREATE TABLE foreign_table (i int); CREATE VIEW foreign_view AS SELECT 1; SELECT cache_create('foreign_cache'); \
         SELECT cache_create('m', storage => 'memory'), cache_create('foreign_memory', storage => 'memory'); \
         SELECT cache_set('k', 'v', cache => 'm'); GRANT SELECT ON m, foreign_view, foreign_table, foreign_memory TO {role}"
    ));
    let id = id_of(&mut admin, "m");
    for hint in [
        "foreign_table",
        "foreign_view",
        "foreign_cache",
        "foreign_memory",
        "pg_class",
    ] {
        let oid = admin.text(&format!("SELECT '{hint}'::regclass::oid"));
        admin.run(&format!(
            "CREATE OR REPLACE VIEW m AS SELECT e.key, e.value, e.expires_at FROM pgcache.memory_entries('id={id} oid={oid}') {ROW}"
        ));
        holder.run("BEGIN; LOCK TABLE foreign_table, foreign_cache; ALTER VIEW foreign_view OWNER TO postgres; \
                    ALTER VIEW foreign_memory OWNER TO postgres");
        let mut reader = impatient(database.connect_as(&role));
        for level in ["READ COMMITTED", "REPEATABLE READ"] {
            reader.run(&format!("BEGIN ISOLATION LEVEL {level}"));
            assert_eq!(reader.lines("SELECT key, value FROM m"), ["k|v"], "{hint}");
            assert_eq!(locked(&mut reader, "foreign%"), [""; 0], "{hint}");
            reader.run("COMMIT");
        }
        holder.run("ROLLBACK");
    }
}

#[test]
fn no_session_waits_for_or_locks_a_relation_without_privileges_on_it() {
    let database = database();
    let (mut admin, mut holder) = (database.connect(), database.connect());
    let role = database.cluster.role();
    admin.run(&format!(
        "SELECT cache_create('his_table'), cache_create('his_memory', storage => 'memory'); CREATE TABLE his_rows (key text); \
         CREATE VIEW his_view AS SELECT 1 AS i; GRANT CREATE ON SCHEMA public TO {role}"
    ));
    let mut mallory = impatient(database.connect_as(&role));
    mallory.run("CREATE TABLE own (key text); SELECT cache_create('own_cache')");
    holder.run("BEGIN; LOCK TABLE his_table, his_rows; ALTER VIEW his_memory OWNER TO postgres; ALTER VIEW his_view OWNER TO postgres");
    for relation in ["his_table", "his_memory", "his_rows", "his_view"] {
        let by_table = needs::present(&mut admin).into_iter();
        let checked =
            by_table.filter(|(_, needs, _)| matches!(needs, Needs::All(_) | Needs::Owner(_)));
        let calls = checked.map(|(_, _, call)| call.replace("$c", &format!("'{relation}'")));
        let others = [
            format!("cache_depend('{relation}', 'key', 'own_cache')"),
            format!("cache_depend('own', 'key', '{relation}')"),
            format!("cache_undepend('{relation}', 'own_cache')"),
        ];
        for call in calls.chain(others) {
            mallory.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT s");
            match mallory.try_lines(&format!("SELECT {call}")) {
                Ok(_) => assert!(call.contains("_settings"), "{call} was done"),
                error => drop(refused(error, "42501")),
            }
            mallory.run("ROLLBACK TO s");
            assert_eq!(locked(&mut mallory, "his_%"), [""; 0], "{call}");
            mallory.run("ROLLBACK");
        }
        // Create a cache under a name that already exists, as a cache or as another relation.
        let is_cache = matches!(relation, "his_table" | "his_memory");
        mallory.run("BEGIN; SAVEPOINT s");
        let state = if is_cache { "42P07" } else { "42809" };
        refused(
            mallory.try_value(&format!("SELECT cache_create('{relation}')")),
            state,
        );
        mallory.run("ROLLBACK TO s");
        let again = mallory.try_value(&format!(
            "SELECT cache_create('{relation}', if_not_exists => true)"
        ));
        match is_cache {
            true => assert_eq!(again.expect("it is there").as_deref(), Some(relation)),
            false => drop(refused(again, "42809")),
        }
        if is_cache {
            assert_eq!(locked(&mut mallory, "his_%"), [""; 0]);
        }
        mallory.run("ROLLBACK");
        // The list of all caches shows the caches that the role may read.
        assert_eq!(
            mallory.lines("SELECT cache FROM pgcache.caches"),
            ["own_cache"]
        );
        mallory.run("SELECT cache_expire()");
    }
    holder.run("ROLLBACK");
}

/// Runs a call in a separate session while `holder` has the cache locked. Once the call waits, `holder` runs `change`
/// and commits.
fn meanwhile(
    database: &Database,
    role: &str,
    holder: &mut Client,
    call: &str,
    change: &str,
) -> Result<Option<String>, postgres::Error> {
    let mut caller = database.connect_as(role);
    caller.run("SET pgcache.hot_tier = off");
    caller.run("SELECT cache_exists('k', 'c')"); // the call below must not use privileges that the session caches here
    holder.run("BEGIN; LOCK TABLE c IN ACCESS EXCLUSIVE MODE");
    thread::scope(|scope| {
        let call = scope.spawn(|| caller.try_value(&format!("SELECT {call}")));
        let waits =
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'c'::regclass AND NOT granted)";
        while !call.is_finished() && !holder.holds(waits) {
            thread::sleep(Duration::from_millis(5));
        }
        holder.run(&format!("{change}; COMMIT"));
        call.join().expect("the call has an end")
    })
}

#[test]
fn a_right_that_is_taken_away_while_a_call_waits_for_the_lock_is_gone() {
    let database = database();
    let mut admin = database.connect();
    admin.run("SELECT cache_create('c')");
    let role = database.cluster.role();
    for (_, needs, call) in needs::present(&mut admin) {
        let Needs::All(privileges) = needs else {
            continue;
        };
        // These functions take no lock.
        if ["_settings", "hiding", "touch_after", "share("]
            .iter()
            .any(|name| call.contains(name))
        {
            continue;
        }
        admin.run(&format!(
            "DELETE FROM c; SELECT cache_set_many('{{k,n}}', '{{1,2}}', cache => 'c'); GRANT ALL ON c TO {role}"
        ));
        let call = call.replace("$c", "'c'");
        for privilege in privileges {
            let change = format!("REVOKE {privilege} ON c FROM {role}");
            let error = meanwhile(&database, &role, &mut admin, &call, &change);
            let Err(error) = error else {
                panic!("{call} was done without {privilege}");
            };
            refused::<()>(Err(error), "42501");
            admin.run(&format!("GRANT ALL ON c TO {role}"));
        }
        assert_eq!(
            admin.lines("SELECT key, value, expires_at FROM c ORDER BY key"),
            ["k|1|", "n|2|"],
            "{call}"
        );
    }
}

#[test]
fn a_cache_that_changes_hands_while_its_owner_waits_is_his_no_more() {
    let database = database();
    let mut admin = database.connect();
    let role = database.cluster.role();
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {role}"));
    for call in [
        "cache_alter('c', ttl => '1 hour')",
        "cache_tune('c', negative_ttl => '1 hour')",
        "cache_watch('c')",
        "cache_unwatch('c')",
        "cache_drop('c')",
        "cache_depend('c', 'key', 'd')",
        "cache_undepend('c', 'd')",
    ] {
        admin.run(&format!(
            "SELECT cache_create('c'), cache_create('d'); ALTER TABLE c OWNER TO {role}; GRANT ALL ON d TO {role}"
        ));
        // The role keeps every privilege, even TRIGGER, but another role owns the table.
        let change = format!("ALTER TABLE c OWNER TO postgres; GRANT ALL ON c TO {role}");
        let error = meanwhile(&database, &role, &mut admin, call, &change).expect_err(call);
        refused::<()>(Err(error), "42501");
        admin.run("DROP TABLE c, d");
    }
}

/// The owner of a cache may lack USAGE on its schema. Statements of the extension must still remove expired entries and
/// entries that depend on changed rows, with direct access and with plans.
#[test]
fn a_cache_whose_owner_may_not_use_its_schema_is_cleared_and_swept() {
    let cluster = Cluster::hot();
    let database = database();
    let owner = cluster.role();
    let mut session = database.connect();
    session.run(&format!(
        "CREATE SCHEMA closed; GRANT CREATE, USAGE ON SCHEMA closed TO {owner}; \
         CREATE TABLE src (id text); CREATE TABLE seen (key text); GRANT INSERT ON seen TO {owner}"
    ));
    let mut owned = database.connect_as(&owner);
    owned.run("SELECT cache_create('closed.c')");
    session.run(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO public.seen VALUES (OLD.key); RETURN OLD; END $$",
    );
    session.run("SELECT cache_depend('src', 'id', 'closed.c')");
    session.run(&format!("REVOKE USAGE ON SCHEMA closed FROM {owner}"));
    for trigger in [
        "",
        "CREATE TRIGGER tell BEFORE DELETE ON closed.c FOR EACH ROW EXECUTE FUNCTION tell()",
    ] {
        if !trigger.is_empty() {
            session.run(trigger);
        }
        for change in [
            "DELETE FROM src",
            "UPDATE src SET id = 'b'",
            "TRUNCATE src",
            "ALTER TABLE src ADD x int; ALTER TABLE src DROP x",
        ] {
            session.run("INSERT INTO src VALUES ('a')");
            session.run("SELECT cache_set('a', '1', cache => 'closed.c')");
            session.run(&format!("BEGIN; {change}"));
            assert_eq!(
                session.value("SELECT cache_get('a', 'closed.c')"),
                None,
                "{change}"
            );
            session.run("COMMIT; TRUNCATE src");
            session.run("INSERT INTO src VALUES ('a')");
            session.run("SELECT cache_set('a', '1', cache => 'closed.c')");
            session.run(change);
            assert_eq!(
                session.number("SELECT count(*) FROM closed.c"),
                0,
                "{change}"
            );
            session.run("TRUNCATE src");
        }
        session.run("INSERT INTO closed.c VALUES ('old', '1', now())");
        // The call also works after a change of the table makes Postgres analyze its statement again.
        session.run("ALTER TABLE closed.c SET (fillfactor = 80)");
        assert_eq!(session.number("SELECT cache_expire()"), 1, "{trigger}");
    }
    let seen = "SELECT count(DISTINCT key) FROM seen";
    assert_eq!(session.number(seen), 2);
    // A call with the cache's OID needs no USAGE on the schema.
    let cache = session.text("SELECT 'closed.c'::regclass::oid");
    for path in ["auto", "plan"] {
        owned.run(&format!("SET pgcache.table_path = {path}"));
        owned.run(&format!("SELECT cache_set('a', '1', cache => {cache})"));
        assert_eq!(owned.text(&format!("SELECT cache_get('a', {cache})")), "1");
        owned.run(&format!("SELECT cache_clear({cache})"));
        assert_eq!(
            owned.value(&format!("SELECT cache_get('a', {cache})")),
            None
        );
    }
    refused(owned.try_lines("SELECT * FROM closed.c"), "42501");
    assert_eq!(owned.text("SELECT current_user"), owner);
}

/// A session that alters a cache, or has locked a cache, does not block the list of all caches.
#[test]
fn the_list_of_caches_waits_for_no_session() {
    let database = database();
    let mut session = database.connect();
    session.run(
        "SELECT cache_create('t', ttl => '90 seconds', storage => 'logged', value_type => 'bytea', max_entries => 9, \
             grace => '1 minute'), cache_create('m', storage => 'memory', max_entries => 7), cache_create('u', value_type => 'jsonb'); \
         SELECT cache_tune('t', negative_ttl => '5 seconds', ttl_jitter => 0.5)",
    );
    let list = "SELECT c FROM pgcache.caches AS c ORDER BY cache::text";
    let before = session.lines(list);
    assert_eq!(before.len(), 5, "{before:?}");
    let mut locker = database.connect();
    locker.run(
        "BEGIN; LOCK TABLE t, m, u, pgcache.main, pgcache.resp IN ACCESS EXCLUSIVE MODE; SELECT cache_alter('u', ttl => '1 hour')",
    );
    for mut asks in [impatient(database.connect()), impatient(session)] {
        assert_eq!(asks.lines(list), before);
    }
    locker.run("COMMIT");
    assert_ne!(database.connect().lines(list), before);
}

const VERIFIED: &str = "SELECT * FROM pgcache.verify('mine')";

/// A dependency as pgcache declared it before version 0.5.0, with a key that follows the settings of each writer.
fn follower(table: &str, key: &str) -> String {
    format!(
        "CREATE TRIGGER pgcache_depend_9_insert AFTER INSERT ON {table} FOR EACH ROW
             WHEN (true OR pgcache.depends('mine'::regclass, {key})) EXECUTE FUNCTION pgcache.invalidate()"
    )
}

#[test]
fn verify_neither_locks_nor_waits_for_sources() {
    let database = database();
    let (mut admin, mut holder) = (database.connect(), database.connect());
    let role = database.cluster.role();
    admin.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {role}; CREATE SCHEMA private; CREATE TABLE private.src (id int, d date);
         SELECT cache_create('other'); SELECT cache_depend('private.src', 'd::text', 'other')"
    ));
    let mut owner = impatient(database.connect_as(&role));
    owner.run(
        "SELECT cache_create('mine'); CREATE TABLE own_src (id int, d date);
         SELECT cache_depend('own_src', 'id::text', 'mine'), cache_depend('own_src', 'd::text', 'mine')",
    );
    // A superuser may make the cache of another role depend on a table that this role may not read.
    admin.run("SELECT cache_depend('private.src', 'id::text', 'mine')");
    admin.run(&follower("private.src", "new.d::text"));
    holder.run("BEGIN; LOCK TABLE private.src, own_src IN ACCESS EXCLUSIVE MODE");
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        owner.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(owner.lines(VERIFIED), [""; 0], "{level}");
        assert_eq!(locked(&mut owner, "%src"), [""; 0], "{level}");
        owner.run("COMMIT");
    }
    admin.run(&format!("GRANT pg_monitor TO {role}"));
    let listed = "SELECT source, cache, statement FROM pgcache.verify_dependencies()";
    assert_eq!(owner.lines(listed), ["private.src|mine|"]);
    // Printing the key locks a table that the caller may read.
    admin.run(&format!(
        "GRANT USAGE ON SCHEMA private TO {role}; GRANT SELECT ON private.src TO {role}"
    ));
    refused(owner.try_lines(listed), "55P03");
    refused(owner.try_lines(VERIFIED), "55P03");
    holder.run("ROLLBACK");
    assert_eq!(
        owner.lines(listed),
        ["private.src|mine|SELECT cache_depend('private.src', '(d)::text', 'public.mine');"]
    );
}

#[test]
fn an_update_of_the_extension_waits_for_no_source() {
    let database = Cluster::hot().empty_database("");
    let (mut session, mut holder) = (impatient(database.connect()), database.connect());
    session.run(
        "CREATE EXTENSION pgcache VERSION '0.4.0'; CREATE TABLE src (id int);
         SELECT cache_create('c'); SELECT cache_depend('src', 'id::text', 'c')",
    );
    holder.run("BEGIN; LOCK TABLE src IN ACCESS EXCLUSIVE MODE");
    session.run("ALTER EXTENSION pgcache UPDATE");
}
