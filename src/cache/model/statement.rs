//! The statements over a cache's table, as SQL text.
//!
//! Guards three rules. No name in them is looked up through the caller's search_path: operators,
//! functions and types are qualified. Deadlines are judged by `clock_timestamp()` where a row is
//! judged after its lock was waited for. Every one that finds rows by key reads ONLY this table.
//!
//! Their aliases of the table are those of `hooks::hiding`, so that they find expired rows.

use std::ffi::CString;

use crate::pg::spi::plan::Paths;
use crate::pg::value::datum::ValueType;

/// One of the things that are done with a cache's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statement {
    Get,
    GetMany,
    Set,
    SetMany,
    Add,
    Replace,
    ReplaceIf,
    ReplaceIfAbsent,
    Increment,
    IncrementExisting,
    Touch,
    Persist,
    Delete,
    DeleteIf,
    DeleteMany,
    DeleteAll,
    DeleteIfNegative,
    Keys {
        bounded: bool,
    },
    Scan {
        bounded: bool,
    },
    /// A scan that leaves values where they are.
    ScanKeys {
        bounded: bool,
    },
    Count,
    DeleteExpired,
    Look,
    Expire,
    Census,
    Aged,
    Trim,
}

/// What a statement is told of a key's versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// There is one.
    Plain,
    /// A read shows all, expired ones too, as `value, expires_at, key, xmin, ctid`.
    Versions,
    /// A change is about one row: its address is the last parameter.
    Address,
}

