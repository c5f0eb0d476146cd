//! Tests the batches in which executors run commands on table caches. One transaction runs many commands, each client's
//! commands keep their order, and a command's wait or error affects no other command.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::{
    LOGGED, Stopped, UNLOGGED, client_in, reply, send, send_together, start, wait_until_handed,
};
use pgcache_tests::wait::wait_until;
use postgres::Client as Session;

const OK: fn() -> Reply = || Reply::status("OK");

/// Returns the number of transactions so far that have changed something.
fn changes(session: &mut Session) -> i64 {
    session.number("SELECT pg_current_xact_id()::text::bigint")
}

#[test]
fn commands_of_many_clients_run_in_one_transaction() {
    let door = start(&["max_connections = 60"]);
    let mut session = door.cluster.connect("postgres");
    for (database, table) in [(1, UNLOGGED), (2, LOGGED)] {
        let mut clients: Vec<Client> = (0..50).map(|_| client_in(&door, database, None)).collect();
        assert_eq!(clients[0].ask(&["SET", "k", "v"]), OK());
        let stopped = Stopped::all_of(&door);
        for (number, client) in clients.iter_mut().enumerate() {
            send(client, &["SET", &format!("k{number}"), &number.to_string()]);
        }
        wait_until_handed(&door, 50);
        let before = changes(&mut session);
        drop(stopped);
        clients
            .iter_mut()
            .for_each(|client| assert_eq!(reply(client), OK()));
        // One of the two is the transaction of this query itself.
        assert_eq!(changes(&mut session) - before, 2, "{table}");
        assert_eq!(session.number(&format!("SELECT count(*) FROM {table}")), 51);
    }
}

#[test]
fn a_pipeline_is_offloaded_together_and_keeps_its_order() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut client = client_in(&door, 1, None);
    assert_eq!(client.ask(&["SET", "hot", "1"]), OK());
    assert_eq!(client.ask(&["GET", "hot"]), Reply::bulk("1"));
    let before = changes(&mut session);
    let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for number in &numbers {
        requests.extend([vec!["SET", "k", number], vec!["GET", "k"]]);
        expected.extend([OK(), Reply::bulk(number)]);
    }
    let requests: Vec<&[&str]> = requests.iter().map(Vec::as_slice).collect();
    send_together(&mut client, &requests);
    let replies: Vec<_> = expected.iter().map(|_| reply(&mut client)).collect();
    assert_eq!(replies, expected);
    assert!(changes(&mut session) - before < 20);
    // Send commands for another cache, for a hot entry and for an entry without a copy, and a command that needs no
    // entry.
    let mut expected = Vec::new();
    for number in 0..50 {
        let number = &number.to_string();
        let mut say = |words: &[&str], reply: Reply| {
            send(&mut client, words);
            expected.push(reply);
        };
        say(&["GET", "hot"], Reply::bulk("1"));
        say(&["SET", "k", number], OK());
        say(&["GET", "hot"], Reply::bulk("1"));
        say(&["GET", "k"], Reply::bulk(number));
        say(&["ECHO", number], Reply::bulk(number));
        say(&["SELECT", "0"], OK());
        say(&["SET", "k", "memory"], OK());
        say(&["SELECT", "1"], OK());
        say(&["GET", "k"], Reply::bulk(number));
        say(&["GET", number], Reply::Null);
    }
    let replies: Vec<_> = expected.iter().map(|_| reply(&mut client)).collect();
    assert_eq!(replies, expected);
}

