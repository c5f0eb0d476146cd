//! SQL pieces that adapt the statements over a cache's table to the columns of that table.
//!
//! Every statement takes and returns a text key, a text, jsonb or bytea value, and a timestamptz deadline. The pieces
//! convert between these types and the types of the columns. The casts are part of the SQL, so a column or a reader
//! never receives a datum of the wrong type. The rules for deadlines are those of `pg::value::moment`.

use crate::pg::catalog::columns::Columns;
use crate::pg::value::datum::ValueType;
use crate::pg::value::key_type::KeyType;
use crate::pg::value::moment::{DeadlineForm, DeadlineKind, NEVER, Width};

/// The name of a piece, and its SQL, in the server's encoding.
type Piece = (&'static str, Vec<u8>);

/// The pieces of the statements over a table.
#[derive(Default)]
pub struct Dialect(Vec<Piece>);

/// The rows that a statement covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The rows of the table itself (FROM ONLY). Rows of its children are not entries.
    Own,
    /// The rows of the table's partitions. The table itself has no rows.
    OfPartitions,
}

/// 9999-12-31: in a NOT NULL column, a deadline on this day or later means never.
const LAST_DAY: &str = "'9999-12-31 00:00:00+00'::pg_catalog.timestamptz";

impl Dialect {
    /// Builds the dialect of a table with these columns.
    pub fn of(columns: &Columns, rows: Rows) -> Dialect {
        let [key, value, deadline] =
            [&columns.key, &columns.value, &columns.deadline].map(|column| &*column.name);
        let mut pieces = Dialect(vec![
            ("k", key.to_bytes().to_vec()),
            ("v", value.to_bytes().to_vec()),
            ("e", deadline.to_bytes().to_vec()),
        ]);
        let only: &[u8] = if rows == Rows::Own { b"ONLY " } else { b"" };
        pieces.0.push(("only", only.to_vec()));
        pieces.spell_keys(columns);
        pieces.spell_values(columns);
        pieces.spell_deadlines(columns.deadline_form);
        pieces
    }

    /// Replaces `$$T` in a template with the table, and `$$name` with the piece of that name.
    pub fn expand(&self, template: &str, table: &[u8]) -> Vec<u8> {
        let mut sql = Vec::new();
        let mut parts = template.split("$$");
        sql.extend_from_slice(parts.next().unwrap_or("").as_bytes());
        for part in parts {
            let end = part
                .find(|c: char| !c.is_ascii_alphanumeric())
                .unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            match name {
                "T" => sql.extend_from_slice(table),
                _ => sql.extend_from_slice(self.piece(name)),
            }
            sql.extend_from_slice(rest.as_bytes());
        }
        sql
    }

    fn piece(&self, name: &str) -> &[u8] {
        let found = self.0.iter().find(|(piece, _)| *piece == name);
        found.map_or(b"", |(_, sql)| sql)
    }

    /// Adds a piece that is built from earlier pieces.
    fn put(&mut self, name: &'static str, template: &str) {
        let sql = self.expand(template, b"");
        self.0.push((name, sql));
    }

    fn spell_keys(&mut self, columns: &Columns) {
        let key_type = columns.key_type;
        let cast = match key_type {
            KeyType::Uuid => "::pg_catalog.uuid",
            KeyType::Bigint => "::pg_catalog.int8",
            // No cast to varchar here, because it would truncate the key, and two keys would become one.
            KeyType::Text | KeyType::Varchar | KeyType::Limited(_) => "",
        };
        let array = if cast.is_empty() { "" } else { "[]" };
        let out = match key_type {
            KeyType::Text => "",
            _ => "::pg_catalog.text",
        };
        self.put("key1", &format!("$1{cast}"));
        self.put("keys", &format!("$1{cast}{array}"));
        self.put("keyin", &format!("e.k{cast}"));
        self.put("key", &format!("pgcache_c.$$k{out}"));
        self.put("ekey", &format!("pgcache_e.$$k{out}"));
        if key_type.is_text() {
            // Compare keys in the order of their bytes, whatever the column's collation.
            let order = match columns.attached {
                true => "(pgcache_c.$$k COLLATE pg_catalog.\"C\")",
                false => "pgcache_c.$$k",
            };
            self.put("order", order);
            // Plain SQL can write the empty key, but no function accepts it.
            self.put("named", "pgcache_c.$$k OPERATOR(pg_catalog.<>) ''");
            self.put("from1", "$1");
            self.put("behind2", "$$order OPERATOR(pg_catalog.<>) $2");
        } else {
            let lowest = match key_type {
                KeyType::Uuid => "'00000000-0000-0000-0000-000000000000'",
                _ => "'-9223372036854775808'",
            };
            let or = |parameter: &str, other: &str| {
                format!(
                    "CASE WHEN {parameter} OPERATOR(pg_catalog.=) '' THEN {other}{cast} \
                     ELSE {parameter}{cast} END"
                )
            };
            self.put("order", "pgcache_c.$$k");
            self.put("named", "true");
            self.put("from1", &format!("({})", or("$1", lowest)));
            self.put(
                "behind2",
                &format!(
                    "(pgcache_c.$$k OPERATOR(pg_catalog.<>) ({})) IS NOT FALSE",
                    or("$2", "NULL")
                ),
            );
        }
    }

