//! Tests commits that wait for a synchronous standby: they delay only work that would also wait for the standby. Other
//! Redis clients continue.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::{
    LOGGED, Stopped, UNLOGGED, client_in, reply, send, start, wait_until_handed,
};
use pgcache_tests::wait::wait_until;

const OK: fn() -> Reply = || Reply::status("OK");
/// Configures a standby that never answers; only a session that sets synchronous_commit waits for it.
const CONF: [&str; 2] = [
    "synchronous_standby_names = 'nobody'",
    "synchronous_commit = local",
];

/// Starts a server with two roles, of which only `patient` waits for the standby.
fn hanging(conf: &[&str]) -> Door {
    let mut lines = CONF.to_vec();
    lines.extend(conf);
    let door = start(&lines);
    door.cluster.connect("postgres").run(&format!(
        "CREATE ROLE patient LOGIN; CREATE ROLE other LOGIN;
         ALTER ROLE patient SET synchronous_commit = on;
         GRANT ALL ON {UNLOGGED}, {LOGGED} TO patient, other;
         INSERT INTO {LOGGED} SELECT 'row' || n, 'v' FROM generate_series(1, 100) AS n;
         INSERT INTO {UNLOGGED} SELECT 'row' || n, 'v' FROM generate_series(1, 100) AS n"
    ));
    door
}

fn answers(door: &Door) {
    let mut session = door.cluster.connect("postgres");
    session.run("ALTER SYSTEM SET synchronous_standby_names = ''");
    session.run("SELECT pg_reload_conf()");
}

fn waiting(door: &Door) -> i64 {
    door.cluster.connect("postgres").number(
        "SELECT count(*) FROM pg_stat_activity
          WHERE backend_type = 'pgcache resp executor' AND wait_event = 'SyncRep'",
    )
}

/// Connects a client of `patient` whose SET waits for the standby.
fn stuck(door: &Door, key: &str) -> Client {
    let mut client = client_in(door, 2, Some("patient"));
    send(&mut client, &["SET", key, "patient"]);
    wait_until("a commit waits for the standby", || waiting(door) == 1);
    client
}

/// Checks that the reply comes within a second.
fn ask(client: &mut Client, words: &[&str], expected: &Reply) {
    let since = Instant::now();
    assert_eq!(client.ask(words), *expected, "{words:?}");
    let took = since.elapsed();
    assert!(took < Duration::from_secs(1), "{words:?} took {took:?}");
}

/// Checks that other clients' writes, and their reads without a copy, continue on both caches while commits wait.
fn others_go_on(door: &Door, row: &str) {
    for role in ["other", "patient"] {
        for database in [1, 2] {
            let mut client = client_in(door, database, Some(role));
            ask(&mut client, &["GET", row], &Reply::bulk("v"));
            ask(&mut client, &["EXISTS", row, "none"], &Reply::Integer(1));
            if role == "other" || database == 1 {
                ask(&mut client, &["SET", "mine", row], &OK());
                ask(&mut client, &["GET", "mine"], &Reply::bulk(row));
            }
        }
    }
}

