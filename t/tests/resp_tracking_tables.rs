//! Tests CLIENT TRACKING of table caches: which clients are notified of which changes, when the message arrives, and
//! which changes cause no message.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Shutdown;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::tables::send_together;
use pgcache_tests::wait::wait_until;
use postgres::Client as Session;

use super::resp_tracking::{invalidation, messages, next, take, tracking};

pub const TABLE: &str = "public.tab";

/// Starts a server whose database 1 is a table cache that no background process changes.
pub fn start(storage: &str, conf: &[&str]) -> Door {
    let own = [
        "pgcache.resp_caches = 'public.door, public.tab'",
        "pgcache.expire_interval = 0",
        "max_connections = 60",
        "max_prepared_transactions = 10",
    ];
    let door = Door::start(&[&own, conf].concat());
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "SELECT cache_create('{TABLE}', storage => '{storage}')"
    ));
    door
}

/// Connects a client of the table cache that tracks.
pub fn reader(door: &Door, options: &[&str]) -> Client {
    let mut client = tracking(door, options);
    assert_eq!(client.ask(&["SELECT", "1"]), Reply::status("OK"));
    client
}

/// Two sessions: one changes rows, the other reads them and so makes copies. One session could not do both, because a
/// transaction that has written makes no copies.
struct Sessions {
    writer: Session,
    warmer: Session,
}

impl Sessions {
    fn of(door: &Door) -> Sessions {
        Sessions {
            writer: door.cluster.connect("postgres"),
            warmer: door.cluster.connect("postgres"),
        }
    }

    fn run(&mut self, text: &str) {
        self.writer.run(text);
    }

    /// Makes copies of the rows of these keys.
    fn warm(&mut self, keys: &[&str]) {
        for key in keys {
            warm(&mut self.warmer, key);
        }
    }

    /// Sets keys to `v`, and lets the client read their copies.
    fn read(&mut self, client: &mut Client, keys: &[&str]) {
        for key in keys {
            self.run(&format!(
                "SELECT cache_set('{key}', 'v', cache => '{TABLE}')"
            ));
        }
        self.warm(keys);
        take(client);
        for key in keys {
            assert_eq!(client.ask(&["GET", key]), Reply::bulk("v"), "{key}");
        }
        assert_eq!(messages(client), [], "nothing has changed since");
    }
}

pub fn warm(session: &mut Session, key: &str) {
    session.run(&format!("SELECT cache_get('{key}', '{TABLE}')"));
}

/// Returns statements that change one row, with every function and kind of statement that can.
fn changes() -> Vec<String> {
    let cache = format!("cache => '{TABLE}'");
    [
        "SELECT cache_set('k', 'x', CACHE)",
        "SELECT cache_replace('k', 'x', CACHE)",
        "SELECT cache_delete('k', CACHE)",
        "SELECT cache_take('k', CACHE)",
        "SELECT cache_touch('k', '1 hour', CACHE)",
        "SELECT cache_cas('k', 'v', 'x', CACHE)",
        "SELECT cache_delete_prefix('k', CACHE)",
        "SELECT cache_set_many('{k}', '{x}', CACHE)",
        "SELECT cache_fetch('k', 'SELECT ''x''', CACHE) FROM cache_delete('k', CACHE)",
        "INSERT INTO tab VALUES ('k', 'x') ON CONFLICT (key) DO UPDATE SET value = 'x'",
        "UPDATE tab SET value = 'x' WHERE key = 'k'",
        "UPDATE tab SET key = 'moved' WHERE key = 'k'",
        "DELETE FROM tab WHERE key = 'k'",
        "WITH gone AS (DELETE FROM tab WHERE key = 'k' RETURNING 1) SELECT count(*) FROM gone",
        "DO $$ BEGIN UPDATE tab SET value = 'x' WHERE key = 'k'; END $$",
        "UPDATE source SET v = v + 1",
        "DELETE FROM source; INSERT INTO source VALUES ('k', 1)",
    ]
    .iter()
    .map(|text| text.replace("CACHE", &cache))
    .collect()
}

