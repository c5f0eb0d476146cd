//! Tests exact replies where the newest Redis differs from 7.0, and cases that random commands seldom reach, on a
//! memory cache and on a table.

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::wait::wait_until;

const DISABLED: &str = "ERR This instance has cluster support disabled";

fn integer(number: i64) -> Reply {
    Reply::Integer(number)
}

fn ok() -> Reply {
    Reply::status("OK")
}

/// Starts a server with a memory cache as database 0 and a table as database 1.
fn with_table(conf: &[&str]) -> Door {
    let caches = "pgcache.resp_caches = 'public.door, public.tab'";
    let door = Door::start(&[&[caches], conf].concat());
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT cache_create('tab', value_type => 'bytea')");
    door
}

/// The requests before WATCH; the requests between WATCH and EXEC; and whether EXEC then runs on a memory cache, and on
/// a table.
type Case<'w> = (&'w [&'w str], &'w [&'w [&'w str]], [bool; 2]);

/// Runs the test twice, with a client of database 0 and with a client of database 1.
fn each(door: &Door, test: impl Fn(&mut Client, &str)) {
    for database in ["0", "1"] {
        let mut client = door.client();
        assert_eq!(client.ask(&["SELECT", database]), ok());
        test(&mut client, database);
    }
}

fn field(line: &str, name: &str) -> String {
    let wanted = format!("{name}=");
    let mut fields = line.split_whitespace();
    let found = fields.find_map(|field| field.strip_prefix(&wanted));
    found
        .unwrap_or_else(|| panic!("no {name} in {line}"))
        .to_owned()
}

#[test]
fn clearing_a_cache_changes_no_watched_key_without_an_entry() {
    let door = with_table(&[]);
    each(&door, |client, database| {
        let mut other = door.client();
        other.ask(&["SELECT", database]);
        let (none, set): (&[&str], &[&str]) = (&[], &["SET", "k", "1"]);
        // On a table, EXEC compares the entries; on a memory cache, it compares a count of changes.
        let cases: [Case<'_>; 5] = [
            (none, &[&["FLUSHALL"]], [true, true]),
            (none, &[&["FLUSHDB"]], [true, true]),
            (set, &[&["FLUSHALL"]], [false, false]),
            (set, &[&["FLUSHDB"], set], [false, true]),
            (none, &[set, &["FLUSHALL"]], [false, true]),
        ];
        for (before, between, [memory, table]) in cases {
            other.ask(&["FLUSHALL"]);
            if !before.is_empty() {
                other.ask(before);
            }
            assert_eq!(client.ask(&["WATCH", "k", "k"]), ok());
            between.iter().for_each(|words| {
                other.ask(words);
            });
            client.ask(&["MULTI"]);
            client.ask(&["EXISTS", "other"]);
            let runs = if database == "0" { memory } else { table };
            let expected = match runs {
                true => Reply::Array(vec![integer(0)]),
                false => Reply::Null,
            };
            let reply = client.ask(&["EXEC"]);
            assert_eq!(reply, expected, "{database}: {before:?} {between:?}");
        }
    });
}

#[test]
fn a_pause_of_writes_holds_writes_only() {
    let door = with_table(&[]);
    each(&door, |client, database| {
        let mut other = door.client();
        client.ask(&["SET", "k", "v"]);
        assert_eq!(other.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]), ok());
        // An EXEC that only reads runs during the pause.
        assert_eq!(client.ask(&["MULTI"]), ok());
        assert_eq!(client.ask(&["GET", "k"]), Reply::status("QUEUED"));
        assert_eq!(
            client.ask(&["EXEC"]),
            Reply::Array(vec![Reply::bulk("v")]),
            "database {database}"
        );
        assert_eq!(client.ask(&["TOUCH", "k"]), integer(1));
        // An invalid request is not held back.
        let error = "ERR wrong number of arguments for 'set' command";
        assert_eq!(client.ask(&["SET", "k"]).error(), error);
        // Inside MULTI, a pause also holds back a command that writes. It also holds back the EXEC of a command that
        // was queued before the pause.
        let mut early = door.client();
        assert_eq!(client.ask(&["MULTI"]), ok());
        client.send(&Client::request(&[b"SET", b"k", b"w"]));
        client.send(&Client::request(&[b"EXEC"]));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(client.is_silent(), "database {database}");
        assert_eq!(other.ask(&["CLIENT", "UNPAUSE"]), ok());
        assert_eq!(client.reply(), Some(Reply::status("QUEUED")));
        assert_eq!(client.reply(), Some(Reply::Array(vec![ok()])));
        early.ask(&["SELECT", database]);
        early.ask(&["MULTI"]);
        early.ask(&["SET", "k", "x"]);
        assert_eq!(other.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]), ok());
        early.send(&Client::request(&[b"EXEC"]));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(early.is_silent(), "database {database}");
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("w"));
        assert_eq!(other.ask(&["CLIENT", "UNPAUSE"]), ok());
        assert_eq!(early.reply(), Some(Reply::Array(vec![ok()])));
    });
}

