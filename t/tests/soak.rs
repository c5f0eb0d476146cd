//! Runs a mixed load on all kinds of caches while the worker sweeps them. During the load the test kills backends, the
//! launcher and workers, cancels statements, terminates sessions and restarts the server. In CI the test is short.
//! `make soak` runs it for any length and prints availability, errors by SQLSTATE, and memory.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::needs::{self, Needs};
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

const SESSIONS: u64 = 6;
/// The private memory that one process may take, in kB. A session of this test needs some 5 MB.
const PROCESS_KB: u64 = 50_000;
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
    let given = std::env::var("PGCACHE_SOAK_SECONDS").ok();
    given.map_or(6, |n| n.parse().expect("PGCACHE_SOAK_SECONDS is a number"))
}

fn seed() -> u64 {
    let given = std::env::var("PGCACHE_SOAK_SEED").ok();
    given.map_or(5, |n| n.parse().expect("PGCACHE_SOAK_SEED is a number"))
}

/// The results of all sessions together.
#[derive(Default)]
struct Seen {
    done: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
    unexpected: Mutex<Vec<String>>,
    /// The time without a server, summed over all sessions, in milliseconds.
    away: AtomicU64,
    /// The longest single outage, in milliseconds.
    longest: AtomicU64,
    /// The most private memory that a process of the server had, in kB.
    largest: AtomicU64,
}

impl Seen {
    fn was_away(&self, time: Duration) {
        let milliseconds = time.as_millis() as u64;
        self.away.fetch_add(milliseconds, Ordering::SeqCst);
        self.longest.fetch_max(milliseconds, Ordering::SeqCst);
    }

    fn error(&self, error: &postgres::Error, statement: &str) {
        let state = error.code().map_or("lost", |code| code.code());
        let mut errors = self.errors.lock().expect("a count");
        *errors.entry(state.to_owned()).or_insert(0) += 1;
        if !is_expected(state, statement) {
            let mut unexpected = self.unexpected.lock().expect("a list");
            unexpected.push(format!(
                "{statement}: {}",
                error
                    .as_db_error()
                    .map_or_else(|| error.to_string(), ToString::to_string)
            ));
        }
    }

    /// Measures memory that is not shared. Ignores a process that ends during the measurement.
    fn weigh(&self, cluster: &Cluster) {
        for pid in cluster.processes() {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"));
            let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            self.largest.fetch_max(kb.unwrap_or(0), Ordering::SeqCst);
        }
    }
}

/// Errors that a session may receive during this test. Any other error is a defect.
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
    "25P01", // LOCK ... NOWAIT outside a transaction
];

/// Returns whether an error is expected. If two sessions create an index without a name on one table, Postgres may
/// choose the same name for both.
fn is_expected(state: &str, statement: &str) -> bool {
    EXPECTED.contains(&state) || (state == "23505" && statement.starts_with("CREATE INDEX"))
}

type Row = (&'static str, Needs, &'static str);