#[test]
fn commands_that_are_typed_as_lines_run_on_a_table() {
    let door = start(&[]);
    let mut client = client_in(&door, 1, None);
    let long = "v".repeat(100_000);
    let bulk = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n$100000\r\n{long}\r\n");
    let input = format!(
        "SET k \"a b\"\r\n\r\nGET k\r\n*0\r\n{bulk}\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nSTRLEN long\r\n*2\r\n$6\r\nSTRLEN\r\n$4\r\nlong\r\nMULTI\r\nSET k c\r\nGET k\r\nEXEC\r\nWATCH k\r\nDEL k long\r\n"
    );
    assert!(client.send(input.as_bytes()));
    let expected = [
        OK(),
        Reply::bulk("a b"),
        OK(),
        Reply::bulk("a b"),
        Reply::Integer(100_000),
        Reply::Integer(100_000),
        OK(),
        Reply::status("QUEUED"),
        Reply::status("QUEUED"),
        Reply::Array(vec![OK(), Reply::bulk("c")]),
        OK(),
        Reply::Integer(2),
    ];
    for reply_expected in expected {
        assert_eq!(reply(&mut client), reply_expected);
    }
}

#[test]
fn a_locked_row_stalls_its_own_client_alone() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let (mut waits, mut others) = (client_in(&door, 1, None), client_in(&door, 1, None));
    for key in ["locked", "free"] {
        assert_eq!(others.ask(&["SET", key, "1"]), OK());
    }
    session.run(&format!(
        "BEGIN; UPDATE {UNLOGGED} SET value = 'sql' WHERE key = 'locked'"
    ));
    send(&mut waits, &["SET", "locked", "2"]);
    send(&mut waits, &["GET", "locked"]);
    // While the command waits, permissions and passwords are still checked, and a read and writes still run.
    let mut watcher = door.cluster.connect("postgres");
    wait_until("the slow back waits for the row", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
    for number in 0..100 {
        let number = number.to_string();
        assert_eq!(others.ask(&["SET", "free", &number]), OK());
        assert_eq!(others.ask(&["GET", "free"]), Reply::bulk(&number));
        assert_eq!(others.ask(&["GET", "locked"]), Reply::bulk("1"));
    }
    assert_eq!(client_in(&door, 2, None).ask(&["SET", "k", "v"]), OK());
    session.run("COMMIT");
    assert_eq!(reply(&mut waits), OK());
    assert_eq!(reply(&mut waits), Reply::bulk("2"));
}

/// Permissions requested inside an EXEC arrive while the client waits for an executor. The client continues to wait,
/// and its replies keep their order.
#[test]
fn an_unrelated_answer_ends_no_wait_for_an_executor() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE ROLE app LOGIN; CREATE ROLE late LOGIN; CREATE ROLE new LOGIN;
         GRANT ALL ON {UNLOGGED}, {LOGGED}, public.door TO app, late, new"
    ));
    let mut other = client_in(&door, 1, Some("app"));
    assert_eq!(other.ask(&["SET", "locked", "1"]), OK());
    let mut watcher = door.cluster.connect("postgres");
    let after: [&[&str]; 4] = [
        &["SELECT", "1"],
        &["SET", "locked", "2"],
        &["ECHO", "after"],
        &["GET", "locked"],
    ];
    // Requests that need the client's permission for the locked table, and do not wait for it.
    let asked: [(&str, &[&[&str]]); 2] = [
        ("late", &[&["INFO", "keyspace"]]),
        ("new", &[&["ECHO", "before"], &["INFO", "keyspace"]]),
    ];
    for (role, inside) in asked {
        let mut client = client_in(&door, 0, Some(role));
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        session.run(&format!(
            "BEGIN; UPDATE {UNLOGGED} SET value = 'sql' WHERE key = 'locked'; LOCK TABLE {LOGGED}"
        ));
        let begin: &[&[&str]] = &[&["MULTI"]];
        let end: &[&[&str]] = &[&["EXEC"]];
        send_together(&mut client, &[begin, inside, end, &after].concat());
        for _ in 0..inside.len() + 1 {
            reply(&mut client);
        }
        let Reply::Array(done) = reply(&mut client) else {
            panic!("expected an array")
        };
        let Some(Reply::Bulk(keyspace)) = done.last() else {
            panic!("INFO comes last: {done:?}")
        };
        assert!(keyspace.starts_with(b"# Keyspace"), "{done:?}");
        wait_until("an executor waits for the row", || {
            let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
            watcher.holds(waits)
        });
        // This client is answered later than the requests before it.
        client_in(&door, 1, Some("app"));
        watcher.run("SELECT pg_sleep(0.1)");
        session.run("ROLLBACK");
        let replies: Vec<_> = after.iter().map(|_| reply(&mut client)).collect();
        let expected = [OK(), OK(), Reply::bulk("after"), Reply::bulk("2")];
        assert_eq!(replies, expected, "{role}");
    }
}

