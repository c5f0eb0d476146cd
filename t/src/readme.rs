//! Reads the claims of README.md and other pages: their SQL with the results that the pages show, and the table of
//! functions in README.md.

use std::path::Path;

/// A block of SQL, and the block of results after it, if any.
#[derive(Debug, PartialEq, Eq)]
pub struct Example {
    pub sql: String,
    pub shows: Option<Vec<String>>,
}

/// Reads README.md from the root of the checkout.
pub fn text() -> String {
    page("README.md")
}

/// Reads a page of the documentation.
pub fn page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(path).expect("the page is in the checkout")
}

/// Returns the ```sql blocks in order. A ```text or ```output block right after a block is its result.
pub fn examples(markdown: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut result_may_follow = false;
    for piece in pieces(markdown) {
        match piece {
            Piece::Block("sql", lines) => {
                examples.push(Example {
                    sql: lines.join("\n"),
                    shows: None,
                });
                result_may_follow = true;
            }
            Piece::Block("text" | "output", lines) if result_may_follow => {
                let shows = lines
                    .iter()
                    .map(|line| line.trim_end().to_owned())
                    .collect();
                if let Some(example) = examples.last_mut() {
                    example.shows = Some(shows);
                }
                result_may_follow = false;
            }
            _ => result_may_follow = false,
        }
    }
    examples
}

/// Returns the rows of tables that end with the columns `SQL` and `gives`, as examples: `` | `INCR n` | `SELECT ...` |
/// `1` | ``. The last cell is empty if the result differs from run to run.
pub fn rows(markdown: &str) -> Vec<Example> {
    let mut rows = Vec::new();
    let mut wanted = false;
    for line in markdown.lines() {
        let cells = cells(line);
        match cells.as_slice() {
            [_, "SQL", "gives"] => wanted = true,
            [_, sql, gives] if wanted && !sql.starts_with("---") => rows.push(Example {
                sql: unquoted(sql),
                shows: (!gives.is_empty()).then(|| vec![unquoted(gives)]),
            }),
            [] => wanted = false,
            _ => {}
        }
    }
    rows
}

/// Splits a table's row into cells; `\|` does not end a cell.
fn cells(line: &str) -> Vec<&str> {
    let Some(inner) = line
        .strip_prefix("| ")
        .and_then(|row| row.strip_suffix('|'))
    else {
        return if line.starts_with("|---") {
            vec![""]
        } else {
            Vec::new()
        };
    };
    inner.split(" | ").map(str::trim).collect()
}

fn unquoted(cell: &str) -> String {
    let code = cell
        .strip_prefix('`')
        .and_then(|cell| cell.strip_suffix('`'));
    let code = code.unwrap_or_else(|| panic!("{cell} is no code"));
    code.replace("\\|", "|")
}

/// Returns the functions that tables name in their second column: `` `cache_get`, `cache_set` ``.
pub fn functions(markdown: &str) -> Vec<String> {
    let rows = markdown.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split('|').nth(2));
    let names = cells.flat_map(|cell| cell.split('`'));
    names
        .filter(|name| name.starts_with("cache_") && !name.contains([' ', '(']))
        .map(str::to_owned)
        .collect()
}

enum Piece<'a> {
    Block(&'a str, Vec<&'a str>),
    Text,
}

/// Returns the fenced blocks with their language, and the paragraphs between them.
fn pieces(markdown: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| !line.starts_with("```"));
            pieces.push(Piece::Block(language.trim(), block.collect()));
        } else if !line.trim().is_empty() {
            pieces.push(Piece::Text);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n```sql\nSELECT 1;\nSELECT 2;\n```\n\n```text\n1\n2 \n```\nwords\n```sql\nSELECT 3;\n```\n\
                        words\n```text\nno result\n```\n| read | `cache_get`, `cache_ttl` |\n| `cache_set` | `other` |\n";

    #[test]
    fn a_result_belongs_to_the_sql_right_before_it() {
        let examples = examples(PAGE);
        assert_eq!(examples.len(), 2);
        assert_eq!(examples[0].sql, "SELECT 1;\nSELECT 2;");
        assert_eq!(
            examples[0].shows,
            Some(vec!["1".to_owned(), "2".to_owned()])
        );
        assert_eq!(examples[1].shows, None);
    }

    #[test]
    fn a_row_is_an_example_where_its_table_says_so() {
        let table = "| a | b |\n|---|---|\n| x | y |\n\n| Redis | SQL | gives |\n|---|---|---|\n\
                     | `GET` | `SELECT 1` | |\n| `SET` (a) | `SELECT 2, 3` | `2\\|3` |\n\n| p | `q` | `r` |\n";
        let rows = rows(table);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].sql.as_str(), &rows[0].shows), ("SELECT 1", &None));
        assert_eq!(rows[1].shows, Some(vec!["2|3".to_owned()]));
    }

    #[test]
    fn functions_are_found_in_the_second_column() {
        assert_eq!(functions(PAGE), ["cache_get", "cache_ttl"]);
    }
}