/// A parameter's type.
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
    /// The SQL over a table whose quoted, qualified name is `table`.
    ///
    /// `$$T` stands for the table, `$$V` for the value's type, `$$live` for "pgcache_c is not
    /// expired".
    pub fn sql(self, table: &[u8], value: ValueType, form: Form) -> CString {
        const LIVE: &str = "(pgcache_c.expires_at IS NULL OR pgcache_c.expires_at OPERATOR(pg_catalog.>) \
                            pg_catalog.clock_timestamp())";
        const CHUNK: &str = "pgcache_e.ctid OPERATOR(pg_catalog.>=) $1 AND pgcache_e.ctid OPERATOR(pg_catalog.<) $2";
        const AGE: &str = "GREATEST(pg_catalog.age(pgcache_e.xmin), 0)";
        let text = self
            .template_in(form)
            .replace("$$live", LIVE)
            .replace("$$chunk", CHUNK)
            .replace("$$age", AGE)
            .replace("$$counter", counter(value))
            .replace("$$fresh", fresh_counter(value))
            .replace("$$V", value.sql());
        let parts: Vec<&[u8]> = text.split("$$T").map(str::as_bytes).collect();
        CString::new(parts.join(table)).unwrap_or_default()
    }

    /// How the planner must find the rows: by the primary key, or by their addresses.
    pub fn paths(self) -> Paths {
        match self {
            Statement::Look | Statement::Expire | Statement::Census | Statement::Aged => {
                Paths::Address
            }
            Statement::DeleteAll | Statement::Count => Paths::Any,
            _ => Paths::Index,
        }
    }

    pub fn parameters(self) -> &'static [Parameter] {
        use Parameter::*;
        match self {
            Statement::Get | Statement::Persist => &[Key],
            Statement::Delete | Statement::DeleteIfNegative | Statement::DeleteExpired => &[Key],
            Statement::GetMany | Statement::DeleteMany => &[Keys],
            Statement::DeleteAll | Statement::Count => &[],
            Statement::Set | Statement::Add | Statement::Replace => &[Key, Value, Deadline],
            Statement::SetMany => &[Keys, Values, Deadline],
            Statement::ReplaceIf => &[Key, Value, Deadline, Value],
            Statement::ReplaceIfAbsent => &[Key, Value, Deadline],
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
            Statement::Look => &[Address, Address, Deadline],
            Statement::Expire => &[Address, Address, Deadline, Number],
            Statement::Census => &[Address, Address],
            Statement::Aged => &[Address, Address, Number],
            Statement::Trim => &[Keys, Number],
        }
    }

    fn template_in(self, form: Form) -> String {
        const NO_VALUE: &str = "NULL::$$V";
        const BY_KEY: &str = "pgcache_c.key OPERATOR(pg_catalog.=) $1";
        let template = self.template();
        match form {
            Form::Plain => template.into(),
            Form::Versions => {
                let rows = template.split_once(" FROM ").map_or("", |(_, rows)| rows);
                let rows = rows.replace(" AND $$live", "");
                let value = match self {
                    Statement::ScanKeys { .. } => NO_VALUE,
                    _ => "pgcache_c.value",
                };
                format!(
                    "SELECT {value}, pgcache_c.expires_at, pgcache_c.key, pgcache_c.xmin, pgcache_c.ctid FROM {rows}"
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
                "SELECT pgcache_c.value, pgcache_c.expires_at FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1"
            }
            Statement::GetMany => {
                "SELECT pgcache_c.value, pgcache_c.expires_at, pgcache_c.key FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) ANY ($1)"
            }
            Statement::Set => {
                "INSERT INTO $$T AS pgcache_c (key, value, expires_at) VALUES ($1, $2, $3) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value, \
                 expires_at = excluded.expires_at"
            }
            Statement::SetMany => {
                "INSERT INTO $$T AS pgcache_c (key, value, expires_at) SELECT e.k, e.v, $3 \
                 FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS e (k, v) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value, \
                 expires_at = excluded.expires_at"
            }
            Statement::Add => {
                "INSERT INTO $$T AS pgcache_c (key, value, expires_at) VALUES ($1, $2, $3) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value, \
                 expires_at = excluded.expires_at WHERE NOT $$live"
            }
            Statement::Replace => {
                "UPDATE ONLY $$T AS pgcache_c SET value = $2, expires_at = $3 \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live"
            }
            Statement::ReplaceIf => {
                "UPDATE ONLY $$T AS pgcache_c SET value = $2, expires_at = $3 \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live \
                 AND pgcache_c.value OPERATOR(pg_catalog.=) $4"
            }
            Statement::ReplaceIfAbsent => {
                "INSERT INTO $$T AS pgcache_c (key, value, expires_at) VALUES ($1, $2, $3) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value, \
                 expires_at = excluded.expires_at WHERE NOT $$live OR pgcache_c.value IS NULL"
            }
            Statement::Increment => {
                // The clock is read once, or the deadline could pass between the two columns.
                "INSERT INTO $$T AS pgcache_c (key, value, expires_at) VALUES ($1, $$fresh, $3) \
                 ON CONFLICT (key) DO UPDATE SET (value, expires_at) = (\
                 SELECT CASE WHEN n.live AND pgcache_c.value IS NOT NULL THEN $$counter \
                 ELSE excluded.value END, \
                 CASE WHEN n.live THEN pgcache_c.expires_at ELSE excluded.expires_at END \
                 FROM (SELECT $$live AS live OFFSET 0) AS n) \
                 RETURNING pgcache_c.value"
            }
            Statement::IncrementExisting => {
                "UPDATE ONLY $$T AS pgcache_c SET value = CASE WHEN pgcache_c.value IS NULL THEN $$fresh \
                 ELSE $$counter END \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live RETURNING pgcache_c.value"
            }
            Statement::Touch => {
                "UPDATE ONLY $$T AS pgcache_c SET expires_at = $2 \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live RETURNING pgcache_c.value, pgcache_c.expires_at"
            }
            Statement::Persist => {
                "UPDATE ONLY $$T AS pgcache_c SET expires_at = NULL \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live"
            }
            Statement::Delete => {
                "DELETE FROM ONLY $$T AS pgcache_c WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 \
                 RETURNING pgcache_c.value, pgcache_c.expires_at"
            }
            Statement::DeleteMany => {
                "DELETE FROM ONLY $$T AS pgcache_c WHERE pgcache_c.key OPERATOR(pg_catalog.=) ANY ($1)"
            }
            Statement::DeleteAll => "DELETE FROM ONLY $$T AS pgcache_c",
            Statement::DeleteIf => {
                "DELETE FROM ONLY $$T AS pgcache_c WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live \
                 AND pgcache_c.value OPERATOR(pg_catalog.=) $2"
            }
            Statement::DeleteIfNegative => {
                "DELETE FROM ONLY $$T AS pgcache_c WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND $$live \
                 AND pgcache_c.value IS NULL"
            }
            Statement::DeleteExpired => {
                "DELETE FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.=) $1 AND NOT $$live"
            }
            Statement::Keys { bounded: true } => {
                "SELECT pgcache_c.key FROM ONLY $$T AS pgcache_c WHERE pgcache_c.key OPERATOR(pg_catalog.>=) $1 \
                 AND pgcache_c.key OPERATOR(pg_catalog.<) $2 ORDER BY pgcache_c.key"
            }
            Statement::Keys { bounded: false } => {
                "SELECT pgcache_c.key FROM ONLY $$T AS pgcache_c WHERE pgcache_c.key OPERATOR(pg_catalog.>=) $1 \
                 ORDER BY pgcache_c.key"
            }
            Statement::Scan { bounded: true } => {
                "SELECT pgcache_c.value, pgcache_c.expires_at, pgcache_c.key FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.>=) $1 AND pgcache_c.key OPERATOR(pg_catalog.<>) $2 \
                 AND pgcache_c.key OPERATOR(pg_catalog.<) $4 AND $$live ORDER BY pgcache_c.key LIMIT $3"
            }
            Statement::Scan { bounded: false } => {
                "SELECT pgcache_c.value, pgcache_c.expires_at, pgcache_c.key FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.>=) $1 AND pgcache_c.key OPERATOR(pg_catalog.<>) $2 \
                 AND $$live ORDER BY pgcache_c.key LIMIT $3"
            }
            Statement::ScanKeys { bounded: true } => {
                "SELECT NULL::$$V, pgcache_c.expires_at, pgcache_c.key FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.>=) $1 AND pgcache_c.key OPERATOR(pg_catalog.<>) $2 \
                 AND pgcache_c.key OPERATOR(pg_catalog.<) $4 AND $$live ORDER BY pgcache_c.key LIMIT $3"
            }
            Statement::ScanKeys { bounded: false } => {
                "SELECT NULL::$$V, pgcache_c.expires_at, pgcache_c.key FROM ONLY $$T AS pgcache_c \
                 WHERE pgcache_c.key OPERATOR(pg_catalog.>=) $1 AND pgcache_c.key OPERATOR(pg_catalog.<>) $2 \
                 AND $$live ORDER BY pgcache_c.key LIMIT $3"
            }
            Statement::Count => "SELECT pg_catalog.count(*) FROM ONLY $$T AS pgcache_c WHERE $$live",
            Statement::Look => {
                "SELECT pg_catalog.count(*) FILTER (WHERE pgcache_e.expires_at IS NULL \
                 OR pgcache_e.expires_at OPERATOR(pg_catalog.>) $3), \
                 pg_catalog.count(*) FILTER (WHERE pgcache_e.expires_at OPERATOR(pg_catalog.<=) $3), \
                 pg_catalog.min(pgcache_e.expires_at), \
                 pg_catalog.min(pgcache_e.expires_at) FILTER (WHERE pgcache_e.expires_at OPERATOR(pg_catalog.>) $3) \
                 FROM ONLY $$T AS pgcache_e WHERE $$chunk"
            }
            Statement::Expire => {
                "DELETE FROM ONLY $$T AS pgcache_c WHERE pgcache_c.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(\
                 SELECT pgcache_e.ctid FROM ONLY $$T AS pgcache_e WHERE $$chunk \
                 AND pgcache_e.expires_at OPERATOR(pg_catalog.<=) $3 LIMIT $4 FOR UPDATE SKIP LOCKED))"
            }
            Statement::Census => {
                "SELECT pg_catalog.floor(pg_catalog.ln($$age::pg_catalog.float8 \
                 OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) 64)::pg_catalog.int8, \
                 pg_catalog.count(*) FROM ONLY $$T AS pgcache_e WHERE $$chunk GROUP BY 1"
            }
            Statement::Aged => {
                "SELECT pgcache_e.key FROM ONLY $$T AS pgcache_e WHERE $$chunk AND $$age OPERATOR(pg_catalog.>=) $3"
            }
            Statement::Trim => {
                "DELETE FROM ONLY $$T AS pgcache_c WHERE pgcache_c.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(\
                 SELECT pgcache_e.ctid FROM ONLY $$T AS pgcache_e WHERE pgcache_e.key OPERATOR(pg_catalog.=) ANY ($1) \
                 AND $$age OPERATOR(pg_catalog.>=) $2 FOR UPDATE SKIP LOCKED))"
            }
        }
    }
}

/// `value + $2` over the stored form of a counter; the function raises 22P02 and 22003.
fn counter(value: ValueType) -> &'static str {
    match value {
        ValueType::Text => "pgcache.counter_sum(pgcache_c.value, $2)",
        ValueType::Json => {
            "pgcache.counter_sum(pgcache_c.value::pg_catalog.text, $2)::pg_catalog.jsonb"
        }
        ValueType::Bytes => {
            "pg_catalog.convert_to(pgcache.counter_sum(pg_catalog.convert_from(pgcache_c.value, \
             pg_catalog.getdatabaseencoding()), $2), pg_catalog.getdatabaseencoding())"
        }
    }
}

/// `$2` in the stored form of a counter.
fn fresh_counter(value: ValueType) -> &'static str {
    match value {
        ValueType::Text => "$2::pg_catalog.text",
        ValueType::Json => "$2::pg_catalog.text::pg_catalog.jsonb",
        ValueType::Bytes => {
            "pg_catalog.convert_to($2::pg_catalog.text, pg_catalog.getdatabaseencoding())"
        }
    }
}