#[test]
fn a_batch_with_a_locked_row_is_done_without_it() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut clients: Vec<Client> = (0..20).map(|_| client_in(&door, 1, None)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&["SET", &format!("k{number}"), "1"]), OK());
    }
    session.run(&format!("BEGIN; DELETE FROM {UNLOGGED} WHERE key = 'k7'"));
    let stopped = Stopped::all_of(&door);
    for (number, client) in clients.iter_mut().enumerate() {
        send(client, &["SET", &format!("k{number}"), "2"]);
    }
    wait_until_handed(&door, 20);
    drop(stopped);
    for (number, client) in clients.iter_mut().enumerate() {
        if number != 7 {
            assert_eq!(reply(client), OK());
        }
    }
    let twos = format!("SELECT count(*) FROM {UNLOGGED} WHERE value = '2'");
    assert_eq!(session.number(&twos), 19);
    session.run("ROLLBACK");
    assert_eq!(reply(&mut clients[7]), OK());
    assert_eq!(session.number(&twos), 20);
}

#[test]
fn an_error_affects_only_its_client_and_an_exec_is_all_or_nothing() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "ALTER TABLE {UNLOGGED} ADD CONSTRAINT small CHECK (length(value) < 10)"
    ));
    let (mut client, mut other) = (client_in(&door, 1, None), client_in(&door, 1, None));
    // This read loads the role's permissions before the test needs them.
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    let stopped = Stopped::all_of(&door);
    send(&mut client, &["SET", "k", "far too long"]);
    send(&mut other, &["SET", "other", "v"]);
    wait_until_handed(&door, 2);
    drop(stopped);
    let words = reply(&mut client).error();
    assert!(
        words.starts_with("ERR ") && words.contains("small"),
        "{words}"
    );
    assert!(!words.contains("far too long"), "{words}");
    assert_eq!(reply(&mut other), OK());
    // In a pipeline the other commands succeed.
    for value in ["1", "far too long", "3", "2"] {
        send(&mut client, &["SET", &format!("p{value}"), value]);
    }
    let replies: Vec<_> = (0..4).map(|_| reply(&mut client)).collect();
    assert_eq!([&replies[0], &replies[2], &replies[3]], [&OK(); 3]);
    assert!(replies[1].clone().error().contains("small"));
    let exec = |client: &mut Client, value: &str| {
        assert_eq!(client.ask(&["MULTI"]), OK());
        for words in [
            &["SET", "a", value][..],
            &["GET", "a"],
            &["SET", "b", value],
            &["SET"],
        ] {
            let queued = client.ask(words);
            assert!(words.len() == 1 || queued == Reply::status("QUEUED"));
        }
        client.ask(&["EXEC"])
    };
    // An invalid command is refused when it is queued.
    assert!(exec(&mut client, "1").error().starts_with("EXECABORT"));
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "a", "1"]);
    client.ask(&["GET", "a"]);
    client.ask(&["SET", "b", "1"]);
    let expected = Reply::Array(vec![OK(), Reply::bulk("1"), OK()]);
    assert_eq!(client.ask(&["EXEC"]), expected);
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "a", "2"]);
    client.ask(&["SET", "b", "far too long"]);
    let words = client.ask(&["EXEC"]).error();
    assert!(
        words.starts_with("EXECABORT") && words.contains("small"),
        "{words}"
    );
    assert_eq!(client.ask(&["GET", "a"]), Reply::bulk("1"));
    // An EXEC on a table cannot contain a command that needs no entry.
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SET", "a", "3"]);
    client.ask(&["SELECT", "0"]);
    assert!(client.ask(&["EXEC"]).error().starts_with("EXECABORT"));
    assert_eq!(client.ask(&["GET", "a"]), Reply::bulk("1"));
    // One EXEC cannot use a memory cache and a table.
    assert_eq!(client.ask(&["SELECT", "0"]), OK());
    assert_eq!(client.ask(&["MULTI"]), OK());
    client.ask(&["SELECT", "1"]);
    client.ask(&["SET", "a", "4"]);
    let Reply::Array(elements) = client.ask(&["EXEC"]) else {
        panic!("expected an array")
    };
    assert!(elements[1].clone().error().contains("EXEC"));
    assert_eq!(
        session.text(&format!("SELECT value FROM {UNLOGGED} WHERE key = 'a'")),
        "1"
    );
}

