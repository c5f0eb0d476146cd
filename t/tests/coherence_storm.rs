//! Tests coherence under many concurrent writers, savepoints, TRUNCATE, disabled triggers and evictions: no reader may
//! see a value older than an acknowledged value, and `pgcache.verify` must return no row.
//!
//! PGCACHE_STORM_SECONDS sets the length. A library built with the cargo feature `pauses` waits at random in the
//! windows of the protocol, so that races become likely; scripts/storm.sh builds one and runs this test on it.

use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::history::{Fate, Read, Write};
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

use crate::visibility::{ENOUGH, KEYS, Recorder, compare, end, read_once, write_once};

const WRITERS: u64 = 4;
const READERS: u64 = 5;

pub(crate) fn duration() -> Duration {
    let seconds = std::env::var("PGCACHE_STORM_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(15))
}

/// A change of all keys.
struct Change<'s> {
    removes: bool,
    sql: &'s str,
    commits: bool,
    /// Chooses between one phase and two phases at random; None means always one phase.
    chance: Option<&'s mut Rng>,
}

/// Removes or overwrites all keys while it holds the locks of all keys.
fn change_all(session: &mut Client, recorder: &Recorder, change: Change) {
    session.run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock(k) FROM generate_series(0, {KEYS} - 1) AS k"
    ));
    let writes: Vec<Write> = (0..KEYS)
        .map(|key| recorder.write_begins(key, change.removes))
        .collect();
    let rows: Vec<String> = writes
        .iter()
        .map(|write| format!("('k{}', '{}')", write.key, write.version))
        .collect();
    session.run(&change.sql.replace("$rows", &rows.join(", ")));
    match change.chance {
        Some(rng) => end(session, change.commits, rng),
        None => session.run(if change.commits { "COMMIT" } else { "ROLLBACK" }),
    }
    let fate = match change.commits {
        true => Fate::Committed(recorder.now()),
        false => Fate::RolledBack,
    };
    for write in writes {
        recorder.write_ends(write, fate);
    }
}

/// Changes all rows with statements that fire no trigger for each row.
fn upheavals(database: &Database, recorder: &Recorder) {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(70));
    while recorder.goes_on() {
        let commits = rng.below(3) > 0;
        let which = rng.below(4);
        let (removes, sql) = match which {
            0 => (true, "TRUNCATE seen"),
            1 => (false, "TRUNCATE seen; INSERT INTO seen VALUES $rows"),
            2 => (
                false,
                "ALTER TABLE seen DISABLE TRIGGER ALL; DELETE FROM seen; \
                 INSERT INTO seen VALUES $rows; ALTER TABLE seen ENABLE TRIGGER ALL",
            ),
            _ => {
                without_triggers(&mut session, recorder, commits);
                thread::sleep(Duration::from_millis(rng.below(60)));
                continue;
            }
        };
        let change = Change {
            removes,
            sql,
            commits,
            chance: Some(&mut rng),
        };
        change_all(&mut session, recorder, change);
        if which == 2 {
            session.run(ALWAYS);
        }
        thread::sleep(Duration::from_millis(rng.below(60)));
    }
}

const ALWAYS: &str = "ALTER TABLE seen ENABLE ALWAYS TRIGGER pgcache_record, \
                      ENABLE ALWAYS TRIGGER pgcache_record_truncate";

/// Writes with disabled triggers, so that only the suspension before the write protects the copies. Never uses
/// two-phase commit, because Postgres cannot prepare a transaction that holds a lock that its session also holds.
fn without_triggers(session: &mut Client, recorder: &Recorder, commits: bool) {
    let all = format!("(k) FROM generate_series(0, {KEYS} - 1) AS k");
    session.run(&format!("SELECT pg_advisory_lock{all}"));
    session.run("ALTER TABLE seen DISABLE TRIGGER ALL");
    thread::sleep(Duration::from_millis(5));
    let change = Change {
        removes: false,
        sql: "DELETE FROM seen; INSERT INTO seen VALUES $rows",
        commits,
        chance: None,
    };
    change_all(session, recorder, change);
    thread::sleep(Duration::from_millis(5));
    session.run(ALWAYS);
    session.run(&format!("SELECT pg_advisory_unlock{all}"));
}

