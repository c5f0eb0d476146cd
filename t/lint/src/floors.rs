//! Checks the layers of the sources. The modules of a crate are arranged on floors, and a file may name only modules of
//! lower floors, or of its own folder. So files can refer to each other in a cycle only inside a folder; a separate
//! search finds these cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::names::{Names, names};
use crate::tree::{Crate, Module};

/// The floors of a module's children, the highest first. Children on one floor do not refer to each other. The module's
/// own file is above all floors.
pub struct Floors {
    pub of: &'static [&'static str],
    pub floors: &'static [&'static [&'static str]],
}

/// Returns a message for each breach of the rule. `left` lists references that are still allowed, as pairs of modules
/// or folders (`a::b -> c`). A pair that no file needs is a breach, too.
pub fn findings(files: &Crate, plan: &[Floors], left: &[&str]) -> Vec<String> {
    let names = names(files);
    let found = |left: &[&str]| {
        let mut names = names.clone();
        for (module, named) in &mut names {
            named.retain(|other, _| !left.iter().any(|pair| matches(pair, module, other)));
        }
        [upward(files, &names, plan), circles(files, &names)].concat()
    };
    let findings = found(left);
    if !findings.is_empty() {
        return findings;
    }
    let others = |pair| {
        left.iter()
            .copied()
            .filter(|other| *other != pair)
            .collect::<Vec<_>>()
    };
    let idle = left.iter().filter(|pair| found(&others(**pair)).is_empty());
    idle.map(|pair| format!("{pair} is allowed, and nothing needs it: take it from the list"))
        .collect()
}

fn matches(pair: &str, from: &Module, to: &Module) -> bool {
    let within = |module: &Module, folder: &str| {
        let path = module.join("::");
        path == folder || path.starts_with(&format!("{folder}::"))
    };
    (pair.split_once(" -> ")).is_some_and(|(a, b)| within(from, a) && within(to, b))
}

fn upward(files: &Crate, names: &Names, plan: &[Floors]) -> Vec<String> {
    let mut findings = Vec::new();
    for floors in plan {
        for (module, source) in files {
            let Some(from) = child_of(floors, module) else {
                continue;
            };
            let Some(own) = height(floors, from) else {
                findings.push(format!("{}: {from} stands on no floor", source.path));
                continue;
            };
            for (other, line) in &names[module] {
                let upward = |to: &&str| {
                    *to != from && height(floors, to).is_none_or(|height| height >= own)
                };
                if let Some(to) = child_of(floors, other).filter(upward) {
                    let to = if to.is_empty() {
                        "the file above it"
                    } else {
                        to
                    };
                    let pair = format!("{} -> {}", module.join("::"), other.join("::"));
                    findings.push(format!(
                        "{}:{line}: {from} names {to}, which is not below it ({pair})",
                        source.path
                    ));
                }
            }
        }
    }
    findings
}

/// Returns the name of the child to which a module belongs, or an empty name for the module's own file.
fn child_of<'a>(floors: &Floors, module: &'a Module) -> Option<&'a str> {
    let inside =
        module.len() >= floors.of.len() && floors.of.iter().zip(module).all(|(a, b)| a == b);
    inside.then(|| module.get(floors.of.len()).map_or("", String::as_str))
}

fn height(floors: &Floors, child: &str) -> Option<usize> {
    if child.is_empty() {
        return Some(floors.floors.len());
    }
    floors
        .floors
        .iter()
        .rev()
        .position(|floor| floor.contains(&child))
}

/// Returns the cycles of files that refer to each other. Each is the shortest such cycle, with the lines that form it.
fn circles(files: &Crate, names: &Names) -> Vec<String> {
    let names = &entangled(names.clone());
    let reached: BTreeMap<&Module, _> =
        (names.keys().map(|module| (module, reached(names, module)))).collect();
    let mut found = Vec::new();
    let mut left: BTreeSet<&Module> = names.keys().collect();
    while let Some(start) = left.pop_first() {
        let knot: BTreeSet<&Module> = (reached[start].keys().copied())
            .filter(|other| reached[other].contains_key(start))
            .collect();
        let shortest = (knot
            .iter()
            .filter_map(|module| circle_at(&reached[module], module)))
        .min_by_key(Vec::len);
        if let Some(circle) = shortest {
            found.push(describe(files, names, knot.len(), &circle));
        }
        left.retain(|module| !knot.contains(module));
    }
    found
}

/// Removes files that refer to no other file, again and again, until only cycles and the files that lead to them
/// remain.
fn entangled(mut names: Names) -> Names {
    loop {
        let count = names.len();
        names.retain(|_, named| !named.is_empty());
        let rest: BTreeSet<Module> = names.keys().cloned().collect();
        for named in names.values_mut() {
            named.retain(|other, _| rest.contains(other));
        }
        if names.len() == count {
            return names;
        }
    }
}

/// Returns every module that a chain of references reaches from `start`, each with its predecessor in the shortest
/// chain.
fn reached<'a>(names: &'a Names, start: &'a Module) -> BTreeMap<&'a Module, &'a Module> {
    let (mut before, mut waiting) = (BTreeMap::new(), VecDeque::from([start]));
    while let Some(module) = waiting.pop_front() {
        for other in names.get(module).into_iter().flat_map(BTreeMap::keys) {
            before.entry(other).or_insert_with(|| {
                waiting.push_back(other);
                module
            });
        }
    }
    before
}

fn circle_at<'a>(
    before: &BTreeMap<&'a Module, &'a Module>,
    start: &'a Module,
) -> Option<Vec<&'a Module>> {
    let mut circle = vec![*before.get(start)?];
    while circle.last() != Some(&start) {
        circle.push(before[circle[circle.len() - 1]]);
    }
    circle.reverse();
    Some(circle)
}

