//! Tests `max_bytes` and `reserve` of `cache_tune`: the part of the tier that a cache may take, and the part that is
//! reserved for it. The store's own tests (`crates/store/tests/shares.rs`) have more loads; these tests check that the
//! settings reach the store, within their limits.

use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::refusal::refused;
use pgcache_tests::resp::{CACHE, Client as RespClient, Door, Reply};
use pgcache_tests::tier::PRELOAD;
use pgcache_tests::wait::wait_until;
use pgcache_tests::windows::{DEFINITION_TO_SHARE, LetGo, paused, stay_in, until_inside};
use postgres::Client;

/// A small tier without a worker, so that only writes and `cache_expire` change its contents.
const SMALL: &[&str] = &["pgcache.hot_size = '16MB'", "pgcache.expire_interval = 0"];
const SESSIONS: i64 = 8_000;

fn server() -> &'static Cluster {
    Cluster::with_tier(SMALL)
}

/// Creates a memory cache `sessions` whose entries are not read afterwards.
fn make_sessions(session: &mut Client) {
    session.run("SELECT cache_create('sessions', '1 hour', 'memory')");
    session.run(&format!(
        "SELECT count(cache_set('s' || n, repeat('v', 250), cache => 'sessions')) FROM generate_series(1, {SESSIONS}) n"
    ));
}

fn kept(session: &mut Client) -> i64 {
    session.number("SELECT cache_count('sessions')")
}

fn share(session: &mut Client, cache: &str, column: &str) -> Option<String> {
    session.value(&format!(
        "SELECT {column} FROM pgcache.shares WHERE cache = '{cache}'::regclass"
    ))
}

fn held(session: &mut Client, cache: &str) -> Option<String> {
    share(session, cache, "reserve_held")
}

fn hot_bytes(session: &mut Client, cache: &str) -> i64 {
    session.number(&format!(
        "SELECT hot_bytes FROM pgcache.shares WHERE cache = '{cache}'::regclass"
    ))
}

/// Reserves the bytes that the cache `sessions` uses now. Does not read the view afterwards, because reading the view
/// writes the share into the slot.
fn reserve_all(session: &mut Client) -> i64 {
    let bytes = hot_bytes(session, "sessions");
    session.run(&format!(
        "SELECT cache_tune('sessions', reserve => {bytes})"
    ));
    bytes
}

/// Writes five times the size of the tier into another cache, and reads each entry once.
fn flood(session: &mut Client) {
    session.run(
        "SELECT count(cache_set('n' || n, repeat('w', 400), cache => 'neighbour')), count(cache_get('n' || n, 'neighbour')) \
         FROM generate_series(1, 160000) n",
    );
}

#[test]
fn a_neighbours_flood_leaves_reserved_sessions_alone() {
    let database = server().database();
    let mut session = database.connect();
    make_sessions(&mut session);
    session.run("SELECT cache_create('neighbour', storage => 'memory')");
    reserve_all(&mut session);
    flood(&mut session);
    let left = kept(&mut session);
    assert!(left >= SESSIONS * 9 / 10, "{left} sessions are left");
    session.run("SELECT cache_tune('sessions', reserve => 0)");
    assert_eq!(held(&mut session, "sessions"), None);
    flood(&mut session);
    let left = kept(&mut session);
    assert!(
        left < SESSIONS / 2,
        "{left} sessions are left without a reserve"
    );
}

#[test]
fn a_flood_over_the_redis_protocol_leaves_reserved_sessions_alone() {
    let door = Door::start(SMALL);
    let mut session = door.cluster.connect("postgres");
    make_sessions(&mut session);
    reserve_all(&mut session);
    let mut client = door.client();
    let value = "w".repeat(400);
    for batch in 0..320 {
        let mut requests = Vec::new();
        for number in 0..500 {
            let key = format!("n{}", batch * 500 + number);
            requests.extend(RespClient::request(&[
                b"SET",
                key.as_bytes(),
                value.as_bytes(),
            ]));
            requests.extend(RespClient::request(&[b"GET", key.as_bytes()]));
        }
        assert!(client.send(&requests));
        for _ in 0..500 {
            assert_eq!(client.reply(), Some(Reply::status("OK")));
            client.reply();
        }
    }
    assert!(
        hot_bytes(&mut session, CACHE) > 5_000_000,
        "the tier was full"
    );
    let left = kept(&mut session);
    assert!(left >= SESSIONS * 9 / 10, "{left} sessions are left");
}

