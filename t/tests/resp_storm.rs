//! Runs SQL sessions and Redis clients at once on the same caches, and checks that one order of all operations explains
//! all answers.
//!
//! No lock orders the clients, so writers conflict on rows, in the executors' batches and in the tier.
//! PGCACHE_STORM_SECONDS sets the length; scripts/storm.sh also runs this test on a library that waits at random in the
//! windows of the protocol.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::linear::{Answer, Command, Operation, Refusal, Step, When};
use pgcache_tests::resp::{Door, Reply};
use pgcache_tests::rng::Rng;
use pgcache_tests::storm::{ENOUGH, KEYS, Protocol, Storm, server};
use pgcache_tests::tables::{client_in, executors, reply, send_together};
use pgcache_tests::tier::Tiered;
use pgcache_tests::wait::{PATIENCE, wait_for, wait_until};
use pgcache_tests::ways::{Cache, Call, CallResult, Clock, Fate, Request, Shape, Way};

use crate::coherence_storm::duration;

const SQL: &[Protocol] = &[Protocol::Sql];
const RESP: &[Protocol] = &[Protocol::Resp];
const BOTH: &[Protocol] = &[Protocol::Sql, Protocol::Resp];
/// The clients of a storm, each with the protocols that it uses.
const CLIENTS: [&[Protocol]; 9] = [SQL, SQL, SQL, RESP, RESP, RESP, BOTH, BOTH, BOTH];

const fn cache(number: usize, name: &'static str, storage: &'static str) -> Cache {
    Cache {
        number,
        name,
        storage,
        source: None,
    }
}

const MEMORY: Cache = cache(0, "public.mem", "memory");
const UNLOGGED: Cache = cache(1, "public.tab", "unlogged");
const LOGGED: Cache = cache(2, "public.safe", "logged");
const CACHES: [Cache; 3] = [MEMORY, UNLOGGED, LOGGED];

fn as_it_is(way: Box<dyn Way>) -> Box<dyn Way> {
    way
}

/// Runs the clients of both protocols, and `beside` at the same time.
fn with_clients(storm: &Storm, beside: impl FnOnce() + Send) {
    thread::scope(|scope| {
        for (number, protocols) in CLIENTS.into_iter().enumerate() {
            scope.spawn(move || storm.client(protocols, number, as_it_is));
        }
        beside();
    });
    storm.read_all();
}

fn is_sound(door: &Door) {
    let mut session = door.cluster.connect("postgres");
    session.nothing_pending();
    session.sums_up();
    for cache in [UNLOGGED, LOGGED] {
        session.verified(cache.name);
    }
    assert!(session.holds("SELECT evictions = 0 FROM pgcache.hot_tier"));
}

#[track_caller]
fn assert_explained(verdict: Result<(), Box<Refusal>>) {
    if let Err(refusal) = verdict {
        panic!("no order explains {refusal:#?}");
    }
}

#[test]
fn one_order_explains_the_answers_of_both_protocols() {
    let door = server(&CACHES);
    let storm = Storm::over(&door, &CACHES, duration() / 3);
    with_clients(&storm, || {});
    assert_explained(storm.verdict());
    is_sound(&door);
    let mut session = door.cluster.connect("postgres");
    for cache in [UNLOGGED, LOGGED] {
        assert!(session.hot_hits(cache.name) > 0, "the tier was not used");
    }
}

#[test]
fn one_order_explains_the_answers_while_executors_are_ended() {
    let door = server(&CACHES);
    let storm = Storm::over(&door, &CACHES, duration() / 3).with_faults();
    with_clients(&storm, || {
        let (mut session, mut rng) = (door.cluster.connect("postgres"), Rng::seeded(3));
        let mut ended = 0;
        while storm.goes_on() || ended < 3 {
            let before = storm.least_operations();
            wait_until("clients are at work", || {
                storm.least_operations() > before + 10 + rng.below(30) || !storm.goes_on()
            });
            let executors = executors(&door);
            if !executors.is_empty() {
                session.run(&format!(
                    "SELECT pg_terminate_backend({})",
                    rng.pick(&executors)
                ));
                ended += 1;
            }
        }
    });
    assert_explained(storm.verdict());
    is_sound(&door);
}

/// After the server restarts, the logged cache must have the acknowledged values, and the other caches must be empty.
#[test]
fn one_order_explains_the_answers_around_a_kill_of_the_server() {
    let door = server(&CACHES);
    let storm = Storm::over(&door, &CACHES, PATIENCE).with_faults();
    with_clients(&storm, || {
        for kind in [
            "pgcache resp executor",
            "pgcache resp network",
            "pgcache resp executor",
        ] {
            let before = storm.least_operations();
            wait_until("clients are at work", || {
                storm.least_operations() > before + ENOUGH
            });
            kill(&storm, &door, kind);
        }
        let before = storm.least_operations();
        wait_until("clients are at work", || {
            storm.least_operations() > before + ENOUGH
        });
        storm.ends.store(true, SeqCst);
    });
    assert_explained(storm.verdict());
    is_sound(&door);
}

