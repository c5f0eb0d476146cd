//! A load: the requests that a thread sends, the end of the load, and the counts of the answers.
//!
//! It sends and receives nothing. So the epoll loop and the HTTP client can share it, which makes both draw keys and
//! count answers in the same way.

use std::time::{Duration, Instant};

use crate::Result;
use crate::key_distribution::KeyDistribution;
use crate::latency::Latency;
use crate::protocol::{Command, Reply};
use crate::random::Random;

/// The end of a thread's load: after a time, or after a number of the thread's gets.
#[derive(Clone, Copy)]
pub enum End {
    After(Duration),
    Gets(u64),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Workload {
    Baseline,
    Read,
    Set,
    Write,
    Mixed,
    /// Gets a key, and sets it after a miss, as an application uses a cache.
    Cached,
    Preload,
}

impl Workload {
    pub fn named(name: &str) -> Result<Workload> {
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
}

pub struct Plan {
    pub address: String,
    pub workload: Workload,
    pub keys: KeyDistribution,
    pub value: Vec<u8>,
    pub warmup: End,
    pub end: End,
}

#[derive(Default)]
pub struct Counts {
    pub latency: Latency,
    pub requests: u64,
    pub hits: u64,
    pub misses: u64,
    pub sets: u64,
    pub refused: u64,
    pub hot_gets: u64,
    pub hot_hits: u64,
    pub seconds: f64,
}

/// The load of one thread.
pub struct Load<'a> {
    pub plan: &'a Plan,
    pub counts: Counts,
    random: Random,
}

impl<'a> Load<'a> {
    pub fn new(plan: &'a Plan, seed: u64) -> Self {
        Load { plan, counts: Counts::default(), random: Random(seed) }
    }

    pub fn reached(&self, end: End, start: Instant) -> bool {
        match end {
            End::After(length) => start.elapsed() >= length,
            End::Gets(gets) => self.counts.hits + self.counts.misses >= gets,
        }
    }

    pub fn draw(&mut self) -> Command {
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

    /// Counts the answer to a request, and returns the connection's next request.
    pub fn answered(&mut self, command: Command, sent: Instant, reply: &Reply) -> Command {
        self.count(command, sent.elapsed(), reply);
        match (self.plan.workload, command, reply) {
            (Workload::Cached, Command::Get(number), Reply::Miss) => Command::Set(number),
            _ => self.draw(),
        }
    }

    fn count(&mut self, command: Command, took: Duration, reply: &Reply) {
        self.counts.latency.add(took);
        self.counts.requests += 1;
        if let Command::Get(number) = command
            && self.plan.keys.is_hot(number)
        {
            self.counts.hot_gets += 1;
            self.counts.hot_hits += u64::from(*reply == Reply::Hit);
        }
        match reply {
            Reply::Refused => self.counts.refused += 1,
            Reply::Hit => self.counts.hits += 1,
            Reply::Miss => self.counts.misses += 1,
            Reply::Done => self.counts.sets += u64::from(matches!(command, Command::Set(_))),
        }
    }
}
