//! Tests the extension as a whole: schemas, CREATE and DROP EXTENSION, several databases, encodings and upgrades.

use std::collections::{BTreeMap, BTreeSet};

use pgcache_tests::ask::Ask;
use pgcache_tests::assert_lines::assert_lines;
use pgcache_tests::catalog::CATALOG;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::succeed;
use postgres::Client;

#[test]
fn the_extension_can_be_created_in_any_schema_dropped_and_created_again() {
    let database = Cluster::shared().empty_database("");
    let mut session = database.connect();
    session.run("CREATE SCHEMA \"Else where\"");
    for _ in 0..2 {
        session.run("CREATE EXTENSION pgcache SCHEMA \"Else where\"");
        session.run("SELECT \"Else where\".cache_set('k', 'v')");
        assert_eq!(session.text("SELECT \"Else where\".cache_get('k')"), "v");
        session.run("DROP EXTENSION pgcache");
        let left = session.number(
            "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'pgcache') + \
             (SELECT count(*) FROM pg_proc WHERE proname LIKE 'cache\\_%')",
        );
        assert_eq!(left, 0);
    }
}

#[test]
fn dropping_the_extension_without_cascade_names_its_caches() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('first'), cache_create('\"Second\"', storage => 'logged')");
    let refusal = refused(session.try_value("DROP EXTENSION pgcache"), "2BP01");
    let detail = refusal.detail().expect("the detail names them");
    assert!(
        detail.contains("first") && detail.contains("Second"),
        "{detail}"
    );
    assert_eq!(session.number("SELECT count(*) FROM pgcache.caches"), 4);
}

#[test]
fn dropping_the_extension_with_cascade_leaves_ordinary_tables() {
    let mut session = Cluster::shared().database().connect();
    session.run("SELECT cache_create('left_over')");
    session.run("SELECT cache_set('k', 'v', cache => 'left_over')");
    session.run("DROP EXTENSION pgcache CASCADE");
    assert_eq!(session.lines("SELECT key, value FROM left_over"), ["k|v"]);
    session.run("INSERT INTO left_over VALUES ('l', 'w'); TRUNCATE left_over");
    session.run("CREATE EXTENSION pgcache");
    refused(
        session.try_value("SELECT cache_get('k', 'left_over')"),
        "42809",
    );
}

#[test]
fn a_session_survives_drop_and_create_of_the_extension() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run("SELECT cache_set('k', 'old')");
    other.run("DROP EXTENSION pgcache; CREATE EXTENSION pgcache");
    assert_eq!(session.value("SELECT cache_get('k')"), None);
    session.run("SELECT cache_set('k', 'new')");
    assert_eq!(other.text("SELECT cache_get('k')"), "new");
}

#[test]
fn two_databases_never_share_keys() {
    let cluster = Cluster::shared();
    let databases = [cluster.database(), cluster.database()];
    let mut sessions = databases.each_ref().map(Database::connect);
    for (number, session) in sessions.iter_mut().enumerate() {
        session.run(&format!("SELECT cache_set('k', '{number}')"));
    }
    for (number, session) in sessions.iter_mut().enumerate() {
        assert_eq!(session.number("SELECT cache_get('k')"), number as i64);
    }
    let [first, second] = &mut sessions;
    first.run("SELECT cache_clear('pgcache.main')");
    assert_eq!(second.text("SELECT cache_get('k')"), "1");
}

/// Sets, gets and scans keys, and provokes errors, with words of one language in a database of one encoding.
fn speaks(encoding: &str, word: &str, other: &str) {
    let options = format!("TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'");
    let database = Cluster::shared().empty_database(&options);
    let mut session = database.connect();
    session.run("CREATE EXTENSION pgcache");
    session.run(&format!("SELECT cache_create('{word}')"));
    session.run(&format!(
        "SELECT cache_set('{word}:1', '{other}', cache => '{word}')"
    ));
    session.run(&format!(
        "SELECT cache_set('{other}:1', '{word}', cache => '{word}')"
    ));
    let get = |key: &str| format!("SELECT cache_get('{key}:1', '{word}')");
    assert_eq!(session.text(&get(word)), other);
    assert_eq!(session.text(&get(other)), word);
    let page = session.lines(&format!(
        "SELECT key FROM cache_scan('{word}', cache => '{word}')"
    ));
    assert_eq!(page, [format!("{word}:1")]);
    let caches = session.lines("SELECT cache FROM pgcache.caches");
    let listed = caches.iter().any(|cache| cache.trim_matches('"') == word);
    assert!(listed, "{caches:?}");
    fails_in_words(&mut session, encoding, word);
    let removed = session.number(&format!("SELECT cache_delete_prefix('{word}', '{word}')"));
    assert_eq!(removed, 1);
    assert_eq!(session.text(&get(other)), word);
}

