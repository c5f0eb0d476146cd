//! Tests `pgcache.save_memory`: memory caches keep their entries across a planned restart of a primary, but not across
//! any other stop.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::resp::{Client as Resp, Door, Reply};
use pgcache_tests::stage::succeed;
use pgcache_tests::tier::{PRELOAD, Tiered};
use pgcache_tests::wait::wait_until;
use pgcache_tests::windows;
use postgres::Client;

use crate::standby::wait_for_replay;

const SAVE: &str = "pgcache.save_memory = on";
const NOT_RESTORED: &str = "could not restore the entries of memory caches";
const OUTDATED: &str = "because the database has changed since they were saved";

/// Starts a server with pgcache.save_memory and a memory cache `m`, in which `k` has the value `saved`.
fn saving(conf: &[&str]) -> (&'static Cluster, Client) {
    let cluster = Cluster::with_tier(&[&[SAVE], conf].concat());
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('m', storage => 'memory')");
    session.run("SELECT cache_set('k', 'saved', cache => 'm')");
    (cluster, session)
}

fn file(cluster: &Cluster) -> PathBuf {
    cluster.folder.join("data/pg_stat/pgcache_memory.stat")
}

fn unfinished(cluster: &Cluster) -> PathBuf {
    file(cluster).with_extension("tmp")
}

/// Returns the value of `k` in `m`, as a new session reads it.
fn kept(cluster: &Cluster) -> Option<String> {
    cluster
        .connect("postgres")
        .value("SELECT cache_get('k', 'm')")
}

fn set(cluster: &Cluster) {
    cluster
        .connect("postgres")
        .run("SELECT cache_set('k', 'saved', cache => 'm')");
}

#[test]
fn a_planned_restart_keeps_entries_and_their_deadlines() {
    let (cluster, mut session) = saving(&["fsync = on"]);
    session.run(
        "SELECT cache_create('j', storage => 'memory', value_type => 'jsonb'), \
         cache_create('b', storage => 'memory', value_type => 'bytea')",
    );
    session.run(
        "SELECT cache_set_json('k', '{\"a\": [1, 2]}', cache => 'j'), \
         cache_set_bytes('k', '\\x00ff', cache => 'b'), \
         cache_set('long', repeat('wort', 120000), cache => 'm'), \
         cache_set('day', 'd', '1 day', 'm'), cache_set('brief', 'b', '50 ms', 'm'), \
         cache_set('none', NULL, cache => 'm')",
    );
    session.run("SELECT cache_set('n' || i, repeat('v', i % 500), cache => 'm') FROM generate_series(1, 5000) AS i");
    session.run("CREATE DATABASE other TEMPLATE template0");
    let mut other = cluster.connect("other");
    other.run("CREATE EXTENSION pgcache");
    other.run("SELECT cache_create('m', storage => 'memory')");
    other.run("SELECT cache_set('k', 'other', cache => 'm')");
    let all = "SELECT md5(string_agg(key || ':' || coalesce(value, '-') || ':' || coalesce(expires_at::text, '-'), ',' ORDER BY key)), count(*) FROM m";
    session.run("SELECT pg_sleep(0.05)");
    let before = session.lines(all);
    drop((session, other));
    for how in [Shutdown::Fast, Shutdown::Smart, Shutdown::Fast] {
        cluster.down(how);
        let saved = fs::metadata(file(cluster)).unwrap();
        assert_eq!(saved.permissions().mode() & 0o777, 0o600);
        assert!(!unfinished(cluster).exists());
        cluster.up();
        if matches!(how, Shutdown::Smart) {
            continue; // no session opens a cache before the next shutdown
        }
        let mut session = cluster.connect("postgres");
        assert_eq!(session.lines(all), before);
        assert_eq!(
            session.text("SELECT cache_get_json('k', 'j')"),
            "{\"a\": [1, 2]}"
        );
        assert_eq!(session.text("SELECT cache_get_bytes('k', 'b')"), "\\x00ff");
        assert!(session.holds("SELECT cache_get('long', 'm') = repeat('wort', 120000)"));
        assert!(
            session.holds("SELECT cache_exists('day', 'm') AND NOT cache_exists('brief', 'm')")
        );
        assert!(session.holds(
            "SELECT cache_ttl('day', 'm') BETWEEN interval '23 hours' AND interval '1 day'"
        ));
        session.sums_up();
        let mut other = cluster.connect("other");
        assert_eq!(other.text("SELECT cache_get('k', 'm')"), "other");
    }
    // The caches work as before.
    let mut session = cluster.connect("postgres");
    session.run("SELECT cache_set('k', 'new', cache => 'm'), cache_delete('day', 'm')");
    assert_eq!(kept(cluster).as_deref(), Some("new"));
    session.run("SELECT cache_clear('m')");
    assert_eq!(session.number("SELECT count(*) FROM m"), 0);
    session.sums_up();
}

