//! Tests CLIENT TRACKING of a table cache under many writers: no client keeps a value that a SELECT would not return.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Reply};
use pgcache_tests::rng::Rng;
use pgcache_tests::windows::{
    LetGo, MARK_TO_VISIBLE, VISIBLE_TO_UNMARK, paused, stay_in, until_inside,
};
use postgres::Client as Session;

use super::resp_tracking::{invalidation, messages, next};
use super::resp_tracking_tables::{TABLE, reader, start, warm};

const KEYS: u64 = 12;
const WRITERS: u64 = 3;

/// The values that a client keeps, by key.
type Kept = BTreeMap<String, u64>;

fn forget(kept: &mut Kept, push: &Reply) {
    match push {
        Reply::Push(parts) => match &parts[1] {
            Reply::Array(keys) => keys.iter().for_each(|key| {
                kept.remove(&key.clone().text());
            }),
            _ => kept.clear(),
        },
        other => panic!("expected a message, got {other:?}"),
    }
}

/// Returns two keys that each transaction changes together.
fn pair(at: u64) -> [String; 2] {
    [format!("a{at}"), format!("b{at}")]
}

fn twin(key: &str) -> String {
    match key.strip_prefix('a') {
        Some(rest) => format!("b{rest}"),
        None => format!("a{}", &key[1..]),
    }
}

/// Sets both keys of a pair to the number with one of many commands and statements, and commits or rolls back.
fn write(
    session: &mut Session,
    client: &mut Client,
    rng: &mut Rng,
    at: u64,
    number: u64,
    name: &str,
) {
    let [a, b] = pair(at);
    let set = format!(
        "SELECT cache_set('{a}', '{number}', cache => '{TABLE}'), cache_set('{b}', '{number}', cache => '{TABLE}')"
    );
    let update = format!(
        "INSERT INTO tab VALUES ('{a}', '{number}'), ('{b}', '{number}') ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value"
    );
    let wrong = format!("UPDATE tab SET value = '0' WHERE key IN ('{a}', '{b}')");
    match rng.below(10) {
        0 => session.run(&set),
        1 => session.run(&update),
        2 => session.run(&format!("BEGIN; {update}; SELECT pg_sleep(0.002); COMMIT")),
        3 => session.run(&format!("BEGIN; {wrong}; {set}; COMMIT")),
        4 => session.run(&format!(
            "BEGIN; SAVEPOINT s; {wrong}; ROLLBACK TO s; {set}; COMMIT"
        )),
        5 => session.run(&format!("BEGIN; SAVEPOINT s; {set}; RELEASE s; COMMIT")),
        6 => {
            session.run(&format!("BEGIN; {set}; PREPARE TRANSACTION '{name}'"));
            session.run(&format!("COMMIT PREPARED '{name}'"));
        }
        7 => session.run(&format!("BEGIN; {wrong}; ROLLBACK; {set}")),
        8 => {
            session.run(&format!("BEGIN; {wrong}; PREPARE TRANSACTION '{name}'"));
            session.run(&format!("ROLLBACK PREPARED '{name}'"));
            session.run(&update);
        }
        _ => {
            let number = number.to_string();
            assert_eq!(
                client.ask(&["MSET", &a, &number, &b, &number]),
                Reply::status("OK")
            );
        }
    }
}

