//! Tests that one role cannot get another role's data or privileges through a copy in the tier, a log, or a setting.
//! SECURITY.md names these tests.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::needs::{self, Needs};
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;

#[test]
fn two_databases_with_equal_oids_never_share_an_entry() {
    let cluster = Cluster::with_tier(&[]);
    let origin = cluster.database();
    origin.connect().run(
        "SELECT cache_create('c'), cache_create('m', storage => 'memory'); SELECT cache_set('k', 'before', cache => 'c')",
    );
    let twin = cluster.empty_database(&format!("TEMPLATE {}", origin.name));
    let (mut one, mut other) = (origin.connect(), twin.connect());
    let oids = "SELECT 'c'::regclass::oid, 'm'::regclass::oid, 'pgcache.main'::regclass::oid";
    assert_eq!(
        one.lines(oids),
        other.lines(oids),
        "the test needs equal oids"
    );
    one.run("SELECT cache_set('k', 'one', cache => c) FROM unnest('{c,m,pgcache.main}'::regclass[]) AS c");
    for cache in ["c", "pgcache.main"] {
        one.heat("k", cache);
    }
    assert_eq!(
        other.value("SELECT cache_get('k', 'c')").as_deref(),
        Some("before")
    );
    assert_eq!(other.value("SELECT cache_get('k', 'm')"), None);
    assert_eq!(other.value("SELECT cache_get('k')"), None);
    other.run("SELECT cache_set('k', 'other', cache => c) FROM unnest('{c,m,pgcache.main}'::regclass[]) AS c");
    for cache in ["c", "m", "pgcache.main"] {
        for (session, value) in [(&mut one, "one"), (&mut other, "other")] {
            for _ in 0..3 {
                assert_eq!(
                    session.text(&format!("SELECT cache_get('k', '{cache}')")),
                    value,
                    "{cache}"
                );
            }
        }
    }
    other.run("SELECT cache_clear('c'), cache_clear('m'), cache_drop('m')");
    assert_eq!(
        one.lines("SELECT cache_get('k', 'c'), cache_get('k', 'm')"),
        ["one|one"]
    );
    drop(other);
    one.run(&format!("DROP DATABASE {}", twin.name));
    assert_eq!(
        one.lines("SELECT cache_get('k', 'c'), cache_get('k', 'm')"),
        ["one|one"]
    );
}

#[test]
fn set_role_and_security_definer_read_a_hot_entry_as_the_named_role() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run(
        "CREATE ROLE reader; CREATE ROLE stranger; CREATE ROLE member; GRANT reader TO member; \
         SELECT cache_create('c'); SELECT cache_set('k', 'v', cache => 'c'); GRANT SELECT ON c TO reader; \
         CREATE FUNCTION as_reader() RETURNS text LANGUAGE sql SECURITY DEFINER AS $$SELECT public.cache_get('k', 'public.c')$$; \
         CREATE FUNCTION as_caller() RETURNS text LANGUAGE sql AS $$SELECT public.cache_get('k', 'public.c')$$; \
         ALTER FUNCTION as_reader() OWNER TO reader; CREATE VIEW looking AS SELECT cache_get('k', 'c') AS v; \
         GRANT SELECT ON looking TO stranger; ALTER VIEW looking OWNER TO reader",
    );
    session.heat("k", "c");
    for (role, direct) in [("reader", true), ("stranger", false), ("member", true)] {
        session.run(&format!("SET ROLE {role}"));
        for statement in ["SELECT cache_get('k', 'c')", "SELECT as_caller()"] {
            match direct {
                true => assert_eq!(session.text(statement), "v", "{statement} as {role}"),
                false => drop(refused(session.try_value(statement), "42501")),
            }
        }
        assert_eq!(session.text("SELECT as_reader()"), "v", "as {role}");
        session.run("RESET ROLE");
    }
    // A function in a view runs as the role that reads the view. This also holds for a hot entry.
    session.run("SET ROLE stranger");
    refused(session.try_value("SELECT v FROM looking"), "42501");
    session.run("RESET ROLE");
    // The role changes within one transaction, from one statement to the next.
    session.run("BEGIN; SET LOCAL ROLE reader");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
    session.run("SAVEPOINT s; SET LOCAL ROLE stranger");
    refused(session.try_value("SELECT cache_get('k', 'c')"), "42501");
    session.run("ROLLBACK TO s");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
    session
        .run("ROLLBACK; DROP FUNCTION as_reader; DROP VIEW looking; REVOKE ALL ON c FROM reader");
    session.run("DROP ROLE reader, stranger, member");
}

