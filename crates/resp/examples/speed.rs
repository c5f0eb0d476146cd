//! Measures how long it takes to parse a command and write its reply, without a server. Every key has a value.
//!
//! `cargo run --release --package pgcache-resp --example speed [REQUESTS [GET]]`. An MGET reads 100 keys. To count
//! instructions, run it under `valgrind --tool=callgrind`. A pipeline of 16 requests is one buffer, like the result of
//! a single read from a socket.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "an example reports, and ends when it is wrong"
)]

use std::hint::black_box;
use std::time::Instant;

use pgcache_resp::{Command, Limits, Parsed, Parser, Protocol, Writer};

const PIPELINE: usize = 16;

fn main() {
    let requests: usize = std::env::args()
        .nth(1)
        .map_or(5_000_000, |text| text.parse().unwrap());
    let key = "key:000000012345";
    let value = "x".repeat(37);
    let get = format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n");
    let set = format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n$37\r\n{value}\r\n");
    let keys = format!("$16\r\n{key}\r\n").repeat(100);
    let mget = format!("*101\r\n$4\r\nMGET\r\n{keys}");
    let only = std::env::args().nth(2);
    for (name, request, requests) in [
        ("GET", &get, requests),
        ("SET", &set, requests),
        ("MGET", &mget, requests / 50),
    ] {
        if only.as_deref().is_none_or(|only| only == name) {
            measured(name, request, requests, value.as_bytes());
        }
    }
}

fn measured(name: &str, request: &str, requests: usize, value: &[u8]) {
    let input = request.repeat(PIPELINE).into_bytes();
    let mut parser = Parser::new(Limits::default());
    let mut replies = Writer::new(Protocol::Resp2, 1 << 20);
    let began = Instant::now();
    let mut done = 0;
    while done < requests {
        let input = black_box(&input[..]);
        let mut at = 0;
        while let Ok(Some(request)) = parser.next(&input[at..]) {
            at += request.used;
            answer(Parsed::read(request.args), value, &mut replies);
            done += 1;
        }
        let length = black_box(replies.as_bytes()).len();
        replies.sent(length);
    }
    let each = began.elapsed().as_nanos() as f64 / done as f64;
    println!("{name}: {each:.1} ns a request, {done} requests");
}

fn answer(
    parsed: Result<Parsed<'_>, pgcache_resp::Failure<'_>>,
    value: &[u8],
    replies: &mut Writer,
) {
    match parsed.map(|parsed| parsed.command) {
        Ok(Command::Get { key }) => {
            black_box(key);
            replies.bulk(value);
        }
        Ok(Command::Set(set)) => {
            black_box(set);
            replies.simple("OK");
        }
        Ok(Command::GetMany { keys }) => {
            replies.array(keys.len());
            for key in keys.iter() {
                black_box(key);
                replies.bulk(value);
            }
        }
        other => panic!("{other:?}"),
    }
}