#[test]
fn a_change_is_sent_by_its_commit_and_not_before() {
    for storage in ["unlogged", "logged"] {
        let door = start(storage, &[]);
        let mut sessions = Sessions::of(&door);
        sessions.run(&format!(
            "CREATE TABLE source (k text PRIMARY KEY, v int); INSERT INTO source VALUES ('k', 1);
             SELECT cache_depend('source', 'k', '{TABLE}')"
        ));
        let mut client = reader(&door, &[]);
        for change in changes() {
            sessions.run("DELETE FROM tab");
            sessions.read(&mut client, &["k", "other"]);
            sessions.run(&format!("BEGIN; {change}"));
            assert_eq!(messages(&mut client), [], "{change} is not committed");
            sessions.run("COMMIT");
            // A client that sends a request after COMMIT has returned receives the message about the change before the
            // reply.
            assert_eq!(messages(&mut client), [invalidation(Some("k"))], "{change}");
            sessions.run("DELETE FROM tab");
            sessions.read(&mut client, &["k"]);
            sessions.run(&format!("BEGIN; {change}; ROLLBACK"));
            assert_eq!(messages(&mut client), [], "{change} is rolled back");
        }
    }
}

/// Tests reads that no copy serves: reads of existing and missing keys, in pipelines, and while a change waits for its
/// commit.
#[test]
fn reads_of_an_executor_are_tracked() {
    let door = start("unlogged", &["pgcache.hot_tier = off"]);
    let mut sessions = Sessions::of(&door);
    let mut client = reader(&door, &[]);
    sessions.run("SET pgcache.hot_tier = on");
    sessions.warmer.run("SET pgcache.hot_tier = on");
    let set = |key: &str| format!("SELECT cache_set('{key}', 'x', cache => '{TABLE}')");
    // This read checks the triggers once, so that later reads know that all changes are noted.
    sessions.run(&set("k"));
    sessions.warm(&["k"]);
    for words in [
        &["GET", "k"][..],
        &["MGET", "other", "k"],
        &["EXISTS", "k"],
        &["TTL", "k"],
        &["STRLEN", "k"],
        &["GETRANGE", "k", "0", "1"],
    ] {
        for there in [true, false] {
            sessions.run("DELETE FROM tab");
            if there {
                sessions.run(&set("k"));
            }
            take(&mut client);
            client.ask(words);
            assert_eq!(messages(&mut client), [], "{words:?}");
            sessions.run(&format!("BEGIN; {}", set("k")));
            client.ask(words);
            assert_eq!(messages(&mut client), [], "{words:?}");
            sessions.run("COMMIT");
            assert_eq!(
                messages(&mut client),
                [invalidation(Some("k"))],
                "{words:?}"
            );
        }
    }
    // The network process offloads these reads together.
    for key in ["p", "q", "r"] {
        assert!(client.send(&Client::request(&[b"GET", key.as_bytes()])));
    }
    let (received, replies) = take(&mut client);
    assert_eq!((received, replies.len()), (vec![], 3));
    for key in ["p", "q", "r"] {
        sessions.run(&set(key));
    }
    assert_eq!(
        messages(&mut client),
        ["p", "q", "r"].map(|key| invalidation(Some(key)))
    );
    // The client is notified when the deadline has passed.
    let mut client = reader(&door, &[]);
    sessions.run(&format!("SELECT cache_set('k', 'v', '500 ms', '{TABLE}')"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(next(&mut client), invalidation(Some("k")));
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
}

/// While a read waits for a lock, the row changes. The client is notified before the reply and after it.
#[test]
fn a_key_sent_during_a_read_is_sent_again() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let mut target = door.client();
    target.ask(&["HELLO", "3"]);
    let Reply::Integer(id) = target.ask(&["CLIENT", "ID"]) else {
        panic!("an id is a number");
    };
    let mut client = reader(&door, &[]);
    let mut redirected = reader(&door, &["REDIRECT", &id.to_string()]);
    sessions.read(&mut client, &["k"]);
    redirected.ask(&["GET", "k"]);
    sessions.run("BEGIN; LOCK TABLE tab; UPDATE tab SET value = 'x'");
    // The commit removes the copy of `k`. The other key has no copy, so the read waits.
    for client in [&mut client, &mut redirected] {
        assert!(client.send(&Client::request(&[b"MGET", b"k", b"other"])));
    }
    wait_until("both wait", || {
        let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
        sessions.warmer.holds(waits)
    });
    sessions.run("COMMIT");
    let values = Reply::Array(vec![Reply::bulk("x"), Reply::Null]);
    let received = [next(&mut client), next(&mut client), next(&mut client)];
    assert_eq!(
        received,
        [
            invalidation(Some("k")),
            values.clone(),
            invalidation(Some("k"))
        ]
    );
    assert_eq!(messages(&mut client), []);
    assert_eq!(next(&mut redirected), values);
    assert_eq!(next(&mut target), invalidation(Some("k")));
    assert_eq!(next(&mut target), invalidation(None));
}

/// The read waits together with a write of the same pipeline, so the message is sent long before the read's reply. It
/// must be sent again after the reply.
#[test]
fn a_key_sent_before_a_reply_is_sent_again() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let mut other = door.cluster.connect("postgres");
    let mut client = reader(&door, &[]);
    sessions.read(&mut client, &["k", "locked"]);
    let hold = "UPDATE tab SET value = 'held' WHERE key = 'locked'";
    sessions.run(&format!("BEGIN; {hold}"));
    // The key is not hot, so the request is offloaded together with the request that arrived with it.
    send_together(
        &mut client,
        &[&["MGET", "k", "cold"], &["SET", "locked", "x"]],
    );
    wait_until("it waits", || {
        let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
        sessions.warmer.holds(waits)
    });
    other.run("UPDATE tab SET value = 'x' WHERE key = 'k'");
    assert_eq!(
        next(&mut client),
        invalidation(Some("k")),
        "before the reply"
    );
    sessions.run("COMMIT");
    let (received, replies) = take(&mut client);
    assert_eq!(replies[1..], [Reply::status("OK")]);
    assert!(
        received.contains(&invalidation(Some("k"))),
        "after the reply: {received:?}"
    );
}

