//! Tests table caches through the Redis protocol when an executor or the primary ends, or when an executor is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::network_processes::{pid, spread};
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::{
    LOGGED, Stopped, UNLOGGED, client_in, executors, reply, send, start, wait_until_handed,
};
use pgcache_tests::wait::{is_so_within, wait_for, wait_until};
use pgcache_tests::windows::{DRAIN_TO_READ, LetGo, fail_inside, paused, until_inside};

const OK: fn() -> Reply = || Reply::status("OK");
const NETWORK: &str = "pgcache resp network";
const EXECUTOR: &str = "pgcache resp executor";

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

/// A network process has taken the replies of executors, and an error ends it, or the turn of one client, before it has
/// sent them. Executors have commands of its clients, and may end with them.
#[test]
fn an_ended_network_process_leaves_no_place_and_no_page_taken() {
    const NEARLY_ALL_PAGES: usize = 255 * (16 << 10);
    let door = start(&[
        "pgcache.resp_executors = 2",
        "pgcache.resp_max_request = '16kB'",
        "pgcache.pause = '60s'",
        &format!("pgcache.pause_window = {DRAIN_TO_READ}"),
    ]);
    if !paused(door.cluster) {
        return;
    }
    let mut session = door.cluster.connect("postgres");
    let value = "v".repeat(15 << 10);
    assert_eq!(client_in(&door, 1, None).ask(&["SET", "k", &value]), OK());
    session.run(&format!(
        "INSERT INTO {UNLOGGED} VALUES ('long', repeat('v', {NEARLY_ALL_PAGES}))"
    ));
    for (level, with_executors) in [("FATAL", false), ("ERROR", false), ("FATAL", true)] {
        let (clients, stopped) = replies_in_all_pages(&door);
        let network = door.processes(NETWORK)[0];
        let _go = LetGo(door.cluster);
        door.cluster.hold_windows(true);
        drop(stopped);
        until_inside(&mut session, network.into(), "it serves the first client");
        let cut_off = "SELECT cut_off FROM pgcache.resp_stats";
        let before = session.number(cut_off);
        if with_executors {
            let ended = executors(&door);
            session.run(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = '{EXECUTOR}'"
            ));
            wait_until("the executors have ended", || {
                !executors(&door).iter().any(|pid| ended.contains(pid))
            });
        }
        fail_inside(door.cluster, level);
        match level {
            "ERROR" => wait_until("the client is counted", || {
                session.number(cut_off) == before + 1
            }),
            _ => wait_until("the process has ended", || {
                door.processes(NETWORK) != [network]
            }),
        }
        drop(clients);
        let mut client = client_in(&door, 1, None);
        if with_executors {
            client.be_patient(); // Postgres starts a process anew after five seconds
        }
        let long = client.ask(&["GETEX", "long", "PERSIST"]);
        assert_eq!(long.text().len(), NEARLY_ALL_PAGES);
    }
    drop(replies_in_all_pages(&door));
}

/// The replies are longer than all pages, and the successor of the network process cannot connect yet.
#[test]
fn replies_for_an_ended_network_process_hold_up_no_executor() {
    const CLIENTS: i64 = 100;
    // Of 258 pages for replies, 7 each.
    const FITTING: i64 = 36;
    let door = start(&[
        "pgcache.resp_workers = 2",
        "pgcache.resp_executors = 2",
        "max_worker_processes = 12",
        "pgcache.resp_max_request = '16kB'",
        "pgcache.pause = '60s'",
        &format!("pgcache.pause_window = {DRAIN_TO_READ}"),
    ]);
    if !paused(door.cluster) {
        return;
    }
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "INSERT INTO {UNLOGGED} VALUES ('k', repeat('v', 102400))"
    ));
    wait_until("both network processes serve", || {
        let mut clients = [door.client(), door.client()];
        clients
            .iter_mut()
            .for_each(|client| _ = client.ask(&["PING"]));
        spread(&door).len() == 2
    });
    wait_until("their clients have gone", || spread(&door).is_empty());
    let all = (0..2 * CLIENTS).map(|_| client_in(&door, 1, None));
    let mut by_process: BTreeMap<i32, Vec<Client>> = BTreeMap::new();
    for mut client in all {
        by_process
            .entry(pid(&door, &mut client))
            .or_default()
            .push(client);
    }
    let (Some((_, mut others)), Some((network, mut clients))) =
        (by_process.pop_first(), by_process.pop_last())
    else {
        panic!("clients of two processes");
    };
    let other = &mut others[0];
    let words = ["GETEX", "k", "PERSIST"];
    for client in [&mut *other, &mut clients[0]] {
        assert_eq!(client.ask(&words).text().len(), 102_400);
    }
    let stopped = Stopped::all_of(&door);
    for client in &mut clients {
        send(client, &words);
    }
    wait_until_handed(&door, CLIENTS);
    let networks = Stopped::networks_of(&door);
    drop(stopped);
    wait_until_handed(&door, CLIENTS - FITTING);
    let _go = LetGo(door.cluster);
    let mut holder = door.cluster.connect("postgres");
    holder.run("BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE");
    door.cluster.hold_windows(true);
    drop(networks);
    until_inside(&mut session, network.into(), "it serves the first client");
    fail_inside(door.cluster, "FATAL");
    wait_until("it has ended", || {
        session.number(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {network}"
        )) == 0
    });
    assert_eq!(other.ask(&words).text().len(), 102_400);
    holder.run("COMMIT");
}

