//! Tests a cache whose definition changes while a function works on it. The change comes from user-defined code that
//! the function runs, or from another session. The function must return a value or an error that names the cause.
//! Afterwards the table can be read and agrees with `cache_get`.

use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::{refused, sqlstate};
use postgres::{Client, Error};

/// Triggers and functions that pgcache's functions run at various points. Each runs the statement in the setting
/// `test.change` once.
const HOOKS: &str = "
    CREATE FUNCTION change() RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE wanted text := current_setting('test.change', true);
    BEGIN
        IF wanted <> '' THEN
            PERFORM set_config('test.change', '', true), set_config('test.done', 'yes', true);
            EXECUTE wanted;
        END IF;
        RETURN true;
    END $$;
    CREATE FUNCTION loads(key text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM change(); RETURN '7'; END $$;
    CREATE FUNCTION loads_json(key text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM change(); RETURN '7'; END $$;
    CREATE FUNCTION waits(key text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock_shared(42); RETURN '7'; END $$;
    CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM change(); RETURN CASE TG_OP WHEN 'DELETE' THEN old ELSE new END; END $$;
    CREATE FUNCTION fires_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM change(); RETURN NULL; END $$;
    CREATE FUNCTION same(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM change(); RETURN t; END $$;
    CREATE FUNCTION agrees(t text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM change(); RETURN true; END $$;
    CREATE DOMAIN picky AS text CHECK (agrees(VALUE));";

/// Statements that attach a hook to a cache.
const ON_THE_CACHE: &[(&str, &str)] = &[
    ("nothing", ""),
    (
        "a trigger before each row",
        "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION fires()",
    ),
    (
        "a trigger after each row",
        "CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION fires()",
    ),
    (
        "a trigger before the statement",
        "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON c EXECUTE FUNCTION fires_once()",
    ),
    (
        "a trigger after the statement",
        "CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON c EXECUTE FUNCTION fires_once()",
    ),
    (
        "a CHECK constraint",
        "ALTER TABLE c ADD CHECK (agrees(key))",
    ),
    (
        "a generated column",
        "ALTER TABLE c ADD g text GENERATED ALWAYS AS (same(key)) STORED",
    ),
    (
        "a column's default",
        "ALTER TABLE c ADD d text; ALTER TABLE c ALTER d SET DEFAULT loads('d')",
    ),
    (
        "a domain",
        "ALTER TABLE c ADD d picky; ALTER TABLE c ALTER d SET DEFAULT 'd'",
    ),
    ("an index", "CREATE INDEX ON c (same(key))"),
    (
        "a policy over the key",
        "ALTER TABLE c ENABLE ROW LEVEL SECURITY; ALTER TABLE c FORCE ROW LEVEL SECURITY; \
      CREATE POLICY p ON c USING (agrees(key)) WITH CHECK (agrees(key))",
    ),
    (
        "a policy that is planned away",
        "ALTER TABLE c ENABLE ROW LEVEL SECURITY; ALTER TABLE c FORCE ROW LEVEL SECURITY; \
      CREATE POLICY p ON c USING (agrees('k')) WITH CHECK (agrees('k'))",
    ),
    (
        "a dependency",
        "SELECT cache_depend('source', 'same(id)', 'c')",
    ),
];

const CHANGES: &[&str] = &[
    "ALTER TABLE c ALTER value TYPE jsonb USING to_jsonb(value)",
    "ALTER TABLE c ALTER value TYPE bytea USING '\\x37'",
    "ALTER TABLE c ALTER value TYPE text USING value::text",
    "ALTER TABLE c ALTER value TYPE int USING 7",
    "ALTER TABLE c ALTER value TYPE varchar USING value::text",
    "ALTER TABLE c ALTER key TYPE int USING ascii(key)",
    "ALTER TABLE c ALTER key TYPE varchar",
    "ALTER TABLE c ALTER expires_at TYPE text",
    "ALTER TABLE c DROP COLUMN value",
    "ALTER TABLE c DROP COLUMN expires_at",
    "ALTER TABLE c DROP COLUMN value; ALTER TABLE c ADD value int",
    "ALTER TABLE c DROP COLUMN value; ALTER TABLE c ADD value jsonb",
    "ALTER TABLE c ADD e text DEFAULT 'e'",
    "ALTER TABLE c ADD e int NOT NULL DEFAULT 1",
    "ALTER TABLE c RENAME value TO v",
    "ALTER TABLE c RENAME value TO v; ALTER TABLE c ADD value jsonb",
    "ALTER TABLE c RENAME key TO k; ALTER TABLE c RENAME value TO key; ALTER TABLE c RENAME k TO value",
    "ALTER TABLE c DROP CONSTRAINT c_pkey",
    "ALTER TABLE c DISABLE TRIGGER pgcache_record",
    "DROP TRIGGER pgcache_record ON c",
    "CREATE TRIGGER no BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION fires_once()",
    "CREATE RULE no AS ON INSERT TO c DO INSTEAD NOTHING",
    "ALTER TABLE c ADD CHECK (value IS NULL) NOT VALID",
    "ALTER TABLE c OWNER TO another",
    "ALTER TABLE c ENABLE ROW LEVEL SECURITY; ALTER TABLE c FORCE ROW LEVEL SECURITY",
    "REVOKE ALL ON c FROM CURRENT_USER",
    "TRUNCATE c",
    "DELETE FROM c",
    "SELECT cache_clear('c')",
    "ALTER TABLE c SET LOGGED",
    "ALTER TABLE c RENAME TO former",
    "ALTER TABLE c RENAME TO former; SELECT cache_create('c', value_type => 'jsonb')",
    "DROP TABLE c",
    "DROP TABLE c; SELECT cache_create('c', value_type => 'bytea')",
    "DROP TABLE c; SELECT cache_create('c', storage => 'memory', value_type => 'jsonb')",
];

const CALLS: &[&str] = &[
    "cache_set('k', '8', cache => 'c')",
    "cache_set_json('new', '8', cache => 'c')",
    "cache_set_bytes('new', '8', cache => 'c')",
    "cache_set_many('{k,l,new}', '{8,8,8}', cache => 'c')",
    "cache_add('new', '8', cache => 'c')",
    "cache_replace('k', '8', cache => 'c')",
    "cache_cas('k', '5', '8', cache => 'c')",
    "cache_cas('new', NULL, '8', cache => 'c')",
    "cache_incr('k', cache => 'c')",
    "cache_incr('new', cache => 'c')",
    "cache_touch('k', '1 hour', 'c')",
    "cache_get_touch('k', '1 hour', 'c')",
    "cache_get_touch('k', cache => 'c')",
    "cache_persist('k', 'c')",
    "cache_get('k', 'c')",
    "cache_get_json('k', 'c')",
    "cache_get_bytes('k', 'c')",
    "cache_lookup('k', 'c')",
    "cache_get_many('{k,l,none}', 'c')",
    "cache_get_many_bytes('{k,l,none}', 'c')",
    "cache_scan(cache => 'c')",
    "cache_scan_bytes(cache => 'c')",
    "cache_keys(cache => 'c')",
    "cache_count('c')",
    "cache_lookup_bytes('k', 'c')",
    "cache_lookup_many('{k,l,none}', 'c')",
    "cache_lookup_many_bytes('{k,l,none}', 'c')",
    "cache_add_bytes('new', '7', cache => 'c')",
    "cache_replace_bytes('k', '7', cache => 'c')",
    "cache_cas_bytes('k', '5', '7', cache => 'c')",
    "cache_incr_existing('k', 2, 'c')",
    "cache_get_touch_bytes('k', '1 hour', 'c')",
    "cache_delete_if_bytes('k', '5', 'c')",
    "cache_take_bytes('k', 'c')",
    "cache_fetch_bytes('new', 'SELECT loads($1)', cache => 'c')",
    "cache_delete('k', 'c')",
    "cache_delete_if('k', '5', 'c')",
    "cache_delete_prefix('', 'c')",
    "cache_delete_many('{k,l}', 'c')",
    "cache_take('k', 'c')",
    "cache_rate_limit('k', 100, '1 hour', 'c')",
    "cache_rate_limit('new', 100, '1 hour', 'c')",
    "cache_expire('c')",
    "cache_clear('c')",
    "cache_fetch('new', 'SELECT loads($1)', cache => 'c')",
    "cache_fetch('new', 'SELECT loads_json($1)', cache => 'c')",
    "cache_fetch_json('k', 'SELECT loads($1)', cache => 'c')",
    "cache_fetch('expired', 'SELECT loads($1)', '1 hour', 'c')",
    "pgcache.verify('c')",
];

/// Returns the SQL expression that shows a row's value as `cache_get` does, or as text if the table is not a cache.
fn as_text(kind: &str) -> &'static str {
    match kind {
        "bytea" => "convert_from(value, 'UTF8')",
        _ => "value::text",
    }
}

/// Returns the value of a result. Returns None for an error, and checks that the error names the cause: it must not be
/// an internal error or end the session.
fn checked<T>(result: Result<T, Error>, what: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let Some(said) = error.as_db_error() else {
                panic!("{what}: the session broke: {error:?}");
            };
            let code = sqlstate(&error);
            let class = &code[..2];
            // Postgres' own message for a table that is dropped while Postgres plans a statement.
            let gone = said
                .message()
                .starts_with("could not open relation with OID");
            let bad = ["XX", "57", "58"].contains(&class) && !gone;
            assert!(!bad, "{what}: {said:?}");
            None
        }
    }
}

/// Checks that the table can be read and analyzed, and agrees with the functions.
fn is_sound(session: &mut Client, what: &str) {
    let mut ask = |sql: &str| {
        let what = format!("{what}, then {sql}");
        session.run("SAVEPOINT s");
        let lines = checked(session.try_lines(sql), &what);
        session.run("ROLLBACK TO s");
        lines
    };
    ask("ANALYZE c");
    let kind = ask("SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = to_regclass('c') AND attname = 'value'")
        .and_then(|lines| lines.first().cloned())
        .unwrap_or_default();
    let value = as_text(&kind);
    let live = "expires_at IS NULL OR expires_at > clock_timestamp()";
    let rows = format!("SELECT key, {value} FROM c WHERE {live} ORDER BY key");
    ask(&rows);
    // Entries that a changed source row invalidates are removed when the session reads the cache.
    let mut settled = |sql: &str| {
        let mut lines = ask(&format!("SELECT cache_exists('none', 'c'); {sql}"))?;
        lines.remove(0);
        Some(lines)
    };
    let Some(rows) = settled(&rows) else {
        return;
    };
    let each = "SELECT key, cache_get(key, 'c') FROM c";
    let many = "SELECT (cache_get_many(ARRAY(SELECT key FROM c), 'c')).*";
    for functions in [
        format!("{each} WHERE {live} ORDER BY key"),
        format!(
            "SELECT * FROM ({many}) AS m WHERE key IN (SELECT key FROM c WHERE {live}) ORDER BY key"
        ),
        "SELECT key, value FROM cache_scan(cache => 'c')".into(),
    ] {
        if let Some(said) = settled(&functions) {
            assert_eq!(said, rows, "{what}, then {functions}");
        }
    }
}

/// Creates a database with a role that may create objects in it.
fn stage(cluster: &'static Cluster) -> (Database<'static>, String) {
    // Postgres' own message for a table that is dropped while Postgres plans a statement.
    cluster.provokes("could not open relation with OID");
    let database = cluster.database();
    let (role, another) = (cluster.role(), cluster.role());
    let mut maker = database.connect();
    maker.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {role}; GRANT {another} TO {role}; \
         GRANT CREATE ON SCHEMA public TO {another}"
    ));
    (database, role)
}

