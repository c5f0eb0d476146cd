//! Ensures that docs/reference.md lists exactly the errors of src/error.rs, each with its SQLSTATE, message and hint.
//! t/tests/reference.rs compares the page with the catalog (functions, views, settings).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test reports a failure by a panic"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use pgcache_lint::errors::errors;
use pgcache_lint::tree::load;
use pgcache_lint::{read, root};

/// Returns a program's output without the last newline.
fn output(program: &str, argument: &str) -> String {
    let output = Command::new(program)
        .arg(argument)
        .current_dir(root())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the SQLSTATE of each name, from Postgres' own header: `#define ERRCODE_X MAKE_SQLSTATE('0','1',...)`.
fn sqlstates() -> BTreeMap<String, String> {
    let config = output("scripts/pg-config.sh", "");
    let header = format!(
        "{}/utils/errcodes.h",
        output(&config, "--includedir-server")
    );
    let header =
        std::fs::read_to_string(&header).unwrap_or_else(|error| panic!("{header}: {error}"));
    let defined = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define ")?.split_once(" MAKE_SQLSTATE("));
    defined
        .map(|(name, letters)| {
            (
                name.to_owned(),
                letters.split('\'').skip(1).step_by(2).collect(),
            )
        })
        .collect()
}

#[test]
fn the_errors_of_the_reference_are_those_of_the_source() {
    let (files, states) = (load("src/lib.rs", &read).unwrap(), sqlstates());
    let errors = errors(&files).unwrap();
    assert!(errors.len() > 20, "{} errors were found", errors.len());
    let page = read("docs/reference.md").unwrap();
    let rows: BTreeSet<(&str, &str, &str)> = page.lines().filter_map(row).collect();

    let of_source: BTreeSet<(&str, &str)> = errors
        .values()
        .map(|error| (states[&error.code].as_str(), error.message.as_str()))
        .collect();
    let of_page: BTreeSet<(&str, &str)> = rows
        .iter()
        .map(|(state, message, _)| (*state, *message))
        .collect();
    assert_eq!(
        of_source.difference(&of_page).collect::<Vec<_>>(),
        [&("", ""); 0],
        "not on the page"
    );
    assert_eq!(
        of_page.difference(&of_source).collect::<Vec<_>>(),
        [&("", ""); 0],
        "not in the source"
    );
    for (name, error) in &errors {
        let hint = error.hint.as_str();
        let hints: Vec<&str> = rows
            .iter()
            .filter(|row| row.1 == error.message)
            .map(|row| last_cell(row.2))
            .collect();
        assert!(
            hints.contains(&hint),
            "{name}, \"{}\": its hint is: {hint}\nand the page says: {hints:?}",
            error.message
        );
    }
}

/// Returns the advice to the user, which is exactly the error's hint.
fn last_cell(rest: &str) -> &str {
    let cells = rest.trim_end().trim_end_matches('|').trim_end();
    cells.rsplit_once("| ").map_or("", |(_, cell)| cell)
}

/// Splits a row like ``| 22023 | `key must not be empty` | when, and what to do |``.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let (state, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
    let (message, rest) = rest.split_once("` |")?;
    (state.len() == 5).then_some((state, message, rest))
}