/// Kills a process of this type. The postmaster then restarts the server.
fn kill(storm: &Storm, door: &Door, kind: &str) {
    const READY: &str = "database system is ready to accept connections";
    let starts = || door.cluster.log_text().matches(READY).count();
    let before = starts();
    let victim = wait_for("there is such a process", || {
        door.processes_if_up(kind)?.last().copied()
    });
    storm.is_down.store(true, SeqCst);
    let began = storm.clock.now();
    door.cluster.kill_backend(victim);
    wait_until("the server starts again", || starts() > before);
    door.cluster.wait_until_up();
    let ended = storm.clock.now();
    let emptied = CACHES.iter().filter(|cache| cache.storage != "logged");
    let keys = emptied.flat_map(|cache| (0..KEYS).map(|key| cache.key(key)));
    let removal = |key| Operation {
        client: usize::MAX,
        key,
        began,
        ended,
        steps: vec![Step {
            command: Command::Delete,
            answer: Answer::Unknown,
        }],
        certain: true,
    };
    storm.add(keys.map(removal).collect());
    storm.is_down.store(false, SeqCst);
}

/// A client that lies: it returns old replies as a client-side cache does, or reports success for commands that it has
/// never sent.
struct Lying {
    way: Box<dyn Way>,
    swallows: bool,
    requests: u64,
    known: Vec<(Cache, u64, Answer)>,
}

impl Way for Lying {
    fn can(&self, cache: Cache, command: &Command) -> bool {
        self.way.can(cache, command)
    }

    fn is_broken(&self) -> bool {
        self.way.is_broken()
    }

    fn run(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        self.requests += 1;
        let is_set = |call: &Call| {
            matches!(
                call.command,
                Command::Set {
                    when: When::Always,
                    ..
                }
            )
        };
        if self.swallows
            && request.shape == Shape::OneByOne
            && self.requests.is_multiple_of(4)
            && request.calls.iter().all(is_set)
        {
            let now = clock.now();
            let result = CallResult {
                began: now,
                ended: clock.now(),
                answer: Answer::Done(true),
                fate: Fate::Done,
            };
            return vec![result; request.calls.len()];
        }
        let mut results = self.way.run(request, clock);
        for (call, result) in request.calls.iter().zip(&mut results) {
            if self.swallows || request.shape != Shape::OneByOne || call.command != Command::Get {
                continue;
            }
            let known = self
                .known
                .iter()
                .position(|(cache, key, _)| (*cache, *key) == (request.cache, call.key));
            match known {
                // Returns each kept reply once more.
                Some(at) => result.answer = self.known.swap_remove(at).2,
                None => self.known.push((request.cache, call.key, result.answer)),
            }
        }
        results
    }
}

/// The negative control: the same storm with one lying Redis client. On a slow machine one order may explain a lie as
/// well, so the client lies until it is detected.
#[test]
fn a_stale_read_and_a_lost_write_by_redis_are_caught() {
    let door = server(&CACHES);
    for swallows in [false, true] {
        let refusal = wait_for("a lie is caught", || lie(&door, swallows));
        println!("{:?}", refusal.operation);
    }
}

/// Runs a storm with a lying client. Returns the checker's refusal, or None if one order explains the answers.
fn lie(door: &Door, swallows: bool) -> Option<Box<Refusal>> {
    let storm = Storm::over(door, &CACHES, Duration::from_secs(1));
    // The previous storm left entries.
    for cache in CACHES {
        let clear = format!("SELECT cache_clear('{}')", cache.name);
        door.cluster.connect("postgres").run(&clear);
    }
    thread::scope(|scope| {
        let storm = &storm;
        for (number, protocols) in [SQL, RESP].into_iter().enumerate() {
            scope.spawn(move || storm.client(protocols, number, as_it_is));
        }
        scope.spawn(move || {
            storm.client(RESP, 2, |way| {
                Box::new(Lying {
                    way,
                    swallows,
                    requests: 0,
                    known: Vec::new(),
                })
            });
        });
    });
    storm.read_all();
    storm.verdict().err()
}

/// A source. Two caches depend on it: `made`, a table, and `swift`, in memory.
static SOURCE: Cache = cache(0, "public.src", "logged");
const MADE: Cache = Cache {
    source: Some(&SOURCE),
    ..cache(1, "public.made", "logged")
};
const SWIFT: Cache = Cache {
    source: Some(&SOURCE),
    ..cache(2, "public.swift", "memory")
};

