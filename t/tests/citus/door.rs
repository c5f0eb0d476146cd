//! Tests the Redis protocol on a distributed cache.

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Door, Reply};

#[test]
#[ignore = "needs Citus: make citus-check"]
fn the_redis_protocol_gives_nothing_of_the_time_before_a_cache_was_distributed() {
    let door = Door::start(&[
        "shared_preload_libraries = 'citus, pgcache'",
        "wal_level = logical",
        "citus.shard_count = 4",
        "citus.enable_statistics_collection = off",
        "max_connections = 60",
        "pgcache.resp_caches = 'public.door, public.tab'",
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE EXTENSION citus");
    let port = session.text("SHOW port");
    session.run(&format!(
        "SELECT citus_set_coordinator_host('{}', {port})",
        door.cluster.folder.display()
    ));
    session.run(
        "SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node",
    );
    session.run("SELECT cache_create('tab')");
    session.run("SELECT cache_set('k', 'v', cache => 'tab')");
    assert_eq!(session.text("SELECT cache_get('k', 'tab')"), "v");
    let mut client = door.client();
    assert_eq!(client.ask(&["SELECT", "1"]), Reply::status("OK"));
    for _ in 0..2 {
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    }
    session.run("SELECT cache_distribute('tab')");
    session.run("SELECT cache_set('k', 'w', cache => 'tab')");
    assert_eq!(session.text("SELECT cache_get('k', 'tab')"), "w");
    for words in [
        &["GET", "k"][..],
        &["SET", "k", "x"],
        &["DEL", "k"],
        &["MGET", "k", "l"],
    ] {
        let told = client.ask(words).error();
        assert!(
            told.contains("is distributed by Citus"),
            "{words:?}: {told}"
        );
    }
    // FLUSHALL clears the other caches and leaves the distributed cache unchanged.
    assert_eq!(client.ask(&["SELECT", "0"]), Reply::status("OK"));
    assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
    assert_eq!(client.ask(&["FLUSHALL"]), Reply::status("OK"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(session.text("SELECT cache_get('k', 'tab')"), "w");
}