#[test]
fn deadlines_pass_while_the_server_is_down() {
    let (cluster, mut session) = saving(&[]);
    session.run("SELECT cache_set('brief', 'b', '1 s', 'm')");
    drop(session);
    cluster.down(Shutdown::Fast);
    thread::sleep(Duration::from_millis(1100));
    cluster.up();
    let mut session = cluster.connect("postgres");
    assert_eq!(session.value("SELECT cache_get('brief', 'm')"), None);
    assert_eq!(
        session.number("SELECT hot_entries FROM pgcache.stats WHERE cache = 'm'::regclass"),
        1
    );
}

#[test]
fn by_default_nothing_is_saved_and_a_saved_file_is_removed() {
    let (cluster, session) = saving(&["pgcache.save_memory = off"]);
    drop(session);
    cluster.down(Shutdown::Fast);
    assert!(!file(cluster).exists());
    cluster.configure(&[SAVE]);
    cluster.up();
    assert_eq!(kept(cluster), None);
    set(cluster);
    cluster.down(Shutdown::Fast);
    assert!(file(cluster).exists());
    cluster.configure(&["pgcache.save_memory = off"]);
    cluster.up();
    assert_eq!(kept(cluster), None);
    assert!(!file(cluster).exists());
}

#[test]
fn a_crash_or_an_immediate_stop_leaves_nothing() {
    let (cluster, session) = saving(&[]);
    drop(session);
    cluster.restart(Shutdown::Fast);
    assert_eq!(kept(cluster).as_deref(), Some("saved"), "a planned restart");
    let mut session = cluster.connect("postgres");
    cluster.kill_backend(session.number("SELECT pg_backend_pid()") as i32);
    wait_until("the server notices", || {
        cluster
            .log_text()
            .contains("all server processes terminated")
    });
    cluster.wait_until_up();
    assert_eq!(kept(cluster), None, "a backend was killed");
    set(cluster);
    cluster.down(Shutdown::Immediate);
    assert!(!file(cluster).exists() && !unfinished(cluster).exists());
    cluster.up();
    assert_eq!(kept(cluster), None, "an immediate stop");
    set(cluster);
    kill_server(cluster);
    cluster.up();
    assert_eq!(kept(cluster), None, "the postmaster was killed");
}

fn postmaster(cluster: &Cluster) -> String {
    let file = fs::read_to_string(cluster.folder.join("data/postmaster.pid")).unwrap();
    file.lines().next().unwrap().trim().to_owned()
}

fn signal(signal: &str, pid: &str) -> bool {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill \"$0\" \"$1\" 2>&1", signal, pid]);
    kill.output().is_ok_and(|output| output.status.success())
}

/// Kills the postmaster, and waits until the server's other processes have noticed this and ended.
fn kill_server(cluster: &Cluster) {
    cluster.spoil();
    let (server, others) = (postmaster(cluster), cluster.processes());
    assert!(signal("-9", &server));
    let exists = |pid: &dyn std::fmt::Display| PathBuf::from(format!("/proc/{pid}")).exists();
    wait_until("all processes have ended", || {
        !exists(&server) && !others.iter().any(|pid| exists(pid))
    });
}

#[test]
fn a_start_without_preload_in_between_leaves_nothing() {
    for changes in [true, false] {
        let (cluster, mut session) = saving(&[]);
        session.run("CREATE TABLE plain (v text)");
        drop(session);
        cluster.down(Shutdown::Fast);
        cluster.configure(&["shared_preload_libraries = ''"]);
        cluster.up();
        if changes {
            cluster
                .connect("postgres")
                .run("INSERT INTO plain VALUES ('new')");
        }
        cluster.down(Shutdown::Fast);
        assert!(file(cluster).exists());
        cluster.configure(&[PRELOAD]);
        cluster.up();
        assert_eq!(kept(cluster), None, "{changes}");
        assert!(!file(cluster).exists());
        assert!(cluster.log_text().contains(OUTDATED));
    }
}

