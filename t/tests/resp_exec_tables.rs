//! Tests EXEC on a table: watched keys without an entry, and many writes of one key.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::readme::page;
use pgcache_tests::refusal::refused;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::{LOGGED, UNLOGGED, client_in, reply, send, start};
use pgcache_tests::wait::wait_until;

const OK: fn() -> Reply = || Reply::status("OK");

/// Returns the reply to an EXEC of these commands.
fn exec(client: &mut Client, commands: &[&[&str]]) -> Reply {
    assert_eq!(client.ask(&["MULTI"]), OK());
    for words in commands {
        assert_eq!(client.ask(words), Reply::status("QUEUED"));
    }
    client.ask(&["EXEC"])
}

/// Takes a lock that a new trigger of the table waits for. So an EXEC that writes the table stays open.
fn wait_in_a_trigger(door: &Door, table: &str) -> postgres::Client {
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.key = 'slow' THEN PERFORM pg_advisory_xact_lock(1); END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER waits BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION waits();
         SELECT pg_advisory_lock(1)"
    ));
    session
}

/// Returns the id that the next writing transaction gets. The query itself uses up one id.
fn next_transaction(session: &mut postgres::Client) -> i64 {
    session.number("SELECT pg_current_xact_id()")
}

fn waiting(session: &mut postgres::Client) -> i64 {
    session.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
}

#[test]
fn a_watched_key_without_an_entry_causes_no_write_and_no_message() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    for (database, table) in [(1, UNLOGGED), (2, LOGGED)] {
        let mut client = client_in(&door, database, None);
        let mut reader = client_in(&door, database, None);
        reader.ask(&["HELLO", "3"]);
        assert_eq!(reader.ask(&["CLIENT", "TRACKING", "ON", "BCAST"]), OK());
        assert_eq!(client.ask(&["WATCH", "absent", "other"]), OK());
        let before = next_transaction(&mut session);
        let done = exec(
            &mut client,
            &[&["GET", "absent"], &["EXPIRE", "other", "9"]],
        );
        assert_eq!(done, Reply::Array(vec![Reply::Null, Reply::Integer(0)]));
        // No transaction got an id, so none wrote WAL.
        assert_eq!(next_transaction(&mut session), before + 1, "{table}");
        let size = format!("SELECT pg_relation_size('{table}')");
        assert_eq!(session.number(&size), 0, "{table}");
        assert_eq!(reader.ask(&["PING"]), Reply::status("PONG"), "{table}");
        // An expired row also stays unchanged.
        session.run(&format!(
            "INSERT INTO {table} (key, value, expires_at) VALUES ('old', 'v', '2001-01-01')"
        ));
        let told = reader.reply();
        assert!(matches!(told, Some(Reply::Push(_))), "{told:?}");
        let before = next_transaction(&mut session);
        assert_eq!(client.ask(&["WATCH", "old"]), OK());
        let done = exec(&mut client, &[&["GET", "old"]]);
        assert_eq!(done, Reply::Array(vec![Reply::Null]));
        assert_eq!(next_transaction(&mut session), before + 1, "{table}");
        assert_eq!(reader.ask(&["PING"]), Reply::status("PONG"), "{table}");
    }
}

#[test]
fn ping_and_echo_reply_in_their_places_of_an_exec() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut client = client_in(&door, 1, None);
    let commands: [&[&str]; 4] = [
        &["PING"],
        &["SET", "k", "v"],
        &["ECHO", "e"],
        &["PING", "m"],
    ];
    let replies = vec![
        Reply::status("PONG"),
        OK(),
        Reply::bulk("e"),
        Reply::bulk("m"),
    ];
    assert_eq!(exec(&mut client, &commands), Reply::Array(replies));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));

    // An invalid command's error becomes its element of the reply, and EXEC checks watched keys even if it contains
    // only a PING.
    let Reply::Array(replies) = exec(&mut client, &[&["PING", "a", "b"], &["GET", "k"]]) else {
        panic!("EXEC has replies");
    };
    assert!(matches!(replies[..], [Reply::Error(_), Reply::Bulk(_)]));
    assert_eq!(client.ask(&["WATCH", "k"]), OK());
    session.run(&format!("UPDATE {UNLOGGED} SET value = 'theirs'"));
    assert_eq!(exec(&mut client, &[&["PING"]]), Reply::Null);

    let refused = exec(&mut client, &[&["PING"], &["SET", "k", "w"], &["TIME"]]).error();
    assert!(refused.starts_with("EXECABORT "), "{refused}");
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("theirs"));
}

