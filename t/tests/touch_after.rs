//! Tests `touch_after`: a touch that would move a deadline only a little writes nothing, and returns the same result as
//! a touch that writes.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::resp::{Door, Reply};
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// Creates a database with the cache `c`, whose touches write only after a tenth of the ttl has passed.
fn scene(create: &str) -> (Database<'static>, Client) {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run(&format!(
        "{create}; SELECT cache_tune('c', touch_after => 0.1)"
    ));
    (database, session)
}

const CREATE: &str = "SELECT cache_create('c')";
const SET: &str = "SELECT cache_set('k', 'v', '1 hour', 'c')";
const TOUCH: &str = "SELECT cache_touch('k', '1 hour', 'c')";
const GET_TOUCH: &str = "SELECT cache_get_touch('k', '1 hour', 'c')";

/// Returns the version of the row (xmin and ctid) and its deadline.
fn row(session: &mut Client) -> Vec<String> {
    session.lines("SELECT ctid, xmin, expires_at FROM c WHERE key = 'k'")
}

/// Runs a statement that returns one value, in a transaction. Returns the value, and whether the statement wrote the
/// row.
fn touched(session: &mut Client, statement: &str) -> (Option<String>, bool) {
    let before = row(session);
    session.run("BEGIN");
    let value = session.value(statement);
    let has_id = session.holds("SELECT pg_current_xact_id_if_assigned() IS NOT NULL");
    session.run("COMMIT");
    let is_written = row(session) != before;
    assert!(is_written || !has_id, "{statement} took a transaction id");
    (value, is_written)
}

#[track_caller]
fn left(session: &mut Client, statement: &str, value: &str) {
    assert_eq!(
        touched(session, statement),
        (Some(value.to_owned()), false),
        "{statement}"
    );
}

#[track_caller]
fn written(session: &mut Client, statement: &str, value: &str) {
    assert_eq!(
        touched(session, statement),
        (Some(value.to_owned()), true),
        "{statement}"
    );
}

/// Sets the deadline as if the entry had been touched this many minutes ago with a ttl of an hour.
fn age(session: &mut Client, minutes: u32) {
    session.run(&format!(
        "UPDATE c SET expires_at = clock_timestamp() + interval '1 hour' - interval '{minutes} minutes'"
    ));
}

#[test]
fn a_touch_that_moves_a_deadline_by_little_writes_nothing() {
    for create in [
        "SELECT cache_create('c')",
        "SELECT cache_create('c', '1 hour', 'logged')",
        "SELECT cache_create('c', value_type => 'bytea')",
    ] {
        for path in ["auto", "plan"] {
            let (_database, mut session) = scene(create);
            session.run(&format!("SET pgcache.table_path = {path}"));
            session.run(SET);
            for is_hot in [false, true] {
                if is_hot {
                    session.heat("k", "c");
                }
                left(&mut session, TOUCH, "t");
                left(&mut session, GET_TOUCH, "v");
                if is_hot {
                    let hits = session.hot_hits("c");
                    assert_eq!(session.text(GET_TOUCH), "v");
                    assert_eq!(session.hot_hits("c"), hits + 1, "{create}");
                }
                age(&mut session, 5);
                left(&mut session, TOUCH, "t");
                left(&mut session, GET_TOUCH, "v");
                let ttl = "SELECT cache_ttl('k', 'c') BETWEEN '54 minutes' AND '55 minutes'";
                assert!(session.holds(ttl), "{create}");
                age(&mut session, 7);
                written(&mut session, TOUCH, "t");
                age(&mut session, 7);
                written(&mut session, GET_TOUCH, "v");
                let ttl = "SELECT cache_ttl('k', 'c') > '59 minutes'";
                assert!(session.holds(ttl), "{create}");
            }
            // A longer ttl moves the deadline by more than a tenth of the ttl.
            written(&mut session, "SELECT cache_touch('k', '2 hours', 'c')", "t");
        }
    }
}

#[test]
fn a_negative_entry_is_left_as_well() {
    let (_database, mut session) = scene(CREATE);
    session.run("SELECT cache_set('k', NULL, '1 hour', 'c')");
    left(&mut session, TOUCH, "t");
    assert_eq!(touched(&mut session, GET_TOUCH), (None, false));
}

