//! Tests the processes and connections of the Redis protocol, and the effects that one client can have on other
//! clients.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::wait::wait_until;

const NETWORK: &str = "pgcache resp network";
const EXECUTOR: &str = "pgcache resp executor";

#[test]
fn nothing_runs_without_a_port_and_a_socket() {
    let cluster = Cluster::start(&["shared_preload_libraries = 'pgcache'"]);
    let mut session = cluster.connect("postgres");
    let count = |session: &mut postgres::Client, sql: &str| -> i64 {
        session.query_one(sql, &[]).unwrap().get(0)
    };
    let processes = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgcache resp%'";
    assert_eq!(count(&mut session, processes), 0);
    let memory = "SELECT count(*) FROM pg_shmem_allocations WHERE name = 'pgcache resp'";
    assert_eq!(count(&mut session, memory), 0);
}

#[test]
fn entries_are_shared_with_sql_both_ways() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    assert_eq!(
        client.ask(&["SET", "k", "by the door"]),
        Reply::status("OK")
    );
    let mut session = door.cluster.connect("postgres");
    let get = "SELECT convert_from(cache_get_bytes('k', $1::text::regclass), 'UTF8')";
    let value: String = session.query_one(get, &[&CACHE]).unwrap().get(0);
    assert_eq!(value, "by the door");
    let set = "SELECT cache_set_bytes('k', 'by sql', cache => $1::text::regclass)";
    session.execute(set, &[&CACHE]).unwrap();
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("by sql"));
    let mut tcp = door.tcp();
    assert_eq!(tcp.ask(&["GET", "k"]), Reply::bulk("by sql"));
}

#[test]
fn hello_has_the_fields_that_clients_read() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let Reply::Map(three) = client.ask(&["HELLO", "3", "SETNAME", "tester"]) else {
        panic!("version 3 has maps");
    };
    let value = |name: &str| {
        let at = three.iter().position(|reply| *reply == Reply::bulk(name));
        three[at.unwrap() + 1].clone()
    };
    assert_eq!(value("server"), Reply::bulk("redis"));
    assert_eq!(value("version"), Reply::bulk("8.4.0"));
    assert_eq!(value("proto"), Reply::Integer(3));
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), Reply::bulk("tester"));
    assert_eq!(client.ask(&["GET", "nothing"]), Reply::Null);
    let info = client.ask(&["INFO"]).text();
    for line in [
        "redis_version:8.4.0",
        "loading:0",
        "role:master",
        "redis_mode:standalone",
    ] {
        assert!(info.contains(line), "{line} is missing in {info}");
    }
}

#[test]
fn a_revoke_acts_on_the_next_command() {
    let door = Door::start(&["pgcache.resp_default_role = 'guest'"]);
    let mut session = door.cluster.connect("postgres");
    session.batch_execute("CREATE ROLE guest LOGIN").unwrap();
    let mut client = door.client();
    let refused = client.ask(&["GET", "k"]).error();
    assert!(refused.starts_with("NOPERM"), "{refused}");
    for _ in 0..20 {
        session
            .batch_execute(&format!("GRANT SELECT, INSERT, UPDATE ON {CACHE} TO guest"))
            .unwrap();
        assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
        session
            .batch_execute(&format!("REVOKE ALL ON {CACHE} FROM guest"))
            .unwrap();
        assert!(client.ask(&["GET", "k"]).error().starts_with("NOPERM"));
        assert!(client.ask(&["SET", "k", "v"]).error().starts_with("NOPERM"));
    }
    session.batch_execute("DROP ROLE guest").unwrap();
    assert!(client.ask(&["GET", "k"]).error().starts_with("NOAUTH"));
}

#[test]
fn a_cache_that_goes_and_comes_is_noticed() {
    let door = Door::without_cache(&[]);
    let mut client = door.client();
    let missing = client.ask(&["GET", "k"]).error();
    assert!(missing.contains("pgcache.resp_caches"), "{missing}");
    let mut session = door.cluster.connect("postgres");
    let create = format!(
        "CREATE EXTENSION pgcache; SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
    );
    for _ in 0..5 {
        session.batch_execute(&create).unwrap();
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
        session
            .batch_execute(&format!(
                "SELECT cache_drop('{CACHE}'); DROP EXTENSION pgcache"
            ))
            .unwrap();
        assert!(
            client
                .ask(&["GET", "k"])
                .error()
                .contains("pgcache.resp_caches")
        );
    }
}

