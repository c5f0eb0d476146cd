//! Tests a hostile role that may create objects. It creates objects with the names of Postgres' own objects in a schema
//! that is first in search_path, functions in the schema where the extension will be installed, and pgcache's triggers
//! on its own tables.

use std::fs;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::needs::{self, Needs};
use pgcache_tests::refusal::refused;
use postgres::Client;

/// Creates traps. For every Postgres function and operator that pgcache's statements could name, creates one with the
/// same name and types that raises an error. Creates an empty table for every catalog relation, and a domain for every
/// type.
const TRAPS: &str = "
    CREATE SCHEMA trap;
    SET search_path = pg_catalog;
    DO $do$
    DECLARE
        f record; sprung text;
        plain CONSTANT regtype[] := '{text,bytea,jsonb,timestamptz,interval,int8,int4,oid,bool,name,regclass,text[],bytea[],anyarray,anyelement,regtype,\"char\"}';
    BEGIN
        FOR f IN SELECT p.oid, p.proname, pg_get_function_identity_arguments(p.oid) AS args, format_type(p.prorettype, NULL) AS result, p.proretset
                   FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.prorettype <> 'internal'::regtype
                    AND p.pronargs <= 3 AND p.provariadic = 0 AND p.proargmodes IS NULL
                    AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) t WHERE t <> ALL (plain)) AND p.prorettype = ANY (plain) LOOP
            BEGIN
                EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION SQLSTATE ''TRAP0'' USING MESSAGE = %L; END$$',
                               f.proname, f.args, CASE WHEN f.proretset THEN 'SETOF' ELSE '' END, f.result, f.proname);
            EXCEPTION WHEN OTHERS THEN NULL; -- a pseudo-type that PL/pgSQL does not take
            END;
        END LOOP;
        FOR f IN SELECT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result
                   FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft = ANY (plain) AND o.oprright = ANY (plain)
                    AND o.oprresult = ANY (plain) LOOP
            BEGIN
                sprung := 'op_' || md5(f.oprname || f.l || f.r);
                EXECUTE format('CREATE FUNCTION trap.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION SQLSTATE ''TRAP0'' USING MESSAGE = %L; END$$',
                               sprung, f.l, f.r, f.result, f.oprname);
                EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.%I)', f.oprname, f.l, f.r, sprung);
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END LOOP;
        FOR f IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') LOOP
            EXECUTE format('CREATE TABLE trap.%I (trap int)', f.relname);
        END LOOP;
        FOREACH sprung IN ARRAY '{text,jsonb,bytea,timestamptz,interval,int8,bool,oid,regclass,regtype}'::text[] LOOP
            EXECUTE format('CREATE DOMAIN trap.%I AS pg_catalog.%1$I CHECK (false)', sprung);
        END LOOP;
    END $do$;
    RESET search_path;";

/// A row of the table of needs: a function, the privileges that it needs, and a call.
type Row = (&'static str, Needs, &'static str);

/// Checks that every callable function, on every kind of cache, returns the same answer as without the traps.
fn is_not_trapped(session: &mut Client, functions: &[Row], caches: &[&str]) {
    for &(function, needs, call) in functions {
        if matches!(needs, Needs::Elsewhere | Needs::Trigger) {
            continue;
        }
        for cache in caches {
            if (function, *cache) == ("cache_detach", "m") {
                continue; // a memory cache has no table
            }
            let call = call.replace("$c", &format!("'public.{cache}'"));
            let answer = session.try_value(&format!("BEGIN; SELECT {call}"));
            assert!(answer.is_ok(), "{function} on {cache}: {answer:?}");
            session.run("ROLLBACK");
        }
    }
    for statement in [
        "SELECT public.cache_create('public.new', '1 hour', 'unlogged', 'pg_catalog.jsonb', 1, '1 hour', true)",
        "SELECT public.cache_expire()",
        "TABLE pgcache.caches",
        "TABLE pgcache.stats",
        "TABLE pgcache.hot_tier",
        "TABLE pgcache.all_caches",
    ] {
        session.run(&format!("BEGIN; {statement}; ROLLBACK"));
    }
}

