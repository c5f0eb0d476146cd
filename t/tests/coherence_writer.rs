//! Tests that copies stay coherent if another extension writes rows at the end of a transaction, before or after
//! pgcache's callback has marked the changes.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::native::BESIDE_A_WRITER;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// The extension's write, and the value of the key `k` of the cache `c` afterwards.
const WRITES: &[(&str, Option<&str>)] = &[
    ("UPDATE c SET value = 'new'", Some("new")),
    ("SELECT cache_set('k', 'new', cache => 'c')", Some("new")),
    ("SELECT cache_delete('k', 'c')", None),
    ("SELECT cache_delete_prefix('k', 'c')", None),
    ("TRUNCATE c", None),
    (
        "ALTER TABLE c DISABLE TRIGGER ALL; UPDATE c SET value = 'new'",
        Some("new"),
    ),
    ("UPDATE source SET n = 2", None),
    ("TRUNCATE source", None),
];

/// The statements that the transaction itself runs before its end.
const BEFORE: &[&str] = &[
    "SELECT 1",
    "SELECT cache_get('l', 'c')",
    "SELECT cache_set('l', 'other', cache => 'c')",
    "SAVEPOINT s; UPDATE c SET value = 'undone'; ROLLBACK TO s",
];

/// Creates the cache `c` with the key `k`, which depends on the table `source`.
fn make_tables(session: &mut Client) {
    session.run(
        "DROP TABLE IF EXISTS c, source CASCADE; CREATE TABLE source (key text, n int); \
         INSERT INTO source VALUES ('k', 1); SELECT cache_create('c')",
    );
    session.run("SELECT cache_depend('source', 'key', 'c')");
    session.run("SELECT cache_set('k', 'old', cache => 'c')");
}

fn set_up(writer: &mut Client, reader: &mut Client) {
    make_tables(writer);
    assert_eq!(reader.heat("k", "c").as_deref(), Some("old"));
}

/// Begins a transaction. At `moment`, a point of the transaction's end, the extension runs `sql`.
fn begin(session: &mut Client, moment: &str, sql: &str, before: &str) {
    session.run(&format!(
        "BEGIN; SET LOCAL writer.{moment} = $w${sql}$w$; {before}"
    ));
}

#[test]
fn writes_before_the_commit_are_seen() {
    for order in BESIDE_A_WRITER {
        let cluster = Cluster::with_tier(&[order]);
        let database = cluster.database();
        let (mut writer, mut reader) = (database.connect(), database.connect());
        for (write, expected) in WRITES {
            for before in BEFORE {
                set_up(&mut writer, &mut reader);
                begin(&mut writer, "at_commit", write, before);
                writer.run("COMMIT");
                let case = format!("{write} after {before}, {order}");
                assert_eq!(reader.agrees("k", "c").as_deref(), *expected, "{case}");
                reader.agrees("l", "c");
            }
        }
        reader.nothing_pending();
    }
}

#[test]
fn writes_before_a_failed_commit_are_never_seen() {
    for order in BESIDE_A_WRITER {
        let cluster = Cluster::with_tier(&[order]);
        let database = cluster.database();
        let (mut writer, mut reader) = (database.connect(), database.connect());
        for (write, _) in WRITES {
            set_up(&mut writer, &mut reader);
            begin(
                &mut writer,
                "at_commit",
                &format!("{write}; SELECT 1/0"),
                "SELECT 1",
            );
            refused(writer.try_value("COMMIT"), "22012");
            let case = format!("{write}, {order}");
            assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"), "{case}");
            writer.run("UPDATE c SET value = 'next'");
            assert_eq!(reader.agrees("k", "c").as_deref(), Some("next"), "{case}");
        }
        reader.nothing_pending();
    }
}