#[test]
fn a_table_cache_is_served() {
    let door = Door::start(&["pgcache.resp_caches = 'pgcache.main'"]);
    let mut client = door.client();
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
}

#[test]
fn requests_may_be_cut_anywhere() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let mut bytes = Client::request(&[b"SET", b"key", b"a value\r\nwith a break"]);
    bytes.extend_from_slice(b"GET key\r\n");
    bytes.extend_from_slice(&Client::request(&[b"DEL", b"key"]));
    for cut in 1..bytes.len() {
        assert!(client.send(&bytes[..cut]));
        std::thread::sleep(Duration::from_micros(300));
        assert!(client.send(&bytes[cut..]));
        assert_eq!(client.reply(), Some(Reply::status("OK")));
        assert_eq!(client.reply(), Some(Reply::bulk("a value\r\nwith a break")));
        assert_eq!(client.reply(), Some(Reply::Integer(1)));
    }
}

#[test]
fn a_pipeline_of_a_million_is_answered() {
    let door = Door::start(&[]);
    let mut reader = door.client();
    assert_eq!(reader.ask(&["SET", "k", "0"]), Reply::status("OK"));
    let one = Client::request(&[b"INCR", b"k"]);
    let chunk: Vec<u8> = one.repeat(10_000);
    for part in 0..100_i64 {
        assert!(reader.send(&chunk));
        for at in 1..=10_000 {
            assert_eq!(reader.reply(), Some(Reply::Integer(part * 10_000 + at)));
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_cut_off_alone() {
    let door = Door::start(&["pgcache.resp_max_output = '1MB'"]);
    let mut other = door.client();
    assert_eq!(
        other.ask(&["SET", "k", &"x".repeat(100_000)]),
        Reply::status("OK")
    );
    let mut deaf = door.client();
    let chunk = Client::request(&[b"GET", b"k"]).repeat(100);
    let deadline = Instant::now() + Duration::from_secs(60);
    while deaf.send(&chunk) && Instant::now() < deadline {}
    assert!(Instant::now() < deadline, "it was never cut off");
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
}

#[test]
fn a_gigabyte_that_is_announced_costs_nothing() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    assert!(client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1073741824\r\n"));
    let words = client.reply().unwrap().error();
    assert_eq!(words, "ERR Protocol error: invalid bulk length");
    assert_eq!(client.reply(), None);
    // Without a default role every client must authenticate, and may send only short requests before that.
    let door = Door::start(&["pgcache.resp_default_role = ''"]);
    let mut stranger = door.client();
    assert!(stranger.send(b"*3\r\n$4\r\nAUTH\r\n$1\r\nk\r\n$10000\r\n"));
    let words = stranger.reply().unwrap().error();
    assert_eq!(words, "ERR Protocol error: unauthenticated bulk length");
}

#[test]
fn a_long_value_is_stored_and_read_while_other_clients_are_served() {
    let door = Door::start(&[
        "pgcache.hot_size = '256MB'",
        "pgcache.hot_max_value = '20MB'",
        "pgcache.resp_max_request = '32MB'",
    ]);
    let mut client = door.client();
    let value = vec![b'v'; 16 << 20];
    assert_eq!(
        client.ask_bytes(&[b"SET", b"long", &value]),
        Reply::status("OK")
    );
    assert_eq!(client.ask(&["GET", "long"]), Reply::Bulk(value));
}

#[test]
fn clients_beyond_the_limit_get_an_error() {
    let door = Door::start(&["pgcache.resp_max_clients = 3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| door.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    }
    let mut fourth = door.client();
    assert_eq!(
        fourth.reply().unwrap().error(),
        "ERR max number of clients reached"
    );
    assert_eq!(fourth.reply(), None);
    drop(clients.pop());
    wait_until("there is room again", || {
        door.client().ask_if_open(&["PING"]) == Some(Reply::status("PONG"))
    });
}

#[test]
fn silent_clients_are_ended_after_the_timeouts() {
    let door = Door::start(&[
        "pgcache.resp_idle_timeout = 2",
        "pgcache.resp_authentication_timeout = 1",
        "pgcache.resp_default_role = ''",
    ]);
    let mut stranger = door.client();
    stranger.wait_for_end();
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute("ALTER SYSTEM SET pgcache.resp_default_role = 'postgres'")
        .unwrap();
    session.batch_execute("SELECT pg_reload_conf()").unwrap();
    wait_until("the setting is read", || {
        door.client().ask(&["PING"]) == Reply::status("PONG")
    });
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    client.wait_for_end();
}

/// As in Redis, the idle timeout does not apply to subscribers, nor to a client that is still receiving a long reply.
#[test]
fn subscribers_and_slow_readers_are_not_idle() {
    let door = Door::start(&["pgcache.resp_idle_timeout = 2"]);
    let (mut two, mut three, mut idle) = (door.client(), door.client(), door.client());
    assert!(matches!(two.ask(&["SUBSCRIBE", "c"]), Reply::Array(_)));
    three.ask(&["HELLO", "3"]);
    assert!(matches!(three.ask(&["PSUBSCRIBE", "c*"]), Reply::Push(_)));
    assert_eq!(idle.ask(&["PING"]), Reply::status("PONG"));
    let mut slow = door.client();
    let value = "v".repeat(900_000);
    assert_eq!(slow.ask(&["SET", "k", &value]), Reply::status("OK"));
    assert!(slow.send(&Client::request(&[b"GET", b"k"]).repeat(16)));
    let since = Instant::now();
    for _ in 0..16 {
        assert_eq!(slow.reply(), Some(Reply::bulk(&value)));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(since.elapsed() > Duration::from_secs(4));
    idle.wait_for_end();
    for client in [&mut two, &mut three] {
        assert!(client.is_silent());
    }
    assert_eq!(slow.ask(&["PUBLISH", "c", "m"]), Reply::Integer(2));
    assert!(matches!(two.reply(), Some(Reply::Array(_))));
    assert!(matches!(three.reply(), Some(Reply::Push(_))));
}

/// The network process notices the disconnect only when it writes the next piece of the reply. If this caused an
/// internal error, the error would be in the log.
#[test]
fn clients_that_leave_amid_long_replies_disturb_nothing() {
    let door = Door::start(&[]);
    let mut stays = door.client();
    stays.ask(&["SET", "long", &"v".repeat(1_000_000)]);
    let request = Client::request(&[b"GET", b"long"]).repeat(20);
    for round in 0..60 {
        let mut leaves = if round % 2 == 0 {
            door.client()
        } else {
            door.tcp()
        };
        assert!(leaves.send(&request));
        if round % 3 == 0 {
            assert!(leaves.reply().is_some());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stays.ask(&["STRLEN", "long"]), Reply::Integer(1_000_000));
    assert!(!door.cluster.log_text().contains("internal error"));
}

/// A connection pool sends RESET when a connection is returned to it.
#[test]
fn after_reset_a_client_has_time_to_authenticate() {
    let door = Door::start(&["pgcache.resp_authentication_timeout = 4"]);
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(client.ask(&["RESET"]), Reply::status("RESET"));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    assert_eq!(client.ask(&["RESET"]), Reply::status("RESET"));
    client.wait_for_end();
}

#[test]
fn a_process_that_is_killed_comes_back_with_its_server() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    for kind in [NETWORK, EXECUTOR] {
        let before = door.processes(kind);
        door.cluster.kill_backend(before[0]);
        wait_until("the server has noticed", || {
            door.processes_if_up(kind).as_ref() != Some(&before)
        });
        door.cluster.wait_until_up();
        wait_until("the door answers", || {
            door.try_client()
                .and_then(|mut client| client.ask_if_open(&["PING"]))
                == Some(Reply::status("PONG"))
        });
    }
}

#[test]
fn a_process_that_is_terminated_comes_back_alone() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    for kind in [NETWORK, EXECUTOR] {
        let count = if kind == EXECUTOR { 2 } else { 1 };
        wait_until("the process is there", || {
            door.processes(kind).len() == count
        });
        let pid = door.processes(kind)[0];
        session
            .execute("SELECT pg_terminate_backend($1)", &[&pid])
            .unwrap();
        wait_until("another one is there", || {
            let now = door.processes(kind);
            now.len() == count && !now.contains(&pid)
        });
        wait_until("the door answers", || {
            door.try_client()
                .and_then(|mut client| client.ask_if_open(&["GET", "k"]))
                == Some(Reply::Null)
        });
    }
}

#[test]
fn a_cancel_has_no_effect_on_a_network_process() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let mut session = door.cluster.connect("postgres");
    for kind in [NETWORK, EXECUTOR] {
        for pid in door.processes(kind) {
            session
                .execute("SELECT pg_cancel_backend($1)", &[&pid])
                .unwrap();
        }
    }
    for _ in 0..100 {
        assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
    }
}

#[test]
fn a_restart_gives_the_port_and_the_socket_back() {
    let door = Door::start(&[]);
    assert_eq!(door.client().ask(&["PING"]), Reply::status("PONG"));
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        door.cluster.restart(how);
        assert_eq!(door.client().ask(&["PING"]), Reply::status("PONG"));
        assert_eq!(door.tcp().ask(&["PING"]), Reply::status("PONG"));
    }
}

/// Both addresses are in use at the start. When the server can listen on the second address, it has already retried the
/// first address without success.
#[test]
fn a_port_in_use_is_a_line_in_the_log_and_no_more() {
    let addresses = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
    // Create the listener before the server is configured with its port: if the test released the port even for a
    // moment, another process could take it.
    let first = std::net::TcpListener::bind((addresses[0], 0)).unwrap();
    let port = first.local_addr().unwrap().port();
    let second = std::net::TcpListener::bind((addresses[1], port)).unwrap();
    let mut door = Door::fresh(&[
        &format!("pgcache.resp_port = {port}"),
        "pgcache.resp_listen_addresses = '127.0.0.1, 127.0.0.2'",
    ]);
    door.port = port;
    door.cluster.up();
    let mut session = door.cluster.connect("postgres");
    session
        .batch_execute(&format!(
            "CREATE EXTENSION pgcache;
             SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
        ))
        .unwrap();
    assert_eq!(door.client().ask(&["PING"]), Reply::status("PONG"));
    let says = |address: IpAddr| {
        let line = format!("could not listen on {address}:{port} for the Redis protocol\n");
        door.cluster.log_text().matches(&line).count()
    };
    // If another test has just forked a process, that process keeps the test's listener open until its exec. A client
    // that connects to the listener before the exec is disconnected.
    let answers = |address: IpAddr| {
        let client = door.try_tcp_at(address);
        client.and_then(|mut client| client.ask_if_open(&["PING"])) == Some(Reply::status("PONG"))
    };
    for address in addresses {
        wait_until("the log says so", || says(address) == 1);
    }
    drop(second);
    wait_until("the door has the second", || answers(addresses[1]));
    assert_eq!(says(addresses[0]), 1, "once");
    drop(first);
    wait_until("the door has both", || answers(addresses[0]));
    assert_eq!(addresses.map(says), [1, 1], "once");
}

#[test]
fn the_served_database_may_be_dropped_and_made_again() {
    let door = Door::fresh(&["pgcache.resp_database = 'served'"]);
    door.cluster.up();
    let mut session = door.cluster.connect("postgres");
    let warnings = || {
        door.cluster
            .log_text()
            .matches("does not exist or does not accept connections")
            .count()
    };
    wait_until("the log says what is missing", || warnings() == 1);
    for round in 1..=2 {
        session.batch_execute("CREATE DATABASE served").unwrap();
        door.cluster
            .connect("served")
            .batch_execute(&format!(
                "CREATE EXTENSION pgcache;
                 SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
            ))
            .unwrap();
        wait_until("the door answers", || {
            door.try_client()
                .and_then(|mut client| client.ask_if_open(&["GET", "k"]))
                == Some(Reply::Null)
        });
        assert!(session.batch_execute("DROP DATABASE served").is_err());
        session
            .batch_execute("DROP DATABASE served WITH (FORCE)")
            .unwrap();
        wait_until("the log says what is missing", || warnings() == round + 1);
    }
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(warnings(), 3);
    assert!(!door.cluster.log_text().contains("FATAL:  database"));
}

#[test]
fn an_idle_server_blocks_no_session() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["SET", "k", "v"]), Reply::status("OK"));
    let mut session = door.cluster.connect("postgres");
    let open = "SELECT count(*) FROM pg_stat_activity
                 WHERE backend_type LIKE 'pgcache resp%'
                   AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)";
    for _ in 0..20 {
        assert_eq!(session.query_one(open, &[]).unwrap().get::<_, i64>(0), 0);
    }
    // DROP TABLESPACE waits for a barrier of every process.
    let folder = door.cluster.folder.join("space");
    std::fs::create_dir(&folder).unwrap();
    door.cluster.stage.give(&folder);
    session
        .batch_execute(&format!(
            "CREATE TABLESPACE space LOCATION '{}'",
            folder.display()
        ))
        .unwrap();
    session.batch_execute("DROP TABLESPACE space").unwrap();
    session.batch_execute("CREATE DATABASE other").unwrap();
    session.batch_execute("DROP DATABASE other").unwrap();
}

