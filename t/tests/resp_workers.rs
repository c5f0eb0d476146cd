//! Tests several network processes: how clients are distributed, and how clients of different processes affect each
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use pgcache_tests::ask::Ask;
use pgcache_tests::network_processes::{one_of_each, pid, spread, three, wait_until_all_serve};
use pgcache_tests::resp::{Client, Door, Reply};
use pgcache_tests::wait::wait_until;

const NETWORK: &str = "pgcache resp network";

fn ok() -> Reply {
    Reply::status("OK")
}

/// Returns the network process that listens on the port, which is the process with a socket of this port in the state
/// LISTEN.
fn listening_network(door: &Door) -> i32 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", door.port);
    let inode = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[1].ends_with(&port) && fields[3] == "0A").then(|| fields[9].to_owned())
    });
    let socket = format!("socket:[{}]", inode.expect("a socket listens"));
    let networks = door.processes(NETWORK);
    *networks
        .iter()
        .find(|pid| sockets(**pid).contains(&socket))
        .expect("a network process listens")
}

/// Returns the sockets of a process, as /proc names them.
fn sockets(pid: i32) -> BTreeSet<String> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return BTreeSet::new();
    };
    open.flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .map(|target| target.display().to_string())
        .filter(|target| target.starts_with("socket:"))
        .collect()
}

fn terminate(door: &Door, pid: i32) {
    let mut session = door.cluster.connect("postgres");
    session
        .execute("SELECT pg_terminate_backend($1)", &[&pid])
        .unwrap();
}

fn numbers(reply: Reply) -> Vec<i64> {
    let Reply::Array(all) = reply else {
        panic!("expected an array, got {reply:?}");
    };
    all.into_iter()
        .filter_map(|element| match element {
            Reply::Integer(number) => Some(number),
            _ => None,
        })
        .collect()
}

#[test]
fn clients_are_spread_evenly_and_each_descriptor_is_in_one_process() {
    let door = three(&[]);
    let mut clients: Vec<Client> = (0..15).map(|_| door.client()).collect();
    clients.extend((0..15).map(|_| door.tcp()));
    for client in &mut clients {
        assert_eq!(client.ask(&["PING"]), Reply::status("PONG"));
    }
    let spread = spread(&door);
    assert!(spread.values().all(|&count| count == 10), "{spread:?}");
    let mut seen: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for pid in door.cluster.processes() {
        for socket in sockets(pid) {
            seen.entry(socket).or_default().push(pid);
        }
    }
    let networks = door.processes(NETWORK);
    let of_fronts = seen
        .values()
        .filter(|pids| pids.iter().any(|pid| networks.contains(pid)));
    // The sockets are a listener of the port, a listener of the path, two inboxes, an outbox, and the clients. Ignore
    // sockets that the server's processes inherit from each other.
    let alone = of_fronts.filter(|pids| pids.len() == 1).count();
    const EXPECTED: usize = 30 + 2 + 2 + 1;
    assert!(alone >= EXPECTED, "{alone}");
    // A network process with many clients gets no more clients until the other processes have as many.
    let first = *spread.keys().next().unwrap();
    clients.retain_mut(|client| pid(&door, client) != first);
    wait_until("ten have gone", || {
        pgcache_tests::network_processes::spread(&door).len() == 2
    });
    clients.extend((0..10).map(|_| door.client()));
    wait_until("ten have come", || {
        pgcache_tests::network_processes::spread(&door)
            .values()
            .all(|&count| count == 10)
    });
}

#[test]
fn a_network_process_that_ends_drops_only_its_own_clients() {
    let door = three(&[]);
    let listening = listening_network(&door);
    let mut clients = one_of_each(&door);
    let at = clients.iter().position(|(pid, _)| *pid != listening);
    let (ended, mut client) = clients.remove(at.expect("two do not listen"));
    terminate(&door, ended);
    client.wait_for_end();
    for (_, client) in &mut clients {
        assert_eq!(client.ask(&["SET", "k", "v"]), ok());
    }
    wait_until("there are three again", || {
        door.processes(NETWORK).len() == 3
    });
    drop(clients);
    wait_until_all_serve(&door);
    // If the process that listens ends, its successor listens.
    let mut clients = one_of_each(&door);
    let listening = listening_network(&door);
    let at = clients.iter().position(|(pid, _)| *pid == listening);
    let (ended, mut client) = clients.remove(at.expect("it has a client"));
    terminate(&door, ended);
    client.wait_for_end();
    for (_, client) in &mut clients {
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    }
    assert_eq!(door.tcp().ask(&["GET", "k"]), Reply::bulk("v"));
    drop(clients);
    wait_until_all_serve(&door);
    assert_ne!(listening_network(&door), listening);
}

