//! Rule 4 of the coherence protocol: reads in the middle of the statement that writes.

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

/// Rule 4: the row has changed and its key is not noted yet when the user's trigger asks.
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