/// Acts as a client that computes a value itself: it reads the source only after it has the lease.
fn lease(storm: &Storm, door: &Door) {
    let (mut session, mut rng) = (door.cluster.connect("postgres"), Rng::seeded(11));
    while storm.goes_on() {
        let (key, name) = (rng.below(KEYS), rng.pick(&[MADE, SWIFT]).name);
        let ask = format!(
            "SELECT lease FROM cache_lease('k{key}', cache => '{name}') WHERE state = 'win'"
        );
        let Some(lease) = session.value(&ask) else {
            continue;
        };
        let row = format!("SELECT value FROM {} WHERE key = 'k{key}'", SOURCE.name);
        match session.value(&row) {
            Some(value) if rng.below(3) > 0 => session.run(&format!(
                "SELECT cache_set_leased('k{key}', '{value}', {lease}, cache => '{name}')"
            )),
            _ => session.run(&format!(
                "SELECT cache_release('k{key}', {lease}, '{name}')"
            )),
        }
    }
}

/// The source is a cache itself, so that both protocols write it. An entry that is computed from a row is never older
/// than an acknowledged write, and at the end it is computed from the last row.
#[test]
fn entries_of_a_source_are_never_older_than_writes_of_either_protocol() {
    let caches = [SOURCE, MADE, SWIFT];
    let door = server(&caches);
    let mut session = door.cluster.connect("postgres");
    for made in [MADE, SWIFT] {
        let (source, made) = (SOURCE.name, made.name);
        session.run(&format!("SELECT cache_depend('{source}', 'key', '{made}')"));
    }
    let storm = Storm::over(&door, &caches, duration() / 3);
    with_clients(&storm, || lease(&storm, &door));
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let value = format!("{number}");
        let mut client = client_in(&door, 0, None);
        assert_eq!(client.ask(&["SET", key, &value]), Reply::status("OK"));
        for made in [MADE, SWIFT] {
            let mut client = client_in(&door, made.number as u32, None);
            // No old entry exists, and a new entry has the written value.
            assert_eq!(client.ask(&["GET", key]), Reply::Null);
            let fetch = format!(
                "SELECT cache_fetch('{key}', 'SELECT value FROM {} WHERE key = $1', cache => '{}')",
                SOURCE.name, made.name
            );
            assert_eq!(session.text(&fetch), value);
            assert_eq!(client.ask(&["GET", key]), Reply::bulk(&value));
        }
    }
    assert_explained(storm.verdict());
    session.nothing_pending();
    session.sums_up();
    session.verified(MADE.name);
}

const TOGETHER: usize = 32;

/// Counts as one running counter in the number of running counters until it is dropped.
struct Counts<'a>(&'a AtomicUsize);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn counts_by_pipelines(door: &Door, cache: Cache) -> Vec<i64> {
    let mut client = client_in(door, cache.number as u32, None);
    let pipeline = [&["INCR", "k"][..]; TOGETHER];
    let mut results = Vec::new();
    let pipelines = if cache.is_table() { 60 } else { 1000 };
    for _ in 0..pipelines {
        send_together(&mut client, &pipeline);
        results.extend(pipeline.map(|_| match reply(&mut client) {
            Reply::Integer(count) => count,
            other => panic!("expected a count, got {other:?}"),
        }));
    }
    results
}

/// Counts through SQL as long as other counters run.
fn counts_by_statements(door: &Door, cache: Cache, others: &AtomicUsize) -> Vec<i64> {
    let mut session = door.cluster.connect("postgres");
    let one = format!("SELECT cache_incr('k', cache => '{}')", cache.name);
    let mut results = Vec::new();
    while results.is_empty() || others.load(SeqCst) > 0 {
        results.push(session.number(&one));
    }
    results
}

/// Clients of both protocols increment one counter as fast as they can. Each number is returned exactly once.
#[test]
fn no_count_of_either_protocol_is_lost() {
    const CLIENTS: usize = 4;
    let door = server(&CACHES);
    for cache in CACHES {
        let (results, left) = (Mutex::new(Vec::new()), AtomicUsize::new(CLIENTS));
        let add = |counts| {
            results
                .lock()
                .expect("no thread has panicked")
                .extend(counts)
        };
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let _counts = Counts(&left);
                    add(counts_by_pipelines(&door, cache));
                });
            }
            for _ in 0..2 {
                scope.spawn(|| add(counts_by_statements(&door, cache, &left)));
            }
        });
        let mut results: Vec<i64> = results.into_inner().expect("no thread has panicked");
        results.sort_unstable();
        let all: Vec<i64> = (1..=results.len() as i64).collect();
        assert!(
            results == all,
            "{}: a count was lost or returned twice",
            cache.name
        );
        println!("{}: {} counts", cache.name, all.len());
    }
}
