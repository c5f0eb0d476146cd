//! Tests distributed caches with Citus, on a coordinator and two workers. `make citus-check` runs these tests on a
//! Postgres with Citus installed; `distributed.rs` has the tests that need no Citus.

mod attacks;
mod door;
mod loads;
mod moves;
mod phases;
mod spread;
mod writes;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::refusal::refused;
use postgres::Client;

const CONF: &[&str] = &[
    "shared_preload_libraries = 'citus, pgcache'",
    "wal_level = logical",
    "citus.shard_count = 8",
    "citus.enable_statistics_collection = off",
];

/// Returns the nodes, the coordinator first.
fn nodes() -> Vec<Cluster> {
    let nodes: Vec<Cluster> = (0..3).map(|_| Cluster::own(CONF)).collect();
    for node in &nodes {
        // Other nodes connect to this address when they copy a shard from this node.
        let host = format!("citus.local_hostname = '{}'", node.folder.display());
        node.configure(&[&host]);
        node.restart(Shutdown::Fast);
        node.connect("postgres")
            .run("CREATE EXTENSION citus; CREATE EXTENSION pgcache");
    }
    let mut coordinator = nodes[0].connect("postgres");
    let folder = |node: &Cluster| node.folder.display().to_string();
    let port = coordinator.text("SHOW port");
    coordinator.run(&format!(
        "SELECT citus_set_coordinator_host('{}', {port})",
        folder(&nodes[0])
    ));
    for worker in &nodes[1..] {
        coordinator.run(&format!(
            "SELECT citus_add_node('{}', {port})",
            folder(worker)
        ));
    }
    nodes
}

fn sessions(nodes: &[Cluster]) -> Vec<Client> {
    nodes.iter().map(|node| node.connect("postgres")).collect()
}

/// Distributes an empty cache over the nodes with Citus' own function. Turns on the setting without which Citus refuses
/// tables with triggers.
fn distribute(session: &mut Client, table: &str) {
    session.run("SET citus.enable_unsafe_triggers = on");
    session.run(&format!(
        "SELECT create_distributed_table('{table}', 'key')"
    ));
}

