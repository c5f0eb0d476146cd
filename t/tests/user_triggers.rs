//! Tests triggers that one role creates on another role's cache: they never run with the privileges of the cache's
//! owner, whichever session removes rows.

use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::readme::page;
use pgcache_tests::refusal::refused;

use pgcache_tests::wait::wait_until_within;
use postgres::Client;

const PATIENCE: Duration = Duration::from_secs(90);

/// Creates a superuser's cache `c`, and a role that has all privileges on it.
fn with_generous_owner(database: &Database) -> (Client, Client, String) {
    let role = database.cluster.role();
    let mut admin = database.connect();
    admin.run(&format!(
        "SELECT cache_create('c', max_entries => 1000000); GRANT ALL ON c TO {role}; GRANT CREATE ON SCHEMA public TO {role}"
    ));
    let app = database.connect_as(&role);
    (admin, app, role)
}

/// Creates functions of the role that make the role a superuser if they run with enough privileges.
fn with_trap(app: &mut Client, role: &str) {
    app.run(&format!(
        "CREATE FUNCTION climb() RETURNS bool LANGUAGE plpgsql IMMUTABLE AS \
         $$BEGIN PERFORM public.rise(); RETURN true; END$$; \
         CREATE FUNCTION rise() RETURNS void LANGUAGE plpgsql AS \
         $$BEGIN ALTER ROLE {role} SUPERUSER; EXCEPTION WHEN insufficient_privilege THEN END$$; \
         CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM public.rise(); RETURN OLD; END$$"
    ));
}

const TRAP: &str = "CREATE TRIGGER trap AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION spring()";

fn put_expired(admin: &mut Client) {
    admin.run("SELECT cache_set('old', '1', '1 ms', 'c'), pg_sleep(0.01)");
}

fn is_superuser(admin: &mut Client, role: &str) -> bool {
    admin.holds(&format!(
        "SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'"
    ))
}

#[test]
fn the_worker_skips_and_reports_a_cache_with_another_roles_trigger() {
    let cluster = Cluster::with_tier(&["pgcache.expire_interval = '300ms'"]);
    let database = cluster.database();
    let (mut admin, mut app, role) = with_generous_owner(&database);
    with_trap(&mut app, &role);
    app.run(TRAP);
    put_expired(&mut admin);
    let told =
        format!("trigger \"trap\" would run code of role \"{role}\" as the owner of cache \"c\"");
    wait_until_within(PATIENCE, "a warning", || {
        is_superuser(&mut admin, &role) || cluster.log_text().contains(&told)
    });
    assert!(!is_superuser(&mut admin, &role));
    let log = cluster.log_text();
    assert!(
        log.contains("could not remove expired entries of cache \"c\""),
        "{log}"
    );
    assert!(
        log.contains("HINT:  Drop the trigger and revoke TRIGGER"),
        "{log}"
    );
    admin.run("SELECT cache_create('d'); SELECT cache_set('old', '1', '1 ms', 'd')");
    wait_until_within(PATIENCE, "a sweep of another cache", || {
        admin.number("SELECT count(*) FROM d") == 0
    });
    admin.run("DROP TRIGGER trap ON c");
    wait_until_within(PATIENCE, "a sweep after the trigger has gone", || {
        admin.number("SELECT count(*) FROM c AS pgcache_c") == 0
    });
    assert!(!is_superuser(&mut admin, &role));
}

