//! Tests that each request gets a reply even if caches named in the settings are missing, renamed or locked.

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::tables::{self, LOGGED, UNLOGGED, client_in};
use pgcache_tests::wait::wait_until;

fn ok() -> Reply {
    Reply::status("OK")
}

fn reload(door: &Door, line: &str) {
    door.cluster.configure(&[line]);
    door.cluster
        .connect("postgres")
        .run("SELECT pg_reload_conf()");
}

/// Checks that commands that need a cache fail, that other commands still work, and that a transaction is refused as a
/// whole.
fn works_without_a_cache(client: &mut Client, why: &str) {
    for words in [
        &["GET", "k"][..],
        &["SET", "k", "x"],
        &["DEL", "k"],
        &["WATCH", "k"],
        &["SCAN", "0"],
        &["FLUSHDB"],
        &["DBSIZE"],
        &["EVAL", "return 1", "0"],
        &["COPY", "k", "l"],
    ] {
        let reply = client.ask(words);
        assert!(
            matches!(&reply, Reply::Error(words) if words.contains(why)),
            "{words:?}: {reply:?}"
        );
    }
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    assert_eq!(client.ask(&["UNWATCH"]), ok());
    assert_eq!(
        client.ask(&["DISCARD"]).error(),
        "ERR DISCARD without MULTI"
    );
    assert_eq!(client.ask(&["EXEC"]).error(), "ERR EXEC without MULTI");
    for _ in 0..2 {
        assert_eq!(client.ask(&["MULTI"]), ok());
        assert_eq!(client.ask(&["SET", "k", "x"]), Reply::status("QUEUED"));
        assert_eq!(client.ask(&["DISCARD"]), ok());
    }
    assert_eq!(client.ask(&["MULTI"]), ok());
    assert_eq!(client.ask(&["SET", "k", "x"]), Reply::status("QUEUED"));
    let reply = client.ask(&["EXEC"]);
    assert!(
        matches!(&reply, Reply::Error(words) if words.contains(why)),
        "{reply:?}"
    );
    assert_eq!(
        client.ask(&["EXEC"]).error(),
        "ERR EXEC without MULTI",
        "it is over"
    );
}

#[test]
fn clients_of_a_database_that_the_setting_no_longer_names_get_an_error() {
    let door = tables::start(&[]);
    for database in [1, 2] {
        let mut client = client_in(&door, database, None);
        assert_eq!(client.ask(&["SET", "k", "v"]), ok());
        let mut collecting = client_in(&door, database, None);
        assert_eq!(collecting.ask(&["WATCH", "k"]), ok());
        assert_eq!(collecting.ask(&["MULTI"]), ok());
        assert_eq!(collecting.ask(&["SET", "k", "x"]), Reply::status("QUEUED"));
        reload(&door, &format!("pgcache.resp_caches = '{CACHE}'"));
        wait_until("the setting counts", || {
            matches!(client.ask(&["GET", "k"]), Reply::Error(_))
        });
        works_without_a_cache(&mut client, "no longer names a cache for this database");
        assert_eq!(collecting.ask(&["DISCARD"]), ok());
        assert_eq!(
            client.ask(&["SELECT", "1"]).error(),
            "ERR DB index is out of range"
        );
        assert_eq!(client.ask(&["SELECT", "0"]), ok());
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        assert_eq!(collecting.ask(&["RESET"]), Reply::status("RESET"));
        assert_eq!(collecting.ask(&["GET", "k"]), Reply::Null);
        reload(
            &door,
            &format!("pgcache.resp_caches = '{CACHE}, {UNLOGGED}, {LOGGED}'"),
        );
        wait_until("the setting counts", || {
            client.ask(&["SELECT", "2"]) == ok()
        });
    }
}

#[test]
fn a_cache_that_is_gone_refuses_a_transaction_as_a_whole() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["SET", "k", "v"]), ok());
    door.cluster
        .connect("postgres")
        .run(&format!("SELECT cache_drop('{CACHE}')"));
    works_without_a_cache(&mut client, "does not exist");
}

#[test]
fn an_empty_list_of_caches_is_named_in_the_error() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["SET", "k", "v"]), ok());
    let works = |client: &mut Client, line: &str, why: &str| {
        reload(&door, line);
        wait_until(
            "the setting counts",
            || matches!(client.ask(&["GET", "k"]), Reply::Error(words) if words.contains(why)),
        );
        works_without_a_cache(client, why);
    };
    works(
        &mut client,
        "pgcache.resp_caches = ''",
        "pgcache.resp_caches is empty",
    );
    works(
        &mut client,
        "pgcache.resp_caches = ' '",
        "pgcache.resp_caches is empty",
    );
    let two = format!("pgcache.resp_caches = ',{CACHE}'");
    works(&mut client, &two, "has an empty name for this database");
    assert_eq!(client.ask(&["SELECT", "1"]), ok());
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(client.ask(&["SELECT", "0"]), ok());
    // A name that cannot be parsed is logged, as the error message says.
    works(
        &mut client,
        "pgcache.resp_caches = '\"public.door'",
        "see the server's log",
    );
    let log = door.cluster.log_text();
    assert!(
        log.contains("could not determine the privileges of a client of the Redis protocol"),
        "{log}"
    );
}
