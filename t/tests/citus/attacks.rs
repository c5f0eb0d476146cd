//! Tests distributed caches against attacks, and in transactions with statements that Citus itself runs.

use pgcache_tests::ask::Ask;
use pgcache_tests::refusal::refused;

use super::spread::cluster;

/// Thirty keys, enough that every node has some of them.
const KEYS: &str = "ARRAY(SELECT 'n' || i FROM generate_series(1, 30) AS i)";

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_transaction_sees_its_writes_over_any_connections_of_citus() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    for (at, session) in sessions.iter_mut().enumerate() {
        // Citus uses several connections to a node for this statement.
        session.run("BEGIN; INSERT INTO c SELECT 'n' || i, 'x' FROM generate_series(1, 30) AS i");
        assert_eq!(session.number("SELECT cache_count('c')"), 30, "node {at}");
        let many = format!(
            "SELECT count(*) FROM cache_get_many({KEYS}, 'c') AS found WHERE found IS NOT NULL"
        );
        let many = session.number(&many);
        assert_eq!(many, 30, "node {at}");
        assert_eq!(session.number("SELECT cache_delete_prefix('n', 'c')"), 30);
        session.run("COMMIT");
        assert_eq!(session.number("SELECT cache_count('c')"), 0, "node {at}");

        session.run("SET citus.force_max_query_parallelization = on; BEGIN");
        session.run(&format!(
            "SELECT cache_set_many({KEYS}, ARRAY(SELECT 'new' FROM generate_series(1, 30)), cache => 'c')"
        ));
        let by_citus = "SELECT count(*) FROM c WHERE key LIKE 'n%'";
        assert_eq!(session.number(by_citus), 30, "node {at}");
        session.run(
            "SELECT cache_set('n' || i, 'newer', cache => 'c') FROM generate_series(1, 30) AS i",
        );
        let newer = "SELECT count(*) FROM cache_scan('n', cache => 'c') WHERE value = 'newer'";
        assert_eq!(session.number(newer), 30, "node {at}");
        session.run(&format!("SELECT cache_delete_many({KEYS}, 'c')"));
        assert_eq!(session.number(by_citus), 0, "node {at}");
        session.run("COMMIT; RESET citus.force_max_query_parallelization");
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_function_of_another_role_is_never_called() {
    let (_nodes, mut sessions) = cluster();
    let session = &mut sessions[0];
    session.run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    session.run("SELECT cache_set('n' || i, 'v', cache => 'c') FROM generate_series(1, 30) AS i");
    for (name, result) in [
        ("cache_get(text, text)", "text"),
        ("cache_count(text)", "bigint"),
    ] {
        session.run(&format!(
            "CREATE FUNCTION public.{name} RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$"
        ));
    }
    let each = "SELECT count(public.cache_get('n' || i, 'public.c'::regclass)) FROM generate_series(1, 30) AS i";
    assert_eq!(session.number(each), 30);
    assert_eq!(
        session.number("SELECT public.cache_count('public.c'::regclass)"),
        30
    );
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn the_forwarding_function_takes_distributed_caches_alone() {
    let (nodes, mut sessions) = cluster();
    let session = &mut sessions[0];
    session.run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    session.run("CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN");
    session.run(
        "SET citus.enable_ddl_propagation = off;
         CREATE TABLE guarded (key text PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('guarded');
         GRANT SELECT, INSERT, UPDATE, DELETE ON guarded TO app;
         CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           IF cache_exists('ban:' || session_user, 'public.c') THEN RAISE EXCEPTION 'banned'; END IF; RETURN new; END $$;
         CREATE TRIGGER guard BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION guard();
         SELECT cache_set('ban:app', '1', cache => 'c')",
    );
    let mut app = nodes[0].connect_as("app", "postgres");
    let set = "SELECT cache_set('x', 'v', cache => 'guarded')";
    refused(app.try_lines(set), "P0001");
    for node in [0, 1, 2, 99] {
        let sent = format!(
            "SELECT pgcache.at_key('x', {node}, 'cache_set', ARRAY['=x', '=v', '', '=public.guarded'])"
        );
        assert!(app.try_lines(&sent).is_err());
    }
    assert_eq!(session.number("SELECT count(*) FROM guarded"), 0);

    // A role without privileges also cannot hold a lock on a shard.
    let mut stranger = nodes[0].connect_as("stranger", "postgres");
    for node in 0..3 {
        let sent = format!(
            "SELECT pgcache.at_key('x', {node}, 'cache_set', ARRAY['=x', '=v', '', '=public.c'])"
        );
        assert!(stranger.try_lines(&sent).is_err());
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_read_only_transaction_writes_on_no_node() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    sessions[0].run("SET default_transaction_read_only = on");
    for i in 1..=10 {
        let set = format!("SELECT cache_set('n{i}', 'v', cache => 'c')");
        refused(sessions[0].try_lines(&set), "25006");
    }
    let many = format!("SELECT cache_delete_many({KEYS}, 'c')");
    refused(sessions[0].try_lines(&many), "25006");
    assert_eq!(sessions[0].number("SELECT cache_count('c')"), 0);
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_backslash_goes_to_other_nodes_as_it_is() {
    let (_nodes, mut sessions) = cluster();
    let session = &mut sessions[0];
    session.run("SELECT cache_create('c'); SELECT cache_distribute('c'); SET standard_conforming_strings = off");
    session.run(
        r"SELECT cache_set(E'k\\' || i, E'a\\b', cache => 'c') FROM generate_series(1, 20) AS i;
          SELECT cache_set_many(ARRAY[E'm\\1', 'm2'], ARRAY['1', E'b\\2'], cache => 'c')",
    );
    let right = r"SELECT count(*) FROM generate_series(1, 20) AS i WHERE cache_get(E'k\\' || i, 'c') = E'a\\b'";
    assert_eq!(session.number(right), 20);
    assert_eq!(
        session.lines("SELECT key, value FROM cache_scan('m', cache => 'c')"),
        [r"m2|b\2", r"m\1|1"]
    );
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_shard_of_one_key_counts_as_any() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    sessions[0]
        .run("SELECT cache_set('k' || i, 'v', cache => 'c') FROM generate_series(1, 40) AS i");
    for key in ["k3", "k13", "k1"] {
        sessions[0].run(&format!(
            "SELECT isolate_tenant_to_new_shard('c', '{key}', cascade_option => 'CASCADE', shard_transfer_mode => 'block_writes')"
        ));
    }
    for session in &mut sessions {
        assert_eq!(session.number("SELECT cache_count('c')"), 40);
        let keys = "SELECT count(DISTINCT key) FROM cache_keys(max_rows => 100, cache => 'c')";
        assert_eq!(session.number(keys), 40);
        let all = "SELECT count(*) FROM cache_scan(max_rows => 100, cache => 'c')";
        assert_eq!(session.number(all), 40);
        assert_eq!(
            session.number("SELECT cache_delete_prefix('k3', 'c')"),
            11, // k3, and k30 to k39
        );
        assert_eq!(session.value("SELECT cache_get('k3', 'c')"), None);
        session.run(
            "SELECT cache_set(key, 'v', cache => 'c') FROM unnest(ARRAY(SELECT 'k3' || i FROM generate_series(0, 9) AS i) || 'k3'::text) AS key",
        );
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn tables_of_other_roles_are_distributed_as_usual() {
    let (_nodes, mut sessions) = cluster();
    let session = &mut sessions[0];
    session.run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    session.run(
        "CREATE TABLE plain (id text PRIMARY KEY); SELECT create_distributed_table('plain', 'id')",
    );
    session.run("CREATE TABLE bytewise (id text COLLATE \"C\" PRIMARY KEY); SELECT create_distributed_table('bytewise', 'id', colocate_with => 'none')");
    session.run("SELECT cache_create('d'); SELECT cache_distribute('d'); SELECT cache_set('k', 'v', cache => 'd')");
    let beside = "SELECT count(DISTINCT colocationid) FROM pg_dist_partition WHERE logicalrelid IN ('c'::regclass, 'd'::regclass, 'pgcache.distributed'::regclass)";
    assert_eq!(session.number(beside), 1);

    // This cache depends on a source, and is distributed without cache_distribute().
    session.run(
        "CREATE TABLE source (id text PRIMARY KEY, v text); INSERT INTO source VALUES ('k1', 'a');
         SELECT cache_create('dependent'), 1; SELECT cache_depend('source', 'id', 'dependent');
         SET citus.enable_unsafe_triggers = on; SELECT create_distributed_table('dependent', 'key', colocate_with => 'c')",
    );
    refused(session.try_lines("UPDATE source SET v = 'b'"), "42809");

    let name = "n".repeat(54);
    session.run(&format!("SELECT cache_create('{name}')"));
    refused(
        session.try_lines(&format!("SELECT cache_distribute('{name}')")),
        "0A000",
    );
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_statement_that_fails_has_written_on_no_node() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    for session in &mut sessions {
        session
            .run("SELECT cache_set('n' || i, '1', cache => 'c') FROM generate_series(1, 30) AS i");
        // Citus runs the calls on each shard separately.
        for writing in [
            "SELECT cache_incr(key, 1000, cache => 'c') FROM c",
            "SELECT count(cache_delete(key, 'c')), 1 / (count(*) - count(*)) FROM c",
            "SELECT count(cache_delete(key, 'c')) FROM c",
        ] {
            if writing.starts_with("SELECT count(cache_delete(key, 'c')) FROM") {
                session.run("SET default_transaction_read_only = on");
            }
            session.try_lines(writing).unwrap_err();
            session.run("RESET default_transaction_read_only");
            let as_before = "SELECT count(*) FROM cache_scan('n', max_rows => 100, cache => 'c') WHERE value = '1'";
            assert_eq!(session.number(as_before), 30, "{writing}");
        }
        // In a transaction block all calls are one transaction.
        session.run("BEGIN; SELECT count(cache_incr(key, 1000, cache => 'c')) FROM c WHERE key = 'n1'; ROLLBACK");
        // A user may turn this setting off. A statement that fails must still leave no effect.
        session.run("SET citus.function_opens_transaction_block = off");
        for i in 1..=10 {
            let failing = format!(
                "SELECT cache_set('n{i}', 'new', cache => 'c'), 1 / (length(cache_get('n{i}', 'c')) - 3)"
            );
            refused(session.try_lines(&failing), "22012");
            let stayed = session.text(&format!("SELECT cache_get('n{i}', 'c')"));
            assert_eq!(stayed, "1");
        }
        session.run("RESET citus.function_opens_transaction_block; SELECT cache_clear('c')");
    }
}
