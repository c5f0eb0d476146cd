//! Sends random commands to Redis and to pgcache, and compares the replies byte for byte.
//!
//! Some commands are not sent, or are compared in a different way. These exceptions are in addition to those of the
//! comparison in the crate `resp` (`crates/resp/tests/differential/main.rs`):
//!
//! - Keys that are empty or contain a NUL: the server refuses them, because SQL could not read them.
//! - Deadlines beyond the year 294276, which Postgres cannot represent.
//! - SELECT, COPY to another database and FLUSHALL inside a transaction: the server may not know the role's privileges
//!   on that cache yet, and does not wait for them inside EXEC.
//! - EXEC that pgcache aborts and Redis does not, because watched keys share counters with other keys. After this rare
//!   event both servers start over.
//! - RANDOMKEY, which may return any existing key. Another test covers it.
//! - On tables: transactions, which have separate tests, and FLUSHALL.
//! - On caches of text: values with a NUL, and SETRANGE, which creates such values.
//!
//! RESP_COMMANDS sets the number of commands (20,000 by default), RESP_SEED the seed; RESP_TRACE prints them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use pgcache_resp::{Command, Limits, Parser};
use pgcache_tests::ask::Ask;
use pgcache_tests::resp::Door;

#[path = "../../crates/resp/tests/differential/generate.rs"]
mod generate;
#[path = "../../crates/resp/tests/differential/judge.rs"]
mod judge;
#[path = "../../crates/resp/tests/differential/older_redis.rs"]
mod older_redis;
#[path = "../../crates/resp/tests/differential/redis.rs"]
pub mod redis;

use generate::{Random, command};
use judge::same;
use older_redis::said_to;
use redis::{Redis, Value, value};

/// Moments and lifetimes beyond the range of timestamptz.
const BEYOND: [&str; 3] = [
    "9223372036854775",
    "9223372036854776",
    "9223372036854775000",
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap())
}

fn request(words: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Returns whether both servers must give the same reply to a command, on any kind of cache.
fn is_comparable(words: &[String]) -> bool {
    let bytes = request(words);
    let mut parser = Parser::new(Limits::default());
    let args = parser.next(&bytes).unwrap().unwrap().args;
    let Ok(entry) = Command::check(args) else {
        return true;
    };
    let is_key = |key: &str| !key.is_empty() && !key.contains('\0');
    if !entry.key_places(args).all(|place| is_key(&words[place])) {
        return false;
    }
    if words.iter().any(|word| BEYOND.contains(&&**word)) {
        return false;
    }
    match Command::read(args) {
        Ok(Command::Scan(scan)) => scan.cursor == 0 && scan.count >= 10_000,
        Ok(command) => !matches!(
            command,
            Command::Other { .. }
                | Command::Hello(_)
                | Command::Auth { .. }
                | Command::Quit
                | Command::Reset
                | Command::Time
                | Command::RandomKey
                | Command::Subscribe { .. }
                | Command::Unsubscribe { .. }
                | Command::SubscribePatterns { .. }
                | Command::UnsubscribePatterns { .. }
                | Command::Publish { .. }
                | Command::SetManyExpire { .. }
                | Command::DeleteIf { .. }
                | Command::Digest { .. }
        ),
        Err(_) => true,
    }
}

/// Returns whether a command may need privileges that the server has not looked up yet. Inside EXEC the server looks up
/// no privileges.
fn names_another_database(words: &[String]) -> bool {
    let name = words[0].to_ascii_lowercase();
    ["select", "flushall"].contains(&&*name) || name == "copy" && words.len() > 3
}

/// A connection to the server that returns replies as bytes.
struct Bytes {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Bytes {
    fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some((_, length)) = value(&self.unread) {
                return self.unread.drain(..length).collect();
            }
            let mut piece = [0; 1 << 16];
            let count = self.stream.read(&mut piece).unwrap();
            assert!(count > 0, "the door has closed the connection");
            self.unread.extend_from_slice(&piece[..count]);
        }
    }
}

/// The kind of the caches, and the settings of their server.
#[derive(Clone, Copy)]
struct Kind {
    storage: &'static str,
    value_type: &'static str,
    conf: &'static [&'static str],
}

const MEMORY: Kind = Kind {
    storage: "memory",
    value_type: "bytea",
    conf: &[],
};

impl Kind {
    /// Returns whether both servers must give the same reply to a command on this kind of cache.
    fn compares(self, words: &[String]) -> bool {
        let name = &*words[0].to_ascii_lowercase();
        if self.value_type == "text"
            && (name == "setrange" || words.iter().any(|word| word.contains('\0')))
        {
            return false;
        }
        const TRANSACTIONS: [&str; 5] = ["multi", "exec", "discard", "watch", "unwatch"];
        let is_apart = TRANSACTIONS.contains(&name) || name == "flushall";
        self.storage == "memory" || !is_apart
    }
}

