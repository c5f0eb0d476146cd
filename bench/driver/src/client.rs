//! One thread: an epoll loop over its share of the connections, one request in flight on each.

use std::io::{Error, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::latency::Latency;
use crate::law::{Law, Random};
use crate::protocol::{Command, Protocol, Reply};
use crate::stream::Stream;

const BUFFER: usize = 64 * 1024;

/// When a thread stops: after a time, or after so many gets of its own.
#[derive(Clone, Copy)]
pub enum End {
    After(Duration),
    Gets(u64),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Round {
    Floor,
    Read,
    Set,
    Write,
    Mixed,
    /// As an application uses a cache: get, and on a miss set.
    Cached,
}

pub struct Plan {
    pub protocol: Box<dyn Protocol>,
    pub socket: String,
    pub round: Round,
    pub law: Law,
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

struct Connection {
    stream: Stream,
    out: Vec<u8>,
    input: Vec<u8>,
    sent: Instant,
    command: Command,
}

pub fn run(plan: &Plan, connections: usize, seed: u64) -> Result<Counts, String> {
    let mut client = Client::open(plan, connections, seed).map_err(|e| e.to_string())?;
    client.run_until(plan.warmup)?;
    client.counts = Counts::default();
    let start = Instant::now();
    client.run_until(plan.end)?;
    client.counts.seconds = start.elapsed().as_secs_f64();
    Ok(client.counts)
}

struct Client<'a> {
    plan: &'a Plan,
    random: Random,
    connections: Vec<Connection>,
    epoll: i32,
    buffer: Vec<u8>,
    counts: Counts,
}

impl<'a> Client<'a> {
    fn open(plan: &'a Plan, connections: usize, seed: u64) -> Result<Self, Error> {
        // SAFETY: takes no pointer; the result is checked.
        let epoll = unsafe { libc::epoll_create1(0) };
        if epoll < 0 {
            return Err(Error::last_os_error());
        }
        let mut client = Client {
            plan,
            random: Random(seed),
            connections: Vec::new(),
            epoll,
            buffer: vec![0; BUFFER],
            counts: Counts::default(),
        };
        for slot in 0..connections {
            client.connect(slot)?;
        }
        Ok(client)
    }

    fn connect(&mut self, slot: usize) -> Result<(), Error> {
        let mut stream = Stream::connect(&self.plan.socket)?;
        self.plan.protocol.greet(&mut stream)?;
        stream.set_nonblocking()?;
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: slot as u64 };
        // SAFETY: both descriptors are open and `event` outlives the call.
        let rc = unsafe { libc::epoll_ctl(self.epoll, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &mut event) };
        if rc < 0 {
            return Err(Error::last_os_error());
        }
        self.connections.push(Connection {
            stream,
            out: Vec::new(),
            input: Vec::new(),
            sent: Instant::now(),
            command: Command::Floor,
        });
        let first = self.draw();
        self.send(slot, first)
    }

    /// Until the end each answer is followed by the next request. The one still in flight then is
    /// counted by the next call, or by nobody.
    fn run_until(&mut self, end: End) -> Result<(), String> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; self.connections.len()];
        let start = Instant::now();
        while !self.reached(end, start) {
            // SAFETY: the buffer holds as many events as the length passed with it.
            let ready =
                unsafe { libc::epoll_wait(self.epoll, events.as_mut_ptr(), events.len() as i32, 100) };
            for event in &events[..ready.max(0) as usize] {
                self.answer(event.u64 as usize)?;
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

    fn answer(&mut self, slot: usize) -> Result<(), String> {
        if let Some(reply) = self.receive(slot)? {
            self.count(slot, &reply);
            let next = self.after(slot, &reply);
            self.send(slot, next).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn receive(&mut self, slot: usize) -> Result<Option<Reply>, String> {
        let connection = &mut self.connections[slot];
        let got = connection.stream.read(&mut self.buffer).map_err(|e| e.to_string())?;
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
        self.counts.latency.add(connection.sent.elapsed().as_nanos() as u64);
        self.counts.requests += 1;
        if let Command::Get(number) = connection.command
            && self.plan.law.is_hot(number)
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
        match (self.plan.round, self.connections[slot].command, reply) {
            (Round::Cached, Command::Get(number), Reply::Miss) => Command::Set(number),
            _ => self.draw(),
        }
    }

    fn send(&mut self, slot: usize, command: Command) -> Result<(), Error> {
        let connection = &mut self.connections[slot];
        connection.sent = Instant::now();
        connection.out.clear();
        self.plan.protocol.encode(&mut connection.out, &command, &self.plan.value);
        connection.command = command;
        write_fully(&mut connection.stream, &connection.out)
    }

    fn draw(&mut self) -> Command {
        let law = self.plan.law;
        match self.plan.round {
            Round::Floor => Command::Floor,
            Round::Read | Round::Cached => Command::Get(law.read(&mut self.random)),
            Round::Set => Command::Set(law.read(&mut self.random)),
            Round::Write => Command::Set(law.write(&mut self.random)),
            Round::Mixed if self.random.below(5) == 0 => Command::Set(law.write(&mut self.random)),
            Round::Mixed => Command::Get(law.read(&mut self.random)),
        }
    }
}

/// A request fits the socket's buffer except with very large values; then the thread waits its turn.
fn write_fully(stream: &mut Stream, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