#[test]
fn a_watched_key_without_an_entry_gets_none_before_the_commit() {
    let door = start(&[]);
    let mut locks = wait_in_a_trigger(&door, UNLOGGED);
    let mut client = client_in(&door, 1, None);
    let bulk = format!(
        "INSERT INTO {UNLOGGED} (key, value)
         SELECT CASE i WHEN 1 THEN 'absent' ELSE 'b' || i END, 'theirs' FROM generate_series(1, 20000) AS i"
    );
    let statements = [
        format!("INSERT INTO {UNLOGGED} (key, value) VALUES ('absent', 'theirs')"),
        format!("SELECT cache_set('absent', 'theirs', cache => '{UNLOGGED}')"),
        format!("COPY {UNLOGGED} (key, value) FROM PROGRAM 'printf \"absent\\ttheirs\\n\"'"),
        bulk,
    ];
    for statement in statements {
        locks.run(&format!("TRUNCATE {UNLOGGED}"));
        assert_eq!(client.ask(&["WATCH", "absent"]), OK());
        assert_eq!(client.ask(&["MULTI"]), OK());
        client.ask(&["SET", "slow", "1"]);
        client.ask(&["GET", "absent"]);
        send(&mut client, &["EXEC"]);
        wait_until("EXEC waits in its trigger", || waiting(&mut locks) == 1);
        // A session that stores the watched key cannot finish before EXEC does.
        let mut session = door.cluster.connect("postgres");
        let stored = std::thread::spawn(move || session.run(&statement));
        wait_until("it waits for EXEC", || waiting(&mut locks) == 2);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!stored.is_finished());
        let seen = format!("SELECT count(*) FROM {UNLOGGED} WHERE key = 'absent'");
        assert_eq!(locks.number(&seen), 0);
        locks.run("SELECT pg_advisory_unlock(1)");
        assert_eq!(reply(&mut client), Reply::Array(vec![OK(), Reply::Null]));
        stored.join().expect("it is stored");
        assert_eq!(locks.number(&seen), 1);
        locks.run("SELECT pg_advisory_lock(1)");
        // The next WATCH sees the new entry.
        assert_eq!(client.ask(&["WATCH", "absent"]), OK());
        locks.run(&format!("DELETE FROM {UNLOGGED} WHERE key = 'absent'"));
        assert_eq!(exec(&mut client, &[&["GET", "slow"]]), Reply::Null);
    }
}

#[test]
fn many_watched_keys_without_an_entry_take_few_locks() {
    let door = start(&[]);
    let mut locks = wait_in_a_trigger(&door, UNLOGGED);
    let mut client = client_in(&door, 1, None);
    let keys: Vec<String> = (0..4_000).map(|key| format!("absent{key}")).collect();
    let watch: Vec<&str> = std::iter::once("WATCH")
        .chain(keys.iter().map(String::as_str))
        .collect();
    assert_eq!(client.ask(&watch), OK());
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "slow", "1"]);
    send(&mut client, &["EXEC"]);
    wait_until("EXEC waits in its trigger", || waiting(&mut locks) == 1);
    let all = locks.number("SELECT count(*) FROM pg_locks");
    assert!(all < 200, "{all}");
    let mut session = door.cluster.connect("postgres");
    let statement = format!("INSERT INTO {UNLOGGED} (key, value) VALUES ('absent7', 'v')");
    let stored = std::thread::spawn(move || session.run(&statement));
    wait_until("it waits for EXEC", || waiting(&mut locks) == 2);
    locks.run("SELECT pg_advisory_unlock(1)");
    assert_eq!(reply(&mut client), Reply::Array(vec![OK()]));
    stored.join().expect("it is stored");
}

