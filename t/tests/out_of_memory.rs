//! Tests backends that run out of memory: they raise 53200 and continue, and the tier stays consistent.
//!
//! If an allocation failed in Rust, or if the report of the error needed more memory, the backend would end, and the
//! postmaster would restart the server.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::stage::succeed;
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// The memory that a backend may take beyond its present size, in kilobytes.
const LIMITS: &[u64] = &[3_000, 6_000, 10_000, 17_000, 30_000, 50_000];

/// Settings that leave all work to the backend itself: no JIT and no parallel workers.
const PLAIN: &[&str] = &["jit = off", "max_parallel_workers_per_gather = 0"];

const EVERYTHING: &str = "max_rows => 2147483647, cache =>";

/// Returns statements, most of which need more memory than most of the limits allow.
fn statements() -> Vec<String> {
    let many = "(SELECT array_agg('k' || i) FROM generate_series(1, 60000) AS i)";
    let some = "(SELECT array_agg('k' || i) FROM generate_series(1, 900) AS i)";
    [
        format!("SELECT sum(length(value)) FROM cache_scan({EVERYTHING} 'm')"),
        format!("SELECT sum(length(value)) FROM cache_scan({EVERYTHING} 't')"),
        format!("SELECT sum(length(value)) FROM cache_scan_bytes({EVERYTHING} 'm')"),
        format!("SELECT sum(length(key)) FROM cache_keys({EVERYTHING} 'm')"),
        format!("SELECT sum(length(key)) FROM cache_keys({EVERYTHING} 't')"),
        "SELECT cache_count('m'), cache_count('t')".into(),
        format!("SELECT count(*) FROM cache_lookup_many({many}, 't')"),
        format!("SELECT count(*) FROM cache_get_many({many}, 't')"),
        format!("SELECT count(*) FROM cache_get_many({some}, 'm')"),
        format!("SELECT cache_set_many({many}, {many}, cache => 't')"),
        format!("SELECT cache_set_many({some}, {some}, cache => 'm2')"),
        format!("SELECT cache_delete_many({many}, 'm2')"),
        format!("SELECT cache_delete_many({some}, 't')"),
        "SELECT sum(length(value)) FROM m".into(),
        "SELECT length(cache_get('large', 'm'))".into(),
        "SELECT length(cache_get_json('large', 'j')::text)".into(),
        "SELECT length(value) FROM cache_lookup('large', 'm')".into(),
        "SELECT count(cache_set('x' || i, repeat('x', 900000), cache => 'm2')) FROM generate_series(1, 20) AS i".into(),
        "SELECT cache_set('x', repeat('x', 20000000), cache => 't')".into(),
        "SELECT cache_set('x', '[\"' || repeat('x', 20000000) || '\"]', cache => 'j')".into(),
        "SELECT cache_cas('large', repeat('x', 900000), 'y', cache => 'm2')".into(),
        "SELECT cache_delete_prefix('k1', 't')".into(),
        "SELECT count(*) FROM pgcache.verify('t')".into(),
        "BEGIN; UPDATE t SET value = 'undone'; ROLLBACK".into(),
        "DO $$ BEGIN FOR i IN 1..5 LOOP BEGIN PERFORM count(*) \
         FROM cache_scan(max_rows => 2147483647, cache => 't'); \
         EXCEPTION WHEN out_of_memory THEN NULL; END; END LOOP; END $$"
            .into(),
    ]
    .into()
}

/// Fills the caches `t` (a table), `m` (24 MB) and `m2` in memory and `j` (jsonb).
fn fill(session: &mut Client) {
    session.run("TRUNCATE t; SELECT cache_clear('m2')");
    session.run("INSERT INTO t SELECT 'k' || i, md5(i::text) FROM generate_series(1, 60000) AS i");
    session.run(
        "SELECT count(cache_set('k' || i, repeat('x', 8000), cache => 'm')) FROM generate_series(1, 3000) AS i",
    );
    session.run("SELECT cache_set('large', repeat('x', 900000), cache => 'm')");
    session.run("SELECT cache_set('large', '\"' || repeat('x', 900000) || '\"', cache => 'j')");
    session.run("SELECT cache_get('k' || i, 't') FROM generate_series(1, 1000) AS i");
}