fn cluster() -> &'static Cluster {
    Cluster::with(&[])
}

/// Opens a session of the role, with the hooks.
fn session(database: &Database, role: &str) -> Client {
    let mut session = database.connect_as(role);
    session.run("SET client_min_messages = error; SET statement_timeout = '60s'");
    session
}

fn another(session: &mut Client) -> String {
    session.text("SELECT max(rolname) FROM pg_roles WHERE pg_has_role(oid, 'MEMBER') AND rolname <> CURRENT_USER")
}

const ENTRIES: &str = "SELECT cache_set('k', '5', cache => 'c'), cache_set('l', '6', cache => 'c'), \
     cache_set('expired', '4', '1 ms', 'c'); SELECT pg_sleep(0.002)";

const KINDS: [&str; 3] = ["text", "jsonb", "bytea"];

/// Returns the statements that run the hook's code.
fn calls_of(hook: &str) -> Vec<&'static str> {
    let loads_only = hook == "nothing";
    let mut calls = CALLS.to_vec();
    calls.retain(|call| !loads_only || call.contains("loads"));
    calls
}

/// Splits the calls into the calls that this run combines with a change, and the remaining calls. The choice depends on
/// the change and on the current minute, so that runs cover all combinations over time. PGCACHE_DEFINITIONS=all
/// combines each call with each change, as `make test-all` does.
fn share<T: Copy>(calls: &[T], change_at: usize) -> (Vec<T>, Vec<T>) {
    const ONE_OF: usize = 14;
    let all = std::env::var("PGCACHE_DEFINITIONS").is_ok_and(|asked| asked == "all");
    let minutes = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs() / 60) as usize;
    let taken = |at: usize| {
        all || calls.len() < ONE_OF || (change_at + at + minutes).is_multiple_of(ONE_OF)
    };
    let (taken, left): (Vec<_>, Vec<_>) = (0..calls.len()).partition(|&at| taken(at));
    let [taken, left] = [taken, left].map(|part| part.into_iter().map(|at| calls[at]).collect());
    (taken, left)
}

