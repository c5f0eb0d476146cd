//! Tests that docs/reference.md is complete and correct: each function, argument, default, marking and comment, each
//! column of each view, and each setting is the same in the page and in the catalog, and a call raises no SQLSTATE that
//! its entry does not name. `t/lint/tests/reference.rs` compares the messages and hints of the errors.

use std::collections::BTreeSet;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::needs::{FUNCTIONS, Needs};
use pgcache_tests::reference::{self, Function};
use pgcache_tests::refusal::sqlstate;
use pgcache_tests::rng::Rng;
use pgcache_tests::{fuzz, readme};

fn page() -> String {
    readme::page("docs/reference.md")
}

/// Fails if the lists differ, and shows the lines that only one of them has.
fn assert_lines(catalog: Vec<String>, page: Vec<String>) {
    assert!(!catalog.is_empty(), "nothing was found in the catalog");
    let catalog: BTreeSet<String> = catalog.into_iter().collect();
    let page: BTreeSet<String> = page.into_iter().collect();
    let missing: Vec<_> = catalog.difference(&page).collect();
    let invented: Vec<_> = page.difference(&catalog).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not on the page: {missing:#?}\nnot in the catalog: {invented:#?}"
    );
}

/// Lists the functions of the extension in the notation of the page: `name(arg type = default, ...) → result`, then the
/// function's properties in the catalog.
const SIGNATURES: &str = r"
    SELECT CASE WHEN p.pronamespace = 'pgcache'::regnamespace THEN 'pgcache.' ELSE '' END ||
           p.proname || '(' || a.list || ') → ' ||
           CASE WHEN o.list IS NOT NULL AND p.proretset THEN 'SETOF (' || o.list || ')'
                WHEN o.list IS NOT NULL THEN '(' || o.list || ')'
                WHEN p.proretset THEN 'SETOF ' || format_type(p.prorettype, NULL)
                ELSE format_type(p.prorettype, NULL) END,
           CASE p.provolatile WHEN 'v' THEN 'Volatile' WHEN 's' THEN 'Stable' ELSE 'Immutable' END ||
           CASE p.proparallel WHEN 'u' THEN ', parallel unsafe' WHEN 'r' THEN ', parallel restricted' ELSE ', parallel safe' END
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
            WHERE p.proargmodes[i] IN ('o', 't')) AS o";

/// Returns the signature with short forms of types and defaults, because the page and the catalog write them
/// differently.
fn plain(signature: &str) -> String {
    let mut plain = signature.to_owned();
    for (long, short) in [
        ("timestamp with time zone", "timestamptz"),
        ("NULL::text", "NULL"),
        ("NULL::interval", "NULL"),
        ("NULL::bigint", "NULL"),
        ("NULL::integer", "NULL"),
        ("NULL::double precision", "NULL"),
        ("'00:00:00'::interval", "'0'"),
        ("'00:00:05'::interval", "'5 seconds'"),
        ("NULL::regclass", "NULL"),
        ("'::text", "'"),
        ("'::name", "'"),
        ("'::regclass", "'"),
        ("'text'::regtype", "'text'"),
    ] {
        plain = plain.replace(long, short);
    }
    plain
}

#[test]
fn its_functions_are_the_catalogs() {
    let catalog = Cluster::shared().database().connect().lines(SIGNATURES);
    let catalog = catalog.iter().map(|line| plain(line)).collect();
    let written = |f: Function| format!("{}|{}", f.signature, f.marking);
    let page = reference::functions(&page());
    assert_lines(catalog, page.into_iter().map(written).collect());
}

/// Returns the function's name in an entry, such as `cache_get` or `pgcache.verify`.
fn name(function: &Function) -> &str {
    function.signature.split('(').next().unwrap_or("")
}

#[test]
fn its_entries_begin_with_the_comments() {
    let mut session = Cluster::shared().database().connect();
    for function in reference::functions(&page()) {
        let arguments = function.signature.split_once(" → ").unwrap_or_default().0;
        let arguments = match arguments.ends_with("()") {
            true => 0,
            false => 1 + arguments.matches(", ").count(),
        };
        let (schema, bare) = name(&function)
            .split_once('.')
            .unwrap_or(("public", name(&function)));
        let comment = session.text(&format!(
            "SELECT obj_description(oid, 'pg_proc') FROM pg_proc
              WHERE proname = '{bare}' AND pronamespace = '{schema}'::regnamespace
              ORDER BY pronargs = {arguments} DESC LIMIT 1"
        ));
        assert!(
            function.prose.starts_with(&comment),
            "{}: {comment}\nand not: {}",
            name(&function),
            function.prose
        );
    }
    for view in reference::views(&page()) {
        let comment = session.text(&format!(
            "SELECT obj_description('{}'::regclass, 'pg_class')",
            view.name
        ));
        assert!(view.prose.starts_with(&comment), "{}", view.name);
    }
}