#[test]
fn cluster_commands_are_disabled() {
    let door = Door::start(&[]);
    let mut client = door.client();
    for words in [
        &["CLUSTER", "SLOTS"][..],
        &["CLUSTER", "SHARDS"],
        &["CLUSTER", "NODES"],
        &["CLUSTER", "MYID"],
        &["CLUSTER", "MYSHARDID"],
        &["CLUSTER", "KEYSLOT", "k"],
        &["CLUSTER", "COUNTKEYSINSLOT", "1"],
        &["CLUSTER", "INFO"],
        &["CLUSTER", "LINKS"],
        &["CLUSTER", "RESET"],
        &["ASKING"],
        &["READONLY"],
        &["READWRITE"],
    ] {
        assert_eq!(client.ask(words).error(), DISABLED, "{words:?}");
    }
    assert_eq!(
        client.ask(&["CLUSTER", "KEYSLOT"]).error(),
        "ERR wrong number of arguments for 'cluster|keyslot' command"
    );
    assert_eq!(
        client.ask(&["CLUSTER", "OTHER"]).error(),
        "ERR unknown subcommand 'OTHER'. Try CLUSTER HELP."
    );
}

#[test]
fn conditions_are_checked_where_there_is_an_entry() {
    let door = with_table(&[]);
    each(&door, |client, _| {
        let digest = "must be exactly 16 hexadecimal characters";
        let invalid = "Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE";
        let zeros = "0000000000000000";
        for condition in ["IFEQ", "IFNE", "IFDEQ", "IFDNE", "OTHER"] {
            assert_eq!(client.ask(&["DELEX", "k", condition, "x"]), integer(0));
        }
        assert_eq!(client.ask(&["SET", "k", "v", "IFEQ", "x"]), Reply::Null);
        assert_eq!(client.ask(&["SET", "k", "v", "IFDEQ", "x"]), Reply::Null);
        assert_eq!(client.ask(&["SET", "k", "v", "IFNE", "x"]), ok());
        assert_eq!(client.ask(&["DEL", "k"]), integer(1));
        assert_eq!(client.ask(&["SET", "k", "v", "IFDNE", "x"]), ok());
        for words in [
            &["DELEX", "k", "IFDEQ", "x"][..],
            &["DELEX", "k", "IFDNE", "12345678901234567"],
            &["SET", "k", "w", "IFDEQ", "x"],
            &["SET", "k", "w", "IFDNE", ""],
        ] {
            assert_eq!(client.ask(words).error(), format!("ERR {digest}"));
        }
        assert_eq!(
            client.ask(&["DELEX", "k", "NX", "v"]).error(),
            format!("ERR {invalid}")
        );
        for other in [zeros, "zzzzzzzzzzzzzzzz"] {
            assert_eq!(client.ask(&["SET", "k", "w", "IFDEQ", other]), Reply::Null);
            assert_eq!(client.ask(&["DELEX", "k", "IFDEQ", other]), integer(0));
            assert_eq!(client.ask(&["SET", "k", "v", "IFDNE", other]), ok());
        }
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
        assert_eq!(client.ask(&["DELEX", "k", "IFDNE", zeros]), integer(1));
        for words in [
            &["DELEX", "k", "IFEQ"][..],
            &["DELEX", "k", "IFEQ", "v", "x"],
        ] {
            assert_eq!(
                client.ask(words).error(),
                "ERR wrong number of arguments for 'delex' command"
            );
        }
        assert_eq!(
            client.ask(&["MSETEX", "2", "a", "1", "b"]).error(),
            "ERR wrong number of key-value pairs"
        );
        // DELIFEQ is Valkey's form of DELEX IFEQ.
        assert_eq!(client.ask(&["DELIFEQ", "k", "v"]), integer(0));
        client.ask(&["SET", "k", "v"]);
        assert_eq!(client.ask(&["DELIFEQ", "k", "w"]), integer(0));
        assert_eq!(client.ask(&["DELIFEQ", "k", "v"]), integer(1));
        assert_eq!(client.ask(&["EXISTS", "k"]), integer(0));
    });
}

