//! Tests caches that were distributed by `cache_distribute`: the results of functions on each node, and the calls that
//! are refused.

use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::needs::Needs::{Nothing, Trigger};
use pgcache_tests::needs::present;
use pgcache_tests::refusal::{refused, sqlstate};
use postgres::Client;

use super::{nodes, sessions};

/// Starts the nodes. Every node, the coordinator included, holds shards.
pub fn cluster() -> (Vec<Cluster>, Vec<Client>) {
    let nodes = nodes();
    let mut sessions = sessions(&nodes);
    sessions[0].run(
        "SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node WHERE groupid = 0",
    );
    (nodes, sessions)
}

/// Calls of each function. `$c` is the cache.
const CALLS: &[&str] = &[
    "cache_set('a', '1', cache => $c)",
    "cache_set('b', 'two', '1 hour', $c)",
    "cache_set('c', NULL, cache => $c)",
    "cache_set('it''s', E'a\\\\b ''quoted'' é', cache => $c)",
    "cache_get('a', $c), cache_get('b', $c), cache_get('it''s', $c), cache_get('none', $c), cache_get(NULL, $c)",
    "cache_get_bytes('b', $c)",
    "cache_add('a', 'no', cache => $c), cache_add('d', 'yes', '1 hour', $c)",
    "cache_replace('d', 'anew', cache => $c), cache_replace('none', 'no', cache => $c)",
    "cache_cas('d', 'anew', 'once more', cache => $c), cache_cas('d', 'anew', 'no', cache => $c)",
    "cache_incr('a', 41, cache => $c), cache_incr('n', cache => $c), cache_incr_existing('m', cache => $c)",
    "cache_exists('a', $c), cache_exists('none', $c)",
    "cache_ttl('b', $c) BETWEEN '59 minutes' AND '1 hour', cache_ttl('a', $c)",
    "cache_touch('a', '1 day 2 hours', $c), cache_touch('none', '1 hour', $c)",
    "cache_ttl('a', $c) BETWEEN '1 day 01:59' AND '1 day 02:00'",
    "cache_get_touch('a', '-1 day 2 days', $c), cache_persist('a', $c), cache_ttl('a', $c)",
    "found, value, expires_at IS NULL FROM cache_lookup('c', $c)",
    "found, value, expires_at > now() FROM cache_lookup('b', $c)",
    "* FROM cache_get_many(ARRAY['none', 'a', 'b', 'c', 'd', 'a', 'n', 'it''s'], $c)",
    "key, found, value, expires_at IS NULL FROM cache_lookup_many(ARRAY['none', 'b', 'c', 'a'], $c)",
    "cache_set_many(ARRAY['x1', 'x2', 'x3', 'x4', 'x5', 'x1'], ARRAY['1', '2', '3', '4', '5', '6'], '1 hour', $c)",
    "cache_set_many_bytes(ARRAY['y1', 'y2'], ARRAY['a', 'b']::bytea[], cache => $c)",
    "cache_count($c)",
    "* FROM cache_keys(cache => $c)",
    "* FROM cache_keys('x', 'x2', 2, $c)",
    "key, value FROM cache_scan(max_rows => 7, cache => $c)",
    "key, value FROM cache_scan_bytes('y', cache => $c)",
    "cache_delete('x1', $c), cache_delete('x1', $c)",
    "cache_delete_if('x2', 'no', $c), cache_delete_if('x2', '2', $c)",
    "cache_take('x3', $c), cache_take_bytes('x3', $c)",
    "cache_delete_many(ARRAY['x4', 'none', 'y1'], $c)",
    "allowed, remaining, retry_after FROM cache_rate_limit('r', 2, '1 minute', $c)",
    "allowed, remaining FROM cache_rate_limit('r', 2, '1 minute', $c)",
    "allowed, remaining, retry_after BETWEEN '50 s' AND '1 minute' FROM cache_rate_limit('r', 2, '1 minute', $c)",
    "cache_fetch('f', 'SELECT upper($1)', cache => $c), cache_fetch('f', 'SELECT 1 / 0', cache => $c)",
    "cache_fetch('absent', 'SELECT 1 WHERE false', '1 hour', $c), cache_ttl('absent', $c) > '59 minutes'",
    "cache_fetch_json('json', 'SELECT jsonb_build_object(''a'', 1)', cache => $c), cache_get('json', $c)",
    "cache_fetch_bytes('raw', $$SELECT '\\x00ff41'::bytea$$, cache => $c), cache_fetch_bytes('f', 'SELECT 1', cache => $c)",
    "cache_fetch('ttl', 'SELECT 1', '2 days', $c), cache_ttl('ttl', $c) > '1 day 23:59'",
    "value, state, lease IS NULL FROM cache_lease('f', '0 s', $c)",
    "value, state, lease IS NULL FROM cache_lease('le', '0 s', $c)",
    "cache_set_leased('le', 'v', 4711, cache => $c), cache_release('le', 4711, $c), cache_release(NULL, 1, $c)",
    "cache_set('short', '1', '1 ms', $c), pg_sleep(0.01)",
    "cache_get('short', $c), cache_expire($c)",
    "cache_delete_prefix('x', $c)",
    "* FROM pgcache.verify($c)",
    "cache_count($c)",
    // These calls fail.
    "cache_set(NULL, '1', cache => $c)",
    "cache_set('k', '1', '-1 s', $c)",
    "cache_incr('b', cache => $c)",
    "* FROM cache_get_many(ARRAY['a', NULL], $c)",
    "cache_set_many(ARRAY['a', 'b'], ARRAY['a'], cache => $c)",
    "cache_delete_many(NULL, $c)",
    "cache_expire($c, -1)",
    "cache_fetch('k', NULL, cache => $c)",
    "cache_fetch(NULL, 'SELECT 1', cache => $c)",
    "cache_fetch('k', 'SELECT 1, 2', cache => $c)",
    "cache_fetch('k', 'nonsense', cache => $c)",
    "cache_fetch('k', 'SELECT 1', '-1 s', $c)",
    "cache_lease('k', NULL, $c)",
    "cache_lease('k', '-1 s', $c)",
    "cache_lease(NULL, '0 s', $c)",
    "* FROM cache_get_many(ARRAY[]::text[], $c)",
];