#[test]
fn no_function_looks_a_name_up_in_the_callers_path() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let mut maker = database.connect();
    let mut caches = vec!["c", "j", "b"];
    maker.run("SELECT cache_create('c'), cache_create('j', value_type => 'jsonb'), cache_create('b', value_type => 'bytea')");
    if maker.holds("SELECT size > 0 FROM pgcache.hot_tier") {
        maker.run("SELECT cache_create('m', storage => 'memory')");
        caches.push("m");
    }
    for cache in &caches {
        maker.run(&format!(
            "SELECT cache_set_many('{{k,l,n}}', '{{1,2,3}}', cache => '{cache}')"
        ));
    }
    let functions = needs::present(&mut maker);
    maker.run(TRAPS);
    let traps =
        maker.number("SELECT count(*) FROM pg_proc WHERE pronamespace = 'trap'::regnamespace");
    assert!(traps > 500, "only {traps} traps");
    // Use new sessions, so that Postgres plans every statement with a search_path that contains the traps.
    for path in [
        "trap, pg_catalog, public",
        "trap, public, pg_catalog",
        "pg_temp, trap, pg_catalog, public",
    ] {
        let mut session = database.connect();
        session.run("CREATE TEMP TABLE c (key int); CREATE TEMP TABLE pg_trigger (i int); CREATE TEMP TABLE pg_class (i int)");
        session.run(&format!(
            "SET client_min_messages = error; SET search_path = {path}"
        ));
        refused(
            session.try_value("SELECT 'a' = 'b'::pg_catalog.text"),
            "TRAP0",
        );
        is_not_trapped(&mut session, &functions, &caches);
    }
}

#[test]
fn create_extension_runs_no_object_that_already_exists_in_its_schema() {
    let cluster = Cluster::start(&[]);
    let database = cluster.empty_database("");
    let (mut admin, mallory) = (database.connect(), cluster.role());
    admin.run(&format!("CREATE SCHEMA app AUTHORIZATION {mallory}; CREATE TABLE stolen (by name); GRANT INSERT ON stolen TO PUBLIC"));
    let mut session = database.connect_as(&mallory);
    for arguments in [
        "text",
        "name text, ttl interval DEFAULT NULL",
        "VARIADIC text[]",
        "varchar",
        "anyelement",
    ] {
        session.run(&format!(
            "CREATE FUNCTION app.cache_create({arguments}) RETURNS regclass LANGUAGE plpgsql \
             AS $$BEGIN INSERT INTO public.stolen VALUES (current_user); RETURN NULL; END$$"
        ));
    }
    admin.run("CREATE EXTENSION pgcache SCHEMA app");
    assert_eq!(admin.lines("TABLE stolen"), [""; 0]);
    // The two caches are pgcache.main and pgcache.resp.
    assert_eq!(admin.text("SELECT count(*) FROM pgcache.caches"), "2");
    // CREATE EXTENSION neither adopts nor replaces a function with exactly the same signature.
    admin.run("DROP EXTENSION pgcache CASCADE");
    session.run("CREATE FUNCTION app.cache_get(text, regclass) RETURNS text LANGUAGE sql AS $$SELECT 'own'$$");
    refused(
        admin.try_value("CREATE EXTENSION pgcache SCHEMA app"),
        "42723",
    );
    session.run("DROP FUNCTION app.cache_get(text, regclass)");
    // CREATE EXTENSION does not adopt a schema of pgcache's name that another role created.
    admin.run(&format!("CREATE SCHEMA pgcache AUTHORIZATION {mallory}"));
    refused(
        admin.try_value("CREATE EXTENSION pgcache SCHEMA app"),
        "42P06",
    );
}