#[test]
fn an_exec_of_watched_keys_is_done_if_they_are_as_they_were() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let (mut client, mut other) = (client_in(&door, 1, None), client_in(&door, 1, None));
    assert_eq!(client.ask(&["SET", "k", "1"]), OK());
    let exec = |client: &mut Client| {
        assert_eq!(client.ask(&["MULTI"]), OK());
        client.ask(&["SET", "done", "1"]);
        client.ask(&["EXEC"])
    };
    let done = Reply::Array(vec![OK()]);
    assert_eq!(client.ask(&["WATCH", "k", "absent"]), OK());
    assert_eq!(exec(&mut client), done);
    // Watched keys that change through a command, through SQL, from missing to present, or by expiry.
    assert_eq!(client.ask(&["WATCH", "k", "absent"]), OK());
    assert_eq!(other.ask(&["SET", "k", "2"]), OK());
    assert_eq!(exec(&mut client), Reply::Null);
    assert_eq!(exec(&mut client), done);
    assert_eq!(client.ask(&["WATCH", "k", "absent"]), OK());
    session.run(&format!(
        "INSERT INTO {UNLOGGED} (key, value) VALUES ('absent', 'v')"
    ));
    assert_eq!(exec(&mut client), Reply::Null);
    session.run(&format!(
        "SELECT cache_set('k', '3', '100 ms', '{UNLOGGED}')"
    ));
    assert_eq!(client.ask(&["WATCH", "k"]), OK());
    wait_until("it has expired", || other.ask(&["GET", "k"]) == Reply::Null);
    assert_eq!(exec(&mut client), Reply::Null);
    // UNWATCH, DISCARD, and WATCH where it is not allowed.
    assert_eq!(client.ask(&["WATCH", "k"]), OK());
    assert_eq!(client.ask(&["UNWATCH"]), OK());
    assert_eq!(other.ask(&["SET", "k", "4"]), OK());
    assert_eq!(exec(&mut client), done);
    assert_eq!(client.ask(&["MULTI"]), OK());
    assert!(client.ask(&["WATCH", "k"]).error().contains("inside MULTI"));
    assert_eq!(client.ask(&["DISCARD"]), OK());
    // Watched keys of a table are valid only for an EXEC on that table.
    assert_eq!(client.ask(&["WATCH", "k"]), OK());
    assert_eq!(client.ask(&["SELECT", "2"]), OK());
    assert!(exec(&mut client).error().starts_with("EXECABORT"));
    assert_eq!(client.ask(&["SELECT", "0"]), OK());
    assert_eq!(exec(&mut client), done);
}

