//! Tests pg_upgrade to the server that `make upgrade-check` names. Everything that pg_upgrade transfers, unlogged
//! entries included, must work on the new server as it did on the old server.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::assert_lines::assert_lines;
use pgcache_tests::catalog::CATALOG;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::database::Database;
use pgcache_tests::dump_contents::{CACHES, answers, check_works, contents};
use pgcache_tests::stage::Stage;
use pgcache_tests::tier::{PRELOAD, Tiered};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

/// The control: an ordinary table must be the same on both servers. If this test fails, the difference does not come
/// from pgcache.
#[test]
#[ignore = "needs a second server: make upgrade-check names one"]
fn servers_agree_on_a_table_of_anybodys() {
    let plain = ["shared_preload_libraries = ''"];
    let old = Cluster::start(&plain);
    let mut session = old.connect("postgres");
    session.run("CREATE UNLOGGED TABLE plain (n int PRIMARY KEY); INSERT INTO plain VALUES (1)");
    drop(session);
    old.down(Shutdown::Fast);
    let new = old.upgraded(&Stage::other(), &[], &plain);
    new.up();
    let mut session = new.connect("postgres");
    assert_eq!(session.lines("SELECT n FROM plain"), ["1"]);
}

/// The servers that pg_upgrade starts must not sweep. If one did, it would with this setting soon remove the expired
/// row of the contents.
const SWEEPS: &str = "pgcache.expire_interval = '100ms'";
const NO_SWEEPS: &str = "pgcache.expire_interval = 0";

/// Additional objects: some need the tier, some depend on other tables or on the database.
const MORE: &str = r"
    SELECT cache_create('quick', '1 hour', 'memory', 'jsonb', 100), cache_create('pages', storage => 'logged');
    SELECT cache_set_json('m', '[1]', cache => 'quick'), cache_set('g:1', 'page', cache => 'pages');
    CREATE TABLE goods (id int PRIMARY KEY, name text);
    INSERT INTO goods VALUES (1, 'cup'), (2, 'pot');
    SELECT cache_depend('goods', $$'g:' || id$$, 'pages'), cache_depend('goods', $$'g:' || id$$, 'quick');
    DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET pgcache.lease_time = %L', current_database(), '3s'); END $$;
";
/// Queries for the settings of memory caches and of dependencies.
const MORE_DEFINITIONS: &[&str] = &[
    "SELECT 'quick'::regclass::oid, substring(pg_get_viewdef('quick') FROM 'memory_entries.*')",
    "SHOW pgcache.lease_time",
];

fn whole_contents(session: &mut Client) -> Vec<String> {
    [contents(session), answers(session, MORE_DEFINITIONS)].concat()
}

/// The old cluster, which is stopped, and its one database: the name, the contents, and the channel of `plain`.
struct Old {
    cluster: Cluster,
    name: String,
    contents: Vec<String>,
    channel: String,
}

fn old_cluster() -> Old {
    let cluster = Cluster::own(&[PRELOAD]);
    let name = cluster.database().name.clone();
    let mut session = cluster.connect(&name);
    session.run(&format!("{CACHES}{MORE}"));
    let channel = session.text("SELECT cache_watch('plain')");
    drop(session);
    let contents = whole_contents(&mut cluster.connect(&name));
    cluster.configure(&[SWEEPS]);
    cluster.down(Shutdown::Fast);
    Old {
        cluster,
        name,
        contents,
        channel,
    }
}

fn check_definitions_and_entries(new: &Database, old: &Old) {
    let mut session = new.connect();
    assert_lines(&whole_contents(&mut session), &old.contents, "upgraded");
    let fresh = new.cluster.database();
    let should_be = fresh.connect().lines(CATALOG);
    assert_lines(&session.lines(CATALOG), &should_be, "the extension");
}

fn check_copies(session: &mut Client) {
    assert_eq!(session.text("SELECT count(*) FROM quick"), "0");
    session.run("SELECT cache_set_json('m', '[2]', cache => 'quick')");
    assert_eq!(session.text("SELECT cache_get('m', 'quick')"), "[2]");
    for cache in ["plain", "pages", "pgcache.main"] {
        session.run(&format!(
            "SELECT cache_set('hot', '1', '1 hour', '{cache}')"
        ));
        assert_eq!(session.heat("hot", cache).as_deref(), Some("1"));
        session.run(&format!("UPDATE {cache} SET value = '2' WHERE key = 'hot'"));
        assert_eq!(session.agrees("hot", cache).as_deref(), Some("2"));
        session.run(&format!("DELETE FROM {cache} WHERE key = 'hot'"));
        assert_eq!(session.agrees("hot", cache), None);
    }
}