#[test]
fn an_owners_trigger_finds_nothing_of_the_caller_for_whom_it_runs_as_owner() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let (mut admin, owner, mallory) = (database.connect(), cluster.role(), cluster.role());
    admin.run(&format!(
        "SELECT cache_create('c'); ALTER TABLE c OWNER TO {owner}; GRANT DELETE ON c TO {mallory}; \
         CREATE TABLE stolen (by name); GRANT INSERT ON stolen TO PUBLIC; \
         CREATE SCHEMA own AUTHORIZATION {mallory}; GRANT USAGE ON SCHEMA own TO PUBLIC"
    ));
    // The trigger is careless: its function calls another function without naming the schema.
    admin.run(
        "CREATE FUNCTION note() RETURNS void LANGUAGE sql AS 'SELECT NULL::void'; \
         CREATE FUNCTION careless() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM note(); RETURN OLD; END$$; \
         CREATE TRIGGER careless BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION careless()",
    );
    let mut session = database.connect_as(&mallory);
    session.run(
        "CREATE FUNCTION own.note() RETURNS void LANGUAGE sql AS $$INSERT INTO public.stolen VALUES (current_user)$$",
    );
    session.run("SET search_path = own, public");
    for call in [
        "cache_delete('k', 'c')",
        "cache_delete_many('{k}', 'c')",
        "cache_delete_prefix('k', 'c')",
        "cache_expire('c')",
        "cache_expire()",
    ] {
        admin.run(
            "INSERT INTO c AS pgcache_c VALUES ('k', 'v', '-infinity') ON CONFLICT DO NOTHING",
        );
        let _ = session.try_value(&format!("SELECT {call}"));
        assert_eq!(
            admin.lines("TABLE stolen"),
            [""; 0],
            "{call} lent the owner's rights"
        );
    }
    assert_eq!(session.text("SHOW search_path"), "own, public");
    // A careful trigger works, in calls by its owner and by other roles.
    admin.run("CREATE OR REPLACE FUNCTION careless() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM public.note(); RETURN OLD; END$$");
    admin.run(
        "INSERT INTO c AS pgcache_c VALUES ('k', 'v', NULL) ON CONFLICT (key) DO UPDATE SET expires_at = NULL",
    );
    assert!(session.holds("SELECT cache_delete('k', 'c')"));
    assert_eq!(session.text("SHOW search_path"), "own, public");
}

