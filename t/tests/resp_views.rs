//! Tests the views of the Redis protocol's clients and counters, and which roles may see and disconnect clients.

use std::time::Duration;

use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::wait::{wait_for, wait_until};

/// Starts a server with five roles: two ordinary roles, a member of pg_monitor, a member of pg_signal_backend, and a
/// superuser.
fn with_roles(conf: &[&str]) -> Door {
    let door = Door::start(conf);
    door.cluster
        .connect("postgres")
        .batch_execute(&format!(
            "CREATE ROLE one LOGIN; CREATE ROLE two LOGIN; CREATE ROLE seer LOGIN IN ROLE pg_monitor;
             CREATE ROLE ender LOGIN IN ROLE pg_signal_backend;
             CREATE ROLE member LOGIN IN ROLE one;
             GRANT SELECT, INSERT, UPDATE ON {CACHE} TO one, two;
             -- Another test may have had the server before.
             SELECT pgcache.reset_stats()"
        ))
        .expect("roles can be made");
    door
}

fn as_role(door: &Door, role: &str) -> Client {
    let mut client = door.client();
    assert_eq!(client.ask(&["AUTH", role, "any"]), Reply::status("OK"));
    client
}

fn id(client: &mut Client) -> i64 {
    match client.ask(&["CLIENT", "ID"]) {
        Reply::Integer(id) => id,
        other => panic!("expected a number, got {other:?}"),
    }
}

