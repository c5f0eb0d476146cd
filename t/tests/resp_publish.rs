//! Tests messages that SQL sends to channels of the Redis protocol (`pgcache.publish`).

use std::time::{Duration, Instant};

use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::wait::{wait_for, wait_until};

fn reader(door: &Door, channel: &str) -> Client {
    let mut reader = door.client();
    reader.ask(&["SUBSCRIBE", channel]);
    reader
}

/// Returns the channel and the text of the next message.
fn next(reader: &mut Client) -> (String, String) {
    match reader.reply() {
        Some(Reply::Array(parts)) => {
            let mut parts = parts.into_iter().map(Reply::text);
            assert_eq!(parts.next().as_deref(), Some("message"));
            let mut text = || parts.next().expect("it has a channel and a text");
            (text(), text())
        }
        other => panic!("expected a message, got {other:?}"),
    }
}

fn code(result: Result<(), postgres::Error>) -> String {
    let error = result.expect_err("it is refused");
    error.code().expect("the server says why").code().to_owned()
}

#[test]
fn messages_are_sent_by_the_commit_in_order() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut reader = reader(&door, "news");
    session
        .batch_execute(
            "BEGIN; SELECT pgcache.publish('news', 'rolled back'); ROLLBACK;
             BEGIN;
             SELECT pgcache.publish('news', '1');
             SAVEPOINT a; SELECT pgcache.publish('news', 'not'); ROLLBACK TO a;
             SAVEPOINT b; SELECT pgcache.publish('news', '2');
             SAVEPOINT c; SELECT pgcache.publish('news', '3'); RELEASE c; RELEASE b;
             SELECT pgcache.publish('other', 'nobody reads this');
             SELECT pgcache.publish('news', '4');
             SELECT pgcache.publish('news', '4');
             COMMIT",
        )
        .expect("messages can be sent");
    let mut writer = door.client();
    for text in ["1", "2", "3", "4", "4"] {
        assert_eq!(next(&mut reader), ("news".into(), text.into()));
    }
    // No message arrives before the commit.
    session
        .batch_execute("BEGIN; SELECT pgcache.publish('news', 'later')")
        .expect("a message");
    assert_eq!(
        writer.ask(&["PUBLISH", "news", "between"]),
        Reply::Integer(1)
    );
    assert_eq!(next(&mut reader).1, "between");
    session.batch_execute("COMMIT").expect("a commit");
    assert_eq!(next(&mut reader).1, "later");
    // A trigger of an ordinary table can publish. Texts of every length arrive.
    session
        .batch_execute(
            "CREATE TABLE t (v text);
             CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pgcache.publish('news', NEW.v); RETURN NEW; END $$;
             CREATE CONSTRAINT TRIGGER tell AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION tell();
             INSERT INTO t SELECT repeat('x', n) FROM generate_series(0, 20) AS n;
             INSERT INTO t SELECT repeat('y', 500000)",
        )
        .expect("a trigger sends");
    for length in 0..=20 {
        assert_eq!(next(&mut reader).1, "x".repeat(length));
    }
    assert_eq!(next(&mut reader).1, "y".repeat(500_000));
}

#[test]
fn a_message_wakes_a_sleeping_network_process() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut reader = reader(&door, "news");
    std::thread::sleep(Duration::from_millis(300));
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            let began = Instant::now();
            session
                .batch_execute("SELECT pgcache.publish('news', 'x')")
                .expect("a message");
            next(&mut reader);
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    // The publisher wakes a sleeping network process. Without this wake-up, the process would read messages only once a
    // second.
    assert!(times[10] < Duration::from_millis(300), "{times:?}");
}