#[test]
fn options_of_client_kill_are_checked() {
    let door = Door::start(&[]);
    let mut client = door.client();
    for (words, error) in [
        (&["ID", "0"][..], "client-id should be greater than 0"),
        (&["ID", "-1"], "client-id should be greater than 0"),
        (&["ID", "x"], "client-id should be greater than 0"),
        (&["TYPE", "wrong"], "Unknown client type 'wrong'"),
        (&["MAXAGE", "0"], "maxage should be greater than 0"),
        (&["MAXAGE", "x"], "maxage is not an integer or out of range"),
        (&["SKIPME", "maybe"], "syntax error"),
        (&["ID", "1", "OTHER"], "syntax error"),
    ] {
        let reply = client.ask(&[&["CLIENT", "KILL"], words].concat());
        assert_eq!(reply.error(), format!("ERR {error}"), "{words:?}");
    }
    for kind in ["replica", "slave", "master"] {
        assert_eq!(client.ask(&["CLIENT", "KILL", "TYPE", kind]), integer(0));
        assert_eq!(
            client.ask(&["CLIENT", "LIST", "TYPE", kind]),
            Reply::bulk("")
        );
    }
}

#[test]
fn a_user_whose_clients_are_to_end_must_exist() {
    let door = Door::start(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut client = door.client();
    let mut kill = |words: &[&str]| client.ask(&[&["CLIENT", "KILL"], words].concat());
    let none = "ERR No such user 'nobody'";
    assert_eq!(kill(&["USER", "nobody"]).error(), none);
    assert_eq!(kill(&["USER", "nobody", "ID", "0"]).error(), none);
    assert_eq!(kill(&["USER", "nobody", "OTHER"]).error(), none);
    let wrong = kill(&["ID", "0", "USER", "nobody"]);
    assert_eq!(wrong.error(), "ERR client-id should be greater than 0");
    assert_eq!(kill(&["USER", ""]).error(), "ERR No such user ''");
    let long = "n".repeat(200);
    let reply = kill(&["USER", &long]);
    assert_eq!(reply.error(), format!("ERR No such user '{long}'"));
    // The command knows a role as soon as it is created, and until it is dropped.
    session.run("CREATE ROLE nobody LOGIN");
    pgcache_tests::wait::wait_for("the role is seen", || {
        (kill(&["USER", "nobody"]) == integer(0)).then_some(())
    });
    session.run("DROP ROLE nobody");
    pgcache_tests::wait::wait_for("its end is seen", || {
        let reply = kill(&["USER", "nobody"]);
        (reply != integer(0)).then(|| assert_eq!(reply.error(), none))
    });
    // `default` is the default role.
    assert_eq!(kill(&["USER", "default"]), integer(0));
    let mut other = door.client();
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
    assert_eq!(kill(&["USER", "default"]), integer(1));
    assert_eq!(other.reply(), None);
}

#[test]
fn a_client_is_listed_with_its_activity() {
    let door = with_table(&[]);
    each(&door, |client, _| {
        client.ask(&["GET", "k"]);
        client.ask(&["WATCH", "a", "b", "a"]);
        client.ask(&["WATCH", "a"]);
        let line = client.ask(&["CLIENT", "LIST", "TYPE", "normal"]).text();
        let line = line.lines().last().expect("there is one client");
        assert_eq!(field(line, "cmd"), "client|list");
        assert_eq!(field(line, "watch"), "2");
        let number = |name| field(line, name).parse::<usize>().expect("a number");
        assert_eq!(number("tot-cmds"), 4);
        let requests: [&[&[u8]]; 5] = [
            &[b"SELECT", b"0"],
            &[b"GET", b"k"],
            &[b"WATCH", b"a", b"b", b"a"],
            &[b"WATCH", b"a"],
            &[b"CLIENT", b"LIST", b"TYPE", b"normal"],
        ];
        let sent: usize = requests
            .map(|words| Client::request(words).len())
            .iter()
            .sum();
        assert_eq!(number("tot-net-in"), sent);
        assert_eq!(number("tot-net-out"), "+OK\r\n$-1\r\n+OK\r\n+OK\r\n".len());
        let info = client.ask(&["CLIENT", "INFO"]).text();
        assert_eq!(field(&info, "cmd"), "client|info");
    });
}

#[test]
fn commands_are_described_as_by_redis() {
    let door = Door::start(&[]);
    let mut client = door.client();
    let keys = |client: &mut Client, words: &[&str]| {
        client.ask(&[&["COMMAND", "GETKEYS"], words].concat())
    };
    assert_eq!(keys(&mut client, &["EVAL", "x", "0"]), Reply::Array(vec![]));
    assert_eq!(
        keys(&mut client, &["EVAL", "x", "9", "a"]),
        Reply::Array(vec![])
    );
    let one = Reply::Array(vec![Reply::bulk("a")]);
    assert_eq!(keys(&mut client, &["EVAL", "x", "1", "a", "b"]), one);
    assert_eq!(
        keys(&mut client, &["PING"]).error(),
        "ERR The command has no key arguments"
    );
    let mut listed = |words: &[&str]| {
        let Reply::Array(names) = client.ask(&[&["COMMAND", "LIST"], words].concat()) else {
            panic!("expected a list");
        };
        let mut names: Vec<String> = names.into_iter().map(Reply::text).collect();
        names.sort();
        names
    };
    assert_eq!(
        listed(&["FILTERBY", "ACLCAT", "Transaction"]),
        ["discard", "exec", "multi", "unwatch", "watch"]
    );
    assert!(listed(&["FILTERBY", "ACLCAT", "@transaction"]).is_empty());
    assert!(listed(&["FILTERBY", "ACLCAT", "other"]).is_empty());
    let connection = listed(&["FILTERBY", "ACLCAT", "connection"]);
    assert!(
        connection.contains(&"client|list".to_owned()),
        "{connection:?}"
    );
    assert!(listed(&[]).contains(&"client|list".to_owned()));
}

/// Returns a request of the command with this name (`get`, `client|id`) that has as few arguments as possible.
fn shortest_request(client: &mut Client, name: &str) -> Vec<String> {
    let Reply::Array(found) = client.ask(&["COMMAND", "INFO", name]) else {
        panic!("{name} has no description");
    };
    let Some(Reply::Array(description)) = found.first() else {
        panic!("{name} has no description");
    };
    let Some(&Reply::Integer(arity)) = description.get(1) else {
        panic!("{name} has no arity");
    };
    let mut request: Vec<String> = name.split('|').map(str::to_owned).collect();
    request.resize(arity.unsigned_abs() as usize, "1".to_owned());
    request
}

#[test]
fn each_command_of_the_table_has_a_function() {
    let door = with_table(&[]);
    each(&door, |client, database| {
        let Reply::Array(names) = client.ask(&["COMMAND", "LIST"]) else {
            panic!("expected a list");
        };
        assert!(names.len() > 150);
        for name in names {
            let Reply::Bulk(name) = name else {
                panic!("expected a name");
            };
            let name = String::from_utf8(name).expect("names are ASCII");
            let request = shortest_request(client, &name);
            // Some commands change which commands the client may send, so each gets a new client.
            let mut fresh = door.client();
            assert_eq!(fresh.ask(&["SELECT", database]), ok());
            let request: Vec<&str> = request.iter().map(String::as_str).collect();
            let reply = format!("{:?}", fresh.ask(&request));
            assert!(!reply.contains("is not supported"), "{name}: {reply}");
        }
    });
}

#[test]
fn the_frequency_of_a_key_is_that_of_its_eviction_policy() {
    let door = with_table(&[]);
    each(&door, |client, database| {
        let policy = client.ask(&["CONFIG", "GET", "maxmemory-policy"]);
        let expected = ["maxmemory-policy", "allkeys-lfu"].map(Reply::bulk);
        assert_eq!(policy, Reply::Array(expected.to_vec()));
        assert_eq!(client.ask(&["OBJECT", "FREQ", "k"]), Reply::Null);
        client.ask(&["SET", "k", "v"]);
        for _ in 0..5 {
            client.ask(&["GET", "k"]);
        }
        let Reply::Integer(used) = client.ask(&["OBJECT", "FREQ", "k"]) else {
            panic!("expected a number");
        };
        assert_eq!(used > 0, database == "0", "{used}");
        let error = client.ask(&["OBJECT", "IDLETIME", "k"]).error();
        assert!(error.starts_with("ERR An LFU maxmemory policy is selected"));
    });
}

#[test]
fn messages_of_an_exec_are_sent_at_its_commit() {
    let door = with_table(&[]);
    door.cluster.connect("postgres").run(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER fail BEFORE INSERT ON tab FOR EACH ROW WHEN (NEW.key = 'bad')
         EXECUTE FUNCTION fail()",
    );
    each(&door, |client, database| {
        wait_until("the reader of the other database is gone", || {
            client.ask(&["PUBSUB", "NUMPAT"]) == integer(0)
        });
        let mut reader = door.client();
        reader.ask(&["SUBSCRIBE", "news"]);
        reader.ask(&["PSUBSCRIBE", "n*"]);
        client.ask(&["MULTI"]);
        client.ask(&["SET", "result", "1"]);
        client.ask(&["PUBLISH", "news", "one"]);
        client.ask(&["PUBLISH", "other", "none"]);
        let replies = vec![ok(), integer(2), integer(0)];
        assert_eq!(client.ask(&["EXEC"]), Reply::Array(replies));
        let message = ["message", "news", "one"].map(Reply::bulk).to_vec();
        let by_pattern = ["pmessage", "n*", "news", "one"].map(Reply::bulk).to_vec();
        assert_eq!(reader.reply(), Some(Reply::Array(message)));
        assert_eq!(reader.reply(), Some(Reply::Array(by_pattern)));
        if database == "0" {
            return;
        }
        // A transaction that is rolled back sends nothing.
        client.ask(&["MULTI"]);
        client.ask(&["PUBLISH", "news", "two"]);
        client.ask(&["SET", "bad", "1"]);
        let error = client.ask(&["EXEC"]).error();
        assert!(error.starts_with("EXECABORT "), "{error}");
        client.ask(&["MULTI"]);
        client.ask(&["PUBLISH", "news", "three"]);
        assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![integer(2)]));
        let message = ["message", "news", "three"].map(Reply::bulk).to_vec();
        assert_eq!(reader.reply(), Some(Reply::Array(message)));
    });
}

