//! Follows the instructions of docs/emergency.md by running the statements of the page's code blocks.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::readme;
use pgcache_tests::refusal::refused;
use pgcache_tests::resp::{Door, Reply};
use pgcache_tests::stage::succeed;
use pgcache_tests::tier::{PRELOAD, Tiered};
use pgcache_tests::wait::wait_until;
use postgres::Client;

/// Returns the block of the page that contains these words.
fn block(words: &str) -> String {
    let blocks = readme::examples(&readme::page("docs/emergency.md"));
    let found = blocks.into_iter().find(|block| block.sql.contains(words));
    found.expect("the page has this block").sql
}

/// Runs a block with psql.
fn run_in_psql(cluster: &Cluster, block: &str) {
    let file = cluster.folder.join("block.sql");
    std::fs::write(&file, block).expect("the folder is writable");
    let mut psql = cluster.program("psql");
    succeed(
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-f"])
            .arg(&file),
    );
}

#[test]
fn the_copies_of_one_cache_are_turned_off() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c'), cache_create('other')");
    for cache in ["c", "other"] {
        session.run(&format!("SELECT cache_set('k', '1', cache => '{cache}')"));
        session.heat("k", cache);
    }
    let get = "SELECT cache_get('k', 'c')";
    session.run("ALTER TABLE c ENABLE TRIGGER pgcache_record");
    let before = session.hot_hits("c");
    for _ in 0..3 {
        assert_eq!(session.text(get), "1");
    }
    assert_eq!(session.hot_hits("c"), before);
    session.heat("k", "other");
    session.run("SET session_replication_role = replica; UPDATE c SET value = '2'");
    session.run("RESET session_replication_role");
    assert_eq!(session.text(get), "2");
    session.run("ALTER TABLE c ENABLE ALWAYS TRIGGER pgcache_record");
    session.heat("k", "c");
    assert_eq!(session.text(get), "2");
    session.verified("c");
    assert_eq!(session.lines(&block("pgcache.verify")), [""; 0]);
}

#[test]
fn a_cache_is_detached_and_attached_again() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c'); SELECT cache_set('k', '1', cache => 'c')");
    session.heat("k", "c");
    session.run("SELECT cache_detach('c')");
    refused(session.try_lines("SELECT cache_get('k', 'c')"), "42809");
    session.run("UPDATE c SET value = '2'");
    session.run("SELECT cache_attach('c')");
    assert_eq!(session.text("SELECT cache_get('k', 'c')"), "2");
    session.heat("k", "c");
    session.verified("c");
}

#[test]
fn the_protocol_alone_is_turned_off() {
    let door = Door::start(&["pgcache.resp_caches = 'public.m'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT cache_create('m', storage => 'memory')");
    let mut client = door.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), Reply::status("OK"));
    session.run("ALTER SYSTEM SET pgcache.resp_caches = ''");
    session.run("SELECT pg_reload_conf()");
    wait_until("commands are refused", || {
        matches!(client.ask(&["GET", "a"]), Reply::Error(_))
    });
    assert_eq!(session.text("SELECT cache_get('a', 'm')"), "1");
    session.run("ALTER SYSTEM RESET pgcache.resp_caches");
    session.run("SELECT pg_reload_conf()");
    wait_until("commands are served", || {
        client.ask(&["GET", "a"]) == Reply::bulk("1")
    });
}

/// A source, a table cache and a memory cache that depend on it, an attached table, and a plain table.
const SCENE: &str = "
    CREATE EXTENSION pgcache;
    CREATE TABLE src (id int PRIMARY KEY, v text);
    CREATE TABLE plain (id int);
    INSERT INTO src VALUES (1, 'one');
    SELECT cache_create('d', ttl => '1 hour'), cache_create('m', storage => 'memory');
    SELECT cache_tune('d', reserve => 100000), cache_tune('m', reserve => 100000);
    SELECT cache_depend('src', 'id::text', 'd'), cache_depend('src', 'id::text', 'm');
    CREATE TABLE others (id text PRIMARY KEY, body text, until timestamptz);
    SELECT cache_attach('others', key_column => 'id', value_column => 'body', expires_column => 'until');";

