//! Tests many sessions on the same keys: no write is lost, no work is done twice, no deadlock and no unexpected error
//! occurs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::exclusion::{Hold, overlap};
use pgcache_tests::refusal::{refused, sqlstate};
use pgcache_tests::rng::Rng;
use postgres::Client;

const SESSIONS: usize = 8;
/// The number of times that sessions must take the lock, in total. With fewer, an unsafe lock could pass the test by
/// luck.
const ENOUGH: usize = 40;

/// Runs `work` in `SESSIONS` sessions at once. Returns the results in the order of the sessions.
fn together<R: Send>(database: &Database, work: impl Fn(usize, &mut Client) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let work = &work;
                scope.spawn(move || work(number, &mut database.connect()))
            })
            .collect();
        sessions
            .into_iter()
            .map(|session| session.join().expect("a session of the storm failed"))
            .collect()
    })
}

fn count_to_eighty_thousand(value_type: &str) {
    let database = Cluster::shared().database();
    database.connect().run(&format!(
        "SELECT cache_create('counters', value_type => '{value_type}')"
    ));
    together(&database, |_, session| {
        let add_one = session
            .prepare("SELECT cache_incr('n', cache => 'counters')")
            .expect("it parses");
        for _ in 0..10_000 {
            session
                .query_one(&add_one, &[])
                .expect("a counter never fails");
        }
    });
    let total = database.connect().text("SELECT cache_get('n', 'counters')");
    assert_eq!(total, "80000");
}

#[test]
fn no_increment_of_a_text_counter_is_lost() {
    count_to_eighty_thousand("text");
}

#[test]
fn no_increment_of_a_jsonb_counter_is_lost() {
    count_to_eighty_thousand("jsonb");
}

#[test]
fn upserts_of_one_key_in_every_way_leave_one_row() {
    let database = Cluster::shared().database();
    database.connect().run("SELECT cache_create('one')");
    let until = Instant::now() + Duration::from_secs(2);
    together(&database, |number, session| {
        let ways = [
            format!("SELECT cache_set('k', '{number}', cache => 'one')"),
            format!("SELECT cache_add('k', '{number}', cache => 'one')"),
            format!("SELECT cache_cas('k', NULL, '{number}', cache => 'one')"),
            "SELECT cache_incr('k', cache => 'one')".into(),
            "SELECT cache_set_many('{k,l}', '{1,2}', cache => 'one')".into(),
            "SELECT cache_delete('k', 'one')".into(),
            "INSERT INTO one VALUES ('k', '7') ON CONFLICT (key) DO UPDATE SET value = '8'".into(),
        ];
        let mut rng = Rng::seeded(number as u64);
        while Instant::now() < until {
            session.run(rng.pick(&ways).as_str());
        }
    });
    let mut session = database.connect();
    session.run(
        "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off",
    );
    let twice = session.lines("SELECT key FROM one GROUP BY key HAVING count(*) > 1");
    assert!(twice.is_empty(), "{twice:?}");
    session.run("REINDEX TABLE one");
}

/// Returns one random call over keys that all sessions share.
fn random_call(rng: &mut Rng) -> String {
    let cache = ["storm", "storm_json"][rng.below(2) as usize];
    let key = rng.below(12);
    let ttl = ["", ", ttl => '2 ms'", ", ttl => '1 hour'"][rng.below(3) as usize];
    let keys: Vec<String> = (0..8).map(|_| format!("k{}", rng.below(12))).collect();
    let keys = keys.join(",");
    let cache = format!("cache => '{cache}'");
    match rng.below(24) {
        0..=3 => {
            format!("SELECT cache_set_many('{{{keys}}}', '{{1,2,3,4,5,6,7,8}}'{ttl}, {cache})")
        }
        4..=6 => format!("SELECT cache_delete_many('{{{keys}}}', {cache})"),
        7 => format!("SELECT cache_delete_prefix('k', {cache})"),
        8 => format!("SELECT cache_delete_prefix('k1', {cache})"),
        9..=10 => format!("SELECT cache_incr('k{key}'{ttl}, {cache})"),
        11 => format!("SELECT cache_add('k{key}', '1'{ttl}, {cache})"),
        12 => format!("SELECT cache_cas('k{key}', '1', '2'{ttl}, {cache})"),
        13 => format!("SELECT cache_cas('k{key}', NULL, '2'{ttl}, {cache})"),
        14 => format!("SELECT cache_touch('k{key}'{ttl}, {cache})"),
        15 => format!("SELECT cache_expire({cache})"),
        16 => "SELECT cache_expire()".into(),
        17 => format!("SELECT cache_clear({cache})"),
        18 => format!("SELECT cache_take('k{key}', {cache})"),
        19 => format!("SELECT cache_get_touch('k{key}'{ttl}, {cache})"),
        20 => format!("SELECT * FROM cache_scan('k', {cache})"),
        21 => format!("SELECT * FROM cache_get_many('{{{keys}}}', {cache})"),
        22 => format!("SELECT cache_replace('k{key}', 'null'{ttl}, {cache})"),
        _ => format!("SELECT cache_alter(ttl => '1 hour', {cache})"),
    }
}

/// Returns the errors of random calls in many sessions, by SQLSTATE, each with a call that raised it.
fn storm(
    database: &Database,
    seconds: u64,
    call: fn(&mut Rng) -> String,
) -> BTreeMap<String, String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let errors = together(database, |number, session| {
        let mut rng = Rng::seeded(number as u64 + 100);
        let mut errors = BTreeMap::new();
        while Instant::now() < until {
            let call = call(&mut rng);
            if let Err(error) = session.simple_query(&call) {
                errors.insert(sqlstate(&error).to_owned(), format!("{call}: {error:?}"));
            }
        }
        errors
    });
    errors.into_iter().flatten().collect()
}