/// Evicts the copies repeatedly.
fn evictions(database: &Database, recorder: &Recorder) {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(80));
    while recorder.goes_on() {
        let (from, size) = (rng.below(100_000), 1 + rng.below(8000));
        session.run(&format!(
            "SELECT cache_set('f' || k, repeat('x', {size}), cache => 'filler') \
             FROM generate_series({from}, {from} + 200) AS k"
        ));
        thread::sleep(Duration::from_millis(rng.below(30)));
    }
}

/// Runs `pgcache.verify` repeatedly, and returns all its rows. Any row means that the protocol was broken.
fn verifications(database: &Database, recorder: &Recorder) -> Vec<String> {
    let mut session = database.connect();
    let mut differences = Vec::new();
    while recorder.goes_on() {
        differences.extend(session.lines("SELECT * FROM pgcache.verify('seen')"));
        session.sums_up();
    }
    differences
}

/// Reads all keys in one call, which makes a batch of lookups, one snapshot for the missing keys, and a fill for each
/// of them.
fn read_all(session: &mut Client, recorder: &Recorder) -> Vec<Read> {
    let began = recorder.now();
    let rows = session.lines(&format!(
        "SELECT substr(key, 2), value FROM cache_get_many(ARRAY(SELECT 'k' || k \
         FROM generate_series(0, {KEYS} - 1) AS k), 'seen')"
    ));
    let ended = recorder.now();
    recorder.count_read();
    let number = |text: &str| text.parse().expect("only numbers are written");
    let read = |row: &String| {
        let (key, value) = row.split_once('|').expect("two columns");
        Read {
            key: number(key),
            began,
            ended,
            saw: (!value.is_empty()).then(|| number(value)),
            snapshot: None,
        }
    };
    rows.iter().map(read).collect()
}

fn readings(database: &Database, recorder: &Recorder, seed: u64) {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(seed));
    let mut reads = Vec::new();
    while recorder.goes_on() {
        match rng.below(4) {
            0 => reads.extend(read_all(&mut session, recorder)),
            _ => reads.push(read_once(&mut session, recorder, &mut rng)),
        }
    }
    let mut all = recorder.reads.lock().expect("no reader failed");
    all.extend(reads);
}

fn writings(database: &Database, recorder: &Recorder, seed: u64) {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(seed));
    if seed == 0 {
        session.run("SET pgcache.hot_tier = off");
    }
    while recorder.goes_on() {
        write_once(&mut session, recorder, &mut rng);
    }
}

fn storm(database: &Database) -> (Recorder, Vec<String>) {
    let recorder = Recorder::lasting(duration());
    let differences = thread::scope(|scope| {
        let recorder = &recorder;
        for seed in 0..WRITERS {
            scope.spawn(move || writings(database, recorder, seed));
        }
        for seed in 0..READERS {
            scope.spawn(move || readings(database, recorder, 50 + seed));
        }
        scope.spawn(move || upheavals(database, recorder));
        scope.spawn(move || evictions(database, recorder));
        scope.spawn(move || compare(database, recorder, "REPEATABLE READ", 90));
        let verifier = scope.spawn(move || verifications(database, recorder));
        verifier.join().expect("the verifier failed")
    });
    (recorder, differences)
}

#[test]
fn in_a_storm_no_read_is_older_than_an_acknowledged_write() {
    let cluster = Cluster::with_tier(&["pgcache.hot_size = '2MB'"]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SELECT cache_create('seen'), cache_create('filler', storage => 'memory')");
    if session.holds("SELECT current_setting('pgcache.pause', true) IS NOT NULL") {
        session.run(&format!(
            "ALTER DATABASE {} SET pgcache.pause = '3ms'",
            database.name
        ));
    }
    let (recorder, differences) = storm(&database);
    let verdict = recorder.verdict();
    println!("history: {verdict:?}; verify: {differences:?}");
    assert!(differences.is_empty());
    let (writes, reads) = verdict.expect("the history is wrong");
    assert!(
        writes.min(reads) >= ENOUGH / 2,
        "{writes} writes, {reads} reads"
    );
    let figures = "SELECT hot_hits, table_hits FROM pgcache.stats WHERE cache = 'seen'::regclass";
    println!(
        "{writes} writes, {reads} reads; hits, table hits: {}",
        session.text(figures)
    );
    assert!(session.hot_hits("seen") > 0, "the tier was not used");
    assert!(session.holds("SELECT evictions > 0 FROM pgcache.hot_tier"));
    session.nothing_pending();
    session.sums_up();
}