#[test]
fn messages_that_cannot_be_sent_are_refused() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute("CREATE ROLE app LOGIN")
        .expect("a role");
    let mut app = door.cluster.connect_as("app", "postgres");
    let publish = "SELECT pgcache.publish('news', 'x')";
    assert_eq!(code(app.batch_execute(publish)), "42501");
    session
        .batch_execute("GRANT EXECUTE ON FUNCTION pgcache.publish(text, text) TO app")
        .expect("a grant");
    app.batch_execute(publish).expect("now it may");
    for arguments in ["NULL, 'x'", "'x', NULL"] {
        let sql = format!("SELECT pgcache.publish({arguments})");
        assert_eq!(code(session.batch_execute(&sql)), "22004");
    }
    session.batch_execute("BEGIN").expect("a transaction");
    session.batch_execute(publish).expect("a message");
    assert_eq!(
        code(session.batch_execute("PREPARE TRANSACTION 'p'")),
        "0A000"
    );
    session.batch_execute("ROLLBACK").expect("an end");
    let much = "SELECT pgcache.publish('c', repeat('x', 1048577))";
    assert_eq!(code(session.batch_execute(much)), "54000");
    let many = "SELECT pgcache.publish('c', repeat('x', 1000)) FROM generate_series(1, 1100)";
    assert_eq!(code(session.batch_execute(many)), "54000");
    // Messages that are published in another database reach no client of this database.
    session
        .batch_execute("CREATE DATABASE elsewhere")
        .expect("a database");
    let mut reader = reader(&door, "news");
    let mut other = door.cluster.connect("elsewhere");
    other
        .batch_execute("CREATE EXTENSION pgcache; SELECT pgcache.publish('news', 'elsewhere')")
        .expect("it reaches no subscriber");
    session.batch_execute(publish).expect("a message");
    assert_eq!(next(&mut reader).1, "x");
}

/// Returns whether a process is stopped according to /proc: the state is the letter after the name in parentheses.
fn is_stopped(process: i32) -> bool {
    let shown = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let (_, behind_name) = shown.rsplit_once(") ").expect("its name is in parentheses");
    behind_name.starts_with('T')
}

#[test]
fn readers_are_cut_off_where_messages_were_lost() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let (mut reader, mut other) = (reader(&door, "news"), door.client());
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
    let network = door.processes("pgcache resp network")[0];
    let signal = |signal: &str| {
        let done = std::process::Command::new("kill")
            .args([signal, &network.to_string()])
            .status();
        assert!(done.expect("kill can be run").success());
    };
    // Stop the process in its sleep, because in the middle of its event loop it might hold a lock that the sessions
    // need. Wait for the stop, because a process stops only once it gets a processor.
    wait_until("the network process is stopped in its sleep", || {
        signal("-STOP");
        wait_until("the network process is stopped", || is_stopped(network));
        let sql = "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgcacheResp'";
        let sleeps = session
            .query(sql, &[&network])
            .expect("the view can be read");
        if sleeps.is_empty() {
            signal("-CONT");
        }
        !sleeps.is_empty()
    });
    for _ in 0..8 {
        session
            .batch_execute(
                "SELECT pgcache.publish('news', repeat('x', 999)) FROM generate_series(1, 1000)",
            )
            .expect("messages are sent while the process is stopped");
    }
    signal("-CONT");
    reader.wait_for_end();
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
    let overflows = wait_for("it is counted", || {
        let row = session.query_one("SELECT ring_overflows FROM pgcache.resp_stats", &[]);
        Some(row.expect("a row").get::<_, i64>(0)).filter(|&overflows| overflows > 0)
    });
    assert_eq!(overflows, 1);
    // After the reader has subscribed again, no message is missing.
    let mut reader = self::reader(&door, "news");
    session
        .batch_execute("SELECT pgcache.publish('news', 'after')")
        .expect("a message");
    assert_eq!(next(&mut reader).1, "after");
}

/// Many sessions publish at once. The messages of each session arrive complete and in its order.
#[test]
fn messages_of_many_sessions_come_whole_and_in_order() {
    let door = Door::start(&[]);
    let mut reader = reader(&door, "news");
    std::thread::scope(|scope| {
        for number in 0..6 {
            let door = &door;
            scope.spawn(move || {
                let mut session = door.cluster.connect("postgres");
                for turn in 0..100 {
                    let sql = format!(
                        "SELECT pgcache.publish('news', '{number} ' || {turn} * 3 + n || repeat('.', n * 37))
                           FROM generate_series(0, 2) AS n"
                    );
                    session.batch_execute(&sql).expect("messages");
                }
            });
        }
        let mut seen = [0; 6];
        for _ in 0..6 * 300 {
            let (_, text) = next(&mut reader);
            let mut words = text.trim_end_matches('.').split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
            let (session, turn) = (number().expect("a session"), number().expect("a turn"));
            assert_eq!(turn, seen[session], "of session {session}");
            seen[session] += 1;
        }
    });
}
