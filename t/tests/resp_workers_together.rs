//! Tests several network processes: commands that act on all of them, and atomicity across them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::keys::Keys;
use pgcache_tests::network_processes::{
    CONF, id, one_of_each, spread, three, wait_until_all_serve,
};
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::wait::wait_until;

fn ok() -> Reply {
    Reply::status("OK")
}

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(number) => *number,
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).parse().expect("a number"),
        other => panic!("expected a number, got {other:?}"),
    }
}

/// The number of commands between the two commands that a test checks. They take some 100 µs, so that other clients get
/// the chance to act in between.
const BETWEEN: usize = 300;

/// Sends a transaction of these commands in one piece. Returns the reply to EXEC.
fn transaction(client: &mut Client, commands: &[Vec<&str>]) -> Reply {
    let mut bytes = Client::request(&[b"MULTI"]);
    for words in commands {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        bytes.extend(Client::request(&words));
    }
    bytes.extend(Client::request(&[b"EXEC"]));
    assert!(client.send(&bytes));
    let replies = (0..commands.len() + 2).map(|_| client.reply().unwrap());
    replies.last().unwrap()
}

/// Increments the key in a transaction that fails if another client has changed the key. All clients begin at the same
/// moment. Returns whether the transaction succeeded.
fn add_one(client: &mut Client, starts: &Barrier) -> bool {
    client.ask(&["WATCH", "n"]);
    let next = (number(&client.ask(&["GET", "n"])) + 1).to_string();
    let mut commands = vec![vec!["GET", "other"]; 10 * BETWEEN];
    starts.wait();
    commands.push(vec!["SET", "n", &next]);
    transaction(client, &commands) != Reply::Null
}