    fn spell_values(&mut self, columns: &Columns) {
        let value_type = columns.value_type;
        let is_as_it_is = columns.value_oid == value_type.oid();
        let out = match is_as_it_is {
            true => String::new(),
            false => format!("::{}", value_type.sql()),
        };
        // A varchar is assigned without a cast, so that a value that is too long raises an error. jsonb is cast to
        // json, which Postgres does by itself only in assignments.
        let within = match value_type {
            ValueType::Json if !is_as_it_is => "::pg_catalog.json",
            _ => "",
        };
        self.put("value", &format!("pgcache_c.$$v{out}"));
        self.put("novalue", &format!("NULL::{}", value_type.sql()));
        self.put("value2", &format!("$2{within}"));
        self.put("valuein", &format!("e.v{within}"));
        let bytewise = columns.attached && value_type == ValueType::Text;
        self.put(
            "equal",
            match bytewise {
                true => "($$value COLLATE pg_catalog.\"C\")",
                false => "$$value",
            },
        );
        let (sum, fresh) = counter(value_type);
        self.put("counter", &format!("{sum}{within}"));
        self.put("fresh", &format!("{fresh}{within}"));
    }

    fn spell_deadlines(&mut self, form: DeadlineForm) {
        self.put("until", &reading(form, "pgcache_c"));
        self.put("euntil", &reading(form, "pgcache_e"));
        self.put("until2", &writing(form, "$2"));
        self.put("until3", &writing(form, "$3"));
        self.put(
            "live",
            "($$until IS NULL OR $$until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())",
        );
    }
}

/// Returns SQL that reads a row's deadline as a timestamptz; NULL means never.
fn reading(form: DeadlineForm, row: &str) -> String {
    let per_second = match form.kind {
        DeadlineKind::Moment if form.nullable => return format!("{row}.$$e"),
        DeadlineKind::Moment => {
            return format!(
                "(CASE WHEN {row}.$$e OPERATOR(pg_catalog.<) {LAST_DAY} THEN {row}.$$e END)"
            );
        }
        DeadlineKind::Seconds(_) => 1,
        DeadlineKind::Milliseconds(_) => 1000,
    };
    let never = NEVER * per_second;
    format!(
        "(CASE WHEN {row}.$$e OPERATOR(pg_catalog.>) 0 AND {row}.$$e OPERATOR(pg_catalog.<) {never} \
         THEN pg_catalog.to_timestamp({row}.$$e::pg_catalog.float8 OPERATOR(pg_catalog./) \
         {per_second}::pg_catalog.float8) END)"
    )
}

/// Returns SQL that writes a timestamptz, or NULL for never, in the form of the column.
fn writing(form: DeadlineForm, moment: &str) -> String {
    match unix_time(form.kind, moment) {
        None if form.nullable => moment.into(),
        None => format!("COALESCE({moment}, {LAST_DAY})"),
        Some(unix_time) => {
            let never = if form.nullable { "NULL" } else { "0" };
            format!("(CASE WHEN {moment} IS NULL THEN {never} ELSE {unix_time} END)")
        }
    }
}

/// Returns SQL that converts a non-NULL timestamptz to a Unix time. The time is rounded up, at least 1, and at most the
/// largest value of the column. Returns None for a column of type timestamptz.
fn unix_time(kind: DeadlineKind, moment: &str) -> Option<String> {
    let (per_second, width) = match kind {
        DeadlineKind::Moment => return None,
        DeadlineKind::Seconds(width) => (1, width),
        DeadlineKind::Milliseconds(width) => (1000, width),
    };
    let (last, cast) = match width {
        Width::Integer => (i64::from(i32::MAX), "::pg_catalog.int4"),
        Width::Bigint => (i64::MAX, "::pg_catalog.int8"),
    };
    Some(format!(
        "GREATEST(LEAST(pg_catalog.ceil(EXTRACT(epoch FROM {moment}) OPERATOR(pg_catalog.*) \
         {per_second}), {last}), 1){cast}"
    ))
}

/// Returns the DEFAULT of a deadline column: `now` plus the ttl.
pub fn default_deadline(form: DeadlineForm, now: &str, ttl: &str) -> String {
    let moment = format!("({now} OPERATOR(pg_catalog.+) '{ttl}'::pg_catalog.interval)");
    unix_time(form.kind, &moment).unwrap_or(moment)
}

/// Returns two SQL expressions. The first is `value + $2` over the stored form of a counter; its function raises 22P02
/// and 22003. The second is `$2` in the stored form. Bytes are escaped for the sum, which changes no integer and
/// accepts bytes that are not text.
fn counter(value: ValueType) -> (&'static str, &'static str) {
    match value {
        ValueType::Text => (
            "pgcache.counter_sum(pgcache_c.$$v, $2)",
            "$2::pg_catalog.text",
        ),
        ValueType::Json => (
            "pgcache.counter_sum(pgcache_c.$$v::pg_catalog.text, $2)::pg_catalog.jsonb",
            "$2::pg_catalog.text::pg_catalog.jsonb",
        ),
        ValueType::Bytes => (
            "pg_catalog.convert_to(pgcache.counter_sum(pg_catalog.encode(pgcache_c.$$v, 'escape'), $2), \
             pg_catalog.getdatabaseencoding())",
            "pg_catalog.convert_to($2::pg_catalog.text, pg_catalog.getdatabaseencoding())",
        ),
    }
}