/// Opens a session that has already loaded everything that the statements need, and whose stack need not grow. If a
/// stack cannot grow, the backend ends, whatever code it runs.
fn warm_session(cluster: &Cluster) -> Client {
    let mut session = cluster.connect("postgres");
    session
        .run("DO $$ BEGIN PERFORM cache_get('k1', 'm'), count(*) FROM m WHERE key = 'k1'; END $$");
    let depth = 1500;
    session.run(&format!(
        "SELECT {}1{}",
        "1 + (".repeat(depth),
        ")".repeat(depth)
    ));
    session
}

/// Limits the backend to this many kilobytes beyond its present size. The command runs as the server's user, because
/// only that user may set the limit.
fn limit(cluster: &Cluster, session: &mut Client, more: u64) {
    let pid = session.text("SELECT pg_backend_pid()");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a live backend");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let digits = size.map(|size| size.trim_matches(|c: char| !c.is_ascii_digit()));
    let size: u64 = digits
        .and_then(|size| size.parse().ok())
        .expect("VmSize is a number");
    let limit = format!("--as={}", (size + more) * 1024);
    succeed(
        cluster
            .program("/usr/bin/prlimit")
            .args(["--pid", &pid, &limit]),
    );
}

#[test]
fn a_backend_without_memory_raises_an_error_and_lives_on() {
    let cluster = Cluster::with_tier(&[PLAIN, &["pgcache.hot_size = '128MB'"]].concat());
    let mut witness = cluster.connect("postgres");
    witness.run("CREATE EXTENSION pgcache");
    witness.run(
        "SELECT cache_create('t'), cache_create('m', storage => 'memory'), \
         cache_create('m2', storage => 'memory'), cache_create('j', value_type => 'jsonb')",
    );
    let (mut failed, mut done) = (0, 0);
    for &more in LIMITS {
        fill(&mut witness);
        let mut session = warm_session(cluster);
        limit(cluster, &mut session, more);
        for statement in statements() {
            match session.try_lines(&statement) {
                Ok(_) => done += 1,
                Err(error) => {
                    assert_eq!(sqlstate(&error), "53200", "{statement} within {more} kB");
                    session.run("ROLLBACK");
                    failed += 1;
                }
            }
        }
        // The witness is a session of the same server. It must not have to wait for a lock that the failed session
        // kept.
        witness.nothing_pending();
        witness.sums_up();
        witness.verified("t");
        witness.run("SET statement_timeout = '150s'; SELECT cache_clear('m2'), cache_clear('t')");
    }
    // How many of the 120 statements fail depends on the C library. The test checks that some fail and some succeed.
    assert!(
        failed > 10 && done > 10,
        "{failed} failed, {done} were done"
    );
}

/// Reads 24 MB of entries through the view in a backend that may take 12 MB.
#[test]
fn the_view_of_a_memory_cache_larger_than_memory_is_read() {
    let cluster =
        Cluster::with_tier(&[PLAIN, &["pgcache.hot_size = '64MB'", "work_mem = '1MB'"]].concat());
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('m', storage => 'memory')");
    let set = "SELECT count(cache_set('k' || i, repeat('x', 8000), cache => 'm')) FROM generate_series(1, 3000) AS i";
    session.run(set);
    let mut session = warm_session(cluster);
    limit(cluster, &mut session, 12_000);
    for rows in ["m", "cache_scan(max_rows => 100000, cache => 'm')"] {
        let sum = format!("SELECT sum(length(value)) FROM {rows}");
        assert_eq!(session.number(&sum), 24_000_000, "{rows}");
    }
}
