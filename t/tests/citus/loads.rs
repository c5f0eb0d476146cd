//! Tests `cache_fetch` and leases on distributed caches, on the key's node and on other nodes.

use std::thread;
use std::time::Instant;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use postgres::Client;

use super::spread::cluster;

fn spread() -> (Vec<Cluster>, Vec<Client>) {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    (nodes, sessions)
}

/// Returns one key of each session's node, in the order of the sessions.
pub fn a_key_of_each(sessions: &mut [Client]) -> Vec<String> {
    let groups: Vec<i64> = sessions
        .iter_mut()
        .map(|session| session.number("SELECT groupid FROM pg_dist_local_group"))
        .collect();
    let key = |group: &i64| {
        sessions[0].text(&format!(
            "SELECT 'k' || i FROM generate_series(1, 200) AS i WHERE pgcache.node_of('c', 'k' || i) = {group} LIMIT 1"
        ))
    };
    groups.iter().map(key).collect()
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_keys_node_is_where_citus_has_put_it() {
    let (_nodes, mut sessions) = spread();
    for session in &mut sessions {
        let wrong = session.number(
            "SELECT count(*) FROM generate_series(1, 200) AS i JOIN pg_dist_placement AS p
                 ON p.shardid = get_shard_id_for_distribution_column('c', 'k' || i)
              WHERE p.groupid <> pgcache.node_of('c', 'k' || i)",
        );
        assert_eq!(wrong, 0);
        assert_eq!(session.value("SELECT pgcache.node_of('c', NULL)"), None);
        assert!(session.holds("SELECT pgcache.node_of('c', 'k', 1000) >= 0"));
        session.run("SELECT cache_create('local', if_not_exists => true)");
        let unsaid = session.try_lines("SELECT pgcache.node_of('local', 'k')");
        refused(unsaid, "22004");
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn one_loader_runs_for_a_key_in_the_whole_cluster() {
    let (nodes, mut sessions) = spread();
    let nodes = &nodes;
    for session in &mut sessions {
        session.run("CREATE TABLE runs (key text)");
    }
    for key in a_key_of_each(&mut sessions) {
        let fetch = |node: &Cluster| {
            let mut session = node.connect("postgres");
            session.text(&format!(
                "SELECT cache_fetch('{key}', 'WITH ran AS (INSERT INTO runs VALUES ($1) RETURNING key), waited AS MATERIALIZED (SELECT pg_sleep(0.5) FROM ran) SELECT key || '' is here'' FROM ran, waited', cache => 'c')"
            ))
        };
        let fetched: Vec<String> = thread::scope(|scope| {
            let fetch = &fetch;
            let all: Vec<_> = (0..9)
                .map(|at| scope.spawn(move || fetch(&nodes[at % 3])))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(fetched, vec![format!("{key} is here"); 9]);
        let count = format!("SELECT count(*) FROM runs WHERE key = '{key}'");
        let runs = sessions.iter_mut().map(|session| session.number(&count));
        assert_eq!(runs.sum::<i64>(), 1);
        for session in &mut sessions {
            let stored = session.text(&format!("SELECT cache_get('{key}', 'c')"));
            assert_eq!(stored, format!("{key} is here"));
        }
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_value_that_was_deleted_while_it_was_loaded_is_not_stored() {
    let (nodes, mut sessions) = spread();
    for key in a_key_of_each(&mut sessions) {
        for node in &nodes {
            let mut loading = node.connect("postgres");
            let fetch = format!(
                "SELECT cache_fetch('{key}', 'SELECT ''old'' FROM pg_sleep(1)', cache => 'c')"
            );
            let loader = thread::spawn(move || loading.text(&fetch));
            thread::sleep(std::time::Duration::from_millis(400));
            sessions[1].run(&format!("SELECT cache_delete('{key}', 'c')"));
            assert_eq!(loader.join().unwrap(), "old");
            for session in &mut sessions {
                let stored = session.value(&format!("SELECT cache_get('{key}', 'c')"));
                assert_eq!(stored, None, "{key}");
            }
        }
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_fetch_answers_where_nothing_can_be_stored() {
    let (_nodes, mut sessions) = spread();
    for key in a_key_of_each(&mut sessions) {
        for session in &mut sessions {
            session.run("SET pgcache.fetch_wait = '200 ms'"); // bounds the wait for the lease of the rolled-back fetch
            let fetch = format!("SELECT cache_fetch('{key}', 'SELECT ''v''', cache => 'c')");
            for mode in ["READ ONLY", "ISOLATION LEVEL SERIALIZABLE"] {
                session.run(&format!("BEGIN {mode}"));
                assert_eq!(session.text(&fetch), "v", "{mode}");
                session.run("ROLLBACK");
            }
            // Fetch in a savepoint that is rolled back, and in a transaction.
            session.run("BEGIN; SAVEPOINT s");
            assert_eq!(session.text(&fetch), "v");
            session.run("ROLLBACK TO s; COMMIT");
            let stored = session.value(&format!("SELECT cache_get('{key}', 'c')"));
            assert_eq!(stored, None);
            // The caller receives the loader's error.
            let failing = format!("SELECT cache_fetch('{key}', 'SELECT 1 / 0', cache => 'c')");
            refused(session.try_lines(&failing), "22012");
            let within = format!(
                "SELECT cache_fetch('{key}', 'SELECT cache_fetch(''{key}'', ''SELECT 1'', cache => ''c'')', cache => 'c')"
            );
            let nested = session.try_lines(&within);
            refused(nested, "42P19");
        }
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn after_a_loader_that_fails_the_next_one_tries_at_once() {
    let (_nodes, mut sessions) = spread();
    for session in &mut sessions {
        session.run("CREATE TABLE tried (key text)");
    }
    for key in a_key_of_each(&mut sessions) {
        for failing in 0..3 {
            let begun = Instant::now();
            let fetch =
                |loader: &str| format!("SELECT cache_fetch('{key}', '{loader}', cache => 'c')");
            for (loader, sqlstate) in [
                (
                    "WITH tries AS (INSERT INTO tried VALUES ($1) RETURNING key) SELECT 1 / 0 FROM tries",
                    "22012",
                ),
                ("SELECT 1 UNION ALL SELECT 2", "21000"),
                ("SELECT pg_sleep(9)", "57014"),
            ] {
                let session = &mut sessions[failing];
                session.run("SET statement_timeout = '300 ms'");
                refused(session.try_lines(&fetch(loader)), sqlstate);
                session.run("RESET statement_timeout");
            }
            let next = &mut sessions[(failing + 1) % 3];
            assert_eq!(next.text(&fetch("SELECT 2")), "2");
            assert_eq!(next.number("SELECT count(*) FROM tried"), 0);
            assert!(begun.elapsed().as_secs() < 4, "{:?}", begun.elapsed());
            next.run(&format!("SELECT cache_delete('{key}', 'c')"));
        }
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_lease_is_good_on_every_node_and_for_one_store() {
    let (_nodes, mut sessions) = spread();
    for key in a_key_of_each(&mut sessions) {
        for winner in 0..3 {
            let ask = format!("SELECT value, state, lease FROM cache_lease('{key}', '0 s', 'c')");
            let won = sessions[winner].lines(&ask)[0].clone();
            let lease = won.strip_prefix("|win|").unwrap_or_else(|| panic!("{won}"));
            assert!(!lease.is_empty());
            let other = (winner + 1) % 3;
            assert_eq!(sessions[other].lines(&ask), ["|busy|"]);
            let store = |value: &str| {
                format!("SELECT cache_set_leased('{key}', '{value}', {lease}, cache => 'c')")
            };
            // After the store is rolled back, the lease is valid again.
            sessions[other].run(&format!("BEGIN; {}; ROLLBACK", store("undone")));
            assert_eq!(sessions[other].lines(&store("v")), ["t"]);
            assert_eq!(sessions[winner].lines(&store("late")), ["f"]);
            assert_eq!(sessions[winner].lines(&ask), ["v|hit|"]);
            sessions[other].run(&format!("SELECT cache_delete('{key}', 'c')"));

            // A holder can release its lease, and a write voids a lease.
            let number = |line: &str| line.rsplit('|').next().unwrap().to_owned();
            let lease = number(&sessions[winner].lines(&ask)[0]);
            let release = format!("SELECT cache_release('{key}', {lease}, 'c')");
            assert_eq!(sessions[other].lines(&release), ["t"]);
            assert_eq!(sessions[winner].lines(&release), ["f"]);
            let lease = number(&sessions[winner].lines(&ask)[0]);
            sessions[other].run(&format!("SELECT cache_delete('{key}', 'c')"));
            let void = format!("SELECT cache_set_leased('{key}', 'v', {lease}, cache => 'c')");
            assert_eq!(sessions[winner].lines(&void), ["f"]);
        }
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn an_old_snapshot_gets_no_lease_of_another_nodes_key() {
    let (_nodes, mut sessions) = spread();
    let keys = a_key_of_each(&mut sessions);
    for (at, key) in keys.iter().enumerate() {
        let session = &mut sessions[(at + 1) % 3];
        let ask = format!("SELECT value, state, lease FROM cache_lease('{key}', '0 s', 'c')");
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        assert_eq!(session.lines(&ask), ["|win|"]);
        session.run("COMMIT");
        session.run(&format!("SELECT cache_set('{key}', 'v', cache => 'c')"));
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        assert_eq!(session.lines(&ask), ["v|hit|"]);
        session.run("COMMIT");
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_transaction_that_has_written_waits_for_no_lease() {
    let (_nodes, mut sessions) = spread();
    let keys = a_key_of_each(&mut sessions);
    let ask = format!("SELECT state FROM cache_lease('{}', '20 s', 'c')", keys[2]);
    assert_eq!(sessions[1].lines(&ask), ["win"]);
    let begun = Instant::now();
    sessions[0].run(&format!(
        "BEGIN; SELECT cache_set('{}', 'v', cache => 'c')",
        keys[1]
    ));
    assert_eq!(sessions[0].lines(&ask), ["busy"]);
    let fetch = format!(
        "SELECT cache_fetch('{}', 'SELECT ''mine''', cache => 'c')",
        keys[2]
    );
    assert_eq!(sessions[0].text(&fetch), "mine");
    // The same holds for a key of this node.
    let own = format!("SELECT state FROM cache_lease('{}', '20 s', 'c')", keys[0]);
    assert_eq!(sessions[1].lines(&own), ["win"]);
    assert_eq!(sessions[0].lines(&own), ["busy"]);
    sessions[0].run("COMMIT");
    // The transaction becomes read-only on this node after a write on another node.
    sessions[0].run(&format!(
        "BEGIN; SELECT cache_set('{}', 'v', cache => 'c'); SET TRANSACTION READ ONLY",
        keys[1]
    ));
    let fetch_own = format!(
        "SELECT cache_fetch('{}', 'SELECT ''own''', cache => 'c')",
        keys[0]
    );
    assert_eq!(sessions[0].text(&fetch_own), "own");
    sessions[0].run("COMMIT");
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    assert_eq!(
        sessions[0].value(&format!("SELECT cache_get('{}', 'c')", keys[2])),
        None
    );
}
