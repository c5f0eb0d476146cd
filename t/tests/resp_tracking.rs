//! Tests CLIENT TRACKING: which clients are notified of each change, and that no client misses a change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::rng::Rng;
use pgcache_tests::tables::Stopped;
use pgcache_tests::wait::wait_until;
use pgcache_tests::windows::{DRAIN_TO_READ, LetGo, paused, until_inside};

use super::resp_differential::redis::Redis;

/// Connects a client that uses protocol version 3.
fn three(door: &Door) -> Client {
    let mut client = door.client();
    client.ask(&["HELLO", "3"]);
    client
}

/// Connects a client that uses protocol version 3 and tracks keys.
pub fn tracking(door: &Door, options: &[&str]) -> Client {
    let mut client = three(door);
    let words = [&["CLIENT", "TRACKING", "ON"], options].concat();
    assert_eq!(client.ask(&words), Reply::status("OK"));
    client
}

/// Returns the message about a key, or, for None, the message that all keys have changed.
pub fn invalidation(key: Option<&str>) -> Reply {
    let what = match key {
        Some(key) => Reply::Array(vec![Reply::bulk(key)]),
        None => Reply::Null,
    };
    Reply::Push(vec![Reply::bulk("invalidate"), what])
}

/// Reads until the reply to a marker command. Returns the messages without repetitions, and the replies.
pub fn take(client: &mut Client) -> (Vec<Reply>, Vec<Reply>) {
    assert!(client.send(&Client::request(&[b"ECHO", b"the mark"])));
    let (mut messages, mut replies) = (Vec::new(), Vec::new());
    loop {
        match client.reply_soon().expect("a reply comes") {
            mark if mark == Reply::bulk("the mark") => return (messages, replies),
            push @ Reply::Push(_) if !messages.contains(&push) => messages.push(push),
            Reply::Push(_) => {}
            other => replies.push(other),
        }
    }
}

/// Returns the messages that have arrived. Fails if a reply is among them.
pub fn messages(client: &mut Client) -> Vec<Reply> {
    let (messages, replies) = take(client);
    assert_eq!(replies, [], "the client sent no request");
    messages
}

/// Waits for the next message.
pub fn next(client: &mut Client) -> Reply {
    client.reply().expect("a message comes")
}

#[test]
fn a_reader_of_a_key_is_notified_once_of_any_change() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut sql = |text: &str| session.batch_execute(text).expect("it can be run");
    let (mut reader, mut writer) = (tracking(&door, &[]), door.client());
    let read = |reader: &mut Client, key: &str| {
        reader.ask(&["GET", key]);
    };
    // Change keys with commands. The client gets one message for each key that it has read, and no further message
    // until it reads the key again.
    writer.ask(&["SET", "k", "1"]);
    read(&mut reader, "k");
    writer.ask(&["SET", "k", "2"]);
    writer.ask(&["SET", "k", "3"]);
    writer.ask(&["SET", "other", "3"]);
    assert_eq!(messages(&mut reader), [invalidation(Some("k"))]);
    // A miss also counts as a read.
    for words in [
        &["MGET", "m", "n"][..],
        &["EXISTS", "m", "n"],
        &["TTL", "n"],
        &["OBJECT", "REFCOUNT", "n"],
    ] {
        reader.ask(words);
        writer.ask(&["SET", "n", "x"]);
        assert_eq!(
            messages(&mut reader),
            [invalidation(Some("n"))],
            "{words:?}"
        );
        writer.ask(&["DEL", "n"]);
    }
    // Change keys through SQL.
    let cache = format!("cache => '{CACHE}'");
    let by_sql = [
        format!("SELECT cache_set_bytes('k', 'x', {cache})"),
        format!("SELECT cache_touch('k', '1 hour', {cache})"),
        format!("SELECT cache_delete('k', {cache})"),
        format!("SELECT cache_add_bytes('k', 'y', {cache})"),
        format!("SELECT cache_delete_prefix('k', {cache})"),
    ];
    for text in by_sql {
        read(&mut reader, "k");
        sql(&text);
        assert_eq!(next(&mut reader), invalidation(Some("k")), "{text}");
    }
    // A rollback does not undo changes of memory caches, whose messages are sent at once.
    read(&mut reader, "k");
    sql(&format!(
        "BEGIN; SELECT cache_set_bytes('k', 'x', {cache}); ROLLBACK"
    ));
    assert_eq!(next(&mut reader), invalidation(Some("k")));
    // Change all keys.
    for text in [
        format!("SELECT cache_clear('{CACHE}')"),
        format!("SELECT cache_set_bytes('z', 'x', {cache}); SELECT cache_drop('{CACHE}')"),
    ] {
        read(&mut reader, "k");
        sql(&text);
        assert_eq!(next(&mut reader), invalidation(None), "{text}");
    }
    assert_eq!(messages(&mut reader), []);
}

