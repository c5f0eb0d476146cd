//! Asking a node for a call of one of our functions.
//!
//! Citus delegates a bare call of `pgcache.at_key(key, ...)`, alone in the FROM clause and with a constant key, to the
//! node that has the key, as a write of the transaction. Texts go as `=` and themselves, so that NULL can be told.

use std::cell::RefCell;
use std::ffi::CStr;

use crate::cache::catalog::spread::Spread;
use crate::error::Error;
use crate::pg::catalog::invalidation::Functions;
use crate::pg::catalog::name;
use crate::pg::memory;
use crate::pg::spi::output::Output;
use crate::pg::spi::plan::query_once;
use crate::pg::value::call::TextRow;
use crate::pg::value::datum::Text;

/// Arguments of a call, as texts.
pub type Arguments = Vec<Option<Text>>;

/// What the node of a key answers; None where it does not have it, or cannot be asked from here.
pub fn node_of_key(
    node: i64,
    key: Text,
    function: &str,
    arguments: &Arguments,
    columns: usize,
) -> Option<Vec<TextRow>> {
    let mut sql = b"SELECT r.a FROM pgcache.at_key(".to_vec();
    sql.extend_from_slice(&name::literal(key.bytes()));
    sql.extend_from_slice(format!(", {node}, '{function}', ARRAY[").as_bytes());
    for (at, argument) in arguments.iter().enumerate() {
        if at > 0 {
            sql.push(b',');
        }
        sql.extend_from_slice(&name::literal(&coded(*argument)));
    }
    sql.extend_from_slice(b"]::pg_catalog.text[]) AS r(a)");
    let sql = std::ffi::CString::new(sql).unwrap_or_default();
    let found = query_once(&sql, &[], &[], |output| output.texts(0, 0))?;
    let texts = found.elements("columns").ok()?;
    let row = |row: &[Text]| row.iter().copied().map(decoded).collect();
    Some(texts.chunks(columns.max(1)).map(row).collect())
}

/// A text, or NULL, as it goes between nodes.
pub fn coded(text: Option<Text>) -> Vec<u8> {
    match text {
        None => Vec::new(),
        Some(text) => [b"=", text.bytes()].concat(),
    }
}

/// The text that such a text stands for.
pub fn decoded(coded: Text) -> Option<Text> {
    coded.bytes().strip_prefix(b"=").map(Text::new)
}

/// A call made on this node, on one relation: its rows.
pub fn here(function: &str, arguments: &Arguments) -> Result<Vec<TextRow>, Error> {
    let mut sql: Vec<u8> = b"SELECT x.* FROM ".to_vec();
    match function.starts_with("cache_") {
        true => sql.extend_from_slice(&schema()?),
        false => sql.extend_from_slice(b"pgcache"),
    }
    sql.extend_from_slice(format!(".{function}(").as_bytes());
    for (at, argument) in arguments.iter().enumerate() {
        if at > 0 {
            sql.push(b',');
        }
        match argument {
            None => sql.extend_from_slice(b"NULL"),
            Some(text) => sql.extend_from_slice(&name::literal(text.bytes())),
        }
    }
    sql.extend_from_slice(b") AS x");
    let sql = std::ffi::CString::new(sql).unwrap_or_default();
    Ok(query_once(&sql, &[], &[], rows))
}

thread_local! {
    /// The schema of the functions, quoted, and the state of schemas in which it was found.
    static SCHEMA: RefCell<Option<(Functions, Vec<u8>)>> = const { RefCell::new(None) };
}

/// Where the functions are that a user calls.
fn schema() -> Result<Vec<u8>, Error> {
    let known = SCHEMA.with(|schema| schema.borrow().clone());
    if let Some((found, schema)) = known
        && found == Functions::now()
    {
        return Ok(schema);
    }
    let schema = query_once(SCHEMA_OF_FUNCTIONS, &[], &[], |output| output.text(0, 0));
    let schema = schema.ok_or(Error::DroppedExtension)?.bytes().to_vec();
    SCHEMA.with(|known| *known.borrow_mut() = Some((Functions::now(), schema.clone())));
    Ok(schema)
}

const SCHEMA_OF_FUNCTIONS: &CStr =
    c"SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension AS e \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace \
    WHERE e.extname OPERATOR(pg_catalog.=) 'pgcache'";

fn rows(output: &Output) -> Vec<TextRow> {
    let columns = output.columns();
    memory::collect((0..output.rows()).map(|row| {
        (0..columns)
            .map(|column| output.printed(row, column))
            .collect()
    }))
}

/// The arguments with another relation as the cache.
pub fn on(arguments: &Arguments, place: usize, relation: &CStr) -> Arguments {
    let mut arguments = arguments.clone();
    if let Some(argument) = arguments.get_mut(place) {
        *argument = Some(Text::new(relation.to_bytes()));
    }
    arguments
}

/// Where a cache is named in a call to another node.
pub fn elsewhere(arguments: &Arguments, place: usize, spread: &Spread) -> Arguments {
    on(arguments, place, &spread.name)
}