#[test]
fn the_file_goes_before_it_is_read_and_is_never_read_twice() {
    let (cluster, session) = saving(&[]);
    drop(session);
    cluster.down(Shutdown::Fast);
    let first = fs::read(file(cluster)).unwrap();
    cluster.up();
    assert!(!file(cluster).exists(), "it was read");
    assert_eq!(kept(cluster).as_deref(), Some("saved"));
    cluster
        .connect("postgres")
        .run("SELECT cache_set('k', 'second', cache => 'm')");
    cluster.down(Shutdown::Fast);
    // Simulates an operator who restores the first file.
    fs::write(file(cluster), first).unwrap();
    cluster.up();
    assert_eq!(kept(cluster), None);
    assert!(!file(cluster).exists(), "it was not read");
    assert!(cluster.log_text().contains(OUTDATED));
}

#[test]
fn a_damaged_file_is_ignored_with_a_warning() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let damages: [(&str, Damage); 7] = [
        ("a byte in the middle", |mut bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            bytes
        }),
        ("the last byte", |mut bytes| {
            *bytes.last_mut().unwrap() ^= 1;
            bytes
        }),
        ("half of it", |mut bytes| {
            bytes.truncate(bytes.len() / 2);
            bytes
        }),
        ("one byte more", |mut bytes| {
            bytes.push(0);
            bytes
        }),
        ("three bytes", |mut bytes| {
            bytes.truncate(3);
            bytes
        }),
        ("nothing", |_| Vec::new()),
        ("another file", |_| b"another file of some length".to_vec()),
    ];
    let (cluster, mut session) = saving(&[]);
    session.run("SELECT cache_set('n' || i, repeat('v', 1000), cache => 'm') FROM generate_series(1, 3000) AS i");
    drop(session);
    for (what, damage) in damages {
        cluster.down(Shutdown::Fast);
        let bytes = fs::read(file(cluster)).unwrap();
        fs::write(file(cluster), damage(bytes)).unwrap();
        let warned = cluster.log_text().matches(NOT_RESTORED).count();
        cluster.up();
        assert_eq!(
            cluster.log_text().matches(NOT_RESTORED).count(),
            warned + 1,
            "{what}"
        );
        assert_eq!(kept(cluster), None, "{what}");
        let mut session = cluster.connect("postgres");
        assert_eq!(session.number("SELECT count(*) FROM m"), 0, "{what}");
        session.sums_up();
        assert!(!file(cluster).exists());
        set(cluster);
    }
}

/// Makes the postmaster wait in a window while it saves the memory caches.
fn holding(cluster: &Cluster, pause: &str) {
    cluster.configure(&[
        &format!("pgcache.pause = '{pause}'"),
        &format!("pgcache.pause_window = {}", windows::SAVED_TO_NAMED),
    ]);
    cluster.restart(Shutdown::Immediate);
    set(cluster);
    cluster.hold_windows(true);
}

#[test]
fn a_kill_between_writing_and_naming_leaves_nothing() {
    let (cluster, session) = saving(&[]);
    drop(session);
    if !windows::paused(cluster) {
        return;
    }
    holding(cluster, "60s");
    let server = postmaster(cluster);
    assert!(signal("-INT", &server));
    wait_until("the entries are written", || {
        fs::metadata(unfinished(cluster)).is_ok_and(|file| file.size() > 0)
    });
    assert!(!file(cluster).exists());
    kill_server(cluster);
    cluster.hold_windows(false);
    assert!(unfinished(cluster).exists());
    cluster.up();
    assert_eq!(kept(cluster), None);
    assert!(!file(cluster).exists() && !unfinished(cluster).exists());
    cluster.restart(Shutdown::Fast);
    assert_eq!(kept(cluster), None);
}