/// The numbers of a key only increase. Once a client has received the reply to its marker, it has received the messages
/// about all earlier changes, so it must keep no older number.
#[test]
fn no_client_keeps_an_old_row() {
    let door = start("unlogged", &[]);
    let done: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (door, done, stop, hits, misses) = (&door, &done, &stop, &hits, &misses);
        for share in 0..WRITERS {
            scope.spawn(move || {
                let mut rng = Rng::seeded(share + 1);
                let mut session = door.cluster.connect("postgres");
                let mut client = door.client();
                client.ask(&["SELECT", "1"]);
                for number in 1.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let at = rng.below(KEYS / WRITERS) * WRITERS + share;
                    write(
                        &mut session,
                        &mut client,
                        &mut rng,
                        at,
                        number,
                        &format!("p{share}"),
                    );
                    done[at as usize].store(number, SeqCst);
                    thread::sleep(Duration::from_micros(rng.below(3000)));
                }
            });
        }
        scope.spawn(move || {
            let mut rng = Rng::seeded(50);
            let mut session = door.cluster.connect("postgres");
            while !stop.load(SeqCst) {
                warm(&mut session, &pair(rng.below(KEYS))[0]);
            }
        });
        for number in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::seeded(100 + number);
                let mut session = door.cluster.connect("postgres");
                let mut client = reader(door, &[]);
                let mut kept = Kept::new();
                let until = Instant::now() + Duration::from_secs(10);
                while Instant::now() < until {
                    let at = rng.below(KEYS);
                    let [key, other] = pair(at);
                    let key = if rng.below(2) == 0 { key } else { other };
                    let least = match rng.below(8) {
                        // SQL now shows the committed value, or a newer one.
                        0 => {
                            let select = format!("SELECT value FROM tab WHERE key = '{key}'");
                            let before = done[at as usize].load(SeqCst);
                            let shown = session
                                .value(&select)
                                .map_or(0, |value| value.parse().expect("a number"));
                            assert!(shown >= before, "{shown} {before}");
                            before
                        }
                        _ => done[at as usize].load(SeqCst),
                    };
                    messages(&mut client)
                        .iter()
                        .for_each(|push| forget(&mut kept, push));
                    if let Some(number) = kept.get(&key) {
                        hits.fetch_add(1, SeqCst);
                        assert!(
                            *number >= least,
                            "{key} is {number}, and was {least} before"
                        );
                        continue;
                    }
                    misses.fetch_add(1, SeqCst);
                    assert!(client.send(&Client::request(&[b"GET", key.as_bytes()])));
                    let reply = loop {
                        match client.reply().expect("a reply comes") {
                            push @ Reply::Push(_) => forget(&mut kept, &push),
                            reply => break reply,
                        }
                    };
                    let number = match reply {
                        Reply::Null => 0,
                        reply => reply.text().parse().expect("a number"),
                    };
                    assert!(number >= least, "{key} is {number}, and was {least} before");
                    let twin = twin(&key);
                    if let Some(kept) = kept.get(&twin) {
                        assert!(
                            *kept >= number,
                            "{key} is {number} beside {twin}, which is {kept}"
                        );
                    }
                    kept.insert(key, number);
                }
                stop.store(true, SeqCst);
            });
        }
    });
    let (hits, misses) = (hits.load(SeqCst), misses.load(SeqCst));
    println!("{hits} hits, {misses} misses");
    assert!(hits > 100 && misses > 100, "{hits} hits, {misses} misses");
}

/// A client that read a key before the commit gets no message in a window before the change is published. A value that
/// the client reads in a window is the old value, or arrives after the message. When COMMIT returns, the message has
/// been sent.
#[test]
fn in_each_window_of_a_commit_no_new_value_precedes_its_message() {
    let door = start("unlogged", &[]);
    if !paused(door.cluster) {
        return;
    }
    for window in [MARK_TO_VISIBLE, VISIBLE_TO_UNMARK] {
        let (mut writer, mut watch) = (
            door.cluster.connect("postgres"),
            door.cluster.connect("postgres"),
        );
        for key in ["k", "l"] {
            writer.run(&format!(
                "SELECT cache_set('{key}', 'old', cache => '{TABLE}')"
            ));
            warm(&mut watch, key);
        }
        let mut client = reader(&door, &[]);
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("old"));
        let backend = stay_in(door.cluster, &mut writer, window);
        thread::scope(|scope| {
            let _go = LetGo(door.cluster);
            let writer = scope.spawn(move || writer.run("UPDATE tab SET value = 'new'"));
            until_inside(&mut watch, backend, "it is in the window");
            assert_eq!(messages(&mut client), [], "window {window}");
            if window == MARK_TO_VISIBLE {
                assert_eq!(client.ask(&["GET", "l"]), Reply::bulk("old"));
                assert_eq!(messages(&mut client), [], "window {window}");
            } else {
                assert!(client.send(&Client::request(&[b"GET", b"l"])));
                // An executor that does not wait replies within this time.
                thread::sleep(Duration::from_millis(100));
            }
            door.cluster.hold_windows(false);
            writer.join().expect("it commits");
        });
        let mut received = vec![next(&mut client), next(&mut client)];
        received.sort_by_key(|message| format!("{message:?}"));
        assert_eq!(
            received,
            [invalidation(Some("k")), invalidation(Some("l"))],
            "window {window}"
        );
        if window == VISIBLE_TO_UNMARK {
            assert_eq!(client.reply(), Some(Reply::bulk("new")));
        }
    }
}

/// When the writer marks its changes, no client tracks yet.
#[test]
fn a_client_that_starts_tracking_before_a_commit_is_visible_is_notified() {
    let door = start("unlogged", &[]);
    if !paused(door.cluster) {
        return;
    }
    let mut writer = door.cluster.connect("postgres");
    let mut watch = door.cluster.connect("postgres");
    writer.run(&format!("SELECT cache_set('k', 'old', cache => '{TABLE}')"));
    warm(&mut watch, "k");
    let backend = stay_in(door.cluster, &mut writer, MARK_TO_VISIBLE);
    let mut client = thread::scope(|scope| {
        let _go = LetGo(door.cluster);
        let writer = scope.spawn(move || writer.run("UPDATE tab SET value = 'new'"));
        until_inside(&mut watch, backend, "it is marked");
        let mut client = reader(&door, &[]);
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("old"));
        door.cluster.hold_windows(false);
        writer.join().expect("it commits");
        client
    });
    assert_eq!(messages(&mut client), [invalidation(Some("k"))]);
}