#[test]
fn an_entry_of_a_memory_cache_goes_with_the_change_of_its_source() {
    for order in BESIDE_A_WRITER {
        let cluster = Cluster::with_tier(&[order]);
        let database = cluster.database();
        let (mut writer, mut reader) = (database.connect(), database.connect());
        writer.run(
            "CREATE TABLE source (key text, n int); INSERT INTO source VALUES ('k', 1); \
             SELECT cache_create('m', storage => 'memory')",
        );
        writer.run("SELECT cache_depend('source', 'key', 'm')");
        for change in ["UPDATE source SET n = n + 1", "TRUNCATE source"] {
            reader.run("SELECT cache_set('k', 'old', cache => 'm')");
            begin(&mut writer, "at_commit", change, "SELECT 1");
            writer.run("COMMIT");
            assert_eq!(
                reader.value("SELECT cache_get('k', 'm')"),
                None,
                "{change}, {order}"
            );
            reader.run("SELECT cache_set('k', 'new', cache => 'm')");
            assert_eq!(
                reader.text("SELECT cache_get('k', 'm')"),
                "new",
                "{change}, {order}"
            );
        }
        reader.nothing_pending();
    }
}

#[test]
fn writes_notify_watchers() {
    for order in BESIDE_A_WRITER {
        let cluster = Cluster::with_tier(&[order]);
        let database = cluster.database();
        let (mut writer, mut listener) = (database.connect(), database.connect());
        writer.run("SELECT cache_create('c')");
        let channel = writer.text("SELECT cache_watch('c')");
        listener.run(&format!("LISTEN {channel}"));
        begin(
            &mut writer,
            "at_commit",
            "SELECT cache_set('k', '1', cache => 'c')",
            "SELECT 1",
        );
        writer.run("COMMIT");
        writer.run(&format!("NOTIFY {channel}, 'end'"));
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != "end") {
            use postgres::fallible_iterator::FallibleIterator;
            let patience = std::time::Duration::from_secs(60);
            let mut notifications = listener.notifications();
            let next = notifications
                .timeout_iter(patience)
                .next()
                .expect("the session lives");
            told.push(next.expect("no notification arrived").payload().to_owned());
        }
        assert_eq!(told, [r#"{"op": "set", "key": "k"}"#, "end"], "{order}");
    }
}

#[test]
fn writes_before_prepare_transaction_count() {
    let without_tier = "shared_preload_libraries = 'pgcache_writer'";
    for order in BESIDE_A_WRITER.into_iter().chain([without_tier]) {
        let cluster = Cluster::start(&[order]);
        let database = cluster.database();
        let (mut writer, mut reader) = (database.connect(), database.connect());
        make_tables(&mut writer);
        for (write, expected) in WRITES {
            for before in BEFORE {
                for commits in [true, false] {
                    make_tables(&mut writer);
                    assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"));
                    begin(&mut writer, "at_prepare", write, before);
                    let case = format!("{write} after {before}, {order}, commits: {commits}");
                    let prepared = writer.try_value("PREPARE TRANSACTION 'written'");
                    // Once pgcache's callback has run, the transaction can no longer remove entries that depend on a
                    // source.
                    if prepared.is_err() && write.contains("source") {
                        refused(prepared, "0A000");
                        assert_eq!(reader.agrees("k", "c").as_deref(), Some("old"), "{case}");
                        continue;
                    }
                    prepared.expect(&case);
                    let verb = if commits { "COMMIT" } else { "ROLLBACK" };
                    reader.run(&format!("{verb} PREPARED 'written'"));
                    let expected = if commits { *expected } else { Some("old") };
                    assert_eq!(reader.agrees("k", "c").as_deref(), expected, "{case}");
                    reader.agrees("l", "c");
                }
            }
        }
        make_tables(&mut writer);
        let harmless = "CREATE TABLE plain (n int)";
        begin(&mut writer, "at_prepare", harmless, "SELECT 1");
        writer.run("PREPARE TRANSACTION 'plain'");
        writer.run("COMMIT PREPARED 'plain'");
        writer.run("UPDATE c SET value = 'new'");
        assert_eq!(reader.agrees("k", "c").as_deref(), Some("new"), "{order}");
        if order != without_tier {
            reader.nothing_pending();
        }
    }
}
