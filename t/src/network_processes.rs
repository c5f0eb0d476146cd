//! A server that serves the Redis protocol with several network processes.

use std::collections::BTreeMap;

use crate::resp::{Client, Door, Reply};
use crate::wait::wait_until;

/// The number of network processes.
pub const NETWORKS: usize = 3;
/// The settings that start three network processes.
pub const CONF: [&str; 2] = ["pgcache.resp_workers = 3", "max_worker_processes = 12"];

/// Starts a server with three network processes that accept clients.
pub fn three(conf: &[&str]) -> Door {
    let door = Door::start(&[&CONF[..], conf].concat());
    wait_until_all_serve(&door);
    door
}

/// Returns the number of connected clients of each network process, by its pid.
pub fn spread(door: &Door) -> BTreeMap<i32, i64> {
    let mut session = door.cluster.connect("postgres");
    let sql = "SELECT pid, count(*) FROM pgcache.resp_clients GROUP BY pid";
    let rows = session.query(sql, &[]).expect("the view can be read");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Waits until every network process receives new connections.
pub fn wait_until_all_serve(door: &Door) {
    wait_until("three networks serve", || {
        let mut clients: Vec<Client> = (0..NETWORKS).map(|_| door.client()).collect();
        let replied = clients
            .iter_mut()
            .all(|client| client.ask_if_open(&["PING"]).is_some());
        replied && spread(door).len() == NETWORKS
    });
    wait_until("their clients have gone", || spread(door).is_empty());
}

/// Returns a client's id.
pub fn id(client: &mut Client) -> i64 {
    match client.ask(&["CLIENT", "ID"]) {
        Reply::Integer(id) => id,
        other => panic!("expected a number, got {other:?}"),
    }
}

/// Returns the network process that serves a client.
pub fn pid(door: &Door, client: &mut Client) -> i32 {
    let id = id(client);
    let mut session = door.cluster.connect("postgres");
    let sql = "SELECT pid FROM pgcache.resp_clients WHERE id = $1";
    session
        .query_one(sql, &[&id])
        .expect("the view can be read")
        .get(0)
}

/// Returns one client of each network process, with the pid of the process.
pub fn one_of_each(door: &Door) -> Vec<(i32, Client)> {
    let mut found: BTreeMap<i32, Client> = BTreeMap::new();
    wait_until("each network has a client", || {
        let mut more: Vec<Client> = (0..NETWORKS).map(|_| door.client()).collect();
        for mut client in more.drain(..) {
            found.entry(pid(door, &mut client)).or_insert(client);
        }
        found.len() == NETWORKS
    });
    wait_until("there are no others", || {
        spread(door).values().sum::<i64>() == NETWORKS as i64
    });
    found.into_iter().collect()
}