/// Returns the ids of the clients that a role sees.
fn seen_by(door: &Door, role: &str) -> Vec<i64> {
    let mut session = door.cluster.connect_as(role, "postgres");
    let rows = session
        .query("SELECT id FROM pgcache.resp_clients ORDER BY id", &[])
        .expect("the view can be read");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Returns the client ids in the reply to CLIENT LIST.
fn listed(client: &mut Client, words: &[&str]) -> Vec<i64> {
    let text = client.ask(&[&["CLIENT", "LIST"], words].concat()).text();
    let number = |line: &str| {
        let id = line.split(' ').next().and_then(|id| id.strip_prefix("id="));
        id.expect("a line begins with its number")
            .parse()
            .expect("a number")
    };
    text.lines().map(number).collect()
}

fn field(line: &str, name: &str) -> String {
    let wanted = format!("{name}=");
    let found = line
        .split_whitespace()
        .find_map(|field| field.strip_prefix(&wanted));
    found
        .unwrap_or_else(|| panic!("no {name} in {line}"))
        .to_owned()
}

/// Returns one of the counters.
fn figure(door: &Door, name: &str) -> i64 {
    let mut session = door.cluster.connect("postgres");
    session
        .query_one(&format!("SELECT {name} FROM pgcache.resp_stats"), &[])
        .expect("there is one row")
        .get(0)
}

/// A subscriber whose messages exceed the limit is disconnected while they are distributed, not in a turn of its own.
#[test]
fn a_subscriber_that_does_not_read_counts_once_as_cut_off() {
    let door = Door::start(&["pgcache.resp_max_output = '64kB'"]);
    let (mut reader, mut publisher) = (door.client(), door.client());
    reader.ask(&["SUBSCRIBE", "c"]);
    let before = figure(&door, "cut_off");
    let message = "m".repeat(16 << 10);
    wait_until("it is disconnected", || {
        publisher.ask(&["PUBLISH", "c", &message]) == Reply::Integer(0)
    });
    assert_eq!(figure(&door, "cut_off"), before + 1);
}

#[test]
fn clients_are_seen_by_their_roles_and_by_monitors() {
    let door = with_roles(&[]);
    let (mut one, mut two, mut root) = (as_role(&door, "one"), as_role(&door, "two"), door.tcp());
    let mut stranger = door.client();
    // The client sends no complete request, so it is not authenticated.
    stranger.send(b"*1\r\n");
    let (a, b, c) = (id(&mut one), id(&mut two), id(&mut root));
    assert_eq!(seen_by(&door, "one"), [a]);
    assert_eq!(seen_by(&door, "member"), [a], "a member of the role");
    assert_eq!(seen_by(&door, "two"), [b]);
    assert_eq!(seen_by(&door, "ender"), Vec::<i64>::new());
    for role in ["seer", "postgres"] {
        let seen = seen_by(&door, role);
        assert_eq!(
            seen.len(),
            4,
            "{role} sees all, the stranger, too: {seen:?}"
        );
        assert!([a, b, c].iter().all(|id| seen.contains(id)));
    }
    // CLIENT LIST shows the same clients as the view.
    assert_eq!(listed(&mut one, &[]), [a]);
    assert_eq!(listed(&mut two, &["ID", &a.to_string()]), Vec::<i64>::new());
    let mut seer = as_role(&door, "seer");
    assert_eq!(listed(&mut seer, &[]).len(), 5);
    assert_eq!(listed(&mut seer, &["ID", &a.to_string()]), [a]);
    // Revoked privileges take effect at once.
    door.cluster
        .connect("postgres")
        .batch_execute("REVOKE pg_monitor FROM seer")
        .expect("a membership can be taken away");
    let own = id(&mut seer);
    assert_eq!(listed(&mut seer, &[]), [own]);
    assert_eq!(seen_by(&door, "seer"), [own]);
    // A client that has disconnected is no longer listed.
    drop(two);
    wait_for("the client is gone", || {
        (!seen_by(&door, "postgres").contains(&b)).then_some(())
    });
}

#[test]
fn a_client_is_shown_as_it_is() {
    let door = with_roles(&[]);
    let mut client = as_role(&door, "one");
    client.ask(&["CLIENT", "SETNAME", "worker-7"]);
    client.ask(&["CLIENT", "SETINFO", "LIB-NAME", "lib"]);
    client.ask(&["CLIENT", "SETINFO", "LIB-VER", "1.2"]);
    client.ask(&["SET", "secret-key", "secret-value"]);
    client.ask(&["HELLO", "3"]);
    client.ask(&["SUBSCRIBE", "a"]);
    client.ask(&["MULTI"]);
    client.ask(&["GET", "secret-key"]);
    let mut session = door.cluster.connect("postgres");
    // The view shows a command only after its reply is sent.
    wait_for("the last command is shown", || {
        let shown = session.query_one("SELECT last_command FROM pgcache.resp_clients", &[]);
        let shown: String = shown.expect("there is one client").get(0);
        (shown == "get").then_some(())
    });
    let row = session
        .query_one(
            "SELECT role::text, name, library, address, protocol, last_command, in_transaction,
                    channels, commands, database, to_jsonb(c)::text, pid,
                    connected_at <= last_request_at AND last_request_at <= clock_timestamp() + '1 s'
                    AND connected_at > clock_timestamp() - interval '1 minute'
               FROM pgcache.resp_clients c",
            &[],
        )
        .expect("there is one client");
    let text = |at: usize| row.get::<_, String>(at);
    assert_eq!(text(0), "one");
    assert_eq!(text(1), "worker-7");
    assert_eq!(text(2), "lib 1.2");
    assert_eq!(text(3), format!("{}:0", door.socket.display()));
    assert_eq!(row.get::<_, i32>(4), 3);
    assert_eq!(text(5), "get");
    assert!(row.get::<_, bool>(6));
    assert_eq!(row.get::<_, i32>(7), 1);
    assert!(row.get::<_, i64>(8) >= 8);
    assert_eq!(row.get::<_, i32>(9), 0);
    assert!(!text(10).contains("secret"), "{}", text(10));
    assert_eq!(
        vec![row.get::<_, i32>(11)],
        door.processes("pgcache resp network")
    );
    assert!(row.get::<_, bool>(12), "its times are those of the server");
    // Bytes that are not a command's name are not shown anywhere.
    let mut other = as_role(&door, "one");
    other.ask(&["secret-word"]).error();
    let own = id(&mut other).to_string();
    other.ask(&["secret-word"]).error();
    let mut seer = as_role(&door, "seer");
    let line = seer.ask(&["CLIENT", "LIST", "ID", &own]).text();
    assert_eq!(field(&line, "cmd"), "unknown");
    assert_eq!(field(&line, "user"), "one");
    let shown: String = session
        .query_one("SELECT jsonb_agg(c)::text FROM pgcache.resp_clients c", &[])
        .expect("the view can be read")
        .get(0);
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_client_is_ended_only_by_privileged_roles() {
    let door = with_roles(&[]);
    let kill = |role: &str, id: i64| {
        let mut session = door.cluster.connect_as(role, "postgres");
        match session.query_one("SELECT pgcache.resp_kill($1)", &[&id]) {
            Ok(row) => Ok(row.get::<_, bool>(0)),
            Err(error) => Err(error.code().expect("the server says why").code().to_owned()),
        }
    };
    let denied = Err("42501".to_owned());
    let mut one = as_role(&door, "one");
    let a = id(&mut one);
    assert_eq!(kill("two", a), denied);
    assert_eq!(kill("seer", a), denied, "to see is not to end");
    assert_eq!(one.ask(&["PING"]), Reply::status("PONG"));
    assert_eq!(kill("one", a), Ok(true));
    one.wait_for_end();
    wait_for("the client is gone", || {
        (kill("one", a) == Ok(false)).then_some(())
    });
    assert_eq!(kill("postgres", 0), Ok(false));
    assert_eq!(kill("postgres", -1), Ok(false));
    for by in ["member", "ender", "postgres"] {
        let mut one = as_role(&door, "one");
        let a = id(&mut one);
        assert_eq!(kill(by, a), Ok(true), "{by}");
        one.wait_for_end();
    }
    // Only superusers can disconnect a superuser's client.
    let mut root = door.client();
    let c = id(&mut root);
    assert_eq!(kill("ender", c), denied);
    let mut ender = as_role(&door, "ender");
    let c = c.to_string();
    assert_eq!(ender.ask(&["CLIENT", "KILL", "ID", &c]), Reply::Integer(0));
    assert_eq!(root.ask(&["PING"]), Reply::status("PONG"));
    // Clients can be disconnected through the protocol and through SQL.
    let (mut one, mut two) = (as_role(&door, "one"), as_role(&door, "two"));
    let (a, b) = (id(&mut one).to_string(), id(&mut two).to_string());
    assert_eq!(two.ask(&["CLIENT", "KILL", "ID", &a]), Reply::Integer(0));
    assert_eq!(ender.ask(&["CLIENT", "KILL", "ID", &a]), Reply::Integer(1));
    one.wait_for_end();
    assert_eq!(
        root.ask(&["CLIENT", "KILL", "USER", "two"]),
        Reply::Integer(1)
    );
    two.wait_for_end();
    assert_eq!(figure(&door, "killed"), 6, "{b} among them");
}

#[test]
fn counters_count_and_are_reset_only_by_privileged_roles() {
    let door = with_roles(&[]);
    let mut one = as_role(&door, "one");
    one.ask(&["SET", "k", "v"]);
    for key in ["k", "k", "nothing"] {
        one.ask(&["GET", key]);
    }
    let pipeline = Client::request(&[b"PING"]).repeat(50);
    one.send(&pipeline);
    for _ in 0..50 {
        one.reply();
    }
    let mut stranger = door.client();
    stranger.ask(&["AUTH", "nobody-of-that-name", "x"]).error();
    let counted = |name: &str, expected: i64| {
        wait_for(name, || (figure(&door, name) == expected).then_some(()));
    };
    counted("commands", 56);
    counted("hits", 2);
    counted("misses", 1);
    counted("clients", 2);
    counted("connections", 2);
    counted("failed_authentications", 1);
    assert!(figure(&door, "largest_batch") >= 10);
    assert!(figure(&door, "bytes_in") > 50 * 14);
    assert!(figure(&door, "questions") >= 3);
    assert_eq!(figure(&door, "queue_depth"), 0);
    let info = one.ask(&["INFO", "stats"]).text();
    assert!(info.contains("keyspace_hits:2\r\n"), "{info}");
    // Only members of pg_monitor may read the counters.
    let refused = door
        .cluster
        .connect_as("one", "postgres")
        .query("SELECT * FROM pgcache.resp_stats", &[]);
    assert_eq!(
        refused
            .expect_err("it is refused")
            .code()
            .expect("a code")
            .code(),
        "42501"
    );
    door.cluster
        .connect_as("seer", "postgres")
        .query_one("SELECT * FROM pgcache.resp_stats", &[])
        .expect("a monitor reads them");
    // Only some roles may reset the counters.
    let words = one.ask(&["CONFIG", "RESETSTAT"]).error();
    assert_eq!(
        words,
        "NOPERM User one has no permissions to run the 'config|resetstat' command"
    );
    counted("hits", 2);
    let mut ender = as_role(&door, "ender");
    assert_eq!(ender.ask(&["CONFIG", "RESETSTAT"]), Reply::status("OK"));
    counted("hits", 0);
    one.ask(&["GET", "k"]);
    counted("hits", 1);
    door.cluster
        .connect("postgres")
        .batch_execute("SELECT pgcache.reset_stats()")
        .expect("a superuser sets them back");
    counted("hits", 0);
    counted("clients", 3);
}

#[test]
fn counters_outlive_a_network_process_and_its_clients_do_not() {
    let door = with_roles(&[]);
    let mut one = as_role(&door, "one");
    one.ask(&["SET", "k", "v"]);
    one.ask(&["GET", "k"]);
    let before = id(&mut one);
    wait_for("it is counted", || {
        (figure(&door, "hits") == 1).then_some(())
    });
    let network = door.processes("pgcache resp network")[0];
    door.cluster
        .connect("postgres")
        .query("SELECT pg_terminate_backend($1)", &[&network])
        .expect("a superuser may");
    one.wait_for_end();
    let mut next = wait_for("the door is there again", || {
        let mut client = door.try_client()?;
        client.ask_if_open(&["PING"]).map(|_| client)
    });
    assert!(id(&mut next) > before, "no number is used twice");
    assert_eq!(seen_by(&door, "postgres").len(), 1);
    assert_eq!(figure(&door, "hits"), 1);
    next.ask(&["GET", "k"]);
    wait_for("the counter continues", || {
        (figure(&door, "hits") == 2).then_some(())
    });
}

#[test]
fn the_registry_has_a_place_for_each_possible_client() {
    let door = with_roles(&["pgcache.resp_max_clients = 3"]);
    for _ in 0..5 {
        let mut clients: Vec<Client> = (0..3).map(|_| door.client()).collect();
        let mut ids: Vec<i64> = clients.iter_mut().map(id).collect();
        ids.sort_unstable();
        assert_eq!(seen_by(&door, "postgres"), ids);
        let mut more = door.client();
        let words = more.reply().map(Reply::error);
        assert_eq!(words.as_deref(), Some("ERR max number of clients reached"));
        drop(clients);
        wait_for("all are gone", || {
            seen_by(&door, "postgres").is_empty().then_some(())
        });
    }
    // If the limit exceeds the number of slots that the client registry got at the start, it needs a restart.
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute("ALTER SYSTEM SET pgcache.resp_max_clients = 10")
        .expect("a setting");
    session
        .batch_execute("SELECT pg_reload_conf()")
        .expect("a reload");
    std::thread::sleep(Duration::from_secs(1));
    let _three: Vec<i64> = (0..3)
        .map(|_| door.client())
        .map(|mut client| id(&mut client))
        .collect();
}

#[test]
fn nothing_is_shown_where_nothing_listens() {
    let door = Door::fresh(&["pgcache.resp_port = 0", "pgcache.resp_socket = ''"]);
    door.cluster.up();
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute("CREATE EXTENSION pgcache")
        .expect("it can be made");
    for view in ["resp_clients", "resp_stats"] {
        let rows = session
            .query(&format!("SELECT * FROM pgcache.{view}"), &[])
            .expect("the view can be read");
        assert!(rows.is_empty(), "{view}");
    }
    let killed = session
        .query_one("SELECT pgcache.resp_kill(1)", &[])
        .expect("it can be called");
    assert!(!killed.get::<_, bool>(0));
    session
        .batch_execute("SELECT pgcache.publish('a', 'b')")
        .expect("no process reads it");
}

#[test]
fn the_extension_creates_a_cache_for_the_redis_protocol() {
    let door = Door::without_cache(&["pgcache.resp_caches = 'pgcache.resp'"]);
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute("CREATE EXTENSION pgcache; CREATE ROLE app LOGIN")
        .expect("it can be made");
    let mut app = as_role(&door, "app");
    assert!(
        app.ask(&["GET", "k"]).error().starts_with("NOPERM "),
        "nothing is granted"
    );
    session
        .batch_execute("GRANT SELECT, INSERT, UPDATE ON pgcache.resp TO app")
        .expect("it can be granted");
    assert_eq!(
        app.ask_bytes(&[b"SET", b"k", b"\xff\0"]),
        Reply::status("OK")
    );
    let value: Vec<u8> = session
        .query_one("SELECT cache_get_bytes('k', 'pgcache.resp')", &[])
        .expect("SQL reads it")
        .get(0);
    assert_eq!(value, b"\xff\0");
    session
        .batch_execute("DROP EXTENSION pgcache")
        .expect("it goes with the extension");
    let gone: bool = session
        .query_one("SELECT to_regclass('pgcache.resp') IS NULL", &[])
        .expect("it can be asked")
        .get(0);
    assert!(gone);
    session
        .batch_execute("CREATE EXTENSION pgcache")
        .expect("it comes again");
    assert!(app.ask(&["GET", "k"]).error().starts_with("NOPERM "));
}

#[test]
fn commands_are_paused_only_by_privileged_roles() {
    let door = with_roles(&[]);
    let (mut one, mut ender) = (as_role(&door, "one"), as_role(&door, "ender"));
    let denied = "NOPERM User one has no permissions to run the 'client|pause' command";
    assert_eq!(one.ask(&["CLIENT", "PAUSE", "1"]).error(), denied);
    assert!(
        one.ask(&["CLIENT", "UNPAUSE"])
            .error()
            .starts_with("NOPERM ")
    );
    for (words, error) in [
        (&["x"][..], "ERR timeout is not an integer or out of range"),
        (&["-1"], "ERR timeout is negative"),
        (&["1", "SOME"], "ERR CLIENT PAUSE mode must be WRITE or ALL"),
    ] {
        let reply = ender.ask(&[&["CLIENT", "PAUSE"], words].concat());
        assert_eq!(reply.error(), error);
    }
    let ok = Reply::status("OK");
    let ask = |client: &mut Client, words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        assert!(client.send(&Client::request(&words)));
    };
    // In this pause, clients that write wait, and so do their later commands. Clients that only read continue.
    assert_eq!(ender.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]), ok);
    assert_eq!(one.ask(&["GET", "k"]), Reply::Null);
    ask(&mut one, &["SET", "k", "v"]);
    ask(&mut one, &["GET", "k"]);
    let mut two = as_role(&door, "two");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(two.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(ender.ask(&["CLIENT", "UNPAUSE"]), ok);
    assert_eq!(one.reply(), Some(ok.clone()));
    assert_eq!(one.reply(), Some(Reply::bulk("v")));
    // In this pause all clients wait. Of two pauses, the longer one applies.
    let began = std::time::Instant::now();
    assert_eq!(ender.ask(&["CLIENT", "PAUSE", "400"]), ok);
    assert_eq!(two.ask(&["PING"]), Reply::status("PONG"));
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(ender.ask(&["CLIENT", "PAUSE", "60000", "ALL"]), ok);
    ask(&mut two, &["PING"]);
    assert_eq!(ender.ask(&["CLIENT", "UNPAUSE"]), ok);
    assert_eq!(two.reply(), Some(Reply::status("PONG")));
}

#[test]
fn a_process_that_has_nothing_to_do_says_so() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    let mut session = door.cluster.connect("postgres");
    for process in ["pgcache resp network", "pgcache resp executor"] {
        wait_for(process, || {
            let rows = session.query(
                "SELECT wait_event FROM pg_stat_activity WHERE backend_type = $1",
                &[&process],
            );
            let rows = rows.expect("the view can be read");
            let rests = |row: &postgres::Row| {
                row.get::<_, Option<String>>(0).as_deref() == Some("PgcacheResp")
            };
            (!rows.is_empty() && rows.iter().all(rests)).then_some(())
        });
    }
}