#[test]
fn a_standby_serves_memory_caches() {
    let door = Door::start(&["wal_level = 'replica'"]);
    let mut client = door.client();
    assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    let standby = door.cluster.standby();
    let socket = standby.folder.join("resp.sock");
    standby.down(Shutdown::Fast);
    standby.configure(&[
        "pgcache.resp_port = 0",
        &format!("pgcache.resp_socket = '{}'", socket.display()),
    ]);
    standby.up();
    let there = Door::over(standby, 0, socket);
    let mut second = there.client();
    assert_eq!(
        second.ask(&["SET", "k", "of the standby"]),
        Reply::status("OK")
    );
    assert_eq!(second.ask(&["GET", "k"]), Reply::bulk("of the standby"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    there.cluster.promote();
    assert_eq!(second.ask(&["GET", "k"]), Reply::bulk("of the standby"));
}

#[test]
fn a_transaction_is_collected_and_run() {
    let door = Door::start(&[]);
    let mut client = door.client();
    assert_eq!(client.ask(&["MULTI"]), Reply::status("OK"));
    for words in [
        &["SET", "k", "1"][..],
        &["INCR", "k"],
        &["PING"],
        &["INCR", "k", "x"],
    ] {
        let reply = client.ask(words);
        match words.len() == 3 && words[0] == "INCR" {
            true => assert!(reply.error().starts_with("ERR wrong number of arguments")),
            false => assert_eq!(reply, Reply::status("QUEUED")),
        }
    }
    let words = client.ask(&["EXEC"]).error();
    assert!(words.starts_with("EXECABORT"), "{words}");
    assert_eq!(client.ask(&["MULTI"]), Reply::status("OK"));
    assert_eq!(client.ask(&["SET", "k", "1"]), Reply::status("QUEUED"));
    assert_eq!(client.ask(&["INCR", "k"]), Reply::status("QUEUED"));
    let replies = Reply::Array(vec![Reply::status("OK"), Reply::Integer(2)]);
    assert_eq!(client.ask(&["EXEC"]), replies);
    let mut other = door.client();
    assert_eq!(client.ask(&["WATCH", "k"]), Reply::status("OK"));
    assert_eq!(other.ask(&["SET", "k", "5"]), Reply::status("OK"));
    assert_eq!(client.ask(&["MULTI"]), Reply::status("OK"));
    assert_eq!(client.ask(&["INCR", "k"]), Reply::status("QUEUED"));
    assert_eq!(client.ask(&["EXEC"]), Reply::Null);
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("5"));
}

#[test]
fn clients_are_listed_and_killed() {
    let door = Door::start(&[]);
    let (mut one, mut two) = (door.client(), door.client());
    assert_eq!(one.ask(&["CLIENT", "SETNAME", "one"]), Reply::status("OK"));
    assert_eq!(two.ask(&["CLIENT", "SETNAME", "two"]), Reply::status("OK"));
    let Reply::Integer(id) = two.ask(&["CLIENT", "ID"]) else {
        panic!("an id is a number");
    };
    let list = one.ask(&["CLIENT", "LIST"]).text();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(" name=two "), "{list}");
    assert!(list.contains(" user=postgres "), "{list}");
    assert_eq!(
        one.ask(&["CLIENT", "KILL", "ID", &id.to_string()]),
        Reply::Integer(1)
    );
    two.wait_for_end();
    assert_eq!(one.ask(&["CLIENT", "LIST"]).text().lines().count(), 1);
}

