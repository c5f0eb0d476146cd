//! Sends random commands to a real Redis and to a model behind this crate, and compares their replies byte by byte.
//!
//! Exceptions are commands that the test does not send, and replies that it compares in another way:
//!
//! - KEYS and SCAN: Redis promises no order, so keys are compared as sets, and only whole scans are sent. RANDOMKEY:
//!   any existing key is correct.
//! - TTL, PTTL, EXPIRETIME, PEXPIRETIME: the two servers read two clocks, so times are compared within ten seconds.
//! - GT and LT with relative times, and deadlines that pass while the test runs, are not sent, because of the two
//!   clocks.
//! - SET with a deadline in the past is not sent: Redis' DBSIZE counts expired entries until a command finds them.
//! - EXPIRETIME of a deadline in the last half second that 64 bits can hold is not sent: Redis' sum overflows.
//! - INCRBYFLOAT of a number in C's hexadecimal format, and commands that are newer than the installed Redis, are not
//!   sent.
//! - Replies that differ in older Redis versions are listed in `older_redis.rs`.
//!
//! RESP_COMMANDS sets the number of commands (default: 10,000), and RESP_SEED the seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by a panic"
)]

mod generate;
mod judge;
mod older_redis;
mod redis;
mod redis_model;

use std::time::{SystemTime, UNIX_EPOCH};

use generate::{Random, command};
use older_redis::{Version, described_by, said_to, version};
use pgcache_resp::{Command, Limits, Parser, Protocol, TABLE, Writer, describe};
use redis::{Redis, Value, value};
use redis_model::Model;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap())
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

