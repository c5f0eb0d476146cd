//! Tests that a read inside the statement that writes uses no copy. This is rule 5 of the coherence protocol
//! (docs/internals/coherence.md).

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::tier::Tiered;

use crate::coherence_statements::{sees_nothing_of_it, set_up};

#[test]
fn merge_with_returning_is_seen() {
    let cluster = Cluster::hot();
    if cluster.stage.major() < 17 {
        return;
    }
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    set_up(&mut writer, &mut reader);
    writer.run(
        "BEGIN; WITH m AS (MERGE INTO c USING (VALUES ('k')) AS s (k) ON c.key = s.k \
         WHEN MATCHED THEN UPDATE SET value = 'undone' RETURNING 1) SELECT cache_get('k', 'c') FROM m; \
         ROLLBACK",
    );
    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));
}

/// When the user-defined trigger reads, the row has changed and its key is not yet noted.
#[test]
fn a_trigger_that_reads_publishes_nothing_uncommitted() {
    let database = Cluster::hot().database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    set_up(&mut writer, &mut reader);
    writer.run(
        "SELECT cache_set('l', 'old', cache => 'c'); \
         CREATE FUNCTION asks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM cache_get(k, 'c') FROM unnest('{k,l,m}'::text[]) AS k; RETURN NEW; END $$; \
         CREATE TRIGGER a BEFORE UPDATE ON c FOR EACH ROW EXECUTE FUNCTION asks(); \
         CREATE TRIGGER b AFTER UPDATE ON c FOR EACH ROW EXECUTE FUNCTION asks()",
    );
    for _ in 0..20 {
        for key in ["k", "l"] {
            reader.heat(key, "c");
        }
        writer.run("BEGIN; UPDATE c SET value = 'undone'");
        sees_nothing_of_it(&mut reader, "UPDATE with triggers that read");
        writer.run("ROLLBACK");
        for key in ["k", "l"] {
            assert_eq!(reader.agrees(key, "c").as_deref(), Some("old"));
        }
    }
    writer.run("UPDATE c SET value = 'new'");
    assert_eq!(reader.agrees("l", "c").as_deref(), Some("new"));
}

/// A parallel worker has no xid, but its leader may have written.
#[test]
fn a_parallel_query_reads_the_writes_of_its_transaction() {
    let cluster = Cluster::hot();
    let forced = match cluster.stage.major() {
        15 => "force_parallel_mode",
        _ => "debug_parallel_query",
    };
    let database = cluster.database();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    set_up(&mut writer, &mut reader);
    writer.run("CREATE TABLE many AS SELECT i FROM generate_series(1, 20000) AS i; ANALYZE many");
    writer.run(&format!(
        "SET {forced} = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; \
         SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2"
    ));
    let ask = "SELECT string_agg(DISTINCT cache_get('k', 'c'), ',') FROM many";
    let plan = writer.lines(&format!("EXPLAIN {}", ask)).join("\n");
    assert!(
        !plan.contains("Partial Aggregate"),
        "cache_get is restricted:\n{plan}"
    );
    for (write, end, expected) in [
        ("UPDATE c SET value = 'undone'", "ROLLBACK", "undone"),
        ("UPDATE c SET value = 'new'", "COMMIT", "new"),
    ] {
        writer.run(&format!("BEGIN; {write}"));
        assert_eq!(writer.text(ask), expected);
        sees_nothing_of_it(&mut reader, write);
        writer.run(end);
        let row = reader.agrees("k", "c");
        assert_eq!(Some(writer.text(ask)), row);
    }
}