/// Returns, for each advisory lock of the session, the call with which an application takes the same lock.
fn advisory_locks(session: &mut Client) -> Vec<String> {
    session.lines(
        "SELECT format('pg_advisory_lock(%s::bit(32)::int, %s::bit(32)::int)', classid::bigint, objid::bigint) \
           FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    )
}

#[test]
fn advisory_locks_of_a_role_block_neither_sweeps_nor_cache_creation() {
    let cluster = Cluster::start(&["pgcache.expire_interval = 0"]);
    let database = cluster.database();
    let (mut owner, mallory) = (database.connect(), cluster.role());
    owner.run("SELECT cache_create('c', max_entries => 1); INSERT INTO c SELECT i FROM generate_series(1, 5000) AS i");
    // Every role can see these locks in pg_locks.
    owner.run("BEGIN; SELECT cache_create('d'), cache_expire('c')");
    let locks = advisory_locks(&mut owner);
    assert_eq!(locks.len(), 2, "{locks:?}");
    owner.run("ROLLBACK");
    let mut session = database.connect_as(&mallory);
    for lock in locks {
        session.run(&format!("SELECT {lock}"));
    }
    owner.run("SET lock_timeout = '60s'; SELECT cache_create('d'), cache_expire('c')");
    let rest = owner.number("SELECT count(*) FROM c");
    assert!(rest < 2000, "max_entries is 1, and {rest} are left");
}

#[test]
fn our_triggers_on_any_table_crash_nothing() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let (mut admin, mallory) = (database.connect(), cluster.role());
    admin.run(&format!(
        "GRANT CREATE, USAGE ON SCHEMA public TO {mallory}; CREATE TYPE pair AS (a int, b text)"
    ));
    admin.run("CREATE DOMAIN short AS text CHECK (length(value) < 10)");
    let mut session = database.connect_as(&mallory);
    let keys = [
        ("int", "12345"),
        ("bigint", "-1"),
        ("name", "'n'"),
        ("\"char\"", "'c'"),
        ("bool", "true"),
        ("float8", "1e300"),
        ("uuid", "gen_random_uuid()"),
        ("bytea", "'\\xff'"),
        ("text[]", "'{a,NULL}'"),
        ("pair", "(1, 'x')"),
        ("short", "'s'"),
        ("varchar(5)", "'v'"),
        ("bpchar", "'b'"),
        ("jsonb", "'1'"),
        ("text", "NULL"),
        ("text", "repeat('k', 1000000)"),
        ("text", "''"),
        ("point", "'(1,2)'"),
        ("interval", "'1 day'"),
        ("xid", "'7'"),
        ("void_key", ""),
    ];
    let timings = [
        "AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW",
        "BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW",
        "AFTER INSERT OR DELETE ON t FOR EACH STATEMENT",
        "AFTER INSERT OR UPDATE ON t FOR EACH ROW WHEN (true)",
    ];
    for (kind, value) in keys {
        let column = if kind == "void_key" {
            "other int"
        } else {
            &format!("key {kind}")
        };
        for timing in timings {
            session.run(&format!(
                "CREATE TABLE t ({column}, value text, expires_at timestamptz, gone text)"
            ));
            for function in ["record", "record_truncate", "renew_row"] {
                session.run(&format!("CREATE TRIGGER {function} {timing} EXECUTE FUNCTION pgcache.{function}('ttl=x', 'garbage')"));
            }
            let value = if kind == "void_key" { "1" } else { value };
            for change in [
                &format!("INSERT INTO t SELECT {value} FROM generate_series(1, 3)"),
                "UPDATE t SET value = 'v'",
                "ALTER TABLE t DROP COLUMN gone",
                "ALTER TABLE t ADD COLUMN more text DEFAULT 'm'",
                "UPDATE t SET value = 'w'",
                "DELETE FROM t",
                "TRUNCATE t",
            ] {
                let done = session.try_value(change);
                assert!(
                    !session.is_closed(),
                    "{change} with a key of type {kind}, {timing}: {done:?}"
                );
            }
            refused(session.try_value("SELECT cache_get('k', 't')"), "42809");
            session.run("DROP TABLE t");
        }
    }
    // Use the trigger as a deferred constraint trigger, on a view, on a partitioned table and on a temporary table.
    session.run(
        "CREATE TABLE t (key int); CREATE CONSTRAINT TRIGGER c AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pgcache.record(); \
         INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT * FROM t; CREATE TRIGGER i INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION pgcache.record(); INSERT INTO v VALUES (7); \
         CREATE TABLE p (key int) PARTITION BY LIST (key); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); \
         CREATE TRIGGER r AFTER INSERT ON p FOR EACH ROW EXECUTE FUNCTION pgcache.record(); INSERT INTO p VALUES (1); \
         CREATE TEMP TABLE tmp (key text); CREATE TRIGGER r AFTER INSERT ON tmp FOR EACH ROW EXECUTE FUNCTION pgcache.record(); INSERT INTO tmp VALUES ('k')",
    );
    for call in [
        "pgcache.record()",
        "pgcache.record_truncate()",
        "pgcache.renew_row()",
    ] {
        refused(session.try_value(&format!("SELECT {call}")), "39P01");
    }
    assert!(!cluster.log_text().contains("terminated by signal"));
}

#[test]
fn a_trigger_that_no_longer_sees_every_row_ends_the_copies() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    for (number, trigger) in [
        "AFTER INSERT OR UPDATE OR DELETE ON $c FOR EACH STATEMENT",
        "AFTER INSERT ON $c FOR EACH ROW",
        "AFTER INSERT OR DELETE OR UPDATE OF key ON $c FOR EACH ROW",
        "AFTER INSERT OR UPDATE OR DELETE ON $c FOR EACH ROW WHEN (false)",
    ]
    .iter()
    .enumerate()
    {
        let cache = format!("c{number}");
        let trigger = trigger
            .replace("$c", &cache)
            .replace("WHEN (false)", "WHEN (pg_trigger_depth() > 5)");
        session.run(&format!(
            "SELECT cache_create('{cache}'); SELECT cache_set('k', 'old', cache => '{cache}')"
        ));
        session.run(&format!(
            "DROP TRIGGER pgcache_record ON {cache}; CREATE TRIGGER pgcache_record {trigger} EXECUTE FUNCTION pgcache.record(); \
             ALTER TABLE {cache} ENABLE ALWAYS TRIGGER pgcache_record"
        ));
        let get = format!("SELECT cache_get('k', '{cache}')");
        assert_eq!(
            (session.text(&get), session.text(&get)),
            ("old".into(), "old".into())
        );
        session.run(&format!("UPDATE {cache} SET value = 'new'"));
        assert_eq!(session.text(&get), "new", "{trigger}");
    }
}