#[test]
fn messages_reach_and_count_readers_of_all_network_processes() {
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    let (_, mut publisher) = clients.pop().unwrap();
    let (_, mut by_pattern) = clients.pop().unwrap();
    let (_, mut direct) = clients.pop().unwrap();
    let published = |publisher: &mut Client, text: &str| publisher.ask(&["PUBLISH", "news", text]);
    assert_eq!(published(&mut publisher, "nobody"), Reply::Integer(0));
    for round in 0..50 {
        direct.ask(&["SUBSCRIBE", "news"]);
        assert_eq!(
            published(&mut publisher, "one"),
            Reply::Integer(1),
            "{round}"
        );
        by_pattern.ask(&["PSUBSCRIBE", "n*"]);
        assert_eq!(
            published(&mut publisher, "two"),
            Reply::Integer(2),
            "{round}"
        );
        let message =
            |text: &str| Reply::Array(["message", "news", text].map(Reply::bulk).to_vec());
        assert_eq!(direct.reply(), Some(message("one")));
        assert_eq!(direct.reply(), Some(message("two")));
        let matched = ["pmessage", "n*", "news", "two"].map(Reply::bulk).to_vec();
        assert_eq!(by_pattern.reply(), Some(Reply::Array(matched)));
        assert_eq!(
            publisher.ask(&["PUBSUB", "CHANNELS"]),
            Reply::Array(vec![Reply::bulk("news")])
        );
        let numsub = publisher.ask(&["PUBSUB", "NUMSUB", "news", "olds"]);
        assert_eq!(numbers(numsub), [1, 0]);
        assert_eq!(publisher.ask(&["PUBSUB", "NUMPAT"]), Reply::Integer(1));
        direct.ask(&["UNSUBSCRIBE"]);
        by_pattern.ask(&["PUNSUBSCRIBE"]);
        assert_eq!(
            published(&mut publisher, "none"),
            Reply::Integer(0),
            "{round}"
        );
        assert_eq!(publisher.ask(&["PUBSUB", "NUMPAT"]), Reply::Integer(0));
    }
    // PUBLISH in a transaction also reaches all network processes, and so do messages that SQL publishes.
    direct.ask(&["SUBSCRIBE", "news"]);
    publisher.ask(&["MULTI"]);
    publisher.ask(&["PUBLISH", "news", "of exec"]);
    assert_eq!(numbers(publisher.ask(&["EXEC"])), [1]);
    by_pattern.ask(&["PSUBSCRIBE", "*"]);
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT pgcache.publish('news', 'of sql')");
    let text = |reply: Option<Reply>| match reply {
        Some(Reply::Array(parts)) => parts.last().unwrap().clone(),
        other => panic!("expected a message, got {other:?}"),
    };
    assert_eq!(text(direct.reply()), Reply::bulk("of exec"));
    assert_eq!(text(direct.reply()), Reply::bulk("of sql"));
    assert_eq!(text(by_pattern.reply()), Reply::bulk("of sql"));
    // This message is too long for the ring through which other processes receive messages.
    let long = "x".repeat(2 << 20);
    let refused = published(&mut publisher, &long).error();
    assert!(refused.contains("at most 1 MB"), "{refused}");
    drop(direct);
    drop(by_pattern);
    wait_until("no client is subscribed", || {
        published(&mut publisher, &long) == Reply::Integer(0)
    });
}

#[test]
fn readers_of_an_ended_network_process_are_not_counted() {
    let door = three(&[]);
    let mut clients = one_of_each(&door);
    let listening = listening_network(&door);
    let at = clients.iter().position(|(pid, _)| *pid != listening);
    let (ended, mut reader) = clients.remove(at.unwrap());
    let (_, mut publisher) = clients.pop().unwrap();
    reader.ask(&["SUBSCRIBE", "news"]);
    assert_eq!(publisher.ask(&["PUBLISH", "news", "x"]), Reply::Integer(1));
    terminate(&door, ended);
    reader.reply();
    reader.wait_for_end();
    wait_until("it is counted no more", || {
        publisher.ask(&["PUBLISH", "news", "x"]) == Reply::Integer(0)
    });
    wait_until("there are three again", || {
        door.processes(NETWORK).len() == 3
    });
    assert_eq!(publisher.ask(&["PUBLISH", "news", "x"]), Reply::Integer(0));
    let numsub = publisher.ask(&["PUBSUB", "NUMSUB", "news"]);
    assert_eq!(numbers(numsub), [0]);
}

/// The table of a network process has too little room for the names of all subscriptions. No message is lost, but
/// subscribers are counted only for the names in the table.
#[test]
fn channels_without_room_in_the_table_are_read_all_the_same() {
    let door = three(&[]);
    let mut by_front: BTreeMap<i32, Vec<Client>> = BTreeMap::new();
    for _ in 0..15 {
        let mut client = door.client();
        let network = pid(&door, &mut client);
        by_front.entry(network).or_default().push(client);
    }
    let (_, mut readers) = by_front.pop_first().unwrap();
    let mut publisher = by_front.pop_first().unwrap().1.pop().unwrap();
    assert_eq!(readers.len(), 5);
    let name = |reader: usize, number: usize| format!("{reader}:{number}");
    for (at, reader) in readers.iter_mut().enumerate() {
        let mut words = vec!["SUBSCRIBE".to_owned()];
        words.extend((0..4000).map(|number| name(at, number)));
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        assert!(reader.send(&Client::request(&words)));
        for _ in 0..4000 {
            reader.reply().unwrap();
        }
    }
    for (at, reader) in readers.iter_mut().enumerate() {
        for number in [0, 1999, 3999] {
            let name = name(at, number);
            publisher.ask(&["PUBLISH", &name, "x"]);
            let message = ["message", &name, "x"].map(Reply::bulk).to_vec();
            assert_eq!(reader.reply(), Some(Reply::Array(message)));
        }
    }
    // Once there is room for all names, all subscribers are counted again.
    let mut last = readers.pop().unwrap();
    readers.drain(1..);
    wait_until("the last ones are counted", || {
        last.ask(&["PUNSUBSCRIBE"]);
        publisher.ask(&["PUBLISH", &name(4, 3999), "y"]) == Reply::Integer(1)
    });
}
