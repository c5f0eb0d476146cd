//! A mixed load over all kinds of caches while backends are killed, statements cancelled, sessions
//! terminated and the server restarted. Short in CI; `scripts/soak.sh SECONDS` runs it for as long as
//! you like and prints what it saw: availability, errors by SQLSTATE, memory, and every invariant.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::chance::Chance;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::needs::{self, Needs};
use pgcache_tests::tier::Tiered;
use postgres::Client;

const WORKERS: u64 = 6;
const TABLES: [&str; 4] = ["unlogged", "logged", "json", "bytes"];
const CACHES: [&str; 6] = [
    "unlogged",
    "logged",
    "json",
    "bytes",
    "memory",
    "memory_json",
];

fn seconds() -> u64 {
    let asked = std::env::var("PGCACHE_SOAK_SECONDS").ok();
    asked.map_or(6, |n| n.parse().expect("PGCACHE_SOAK_SECONDS is a number"))
}

fn seed() -> u64 {
    let asked = std::env::var("PGCACHE_SOAK_SEED").ok();
    asked.map_or(1, |n| n.parse().expect("PGCACHE_SOAK_SEED is a number"))
}

/// What all sessions together have seen.
#[derive(Default)]
struct Seen {
    done: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
    /// Time without a session, summed over the workers, in milliseconds.
    away: AtomicU64,
}

/// What a session may be told in the middle of all this; anything else is a defect.
const EXPECTED: &[&str] = &[
    "lost",  // the session itself
    "57014", // cancelled
    "57P01", // terminated
    "57P02", // another backend crashed
    "57P03", // the server starts or stops
    "40001", // REPEATABLE READ
    "40P01", // two transactions that write two keys in opposite order
    "22003", // a counter with many digits
    "22P02", // a counter over text
    "42P01", // a table that is being rewritten
    "55P03", // LOCK ... NOWAIT
    "25P01", // the same outside of a transaction
];

type Row = (&'static str, Needs, &'static str);

fn something(chance: &mut Chance, functions: &[Row]) -> String {
    let cache = *chance.pick(&CACHES);
    let key = format!("'k{}'", chance.below(300));
    if chance.below(3) == 0 {
        return format!("SELECT cache_get({key}, '{cache}')");
    }
    if chance.below(60) == 0 && TABLES.contains(&cache) {
        return (*chance.pick(&[
            "TRUNCATE $t",
            "UPDATE $t SET expires_at = NULL WHERE key < 'k2'",
            "DELETE FROM $t WHERE key > 'k2'",
            "ALTER TABLE $t ADD COLUMN IF NOT EXISTS more int",
            "ALTER TABLE $t DROP COLUMN IF EXISTS more",
            "VACUUM $t",
            "CREATE INDEX ON $t (expires_at)",
            "REINDEX TABLE $t",
            "LOCK TABLE $t IN SHARE MODE NOWAIT",
        ]))
        .replace("$t", cache);
    }
    let (_, _, call) = chance.pick(functions);
    let call = call
        .replace("$c", &format!("'{cache}'"))
        .replace("'k'", &key);
    let call = call.replace(
        "'1'",
        &format!("'{}'", "1".repeat(1 + chance.below(40) as usize * 17)),
    );
    match chance.below(6) {
        0 => format!("BEGIN; SELECT {call}; SELECT {call}; ROLLBACK"),
        1 => format!("BEGIN; SAVEPOINT s; SELECT {call}; ROLLBACK TO s; SELECT {call}; COMMIT"),
        2 => format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT {call}; COMMIT"),
        _ => format!("SELECT {call}"),
    }
}

fn work(cluster: &Cluster, seed: u64, functions: &[Row], seen: &Seen, ends: &AtomicBool) {
    let mut chance = Chance::seeded(seed);
    let mut gone = Instant::now();
    while !ends.load(Ordering::SeqCst) {
        let Ok(mut session) = cluster.try_connect("postgres", "postgres") else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        seen.away
            .fetch_add(gone.elapsed().as_millis() as u64, Ordering::SeqCst);
        while !ends.load(Ordering::SeqCst) && !session.is_closed() {
            match session.try_lines(&something(&mut chance, functions)) {
                Ok(_) => drop(seen.done.fetch_add(1, Ordering::SeqCst)),
                Err(error) => {
                    let state = error.code().map_or("lost", |code| code.code()).to_owned();
                    *seen
                        .errors
                        .lock()
                        .expect("a count")
                        .entry(state)
                        .or_insert(0) += 1;
                    let _ = session.try_lines("ROLLBACK");
                }
            }
        }
        gone = Instant::now();
    }
}

struct EndsAtDrop<'a>(&'a AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One blow, from the mild to the hard.
fn strike(cluster: &Cluster, chance: &mut Chance) -> &'static str {
    const OTHERS: &str = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT 1";
    let Ok(mut session) = cluster.try_connect("postgres", "postgres") else {
        return "none";
    };
    match chance.below(60) {
        0 => {
            if let Ok(Some(pid)) = session.try_value(&format!("SELECT pid {OTHERS}")) {
                cluster.kill_backend(pid.parse().expect("a pid"));
                cluster.wait_until_up();
            }
            "kill -9"
        }
        1 => {
            drop(session);
            cluster.restart(Shutdown::Immediate);
            "immediate restart"
        }
        2 => {
            drop(session);
            cluster.restart(Shutdown::Fast);
            "fast restart"
        }
        3..=12 => {
            let _ = session.try_lines(&format!("SELECT pg_terminate_backend(pid) {OTHERS}"));
            "terminate"
        }
        _ => {
            let _ = session.try_lines(&format!("SELECT pg_cancel_backend(pid) {OTHERS}"));
            "cancel"
        }
    }
}

