//! Runs clients with random requests on the same caches, through SQL and through the Redis protocol, and records their
//! history.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::ask::Ask;
use crate::linear::{Command, Operation, Refusal, Until, When, check};
use crate::resp::Door;
use crate::rng::Rng;
use crate::wait::{PATIENCE, wait_for, wait_until};
use crate::ways::{self, Cache, Call, Clock, Request, Shape, Sql, Way, operations};

/// The number of keys of each cache. It is small, so that many clients use the same key at once.
pub const KEYS: u64 = 4;
/// The least number of operations of each protocol on each cache in a history. A shorter history could pass by luck.
pub const ENOUGH: u64 = 100;

/// Starts a server with these caches as databases of the Redis protocol.
pub fn server(caches: &[Cache]) -> Door {
    let names: Vec<&str> = caches.iter().map(|cache| cache.name).collect();
    let door = Door::without_cache(&[
        &format!("pgcache.resp_caches = '{}'", names.join(", ")),
        "pgcache.resp_workers = 2",
        "pgcache.resp_executors = 3",
        "max_worker_processes = 16",
        "pgcache.hot_size = '32MB'",
        // Make commits take time, so that the checker detects a reply that is sent before the end of its commit.
        "fsync = on",
        "commit_delay = 1000",
        "commit_siblings = 0",
    ]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    for cache in caches {
        let (name, storage) = (cache.name, cache.storage);
        session.run(&format!(
            "SELECT cache_create('{name}', storage => '{storage}')"
        ));
    }
    // A library with the cargo feature `pauses` waits at random in the windows of the protocol (scripts/storm.sh).
    if session.holds("SELECT current_setting('pgcache.pause', true) IS NOT NULL") {
        session.run("ALTER SYSTEM SET pgcache.pause = '3ms'");
        session.run("SELECT pg_reload_conf()");
    }
    door
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Sql,
    Resp,
}

/// A history that is being recorded.
pub struct Storm<'d> {
    door: &'d Door,
    caches: &'d [Cache],
    pub clock: Clock,
    until: Instant,
    pub ends: AtomicBool,
    /// Whether processes of the server are killed during the storm.
    has_faults: bool,
    /// Whether the server was killed and has not yet restarted.
    pub is_down: AtomicBool,
    values: AtomicI64,
    /// The number of operations on each cache through each protocol.
    counts: Vec<[AtomicU64; 2]>,
    operations: Mutex<Vec<Operation>>,
}