#[test]
fn row_level_security_hides_entries_that_were_hot_before_it_was_enabled() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut owner, tenant) = (database.connect(), cluster.role());
    owner.run(&format!(
        "SELECT cache_create('c'); SELECT cache_set_many('{{a,b}}', '{{1,2}}', cache => 'c'); GRANT SELECT ON c TO {tenant}"
    ));
    owner.heat("a", "c");
    owner.heat("b", "c");
    let mut session = database.connect_as(&tenant);
    let all = "SELECT cache_get('a', 'c'), cache_get('b', 'c'), cache_exists('b', 'c')";
    assert_eq!(session.lines(all), ["1|2|t"]);
    owner.run(&format!("ALTER TABLE c ENABLE ROW LEVEL SECURITY; CREATE POLICY a ON c TO {tenant} USING (key = 'a')"));
    for _ in 0..3 {
        assert_eq!(session.lines(all), ["1||f"]);
        assert_eq!(
            session.lines("SELECT * FROM cache_get_many('{a,b}', 'c')"),
            ["a|1", "b|"]
        );
        assert_eq!(
            session.lines("SELECT key FROM cache_scan(cache => 'c')"),
            ["a"]
        );
        assert_eq!(session.lines("SELECT * FROM pgcache.verify('c')"), [""; 0]);
        assert_eq!(owner.lines(all), ["1|2|t"]);
    }
    owner.run("ALTER TABLE c DISABLE ROW LEVEL SECURITY");
    assert_eq!(session.lines(all), ["1|2|t"]);
    owner.heat("b", "c");
}

/// Settings that any session may change for itself, because they affect no other session.
const OF_THE_SESSION: &[&str] = &[
    "pgcache.hot_tier",
    "pgcache.fetch_wait",
    "pgcache.lease_time",
    "pgcache.show_expired",
    "pgcache.table_path",
];

#[test]
fn an_ordinary_role_changes_no_setting_but_those_of_its_own_session() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut admin, role) = (database.connect(), cluster.role());
    let mut session = database.connect_as(&role);
    // If the library was built for tests, any role may change the settings that pause a session in a window.
    let settings =
        admin.lines("SELECT name, setting, context FROM pg_settings WHERE name LIKE 'pgcache.%'");
    assert!(settings.len() >= 3, "{settings:?}");
    for setting in settings {
        let fields: Vec<&str> = setting.split('|').collect();
        let (name, value, context) = (fields[0], fields[1], fields[2]);
        if OF_THE_SESSION.contains(&name) {
            assert_eq!(context, "user", "{name}");
            continue;
        }
        assert_ne!(context, "user", "{name} can be changed by anybody");
        for attempt in [
            format!("SET {name} = '{value}'"),
            format!("SELECT set_config('{name}', '{value}', false)"),
            format!("ALTER ROLE {role} SET {name} = '{value}'"),
            format!("ALTER SYSTEM SET {name} = '{value}'"),
        ] {
            let error = session.try_value(&attempt).expect_err(&attempt);
            let state = error.code().map(|code| code.code().to_owned());
            assert!(
                matches!(state.as_deref(), Some("55P02" | "42501")),
                "{attempt}: {error:?}"
            );
        }
    }
    refused(session.try_value("SET pgcache.misspelt = 1"), "42602");
}