/// Checks that a message that all keys have changed follows the reply, whatever was sent before the reply.
fn is_not_kept(client: &mut Client, value: &str) {
    assert!(client.send(&Client::request(&[b"GET", b"k"])));
    let reply = loop {
        match next(client) {
            Reply::Push(_) => {}
            reply => break reply,
        }
    };
    assert_eq!(reply, Reply::bulk(value));
    assert_eq!(next(client), invalidation(None), "it is not to be kept");
}

/// While triggers are disabled, changes send no message. So the client must not keep a value that it reads during that
/// time.
#[test]
fn while_changes_are_not_noted_each_read_is_invalidated_at_once() {
    let door = start("logged", &[]);
    let mut sessions = Sessions::of(&door);
    let (mut client, mut all) = (reader(&door, &[]), reader(&door, &["BCAST"]));
    sessions.read(&mut client, &["k"]);
    take(&mut all);
    sessions.run("ALTER TABLE tab DISABLE TRIGGER ALL");
    for client in [&mut client, &mut all] {
        assert!(
            take(client).0.contains(&invalidation(None)),
            "it has changed"
        );
        is_not_kept(client, "v");
    }
    sessions.run("UPDATE tab SET value = 'x'");
    is_not_kept(&mut client, "x");
    sessions.run("DO $$ DECLARE t text; BEGIN FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'tab'::regclass
                  LOOP EXECUTE format('ALTER TABLE tab ENABLE ALWAYS TRIGGER %I', t); END LOOP; END $$");
    sessions.read(&mut client, &["k"]);
    // This transaction was prepared before the server started.
    sessions.run("BEGIN; UPDATE tab SET value = 'prepared'; PREPARE TRANSACTION 'p'");
    door.cluster.restart(Shutdown::Fast);
    let mut sessions = Sessions::of(&door);
    let (mut client, mut all) = (reader(&door, &[]), reader(&door, &["BCAST"]));
    for client in [&mut client, &mut all] {
        for _ in 0..2 {
            is_not_kept(client, "v");
        }
    }
    sessions.run("COMMIT PREPARED 'p'");
    sessions.warm(&["k"]);
    take(&mut client);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("prepared"));
    assert_eq!(messages(&mut client), [], "it is heard of again");
}