/// Starts a server with 16 databases, as Redis has.
fn door(kind: Kind) -> Door {
    let caches: Vec<String> = (0..16).map(|number| format!("public.d{number}")).collect();
    let named = format!("pgcache.resp_caches = '{}'", caches.join(", "));
    let mut conf = vec![&*named];
    conf.extend(kind.conf);
    let door = Door::start(&conf);
    let mut session = door.cluster.connect("postgres");
    for cache in &caches {
        session.run(&format!(
            "SELECT cache_create('{cache}', storage => '{}', value_type => '{}')",
            kind.storage, kind.value_type
        ));
    }
    drop(door.client());
    door
}

fn compare(protocol: &str, kind: Kind, count: u64, seed: u64) {
    let door = door(kind);
    let name = format!(
        "door{protocol}{}{}{}",
        kind.storage,
        kind.value_type,
        kind.conf.len()
    );
    let mut redis = Redis::start(&name);
    let mut ours = Bytes {
        stream: UnixStream::connect(&door.socket).unwrap(),
        unread: Vec::new(),
    };
    if protocol == "3" {
        redis.send(b"HELLO 3\r\n");
        redis.reply();
        ours.stream.write_all(b"HELLO 3\r\n").unwrap();
        ours.reply();
    }
    let mut random = Random(seed.max(1));
    // Keep track of MULTI and EXEC, because only some of the commands may be sent in a transaction.
    let mut in_transaction = false;
    let trace = std::env::var_os("RESP_TRACE").is_some();
    let (mut done, mut aborted) = (0, 0);
    while done < count {
        let mut batch = Vec::new();
        let (mut to_us, mut to_redis) = (Vec::new(), Vec::new());
        while batch.len() < 40 {
            let words = command(&mut random, in_transaction);
            if !is_comparable(&words)
                || !kind.compares(&words)
                || in_transaction && names_another_database(&words)
            {
                continue;
            }
            match words[0].to_ascii_lowercase().as_str() {
                "multi" if words.len() == 1 => in_transaction = true,
                "exec" => in_transaction = false,
                "discard" if words.len() == 1 => in_transaction = false,
                _ => {}
            }
            to_us.extend_from_slice(&request(&words));
            to_redis.extend_from_slice(&request(&said_to(redis.version, &words)));
            batch.push(words);
        }
        redis.send(&to_redis);
        ours.stream.write_all(&to_us).unwrap();
        let mut begins_anew = false;
        for words in &batch {
            let (ours, theirs) = (ours.reply(), redis.reply());
            if trace {
                println!("{words:?} {:?}", String::from_utf8_lossy(&theirs));
            }
            let name = words[0].to_ascii_lowercase();
            if name == "exec" && is_null(&ours) && !is_null(&theirs) {
                aborted += 1;
                begins_anew = true;
            }
            assert!(
                begins_anew || same(&name, &ours, &theirs),
                "seed {seed}, after {done} commands: {words:?}\nours:   {:?}\nRedis': {:?}",
                String::from_utf8_lossy(&ours),
                String::from_utf8_lossy(&theirs),
            );
            done += 1;
        }
        if begins_anew {
            for words in ["DISCARD", "UNWATCH", "FLUSHALL", "SELECT 0"] {
                let words = format!("{words}\r\n");
                redis.send(words.as_bytes());
                ours.stream.write_all(words.as_bytes()).unwrap();
                ours.reply();
                redis.reply();
            }
            in_transaction = false;
        }
    }
    println!("{done} commands, {aborted} transactions aborted for another key");
    assert!(aborted <= 1 + done / 10_000, "{aborted} of {done} commands");
}

fn is_null(reply: &[u8]) -> bool {
    matches!(value(reply), Some((Value::Null, _)))
}

#[test]
fn replies_equal_those_of_redis_in_resp2() {
    compare(
        "2",
        MEMORY,
        number("RESP_COMMANDS", 20_000),
        number("RESP_SEED", 1),
    );
}

/// Compares commands on a table, where each command may be a separate transaction.
fn on_a_table(
    protocol: &str,
    storage: &'static str,
    value_type: &'static str,
    conf: &'static [&'static str],
) {
    let kind = Kind {
        storage,
        value_type,
        conf,
    };
    compare(
        protocol,
        kind,
        number("RESP_COMMANDS", 10_000),
        number("RESP_SEED", 3),
    );
}

#[test]
fn an_unlogged_table_answers_as_redis() {
    on_a_table("2", "unlogged", "bytea", &[]);
}

#[test]
fn a_logged_table_answers_as_redis() {
    on_a_table("3", "logged", "bytea", &[]);
}

#[test]
fn a_table_of_text_answers_as_redis() {
    on_a_table("3", "unlogged", "text", &[]);
}

#[test]
fn a_table_answers_as_redis_by_statements_and_without_copies() {
    on_a_table(
        "2",
        "unlogged",
        "bytea",
        &["pgcache.table_path = plan", "pgcache.hot_tier = off"],
    );
}

#[test]
fn replies_equal_those_of_redis_in_resp3() {
    compare(
        "3",
        MEMORY,
        number("RESP_COMMANDS", 20_000),
        number("RESP_SEED", 2),
    );
}