#[test]
fn a_touch_that_shortens_a_life_is_written() {
    let (_database, mut session) = scene(CREATE);
    session.run(SET);
    written(
        &mut session,
        "SELECT cache_touch('k', '59 minutes', 'c')",
        "t",
    );
    // An entry without a deadline gets a deadline.
    for never in ["NULL", "'infinity'"] {
        session.run(&format!("UPDATE c SET expires_at = {never}"));
        written(&mut session, TOUCH, "t");
        session.run(&format!("UPDATE c SET expires_at = {never}"));
        written(&mut session, GET_TOUCH, "v");
    }
    // An entry with a deadline loses the deadline.
    written(
        &mut session,
        "SELECT cache_touch('k', cache_forever(), 'c')",
        "t",
    );
    session.run(SET);
    written(&mut session, "SELECT cache_persist('k', 'c')", "t");
    // The touch compares with the stored deadline, which jitter has shortened at random.
    session.run("SELECT cache_tune('c', ttl_jitter => 1)");
    for _ in 0..20 {
        session.run(SET);
        let moved_by =
            "SELECT clock_timestamp() + interval '1 hour' - expires_at >= '6 minutes' FROM c";
        let moves = session.holds(moved_by);
        assert_eq!(touched(&mut session, TOUCH), (Some("t".into()), moves));
    }
}

#[test]
fn an_entry_that_is_not_there_is_not_touched() {
    let (_database, mut session) = scene(CREATE);
    let absent = |session: &mut Client| {
        assert_eq!(touched(session, TOUCH), (Some("f".into()), false));
        assert_eq!(touched(session, GET_TOUCH), (None, false));
    };
    absent(&mut session);
    session.run("INSERT INTO c VALUES ('k', 'v', now() - interval '1 second')");
    absent(&mut session);
    session.run(SET);
    session.heat("k", "c");
    session.run("BEGIN; SELECT cache_delete('k', 'c')");
    assert_eq!(session.text(TOUCH), "f");
    assert_eq!(session.value(GET_TOUCH), None);
    session.run("ROLLBACK");
    left(&mut session, GET_TOUCH, "v");
}

#[test]
fn a_transaction_touches_entries_that_it_has_written() {
    let (_database, mut session) = scene(CREATE);
    session.run("SELECT cache_set('k', 'old', '10 minutes', 'c')");
    session.heat("k", "c");
    session.run(&format!("BEGIN; {SET}"));
    let deadline = session.text("SELECT expires_at FROM c");
    assert_eq!(session.text(TOUCH), "t");
    assert_eq!(session.text(GET_TOUCH), "v");
    assert_eq!(session.text("SELECT expires_at FROM c"), deadline);
    session.run("SAVEPOINT s; SELECT cache_set('k', 'new', '2 hours', 'c')");
    assert_eq!(
        session.text("SELECT cache_get_touch('k', '2 hours', 'c')"),
        "new"
    );
    session.run("ROLLBACK TO s");
    assert_eq!(session.text(GET_TOUCH), "v");
    session.run("COMMIT");
    assert_eq!(session.text("SELECT expires_at FROM c"), deadline);
    session.verified("c");
}

/// A touch that writes nothing is a read. It does not wait for another session's change of the row, and counts as if it
/// happened before that change.
#[test]
fn a_left_touch_waits_for_no_lock_on_the_row() {
    let (database, mut session) = scene(CREATE);
    session.run("SET lock_timeout = '5s'");
    let mut other = database.connect();
    for change in [
        "UPDATE c SET value = 'new'",
        "SELECT * FROM c FOR UPDATE",
        "DELETE FROM c",
        "SELECT cache_touch('k', '2 hours', 'c')",
    ] {
        for is_hot in [false, true] {
            session.run(SET);
            if is_hot {
                session.heat("k", "c");
            }
            other.run(&format!("BEGIN; {change}"));
            assert_eq!(session.text(TOUCH), "t", "{change}");
            assert_eq!(session.text(GET_TOUCH), "v", "{change}");
            other.run("COMMIT");
            let live = session.value("SELECT value FROM c");
            assert_eq!(session.value(GET_TOUCH), live, "{change}");
            session.verified("c");
        }
    }
}

#[test]
fn a_snapshot_is_touched_as_it_shows_the_entry() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (database, mut session) = scene(CREATE);
        session.run(SET);
        session.heat("k", "c");
        session.run(&format!(
            "BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM c"
        ));
        let mut other = database.connect();
        other.run("SELECT cache_set('k', 'new', '2 hours', 'c')");
        assert_eq!(session.text(TOUCH), "t");
        assert_eq!(session.text(GET_TOUCH), "v");
        let has_id = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL";
        assert!(!session.holds(has_id), "{level}");
        // A touch that writes conflicts with the other session's change.
        refused(
            session.try_lines("SELECT cache_touch('k', '3 hours', 'c')"),
            "40001",
        );
        session.run("ROLLBACK");
        assert_eq!(session.text("SELECT value FROM c"), "new");
    }
}