/// With policies, another role may see other rows; with uuid keys, one key has several spellings. In both cases the
/// client must not keep values, and gets no messages about keys that it has not read.
#[test]
fn hidden_rows_and_keys_that_are_not_text_are_not_kept() {
    let door = start(
        "unlogged",
        &["pgcache.resp_caches = 'public.door, public.tab, public.ids'"],
    );
    let mut sessions = Sessions::of(&door);
    let id = "00000000-0000-0000-0000-00000000000a";
    sessions.run(&format!(
        "CREATE TABLE ids (key uuid PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('ids'); SELECT cache_set('{id}', 'v', cache => 'ids');
         SELECT cache_set('k', 'v', cache => '{TABLE}')"
    ));
    sessions.warm(&["k"]);
    let mut all = reader(&door, &["BCAST"]);
    sessions.run("ALTER TABLE tab ENABLE ROW LEVEL SECURITY");
    take(&mut all);
    sessions.run(&format!("SELECT cache_set('k', 'x', cache => '{TABLE}')"));
    let received = messages(&mut all);
    assert!(!received.contains(&invalidation(Some("k"))), "{received:?}");
    let mut client = reader(&door, &[]);
    for (database, key) in [("1", "k"), ("2", &id.to_uppercase())] {
        assert_eq!(client.ask(&["SELECT", database]), Reply::status("OK"));
        assert!(matches!(client.ask(&["GET", key]), Reply::Bulk(_)));
        assert_eq!(next(&mut client), invalidation(None));
        client.ask(&["CLIENT", "TRACKING", "OFF"]);
        let refused = client.ask(&["CLIENT", "TRACKING", "ON", "BCAST"]).error();
        assert!(refused.contains("BCAST is not supported"), "{refused}");
        client.ask(&["CLIENT", "TRACKING", "ON"]);
    }
}

/// With NOLOOP a client gets no message about its own changes through an executor. Other clients get the message.
#[test]
fn a_client_is_the_author_of_its_changes_through_an_executor() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let (mut own, mut other) = (reader(&door, &["NOLOOP"]), reader(&door, &["NOLOOP"]));
    for words in [
        &["SET", "k", "x"][..],
        &["MSET", "k", "y", "l", "y"],
        &["DEL", "k"],
        &["APPEND", "k", "z"],
        &["EXPIRE", "k", "1000"],
    ] {
        sessions.read(&mut own, &["k"]);
        take(&mut other);
        other.ask(&["GET", "k"]);
        own.ask(words);
        assert_eq!(messages(&mut own), [], "{words:?}");
        assert_eq!(messages(&mut other), [invalidation(Some("k"))], "{words:?}");
    }
}

