//! Tests changes that tracking could easily miss. Clients must be notified of them, so that they drop the values that
//! they keep in their own memory.

use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::tables::send_together;
use pgcache_tests::wait::wait_until;

use super::resp_tracking::{invalidation, next, take, tracking};
use super::resp_tracking_tables::{reader, start, warm};

/// Returns the first value in an EXEC's reply, or None if a message arrives after the reply and before the marker, so
/// that the client must drop the value.
fn kept(client: &mut Client) -> Option<Reply> {
    assert!(client.send(&Client::request(&[b"ECHO", b"the mark"])));
    let mut kept = None;
    loop {
        match client.reply().expect("a reply comes") {
            mark if mark == Reply::bulk("the mark") => return kept,
            Reply::Push(_) => kept = None,
            Reply::Array(values) => kept = values.into_iter().next(),
            _ => {}
        }
    }
}

/// Reads a key until no message arrives with the reply. After that read the server reports each change of the key.
fn read_until_quiet(client: &mut Client, value: &str) {
    wait_until("the client can keep what it reads", || {
        assert!(client.send(&Client::request(&[b"GET", b"k"])));
        let (messages, replies) = take(client);
        assert_eq!(replies, [Reply::bulk(value)]);
        messages.is_empty()
    });
}

/// The row changes after it is read and before the reply is sent. If the message were sent only before the reply, the
/// client would keep the old value.
#[test]
fn a_change_during_a_read_reaches_a_broadcast_client_after_its_reply() {
    let door = start("unlogged", &[]);
    let mut session = door.cluster.connect("postgres");
    let mut waiting = door.cluster.connect("postgres");
    let is_current = |kept: Option<Reply>| kept.is_none_or(|kept| kept == Reply::bulk("new"));

    // On a table, a locked row makes EXEC wait.
    let mut client = reader(&door, &["BCAST"]);
    session.run("INSERT INTO tab VALUES ('k', 'old'), ('locked', 'old')");
    warm(&mut session, "k");
    read_until_quiet(&mut client, "old");
    session.run("BEGIN; UPDATE tab SET value = 'held' WHERE key = 'locked'");
    let requests: [&[&str]; 4] = [
        &["MULTI"],
        &["GET", "k"],
        &["SET", "locked", "x"],
        &["EXEC"],
    ];
    send_together(&mut client, &requests);
    wait_until("EXEC waits", || {
        waiting.holds("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
    });
    waiting.run("UPDATE tab SET value = 'new' WHERE key = 'k'");
    session.run("COMMIT");
    let table = kept(&mut client);
    assert!(is_current(table.clone()), "of the table it keeps {table:?}");

    // On a memory cache, EXEC takes some 40 ms.
    let mut client = tracking(&door, &["BCAST"]);
    let mut old = 0;
    for _ in 0..10 {
        let set =
            |value: &str| format!("SELECT cache_set_bytes('k', '{value}', cache => '{CACHE}')");
        session.run(&set("old"));
        client.ask(&["SETRANGE", "long", "900000", "x"]);
        take(&mut client);
        let mut requests: Vec<&[&str]> = vec![&["MULTI"], &["GET", "k"]];
        requests.resize(62, &["SETRANGE", "long", "900000", "x"]);
        requests.push(&["EXEC"]);
        send_together(&mut client, &requests);
        std::thread::sleep(Duration::from_millis(10));
        session.run(&set("new"));
        let memory = kept(&mut client);
        assert!(
            is_current(memory.clone()),
            "of the memory cache it keeps {memory:?}"
        );
        old += u32::from(memory.is_none());
    }
    assert!(old > 0, "no change came during a read");
}

/// A new policy may hide rows whose values a client keeps.
#[test]
fn a_broadcast_client_is_notified_when_policies_come_to_its_table() {
    let door = start("unlogged", &[]);
    let mut session = door.cluster.connect("postgres");
    session.run("INSERT INTO tab VALUES ('k', 'v')");
    let mut client = reader(&door, &["BCAST"]);
    warm(&mut session, "k");
    read_until_quiet(&mut client, "v");
    session.run("ALTER TABLE tab ENABLE ROW LEVEL SECURITY");
    assert_eq!(next(&mut client), invalidation(None));
    take(&mut client);
    for _ in 0..2 {
        assert!(client.send(&Client::request(&[b"GET", b"k"])));
        let reply = loop {
            match next(&mut client) {
                Reply::Push(_) => {}
                reply => break reply,
            }
        };
        assert_eq!(reply, Reply::bulk("v"), "its owner sees all");
        assert_eq!(
            next(&mut client),
            invalidation(None),
            "it is not to be kept"
        );
    }
}

/// The values that a client has read in a database are stale once a setting, or the name of a relation, assigns a
/// different cache to the database.
#[test]
fn clients_are_notified_when_their_database_becomes_another_cache() {
    let door = start("unlogged", &[]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "SELECT cache_create('public.second'), cache_create('public.spare', storage => 'memory', value_type => 'bytea');
         INSERT INTO tab VALUES ('k', 'first'); INSERT INTO second VALUES ('k', 'second')",
    );
    let options: [&[&str]; 4] = [&[], &["OPTOUT"], &["NOLOOP"], &["BCAST"]];
    let mut clients: Vec<Client> = options
        .iter()
        .map(|options| reader(&door, options))
        .collect();
    let read = |clients: &mut [Client], value: &str| {
        for client in clients {
            take(client);
            assert!(client.send(&Client::request(&[b"GET", b"k"])));
            let reply = loop {
                match next(client) {
                    Reply::Push(_) => {}
                    reply => break reply,
                }
            };
            assert_eq!(reply, Reply::bulk(value));
            take(client);
        }
    };
    read(&mut clients, "first");
    // If the list of caches only becomes longer, clients get no message.
    door.cluster
        .configure(&["pgcache.resp_caches = 'public.door, public.tab, public.spare'"]);
    session.run("SELECT pg_reload_conf()");
    let mut other = door.client();
    wait_until("the list is longer", || {
        other.ask(&["SELECT", "2"]) == Reply::status("OK")
    });
    for client in &mut clients[..3] {
        assert_eq!(take(client), (vec![], vec![]));
    }
    door.cluster
        .configure(&["pgcache.resp_caches = 'public.door, public.second'"]);
    session.run("SELECT pg_reload_conf()");
    for client in &mut clients {
        assert_eq!(next(client), invalidation(None));
    }
    read(&mut clients, "second");
    // Give the cache's name to another table.
    session
        .run("BEGIN; ALTER TABLE second RENAME TO third; ALTER TABLE tab RENAME TO second; COMMIT");
    assert_eq!(other.ask(&["SELECT", "1"]), Reply::status("OK"));
    assert_eq!(other.ask(&["GET", "k"]), Reply::bulk("first"));
    for client in &mut clients {
        assert!(take(client).0.contains(&invalidation(None)));
    }
    // Give the name of the cache's schema to another schema.
    read(&mut clients, "first");
    session.run(
        "CREATE SCHEMA one; CREATE SCHEMA two; SELECT cache_create('one.c'), cache_create('two.c');
         INSERT INTO one.c VALUES ('k', 'one'); INSERT INTO two.c VALUES ('k', 'two')",
    );
    door.cluster
        .configure(&["pgcache.resp_caches = 'public.door, one.c'"]);
    session.run("SELECT pg_reload_conf()");
    for client in &mut clients {
        assert_eq!(next(client), invalidation(None));
    }
    read(&mut clients, "one");
    session.run("BEGIN; ALTER SCHEMA one RENAME TO three; ALTER SCHEMA two RENAME TO one; COMMIT");
    assert_eq!(other.ask(&["GET", "k"]), Reply::bulk("two"));
    for client in &mut clients {
        assert!(take(client).0.contains(&invalidation(None)));
    }
}

/// The connection that reads the keys is lost, and so is the server's record of the keys. So the REDIRECT target, which
/// keeps the values, is notified.
#[test]
fn the_target_of_a_lost_connection_is_notified() {
    let door = Door::start(&[]);
    let three = |door: &Door| {
        let mut client = door.client();
        client.ask(&["HELLO", "3"]);
        client
    };
    let id = |client: &mut Client| match client.ask(&["CLIENT", "ID"]) {
        Reply::Integer(id) => id.to_string(),
        other => panic!("expected a number, got {other:?}"),
    };
    let mut killer = door.client();
    let mut target = three(&door);
    let mut old = door.client();
    let ids = [id(&mut target), id(&mut old)];
    assert!(matches!(
        old.ask(&["SUBSCRIBE", "__redis__:invalidate"]),
        Reply::Array(_)
    ));
    let of_old = Reply::Array(vec![
        Reply::bulk("message"),
        Reply::bulk("__redis__:invalidate"),
        Reply::Null,
    ]);
    for options in [&[][..], &["BCAST"], &["OPTIN"]] {
        for killed in [false, true] {
            for (target, number, message) in [
                (&mut target, &ids[0], invalidation(None)),
                (&mut old, &ids[1], of_old.clone()),
            ] {
                let options = [&["REDIRECT", number.as_str()], options].concat();
                let mut reader = tracking(&door, &options);
                reader.ask(&["GET", "k"]);
                let number = id(&mut reader);
                if killed {
                    assert_eq!(
                        killer.ask(&["CLIENT", "KILL", "ID", &number]),
                        Reply::Integer(1)
                    );
                }
                drop(reader);
                assert_eq!(next(target), message);
            }
        }
    }
    // The server sends no message if the client itself turns tracking off, as in Redis.
    let mut reader = tracking(&door, &["REDIRECT", &ids[0]]);
    reader.ask(&["GET", "k"]);
    reader.ask(&["CLIENT", "TRACKING", "OFF"]);
    drop(reader);
    wait_until("it is gone", || match killer.ask(&["CLIENT", "LIST"]) {
        Reply::Bulk(list) => String::from_utf8_lossy(&list).lines().count() == 3,
        other => panic!("expected a list, got {other:?}"),
    });
    assert_eq!(take(&mut target), (vec![], vec![]));
}

/// Waits until a client with BCAST receives the change of a key of its database, so that no older message is left.
fn until_followed(client: &mut Client, change: impl FnOnce()) {
    take(client);
    change();
    let probe = invalidation(Some("probe"));
    wait_until("the change arrives", || take(client).0.contains(&probe));
}

/// SELECT and the next command arrive together, so that both run in one turn of the client.
#[test]
fn a_broadcast_client_that_moves_within_a_packet_is_notified() {
    let door = start("unlogged", &[]);
    let mut writer = door.client();
    let mut write = |database: &str, value: &str| {
        writer.ask(&["SELECT", database]);
        assert_eq!(writer.ask(&["SET", "k", value]), Reply::status("OK"));
    };
    for (from, to) in [("0", "1"), ("1", "0")] {
        let away = ["SELECT", to];
        let mut client = tracking(&door, &["BCAST"]);
        let mut together = |requests: &[&[&str]], message: Option<Reply>| {
            send_together(&mut client, requests);
            wait_until("the client is notified", || {
                let (messages, _) = take(&mut client);
                message
                    .as_ref()
                    .is_none_or(|message| messages.contains(message))
            });
        };
        let (all, key) = (Some(invalidation(None)), Some(invalidation(Some("k"))));
        write(from, "old");
        write(to, "old");
        // From here on the client has a valid permission for both databases.
        together(&[&away, &["GET", "k"]], None);
        together(&[&["SELECT", from], &["GET", "k"]], None);
        together(&[], None);
        together(&[&away, &["GET", "k"]], all.clone());
        write(to, "new");
        together(&[], key.clone());
        write(from, "new");
        together(&[&["SELECT", from], &["GET", "other"]], all.clone());
        write(from, "newer");
        together(&[], key.clone());
        // The client may keep a value that it sets without reading it.
        together(&[&away, &["SET", "k", "mine"]], all.clone());
        write(to, "new");
        together(&[], key);
        together(&[&["SELECT", from], &["GET", "other"]], all.clone());
        // Changes of the other database are not reported, so the client must not keep values that it reads there.
        together(&[&away, &["GET", "k"], &["SELECT", from]], all);
    }
}

/// A change of a database arrives while the client waits for a locked row of another database, and it returns in the
/// same packet.
#[test]
fn a_broadcast_client_is_notified_of_changes_while_it_waits_elsewhere() {
    let door = start("unlogged", &[]);
    let mut session = door.cluster.connect("postgres");
    let mut waiting = door.cluster.connect("postgres");
    let mut client = tracking(&door, &["BCAST"]);
    let mut writer = door.client();
    writer.ask(&["SET", "k", "old"]);
    session.run("INSERT INTO tab VALUES ('locked', 'old')");
    for database in ["1", "0"] {
        send_together(&mut client, &[&["SELECT", database]]);
        send_together(&mut client, &[&["GET", "k"]]);
        take(&mut client);
    }
    until_followed(&mut client, || {
        writer.ask(&["SET", "probe", "x"]);
    });
    session.run("BEGIN; UPDATE tab SET value = 'held' WHERE key = 'locked'");
    let requests: [&[&str]; 3] = [&["SELECT", "1"], &["SET", "locked", "x"], &["SELECT", "0"]];
    send_together(&mut client, &requests);
    wait_until("SET waits", || {
        waiting.holds("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
    });
    assert_eq!(writer.ask(&["SET", "k", "new"]), Reply::status("OK"));
    session.run("COMMIT");
    let (messages, replies) = take(&mut client);
    assert_eq!(replies.len(), 3, "{replies:?}");
    let is_of_k =
        |message: &Reply| *message == invalidation(None) || *message == invalidation(Some("k"));
    assert!(messages.iter().any(is_of_k), "{messages:?}");
}

/// A change is made while the client lacks the privilege to read. It gets the privilege back before its next read.
#[test]
fn a_broadcast_client_is_notified_of_changes_while_its_privilege_is_revoked() {
    let door = start("unlogged", &["pgcache.resp_default_role = 'guest'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE guest LOGIN");
    for (database, cache, set) in [("0", CACHE, "cache_set_bytes"), ("1", "tab", "cache_set")] {
        for asks in [false, true] {
            session.run(&format!("GRANT SELECT ON {cache} TO guest"));
            session.run(&format!("SELECT {set}('k', 'old', cache => '{cache}')"));
            let mut client = tracking(&door, &["BCAST"]);
            send_together(&mut client, &[&["SELECT", database], &["GET", "k"]]);
            until_followed(&mut client, || {
                session.run(&format!("SELECT {set}('probe', 'x', cache => '{cache}')"))
            });
            session.run(&format!("REVOKE SELECT ON {cache} FROM guest"));
            if asks {
                send_together(&mut client, &[&["GET", "k"]]);
                let (_, replies) = take(&mut client);
                assert!(matches!(replies[..], [Reply::Error(_)]), "{replies:?}");
            }
            session.run(&format!("SELECT {set}('k', 'new', cache => '{cache}')"));
            session.run(&format!("GRANT SELECT ON {cache} TO guest"));
            send_together(&mut client, &[&["GET", "other"]]);
            wait_until("the client is notified", || !take(&mut client).0.is_empty());
        }
    }
}