#[test]
fn user_defined_triggers_rules_and_policies_see_every_touch() {
    let (database, mut session) = scene(CREATE);
    let role = database.cluster.role();
    session.run(&format!(
        "CREATE TABLE seen (key text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
             $$ BEGIN INSERT INTO public.seen VALUES ('k'); RETURN NEW; END $$;
         GRANT ALL ON c TO {role}"
    ));
    let mut user = database.connect_as(&role);
    let count = "SELECT count(*) FROM seen";
    for (make, drop) in [
        (
            "CREATE TRIGGER see BEFORE UPDATE ON c FOR EACH ROW EXECUTE FUNCTION see()",
            "DROP TRIGGER see ON c",
        ),
        (
            "CREATE TRIGGER see AFTER UPDATE OF expires_at ON c FOR EACH STATEMENT EXECUTE FUNCTION see()",
            "DROP TRIGGER see ON c",
        ),
        (
            "CREATE RULE see AS ON UPDATE TO c DO ALSO INSERT INTO public.seen VALUES ('k')",
            "DROP RULE see ON c",
        ),
    ] {
        session.run(SET);
        session.heat("k", "c");
        session.run(make);
        for touch in [TOUCH, GET_TOUCH] {
            let before = session.number(count);
            session.run(touch);
            assert_eq!(session.number(count), before + 1, "{make}: {touch}");
        }
        session.run(drop);
        session.run(SET);
        left(&mut session, TOUCH, "t");
    }
    // A role that may read the row but not change it cannot touch it.
    session.run(
        "CREATE POLICY reads ON c FOR SELECT USING (true); ALTER TABLE c ENABLE ROW LEVEL SECURITY",
    );
    assert_eq!(user.text(TOUCH), "f");
    assert_eq!(user.value(GET_TOUCH), None);
    assert_eq!(user.text("SELECT cache_get('k', 'c')"), "v");
}

#[test]
fn rights_and_read_only_transactions_count_as_before() {
    let (database, mut session) = scene(CREATE);
    session.run(SET);
    let role = database.cluster.role();
    session.run(&format!("GRANT SELECT ON c TO {role}"));
    let mut user = database.connect_as(&role);
    let without_ttl = "SELECT cache_get_touch('k', cache => 'c')";
    for touch in [TOUCH, GET_TOUCH, without_ttl] {
        refused(user.try_lines(touch), "42501");
        session.run("BEGIN READ ONLY");
        refused(session.try_lines(touch), "25006");
        session.run("ROLLBACK");
    }
}

#[test]
fn attached_tables_compare_deadlines_as_they_hold_them() {
    for (unit, kind) in [("s", "integer"), ("s", "bigint"), ("ms", "bigint")] {
        let (_database, mut session) = scene(&format!(
            "CREATE TABLE c (key text PRIMARY KEY, value text, expires_at {kind} NOT NULL);
             SELECT cache_attach('c', expires_unit => '{unit}')"
        ));
        session.run("SELECT cache_set('k', 'v', '10 minutes', 'c')");
        // Deadlines are rounded up to whole units, so the stored deadline can be later than the requested deadline.
        for _ in 0..5 {
            left(
                &mut session,
                "SELECT cache_touch('k', '10 minutes', 'c')",
                "t",
            );
        }
        written(
            &mut session,
            "SELECT cache_touch('k', '20 minutes', 'c')",
            "t",
        );
        written(&mut session, "SELECT cache_persist('k', 'c')", "t");
        written(
            &mut session,
            "SELECT cache_get_touch('k', '10 minutes', 'c')",
            "v",
        );
    }
}

#[test]
fn a_partitioned_cache_reads_the_partition_of_the_key() {
    let (_database, mut session) = scene(
        "CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY LIST (key);
         CREATE TABLE c_k PARTITION OF c FOR VALUES IN ('k');
         CREATE TABLE c_l PARTITION OF c FOR VALUES IN ('l');
         SELECT cache_attach('c');
         CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    );
    session.run(SET);
    left(&mut session, TOUCH, "t");
    let trigger = "TRIGGER pass BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION pass()";
    session.run(&format!("CREATE {}", trigger.replace("{}", "c_l")));
    left(&mut session, TOUCH, "t");
    session.run(&format!("CREATE {}", trigger.replace("{}", "c_k")));
    written(&mut session, TOUCH, "t");
    session.run("DROP TRIGGER pass ON c_k");
    left(&mut session, GET_TOUCH, "v");
}