/// Runs every change on a cache of one kind, under one hook, in the middle of each of the calls.
fn changes_inside(database: &Database, role: &str, kind: &str, (hook, sql): (&str, &str)) {
    let mut session = session(database, role);
    let other = another(&mut session);
    session.run(&format!(
        "SELECT cache_create('c', value_type => '{kind}'); {sql}; SET test.change = ''"
    ));
    session.run(ENTRIES);
    let source = match hook {
        "a dependency" => "INSERT INTO source VALUES ('k');",
        _ => "",
    };
    let mut came = false;
    let asserts = session.holds("SELECT current_setting('debug_assertions') = 'on'");
    for (change_at, change) in CHANGES.iter().enumerate() {
        if asserts && fails_an_assertion(hook, change) {
            continue;
        }
        let change = change.replace("another", &other);
        let mut meets = |call: &&str| {
            let what = format!("{kind}, {hook}, {change}, {call}");
            changes_in(
                &mut session,
                &change,
                &format!("{source} SELECT {call}"),
                &what,
            )
        };
        let (taken, left) = share(&calls_of(hook), change_at);
        let done = taken.iter().filter(|call| meets(call)).count();
        // If the table is in use, Postgres refuses every change. Otherwise the change must succeed in at least one
        // call.
        came |= done > 0 || !is_in_use(hook) && left.iter().any(meets);
    }
    session.run("BEGIN");
    is_sound(&mut session, hook);
    session.run("COMMIT; DROP TABLE c CASCADE");
    assert!(came || is_in_use(hook), "{hook} has changed nothing");
}

