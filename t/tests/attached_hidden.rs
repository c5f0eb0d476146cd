//! Tests expired rows of attached tables. For all types of keys and deadlines, the application's own statements do not
//! see expired rows, and can insert new rows with the same keys.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use postgres::Client;

/// A table `t`: the statement that creates it, the arguments of `cache_attach`, two keys, a past deadline and a future
/// deadline.
struct Made {
    table: &'static str,
    attach: &'static str,
    keys: [&'static str; 2],
    past: &'static str,
    future: &'static str,
    /// Deadlines that mean that the row never expires.
    never: &'static [&'static str],
    /// The condition, without its schema `pgcache`, that EXPLAIN must show for a scan of the table.
    condition: &'static str,
}

const WORDS: [&str; 2] = ["'a'", "'b'"];
const UUIDS: [&str; 2] = [
    "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12'",
];
const NUMBERS: [&str; 2] = ["-7", "8"];

const TABLES: &[Made] = &[
    Made {
        table: "(k varchar(255) PRIMARY KEY, v text NOT NULL, e timestamptz(3) NOT NULL)",
        attach: "",
        keys: WORDS,
        past: "now() - interval '1 hour'",
        future: "now() + interval '1 hour'",
        never: &["'infinity'", "'9999-12-31'"],
        condition: "live(e)",
    },
    Made {
        table: "(v jsonb, k uuid PRIMARY KEY, e timestamptz)",
        attach: "",
        keys: UUIDS,
        past: "now() - interval '1 hour'",
        future: "now() + interval '1 hour'",
        never: &["NULL"],
        condition: "live(e)",
    },
    Made {
        table: "(gone int, v bytea, e bigint NOT NULL, k bigint PRIMARY KEY)",
        attach: ", expires_unit => 'ms'",
        keys: NUMBERS,
        past: "extract(epoch FROM now() - interval '1 hour')::bigint * 1000",
        future: "extract(epoch FROM now() + interval '1 hour')::bigint * 1000",
        never: &["0", "-1", "9223372036854775807"],
        condition: "live_unix(e, 1000)",
    },
    Made {
        table: "(k text COLLATE \"POSIX\" PRIMARY KEY, e integer, v varchar)",
        attach: ", expires_unit => 's'",
        keys: WORDS,
        past: "extract(epoch FROM now() - interval '1 hour')::int",
        future: "extract(epoch FROM now() + interval '1 hour')::int",
        never: &["0", "-5", "NULL"],
        condition: "live_unix(int8(e), 1)",
    },
];

fn attach(session: &mut Client, made: &Made) {
    session.run(&format!(
        "DROP TABLE IF EXISTS t; CREATE TABLE t {}; ALTER TABLE t DROP COLUMN IF EXISTS gone; \
         SELECT cache_attach('t', key_column => 'k', value_column => 'v', expires_column => 'e'{})",
        made.table, made.attach
    ));
}

const COUNT: &str = "SELECT count(*) FROM t";

#[test]
fn plain_sql_sees_no_expired_row_of_any_shape_of_table() {
    let database = Cluster::shared().database();
    database.loads_the_library();
    let mut session = database.connect();
    for made in TABLES {
        attach(&mut session, made);
        let [one, other] = made.keys;
        let insert = |key: &str, deadline: &str| {
            format!("INSERT INTO t (k, v, e) VALUES ({key}, '1', {deadline})")
        };
        session.run(&insert(one, made.past));
        session.run(&insert(other, made.future));
        session.run(
            "PREPARE kept AS SELECT count(*) FROM t; SET plan_cache_mode = force_generic_plan",
        );
        assert_eq!(session.number("EXECUTE kept"), 1, "{}", made.table);
        let by_key = format!("SELECT count(*) FROM t WHERE k = {one}");
        assert_eq!(session.number(&by_key), 0, "{}", made.table);
        assert_eq!(session.number(&format!("WITH u AS (UPDATE t SET v = '2' WHERE k = {one} RETURNING 1) SELECT count(*) FROM u")), 0);
        let plan = session
            .lines(&format!("EXPLAIN (COSTS OFF) {COUNT}"))
            .join("\n");
        assert!(
            plan.contains(&format!("pgcache.{}", made.condition)),
            "{plan}"
        );
        session.run("SET pgcache.show_expired = on");
        assert_eq!(session.number("EXECUTE kept"), 2, "{}", made.table);
        session.run("RESET pgcache.show_expired");
        assert_eq!(
            session.lines("SELECT hides_expired, not_hidden_because FROM pgcache.caches WHERE cache = 't'::regclass"),
            ["t|"]
        );

        session.run("ALTER TABLE t RENAME e TO expires_at");
        assert_eq!(session.number("EXECUTE kept"), 1, "{}", made.table);
        session.run("ALTER TABLE t RENAME expires_at TO e");
        for never in made.never {
            session.run("DELETE FROM t");
            session.run(&insert(other, never));
            assert_eq!(session.number(COUNT), 1, "{}: {never}", made.table);
        }
        session.run("DELETE FROM t; SELECT cache_expire('t')");
        session.run(&insert(one, made.past));
        assert_eq!(session.number("EXECUTE kept"), 0, "{}", made.table);
        session.run("SELECT cache_detach('t')");
        assert_eq!(session.number("EXECUTE kept"), 1, "{}", made.table);
        session.run("DEALLOCATE kept");
    }
}