fn something(rng: &mut Rng, functions: &[Row]) -> String {
    let cache = *rng.pick(&CACHES);
    let key = format!("'k{}'", rng.below(300));
    if rng.below(3) == 0 {
        return format!("SELECT cache_get({key}, '{cache}')");
    }
    if rng.below(60) == 0 && TABLES.contains(&cache) {
        return (*rng.pick(&[
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
    let (_, _, call) = rng.pick(functions);
    let call = call
        .replace("$c", &format!("'{cache}'"))
        .replace("'k'", &key);
    let call = call.replace(
        "'1'",
        &format!("'{}'", "1".repeat(1 + rng.below(40) as usize * 17)),
    );
    match rng.below(6) {
        0 => format!("BEGIN; SELECT {call}; SELECT {call}; ROLLBACK"),
        1 => format!("BEGIN; SAVEPOINT s; SELECT {call}; ROLLBACK TO s; SELECT {call}; COMMIT"),
        2 => format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT {call}; COMMIT"),
        _ => format!("SELECT {call}"),
    }
}

fn work(cluster: &Cluster, seed: u64, functions: &[Row], seen: &Seen, ends: &AtomicBool) {
    let mut rng = Rng::seeded(seed);
    let mut gone = Instant::now();
    while !ends.load(Ordering::SeqCst) {
        let Ok(mut session) = cluster.try_connect("postgres", "postgres") else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        seen.was_away(gone.elapsed());
        while !ends.load(Ordering::SeqCst) && !session.is_closed() {
            let statement = something(&mut rng, functions);
            match session.try_lines(&statement) {
                Ok(_) => drop(seen.done.fetch_add(1, Ordering::SeqCst)),
                Err(error) => {
                    seen.error(&error, &statement);
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

/// Waits for the crash to break this session. Returns false if the session survives, which happens if the process to
/// kill ended just before the kill.
fn is_disconnected(session: &mut Client) -> bool {
    let patience = Instant::now() + Duration::from_secs(5);
    while session.batch_execute("SELECT 1").is_ok() {
        if Instant::now() > patience {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Kills a process that the query finds, which breaks all sessions. Tries for a second, because workers start and end.
fn kill(cluster: &Cluster, session: &mut Client, whom: &str, name: &'static str) -> &'static str {
    for _ in 0..200 {
        let Ok(found) = session.try_value(&format!("SELECT pid {whom}")) else {
            return "none";
        };
        let pid = found.map(|pid| pid.parse().expect("a pid"));
        if pid.is_some_and(|pid| cluster.try_kill_backend(pid)) && is_disconnected(session) {
            cluster.wait_until_up();
            return name;
        }
        thread::sleep(Duration::from_millis(5));
    }
    "none"
}

/// Causes one fault, from mild to severe.
fn strike(cluster: &Cluster, rng: &mut Rng) -> &'static str {
    const OTHERS: &str = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT 1";
    const OURS: &str = "FROM pg_stat_activity WHERE backend_type =";
    let Ok(mut session) = cluster.try_connect("postgres", "postgres") else {
        return "none";
    };
    match rng.below(80) {
        0 => kill(cluster, &mut session, OTHERS, "kill -9 of a session"),
        1 => {
            let launcher = format!("{OURS} 'pgcache launcher'");
            kill(cluster, &mut session, &launcher, "kill -9 of the launcher")
        }
        2 | 3 => {
            let worker = format!("{OURS} 'pgcache worker'");
            kill(cluster, &mut session, &worker, "kill -9 of a worker")
        }
        4 => {
            let _ = session.try_lines(&format!(
                "SELECT pg_terminate_backend(pid) {OURS} 'pgcache launcher'"
            ));
            "terminate of the launcher"
        }
        5 | 6 => {
            let _ = session.try_lines(&format!(
                "SELECT pg_cancel_backend(pid) {OURS} 'pgcache worker'"
            ));
            "cancel of a worker"
        }
        7 => {
            drop(session);
            cluster.restart(Shutdown::Immediate);
            "immediate restart"
        }
        8 => {
            drop(session);
            cluster.restart(Shutdown::Fast);
            "fast restart"
        }
        9..=20 => {
            let _ = session.try_lines(&format!("SELECT pg_terminate_backend(pid) {OTHERS}"));
            "terminate"
        }
        _ => {
            let _ = session.try_lines(&format!("SELECT pg_cancel_backend(pid) {OTHERS}"));
            "cancel"
        }
    }
}

/// Waits for a last sweep, even if a worker was killed before, and turns the sweeps off.
fn stop_sweeps(session: &mut Client) {
    session.run("INSERT INTO unlogged VALUES ('last', '1', '2020-01-01')");
    let patience = Instant::now() + Duration::from_secs(90);
    while session.holds("SELECT EXISTS (SELECT FROM unlogged AS pgcache_c WHERE key = 'last')") {
        assert!(Instant::now() < patience, "the worker does not sweep");
        thread::sleep(Duration::from_millis(50));
    }
    session.run("ALTER SYSTEM SET pgcache.expire_interval = 0");
    session.run("SELECT pg_reload_conf()");
    while session
        .holds("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker')")
    {
        assert!(Instant::now() < patience, "a worker does not end");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that the tier and every table of an idle server are consistent.
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
    // Copies of a truncated cache may stay until their space is needed. They have an older version, so no read uses
    // them.
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
        "pgcache.expire_interval = '200ms'",
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
        !matches!(needs, Needs::Elsewhere | Needs::Trigger)
            && !["cache_drop", "cache_detach"].contains(name)
    });
    let size = session.number("SELECT size FROM pgcache.hot_tier");
    drop(session);
    let (seen, ends, seed) = (Seen::default(), AtomicBool::new(false), seed());
    let mut blows: BTreeMap<&str, u64> = BTreeMap::new();
    let from = Instant::now();
    thread::scope(|scope| {
        for session in 0..SESSIONS {
            let (cluster, functions, seen, ends) = (&cluster, &functions, &seen, &ends);
            scope.spawn(move || work(cluster, seed * 100 + session, functions, seen, ends));
        }
        let _end = EndsAtDrop(&ends); // a strike that fails must not leave the workers running forever
        let mut rng = Rng::seeded(seed * 100 + 99);
        while from.elapsed() < Duration::from_secs(seconds()) {
            thread::sleep(Duration::from_millis(20 + rng.below(150)));
            seen.weigh(cluster);
            *blows.entry(strike(cluster, &mut rng)).or_insert(0) += 1;
        }
    });
    let errors = seen.errors.lock().expect("a count").clone();
    let away = seen.away.load(Ordering::SeqCst) as f64
        / (from.elapsed().as_millis() as f64 * SESSIONS as f64);
    let largest = seen.largest.load(Ordering::SeqCst);
    let done = seen.done.load(Ordering::SeqCst);
    println!(
        "seed {seed}, {} s, blows {blows:?}",
        from.elapsed().as_secs()
    );
    println!(
        "{done} statements done, errors {errors:?}; a server was there {:.2} % of the time, and at the longest not for {} ms; \
         the largest process held {largest} kB for itself",
        100.0 * (1.0 - away),
        seen.longest.load(Ordering::SeqCst)
    );
    let mut session = cluster.connect("postgres");
    stop_sweeps(&mut session);
    println!("{:?}", session.lines("SELECT size, used, bookkeeping, holes, free, entries, evictions, pending FROM pgcache.hot_tier"));
    println!("{:?}", session.lines("SELECT c, pg_total_relation_size(c::regclass) FROM unnest('{unlogged,logged,json,bytes}'::text[]) c"));
    assert!(done > 50, "only {done} statements were done");
    assert_eq!(session.number("SELECT size FROM pgcache.hot_tier"), size);
    assert!((1..PROCESS_KB).contains(&largest), "{largest} kB");
    let unexpected = seen.unexpected.lock().expect("a list").clone();
    assert_eq!(unexpected, [""; 0], "unexpected errors");
    is_sound(&mut session);
    let log = cluster.log_text();
    for signal in ["signal 4", "signal 6", "signal 7", "signal 11", "PANIC"] {
        assert!(!log.contains(signal), "{signal} in the log:\n{log}");
    }
}
