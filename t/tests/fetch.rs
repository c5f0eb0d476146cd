//! Tests `cache_fetch`: if many sessions miss a key, only one session runs the loader, and the other sessions make
//! progress whatever happens to that session.

use std::sync::Barrier;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use postgres::Client;

const CROWD: usize = 20;
/// Long timeouts, so that no test depends on them. `statement_timeout` ends a test that hangs.
const PATIENT: &str = "SET pgcache.fetch_wait = '5min'; SET pgcache.lease_time = '10min'; \
     SET statement_timeout = '60s'";
/// A function for loaders that waits until the gate is opened.
const GATE: &str = "CREATE FUNCTION pass(value text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
     PERFORM pg_advisory_xact_lock_shared(42); RETURN value; END $$; CREATE UNLOGGED SEQUENCE runs";

/// Returns a cluster with enough slots for the caches of all tests in this file and in `leases`.
pub(crate) fn tiered() -> &'static Cluster {
    Cluster::hot_with(&["pgcache.hot_size = '256MB'"])
}

/// Creates a database with a closed gate. The returned session holds the gate, and opens it with `open`.
fn gated<'c>(cluster: &'c Cluster, create: &str) -> (Database<'c>, Client) {
    let database = cluster.database();
    let mut gate = database.connect();
    gate.run(GATE);
    gate.run(create);
    gate.run("SELECT pg_advisory_lock(42)");
    (database, gate)
}

fn open(gate: &mut Client) {
    gate.run("SELECT pg_advisory_unlock(42)");
}

fn patient(database: &Database) -> Client {
    let mut session = database.connect();
    session.run(PATIENT);
    session
}

/// Waits until this many sessions of the database match the condition.
fn wait_for(gate: &mut Client, count: i64, condition: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let question = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND state = 'active' AND pid <> pg_backend_pid() AND {condition}"
    );
    while gate.number(&question) < count {
        assert!(Instant::now() < deadline, "never {count} with {condition}");
        sleep(Duration::from_millis(10));
    }
}

/// Waits until a session runs a loader behind the gate.
fn wait_for_loader(gate: &mut Client) {
    wait_for(gate, 1, "wait_event = 'advisory'");
}

/// Selects sessions that wait for another session's lease: for its record or, without preload, for its lock.
const WAITS: &str = "(wait_event = 'PgcacheFetch' OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' \
     AND objsubid = 3 AND NOT granted))";

fn fetch(loader: &str) -> String {
    format!("SELECT cache_fetch('k', $l$SELECT {loader}$l$, cache => 'c')")
}

/// Returns how often the loader runs when many sessions miss one key at once.
fn runs_of_a_crowd(cluster: &Cluster, create: &str, ask: &str) -> i64 {
    let database = cluster.database();
    database.connect().run(GATE);
    database.connect().run(create);
    let start = Barrier::new(CROWD);
    thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                let mut session = patient(&database);
                start.wait();
                assert!(!session.text(ask).is_empty());
            });
        }
    });
    database.connect().number("SELECT last_value FROM runs")
}

const SLOW: &str = "SELECT nextval('runs') || pg_sleep(1)::text";

fn crowd_fetches(cluster: &Cluster, create: &str) {
    let ask = fetch("nextval('runs') || pg_sleep(1)::text");
    assert_eq!(runs_of_a_crowd(cluster, create, &ask), 1, "{create}");
}

#[test]
fn of_a_crowd_one_loads() {
    crowd_fetches(Cluster::shared(), "SELECT cache_create('c')");
    crowd_fetches(
        Cluster::shared(),
        "SELECT cache_create('c', storage => 'logged')",
    );
}

#[test]
fn of_a_crowd_one_loads_for_a_memory_cache() {
    crowd_fetches(tiered(), "SELECT cache_create('c', storage => 'memory')");
}

/// The negative control: without `cache_fetch`, all sessions run the loader.
#[test]
fn without_fetch_the_crowd_stampedes() {
    let ask = format!("SELECT coalesce(cache_get('k', 'c'), ({SLOW})) FROM (VALUES (1)) AS v");
    let runs = runs_of_a_crowd(Cluster::shared(), "SELECT cache_create('c')", &ask);
    assert!(runs > 1, "the crowd was no crowd");
}