/// Nobody is at work: what must hold of the tier and of every table.
fn is_sound(session: &mut Client) {
    session.nothing_pending();
    session.sums_up();
    for cache in TABLES {
        session.verified(cache);
        let differ = session.lines(&format!(
            "SELECT t.key FROM {cache} t WHERE (expires_at IS NULL OR expires_at > clock_timestamp() + '1 minute') \
             AND cache_get_bytes(t.key, '{cache}') IS DISTINCT FROM (SELECT l.v FROM (SELECT convert_to(t.value::text, 'UTF8')) AS l (v)) AND '{cache}' <> 'bytes'"
        ));
        assert_eq!(differ, [""; 0], "{cache} says other than its table");
    }
    let slots = session.number("SELECT count(*) FROM pgcache.figures()");
    let caches = session.number("SELECT count(*) FROM pgcache.all_caches");
    assert!(slots <= caches, "{slots} slots for {caches} caches");
    let sums = session.lines(
        "SELECT (SELECT sum(hot_entries) FROM pgcache.stats) = entries FROM pgcache.hot_tier",
    );
    assert_eq!(sums, ["t"], "the caches' entries are not the tier's");
    session.run("SELECT cache_clear(c) FROM unnest('{unlogged,logged,json,bytes,memory,memory_json}'::regclass[]) AS c");
    // Copies of what was truncated may stay until their room is needed: they are of another version.
    let left = session.lines("SELECT cache, hot_entries FROM pgcache.stats WHERE cache::text LIKE 'memory%' AND hot_entries <> 0");
    assert_eq!(left, [""; 0]);
    assert_eq!(
        session.lines("SELECT key FROM memory UNION ALL SELECT key FROM memory_json"),
        [""; 0]
    );
    session.sums_up();
}

#[test]
fn a_mixed_load_under_random_kills_ends_with_every_invariant_intact() {
    let cluster = Cluster::with_tier(&[
        "pgcache.hot_size = '8MB'",
        "log_min_messages = error",
        "log_min_error_statement = panic",
    ]);
    let mut session = cluster.connect("postgres");
    session.run(
        "CREATE EXTENSION pgcache; SELECT cache_create('unlogged', ttl => '2 seconds', grace => '1 second'), cache_create('logged', storage => 'logged', max_entries => 100), \
         cache_create('json', value_type => 'jsonb'), cache_create('bytes', value_type => 'bytea', ttl => '50 milliseconds'), \
         cache_create('memory', storage => 'memory', ttl => '1 second'), cache_create('memory_json', storage => 'memory', value_type => 'jsonb')",
    );
    let mut functions = needs::present(&mut session);
    functions.retain(|(name, needs, _)| {
        !matches!(needs, Needs::Elsewhere | Needs::Trigger) && *name != "cache_drop"
    });
    let size = session.number("SELECT size FROM pgcache.hot_tier");
    drop(session);
    let (seen, ends, seed) = (Seen::default(), AtomicBool::new(false), seed());
    let mut blows: BTreeMap<&str, u64> = BTreeMap::new();
    let from = Instant::now();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cluster, functions, seen, ends) = (&cluster, &functions, &seen, &ends);
            scope.spawn(move || work(cluster, seed * 100 + worker, functions, seen, ends));
        }
        let _end = EndsAtDrop(&ends); // a blow that fails must not leave the workers at work for ever
        let mut chance = Chance::seeded(seed * 100 + 99);
        while from.elapsed() < Duration::from_secs(seconds()) {
            thread::sleep(Duration::from_millis(20 + chance.below(150)));
            *blows.entry(strike(&cluster, &mut chance)).or_insert(0) += 1;
        }
    });
    let errors = seen.errors.lock().expect("a count").clone();
    let away = seen.away.load(Ordering::SeqCst) as f64
        / (from.elapsed().as_millis() as f64 * WORKERS as f64);
    let done = seen.done.load(Ordering::SeqCst);
    println!(
        "seed {seed}, {} s, blows {blows:?}",
        from.elapsed().as_secs()
    );
    println!(
        "{done} statements done, errors {errors:?}, workers had a session {:.2} % of the time",
        100.0 * (1.0 - away)
    );
    let mut session = cluster.connect("postgres");
    println!("{:?}", session.lines("SELECT size, used, bookkeeping, holes, free, entries, evictions, pending FROM pgcache.hot_tier"));
    println!("{:?}", session.lines("SELECT c, pg_total_relation_size(c::regclass) FROM unnest('{unlogged,logged,json,bytes}'::text[]) c"));
    assert!(done > 50, "only {done} statements were done");
    assert_eq!(session.number("SELECT size FROM pgcache.hot_tier"), size);
    let unexpected: Vec<&String> = errors
        .keys()
        .filter(|state| !EXPECTED.contains(&state.as_str()))
        .collect();
    assert!(
        unexpected.is_empty(),
        "unexpected SQLSTATEs {unexpected:?} in {errors:?}"
    );
    is_sound(&mut session);
    let log = cluster.log_text();
    for signal in ["signal 4", "signal 6", "signal 7", "signal 11", "PANIC"] {
        assert!(!log.contains(signal), "{signal} in the log:\n{log}");
    }
}
