//! Runs short queries in a session, and returns the results in their SQL text form.

use postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

pub trait Ask {
    /// Returns rows as `psql -At` prints them: columns joined by `|`, and NULL as an empty text.
    fn try_lines(&mut self, sql: &str) -> Result<Vec<String>, Error>;

    /// Returns the first column of the first row.
    fn try_value(&mut self, sql: &str) -> Result<Option<String>, Error>;

    fn lines(&mut self, sql: &str) -> Vec<String> {
        self.try_lines(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    fn value(&mut self, sql: &str) -> Option<String> {
        self.try_value(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// Returns the value of a query, which must not be NULL.
    fn text(&mut self, sql: &str) -> String {
        self.value(sql).unwrap_or_else(|| panic!("{sql}: null"))
    }

    fn number(&mut self, sql: &str) -> i64 {
        let text = self.text(sql);
        text.parse()
            .unwrap_or_else(|_| panic!("{sql}: {text} is no number"))
    }

    /// Returns the boolean of a query.
    fn holds(&mut self, sql: &str) -> bool {
        self.text(sql) == "t"
    }

    fn run(&mut self, sql: &str) {
        self.lines(sql);
    }
}

impl Ask for Client {
    fn try_lines(&mut self, sql: &str) -> Result<Vec<String>, Error> {
        Ok(rows(self.simple_query(sql)?).iter().map(line).collect())
    }

    fn try_value(&mut self, sql: &str) -> Result<Option<String>, Error> {
        let rows = rows(self.simple_query(sql)?);
        Ok(rows.first().and_then(|row| row.get(0)).map(str::to_owned))
    }
}

fn rows(messages: Vec<SimpleQueryMessage>) -> Vec<SimpleQueryRow> {
    messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        })
        .collect()
}

fn line(row: &SimpleQueryRow) -> String {
    let columns: Vec<&str> = (0..row.len()).map(|i| row.get(i).unwrap_or("")).collect();
    columns.join("|")
}