#[test]
fn unsupported_commands_get_the_errors_of_redis() {
    let door = Door::start(&[]);
    let mut client = door.client();
    for (words, start) in [
        (&["LPUSH", "k", "v"][..], "ERR unknown command"),
        (
            &["CLUSTER", "INFO"],
            "ERR This instance has cluster support disabled",
        ),
        (&["SELECT", "1"], "ERR DB index is out of range"),
    ] {
        let reply = client.ask(words).error();
        assert!(reply.starts_with(start), "{words:?}: {reply}");
    }
    assert_eq!(client.ask(&["CLIENT", "REPLY", "ON"]), Reply::status("OK"));
    assert!(client.send(&Client::request(&[b"CLIENT", b"REPLY", b"SKIP"])));
    assert!(client.send(&Client::request(&[b"SET", b"k", b"1"])));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"));
    assert_eq!(client.ask(&["QUIT"]), Reply::status("OK"));
    assert_eq!(client.reply(), None);
}

#[test]
fn commands_sent_before_a_half_close_are_answered() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let mut bytes = Client::request(&[b"SET", b"k", b"v"]).repeat(5000);
    bytes.extend_from_slice(&Client::request(&[b"GET", b"k"]));
    assert!(client.send(&bytes));
    client.half_close();
    for _ in 0..5000 {
        assert_eq!(client.reply(), Some(Reply::status("OK")));
    }
    assert_eq!(client.reply(), Some(Reply::bulk("v")));
    assert_eq!(client.reply(), None);
}