#[test]
fn neither_keys_nor_values_come_into_logs_and_counters() {
    let cluster = Cluster::start(&[
        "log_min_messages = debug5",
        "log_min_error_statement = panic",
        "log_parameter_max_length_on_error = 0",
        "log_statement = none",
        "log_autovacuum_min_duration = 0",
    ]);
    let database = cluster.database();
    let mut session = database.connect();
    let memory = session.holds("SELECT size > 0 FROM pgcache.hot_tier");
    session.run("SELECT cache_create('c'), cache_create('j', value_type => 'jsonb'), cache_create('b', value_type => 'bytea')");
    if memory {
        session.run("SELECT cache_create('m', storage => 'memory')");
    }
    // At a debug level the log contains the tree of each statement, so the calls must not contain the secrets as text.
    for cache in ["c", "j", "b", "m", "pgcache.stats"]
        .iter()
        .filter(|&&cache| memory || cache != "m")
    {
        for (_, needs, call) in needs::present(&mut session) {
            if matches!(needs, Needs::Elsewhere | Needs::Trigger | Needs::Owner(_)) {
                continue;
            }
            let parameters = [
                ("'k'", "current_setting('t.k')"),
                ("'1'", "current_setting('t.v')"),
                ("'n'", "current_setting('t.k')"),
            ];
            let call = parameters
                .iter()
                .fold(call.to_owned(), |call, (from, to)| call.replace(from, to));
            let call = call.replace("$c", &format!("'{cache}'"));
            // The values reach the functions through settings, because no debug level logs the value of a setting.
            for key in [
                "\"tOpSeCrEt\"".to_owned(),
                String::new(),
                "tOpSeCrEt".repeat(300),
            ] {
                session
                    .execute(
                        "SELECT set_config('t.k', $1, false), set_config('t.v', $2, false)",
                        &[&key, &"\"tOpSeCrEt\""],
                    )
                    .expect("a setting");
                let _ = session.try_value(&format!("SELECT {call}"));
            }
        }
    }
    session.run("UPDATE c SET expires_at = now(); SELECT cache_expire(); SELECT * FROM pgcache.stats; SELECT * FROM pgcache.caches");
    let figures = session.lines("SELECT s::text FROM pgcache.stats s UNION ALL SELECT c::text FROM pgcache.caches c UNION ALL SELECT t::text FROM pgcache.hot_tier t");
    assert!(!figures.concat().contains("tOpSeCrEt"), "{figures:?}");
    let log = cluster.log_text();
    assert!(log.contains("DEBUG"), "the log has no debug messages");
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("tOpSeCrEt"))
        .take(5)
        .collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn counters_and_resets_are_for_monitors_and_superusers() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut admin, role) = (database.connect(), cluster.role());
    let mut session = database.connect_as(&role);
    let figures = [
        "SELECT * FROM pgcache.stats",
        "SELECT * FROM pgcache.hot_tier",
        "SELECT * FROM pgcache.figures()",
    ];
    for statement in figures {
        refused(session.try_value(statement), "42501");
    }
    admin.run(&format!("GRANT pg_monitor TO {role}"));
    for statement in figures {
        session.run(statement);
    }
    refused(session.try_value("SELECT pgcache.reset_stats()"), "42501");
}

