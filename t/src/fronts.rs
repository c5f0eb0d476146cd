//! A server that speaks the Redis protocol with several front processes.

use std::collections::BTreeMap;

use crate::resp::{Client, Door, Reply};
use crate::wait::wait_until;

/// How many fronts there are.
pub const FRONTS: usize = 3;
/// What makes them.
pub const CONF: [&str; 2] = ["pgcache.resp_workers = 3", "max_worker_processes = 12"];

/// A server with three fronts that take clients.
pub fn three(conf: &[&str]) -> Door {
    let door = Door::start(&[&CONF[..], conf].concat());
    wait_until_all_serve(&door);
    door
}

/// The processes of the clients that are connected, with how many each has.
pub fn spread(door: &Door) -> BTreeMap<i32, i64> {
    let mut session = door.cluster.connect("postgres");
    let sql = "SELECT pid, count(*) FROM pgcache.resp_clients GROUP BY pid";
    let rows = session.query(sql, &[]).expect("the view can be read");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// New connections reach all fronts.
pub fn wait_until_all_serve(door: &Door) {
    wait_until("three fronts serve", || {
        let mut clients: Vec<Client> = (0..FRONTS).map(|_| door.client()).collect();
        let replied = clients
            .iter_mut()
            .all(|client| client.ask_if_open(&["PING"]).is_some());
        replied && spread(door).len() == FRONTS
    });
    wait_until("their clients have gone", || spread(door).is_empty());
}

/// A client's number.
pub fn id(client: &mut Client) -> i64 {
    match client.ask(&["CLIENT", "ID"]) {
        Reply::Integer(id) => id,
        other => panic!("a number was to come, not {other:?}"),
    }
}

/// The process that has a client.
pub fn pid(door: &Door, client: &mut Client) -> i32 {
    let id = id(client);
    let mut session = door.cluster.connect("postgres");
    let sql = "SELECT pid FROM pgcache.resp_clients WHERE id = $1";
    session
        .query_one(sql, &[&id])
        .expect("the view can be read")
        .get(0)
}

/// A client of each front, by its process.
pub fn one_of_each(door: &Door) -> Vec<(i32, Client)> {
    let mut found: BTreeMap<i32, Client> = BTreeMap::new();
    wait_until("each front has a client", || {
        let mut more: Vec<Client> = (0..FRONTS).map(|_| door.client()).collect();
        for mut client in more.drain(..) {
            found.entry(pid(door, &mut client)).or_insert(client);
        }
        found.len() == FRONTS
    });
    wait_until("there are no others", || {
        spread(door).values().sum::<i64>() == FRONTS as i64
    });
    found.into_iter().collect()
}
