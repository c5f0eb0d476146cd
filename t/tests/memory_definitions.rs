//! Tests memory caches as relations: CREATE, DROP, dumps and privileges, also on servers without a hot tier.

use std::process::Stdio;
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::succeed;
use pgcache_tests::tier::Tiered;

use crate::memory_caches::{CREATE, with_cache};

#[test]
fn dropping_it_or_rolling_back_its_creation_frees_all() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    for end in [
        "COMMIT; DROP VIEW m",
        "COMMIT; SELECT cache_drop('m')",
        "ROLLBACK",
    ] {
        session.run(&format!("BEGIN; {CREATE}"));
        session
            .run("SELECT cache_set('k' || i, 'v', cache => 'm') FROM generate_series(1, 100) AS i");
        session.run(end);
        assert_eq!(
            session.number("SELECT entries FROM pgcache.hot_tier"),
            0,
            "{end}"
        );
    }
    session.run(&format!("BEGIN; SAVEPOINT s; {CREATE}"));
    session.run("SELECT cache_set('k', 'v', cache => 'm'); ROLLBACK TO s; COMMIT");
    session.run(CREATE);
    assert_eq!(session.value("SELECT cache_get('k', 'm')"), None);
    session.sums_up();
}

/// The cache is dropped in the middle of a writer's statement, before the writer receives the message about the drop.
#[test]
fn a_writer_that_has_not_seen_the_drop_leaves_nothing_behind() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let (mut writer, mut other) = (database.connect(), database.connect());
    other.run(CREATE);
    thread::scope(|scope| {
        scope.spawn(|| {
            // This statement takes 0.7 s.
            let set = "SELECT count(cache_set('k' || i % 9, 'v', cache => 'm')), count(pg_sleep(0.001)) \
                       FROM generate_series(1, 700) AS i";
            let _ = writer.try_value(set);
        });
        thread::sleep(std::time::Duration::from_millis(250));
        other.run("SELECT cache_drop('m')");
    });
    assert_eq!(other.number("SELECT entries FROM pgcache.hot_tier"), 0);
}

#[test]
fn a_dump_carries_its_settings_and_no_entries() {
    let cluster = Cluster::hot();
    let (database, empty) = (cluster.database(), cluster.empty_database(""));
    let mut session = database.connect();
    session.run("SELECT cache_create('m', '1 hour', 'memory', 'jsonb', max_entries => 7)");
    session.run("SELECT cache_set('k', '1', cache => 'm')");
    let mut dump = cluster.program("pg_dump");
    let dump = succeed(dump.args(["-d", &database.name]));
    let file = cluster.folder.join("memory.sql");
    std::fs::write(&file, dump.stdout).expect("the folder is writable");
    let mut psql = cluster.program("psql");
    succeed(
        psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &empty.name, "-f"])
            .arg(&file)
            .stdin(Stdio::null()),
    );
    let settings = "SELECT * FROM pgcache.caches WHERE cache = 'm'::regclass";
    let mut restored = empty.connect();
    assert_eq!(restored.lines(settings), session.lines(settings));
    assert_eq!(restored.value("SELECT cache_get('k', 'm')"), None);
    restored.run("SELECT cache_set('k', '2', cache => 'm')");
    assert_eq!(session.text("SELECT cache_get('k', 'm')"), "1");
    assert_eq!(restored.lines("SELECT value FROM m"), ["2"]);
}

#[test]
fn the_view_of_a_memory_cache_shows_entries_to_roles_with_the_privilege() {
    let database = with_cache();
    let (reader, thief) = (database.cluster.role(), database.cluster.role());
    let mut owner = database.connect();
    owner.run("SELECT cache_set('k', 'secret', cache => 'm')");
    owner.run(&format!(
        "GRANT SELECT ON m TO {reader}; GRANT CREATE ON SCHEMA public TO {thief}"
    ));
    let mut reader = database.connect_as(&reader);
    assert_eq!(reader.lines("SELECT key, value FROM m"), ["k|secret"]);
    assert_eq!(reader.text("SELECT cache_get('k', 'm')"), "secret");
    refused(
        reader.try_value("SELECT cache_set('k', '1', cache => 'm')"),
        "42501",
    );
    let mut thief = database.connect_as(&thief);
    let definition = owner.text("SELECT pg_get_viewdef('m'::regclass)");
    thief.run(&format!("CREATE VIEW copied AS {definition}"));
    refused(thief.try_value("SELECT * FROM copied"), "42501");
    refused(thief.try_value("SELECT * FROM m"), "42501");
    refused(thief.try_value("SELECT cache_get('k', 'm')"), "42501");
}

#[test]
fn without_preload_the_error_names_the_setting_and_the_file() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let database = cluster.database();
    let mut session = database.connect();
    let mut hints = Vec::new();
    for call in [
        "cache_create('m', storage => 'memory')",
        "cache_get('k', 'm')",
        "cache_set('k', '1', cache => 'm')",
    ] {
        match session.try_value(&format!("SELECT {call}")) {
            Ok(_) => continue, // a memory cache may be declared on a server that cannot use it
            Err(error) if error.code().is_some_and(|code| code.code() == "42P01") => continue,
            error => hints.push(
                refused(error, "55000")
                    .hint()
                    .unwrap_or_default()
                    .to_owned(),
            ),
        }
    }
    assert!(!hints.is_empty());
    for hint in hints {
        assert!(
            hint.contains("shared_preload_libraries") && hint.contains("postgresql.conf"),
            "{hint}"
        );
    }
}