#[test]
fn saving_gives_up_after_ten_seconds() {
    let (cluster, session) = saving(&[]);
    drop(session);
    if !windows::paused(cluster) {
        return;
    }
    holding(cluster, "10100ms");
    let began = Instant::now();
    cluster.down(Shutdown::Fast);
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(!file(cluster).exists() && !unfinished(cluster).exists());
    let told = "could not save the entries of memory caches";
    assert!(cluster.log_text().contains(told));
    cluster.hold_windows(false);
    cluster.up();
    assert_eq!(kept(cluster), None);
}

#[test]
fn a_directory_that_cannot_be_written_stops_no_shutdown() {
    let (cluster, session) = saving(&[]);
    drop(session);
    // If a directory has the name of the file to write, the server can neither remove it as a file nor create the file.
    fs::create_dir(unfinished(cluster)).unwrap();
    cluster.down(Shutdown::Fast);
    assert!(!file(cluster).exists());
    assert!(
        cluster
            .log_text()
            .contains("could not save the entries of memory caches")
    );
    cluster.up();
    assert_eq!(kept(cluster), None);
}

#[test]
fn a_restored_backup_serves_no_saved_entries() {
    let (cluster, session) = saving(&[]);
    drop(session);
    cluster.restart(Shutdown::Fast);
    assert_eq!(kept(cluster).as_deref(), Some("saved"));
    let restored = cluster.restored();
    assert_eq!(kept(&restored), None, "from a server that saves");
    // A server without preload does not remove the file, so a backup of that server contains it. A server restored from
    // the backup must ignore the entries.
    cluster.down(Shutdown::Fast);
    cluster.configure(&["shared_preload_libraries = ''"]);
    cluster.up();
    let restored = cluster.restored();
    assert!(file(&restored).exists());
    restored.down(Shutdown::Fast);
    restored.configure(&[PRELOAD]);
    restored.up();
    assert_eq!(kept(&restored), None, "from a server without preload");
    assert!(!file(&restored).exists());
}

/// A cold copy of the data directory has the same control file, so a start from it restores what the copy saved.
#[test]
fn a_cold_copy_restores_its_own_entries_unless_the_file_is_deleted() {
    let (cluster, session) = saving(&[]);
    drop(session);
    let folder = |name: &str| cluster.folder.join(name);
    for (copy, deletes, found) in [("first", false, Some("saved")), ("second", true, None)] {
        set(cluster);
        cluster.down(Shutdown::Fast);
        succeed(
            Command::new("cp")
                .arg("-a")
                .args([folder("data"), folder(copy)]),
        );
        cluster.up();
        cluster
            .connect("postgres")
            .run("SELECT cache_set('k', 'later', cache => 'm')");
        cluster.down(Shutdown::Fast);
        fs::rename(folder("data"), folder("later")).unwrap();
        fs::rename(folder(copy), folder("data")).unwrap();
        if deletes {
            fs::remove_file(file(cluster)).unwrap();
        }
        cluster.up();
        assert_eq!(kept(cluster).as_deref(), found, "{copy}");
        fs::remove_dir_all(folder("later")).unwrap();
    }
}

#[test]
fn a_start_that_replays_from_an_archive_restores_nothing() {
    let (cluster, session) = saving(&["restore_command = 'false'"]);
    drop(session);
    cluster.down(Shutdown::Fast);
    assert!(file(cluster).exists());
    let signal = cluster.folder.join("data/recovery.signal");
    fs::write(&signal, "").unwrap();
    cluster.stage.give(&signal);
    cluster.up();
    assert_eq!(kept(cluster), None);
    assert!(!file(cluster).exists());
}

/// Statements for the first call on a cache after the restart. A result other than NULL means that an entry survived
/// the restart.
const LOOKS: &[&str] = &[
    "SELECT cache_get('k', 'dep')",
    "SELECT value FROM dep WHERE key = 'k'",
    "SELECT value FROM cache_scan(cache => 'dep')",
    "SELECT nullif(cache_count('dep'), 0)",
    "SELECT nullif(cache_add('k', 'x', cache => 'dep'), true)",
    "SELECT nullif(cache_fetch('k', 'SELECT v FROM src WHERE k = $1', cache => 'dep'), 'now')",
    "WITH changed AS (UPDATE src SET v = 'now' RETURNING 1) SELECT NULL FROM changed",
    "SELECT nullif(cache_expire('dep'), 0)",
];

