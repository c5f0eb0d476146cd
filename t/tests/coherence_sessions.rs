//! Tests how one session affects the copies that another session reads: through snapshots, privileges and disabled
//! triggers.

use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;

use crate::coherence_limits::hot_cache;

#[test]
fn repeatable_read_equals_select_after_other_sessions_change_the_table() {
    for change in [
        "TRUNCATE c",
        "ALTER TABLE c SET LOGGED",
        "UPDATE c SET value = 'new'",
        "DELETE FROM c",
    ] {
        for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
            let (_database, mut writer, mut reader) = hot_cache(Cluster::hot());
            reader.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            let first = reader.value("SELECT cache_get('k', 'c')");
            writer.run("SET lock_timeout = '50ms'");
            let _ = writer.try_value(change);
            for _ in 0..2 {
                assert_eq!(
                    reader.value("SELECT cache_get('k', 'c')"),
                    first,
                    "{change}"
                );
                assert_eq!(
                    reader.value("SELECT value FROM c WHERE key = 'k'"),
                    first,
                    "{change}"
                );
            }
            reader.run("COMMIT");
            reader.agrees("k", "c");
        }
    }
}

#[test]
fn a_hot_hit_is_refused_after_revoke_and_bypassed_under_row_security() {
    let (database, mut owner, _reader) = hot_cache(Cluster::hot());
    let role = database.cluster.role();
    owner.run(&format!("GRANT SELECT ON c TO {role}"));
    let mut guest = database.connect_as(&role);
    for _ in 0..3 {
        assert_eq!(guest.text("SELECT cache_get('k', 'c')"), "old");
    }
    owner.run(&format!("REVOKE SELECT ON c FROM {role}"));
    refused(guest.try_value("SELECT cache_get('k', 'c')"), "42501");
    owner.run(&format!("SET ROLE {role}"));
    refused(owner.try_value("SELECT cache_get('k', 'c')"), "42501");
    owner.run("RESET ROLE");
    owner.run(&format!(
        "GRANT SELECT ON c TO {role}; ALTER TABLE c ENABLE ROW LEVEL SECURITY"
    ));
    assert_eq!(guest.value("SELECT cache_get('k', 'c')"), None);
    owner.run("CREATE POLICY p ON c USING (value = 'old')");
    assert_eq!(guest.text("SELECT cache_get('k', 'c')"), "old");
    owner.run("UPDATE c SET value = 'hidden'");
    assert_eq!(guest.value("SELECT cache_get('k', 'c')"), None);
    assert_eq!(owner.text("SELECT cache_get('k', 'c')"), "hidden");
}

#[test]
fn two_databases_and_two_caches_never_share_keys() {
    let cluster = Cluster::hot();
    let (_one, mut writer, mut reader) = hot_cache(cluster);
    let (_other, _, mut stranger) = hot_cache(cluster);
    writer.run("SELECT cache_create('d')");
    writer.run("SELECT cache_set('k', 'new', cache => 'c'), cache_set('k', 'd', cache => 'd')");
    assert_eq!(reader.heat("k", "c").as_deref(), Some("new"));
    assert_eq!(reader.heat("k", "d").as_deref(), Some("d"));
    assert_eq!(stranger.heat("k", "c").as_deref(), Some("old"));
}

#[test]
fn another_session_that_disables_triggers_is_noticed_in_the_middle_of_gets() {
    let (database, mut writer, _reader) = hot_cache(Cluster::hot());
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut session = database.connect();
                    while session.text("SELECT cache_get('k', 'c')") != "end" {}
                })
            })
            .collect();
        let mut watcher = database.connect();
        for round in 0..30 {
            writer.run("ALTER TABLE c DISABLE TRIGGER ALL");
            writer.run(&format!("UPDATE c SET value = '{round}'"));
            assert_eq!(watcher.agrees("k", "c"), Some(round.to_string()));
            writer.run("ALTER TABLE c ENABLE ALWAYS TRIGGER pgcache_record, ENABLE ALWAYS TRIGGER pgcache_record_truncate");
            assert_eq!(watcher.agrees("k", "c"), Some(round.to_string()));
            thread::sleep(Duration::from_millis(3));
        }
        writer.run("UPDATE c SET value = 'end'");
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("a reader failed"));
    });
}
