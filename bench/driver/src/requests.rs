//! Sends the requests of a workload at full speed. A thread is an epoll loop over its share of the connections, as in
//! redis-benchmark and pgbench, with one request in flight on each.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::http::Http;
use crate::key_distribution::{self, KeyDistribution, Keys};
use crate::latency::Latency;
use crate::memcached::Memcached;
use crate::postgres::Postgres;
use crate::protocol::{Command, Protocol, Reply, Stream, connect};
use crate::random::Random;
use crate::redis::Redis;
use crate::zipf::Zipf;
use crate::{Options, Result};

const BUFFER: usize = 64 * 1024;
const BATCH: u64 = 1000; // sets of a preload that are on the wire at once

/// The moment at which a thread stops: after a time, or after a number of its own gets.
#[derive(Clone, Copy)]
enum End {
    After(Duration),
    Gets(u64),
}

#[derive(Clone, Copy, PartialEq)]
enum Workload {
    Baseline,
    Read,
    Set,
    Write,
    Mixed,
    /// Gets, and sets on a miss, as an application uses a cache.
    Cached,
    Preload,
}

struct Plan {
    protocol: Box<dyn Protocol>,
    address: String,
    workload: Workload,
    keys: KeyDistribution,
    value: Vec<u8>,
    warmup: End,
    end: End,
}

pub fn main(options: &Options) -> Result<String> {
    let (entries, threads) = (options.or("entries", 1_000_000)?, options.or("threads", 1u64)?);
    let value = match options.or("value", String::new())?.into_bytes() {
        empty if empty.is_empty() => key_distribution::value(options.or("value-size", 37)?),
        given => given,
    };
    let plan = Plan {
        protocol: protocol(options)?,
        address: options.get("socket")?,
        workload: workload(&options.get::<String>("workload")?)?,
        keys: KeyDistribution { entries, offset: options.or("offset", 0)?, keys: keys(options, entries)? },
        value,
        warmup: end(options, "warmup-gets", "warmup", 0.0, threads)?,
        end: end(options, "gets", "seconds", 5.0, threads)?,
    };
    if plan.workload == Workload::Preload {
        preload(&plan)?;
        return Ok(format!("{{\"loaded\":{entries}}}"));
    }
    let clients = options.or("clients", 8)?;
    Ok(to_json(&run_threads(&plan, threads as usize, clients)?))
}

/// Returns the end of each thread: a number of gets is divided evenly over the threads.
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

fn protocol(options: &Options) -> Result<Box<dyn Protocol>> {
    match options.get::<String>("protocol")?.as_str() {
        "redis" => Ok(Box::new(Redis)),
        "memcached" => Ok(Box::new(Memcached)),
        "http" => Ok(Box::new(Http)),
        "postgres" => Ok(Box::new(Postgres {
            database: options.or("database", "postgres".to_string())?,
            read_sql: options.get("read-sql")?,
            write_sql: options.get("write-sql")?,
        })),
        other => Err(format!("unknown protocol {other}").into()),
    }
}

fn workload(name: &str) -> Result<Workload> {
    match name {
        "baseline" => Ok(Workload::Baseline),
        "read" => Ok(Workload::Read),
        "set" => Ok(Workload::Set),
        "write" => Ok(Workload::Write),
        "mixed" => Ok(Workload::Mixed),
        "cached" => Ok(Workload::Cached),
        "preload" => Ok(Workload::Preload),
        other => Err(format!("unknown workload {other}").into()),
    }
}

#[derive(Default)]
struct Counts {
    latency: Latency,
    requests: u64,
    hits: u64,
    misses: u64,
    sets: u64,
    refused: u64,
    hot_gets: u64,
    hot_hits: u64,
    seconds: f64,
}

