//! Tests that an executor runs a command only as the client's role: its privileges and settings apply, and triggers
//! cannot escape from the role.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::resp::{CACHE, Door, Reply};
use pgcache_tests::tables::{LOGGED, UNLOGGED, client_in, executors, reply, send, start};
use pgcache_tests::wait::wait_until;

const OK: fn() -> Reply = || Reply::status("OK");

#[test]
fn a_right_that_was_taken_away_is_gone_at_once() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE app LOGIN");
    let mut client = client_in(&door, 1, Some("app"));
    assert!(client.ask(&["SET", "k", "v"]).error().starts_with("NOPERM"));
    for _ in 0..20 {
        session.run(&format!(
            "GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO app"
        ));
        assert_eq!(client.ask(&["SET", "k", "v"]), OK());
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
        session.run(&format!("REVOKE INSERT ON {UNLOGGED} FROM app"));
        assert!(client.ask(&["SET", "k", "v"]).error().starts_with("NOPERM"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
        session.run(&format!("REVOKE ALL ON {UNLOGGED} FROM app"));
        assert!(client.ask(&["GET", "k"]).error().starts_with("NOPERM"));
    }
}

#[test]
fn policies_are_about_the_clients_role() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE one LOGIN; CREATE ROLE two LOGIN;
         GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO one, two;
         ALTER TABLE {UNLOGGED} ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON {UNLOGGED} USING (key LIKE current_user || '%' AND session_user = current_user)"
    ));
    let mut clients = ["one", "two"].map(|role| (role, client_in(&door, 1, Some(role))));
    for _ in 0..10 {
        for (role, client) in &mut clients {
            assert_eq!(client.ask(&["SET", role, "mine"]), OK());
        }
        for (role, client) in &mut clients {
            let other = if *role == "one" { "two" } else { "one" };
            assert_eq!(client.ask(&["GET", role]), Reply::bulk("mine"));
            assert_eq!(client.ask(&["GET", other]), Reply::Null);
            assert!(
                client
                    .ask(&["SET", other, "theirs"])
                    .error()
                    .contains("policy")
            );
        }
    }
}

/// Statements with which a trigger attacks the executor. Each runs immediately and at the commit.
const TRICKS: &[&str] = &[
    "SET ROLE postgres",
    "SET LOCAL ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "SET SESSION AUTHORIZATION DEFAULT",
    "RESET SESSION AUTHORIZATION",
    "RESET ROLE",
    "SET ROLE none",
];

#[test]
fn a_trigger_does_not_become_another_role() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN;
         GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO app;
         CREATE TABLE seen (trick text, who text);
         GRANT SELECT, INSERT ON seen TO app;
         GRANT CREATE ON SCHEMA public TO app;
         SET ROLE app;
         CREATE FUNCTION try_it() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             BEGIN
                 EXECUTE NEW.value;
             EXCEPTION WHEN OTHERS THEN
                 INSERT INTO seen VALUES (NEW.value, 'refused');
             END;
             INSERT INTO seen VALUES (NEW.value, current_user || ' ' || session_user || ' '
                 || current_setting('is_superuser'));
             RETURN NULL;
         END $$;
         RESET ROLE;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON {UNLOGGED}
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION try_it();
         CREATE TRIGGER at_once AFTER INSERT OR UPDATE ON {UNLOGGED}
             FOR EACH ROW EXECUTE FUNCTION try_it()"
    ));
    let mut client = client_in(&door, 1, Some("app"));
    for (number, trick) in TRICKS.iter().enumerate() {
        session.run("TRUNCATE seen");
        assert_eq!(client.ask(&["SET", &number.to_string(), trick]), OK());
        let seen = session.lines("SELECT DISTINCT who FROM seen ORDER BY who");
        assert_eq!(seen, ["app app off", "refused"], "{trick}");
        let twice = session.number("SELECT count(*) FROM seen WHERE who <> 'refused'");
        assert_eq!(twice, 2, "at once, and at the commit");
    }
}