/// Lists each function, view, column and setting of the extension with the description that psql shows.
const DESCRIBED: &str = r"
    SELECT p.oid::regprocedure || '', obj_description(p.oid, 'pg_proc')
      FROM pg_proc AS p
      JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
      JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache'
    UNION ALL
    SELECT c.oid::regclass || coalesce('.' || a.attname, ''), col_description(c.oid, coalesce(a.attnum, 0))
      FROM pg_class AS c
      JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
      JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache'
     CROSS JOIN LATERAL (
           SELECT NULL::name AS attname, 0::int2 AS attnum
           UNION ALL
           SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0) AS a
     WHERE c.relkind = 'v' AND c.oid <> 'pgcache.resp'::regclass
    UNION ALL
    SELECT name, short_desc FROM pg_settings WHERE name LIKE 'pgcache.%'";

/// Returns whether a text is one sentence that begins with a verb in the third person.
fn is_sentence(text: &str) -> bool {
    let verb = text.split(' ').next().unwrap_or_default();
    let next = |(at, _)| {
        let after: &str = &text[at + 2..];
        after.starts_with(char::is_uppercase)
    };
    verb.starts_with(char::is_uppercase)
        && verb.ends_with('s')
        && text.ends_with('.')
        && !text.match_indices(". ").any(next)
}

