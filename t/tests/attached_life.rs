//! Tests what happens to an attached table later: detach, rename, dump, partitioning and sweeps. Also tests which role
//! runs user-defined code during these commands.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::succeed;

#[test]
fn detaching_gives_the_table_back_as_it_was() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let role = Cluster::shared().role();
    session.run(&format!(
        "CREATE TABLE c (key text PRIMARY KEY, value text NOT NULL,
             expires_at timestamptz DEFAULT now() + '3 days'::interval, more int);
         CREATE INDEX ON c (expires_at);
         GRANT SELECT ON c TO {role};
         INSERT INTO c VALUES ('old', 'v', NULL, 1);"
    ));
    let definition = "SELECT array_agg((attname, atttypid, attnotnull, pg_get_expr(adbin, adrelid))::text ORDER BY attnum)
            || (SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY 1) FROM pg_index WHERE indrelid = 'c'::regclass)
            || (SELECT relacl::text FROM pg_class WHERE oid = 'c'::regclass)
            || (SELECT count(*)::text FROM pg_trigger WHERE tgrelid = 'c'::regclass)
          FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
         WHERE attrelid = 'c'::regclass AND attnum > 0";
    let before = session.text(definition);
    session.run("SELECT cache_attach('c', '1 hour')");
    session.run("INSERT INTO c (key, value) VALUES ('plain', 'v')");
    let ttl = "SELECT cache_ttl('plain', 'c') BETWEEN '58 minutes' AND '1 hour', cache_ttl('old', 'c') IS NULL";
    assert_eq!(session.lines(ttl), ["t|t"]);
    session.run("SELECT cache_alter('c', '2 hours')");
    session.run("INSERT INTO c (key, value) VALUES ('later', 'v')");
    assert!(session.holds("SELECT cache_ttl('later', 'c') > '118 minutes'"));
    session.run("SELECT cache_get('plain', 'c'), cache_detach('c')");
    assert_eq!(session.text(definition), before);
    refused(session.try_lines("SELECT cache_get('plain', 'c')"), "42809");
    session.run("UPDATE c SET value = 'changed while it was no cache'");
    session.run("SELECT cache_attach('c')");
    assert_eq!(
        session.lines("SELECT cache_get('plain', 'c')"),
        ["changed while it was no cache"]
    );
    session.run("BEGIN; SELECT cache_detach('c'); ROLLBACK");
    assert_eq!(
        session.lines("SELECT cache_get('plain', 'c')"),
        ["changed while it was no cache"]
    );
}

#[test]
fn detaching_ends_the_dependencies_of_the_cache() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text);
         CREATE TABLE source (name text);
         CREATE TABLE parted (name text) PARTITION BY LIST (name);
         CREATE TABLE part PARTITION OF parted DEFAULT;
         SELECT cache_attach('c'), cache_depend('source', 'name', 'c'), cache_depend('parted', 'name', 'c')",
    );
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%'";
    assert!(session.holds(&format!("SELECT ({triggers}) > 6")));
    session.run("BEGIN; SELECT cache_detach('c'); ROLLBACK");
    assert!(session.holds(&format!("SELECT ({triggers}) > 6")));
    session.run("SELECT cache_detach('c')");
    assert_eq!(session.lines(triggers), ["0"]);
    // If the settings of the detached cache remained, the next cache would get keys of the wrong type.
    session.run(
        "ALTER TABLE c ALTER key TYPE bigint USING key::bigint;
         SELECT cache_attach('c');
         INSERT INTO source VALUES ('no number'); TRUNCATE source;
         INSERT INTO parted VALUES ('no number')",
    );
}

#[test]
fn an_attached_table_can_become_a_partition_and_cease_to_be_one() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (gone int, id bigint PRIMARY KEY, v text, e int); ALTER TABLE c DROP gone;
         SELECT cache_attach('c', key_column => 'id', value_column => 'v', expires_column => 'e', expires_unit => 's');
         CREATE TABLE parted (id bigint, v text, e int) PARTITION BY LIST (id);
         CREATE TABLE rest PARTITION OF parted DEFAULT;
         ALTER TABLE parted ATTACH PARTITION c FOR VALUES IN (1, 2, 3);
         INSERT INTO parted VALUES (1, 'live', 0), (2, 'dead', 1), (9, 'no cache', 1)",
    );
    let all = "SELECT id, v FROM parted ORDER BY id";
    let get = "SELECT cache_get('1', 'c')";
    for path in ["auto", "plan"] {
        session.run(&format!("SET pgcache.table_path = {path}"));
        session.run("UPDATE parted SET v = 'live' WHERE id = 1; DELETE FROM parted WHERE id = 3");
        assert_eq!(session.lines(all), ["1|live", "9|no cache"], "{path}");
        assert_eq!(session.lines(get), ["live"], "{path}");
        session.run("UPDATE parted SET v = v || ' on'; SELECT cache_set('3', 'set', cache => 'c')");
        assert_eq!(session.lines(get), ["live on"], "{path}");
        assert_eq!(session.lines(all)[..2], ["1|live on", "3|set"], "{path}");
        session.run("UPDATE parted SET v = 'no cache' WHERE id = 9");
        assert_eq!(session.lines("SELECT * FROM pgcache.verify('c')"), [""; 0]);
    }
    assert_eq!(session.number("SELECT cache_expire('c')"), 1);
    session.run("ALTER TABLE parted DETACH PARTITION c; INSERT INTO c VALUES (2, 'alone', 1), (2, 'again', NULL)");
    assert_eq!(
        session.lines("SELECT id, v FROM c ORDER BY id"),
        ["1|live on", "2|again", "3|set"]
    );
    assert_eq!(session.lines(get), ["live on"]);
}

