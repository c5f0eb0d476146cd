//! Tests `pgcache.enabled`. While it is off, the Redis protocol disconnects its clients, the tier is neither read nor
//! filled, workers sleep and memory caches raise an error. Turning it on again needs no restart. Copies stay coherent
//! even while sessions see different values of the setting.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::{refused, sqlstate};
use pgcache_tests::resp::{Client as Resp, Door, Reply};
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::{PRELOAD, Tiered};
use pgcache_tests::wait::{wait_for, wait_until};
use postgres::Client;

const OFF: &str = "ERR the Redis protocol is disabled: pgcache.enabled is off";

/// Changes the setting without waiting until sessions see the change.
fn set(session: &mut Client, on: bool) {
    session.run(&format!("ALTER SYSTEM SET pgcache.enabled = {on}"));
    session.run("SELECT pg_reload_conf()");
}

/// Waits until this session sees the setting.
fn sees(session: &mut Client, on: bool) {
    let wanted = if on { "on" } else { "off" };
    wait_until("the session sees the reload", || {
        session.text("SHOW pgcache.enabled") == wanted
    });
}

fn set_and_see(session: &mut Client, on: bool) {
    set(session, on);
    sees(session, on);
}

/// Creates a source with caches that depend on it (a table cache `d` and a memory cache `m`), and a table cache `c`
/// without a dependency.
fn make(session: &mut Client) {
    session.run(
        "CREATE TABLE src (id int PRIMARY KEY, v bigint);
         INSERT INTO src SELECT g, 0 FROM generate_series(0, 5) AS g;
         SELECT cache_create('c'), cache_create('d'), cache_create('m', storage => 'memory');
         SELECT cache_depend('src', $$'k' || id$$, 'd'), cache_depend('src', $$'k' || id$$, 'm');
         SELECT cache_set('k' || g, '0', cache => 'c') FROM generate_series(0, 5) AS g",
    );
}

fn scene() -> (Database<'static>, Client) {
    let database = Cluster::with_tier(&[]).database();
    let mut session = database.connect();
    make(&mut session);
    (database, session)
}

fn fetch(cache: &str) -> String {
    format!(
        "SELECT cache_fetch('k0', $$SELECT v FROM src WHERE id = substr($1, 2)::int$$, cache => '{cache}')"
    )
}

#[test]
fn off_bypasses_the_tier_and_refuses_memory_caches() {
    let (_database, mut session) = scene();
    session.run("SELECT cache_set('own', 'kept', cache => 'm')");
    session.run(&fetch("m"));
    session.heat("k0", "c");
    set_and_see(&mut session, false);
    let figures = "SELECT hot_hits, hot_entries FROM pgcache.stats WHERE cache = 'c'::regclass";
    let before = session.lines(figures);
    for _ in 0..3 {
        assert_eq!(session.text("SELECT cache_get('k0', 'c')"), "0");
        assert_eq!(session.text("SELECT cache_get('k1', 'c')"), "0");
        let many = "SELECT count(value) FROM cache_get_many('{k0,k2}', 'c')";
        assert_eq!(session.number(many), 2);
        assert_eq!(session.text(&fetch("d")), "0");
    }
    assert_eq!(session.lines(figures), before);
    session.verified("c");
    for call in [
        "SELECT cache_get('own', 'm')",
        "SELECT cache_set('own', 'v', cache => 'm')",
        "SELECT cache_delete('own', 'm')",
        "SELECT cache_incr('n', cache => 'm')",
        "SELECT cache_get_many('{own}', 'm')",
        "SELECT * FROM cache_scan(cache => 'm')",
        "SELECT cache_count('m')",
        "SELECT cache_clear('m')",
        "SELECT * FROM cache_lease('own', cache => 'm')",
        "SELECT cache_rate_limit('own', 1, '1 minute', 'm')",
        "SELECT * FROM m",
        &fetch("m"),
    ] {
        let error = refused(session.try_lines(call), "55000");
        assert_eq!(error.message(), "memory caches are disabled", "{call}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("pgcache.enabled"))
        );
    }
    // Definitions, manual sweeps and plain SQL still work.
    session.run("SELECT cache_create('more', storage => 'memory'), cache_alter('m', '1 hour'), cache_expire()");
    session.run("SELECT cache_drop('more')");
    session.run("INSERT INTO c VALUES ('dead', 'v', now() - interval '1 second')");
    assert_eq!(session.number("SELECT count(*) FROM c"), 6);
    session.run("SELECT cache_set('k0', '1', cache => 'c'); UPDATE src SET v = 2 WHERE id = 0");
    assert_eq!(session.text("SELECT cache_get('k0', 'c')"), "1");
    assert_eq!(session.text(&fetch("d")), "2");
    set_and_see(&mut session, true);
    assert_eq!(session.text("SELECT cache_get('k0', 'c')"), "1");
    assert_eq!(session.text("SELECT cache_get('own', 'm')"), "kept");
    assert_eq!(session.value("SELECT cache_get('k0', 'm')"), None);
    assert_eq!(session.text(&fetch("m")), "2");
    let hits = session.hot_hits("c");
    session.heat("k0", "c");
    assert!(session.hot_hits("c") > hits);
    session.verified("c");
    session.verified("d");
}

