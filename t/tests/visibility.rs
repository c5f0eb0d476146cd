//! Tests visibility with recorded histories: readers see only committed values, and no value older than an acknowledged
//! value.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::history::{Fate, Read, Violation, Write, check, check_quiet};
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::rng::Rng;
use postgres::Client;

pub(crate) const KEYS: u64 = 6;
const WRITERS: u64 = 4;
const READERS: u64 = 4;
/// The least number of writes, and of reads, in a history. A shorter history could pass by luck.
pub(crate) const ENOUGH: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// A history that is being recorded: a clock, versions, and the operations of every session.
pub(crate) struct Recorder {
    origin: Instant,
    until: Instant,
    versions: AtomicU64,
    /// The number of reads and comparisons.
    count_of_reads: AtomicU64,
    writes: Mutex<Vec<Write>>,
    pub(crate) reads: Mutex<Vec<Read>>,
}

impl Recorder {
    pub(crate) fn lasting(duration: Duration) -> Recorder {
        let origin = Instant::now();
        Recorder {
            origin,
            until: origin + duration,
            versions: AtomicU64::new(1),
            count_of_reads: AtomicU64::new(0),
            writes: Mutex::default(),
            reads: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Returns whether the test continues. It ends when its time is over, but on a slow machine it continues until the
    /// history has [`ENOUGH`] operations.
    pub(crate) fn goes_on(&self) -> bool {
        let now = Instant::now();
        let has = |count: &AtomicU64| count.load(Ordering::SeqCst) > ENOUGH as u64;
        now < self.until
            || now < self.until + PATIENCE && !(has(&self.versions) && has(&self.count_of_reads))
    }

    /// Counts a read.
    pub(crate) fn count_read(&self) {
        self.count_of_reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins a write with a new version. Its outcome is not known yet.
    pub(crate) fn write_begins(&self, key: u64, removes: bool) -> Write {
        Write {
            key,
            version: self.versions.fetch_add(1, Ordering::SeqCst),
            removes,
            began: self.now(),
            fate: Fate::Unknown,
        }
    }

    pub(crate) fn write_ends(&self, write: Write, fate: Fate) {
        let mut writes = self.writes.lock().expect("no writer failed");
        writes.push(Write { fate, ..write });
    }

    /// Checks the final entries against the writes of all sessions.
    pub(crate) fn quiet(&self, left: &[(u64, u64)]) -> Result<(), Violation> {
        check_quiet(&self.writes.lock().expect("no writer failed"), left)
    }

    pub(crate) fn verdict(self) -> Result<(usize, usize), Violation> {
        let writes = self.writes.into_inner().expect("no writer failed");
        let reads = self.reads.into_inner().expect("no reader failed");
        check(&writes, &reads)?;
        Ok((writes.len(), reads.len()))
    }
}

/// Runs a transaction with one write of one key. The transaction takes a lock at its beginning, which is released once
/// other sessions can see the commit. So a key's versions increase in the order of its commits.
pub(crate) fn write_once(session: &mut Client, recorder: &Recorder, rng: &mut Rng) {
    let key = rng.below(KEYS);
    session.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({key})"));
    if rng.below(4) == 0 {
        let undone = recorder.write_begins(key, false);
        let overwrite = overwrite(rng, key, undone.version);
        session.run(&format!("SAVEPOINT s; {overwrite}; ROLLBACK TO s"));
        recorder.write_ends(undone, Fate::RolledBack);
    }
    let write = recorder.write_begins(key, rng.below(6) == 0);
    session.run(&match write.removes {
        true => remove(rng, key),
        false => overwrite(rng, key, write.version),
    });
    let commits = rng.below(4) > 0;
    end(session, commits, rng);
    let fate = match commits {
        true => Fate::Committed(recorder.now()),
        false => Fate::RolledBack,
    };
    recorder.write_ends(write, fate);
}

/// Ends a transaction at once or in two phases, at random.
pub(crate) fn end(session: &mut Client, commits: bool, rng: &mut Rng) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let verb = if commits { "COMMIT" } else { "ROLLBACK" };
    if rng.below(3) > 0 {
        return session.run(verb);
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    session.run(&format!("PREPARE TRANSACTION 'history {number}'"));
    std::thread::sleep(Duration::from_millis(rng.below(3)));
    session.run(&format!("{verb} PREPARED 'history {number}'"));
}

/// Returns a random statement that writes, by a function or by plain SQL.
fn overwrite(rng: &mut Rng, key: u64, version: u64) -> String {
    match rng.below(7) {
        0 => format!("SELECT cache_set('k{key}', '{version}', cache => 'seen')"),
        1 => format!("SELECT cache_set('k{key}', '{version}', ttl => '1 hour', cache => 'seen')"),
        2 => format!("SELECT cache_set_many('{{k{key}}}', '{{{version}}}', cache => 'seen')"),
        3 => format!(
            "SELECT cache_delete('k{key}', 'seen'); SELECT cache_add('k{key}', '{version}', cache => 'seen')"
        ),
        4 => format!(
            "INSERT INTO seen VALUES ('k{key}', '{version}') \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        ),
        5 => format!(
            "WITH w AS (INSERT INTO seen VALUES ('k{key}', '{version}') ON CONFLICT (key) \
             DO UPDATE SET value = excluded.value RETURNING 1) SELECT cache_get('k{key}', 'seen') FROM w"
        ),
        _ => format!(
            "DELETE FROM seen WHERE key = 'k{key}'; INSERT INTO seen VALUES ('k{key}', '{version}')"
        ),
    }
}

fn remove(rng: &mut Rng, key: u64) -> String {
    match rng.below(4) {
        0 => format!("SELECT cache_delete('k{key}', 'seen')"),
        1 => format!("SELECT cache_take('k{key}', 'seen')"),
        2 => format!("SELECT cache_delete_many('{{k{key}}}', 'seen')"),
        _ => format!("DELETE FROM seen WHERE key = 'k{key}'"),
    }
}

/// Returns a random statement that reads one value.
fn question(rng: &mut Rng, key: u64) -> String {
    match rng.below(6) {
        0..=1 => format!("SELECT cache_get('k{key}', 'seen')"),
        2 => format!("SELECT value FROM cache_lookup('k{key}', 'seen')"),
        3 => format!("SELECT value FROM cache_get_many('{{k{key}}}', 'seen')"),
        4 => format!("SELECT value FROM cache_scan('k{key}', max_rows => 1, cache => 'seen')"),
        _ => format!("SELECT value FROM seen WHERE key = 'k{key}'"),
    }
}

pub(crate) fn read_once(session: &mut Client, recorder: &Recorder, rng: &mut Rng) -> Read {
    let key = rng.below(KEYS);
    let question = question(rng, key);
    let began = recorder.now();
    let saw = session.value(&question);
    recorder.count_read();
    let saw = saw.map(|version| version.parse().expect("only versions are written"));
    Read {
        key,
        began,
        ended: recorder.now(),
        saw,
        snapshot: None,
    }
}

/// A function that returns the value that a reader uses, given the reader's memory and the answer from the server.
type Belief = fn(&mut Option<Read>, Read) -> Read;

fn as_returned(_: &mut Option<Read>, read: Read) -> Read {
    read
}

/// Simulates a client-side cache in front of pgcache, without invalidation.
fn with_memory(memory: &mut Option<Read>, read: Read) -> Read {
    let former = memory.get_or_insert(read);
    if former.key == read.key {
        return Read {
            saw: former.saw,
            ..read
        };
    }
    *former = read;
    read
}

fn record(database: &Database, duration: Duration, belief: Belief) -> Recorder {
    let recorder = Recorder::lasting(duration);
    thread::scope(|scope| {
        let recorder = &recorder;
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let (mut session, mut rng) = (database.connect(), Rng::seeded(writer));
                while recorder.goes_on() {
                    write_once(&mut session, recorder, &mut rng);
                }
            });
        }
        for reader in 0..READERS {
            scope.spawn(move || {
                let (mut session, mut rng) = (database.connect(), Rng::seeded(reader + 50));
                let mut memory = None;
                let mut reads = Vec::new();
                while recorder.goes_on() {
                    let read = read_once(&mut session, recorder, &mut rng);
                    reads.push(belief(&mut memory, read));
                }
                recorder
                    .reads
                    .lock()
                    .expect("no reader failed")
                    .extend(reads);
            });
        }
    });
    recorder
}

fn cache_of(storage: &str) -> Database<'static> {
    let database = Cluster::shared().database();
    let create = format!("SELECT cache_create('seen', storage => '{storage}')");
    database.connect().run(&create);
    database
}