#[test]
fn a_bounded_cache_keeps_to_its_bound_while_other_caches_grow() {
    const BOUND: i64 = 1_500_000;
    let database = server().database();
    let mut session = database.connect();
    session.run(&format!(
        "SELECT cache_create('bounded', storage => 'memory'), cache_create('rows'), cache_create('free', storage => 'memory'); \
         SELECT cache_tune('bounded', max_bytes => {BOUND}), cache_tune('rows', max_bytes => {BOUND}); \
         SELECT cache_set_many(array_agg('r' || n), array_agg(repeat('r', 300)), cache => 'rows') FROM generate_series(1, 12000) n"
    ));
    for round in 0..20 {
        session.run(&format!(
            "SELECT count(cache_set('b' || n, repeat('b', 300), cache => 'bounded')), \
                    count(cache_set('f' || n, repeat('f', 100), cache => 'free')) \
             FROM generate_series({round} * 1000, {round} * 1000 + 999) n"
        ));
        session.run(&format!(
            "SELECT count(cache_get('r' || n, 'rows')) FROM generate_series({round} * 600 + 1, {round} * 600 + 600) n"
        ));
        for cache in ["bounded", "rows"] {
            let bytes = hot_bytes(&mut session, cache);
            assert!(bytes <= BOUND + BOUND / 20, "{cache} holds {bytes} bytes");
        }
    }
    for cache in ["bounded", "rows"] {
        assert!(
            hot_bytes(&mut session, cache) > BOUND * 9 / 10,
            "{cache} uses its bound"
        );
    }
    assert_eq!(
        session.number("SELECT cache_count('rows')"),
        12_000,
        "rows stay until a sweep"
    );
    assert_eq!(
        session.number("SELECT cache_count('free')"),
        20_000,
        "others lose nothing"
    );
}

#[test]
fn a_bound_that_changes_counts_at_once_and_a_sweep_keeps_it() {
    let database = server().database();
    let mut session = database.connect();
    let mut other = database.connect();
    session.run(
        "SELECT cache_create('c', storage => 'memory'), cache_create('t'); \
         SELECT count(cache_set(n::text, repeat('v', 200), cache => 'c')) FROM generate_series(1, 8000) n; \
         SELECT cache_set_many(array_agg(n::text), array_agg(repeat('v', 200)), cache => 't') FROM generate_series(1, 8000) n",
    );
    let write = "SELECT count(cache_set('o' || n, repeat('v', 200), cache => 'c')) FROM generate_series(1, 4000) n";
    assert!(hot_bytes(&mut session, "c") > 1_500_000);
    session.run("SELECT cache_tune('c', max_bytes => 1000000)");
    other.run(write);
    assert!(
        hot_bytes(&mut session, "c") <= 1_050_000,
        "writes of another session keep to it"
    );
    session.run("SELECT cache_tune('c', max_bytes => 500000); SELECT cache_expire(cache => 'c')");
    assert!(
        hot_bytes(&mut session, "c") <= 525_000,
        "a sweep without a write does"
    );
    session.run("SELECT cache_tune('c', max_bytes => 0)");
    other.run(write);
    assert!(
        hot_bytes(&mut session, "c") > 1_000_000,
        "the bound is gone"
    );

    session.run("SELECT cache_tune('t', max_bytes => 1000000); SELECT cache_expire(cache => 't')");
    let bytes = "SELECT sum(pg_column_size(key) + pg_column_size(value) + 36)::bigint FROM t";
    let left = session.number(bytes);
    assert!(
        (900_000..=1_010_000).contains(&left),
        "{left} bytes of rows are left"
    );
    session.run("SELECT cache_expire(cache => 't')");
    assert_eq!(
        session.number(bytes),
        left,
        "a second sweep finds nothing to do"
    );
}