#[test]
fn a_watched_entry_stays_as_it_was_until_the_commit() {
    let door = start(&[]);
    let mut locks = wait_in_a_trigger(&door, UNLOGGED);
    let mut client = client_in(&door, 1, None);
    assert_eq!(client.ask(&["SET", "k", "1"]), OK());
    assert_eq!(client.ask(&["WATCH", "k"]), OK());
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "slow", "1"]);
    client.ask(&["GET", "k"]);
    send(&mut client, &["EXEC"]);
    wait_until("EXEC waits in its trigger", || waiting(&mut locks) == 1);
    let mut session = door.cluster.connect("postgres");
    session.run("SET lock_timeout = '300ms'");
    let change = format!("UPDATE {UNLOGGED} SET value = '2' WHERE key = 'k'");
    assert!(session.batch_execute(&change).is_err());
    locks.run("SELECT pg_advisory_unlock(1)");
    let done = Reply::Array(vec![OK(), Reply::bulk("1")]);
    assert_eq!(reply(&mut client), done);
    session.run(&change);
}

#[test]
fn lock_timeout_ends_the_wait_of_a_commit_for_exec() {
    let door = start(&[]);
    let mut locks = wait_in_a_trigger(&door, UNLOGGED);
    let mut client = client_in(&door, 1, None);
    assert_eq!(client.ask(&["WATCH", "absent"]), OK());
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "slow", "1"]);
    send(&mut client, &["EXEC"]);
    wait_until("EXEC waits in its trigger", || waiting(&mut locks) == 1);
    let mut session = door.cluster.connect("postgres");
    session.run("SET lock_timeout = '100ms'");
    let store = format!("INSERT INTO {UNLOGGED} (key, value) VALUES ('absent', 'v')");
    let ended = refused(session.try_lines(&store), "55P03");
    let hint = ended.hint().expect("the error says what to do");
    assert!(page("docs/reference.md").contains(hint), "{hint}");
    locks.run("SELECT pg_advisory_unlock(1)");
    assert_eq!(reply(&mut client), Reply::Array(vec![OK()]));
    session.run(&store);
}

#[test]
fn a_commit_that_is_under_way_is_waited_for_and_seen() {
    let door = start(&["max_prepared_transactions = 2"]);
    let mut session = door.cluster.connect("postgres");
    let mut client = client_in(&door, 1, None);
    assert_eq!(client.ask(&["WATCH", "absent"]), OK());
    // A prepared transaction can no longer wait for EXEC, so EXEC waits for the prepared transaction.
    session.run(&format!(
        "BEGIN;
         INSERT INTO {UNLOGGED} (key, value) VALUES ('absent', 'theirs');
         PREPARE TRANSACTION 'p'"
    ));
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "done", "1"]);
    send(&mut client, &["EXEC"]);
    std::thread::sleep(Duration::from_millis(200));
    assert!(client.is_silent());
    // Other clients are served while EXEC waits.
    let mut other = client_in(&door, 1, None);
    assert_eq!(other.ask(&["SET", "k", "v"]), OK());
    assert_eq!(other.ask(&["GET", "k"]), Reply::bulk("v"));
    session.run("COMMIT PREPARED 'p'");
    assert_eq!(reply(&mut client), Reply::Null);
    assert_eq!(client.ask(&["GET", "done"]), Reply::Null);
}

#[test]
fn a_session_that_stored_a_watched_key_first_commits() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut client = client_in(&door, 1, None);
    for _ in 0..3 {
        assert_eq!(client.ask(&["WATCH", "k"]), OK());
        session.run(&format!(
            "BEGIN; INSERT INTO {UNLOGGED} (key, value) VALUES ('k', 'theirs')"
        ));
        // EXEC waits for the row, and the row's transaction waits for EXEC at its commit. EXEC gives up.
        assert_eq!(client.ask(&["MULTI"]), OK());
        client.ask(&["SET", "k", "ours"]);
        send(&mut client, &["EXEC"]);
        let mut watcher = door.cluster.connect("postgres");
        wait_until("EXEC waits", || {
            watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
        });
        session.run("COMMIT");
        assert_eq!(reply(&mut client), Reply::Null);
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("theirs"));
        session.run(&format!("DELETE FROM {UNLOGGED}"));
    }
    assert!(!door.cluster.log_text().contains("deadlock detected"));
}