#[test]
fn info_has_the_fields_of_dashboards() {
    let door = Door::start(&["pgcache.resp_caches = 'public.door, public.more, public.secret'"]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "SELECT cache_create('more', storage => 'memory', value_type => 'bytea');
         SELECT cache_create('secret', storage => 'memory', value_type => 'bytea');
         CREATE ROLE watcher LOGIN; GRANT SELECT ON door, more TO watcher;
         SELECT cache_set('a', '1', NULL, 'more'), cache_set('b', '1', NULL, 'more');
         SELECT cache_set('a', '1', NULL, 'secret');
         SELECT cache_set('c', '1', '1 ms', 'door'), pg_sleep(0.01)",
    );
    let info = |client: &mut Client, section: &str| client.ask(&["INFO", section]).text();
    let number = |text: &str, name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.parse::<f64>().expect("a number")
    };
    // INFO is the first command of the connection.
    let mut first = door.client();
    let text = info(&mut first, "keyspace");
    assert!(text.contains("db1:keys=2,"), "{text}");
    assert!(text.contains("db2:keys=1,"), "{text}");
    // A role sees only the caches that it may read.
    let mut watcher = door.client();
    assert_eq!(watcher.ask(&["AUTH", "watcher", "x"]), ok());
    let text = info(&mut watcher, "keyspace");
    assert!(text.contains("db1:keys=2,"), "{text}");
    assert!(!text.contains("db2:"), "{text}");
    assert_eq!(session.text("SELECT cache_expire('door')"), "1");
    let text = info(&mut first, "stats");
    assert_eq!(number(&text, "expired_keys"), 1.0, "{text}");
    assert_eq!(number(&text, "evicted_keys"), 0.0);
    let pipeline = Client::request(&[b"PING"]).repeat(1000);
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_millis(500) {
        first.send(&pipeline);
        (0..1000).for_each(|_| {
            first.reply();
        });
    }
    let text = info(&mut first, "stats");
    assert!(number(&text, "instantaneous_ops_per_sec") > 500.0, "{text}");
    let text = info(&mut first, "cpu");
    let used = number(&text, "used_cpu_user") + number(&text, "used_cpu_sys");
    assert!(used > 0.0, "{text}");
    let run = |client: &mut Client| {
        let text = info(client, "server");
        let line = text.lines().find_map(|line| line.strip_prefix("run_id:"));
        line.expect("there is one").to_owned()
    };
    assert_eq!(run(&mut first).len(), 40);
    assert_eq!(run(&mut first), run(&mut watcher));
    // A client that a pause holds back counts as blocked.
    assert_eq!(first.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]), ok());
    watcher.send(&Client::request(&[b"SET", b"k", b"v"]));
    pgcache_tests::wait::wait_for("it is held", || {
        (number(&info(&mut first, "clients"), "blocked_clients") == 1.0).then_some(())
    });
    assert_eq!(first.ask(&["CLIENT", "UNPAUSE"]), ok());
    assert!(watcher.reply().is_some());
    assert_eq!(number(&info(&mut first, "clients"), "blocked_clients"), 0.0);
}