#[test]
fn a_sweep_removes_no_more_than_the_bytes_beyond_a_bound() {
    const BOUND: i64 = 1_000_000;
    let database = server().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('c', storage => 'memory'), cache_create('t')");
    session.run(
        "SELECT cache_set('long', string_agg(md5(n::text), ''), cache => 't') FROM generate_series(1, 100000) n",
    );
    session.run(
        "SELECT count(cache_set('s' || n, repeat('v', 250), cache => 'c')) FROM generate_series(1, 2800) n; \
         SELECT cache_set('long', repeat('v', 900000), cache => 'c'); \
         SELECT cache_set_many(array_agg('s' || n), array_agg(repeat('v', 100)), cache => 't') FROM generate_series(1, 6000) n",
    );
    let tune = |bytes: i64| {
        format!(
            "SELECT cache_tune('c', max_bytes => {bytes}), cache_tune('t', max_bytes => {bytes})"
        )
    };
    let sweep = "SELECT cache_expire(cache => 'c'), cache_expire(cache => 't')";
    session.run(&tune(BOUND));
    session.run(sweep);
    let left = hot_bytes(&mut session, "c");
    assert!(
        (BOUND * 9 / 10..=BOUND).contains(&left),
        "{left} bytes of entries are left"
    );
    assert_eq!(
        session.number("SELECT cache_count('t')"),
        6_000,
        "the oldest row is enough"
    );
    session.run(&tune(BOUND / 4));
    session.run(sweep);
    let left = hot_bytes(&mut session, "c");
    assert!(
        (BOUND / 20..=BOUND / 4).contains(&left),
        "{left} bytes of entries are left without the long one"
    );
    let left = session
        .number("SELECT sum(pg_column_size(key) + pg_column_size(value) + 36)::bigint FROM t");
    assert!(
        (BOUND / 5..=BOUND / 4).contains(&left),
        "{left} bytes of rows are left"
    );
}

#[test]
fn reserves_hold_half_of_the_tier_at_most_and_a_drop_gives_one_back() {
    let database = server().database();
    let mut session = database.connect();
    for cache in ["a", "b", "c"] {
        session.run(&format!(
            "SELECT cache_create('{cache}', storage => 'memory')"
        ));
    }
    session.run("SELECT cache_tune('a', reserve => 5000000), cache_tune('b', reserve => 3000000)");
    let error = refused(
        session.batch_execute("SELECT cache_tune('c', reserve => 1000000)"),
        "53400",
    );
    assert_eq!(
        error.message(),
        "reserves must not hold more than half of the hot tier"
    );
    session.run("SELECT cache_tune('c', reserve => 300000)");
    refused(
        session.batch_execute("SELECT cache_tune('c', reserve => 5000000, max_bytes => 4000000)"),
        "22023",
    );
    refused(
        session.batch_execute("SELECT cache_tune('c', reserve => -1)"),
        "22023",
    );
    refused(
        session.batch_execute("SELECT cache_tune('c', max_bytes => -1)"),
        "22023",
    );
    session.run("SELECT cache_drop('a')");
    session.run("SELECT cache_tune('c', reserve => 5000000)");
    assert_eq!(held(&mut session, "c"), Some("5000000".into()));
    // The two transactions cannot see each other's reserve. The transaction that commits second gets the rest of the
    // room.
    session
        .run("SELECT cache_tune('c', reserve => 0); SELECT cache_create('d', storage => 'memory')");
    let mut other = database.connect();
    session.run("BEGIN; SELECT cache_tune('c', reserve => 4000000)");
    other.run("BEGIN; SELECT cache_tune('d', reserve => 4000000)");
    session.run("COMMIT");
    other.run("COMMIT");
    assert_eq!(held(&mut session, "c"), Some("4000000".into()));
    let least: i64 = held(&mut session, "d").unwrap().parse().unwrap();
    assert!((1_000_000..2_000_000).contains(&least), "{least}");
    session.run("SELECT cache_tune('c', reserve => 1000000)");
    assert_eq!(
        held(&mut session, "d"),
        Some("4000000".into()),
        "what c gives back goes to d"
    );
}

#[test]
fn a_relation_that_is_no_cache_any_more_keeps_no_reserve() {
    let cluster = Cluster::with_tier(&[SMALL, &["max_prepared_transactions = 4"]].concat());
    let database = cluster.database();
    let mut session = database.connect();
    let mut other = database.connect();
    for end in [
        "DROP TRIGGER pgcache_record ON t",
        "ALTER TABLE t DROP COLUMN value",
        "SELECT cache_detach('t')",
        "DROP TABLE t",
        "BEGIN; DROP TRIGGER pgcache_record ON t; PREPARE TRANSACTION 'end'; COMMIT PREPARED 'end'",
        "BEGIN; DROP TABLE t; PREPARE TRANSACTION 'end'; COMMIT PREPARED 'end'",
        "DROP EXTENSION pgcache CASCADE; CREATE EXTENSION pgcache",
    ] {
        session.run("SELECT cache_create('t'); SELECT cache_set('k', 'v', cache => 't')");
        session.run("SELECT cache_get('k', 't'); SELECT cache_tune('t', reserve => 6000000)");
        assert_eq!(held(&mut session, "t"), Some("6000000".into()), "{end}");
        end.split("; ").for_each(|statement| session.run(statement));
        other.run("SELECT cache_create('u', storage => 'memory')");
        other.run("SELECT cache_tune('u', reserve => 6000000)");
        assert_eq!(held(&mut other, "u"), Some("6000000".into()), "{end}");
        session.run("DROP TABLE IF EXISTS t; SELECT cache_drop('u')");
    }
}

