//! Tests faults and other events outside pgcache: no memory at the start, no space on the disk, hundreds of connections
//! at once, a restored backup, and a promotion.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::tier::{PRELOAD, Tiered};
use postgres::Client;

#[test]
fn a_server_that_does_not_get_its_shared_memory_names_the_setting() {
    let cluster = Cluster::with_tier(&[]);
    let mut session = cluster.connect("postgres");
    if session.lines("SELECT 1 WHERE pg_read_file('/proc/sys/vm/overcommit_memory')::int = 1")
        == ["1"]
    {
        println!("this system promises any amount of memory: nothing can be refused");
        return;
    }
    drop(session);
    cluster.down(pgcache_tests::cluster::Shutdown::Fast);
    cluster.configure(&["pgcache.hot_size = '256GB'"]);
    cluster.provokes("could not map anonymous shared memory");
    assert!(!cluster.try_up(), "so much memory was to be had");
    let log = cluster.log_text();
    let warning = "pgcache.hot_size requests";
    assert!(
        log.contains(warning) && log.contains("HINT:  Lower pgcache.hot_size"),
        "{log}"
    );
    cluster.configure(&["pgcache.hot_size = '8MB'"]);
    cluster.up();
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_set('k', 'v')");
    assert_eq!(session.text("SELECT cache_get('k')"), "v");
    let warnings = cluster.log_text().matches(warning).count();
    assert_eq!(
        warnings,
        log.matches(warning).count(),
        "a warning where memory is there"
    );
}

/// Starts a server that does not get its huge pages, and returns its log.
fn log_without_huge_pages(hot_size: &str) -> String {
    let cluster = Cluster::with_tier(&[]);
    cluster.down(pgcache_tests::cluster::Shutdown::Fast);
    cluster.configure(&[
        "huge_pages = on",
        &format!("pgcache.hot_size = '{hot_size}'"),
    ]);
    cluster.provokes("could not map anonymous shared memory");
    assert!(!cluster.try_up(), "so many huge pages were available");
    cluster.log_text()
}

#[test]
fn a_server_that_does_not_get_its_huge_pages_names_the_setting() {
    let memory = fs::read_to_string("/proc/meminfo").expect("Linux has it");
    let total = memory
        .split_ascii_whitespace()
        .nth(1)
        .map(str::parse::<u64>);
    let eighth = total.and_then(Result::ok).expect("MemTotal in kB") / 8;
    let large = "pgcache.hot_size is more than half of this machine's memory";
    for (eighths, is_large) in [(3, false), (5, true)] {
        let log = log_without_huge_pages(&format!("{}kB", eighths * eighth));
        assert!(
            log.contains("pgcache.hot_size requests") && log.contains("MB of huge pages"),
            "{log}"
        );
        assert_eq!(log.contains(large), is_large, "{log}");
    }
}

