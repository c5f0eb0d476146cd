//! Sends the requests of a workload at full speed. Each thread is an epoll loop over its share of the connections, with
//! one request in flight on each, as in redis-benchmark and pgbench. HTTP has its own client, `http.rs`.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::http;
use crate::key_distribution::{self, KeyDistribution, Keys};
use crate::latency::Latency;
use crate::load::{Counts, End, Load, Plan, Workload};
use crate::memcached::Memcached;
use crate::postgres::Postgres;
use crate::protocol::{Command, Protocol, Reply, Stream, connect};
use crate::redis::Redis;
use crate::zipf::Zipf;
use crate::{Options, Result};

const BUFFER: usize = 64 * 1024;
const BATCH: u64 = 1000; // sets of a preload that are in flight at once

/// The client that reaches a server: the epoll loop with a protocol, or the HTTP client.
enum Way {
    Protocol(Box<dyn Protocol>),
    Http,
}

pub fn main(options: &Options) -> Result<String> {
    let (entries, threads) = (options.or("entries", 1_000_000)?, options.or("threads", 1u64)?);
    let value = match options.or("value", String::new())?.into_bytes() {
        empty if empty.is_empty() => key_distribution::value(options.or("value-size", 37)?),
        given => given,
    };
    let plan = Plan {
        address: options.get("socket")?,
        workload: Workload::named(&options.get::<String>("workload")?)?,
        keys: KeyDistribution { entries, offset: options.or("offset", 0)?, keys: keys(options, entries)? },
        value,
        warmup: end(options, "warmup-gets", "warmup", 0.0, threads)?,
        end: end(options, "gets", "seconds", 5.0, threads)?,
    };
    let way = way(options)?;
    if plan.workload == Workload::Preload {
        preload(&plan, &way)?;
        return Ok(format!("{{\"loaded\":{entries}}}"));
    }
    let clients = options.or("clients", 8)?;
    Ok(to_json(&run_threads(&plan, &way, threads as usize, clients)?))
}

/// Returns the end of each thread's load. A number of gets is divided evenly among the threads.
fn end(options: &Options, gets: &str, seconds: &str, default: f64, threads: u64) -> Result<End> {
    match options.or(gets, 0)? {
        0 => Ok(End::After(Duration::from_secs_f64(options.or(seconds, default)?))),
        gets => Ok(End::Gets(gets / threads)),
    }
}

fn keys(options: &Options, entries: u64) -> Result<Keys> {
    match options.or("keys", "uniform".to_string())?.as_str() {
        "uniform" => Ok(Keys::Uniform),
        "zipf" => Ok(Keys::Zipf(Zipf::new(entries))),
        "hot" => Ok(Keys::Hot),
        other => Err(format!("unknown distribution of keys {other}").into()),
    }
}

fn way(options: &Options) -> Result<Way> {
    match options.get::<String>("protocol")?.as_str() {
        "redis" => Ok(Way::Protocol(Box::new(Redis))),
        "memcached" => Ok(Way::Protocol(Box::new(Memcached))),
        "http" => Ok(Way::Http),
        "postgres" => Ok(Way::Protocol(Box::new(Postgres {
            database: options.or("database", "postgres".to_string())?,
            read_sql: options.get("read-sql")?,
            write_sql: options.get("write-sql")?,
        }))),
        other => Err(format!("unknown protocol {other}").into()),
    }
}

fn run_threads(plan: &Plan, way: &Way, threads: usize, clients: usize) -> Result<Vec<Counts>> {
    let seed = std::process::id() as u64;
    thread::scope(|scope| {
        let share = |t: usize| clients / threads + usize::from(t < clients % threads);
        let running: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || run(Load::new(plan, seed << 8 | t as u64), way, share(t))))
            .collect();
        running.into_iter().map(|r| r.join().map_err(|_| "a thread died")?).collect()
    })
}

fn to_json(parts: &[Counts]) -> String {
    let mut latency = Latency::default();
    parts.iter().for_each(|part| latency.merge(&part.latency));
    let sum = |field: fn(&Counts) -> u64| parts.iter().map(field).sum::<u64>();
    format!(
        "{{\"tps\":{:.1},\"requests\":{},\"hits\":{},\"misses\":{},\"sets\":{},\"refused\":{},\"hot_gets\":{},\
         \"hot_hits\":{},\"seconds\":{:.3},{},\"latency\":{}}}",
        parts.iter().map(|part| part.requests as f64 / part.seconds).sum::<f64>(),
        sum(|part| part.requests),
        sum(|part| part.hits),
        sum(|part| part.misses),
        sum(|part| part.sets),
        sum(|part| part.refused),
        sum(|part| part.hot_gets),
        sum(|part| part.hot_hits),
        parts.iter().map(|part| part.seconds).fold(0.0, f64::max),
        latency.figures(),
        latency.histogram()
    )
}