#[test]
fn a_trigger_leaves_nothing_for_the_next_role() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE evil LOGIN; CREATE ROLE good LOGIN;
         GRANT SELECT, INSERT, UPDATE ON {UNLOGGED}, {LOGGED} TO evil, good;
         CREATE SCHEMA trap;
         CREATE FUNCTION lay() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF current_user = 'evil' THEN
                 SET search_path = trap, public;
                 SET statement_timeout = '1ms';
                 CREATE TEMP TABLE log (word text);
                 PERFORM pg_advisory_lock(4711);
             END IF;
             RETURN NULL;
         END $$;
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO log VALUES (current_setting('search_path'));
             RETURN NULL;
         END $$;
         CREATE TABLE log (word text);
         GRANT INSERT ON log TO good;
         CREATE TRIGGER lay AFTER INSERT ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION lay();
         CREATE TRIGGER note AFTER INSERT ON {LOGGED} FOR EACH ROW EXECUTE FUNCTION note();
         GRANT TEMP ON DATABASE postgres TO evil"
    ));
    let (mut evil, mut good) = (
        client_in(&door, 1, Some("evil")),
        client_in(&door, 2, Some("good")),
    );
    for key in ["a", "b", "c"] {
        assert_eq!(evil.ask(&["SET", key, "v"]), OK());
        assert_eq!(good.ask(&["SET", key, "v"]), OK());
    }
    let words = session.lines("SELECT DISTINCT word FROM public.log");
    assert_eq!(words, ["\"$user\", public"]);
    assert_eq!(session.number("SELECT count(*) FROM public.log"), 3);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711";
    assert_eq!(session.number(held), 0);
}

#[test]
fn the_roles_own_timeouts_count() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE hasty LOGIN;
         ALTER ROLE hasty SET lock_timeout = '300ms';
         CREATE ROLE timed LOGIN;
         ALTER ROLE timed SET statement_timeout = '300ms';
         GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO hasty, timed"
    ));
    let mut hasty = client_in(&door, 1, Some("hasty"));
    let mut timed = client_in(&door, 1, Some("timed"));
    assert_eq!(hasty.ask(&["SET", "k", "1"]), OK());
    session.run(&format!(
        "BEGIN; UPDATE {UNLOGGED} SET value = 'sql' WHERE key = 'k'"
    ));
    let began = Instant::now();
    let words = hasty.ask(&["SET", "k", "2"]).error();
    assert!(words.contains("lock timeout"), "{words}");
    assert!(
        began.elapsed() >= Duration::from_millis(290),
        "{:?}",
        began.elapsed()
    );
    // In a pipeline only the command whose wait times out fails.
    for key in ["first", "k", "last"] {
        send(&mut hasty, &["SET", key, "2"]);
    }
    assert_eq!(reply(&mut hasty), OK());
    assert!(reply(&mut hasty).error().contains("lock timeout"));
    assert_eq!(reply(&mut hasty), OK());
    let words = timed.ask(&["SET", "k", "2"]).error();
    assert!(words.contains("statement timeout"), "{words}");
    send(&mut hasty, &["SET", "other", "2"]);
    assert_eq!(reply(&mut hasty), OK());
    session.run("ROLLBACK");
    assert_eq!(timed.ask(&["SET", "k", "3"]), OK());
}

/// A table gets a trigger while a command waits for the table. Changes that the trigger makes to the session affect no
/// other client.
#[test]
fn a_trigger_that_is_made_while_a_command_waits_leaves_nothing() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let (mut waits, mut others) = (client_in(&door, 1, None), client_in(&door, 2, None));
    assert_eq!(waits.ask(&["SET", "k", "1"]), OK());
    session.run(
        "CREATE FUNCTION leaves() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM set_config('default_transaction_read_only', 'on', false); RETURN NEW; END $$",
    );
    session.run(&format!(
        "BEGIN; LOCK TABLE {UNLOGGED} IN SHARE ROW EXCLUSIVE MODE"
    ));
    send(&mut waits, &["SET", "k", "2"]);
    let mut watcher = door.cluster.connect("postgres");
    wait_until("it waits for the table", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
    session.run(&format!(
        "CREATE TRIGGER leaves BEFORE INSERT OR UPDATE ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION leaves(); COMMIT"
    ));
    assert_eq!(reply(&mut waits), OK());
    for _ in 0..3 {
        assert_eq!(others.ask(&["SET", "k", "v"]), OK());
        // The executor of the slow lane is not affected.
        assert_eq!(waits.ask(&["SET", "k", "3"]), OK());
    }
}

