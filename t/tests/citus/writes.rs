//! Tests writes by plain SQL into a distributed cache, with every kind of statement and from every node.

use std::io::Write;

use pgcache_tests::ask::Ask;
use postgres::Client;

use super::spread::cluster;

/// Statements that write the value `new` to some or all of the keys k1 to k20 of `c`.
const WRITES: &[&str] = &[
    "INSERT INTO c VALUES ('k1', 'new'), ('k2', 'new'), ('k3', 'new'), ('k5', 'new'), ('k13', 'new')",
    "INSERT INTO c VALUES ('k1', 'new'), ('k2', 'new'), ('k3', 'new') ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "INSERT INTO c VALUES ('k4', 'new')",
    "MERGE INTO c USING source ON c.key = source.key WHEN MATCHED THEN UPDATE SET value = source.value
         WHEN NOT MATCHED THEN INSERT (key, value) VALUES (source.key, source.value)",
    "INSERT INTO c (key, value) SELECT key, value FROM source",
    "INSERT INTO c (key, value) SELECT key, value FROM source ORDER BY key LIMIT 20",
    "INSERT INTO c (key, value) SELECT key, value FROM source ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "INSERT INTO c (key, value) SELECT 'k' || i, 'new' FROM generate_series(1, 20) AS i",
    "INSERT INTO c (key, value) SELECT key, min(value) FROM source GROUP BY key",
    "WITH w AS (INSERT INTO c (key, value) SELECT key, value FROM source RETURNING key) SELECT count(*) FROM w",
    "PREPARE one (text) AS INSERT INTO c VALUES ($1, 'new'); EXECUTE one ('k1'); EXECUTE one ('k2'); DEALLOCATE one",
];

/// Statements before the write. In the second case the session's node has already run a part of the transaction.
const IN_BLOCKS: [&str; 2] = [
    "",
    "BEGIN; DELETE FROM c WHERE key = 'k1'; DELETE FROM c WHERE key = 'k2'; DELETE FROM c WHERE key = 'k3'; ",
];

fn copy(session: &mut Client) {
    let mut copy = session.copy_in("COPY c (key, value) FROM STDIN").unwrap();
    for i in 1..=20 {
        copy.write_all(format!("k{i}\tnew\n").as_bytes()).unwrap();
    }
    copy.finish().unwrap();
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn every_statement_takes_the_place_of_expired_rows_from_every_node() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run(
        "SELECT cache_create('c'); SELECT cache_distribute('c');
         CREATE TABLE source (key text COLLATE \"C\" PRIMARY KEY, value text);
         SELECT create_distributed_table('source', 'key', colocate_with => 'c');
         INSERT INTO source SELECT 'k' || i, 'new' FROM generate_series(1, 20) AS i",
    );
    sessions[0]
        .run("INSERT INTO c SELECT 'k' || i, 'old', '-infinity' FROM generate_series(1, 20) AS i");
    let all_expired = "UPDATE c SET value = 'old', expires_at = '-infinity'";
    let kept = "SELECT count(*) FROM c WHERE value = 'new'";
    let hits = "SELECT count(cache_get('k' || i, 'c')) FROM generate_series(1, 20) AS i";
    for (at, session) in sessions.iter_mut().enumerate() {
        for before in IN_BLOCKS {
            for write in WRITES {
                session.run(all_expired);
                let block = if before.is_empty() { "" } else { "; COMMIT" };
                if let Err(error) = session.try_lines(&format!("{before}{write}{block}")) {
                    panic!("node {at}: {before}{write}: {error:?}");
                }
                let stored = session.number(kept);
                assert!(stored > 0, "node {at}: {before}{write}");
                assert_eq!(session.number(hits), stored, "{write}");
            }
            session.run(all_expired);
            session.run(before);
            copy(session);
            if !before.is_empty() {
                session.run("COMMIT");
            }
            assert_eq!(session.number(kept), 20);
        }
    }
    for session in &mut sessions {
        assert_eq!(session.lines("SELECT * FROM pgcache.verify('c')"), [""; 0]);
    }
    // After the cache was made local again, it works as an ordinary cache.
    sessions[0]
        .run("SELECT undistribute_table('c'); SELECT cache_set('k1', 'local', cache => 'c')");
    assert_eq!(sessions[0].text("SELECT cache_get('k1', 'c')"), "local");
    sessions[0].run("SELECT cache_distribute('c')");
    assert_eq!(sessions[1].text("SELECT cache_get('k1', 'c')"), "local");
}
