//! rounds-client: one client for both servers. It does the rounds that redis-benchmark cannot (mixed, new keys
//! beside overwrites) and those it can, so that the tools may be compared. Prints one JSON object.
//!
//! rounds-client --protocol redis|postgres --socket PATH --round floor|read|set|write|mixed|load
//!               --entries N [--clients 8] [--threads 1] [--seconds 5] [--warmup 0] [--value TEXT]
//!               [--offset 0] [--database postgres] [--read-sql TEXT --write-sql TEXT]     (postgres; `load` is for Redis)

mod client;
mod latency;
mod law;
mod postgres;
mod protocol;
mod redis;

use std::collections::HashMap;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use client::{Counts, Plan, Round};
use law::Law;
use postgres::Postgres;
use protocol::Protocol;
use redis::Redis;

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
    let law =
        Law { entries: options.or_default("entries", 1_000_000)?, offset: options.or_default("offset", 0)? };
    let socket: String = options.required("socket")?;
    let value = options.or_default("value", "x".repeat(37))?.into_bytes();
    let name: String = options.required("round")?;
    if name == "load" {
        redis::load(&socket, law, &value)?;
        return Ok(format!("{{\"loaded\":{}}}", law.entries));
    }
    let plan = Plan {
        protocol: protocol(&options)?,
        socket,
        law,
        value,
        round: round(&name)?,
        warmup: Duration::from_secs_f64(options.or_default("warmup", 0.0)?),
        length: Duration::from_secs_f64(options.or_default("seconds", 5.0)?),
    };
    let counts = run_threads(&plan, options.or_default("threads", 1)?, options.or_default("clients", 8)?)?;
    Ok(to_json(&counts))
}

fn protocol(options: &Options) -> Result<Box<dyn Protocol>, String> {
    match options.required("protocol")?.as_str() {
        "redis" => Ok(Box::new(Redis)),
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
        "{{\"tps\":{tps:.1},\"mean_us\":{:.3},\"max_us\":{},\"requests\":{},\"hits\":{},\"misses\":{},\"sets\":{},\"latency\":{}}}",
        latency.mean_us(),
        latency.max_us(),
        sum(|p| p.requests),
        sum(|p| p.hits),
        sum(|p| p.misses),
        sum(|p| p.sets),
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