/// Returns, for each database in INFO, the number of keys, the number of keys that expire, and their mean remaining
/// time in seconds.
fn keyspace(client: &mut Client) -> Vec<(String, [u64; 3])> {
    let text = client.ask(&["INFO", "keyspace"]).text();
    let line = |line: &str| {
        let (database, fields) = line.split_once(':')?;
        let fields = fields.replace(',', " ");
        let number = |name| field(&fields, name).parse::<u64>().expect("a number");
        let numbers = [number("keys"), number("expires"), number("avg_ttl") / 1000];
        Some((database.to_owned(), numbers))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn info_counts_entries_of_all_caches_and_those_that_expire() {
    let caches = "pgcache.resp_caches = 'public.door, public.tab, public.att, public.part, public.hidden, public.secret'";
    let door = Door::start(&[caches, "autovacuum = off"]);
    let mut session = door.cluster.connect("postgres");
    session.run(
        "SELECT cache_create('tab', value_type => 'bytea'), cache_create('secret');
         CREATE TABLE att (k bigint PRIMARY KEY, v text, e timestamptz);
         SELECT cache_attach('att', NULL, 'k', 'v', 'e');
         CREATE TABLE part (key text PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY HASH (key);
         CREATE TABLE part_1 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE part_2 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         SELECT cache_attach('part');
         SELECT cache_create('hidden'); ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
         CREATE ROLE watcher LOGIN; GRANT SELECT ON door, tab, att, part, hidden TO watcher;
         INSERT INTO att VALUES (1, 'a', NULL), (2, 'b', now() + '1000 s'), (3, 'c', now() - interval '1 s');
         SELECT cache_set(k::text, 'v', CASE WHEN k < 3 THEN interval '2000 s' END, 'part') FROM generate_series(1, 9) k;
         SELECT cache_set('a', '1', NULL, 'secret'), cache_set('a', '1', '5 s', 'hidden'), pg_stat_force_next_flush()",
    );
    let mut writer = door.client();
    for database in ["0", "1"] {
        writer.ask(&["SELECT", database]);
        writer.ask(&["MSET", "a", "1", "b", "1", "c", "1", "d", "1", "e", "1"]);
        writer.ask(&["SET", "a", "2", "EX", "100"]);
        writer.ask(&["SET", "b", "2", "EX", "100"]);
        writer.ask(&["EXPIRE", "c", "300"]);
        writer.ask(&["PERSIST", "b"]);
        writer.ask(&["SET", "e", "2", "EX", "100"]);
        writer.ask(&["DEL", "e"]);
        writer.ask(&["GET", "a"]);
    }
    // INFO is the first command of the connection, and the role may not read one of the caches.
    let mut watcher = door.client();
    assert_eq!(watcher.ask(&["AUTH", "watcher", "x"]), ok());
    let found = keyspace(&mut watcher);
    let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names[..4], ["db0", "db1", "db2", "db3"], "{found:?}");
    let [memory, table, attached, parts] = [0, 1, 2, 3].map(|at| found[at].1);
    assert_eq!(memory[..2], [4, 2], "{found:?}");
    assert_eq!(table[..2], [4, 2], "{found:?}");
    assert!((195..=200).contains(&memory[2]), "{found:?}");
    assert!((195..=200).contains(&table[2]), "{found:?}");
    assert_eq!(attached[..2], [2, 1], "{found:?}");
    assert_eq!(parts[..2], [9, 2], "{found:?}");
    assert!(!names.contains(&"db5"), "{found:?}");
    // For rows that policies hide, INFO shows only Postgres' public row estimate.
    pgcache_tests::wait::wait_for("it is counted", || {
        let found = keyspace(&mut watcher);
        let hidden = found.iter().find(|(name, _)| name == "db4");
        hidden
            .is_some_and(|(_, numbers)| *numbers == [1, 0, 0])
            .then_some(())
    });
    // INFO reads only some blocks of a large table.
    session.run(
        "SELECT pg_stat_force_next_flush();
         INSERT INTO tab SELECT 'k' || k, 'v', CASE WHEN k % 2 = 0 THEN now() + '3000 s' END
         FROM generate_series(1, 100000) k",
    );
    pgcache_tests::wait::wait_for("it is counted", || {
        let (_, [keys, expires, left]) = keyspace(&mut watcher)[1];
        let near = |number: u64, expected: u64| number.abs_diff(expected) < expected / 20;
        (near(keys, 100_004) && near(expires, 50_002) && near(left, 3000)).then_some(())
    });
    let read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'tab'";
    let read = pgcache_tests::wait::wait_for("what was read is reported", || {
        let read: u64 = session.text(read).parse().expect("a number");
        (read > 0).then_some(read)
    });
    assert!(read < 50_000, "{read} rows were read");
}

#[test]
fn increx_counts_within_bounds() {
    let door = with_table(&[]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE reader LOGIN; GRANT SELECT, INSERT ON door, tab TO reader");
    let both = |value: i64, applied: i64| Reply::Array(vec![integer(value), integer(applied)]);
    let floats =
        |value: &str, applied: &str| Reply::Array([value, applied].map(Reply::bulk).to_vec());
    each(&door, |client, database| {
        let mut increx = |words: &[&str]| client.ask(&[&["INCREX", "n"], words].concat());
        assert_eq!(increx(&[]), both(1, 1));
        assert_eq!(increx(&["BYINT", "9"]), both(10, 9));
        assert_eq!(increx(&["byint", "-4", "lbound", "0"]), both(6, -4));
        // A sum out of bounds changes nothing.
        assert_eq!(
            increx(&["BYINT", "5", "UBOUND", "10", "EX", "100"]),
            both(6, 0)
        );
        assert_eq!(
            increx(&["BYINT", "-7", "LBOUND", "0", "PERSIST"]),
            both(6, 0)
        );
        assert_eq!(increx(&["BYINT", "-1", "UBOUND", "2"]), both(6, 0));
        assert_eq!(
            increx(&["SATURATE", "BYINT", "5", "UBOUND", "10"]),
            both(10, 4)
        );
        assert_eq!(
            increx(&["BYINT", "-1", "UBOUND", "2", "SATURATE"]),
            both(2, -8)
        );
        let (most, least) = (i64::MAX.to_string(), i64::MIN.to_string());
        assert_eq!(increx(&["BYINT", &most]), both(2, 0));
        assert_eq!(
            increx(&["BYINT", &most, "SATURATE"]),
            both(i64::MAX, i64::MAX - 2)
        );
        let error = increx(&["BYINT", &least, "UBOUND", "-2", "SATURATE"]);
        assert_eq!(error.error(), "ERR applied increment would overflow");
        // INCREX also sets deadlines.
        client.ask(&["SET", "n", "1"]);
        let mut increx = |words: &[&str], left: i64| {
            let reply = client.ask(&[&["INCREX", "n"], words].concat());
            assert_eq!(client.ask(&["TTL", "n"]), integer(left), "{words:?}");
            reply
        };
        assert_eq!(increx(&["EX", "100", "ENX"], 100), both(2, 1));
        assert_eq!(increx(&["EX", "900", "ENX"], 100), both(3, 1));
        assert_eq!(increx(&[], 100), both(4, 1));
        assert_eq!(increx(&["EX", "900", "UBOUND", "4"], 100), both(4, 0));
        assert_eq!(
            increx(&["UBOUND", "4", "SATURATE", "PX", "200000"], 200),
            both(4, 0)
        );
        assert_eq!(increx(&["PERSIST"], -1), both(5, 1));
        assert_eq!(
            increx(&["EXAT", "99999999999", "PERSIST"], -1).error(),
            "ERR syntax error"
        );
        // A deadline in the past removes the entry.
        assert_eq!(increx(&["PXAT", "1"], -2), both(6, 1));
        // If the sum is refused, INCREX stores nothing.
        assert_eq!(increx(&["UBOUND", "0"], -2), both(0, 0));
        // INCREX accepts numbers with decimal places.
        let mut increx = |words: &[&str]| client.ask(&[&["INCREX", "f"], words].concat());
        assert_eq!(increx(&["BYFLOAT", "1.5"]), floats("1.5", "1.5"));
        assert_eq!(
            increx(&["BYFLOAT", "-0.25", "LBOUND", "0"]),
            floats("1.25", "-0.25")
        );
        assert_eq!(
            increx(&["BYFLOAT", "1", "UBOUND", "2"]),
            floats("1.25", "0")
        );
        assert_eq!(
            increx(&["BYFLOAT", "1", "UBOUND", "2", "SATURATE"]),
            floats("2", "0.75")
        );
        for (words, error) in [
            (
                &["BYINT", "x"][..],
                "value is not an integer or out of range",
            ),
            (&["BYFLOAT", "x"], "value is not a valid float"),
            (
                &["LBOUND", "1.5"],
                "LBOUND is not an integer or out of range",
            ),
            (&["UBOUND", "x"], "UBOUND is not an integer or out of range"),
            (
                &["BYFLOAT", "1", "UBOUND", "x"],
                "UBOUND is not a valid float",
            ),
            (
                &["LBOUND", "2", "UBOUND", "1"],
                "LBOUND can't be greater than UBOUND",
            ),
            (&["ENX"], "ENX flag requires an expiration"),
            (&["ENX", "PERSIST"], "syntax error"),
            (&["BYINT", "1", "BYFLOAT", "1"], "syntax error"),
            (&["BYINT"], "syntax error"),
            (&["EX", "1", "PX", "1"], "syntax error"),
            (&["NX"], "syntax error"),
            (&["KEEPTTL"], "syntax error"),
            (&["EX", "0"], "invalid expire time in 'increx' command"),
            (&["EX", "x"], "value is not an integer or out of range"),
        ] {
            assert_eq!(increx(words).error(), format!("ERR {error}"), "{words:?}");
        }
        client.ask(&["SET", "f", "1.5"]);
        let no_integer = client.ask(&["INCREX", "f"]);
        assert_eq!(
            no_integer.error(),
            "ERR value is not an integer or out of range"
        );
        // Run INCREX in a transaction, and with a role that may not update.
        client.ask(&["MULTI"]);
        client.ask(&["INCREX", "m", "EX", "100"]);
        client.ask(&["INCREX", "m", "UBOUND", "1"]);
        assert_eq!(
            client.ask(&["EXEC"]),
            Reply::Array(vec![both(1, 1), both(1, 0)])
        );
        client.ask(&["HELLO", "3"]);
        let doubles = client.ask(&["INCREX", "m", "BYFLOAT", "0.5"]);
        let expected = [",1.5", ",0.5"].map(|number| Reply::Other(number.into()));
        assert_eq!(doubles, Reply::Array(expected.to_vec()));
        let mut reader = door.client();
        assert_eq!(reader.ask(&["AUTH", "reader", "x"]), ok());
        reader.ask(&["SELECT", database]);
        let error = reader.ask(&["INCREX", "m"]).error();
        assert!(error.starts_with("NOPERM"), "{error}");
    });
    let mut client = door.client();
    let Reply::Array(described) = client.ask(&["COMMAND", "INFO", "increx"]) else {
        panic!("expected a description");
    };
    let Reply::Array(row) = &described[0] else {
        panic!("expected a row, got {described:?}");
    };
    assert_eq!(row[1..2], [integer(-2)]);
    assert_eq!(row[3..6], [1, 1, 1].map(integer));
    assert_eq!(
        client.ask(&["INCREX"]).error(),
        "ERR wrong number of arguments for 'increx' command"
    );
}