/// Ends a lease holder with `end`, and checks that the waiting session then runs the loader.
fn holder_ends(cluster: &Cluster, create: &str, end: impl Fn(&Database, &mut Client)) {
    let (database, mut gate) = gated(cluster, create);
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut session = patient(&database);
            session.try_value(&fetch("pass('a')::int"))
        });
        wait_for_loader(&mut gate);
        let next = scope.spawn(|| patient(&database).text(&fetch("'b'")));
        wait_for(&mut gate, 1, WAITS);
        end(&database, &mut gate);
        assert_eq!(next.join().expect("the next one gets on"), "b");
        assert!(holder.join().expect("no panic").is_err());
    });
    assert_eq!(gate.text("SELECT cache_get('k', 'c')"), "b");
}

const HOLDERS: &str = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' \
     AND pid IN (SELECT pid FROM pg_locks WHERE objid = 42 AND NOT granted)";

fn each_way_a_holder_ends(cluster: &Cluster, create: &str) {
    holder_ends(cluster, create, |_, gate| open(gate));
    holder_ends(cluster, create, |_, gate| {
        gate.run(&format!("SELECT pg_cancel_backend(pid) {HOLDERS}"));
    });
    holder_ends(cluster, create, |_, gate| {
        gate.run(&format!("SELECT pg_terminate_backend(pid) {HOLDERS}"));
    });
}

#[test]
fn after_a_failed_cancelled_or_terminated_holder_the_next_one_loads() {
    each_way_a_holder_ends(Cluster::shared(), "SELECT cache_create('c')");
    each_way_a_holder_ends(tiered(), "SELECT cache_create('c', storage => 'memory')");
}

/// The holder catches the loader's error in a PL/pgSQL block, and its transaction continues.
#[test]
fn a_caught_error_ends_the_lease() {
    let (database, mut gate) = gated(Cluster::shared(), "SELECT cache_create('c')");
    open(&mut gate);
    let mut holder = patient(&database);
    holder.run("BEGIN");
    holder.run(&format!(
        "DO $d$ BEGIN PERFORM {} ; EXCEPTION WHEN division_by_zero THEN NULL; END $d$",
        fetch("1 / 0").trim_start_matches("SELECT ")
    ));
    assert_eq!(patient(&database).text(&fetch("'b'")), "b");
    holder.run("COMMIT");
}

#[test]
fn a_holder_slower_than_its_lease_is_overtaken_and_does_not_store() {
    for create in [
        "SELECT cache_create('c')",
        "SELECT cache_create('c', storage => 'memory')",
    ] {
        let (database, mut gate) = gated(tiered(), create);
        thread::scope(|scope| {
            let slow = scope.spawn(|| {
                let mut session = patient(&database);
                session.run("SET pgcache.lease_time = '300ms'");
                session.text(&fetch("pass('a')"))
            });
            wait_for_loader(&mut gate);
            assert_eq!(patient(&database).text(&fetch("'b'")), "b");
            open(&mut gate);
            assert_eq!(slow.join().expect("the slow one gets its value"), "a");
        });
        assert_eq!(gate.text("SELECT cache_get('k', 'c')"), "b", "{create}");
    }
}

#[test]
fn a_session_whose_wait_times_out_loads_for_itself() {
    let (database, mut gate) = gated(Cluster::shared(), "SELECT cache_create('c')");
    thread::scope(|scope| {
        let holder = scope.spawn(|| patient(&database).text(&fetch("pass('a')")));
        wait_for_loader(&mut gate);
        let mut hasty = patient(&database);
        hasty.run("SET pgcache.fetch_wait = '100ms'");
        assert_eq!(hasty.text(&fetch("'b'")), "b");
        open(&mut gate);
        assert_eq!(holder.join().expect("the holder is not disturbed"), "a");
    });
    assert_eq!(gate.text("SELECT cache_get('k', 'c')"), "a");
}

#[test]
fn a_waiting_session_shows_why_and_can_be_cancelled() {
    let (database, mut gate) = gated(tiered(), "SELECT cache_create('c')");
    thread::scope(|scope| {
        let holder = scope.spawn(|| patient(&database).text(&fetch("pass('a')")));
        wait_for_loader(&mut gate);
        let waiting = scope.spawn(|| patient(&database).try_value(&fetch("'b'")));
        wait_for(&mut gate, 1, "wait_event = 'PgcacheFetch'");
        gate.run(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgcacheFetch' \
             AND datname = current_database()",
        );
        refused(waiting.join().expect("no panic"), "57014");
        open(&mut gate);
        holder.join().expect("the holder is not disturbed");
    });
}

