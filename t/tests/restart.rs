//! Tests which entries remain after a crash and after a clean restart.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use postgres::Client;

const WRITERS: usize = 4;

/// The last value that a writer attempted to store, and the last value that was acknowledged, before the server
/// stopped.
#[derive(Clone, Copy, Default)]
struct Progress {
    acknowledged: u64,
    attempted: u64,
}

fn cluster_with_caches() -> &'static Cluster {
    let cluster = Cluster::start(&[]);
    let mut session = cluster.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run("SELECT cache_create('kept', storage => 'logged')");
    session.run("SELECT cache_create('lost')");
    session.run(
        "SELECT cache_set('old', '1', cache => 'kept'), cache_set('old', '1', cache => 'lost')",
    );
    cluster
}

/// The number of commits that each writer makes before the crash, so that all writers are writing when it happens.
const WARM_UP: u64 = 50;

/// The state that the writers and the test share.
#[derive(Default)]
struct Scene {
    /// The backend of one writer.
    victim: AtomicI32,
    warm: AtomicUsize,
}

/// Sets increasing numbers in both caches, one transaction each, until the session breaks.
fn write_until_it_breaks(cluster: &Cluster, writer: usize, scene: &Scene) -> Progress {
    let mut session = cluster.connect("postgres");
    let pid = session.number("SELECT pg_backend_pid()") as i32;
    scene.victim.store(pid, Ordering::SeqCst);
    let mut progress = Progress::default();
    loop {
        progress.attempted += 1;
        let set = |cache: &str| {
            format!(
                "SELECT cache_set('w{writer}', '{}', cache => '{cache}')",
                progress.attempted
            )
        };
        let both = format!("{}; {}", set("lost"), set("kept"));
        if session.batch_execute(&both).is_err() {
            return progress;
        }
        progress.acknowledged = progress.attempted;
        if progress.acknowledged == WARM_UP {
            scene.warm.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Runs `crash` with the backend of one writer while all writers write. Returns each writer's progress.
fn crash_under_load(cluster: &Cluster, crash: impl FnOnce(i32)) -> Vec<Progress> {
    let scene = Scene::default();
    thread::scope(|scope| {
        let scene = &scene;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_until_it_breaks(cluster, writer, scene)))
            .collect();
        while scene.warm.load(Ordering::SeqCst) < WRITERS {
            thread::sleep(Duration::from_millis(5));
            assert!(
                writers.iter().all(|writer| !writer.is_finished()),
                "a writer failed early"
            );
        }
        crash(scene.victim.load(Ordering::SeqCst));
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer failed"))
            .collect()
    })
}

fn check_after_crash(session: &mut Client, progress: &[Progress]) {
    assert_eq!(session.number("SELECT count(*) FROM lost"), 0);
    assert_eq!(session.value("SELECT cache_get('old', 'lost')"), None);
    assert_eq!(session.text("SELECT cache_get('old', 'kept')"), "1");
    for (writer, progress) in progress.iter().enumerate() {
        let value = session.number(&format!("SELECT cache_get('w{writer}', 'kept')")) as u64;
        assert!(
            progress.acknowledged > 0,
            "writer {writer} had no commit acknowledged"
        );
        assert!(
            (progress.acknowledged..=progress.attempted).contains(&value),
            "writer {writer}: {value}, acknowledged {}",
            progress.acknowledged
        );
    }
    session
        .run("SELECT cache_set('again', '1', cache => 'lost'), cache_incr('w0', cache => 'kept')");
    assert_eq!(session.text("SELECT cache_get('again', 'lost')"), "1");
}

#[test]
fn kill_9_of_a_backend_keeps_committed_logged_entries_and_empties_unlogged_caches() {
    let cluster = cluster_with_caches();
    let progress = crash_under_load(cluster, |pid| cluster.kill_backend(pid));
    cluster.wait_until_up();
    check_after_crash(&mut cluster.connect("postgres"), &progress);
}

#[test]
fn an_immediate_shutdown_keeps_committed_logged_entries_and_empties_unlogged_ones() {
    let cluster = cluster_with_caches();
    let progress = crash_under_load(cluster, |_| cluster.restart(Shutdown::Immediate));
    check_after_crash(&mut cluster.connect("postgres"), &progress);
}

#[test]
fn a_clean_restart_keeps_entries_and_deadlines_of_both() {
    let cluster = cluster_with_caches();
    let rows = "SELECT 'kept', pgcache_c.* FROM kept AS pgcache_c UNION ALL SELECT 'lost', pgcache_c.* FROM lost AS pgcache_c ORDER BY 1, 2";
    let mut session = cluster.connect("postgres");
    session.run("SELECT cache_set('brief', '1', '50 ms', c) FROM (VALUES ('kept'::regclass), ('lost')) AS v (c)");
    session.run("SELECT cache_set('long', '1', '1 day', c) FROM (VALUES ('kept'::regclass), ('lost')) AS v (c)");
    let before = session.lines(rows);
    drop(session);
    cluster.restart(Shutdown::Fast);
    let mut session = cluster.connect("postgres");
    assert_eq!(session.lines(rows), before);
    session.run("SELECT pg_sleep(0.05)");
    for cache in ["kept", "lost"] {
        assert_eq!(
            session.value(&format!("SELECT cache_get('brief', '{cache}')")),
            None
        );
        assert_eq!(
            session.text(&format!("SELECT cache_get('long', '{cache}')")),
            "1"
        );
    }
}