/// A small file system, which exists only if the system allows the test to create one.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path, megabytes: u32) -> Option<Disk> {
        fs::create_dir(at).expect("the cluster's folder is ours");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Disk(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Sets entries until the disk is full. Returns the number of stored entries, and the SQLSTATE of the error.
fn fill(session: &mut Client, cache: &str, prefix: &str) -> (u64, String) {
    for number in 0..20_000 {
        let set = format!(
            "SELECT cache_set('{prefix}{number}', md5(random()::text) || repeat('x', 1600), cache => '{cache}')"
        );
        if let Err(error) = session.try_value(&set) {
            return (number, sqlstate(&error).to_owned());
        }
    }
    panic!("the disk did not get full");
}

/// On a disk that is full to the last block a cache can be dropped but not cleared. If a little space is free, it can
/// be cleared, too.
#[test]
fn a_full_disk_has_room_again_once_a_cache_is_dropped_or_cleared() {
    let cluster = Cluster::with_tier(&[]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    let place = cluster.folder.join("small");
    let Some(_disk) = Disk::mount(&place, 8) else {
        println!("no file system could be mounted here: there is no disk to fill");
        return;
    };
    cluster.stage.give(&place);
    session.run(&format!(
        "CREATE TABLESPACE small LOCATION '{}'",
        place.display()
    ));
    let file = |name: &str| place.join(name);
    for (free, is_cleared) in [(0, false), (32, true)] {
        session.run(
            "SELECT cache_create('c'); ALTER TABLE c SET TABLESPACE small; ALTER INDEX c_pkey SET TABLESPACE small",
        );
        fs::write(file("kept"), vec![1; free * 1024]).expect("there is room");
        let (written, state) = fill(&mut session, "c", "k");
        assert_eq!(state, "53100");
        let _ = fs::write(file("rest"), vec![1; 8 << 20]);
        fs::remove_file(file("kept")).expect("it is there");
        let cleared = session.try_lines("SELECT cache_clear('c')");
        assert_eq!(cleared.is_ok(), is_cleared, "{free} kB: {cleared:?}");
        if let Err(error) = cleared {
            assert_eq!(sqlstate(&error), "53100");
            assert!(session.number("SELECT cache_count('c')") >= written as i64);
            session.run("SELECT cache_drop('c')");
        } else {
            session.run("SELECT cache_set('k', 'v', cache => 'c'); SELECT cache_drop('c')");
        }
        fs::remove_file(file("rest")).expect("it is there");
    }
    session.run("CHECKPOINT");
    session.run("DROP TABLESPACE small");
}

#[test]
fn a_full_disk_fails_a_write_and_leaves_everything_sound() {
    let cluster = Cluster::with_tier(&[]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('c'), cache_create('l', storage => 'logged')");
    let place = cluster.folder.join("small");
    let disk = Disk::mount(&place, 12);
    if disk.is_some() {
        cluster.stage.give(&place);
        session.run(&format!(
            "CREATE TABLESPACE small LOCATION '{}'",
            place.display()
        ));
        session.run("ALTER TABLE c SET TABLESPACE small; ALTER TABLE l SET TABLESPACE small");
    } else {
        // Without root the test limits the file size of one backend instead. The errors are not "disk full", but they
        // come from the same system calls.
        println!(
            "no file system could be mounted here: a limit on the size of files stands in for it"
        );
        let pid = session.number("SELECT pg_backend_pid()").to_string();
        pgcache_tests::stage::succeed(cluster.stage.command("/usr/bin/prlimit").args([
            "--fsize=20000000",
            "--pid",
            &pid,
        ]));
    }
    let mut reader = cluster.connect("postgres");
    for cache in ["c", "l"] {
        session.run(&format!(
            "SELECT cache_set('kept', 'v', cache => '{cache}')"
        ));
        assert_eq!(reader.heat("kept", cache).as_deref(), Some("v"));
        let ballast = place.join("ballast");
        fs::write(&ballast, [1; 512 * 1024]).expect("the small disk has room for it");
        let (written, state) = fill(&mut session, cache, "k");
        assert!(written > 1000, "{cache} took {written} entries");
        assert!(disk.is_none() || state == "53100", "{cache}: {state}");
        // No entry is half-written. Old entries remain, with a copy in the tier and without.
        assert_eq!(reader.agrees("kept", cache).as_deref(), Some("v"));
        assert_eq!(reader.agrees(&format!("k{written}"), cache), None);
        assert!(reader.agrees(&format!("k{}", written - 1), cache).is_some());
        reader.nothing_pending();
        // Freed space can be used again. TRUNCATE needs a little space before it frees any.
        let _ = fs::remove_file(&ballast);
        session.run(&format!("SELECT cache_clear('{cache}')"));
        session.run(&format!(
            "SELECT cache_set('again', 'v', cache => '{cache}')"
        ));
        assert_eq!(reader.agrees("kept", cache), None);
        assert_eq!(reader.agrees("again", cache).as_deref(), Some("v"));
    }
    reader.sums_up();
    assert!(!cluster.log_text().contains("PANIC"));
    session.run("DROP TABLE c, l");
    if disk.is_some() {
        session.run("CHECKPOINT");
        session.run("DROP TABLESPACE small");
    }
}

#[test]
fn five_hundred_connections_at_once_are_served() {
    const MANY: usize = 500;
    let cluster = Cluster::start(&[
        "max_connections = 520",
        "superuser_reserved_connections = 3",
    ]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('c')");
    session.run("SELECT cache_set('shared', 'v', cache => 'c')");
    let memory = session.holds("SELECT size > 0 FROM pgcache.hot_tier");
    if memory {
        session.run("SELECT cache_create('m', storage => 'memory')");
    }
    let sessions: Vec<Client> = thread::scope(|scope| {
        let dialling: Vec<_> = (0..MANY)
            .map(|_| scope.spawn(|| cluster.connect("postgres")))
            .collect();
        dialling
            .into_iter()
            .map(|one| one.join().expect("a connection"))
            .collect()
    });
    thread::scope(|scope| {
        for (number, mut client) in sessions.into_iter().enumerate() {
            scope.spawn(move || {
                for cache in ["c", "m"].into_iter().take(1 + usize::from(memory)) {
                    client.run(&format!(
                        "SELECT cache_set('k{number}', '{number}', cache => '{cache}')"
                    ));
                    assert_eq!(
                        client.number(&format!("SELECT cache_get('k{number}', '{cache}')")),
                        number as i64
                    );
                    client.run(&format!("SELECT cache_incr('n', cache => '{cache}')"));
                }
                assert_eq!(client.text("SELECT cache_get('shared', 'c')"), "v");
            });
        }
    });
    assert_eq!(session.number("SELECT cache_get('n', 'c')"), MANY as i64);
    if memory {
        assert_eq!(session.number("SELECT cache_get('n', 'm')"), MANY as i64);
        session.nothing_pending();
        session.sums_up();
    }
    session.verified("c");
}

#[test]
fn a_base_backup_that_is_restored_has_logged_entries_and_works() {
    let origin = Cluster::with_tier(&[]);
    let mut session = origin.connect("postgres");
    session.run(
        "CREATE EXTENSION pgcache; SELECT cache_create('l', storage => 'logged', ttl => '1 day'), cache_create('u'), \
         cache_create('m', storage => 'memory')",
    );
    session.run("SELECT cache_set('k', 'v', cache => c) FROM unnest('{l,u,m}'::regclass[]) AS c");
    session.heat("k", "l");
    let restored = origin.restored();
    let mut session = restored.connect("postgres");
    let all = "SELECT cache_get('k', 'l'), cache_get('k', 'u'), cache_get('k', 'm')";
    assert_eq!(session.lines(all), ["v||"]);
    assert_eq!(
        session.lines("SELECT ttl FROM pgcache.caches WHERE cache = 'l'::regclass"),
        ["1 day"]
    );
    session.run("SELECT cache_set('k', 'new', cache => c) FROM unnest('{l,u,m}'::regclass[]) AS c");
    assert_eq!(session.lines(all), ["new|new|new"]);
    for cache in ["l", "u"] {
        session.heat("k", cache);
        session.verified(cache);
    }
}

#[test]
fn a_standby_that_is_promoted_fills_its_tier_and_stays_coherent() {
    let primary = Cluster::with_tier(&[]);
    let mut session = primary.connect("postgres");
    session.run(
        "CREATE EXTENSION pgcache; SELECT cache_create('l', storage => 'logged'), cache_create('u'), cache_create('m', storage => 'memory')",
    );
    session.run("SELECT cache_set('k', 'v', cache => 'l')");
    let standby = primary.standby();
    standby.promote();
    let (mut one, mut other) = (standby.connect("postgres"), standby.connect("postgres"));
    for cache in ["l", "u"] {
        for value in ["first", "second"] {
            one.run(&format!(
                "SELECT cache_set('k', '{value}', cache => '{cache}')"
            ));
            assert_eq!(other.heat("k", cache).as_deref(), Some(value));
            assert_eq!(one.agrees("k", cache).as_deref(), Some(value));
        }
    }
    one.run("SELECT cache_set('k', 'v', cache => 'm')");
    assert_eq!(other.text("SELECT cache_get('k', 'm')"), "v");
    other.nothing_pending();
    // After the promotion, the former primary is a separate server.
    assert_eq!(session.text("SELECT cache_get('k', 'l')"), "v");
}

#[test]
fn a_crash_right_after_a_truncation_was_rolled_back_does_not_keep_the_server_down() {
    let undone = [
        "BEGIN; SELECT cache_clear('c'); $flush; ROLLBACK",
        "BEGIN; TRUNCATE c; $flush; ROLLBACK",
        "BEGIN; SELECT cache_create('new'); $flush; ROLLBACK",
        "BEGIN; SAVEPOINT s; SELECT cache_clear('c'); $flush; ROLLBACK TO s; SELECT 1",
    ];
    for preload in [PRELOAD, "shared_preload_libraries = ''"] {
        let cluster = Cluster::start(&[preload, "wal_writer_delay = 10s", "autovacuum = off"]);
        let mut session = cluster.connect("postgres");
        session
            .run("CREATE EXTENSION pgcache; CREATE TABLE logged (i int); SELECT cache_create('c')");
        for statements in undone {
            session.run("CHECKPOINT");
            session.run("SELECT cache_set('k', 'v', cache => 'c')");
            for statement in statements.split("; ") {
                match statement {
                    // Another transaction's commit flushes this transaction's WAL to the disk.
                    "$flush" => cluster
                        .connect("postgres")
                        .run("INSERT INTO logged VALUES (1)"),
                    statement => session.run(statement),
                }
            }
            cluster.down(pgcache_tests::cluster::Shutdown::Immediate);
            assert!(
                cluster.try_up(),
                "after {statements}:\n{}",
                cluster.log_text()
            );
            session = cluster.connect("postgres");
            assert_eq!(session.value("SELECT cache_get('k', 'c')"), None);
        }
    }
}