#[test]
fn a_copy_that_comes_or_goes_is_no_change() {
    let door = start("unlogged", &["pgcache.hot_size = '2MB'"]);
    let mut sessions = Sessions::of(&door);
    let (mut client, mut all) = (reader(&door, &[]), reader(&door, &["BCAST"]));
    sessions.run(&format!(
        "SELECT count(cache_set('other' || n, repeat('v', 1000), cache => '{TABLE}')) FROM generate_series(1, 5000) AS n"
    ));
    sessions.read(&mut client, &["k"]);
    take(&mut all);
    let gets =
        "SELECT count(cache_get('other' || n, 'public.tab')) FROM generate_series(1, 5000) AS n";
    sessions.warmer.run(gets);
    sessions.warmer.run(gets);
    let gone = sessions
        .warmer
        .number("SELECT evicted FROM pgcache.stats WHERE cache = 'tab'::regclass");
    assert!(gone > 1000, "{gone} copies have made room");
    assert_eq!(messages(&mut client), []);
    assert_eq!(messages(&mut all), []);
    // The table's change is still reported.
    sessions.run("UPDATE tab SET value = 'x' WHERE key = 'k'");
    assert_eq!(messages(&mut client), [invalidation(Some("k"))]);
    assert_eq!(messages(&mut all), [invalidation(Some("k"))]);
}

#[test]
fn changes_of_a_whole_cache_invalidate_everything() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    sessions.run(&format!(
        "CREATE TABLE source (k text, v int); SELECT cache_depend('source', 'k', '{TABLE}')"
    ));
    let (mut client, mut all) = (reader(&door, &[]), reader(&door, &["BCAST", "PREFIX", "x"]));
    all.ask(&["GET", "warm-up"]);
    for change in [
        "TRUNCATE tab",
        "SELECT cache_clear('public.tab')",
        "TRUNCATE source",
        "ALTER TABLE tab ADD COLUMN more int",
        "ALTER TABLE tab DROP COLUMN more",
        "ALTER TABLE tab RENAME TO other; ALTER TABLE other RENAME TO tab",
        "INSERT INTO tab SELECT 'n' || n, 'v' FROM generate_series(1, 2000) AS n",
        "INSERT INTO tab SELECT 'm' || n, 'v' FROM generate_series(1, 20000) AS n",
        "DROP TABLE tab",
    ] {
        sessions.read(&mut client, &["k"]);
        take(&mut all);
        sessions.run(&format!("BEGIN; {change}"));
        assert_eq!(messages(&mut client), [], "{change} is not committed");
        sessions.run("ROLLBACK");
        assert_eq!(messages(&mut client), [], "{change} is rolled back");
        assert_eq!(messages(&mut all), [], "{change} is rolled back");
        // The rollback also removed the copies, so read the key again.
        sessions.read(&mut client, &["k"]);
        sessions.run(&format!("BEGIN; {change}; COMMIT"));
        assert_eq!(next(&mut client), invalidation(None), "{change}");
        if change.starts_with("DROP") {
            break;
        }
        assert_eq!(next(&mut all), invalidation(None), "{change}");
    }
}

#[test]
fn changes_undone_by_a_savepoint_are_not_sent() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let mut client = reader(&door, &[]);
    let set = |key: &str| format!("SELECT cache_set('{key}', 'x', cache => '{TABLE}')");
    let (a, b) = (set("a"), set("b"));
    let both = vec![invalidation(Some("a")), invalidation(Some("b"))];
    let (one, other) = (vec![invalidation(Some("a"))], vec![invalidation(Some("b"))]);
    for (text, expected) in [
        (format!("{a}; SAVEPOINT s; {b}; ROLLBACK TO s"), &one),
        (format!("SAVEPOINT s; {a}; ROLLBACK TO s; {b}"), &other),
        (format!("SAVEPOINT s; {a}; RELEASE s; {b}"), &both),
        (format!("{a}; SAVEPOINT s; {a}; {b}; ROLLBACK TO s"), &one),
        (format!("SAVEPOINT s; {a}; {b}; ROLLBACK TO s; {a}"), &one),
        (
            format!("SAVEPOINT s; SAVEPOINT t; {a}; RELEASE t; ROLLBACK TO s; {b}"),
            &other,
        ),
        (
            format!("SAVEPOINT s; {b}; SAVEPOINT t; {a}; ROLLBACK TO t; RELEASE s"),
            &other,
        ),
        (
            format!("SAVEPOINT s; {a}; SAVEPOINT t; {b}"),
            &both, // the commit releases the messages
        ),
        (
            format!("{a}; SAVEPOINT s; TRUNCATE tab; ROLLBACK TO s"),
            &vec![invalidation(None)],
        ),
        (
            format!("SAVEPOINT s; TRUNCATE tab; ROLLBACK TO s; {a}"),
            &vec![invalidation(None)],
        ),
        ("SAVEPOINT s; TRUNCATE tab; ROLLBACK TO s".into(), &vec![]),
        (
            "SAVEPOINT s; TRUNCATE tab; RELEASE s".into(),
            &vec![invalidation(None)],
        ),
        (
            format!(
                "DO $$ BEGIN PERFORM cache_set('b', 'x', cache => '{TABLE}'); \
                 BEGIN PERFORM cache_set('a', 'x', cache => '{TABLE}'); RAISE 'back'; EXCEPTION WHEN OTHERS THEN NULL; END; END $$"
            ),
            &other,
        ),
    ] {
        sessions.read(&mut client, &["a", "b"]);
        sessions.run(&format!("BEGIN; {text}; COMMIT"));
        let mut received = messages(&mut client);
        received.sort_by_key(|message| format!("{message:?}"));
        assert_eq!(&received, expected, "{text}");
    }
}