/// A session that runs a long statement, and so sees no reload of the settings. The statement first waits for a lock
/// that `holder` has.
struct Believer {
    call: thread::JoinHandle<()>,
}

impl Believer {
    /// Starts a session whose statements run only when it is released, but with the setting of the start.
    fn begin(database: &Database, holder: &mut Client, statements: &str) -> Believer {
        holder.run("SELECT pg_advisory_lock(7)");
        let mut session = database.connect();
        let block = format!(
            "DO $do$ BEGIN PERFORM pg_advisory_lock(7); PERFORM pg_advisory_unlock(7); {statements} END $do$"
        );
        let call = thread::spawn(move || session.run(&block));
        wait_until("the block waits", || {
            holder.holds(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
            )
        });
        Believer { call }
    }

    fn end(self, holder: &mut Client) {
        holder.run("SELECT pg_advisory_unlock(7)");
        self.call.join().expect("its statements are done");
    }
}

const CHANGE: &str =
    "PERFORM cache_set('k0', '5', cache => 'c'); UPDATE src SET v = 5 WHERE id = 0; COMMIT;";
/// Reads twice, so that the second read may use a copy that the first read made.
const READ: &str = "FOR i IN 1..2 LOOP
     ASSERT cache_get('k0', 'c') = '5', 'c';
     ASSERT cache_fetch('k0', 'SELECT v FROM src WHERE id = substr($1, 2)::int', cache => 'd') = '5', 'd';
     COMMIT;
 END LOOP;";

fn warm(session: &mut Client) {
    session.heat("k0", "c");
    session.run(&fetch("d"));
    session.heat("k0", "d");
    session.run(&fetch("m"));
}

#[track_caller]
fn is_changed(session: &mut Client) {
    for _ in 0..2 {
        assert_eq!(session.text("SELECT cache_get('k0', 'c')"), "5");
        assert_eq!(session.text(&fetch("d")), "5");
        assert_eq!(session.text(&fetch("m")), "5");
    }
    session.verified("c");
    session.verified("d");
}

#[test]
fn a_session_with_on_reads_the_changes_of_a_session_with_off() {
    let (database, mut session) = scene();
    let mut holder = database.connect();
    warm(&mut session);
    let believer = Believer::begin(&database, &mut holder, READ);
    set_and_see(&mut session, false);
    session.run("SELECT cache_set('k0', '5', cache => 'c'); UPDATE src SET v = 5 WHERE id = 0");
    believer.end(&mut holder);
    set_and_see(&mut session, true);
    is_changed(&mut session);
}

#[test]
fn sessions_with_on_see_the_changes_of_a_session_that_read_off_before() {
    let (database, mut session) = scene();
    let mut holder = database.connect();
    set_and_see(&mut session, false);
    sees(&mut holder, false);
    let believer = Believer::begin(&database, &mut holder, CHANGE);
    set_and_see(&mut session, true);
    warm(&mut session);
    believer.end(&mut holder);
    is_changed(&mut session);
}

