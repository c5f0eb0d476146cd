//! The statements over a cache's table, as SQL text.
//!
//! Three rules hold. Every operator, function and type is qualified, so that the caller's search_path resolves none of
//! them. A statement that waits for a lock on a row compares the row's deadline with `clock_timestamp()` afterwards. A
//! statement that finds rows by key reads ONLY this table, or its partitions if it is partitioned.
//!
//! The statements name the table by the aliases that `pg::hooks::expired_rows` recognizes, so that they find expired
//! rows.

use std::ffi::CString;

use super::dialect::Dialect;
use crate::pg::spi::plan::Paths;

/// A statement over a cache's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statement {
    Get,
    /// Reads a row and keeps other sessions from changing it.
    Lock,
    GetMany,
    Set,
    SetMany,
    Add,
    Replace,
    Increment,
    IncrementExisting,
    Touch,
    Delete,
    DeleteIf,
    DeleteMany,
    DeleteAll,
    Keys {
        bounded: bool,
    },
    Scan {
        bounded: bool,
    },
    /// Scans without reading values.
    ScanKeys {
        bounded: bool,
    },
    Count,
    /// Returns the first live key in this block or a later block.
    KeyFrom,
    /// Returns the live keys of a range of blocks.
    KeysOfBlocks,
    DeleteExpired,
    IsExpired,
    Look,
    /// Counts the live rows of a chunk, its expired rows, and its live rows with a deadline, whose remaining times it
    /// sums.
    Tally,
    /// Sums the bytes of the live rows of a chunk.
    Weigh,
    Expire,
    /// Counts the rows of a chunk by class of age. If `weighed` is true, also sums their bytes.
    Census {
        weighed: bool,
    },
    /// Returns the keys of the rows of a chunk that have at least the given age. If `weighed` is true, also returns the
    /// bytes of each row.
    Aged {
        weighed: bool,
    },
    Trim,
}

/// The form of a statement, which depends on whether a key may have several versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// One version.
    Plain,
    /// A read returns all versions, expired ones too, as `value, expires_at, key, xmin, ctid`.
    Versions,
    /// A change applies to one row, whose address is the last parameter.
    Address,
}

/// A parameter of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    Key,
    Keys,
    Value,
    Values,
    Deadline,
    Number,
    /// The address of a row.
    Address,
}

impl Statement {
    /// Returns the SQL over a table whose quoted, qualified name is `table`.
    ///
    /// In a template `$$T` stands for the table and `$$live` for "pgcache_c is not expired"; the other names are
    /// pieces of the table's [`Dialect`].
    pub fn sql(self, table: &[u8], dialect: &Dialect, form: Form) -> CString {
        const CHUNK: &str = "pgcache_e.ctid OPERATOR(pg_catalog.>=) $1 AND pgcache_e.ctid OPERATOR(pg_catalog.<) $2";
        const AGE: &str = "GREATEST(pg_catalog.age(pgcache_e.xmin), 0)";
        // The bytes of a row. The number is the bytes besides its key and value: header, line pointer, deadline.
        const BYTES: &str = "(pg_catalog.pg_column_size(pgcache_e.$$k) \
             OPERATOR(pg_catalog.+) COALESCE(pg_catalog.pg_column_size(pgcache_e.$$v), 0) \
             OPERATOR(pg_catalog.+) 36)";
        let text = self
            .template_in(form)
            .replace("$$bytes", BYTES)
            .replace("$$chunk", CHUNK)
            .replace("$$age", AGE);
        CString::new(dialect.expand(&text, table)).unwrap_or_default()
    }

    /// Returns the way in which the planner must find the rows: by index, by address, or in any way.
    pub fn paths(self) -> Paths {
        match self {
            Statement::Look
            | Statement::Tally
            | Statement::Weigh
            | Statement::Expire
            | Statement::Census { .. }
            | Statement::Aged { .. }
            | Statement::KeyFrom
            | Statement::KeysOfBlocks => Paths::Address,
            Statement::DeleteAll | Statement::Count => Paths::Any,
            _ => Paths::Index,
        }
    }

