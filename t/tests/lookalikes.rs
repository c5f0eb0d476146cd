//! Tests objects of other roles that have the names of pgcache's own functions. pgcache's hooks see every table of
//! every database. They must not mistake these objects for pgcache's own, nor restrict any role because of them.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// Makes every change that the hooks inspect, and checks that it succeeds.
fn tables_can_be_altered(session: &mut Client, schema: &str) {
    session.run(&format!(
        "CREATE TABLE {schema}.t (i int PRIMARY KEY); CREATE TABLE {schema}.u (i int REFERENCES {schema}.t);
         TRUNCATE {schema}.u; ALTER TABLE {schema}.t ADD COLUMN j int; ALTER TABLE {schema}.t ALTER COLUMN j TYPE bigint;
         ALTER TABLE {schema}.t DROP COLUMN j; ALTER TABLE {schema}.u DISABLE TRIGGER USER; DROP TABLE {schema}.u, {schema}.t"
    ));
}

#[test]
fn a_schema_with_the_name_of_pgcache_disturbs_no_role() {
    let database = Cluster::shared().empty_database("");
    let (mallory, bob) = (database.cluster.role(), database.cluster.role());
    let mut admin = database.connect();
    admin.run(&format!(
        "CREATE SCHEMA own AUTHORIZATION {bob}; GRANT CREATE ON DATABASE {} TO {mallory}",
        database.name
    ));
    let mut mallory = database.connect_as(&mallory);
    mallory.run("CREATE SCHEMA pgcache");
    let mut bob = database.connect_as(&bob);
    tables_can_be_altered(&mut bob, "own");
    for name in [
        "record",
        "record_truncate",
        "renew_row",
        "invalidate",
        "invalidate_all",
        "depends",
        "memory_entries",
    ] {
        mallory.run(&format!(
            "CREATE FUNCTION pgcache.{name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
             CREATE FUNCTION pgcache.{name}(text) RETURNS int LANGUAGE sql AS 'SELECT 1'"
        ));
    }
    tables_can_be_altered(&mut bob, "own");
    tables_can_be_altered(&mut admin, "own");
}

#[test]
fn a_writer_of_a_source_needs_no_right_on_the_schema_of_pgcache() {
    let database = Cluster::shared().database();
    let (writer, mut admin) = (database.cluster.role(), database.connect());
    admin.run(&format!(
        "CREATE SCHEMA own AUTHORIZATION {writer}; SELECT cache_create('public.c');
         CREATE TABLE source (id text PRIMARY KEY, v int); SELECT cache_depend('source', 'id', 'c');
         GRANT ALL ON source TO {writer}; REVOKE USAGE ON SCHEMA pgcache FROM PUBLIC;
         INSERT INTO source VALUES ('k', 1); SELECT cache_set('k', 'v', cache => 'c')"
    ));
    let mut writer = database.connect_as(&writer);
    writer.run("UPDATE source SET v = 2");
    assert_eq!(admin.value("SELECT cache_get('k', 'c')"), None);
    admin.run("SELECT cache_set('k', 'v', cache => 'c')");
    writer.run("TRUNCATE source");
    assert_eq!(admin.value("SELECT cache_get('k', 'c')"), None);
    tables_can_be_altered(&mut writer, "own");
}

/// The job runs as its creator, often a superuser. So the text that pgcache writes for it must not call a function of
/// the same name in another schema.
#[test]
fn a_job_calls_the_function_of_pgcache_and_no_other_of_its_name() {
    let database = Cluster::shared().database();
    let mallory = database.cluster.role();
    let mut admin = database.connect();
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {mallory}"));
    database.connect_as(&mallory).run(
        "CREATE FUNCTION public.cache_expire() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught'; END $$;
         CREATE FUNCTION public.cache_expire(text, int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught'; END $$",
    );
    admin.run("SET cron.database_name = 'elsewhere'");
    let refusal = refused(admin.try_value("SELECT cache_schedule_expiry()"), "0A000");
    let hint = refusal.hint().expect("the hint has the command");
    let (_, from) = hint
        .split_once("'SELECT ")
        .expect("the command calls a function");
    let (call, _) = from.split_once("', '").expect("the database comes last");
    assert_eq!(
        admin.number(&format!("SELECT {}", call.replace("''", "'"))),
        0
    );
}
