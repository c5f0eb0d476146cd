//! Tests the privileges that each function needs. Roles with every subset of the privileges, and owners, call each
//! function on entries in the hot tier, in the table and in a memory cache.
//!
//! The test fails if the table of needs (`t/src/needs.rs`) lacks a function of the extension.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::needs::Needs::{self, *};
use pgcache_tests::needs::{DELETE, FUNCTIONS, functions_of_the_extension, present};
use postgres::Client;

const PRIVILEGES: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"];
const SUBSETS: u32 = 1 << PRIVILEGES.len();

fn privileges(subset: u32) -> Vec<&'static str> {
    let chosen = |&i: &usize| subset & (1 << i) != 0;
    (0..PRIVILEGES.len())
        .filter(chosen)
        .map(|i| PRIVILEGES[i])
        .collect()
}

/// Returns whether a caller with these privileges may make the call, according to the table.
fn may(needs: Needs, subset: u32, owner: bool) -> bool {
    let has_all = |all: &[&str]| all.iter().all(|one| privileges(subset).contains(one));
    match needs {
        All(all) => has_all(all),
        Owner(all) => owner && has_all(all),
        Nothing => true,
        Granted | Trigger | Elsewhere => false,
    }
}

/// Runs a call and rolls it back. Returns its SQLSTATE, or 00000 for success.
const TRY: &str = "
    CREATE FUNCTION public.try_as(role name, call text) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('SET LOCAL ROLE %I', role);
        EXECUTE call;
        RAISE EXCEPTION SQLSTATE 'DONE0';
    EXCEPTION
        WHEN SQLSTATE 'DONE0' THEN RETURN '00000';
        WHEN OTHERS THEN RETURN SQLSTATE;
    END $$";

/// Creates a cache `name` with entries, and a role `prefix_subset` for each subset of the privileges.
fn cache_with_roles(session: &mut Client, prefix: &str, name: &str, storage: &str) {
    session.run(&format!(
        "SELECT cache_create('{name}', storage => '{storage}')"
    ));
    session.run(&format!(
        "SELECT cache_set_many('{{k,l,n}}', '{{1,2,3}}', cache => '{name}')"
    ));
    for subset in 0..SUBSETS {
        let role = format!("{prefix}_{subset}");
        session.run(&format!("CREATE ROLE {role}"));
        if subset > 0 {
            let list = privileges(subset).join(",");
            session.run(&format!("GRANT {list} ON {name} TO {role}"));
        }
    }
}

/// Returns each role's answer, in the order of the subsets. The calls run in one query, and so in one transaction. The
/// query of a read writes nothing, so all of its reads may use the copy.
fn answers(session: &mut Client, roles: &str, call: &str) -> Vec<String> {
    session.lines(&format!(
        "SELECT public.try_as('{roles}_' || s, $call$SELECT {call}$call$) \
         FROM generate_series(0, {}) AS s ORDER BY s",
        SUBSETS - 1
    ))
}

fn check(session: &mut Client, roles: &str, cache: &str, where_: &str) {
    for (function, needs, call) in present(session) {
        if matches!(needs, Elsewhere | Trigger) {
            continue;
        }
        let call = call.replace("$c", &format!("'{cache}'"));
        for (subset, answer) in answers(session, roles, &call).iter().enumerate() {
            let (subset, expected) = (subset as u32, may(needs, subset as u32, false));
            let right = answer == if expected { "00000" } else { "42501" };
            let has = privileges(subset);
            assert!(
                right,
                "{function} {where_} with {has:?}: {answer}, should be allowed: {expected}"
            );
        }
    }
}

/// Checks that an owner has only the privileges that the owner's role was granted, and ownership itself, which some
/// functions need.
fn check_owner(session: &mut Client, cache: &str, where_: &str) {
    session.run("CREATE ROLE the_owner");
    session.run("GRANT CREATE ON SCHEMA public TO the_owner");
    session.run(&format!("ALTER TABLE {cache} OWNER TO the_owner"));
    for subset in 0..SUBSETS {
        session.run(&format!(
            "REVOKE SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {cache} FROM the_owner"
        ));
        if subset > 0 {
            let list = privileges(subset).join(",");
            session.run(&format!("GRANT {list} ON {cache} TO the_owner"));
        }
        for (function, needs, call) in present(session) {
            // If a caller has only DELETE, the statement runs as the owner. It fails if the owner's own role lacks
            // SELECT or UPDATE.
            let has = privileges(subset);
            let lends = needs == DELETE && !(has.contains(&"SELECT") && has.contains(&"UPDATE"));
            if lends || matches!(needs, Elsewhere | Trigger) {
                continue;
            }
            let call = call.replace("$c", &format!("'{cache}'"));
            let answer = session.text(&format!(
                "SELECT public.try_as('the_owner', $call$SELECT {call}$call$)"
            ));
            let right = answer
                == if may(needs, subset, true) {
                    "00000"
                } else {
                    "42501"
                };
            assert!(
                right,
                "{function} {where_} by the owner with {has:?}: {answer}"
            );
        }
    }
    session.run(&format!("ALTER TABLE {cache} OWNER TO postgres"));
    session.run("REVOKE ALL ON SCHEMA public FROM the_owner; DROP ROLE the_owner");
}

