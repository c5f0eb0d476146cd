//! Tests SLOWLOG and LATENCY, and that a FLUSHALL of many databases does not delay other clients.

use pgcache_tests::ask::Ask;
use pgcache_tests::network_processes::{CONF, one_of_each, wait_until_all_serve};
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::wait::wait_until;

use super::resp_differential::redis::Redis;

fn ok() -> Reply {
    Reply::status("OK")
}

fn array(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(elements) => elements,
        other => panic!("expected an array, got {other:?}"),
    }
}

fn integer(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(number) => *number,
        other => panic!("expected a number, got {other:?}"),
    }
}

/// Returns the logged commands, newest first: the name and the microseconds of each.
fn logged(client: &mut Client, count: &str) -> Vec<(String, i64)> {
    let entries = array(client.ask(&["SLOWLOG", "GET", count]));
    let entry = |entry: Reply| {
        let parts = array(entry);
        let names = array(parts[3].clone());
        assert_eq!((parts.len(), names.len()), (6, 1));
        (names[0].clone().text(), integer(&parts[2]))
    };
    entries.into_iter().map(entry).collect()
}

fn many(word: &str, count: usize, values: bool) -> Vec<u8> {
    let mut words = vec![word.to_owned()];
    for number in 0..count {
        words.push(format!("key {number}"));
        words.extend(values.then(|| "v".to_owned()));
    }
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    Client::request(&words)
}

#[test]
fn slow_commands_are_logged_by_name_with_their_client() {
    let door = Door::start(&["pgcache.resp_slowlog_slower_than = 3000"]);
    let mut client = door.client();
    assert_eq!(client.ask(&["CLIENT", "SETNAME", "tester"]), ok());
    // The first SET also waits for the role's permissions, so it may be slow.
    assert_eq!(client.ask(&["SET", "secret", "secret"]), ok());
    assert_eq!(client.ask(&["SLOWLOG", "RESET"]), ok());
    assert_eq!(client.ask(&["SET", "secret", "secret"]), ok());
    // MSETNX runs in one piece, EXISTS in many pieces.
    assert!(client.send(&many("MSETNX", 100_000, true)));
    assert_eq!(client.reply(), Some(Reply::Integer(1)));
    assert!(client.send(&many("EXISTS", 100_000, false)));
    client.reply();
    let logged = logged(&mut client, "-1");
    let of = |name: &str| logged.iter().find(|(logged, _)| logged == name);
    for name in ["msetnx", "exists"] {
        let (_, micros) = of(name).unwrap_or_else(|| panic!("{name} is missing: {logged:?}"));
        assert!((3000..60_000_000).contains(micros), "{logged:?}");
    }
    assert_eq!(of("set"), None);
    let length = client.ask(&["SLOWLOG", "LEN"]);
    assert_eq!(length, Reply::Integer(logged.len() as i64));
    let last = array(client.ask(&["SLOWLOG", "GET", "1"])).remove(0);
    let parts = array(last.clone());
    assert_eq!(parts[5], Reply::bulk("tester"));
    assert!(parts[4].clone().text().ends_with(":0"), "{last:?}");
    let now = door
        .cluster
        .connect("postgres")
        .text("SELECT extract(epoch FROM now())::bigint::text");
    let age = now.parse::<i64>().unwrap() - integer(&parts[1]);
    assert!((0..600).contains(&age), "{age}");
    assert_eq!(client.ask(&["SLOWLOG", "RESET"]), ok());
    assert_eq!(client.ask(&["SLOWLOG", "LEN"]), Reply::Integer(0));
}