/// Returns whether the combination fails an assertion of Postgres itself, which any table can trigger: an index
/// function that is declared immutable removes the row that INSERT ... ON CONFLICT is entering into that index. Without
/// assertions this does no harm.
fn fails_an_assertion(hook: &str, change: &str) -> bool {
    hook == "an index" && change == "DELETE FROM c"
}

/// Returns whether the call made the change and succeeded. A refused call rolls the change back.
fn changes_in(session: &mut Client, change: &str, call: &str, what: &str) -> bool {
    session.run(&format!(
        "BEGIN; SET LOCAL test.done = ''; SET LOCAL test.change = $t${change}$t$"
    ));
    let done = checked(session.try_lines(call), what).is_some()
        && session.holds("SELECT current_setting('test.done') = 'yes'");
    if done {
        session.run("SET LOCAL test.change = ''");
        is_sound(session, what);
    }
    session.run("ROLLBACK");
    done
}

/// Returns whether the table is open while the hook runs, so that Postgres refuses changes by the same session.
fn is_in_use(hook: &str) -> bool {
    [
        "trigger",
        "CHECK",
        "generated",
        "default",
        "domain",
        "index",
        "over",
    ]
    .iter()
    .any(|word| hook.contains(word))
}

#[test]
fn a_definition_changes_inside_every_function() {
    let (database, role) = stage(cluster());
    let mut maker = session(&database, &role);
    maker.run(HOOKS);
    maker.run("CREATE TABLE source (id text)");
    for (at, &hook) in ON_THE_CACHE.iter().enumerate() {
        changes_inside(&database, &role, KINDS[at % KINDS.len()], hook);
    }
}