#[test]
fn a_locked_catalog_stalls_no_authenticated_client() {
    let door = Door::start(&[]);
    let (mut known, mut stranger) = (door.client(), door.client());
    assert_eq!(known.ask(&["SET", "k", "v"]), Reply::status("OK"));
    let mut session = door.cluster.connect("postgres");
    // A lookup of a role that the executor has not cached waits for this lock.
    session
        .batch_execute("CREATE ROLE new LOGIN PASSWORD 'p'")
        .unwrap();
    // Creating a role invalidates the cached permissions, so make the server check them again before the session takes
    // the lock.
    assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
    session
        .batch_execute("BEGIN; LOCK TABLE pg_authid, pg_auth_members IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    assert!(stranger.send(&Client::request(&[b"AUTH", b"new", b"p"])));
    assert!(stranger.send(&Client::request(&[b"PING"])));
    for _ in 0..1000 {
        assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
    }
    let waits = "SELECT count(*) FROM pg_stat_activity
                  WHERE backend_type = 'pgcache resp executor' AND wait_event_type = 'Lock'";
    wait_until("the executor waits", || {
        session.query_one(waits, &[]).unwrap().get::<_, i64>(0) == 1
    });
    for _ in 0..1000 {
        assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
    }
    session.batch_execute("COMMIT").unwrap();
    assert_eq!(stranger.reply(), Some(Reply::status("OK")));
    assert_eq!(stranger.reply(), Some(Reply::status("PONG")));
}

#[test]
fn an_exec_that_looks_at_all_keys_again_and_again_ends() {
    let door = Door::start(&["pgcache.hot_size = '64MB'"]);
    let mut client = door.client();
    for from in (0..100_000).step_by(1000) {
        let keys: Vec<String> = (from..from + 1000)
            .map(|key| format!("key-{key}"))
            .collect();
        let pairs = keys.iter().flat_map(|key| [key.as_str(), "v"]);
        let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
        assert_eq!(client.ask(&words), Reply::status("OK"));
    }
    client.ask(&["MULTI"]);
    for _ in 0..1000 {
        client.ask(&["KEYS", "nothing*"]);
    }
    client.ask(&["SET", "last", "v"]);
    let began = Instant::now();
    let Reply::Array(replies) = client.ask(&["EXEC"]) else {
        panic!("expected an array");
    };
    // One walk over the tier takes some milliseconds, a thousand walks take many seconds.
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(replies.len(), 1001);
    assert_eq!(replies.first(), Some(&Reply::Array(vec![])));
    let refused =
        |reply: &&Reply| matches!(reply, Reply::Error(words) if words.contains("run too long"));
    assert!(replies.iter().filter(refused).count() > 100);
    // Commands on single keys run.
    assert_eq!(replies.last(), Some(&Reply::status("OK")));
}

#[test]
fn names_of_clients_are_bounded() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let (longest, longer) = ("n".repeat(1024), "n".repeat(1025));
    for words in [
        &["CLIENT", "SETNAME"][..],
        &["CLIENT", "SETINFO", "lib-name"],
        &["HELLO", "3", "SETNAME"],
    ] {
        let ask = |name| [words, &[name]].concat();
        let told = client.ask(&ask(&longer)).error();
        assert_eq!(told, "ERR client names cannot be longer than 1024 bytes");
        assert!(
            !matches!(client.ask(&ask(&longest)), Reply::Error(_)),
            "{words:?}"
        );
    }
}

#[test]
fn the_former_setting_of_executors_counts_if_the_present_one_has_its_default() {
    let has_executors = |count: usize, conf: &[&str]| {
        let door = Door::fresh(conf);
        door.cluster.up();
        wait_until("a client is served", || door.try_client().is_some());
        wait_until("all executors run", || {
            door.processes(EXECUTOR).len() == count
        });
    };
    has_executors(3, &["pgcache.resp_backs = 3"]);
    let both = ["pgcache.resp_backs = 3", "pgcache.resp_executors = 1"];
    has_executors(1, &both);
}