#[test]
fn a_copy_to_a_missing_database_is_an_error_inside_exec() {
    let door = start(&[]);
    let mut client = client_in(&door, 1, None);
    assert_eq!(client.ask(&["SET", "a", "v"]), OK());
    for options in [
        &["DB", "99"][..],
        &["DB", "-1"],
        &["REPLACE", "DB", "3"],
        &["DB", "1", "DB", "99"],
    ] {
        assert_eq!(client.ask(&["MULTI"]), OK());
        let words = [&["COPY", "a", "b"][..], options].concat();
        assert_eq!(client.ask(&words), Reply::status("QUEUED"));
        client.ask(&["COPY", "a", "c", "DB", "1", "REPLACE"]);
        let Reply::Array(replies) = client.ask(&["EXEC"]) else {
            panic!("EXEC has two replies")
        };
        let out_of_range = Reply::Error("ERR DB index is out of range".into());
        assert_eq!(replies, [out_of_range, Reply::Integer(1)], "{options:?}");
        assert_eq!(client.ask(&["EXISTS", "b"]), Reply::Integer(0));
    }
    // Transactions with other commands on several databases are refused as a whole.
    for words in [&["SELECT", "2"][..], &["COPY", "a", "b", "DB", "2"]] {
        assert_eq!(client.ask(&["MULTI"]), OK());
        client.ask(&["SET", "d", "v"]);
        assert_eq!(client.ask(words), Reply::status("QUEUED"));
        let refused = client.ask(&["EXEC"]).error();
        assert!(refused.starts_with("EXECABORT"), "{refused}");
        assert_eq!(client.ask(&["EXISTS", "b", "d"]), Reply::Integer(0));
    }
    for words in [&["MOVE", "a", "2"][..], &["SWAPDB", "1", "2"]] {
        assert_eq!(client.ask(&["MULTI"]), OK());
        let refused = client.ask(words).error();
        assert!(refused.starts_with("ERR unknown command"), "{refused}");
        assert!(client.ask(&["EXEC"]).error().starts_with("EXECABORT"));
    }
}

#[test]
fn a_long_value_goes_through() {
    let door = start(&[]);
    let mut client = client_in(&door, 2, None);
    let value = vec![b'x'; (16 << 20) - 200];
    assert_eq!(client.ask_bytes(&[b"SET", b"long", &value]), OK());
    assert!(client.ask(&["GET", "long"]) == Reply::Bulk(value.clone()));
    assert!(client.ask(&["GET", "long"]) == Reply::Bulk(value));
    assert_eq!(client.ask(&["GET", "none"]), Reply::Null);
}

/// Requests whose replies find no room fail. Other clients are unaffected, and the executor can be stopped.
#[test]
fn a_pipeline_of_long_replies_stops_no_client() {
    let door = start(&[]);
    let mut client = client_in(&door, 2, None);
    let value = vec![b'x'; 3 << 20];
    assert_eq!(client.ask_bytes(&[b"SET", b"long", &value]), OK());
    let pipeline = Client::request(&[b"GET", b"long"]).repeat(20);
    assert!(client.send(&pipeline));
    let mut came = 0;
    for _ in 0..20 {
        match reply(&mut client) {
            Reply::Bulk(bytes) => {
                assert!(bytes == value);
                came += 1;
            }
            refused => assert!(refused.error().contains("too long")),
        }
    }
    assert!(came > 0, "no reply has come");
    assert_eq!(client_in(&door, 1, None).ask(&["SET", "k", "v"]), OK());
    assert!(client.ask(&["GET", "long"]) == Reply::Bulk(value));
}

#[test]
fn suppressed_replies_are_not_sent() {
    let door = start(&[]);
    let mut client = client_in(&door, 1, None);
    send(&mut client, &["CLIENT", "REPLY", "SKIP"]);
    send(&mut client, &["SET", "k", "1"]);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"));
    send(&mut client, &["CLIENT", "REPLY", "OFF"]);
    send(&mut client, &["SET", "k", "2"]);
    send(&mut client, &["GET", "k"]);
    assert_eq!(client.ask(&["CLIENT", "REPLY", "ON"]), OK());
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("2"));
}