#[test]
fn changes_made_while_all_sessions_had_off_are_seen() {
    let (_database, mut session) = scene();
    warm(&mut session);
    set_and_see(&mut session, false);
    session
        .run("BEGIN; SELECT cache_set('k0', '4', cache => 'c'); UPDATE src SET v = 4 WHERE id = 0");
    session.run("PREPARE TRANSACTION 'off'");
    session.run("COMMIT PREPARED 'off'");
    session.run("UPDATE c SET value = '5' WHERE key = 'k0'; UPDATE src SET v = 5 WHERE id = 0");
    set_and_see(&mut session, true);
    is_changed(&mut session);
}

#[test]
fn the_worker_rests_and_continues() {
    let database = Cluster::start(&[PRELOAD, "pgcache.expire_interval = '100ms'"]).database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c'); SET pgcache.show_expired = on");
    let left = "SELECT count(*) FROM c";
    let add = "INSERT INTO c SELECT g::text, 'v', now() FROM generate_series(1, 10) AS g";
    session.run(add);
    wait_until("the worker sweeps", || session.number(left) == 0);
    set_and_see(&mut session, false);
    wait_until("no worker visits", || {
        !session.holds(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pgcache worker')",
        )
    });
    session.run(add);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(session.number(left), 10);
    set(&mut session, true);
    wait_until("the worker sweeps again", || session.number(left) == 0);
}

fn door() -> (Door, Client) {
    let door = Door::start(&[
        "pgcache.resp_caches = 'public.m, public.c'",
        "pgcache.expire_interval = 0",
    ]);
    let mut session = door.cluster.connect("postgres");
    make(&mut session);
    (door, session)
}

#[track_caller]
fn ends(client: &mut Resp) {
    assert_eq!(client.reply().map(Reply::error).as_deref(), Some(OFF));
    assert_eq!(client.reply(), None);
}

