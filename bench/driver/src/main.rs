//! rounds-client: one client for both servers. It does the rounds that redis-benchmark cannot (mixed, new keys
//! beside overwrites) and those it can, so that the tools may be compared. Prints one JSON object.
//!
//! rounds-client --protocol redis|memcached|postgres --socket PATH|HOST:PORT
//!               --round floor|read|set|write|mixed|cached|load       (`load` is for Redis and memcached)
//!               --entries N [--keys uniform|zipf|hot] [--offset 0] [--value TEXT | --value-size BYTES]
//!               [--clients 8] [--threads 1] [--seconds 5 | --gets N] [--warmup 0 | --warmup-gets N]
//!               [--database postgres] [--read-sql TEXT --write-sql TEXT]                   (postgres)

mod client;
mod latency;
mod law;
mod load;
mod memcached;
mod postgres;
mod protocol;
mod redis;
mod stream;
mod zipf;

use std::collections::HashMap;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use client::{Counts, End, Plan, Round};
use law::{Keys, Law};
use memcached::Memcached;
use postgres::Postgres;
use protocol::Protocol;
use redis::Redis;
use zipf::Zipf;

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("rounds-client: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let options = Options::read()?;
    let entries = options.or_default("entries", 1_000_000)?;
    let law = Law { entries, offset: options.or_default("offset", 0)?, keys: keys(&options, entries)? };
    let socket: String = options.required("socket")?;
    let threads = options.or_default("threads", 1)?;
    let value = match options.or_default("value", String::new())?.into_bytes() {
        empty if empty.is_empty() => law::value(options.or_default("value-size", 37)?),
        given => given,
    };
    let name: String = options.required("round")?;
    if name == "load" {
        load::load(&*protocol(&options)?, &socket, law, &value)?;
        return Ok(format!("{{\"loaded\":{}}}", law.entries));
    }
    let plan = Plan {
        protocol: protocol(&options)?,
        socket,
        law,
        value,
        round: round(&name)?,
        warmup: end(&options, "warmup-gets", "warmup", 0.0, threads)?,
        end: end(&options, "gets", "seconds", 5.0, threads)?,
    };
    let counts = run_threads(&plan, threads as usize, options.or_default("clients", 8)?)?;
    Ok(to_json(&counts))
}

/// A number of gets is shared out evenly over the threads.
fn end(options: &Options, gets: &str, seconds: &str, default: f64, threads: u64) -> Result<End, String> {
    match options.or_default(gets, 0)? {
        0 => Ok(End::After(Duration::from_secs_f64(options.or_default(seconds, default)?))),
        gets => Ok(End::Gets(gets / threads)),
    }
}

fn keys(options: &Options, entries: u64) -> Result<Keys, String> {
    match options.or_default("keys", "uniform".to_string())?.as_str() {
        "uniform" => Ok(Keys::Uniform),
        "zipf" => Ok(Keys::Zipf(Zipf::new(entries))),
        "hot" => Ok(Keys::Hot),
        other => Err(format!("unknown law of keys {other}")),
    }
}

fn protocol(options: &Options) -> Result<Box<dyn Protocol>, String> {
    match options.required("protocol")?.as_str() {
        "redis" => Ok(Box::new(Redis)),
        "memcached" => Ok(Box::new(Memcached)),
        "postgres" => Ok(Box::new(Postgres {
            database: options.or_default("database", "postgres".to_string())?,
            read_sql: options.required("read-sql")?,
            write_sql: options.required("write-sql")?,
        })),
        other => Err(format!("unknown protocol {other}")),
    }
}

fn round(name: &str) -> Result<Round, String> {
    match name {
        "floor" => Ok(Round::Floor),
        "read" => Ok(Round::Read),
        "set" => Ok(Round::Set),
        "write" => Ok(Round::Write),
        "mixed" => Ok(Round::Mixed),
        "cached" => Ok(Round::Cached),
        other => Err(format!("unknown round {other}")),
    }
}

fn run_threads(plan: &Plan, threads: usize, clients: usize) -> Result<Vec<Counts>, String> {
    let seed = std::process::id() as u64;
    thread::scope(|scope| {
        let share = |t: usize| clients / threads + usize::from(t < clients % threads);
        let running: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || client::run(plan, share(t), seed << 8 | t as u64)))
            .collect();
        running.into_iter().map(|r| r.join().map_err(|_| "a thread died".to_string())?).collect()
    })
}

fn to_json(parts: &[Counts]) -> String {
    let mut latency = latency::Latency::new();
    parts.iter().for_each(|p| latency.merge(&p.latency));
    let sum = |field: fn(&Counts) -> u64| parts.iter().map(field).sum::<u64>();
    let tps: f64 = parts.iter().map(|p| p.requests as f64 / p.seconds).sum();
    format!(
        "{{\"tps\":{tps:.1},\"mean_us\":{:.3},\"max_us\":{},\"requests\":{},\"hits\":{},\"misses\":{},\"sets\":{},\"refused\":{},\"hot_gets\":{},\"hot_hits\":{},\"seconds\":{:.3},\"latency\":{}}}",
        latency.mean_us(),
        latency.max_us(),
        sum(|p| p.requests),
        sum(|p| p.hits),
        sum(|p| p.misses),
        sum(|p| p.sets),
        sum(|p| p.refused),
        sum(|p| p.hot_gets),
        sum(|p| p.hot_hits),
        parts.iter().map(|p| p.seconds).fold(0.0, f64::max),
        latency.to_json()
    )
}

struct Options(HashMap<String, String>);

impl Options {
    fn read() -> Result<Self, String> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let pairs = words.chunks(2).map(|pair| match pair {
            [name, value] if name.starts_with("--") => Ok((name[2..].to_string(), value.clone())),
            _ => Err(format!("expected --name value, got {pair:?}")),
        });
        Ok(Options(pairs.collect::<Result<_, _>>()?))
    }

    fn required(&self, name: &str) -> Result<String, String> {
        self.0.get(name).cloned().ok_or(format!("--{name} is missing"))
    }

    fn or_default<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.0.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} {text} makes no sense")),
        }
    }
}