#[test]
fn of_two_execs_that_set_keys_watched_by_the_other_one_aborts() {
    let door = start(&["pgcache.resp_executors = 3"]);
    let ends = Instant::now() + Duration::from_secs(1);
    let (one, other) = (client_in(&door, 1, None), client_in(&door, 1, None));
    let mut session = door.cluster.connect("postgres");
    let mut clients = [(one, "a", "b"), (other, "b", "a")];
    let mut both = 0;
    while Instant::now() < ends {
        session.run(&format!("DELETE FROM {UNLOGGED}"));
        for (client, watched, _) in &mut clients {
            assert_eq!(client.ask(&["WATCH", watched]), OK());
        }
        for (client, watched, set) in &mut clients {
            assert_eq!(client.ask(&["MULTI"]), OK());
            client.ask(&["GET", watched]);
            client.ask(&["SET", set, "v"]);
        }
        for (client, ..) in &mut clients {
            send(client, &["EXEC"]);
        }
        let done = clients
            .iter_mut()
            .filter_map(|(client, ..)| match reply(client) {
                Reply::Array(replies) => Some(replies),
                Reply::Null => None,
                Reply::Error(words) if words.starts_with("EXECABORT") => None,
                other => panic!("{other:?}"),
            })
            .count();
        both += usize::from(done == 2);
    }
    assert_eq!(both, 0);
}

#[test]
fn an_exec_writes_a_key_that_it_sets_again_and_again_once() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut client = client_in(&door, 1, None);
    let mut sent = Client::request(&[b"MULTI"]);
    for number in 0..20_000 {
        let value = number.to_string();
        sent.extend(Client::request(&[b"SET", b"k", value.as_bytes()]));
        if number % 5_000 == 0 {
            sent.extend(Client::request(&[b"GET", b"k"]));
            sent.extend(Client::request(&[b"SET", b"", b"v"]));
        }
    }
    sent.extend(Client::request(&[b"EXEC"]));
    let began = Instant::now();
    assert!(client.send(&sent));
    (0..20_009).for_each(|_| drop(client.reply()));
    let Some(Reply::Array(replies)) = client.reply() else {
        panic!("EXEC has replies")
    };
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(replies.len(), 20_008);
    let read: Vec<_> = replies
        .iter()
        .filter(|reply| matches!(reply, Reply::Bulk(_)))
        .collect();
    assert_eq!(
        read,
        ["0", "5000", "10000", "15000"]
            .map(Reply::bulk)
            .iter()
            .collect::<Vec<_>>()
    );
    let failed = |reply: &&Reply| matches!(reply, Reply::Error(_));
    assert_eq!(replies.iter().filter(failed).count(), 4);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("19999"));
    // The five versions of the row fit on one page.
    let size = format!("SELECT pg_relation_size('{UNLOGGED}')");
    assert_eq!(session.number(&size), 8192);

    // The number of commands that cannot be combined is bounded.
    let mut sent = Client::request(&[b"MULTI"]);
    sent.extend(Client::request(&[b"INCR", b"n"]).repeat(5_000));
    sent.extend(Client::request(&[b"EXEC"]));
    assert!(client.send(&sent));
    (0..5_001).for_each(|_| drop(client.reply()));
    let refused = client.reply().expect("EXEC is answered").error();
    assert!(
        refused.starts_with("EXECABORT ") && refused.contains("4096"),
        "{refused}"
    );
    assert_eq!(client.ask(&["GET", "n"]), Reply::Null);
}