fn run_threads(plan: &Plan, threads: usize, clients: usize) -> Result<Vec<Counts>> {
    let seed = std::process::id() as u64;
    thread::scope(|scope| {
        let share = |t: usize| clients / threads + usize::from(t < clients % threads);
        let running: Vec<_> =
            (0..threads).map(|t| scope.spawn(move || run(plan, share(t), seed << 8 | t as u64))).collect();
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

fn run(plan: &Plan, connections: usize, seed: u64) -> Result<Counts> {
    let mut client = Client::open(plan, connections, seed)?;
    client.run_until(plan.warmup)?;
    client.counts = Counts::default();
    let start = Instant::now();
    client.run_until(plan.end)?;
    client.counts.seconds = start.elapsed().as_secs_f64();
    Ok(client.counts)
}

struct Connection {
    stream: Stream,
    out: Vec<u8>,
    input: Vec<u8>,
    sent: Instant,
    command: Command,
}

struct Client<'a> {
    plan: &'a Plan,
    random: Random,
    connections: Vec<Connection>,
    epoll: std::os::fd::OwnedFd,
    buffer: Vec<u8>,
    counts: Counts,
}

impl<'a> Client<'a> {
    fn open(plan: &'a Plan, connections: usize, seed: u64) -> Result<Self> {
        let mut client = Client {
            plan,
            random: Random(seed),
            connections: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            buffer: vec![0; BUFFER],
            counts: Counts::default(),
        };
        for slot in 0..connections {
            client.connect(slot)?;
        }
        Ok(client)
    }

    fn connect(&mut self, slot: usize) -> Result<()> {
        let mut stream = connect(&self.plan.address)?;
        self.plan.protocol.greet(&mut stream)?;
        stream.set_nonblocking(true)?;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(slot as u64), epoll::EventFlags::IN)?;
        let (out, input, command) = (Vec::new(), Vec::new(), Command::Baseline);
        self.connections.push(Connection { stream, out, input, sent: Instant::now(), command });
        let first = self.draw();
        self.send(slot, first)
    }

    /// Sends the next request after each reply until the end. If a request is still in flight then, the next call
    /// counts it, if there is one.
    fn run_until(&mut self, end: End) -> Result<()> {
        let mut events = Vec::with_capacity(self.connections.len().max(1));
        let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let start = Instant::now();
        while !self.reached(end, start) {
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

    fn reached(&self, end: End, start: Instant) -> bool {
        match end {
            End::After(length) => start.elapsed() >= length,
            End::Gets(gets) => self.counts.hits + self.counts.misses >= gets,
        }
    }

    fn answer(&mut self, slot: usize) -> Result<()> {
        if let Some(reply) = self.receive(slot)? {
            self.count(slot, &reply);
            let next = self.after(slot, &reply);
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
        let reply = self.plan.protocol.decode(&connection.input, &connection.command, &self.plan.value)?;
        if reply.is_some() {
            connection.input.clear(); // one request in flight: nothing can follow its reply
        }
        Ok(reply)
    }

    fn count(&mut self, slot: usize, reply: &Reply) {
        let connection = &self.connections[slot];
        self.counts.latency.add(connection.sent.elapsed());
        self.counts.requests += 1;
        if let Command::Get(number) = connection.command
            && self.plan.keys.is_hot(number)
        {
            self.counts.hot_gets += 1;
            self.counts.hot_hits += u64::from(*reply == Reply::Hit);
        }
        match reply {
            Reply::Refused => self.counts.refused += 1,
            Reply::Hit => self.counts.hits += 1,
            Reply::Miss => self.counts.misses += 1,
            Reply::Done => self.counts.sets += u64::from(matches!(connection.command, Command::Set(_))),
        }
    }

    fn after(&mut self, slot: usize, reply: &Reply) -> Command {
        match (self.plan.workload, self.connections[slot].command, reply) {
            (Workload::Cached, Command::Get(number), Reply::Miss) => Command::Set(number),
            _ => self.draw(),
        }
    }

    fn send(&mut self, slot: usize, command: Command) -> Result<()> {
        let connection = &mut self.connections[slot];
        connection.sent = Instant::now();
        connection.out.clear();
        self.plan.protocol.encode(&mut connection.out, &command, &self.plan.value);
        connection.command = command;
        write_fully(&mut connection.stream, &connection.out)
    }

    fn draw(&mut self) -> Command {
        let (keys, random) = (self.plan.keys, &mut self.random);
        match self.plan.workload {
            Workload::Baseline | Workload::Preload => Command::Baseline,
            Workload::Read | Workload::Cached => Command::Get(keys.read(random)),
            Workload::Set => Command::Set(keys.read(random)),
            Workload::Write => Command::Set(keys.write(random)),
            Workload::Mixed if random.below(5) == 0 => Command::Set(keys.write(random)),
            Workload::Mixed => Command::Get(keys.read(random)),
        }
    }
}

/// Writes a request. It fits into the socket's buffer except for very large values; then the thread waits.
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

/// Sets every existing key, many sets on the wire at once.
fn preload(plan: &Plan) -> Result<()> {
    let stored = plan.protocol.stored().ok_or("this protocol has no preload")?;
    let mut stream = connect(&plan.address)?;
    for first in (0..plan.keys.entries).step_by(BATCH as usize) {
        let end = (first + BATCH).min(plan.keys.entries);
        let (mut out, mut got) = (Vec::new(), vec![0; (end - first) as usize * stored.len()]);
        for i in first..end {
            plan.protocol.encode(&mut out, &Command::Set(plan.keys.existing(i)), &plan.value);
        }
        stream.write_all(&out)?;
        stream.read_exact(&mut got)?;
        if got.chunks(stored.len()).any(|reply| reply != stored) {
            return Err("a set of the preload failed".into());
        }
    }
    Ok(())
}