/// A session with an xid does not wait, because other sessions may wait for it. It runs the loader at once, and does
/// not wait for the row either.
#[test]
fn a_transaction_that_has_written_does_not_wait() {
    let (database, mut gate) = gated(Cluster::shared(), "SELECT cache_create('c')");
    thread::scope(|scope| {
        let holder = scope.spawn(|| patient(&database).text(&fetch("pass('a')")));
        wait_for_loader(&mut gate);
        let mut writer = patient(&database);
        writer.run("BEGIN; SELECT cache_set('other', '1', cache => 'c')");
        assert_eq!(writer.text(&fetch("'b'")), "b");
        writer.run("COMMIT");
        open(&mut gate);
        holder.join().expect("the holder is not disturbed");
    });
    assert_eq!(gate.text("SELECT cache_get('k', 'c')"), "a");
}

#[test]
fn two_transactions_that_fetch_the_same_keys_crosswise_do_not_hang() {
    let database = Cluster::shared().database();
    database.connect().run("SELECT cache_create('c')");
    let (mut one, mut other) = (patient(&database), patient(&database));
    let fetch = |session: &mut Client, key: &str, value: &str| {
        session.text(&format!(
            "SELECT cache_fetch('{key}', 'SELECT ''{value}''', cache => 'c')"
        ))
    };
    one.run("BEGIN");
    other.run("BEGIN");
    assert_eq!(fetch(&mut one, "x", "one"), "one");
    assert_eq!(fetch(&mut other, "y", "other"), "other");
    assert_eq!(fetch(&mut one, "y", "one"), "one");
    assert_eq!(fetch(&mut other, "x", "other"), "other");
    one.run("COMMIT");
    other.run("COMMIT");
    let stored = database
        .connect()
        .lines("SELECT key, value FROM c ORDER BY key");
    assert_eq!(stored, ["x|one", "y|other"]);
}

/// Each loader has the lease of its own key, and neither has written a row that the other could wait for.
#[test]
fn two_loaders_that_fetch_the_same_keys_crosswise_do_not_wait() {
    let (database, mut gate) = gated(tiered(), "SELECT cache_create('c')");
    thread::scope(|scope| {
        let both = [("x", "y"), ("y", "x")].map(|(own, other)| {
            let mut session = patient(&database);
            scope.spawn(move || {
                session.run("SET statement_timeout = '10s'");
                session.text(&format!(
                    "SELECT cache_fetch('{own}', 'SELECT pass(''a'') || \
                     cache_fetch(''{other}'', ''SELECT ''''b'''''', cache => ''c'')', cache => 'c')"
                ))
            })
        });
        wait_for(&mut gate, 2, "wait_event = 'advisory'");
        open(&mut gate);
        for loader in both {
            let value = loader.join().expect("it is not cancelled");
            // The session either found the value that the other session stored, or ran the loader itself.
            assert!(["ab", "aab"].contains(&&value[..]), "{value}");
        }
    });
}

/// The holder waits for a lock of the session that waits for the holder. Postgres' deadlock detector does not see this
/// cycle.
#[test]
fn a_circle_of_a_lease_and_a_lock_is_broken() {
    let (database, mut gate) = gated(tiered(), "SELECT cache_create('c')");
    open(&mut gate);
    let mut waiting = patient(&database);
    waiting.run("SELECT pg_advisory_lock(42)");
    thread::scope(|scope| {
        let holder = scope.spawn(|| patient(&database).text(&fetch("pass('a')")));
        wait_for_loader(&mut gate);
        assert_eq!(waiting.text(&fetch("'b'")), "b");
        waiting.run("SELECT pg_advisory_unlock(42)");
        assert_eq!(holder.join().expect("the holder gets the lock"), "a");
    });
}

/// A value that was loaded before a change is returned to its caller but not stored.
#[test]
fn a_value_invalidated_during_its_load_is_not_stored() {
    for create in [
        "SELECT cache_create('c')",
        "SELECT cache_create('c', storage => 'memory')",
    ] {
        for change in [
            "SELECT cache_delete('k', 'c')",
            "SELECT cache_clear('c')",
            "SELECT cache_delete_prefix('k', 'c')",
        ] {
            let (database, mut gate) = gated(tiered(), create);
            thread::scope(|scope| {
                let holder = scope.spawn(|| patient(&database).text(&fetch("pass('old')")));
                wait_for_loader(&mut gate);
                database.connect().run(change);
                open(&mut gate);
                assert_eq!(holder.join().expect("it gets its value"), "old");
            });
            let kept = gate.value("SELECT cache_get('k', 'c')");
            assert_eq!(kept, None, "{create}: {change}");
        }
    }
}