/// A client that starts to track while a transaction is open is notified when the transaction commits.
#[test]
fn a_client_that_starts_tracking_before_the_commit_is_notified() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let change = "UPDATE tab SET value = 'x' WHERE key = 'k'";
    for begun in [
        format!("BEGIN; {change}"),
        format!("BEGIN; SAVEPOINT s; {change}; RELEASE s"),
    ] {
        sessions.run(&format!("SELECT cache_set('k', 'v', cache => '{TABLE}')"));
        sessions.run(&begun);
        sessions.warm(&["k"]);
        let mut client = reader(&door, &[]);
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
        sessions.run("COMMIT");
        assert_eq!(messages(&mut client), [invalidation(Some("k"))], "{begun}");
    }
}

#[test]
fn a_prepared_transaction_invalidates_everything_at_its_commit() {
    let door = start("logged", &[]);
    let mut sessions = Sessions::of(&door);
    let (mut client, mut all) = (reader(&door, &[]), reader(&door, &["BCAST"]));
    let update = "UPDATE tab SET value = 'x' WHERE key = 'a'";
    for change in [
        update.to_owned(),
        "TRUNCATE tab".to_owned(),
        format!("SAVEPOINT s; {update}; RELEASE s"),
    ] {
        for (verb, expected) in [("ROLLBACK", vec![]), ("COMMIT", vec![invalidation(None)])] {
            sessions.read(&mut client, &["a", "b"]);
            take(&mut all);
            sessions.run(&format!("BEGIN; {change}; PREPARE TRANSACTION 'p'"));
            assert_eq!(messages(&mut client), [], "{change} is prepared");
            sessions.warmer.run(&format!("{verb} PREPARED 'p'"));
            assert_eq!(messages(&mut client), expected, "{verb} of {change}");
            assert_eq!(messages(&mut all), expected, "{verb} of {change}");
        }
    }
}

#[test]
fn an_expiry_in_a_table_is_sent_at_the_deadline() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let mut client = reader(&door, &[]);
    for words in [&["GET", "k"][..], &["TTL", "k"], &["MGET", "for-ever", "k"]] {
        let began = Instant::now();
        sessions.run(&format!(
            "SELECT cache_set('for-ever', 'v', cache => '{TABLE}'), cache_set('k', 'v', '500 ms', '{TABLE}')"
        ));
        sessions.warm(&["for-ever", "k"]);
        take(&mut client);
        client.ask(words);
        let mut received = vec![next(&mut client)];
        let after = began.elapsed();
        received.extend(messages(&mut client));
        assert!(
            received.contains(&invalidation(Some("k"))),
            "{words:?}: {received:?}"
        );
        assert!(after > Duration::from_millis(400), "too early: {after:?}");
        assert!(after < Duration::from_secs(20), "too late: {after:?}");
    }
    // The sweep removes rows whose expiry was already reported, and notifies only the client that tracks all keys.
    let mut all = reader(&door, &["BCAST", "PREFIX", "k"]);
    take(&mut all);
    sessions.run(&format!("SELECT cache_expire('{TABLE}')"));
    assert_eq!(messages(&mut client), []);
    assert_eq!(messages(&mut all), [invalidation(Some("k"))]);
}