#[test]
fn another_session_serves_no_copy_of_a_detached_table() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run("CREATE TABLE c (key text PRIMARY KEY, value text)");
    session.run("SELECT cache_attach('c'), cache_set('k', 'v', cache => 'c')");
    for _ in 0..3 {
        assert_eq!(other.lines("SELECT cache_get('k', 'c')"), ["v"]);
    }
    session.run("SELECT cache_detach('c')");
    refused(other.try_lines("SELECT cache_get('k', 'c')"), "42809");
    session.run("UPDATE c SET value = 'w'; SELECT cache_attach('c')");
    assert_eq!(other.lines("SELECT cache_get('k', 'c')"), ["w"]);
}

#[test]
fn a_former_default_forged_by_the_owner_runs_as_no_other_role() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let owner = Cluster::shared().role();
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {owner}; SET ROLE {owner};
         CREATE TABLE who (name text);
         CREATE FUNCTION evil() RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN 'x'; END $$;
         CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz, other text);
         INSERT INTO c VALUES ('k', 'v');
         SELECT cache_attach('c', '1 hour');
         CREATE OR REPLACE TRIGGER pgcache_columns BEFORE UPDATE OF key, value, expires_at ON c FOR EACH STATEMENT
             EXECUTE FUNCTION pgcache.columns('default=now(), ALTER COLUMN other TYPE text USING public.evil()');
         RESET ROLE;"
    ));
    let _ = session.try_lines("SELECT cache_detach('c')");
    assert_eq!(
        session.lines("SELECT name FROM who WHERE name = 'postgres'"),
        [""; 0]
    );
    assert!(
        session
            .lines("SELECT name FROM who")
            .iter()
            .all(|name| *name == owner)
    );
}

/// In a session without the library, a role with TRIGGER on the table forges the record of the former default.
#[test]
fn a_former_default_forged_by_another_role_does_not_run_as_the_owner() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let mut session = database.connect();
    let (owner, other) = (cluster.role(), cluster.role());
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {owner}, {other}; SET ROLE {owner};
         CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz DEFAULT 'infinity');
         SELECT cache_attach('c', '1 hour'); GRANT TRIGGER ON c TO {other}; RESET ROLE;"
    ));
    let mut app = database.connect_as(&other);
    app.run(
        "CREATE TABLE who (name text); GRANT INSERT ON who TO PUBLIC;
         CREATE FUNCTION evil() RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN 'x'; END $$;
         CREATE DOMAIN trap AS text CHECK (public.evil() IS NOT NULL)",
    );
    for default in [
        "now(), ADD COLUMN other text DEFAULT public.evil()",
        "CASE WHEN ''{x}''::public.trap[] IS NULL THEN now() END",
    ] {
        let _ = app.try_lines(&format!(
            "CREATE OR REPLACE TRIGGER pgcache_columns BEFORE UPDATE OF key, value, expires_at ON c
                 FOR EACH STATEMENT EXECUTE FUNCTION pgcache.columns('default={default}')"
        ));
        session.run(&format!(
            "SET ROLE {owner}; SELECT cache_alter('c', cache_forever())"
        ));
        session.run("SELECT cache_alter('c', '1 hour'); RESET ROLE");
    }
    session.run("SELECT cache_detach('c')");
    assert_eq!(session.lines("SELECT name FROM who"), [""; 0]);
}

/// The removal of an expired row may be refused because of another role's trigger. A writer that finds no expired row
/// must not be refused.
#[test]
fn a_write_without_expired_rows_is_not_refused_for_another_roles_trigger() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let other = Cluster::shared().role();
    session.run(&format!(
        "CREATE TABLE c (key text PRIMARY KEY, value json, expires_at timestamptz);
         SELECT cache_attach('c');
         GRANT TRIGGER ON c TO {other}; GRANT CREATE ON SCHEMA public TO {other}; SET ROLE {other};
         CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
         CREATE TRIGGER theirs BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION theirs();
         RESET ROLE"
    ));
    session.run("INSERT INTO c VALUES ('live', '1', NULL), ('old', '1', '-infinity')");
    let sessions = "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    session.run(&format!("INSERT INTO c VALUES ('live', '2') {sessions}"));
    assert_eq!(session.lines("SELECT value FROM c"), ["2"]);
    let old = session.try_lines(&format!("INSERT INTO c VALUES ('old', '2') {sessions}"));
    refused(old, "42501");
}

