//! Reads the claims of docs/reference.md: functions, views, settings and SQLSTATEs, in the page's notation.

/// A function's entry: `#### name`, its signature as a block, its prose, and a line that begins with "Needs".
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub signature: String,
    /// The prose from the COMMENT on, with single blanks.
    pub prose: String,
    pub needs: String,
    /// For example `Volatile, parallel unsafe`.
    pub marking: String,
    pub errors: Vec<String>,
}

/// A view's entry: `#### name`, prose, and a table of `column|type`.
#[derive(Debug, PartialEq, Eq)]
pub struct View {
    pub name: String,
    pub prose: String,
    pub columns: Vec<String>,
}

/// Returns the sections under fourth-level headings: each heading, with the lines up to the next heading.
fn entries(page: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    page.split("\n#### ").skip(1).map(|part| {
        let end = part.find("\n#").unwrap_or(part.len());
        let mut lines = part[..end].lines();
        (lines.next().unwrap_or(""), lines.collect())
    })
}

pub fn functions(page: &str) -> Vec<Function> {
    entries(page)
        .filter_map(|(_, lines)| function(&lines))
        .collect()
}

fn function(lines: &[&str]) -> Option<Function> {
    let begins = lines.iter().position(|line| *line == "```text")?;
    let signature = (*lines.get(begins + 1)?).to_owned();
    let text = joined(lines.get(begins + 3..)?);
    let (prose, facts) = text.rsplit_once("Needs ")?;
    let (needs, facts) = facts.split_once(". ")?;
    let (marking, errors) = facts.split_once('.')?;
    Some(Function {
        signature,
        prose: prose.trim().to_owned(),
        needs: needs.to_owned(),
        marking: marking.to_owned(),
        errors: sqlstates(errors),
    })
}

pub fn views(page: &str) -> Vec<View> {
    let view = |(name, lines): (&str, Vec<&str>)| {
        let rows: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let prose = lines.iter().copied().take_while(|l| !l.starts_with('|'));
        (!rows.is_empty()).then(|| View {
            name: name.to_owned(),
            prose: joined(&prose.collect::<Vec<_>>()),
            columns: rows.iter().map(|row| cells(row)[..2].join("|")).collect(),
        })
    };
    entries(page).filter_map(view).collect()
}

/// Returns `name|default|range|context` of each row that has these four columns.
pub fn settings(page: &str) -> Vec<String> {
    page.lines()
        .filter(|line| line.starts_with("| `pgcache."))
        .map(cells)
        .filter(|cells| cells.len() == 4)
        .map(|cells| cells.join("|"))
        .collect()
}

/// Returns the SQLSTATEs in the table under this heading.
pub fn errors_under(page: &str, heading: &str) -> Vec<String> {
    let (_, under) = page
        .split_once(&format!("\n### {heading}\n"))
        .unwrap_or_else(|| panic!("the reference has no heading {heading}"));
    let table = under.split("\n###").next().unwrap_or("");
    let rows = table.lines().filter(|line| line.starts_with("| "));
    rows.flat_map(|row| sqlstates(cells(row).first().map_or("", String::as_str)))
        .collect()
}

/// Returns the words that consist of five digits and capitals.
fn sqlstates(text: &str) -> Vec<String> {
    let is_one = |word: &&str| {
        let known = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase();
        word.len() == 5 && word.chars().all(known) && word.chars().any(|c| c.is_ascii_digit())
    };
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(is_one)
        .map(str::to_owned)
        .collect()
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|')
        .split('|')
        .map(|cell| cell.replace('`', "").trim().to_owned())
        .collect()
}

fn joined(lines: &[&str]) -> String {
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Reference\n\n### Reading\n\n#### cache_get\n\n```text\ncache_get(key text) → text\n```\n\n\
        The live value. Needs no lock;\nsays nothing.\n\nNeeds SELECT, UPDATE. Volatile, parallel safe. Errors: 22001, 42P01.\n\n\
        #### pgcache.caches\n\nEvery cache.\n\n| column | type | |\n|---|---|---|\n| `cache` | regclass | it |\n\n## Settings\n\n\
        | `pgcache.hot_size` | 64MB | 0 to 2kB | postmaster |\n| `pgcache.hot_size` | does | why |\n\n\
        ### Errors\n\n| SQLSTATE | when |\n|---|---|\n| 22007, 22P02 | 42P01 |\n\n### Others\n| 53100 | |\n";

    #[test]
    fn an_entry_is_taken_apart() {
        let [function] = &functions(PAGE)[..] else {
            panic!("one function");
        };
        assert_eq!(function.signature, "cache_get(key text) → text");
        assert_eq!(
            function.prose,
            "The live value. Needs no lock; says nothing."
        );
        assert_eq!(function.needs, "SELECT, UPDATE");
        assert_eq!(function.marking, "Volatile, parallel safe");
        assert_eq!(function.errors, ["22001", "42P01"]);
    }

    #[test]
    fn views_settings_and_errors_are_found() {
        let [view] = &views(PAGE)[..] else {
            panic!("one view");
        };
        assert_eq!(view.name, "pgcache.caches");
        assert_eq!(view.prose, "Every cache.");
        assert_eq!(view.columns, ["cache|regclass"]);
        assert_eq!(
            settings(PAGE),
            ["pgcache.hot_size|64MB|0 to 2kB|postmaster"]
        );
        assert_eq!(errors_under(PAGE, "Errors"), ["22007", "22P02"]);
    }
}