#[test]
fn each_tracking_mode_gets_its_messages_of_a_table() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let change = |key: &str| format!("UPDATE tab SET value = value || 'x' WHERE key = '{key}'");
    let mut prefix = reader(&door, &["BCAST", "PREFIX", "a:", "PREFIX", "b:"]);
    let mut no_loop = reader(&door, &["NOLOOP"]);
    let mut opt_in = reader(&door, &["OPTIN"]);
    let mut opt_out = reader(&door, &["OPTOUT"]);
    let mut target = door.client();
    target.ask(&["HELLO", "3"]);
    let Reply::Integer(id) = target.ask(&["CLIENT", "ID"]) else {
        panic!("an id is a number");
    };
    let mut redirected = reader(&door, &["REDIRECT", &id.to_string()]);
    sessions.read(&mut no_loop, &["a:1", "b:1", "c:1"]);
    take(&mut prefix);
    for client in [&mut opt_in, &mut opt_out, &mut redirected] {
        take(client);
    }
    opt_in.ask(&["GET", "a:1"]);
    opt_in.ask(&["CLIENT", "CACHING", "YES"]);
    opt_in.ask(&["GET", "b:1"]);
    opt_out.ask(&["GET", "a:1"]);
    opt_out.ask(&["CLIENT", "CACHING", "NO"]);
    opt_out.ask(&["GET", "b:1"]);
    redirected.ask(&["GET", "a:1"]);
    for key in ["a:1", "b:1", "c:1"] {
        sessions.run(&change(key));
    }
    let both = [invalidation(Some("a:1")), invalidation(Some("b:1"))];
    assert_eq!(messages(&mut prefix), both);
    assert_eq!(messages(&mut no_loop).len(), 3);
    assert_eq!(messages(&mut opt_in), both[1..]);
    assert_eq!(messages(&mut opt_out), both[..1]);
    assert_eq!(messages(&mut redirected), []);
    assert_eq!(messages(&mut target), both[..1]);
    sessions.run("TRUNCATE tab");
    assert_eq!(messages(&mut prefix), [invalidation(None)]);
}