/// The set commits while the fetch waits to store, so the value of the set is newer than the loaded value.
#[test]
fn a_set_that_commits_while_the_loader_runs_stays() {
    let (database, mut gate) = gated(tiered(), "SELECT cache_create('c')");
    let mut writer = patient(&database);
    thread::scope(|scope| {
        let holder = scope.spawn(|| patient(&database).text(&fetch("pass('old')")));
        wait_for_loader(&mut gate);
        writer.run("BEGIN; SELECT cache_set('k', 'new', cache => 'c')");
        open(&mut gate);
        wait_for(&mut gate, 1, "wait_event = 'transactionid'");
        writer.run("COMMIT");
        assert_eq!(holder.join().expect("it gets its value"), "old");
    });
    assert_eq!(gate.text("SELECT cache_get('k', 'c')"), "new");
}

#[test]
fn within_grace_sessions_take_the_stale_value_while_one_refreshes() {
    for create in [
        "SELECT cache_create('c', grace => '1 hour')",
        "SELECT cache_create('c', storage => 'memory', grace => '1 hour')",
    ] {
        let (database, mut gate) = gated(tiered(), create);
        gate.run("SELECT cache_set('k', 'stale', '1 ms', 'c'), pg_sleep(0.01)");
        thread::scope(|scope| {
            let refreshing = scope.spawn(|| patient(&database).text(&fetch("pass('fresh')")));
            wait_for_loader(&mut gate);
            let mut other = patient(&database);
            assert_eq!(other.text(&fetch("'never'")), "stale", "{create}");
            assert_eq!(other.value("SELECT cache_get('k', 'c')"), None);
            other.run("BEGIN READ ONLY");
            other.run("SELECT cache_fetch('k', 'SELECT 1', cache => 'c'); COMMIT");
            open(&mut gate);
            assert_eq!(refreshing.join().expect("it refreshes"), "fresh");
            assert_eq!(
                other.text("SELECT cache_get('k', 'c')"),
                "fresh",
                "{create}"
            );
        });
    }
}

/// The old snapshot cannot see the new row. The call must still return a value, and no error.
#[test]
fn under_repeatable_read_a_fetch_neither_waits_nor_fails() {
    let (database, mut gate) = gated(Cluster::shared(), "SELECT cache_create('c')");
    open(&mut gate);
    // A new slot counts as one in which a removal has just happened, so create the slot before.
    gate.run("SELECT cache_get('k', 'c')");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        gate.run("SELECT cache_clear('c')");
        let mut session = patient(&database);
        session.run(&format!(
            "BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class"
        ));
        gate.run("SELECT cache_set('k', 'new', cache => 'c')");
        assert_eq!(session.text(&fetch("'own'")), "own", "{level}");
        assert_eq!(session.text(&fetch("'own'")), "own", "{level}");
        session.run("SELECT cache_fetch('l', 'SELECT 1', cache => 'c'); COMMIT");
        let stored = session.lines("SELECT key, value FROM c ORDER BY key");
        assert_eq!(stored, ["k|new", "l|1"], "{level}");
    }
}

#[test]
fn on_a_standby_the_value_comes_and_only_memory_caches_keep_it() {
    let primary = Cluster::with_tier(&[]);
    let mut session = primary.connect("postgres");
    session.run("CREATE EXTENSION pgcache");
    session.run(
        "SELECT cache_create('t'), cache_create('l', storage => 'logged'), \
         cache_create('m', storage => 'memory')",
    );
    let standby = primary.standby();
    let mut replica = standby.connect("postgres");
    for (cache, then) in [("t", "b"), ("l", "b"), ("m", "a")] {
        for (value, expected) in [("a", "a"), ("b", then)] {
            let fetch =
                format!("SELECT cache_fetch('k', 'SELECT ''{value}''', cache => '{cache}')");
            assert_eq!(replica.text(&fetch), expected, "{cache}");
        }
    }
}

/// Sets the factor of early refresh so high that every hit is due. One session then loads a live value again.
#[test]
fn early_refresh_loads_a_live_value_anew_only_where_it_is_on() {
    for storage in ["unlogged", "memory"] {
        let database = tiered().database();
        let mut session = patient(&database);
        session.run(&format!(
            "SELECT cache_create('c', '1 hour', '{storage}'); CREATE UNLOGGED SEQUENCE runs"
        ));
        let ask = fetch("nextval('runs')");
        assert_eq!(session.number(&ask), 1);
        assert_eq!(session.number(&ask), 1, "{storage}: it is off by default");
        session.run("SELECT cache_tune('c', early_refresh => 1e15)");
        assert_eq!(session.number(&ask), 2, "{storage}");
        assert_eq!(session.number("SELECT cache_get('k', 'c')"), 2, "{storage}");
    }
}