#[test]
fn the_scripts_leave_no_operator_or_function_to_the_search_path() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql");
    let scripts: Vec<_> = fs::read_dir(folder)
        .expect("the scripts are in the checkout")
        .map(|file| file.expect("a file").path())
        .filter(|path| {
            path.to_string_lossy().contains("pgcache--")
                && path.to_string_lossy().ends_with("--0.5.0.sql")
        })
        .collect();
    assert!(!scripts.is_empty());
    for script in scripts {
        let text = fs::read_to_string(&script).expect("a script can be read");
        for (number, line) in text.lines().enumerate() {
            let code = line.split("--").next().unwrap_or_default();
            let compares = [" = ", " <> ", " || ", " >= ", " <= "]
                .iter()
                .any(|operator| code.contains(operator));
            assert!(
                !compares || code.trim_start().starts_with('\''),
                "{}:{}: an operator without its schema: {line}",
                script.display(),
                number + 1
            );
        }
    }
}

#[test]
fn messages_show_names_that_are_not_ascii_in_every_encoding() {
    let cluster = Cluster::shared();
    for (encoding, letter, shown) in [
        ("UTF8", "é", "é"),
        ("LATIN1", "é", "\\u{e9}"),
        ("EUC_JP", "あ", "\\u{3042}"),
    ] {
        let options =
            format!("TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'");
        let mut session = cluster.empty_database(&options).connect();
        session.run(&format!("SET client_encoding = 'UTF8'; CREATE EXTENSION pgcache; CREATE TABLE \"{letter}\" (a int)"));
        let no_cache = refused(
            session.try_value(&format!("SELECT cache_get('k', '\"{letter}\"')")),
            "42809",
        );
        assert_eq!(
            no_cache.message(),
            format!("\"{shown}\" is not a cache"),
            "{encoding}"
        );
        let storage = refused(
            session.try_value(&format!("SELECT cache_create('c', storage => '{letter}')")),
            "22023",
        );
        assert_eq!(
            storage.message(),
            format!("unknown storage \"{shown}\""),
            "{encoding}"
        );
    }
}

/// The owner's key is evaluated for every writer, without a privilege check. The writer's search_path must not change
/// the meaning of names in the key; otherwise the writer could run its own code as the owner, or prevent the removal of
/// an entry.
#[test]
fn a_dependencys_key_means_the_same_under_any_search_path_of_a_writer() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let (mut admin, victim, mallory) = (database.connect(), cluster.role(), cluster.role());
    admin.run(&format!(
        "CREATE SCHEMA evil AUTHORIZATION {mallory}; GRANT USAGE ON SCHEMA evil TO PUBLIC; \
         GRANT CREATE ON SCHEMA public TO {victim}; CREATE TABLE ran (by name); GRANT ALL ON ran TO PUBLIC"
    ));
    database.connect_as(&victim).run(&format!(
        "CREATE TABLE src (name text); CREATE FUNCTION keyf(text) RETURNS text LANGUAGE sql IMMUTABLE \
         AS $$SELECT 'p:' || lower($1)$$; SELECT cache_create('c'); SELECT cache_depend('src', 'keyf(name)', 'c'); \
         SELECT cache_set('p:a', 'old', cache => 'c'); GRANT INSERT ON src TO {mallory}"
    ));
    let mut writer = database.connect_as(&mallory);
    writer.run(
        "CREATE FUNCTION evil.note() RETURNS void LANGUAGE sql AS \
         $$INSERT INTO public.ran VALUES (current_user)$$; \
         CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS \
         $$BEGIN PERFORM evil.note(); RETURN 'other'; END$$; \
         SET search_path = evil, pg_catalog, public",
    );
    writer.run("INSERT INTO public.src VALUES ('A')");
    assert_eq!(admin.lines("TABLE ran"), [""; 0]);
    assert!(admin.holds("SELECT NOT cache_exists('p:a', 'c')"));
}