#[test]
fn writes_replace_an_expired_row_in_any_shape_of_table() {
    let database = Cluster::shared().database();
    for path in ["auto", "plan"] {
        let mut session = database.connect();
        session.run(&format!("SET pgcache.table_path = {path}"));
        for made in TABLES {
            attach(&mut session, made);
            let [one, other] = made.keys;
            let (past, future) = (made.past, made.future);
            for write in [
                "",
                "ON CONFLICT DO NOTHING",
                "ON CONFLICT (k) DO UPDATE SET v = NULL, e = NULL",
            ] {
                session.run("DELETE FROM t");
                for deadline in [past, past] {
                    // The second row replaces the first row, which has expired.
                    session.run(&format!(
                        "INSERT INTO t (k, v, e) VALUES ({one}, '1', {deadline})"
                    ));
                }
                let done = session.number(&format!(
                    "WITH i AS (INSERT INTO t (k, v, e) VALUES ({one}, '2', {future}), ({other}, '2', {future}) {write} \
                     RETURNING 1) SELECT count(*) FROM i"
                ));
                assert_eq!(done, 2, "{}: {write}", made.table);
                assert_eq!(
                    session.lines(&format!("{COUNT} WHERE v IS NOT NULL")),
                    ["2"],
                    "{}: {write}",
                    made.table
                );
            }
        }
    }
}

#[test]
fn a_ttl_of_an_attached_table_counts_from_the_clock_in_its_own_unit() {
    let mut session = Cluster::shared().database().connect();
    for made in TABLES
        .iter()
        .filter(|made| !made.table.contains("e timestamptz"))
    {
        attach(&mut session, made);
        session.run("SELECT cache_alter('t', ttl => '1 second')");
        session.run("BEGIN; SELECT pg_sleep(2.1)");
        let key = made.keys[0];
        session.run(&format!("INSERT INTO t (k, v) VALUES ({key}, '1')"));
        assert_eq!(session.number(COUNT), 1, "{}", made.table);
        session.run("COMMIT; SELECT pg_sleep(2.1)");
        assert_eq!(session.number(COUNT), 0, "{}", made.table);
        session.run("SELECT cache_alter('t', ttl => cache_forever())");
        let default = "SELECT count(*) FROM pg_attrdef WHERE adrelid = 't'::regclass";
        assert_eq!(session.number(default), 0, "{}", made.table);
    }
}

/// Returns the number of rows that EXPLAIN expects a scan to return.
fn expected(session: &mut Client) -> i64 {
    let plan = session.lines("EXPLAIN SELECT * FROM t");
    let rows = plan[0]
        .split("rows=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    rows.and_then(|rows| rows.parse().ok())
        .expect("the plan shows a row count")
}

#[test]
fn the_planner_knows_how_many_rows_are_live() {
    let mut session = Cluster::shared().database().connect();
    for made in TABLES
        .iter()
        .filter(|made| made.keys == NUMBERS || made.keys == WORDS)
    {
        attach(&mut session, made);
        let (past, future) = (made.past, made.future);
        session.run(&format!(
            "INSERT INTO t (k, v, e) SELECT g::text{}, '1', CASE WHEN g % 2 = 0 THEN {past} ELSE {future} END \
             FROM generate_series(1, 1000) AS g; ANALYZE t",
            if made.keys == NUMBERS { "::bigint" } else { "" }
        ));
        let rows = expected(&mut session);
        assert!((400..=600).contains(&rows), "{}: {rows}", made.table);
    }
}

#[test]
fn a_generated_deadline_hides_its_row() {
    let mut session = Cluster::shared().database().connect();
    session.run(
        "CREATE TABLE t (k varchar PRIMARY KEY, v text, born int, e int GENERATED ALWAYS AS (born + 60) STORED); \
         SELECT cache_attach('t', key_column => 'k', value_column => 'v', expires_column => 'e', expires_unit => 's')",
    );
    let put = "INSERT INTO t VALUES ('a', 'v', extract(epoch FROM now())::int - $age) \
               ON CONFLICT (k) DO UPDATE SET v = t.v || 'v', born = excluded.born";
    session.run(&put.replace("$age", "61"));
    assert_eq!(session.number(COUNT), 0);
    session.run(&put.replace("$age", "0"));
    assert_eq!(session.lines("SELECT v FROM t"), ["v"]);
}