impl<'d> Storm<'d> {
    pub fn over(door: &'d Door, caches: &'d [Cache], duration: Duration) -> Storm<'d> {
        Storm {
            door,
            caches,
            clock: Clock::start(),
            until: Instant::now() + duration,
            ends: AtomicBool::new(false),
            has_faults: false,
            is_down: AtomicBool::new(false),
            values: AtomicI64::new(1),
            counts: caches.iter().map(|_| Default::default()).collect(),
            operations: Mutex::default(),
        }
    }

    /// Allows errors of clients, because the test kills processes of the server during the storm.
    pub fn with_faults(self) -> Storm<'d> {
        Storm {
            has_faults: true,
            ..self
        }
    }

    pub fn least_operations(&self) -> u64 {
        let counts = self.counts.iter().flatten();
        counts.map(|count| count.load(SeqCst)).min().unwrap_or(0)
    }

    /// Returns whether the storm continues. It ends when its time is over, but on a slow machine it continues until the
    /// history has [`ENOUGH`] operations.
    pub fn goes_on(&self) -> bool {
        let now = Instant::now();
        !self.ends.load(SeqCst)
            && (now < self.until || now < self.until + PATIENCE && self.least_operations() < ENOUGH)
    }

    /// Connects a client of this protocol once the server accepts one.
    pub fn connect(&self, protocol: Protocol, seed: u64) -> Box<dyn Way> {
        wait_for("the server takes a client", || {
            Some(match protocol {
                Protocol::Sql => {
                    let session = self.door.cluster.try_connect("postgres", "postgres");
                    Box::new(Sql::over(session.ok()?, seed)) as Box<dyn Way>
                }
                Protocol::Resp => {
                    let client = ways::Door::over(self.door.try_client()?, seed);
                    Box::new(match self.has_faults {
                        true => client.expecting_errors(),
                        false => client,
                    })
                }
            })
        })
    }

    /// Runs random requests until the storm ends, through one protocol or through several in turn. A client of several
    /// protocols reads a value through a second protocol as soon as the first protocol has returned the value.
    pub fn client(
        &self,
        protocols: &[Protocol],
        number: usize,
        wrap: impl Fn(Box<dyn Way>) -> Box<dyn Way>,
    ) {
        let mut rng = Rng::seeded(number as u64);
        let connect = |protocol: &Protocol, seed: u64| wrap(self.connect(*protocol, seed));
        let mut ways: Vec<Box<dyn Way>> = protocols
            .iter()
            .map(|protocol| connect(protocol, number as u64))
            .collect();
        let mut own = Vec::new();
        let mut cache = self.caches[0];
        let mut next: Option<(usize, Request)> = None;
        while self.goes_on() {
            if rng.below(6) == 0 {
                cache = *rng.pick(self.caches);
            }
            let (at, request) = next.take().unwrap_or_else(|| {
                let at = rng.below(ways.len() as u64) as usize;
                (at, self.request(&mut rng, &*ways[at], cache))
            });
            let results = ways[at].run(&request, &self.clock);
            if ways[at].is_broken() {
                assert!(self.has_faults, "{request:?}: {results:?}");
                wait_until("the server is back", || !self.is_down.load(SeqCst));
                ways[at] = connect(&protocols[at], own.len() as u64);
            }
            let made = operations(number, &request, &results, self.clock.now());
            let counts = &self.counts[request.cache.number][protocols[at] as usize];
            counts.fetch_add(made.len() as u64, SeqCst);
            own.extend(made);
            if ways.len() > 1
                && request
                    .calls
                    .iter()
                    .any(|call| call.command != Command::Get)
            {
                next = Some(((at + 1) % ways.len(), looks(&request)));
            }
        }
        self.add(own);
    }

    pub fn add(&self, operations: Vec<Operation>) {
        let mut all = self.operations.lock().expect("no client failed");
        all.extend(operations);
    }

    fn request(&self, rng: &mut Rng, way: &dyn Way, cache: Cache) -> Request {
        let mut keys: Vec<u64> = (0..KEYS).filter(|_| rng.below(2) == 0).collect();
        let key = rng.below(KEYS);
        if keys.is_empty() {
            keys.push(key);
        }
        let shape = match rng.below(400) {
            0 => Shape::Clear,
            ..140 if cache.source.is_some() => Shape::Together,
            1..40 => Shape::Undone,
            40..140 => Shape::Together,
            _ => Shape::OneByOne,
        };
        let mut command = || loop {
            let command = match cache.source {
                Some(_) if rng.below(8) > 0 => Command::Get,
                Some(_) => Command::Delete,
                None => self.command(rng),
            };
            if way.can(cache, &command) {
                return command;
            }
        };
        let call = |key: u64, command| Call { key, command };
        let calls = match shape {
            Shape::Clear => (0..KEYS).map(|key| call(key, Command::Delete)).collect(),
            Shape::OneByOne if keys.len() == 1 => vec![call(key, command())],
            Shape::OneByOne => {
                let keys = keys.iter().chain([&key, &key]);
                keys.map(|key| call(*key, command())).collect()
            }
            Shape::Together if cache.source.is_some() => {
                keys.iter().map(|key| call(*key, Command::Get)).collect()
            }
            Shape::Together | Shape::Undone => self.transaction(&keys, command),
        };
        Request {
            cache,
            shape,
            calls,
        }
    }

    /// Changes these keys in one transaction. A transaction sets no key that it has removed. Otherwise, under READ
    /// COMMITTED, a session that waits for the removed row would find no row, although the transaction has inserted a
    /// new row.
    fn transaction(&self, keys: &[u64], mut command: impl FnMut() -> Command) -> Vec<Call> {
        let set = || Command::Set {
            value: self.value(),
            when: When::Always,
            until: Until::Never,
        };
        let kind = self.values.load(SeqCst) % 3;
        let mut of = |key: u64| match kind {
            0 => vec![(key, Command::Get)],
            1 => vec![(key, set())],
            _ => {
                let (one, other) = (command(), command());
                let removes = |command| matches!(command, Command::Take | Command::Delete);
                match key % 3 {
                    0 => vec![(key, Command::Get), (key, one)],
                    1 => vec![(key, set()), (key, one), (key, Command::Get)],
                    _ if removes(one) => vec![(key, one), (key, Command::Get)],
                    _ => vec![(key, one), (key, other), (key, Command::Left)],
                }
            }
        };
        let calls: Vec<(u64, Command)> = keys.iter().flat_map(|key| of(*key)).collect();
        let call = |(key, command)| Call { key, command };
        calls.into_iter().map(call).collect()
    }

    /// Returns a value that no other write uses, even after increments.
    fn value(&self) -> i64 {
        1000 * self.values.fetch_add(1, SeqCst)
    }

    /// Returns whether any cache of the storm has entries that are computed from source rows.
    fn is_source(&self) -> bool {
        self.caches.iter().any(|cache| cache.source.is_some())
    }

    fn command(&self, rng: &mut Rng) -> Command {
        let hours = [10, 20, 30][rng.below(3) as usize];
        let until = match rng.below(8) {
            0..3 => Until::Never,
            3..5 => Until::Hours(hours),
            5..7 => Until::Keep,
            _ if self.is_source() => Until::Never,
            _ => Until::Millis(1 + rng.below(300) as u16),
        };
        let set = |when| Command::Set {
            value: self.value(),
            when,
            until,
        };
        match rng.below(40) {
            0..18 => Command::Get,
            18..20 => Command::Left,
            20..26 => set(When::Always),
            26..28 => set(When::Absent),
            28..30 => set(When::Present),
            30 => Command::Swap(self.value()),
            31 => Command::Take,
            32..34 => Command::Delete,
            34..38 => Command::Add {
                by: 1 + rng.below(2) as i64,
                creates: rng.below(3) > 0,
            },
            _ => Command::Expire(hours),
        }
    }

    /// Reads every key through both protocols after all clients have ended.
    pub fn read_all(&self) {
        for protocol in [Protocol::Sql, Protocol::Resp] {
            let mut way = self.connect(protocol, 7);
            for &cache in self.caches {
                if cache.source.is_some() {
                    continue;
                }
                let both = [Command::Get, Command::Left];
                let calls = (0..KEYS).flat_map(|key| both.map(|command| Call { key, command }));
                let request = Request {
                    cache,
                    shape: Shape::OneByOne,
                    calls: calls.collect(),
                };
                let results = way.run(&request, &self.clock);
                let client = 1000 + protocol as usize;
                self.add(operations(client, &request, &results, self.clock.now()));
            }
        }
    }

    /// Returns the checker's verdict. Fails if the storm ran too few operations to judge.
    pub fn verdict(self) -> Result<(), Box<Refusal>> {
        let counts = format!("{:?}", self.counts);
        assert!(
            self.least_operations() >= ENOUGH,
            "too few operations: {counts}"
        );
        let operations = self.operations.into_inner().expect("no client failed");
        let from = Instant::now();
        let verdict = check(&operations);
        println!(
            "{counts}: {} operations, judged in {:?}",
            operations.len(),
            from.elapsed()
        );
        verdict
    }
}

/// Returns a request that reads the keys of this request.
fn looks(request: &Request) -> Request {
    let look = |call: &Call| Call {
        command: Command::Get,
        ..*call
    };
    Request {
        cache: request.cache,
        shape: Shape::OneByOne,
        calls: request.calls.iter().map(look).collect(),
    }
}
