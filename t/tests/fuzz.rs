//! Calls every function with random arguments. Checks that the server does not crash, that every SQLSTATE is
//! documented, and that the tier is consistent afterwards. `scripts/fuzz-sql.sh` makes many more calls.

use std::collections::BTreeMap;
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::fuzz::{self, Function};
use pgcache_tests::readme;
use pgcache_tests::reference;
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

/// SQLSTATEs that docs/reference.md omits, because they come neither from pgcache nor from the arguments of a call.
const BESIDE_THE_CALL: &[(&str, &str)] = &[
    ("22012", "a loader that divides by zero"),
    (
        "25P02",
        "a statement after an error in the same transaction",
    ),
];

/// Returns every SQLSTATE that a call may raise.
fn documented() -> Vec<String> {
    let page = readme::page("docs/reference.md");
    let mut known = reference::errors_under(&page, "Errors of pgcache");
    known.extend(reference::errors_under(
        &page,
        "Errors of Postgres that pass through",
    ));
    known.extend(BESIDE_THE_CALL.iter().map(|(state, _)| (*state).to_owned()));
    known
}

fn calls() -> u64 {
    let given = std::env::var("PGCACHE_FUZZ_CALLS").ok();
    given.map_or(1500, |n| n.parse().expect("PGCACHE_FUZZ_CALLS is a number"))
}

fn seed() -> u64 {
    let given = std::env::var("PGCACHE_FUZZ_SEED").ok();
    given.map_or(1, |n| n.parse().expect("PGCACHE_FUZZ_SEED is a number"))
}

const ENCODINGS: [&str; 4] = ["UTF8", "SQL_ASCII", "LATIN1", "EUC_JP"];

fn database_in<'c>(cluster: &'c Cluster, encoding: &str) -> Database<'c> {
    let database = cluster.empty_database(&format!(
        "TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
    ));
    let mut session = database.connect();
    session.run("CREATE EXTENSION pgcache");
    session.run(fuzz::ODD_RELATIONS);
    database
}

/// Makes random calls. Returns how often each SQLSTATE occurred.
fn call_at_random(
    session: &mut Client,
    functions: &[Function],
    seed: u64,
    calls: u64,
) -> BTreeMap<String, u64> {
    let (mut rng, mut answers) = (Rng::seeded(seed), BTreeMap::new());
    let memory = session.holds("SELECT size > 0 FROM pgcache.hot_tier");
    let (known, mut surprises) = (documented(), Vec::new());
    for number in 0..calls {
        if number % 50 == 0 {
            fuzz::make_caches(session, memory);
        }
        let statement = fuzz::statement(&mut rng, functions);
        let state = match session.try_lines(&statement) {
            Ok(_) => "00000".to_owned(),
            Err(error) => {
                let call = format!("seed {seed}, call {number}: {statement}\n{error:?}");
                assert!(error.code().is_some(), "the session broke: {call}");
                let state = sqlstate(&error).to_owned();
                if !known.contains(&state) {
                    surprises.push(call);
                }
                state
            }
        };
        *answers.entry(state).or_insert(0) += 1;
        put_back(session);
    }
    assert!(
        surprises.is_empty(),
        "undocumented errors:\n{}",
        surprises.join("\n\n")
    );
    answers
}

/// Resets the session. A timeout that fires just after its statement has ended cancels the next statement, so a
/// cancelled reset runs again.
fn put_back(session: &mut Client) {
    let back = "ROLLBACK; RESET statement_timeout; RESET ROLE";
    if let Err(error) = session.try_lines(back) {
        assert_eq!(sqlstate(&error), "57014", "{error:?}");
        session.run(back);
    }
}

/// Checks that no copy differs from its row, every byte is accounted for, no mark remains, and the log shows no crash.
fn is_sound(cluster: &Cluster, session: &mut Client) {
    let caches = session.lines(
        "SELECT a.cache FROM pgcache.all_caches a JOIN pg_class c ON c.oid = a.cache \
         WHERE relkind = 'r' AND relname NOT LIKE 'wrong%' AND relname <> 'part'",
    );
    for cache in caches {
        session.verified(&cache);
    }
    if session.holds("SELECT size > 0 FROM pgcache.hot_tier") {
        session.nothing_pending();
        session.sums_up();
    }
    let log = cluster.log_text();
    for word in ["terminated by signal", "PANIC", "FATAL", "TRAP"] {
        assert!(!log.contains(word), "{word} in the log:\n{log}");
    }
}

#[test]
fn random_calls_in_all_encodings_neither_crash_nor_raise_undocumented_errors() {
    let cluster = Cluster::start(&[
        "log_min_messages = fatal",
        "log_min_error_statement = panic",
    ]);
    cluster.connect("postgres").run("CREATE ROLE fuzz_user");
    let (calls, seed) = (calls(), seed());
    println!("seed {seed}, {calls} calls in each of {ENCODINGS:?}");
    let databases = ENCODINGS.map(|encoding| database_in(cluster, encoding));
    thread::scope(|scope| {
        for (number, database) in databases.iter().enumerate() {
            scope.spawn(move || {
                let mut session = database.connect();
                session.run("SET client_min_messages = error");
                let functions = fuzz::functions(&mut session);
                let seed = seed * 10 + number as u64;
                let answers = call_at_random(&mut session, &functions, seed, calls);
                println!("{}: {answers:?}", ENCODINGS[number]);
            });
        }
    });
    for database in &databases {
        is_sound(cluster, &mut database.connect());
    }
}