#[test]
fn a_watched_key_is_changed_by_one_transaction_of_all_network_processes() {
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    assert_eq!(clients[0].1.ask(&["SET", "n", "0"]), ok());
    let starts = Barrier::new(clients.len());
    let done: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|(_, client)| {
                let starts = &starts;
                scope.spawn(move || (0..200).filter(|_| add_one(client, starts)).count())
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let now = number(&clients[0].1.ask(&["GET", "n"]));
    assert_eq!(now, done as i64);
}

/// Acquires all keys with MSETNX. Returns whether it succeeded.
fn take(client: &mut Client, keys: &[String], own: &str) -> bool {
    let pairs = keys.iter().flat_map(|key| [key.as_str(), own]);
    let words: Vec<&str> = std::iter::once("MSETNX").chain(pairs).collect();
    client.ask(&words) == Reply::Integer(1)
}

/// Several clients of all network processes set the same keys together. Exactly one of them succeeds.
#[test]
fn keys_are_taken_together_by_one_client_of_all_network_processes() {
    const ROUNDS: usize = 300;
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    let keys = |round: usize| (0..BETWEEN).map(move |number| format!("{round}:{number}"));
    let starts = Barrier::new(clients.len());
    let taken: Vec<BTreeSet<usize>> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(own, (_, client))| {
                let (keys, starts) = (&keys, &starts);
                scope.spawn(move || {
                    let take_round = |round: &usize| {
                        let mut keys: Vec<String> = keys(*round).collect();
                        // One client names the keys in the reverse order.
                        if own == 0 {
                            keys.reverse();
                        }
                        starts.wait();
                        take(client, &keys, &own.to_string())
                    };
                    (0..ROUNDS).filter(take_round).collect()
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    let taken = |own: usize, round: usize| taken[own].contains(&round);
    for round in 0..ROUNDS {
        let owners: Vec<usize> = (0..3).filter(|&own| taken(own, round)).collect();
        assert_eq!(owners.len(), 1, "{round}");
        let words: Vec<String> = keys(round).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let values = clients[0].1.ask(&[&["MGET"], &words[..]].concat());
        let own = Reply::bulk(owners[0].to_string());
        assert_eq!(values, Reply::Array(vec![own; BETWEEN]), "{round}");
    }
}

/// Two keys change together. A transaction must never see only one of the two changes.
#[test]
fn transactions_of_different_network_processes_are_serialized() {
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    std::thread::scope(|scope| {
        for (_, client) in &mut clients {
            scope.spawn(move || {
                let mut commands = vec![vec!["APPEND", "x", "."]];
                commands.extend(vec![vec!["STRLEN", "x"]; BETWEEN]);
                commands.push(vec!["APPEND", "y", "."]);
                for round in 0..200 {
                    let Reply::Array(lengths) = transaction(client, &commands) else {
                        panic!("nothing was watched");
                    };
                    let is_first = |length: &Reply| *length == lengths[0];
                    assert!(lengths.iter().all(is_first), "{round}: {lengths:?}");
                }
            });
        }
    });
}

#[test]
fn clients_of_all_network_processes_are_listed_ended_and_paused() {
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    let ids: Vec<i64> = clients.iter_mut().map(|(_, client)| id(client)).collect();
    let (_, mut first) = clients.remove(0);
    let listed = |client: &mut Client| -> BTreeSet<i64> {
        let text = client.ask(&["CLIENT", "LIST"]).text();
        let ids = text.lines().filter_map(|line| line.strip_prefix("id="));
        ids.map(|line| line.split(' ').next().unwrap().parse().unwrap())
            .collect()
    };
    assert_eq!(listed(&mut first), ids.iter().copied().collect());
    let info = first.ask(&["INFO", "clients"]).text();
    assert!(info.contains("connected_clients:3\r\n"), "{info}");
    // After the reply to CLIENT PAUSE, every network process holds back the commands that arrive.
    for round in 0..20 {
        assert_eq!(first.ask(&["CLIENT", "PAUSE", "100000", "WRITE"]), ok());
        for (_, client) in &mut clients {
            assert!(client.send(&Client::request(&[b"SET", b"held", b"v"])));
            assert_eq!(first.ask(&["GET", "held"]), Reply::Null, "{round}");
        }
        assert_eq!(first.ask(&["CLIENT", "UNPAUSE"]), ok());
        for (_, client) in &mut clients {
            assert_eq!(client.reply(), Some(ok()));
        }
        assert_eq!(first.ask(&["DEL", "held"]), Reply::Integer(1));
    }
    let (_, mut ended) = clients.remove(0);
    let kill = ["CLIENT", "KILL", "ID", &ids[1].to_string()];
    assert_eq!(first.ask(&kill), Reply::Integer(1));
    ended.wait_for_end();
    wait_until("it is on no list", || !listed(&mut first).contains(&ids[1]));
    let mut session = door.cluster.connect("postgres");
    let row = session.query_one("SELECT pgcache.resp_kill($1)", &[&ids[2]]);
    assert!(row.unwrap().get::<_, bool>(0));
    clients[0].1.wait_for_end();
    let killed = "SELECT killed::text FROM pgcache.resp_stats";
    wait_until("both are counted", || session.text(killed) == "2");
}

#[test]
fn limits_hold_for_all_network_processes_together() {
    let door = three(&["pgcache.resp_max_clients = 7"]);
    let mut clients: Vec<Client> = (0..7).map(|_| door.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    }
    let refused = Reply::Error("ERR max number of clients reached".into());
    assert_eq!(door.client().reply(), Some(refused.clone()));
    clients.truncate(5);
    wait_until("two have gone", || spread(&door).values().sum::<i64>() == 5);
    let mut more = [door.client(), door.client()];
    for client in &mut more {
        assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    }
    assert_eq!(door.client().reply(), Some(refused));
    drop((clients, more));
    wait_until("all have gone", || spread(&door).is_empty());
    // The connection limit of a role counts clients of all network processes.
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE ROLE app LOGIN CONNECTION LIMIT 2");
    let mut clients = one_of_each(&door);
    let came = clients
        .iter_mut()
        .map(|(_, client)| client.ask(&["AUTH", "app", "x"]))
        .collect::<Vec<_>>();
    assert_eq!(came[..2], [ok(), ok()]);
    assert!(came[2].clone().error().contains("too many connections"));
    assert_eq!(clients[0].1.ask(&["AUTH", "app", "x"]), ok());
    drop(clients.remove(0));
    wait_until("one has gone", || spread(&door).len() == 2);
    assert_eq!(clients[1].1.ask(&["AUTH", "app", "x"]), ok());
}

#[test]
fn a_client_is_notified_of_changes_through_other_network_processes() {
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    let (_, mut writer) = clients.pop().unwrap();
    for (_, client) in &mut clients {
        client.ask(&["HELLO", "3"]);
        assert_eq!(client.ask(&["CLIENT", "TRACKING", "ON", "NOLOOP"]), ok());
    }
    let told = Reply::Push(vec![
        Reply::bulk("invalidate"),
        Reply::Array(vec![Reply::bulk("k")]),
    ]);
    for round in 0..100 {
        assert_eq!(writer.ask(&["SET", "k", &round.to_string()]), ok());
        for (_, client) in &mut clients {
            assert_eq!(client.ask(&["GET", "k"]), Reply::bulk(round.to_string()));
        }
        assert_eq!(writer.ask(&["DEL", "k"]), Reply::Integer(1));
        for (_, client) in &mut clients {
            assert_eq!(client.reply(), Some(told.clone()));
        }
    }
    let info = writer.ask(&["INFO", "clients"]).text();
    assert!(info.contains("tracking_clients:2\r\n"), "{info}");
    // REDIRECT works only if the target is a client of the same network process.
    let other = id(&mut clients[0].1).to_string();
    let refused = writer.ask(&["CLIENT", "TRACKING", "ON", "REDIRECT", &other]);
    assert!(refused.error().contains("served by another process"));
    let nobody = writer.ask(&["CLIENT", "TRACKING", "ON", "REDIRECT", "1000000"]);
    assert!(nobody.error().contains("does not exist"));
}

#[test]
fn certificates_and_settings_count_in_each_network_process() {
    let door = Door::fresh(&CONF);
    let keys = Keys::beside(door.cluster);
    let settings = keys.settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    door.cluster.configure(&settings);
    door.cluster.configure(&["pgcache.resp_tls = on"]);
    door.cluster.up();
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "CREATE EXTENSION pgcache;
         SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea');
         SELECT cache_create('public.other', storage => 'memory', value_type => 'bytea')"
    ));
    wait_until_all_serve(&door);
    let config = keys.client(None);
    let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut clients: Vec<Client> = (0..9)
        .map(|_| door.try_tls(home, &config).unwrap())
        .collect();
    for client in &mut clients {
        assert_eq!(client.ask(&["SET", "k", "v"]), ok());
    }
    assert_eq!(spread(&door).len(), 3);
    for client in &mut clients {
        client.ask(&["SELECT", "1"]).error();
    }
    session.run(&format!(
        "ALTER SYSTEM SET pgcache.resp_caches = '{CACHE}, public.other'"
    ));
    session.run("SELECT pg_reload_conf()");
    for client in &mut clients {
        wait_until("there is a second database", || {
            client.ask(&["SELECT", "1"]) == ok()
        });
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    }
    // A revoked privilege takes effect in each network process at once.
    session.run("CREATE ROLE app LOGIN; GRANT SELECT ON public.other TO app");
    for client in &mut clients {
        assert_eq!(client.ask(&["AUTH", "app", "x"]), ok());
    }
    for _ in 0..20 {
        session.run("REVOKE SELECT ON public.other FROM app");
        for client in &mut clients {
            client.ask(&["GET", "k"]).error();
        }
        session.run("GRANT SELECT ON public.other TO app");
        for client in &mut clients {
            assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        }
    }
}

#[test]
fn a_forced_drop_of_the_database_restarts_all_network_processes() {
    let conf = [&CONF[..], &["pgcache.resp_database = 'served'"]].concat();
    let door = Door::without_cache(&conf);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    for _ in 0..3 {
        session.run("CREATE DATABASE served");
        wait_until_all_serve(&door);
        let mut clients = one_of_each(&door);
        assert!(session.batch_execute("DROP DATABASE served").is_err());
        session.run("DROP DATABASE served WITH (FORCE)");
        for (_, client) in &mut clients {
            client.wait_for_end();
        }
        wait_until("no network is left", || {
            door.processes("pgcache resp network").is_empty()
        });
    }
    let began = Instant::now();
    session.run("CREATE DATABASE served");
    wait_until_all_serve(&door);
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(!door.cluster.log_text().contains("FATAL:  database"));
}