/// Returns the answer to each call: its rows, or its SQLSTATE. `ask` runs a call.
fn answers(
    cache: &str,
    mut ask: impl FnMut(&str) -> Result<Vec<String>, postgres::Error>,
) -> Vec<String> {
    let mut all = Vec::new();
    for call in CALLS {
        let call = format!("SELECT {}", call.replace("$c", &format!("'{cache}'")));
        all.push(match ask(&call) {
            Ok(lines) => format!("{call}: {lines:?}"),
            Err(error) => format!("{call}: {}", sqlstate(&error)),
        });
    }
    let of_any = |line: String| line.replace(&format!("'{cache}'"), "'c'");
    all.into_iter().map(of_any).collect()
}

/// Runs a call through the extended query protocol, with results as text.
fn extended(session: &mut Client, call: &str) -> Result<Vec<String>, postgres::Error> {
    let inner = call.strip_prefix("SELECT ").unwrap();
    let rows = match inner.contains(" FROM ") {
        true => session.query(&format!("SELECT x::text FROM (SELECT {inner}) AS x"), &[])?,
        false => session.query(&format!("SELECT (ROW({inner}))::text"), &[])?,
    };
    Ok(rows.iter().map(|row| row.get::<_, String>(0)).collect())
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn every_function_acts_from_each_node_as_on_a_local_cache() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('spread'); SELECT cache_distribute('spread')");
    for session in &mut sessions {
        session.run("SET IntervalStyle = 'sql_standard'; SET DateStyle = 'German'; SET bytea_output = 'escape'");
        session.run("SELECT cache_create('beside')");
        let mut plain = |cache: &str| {
            session.run(&format!("SELECT cache_clear('{cache}')"));
            answers(cache, |call| session.try_lines(call))
        };
        assert_eq!(plain("spread"), plain("beside"));

        let mut parts = |cache: &str| {
            session.run(&format!("SELECT cache_clear('{cache}')"));
            answers(cache, |call| extended(session, call))
        };
        assert_eq!(parts("spread"), parts("beside"));

        let mut block = |cache: &str| {
            session.run(&format!("SELECT cache_clear('{cache}')"));
            session.run("BEGIN; SAVEPOINT s");
            let all = answers(cache, |call| {
                let answer = session.try_lines(call);
                session.run(match answer {
                    Ok(_) => "RELEASE s; SAVEPOINT s",
                    Err(_) => "ROLLBACK TO s",
                });
                answer
            });
            session.run("COMMIT");
            all
        };
        assert_eq!(block("spread"), block("beside"));
    }
    let entries = "SELECT key, value FROM cache_scan(max_rows => 100, cache => 'spread')";
    let expected = sessions[0].lines(entries);
    assert!(expected.len() > 5, "{expected:?}");
    for session in &mut sessions {
        assert_eq!(session.lines(entries), expected);
        assert_eq!(
            session.lines("SELECT * FROM pgcache.verify('spread')"),
            [""; 0]
        );
        assert_eq!(session.number("SELECT count(*) FROM pg_prepared_xacts"), 0);
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn unsupported_calls_over_shards_raise_a_clear_error() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    let shown = [
        "cache_settings",
        "refresh_settings",
        "hiding",
        "put_default",
    ];
    let mut refusals = 0;
    for session in &mut sessions {
        for (name, needs, call) in present(session) {
            if !call.contains("$c") || shown.contains(&name) || matches!(needs, Nothing | Trigger) {
                continue;
            }
            if matches!(name, "cache_drop" | "cache_alter" | "cache_tune") {
                continue;
            }
            let call = format!("SELECT {}", call.replace("$c", "'c'"));
            if let Err(error) = session.try_lines(&call) {
                assert!(
                    matches!(sqlstate(&error), "0A000" | "22023" | "22P02"),
                    "{call}: {error:?}"
                );
                refusals += usize::from(sqlstate(&error) == "0A000");
            }
        }
    }
    assert!(refusals >= 6, "{refusals}");
    // A distributed cache does not support these calls.
    sessions[0].run("CREATE TABLE source (id text PRIMARY KEY)");
    for call in [
        "cache_depend('source', 'id', 'c')",
        "cache_watch('c')",
        "cache_distribute('c')",
    ] {
        refused(sessions[0].try_lines(&format!("SELECT {call}")), "0A000");
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn caches_that_cannot_be_distributed_stay_unchanged() {
    let (_nodes, mut sessions) = cluster();
    let session = &mut sessions[0];
    session.run(
        "CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app;
         SELECT cache_create('mine', storage => 'memory'), cache_create('watched'), 1; SELECT cache_watch('watched'),
                cache_create('dependent'), cache_create('policed');
         ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
         CREATE TABLE source (id text PRIMARY KEY); SELECT cache_depend('source', 'id', 'dependent');
         CREATE TABLE theirs (key text PRIMARY KEY, value text, expires_at timestamptz); SELECT cache_attach('theirs')",
    );
    for cache in [
        "mine",
        "watched",
        "dependent",
        "policed",
        "theirs",
        "pgcache.main",
    ] {
        let error = refused(
            session.try_lines(&format!("SELECT cache_distribute('{cache}')")),
            "0A000",
        );
        assert!(
            error.message().contains("cannot be distributed"),
            "{error:?}"
        );
    }
    session.run("SELECT cache_create('theirs_too')");
    session.run("SET ROLE app; SELECT cache_create('app_cache')");
    refused(
        session.try_lines("SELECT cache_distribute('theirs_too')"),
        "42501",
    );
    refused(
        session.try_lines("SELECT cache_distribute('app_cache')"),
        "42501",
    ); // the first relation belongs to a superuser
    session.run("RESET ROLE; SELECT cache_distribute('theirs_too', 4)");
    session.run("SET ROLE app");
    refused(
        session.try_lines("SELECT cache_distribute('app_cache', 5)"),
        "0A000",
    );
    session.run("SELECT cache_distribute('app_cache')");
    session.run("SELECT cache_set('k', 'v', cache => 'app_cache')");
    assert_eq!(session.text("SELECT cache_get('k', 'app_cache')"), "v");
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_read_of_many_keys_or_of_all_is_one_message_to_each_node() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    sessions[0].run(
        "SELECT cache_set('k' || i, 'v' || i, cache => 'c') FROM generate_series(1, 100) AS i",
    );
    let (mut session, notices) = nodes[0].connect_with_notices("postgres");
    session.run("SET citus.log_remote_commands = on");
    let keys = "ARRAY(SELECT 'k' || i FROM generate_series(100, 1, -1) AS i)";
    for read in [
        format!(
            "SELECT count(*) FROM unnest({keys}) WITH ORDINALITY AS k (key, at) JOIN cache_get_many({keys}, 'c') WITH ORDINALITY AS g (name, value, at) USING (at) WHERE value = replace(key, 'k', 'v')"
        ),
        format!(
            "SELECT count(*) FROM cache_lookup_many({keys}, 'c') WHERE found AND value = replace(key, 'k', 'v')"
        ),
        "SELECT cache_count('c')".into(),
        "SELECT count(*) FROM cache_scan(max_rows => 1000, cache => 'c')".into(),
    ] {
        notices.try_iter().for_each(drop);
        assert_eq!(session.number(&read), 100, "{read}");
        let sent = notices.try_iter();
        let sent = sent
            .filter(|notice| notice.message().contains("at_key"))
            .count();
        assert_eq!(sent, 2, "{read}");
        // A transaction sees its own writes, whichever connection Citus uses.
        session.run("BEGIN; UPDATE c SET value = value WHERE key IN ('k1', 'k2', 'k3')");
        assert_eq!(session.number(&read), 100, "{read}");
        session.run("COMMIT");
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_call_that_waited_while_the_cache_was_made_local_says_that_its_table_is_gone() {
    let (nodes, mut sessions) = cluster();
    let [first, second, ..] = &mut sessions[..] else {
        unreachable!()
    };
    first.run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    first.run("SELECT cache_create('d')");
    let error = refused(first.try_lines("SELECT cache_distribute('d', 0)"), "22023");
    assert_eq!(error.message(), "shard_count must be positive");
    first.run("BEGIN; SELECT undistribute_table('c')");
    let (waits, gone) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            nodes[0]
                .connect("postgres")
                .try_lines("SELECT cache_set('k', 'v', cache => 'c')")
        });
        let blocked = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
        let begun = Instant::now();
        while !first.holds(blocked) && begun.elapsed().as_secs() < 10 {
            thread::sleep(Duration::from_millis(10));
        }
        let waits = first.holds(blocked);
        first.run("COMMIT");
        (waits, waiting.join().unwrap())
    });
    assert!(waits);
    refused(gone, "42P01");
    refused(second.try_lines("SELECT cache_get('k', 'c')"), "42P01");
    assert_eq!(first.value("SELECT cache_get('k', 'c')"), None);
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn live_entries_move_to_shards_and_settings_count_everywhere() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run(
        "SELECT cache_create('c', ttl => '1 hour', max_entries => 800);
         SELECT cache_set('k' || i, 'v' || i, cache => 'c') FROM generate_series(1, 100) AS i;
         SELECT cache_set('short', 'v', '1 ms', 'c'), pg_sleep(0.01);
         SELECT count(cache_get('k' || i, 'c')) FROM generate_series(1, 100) AS i;
         SELECT cache_distribute('c')",
    );
    let hits = "SELECT count(cache_get('k' || i, 'c')) FROM generate_series(1, 100) AS i";
    for session in &mut sessions {
        assert_eq!(session.number(hits), 100);
        assert_eq!(session.number("SELECT cache_count('c')"), 100);
    }
    sessions[0]
        .run("SELECT cache_delete('k1', 'c'), cache_delete('k2', 'c'), cache_delete('k3', 'c')");
    for session in &mut sessions {
        assert_eq!(session.number(hits), 97); // the deleted keys are no longer hits on any node
    }
    sessions[0].run("SELECT cache_alter('c', ttl => '2 hours', max_entries => 80)");
    for (node, session) in sessions.iter_mut().enumerate() {
        for i in 1..=8 {
            session.run(&format!(
                "SELECT cache_set('n{node}{i}', 'v', cache => 'c')"
            ));
            assert!(session.holds(&format!(
                "SELECT cache_ttl('n{node}{i}', 'c') > '1 hour 59 minutes'"
            )));
        }
    }
    // The cache's limit is 80, so each of the 8 shards gets 10.
    let settings = sessions[0].lines(
        "SELECT DISTINCT result FROM run_command_on_shards('c', $$SELECT string_agg(encode(tgargs, 'escape'), ' ' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = '%s'::regclass$$)",
    );
    assert_eq!(settings.len(), 1, "{settings:?}");
    assert!(settings[0].contains("max_entries=10"), "{settings:?}");

    sessions[2].run("SELECT cache_clear('c')");
    for session in &mut sessions {
        assert_eq!(session.number(hits), 0);
    }
    sessions[0].run("SELECT cache_drop('c')");
    for session in &mut sessions {
        refused(session.try_lines("SELECT cache_get('k1', 'c')"), "42P01");
    }
    // After the drop, a local cache with the same name works as any local cache.
    sessions[1].run("SELECT cache_create('c'); SELECT cache_set('k', 'v', cache => 'c')");
    assert_eq!(sessions[1].text("SELECT cache_get('k', 'c')"), "v");
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_block_over_nodes_is_all_or_nothing() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    let write = "SELECT cache_set('k' || i, 'v', cache => 'c') FROM generate_series(1, 20) AS i";
    for session in 0..3 {
        sessions[session].run(&format!("BEGIN; {write}; SELECT cache_count('c')"));
        assert_eq!(sessions[session].number("SELECT cache_count('c')"), 20);
        assert_eq!(
            sessions[(session + 1) % 3].number("SELECT cache_count('c')"),
            0
        );
        sessions[session].run("ROLLBACK");
        assert_eq!(sessions[session].number("SELECT cache_count('c')"), 0);
        // An error later in the transaction rolls back everything.
        let failing = format!("{write}; SELECT 1 / 0");
        refused(sessions[session].try_lines(&failing), "22012");
        assert_eq!(sessions[session].number("SELECT cache_count('c')"), 0);
        sessions[session].run(&format!("BEGIN; {write}; SAVEPOINT s; SELECT cache_delete_prefix('k', 'c'); ROLLBACK TO s; COMMIT"));
        for other in &mut sessions {
            assert_eq!(other.number("SELECT cache_count('c')"), 20);
            assert_eq!(other.number("SELECT count(*) FROM pg_prepared_xacts"), 0);
        }
        sessions[session].run("SELECT cache_clear('c')");
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_write_here_and_one_elsewhere_are_committed_in_two_phases() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    let mut key_on = |node: usize| {
        let group = sessions[node].text("SELECT groupid FROM pg_dist_local_group");
        sessions[0].text(&format!(
            "SELECT 'k' || i FROM generate_series(1, 100) AS i JOIN pg_dist_placement AS p
                 ON p.shardid = get_shard_id_for_distribution_column('c', 'k' || i) WHERE p.groupid = {group} LIMIT 1"
        ))
    };
    let keys = [key_on(0), key_on(1)];
    let (mut session, notices) = nodes[0].connect_with_notices("postgres");
    session.run("SET citus.log_remote_commands = on");
    for [one, other] in [[&keys[0], &keys[1]], [&keys[1], &keys[0]]] {
        session.run(&format!(
            "BEGIN; SELECT cache_set('{one}', 'v', cache => 'c'); SELECT cache_set('{other}', 'v', cache => 'c'); COMMIT"
        ));
        let told: Vec<String> = notices
            .try_iter()
            .map(|notice| notice.message().to_owned())
            .collect();
        assert!(
            told.iter().any(|line| line.contains("PREPARE TRANSACTION")),
            "{told:?}"
        );
    }
    // A transaction that writes on one node commits in one phase, and a read is a single message.
    session.run(&format!(
        "SELECT cache_set('{}', 'w', cache => 'c')",
        keys[1]
    ));
    session.run(&format!("SELECT cache_get('{}', 'c')", keys[1]));
    let told: Vec<String> = notices
        .try_iter()
        .map(|notice| notice.message().to_owned())
        .collect();
    assert!(
        !told.iter().any(|line| line.contains("PREPARE")),
        "{told:?}"
    );
    let reads = told
        .iter()
        .rev()
        .take_while(|line| !line.contains("COMMIT"));
    assert_eq!(reads.count(), 1, "{told:?}");
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn privileges_count_on_every_node() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("CREATE ROLE app LOGIN");
    sessions[0]
        .run("SELECT cache_create('c'); SELECT cache_distribute('c'); GRANT SELECT ON c TO app");
    sessions[0]
        .run("SELECT cache_set('k' || i, 'v', cache => 'c') FROM generate_series(1, 20) AS i");
    let hits = "SELECT count(cache_get('k' || i, 'c')) FROM generate_series(1, 20) AS i";
    let mut apps: Vec<Client> = nodes
        .iter()
        .map(|node| node.connect_as("app", "postgres"))
        .collect();
    for app in &mut apps {
        assert_eq!(app.number(hits), 20);
        for i in 1..=20 {
            let error = refused(
                app.try_lines(&format!("SELECT cache_set('k{i}', 'w', cache => 'c')")),
                "42501",
            );
            assert_eq!(error.message(), "permission denied for table c");
        }
        refused(app.try_lines("SELECT cache_clear('c')"), "42501");
        refused(
            app.try_lines("SELECT cache_delete_many(ARRAY['k1', 'k2', 'k3', 'k4'], 'c')"),
            "42501",
        );
        refused(
            app.try_lines("SELECT cache_alter('c', ttl => '1 s')"),
            "42501",
        );
    }
    sessions[0].run("GRANT INSERT, UPDATE, DELETE ON c TO app");
    for app in &mut apps {
        app.run("SELECT cache_set('k' || i, 'w', cache => 'c') FROM generate_series(1, 20) AS i");
    }
    sessions[0].run("REVOKE ALL ON c FROM app");
    for app in &mut apps {
        for i in 1..=20 {
            refused(
                app.try_lines(&format!("SELECT cache_get('k{i}', 'c')")),
                "42501",
            );
        }
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn internal_calls_between_nodes_grant_no_more_than_sql() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("CREATE ROLE app LOGIN");
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    sessions[0]
        .run("SELECT cache_set('k' || i, 'v', cache => 'c') FROM generate_series(1, 20) AS i");
    for (at, node) in nodes.iter().enumerate() {
        let mut app = node.connect_as("app", "postgres");
        let group = app.number("SELECT groupid FROM pg_dist_local_group");
        let mut call = |function: &str, arguments: &str| {
            app.try_lines(&format!(
                "SELECT * FROM pgcache.at_key('k1', {group}, '{function}', ARRAY[{arguments}])"
            ))
        };
        for function in [
            "cache_get', ARRAY['=k1', '=c']) UNION SELECT 1 --",
            "pg_read_file",
            "pg_sleep",
            "cache_alter",
            "",
            "cache_get; DROP TABLE c",
        ] {
            let function = function.replace('\'', "''");
            refused(call(&function, "'=c'"), "22023");
        }
        for arguments in ["'=k1', '=c'", "'=k1', '=public.c'"] {
            let code = |result: Result<Vec<String>, postgres::Error>| match result {
                Ok(lines) => format!("{lines:?}"),
                Err(error) => sqlstate(&error).to_owned(),
            };
            let found = code(call("cache_get", arguments));
            assert!(
                ["42501", "22023", "42P01", "[\"\"]"].contains(&&found[..]),
                "node {at}: {found}"
            );
        }
        refused(call("cache_get", "'=k1', '=public.none'"), "42P01");
        let injected = "'=k1', '=public.c''); DROP TABLE public.c; --'";
        let error = call("cache_get", injected).unwrap_err();
        assert!(
            ["42601", "42602", "42P01"].contains(&sqlstate(&error)),
            "{error:?}"
        );
        // If a call passed NULL on to Citus, Citus would crash while it looks up the node.
        for call in [
            "SELECT * FROM pgcache.at_key(NULL, 1, 'cache_get', ARRAY['=k', '=c'])",
            "SELECT pgcache.at_key(NULL, 1, 'cache_get', ARRAY['=k', '=c'])",
            "SELECT pgcache.at_key(nullif('k', 'k'), 1, 'cache_get', ARRAY['=k', '=c'])",
            "PREPARE p (text) AS SELECT * FROM pgcache.at_key($1, 1, 'cache_get', ARRAY['=k', '=c']); EXECUTE p (NULL)",
            "SET plan_cache_mode = force_generic_plan; EXECUTE p (NULL)",
            "DO $$ DECLARE k text; r text[]; BEGIN r := pgcache.at_key(k, 1, 'cache_get', ARRAY['=k', '=c']);
                SELECT a INTO r FROM pgcache.at_key(k, 1, 'cache_get', ARRAY['=k', '=c']) AS a; END $$; SELECT NULL",
        ] {
            assert_eq!(app.lines(call), [""], "{call}");
        }
        // A call that arrives at the wrong node does nothing.
        let mut session = node.connect("postgres");
        assert_eq!(
            session.lines("SELECT * FROM pgcache.at_key('k1', 99, 'cache_delete_prefix', ARRAY['=k', '=public.c'])"),
            [""]
        );
    }
    assert_eq!(sessions[0].number("SELECT cache_count('c')"), 20);
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn calls_computed_on_shards_contact_no_other_node() {
    let (_nodes, mut sessions) = cluster();
    let session = &mut sessions[0];
    session.run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    session.run(
        "CREATE TABLE orders (id int PRIMARY KEY, key text); SELECT create_distributed_table('orders', 'id');
         INSERT INTO orders SELECT i, 'k' || i FROM generate_series(1, 100) AS i;
         SELECT cache_set('k' || i, 'v', cache => 'c') FROM generate_series(1, 100) AS i",
    );
    let on_shards = "SELECT count(cache_get(key, 'c')) FROM orders";
    let error = refused(session.try_lines(on_shards), "55000");
    assert_eq!(
        error.message(),
        "cannot call the node that holds the entries of cache \"c\" from here"
    );
    // In this query the session's node itself sends the calls to the other nodes.
    let here = "WITH o AS MATERIALIZED (SELECT key FROM orders ORDER BY id OFFSET 0) SELECT count(cache_get(key, 'c')) FROM o";
    assert_eq!(session.number(here), 100);
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_node_that_is_away_costs_its_keys() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c', storage => 'logged'); SELECT cache_distribute('c')");
    sessions[0]
        .run("SELECT cache_set('k' || i, 'v', cache => 'c') FROM generate_series(1, 40) AS i");
    let there = |session: &mut Client| {
        (1..=40)
            .filter(|i| {
                session
                    .try_value(&format!("SELECT cache_get('k{i}', 'c')"))
                    .is_ok_and(|value| value.is_some())
            })
            .count()
    };
    let of_node = sessions[2].number("SELECT sum((result::int)) FROM run_command_on_placements('c', 'SELECT count(*) FROM %s') WHERE nodename LIKE (SELECT nodename FROM pg_dist_node WHERE groupid = (SELECT groupid FROM pg_dist_local_group))") as usize;
    assert!(of_node > 3, "{of_node}");
    nodes[2].down(Shutdown::Immediate);
    assert_eq!(there(&mut sessions[0]), 40 - of_node);
    assert_eq!(there(&mut sessions[1]), 40 - of_node);
    nodes[2].up();
    let mut again = nodes[2].connect("postgres");
    assert_eq!(there(&mut again), 40);
    assert_eq!(there(&mut sessions[1]), 40);
}