#[test]
fn the_log_keeps_the_last_of_all_network_processes_without_keys_and_values() {
    let conf = [&CONF[..], &["pgcache.resp_slowlog_slower_than = 0"]].concat();
    let door = Door::start(&conf);
    wait_until_all_serve(&door);
    let mut clients = one_of_each(&door);
    for (_, client) in &mut clients {
        assert_eq!(client.ask(&["SET", "hidden key", "hidden value"]), ok());
        assert_eq!(
            client.ask(&["GET", "hidden key"]),
            Reply::bulk("hidden value")
        );
    }
    let mut first = clients.remove(0).1;
    let all = first.ask(&["SLOWLOG", "GET", "-1"]);
    assert!(!format!("{all:?}").contains("hidden"), "{all:?}");
    let logged = logged(&mut first, "7");
    let names: Vec<&str> = logged.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        ["slowlog|get", "get", "set", "get", "set", "get", "set"]
    );
    for _ in 0..200 {
        assert_eq!(first.ask(&["PING"]), Reply::status("PONG"));
    }
    let pings = self::logged(&mut first, "-1");
    assert_eq!(pings.len(), 128);
    assert!(pings.iter().all(|(name, _)| name == "ping"), "{pings:?}");
    assert_eq!(self::logged(&mut first, "0"), []);
    let config = first.ask(&["CONFIG", "GET", "slowlog*"]);
    let config = format!("{config:?}");
    assert_eq!(
        array(first.ask(&["CONFIG", "GET", "slowlog-log-slower-than"]))[1],
        Reply::bulk("0"),
        "{config}"
    );
    // With the log turned off, nothing is logged.
    let mut session = door.cluster.connect("postgres");
    session.run("ALTER SYSTEM SET pgcache.resp_slowlog_slower_than = -1");
    session.run("SELECT pg_reload_conf()");
    wait_until("it counts", || {
        first.ask(&["SLOWLOG", "RESET"]);
        first.ask(&["PING"]);
        first.ask(&["SLOWLOG", "LEN"]) == Reply::Integer(0)
    });
}