#[test]
fn an_expiry_is_sent_at_the_deadline() {
    let door = Door::start(&["pgcache.expire_interval = 0"]);
    let (mut reader, mut writer) = (tracking(&door, &[]), door.client());
    writer.ask(&["SET", "k", "v", "PX", "300"]);
    let began = Instant::now();
    assert_eq!(reader.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(next(&mut reader), invalidation(Some("k")));
    let after = began.elapsed();
    assert!(after > Duration::from_millis(250), "too early: {after:?}");
    assert!(after < Duration::from_secs(20), "too late: {after:?}");
    // A change of the deadline is reported at once, and nothing is reported at the old deadline.
    writer.ask(&["SET", "k", "v", "PX", "300"]);
    reader.ask(&["GET", "k"]);
    writer.ask(&["PERSIST", "k"]);
    assert_eq!(next(&mut reader), invalidation(Some("k")));
    assert_eq!(reader.ask(&["GET", "k"]), Reply::bulk("v"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(messages(&mut reader), []);
}

#[test]
fn evictions_are_sent() {
    let door = Door::start(&["pgcache.hot_size = '2MB'"]);
    let mut reader = tracking(&door, &["NOLOOP"]);
    reader.ask(&["SET", "old", &"v".repeat(1000)]);
    assert_eq!(messages(&mut reader), []);
    reader.ask(&["GET", "old"]);
    // An eviction does not count as the client's own change, even if this client's writes cause it. Another client
    // reads the new keys, because entries that are never read would not evict an entry that was read.
    let (mut other, value) = (door.client(), "v".repeat(1000));
    let (mut invalidations, mut replies) = (Vec::new(), 0);
    for batch in 0..20 {
        let keys: Vec<String> = (0..250).map(|n| (250 * batch + n).to_string()).collect();
        for key in &keys {
            let bytes = Client::request(&[b"SET", key.as_bytes(), value.as_bytes()]);
            assert!(reader.send(&bytes));
        }
        let (received, done) = take(&mut reader);
        invalidations.extend(received);
        replies += done.len();
        for key in &keys {
            other.ask(&["GET", key]);
        }
    }
    assert_eq!(replies, 5000);
    assert_eq!(invalidations, [invalidation(Some("old"))]);
    assert_eq!(reader.ask(&["GET", "old"]), Reply::Null);
}

/// Two keys change after the network process has read the ring of changes and before it reads a client's command.
#[test]
fn no_reply_is_newer_than_an_unsent_change() {
    let window = format!("pgcache.pause_window = {DRAIN_TO_READ}");
    let door = Door::start(&["pgcache.pause = '60s'", &window]);
    if !paused(door.cluster) {
        return;
    }
    let mut session = door.cluster.connect("postgres");
    let set = |value: u32| {
        let set = |key| format!("SELECT cache_set_bytes('{key}', '{value}', cache => '{CACHE}');");
        set("a") + &set("b")
    };
    session.batch_execute(&set(1)).expect("both can be set");
    let mut client = tracking(&door, &[]);
    assert_eq!(client.ask(&["GET", "a"]), Reply::bulk("1"));
    assert_eq!(messages(&mut client), []);
    let network = door.processes("pgcache resp network")[0];
    let _go = LetGo(door.cluster);
    door.cluster.hold_windows(true);
    assert!(client.send(&Client::request(&[b"GET", b"b"])));
    until_inside(
        &mut session,
        network.into(),
        "the network process is about to read",
    );
    session.batch_execute(&set(2)).expect("both can be set");
    door.cluster.hold_windows(false);
    assert_eq!(next(&mut client), invalidation(Some("a")));
}

/// The ring holds at most one megabyte of changes.
#[test]
fn a_network_process_that_was_overtaken_invalidates_everything() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut reader = tracking(&door, &[]);
    reader.ask(&["GET", "k"]);
    let stopped = Stopped::networks_of(&door);
    let changes = format!(
        "SELECT cache_set('k', 'v', cache => '{CACHE}'), \
         (SELECT count(cache_set(repeat('x', 400) || g, '', cache => '{CACHE}')) FROM generate_series(1, 5000) AS g)"
    );
    session
        .batch_execute(&changes)
        .expect("writers do not wait for the network process");
    drop(stopped);
    assert_eq!(messages(&mut reader), [invalidation(None)]);
}

#[test]
fn too_many_tracked_keys_are_dropped_and_sent() {
    let door = Door::start(&["pgcache.resp_tracking_keys = 10"]);
    let mut reader = tracking(&door, &[]);
    for key in 0..30 {
        let key = format!("k{key}");
        assert!(reader.send(&Client::request(&[b"GET", key.as_bytes()])));
    }
    assert!(reader.send(&Client::request(&[b"INFO", b"clients"])));
    let (keys, mut replies) = take(&mut reader);
    let info = replies.pop().expect("INFO replies").text();
    assert!(info.contains("total_tracking_keys:10\r\n"), "{info}");
    assert_eq!(replies.len(), 30);
    assert_eq!(keys.len(), 20, "{keys:?}");
}

#[test]
fn a_role_that_may_not_read_gets_no_messages() {
    let door = Door::start(&["pgcache.resp_default_role = 'app'"]);
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute(&format!(
            "CREATE ROLE app LOGIN; GRANT INSERT, UPDATE ON {CACHE} TO app"
        ))
        .expect("a role can be made");
    let set = format!("SELECT cache_set_bytes('k', 'x', cache => '{CACHE}')");
    let mut all = three(&door);
    let refused = all.ask(&["CLIENT", "TRACKING", "ON", "BCAST"]).error();
    assert!(refused.starts_with("NOPERM"), "{refused}");
    let mut reader = tracking(&door, &[]);
    assert!(reader.ask(&["GET", "k"]).error().starts_with("NOPERM"));
    session.batch_execute(&set).expect("it can be set");
    assert_eq!(messages(&mut reader), []);
    // Each message checks the privileges of the moment, so a grant or a revocation takes effect at once.
    let grant = format!("GRANT SELECT ON {CACHE} TO app");
    session.batch_execute(&grant).expect("it can be granted");
    let mut all = tracking(&door, &["BCAST"]);
    session.batch_execute(&set).expect("it can be set");
    assert_eq!(next(&mut all), invalidation(Some("k")));
    let revoke = format!("REVOKE SELECT ON {CACHE} FROM app");
    session.batch_execute(&revoke).expect("it can be revoked");
    session.batch_execute(&set).expect("it can be set");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(messages(&mut all), []);
    session.batch_execute(&grant).expect("it can be granted");
    assert_eq!(next(&mut all), invalidation(None), "what it missed");
    session.batch_execute(&set).expect("it can be set");
    assert_eq!(next(&mut all), invalidation(Some("k")));
}

/// A step of a comparison: the client's index, and its request. `ID0` stands for the client ID that the server gave to
/// client 0.
type Step = (usize, &'static [&'static str]);

const STEPS: &[Step] = &[
    (0, &["CLIENT", "GETREDIR"]),
    (0, &["CLIENT", "TRACKINGINFO"]),
    (0, &["CLIENT", "TRACKING", "maybe"]),
    (0, &["CLIENT", "TRACKING", "ON", "what"]),
    (0, &["CLIENT", "TRACKING", "ON", "REDIRECT"]),
    (0, &["CLIENT", "TRACKING", "ON", "REDIRECT", "x"]),
    (0, &["CLIENT", "TRACKING", "ON", "REDIRECT", "123456"]),
    (
        0,
        &[
            "CLIENT", "TRACKING", "ON", "REDIRECT", "ID1", "REDIRECT", "ID1",
        ],
    ),
    (0, &["CLIENT", "TRACKING", "ON", "PREFIX", "a"]),
    (0, &["CLIENT", "TRACKING", "ON", "BCAST", "OPTIN"]),
    (0, &["CLIENT", "TRACKING", "ON", "OPTOUT", "OPTIN"]),
    (
        0,
        &[
            "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a", "PREFIX", "ab",
        ],
    ),
    (0, &["CLIENT", "CACHING", "YES"]),
    // The default mode: the server tracks the keys that the client reads.
    (0, &["CLIENT", "TRACKING", "ON"]),
    (0, &["CLIENT", "TRACKINGINFO"]),
    (0, &["CLIENT", "GETREDIR"]),
    (0, &["CLIENT", "CACHING", "YES"]),
    (0, &["CLIENT", "TRACKING", "ON", "BCAST"]),
    (0, &["GET", "k"]),
    (1, &["SET", "k", "1"]),
    (1, &["SET", "k", "2"]),
    (0, &["MGET", "k", "l"]),
    (1, &["MSET", "l", "2", "k", "3"]),
    (0, &["STRLEN", "k"]),
    (1, &["EXPIRE", "k", "1000"]),
    (0, &["TTL", "k"]),
    (1, &["PERSIST", "k"]),
    (0, &["GETRANGE", "k", "0", "1"]),
    (1, &["APPEND", "k", "2"]),
    (0, &["EXISTS", "k", "l"]),
    (1, &["DEL", "l"]),
    (0, &["OBJECT", "REFCOUNT", "k"]),
    (1, &["SET", "k", "1"]),
    (0, &["TYPE", "k"]),
    (1, &["RENAME", "k", "l"]),
    (0, &["GET", "k"]),
    (0, &["GET", "l"]),
    (1, &["COPY", "l", "k"]),
    (0, &["SET", "l", "own"]),
    (0, &["GET", "l"]),
    (0, &["SET", "l", "own"]),
    (0, &["MULTI"]),
    (0, &["GET", "l"]),
    (0, &["INCR", "n"]),
    (0, &["EXEC"]),
    (1, &["SET", "l", "x"]),
    (0, &["CLIENT", "TRACKING", "OFF"]),
    (1, &["SET", "l", "x"]),
    // NOLOOP: the client gets no message about its own changes.
    (0, &["CLIENT", "TRACKING", "ON", "NOLOOP"]),
    (0, &["CLIENT", "TRACKINGINFO"]),
    (0, &["GET", "l"]),
    (0, &["SET", "l", "own"]),
    (1, &["SET", "l", "other"]),
    (0, &["GET", "l"]),
    (1, &["SET", "l", "other"]),
    (0, &["CLIENT", "TRACKING", "OFF"]),
    // OPTIN: the server tracks only keys that the client selects.
    (0, &["CLIENT", "TRACKING", "ON", "OPTIN"]),
    (0, &["CLIENT", "TRACKING", "ON", "OPTOUT"]),
    (0, &["CLIENT", "CACHING", "NO"]),
    (0, &["CLIENT", "CACHING", "what"]),
    (0, &["GET", "l"]),
    (1, &["SET", "l", "1"]),
    (0, &["CLIENT", "CACHING", "YES"]),
    (0, &["CLIENT", "TRACKINGINFO"]),
    (0, &["GET", "l"]),
    (0, &["GET", "k"]),
    (1, &["SET", "k", "1"]),
    (1, &["SET", "l", "1"]),
    (0, &["CLIENT", "CACHING", "YES"]),
    (0, &["MULTI"]),
    (0, &["GET", "k"]),
    (0, &["PTTL", "l"]),
    (0, &["EXEC"]),
    (0, &["GET", "n"]),
    (1, &["MSET", "k", "1", "l", "2", "n", "3"]),
    (0, &["CLIENT", "TRACKING", "OFF"]),
    (0, &["CLIENT", "TRACKING", "ON", "OPTOUT"]),
    (0, &["CLIENT", "CACHING", "YES"]),
    (0, &["CLIENT", "CACHING", "NO"]),
    (0, &["CLIENT", "TRACKINGINFO"]),
    (0, &["GET", "k"]),
    (0, &["GET", "l"]),
    (1, &["MSET", "k", "1", "l", "2", "n", "3"]),
    (0, &["CLIENT", "TRACKING", "OFF"]),
    // BCAST: the server tracks all keys with a prefix.
    (
        0,
        &[
            "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a:", "PREFIX", "b:",
        ],
    ),
    (0, &["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a:b"]),
    (0, &["CLIENT", "TRACKING", "ON"]),
    (
        0,
        &[
            "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "c:", "NOLOOP",
        ],
    ),
    (1, &["SET", "a:1", "1"]),
    (1, &["SET", "d:1", "1"]),
    (1, &["DEL", "a:1"]),
    (1, &["SET", "c:1", "1"]),
    (0, &["SET", "b:1", "1"]),
    (0, &["CLIENT", "TRACKING", "OFF"]),
    (1, &["SET", "a:1", "1"]),
    (0, &["CLIENT", "TRACKING", "ON", "BCAST"]),
    (0, &["CLIENT", "TRACKING", "ON", "BCAST"]),
    (0, &["CLIENT", "TRACKINGINFO"]),
    (1, &["SET", "any", "1"]),
    (0, &["SET", "own", "1"]),
    (0, &["CLIENT", "TRACKING", "OFF"]),
    // REDIRECT: another client gets the messages. With protocol version 2 it must have subscribed.
    (2, &["CLIENT", "TRACKING", "ON", "REDIRECT", "ID1"]),
    (2, &["CLIENT", "GETREDIR"]),
    (2, &["GET", "k"]),
    (0, &["SET", "k", "1"]),
    (1, &["SUBSCRIBE", "__redis__:invalidate"]),
    (2, &["GET", "k"]),
    (0, &["SET", "k", "1"]),
    (2, &["GET", "k"]),
    (0, &["FLUSHALL"]),
    (2, &["CLIENT", "TRACKING", "ON", "REDIRECT", "ID0"]),
    (2, &["GET", "k"]),
    (1, &["PING"]),
    (0, &["SET", "k", "1"]),
    (2, &["RESET"]),
    (2, &["CLIENT", "GETREDIR"]),
];

/// The output of one step: the replies to the client that sent the request, and the messages by client.
type Received = (Vec<Reply>, BTreeMap<usize, Vec<Reply>>);

/// Returns the output of a server's clients at each step.
fn play(mut clients: Vec<Client>) -> Vec<Received> {
    let ids: Vec<String> = clients
        .iter_mut()
        .map(|client| match client.ask(&["CLIENT", "ID"]) {
            Reply::Integer(id) => id.to_string(),
            other => panic!("expected a number, got {other:?}"),
        })
        .collect();
    let (mut received, mut collects) = (Vec::new(), false);
    for (who, words) in STEPS {
        let words: Vec<&[u8]> = words
            .iter()
            .map(|word| match word.strip_prefix("ID") {
                Some(number) => ids[number.parse::<usize>().expect("a number")].as_bytes(),
                None => word.as_bytes(),
            })
            .collect();
        assert!(clients[*who].send(&Client::request(&words)));
        let mut replies = Vec::new();
        let mut messages = BTreeMap::new();
        // Within a transaction no marker can be sent, because it would be queued.
        collects = match words[0] {
            b"MULTI" => true,
            b"EXEC" => false,
            _ => collects,
        };
        if collects {
            received.push((
                vec![clients[*who].reply().expect("a reply comes")],
                messages,
            ));
            continue;
        }
        // With protocol version 2, a client that has subscribed can send only PING. Both servers reply to it in the
        // same way.
        let others = (0..clients.len()).filter(|other| other != who);
        for number in std::iter::once(*who).chain(others) {
            let client = &mut clients[number];
            // Redis sends messages about prefixes only after all received commands have run, so the marker is sent
            // later.
            let mut marks = number != *who;
            if marks {
                assert!(client.send(&Client::request(&[b"PING", b"the mark"])));
            }
            loop {
                if !marks && !replies.is_empty() {
                    marks = true;
                    assert!(client.send(&Client::request(&[b"PING", b"the mark"])));
                }
                match client.reply().expect("a reply comes") {
                    Reply::Bulk(mark) if mark == b"the mark" => break,
                    Reply::Array(parts) if parts.last() == Some(&Reply::bulk("the mark")) => break,
                    push @ Reply::Push(_) => {
                        let all: &mut Vec<Reply> = messages.entry(number).or_default();
                        // Redis may name several keys in one message, and pgcache may send a message twice.
                        for push in one_by_one(push) {
                            if !all.contains(&push) {
                                all.push(push);
                            }
                        }
                    }
                    other if number == *who => replies.push(other),
                    other => messages.entry(number).or_default().push(other),
                }
            }
        }
        messages
            .values_mut()
            .for_each(|all| all.sort_by_key(|reply| format!("{reply:?}")));
        // The two servers assign different client IDs.
        for reply in &mut replies {
            if let Reply::Integer(id) = reply
                && words.last() == Some(&&b"GETREDIR"[..])
                && let Some(number) = ids.iter().position(|other| *other == id.to_string())
            {
                *id = 1000 + number as i64;
            }
        }
        received.push((replies, messages));
    }
    received
}

fn one_by_one(push: Reply) -> Vec<Reply> {
    match &push {
        Reply::Push(parts) => match &parts[..] {
            [kind, Reply::Array(keys)] => keys
                .iter()
                .map(|key| Reply::Push(vec![kind.clone(), Reply::Array(vec![key.clone()])]))
                .collect(),
            _ => vec![push],
        },
        _ => vec![push],
    }
}

#[test]
fn clients_get_the_same_messages_as_from_redis() {
    if std::process::Command::new("redis-server")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("there is no redis-server: nothing was compared");
        return;
    }
    let redis = Redis::start("tracking");
    let door = Door::start(&[]);
    let clients = |connect: &dyn Fn() -> Client| -> Vec<Client> {
        let mut all: Vec<Client> = (0..3).map(|_| connect()).collect();
        all[0].ask(&["HELLO", "3"]);
        all
    };
    let theirs = play(clients(&|| Client::at(&redis.socket())));
    let ours = play(clients(&|| door.client()));
    let differ: Vec<String> = STEPS
        .iter()
        .zip(theirs.iter().zip(&ours))
        .filter(|(_, (theirs, ours))| theirs != ours)
        .map(|(step, (theirs, ours))| format!("{step:?}\n  Redis: {theirs:?}\n  door:  {ours:?}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Many clients have a client-side cache, as in redis-py and rueidis, and writers use both protocols. The values of a
/// key are increasing numbers. Once a number was acknowledged or read, and the client has read all messages up to a
/// marker, the client's own cache must not contain an older number of that key.
#[test]
fn no_client_keeps_an_old_value() {
    const KEYS: u64 = 20;
    let door = Door::start(&["max_connections = 60"]);
    let done: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (door, done, stop, hits, misses) = (&door, &done, &stop, &hits, &misses);
        // Each share of the keys has one writer. A number counts as committed once its writer has received the reply.
        for share in 0..4 {
            scope.spawn(move || {
                let mut rng = Rng::seeded(share + 1);
                let mut client = door.client();
                let mut session = door.cluster.connect("postgres");
                for number in 1.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let at = rng.below(KEYS / 4) * 4 + share;
                    let (key, value) = (format!("k{at}"), number.to_string());
                    if share % 2 == 0 {
                        assert_eq!(client.ask(&["SET", &key, &value]), Reply::status("OK"));
                    } else {
                        let set = format!(
                            "SELECT cache_set_bytes('{key}', '{value}', cache => '{CACHE}')"
                        );
                        session.batch_execute(&set).expect("it can be set");
                    }
                    done[at as usize].store(number, SeqCst);
                    std::thread::sleep(Duration::from_micros(rng.below(400)));
                }
            });
        }
        for reader in 0..6 {
            scope.spawn(move || {
                let mut rng = Rng::seeded(100 + reader);
                let mut client = tracking(door, &[]);
                let mut kept: BTreeMap<String, u64> = BTreeMap::new();
                let until = Instant::now() + Duration::from_secs(8);
                while Instant::now() < until {
                    let at = rng.below(KEYS);
                    let key = format!("k{at}");
                    let least = done[at as usize].load(SeqCst);
                    // The reply to the marker arrives after the messages about all earlier changes.
                    for push in messages(&mut client) {
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
                    if let Some(number) = kept.get(&key) {
                        hits.fetch_add(1, SeqCst);
                        assert!(
                            *number >= least,
                            "{key} is {number}, and was {least} before"
                        );
                        continue;
                    }
                    misses.fetch_add(1, SeqCst);
                    client.send(&Client::request(&[b"GET", key.as_bytes()]));
                    let reply = loop {
                        match client.reply().expect("a reply comes") {
                            Reply::Push(parts) => match &parts[1] {
                                Reply::Array(keys) => keys.iter().for_each(|key| {
                                    kept.remove(&key.clone().text());
                                }),
                                _ => kept.clear(),
                            },
                            reply => break reply,
                        }
                    };
                    let number = match reply {
                        Reply::Null => 0,
                        reply => reply.text().parse().expect("a number"),
                    };
                    assert!(number >= least, "{key} is {number}, and was {least} before");
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

#[test]
fn a_change_is_sent_within_five_milliseconds() {
    let door = Door::start(&[]);
    let mut reader = tracking(&door, &[]);
    let mut session = door.cluster.connect("postgres");
    let set = session
        .prepare(&format!(
            "SELECT cache_set_bytes('k', 'x', cache => '{CACHE}')"
        ))
        .expect("it can be prepared");
    let mut times = Vec::new();
    for round in 0..1000 {
        reader.ask(&["GET", "k"]);
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(3)); // let the network process go to sleep
        }
        session.execute(&set, &[]).expect("it can be set");
        let began = Instant::now();
        let message = next(&mut reader);
        times.push(began.elapsed());
        // If the writer is preempted while it writes its record, the network process counts the record as lost.
        assert!(
            [Some("k"), None].map(invalidation).contains(&message),
            "{message:?}"
        );
    }
    times.sort();
    println!("median {:?}, p99 {:?}", times[500], times[990]);
    // The goal is 5 ms; a busy machine may take longer.
    assert!(times[990] < Duration::from_millis(50), "{:?}", times[990]);
}

#[test]
fn a_message_comes_between_replies() {
    let door = Door::start(&[]);
    let mut writer = door.client();
    let keys: Vec<String> = (0..2000).map(|key| format!("k{key}")).collect();
    let mut mget: Vec<&[u8]> = vec![b"MGET"];
    mget.extend(keys.iter().map(|key| key.as_bytes()));
    let mget = Client::request(&mget);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let keys = &keys;
        scope.spawn(move || {
            while !stop.load(SeqCst) {
                for key in keys.iter().step_by(50) {
                    writer.ask(&["SET", key, "v"]);
                    writer.ask(&["PUBLISH", "news", "v"]);
                }
            }
        });
        let mut reader = tracking(&door, &[]);
        reader.ask(&["SUBSCRIBE", "news"]);
        for _ in 0..300 {
            assert!(reader.send(&mget));
            let reply = loop {
                match reader.reply().expect("a reply comes") {
                    Reply::Push(_) => {}
                    reply => break reply,
                }
            };
            let Reply::Array(values) = reply else {
                panic!("expected an array, got {reply:?}");
            };
            let is_value = |value: &Reply| *value == Reply::Null || *value == Reply::bulk("v");
            assert!(values.iter().all(is_value), "a message inside of a reply");
        }
        stop.store(true, SeqCst);
    });
}

#[test]
fn the_list_of_clients_shows_tracking_and_redirection() {
    let door = Door::start(&[]);
    let (mut reads, mut target, mut all) = (door.client(), door.client(), door.client());
    for client in [&mut reads, &mut target, &mut all] {
        assert!(!matches!(client.ask(&["HELLO", "3"]), Reply::Error(_)));
    }
    let Reply::Integer(id) = target.ask(&["CLIENT", "ID"]) else {
        panic!("an id is a number");
    };
    let own = |client: &mut Client, words: &[&str]| {
        assert_eq!(client.ask(words), Reply::status("OK"));
        client.ask(&["CLIENT", "INFO"]).text()
    };
    let id = id.to_string();
    let line = own(&mut reads, &["CLIENT", "SETNAME", "reads"]);
    assert!(
        line.contains(" flags=N ") && line.contains(" redir=-1 "),
        "{line}"
    );
    let line = own(&mut reads, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id]);
    assert!(
        line.contains(" flags=t ") && line.contains(&format!(" redir={id} ")),
        "{line}"
    );
    assert_eq!(reads.ask(&["GET", "k"]), Reply::Null);
    let mut session = door.cluster.connect("postgres");
    wait_until("the key is counted", || {
        let keys = session.query_one("SELECT tracked_keys FROM pgcache.resp_stats", &[]);
        keys.expect("a row").get::<_, i64>(0) == 1
    });
    let line = own(&mut all, &["CLIENT", "TRACKING", "ON", "BCAST"]);
    assert!(
        line.contains(" flags=tB ") && line.contains(" redir=0 "),
        "{line}"
    );
    let line = own(&mut all, &["CLIENT", "TRACKING", "OFF"]);
    assert!(
        line.contains(" flags=N ") && line.contains(" redir=-1 "),
        "{line}"
    );
}