fn request(words: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Returns whether the model can answer a request. The check is necessary, because a command that was meant to be
/// invalid may be valid.
fn is_for_the_model(request: &[u8]) -> bool {
    let mut parser = Parser::new(Limits::default());
    let args = parser.next(request).unwrap().unwrap().args;
    let is_past_set = |command: &Command<'_>| matches!(command, Command::Scan(scan) if scan.cursor != 0 || scan.count < 10_000);
    !matches!(
        Command::read(args),
        Ok(Command::Other { .. }
            | Command::Hello(_)
            | Command::Auth { .. }
            | Command::Quit
            | Command::Reset
            | Command::Time
            | Command::Subscribe { .. }
            | Command::Unsubscribe { .. }
            | Command::SubscribePatterns { .. }
            | Command::UnsubscribePatterns { .. }
            | Command::Publish { .. }
            | Command::SetManyExpire { .. }
            | Command::DeleteIf { .. }
            | Command::Digest { .. })
    ) && !Command::read(args).is_ok_and(|command| is_past_set(&command))
}

fn same(name: &str, ours: &[u8], theirs: &[u8], model: &Model) -> bool {
    let is_one_of_its_keys = || match (value(ours), value(theirs)) {
        (Some((Value::Bytes(_), _)), Some((Value::Bytes(key), _))) => {
            model.keys().any(|there| *there == key)
        }
        _ => false,
    };
    judge::same(name, ours, theirs) || name == "randomkey" && is_one_of_its_keys()
}

fn compare(protocol: Protocol, count: u64, seed: u64) {
    let mut redis = Redis::start(if protocol == Protocol::Resp2 {
        "2"
    } else {
        "3"
    });
    if protocol == Protocol::Resp3 {
        redis.send(b"HELLO 3\r\n");
        redis.reply();
    }
    let (mut random, mut model) = (Random(seed.max(1)), Model::new());
    let mut done = 0;
    while done < count {
        // The model answers each command before the test generates the next command, so that the generated transactions
        // make sense.
        let mut batch: Vec<(Vec<String>, Vec<u8>)> = Vec::new();
        let mut bytes = Vec::new();
        let one = 1 + random.below(50);
        while batch.len() < one {
            let words = command(&mut random, model.in_transaction());
            let request = request(&words);
            if !is_for_the_model(&request) {
                continue;
            }
            let mut replies = Writer::new(protocol, 1 << 30);
            let last = words[0].eq_ignore_ascii_case("randomkey");
            model.answer(&request, now(), &mut replies);
            bytes.extend_from_slice(&self::request(&said_to(redis.version, &words)));
            batch.push((words, replies.as_bytes().to_vec()));
            // The model learns from Redis' reply which keys exist.
            if last {
                break;
            }
        }
        redis.send(&bytes);
        for (words, ours) in &batch {
            let theirs = redis.reply();
            let name = words[0].to_ascii_lowercase();
            assert!(
                same(&name, ours, &theirs, &model),
                "seed {seed}, after {done} commands: {words:?}\nours:   {:?}\nRedis': {:?}",
                String::from_utf8_lossy(ours),
                String::from_utf8_lossy(&theirs),
            );
            done += 1;
        }
    }
}

#[test]
#[ignore = "needs redis-server"]
fn replies_are_those_of_redis_in_resp2() {
    compare(
        Protocol::Resp2,
        number("RESP_COMMANDS", 10_000),
        number("RESP_SEED", 1),
    );
}

#[test]
#[ignore = "needs redis-server"]
fn replies_are_those_of_redis_in_resp3() {
    compare(
        Protocol::Resp3,
        number("RESP_COMMANDS", 10_000),
        number("RESP_SEED", 2),
    );
}

/// Sends malformed lines, each on its own connection.
#[test]
#[ignore = "needs redis-server"]
fn the_last_words_on_a_broken_connection_are_those_of_redis() {
    let lines: [&[u8]; 11] = [
        b"*a\r\n",
        b"*2147483648\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n\r\n",
        b"get \"a\r\n",
        b"get 'a'b\r\n",
        b"*1\r\n\n4\r\n",
        b"*1\r\n$+1\r\n",
    ];
    for (number, line) in lines.iter().enumerate() {
        let mut redis = Redis::start(&format!("broken{number}"));
        redis.send(line);
        let mut replies = Writer::new(Protocol::Resp2, 1 << 10);
        Parser::new(Limits::default())
            .next(line)
            .expect_err("it is no request")
            .write(&mut replies);
        let (ours, theirs) = (replies.as_bytes(), redis.reply());
        assert_eq!(
            String::from_utf8_lossy(ours),
            String::from_utf8_lossy(&theirs)
        );
    }
}

/// Sends inline commands; the reply of ECHO shows the split.
#[test]
#[ignore = "needs redis-server"]
fn typed_lines_are_cut_as_by_redis() {
    let mut redis = Redis::start("inline");
    for line in [
        &b"echo \"a\\x41\\n\\t\\q\\xZZ\"\r\n"[..],
        b"echo 'a\\'b\\n'\n",
        b"  ECHO   a\"b c\" \r\n",
        b"echo \"\"\r\n",
        b"echo a\x0bb\r\n",
        b"echo a 'b'\r\n",
        b"\t echo a\r\n",
    ] {
        redis.send(line);
        let mut parser = Parser::new(Limits::default());
        let mut replies = Writer::new(Protocol::Resp2, 1 << 10);
        match Command::read(parser.next(line).unwrap().unwrap().args) {
            Ok(Command::Echo { message }) => replies.bulk(message),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => failure.write(&mut replies),
        }
        let (ours, theirs) = (replies.as_bytes(), redis.reply());
        assert_eq!(
            String::from_utf8_lossy(ours),
            String::from_utf8_lossy(&theirs),
            "{line:?}"
        );
    }
}

#[test]
#[ignore = "needs redis-server"]
fn an_older_redis_reads_the_listed_requests_differently() {
    older_redis::look_at_cursors(&mut Redis::start("versions"));
}

/// Compares name, arity, flags, keys and categories in COMMAND INFO, for commands and subcommands.
#[test]
#[ignore = "needs redis-server"]
fn the_table_is_that_of_redis() {
    let mut redis = Redis::start("table");
    let of_redis = redis.version;
    for entry in TABLE {
        redis.send(format!("COMMAND INFO {}\r\n", entry.name).as_bytes());
        let theirs = redis.reply();
        let mut replies = Writer::new(Protocol::Resp2, 1 << 20);
        describe(entry, &mut replies);
        let (Some((Value::List(theirs), _)), Some((ours, _))) =
            (value(&theirs), value(replies.as_bytes()))
        else {
            panic!("{} has no list", entry.name);
        };
        if theirs[0] == Value::Null {
            let since = version(entry.since);
            assert!(
                since > Some(of_redis),
                "{} is not known to Redis",
                entry.name
            );
            continue;
        }
        same_description(&ours, &theirs[0], of_redis);
    }
}

fn same_description(ours: &Value, theirs: &Value, of_redis: Version) {
    let (Value::List(ours), Value::List(theirs)) = (ours, theirs) else {
        panic!("no lists")
    };
    let set = |value: &Value| match value {
        Value::List(values) => judge::sorted(values.clone()),
        other => vec![other.clone()],
    };
    for place in 0..7 {
        let older = described_by(of_redis, &ours[0], place);
        let ours_then = older.unwrap_or_else(|| set(&ours[place]));
        assert_eq!(ours_then, set(&theirs[place]), "{:?}", ours[0]);
    }
    for inner in set(&ours[9]) {
        let Value::List(one) = &inner else {
            panic!("no list")
        };
        let found = set(&theirs[9])
            .into_iter()
            .find(|other| matches!(other, Value::List(other) if other[0] == one[0]));
        match found {
            Some(found) => same_description(&inner, &found, of_redis),
            None => assert!(
                later(&one[0], of_redis),
                "{:?} is not known to Redis",
                one[0]
            ),
        }
    }
}

/// Returns whether a subcommand was added after this version.
fn later(name: &Value, of_redis: Version) -> bool {
    TABLE
        .iter()
        .flat_map(|entry| entry.subcommands)
        .any(|inner| {
            *name == Value::Bytes(inner.name.as_bytes().to_vec())
                && version(inner.since) > Some(of_redis)
        })
}
