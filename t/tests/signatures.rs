//! Tests the interface between SQL and Rust. Postgres calls a C function with the arguments of its declaration in SQL,
//! so a wrong declaration causes undefined behaviour. Each function in the catalog of any version of the extension (a
//! database's extension may be older than the library) must be a `#[pg_extern] fn` with the same arguments, result and
//! treatment of NULL. CREATE FUNCTION has already checked that the symbol exists, also for trigger functions.

use std::collections::{BTreeMap, BTreeSet};

use pgcache_lint::externs::{Extern, externs};
use pgcache_lint::tree::load;
use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;

/// The SQL types for each Rust type. If a type is missing here, the test fails: add it with its SQL types.
const SQL_OF_RUST: &[(&str, &[&str])] = &[
    ("Text", &["text"]),
    ("Name", &["name"]),
    ("Json", &["jsonb"]),
    ("Bytes", &["bytea"]),
    ("bool", &["boolean"]),
    ("i16", &["smallint"]),
    ("i32", &["integer"]),
    ("i64", &["bigint"]),
    ("f64", &["double precision"]),
    ("Internal", &["internal"]),
    ("Interval", &["interval"]),
    ("TimestampWithTimeZone", &["timestamp with time zone"]),
    ("Oid", &["oid", "regclass", "regtype", "regproc", "regrole"]),
    ("()", &["void"]),
    ("Texts", &["text[]"]),
];

/// The catalog's functions, as `symbol|strict|set|columns|result|name type,name type`. A trigger function has no
/// arguments to compare.
const DECLARED: &str = r"
    SELECT p.prosrc, p.proisstrict, p.proretset,
           (SELECT count(*) FROM unnest(p.proargmodes) AS mode WHERE mode IN ('o', 'b', 't')),
           format_type(p.prorettype, NULL),
           (SELECT string_agg(p.proargnames[i] || ' ' || format_type(p.proargtypes[i - 1], NULL), ',' ORDER BY i)
              FROM generate_series(1, p.pronargs) AS i)
      FROM pg_proc AS p
      JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
      JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pgcache'
      JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'c'
     WHERE p.prorettype <> 'trigger'::regtype";

/// Functions in Postgres' own calling convention, which read their arguments themselves. A comment above each function
/// explains how.
const BY_HAND: &[&str] = &[
    "live_wrapper|f|f|0|boolean|expires_at timestamp with time zone",
    "live_unix_wrapper|f|f|0|boolean|deadline bigint,per_second integer",
    "live_support_wrapper|f|f|0|internal|request internal",
    "renew_wrapper|f|f|0|text|key text,cache regclass,former text",
    "renew_copied_wrapper|f|f|0|boolean|key text,cache regclass",
    "copied_first_wrapper|f|f|0|boolean|key text,copy integer,is_live boolean",
    "copied_again_wrapper|f|f|0|boolean|copied record,copy integer",
];

/// Returns the `T` of `Wrapper<T>` or `Wrapper<T,E>`.
fn inside<'t>(kind: &'t str, wrapper: &str) -> Option<&'t str> {
    let inner = kind
        .strip_prefix(wrapper)?
        .strip_prefix('<')?
        .strip_suffix('>')?;
    let ends = |(at, c): (usize, char)| {
        let open = |text: &str| text.matches('<').count() == text.matches('>').count();
        (c == ',' && open(&inner[..at])).then_some(at)
    };
    Some(&inner[..inner.char_indices().find_map(ends).unwrap_or(inner.len())])
}

fn is_same(rust: &str, sql: &str) -> bool {
    match inside(rust, "ArrayOf") {
        Some(element) => sql
            .strip_suffix("[]")
            .is_some_and(|sql| is_same(element, sql)),
        None => SQL_OF_RUST
            .iter()
            .any(|(known, kinds)| *known == rust && kinds.contains(&sql)),
    }
}

/// Returns the differences between a function of the catalog and its Rust function.
fn differences(declared: &str, written: &BTreeMap<String, Extern>) -> Vec<String> {
    if BY_HAND.contains(&declared) {
        return Vec::new();
    }
    let columns: Vec<&str> = declared.split('|').collect();
    let &[symbol, strict, set, count, result, arguments] = &columns[..] else {
        panic!("six columns: {declared}");
    };
    let Some(rust) = symbol
        .strip_suffix("_wrapper")
        .and_then(|name| written.get(name))
    else {
        return vec![format!("no #[pg_extern] fn has the symbol {symbol}")];
    };
    let mut found = Vec::new();
    let declared: Vec<&str> = arguments
        .split(',')
        .filter(|argument| !argument.is_empty())
        .collect();
    if declared.len() != rust.arguments.len() {
        found.push(format!(
            "SQL has {} arguments, Rust {}",
            declared.len(),
            rust.arguments.len()
        ));
    }
    for (argument, (name, kind)) in declared.iter().zip(&rust.arguments) {
        let (sql_name, sql) = argument.split_once(' ').unwrap();
        let bare = inside(kind, "Option");
        if sql_name != name {
            found.push(format!("argument {sql_name} is called {name} in Rust"));
        }
        if !is_same(bare.unwrap_or(kind), sql) {
            found.push(format!(
                "argument {name} is {sql} in SQL and {kind} in Rust"
            ));
        }
        if bare.is_none() && strict == "f" {
            found.push(format!(
                "argument {name} may be NULL in SQL, and Rust has {kind}"
            ));
        }
    }
    let is_set = set == "t";
    if !is_same_result(&rust.result, is_set, count, result) {
        let of = if is_set { "a set of " } else { "" };
        found.push(format!(
            "SQL returns {of}{count} columns, {result}, Rust {}",
            rust.result
        ));
    }
    found
        .iter()
        .map(|what| format!("{} in {}: {what}", rust.name, rust.path))
        .collect()
}