#[test]
fn a_trigger_sees_each_value_that_an_exec_sets() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE TABLE seen (value text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO seen VALUES (NEW.value); RETURN NULL; END';
         CREATE TRIGGER see AFTER INSERT OR UPDATE ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION see()"
    ));
    let mut client = client_in(&door, 1, None);
    let values: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let sets: Vec<[&str; 3]> = values.iter().map(|value| ["SET", "k", value]).collect();
    let sets: Vec<&[&str]> = sets.iter().map(|words| &words[..]).collect();
    assert_eq!(exec(&mut client, &sets), Reply::Array(vec![OK(); 100]));
    assert_eq!(
        session.lines("SELECT value FROM seen ORDER BY value::int"),
        values
    );
}

#[test]
fn an_exec_that_would_write_too_much_writes_nothing() {
    let door = start(&[]);
    let mut client = client_in(&door, 1, None);
    let big = "v".repeat(1_000_000);
    assert_eq!(client.ask(&["SET", "big", &big]), OK());
    let mut sent = Client::request(&[b"MULTI"]);
    sent.extend(Client::request(&[b"SETRANGE", b"big", b"900000", b"x"]).repeat(2_000));
    sent.extend(Client::request(&[b"EXEC"]));
    assert!(client.send(&sent));
    (0..2_001).for_each(|_| drop(client.reply()));
    let refused = client.reply().expect("EXEC is answered").error();
    assert!(
        refused.starts_with("EXECABORT ") && refused.contains("128 MB"),
        "{refused}"
    );
    assert_eq!(client.ask(&["GET", "big"]), Reply::bulk(&big));
}

#[test]
fn an_overwritten_value_is_refused_as_if_it_were_written() {
    let door = Door::start(&[
        "pgcache.resp_caches = 'public.words, public.json, public.short, public.lasting'",
    ]);
    door.cluster.connect("postgres").run(
        "SELECT cache_create('words'), cache_create('json', value_type => 'jsonb');
         CREATE TABLE short (id varchar(3) COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('short', key_column => 'id');
         SELECT cache_create('lasting')",
    );
    let good: &[u8] = b"\"v\"";
    for (database, key, bad_key, bad) in [
        ("0", &b"k"[..], &b"\xff"[..], &b"\xff"[..]),
        ("1", b"k", b"\xff", b"{"),
        ("2", b"abc", b"abcd", b"\xff"),
    ] {
        let mut client = door.client();
        assert_eq!(client.ask(&["SELECT", database]), OK());
        let mut sent = Client::request(&[b"MULTI"]);
        for number in 0..100 {
            let value = if number % 10 == 9 { bad } else { good };
            sent.extend(Client::request(&[b"SET", key, value]));
            sent.extend(Client::request(&[b"SET", bad_key, good]));
            sent.extend(Client::request(&[b"SET", key, good, b"EX", b"0"]));
        }
        sent.extend(Client::request(&[b"EXEC"]));
        assert!(client.send(&sent));
        (0..301).for_each(|_| drop(client.reply()));
        let Some(Reply::Array(replies)) = client.reply() else {
            panic!("EXEC has replies")
        };
        assert_eq!(replies.len(), 300);
        for (at, three) in replies.chunks(3).enumerate() {
            assert_eq!(three[0] == OK(), at % 10 != 9, "{database} {:?}", three[0]);
            assert!(
                matches!(three[1], Reply::Error(_)),
                "{database} {:?}",
                three[1]
            );
            let invalid = "ERR invalid expire time in 'set' command";
            assert_eq!(three[2], Reply::Error(invalid.into()), "{database}");
        }
        assert_eq!(
            client.ask_bytes(&[b"GET", key]),
            Reply::bulk(good),
            "{database}"
        );
        assert_eq!(client.ask_bytes(&[b"TTL", key]), Reply::Integer(-1));
    }
    // If a role may not write, each command returns an error.
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE low LOGIN; GRANT SELECT ON lasting TO low");
    let mut client = door.client();
    assert_eq!(client.ask(&["AUTH", "low", "x"]), OK());
    assert_eq!(client.ask(&["SELECT", "3"]), OK());
    let sets = vec![&["SET", "k", "v"][..]; 100];
    let Reply::Array(replies) = exec(&mut client, &sets) else {
        panic!("EXEC has replies")
    };
    let refused = Reply::Error("NOPERM No permissions to access a key".into());
    assert_eq!(replies, vec![refused; 100]);
}