fn check_dependencies(session: &mut Client) {
    session.run("SELECT cache_set_json('g:1', '1', cache => 'quick')");
    assert_eq!(session.heat("g:1", "pages").as_deref(), Some("page"));
    session.run("UPDATE goods SET name = 'mug' WHERE id = 1");
    for cache in ["pages", "quick"] {
        assert_eq!(
            session.value(&format!("SELECT cache_get('g:1', '{cache}')")),
            None,
            "{cache}"
        );
    }
}

fn check_notifications(new: &Database, channel: &str) {
    let mut watcher = new.connect();
    watcher.run(&format!("LISTEN {channel}"));
    new.connect()
        .run("SELECT cache_set('told', '1', cache => 'plain')");
    let mut notifications = watcher.notifications();
    let told = notifications.timeout_iter(Duration::from_secs(60)).next();
    let told = told
        .expect("the connection holds")
        .expect("a notification arrives");
    assert_eq!(told.payload(), r#"{"op": "set", "key": "told"}"#);
}

fn check_sweeps(new: &Database) {
    new.cluster.configure(&[SWEEPS]);
    new.cluster.restart(Shutdown::Fast);
    let mut session = new.connect();
    let deadline = Instant::now() + Duration::from_secs(90);
    while session.holds("SELECT EXISTS (SELECT FROM plain WHERE key = 'expired')") {
        assert!(Instant::now() < deadline, "no worker sweeps");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(session.text("SELECT cache_get('in main')"), "v");
}

/// Checks after a crash that caches whose files were transferred are still unlogged.
fn check_crash(new: &Database) {
    new.cluster.restart(Shutdown::Immediate);
    let mut session = new.connect();
    for (cache, rows) in [("shop.products", 0), ("plain", 0), ("\"Odd name\"", 1)] {
        assert_eq!(
            session.number(&format!("SELECT count(*) FROM {cache}")),
            rows,
            "{cache}"
        );
    }
}

fn check_upgrade(options: &[&str], conf: &[&str]) {
    let old = old_cluster();
    let cluster = old.cluster.upgraded(&Stage::other(), options, conf);
    cluster.configure(&[PRELOAD, NO_SWEEPS]);
    cluster.up();
    let new = Database {
        cluster: &cluster,
        name: old.name.clone(),
    };
    check_definitions_and_entries(&new, &old);
    check_copies(&mut new.connect());
    check_dependencies(&mut new.connect());
    check_works(&mut new.connect());
    check_notifications(&new, &old.channel);
    check_sweeps(&new);
    check_crash(&new);
}

#[test]
#[ignore = "needs a second server: make upgrade-check names one"]
fn pg_upgrade_keeps_settings_and_entries_and_all_works_on_the_new_server() {
    check_upgrade(&[], &[PRELOAD, SWEEPS]);
}

#[test]
#[ignore = "needs a second server: make upgrade-check names one"]
fn pg_upgrade_may_link_files_and_needs_no_preload_for_itself() {
    check_upgrade(&["--link"], &["shared_preload_libraries = ''"]);
}

/// The extension is older than the library, which must need no preparation before pg_upgrade.
#[test]
#[ignore = "needs a second server: make upgrade-check names one"]
fn an_old_extension_goes_through_pg_upgrade_and_is_updated_afterwards() {
    let old = Cluster::with_tier(&[]);
    let mut session = old.connect("postgres");
    session.run("CREATE EXTENSION pgcache VERSION '0.1.0'");
    session.run("SELECT cache_create('c', '1 hour'); SELECT cache_set('k', 'v', cache => 'c')");
    drop(session);
    old.down(Shutdown::Fast);
    let cluster = old.upgraded(&Stage::other(), &[], &[PRELOAD]);
    cluster.up();
    let mut session = cluster.connect("postgres");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
    session.run("ALTER EXTENSION pgcache UPDATE");
    assert_eq!(session.heat("k", "c").as_deref(), Some("v"));
    let fresh = cluster.database();
    assert_lines(
        &session.lines(CATALOG),
        &fresh.connect().lines(CATALOG),
        "the extension",
    );
}