/// Creates a trigger that sleeps on the logged table. Returns the executors that run `count` jobs of it.
fn sleeping_executors(door: &Door, count: usize) -> Vec<i32> {
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE OR REPLACE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(1); RETURN NEW; END$$;
         CREATE OR REPLACE TRIGGER rest BEFORE INSERT ON {LOGGED} FOR EACH ROW EXECUTE FUNCTION rest()"
    ));
    let mut clients: Vec<Client> = (0..count).map(|_| client_in(door, 2, None)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    }
    all_asleep();
    for (number, client) in clients.iter_mut().enumerate() {
        send(client, &["SET", &format!("k{number}"), "v"]);
    }
    let sql = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    let found = wait_for("the executors sleep", || {
        let rows = session.query(sql, &[]).expect("the view can be read");
        (rows.len() == count).then(|| rows.iter().map(|row| row.get(0)).collect())
    });
    for client in &mut clients {
        assert_eq!(reply(client), OK());
    }
    found
}

/// Waits until executors have reported their statistics, which they do after a second without work. From then on they
/// sleep until they are woken.
fn all_asleep() {
    std::thread::sleep(Duration::from_millis(1_500));
}

/// The executor that is woken for work takes over the quick lane, and so leaves all other work to other executors, which
/// sleep.
#[test]
fn work_that_the_woken_executor_leaves_wakes_another_one() {
    let door = start(&["pgcache.resp_executors = 3"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE somebody LOGIN");
    let mut quick = client_in(&door, 1, None);
    let mut clients = [client_in(&door, 1, None), client_in(&door, 1, None)];
    assert_eq!(quick.ask(&["SET", "k", "v"]), OK());
    let none = Reply::Array(Vec::new());
    assert_eq!(clients[0].ask(&["KEYS", "none"]), none);
    // The executor that is woken first, and the owner of the quick lane.
    let woken = sleeping_executors(&door, 1);
    let slow = sleeping_executors(&door, 2);
    let mut first = executors(&door);
    first.retain(|executor| !slow.contains(executor));
    let first = Stopped::these(&door, first);
    assert_eq!(quick.ask(&["SET", "k", "v"]), OK()); // the other executor takes over the lane
    drop(first);
    for (client, words, what) in [
        (0, &["KEYS", "none"][..], "a slow command"),
        (1, &["AUTH", "somebody", "x"], "a password"),
        (1, &["GET", "k"], "a permission"),
    ] {
        all_asleep();
        let stopped = Stopped::these(&door, woken.clone());
        send(&mut quick, &["SET", "k", "v"]);
        // The lane is taken from its executor after 20 ms.
        std::thread::sleep(Duration::from_millis(200));
        send(&mut clients[client], words);
        wait_until_handed(&door, 2);
        drop(stopped);
        assert_eq!(reply(&mut quick), OK());
        let answered = is_so_within(Duration::from_secs(5), || {
            session.number("SELECT queue_depth FROM pgcache.resp_stats") == 0
        });
        assert!(answered, "in vain: {what}");
        reply(&mut clients[client]);
    }
}

/// An executor is woken for a job and ends before it takes the job. Its successor begins after seconds, because the
/// launcher has ended, too.
#[test]
fn the_job_for_which_an_ended_executor_was_woken_wakes_another_one() {
    let door = start(&["pgcache.resp_executors = 3"]);
    let mut session = door.cluster.connect("postgres");
    let mut client = client_in(&door, 1, None);
    assert_eq!(client.ask(&["KEYS", "none"]), Reply::Array(Vec::new()));
    let woken = sleeping_executors(&door, 1);
    all_asleep();
    let stopped = Stopped::these(&door, woken.clone());
    session.run(&format!("SELECT pg_terminate_backend({})", woken[0]));
    send(&mut client, &["KEYS", "none"]);
    wait_until_handed(&door, 1);
    let launcher = "FROM pg_stat_activity WHERE backend_type = 'pgcache launcher'";
    session.run(&format!("SELECT pg_terminate_backend(pid) {launcher}"));
    wait_until("the launcher has ended", || {
        session.number(&format!("SELECT count(*) {launcher}")) == 0
    });
    drop(stopped);
    // Postgres starts the launcher again after five seconds.
    let answered = is_so_within(Duration::from_secs(3), || {
        session.number("SELECT queue_depth FROM pgcache.resp_stats") == 0
    });
    assert!(answered);
    assert_eq!(reply(&mut client), Reply::Array(Vec::new()));
}

/// Fills all places that commands on one table may take, and all pages for replies. Returns the clients that wait, and
/// the network process, which has not taken the replies.
fn replies_in_all_pages(door: &Door) -> (Vec<Client>, Stopped) {
    const PLACES: i64 = 448 * 3 / 4;
    const PAGES: i64 = 258;
    let mut clients: Vec<Client> = (0..400).map(|_| client_in(door, 1, None)).collect();
    assert_eq!(clients[0].ask(&["GET", "none"]), Reply::Null);
    let mut session = door.cluster.connect("postgres");
    let mut settles_at = |count: i64| {
        let mut depth = -1;
        is_so_within(Duration::from_secs(10), || {
            depth = session.number("SELECT queue_depth FROM pgcache.resp_stats");
            depth == count
        });
        assert_eq!(depth, count);
    };
    let stopped = Stopped::all_of(door);
    for client in &mut clients {
        send(client, &["GETEX", "k", "PERSIST"]);
    }
    settles_at(PLACES);
    let networks = Stopped::networks_of(door);
    drop(stopped);
    settles_at(PLACES - PAGES);
    (clients, networks)
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