fn describe(files: &Crate, names: &Names, size: usize, circle: &[&Module]) -> String {
    let mut text = format!("{size} files name each other in circles, such as");
    for (index, module) in circle.iter().enumerate() {
        let next = circle[(index + 1) % circle.len()];
        let (path, line) = (&files[*module].path, names[*module][next]);
        text.push_str(&format!("\n    {path}:{line} names {}", files[next].path));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::load;

    const PLAN: &[Floors] = &[
        Floors {
            of: &[],
            floors: &[&["api", "worker"], &["cache"], &["pg"]],
        },
        Floors {
            of: &["cache"],
            floors: &[&["fetch"], &["tier"]],
        },
    ];

    /// Returns the findings in a crate that keeps the plan except in one file, which has this text.
    fn found(broken: &str, text: &str, left: &[&str]) -> Vec<String> {
        let sound = [
            ("src/lib.rs", "mod api; mod cache; mod pg; mod worker;"),
            ("src/api.rs", "use crate::cache::{self, fetch::get};"),
            ("src/worker.rs", "fn work() { crate::pg::work() }"),
            (
                "src/cache/mod.rs",
                "pub mod fetch; pub mod tier; pub use fetch::get;",
            ),
            (
                "src/cache/fetch.rs",
                "use super::{tier::{self, Tier}}; use crate::pg::{self, slot::Slot};",
            ),
            (
                "src/cache/tier.rs",
                "#[cfg(test)] mod tests { use crate::api; }",
            ),
            (
                "src/pg/mod.rs",
                "pub mod slot; /// See [`crate::cache`].\npub fn work() {}",
            ),
            ("src/pg/slot.rs", "pub struct Slot;"),
        ];
        let read = |path: &str| match sound.iter().find(|(name, _)| *name == path) {
            Some((name, _)) if *name == broken => Some(text.to_owned()),
            found => found.map(|(_, text)| (*text).to_owned()),
        };
        findings(&load("src/lib.rs", &read).unwrap(), PLAN, left)
    }

    #[test]
    fn a_crate_that_keeps_the_plan_is_not_found() {
        assert_eq!(found("", "", &[]), [""; 0]);
    }

    #[test]
    fn a_name_that_points_up_is_found_wherever_it_stands() {
        for text in [
            "use crate::cache;",
            "use {crate::cache::fetch as f, std::fmt};",
            "use super::{super::cache::tier::{Tier, io::*}, mod_of_another_crate};",
            "fn f() { log!(\"{}\", [crate::cache::get()]) }",
            "#[derive(Debug)] struct S(Vec<crate::cache::Entry>);",
            "use crate::cache as c; fn f() {}",
            "fn f() { use crate::cache::fetch; }",
            "mod inner { use super::super::super::cache; }",
            "#[cfg(not(test))] use crate::cache::fetch;",
        ] {
            let found = found("src/pg/slot.rs", text, &[]);
            assert!(
                found[0].starts_with("src/pg/slot.rs:1: pg names cache, which is not below it"),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn a_neighbour_of_the_same_floor_and_the_file_above_are_not_below() {
        let found_in = |file, text| found(file, text, &[]).remove(0);
        let neighbour = found_in("src/worker.rs", "use crate::api::f;");
        assert!(neighbour.contains("worker names api"), "{neighbour}");
        let above = found_in("src/cache/tier.rs", "\nuse super::Cache;");
        assert!(
            above.contains("src/cache/tier.rs:2: tier names the file above it"),
            "{above}"
        );
        let passed_on = found_in("src/cache/tier.rs", "use crate::cache::get;");
        assert!(passed_on.contains("tier names fetch"), "{passed_on}");
    }

    #[test]
    fn a_module_without_a_floor_is_found() {
        let plan = [Floors {
            of: &[],
            floors: &[&["api", "worker"], &["cache"]],
        }];
        let read = |path: &str| {
            Some(
                if path == "src/lib.rs" {
                    "mod api; mod extra;"
                } else {
                    ""
                }
                .to_owned(),
            )
        };
        let found = findings(&load("src/lib.rs", &read).unwrap(), &plan, &[]);
        assert_eq!(found, ["src/extra.rs: extra stands on no floor"]);
    }

    #[test]
    fn a_circle_is_reported_with_its_lines() {
        let read = |path: &str| {
            let text = match path {
                "src/lib.rs" => "mod a; mod b; mod c; mod d;",
                "src/a.rs" => "\nuse crate::b;",
                "src/b.rs" => "use crate::c;\nuse crate::d;",
                "src/c.rs" => "use crate::d::D;",
                "src/d.rs" => "pub struct D;\nfn f() { crate::a::f() }",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let files = load("src/lib.rs", &read).unwrap();
        let expected = "4 files name each other in circles, such as\n    src/a.rs:2 names src/b.rs\n    \
                        src/b.rs:2 names src/d.rs\n    src/d.rs:2 names src/a.rs";
        assert_eq!(findings(&files, &[], &[]), [expected]);
        assert_eq!(findings(&files, &[], &["d -> a"]), [""; 0]);
    }

    #[test]
    fn listed_exceptions_are_allowed_while_they_are_needed() {
        let up = "use crate::cache::fetch;";
        assert_eq!(found("src/pg/slot.rs", up, &["pg -> cache"]), [""; 0]);
        assert_eq!(
            found("src/pg/slot.rs", up, &["pg::slot -> cache::fetch"]),
            [""; 0]
        );
        let idle = found("", "", &["pg -> cache"]);
        assert_eq!(
            idle,
            ["pg -> cache is allowed, and nothing needs it: take it from the list"]
        );
    }
}
