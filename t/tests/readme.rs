//! Tests the claims of README.md and other pages: their SQL runs and returns the results that they show, and README's
//! table names exactly the existing functions. `reference.rs` tests docs/reference.md.

use std::collections::BTreeSet;
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::readme::{self, Example};
use postgres::Client;

#[test]
fn the_sql_of_the_readme_runs_in_order_and_gives_the_shown_results() {
    let database = Cluster::shared().empty_database("");
    check_examples(&mut database.connect(), &readme::text());
}

#[test]
fn examples_of_the_pages_give_the_shown_results() {
    for page in [
        "docs/behaviour.md",
        "docs/faq.md",
        "docs/drivers.md",
        "docs/scaling.md",
        "examples/README.md",
    ] {
        let database = Cluster::hot().database();
        check_examples(&mut database.connect(), &readme::page(page));
    }
}

/// The recipes use memory caches, so the server has a tier.
#[test]
fn the_recipes_run_in_order_and_give_the_shown_results() {
    let database = Cluster::hot().database();
    check_examples(&mut database.connect(), &readme::page("docs/recipes.md"));
}

/// Each row of the page's tables must be true after the SQL blocks above it have run.
#[test]
fn from_redis_and_memcached_each_row_is_true() {
    let database = Cluster::hot().database();
    let page = readme::page(MOVING);
    let session = &mut database.connect();
    check_examples(session, &page);
    let rows = readme::rows(&page);
    assert!(rows.len() > 60, "{} rows", rows.len());
    check(session, rows);
}

/// A moment must not be computed with an interval of days, because a day does not always have 24 hours.
#[test]
fn a_unix_time_of_redis_is_the_same_moment_in_every_time_zone() {
    let database = Cluster::hot().database();
    let session = &mut database.connect();
    check_examples(session, &readme::page(MOVING));
    session.run("SET timezone = 'America/New_York'");
    let winter = "4102444800";
    let summer = "4118083200";
    for moment in [winter, summer] {
        let page = readme::page(MOVING).replace(winter, moment);
        let sets: Vec<_> = readme::rows(&page)
            .into_iter()
            .filter(|row| row.sql.contains(moment))
            .collect();
        assert!(sets.len() > 1, "{} rows", sets.len());
        for set in sets {
            session.run(&set.sql);
            let deadline =
                "SELECT extract(epoch FROM expires_at)::bigint FROM cache_lookup('k', 'c')";
            assert_eq!(session.text(deadline), moment, "after {}", set.sql);
        }
    }
}

/// Each swap returns the replaced value, as GETSET does, to exactly one caller.
#[test]
fn a_value_that_getset_puts_out_is_given_to_one_caller() {
    let page = readme::page(MOVING);
    let mut swaps = readme::rows(&page).into_iter().map(|row| row.sql);
    let swap = swaps
        .find(|sql| sql.contains("AS old") && sql.contains("cache_cas"))
        .expect("the page has GETSET");
    let database = Cluster::hot().database();
    let mut session = database.connect();
    check_examples(&mut session, &page);
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (mut session, swap) = (database.connect(), swap.clone());
            thread::spawn(move || swapped(&mut session, &swap, caller))
        })
        .collect();
    let mut given: Vec<String> = callers
        .into_iter()
        .flat_map(|caller| caller.join().expect("a caller ends"))
        .collect();
    given.push(session.text("SELECT cache_get('k', 'c')"));
    let all = given.len();
    given.sort_unstable();
    given.dedup();
    assert_eq!(
        given.len(),
        all,
        "two callers got the same value, so no caller got another one"
    );
}

/// Returns the values that one caller gets from a thousand swaps. The first swap finds no entry, which does not count
/// as a value.
fn swapped(session: &mut Client, swap: &str, caller: usize) -> Vec<String> {
    session.run("SET search_path = moving, public");
    let mut given = Vec::new();
    for turn in 0..1000 {
        let swap = swap.replace("'v'", &format!("'{caller} {turn}'"));
        for answer in session.lines(&swap) {
            if let Some(old) = answer.strip_suffix("|t") {
                given.push(old.to_owned());
            }
        }
    }
    given
}

const MOVING: &str = "docs/from-redis-and-memcached.md";

/// All pages with SQL that a reader may paste, in the order of README's list.
const PAGES: [&str; 8] = [
    "README.md",
    "docs/behaviour.md",
    "docs/faq.md",
    "docs/recipes.md",
    "docs/drivers.md",
    "docs/scaling.md",
    MOVING,
    "examples/README.md",
];

/// A reader of all pages has the objects and the search_path of the earlier pages.
#[test]
fn the_pages_run_one_after_the_other_in_one_database() {
    let database = Cluster::hot().empty_database("");
    let mut session = database.connect();
    for page in PAGES {
        check_examples(&mut session, &readme::page(page));
        check(&mut session, readme::rows(&readme::page(page)));
    }
    // Run psql -f examples/setup.sql before each of two runs, as the page says. The script must not drop objects of
    // other pages.
    for _ in 0..2 {
        session.run(&readme::page("examples/setup.sql"));
    }
    let there = "SELECT cache_get_json('p:1', 'public.products') IS NOT NULL AND to_regclass('public.orders') IS NOT NULL";
    assert!(session.holds(there));
}

/// Readers may read the pages in any order, each in a new session.
#[test]
fn the_pages_run_in_one_database_from_the_last_to_the_first() {
    let database = Cluster::hot().database();
    for page in PAGES.iter().rev() {
        let page = readme::page(page).replace("CREATE EXTENSION pgcache;", "");
        check_examples(&mut database.connect(), &page);
    }
}

fn check_examples(session: &mut Client, page: &str) {
    let examples = readme::examples(page);
    assert!(!examples.is_empty(), "the page has no example");
    check(session, examples);
}

fn check(session: &mut Client, examples: Vec<Example>) {
    for example in examples {
        let answer = session.lines(&example.sql);
        if let Some(shows) = example.shows {
            // Statements without a result give an empty line.
            let answer: Vec<String> = answer.into_iter().filter(|line| !line.is_empty()).collect();
            let answer = &answer[answer.len().saturating_sub(shows.len())..];
            assert_eq!(answer, shows, "of:\n{}", example.sql);
        }
    }
}

#[test]
fn the_readmes_table_of_functions_is_the_catalogs() {
    let catalog = Cluster::shared().database().connect().lines(
        "SELECT p.proname FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid \
           JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache' AND d.deptype = 'e' \
          WHERE d.classid = 'pg_proc'::regclass AND p.pronamespace <> 'pgcache'::regnamespace",
    );
    let catalog: BTreeSet<String> = catalog.into_iter().collect();
    let readme: BTreeSet<String> = readme::functions(&readme::text()).into_iter().collect();
    let missing: Vec<_> = catalog.difference(&readme).collect();
    let invented: Vec<_> = readme.difference(&catalog).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing: {missing:#?}\ninvented: {invented:#?}"
    );
}

#[test]
fn every_function_and_view_has_a_comment() {
    let database = Cluster::shared().database();
    let bare = database.connect().lines(
        "SELECT d.classid::regclass || ' ' || d.objid FROM pg_depend AS d \
           JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache' AND d.deptype = 'e' \
          WHERE d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass) \
            AND obj_description(d.objid, d.classid::regclass::name) IS NULL \
            AND d.objid NOT IN ('pgcache.main'::regclass, 'pgcache.resp'::regclass)",
    );
    assert!(bare.is_empty(), "{bare:?}");
}