#[test]
fn a_definition_changes_inside_every_function_that_can_be_changed_under() {
    let (database, role) = stage(cluster());
    let mut maker = session(&database, &role);
    maker.run(HOOKS);
    maker.run("CREATE TABLE source (id text)");
    for &hook in ON_THE_CACHE {
        if ["nothing", "a policy that is planned away"].contains(&hook.0) {
            for kind in ["text", "bytea"] {
                changes_inside(&database, &role, kind, hook);
            }
        }
    }
}

/// The loader commits its change, so every session must be able to read the table after the fetch.
#[test]
fn a_loader_that_changes_the_cache_and_commits_leaves_a_sound_table() {
    let (database, role) = stage(cluster());
    let mut maker = session(&database, &role);
    maker.run(HOOKS);
    let other = another(&mut maker);
    for kind in KINDS {
        for (at, change) in CHANGES.iter().enumerate() {
            let storage = ["unlogged", "logged"][at % 2];
            let what = format!("{kind}, {storage}, {change}");
            make(&mut maker, storage, kind);
            let mut loading = session(&database, &role);
            loading.run("SELECT cache_get('k', 'c')");
            loading.run(&format!(
                "SET test.change = $t${}$t$",
                change.replace("another", &other)
            ));
            for loader in ["loads", "loads_json"] {
                let fetch =
                    format!("SELECT cache_fetch('{loader}', 'SELECT {loader}($1)', cache => 'c')");
                if let Some(said) = checked(loading.try_value(&fetch), &what) {
                    assert_eq!(said.as_deref(), Some("7"), "{what}");
                }
            }
            for session in [&mut loading, &mut maker] {
                session.run("BEGIN");
                is_sound(session, &what);
                session.run("ROLLBACK");
            }
        }
    }
}

fn make(maker: &mut Client, storage: &str, kind: &str) {
    maker.run("DROP TABLE IF EXISTS former CASCADE");
    if let Some(kind) = maker.value("SELECT relkind FROM pg_class WHERE oid = to_regclass('c')") {
        let drop = if kind == "v" {
            "DROP VIEW c"
        } else {
            "DROP TABLE c CASCADE"
        };
        maker.run(drop);
    }
    maker.run(&format!(
        "SELECT cache_create('c', storage => '{storage}', value_type => '{kind}'); SET test.change = ''"
    ));
    maker.run(ENTRIES);
}