#[test]
fn more_clients_than_places_are_all_served() {
    let door = start(&[]);
    let mut clients: Vec<Client> = (0..600).map(|_| client_in(&door, 1, None)).collect();
    assert_eq!(clients[0].ask(&["GET", "k"]), Reply::Null);
    let stopped = Stopped::all_of(&door);
    for (number, client) in clients.iter_mut().enumerate() {
        send(client, &["SET", &format!("k{number}"), "v"]);
    }
    wait_until_handed(&door, 336); // a quarter of the places is reserved for other tables
    drop(stopped);
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(reply(client), OK()));
    gone_clients_leave_nothing(&door, clients);
}

/// The clients of one table wait for its lock, with more commands than there are places, and with long ones.
#[test]
fn a_locked_table_leaves_places_and_pages_to_other_tables() {
    let door = start(&[]);
    let mut other = client_in(&door, 2, None);
    assert_eq!(other.ask(&["SET", "k", "v"]), OK());
    // The permission on the other table is known before the lock.
    assert_eq!(client_in(&door, 1, None).ask(&["SET", "k", "v"]), OK());
    let mut session = door.cluster.connect("postgres");
    let mut holder = door.cluster.connect("postgres");
    for (count, length) in [(470, 10), (40, 1_000_000)] {
        let full = "SELECT queue_full FROM pgcache.resp_stats";
        let before = session.number(full);
        holder.run(&format!(
            "BEGIN; LOCK TABLE {UNLOGGED} IN ACCESS EXCLUSIVE MODE"
        ));
        let value = "v".repeat(length);
        let mut waiting: Vec<Client> = (0..count).map(|_| client_in(&door, 1, None)).collect();
        for (number, client) in waiting.iter_mut().enumerate() {
            send(client, &["SET", &format!("k{number}"), &value]);
        }
        wait_until("clients find no room", || session.number(full) > before);
        let began = Instant::now();
        assert_eq!(other.ask(&["SET", "k", &"w".repeat(1_500_000)]), OK());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        holder.run("COMMIT");
        for client in &mut waiting {
            assert_eq!(reply(client), OK());
        }
    }
}

/// Two jobs that each take two seconds arrive in one turn of the network process, which wakes one executor.
#[test]
fn executors_share_the_jobs_of_one_turn() {
    let door = start(&["pgcache.resp_executors = 3"]);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(2); RETURN NEW; END$$;
         CREATE TRIGGER rest BEFORE INSERT ON {UNLOGGED} FOR EACH ROW EXECUTE FUNCTION rest()"
    ));
    let mut clients: Vec<Client> = (0..2).map(|_| client_in(&door, 1, None)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    }
    // After a second without work executors have reported their statistics, and sleep until they are woken.
    std::thread::sleep(Duration::from_millis(1_500));
    let stopped = Stopped::networks_of(&door);
    for (number, client) in clients.iter_mut().enumerate() {
        send(client, &["SET", &format!("k{number}"), "v"]);
    }
    let began = Instant::now();
    drop(stopped);
    for client in &mut clients {
        assert_eq!(reply(client), OK());
    }
    let took = began.elapsed();
    assert!(took < Duration::from_millis(3_500), "{took:?}");
}

/// Disconnects clients while an executor has requests of theirs.
fn gone_clients_leave_nothing(door: &Door, mut clients: Vec<Client>) {
    let stopped = Stopped::all_of(door);
    for client in clients.iter_mut().take(100) {
        send(client, &["SET", "k", "v"]);
    }
    wait_until_handed(door, 100);
    drop(clients);
    drop(stopped);
    wait_until_handed(door, 0);
    assert_eq!(client_in(door, 1, None).ask(&["SET", "k", "v"]), OK());
}

#[test]
fn each_network_process_gets_its_own_replies() {
    let door = start(&["pgcache.resp_workers = 3", "pgcache.resp_executors = 3"]);
    let mut clients: Vec<Client> = (0..30).map(|_| client_in(&door, 1, None)).collect();
    for round in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            let value = format!("{number} {round}");
            send(client, &["SET", &format!("k{number}"), &value]);
            send(client, &["GET", &format!("k{number}")]);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(reply(client), OK());
            assert_eq!(reply(client), Reply::bulk(format!("{number} {round}")));
        }
    }
}