fn remove_roles(session: &mut Client, prefix: &str) {
    for subset in 0..SUBSETS {
        session.run(&format!(
            "DROP OWNED BY {prefix}_{subset}; DROP ROLE {prefix}_{subset}"
        ));
    }
}

#[test]
fn the_table_of_needs_knows_every_function_of_the_extension() {
    let mut session = Cluster::shared().database().connect();
    for function in functions_of_the_extension(&mut session) {
        assert!(
            FUNCTIONS.iter().any(|(name, ..)| *name == function),
            "{function}() is missing in the table of what functions need"
        );
    }
}

#[test]
fn every_function_on_a_table_cache_needs_the_listed_privileges() {
    let cluster = Cluster::start(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run(TRY);
    cache_with_roles(&mut session, "on_table", "c", "unlogged");
    check(&mut session, "on_table", "c", "on a table");
    check_owner(&mut session, "c", "on a table");
    session.run("SET pgcache.hot_tier = off");
    check(&mut session, "on_table", "c", "with the tier off");
    remove_roles(&mut session, "on_table");
}

#[test]
fn a_hot_entry_is_read_only_by_roles_with_the_privilege() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run(TRY);
    cache_with_roles(&mut session, "on_copy", "c", "unlogged");
    session.run("SELECT cache_get('k', 'c'), cache_get('l', 'c')");
    let reads = [
        "cache_get",
        "cache_get_json",
        "cache_get_bytes",
        "cache_lookup",
        "cache_exists",
        "cache_ttl",
    ];
    for (function, needs, call) in present(&mut session) {
        if !reads.contains(&function) {
            continue;
        }
        let call = call.replace("$c", "'c'");
        let hits = "SELECT hot_hits FROM pgcache.stats WHERE cache = 'c'::regclass";
        let before = session.number(hits);
        let answers = answers(&mut session, "on_copy", &call);
        for (subset, answer) in answers.iter().enumerate() {
            let right = answer
                == if may(needs, subset as u32, false) {
                    "00000"
                } else {
                    "42501"
                };
            assert!(
                right,
                "{function} with {:?}: {answer}",
                privileges(subset as u32)
            );
        }
        let served = answers.iter().filter(|answer| *answer == "00000").count() as i64;
        assert_eq!(
            session.number(hits) - before,
            served,
            "{function} was not served from the tier"
        );
    }
    // A revoked privilege takes effect at once, even for a hot entry.
    session.run("REVOKE SELECT ON c FROM on_copy_1");
    assert_eq!(
        session.text("SELECT public.try_as('on_copy_1', $$SELECT cache_get('k', 'c')$$)"),
        "42501"
    );
    remove_roles(&mut session, "on_copy");
}

#[test]
fn every_function_on_a_memory_cache_needs_the_listed_privileges() {
    let cluster = Cluster::with_tier(&[]);
    let database = cluster.database();
    let mut session = database.connect();
    session.run(TRY);
    cache_with_roles(&mut session, "on_memory", "m", "memory");
    for (function, needs, call) in present(&mut session) {
        // Rollback does not undo changes of memory caches, so the test restores the entries that a role removed before
        // the next role calls.
        if matches!(needs, Elsewhere | Trigger) {
            continue;
        }
        let call = call.replace("$c", "'m'");
        for subset in 0..SUBSETS {
            session.run("SELECT cache_set_many('{k,l,n}', '{1,2,3}', cache => 'm')");
            let answer = session.text(&format!(
                "SELECT public.try_as('on_memory_{subset}', $call$SELECT {call}$call$)"
            ));
            let right = answer
                == if may(needs, subset, false) {
                    "00000"
                } else {
                    "42501"
                };
            assert!(
                right,
                "{function} on a memory cache with {:?}: {answer}",
                privileges(subset)
            );
        }
    }
    remove_roles(&mut session, "on_memory");
}