#[test]
fn a_role_that_may_not_read_a_table_gets_no_messages_of_it() {
    let door = start("unlogged", &["pgcache.resp_default_role = 'app'"]);
    let mut sessions = Sessions::of(&door);
    sessions.run(&format!(
        "CREATE ROLE app LOGIN; GRANT SELECT ON {TABLE} TO app"
    ));
    let mut all = tracking(&door, &[]);
    all.ask(&["CLIENT", "TRACKING", "OFF"]);
    all.ask(&["SELECT", "1"]);
    assert_eq!(
        all.ask(&["CLIENT", "TRACKING", "ON", "BCAST"]),
        Reply::status("OK")
    );
    let set = format!("SELECT cache_set('k', 'x', cache => '{TABLE}')");
    sessions.run(&set);
    assert_eq!(messages(&mut all), [invalidation(Some("k"))]);
    sessions.run(&format!("REVOKE SELECT ON {TABLE} FROM app"));
    sessions.run(&set);
    assert_eq!(messages(&mut all), []);
    let refused = all.ask(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x"]);
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
}

#[test]
fn a_standby_refuses_to_track_a_table() {
    let door = start("logged", &[]);
    door.client(); // the server has created its caches
    let standby = door.cluster.standby();
    let socket = standby.folder.join("resp.sock");
    standby.down(Shutdown::Fast);
    standby.configure(&[
        "pgcache.resp_port = 0",
        &format!("pgcache.resp_socket = '{}'", socket.display()),
    ]);
    standby.up();
    let second = Door::over(standby, 0, socket);
    let mut client = second.client();
    client.ask(&["HELLO", "3"]);
    // The client gets messages about all changes of the standby's own memory caches.
    assert_eq!(
        client.ask(&["CLIENT", "TRACKING", "ON"]),
        Reply::status("OK")
    );
    client.ask(&["CLIENT", "TRACKING", "OFF"]);
    client.ask(&["SELECT", "1"]);
    for options in [&[][..], &["BCAST"], &["OPTIN"]] {
        let words = [&["CLIENT", "TRACKING", "ON"], options].concat();
        let refused = client.ask(&words).error();
        assert!(refused.contains("standby"), "{refused}");
    }
    // This client began to track before it selected the table. With each reply it gets a message that it must keep no
    // value.
    client.ask(&["SELECT", "0"]);
    client.ask(&["CLIENT", "TRACKING", "ON"]);
    client.ask(&["SELECT", "1"]);
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(next(&mut client), invalidation(None));
}

/// The apply worker of logical replication changes rows without any client, and ends prepared transactions without a
/// statement on the cache.
#[test]
fn replicated_changes_are_sent() {
    let publisher = start("logged", &["wal_level = logical"]);
    let subscriber = start("logged", &[]);
    let mut source = publisher.cluster.connect("postgres");
    let mut sessions = Sessions::of(&subscriber);
    source.run("CREATE PUBLICATION p FOR TABLE tab");
    sessions.run(&format!(
        "CREATE SUBSCRIPTION s CONNECTION 'host={} user=postgres dbname=postgres' PUBLICATION p WITH (two_phase = true)",
        publisher.cluster.folder.display()
    ));
    wait_until("two phases are on", || {
        sessions
            .warmer
            .holds("SELECT subtwophasestate = 'e' FROM pg_subscription")
    });
    let mut client = reader(&subscriber, &[]);
    let mut follow = |change: &[&str], expected: Reply| {
        source.run("TRUNCATE tab; INSERT INTO tab VALUES ('k', 'v')");
        wait_until("it is there", || {
            sessions
                .warmer
                .value("SELECT value FROM tab WHERE key = 'k'")
                .as_deref()
                == Some("v")
        });
        sessions.warm(&["k"]);
        wait_until("there is a copy of it", || {
            sessions.warm(&["k"]);
            take(&mut client);
            client.ask(&["GET", "k"]) == Reply::bulk("v")
        });
        assert_eq!(messages(&mut client), []);
        change.iter().for_each(|change| source.run(change));
        assert_eq!(next(&mut client), expected, "{change:?}");
    };
    let key = invalidation(Some("k"));
    follow(&["UPDATE tab SET value = 'x'"], key.clone());
    follow(&["DELETE FROM tab"], key);
    follow(&["TRUNCATE tab"], invalidation(None));
    let prepare = "BEGIN; UPDATE tab SET value = 'x'; PREPARE TRANSACTION 'p'";
    follow(&[prepare, "COMMIT PREPARED 'p'"], invalidation(None));
    sessions.run("DROP SUBSCRIPTION s");
}

#[test]
fn a_commit_is_sent_within_five_milliseconds() {
    let door = start("unlogged", &[]);
    let mut sessions = Sessions::of(&door);
    let mut client = reader(&door, &[]);
    let mut times = Vec::new();
    for round in 0..500 {
        sessions.read(&mut client, &["k"]);
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(3)); // let the network process go to sleep
        }
        sessions.run("UPDATE tab SET value = 'x' WHERE key = 'k'");
        let began = Instant::now();
        assert_eq!(next(&mut client), invalidation(Some("k")));
        times.push(began.elapsed());
    }
    times.sort();
    println!("median {:?}, p99 {:?}", times[250], times[495]);
    // The goal is 5 ms; a busy machine may take longer.
    assert!(times[495] < Duration::from_millis(50), "{:?}", times[495]);
}