/// Checks errors and notices that contain the name of a user's object, in the session that raises them. If the server's
/// encoding is UTF-8, pgcache's messages show all letters; otherwise they show letters beyond ASCII as Unicode escapes.
/// Postgres' own messages show all letters in every encoding.
fn fails_in_words(session: &mut Client, encoding: &str, word: &str) {
    session.run(&format!("CREATE TABLE \"{word} table\" (n int)"));
    for (call, sqlstate) in [
        (format!("cache_get('k', '\"{word} table\"')"), "42809"),
        (format!("cache_create('{word}')"), "42P07"),
        (format!("cache_create('n', storage => '{word}')"), "22023"),
    ] {
        let refusal = refused(session.try_value(&format!("SELECT {call}")), sqlstate);
        let named = refusal.message().contains(word);
        assert!(named || !encoding.contains("UTF8"), "{}", refusal.message());
    }
    raises_words(session, word);
    session.run(&format!(
        "SELECT cache_create('{word}', if_not_exists => true)"
    ));
}

/// Checks the message of a loader that fails, called by one function of pgcache and by two nested calls of pgcache's
/// functions.
fn raises_words(session: &mut Client, word: &str) {
    let raises = "RAISE EXCEPTION USING message = 'm' || $1, detail = 'd' || $1, hint = 'h' || $1";
    session.run(&format!(
        "CREATE FUNCTION fails(text) RETURNS text LANGUAGE plpgsql AS $$BEGIN {raises}; END$$; \
         SELECT cache_create('loaded')"
    ));
    for loader in [
        format!("SELECT fails(''{word}'')"),
        format!("SELECT cache_fetch(''l'', ''SELECT fails(''''{word}'''')'')"),
    ] {
        let fetch = format!("SELECT cache_fetch('k', '{loader}', cache => 'loaded')");
        let failure = refused(session.try_value(&fetch), "P0001");
        let said = [Some(failure.message()), failure.detail(), failure.hint()];
        let words = ["m", "d", "h"].map(|letter| format!("{letter}{word}"));
        assert_eq!(said, words.each_ref().map(|word| Some(word.as_str())));
    }
}

#[test]
fn a_utf8_database_speaks_any_language() {
    speaks("UTF8", "猫", "ναι");
}

#[test]
fn a_latin1_database_speaks_german_and_french() {
    speaks("LATIN1", "größe", "été");
}

#[test]
fn a_sql_ascii_database_takes_bytes_as_they_come() {
    speaks("SQL_ASCII", "größe", "猫");
}

#[test]
fn an_euc_jp_database_speaks_japanese() {
    speaks("EUC_JP", "ねこ", "猫");
}

/// The versions of the extension and the updates between them, as its scripts define them.
struct Chain {
    newest: String,
    versions: BTreeSet<String>,
    /// The versions that an update from each version can reach, step by step.
    leads: BTreeMap<String, BTreeSet<String>>,
}

fn chain(session: &mut Client) -> Chain {
    let paths =
        "SELECT source, target FROM pg_extension_update_paths('pgcache') WHERE path IS NOT NULL";
    let mut leads: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in session.lines(paths) {
        let (from, to) = path.split_once('|').expect("two columns");
        leads.entry(from.into()).or_default().insert(to.into());
    }
    let versions = "SELECT version FROM pg_available_extension_versions WHERE name = 'pgcache'";
    Chain {
        newest: session
            .text("SELECT default_version FROM pg_available_extensions WHERE name = 'pgcache'"),
        versions: session.lines(versions).into_iter().collect(),
        leads,
    }
}

#[test]
fn every_version_leads_to_the_newest_and_ends_up_like_a_fresh_install() {
    let fresh = Cluster::shared().database();
    let mut session = fresh.connect();
    let chain = chain(&mut session);
    let installed = session.text("SELECT extversion FROM pg_extension WHERE extname = 'pgcache'");
    assert_eq!(installed, chain.newest);
    assert!(chain.versions.contains(&chain.newest));
    let catalog = session.lines(CATALOG);
    assert!(catalog.len() > 35, "only {} objects", catalog.len());
    for old in chain
        .versions
        .iter()
        .filter(|version| **version != chain.newest)
    {
        let leads = chain
            .leads
            .get(old)
            .is_some_and(|to| to.contains(&chain.newest));
        assert!(
            leads,
            "no chain of upgrade scripts leads from {old} to {}",
            chain.newest
        );
        let mut session = Cluster::shared().empty_database("").connect();
        session.run(&format!("CREATE EXTENSION pgcache VERSION '{old}'"));
        session.run("ALTER EXTENSION pgcache UPDATE");
        let updated = session.lines(CATALOG);
        assert_lines(&updated, &catalog, &format!("updated from {old}"));
    }
}

/// Owner and privileges of the extension's functions, views and tables, and the privileges that a dump omits.
const PRIVILEGES: &str = "
    SELECT d.classid::regclass, p.pronamespace::regnamespace, p.proname, p.proowner::regrole, p.proacl, i.initprivs
      FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
      LEFT JOIN pg_init_privs AS i ON i.objoid = p.oid AND i.classoid = d.classid
     WHERE d.deptype = 'e'
     UNION ALL
    SELECT d.classid::regclass, c.relnamespace::regnamespace, c.relname, c.relowner::regrole, c.relacl, i.initprivs
      FROM pg_depend AS d JOIN pg_class AS c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
      LEFT JOIN pg_init_privs AS i ON i.objoid = c.oid AND i.classoid = d.classid AND i.objsubid = 0
     WHERE d.deptype = 'e'";

