//! Tests that a server started with RUST_BACKTRACE reveals no more to its clients than a server without it.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;

/// Calls that fail: with errors of pgcache, with errors of Postgres that pass through pgcache, and with errors of
/// statements that pgcache runs.
const CALLS: &[(&str, &str)] = &[
    ("22004", "cache_set(NULL, 'v')"),
    ("22023", "cache_set('k', 'v', '-1 s')"),
    ("22001", "cache_set(repeat('k', 3000), 'v')"),
    ("42809", "cache_get('k', 'pg_class')"),
    ("42P01", "cache_get('k', 1::regclass)"),
    ("22P02", "cache_incr('text')"),
    ("22P02", "cache_set('k', '{', cache => 'j')"),
    ("22021", "cache_get('bytes', 'b')"),
    ("23514", "cache_set('k', 'refused', cache => 'c')"),
    ("22012", "cache_fetch('absent', 'SELECT (1 / 0)::text')"),
    ("42601", "cache_fetch('absent', 'SELEC')"),
    ("P0001", "cache_set('k', 'raised', cache => 'c')"),
    ("42P01", "pgcache.memory_entries('')"),
    ("39P01", "pgcache.record()"),
    ("42P07", "cache_create('c')"),
];

#[test]
fn no_error_shows_a_backtrace_in_any_environment_of_the_server() {
    for environment in [
        &[("RUST_BACKTRACE", "1")],
        &[("RUST_BACKTRACE", "full")],
        &[("RUST_LIB_BACKTRACE", "1")],
    ] {
        let cluster = Cluster::start_in(environment, &[]);
        let database = cluster.database();
        let mut session = database.connect();
        session.run(
            "SELECT cache_create('c'), cache_create('j', value_type => 'jsonb'), cache_create('b', value_type => 'bytea'); \
             SELECT cache_set('text', 'no number'), cache_set_bytes('bytes', '\\xff', cache => 'b'); \
             ALTER TABLE c ADD CHECK (value <> 'refused'); \
             CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no' USING DETAIL = 'its own'; END$$; \
             CREATE TRIGGER raises BEFORE INSERT ON c FOR EACH ROW WHEN (NEW.value = 'raised') EXECUTE FUNCTION raises()",
        );
        for (state, call) in CALLS {
            let error = match call.contains("memory_entries") {
                true => session.try_value(&format!(
                    "SELECT * FROM {call} AS e (key text, value text, expires_at timestamptz)"
                )),
                false => session.try_value(&format!("SELECT {call}")),
            };
            let error = refused(error, state);
            for told in [
                Some(error.message()),
                error.detail(),
                error.hint(),
                error.where_(),
            ] {
                let told = told.unwrap_or_default();
                assert!(
                    !told.contains(".rs:") && !told.contains(" at /") && !told.contains("_wrapper"),
                    "{environment:?}: {call} reveals {told}"
                );
            }
            if *state == "P0001" {
                assert_eq!(error.detail(), Some("its own"));
            }
        }
        // Simulates a defect: declares a function of the extension with the wrong arguments.
        session.run("CREATE FUNCTION broken() RETURNS text AS '$libdir/pgcache', 'cache_get_wrapper' LANGUAGE C");
        let error = session.try_value("SELECT broken()").expect_err("an error");
        let error = error.as_db_error().expect("the session survives");
        assert_eq!((error.code().code(), error.detail()), ("XX000", None));
        assert!(cluster.log_text().contains("pgcache: internal error at"));
    }
}