    pub fn parameters(self) -> &'static [Parameter] {
        use Parameter::*;
        match self {
            Statement::Get | Statement::Lock | Statement::Delete => &[Key],
            Statement::DeleteExpired | Statement::IsExpired => &[Key],
            Statement::GetMany | Statement::DeleteMany => &[Keys],
            Statement::DeleteAll | Statement::Count => &[],
            Statement::Set | Statement::Add | Statement::Replace => &[Key, Value, Deadline],
            Statement::SetMany => &[Keys, Values, Deadline],
            Statement::Increment => &[Key, Number, Deadline],
            Statement::IncrementExisting => &[Key, Number],
            Statement::Touch => &[Key, Deadline],
            Statement::DeleteIf => &[Key, Value],
            Statement::Keys { bounded: true } => &[Key, Key],
            Statement::Keys { bounded: false } => &[Key],
            Statement::Scan { bounded: true } | Statement::ScanKeys { bounded: true } => {
                &[Key, Key, Number, Key]
            }
            Statement::Scan { bounded: false } | Statement::ScanKeys { bounded: false } => {
                &[Key, Key, Number]
            }
            Statement::KeyFrom => &[Address],
            Statement::KeysOfBlocks => &[Address, Address],
            Statement::Look | Statement::Tally | Statement::Weigh => &[Address, Address, Deadline],
            Statement::Expire => &[Address, Address, Deadline, Number],
            Statement::Census { .. } => &[Address, Address],
            Statement::Aged { .. } => &[Address, Address, Number],
            Statement::Trim => &[Keys, Number],
        }
    }

    fn template_in(self, form: Form) -> String {
        const BY_KEY: &str = "pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1";
        let template = self.template();
        match form {
            Form::Plain => template.into(),
            Form::Versions => {
                let rows = template.split_once(" FROM ").map_or("", |(_, rows)| rows);
                let rows = rows.replace(" AND $$live", "");
                let value = match self {
                    Statement::ScanKeys { .. } => "$$novalue",
                    _ => "$$value",
                };
                format!(
                    "SELECT {value}, $$until, $$key, pgcache_c.xmin, pgcache_c.ctid FROM {rows}"
                )
            }
            Form::Address => {
                let number = self.parameters().len() + 1;
                let by_both =
                    format!("{BY_KEY} AND pgcache_c.ctid OPERATOR(pg_catalog.=) ${number}");
                template.replace(BY_KEY, &by_both)
            }
        }
    }

    fn template(self) -> &'static str {
        match self {
            Statement::Get => {
                "SELECT $$value, $$until FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1"
            }
            Statement::Lock => {
                "SELECT $$value, $$until FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 FOR NO KEY UPDATE"
            }
            Statement::GetMany => {
                "SELECT $$value, $$until, $$key FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) ANY ($$keys)"
            }
            Statement::Set => {
                "INSERT INTO $$T AS pgcache_c ($$k, $$v, $$e) VALUES ($$key1, $$value2, $$until3) \
                 ON CONFLICT ($$k) DO UPDATE SET $$v = excluded.$$v, \
                 $$e = excluded.$$e"
            }
            Statement::SetMany => {
                "INSERT INTO $$T AS pgcache_c ($$k, $$v, $$e) SELECT $$keyin, $$valuein, $$until3 \
                 FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS e (k, v) \
                 ON CONFLICT ($$k) DO UPDATE SET $$v = excluded.$$v, \
                 $$e = excluded.$$e"
            }
            Statement::Add => {
                "INSERT INTO $$T AS pgcache_c ($$k, $$v, $$e) VALUES ($$key1, $$value2, $$until3) \
                 ON CONFLICT ($$k) DO UPDATE SET $$v = excluded.$$v, \
                 $$e = excluded.$$e WHERE NOT $$live"
            }
            Statement::Replace => {
                "UPDATE $$only$$T AS pgcache_c SET $$v = $$value2, $$e = $$until3 \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 AND $$live"
            }
            Statement::Increment => {
                // Read the clock once; otherwise the deadline could pass between the two columns.
                "INSERT INTO $$T AS pgcache_c ($$k, $$v, $$e) VALUES ($$key1, $$fresh, $$until3) \
                 ON CONFLICT ($$k) DO UPDATE SET ($$v, $$e) = (\
                 SELECT CASE WHEN n.live AND pgcache_c.$$v IS NOT NULL THEN $$counter \
                 ELSE excluded.$$v END, \
                 CASE WHEN n.live THEN pgcache_c.$$e ELSE excluded.$$e END \
                 FROM (SELECT $$live AS live OFFSET 0) AS n) \
                 RETURNING $$value"
            }
            Statement::IncrementExisting => {
                "UPDATE $$only$$T AS pgcache_c SET $$v = CASE WHEN pgcache_c.$$v IS NULL THEN $$fresh \
                 ELSE $$counter END \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 AND $$live RETURNING $$value"
            }
            Statement::Touch => {
                "UPDATE $$only$$T AS pgcache_c SET $$e = $$until2 \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 AND $$live RETURNING $$value, $$until"
            }
            Statement::Delete => {
                "DELETE FROM $$only$$T AS pgcache_c WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 \
                 RETURNING $$value, $$until"
            }
            Statement::DeleteMany => {
                "DELETE FROM $$only$$T AS pgcache_c WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) ANY ($$keys)"
            }
            Statement::DeleteAll => "DELETE FROM $$only$$T AS pgcache_c",
            Statement::DeleteIf => {
                "DELETE FROM $$only$$T AS pgcache_c WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 AND $$live \
                 AND ($$equal OPERATOR(pg_catalog.=) $2 OR $2 IS NULL AND pgcache_c.$$v IS NULL)"
            }
            Statement::DeleteExpired => {
                "DELETE FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 AND NOT $$live"
            }
            Statement::IsExpired => {
                "SELECT FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.$$k OPERATOR(pg_catalog.=) $$key1 AND NOT $$live"
            }
            Statement::Keys { bounded: true } => {
                "SELECT $$key, pgcache_c.xmin::pg_catalog.text FROM $$only$$T AS pgcache_c WHERE $$order OPERATOR(pg_catalog.>=) $$from1 \
                 AND $$order OPERATOR(pg_catalog.<) $2 ORDER BY $$order"
            }
            Statement::Keys { bounded: false } => {
                "SELECT $$key, pgcache_c.xmin::pg_catalog.text FROM $$only$$T AS pgcache_c WHERE $$order OPERATOR(pg_catalog.>=) $$from1 \
                 ORDER BY $$order"
            }
            Statement::Scan { bounded: true } => {
                "SELECT $$value, $$until, $$key FROM $$only$$T AS pgcache_c \
                 WHERE $$order OPERATOR(pg_catalog.>=) $$from1 AND $$behind2 \
                 AND $$order OPERATOR(pg_catalog.<) $4 AND $$live ORDER BY $$order LIMIT $3"
            }
            Statement::Scan { bounded: false } => {
                "SELECT $$value, $$until, $$key FROM $$only$$T AS pgcache_c \
                 WHERE $$order OPERATOR(pg_catalog.>=) $$from1 AND $$behind2 \
                 AND $$live ORDER BY $$order LIMIT $3"
            }
            Statement::ScanKeys { bounded: true } => {
                "SELECT $$novalue, $$until, $$key FROM $$only$$T AS pgcache_c \
                 WHERE $$order OPERATOR(pg_catalog.>=) $$from1 AND $$behind2 \
                 AND $$order OPERATOR(pg_catalog.<) $4 AND $$live ORDER BY $$order LIMIT $3"
            }
            Statement::ScanKeys { bounded: false } => {
                "SELECT $$novalue, $$until, $$key FROM $$only$$T AS pgcache_c \
                 WHERE $$order OPERATOR(pg_catalog.>=) $$from1 AND $$behind2 \
                 AND $$live ORDER BY $$order LIMIT $3"
            }
            Statement::Count => {
                "SELECT pg_catalog.count(*) FROM $$only$$T AS pgcache_c WHERE $$named AND $$live"
            }
            Statement::KeyFrom => {
                "SELECT $$key FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.ctid OPERATOR(pg_catalog.>=) $1 AND $$live LIMIT 1"
            }
            Statement::KeysOfBlocks => {
                "SELECT $$key FROM $$only$$T AS pgcache_c \
                 WHERE pgcache_c.ctid OPERATOR(pg_catalog.>=) $1 \
                 AND pgcache_c.ctid OPERATOR(pg_catalog.<) $2 AND $$live"
            }
            Statement::Look => {
                "SELECT pg_catalog.count(*) FILTER (WHERE $$euntil IS NULL \
                 OR $$euntil OPERATOR(pg_catalog.>) $3), \
                 pg_catalog.count(*) FILTER (WHERE $$euntil OPERATOR(pg_catalog.<=) $3), \
                 pg_catalog.min($$euntil), \
                 pg_catalog.min($$euntil) FILTER (WHERE $$euntil OPERATOR(pg_catalog.>) $3) \
                 FROM $$only$$T AS pgcache_e WHERE $$chunk"
            }
            Statement::Tally => {
                "SELECT pg_catalog.count(*) FILTER (WHERE $$euntil IS NULL \
                 OR $$euntil OPERATOR(pg_catalog.>) $3), \
                 pg_catalog.count(*) FILTER (WHERE $$euntil OPERATOR(pg_catalog.<=) $3), \
                 pg_catalog.count(*) FILTER (WHERE $$euntil OPERATOR(pg_catalog.>) $3 \
                 AND pg_catalog.isfinite($$euntil)), \
                 pg_catalog.sum(pg_catalog.date_part('epoch', $$euntil) \
                 OPERATOR(pg_catalog.-) pg_catalog.date_part('epoch', $3)) \
                 FILTER (WHERE $$euntil OPERATOR(pg_catalog.>) $3 AND pg_catalog.isfinite($$euntil))::pg_catalog.int8 \
                 FROM $$only$$T AS pgcache_e WHERE $$chunk"
            }
            Statement::Expire => {
                "DELETE FROM $$only$$T AS pgcache_c WHERE pgcache_c.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(\
                 SELECT pgcache_e.ctid FROM $$only$$T AS pgcache_e WHERE $$chunk \
                 AND $$euntil OPERATOR(pg_catalog.<=) $3 LIMIT $4 FOR UPDATE SKIP LOCKED))"
            }
            Statement::Weigh => {
                "SELECT pg_catalog.sum($$bytes)::pg_catalog.int8 FROM $$only$$T AS pgcache_e \
                 WHERE $$chunk AND ($$euntil IS NULL OR $$euntil OPERATOR(pg_catalog.>) $3)"
            }
            Statement::Census { weighed: false } => {
                "SELECT pg_catalog.floor(pg_catalog.ln($$age::pg_catalog.float8 \
                 OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) 64)::pg_catalog.int8, \
                 pg_catalog.count(*) FROM $$only$$T AS pgcache_e WHERE $$chunk GROUP BY 1"
            }
            Statement::Census { weighed: true } => {
                "SELECT pg_catalog.floor(pg_catalog.ln($$age::pg_catalog.float8 \
                 OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) 64)::pg_catalog.int8, \
                 pg_catalog.count(*), pg_catalog.sum($$bytes)::pg_catalog.int8 \
                 FROM $$only$$T AS pgcache_e WHERE $$chunk GROUP BY 1"
            }
            Statement::Aged { weighed: false } => {
                "SELECT $$ekey FROM $$only$$T AS pgcache_e WHERE $$chunk AND $$age OPERATOR(pg_catalog.>=) $3"
            }
            Statement::Aged { weighed: true } => {
                "SELECT $$ekey, $$bytes::pg_catalog.int8 FROM $$only$$T AS pgcache_e \
                 WHERE $$chunk AND $$age OPERATOR(pg_catalog.>=) $3"
            }
            Statement::Trim => {
                "DELETE FROM $$only$$T AS pgcache_c WHERE pgcache_c.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(\
                 SELECT pgcache_e.ctid FROM $$only$$T AS pgcache_e WHERE pgcache_e.$$k OPERATOR(pg_catalog.=) ANY ($$keys) \
                 AND $$age OPERATOR(pg_catalog.>=) $2 FOR UPDATE SKIP LOCKED))"
            }
        }
    }
}