/// Waits until a session of the database waits for an advisory lock.
fn wait_for_loader(session: &mut Client) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !session.holds(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event_type = 'Lock' AND wait_event = 'advisory'",
    ) {
        assert!(Instant::now() < deadline, "no loader waits");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Changes the cache in another session while a loader runs. The loading session first runs `before`, which selects how
/// the fetch stores its value.
fn changes_beside(cluster: &'static Cluster, before: &str) {
    let (database, role) = stage(cluster);
    let mut maker = session(&database, &role);
    maker.run(HOOKS);
    maker.run("SELECT cache_create('side')");
    let other = another(&mut maker);
    for (at, change) in CHANGES.iter().enumerate() {
        let kind = KINDS[at % KINDS.len()];
        // Half of the changes happen on a logged cache, which would keep a wrong value even after a crash.
        let storage = ["unlogged", "logged"][at % 2];
        let what = format!("{before:?}, {kind}, {storage}, {change}");
        make(&mut maker, storage, kind);
        maker.run("SELECT pg_advisory_lock(42)");
        let said = thread::scope(|scope| {
            let fetching = scope.spawn(|| {
                let mut loading = session(&database, &role);
                loading.run(before);
                let fetch = "SELECT cache_fetch('new', 'SELECT waits($1)', cache => 'c')";
                let said = loading.try_value(fetch);
                loading.run("COMMIT");
                said
            });
            wait_for_loader(&mut maker);
            checked(maker.try_lines(&change.replace("another", &other)), &what);
            maker.run("SELECT pg_advisory_unlock(42)");
            fetching.join().expect("the thread ends")
        });
        if let Some(said) = checked(said, &what) {
            assert_eq!(said.as_deref(), Some("7"), "{what}");
        }
        let mut fresh = session(&database, &role);
        for session in [&mut fresh, &mut maker] {
            session.run("BEGIN");
            is_sound(session, &what);
            session.run("ROLLBACK");
        }
    }
}

#[test]
fn a_definition_changes_beside_a_slow_loader() {
    changes_beside(cluster(), "SELECT cache_get('k', 'c')");
}

#[test]
fn a_definition_changes_beside_a_slow_loader_of_a_session_without_a_free_lease() {
    changes_beside(
        cluster(),
        "SELECT cache_get('k', 'c'); BEGIN; \
         SELECT count(cache_fetch('x' || i, 'SELECT 1', cache => 'side')) FROM generate_series(1, 70) AS i",
    );
}

#[test]
fn a_definition_changes_beside_a_slow_loader_without_a_tier() {
    let cluster = Cluster::with(&["pgcache.hot_size = 0"]);
    changes_beside(cluster, "SELECT cache_get('k', 'c')");
}

/// An attack that was once possible. A role with only TEMP makes a cache by hand; its loader changes the type of the
/// values to jsonb and returns a text. Postgres then read the text as jsonb, with lengths that the attacker chose.
#[test]
fn a_loader_cannot_have_its_text_read_as_json() {
    let cluster = cluster();
    let database = cluster.database();
    let mut mallory = session(&database, &cluster.role());
    mallory.run(
        "CREATE TEMP TABLE c (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz); \
         CREATE TRIGGER r AFTER INSERT OR UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION pgcache.record(); \
         CREATE FUNCTION pg_temp.loads(given text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
         ALTER TABLE c ALTER value TYPE jsonb USING value::jsonb; RETURN given; END $$",
    );
    let shapes = [
        "repeat(chr(64), 8)",
        "chr(1) || repeat(chr(16), 400)",
        "convert_from('\\x0100004001000010', 'UTF8') || 'x'",
        "repeat('x', 100000)",
    ];
    for shape in shapes
        .into_iter()
        .filter(|shape| !shape.contains("convert"))
    {
        let fetch =
            format!("SELECT cache_fetch('k', $l$SELECT pg_temp.loads({shape})$l$, cache => 'c')");
        refused(mallory.try_value(&fetch), "22P02");
        mallory.run("ANALYZE c");
    }
    assert_eq!(
        mallory.text("SELECT cache_fetch('k', $l$SELECT pg_temp.loads('[1, 2]')$l$, cache => 'c')"),
        "[1, 2]"
    );
    assert_eq!(mallory.text("SELECT value -> 1 FROM c"), "2");
    mallory.run("ANALYZE c");
}