#[test]
fn a_refused_removal_names_the_role_of_the_trigger() {
    let database = Cluster::shared().database();
    let (mut admin, mut app, role) = with_generous_owner(&database);
    with_trap(&mut app, &role);
    let deleter = database.cluster.role();
    admin.run(&format!(
        "CREATE TABLE source (k text); GRANT ALL ON source TO {deleter}; SELECT cache_depend('source', 'k', 'c'); \
         GRANT DELETE ON c TO {deleter}"
    ));
    app.run(TRAP);
    app.run(
        "CREATE TRIGGER emptied BEFORE TRUNCATE ON c FOR EACH STATEMENT EXECUTE FUNCTION spring()",
    );
    let mut session = database.connect_as(&deleter);
    for call in [
        "SELECT cache_delete('old', 'c')",
        "SELECT cache_delete_many('{old}', 'c')",
        "SELECT cache_delete_prefix('ol', 'c')",
        "SELECT cache_expire('c')",
        "INSERT INTO source VALUES ('old')",
        "TRUNCATE source",
    ] {
        put_expired(&mut admin);
        let error = refused(session.try_lines(call), "42501");
        let told = ["trap", "emptied"].map(|trigger| {
            format!("trigger \"{trigger}\" would run code of role \"{role}\" as the owner of cache \"c\"")
        });
        assert!(
            told.iter().any(|t| t == error.message()),
            "{call}: {error:?}"
        );
        let hint = error.hint().unwrap_or_default();
        assert!(
            page("docs/reference.md").contains(&format!("| {hint} |")),
            "{hint}"
        );
        assert_eq!(
            admin.number("SELECT count(*) FROM c AS pgcache_c"),
            1,
            "{call}"
        );
        assert!(!is_superuser(&mut admin, &role), "{call}");
    }
    // A sweep over all caches only warns about this cache, even if its owner calls it, because the call does not name
    // the cache.
    session.run("SELECT cache_expire()");
    admin.run("SELECT cache_expire()");
    assert_eq!(admin.number("SELECT count(*) FROM c AS pgcache_c"), 1);
    assert!(!is_superuser(&mut admin, &role));
    // pgcache still does not trust a function that could be altered between the check and the call.
    app.run("ALTER FUNCTION spring() SECURITY DEFINER");
    refused(
        session.try_lines("SELECT cache_delete('old', 'c')"),
        "42501",
    );
    // In a call by the role itself, triggers fire as in the role's DELETE.
    assert!(app.holds("SELECT cache_delete('old', 'c') IS NOT NULL"));
    assert!(!is_superuser(&mut admin, &role));
    admin.run(
        "CREATE OR REPLACE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN OLD; END$$; \
         ALTER FUNCTION spring() OWNER TO CURRENT_USER",
    );
    put_expired(&mut admin);
    session.run("INSERT INTO source VALUES ('old')");
    assert_eq!(admin.number("SELECT count(*) FROM c AS pgcache_c"), 0);
}

/// Even if a trigger's function is harmless, its condition, and the key expression of a dependency, are evaluated as
/// the role that removes the row.
#[test]
fn a_condition_that_may_run_anything_counts_as_user_defined_code() {
    let database = Cluster::shared().database();
    let (mut admin, mut app, role) = with_generous_owner(&database);
    with_trap(&mut app, &role);
    admin.run(
        "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN OLD; END$$",
    );
    app.run(
        "CREATE DOMAIN guarded AS text CHECK (public.climb()); SELECT cache_create('theirs'); GRANT ALL ON theirs TO PUBLIC",
    );
    for condition in [
        "climb()",
        "query_to_xml('SELECT public.climb()', true, true, '') IS NOT NULL",
        "cache_fetch('k', 'SELECT public.climb()', cache => 'theirs') IS NOT NULL",
        "OLD.key::guarded IS NOT NULL",
        "domain_in(textout(OLD.key), 'guarded'::regtype, -1) IS NOT NULL",
        "climb() OR pgcache.depends('theirs', OLD.key)",
        "true OR pgcache.depends('theirs', OLD.key || climb())",
    ] {
        let function = match condition.contains("depends") {
            true => "pgcache.invalidate",
            false => "quiet",
        };
        // If the library is loaded, only the owner can create one of pgcache's triggers, because that trigger may also
        // call a user-defined function.
        let maker = match function {
            "quiet" => &mut app,
            _ => &mut admin,
        };
        maker.run(&format!(
            "CREATE TRIGGER trap AFTER DELETE ON c FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {function}()"
        ));
        put_expired(&mut admin);
        admin.run("SELECT cache_expire()");
        assert!(!is_superuser(&mut admin, &role), "{condition}");
        assert_eq!(
            admin.number("SELECT count(*) FROM c AS pgcache_c"),
            1,
            "{condition}"
        );
        let deleter = database.cluster.role();
        admin.run(&format!("GRANT DELETE ON c TO {deleter}"));
        let mut session = database.connect_as(&deleter);
        let error = refused(
            session.try_lines("SELECT cache_delete('old', 'c')"),
            "42501",
        );
        assert_eq!(
            error.message(),
            "condition of trigger \"trap\" may run code of any role as the owner of cache \"c\""
        );
        let hint = error.hint().unwrap_or_default();
        assert!(
            page("docs/reference.md").contains(&format!("| {hint} |")),
            "{hint}"
        );
        admin.run("DROP TRIGGER trap ON c");
    }
}

