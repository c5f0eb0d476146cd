//! Tests table caches through the Redis protocol when an executor or the primary ends, or when an executor is missing.

use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::{LOGGED, UNLOGGED, client_in, executors, reply, send, start};
use pgcache_tests::wait::{wait_for, wait_until};

const OK: fn() -> Reply = || Reply::status("OK");

#[test]
fn clients_stay_connected_when_the_executors_end() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let (mut waits, mut other) = (client_in(&door, 1, None), client_in(&door, 1, None));
    assert_eq!(other.ask(&["SET", "locked", "1"]), OK());
    session.run(&format!(
        "BEGIN; UPDATE {UNLOGGED} SET value = 'sql' WHERE key = 'locked'"
    ));
    send(&mut waits, &["SET", "locked", "2"]);
    other.be_patient(); // Postgres restarts a process after five seconds
    let mut watcher = door.cluster.connect("postgres");
    let mut waits_for_row = || {
        wait_until("an executor waits for the row", || {
            watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
        });
    };
    waits_for_row();
    for executor in executors(&door) {
        door.cluster
            .connect("postgres")
            .run(&format!("SELECT pg_terminate_backend({executor})"));
    }
    // The first executor ran none of the commands, so its successor runs them.
    assert_eq!(other.ask(&["SET", "free", "1"]), OK());
    waits_for_row();
    session.run("COMMIT");
    assert_eq!(reply(&mut waits), OK());
    assert_eq!(other.ask(&["GET", "locked"]), Reply::bulk("2"));
}

#[test]
fn a_cancel_of_an_executor_fails_no_batched_command() {
    let door = start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut clients: Vec<Client> = (0..10).map(|_| client_in(&door, 1, None)).collect();
    for round in 0..50 {
        for (number, client) in clients.iter_mut().enumerate() {
            send(client, &["SET", &format!("k{number}"), &round.to_string()]);
        }
        session.run("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pgcache resp executor'");
        // If a cancel hits a command that runs alone, that command fails, as a session's statement does.
        for client in &mut clients {
            match reply(client) {
                Reply::Error(words) => assert!(words.contains("cancel"), "{words}"),
                other => assert_eq!(other, OK()),
            }
        }
    }
    assert_eq!(
        session.number(&format!("SELECT count(*) FROM {UNLOGGED}")),
        10
    );
}

#[test]
fn a_server_whose_executor_was_killed_comes_back() {
    let door = start(&[]);
    let mut client = client_in(&door, 2, None);
    assert_eq!(client.ask(&["SET", "k", "v"]), OK());
    let executor = executors(&door)[0];
    door.cluster.kill_backend(executor);
    door.cluster.wait_until_up();
    let value = wait_for("the door listens again", || {
        let mut client = door.try_client()?;
        client.ask_if_open(&["SELECT", "2"])?;
        client.ask_if_open(&["GET", "k"])
    });
    assert_eq!(value, Reply::bulk("v"));
}

/// While an executor waits for a lock during its start, the launcher ends and starts again. If two executors had the
/// same number, they would answer each other's clients.
#[test]
fn no_number_of_an_executor_is_given_twice() {
    let door = start(&["pgcache.resp_executors = 2"]);
    let mut session = door.cluster.connect("postgres");
    let mut holder = door.cluster.connect("postgres");
    holder.run("BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE");
    let count = |kind: &str| {
        format!("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgcache {kind}'")
    };
    let end = |kind: &str| {
        format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE backend_type = 'pgcache {kind}' LIMIT 1"
        )
    };
    // A process that is still connecting does not appear in pg_stat_activity, and no new session can connect.
    session.run(&end("resp executor"));
    wait_until("the executor has ended", || {
        session.number(&count("resp executor")) == 1
    });
    let connecting = "SELECT count(*) FROM pg_locks
                       WHERE relation = 'pg_db_role_setting'::regclass AND NOT granted";
    wait_until("its successor waits for the catalog", || {
        session.number(connecting) == 1
    });
    session.run(&end("launcher"));
    wait_until("the launcher has ended", || {
        session.number(&count("launcher")) == 0
    });
    wait_until("the launcher runs again", || {
        session.number(&count("launcher")) == 1
    });
    // The launcher checks for missing processes every second.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(session.number(connecting), 1);
    holder.run("COMMIT");
    wait_until("the successor runs", || {
        session.number(&count("resp executor")) >= 2
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(session.number(&count("resp executor")), 2);
    assert_eq!(client_in(&door, 1, None).ask(&["SET", "k", "v"]), OK());
}

#[test]
fn a_standby_reads_logged_caches_and_writes_none() {
    let door = start(&[]);
    assert_eq!(client_in(&door, 2, None).ask(&["SET", "k", "v"]), OK());
    assert_eq!(client_in(&door, 1, None).ask(&["SET", "k", "v"]), OK());
    let socket = door.cluster.folder.join("standby.sock");
    let standby = Door::over(door.cluster.standby(), door.port, socket);
    standby.cluster.configure(&[
        "pgcache.resp_port = 0",
        &format!("pgcache.resp_socket = '{}'", standby.socket.display()),
    ]);
    standby
        .cluster
        .restart(pgcache_tests::cluster::Shutdown::Fast);
    let mut logged = client_in(&standby, 2, None);
    wait_until("the standby has the entry", || {
        logged.ask(&["GET", "k"]) == Reply::bulk("v")
    });
    for _ in 0..3 {
        let words = logged.ask(&["SET", "k", "w"]).error();
        assert!(words.starts_with("READONLY "), "{words}");
    }
    let mut unlogged = client_in(&standby, 1, None);
    assert_eq!(unlogged.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(logged.ask(&["GET", "k"]), Reply::bulk("v"));
    let mut session = door.cluster.connect("postgres");
    assert_eq!(session.text(&format!("SELECT value FROM {LOGGED}")), "v");
}