#[test]
fn columns_are_followed_when_they_are_renamed_and_held_when_dropped() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "CREATE TABLE c (k varchar(20) PRIMARY KEY, v jsonb, e bigint NOT NULL DEFAULT 0);
         SELECT cache_attach('c', key_column => 'k', value_column => 'v', expires_column => 'e', expires_unit => 's');
         SELECT cache_set('a', '1', '1 hour', 'c');",
    );
    assert_eq!(other.lines("SELECT cache_get('a', 'c')"), ["1"]);
    session.run(
        "ALTER TABLE c RENAME k TO v2; ALTER TABLE c RENAME v TO k; ALTER TABLE c RENAME e TO \"E e\";
         ALTER TABLE c RENAME TO d;",
    );
    for path in ["auto", "plan"] {
        for session in [&mut session, &mut other] {
            session.run(&format!("SET pgcache.table_path = {path}"));
            assert_eq!(session.lines("SELECT cache_get('a', 'd')"), ["1"]);
            session
                .run("SELECT cache_set('b', '2', '1 hour', 'd'), cache_incr('b', 1, cache => 'd')");
            assert_eq!(session.lines("SELECT k FROM d WHERE v2 = 'b'"), ["3"]);
        }
    }
    for column in ["v2", "k", "\"E e\""] {
        refused(
            session.try_lines(&format!("ALTER TABLE d DROP {column}")),
            "2BP01",
        );
        let change = format!("ALTER TABLE d ALTER {column} TYPE text USING 'x'");
        refused(session.try_lines(&change), "0A000");
    }
    session.run("ALTER TABLE d DROP k CASCADE");
    refused(session.try_lines("SELECT cache_get('a', 'd')"), "42809");
    refused(
        other.try_lines("SELECT cache_set('a', '1', cache => 'd')"),
        "42809",
    );
    session.run("INSERT INTO d VALUES ('plain', 0)");
}

fn restored(original: &Database, options: &[&str]) -> Database<'static> {
    let file = original
        .cluster
        .folder
        .join(format!("{}.sql", original.name));
    let mut dump = original.cluster.program("pg_dump");
    succeed(dump.args(options).arg("-f").arg(&file).arg(&original.name));
    let copy = match options.contains(&"-t") {
        true => Cluster::shared().database(),
        false => Cluster::shared().empty_database(""),
    };
    let mut psql = original.cluster.program("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &copy.name, "-f"]);
    succeed(psql.arg(&file));
    copy
}

#[test]
fn an_attached_table_comes_back_from_a_dump() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (gone int, \"K k\" uuid PRIMARY KEY, v json, e int DEFAULT 5 * 10);
         ALTER TABLE c DROP gone;
         SELECT cache_attach('c', '1 hour', 'K k', 'v', 'e', max_entries => 100, expires_unit => 's');
         SELECT cache_set('a0eebc999c0b4ef8bb6d6bb9bd380a11', '{\"a\": 1}', cache => 'c');",
    );
    for options in [&[][..], &["-t", "c"], &["--inserts"]] {
        let copy = restored(&database, options);
        let mut session = copy.connect();
        let get = "SELECT cache_get('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'c'), cache_ttl('a0eebc999c0b4ef8bb6d6bb9bd380a11', 'c') > '58 minutes'";
        assert_eq!(session.lines(get), ["{\"a\": 1}|t"], "{options:?}");
        let settings = "SELECT ttl, max_entries FROM pgcache.caches WHERE cache = 'c'::regclass";
        assert_eq!(session.lines(settings), ["01:00:00|100"]);
        session.run("SELECT cache_detach('c'); INSERT INTO c (\"K k\") VALUES (gen_random_uuid())");
        assert_eq!(session.number("SELECT e FROM c WHERE v IS NULL"), 50);
    }
}

#[test]
fn sweeps_see_all_rows_under_forced_row_level_security() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let owner = Cluster::shared().role();
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {owner}; SET ROLE {owner};
         CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz, who text DEFAULT 'nobody');
         ALTER TABLE c ENABLE ROW LEVEL SECURITY; ALTER TABLE c FORCE ROW LEVEL SECURITY;
         CREATE POLICY p ON c USING (who = current_user) WITH CHECK (true);
         SELECT cache_attach('c');
         INSERT INTO c SELECT g, 'v', now() - interval '1 hour' FROM generate_series(1, 10) AS g;
         RESET ROLE;"
    ));
    assert_eq!(session.number("SELECT cache_expire()"), 10);
}
