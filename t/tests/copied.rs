//! Tests that COPY has the same effect as INSERT on an expired row and a live row with the same key, although COPY
//! writes rows in batches.

use std::io::Write;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::{refused, sqlstate};
use postgres::{Client, Error};

/// A cache, two keys, a past deadline and a future deadline, as COPY reads them.
struct Shape {
    made: &'static str,
    keys: [&'static str; 2],
    past: &'static str,
    future: &'static str,
}

const SHAPES: &[Shape] = &[
    Shape {
        made: "SELECT cache_create('NAME')",
        keys: ["a", "b"],
        past: "2001-01-01",
        future: "2101-01-01",
    },
    Shape {
        made: "CREATE TABLE NAME (n int, id uuid PRIMARY KEY, value text, gone bigint);
               SELECT cache_attach('NAME', key_column => 'id', expires_column => 'gone', expires_unit => 'ms')",
        keys: [
            "00000000-0000-0000-0000-000000000001",
            "00000000-0000-0000-0000-000000000002",
        ],
        past: "1",
        future: "4102444800000",
    },
    Shape {
        made: "CREATE TABLE NAME (id bigint PRIMARY KEY, value text, gone timestamptz) PARTITION BY HASH (id);
               CREATE TABLE NAME_0 PARTITION OF NAME FOR VALUES WITH (MODULUS 2, REMAINDER 0);
               CREATE TABLE NAME_1 PARTITION OF NAME FOR VALUES WITH (MODULUS 2, REMAINDER 1);
               SELECT cache_attach('NAME', key_column => 'id', expires_column => 'gone')",
        keys: ["1", "2"],
        past: "2001-01-01",
        future: "2101-01-01",
    },
];

/// Returns the names of the key, value and deadline columns.
fn columns(shape: &Shape) -> &'static str {
    match shape.made.contains("cache_create") {
        true => "key, value, expires_at",
        false => "id, value, gone",
    }
}

fn copy(session: &mut Client, into: &str, rows: &[[&str; 3]]) -> Result<u64, Error> {
    let mut copy = session.copy_in(&format!("COPY {into} FROM STDIN"))?;
    for row in rows {
        writeln!(copy, "{}", row.join("\t")).expect("the session takes rows");
    }
    copy.finish()
}

/// Returns all rows, expired rows included.
fn stored(session: &mut Client, table: &str) -> Vec<String> {
    session.run("SET pgcache.show_expired = on");
    let rows = session.lines(&format!("SELECT * FROM {table} AS t ORDER BY t::text"));
    session.run("RESET pgcache.show_expired");
    rows
}

#[test]
fn copy_of_an_expired_and_a_live_row_of_one_key_does_as_insert() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    for (at, shape) in SHAPES.iter().enumerate() {
        let [a, b] = shape.keys;
        let (past, future) = (shape.past, shape.future);
        let rows = [
            [a, "expired", past],
            [b, "live", future],
            [a, "expired again", past],
            [a, "live", future],
        ];
        for is_empty in [true, false] {
            let names = ["copied", "inserted"].map(|name| format!("{name}_{at}_{is_empty}"));
            let columns = columns(shape);
            for name in &names {
                session.run(&shape.made.replace("NAME", name));
                if !is_empty {
                    session.run(&format!(
                        "INSERT INTO {name} ({columns}) VALUES ('{b}', 'old', '{past}')"
                    ));
                }
            }
            for [key, value, deadline] in rows {
                session.run(&format!(
                    "INSERT INTO {} ({columns}) VALUES ('{key}', '{value}', '{deadline}')",
                    names[1]
                ));
            }
            let copied = copy(&mut session, &format!("{} ({columns})", names[0]), &rows);
            assert_eq!(
                copied.unwrap_or_else(|error| panic!("{names:?}: {error:?}")),
                4
            );
            let same = stored(&mut session, &names[1]);
            assert_eq!(stored(&mut session, &names[0]), same, "{names:?}");
            assert_eq!(same.len(), 2);
            // Two live rows still conflict, even if pgcache holds the second row back.
            session.run(&format!("DELETE FROM {}", names[0]));
            let twice = [rows[0], rows[3], rows[3]];
            refused(
                copy(&mut session, &format!("{} ({columns})", names[0]), &twice),
                "23505",
            );
            // An error leaves no state behind for the next COPY.
            session.run(&format!("TRUNCATE {}", names[0]));
            copy(
                &mut session,
                &format!("{} ({columns})", names[0]),
                &rows[3..],
            )
            .unwrap();
            assert_eq!(stored(&mut session, &names[0]).len(), 1, "{names:?}");
        }
    }
}

#[test]
fn rows_held_back_by_copy_fire_triggers_need_no_more_rights_and_keep_their_columns() {
    // The role that copies does not use pgcache before, so the library must be preloaded.
    let cluster = Cluster::hot();
    let database = cluster.database();
    let mut session = database.connect();
    let role = cluster.role();
    session.run(&format!(
        "SELECT cache_create('c'); ALTER TABLE c DROP COLUMN value; ALTER TABLE c ADD COLUMN value text;
         ALTER TABLE c ADD COLUMN n int DEFAULT 7, ADD COLUMN id int GENERATED ALWAYS AS IDENTITY;
         GRANT INSERT (key, value, expires_at) ON c TO {role};
         CREATE TABLE fired (value text); GRANT INSERT ON fired TO {role};
         CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO fired VALUES (NEW.value); RETURN NEW; END';
         CREATE TRIGGER fires AFTER INSERT ON c FOR EACH ROW EXECUTE FUNCTION fires()"
    ));
    let mut writer = database.connect_as(&role);
    let rows = [
        ["k", "past", "2001-01-01"],
        ["k", "O'Brien \"x\" $1", "2101-01-01"],
    ];
    copy(&mut writer, "c (key, value, expires_at)", &rows).unwrap();
    assert_eq!(
        session.lines("SELECT key, value, n FROM c"),
        ["k|O'Brien \"x\" $1|7"]
    );
    assert_eq!(
        session.lines("SELECT value FROM fired"),
        ["past", "O'Brien \"x\" $1"]
    );
}

/// COPY ignores rules, but the INSERT of rows that were held back would apply them. So pgcache holds no row of this
/// table back, and no row is lost.
#[test]
fn copy_into_a_table_with_a_rule_loses_no_row() {
    let cluster = Cluster::shared();
    let mut session = cluster.database().connect();
    session.run(
        "SELECT cache_create('ruled'); CREATE RULE nothing AS ON INSERT TO ruled DO INSTEAD NOTHING",
    );
    let rows = [["a", "old", "2020-01-01"], ["a", "new", "2130-01-01"]];
    let error = copy(&mut session, "ruled", &rows).expect_err("a duplicate key");
    assert_eq!(sqlstate(&error), "23505");
    assert_eq!(copy(&mut session, "ruled", &rows[1..]).ok(), Some(1));
    assert_eq!(session.number("SELECT count(*) FROM ruled"), 1);
}