#[test]
fn storms_of_single_calls_never_deadlock() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('storm')");
    session.run("SELECT cache_create('storm_json', value_type => 'jsonb', storage => 'logged')");
    let mut errors = storm(&database, 6, random_call);
    // cache_incr refuses the text `null`, which cache_replace stores, because it is not an integer.
    errors.remove("22P02");
    assert!(errors.is_empty(), "{errors:#?}");
}

fn random_heavy_call(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => "SELECT cache_clear('heavy')".into(),
        1 => format!(
            "SELECT cache_alter('heavy', max_entries => {})",
            rng.below(9)
        ),
        _ => "SELECT cache_set('k', 'v', cache => 'heavy')".into(),
    }
}

/// cache_clear and cache_alter need a stronger lock than a write. If they first took the weaker lock of a write, two
/// sessions could deadlock.
#[test]
fn calls_with_strong_locks_never_deadlock() {
    let database = Cluster::shared().database();
    database.connect().run("SELECT cache_create('heavy')");
    let errors = storm(&database, 4, random_heavy_call);
    assert!(errors.is_empty(), "{errors:#?}");
}

fn random_definition(rng: &mut Rng) -> String {
    let name = ["born_a", "born_b"][rng.below(2) as usize];
    match rng.below(6) {
        0..=1 => format!("SELECT cache_create('{name}', if_not_exists => true)"),
        2 => format!("SELECT cache_drop('{name}')"),
        3 => format!("SELECT cache_set('k', 'v', cache => '{name}')"),
        4 => format!("SELECT cache_alter('{name}', ttl => '1 hour')"),
        _ => format!("SELECT cache_get('k', '{name}')"),
    }
}

#[test]
fn caches_can_be_made_and_dropped_by_many_at_once() {
    let database = Cluster::shared().database();
    let mut errors = storm(&database, 3, random_definition);
    errors.remove("42P01"); // dropped by another session a moment ago
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Shows that the test above would detect a deadlock: two transactions that lock keys in opposite orders do deadlock.
#[test]
fn two_transactions_with_opposite_orders_of_keys_do_deadlock() {
    let database = Cluster::shared().database();
    let set = |session: &mut Client, key| {
        session.simple_query(&format!("SELECT cache_set('{key}', '1')"))
    };
    let (mut first, mut second) = (database.connect(), database.connect());
    for (session, key) in [(&mut first, 'a'), (&mut second, 'b')] {
        session.run("BEGIN");
        set(session, key).expect("the first key is free");
    }
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| set(&mut first, 'b').map(drop));
        let other = set(&mut second, 'a').map(drop);
        (one.join().expect("no panic"), other)
    });
    assert_eq!(one.is_err() as usize + other.is_err() as usize, 1);
    refused(one.and(other), "40P01");
}

/// Tries to take the lock by one method, safe or unsafe. Returns whether the session believes that it holds the lock.
type Acquire = fn(&mut Client, usize) -> bool;

fn by_add(session: &mut Client, holder: usize) -> bool {
    session.holds(&format!(
        "SELECT cache_add('lock', '{holder}', ttl => '1 minute')"
    ))
}

fn by_get_and_set(session: &mut Client, holder: usize) -> bool {
    let free = session.value("SELECT cache_get('lock')").is_none();
    if free {
        session.run(&format!(
            "SELECT cache_set('lock', '{holder}', ttl => '1 minute')"
        ));
    }
    free
}

/// Each session takes the lock, adds one to a row in two steps, and releases the lock.
fn lock_in_turn(database: &Database, acquire: Acquire) -> Vec<Hold> {
    database
        .connect()
        .run("CREATE TABLE total (n int); INSERT INTO total VALUES (0)");
    let clock = Instant::now();
    let (least, most) = (Duration::from_secs(2), Duration::from_secs(120));
    let now = || clock.elapsed().as_nanos() as u64;
    let turns = AtomicUsize::new(0);
    // On a slow machine the test continues until sessions have taken the lock often enough.
    let goes_on = || {
        let passed = clock.elapsed();
        passed < least || passed < most && turns.load(Ordering::SeqCst) < ENOUGH
    };
    let holds = together(database, |holder, session| {
        let mut holds = Vec::new();
        while goes_on() {
            if !acquire(session, holder) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let from = now();
            let n = session.number("SELECT n FROM total");
            session.run(&format!("UPDATE total SET n = {n} + 1"));
            let to = now();
            holds.push(Hold { holder, from, to });
            turns.fetch_add(1, Ordering::SeqCst);
            session.run(&format!("SELECT cache_delete_if('lock', '{holder}')"));
        }
        holds
    });
    holds.into_iter().flatten().collect()
}

#[test]
fn cache_add_is_a_lock_that_one_session_holds_at_a_time() {
    let database = Cluster::shared().database();
    let holds = lock_in_turn(&database, by_add);
    assert_eq!(overlap(&holds), None);
    assert!(holds.len() >= ENOUGH, "only {} turns", holds.len());
    let total = database.connect().number("SELECT n FROM total");
    assert_eq!(total, holds.len() as i64);
}

/// The negative control: a lock made of get and set does not exclude other holders, and the histories show that.
#[test]
fn a_lock_of_get_and_set_is_caught_by_the_same_histories() {
    let database = Cluster::shared().database();
    let holds = lock_in_turn(&database, by_get_and_set);
    assert!(overlap(&holds).is_some(), "{} turns", holds.len());
}