#[test]
fn the_protocol_ends_its_clients_and_refuses_new_ones() {
    let (door, mut session) = door();
    let [mut idle, mut queues, mut listens, mut paused] = [(); 4].map(|()| door.client());
    let mut waits = door.client();
    assert_eq!(idle.ask(&["SET", "a", "1"]), Reply::status("OK"));
    queues.ask(&["MULTI"]);
    queues.ask(&["SET", "a", "2"]);
    listens.ask(&["SUBSCRIBE", "channel"]);
    // If a command on a table waits for a row, its client is disconnected only after the command has finished and its
    // reply was sent.
    waits.ask(&["SELECT", "1"]);
    session.run("BEGIN; UPDATE c SET value = '7' WHERE key = 'k0'");
    let mut admin = door.cluster.connect("postgres");
    waits.send(&Resp::request(&[b"INCR", b"k0"]));
    wait_until("the command waits", || {
        admin.holds("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    });
    idle.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    paused.send(&Resp::request(&[b"SET", b"a", b"3"]));
    thread::sleep(Duration::from_millis(100));
    set(&mut admin, false);
    for client in [&mut idle, &mut queues, &mut listens, &mut paused] {
        ends(client);
    }
    let mut late = door.client();
    late.send(&Resp::request(&[b"PING"]));
    ends(&mut late);
    ends(&mut door.client());
    session.run("COMMIT");
    assert_eq!(waits.reply(), Some(Reply::Integer(8)));
    ends(&mut waits);
    wait_until("no client is left", || {
        session.number("SELECT count(*) FROM pgcache.resp_clients") == 0
    });
    set(&mut session, true);
    let mut again = wait_for("a client is served again", || {
        let mut client = door.try_client()?;
        let reply = client.ask_if_open(&["GET", "a"])?;
        (reply == Reply::bulk("1")).then_some(client)
    });
    again.ask(&["SELECT", "1"]);
    assert_eq!(again.ask(&["GET", "k0"]), Reply::bulk("8"));
}

/// A server that starts with the setting off serves no client. Once the setting is turned on, it serves all clients.
#[test]
fn a_server_that_starts_with_off_is_turned_on() {
    let door = Door::without_cache(&["pgcache.enabled = off"]);
    ends(&mut door.client());
    let mut session = door.cluster.connect("postgres");
    session.run("CREATE EXTENSION IF NOT EXISTS pgcache");
    refused(
        session.try_lines("SELECT cache_get('k', 'pgcache.resp')"),
        "55000",
    );
    set_and_see(&mut session, true);
    wait_for("a client is served", || {
        door.try_client()?
            .ask_if_open(&["PING"])
            .filter(|reply| *reply == Reply::status("PONG"))
    });
    session.run("SELECT cache_set('k', 'v', cache => 'pgcache.resp')");
}

const KEYS: usize = 6;

/// The record of a storm: the last acknowledged version of each key, and counts of the events that readers observed.
struct Storm {
    floors: [AtomicU64; KEYS],
    goes_on: AtomicBool,
    reads: AtomicU64,
    replies: AtomicU64,
    refusals: AtomicU64,
    cut_off: AtomicU64,
}

impl Storm {
    fn goes_on(&self) -> bool {
        self.goes_on.load(SeqCst)
    }

    /// Returns a kind of event that readers have not yet observed often enough for the test.
    fn lacks(&self) -> Option<&'static str> {
        let counts = [
            ("reads", &self.reads),
            ("replies", &self.replies),
            ("refusals", &self.refusals),
            ("clients cut off", &self.cut_off),
        ];
        let lacks = |(_, count): &(&str, &AtomicU64)| count.load(SeqCst) <= 10;
        counts.into_iter().find(lacks).map(|(what, _)| what)
    }

    fn floor(&self, key: usize) -> u64 {
        self.floors.get(key).map_or(0, |floor| floor.load(SeqCst))
    }

    /// Checks a value that was read after `floor`.
    #[track_caller]
    fn judge(&self, floor: u64, value: &str, what: &str) {
        let version: u64 = value.parse().expect("values are versions");
        assert!(
            version >= floor,
            "{what}: {version} was read after {floor} was acknowledged"
        );
        self.reads.fetch_add(1, SeqCst);
    }
}

/// Repeatedly writes a key that no other session writes. A DO block of several transactions sees no reload.
fn write(session: &mut Client, storm: &Storm, key: usize) {
    let mut rng = Rng::seeded(key as u64);
    let mut version = 0;
    while storm.goes_on() {
        let (first, last) = (version + 1, version + 1 + rng.below(8));
        let set = match rng.below(2) {
            0 => format!("PERFORM cache_set('k{key}', n::text, cache => 'c')"),
            _ => format!("UPDATE c SET value = n WHERE key = 'k{key}'"),
        };
        session.run(&format!(
            "DO $$ BEGIN FOR n IN {first} .. {last} LOOP \
                 {set}; UPDATE src SET v = n WHERE id = {key}; COMMIT; \
             END LOOP; END $$"
        ));
        version = last;
        if let Some(floor) = storm.floors.get(key) {
            floor.store(version, SeqCst);
        }
        thread::sleep(Duration::from_millis(rng.below(4)));
    }
}

/// Reads keys with all kinds of calls. A block of several reads sees no reload.
fn read(session: &mut Client, storm: &Storm, seed: u64) {
    let mut rng = Rng::seeded(seed);
    while storm.goes_on() {
        let key = rng.below(KEYS as u64) as usize;
        let load = "$l$SELECT v FROM src WHERE id = substr($1, 2)::int$l$";
        let floor = storm.floor(key);
        let question = match rng.below(12) {
            0..=3 => format!("SELECT cache_get('k{key}', 'c')"),
            4 => format!("SELECT value FROM cache_get_many('{{k{key}}}', 'c')"),
            5 | 6 => format!("SELECT cache_fetch('k{key}', {load}, cache => 'd')"),
            7 | 8 => format!("SELECT cache_fetch('k{key}', {load}, cache => 'm')"),
            9 | 10 => format!("SELECT cache_get('k{key}', 'm')"),
            _ => {
                session.run(&format!(
                    "DO $$ DECLARE last bigint := {floor}; found bigint; BEGIN \
                     FOR i IN 1 .. 30 LOOP \
                         found := cache_get('k{key}', 'c'); \
                         ASSERT found >= last, 'a get is older than the one before it'; \
                         last := found; \
                         ASSERT cache_fetch('k{key}', {load}, cache => 'd')::bigint >= last, 'a fetch is old'; \
                         COMMIT; PERFORM pg_sleep(0.002); \
                     END LOOP; END $$"
                ));
                continue;
            }
        };
        match session.try_value(&question) {
            Ok(Some(value)) => storm.judge(floor, &value, &question),
            Ok(None) => assert!(question.contains("'m'"), "{question} found nothing"),
            Err(error) => {
                assert_eq!(sqlstate(&error), "55000", "{question}: {error:?}");
                assert!(question.contains("'m'"), "{question}");
                storm.refusals.fetch_add(1, SeqCst);
            }
        }
    }
}

/// Reads through the Redis protocol, and reconnects when it is disconnected.
fn read_by_resp(door: &Door, storm: &Storm) {
    let mut rng = Rng::seeded(99);
    'connections: while storm.goes_on() {
        let Some(mut client) = door.try_client() else {
            continue;
        };
        if client.ask_if_open(&["SELECT", "1"]) != Some(Reply::status("OK")) {
            storm.cut_off.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        while storm.goes_on() {
            let key = rng.below(KEYS as u64) as usize;
            let floor = storm.floor(key);
            match client.ask_if_open(&["GET", &format!("k{key}")]) {
                Some(Reply::Bulk(value)) => {
                    storm.judge(floor, &String::from_utf8_lossy(&value), "GET");
                    storm.replies.fetch_add(1, SeqCst);
                }
                Some(Reply::Error(words)) if words == OFF => continue 'connections,
                None => continue 'connections,
                other => panic!("GET replied {other:?}"),
            }
        }
    }
}

/// Returns the length of a storm: `PGCACHE_STORM_SECONDS`, or a few seconds.
fn duration() -> Duration {
    let seconds = std::env::var("PGCACHE_STORM_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(6))
}

#[test]
fn reloads_at_random_times_leave_no_stale_copy() {
    let (door, mut admin) = door();
    // A library with the cargo feature `pauses` waits at random in the windows of the protocol.
    if admin.holds("SELECT current_setting('pgcache.pause', true) IS NOT NULL") {
        admin.run("ALTER SYSTEM SET pgcache.pause = '3ms'");
    }
    let storm = Storm {
        floors: Default::default(),
        goes_on: AtomicBool::new(true),
        reads: AtomicU64::new(0),
        replies: AtomicU64::new(0),
        refusals: AtomicU64::new(0),
        cut_off: AtomicU64::new(0),
    };
    let until = Instant::now() + duration();
    thread::scope(|scope| {
        let ends = Ends(&storm);
        for key in 0..KEYS {
            let (door, storm) = (&door, &storm);
            scope.spawn(move || {
                let _ends = Ends(storm);
                write(&mut door.cluster.connect("postgres"), storm, key);
            });
        }
        for seed in 0..4 {
            let (door, storm) = (&door, &storm);
            scope.spawn(move || {
                let _ends = Ends(storm);
                read(&mut door.cluster.connect("postgres"), storm, seed);
            });
        }
        scope.spawn(|| {
            let _ends = Ends(&storm);
            read_by_resp(&door, &storm);
        });
        let mut rng = Rng::seeded(11);
        let mut on = true;
        // A slow machine gets more time to reach enough events.
        let latest = until + Duration::from_secs(60);
        while storm.goes_on()
            && (Instant::now() < until || Instant::now() < latest && storm.lacks().is_some())
        {
            on = !on;
            set(&mut admin, on);
            thread::sleep(Duration::from_millis(1 + rng.below(60)));
        }
        drop(ends);
    });
    set_and_see(&mut admin, true);
    assert_eq!(storm.lacks(), None);
    for key in 0..KEYS {
        let last = storm.floor(key).to_string();
        for _ in 0..2 {
            assert_eq!(
                admin.text(&format!("SELECT cache_get('k{key}', 'c')")),
                last
            );
        }
    }
    admin.verified("c");
    admin.verified("d");
    admin.sums_up();
}

/// Ends the storm when it is dropped, also after a panic.
struct Ends<'s>(&'s Storm);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.goes_on.store(false, SeqCst);
    }
}
