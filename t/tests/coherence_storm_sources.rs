//! Tests coherence of computed values under load, with writers of a source, commits that wait, and all kinds of
//! loaders, under each isolation level. No reader may see a value older than an acknowledged value, and no old value
//! may remain at the end.
//!
//! scripts/storm.sh also runs this test on a library that waits at random in the windows of the protocol.

use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::history::{Fate, Read};
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

use crate::coherence_storm::duration;
use crate::visibility::{ENOUGH, KEYS, Recorder};

const LOADER: &str = "SELECT v FROM src WHERE k = $1";
/// Reads the source slowly.
const SLOW: &str = "SELECT v || left(pg_sleep(0.002)::text, 0) FROM src WHERE k = $1";

/// Changes one row of the source in a transaction, at times with a commit that waits for the standby.
fn write_source(session: &mut Client, recorder: &Recorder, rng: &mut Rng, waits: bool) {
    let key = rng.below(KEYS);
    let level = ["READ COMMITTED", "REPEATABLE READ"][usize::from(rng.below(4) == 0)];
    let slow = if waits && rng.below(8) == 0 {
        "on"
    } else {
        "local"
    };
    // Hold the lock from before the snapshot until after the transaction, so that versions commit in their order.
    session.run(&format!("SELECT pg_advisory_lock({key})"));
    session.run(&format!(
        "BEGIN ISOLATION LEVEL {level}; SET LOCAL synchronous_commit = {slow}"
    ));
    let write = recorder.write_begins(key, false);
    session.run(&format!(
        "UPDATE src SET v = '{}' WHERE k = 'k{key}'",
        write.version
    ));
    // If the commit conflicts with another commit on the same entry, it may fail.
    let commits = match rng.below(5) {
        0 => session.try_lines("ROLLBACK").is_err(),
        _ => session.try_lines("COMMIT").is_ok(),
    };
    let fate = match commits {
        true => Fate::Committed(recorder.now()),
        false => Fate::RolledBack,
    };
    recorder.write_ends(write, fate);
    session.run(&format!("SELECT pg_advisory_unlock({key})"));
}

fn fetch(rng: &mut Rng, key: u64) -> String {
    let loader = if rng.below(4) == 0 { SLOW } else { LOADER };
    format!("SELECT cache_fetch('k{key}', '{loader}', cache => 'made')")
}

fn question(rng: &mut Rng, key: u64) -> String {
    match rng.below(4) {
        0 => format!("SELECT cache_get('k{key}', 'made')"),
        1 => format!("SELECT value FROM made WHERE key = 'k{key}'"),
        _ => fetch(rng, key),
    }
}

/// Reads one key. Returns None for a miss, which the history leaves out, because entries may be removed at any time.
fn ask(session: &mut Client, recorder: &Recorder, key: u64, sql: &str) -> Option<Read> {
    let began = recorder.now();
    let saw = session.value(sql);
    recorder.count_read();
    Some(Read {
        key,
        began,
        ended: recorder.now(),
        saw: Some(saw?.parse().expect("only versions are written")),
        snapshot: None,
    })
}

/// Reads with a single statement, or several times in a transaction, which may roll back.
fn read_committed(session: &mut Client, recorder: &Recorder, rng: &mut Rng) -> Vec<Read> {
    let in_block = rng.below(4) == 0;
    if in_block {
        session.run("BEGIN");
    }
    let questions = if in_block { 1 + rng.below(3) } else { 1 };
    let reads = (0..questions).filter_map(|_| {
        let key = rng.below(KEYS);
        let sql = question(rng, key);
        ask(session, recorder, key, &sql)
    });
    let reads = reads.collect();
    if in_block {
        session.run(["COMMIT", "ROLLBACK"][rng.below(2) as usize]);
    }
    reads
}

/// Reads repeatedly in one transaction. All reads must show the state of the transaction's snapshot.
fn repeatable(session: &mut Client, recorder: &Recorder, rng: &mut Rng, number: u64) -> Vec<Read> {
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let began = recorder.now();
    session.run("SELECT count(*) FROM src");
    let ended = recorder.now();
    let mut reads = Vec::new();
    for _ in 0..1 + rng.below(5) {
        thread::sleep(Duration::from_micros(rng.below(2_000)));
        let key = rng.below(KEYS);
        let sql = question(rng, key);
        reads.extend(ask(session, recorder, key, &sql).map(|read| Read {
            began,
            ended,
            snapshot: Some(number),
            ..read
        }));
    }
    drop(session.try_value("COMMIT"));
    reads
}