/// Takes every function from PUBLIC and gives it to a role, which gives it on to another; likewise each view.
fn change_privileges(session: &mut Client, giver: &str, taker: &str) {
    session.run(&format!(
        "DO $$ DECLARE f regprocedure; BEGIN
             FOR f IN SELECT objid FROM pg_depend WHERE classid = 'pg_proc'::regclass AND deptype = 'e' AND refobjid =
                      (SELECT oid FROM pg_extension WHERE extname = 'pgcache') LOOP
                 EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
                 EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {giver} WITH GRANT OPTION', f);
                 SET LOCAL ROLE {giver};
                 EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {taker}', f);
                 RESET ROLE;
             END LOOP;
         END $$;
         ALTER FUNCTION cache_depend(regclass, text, regclass) OWNER TO {giver};
         ALTER FUNCTION cache_schedule_expiry(text) OWNER TO {giver};
         REVOKE ALL ON ALL TABLES IN SCHEMA pgcache FROM PUBLIC, pg_monitor;
         GRANT SELECT ON ALL TABLES IN SCHEMA pgcache TO {taker}"
    ));
}

/// Returns the GRANT and REVOKE statements of a dump, without the arguments of functions.
fn dumped_privileges(database: &Database) -> Vec<String> {
    let mut dump = database.cluster.program("pg_dump");
    let dump = succeed(dump.args(["-s", "-d", &database.name]));
    let text = String::from_utf8(dump.stdout).expect("a dump is UTF-8");
    let mut found: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("GRANT ") || line.starts_with("REVOKE "))
        .map(|line| match (line.find('('), line.rfind(')')) {
            (Some(open), Some(close)) => [&line[..open], &line[close + 1..]].concat(),
            _ => line.into(),
        })
        .collect();
    found.sort();
    found
}

/// Any role that may create objects in the extension's schema can put operators there that fit better than those of
/// Postgres, for example `=` of an oid and a regprocedure.
#[test]
fn an_update_calls_no_operator_of_the_extensions_schema() {
    let mut session = Cluster::shared().empty_database("").connect();
    session.run("CREATE EXTENSION pgcache VERSION '0.4.0'");
    session.run(
        "CREATE FUNCTION trap(oid, regprocedure) RETURNS boolean LANGUAGE plpgsql AS
         $$BEGIN RAISE EXCEPTION 'the update has called a trap'; END$$;
         CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regprocedure, FUNCTION = trap)",
    );
    session.run("ALTER EXTENSION pgcache UPDATE");
}

#[test]
fn an_update_keeps_owners_privileges_and_callers() {
    let database = Cluster::shared().empty_database("");
    let (giver, stranger) = (database.cluster.role(), database.cluster.role());
    let taker = format!("\"{stranger} \"\"odd\"");
    let mut session = database.connect();
    session.run(&format!("CREATE ROLE {taker}"));
    session.run("CREATE EXTENSION pgcache VERSION '0.4.0'; SELECT cache_create('c')");
    session.run(&format!(
        "GRANT USAGE, CREATE ON SCHEMA public, pgcache TO {giver}"
    ));
    change_privileges(&mut session, &giver, &taker);
    session.run(
        "CREATE FUNCTION tunes() RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT cache_tune('c', ttl_jitter => 0.25); END;
         CREATE VIEW tuned AS SELECT cache_tune('c', early_refresh => 2.0)::text AS done;
         PREPARE tune AS SELECT cache_tune('c', '7 seconds'); EXECUTE tune",
    );
    let before = session.lines(PRIVILEGES);
    assert!(before.len() > 60, "only {} objects", before.len());
    let dumped = dumped_privileges(&database);
    assert!(dumped.len() > 150, "only {} statements", dumped.len());

    session.run("ALTER EXTENSION pgcache UPDATE");
    let after: BTreeSet<String> = session.lines(PRIVILEGES).into_iter().collect();
    let lost: Vec<_> = before
        .iter()
        .filter(|line| !after.contains(*line))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_lines(&dumped_privileges(&database), &dumped, "the dump");
    let mut other = database.connect_as(&stranger);
    refused(
        other.try_lines("SELECT cache_tune('c', max_bytes => 9)"),
        "42501",
    );
    session.run("SELECT tunes(); SELECT * FROM tuned; EXECUTE tune; SELECT cache_tune('c', touch_after => 0.5)");
    assert_eq!(
        session.lines("SELECT negative_ttl, ttl_jitter, early_refresh, touch_after FROM pgcache.caches WHERE cache = 'c'::regclass"),
        ["00:00:07|0.25|2|0.5"]
    );
}