#[test]
fn triggers_of_the_owner_of_a_member_and_of_a_superuser_run_as_ever() {
    let database = Cluster::shared().database();
    let (owner, member) = (database.cluster.role(), database.cluster.role());
    let mut admin = database.connect();
    admin.run(&format!(
        "GRANT {owner} TO {member}; GRANT CREATE ON SCHEMA public TO {owner}, {member}; \
         CREATE TABLE seen (what text, by name DEFAULT current_user); GRANT ALL ON seen TO PUBLIC"
    ));
    let mut session = database.connect_as(&owner);
    session.run("SELECT cache_create('c'), cache_create('reader'); SELECT cache_depend('c', 'concat(''c:'', lower(key))', 'reader')");
    for (role, name) in [
        (Some(&owner), "own"),
        (Some(&member), "of_member"),
        (None, "of_superuser"),
    ] {
        let mut maker = role.map_or_else(|| database.connect(), |role| database.connect_as(role));
        maker.run(&format!(
            "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN INSERT INTO public.seen VALUES ('{name}'); RETURN OLD; END$$; \
             GRANT EXECUTE ON FUNCTION {name}() TO PUBLIC"
        ));
        session.run(&format!(
            "CREATE TRIGGER {name} AFTER DELETE ON c FOR EACH ROW \
             WHEN (OLD.key LIKE 'o%' AND OLD.expires_at < now() AND pg_trigger_depth() = 0) EXECUTE FUNCTION {name}()"
        ));
    }
    session.run("INSERT INTO c VALUES ('old', '1', '-infinity'); SELECT cache_set('c:old', '1', cache => 'reader')");
    assert_eq!(admin.number("SELECT cache_expire()"), 1);
    let seen = admin.lines("SELECT what, by FROM seen ORDER BY what");
    let wanted = ["of_member", "of_superuser", "own"].map(|name| format!("{name}|{owner}"));
    assert_eq!(seen, wanted);
    assert!(admin.holds("SELECT NOT cache_exists('c:old', 'reader')"));
}

/// Postgres lets a role with TRIGGER create triggers and replace existing triggers.
#[test]
fn only_its_owner_makes_a_table_a_cache_or_says_how() {
    let database = Cluster::hot().database();
    let role = database.cluster.role();
    let mut admin = database.connect();
    admin.run(&format!(
        "SELECT cache_create('c'); ALTER TABLE c ADD COLUMN note text, ADD COLUMN made timestamptz DEFAULT now();
         CREATE TABLE plain (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz);
         INSERT INTO plain VALUES ('k', 'v', '-infinity'); GRANT TRIGGER ON c, plain TO {role};
         GRANT CREATE ON SCHEMA public TO {role}; GRANT DELETE ON c TO PUBLIC"
    ));
    let mut app = database.connect_as(&role);
    app.run(
        "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
         CREATE TRIGGER theirs AFTER INSERT OR UPDATE OR DELETE ON plain FOR EACH ROW EXECUTE FUNCTION theirs()",
    );
    let rows =
        "AFTER INSERT OR UPDATE OR DELETE ON plain FOR EACH ROW EXECUTE FUNCTION pgcache.record()";
    for trigger in [
        &format!("CREATE TRIGGER r {rows}"),
        &format!("CREATE OR REPLACE TRIGGER theirs {rows}"),
        "CREATE OR REPLACE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON c
             FOR EACH ROW EXECUTE FUNCTION pgcache.record('max_entries=1')",
        "CREATE TRIGGER a BEFORE TRUNCATE ON c FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate()",
        "CREATE TRIGGER a BEFORE UPDATE OF key, note, made ON c FOR EACH STATEMENT EXECUTE FUNCTION pgcache.columns()",
        "CREATE TRIGGER d AFTER INSERT ON plain FOR EACH ROW
             WHEN (true OR pgcache.depends('c'::regclass, new.key)) EXECUTE FUNCTION pgcache.invalidate()",
        "CREATE TRIGGER d BEFORE TRUNCATE ON plain FOR EACH STATEMENT
             WHEN (true OR pgcache.depends('c'::regclass, '')) EXECUTE FUNCTION pgcache.invalidate_all()",
    ] {
        let error = refused(app.try_lines(trigger), "42501");
        assert!(error.message().starts_with("must be owner of table"), "{error:?}");
        assert_eq!(app.number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'plain'::regclass"), 1);
    }
    admin.run(&format!("CREATE TRIGGER r {rows}"));
    assert_eq!(admin.number("SELECT count(*) FROM plain"), 0);
}