/// Waits until a command waits for a lock.
fn wait_until_it_waits(door: &Door) {
    let mut watcher = door.cluster.connect("postgres");
    wait_until("it waits for the lock", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
}

/// The trigger takes a session-level advisory lock and fails. The abort does not release this lock, but the executor
/// must. The trigger runs once, with its role's settings.
#[test]
fn a_trigger_that_is_made_while_a_command_waits_runs_under_its_own_terms() {
    let door = start(&["pgcache.resp_executors = 2"]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO app;
         CREATE SCHEMA own; GRANT USAGE ON SCHEMA own TO app; ALTER ROLE app SET search_path = own;
         CREATE SEQUENCE own.runs; GRANT USAGE ON SEQUENCE own.runs TO app;
         CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM nextval('runs'), pg_advisory_lock(4711), pg_advisory_xact_lock(4712);
             RAISE EXCEPTION 'it fails';
         END $$;
         SELECT pg_advisory_lock(4712)"
    ));
    let mut app = client_in(&door, 1, Some("app"));
    assert_eq!(app.ask(&["SET", "k", "1"]), OK());
    let mut other = door.cluster.connect("postgres");
    other.run(&format!(
        "BEGIN; LOCK TABLE {UNLOGGED} IN SHARE ROW EXCLUSIVE MODE"
    ));
    send(&mut app, &["SET", "k", "2"]);
    wait_until_it_waits(&door);
    other.run(&format!(
        "CREATE TRIGGER fails BEFORE INSERT ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION fails(); COMMIT"
    ));
    let held = |key: u32| {
        format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {key}")
    };
    wait_until("its code waits", || other.number(&held(4712)) == 2);
    // This is longer than any other command waits for a lock before it gives up.
    other.run("SELECT pg_sleep(0.5)");
    session.run("SELECT pg_advisory_unlock(4712)");
    assert_eq!(reply(&mut app).error(), "ERR it fails");
    assert_eq!(session.number("SELECT last_value FROM own.runs"), 1);
    assert_eq!(session.number(&held(4711)), 0);
}

/// A table gets a policy while a read waits for the table. The policy's functions leave nothing in the session.
#[test]
fn a_policy_that_is_made_while_a_command_waits_leaves_nothing() {
    let door = start(&["pgcache.resp_executors = 2"]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO app;
         CREATE FUNCTION leaves() RETURNS boolean LANGUAGE plpgsql AS
         $$ BEGIN PERFORM set_config('default_transaction_read_only', 'on', false); RETURN true; END $$"
    ));
    let (mut app, mut other) = (client_in(&door, 1, Some("app")), client_in(&door, 2, None));
    assert_eq!(app.ask(&["SET", "k", "1"]), OK());
    assert_eq!(other.ask(&["FLUSHDB"]), OK());
    session.run(&format!("BEGIN; LOCK TABLE {UNLOGGED}"));
    send(&mut app, &["GET", "k"]);
    wait_until_it_waits(&door);
    session.run(&format!(
        "CREATE POLICY leaves ON {UNLOGGED} USING (leaves());
         ALTER TABLE {UNLOGGED} ENABLE ROW LEVEL SECURITY; COMMIT"
    ));
    assert_eq!(reply(&mut app), Reply::bulk("1"));
    // The next command runs in the same session, because the slow lane has one process.
    assert_eq!(other.ask(&["FLUSHDB"]), OK());
}

/// While the settings of roles are locked, the cached settings apply. A role without cached settings waits, and delays
/// no other client.
#[test]
fn locked_settings_of_roles_stall_no_client() {
    let door = start(&["pgcache.resp_executors = 2"]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO app"
    ));
    let (mut known, mut app) = (client_in(&door, 1, None), client_in(&door, 1, Some("app")));
    assert_eq!(known.ask(&["SET", "k", "1"]), OK());
    // This loads the role's permissions, so that the next commands need no executor for them.
    assert!(app.ask(&["SET", "k"]).error().contains("arguments"));
    session.run("BEGIN; LOCK TABLE pg_db_role_setting");
    send(&mut app, &["SET", "app", "1"]);
    // Repeat this for longer than the cached permissions of a role stay valid.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        assert_eq!(known.ask(&["SET", "k", "2"]), OK());
    }
    session.run("COMMIT");
    assert_eq!(reply(&mut app), OK());
}