#[test]
fn a_cache_with_dependencies_begins_empty() {
    let (cluster, mut session) = saving(&[]);
    session.run("CREATE TABLE src (k text, v text); INSERT INTO src VALUES ('k', 'now')");
    for number in 0..LOOKS.len() {
        let name = format!("dep{number}");
        session.run(&format!(
            "SELECT cache_create('{name}', storage => 'memory'); SELECT cache_depend('src', 'k', '{name}')"
        ));
        session.run(&format!(
            "SELECT cache_set('k', 'before', cache => '{name}'), cache_set('l', 'before', cache => '{name}')"
        ));
    }
    drop(session);
    cluster.restart(Shutdown::Fast);
    let mut session = cluster.connect("postgres");
    for (number, look) in LOOKS.iter().enumerate() {
        let named = |sql: &str| sql.replace("dep", &format!("dep{number}"));
        assert_eq!(session.value(&named(look)), None, "{look}");
        assert_eq!(
            session.value(&named("SELECT cache_get('l', 'dep')")),
            None,
            "{look}"
        );
        session.run(&named("SELECT cache_set('k', 'after', cache => 'dep')"));
        session.run("UPDATE src SET v = 'now'");
        assert_eq!(
            session.value(&named("SELECT cache_get('k', 'dep')")),
            None,
            "{look}"
        );
    }
    assert_eq!(session.text("SELECT cache_get('k', 'm')"), "saved");
    session.sums_up();
}

#[test]
fn a_cache_that_was_dropped_and_made_again_is_empty() {
    let (cluster, mut session) = saving(&[]);
    session.run("SELECT cache_drop('m'); SELECT cache_create('m', storage => 'memory')");
    session.run(
        "SELECT cache_create('late', storage => 'memory'), cache_create('gone', storage => 'memory')",
    );
    session
        .run("SELECT cache_set('k', 'v', cache => 'late'), cache_set('k', 'v', cache => 'gone')");
    drop(session);
    cluster.restart(Shutdown::Fast);
    let mut session = cluster.connect("postgres");
    // No session has opened these caches since the start.
    session.run(
        "SELECT cache_drop('late'); SELECT cache_create('late', storage => 'memory', value_type => 'bytea'); \
         SELECT cache_drop('gone')",
    );
    assert_eq!(session.value("SELECT cache_get_bytes('k', 'late')"), None);
    assert_eq!(session.number("SELECT cache_count('late')"), 0);
    assert_eq!(kept(cluster), None);
    assert_eq!(session.number("SELECT entries FROM pgcache.hot_tier"), 0);
}

#[test]
fn a_standby_saves_nothing_until_it_is_promoted() {
    let (primary, mut session) = saving(&[]);
    let standby = primary.standby();
    let mut replica = standby.connect("postgres");
    wait_for_replay(&mut session, &mut replica);
    replica.run("SELECT cache_set('k', 'replica', cache => 'm')");
    session.run("CHECKPOINT");
    wait_for_replay(&mut session, &mut replica);
    replica.run("CHECKPOINT"); // a restartpoint
    drop(replica);
    standby.down(Shutdown::Fast);
    assert!(!file(&standby).exists());
    standby.up();
    assert_eq!(kept(&standby), None);
    set(&standby);
    standby.promote();
    assert_eq!(kept(&standby).as_deref(), Some("saved"));
    standby.restart(Shutdown::Fast);
    assert_eq!(kept(&standby).as_deref(), Some("saved"));
}

#[test]
fn a_smaller_tier_restores_as_many_entries_as_fit() {
    let (cluster, mut session) = saving(&[]);
    for number in 0..40 {
        session.run(&format!(
            "SELECT cache_create('m{number}', storage => 'memory')"
        ));
        session.run(&format!(
            "SELECT cache_set('n' || i, repeat('v', 1000), cache => 'm{number}') FROM generate_series(1, 500) AS i"
        ));
    }
    drop(session);
    cluster.down(Shutdown::Fast);
    cluster.configure(&[
        "pgcache.hot_size = '4MB'",
        "pgcache.hot_max_value = '100kB'",
    ]);
    cluster.up();
    let mut session = cluster.connect("postgres");
    session.sums_up();
    assert!(session.holds("SELECT entries BETWEEN 1000 AND 10000 FROM pgcache.hot_tier"));
    assert!(session.holds("SELECT count(*) > 0 FROM m0"));
    session.run("SELECT cache_clear('m0')");
}