#[test]
fn a_role_sees_its_own_commands() {
    let door = Door::start(&["pgcache.resp_slowlog_slower_than = 0"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor");
    let mut superuser = door.client();
    let mut app = door.client();
    let mut watcher = door.client();
    assert_eq!(superuser.ask(&["ECHO", "x"]), Reply::bulk("x"));
    assert_eq!(app.ask(&["AUTH", "app", "x"]), ok());
    assert_eq!(watcher.ask(&["AUTH", "watcher", "x"]), ok());
    app.ask(&["PING"]);
    let names = |client: &mut Client| -> Vec<String> {
        let logged = logged(client, "-1");
        logged.into_iter().map(|(name, _)| name).collect()
    };
    let own = names(&mut app);
    assert!(
        own.contains(&"ping".into()) && !own.contains(&"echo".into()),
        "{own:?}"
    );
    let all = names(&mut watcher);
    assert!(
        all.contains(&"ping".into()) && all.contains(&"echo".into()),
        "{all:?}"
    );
    for client in [&mut app, &mut watcher] {
        let refused = client.ask(&["SLOWLOG", "RESET"]).error();
        assert!(refused.starts_with("NOPERM"), "{refused}");
    }
    session.run("GRANT pg_signal_backend TO app");
    assert_eq!(app.ask(&["SLOWLOG", "RESET"]), ok());
}

#[test]
fn replies_without_monitoring_equal_those_of_redis() {
    let redis = Redis::start("slow");
    let door = Door::start(&[]);
    let (mut ours, mut theirs) = (door.client(), Client::at(&redis.socket()));
    for words in [
        &["SLOWLOG", "HELP"][..],
        &["LATENCY", "HELP"],
        &["LATENCY", "DOCTOR"],
        &["LATENCY", "GRAPH", "command"],
        &["LATENCY", "HISTOGRAM", "get"],
        &["LATENCY", "HISTORY", "command"],
        &["LATENCY", "LATEST"],
        &["LATENCY", "RESET"],
        &["LATENCY", "RESET", "a", "b"],
        &["LATENCY", "HISTORY"],
        &["LATENCY", "NOTHING"],
        &["SLOWLOG", "RESET"],
        &["SLOWLOG", "LEN"],
        &["SLOWLOG", "LEN", "x"],
        &["SLOWLOG", "GET"],
        &["SLOWLOG", "GET", "-1"],
        &["SLOWLOG", "GET", "-2"],
        &["SLOWLOG", "GET", "x"],
        &["SLOWLOG", "GET", "1", "2"],
        &["SLOWLOG", "NOTHING"],
        &["HELLO", "3"],
        &["LATENCY", "HISTOGRAM", "get"],
        &["LATENCY", "DOCTOR"],
    ] {
        let (our, their) = (ours.ask(words), theirs.ask(words));
        if words != ["HELLO", "3"] {
            assert_eq!(our, their, "{words:?}");
        }
    }
}

/// FLUSHALL frees the databases piece by piece and serves other clients in between. Once a client of the last database
/// has missed its key, it never finds the key again.
#[test]
fn clients_do_not_wait_for_flushall_of_many_databases() {
    const DATABASES: usize = 40;
    let names: Vec<String> = (0..DATABASES)
        .map(|number| format!("public.c{number}"))
        .collect();
    let door = Door::without_cache(&[
        "pgcache.hot_size = '256MB'",
        &format!("pgcache.resp_caches = '{}'", names.join(", ")),
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    for name in &names {
        session.run(&format!(
            "SELECT cache_create('{name}', storage => 'memory', value_type => 'bytea')"
        ));
    }
    let (mut busy, mut other) = (door.client(), door.client());
    for number in 0..DATABASES {
        assert_eq!(busy.ask(&["SELECT", &number.to_string()]), ok());
        assert_eq!(busy.ask(&["SET", "k", "v"]), ok());
    }
    assert_eq!(busy.ask(&["SELECT", "0"]), ok());
    assert_eq!(other.ask(&["SELECT", &(DATABASES - 1).to_string()]), ok());
    assert_eq!(other.ask(&["GET", "k"]), Reply::bulk("v"));
    assert!(busy.send(&Client::request(&[b"FLUSHALL"])));
    let done = std::thread::scope(|scope| {
        let reply = scope.spawn(|| busy.reply());
        let mut asked = 0;
        let mut gone = 0;
        while !reply.is_finished() {
            match other.ask(&["GET", "k"]) {
                Reply::Null => gone += 1,
                _ => assert_eq!(gone, 0, "the entry came back"),
            }
            asked += 1;
        }
        assert_eq!(reply.join().unwrap(), Some(ok()));
        (asked, gone)
    });
    // FLUSHALL must let the other client run after each piece. If it ran in one piece, the other client would get only
    // two or three replies.
    assert!(done.1 >= 20, "reads, and misses among them: {done:?}");
    for number in 0..DATABASES {
        assert_eq!(busy.ask(&["SELECT", &number.to_string()]), ok());
        assert_eq!(busy.ask(&["DBSIZE"]), Reply::Integer(0));
    }
    // If the role lacks TRUNCATE on any cache, FLUSHALL clears none of the caches.
    session.run("CREATE ROLE app LOGIN");
    for name in &names {
        session.run(&format!(
            "GRANT SELECT, INSERT, UPDATE, TRUNCATE ON {name} TO app"
        ));
    }
    session.run("REVOKE TRUNCATE ON public.c7 FROM app");
    assert_eq!(busy.ask(&["SET", "k", "v"]), ok());
    assert_eq!(busy.ask(&["AUTH", "app", "x"]), ok());
    assert!(busy.ask(&["FLUSHALL"]).error().starts_with("NOPERM"));
    assert_eq!(busy.ask(&["GET", "k"]), Reply::bulk("v"));
    session.run("GRANT TRUNCATE ON public.c7 TO app");
    assert_eq!(busy.ask(&["FLUSHALL"]), ok());
    assert_eq!(busy.ask(&["GET", "k"]), Reply::Null);
}