/// A session that removes a key waits for a value that is being loaded for the key. During the wait, the owner of
/// another schema can give that schema the name of the cache's schema, and so replace the table.
#[test]
fn a_schema_that_takes_the_name_of_another_gets_nothing_of_an_owners_rights() {
    for conf in [&[][..], &["shared_preload_libraries = ''"][..]] {
        let cluster = Cluster::start(conf);
        for (path, keys) in [("auto", 1), ("plan", 1), ("plan", 2_000)] {
            let what = format!("{conf:?} {path} {keys}");
            names_change_hands(cluster, path, keys)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

fn names_change_hands(cluster: &Cluster, path: &str, keys: i64) -> Result<(), String> {
    let database = cluster.database();
    let (mut admin, mallory) = (database.connect(), cluster.role());
    admin.run(&format!(
        "ALTER DATABASE {name} OWNER TO {mallory}; CREATE TABLE stolen (by name); GRANT INSERT ON stolen TO PUBLIC; \
         CREATE SCHEMA app AUTHORIZATION {mallory}; CREATE SCHEMA own AUTHORIZATION {mallory}; CREATE SCHEMA kept AUTHORIZATION {mallory}; \
         SELECT cache_create('app.c'); GRANT SELECT, INSERT, UPDATE, DELETE ON app.c TO {mallory}",
        name = database.name
    ));
    let (mut loader, mut writer) = (database.connect_as(&mallory), database.connect_as(&mallory));
    let mut thief = database.connect_as(&mallory);
    thief.run(&format!(
        "CREATE TABLE kept.src (id int, v text); INSERT INTO kept.src SELECT g, 'v' FROM generate_series(1, {keys}) g; \
         SELECT cache_depend('kept.src', 'id::text', 'app.c'); \
         CREATE TABLE own.c (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz); \
         INSERT INTO own.c SELECT id::text FROM kept.src; GRANT ALL ON SCHEMA own TO PUBLIC; GRANT ALL ON own.c TO PUBLIC; \
         CREATE FUNCTION kept.steal() RETURNS trigger LANGUAGE plpgsql \
         AS $$BEGIN INSERT INTO public.stolen VALUES (current_user); RETURN OLD; END$$; \
         CREATE TRIGGER steal BEFORE DELETE ON own.c FOR EACH ROW EXECUTE FUNCTION kept.steal()"
    ));
    loader.run("BEGIN; SELECT cache_fetch('1', 'SELECT ''loaded''', cache => 'app.c')");
    writer.run(&format!("SET pgcache.table_path = {path}"));
    let change = std::thread::spawn(move || writer.try_lines("UPDATE kept.src SET v = 'w'"));
    std::thread::sleep(std::time::Duration::from_millis(500)); // the removal waits, for a lock or in steps
    thief.run("BEGIN; ALTER SCHEMA app RENAME TO gone; ALTER SCHEMA own RENAME TO app; COMMIT");
    loader.run("COMMIT");
    let changed = change.join().map_err(|_| "no answer".to_owned())?;
    let stolen = admin.lines("TABLE stolen");
    if !stolen.is_empty() {
        return Err(format!("a trigger of the role's ran as {}", stolen[0]));
    }
    match changed {
        // With direct access and with a plan, the commit finds the cache by its OID, not by its name.
        Ok(_) => (admin.number("SELECT count(*) FROM gone.c") == 0)
            .then_some(())
            .ok_or("an old value stays".to_owned()),
        Err(error) => {
            drop(refused::<()>(Err(error), "55000"));
            Ok(())
        }
    }
}