fn is_same_result(rust: &str, is_set: bool, columns: &str, sql: &str) -> bool {
    let rust = inside(rust, "Answer")
        .or(inside(rust, "Result"))
        .unwrap_or(rust);
    let rust = inside(rust, "Option").unwrap_or(rust);
    let rows = inside(rust, "Rows").or(inside(rust, "Stream"));
    match (rows, inside(rust, "OutRow")) {
        // The caller's query names the columns. QueryStream compares them with the columns that it returns at run time.
        _ if rust.starts_with("QueryStream") => is_set && columns == "0",
        (Some(number), _) => is_set && number == columns,
        (_, Some(number)) => !is_set && number == columns,
        _ => !is_set && is_same(rust, sql),
    }
}

fn written() -> BTreeMap<String, Extern> {
    let files = load("src/lib.rs", &pgcache_lint::read).unwrap();
    externs(&files)
        .into_iter()
        .map(|function| (function.name.clone(), function))
        .collect()
}

/// Functions that only older versions of the extension declare.
const ONLY_BEFORE: [&str; 2] = ["cache_schedule_expiry", "cache_tune"];

#[test]
fn every_declaration_of_every_version_agrees_with_rust() {
    let cluster = Cluster::shared();
    let written = written();
    let mut session = cluster.empty_database("").connect();
    let current =
        session.text("SELECT default_version FROM pg_available_extensions WHERE name = 'pgcache'");
    let versions =
        session.lines("SELECT version FROM pg_available_extension_versions WHERE name = 'pgcache'");
    assert!(versions.contains(&current), "{versions:?}");
    for version in versions {
        session.run(&format!("CREATE EXTENSION pgcache VERSION '{version}'"));
        let declared = session.lines(DECLARED);
        assert!(!declared.is_empty(), "{version} has no function");
        let found: Vec<String> = declared
            .iter()
            .flat_map(|line| differences(line, &written))
            .collect();
        assert_eq!(found, [""; 0], "in version {version}");
        if version == current {
            let symbol = |line: &String| line.split("_wrapper").next().unwrap().to_owned();
            let declared: BTreeSet<String> = declared.iter().map(symbol).collect();
            let missing: Vec<_> = written
                .keys()
                .filter(|name| !declared.contains(*name) && !ONLY_BEFORE.contains(&&name[..]))
                .collect();
            assert!(missing.is_empty(), "{version} does not declare {missing:?}");
        }
        session.run("DROP EXTENSION pgcache CASCADE");
    }
}

#[test]
fn each_kind_of_difference_is_found() {
    let function = |arguments: &[(&str, &str)], result: &str| Extern {
        name: "f".into(),
        path: "src/api/f.rs".into(),
        arguments: arguments
            .iter()
            .map(|(a, b)| ((*a).into(), (*b).into()))
            .collect(),
        result: result.into(),
    };
    let found = |rust: Extern, declared: &str| {
        differences(declared, &BTreeMap::from([("f".into(), rust)])).len()
    };
    let text = || function(&[("key", "Option<Text>")], "Answer<Option<Text>>");
    let rows = || function(&[], "Answer<Rows<2>>");
    let record = || function(&[], "Result<OutRow<2>,Error>");
    let stream = || function(&[], "QueryStream<3>");
    assert_eq!(found(text(), "f_wrapper|f|f|0|text|key text"), 0);
    assert_eq!(found(rows(), "f_wrapper|f|t|2|record|"), 0);
    assert_eq!(found(record(), "f_wrapper|f|f|2|record|"), 0);
    assert_eq!(found(stream(), "f_wrapper|f|t|0|record|"), 0);
    assert_eq!(
        found(
            function(&[("a", "ArrayOf<Text>")], "()"),
            "f_wrapper|t|f|0|void|a text[]"
        ),
        0
    );
    for (rust, declared) in [
        (text(), "g_wrapper|f|f|0|text|key text"),
        (text(), "f|f|f|0|text|key text"),
        (text(), "f_wrapper|f|f|0|text|"),
        (text(), "f_wrapper|f|f|0|text|k text"),
        (text(), "f_wrapper|f|f|0|text|key bytea"),
        (text(), "f_wrapper|f|f|0|text|key text[]"),
        (text(), "f_wrapper|f|f|0|jsonb|key text"),
        (text(), "f_wrapper|f|t|0|text|key text"),
        (
            function(&[("key", "Text")], "()"),
            "f_wrapper|f|f|0|void|key text",
        ),
        (
            function(&[("a", "ArrayOf<Text>")], "()"),
            "f_wrapper|t|f|0|void|a bytea[]",
        ),
        (rows(), "f_wrapper|f|t|3|record|"),
        (rows(), "f_wrapper|f|f|2|record|"),
        (record(), "f_wrapper|f|f|3|record|"),
        (record(), "f_wrapper|f|t|2|record|"),
        (stream(), "f_wrapper|f|t|3|record|"),
    ] {
        assert_eq!(found(rust, declared), 1, "{declared}");
    }
}