#[test]
fn a_commit_that_waits_for_a_standby_stalls_no_other_client() {
    let door = hanging(&[]);
    let mut first = stuck(&door, "k1");
    others_go_on(&door, "row1");
    // More commands of that role wait for the first commit. They occupy no executor, not even one of the slow lane.
    let mut more: Vec<Client> = (2..20)
        .map(|number| {
            let mut client = client_in(&door, 2, Some("patient"));
            send(&mut client, &["SET", &format!("k{number}"), "patient"]);
            client
        })
        .collect();
    let mut clears = client_in(&door, 1, Some("patient"));
    send(&mut clears, &["FLUSHDB"]);
    // The row stays locked until the commit has finished.
    let mut same = client_in(&door, 2, Some("other"));
    send(&mut same, &["SET", "k1", "other"]);
    for row in 2..8 {
        others_go_on(&door, &format!("row{row}"));
    }
    assert_eq!(waiting(&door), 1);
    let counted = "SELECT count(*) FROM public.safe WHERE key ~ '^k'";
    assert_eq!(door.cluster.connect("postgres").number(counted), 0);
    assert!(first.is_silent(), "its commit is not done");
    answers(&door);
    assert_eq!(reply(&mut first), OK());
    more.iter_mut()
        .for_each(|client| assert_eq!(reply(client), OK()));
    assert_eq!(reply(&mut clears), OK());
    assert_eq!(reply(&mut same), OK());
    assert_eq!(door.cluster.connect("postgres").number(counted), 19);
    assert_eq!(same.ask(&["GET", "k1"]), Reply::bulk("other"));
    assert_eq!(clears.ask(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn commands_of_the_same_batch_are_answered_before_it_waits() {
    let door = hanging(&[]);
    let mut clients: Vec<Client> = ["patient", "other", "patient", "other", "patient"]
        .into_iter()
        .zip([2, 2, 1, 1, 2])
        .map(|(role, database)| {
            let mut client = client_in(&door, database, Some(role));
            // This read caches the role's permissions.
            assert_eq!(client.ask(&["GET", "none"]), Reply::Null);
            client
        })
        .collect();
    let stopped = Stopped::all_of(&door);
    for (number, client) in clients.iter_mut().enumerate() {
        match number {
            4 => send(client, &["GET", "row1"]),
            _ => send(client, &["SET", &format!("k{number}"), "v"]),
        }
    }
    wait_until_handed(&door, 5);
    drop(stopped);
    let since = Instant::now();
    for client in &mut clients[1..4] {
        assert_eq!(reply(client), OK());
    }
    assert_eq!(reply(&mut clients[4]), Reply::bulk("v"));
    assert!(since.elapsed() < Duration::from_secs(1));
    wait_until("a commit waits for the standby", || waiting(&door) == 1);
    answers(&door);
    assert_eq!(reply(&mut clients[0]), OK());
}

#[test]
fn a_commit_that_waits_in_the_slow_lane_stalls_no_other_client() {
    let door = hanging(&[]);
    let mut clears = client_in(&door, 2, Some("patient"));
    send(&mut clears, &["FLUSHDB"]);
    wait_until("a commit waits for the standby", || waiting(&door) == 1);
    let mut writes = client_in(&door, 2, Some("patient"));
    // The table stays locked until the commit has finished, so clients of this table wait. The other cache is not
    // affected.
    send(&mut writes, &["SET", "k", "patient"]);
    for (row, role) in [("row1", "other"), ("row2", "patient")] {
        let mut client = client_in(&door, 1, Some(role));
        ask(&mut client, &["GET", row], &Reply::bulk("v"));
        ask(&mut client, &["SET", "mine", row], &OK());
        ask(
            &mut client,
            &["KEYS", "row100"],
            &Reply::Array(vec![Reply::bulk("row100")]),
        );
    }
    assert_eq!(waiting(&door), 1);
    answers(&door);
    assert_eq!(reply(&mut clears), OK());
    assert_eq!(reply(&mut writes), OK());
    assert_eq!(writes.ask(&["DBSIZE"]), Reply::Integer(1));
}

#[test]
fn a_waiting_process_may_be_ended_and_commands_behind_it_run() {
    let door = hanging(&[]);
    let mut first = stuck(&door, "k1");
    let mut second = client_in(&door, 2, Some("patient"));
    send(&mut second, &["SET", "k2", "patient"]);
    others_go_on(&door, "row1");
    door.cluster.connect("postgres").run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE backend_type = 'pgcache resp executor' AND wait_event = 'SyncRep'",
    );
    // The change is committed on this server, but no standby has received it.
    let words = reply(&mut first).error();
    assert!(words.contains("it is unknown whether"), "{words}");
    wait_until("the next commit waits", || waiting(&door) == 1);
    others_go_on(&door, "row2");
    answers(&door);
    assert_eq!(reply(&mut second), OK());
    others_go_on(&door, "row3");
}