const FETCH: &str = "SELECT cache_fetch('1', 'SELECT v FROM src WHERE id = $1::int', cache => 'd')";
const LOST: &str = "UPDATE pg_proc SET probin = '$libdir/gone' WHERE probin = '$libdir/pgcache'";
const FOUND: &str = "UPDATE pg_proc SET probin = '$libdir/pgcache' WHERE probin = '$libdir/gone'";

/// Returns a server that lacks the library, and a session on it: the extension's functions name a file that does not
/// exist.
fn without_library() -> (Cluster, Client) {
    let cluster = Cluster::own(&[PRELOAD]);
    let mut session = cluster.connect("postgres");
    session.run(SCENE);
    session.run(FETCH);
    session.run("INSERT INTO d VALUES ('dead', 'v', now() - interval '1 second')");
    assert_eq!(session.number("SELECT count(*) FROM d"), 1);
    session.run(LOST);
    drop(session);
    cluster.down(Shutdown::Fast);
    cluster.configure(&["shared_preload_libraries = ''"]);
    cluster.up();
    let mut session = cluster.connect("postgres");
    for write in [
        "INSERT INTO src VALUES (2, 'two')",
        "UPDATE src SET v = 'new'",
        "TRUNCATE src",
        "INSERT INTO d VALUES ('a', 'b')",
        "INSERT INTO others VALUES ('a', 'b')",
        "SELECT * FROM m",
        "SELECT cache_get('1', 'd')",
    ] {
        refused(session.try_lines(write), "58P01");
    }
    session.run("INSERT INTO plain VALUES (1)");
    assert_eq!(session.text("SELECT v FROM src"), "one");
    assert_eq!(session.number("SELECT count(*) FROM d"), 2);
    (cluster, session)
}

#[test]
fn without_the_library_triggers_are_turned_off_and_on_again() {
    let (cluster, mut session) = without_library();
    run_in_psql(&cluster, &block("DISABLE TRIGGER"));
    session.run("UPDATE src SET v = 'new'; INSERT INTO src VALUES (2, 'two')");
    session.run("INSERT INTO d VALUES ('a', 'b'); INSERT INTO others VALUES ('a', 'b')");
    session.run(FOUND);
    drop(session);
    cluster.down(Shutdown::Fast);
    cluster.configure(&[PRELOAD]);
    cluster.up();
    run_in_psql(&cluster, &block("ENABLE %s TRIGGER"));
    let mut session = cluster.connect("postgres");
    assert_eq!(session.number("SELECT count(*) FROM d"), 0);
    for value in ["new", "newer"] {
        session.run(&format!("UPDATE src SET v = '{value}' WHERE id = 1"));
        for _ in 0..2 {
            assert_eq!(session.text(FETCH), value);
            assert_eq!(session.text(&FETCH.replace("'d'", "'m'")), value);
        }
    }
    session.run("SELECT cache_set('a', 'c', cache => 'others')");
    session.heat("a", "others");
    session.verified("others");
    session.verified("d");
    let enabled = "SELECT DISTINCT tgenabled FROM pg_trigger WHERE tgname LIKE 'pgcache_%' AND tgname NOT IN ('pgcache_columns', 'pgcache_reserve')";
    assert_eq!(session.lines(enabled), ["A"]);
}

#[test]
fn without_the_library_the_extension_is_dropped() {
    let (cluster, mut session) = without_library();
    run_in_psql(&cluster, &block("DROP EXTENSION"));
    session.run("UPDATE src SET v = 'new'; TRUNCATE src; INSERT INTO src VALUES (1, 'last')");
    session.run("INSERT INTO others VALUES ('a', 'b')");
    assert_eq!(session.number("SELECT count(*) FROM d"), 2);
    drop(session);
    cluster.down(Shutdown::Fast);
    cluster.configure(&[PRELOAD]);
    cluster.up();
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; TRUNCATE d; SELECT cache_attach('d', '1 hour'), cache_depend('src', 'id::text', 'd')");
    assert_eq!(session.text(FETCH), "last");
    session.run("UPDATE src SET v = 'newer'");
    assert_eq!(session.text(FETCH), "newer");
}