/// After COMMIT PREPARED, the first session that loads the definition writes the share into the slot. Here that session
/// writes late, after a newer share.
#[test]
fn a_former_share_does_not_replace_a_later_one() {
    let cluster = Cluster::with_tier(&[SMALL, &["max_prepared_transactions = 4"]].concat());
    if !paused(cluster) {
        return;
    }
    let database = cluster.database();
    let (mut session, mut late) = (database.connect(), database.connect());
    session.run("SELECT cache_create('t'); SELECT cache_set('k', 'v', cache => 't')");
    session.run("SELECT cache_get('k', 't')");
    session.run("BEGIN; SELECT cache_tune('t', reserve => 1000); PREPARE TRANSACTION 'tune'");
    session.run("COMMIT PREPARED 'tune'");
    let backend = stay_in(cluster, &mut late, DEFINITION_TO_SHARE);
    thread::scope(|scope| {
        let _go = LetGo(cluster);
        let late = scope.spawn(move || late.run("SELECT pgcache.share('t')"));
        until_inside(&mut session, backend, "it has loaded the definition");
        session.run("SELECT cache_tune('t', reserve => 2000)");
        assert_eq!(held(&mut session, "t"), Some("2000".into()));
        cluster.hold_windows(false);
        late.join().expect("it reads");
    });
    assert_eq!(held(&mut session, "t"), Some("2000".into()));
}

#[test]
fn the_next_cache_in_a_slot_has_no_share_of_the_last() {
    let database = server().database();
    let mut session = database.connect();
    for _ in 0..100 {
        session.run(
            "SELECT cache_create('short', storage => 'memory'); SELECT cache_tune('short', max_bytes => 6000000, reserve => 6000000); \
             SELECT cache_drop('short')",
        );
    }
    session.run("SELECT cache_create('new', storage => 'memory'); SELECT cache_set('k', 'v', cache => 'new')");
    assert_eq!(held(&mut session, "new"), None);
    session.run("SELECT cache_tune('new', reserve => 6000000)");
    assert_eq!(held(&mut session, "new"), Some("6000000".into()));
    session.run("BEGIN; SELECT cache_create('never', storage => 'memory'); SELECT cache_tune('never', reserve => 1000000); ROLLBACK");
    session.run("SELECT cache_tune('new', reserve => 8000000)");
    assert_eq!(held(&mut session, "new"), Some("8000000".into()));
}

#[test]
fn a_share_counts_from_the_commit_on() {
    let cluster = Cluster::with_tier(&[SMALL, &["max_prepared_transactions = 4"]].concat());
    let database = cluster.database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run("SELECT cache_create('m', storage => 'memory'), cache_create('t')");
    other.run("SELECT cache_set('k', 'v', cache => 't'), cache_get('k', 't')");
    for cache in ["m", "t"] {
        let one = |bytes: i64| format!("SELECT cache_tune('{cache}', reserve => {bytes})");
        let use_it = format!("SELECT cache_set('k', 'v', cache => '{cache}')");
        session.run(&one(1000));
        session.run(&format!("BEGIN; {}; {use_it}; {use_it}", one(2000)));
        assert_eq!(
            held(&mut other, cache),
            Some("1000".into()),
            "{cache}: before the commit"
        );
        session.run("ROLLBACK");
        session.run(&use_it);
        assert_eq!(
            held(&mut other, cache),
            Some("1000".into()),
            "{cache}: after a rollback"
        );
        session.run(&format!(
            "BEGIN; SAVEPOINT s; {}; ROLLBACK TO s; COMMIT",
            one(3000)
        ));
        assert_eq!(
            held(&mut other, cache),
            Some("1000".into()),
            "{cache}: after ROLLBACK TO"
        );
        session.run(&format!(
            "BEGIN; SAVEPOINT s; {}; RELEASE s; COMMIT",
            one(4000)
        ));
        assert_eq!(
            held(&mut other, cache),
            Some("4000".into()),
            "{cache}: after RELEASE"
        );
        session.run(&format!("BEGIN; {}; PREPARE TRANSACTION 'tune'", one(5000)));
        other.run("ROLLBACK PREPARED 'tune'");
        other.run(&use_it);
        assert_eq!(
            held(&mut other, cache),
            Some("4000".into()),
            "{cache}: after ROLLBACK PREPARED"
        );
        session.run(&format!("BEGIN; {}; PREPARE TRANSACTION 'tune'", one(6000)));
        assert_eq!(share(&mut other, "m", "max_bytes"), None);
        other.run("COMMIT PREPARED 'tune'");
        session.run(&use_it);
        assert_eq!(
            held(&mut other, cache),
            Some("6000".into()),
            "{cache}: after COMMIT PREPARED"
        );
        // Dropping a trigger by hand also changes the definition.
        session.run(&format!("DROP TRIGGER pgcache_reserve ON {cache}"));
        assert_eq!(held(&mut other, cache), None);
    }
}