/// An executor works for many roles, so no role's trigger may end it.
#[test]
fn a_trigger_does_not_end_an_executor() {
    let door = start(&["pgcache.resp_executors = 2"]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE ON {UNLOGGED} TO app;
         CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN EXECUTE NEW.value; RAISE EXCEPTION 'it fails'; END $$;
         CREATE TRIGGER ends BEFORE INSERT ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION ends()"
    ));
    let before = executors(&door);
    let mut app = client_in(&door, 1, Some("app"));
    for trick in [
        "SET exit_on_error = on",
        "SELECT set_config('exit_on_error', 'on', true)",
        "SET transaction_timeout = 1; SELECT pg_sleep(1)",
        "SET log_min_messages = panic",
    ] {
        let words = app.ask(&["SET", "k", trick]).error();
        assert!(!words.contains("it is unknown whether"), "{trick}: {words}");
    }
    assert_eq!(app.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(executors(&door), before);
}

/// Commands whose effect depends on the existing entry, each with the SQL that has the same effect.
const DECIDED: &[(&[&str], &str, &str)] = &[
    (
        &["SET", "counter", "9"],
        "cache_set('counter', '9', cache => $1)",
        "",
    ),
    (
        &["INCR", "counter"],
        "cache_incr('counter', cache => $1)::text",
        "NULL",
    ),
    (&["INCRBYFLOAT", "counter", "1"], "", ""),
    (&["APPEND", "counter", "0"], "", ""),
    (&["SETRANGE", "counter", "0", "7"], "", ""),
    (&["GETSET", "counter", "7"], "", ""),
    (&["SET", "counter", "7", "KEEPTTL"], "", ""),
    (
        &["GETEX", "counter", "EX", "100"],
        "cache_get_touch('counter', '100 s', $1)",
        "NULL",
    ),
    (
        &["INCR", "absent"],
        "cache_incr_existing('counter', 1, $1)::text",
        "NULL",
    ),
    (&["APPEND", "absent", "0"], "", ""),
];

#[test]
fn writes_prevented_by_a_trigger_are_never_the_answer() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "SELECT cache_set('counter', '5', cache => '{UNLOGGED}');
         CREATE FUNCTION prevent() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER a_prevent BEFORE INSERT OR UPDATE OR DELETE ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION prevent()"
    ));
    let mut client = client_in(&door, 1, None);
    for (command, function, answer) in DECIDED {
        let error = client.ask(command).error();
        assert!(
            error.contains("prevented this change"),
            "{command:?}: {error:?}"
        );
        if !function.is_empty() {
            let call = function.replace("$1", &format!("'{UNLOGGED}'"));
            let given = session.text(&format!("SELECT coalesce({call}::text, 'NULL')"));
            assert_eq!(given, *answer, "{call}");
        }
    }
    for (command, reply) in [
        (&["SETNX", "absent", "1"][..], Reply::Integer(0)),
        (&["SET", "counter", "7", "XX"], Reply::Null),
        (&["SET", "counter", "7", "IFEQ", "5"], Reply::Null),
        (&["EXPIRE", "counter", "100"], Reply::Integer(0)),
        (&["DEL", "counter"], Reply::Integer(0)),
        (&["GETDEL", "counter"], Reply::Null),
        (&["GET", "counter"], Reply::bulk("5")),
        (&["TTL", "counter"], Reply::Integer(-1)),
        (&["GET", "absent"], Reply::Null),
    ] {
        assert_eq!(client.ask(command), reply, "{command:?}");
    }
    for call in [
        "cache_add('absent', '1', cache => $1)",
        "cache_replace('counter', '7', cache => $1)",
        "cache_cas('counter', '5', '7', cache => $1)",
        "cache_delete_if('counter', '5', $1)",
        "cache_persist('counter', $1)",
    ] {
        let call = call.replace("$1", &format!("'{UNLOGGED}'"));
        assert!(!session.holds(&format!("SELECT {call}")), "{call}");
    }
}