#[test]
fn another_session_changes_the_setting() {
    let (database, mut session) = scene(CREATE);
    let mut other = database.connect();
    session.run(SET);
    let shown = "SELECT touch_after FROM pgcache.caches WHERE cache = 'c'::regclass";
    for (share, writes) in [("0", true), ("0.5", false), ("0.05", true), ("0.1", false)] {
        other.run(&format!("SELECT cache_tune('c', touch_after => {share})"));
        age(&mut session, 4);
        let (_, is_written) = touched(&mut session, TOUCH);
        assert_eq!(is_written, writes, "{share}");
        let share = Some(share.to_owned()).filter(|share| share != "0");
        assert_eq!(session.value(shown), share);
    }
    // Changes of other settings do not affect touch_after.
    other.run("SELECT cache_tune('c', ttl_jitter => 0.2), cache_alter('c', '1 day')");
    assert_eq!(session.text(shown), "0.1");
}

#[test]
fn a_memory_cache_has_no_such_setting() {
    let database = Cluster::hot().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('m', storage => 'memory')");
    refused(
        session.try_lines("SELECT cache_tune('m', touch_after => 0.1)"),
        "0A000",
    );
    session.run("SELECT cache_tune('m', touch_after => 0)");
    for share in ["-0.1", "0.51", "'NaN'", "'infinity'"] {
        let tune = format!("SELECT cache_tune('m', touch_after => {share})");
        refused(session.try_lines(&tune), "22023");
    }
}

#[test]
fn many_touches_take_no_ids() {
    let (_database, mut session) = scene(CREATE);
    session.run("SELECT cache_set('k' || g, 'v', '1 hour', 'c') FROM generate_series(1, 100) AS g");
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
    let before = session.number(next);
    for key in 1..=100 {
        session.run(&format!("SELECT cache_get_touch('k{key}', '1 hour', 'c')"));
    }
    let taken = session.number(next) - before;
    assert!(taken < 20, "{taken}");
}

#[test]
fn commands_of_the_redis_protocol_leave_deadlines_too() {
    let door = Door::start(&[
        "pgcache.resp_caches = 'public.c, public.plain'",
        "pgcache.expire_interval = 0",
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT cache_create('c'), cache_create('plain'); SELECT cache_tune('c', touch_after => 0.1)");
    let mut client = door.client();
    let one = || Reply::Integer(1);
    let value = || Reply::bulk("v");
    client.ask(&["SET", "k", "v", "EX", "3600"]);
    let moment = session
        .text("SELECT (extract(epoch FROM clock_timestamp())::bigint + 3601) * 1000")
        .parse::<i64>()
        .expect("a number");
    let [seconds, milliseconds] = [(moment / 1000).to_string(), moment.to_string()];
    for (command, reply, writes) in [
        (&["EXPIRE", "k", "3600"][..], one(), false),
        (&["PEXPIRE", "k", "3600000"], one(), false),
        (&["GETEX", "k", "EX", "3600"], value(), false),
        (&["GETEX", "k", "PX", "3600000"], value(), false),
        (&["GETEX", "k"], value(), false),
        (&["EXPIREAT", "k", &seconds], one(), true),
        (&["PEXPIREAT", "k", &milliseconds], one(), true),
        (&["GETEX", "k", "EXAT", &seconds], value(), true),
        (&["GETEX", "k", "PXAT", &milliseconds], value(), true),
        (&["EXPIRE", "k", "3602", "XX"], one(), true),
        (&["EXPIRE", "k", "3603", "GT"], one(), true),
        (&["EXPIRE", "k", "3600", "LT"], one(), true),
        (&["PERSIST", "k"], one(), true),
        (&["EXPIRE", "k", "3600", "NX"], one(), true),
        (&["GETEX", "k", "PERSIST"], value(), true),
        (&["EXPIRE", "k", "3600"], one(), true),
        (&["EXPIRE", "k", "3590"], one(), true),
        (&["GETEX", "k", "EX", "3500"], value(), true),
        (&["EXPIRE", "k", "4000"], one(), true),
    ] {
        let before = row(&mut session);
        assert_eq!(client.ask(command), reply, "{command:?}");
        assert_eq!(row(&mut session) != before, writes, "{command:?}");
    }
    session.run("UPDATE c SET expires_at = clock_timestamp() + interval '3500 seconds'");
    assert_eq!(client.ask(&["EXPIRE", "k", "3600"]), one());
    assert_eq!(client.ask(&["TTL", "k"]), Reply::Integer(3500));
    assert_eq!(client.ask(&["EXPIRE", "absent", "3600"]), Reply::Integer(0));
    assert_eq!(client.ask(&["GETEX", "absent", "EX", "3600"]), Reply::Null);
}