#[test]
fn a_read_never_returns_less_than_acknowledged_writes() {
    for storage in ["unlogged", "logged"] {
        let recorder = record(&cache_of(storage), Duration::from_secs(4), as_returned);
        let (writes, reads) = recorder.verdict().expect(storage);
        assert!(
            writes.min(reads) >= ENOUGH / 2,
            "{writes} writes, {reads} reads"
        );
    }
}

/// The negative control: the checker rejects the histories of a reader that caches what it reads.
#[test]
fn a_reader_with_a_memory_of_its_own_is_caught() {
    let recorder = record(&cache_of("unlogged"), Duration::from_secs(1), with_memory);
    assert!(matches!(
        recorder.verdict(),
        Err(Violation::Older { .. } | Violation::RolledBack(_))
    ));
}

/// Checks that function and SELECT agree within one transaction while other sessions commit.
fn agrees_with_select(isolation: &str) {
    let database = cache_of("unlogged");
    let recorder = Recorder::lasting(Duration::from_secs(2));
    let compared: usize = thread::scope(|scope| {
        let (recorder, database) = (&recorder, &database);
        for writer in 0..2 {
            scope.spawn(move || {
                let (mut session, mut rng) = (database.connect(), Rng::seeded(writer));
                while recorder.goes_on() {
                    write_once(&mut session, recorder, &mut rng);
                }
            });
        }
        let readers: Vec<_> = (0..4)
            .map(|reader| scope.spawn(move || compare(database, recorder, isolation, reader)))
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader failed"))
            .sum()
    });
    assert!(compared >= ENOUGH / 2, "{compared} transactions");
}

pub(crate) fn compare(
    database: &Database,
    recorder: &Recorder,
    isolation: &str,
    reader: u64,
) -> usize {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(reader + 50));
    let mut compared = 0;
    while recorder.goes_on() {
        session.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
        for _ in 0..3 {
            let key = rng.below(KEYS);
            let by_function = session.try_value(&question(&mut rng, key));
            let by_select =
                session.try_value(&format!("SELECT value FROM seen WHERE key = 'k{key}'"));
            match (by_function, by_select) {
                (Ok(by_function), Ok(by_select)) => assert_eq!(by_function, by_select),
                (one, other) => {
                    let error = one.and(other).expect_err("one of them failed");
                    assert_eq!(sqlstate(&error), "40001", "{error:?}");
                    break;
                }
            }
        }
        session.run("ROLLBACK");
        recorder.count_read();
        compared += 1;
    }
    compared
}

#[test]
fn repeatable_read_equals_select() {
    agrees_with_select("REPEATABLE READ");
}

#[test]
fn serializable_equals_select() {
    agrees_with_select("SERIALIZABLE");
}