/// A policy allows a role to read a row but not to change it. SQL and the protocol must have the same effect.
#[test]
fn writes_prevented_by_a_policy_are_an_error_or_no_effect() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON {UNLOGGED} TO app;
         SELECT cache_set('counter', '5', cache => '{UNLOGGED}'), cache_set('hidden', '5', cache => '{UNLOGGED}');
         ALTER TABLE {UNLOGGED} ENABLE ROW LEVEL SECURITY;
         CREATE POLICY reads ON {UNLOGGED} FOR SELECT USING (key <> 'hidden');
         CREATE POLICY adds ON {UNLOGGED} FOR INSERT WITH CHECK (true)"
    ));
    let mut client = client_in(&door, 1, Some("app"));
    session.run("SET SESSION AUTHORIZATION app");
    for key in ["counter", "hidden"] {
        for command in [
            &["INCR", key][..],
            &["APPEND", key, "0"],
            &["SET", key, "9", "KEEPTTL"],
        ] {
            let error = client.ask(command).error();
            assert!(error.contains("policy"), "{command:?}: {error}");
        }
        let call = format!("SELECT cache_incr('{key}', cache => '{UNLOGGED}')");
        let error = session.try_value(&call).expect_err(&call);
        assert_eq!(sqlstate(&error), "42501");
        let call = format!("SELECT cache_incr_existing('{key}', 1, '{UNLOGGED}') IS NULL");
        assert!(session.holds(&call), "{call}");
    }
    assert_eq!(client.ask(&["GET", "counter"]), Reply::bulk("5"));
}

/// Every executor waits for a locked row, and further commands on locked rows are queued.
#[test]
fn a_new_role_is_served_while_all_other_roles_wait_for_locked_rows() {
    let door = start(&["pgcache.resp_executors = 3"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE late LOGIN");
    session.run(&format!("GRANT SELECT ON {CACHE} TO late"));
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let mut holder = door.cluster.connect("postgres");
    holder.run("BEGIN");
    for key in &keys {
        holder.run(&format!(
            "SELECT cache_set('{key}', 'held', cache => '{UNLOGGED}')"
        ));
    }
    let mut waiting: Vec<_> = keys.iter().map(|_| client_in(&door, 1, None)).collect();
    for (client, key) in waiting.iter_mut().zip(&keys) {
        send(client, &["SET", key, "v"]);
    }
    wait_until("two sessions of the protocol wait for rows", || {
        let waits = "SELECT count(*) FROM pg_stat_activity
                      WHERE backend_type = 'pgcache resp executor' AND wait_event_type = 'Lock'";
        session.number(waits) == 2
    });
    let began = Instant::now();
    let mut late = client_in(&door, 0, Some("late"));
    assert_eq!(late.ask(&["GET", "k0"]), Reply::Null);
    let took = began.elapsed();
    assert!(took < Duration::from_millis(800), "{took:?}"); // 50 ms on an idle machine
    holder.run("COMMIT");
    for client in &mut waiting {
        assert_eq!(reply(client), Reply::status("OK"));
    }
}

/// A trigger of the table counts its writes in a memory cache, as any SQL function may.
#[test]
fn a_trigger_may_use_a_memory_cache_inside_a_command() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "SELECT cache_create('counts', storage => 'memory'), cache_create('json', storage => 'memory', value_type => 'jsonb');
         CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
             PERFORM cache_incr('writes', cache => 'counts'), cache_touch('writes', '1 h', 'counts'),
                     cache_get_touch('writes', '1 h', 'counts'), cache_set_json('j', '[1.0]', cache => 'json'),
                     cache_cas('j', '[1]', '[2]', cache => 'json'), cache_take('j', 'json');
             RETURN NEW;
         END$$;
         CREATE TRIGGER counts BEFORE INSERT OR UPDATE ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION counts()"
    ));
    let mut client = client_in(&door, 1, None);
    let long = "v".repeat(300_000);
    for command in [
        &["SET", "k", "5"][..],
        &["INCR", "k"],
        &["APPEND", "k", &long],
        &["GETEX", "k", "EX", "100"],
        &["MSET", "a", "1", "b", "2"],
    ] {
        if let Reply::Error(words) = client.ask(command) {
            panic!("{}: {words}", command[0]);
        }
    }
    let writes = session.number("SELECT cache_get('writes', 'counts')");
    assert!(writes >= 6, "{writes}");
    assert_eq!(client.ask(&["STRLEN", "k"]), Reply::Integer(300_001));
}

/// A trigger changes the value. Both counter functions must return the stored value.
#[test]
fn a_counter_equals_its_row() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE FUNCTION tenfold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.value := NEW.value || '0'; RETURN NEW; END$$;
         CREATE TRIGGER tenfold BEFORE UPDATE ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION tenfold();
         SELECT cache_set('k', '1', cache => '{UNLOGGED}')"
    ));
    let mut sum = |function: &str| {
        session.number(&format!("SELECT {function}('k', 1, cache => '{UNLOGGED}')"))
    };
    assert_eq!(sum("cache_incr"), 20);
    assert_eq!(sum("cache_incr_existing"), 210);
}