#[test]
fn a_copy_of_a_memory_caches_view_reads_nothing_that_its_reader_may_not() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut owner, mallory) = (database.connect(), cluster.role());
    owner.run(&format!(
        "SELECT cache_create('m', storage => 'memory'); SELECT cache_set('k', 'hidden', cache => 'm'); \
         GRANT CREATE, USAGE ON SCHEMA public TO {mallory}"
    ));
    let definition = owner.text("SELECT pg_get_viewdef('m')");
    let settings =
        owner.text("SELECT substring(pg_get_viewdef('m') FROM $$memory_entries\\('([^']*)'$$)");
    let mut session = database.connect_as(&mallory);
    session.run(&format!("CREATE VIEW spoof AS {definition}"));
    let direct = format!(
        "SELECT * FROM pgcache.memory_entries('{settings}') AS e (key text, value text, expires_at timestamptz)"
    );
    for statement in [
        "SELECT * FROM spoof",
        "SELECT * FROM m",
        "SELECT cache_get('k', 'm')",
        &direct,
    ] {
        refused(session.try_lines(statement), "42501");
    }
    // The functions treat the view as an empty cache of the view's owner.
    assert_eq!(session.value("SELECT cache_get('k', 'spoof')"), None);
    session.run("SELECT cache_set('k', 'own', cache => 'spoof')");
    assert_eq!(owner.text("SELECT cache_get('k', 'm')"), "hidden");
    assert_eq!(owner.lines("SELECT key, value FROM m"), ["k|hidden"]);
    // Dropping or clearing that view does not affect the other role's cache.
    session.run("SELECT cache_clear('spoof'), cache_drop('spoof')");
    assert_eq!(owner.text("SELECT cache_get('k', 'm')"), "hidden");
    for garbage in [
        "",
        "id=",
        "id=1",
        "garbage",
        "id=99999999999999999999999",
        "oid=1",
        "id=1 oid=4294967296",
    ] {
        refused(
            session.try_lines(&format!(
                "SELECT * FROM pgcache.memory_entries('{garbage}') AS e (key text, value text, expires_at timestamptz)"
            )),
            "42P01",
        );
    }
}

#[test]
fn a_revoke_counts_in_the_middle_of_a_transaction() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut owner, role) = (database.connect(), cluster.role());
    owner.run(&format!(
        "SELECT cache_create('c'); SELECT cache_set('k', 'v', cache => 'c'); GRANT SELECT ON c TO {role}"
    ));
    owner.heat("k", "c");
    let mut session = database.connect_as(&role);
    let get = session
        .prepare("SELECT cache_get('k', 'c')")
        .expect("it parses");
    session.run("BEGIN");
    let mut ask = || {
        session
            .query_one(&get, &[])
            .map(|row| row.get::<_, Option<String>>(0))
    };
    assert_eq!(ask().expect("allowed").as_deref(), Some("v"));
    owner.run("ALTER TABLE c ENABLE ROW LEVEL SECURITY");
    assert_eq!(ask().expect("allowed"), None);
    owner.run("ALTER TABLE c DISABLE ROW LEVEL SECURITY");
    assert_eq!(ask().expect("allowed").as_deref(), Some("v"));
    owner.run(&format!("REVOKE SELECT ON c FROM {role}"));
    let error = ask().expect_err("revoked");
    assert_eq!(error.code().map(|code| code.code()), Some("42501"));
}

/// The owner's SECURITY DEFINER function checks whether a session of an application still exists. Its caller must not
/// be able to show it expired rows.
#[test]
fn the_caller_of_a_security_definer_function_does_not_show_it_expired_rows() {
    let database = Cluster::shared().database();
    let mut owner = database.connect();
    owner.run(
        "SELECT cache_create('c', '1 hour'); INSERT INTO c VALUES ('token', 'user', '-infinity');
         CREATE FUNCTION knows(token text) RETURNS bool SECURITY DEFINER LANGUAGE sql AS
             'SELECT EXISTS (SELECT FROM public.c WHERE key = token)';
         CREATE FUNCTION renews(token text) RETURNS void SECURITY DEFINER LANGUAGE sql AS
             'INSERT INTO public.c VALUES (token, ''other'')'",
    );
    let mut caller = database.connect_as(&database.cluster.role());
    caller.run("SELECT cache_forever(); SET pgcache.show_expired = on");
    assert_eq!(caller.lines("SELECT knows('token')"), ["f"]);
    caller.run("SELECT renews('token')");
    assert_eq!(owner.lines("SELECT value FROM c"), ["other"]);
}