fn run(load: Load, way: &Way, connections: usize) -> Result<Counts> {
    let Way::Protocol(protocol) = way else {
        return http::run(load, connections);
    };
    let plan = load.plan;
    let mut client = Client::open(load, protocol.as_ref(), connections)?;
    client.run_until(plan.warmup)?;
    client.load.counts = Counts::default();
    let start = Instant::now();
    client.run_until(plan.end)?;
    client.load.counts.seconds = start.elapsed().as_secs_f64();
    Ok(client.load.counts)
}

struct Connection {
    stream: Stream,
    out: Vec<u8>,
    input: Vec<u8>,
    sent: Instant,
    command: Command,
}

struct Client<'a> {
    load: Load<'a>,
    protocol: &'a dyn Protocol,
    connections: Vec<Connection>,
    epoll: std::os::fd::OwnedFd,
    buffer: Vec<u8>,
}

impl<'a> Client<'a> {
    fn open(load: Load<'a>, protocol: &'a dyn Protocol, connections: usize) -> Result<Self> {
        let mut client = Client {
            load,
            protocol,
            connections: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            buffer: vec![0; BUFFER],
        };
        for slot in 0..connections {
            client.connect(slot)?;
        }
        Ok(client)
    }

    fn connect(&mut self, slot: usize) -> Result<()> {
        let mut stream = connect(&self.load.plan.address)?;
        self.protocol.greet(&mut stream)?;
        stream.set_nonblocking(true)?;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(slot as u64), epoll::EventFlags::IN)?;
        let (out, input, command) = (Vec::new(), Vec::new(), Command::Baseline);
        self.connections.push(Connection { stream, out, input, sent: Instant::now(), command });
        let first = self.load.draw();
        self.send(slot, first)
    }

    /// Sends the next request after each reply until the end. A request that is still in flight at the end is counted
    /// by the next call, if one follows.
    fn run_until(&mut self, end: End) -> Result<()> {
        let mut events = Vec::with_capacity(self.connections.len().max(1));
        let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let start = Instant::now();
        while !self.load.reached(end, start) {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(reason) => return Err(reason.into()),
            }
            for event in &events {
                self.answer(event.data.u64() as usize)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, slot: usize) -> Result<()> {
        if let Some(reply) = self.receive(slot)? {
            let Connection { command, sent, .. } = self.connections[slot];
            let next = self.load.answered(command, sent, &reply);
            self.send(slot, next)?;
        }
        Ok(())
    }

    fn receive(&mut self, slot: usize) -> Result<Option<Reply>> {
        let connection = &mut self.connections[slot];
        let got = connection.stream.read(&mut self.buffer)?;
        if got == 0 {
            return Err("the server closed the connection".into());
        }
        connection.input.extend_from_slice(&self.buffer[..got]);
        let reply = self.protocol.decode(&connection.input, &connection.command, &self.load.plan.value)?;
        if reply.is_some() {
            connection.input.clear(); // with one request in flight, nothing can follow its reply
        }
        Ok(reply)
    }

    fn send(&mut self, slot: usize, command: Command) -> Result<()> {
        let connection = &mut self.connections[slot];
        connection.sent = Instant::now();
        connection.out.clear();
        self.protocol.encode(&mut connection.out, &command, &self.load.plan.value);
        connection.command = command;
        write_fully(&mut connection.stream, &connection.out)
    }
}

/// Writes a request. The thread waits if the request does not fit into the socket's buffer, which happens only with
/// very large values.
fn write_fully(stream: &mut Stream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Sets every existing key, with many sets in flight at once.
fn preload(plan: &Plan, way: &Way) -> Result<()> {
    let Way::Protocol(protocol) = way else {
        return Err("HTTP has no preload".into());
    };
    let stored = protocol.stored().ok_or("this protocol has no preload")?;
    let mut stream = connect(&plan.address)?;
    for first in (0..plan.keys.entries).step_by(BATCH as usize) {
        let end = (first + BATCH).min(plan.keys.entries);
        let (mut out, mut got) = (Vec::new(), vec![0; (end - first) as usize * stored.len()]);
        for i in first..end {
            protocol.encode(&mut out, &Command::Set(plan.keys.existing(i)), &plan.value);
        }
        stream.write_all(&out)?;
        stream.read_exact(&mut got)?;
        if got.chunks(stored.len()).any(|reply| reply != stored) {
            return Err("a set of the preload failed".into());
        }
    }
    Ok(())
}
