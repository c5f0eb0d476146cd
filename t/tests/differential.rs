//! Runs the same random statements in two databases, one with direct access to the table and one with saved plans.
//! Answers, errors, rows, index entries and the server's counters of rows must be equal.
//!
//! For many more statements run it by hand: `PGCACHE_TWIN_ROUNDS=1000 PGCACHE_TWIN_SEED=...`.

use pgcache_tests::amcheck::Amcheck;
use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::differential;
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::rng::Rng;
use pgcache_tests::tier::Tiered;
use postgres::Client;

const STEPS: usize = 80;

/// A database on one of the paths: its name, two sessions that run statements, and a session that checks the results.
struct Side {
    name: String,
    sessions: [Client; 2],
    witness: Client,
}

impl Side {
    /// Sets up sessions that never wait for long: a long wait becomes an error, which must occur on both sides.
    fn on(cluster: &Cluster, path: &str) -> Side {
        let database = cluster.database();
        let mut session = database.connect();
        session.add_amcheck();
        for setting in [
            &format!("pgcache.table_path = {path}"),
            "pgcache.fetch_wait = '10ms'",
            "lock_timeout = '20ms'",
            "client_min_messages = error",
            "search_path = twin, public",
        ] {
            session.run(&format!("ALTER DATABASE {} SET {setting}", database.name));
        }
        Side {
            sessions: [database.connect(), database.connect()],
            witness: database.connect(),
            name: database.name,
        }
    }

    fn begin(&mut self, cache: &str) {
        for session in &mut self.sessions {
            session.run("ROLLBACK; RESET ALL; RESET ROLE");
        }
        self.witness.run("DROP PUBLICATION IF EXISTS twin");
        self.witness.run(differential::FRESH);
        self.witness.run(cache);
        for session in &mut self.sessions {
            session.run(differential::PREPARED);
        }
    }

    /// Checks that copies equal their rows, and that every page and every index is sound.
    fn is_sound(&mut self, history: &str) {
        self.witness.pages_are_sound("twin.c", history);
        let differences = answer(&mut self.witness, "SELECT * FROM pgcache.verify('twin.c')");
        let is_no_cache = |line: &String| line.starts_with("42809");
        assert!(
            differences.iter().all(is_no_cache),
            "{differences:?}{history}"
        );
    }
}

/// Returns rows, or an error. The server sends an error before it releases the locks. So after an error, the function
/// waits until the server answers again.
fn answer(session: &mut Client, sql: &str) -> Vec<String> {
    session.try_lines(sql).unwrap_or_else(|error| {
        session
            .batch_execute("")
            .expect("an error does not end the session");
        let said = error.as_db_error().map_or("", |error| error.message());
        vec![format!("{}: {said}", sqlstate(&error))]
    })
}

/// Both sides, and the statements they ran.
struct Pair {
    sides: [Side; 2],
    history: String,
}

impl Pair {
    /// Runs a query on both sides, checks that the answers are equal, and returns the answer.
    fn ask(&mut self, sql: &str, who: impl Fn(&mut Side) -> &mut Client) -> Vec<String> {
        let [one, other] = self.sides.each_mut().map(|side| {
            let said = answer(who(side), sql);
            let own_name = format!("database {}", side.name);
            let same = said.iter().map(|line| line.replace(&own_name, "database"));
            same.collect::<Vec<_>>()
        });
        assert_eq!(one, other, "{sql}{}", self.history);
        one
    }

    /// Runs a statement in the same session of both sides. Rolls back a failed transaction.
    fn run(&mut self, who: usize, sql: &str) {
        self.history += &format!("\n{who}: {sql};");
        let said = self.ask(sql, |side| &mut side.sessions[who]);
        if said.first().is_some_and(|first| first.starts_with("25P02")) {
            self.run(who, "ROLLBACK");
        }
    }

    fn left_the_same(&mut self) {
        for question in differential::QUESTIONS {
            self.ask(question, |side| &mut side.witness);
        }
    }

    fn round(&mut self, seed: u64) {
        let mut rng = Rng::seeded(seed);
        let cache = differential::cache(&mut rng);
        self.history = format!("\n-- seed {seed}\n{cache};");
        self.sides.iter_mut().for_each(|side| side.begin(&cache));
        for number in 1..=STEPS {
            let (who, sql) = differential::step(&mut rng);
            self.run(who, &sql);
            if number % 8 == 0 {
                self.ask(differential::CONTENT, |side| &mut side.witness);
            }
        }
        for who in [0, 1] {
            self.run(who, "ROLLBACK");
            self.run(who, "RESET ROLE; SELECT pg_stat_force_next_flush()");
            self.run(who, "SELECT 1");
        }
        self.left_the_same();
        for side in &mut self.sides {
            side.is_sound(&self.history);
        }
    }

    /// Returns how many calls of each side took a path.
    fn took(&mut self, path: &str) -> [i64; 2] {
        let question = format!("SELECT {path} FROM pgcache.table_path_taken()");
        self.sides.each_mut().map(|side| {
            let mut sessions = side.sessions.iter_mut();
            sessions
                .by_ref()
                .map(|session| session.number(&question))
                .sum()
        })
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    let setting = std::env::var(name).ok();
    setting.map_or(otherwise, |n| {
        n.parse().unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

#[test]
fn both_paths_answer_and_store_the_same() {
    let cluster = Cluster::with_tier(&["wal_level = logical", "autovacuum = off"]);
    cluster.connect("postgres").run("CREATE ROLE twin_user");
    let mut pair = Pair {
        sides: ["auto", "plan"].map(|path| Side::on(cluster, path)),
        history: String::new(),
    };
    let first = setting("PGCACHE_TWIN_SEED", 1);
    for seed in first..first + setting("PGCACHE_TWIN_ROUNDS", 12) {
        pair.round(seed);
    }
    let ([direct, never], plans) = (pair.took("direct"), pair.took("plan"));
    println!("direct {direct}, by plans {plans:?}");
    assert!(direct > 100, "only {direct} calls went directly");
    assert_eq!(never, 0);
    pair.sides[0].witness.nothing_pending();
}
