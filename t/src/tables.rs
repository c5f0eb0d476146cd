//! A server of the Redis protocol whose database 1 is an unlogged table cache and database 2 a logged table cache.

use crate::ask::Ask;
use crate::resp::{CACHE, Client, Door, Reply};
use crate::wait::wait_until;

pub const UNLOGGED: &str = "public.tab";
pub const LOGGED: &str = "public.safe";
const EXECUTOR: &str = "pgcache resp executor";
const NETWORK: &str = "pgcache resp network";

/// Starts a server whose database 0 is a memory cache, 1 an unlogged table cache and 2 a logged table cache.
pub fn start(conf: &[&str]) -> Door {
    let caches = format!("pgcache.resp_caches = '{CACHE}, {UNLOGGED}, {LOGGED}'");
    let mut lines = vec![caches.as_str(), "pgcache.expire_interval = 0"];
    lines.extend(conf);
    let door = Door::start(&lines);
    door.cluster.connect("postgres").run(&format!(
        "SELECT cache_create('{UNLOGGED}'), cache_create('{LOGGED}', storage => 'logged')"
    ));
    door
}

/// Connects a client to this database. If `role` is given, the client first authenticates as this role, which needs no
/// password.
pub fn client_in(door: &Door, database: u32, role: Option<&str>) -> Client {
    let mut client = door.client();
    if let Some(role) = role {
        assert_eq!(client.ask(&["AUTH", role, "x"]), Reply::status("OK"));
    }
    let database = database.to_string();
    assert_eq!(client.ask(&["SELECT", &database]), Reply::status("OK"));
    client
}

/// Sends a request whose reply is read later.
pub fn send(client: &mut Client, words: &[&str]) {
    send_together(client, &[words]);
}

/// Sends requests in a single write, so that the server reads all of them at once. The test reads the replies later.
pub fn send_together(client: &mut Client, requests: &[&[&str]]) {
    let request = |words: &&[&str]| {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        Client::request(&words)
    };
    let bytes: Vec<u8> = requests.iter().flat_map(request).collect();
    assert!(client.send(&bytes), "it is connected");
}

/// Reads the reply to an earlier request.
pub fn reply(client: &mut Client) -> Reply {
    client.reply().expect("a reply comes")
}

/// Returns the pids of the executors.
pub fn executors(door: &Door) -> Vec<i32> {
    door.processes(EXECUTOR)
}

/// Stopped processes of one type, each of which was idle when it was stopped. Dropping this lets them continue.
pub struct Stopped(Vec<i32>);

impl Stopped {
    /// Stops all executors.
    pub fn all_of(door: &Door) -> Stopped {
        Stopped::of(door, EXECUTOR)
    }

    /// Stops all network processes.
    pub fn networks_of(door: &Door) -> Stopped {
        Stopped::of(door, NETWORK)
    }

    fn of(door: &Door, kind: &str) -> Stopped {
        Stopped::these(door, door.processes(kind))
    }

    /// Stops these processes of the protocol.
    pub fn these(door: &Door, stopped: Vec<i32>) -> Stopped {
        let mut session = door.cluster.connect("postgres");
        let list = stopped.iter().map(i32::to_string).collect::<Vec<_>>();
        let list = list.join(", ");
        wait_until("the processes are stopped in their sleep", || {
            stopped.iter().for_each(|process| signal(*process, "-STOP"));
            wait_until("the processes are stopped", || {
                stopped.iter().all(is_stopped)
            });
            let asleep = session.number(&format!(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE pid IN ({list}) AND wait_event = 'PgcacheResp'"
            ));
            let all = asleep as usize == stopped.len();
            if !all {
                stopped.iter().for_each(|process| signal(*process, "-CONT"));
            }
            all
        });
        Stopped(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|back| signal(*back, "-CONT"));
    }
}

fn signal(pid: i32, signal: &str) {
    let done = std::process::Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(done.expect("kill can be run").success());
}

fn is_stopped(pid: &i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Waits until this many offloaded requests wait for an executor or run in an executor.
pub fn wait_until_handed(door: &Door, count: i64) {
    let mut session = door.cluster.connect("postgres");
    wait_until("the commands are handed over", || {
        session.number("SELECT queue_depth FROM pgcache.resp_stats") == count
    });
}