#[test]
fn a_share_is_there_again_after_a_restart() {
    let cluster = Cluster::own(&[&[PRELOAD], SMALL].concat());
    let mut session = cluster.connect("postgres");
    session.run(
        "CREATE EXTENSION pgcache; SELECT cache_create('m', storage => 'memory'), cache_create('t', storage => 'logged'); \
         SELECT cache_tune('m', max_bytes => 900000, reserve => 800000), cache_tune('t', reserve => 700000)",
    );
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        cluster.restart(how);
        let mut session = cluster.connect("postgres");
        session.run("SELECT cache_set('k', 'v', cache => 'm'), cache_set('k', 'v', cache => 't')");
        session.run("SELECT cache_get('k', 't')");
        assert_eq!(held(&mut session, "m"), Some("800000".into()));
        assert_eq!(share(&mut session, "m", "max_bytes"), Some("900000".into()));
        wait_until("the table cache has its reserve", || {
            session.run("SELECT cache_get('k', 't')");
            held(&mut session, "t") == Some("700000".into())
        });
        session.run("SELECT count(cache_set(n::text, repeat('v', 250), cache => 'm')) FROM generate_series(1, 9000) n");
        assert!(hot_bytes(&mut session, "m") <= 945_000);
    }
}

#[test]
fn only_roles_with_the_right_reserve() {
    let cluster = server();
    let database = cluster.database();
    let mut admin = database.connect();
    let role = cluster.role();
    let mut owner = database.connect_as(&role);
    admin.run(&format!("CREATE SCHEMA mine AUTHORIZATION {role}"));
    owner.run("SELECT cache_create('mine.m', storage => 'memory'), cache_create('mine.t')");
    owner.run("SELECT cache_set('k', 'v', cache => 'mine.t')");
    owner.run("SELECT cache_get('k', 'mine.t')");
    for cache in ["mine.m", "mine.t"] {
        let reserve = |bytes: i64| format!("SELECT cache_tune('{cache}', reserve => {bytes})");
        let error = refused(owner.batch_execute(&reserve(1000)), "42501");
        assert_eq!(
            error.message(),
            "permission denied to reserve a part of the hot tier"
        );
        // Creating a trigger by hand is refused, too.
        let event = if cache == "mine.m" {
            "DELETE"
        } else {
            "TRUNCATE"
        };
        let by_hand = format!(
            "CREATE TRIGGER pgcache_reserve AFTER {event} ON {cache} FOR EACH STATEMENT EXECUTE FUNCTION pgcache.reserve('1000')"
        );
        refused(owner.batch_execute(&by_hand), "42501");
        owner.run(&format!(
            "SELECT cache_tune('{cache}', max_bytes => 5000000)"
        ));
        // A superuser reserves room for a cache of the role. The role may reduce the reserve and change all other
        // settings.
        admin.run(&reserve(3000));
        owner.run(&format!("SELECT cache_tune('{cache}', ttl_jitter => 0.5)"));
        assert_eq!(held(&mut admin, cache), Some("3000".into()));
        owner.run(&reserve(2000));
        assert_eq!(held(&mut admin, cache), Some("2000".into()));
        refused(owner.batch_execute(&reserve(2001)), "42501");
        admin.run(&format!(
            "GRANT SET ON PARAMETER pgcache.hot_size TO {role}"
        ));
        owner.run(&reserve(4000));
        assert_eq!(held(&mut admin, cache), Some("4000".into()));
        admin.run(&format!(
            "REVOKE SET ON PARAMETER pgcache.hot_size FROM {role}"
        ));
        refused(owner.batch_execute(&reserve(5000)), "42501");
        // The old reserve stays, and the cache works as before.
        owner.run(&format!(
            "SELECT cache_set('k', 'v', cache => '{cache}'), cache_get('k', '{cache}')"
        ));
        owner.run(&format!("SELECT cache_clear('{cache}')"));
        owner.run(&reserve(0));
        assert_eq!(held(&mut admin, cache), None);
    }
}