#[test]
fn a_large_tier_is_saved_and_restored_within_the_limit() {
    let (cluster, mut session) = saving(&["pgcache.hot_size = '256MB'"]);
    session.run(
        "SELECT cache_set('n' || i, repeat(md5(i::text), 3000), cache => 'm') FROM generate_series(1, 2000) AS i",
    );
    let sum =
        "SELECT count(*), sum(length(value)), md5(string_agg(md5(value), '' ORDER BY key)) FROM m";
    let before = session.lines(sum);
    drop(session);
    let began = Instant::now();
    cluster.down(Shutdown::Fast);
    assert!(fs::metadata(file(cluster)).unwrap().size() > 190_000_000);
    cluster.up();
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(cluster.connect("postgres").lines(sum), before);
}

/// Increments a counter until the session breaks. Returns the number of increments that the server acknowledged.
fn count_until_it_breaks(cluster: &Cluster, writer: usize, sums: &AtomicUsize) -> i64 {
    let mut session = cluster.connect("postgres");
    let mut told = 0;
    let add = format!("SELECT cache_incr('w{writer}', cache => 'm')");
    while session.try_value(&add).is_ok() {
        told += 1;
        sums.fetch_add(1, Ordering::Relaxed);
    }
    told
}

#[test]
fn writes_acknowledged_before_a_shutdown_under_load_are_kept() {
    let (cluster, session) = saving(&[]);
    drop(session);
    let mut sums = [0; 3];
    for round in 0..3 {
        let added = AtomicUsize::new(0);
        let told: Vec<i64> = thread::scope(|scope| {
            let added = &added;
            let writers: Vec<_> = (0..sums.len())
                .map(|writer| scope.spawn(move || count_until_it_breaks(cluster, writer, added)))
                .collect();
            wait_until("the writers add", || added.load(Ordering::Relaxed) > 500);
            cluster.down(Shutdown::Fast);
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        cluster.up();
        let mut session = cluster.connect("postgres");
        for (writer, (sum, told)) in sums.iter_mut().zip(told).enumerate() {
            let now = session.number(&format!("SELECT cache_get('w{writer}', 'm')"));
            // The last call may have incremented the counter although the session received no answer.
            assert!(
                (*sum + told..=*sum + told + 1).contains(&now),
                "round {round}: {now} of {sum} and {told}"
            );
            *sum = now;
        }
        session.sums_up();
    }
}

#[test]
fn clients_of_the_redis_protocol_find_their_entries() {
    let door = Door::start(&[SAVE, "pgcache.resp_caches = 'pgcache.resp, public.dep'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE TABLE src (k text); SELECT cache_create('dep', storage => 'memory')");
    session.run("SELECT cache_depend('src', 'k', 'dep')");
    drop(session);
    let select = |mut client: Resp| {
        assert_eq!(client.ask(&["SELECT", "1"]), Reply::status("OK"));
        client
    };
    let mut client = door.client();
    for key in ["a", "b"] {
        assert_eq!(client.ask(&["SET", key, "1"]), Reply::status("OK"));
    }
    assert_eq!(client.ask(&["EXPIRE", "b", "1000"]), Reply::Integer(1));
    let mut client = select(client);
    assert_eq!(client.ask(&["SET", "k", "1"]), Reply::status("OK"));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"));
    drop(client);
    door.cluster.restart(Shutdown::Fast);
    let mut client = door.client();
    assert_eq!(client.ask(&["GET", "a"]), Reply::bulk("1"));
    assert_eq!(client.ask(&["INCR", "a"]), Reply::Integer(2));
    assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(2));
    let Reply::Integer(ttl) = client.ask(&["TTL", "b"]) else {
        panic!("TTL replies a number");
    };
    assert!((900..=1000).contains(&ttl), "{ttl}");
    let mut client = select(client);
    assert_eq!(
        client.ask(&["GET", "k"]),
        Reply::Null,
        "it has dependencies"
    );
    assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(0));
}