fn is_refused(session: &mut Client, table: &str) {
    for call in ["cache_get('k', '$c')", "cache_set('k', 'v', cache => '$c')"] {
        let call = format!("SELECT {}", call.replace("$c", table));
        let error = refused(session.try_lines(&call), "42809");
        assert_eq!(
            error.message(),
            format!("\"{table}\" is distributed by Citus")
        );
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn no_table_of_citus_can_become_a_cache_on_any_node() {
    let nodes = nodes();
    let mut sessions = sessions(&nodes);
    let coordinator = &mut sessions[0];
    coordinator.run(
        "SELECT cache_create('spread'), cache_create('everywhere'), cache_create('listed'), cache_create('referring');
         CREATE TABLE reference (id text PRIMARY KEY); SELECT create_reference_table('reference')",
    );
    let mut other = nodes[0].connect("postgres");
    for cache in ["spread", "everywhere", "listed", "referring"] {
        let known = format!("SELECT cache_get('k', '{cache}')");
        assert_eq!(other.value(&known), None);
    }
    // Citus itself refuses relations with triggers.
    let unasked = coordinator.try_lines("SELECT create_distributed_table('spread', 'key')");
    refused(unasked, "XX000");
    distribute(coordinator, "spread");
    coordinator.run("SELECT create_reference_table('everywhere')");
    coordinator.run("SELECT citus_add_local_table_to_metadata('listed')");
    coordinator.run("ALTER TABLE referring ADD FOREIGN KEY (key) REFERENCES reference");
    for cache in ["spread", "everywhere", "listed", "referring"] {
        is_refused(&mut other, cache);
    }
    for worker in &mut sessions[1..] {
        is_refused(worker, "spread");
        is_refused(worker, "everywhere");
    }
    let coordinator = &mut sessions[0];
    let source = "SELECT cache_create('fine'); SELECT cache_depend('reference', 'id', 'fine')";
    refused(coordinator.try_lines(source), "42809");

    coordinator.run("SELECT undistribute_table('listed')");
    coordinator.run("SELECT cache_set('k', 'v', cache => 'listed')");
    assert_eq!(coordinator.text("SELECT cache_get('k', 'listed')"), "v");
    assert_eq!(other.text("SELECT cache_get('k', 'listed')"), "v");
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn plain_sql_on_shards_sees_no_expired_row_and_each_node_sweeps_its_own() {
    let nodes = nodes();
    let mut sessions = sessions(&nodes);
    sessions[0].run("SELECT cache_create('spread', ttl => '1 hour')");
    distribute(&mut sessions[0], "spread");
    // Write from each node. Each statement goes to one shard.
    for i in 0..60 {
        let (node, deadline) = match i % 3 {
            0 => (i % 2, "now() - interval '1 second'"),
            _ => (2, "DEFAULT"),
        };
        sessions[node].run(&format!(
            "INSERT INTO spread VALUES ('k{i}', 'old', {deadline})"
        ));
    }
    for session in &mut sessions {
        assert_eq!(session.number("SELECT count(*) FROM spread"), 40);
        assert_eq!(
            session.value("SELECT value FROM spread WHERE key = 'k3'"),
            None
        );
        assert_eq!(
            session.text("SELECT value FROM spread WHERE key = 'k4'"),
            "old"
        );
        assert!(session.holds("SELECT expires_at BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour' FROM spread WHERE key = 'k4'"));
    }
    // A new row replaces the expired row of its key.
    sessions[1].run("INSERT INTO spread VALUES ('k3', 'new')");
    sessions[2].run("INSERT INTO spread VALUES ('k6', 'new') ON CONFLICT (key) DO UPDATE SET value = excluded.value || '!'");
    sessions[2].run("INSERT INTO spread VALUES ('k6', 'new') ON CONFLICT (key) DO UPDATE SET value = excluded.value || '!'");
    sessions[0].run("UPDATE spread SET value = 'changed' WHERE key = 'k4'");
    assert_eq!(
        sessions[2].lines(
            "SELECT key, value FROM spread WHERE key IN ('k3', 'k4', 'k6', 'k9') ORDER BY key"
        ),
        ["k3|new", "k4|changed", "k6|new!"]
    );

    let swept = sessions
        .iter_mut()
        .map(|session| session.number("SELECT cache_expire()"));
    assert_eq!(swept.sum::<i64>(), 18);
    assert_eq!(sessions[0].number("SELECT count(*) FROM spread"), 42);
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn caches_of_each_node_are_caches_beside_distributed_tables() {
    let nodes = nodes();
    let mut sessions = sessions(&nodes);
    sessions[0].run(
        "CREATE TABLE orders (id text PRIMARY KEY, total int);
         SELECT create_distributed_table('orders', 'id');
         INSERT INTO orders SELECT 'o' || i, i FROM generate_series(1, 100) AS i",
    );
    // Citus creates a view on all nodes, but a table only on the node of the command. Entries are never copied to other
    // nodes.
    sessions[0].run("SELECT cache_create('quick', storage => 'memory')");
    for session in &mut sessions {
        session.run("SELECT cache_create('totals', storage => 'logged')");
        assert_eq!(session.number("SELECT cache_count('quick')"), 0);
    }
    // A client connects to the key's node, which computes the value from the distributed table.
    let key = |i: usize| format!("o{i}");
    for i in 1..=30 {
        let node = sessions[i % 3].number(&format!(
            "SELECT pgcache.node_of('totals', '{}', 3)",
            key(i)
        ));
        for cache in ["totals", "quick"] {
            let fetched = sessions[node as usize].text(&format!(
                "SELECT cache_fetch('{}', 'SELECT total::text FROM orders WHERE id = $1', cache => '{cache}')",
                key(i)
            ));
            assert_eq!(fetched, i.to_string());
        }
    }
    for cache in ["totals", "quick"] {
        let count = format!("SELECT cache_count('{cache}')");
        let kept: Vec<i64> = sessions
            .iter_mut()
            .map(|session| session.number(&count))
            .collect();
        assert!(
            kept.iter().sum::<i64>() == 30 && kept.iter().all(|&kept| kept > 3),
            "{kept:?}"
        );
    }
    // One transaction writes to shards of all nodes and to a cache of this node. Citus prepares the transaction on the
    // other nodes; pgcache does not take part in that.
    let coordinator = &mut sessions[0];
    coordinator.run("BEGIN; UPDATE orders SET total = total + 1000; SELECT cache_set('sum', '105050', cache => 'totals'); COMMIT");
    assert_eq!(coordinator.number("SELECT sum(total) FROM orders"), 105_050);
    assert_eq!(
        coordinator.text("SELECT cache_get('sum', 'totals')"),
        "105050"
    );
    coordinator.run("BEGIN; UPDATE orders SET total = 0; SELECT cache_set('sum', '0', cache => 'totals'); ROLLBACK");
    assert_eq!(
        coordinator.text("SELECT cache_get('sum', 'totals')"),
        "105050"
    );
    assert_eq!(
        coordinator.number("SELECT count(*) FROM pg_prepared_xacts"),
        0
    );
    assert_eq!(
        coordinator.lines("SELECT * FROM pgcache.verify('totals')"),
        [""; 0]
    );
}