/// Acts as a client that computes the value itself: it takes the lease first and then reads the source.
fn lease_once(session: &mut Client, rng: &mut Rng) {
    let key = rng.below(KEYS);
    let ask =
        format!("SELECT lease FROM cache_lease('k{key}', cache => 'made') WHERE state = 'win'");
    let Some(lease) = session.value(&ask) else {
        return;
    };
    let Some(value) = session.value(&format!("SELECT v FROM src WHERE k = 'k{key}'")) else {
        return session.run(&format!("SELECT cache_release('k{key}', {lease}, 'made')"));
    };
    thread::sleep(Duration::from_micros(rng.below(1_000)));
    let store = format!("SELECT cache_set_leased('k{key}', '{value}', {lease}, cache => 'made')");
    match rng.below(3) {
        0 => session.run(&format!("BEGIN; {store}; ROLLBACK; {store}")),
        1 => session.run(&format!("SELECT cache_release('k{key}', {lease}, 'made')")),
        _ => session.run(&store),
    }
}

/// Ends each commit's wait for the standby after some time.
fn answers(database: &Database, recorder: &Recorder) {
    let (mut session, mut rng) = (database.connect(), Rng::seeded(60));
    while recorder.goes_on() {
        thread::sleep(Duration::from_millis(rng.below(20)));
        release(&mut session);
    }
    // Sessions that are still writing end soon.
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(20));
        release(&mut session);
    }
}

fn release(session: &mut Client) {
    session.run(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
         WHERE wait_event = 'SyncRep' AND datname = current_database()",
    );
}

fn storm(database: &Database, leases: bool, waits: bool) -> Recorder {
    let recorder = Recorder::lasting(duration() / 3);
    thread::scope(|scope| {
        let recorder = &recorder;
        for seed in 0..3 {
            scope.spawn(move || {
                let (mut session, mut rng) = (database.connect(), Rng::seeded(seed));
                while recorder.goes_on() {
                    write_source(&mut session, recorder, &mut rng, waits);
                    thread::sleep(Duration::from_micros(rng.below(3_000)));
                }
            });
        }
        for seed in 10..15_u64 {
            scope.spawn(move || {
                let (mut session, mut rng) = (database.connect(), Rng::seeded(seed));
                let (mut reads, mut number) = (Vec::new(), seed << 32);
                while recorder.goes_on() {
                    number += 1;
                    match rng.below(4) {
                        0 => reads.extend(repeatable(&mut session, recorder, &mut rng, number)),
                        1 if leases => lease_once(&mut session, &mut rng),
                        _ => reads.extend(read_committed(&mut session, recorder, &mut rng)),
                    }
                }
                recorder
                    .reads
                    .lock()
                    .expect("no reader failed")
                    .extend(reads);
            });
        }
        scope.spawn(move || answers(database, recorder));
    });
    recorder
}

fn weather(cluster: &Cluster, storage: &str, leases: bool) {
    let database = cluster.database();
    let mut session = database.connect();
    session.run("CREATE TABLE src (k text PRIMARY KEY, v text)");
    session.run(&format!(
        "SELECT cache_create('made', storage => '{storage}')"
    ));
    session.run("SELECT cache_depend('src', 'k', 'made')");
    if session.holds("SELECT current_setting('pgcache.pause', true) IS NOT NULL") {
        let pause = format!("ALTER DATABASE {} SET pgcache.pause = '3ms'", database.name);
        session.run(&pause);
    }
    session.run(&format!(
        "INSERT INTO src SELECT 'k' || k, NULL FROM generate_series(0, {KEYS} - 1) AS k"
    ));
    let recorder = storm(&database, leases, true);
    // The last writers may have removed all entries. Now no session changes a source, so the entries that these fetches
    // store stay.
    for key in 0..KEYS {
        session.value(&format!(
            "SELECT cache_fetch('k{key}', '{LOADER}', cache => 'made')"
        ));
    }
    let rows = session.lines("SELECT substr(key, 2), value FROM made WHERE value IS NOT NULL");
    let left: Vec<(u64, u64)> = rows
        .iter()
        .filter_map(|row| {
            let (key, value) = row.split_once('|')?;
            Some((key.parse().ok()?, value.parse().ok()?))
        })
        .collect();
    let quiet = recorder.quiet(&left);
    let verdict = recorder.verdict();
    println!(
        "{storage}: history {verdict:?}, quiet {quiet:?} of {}",
        left.len()
    );
    assert_eq!(quiet, Ok(()), "{storage}");
    let (writes, reads) = verdict.expect("the history is wrong");
    assert!(
        writes.min(reads) >= ENOUGH / 2,
        "{writes} writes, {reads} reads"
    );
    assert!(!left.is_empty(), "nothing was stored");
}

const CONF: [&str; 2] = [
    "synchronous_standby_names = 'nobody'",
    "synchronous_commit = local",
];

#[test]
fn in_a_storm_of_sources_nothing_old_is_read_or_left() {
    let cluster = Cluster::with_tier(&CONF);
    for storage in ["unlogged", "logged"] {
        weather(cluster, storage, true);
    }
    cluster.connect("postgres").run("CREATE EXTENSION pgcache");
    cluster.connect("postgres").nothing_pending();
}

#[test]
fn in_a_storm_of_sources_without_preload_nothing_old_is_read_or_left() {
    let conf = [&CONF[..], &["shared_preload_libraries = ''"]].concat();
    weather(Cluster::start(&conf), "unlogged", false);
}
