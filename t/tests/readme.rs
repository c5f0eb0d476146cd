//! README.md says nothing that is not so: its SQL runs and gives what it shows, its table of
//! functions is the catalog's.

use std::collections::BTreeSet;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::readme;
use postgres::Client;

#[test]
fn its_sql_runs_in_order_and_gives_what_it_shows() {
    let database = Cluster::shared().empty_database("");
    check_examples(&mut database.connect(), &readme::text());
}

/// Memory caches are among them.
#[test]
fn the_recipes_run_in_order_and_give_what_they_show() {
    let database = Cluster::hot().database();
    check_examples(&mut database.connect(), &readme::page("docs/recipes.md"));
}

fn check_examples(session: &mut Client, page: &str) {
    let examples = readme::examples(page);
    assert!(
        examples.iter().any(|example| example.shows.is_some()),
        "no example has a result"
    );
    for example in examples {
        let answer = session.lines(&example.sql);
        if let Some(shows) = example.shows {
            // Statements that only do something print an empty line.
            let answer: Vec<String> = answer.into_iter().filter(|line| !line.is_empty()).collect();
            let answer = &answer[answer.len().saturating_sub(shows.len())..];
            assert_eq!(answer, shows, "of:\n{}", example.sql);
        }
    }
}

/// Functions of the extension as README writes them: `name(arg type = default, ...) → result`.
const CATALOG: &str = r"
    SELECT p.proname || '(' || a.list || ') → ' ||
           CASE WHEN o.list IS NULL THEN format_type(p.prorettype, NULL)
                WHEN p.proretset THEN 'SETOF (' || o.list || ')'
                ELSE '(' || o.list || ')' END
      FROM pg_proc AS p
      JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
      JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache'
     CROSS JOIN LATERAL (
           SELECT coalesce(string_agg(
                      p.proargnames[i] || ' ' || format_type(p.proargtypes[i - 1], NULL) ||
                      coalesce(' = ' || pg_get_function_arg_default(p.oid, i), ''),
                      ', ' ORDER BY i), '') AS list
             FROM generate_series(1, p.pronargs) AS i) AS a
     CROSS JOIN LATERAL (
           SELECT string_agg(p.proargnames[i] || ' ' || format_type(p.proallargtypes[i], NULL), ', ' ORDER BY i) AS list
             FROM generate_series(1, cardinality(p.proallargtypes)) AS i
            WHERE p.proargmodes[i] IN ('o', 't')) AS o
     WHERE p.proname LIKE 'cache\_%' AND p.pronamespace <> 'pgcache'::regnamespace";

/// One spelling for what README and the catalog write differently.
fn plain(signature: &str) -> String {
    let mut plain = signature.to_owned();
    for (long, short) in [
        ("timestamp with time zone", "timestamptz"),
        ("NULL::text", "NULL"),
        ("NULL::interval", "NULL"),
        ("NULL::bigint", "NULL"),
        ("NULL::double precision", "NULL"),
        ("'00:00:00'::interval", "'0'"),
        ("NULL::regclass", "NULL"),
        ("'::text", "'"),
        ("'::regclass", "'"),
        ("'text'::regtype", "'text'"),
    ] {
        plain = plain.replace(long, short);
    }
    plain
}

#[test]
fn its_table_of_functions_is_the_catalogs() {
    let database = Cluster::shared().database();
    let catalog = database.connect().lines(CATALOG);
    let catalog: BTreeSet<String> = catalog.iter().map(|line| plain(line)).collect();
    let readme: BTreeSet<String> = readme::functions(&readme::text())
        .iter()
        .map(|line| plain(line))
        .collect();
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
            AND d.objid <> 'pgcache.main'::regclass",
    );
    assert!(bare.is_empty(), "{bare:?}");
}