#[test]
fn every_function_view_column_and_setting_has_a_sentence_that_begins_with_a_verb() {
    let mut session = Cluster::hot().database().connect();
    session.run("SELECT cache_forever()"); // loads the library where it is not preloaded
    let described = session.lines(DESCRIBED);
    assert!(described.len() > 200, "{}", described.len());
    let wrong: Vec<_> = described
        .iter()
        .filter(|line| {
            !line
                .split_once('|')
                .is_some_and(|(_, text)| is_sentence(text))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_description_that_is_no_such_sentence_is_found() {
    for (text, good) in [
        ("Returns the live value.", true),
        ("Returns up to 1.5 values.", true),
        ("", false),
        ("the live value", false),
        ("Returns the live value", false),
        ("Live value.", false),
        ("Returns the live value. It may be NULL.", false),
    ] {
        assert_eq!(is_sentence(text), good, "{text}");
    }
}

/// t/tests/privilege_matrix.rs checks the table of needs, call by call. This test compares the page with that table.
#[test]
fn its_privileges_are_those_that_are_tested() {
    for function in reference::functions(&page()) {
        let bare = name(&function).trim_start_matches("pgcache.");
        let row = FUNCTIONS.iter().find(|(known, ..)| *known == bare);
        let needs = match row.unwrap_or_else(|| panic!("{bare} is not tested")).1 {
            Needs::All(all) => all.join(", "),
            Needs::Owner(_) => "ownership".into(),
            Needs::Nothing => "nothing".into(),
            Needs::Granted => "EXECUTE".into(),
            Needs::Trigger => "a trigger".into(),
            Needs::Elsewhere => continue,
        };
        assert_eq!(function.needs, needs, "{bare}");
    }
}

#[test]
fn its_views_are_the_catalogs() {
    let catalog = Cluster::shared().database().connect().lines(
        "SELECT c.oid::regclass || ': ' || string_agg(a.attname || '|' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) \
           FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 \
           JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e' \
           JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache' \
          WHERE c.relkind = 'v' AND c.oid <> 'pgcache.resp'::regclass GROUP BY c.oid", // pgcache.resp is a cache
    );
    let catalog = catalog.iter().map(|line| plain(line)).collect();
    let page = reference::views(&page()).into_iter();
    let page = page.map(|view| format!("{}: {}", view.name, view.columns.join(", ")));
    assert_lines(catalog, page.collect());
}

/// Returns a number in the largest unit that divides it, as Postgres shows it.
fn in_units(value: &str, unit: &str) -> String {
    let units: &[(&str, i64)] = match unit {
        "kB" => &[("GB", 1 << 20), ("MB", 1 << 10), ("kB", 1)],
        "ms" => &[
            ("d", 86_400_000),
            ("h", 3_600_000),
            ("min", 60_000),
            ("s", 1000),
            ("ms", 1),
        ],
        "s" => &[("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)],
        _ => return value.to_owned(),
    };
    let number: i64 = value.parse().expect("a setting with a unit is a number");
    match units.iter().find(|(_, of)| number != 0 && number % of == 0) {
        Some((name, of)) => format!("{}{name}", number / of),
        None => "0".into(),
    }
}

#[test]
fn its_settings_are_the_servers() {
    let mut session = Cluster::hot().database().connect();
    session.run("SELECT cache_forever()"); // loads the library where it is not preloaded
    let catalog = session.lines(
        "SELECT name, boot_val, coalesce(unit, ''), coalesce(min_val, ''), coalesce(max_val, ''), \
         coalesce(array_to_string(enumvals, ', '), CASE vartype WHEN 'bool' THEN 'on, off' ELSE 'a text' END), \
         context \
         FROM pg_settings WHERE name LIKE 'pgcache.%' AND name !~ '^pgcache.(pause|fault)'",
    );
    let shown = |line: &String| {
        let fields: Vec<&str> = line.split('|').collect();
        let [name, default, unit, min, max, words, context] = fields[..] else {
            panic!("{line}");
        };
        let range = match min {
            "" => words.to_owned(),
            _ => format!("{} to {}", in_units(min, unit), in_units(max, unit)),
        };
        format!("{name}|{}|{range}|{context}", in_units(default, unit))
    };
    assert_lines(
        catalog.iter().map(shown).collect(),
        reference::settings(&page()),
    );
}

/// SQLSTATEs that come from the arguments of these random calls, so the page does not list them for the function:
/// invalid intervals and names, columns that the query does not name, loaders and key expressions that are not SQL, and
/// a constraint and a view that the test creates.
const OF_THE_CALL: &[&str] = &[
    "22007", "22008", "22012", "23514", "2BP01", "3F000", "42601", "42602", "42703", "42803",
    "42804", "42883", "42P01", "42P02", "42P16",
];

/// Returns the text of the rule about attached tables, which lists further SQLSTATEs for calls on an attached table.
fn of_attached_tables(page: &str) -> &str {
    let from = page.find("- **Attached tables**").expect("the rule");
    let rule = &page[from..];
    &rule[..rule.find("\n\n").expect("an end of the rule")]
}

/// The number of random calls of each function. The calls are the same in each run, and take some seconds.
const ROUNDS: usize = 40;

#[test]
fn no_call_gives_an_error_that_its_entry_does_not_name() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let mut session = database.connect();
    session.run("SET client_min_messages = error");
    session.run(fuzz::ODD_RELATIONS);
    let memory = session.holds("SELECT size > 0 FROM pgcache.hot_tier");
    let text = page();
    let attached = of_attached_tables(&text);
    let (page, called) = (reference::functions(&text), fuzz::functions(&mut session));
    let (mut rng, mut surprises) = (Rng::seeded(7), Vec::new());
    for round in 0..ROUNDS {
        fuzz::make_caches(&mut session, memory);
        let begin = [
            "",
            "BEGIN READ ONLY;",
            "BEGIN ISOLATION LEVEL REPEATABLE READ;",
        ];
        for function in &called {
            let bare = function.name.trim_start_matches("public.");
            let entry = page.iter().find(|entry| name(entry) == bare);
            let named = &entry.unwrap_or_else(|| panic!("no entry of {bare}")).errors;
            let call = fuzz::call(&mut rng, function);
            let call = format!("{} SELECT * FROM {call}", begin[round % 3]);
            if let Err(error) = session.try_lines(&call) {
                let state = sqlstate(&error);
                let of_its_table = call.contains("('a_") && attached.contains(state);
                let is_named = named.iter().any(|known| known == state) || of_its_table;
                if !is_named && !OF_THE_CALL.contains(&state) {
                    surprises.push(format!("{bare} gave {state}: {call}\n{error:?}"));
                }
            }
            session.run("ROLLBACK");
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n\n"));
}
