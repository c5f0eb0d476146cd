//! Sends a call of a pgcache function to another node of Citus, and runs calls on the shards of this node.
//!
//! Citus delegates a call of `pgcache.at_key(key, ...)` to the node that has the key, if the call is the only element
//! of the FROM clause and its key is a constant. The call counts as a write of the transaction. A text argument is sent
//! as `=` and the text, so that an empty text differs from NULL.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use pgrx::pg_sys::{Oid, TEXTOID};

use crate::cache::catalog::shard_metadata::Spread;
use crate::error::Error;
use crate::pg::catalog::invalidation::Functions;
use crate::pg::catalog::name;
use crate::pg::memory;
use crate::pg::session::temporary_settings::Held;
use crate::pg::spi::output::Output;
use crate::pg::spi::plan::{Paths, Plan, query_once};
use crate::pg::value::call::TextRow;
use crate::pg::value::datum::Text;
use crate::pg::value::typed::Typed;

/// The arguments of a call, as texts.
pub type Arguments = Vec<Option<Text>>;

/// Returns the answer of a key's node. Returns None if that node does not have the key, or cannot be reached from this
/// node.
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
    // Citus deparses the call as if a backslash were an ordinary character.
    let _literals = literals();
    let found = query_once(&sql, &[], &[], |output| output.texts(0, 0))?;
    let texts = found.elements("columns").ok()?;
    let row = |row: &[Text]| row.iter().copied().map(decoded).collect();
    Some(texts.chunks(columns.max(1)).map(row).collect())
}

/// Encodes a text, or NULL, for another node.
pub fn coded(text: Option<Text>) -> Vec<u8> {
    match text {
        None => Vec::new(),
        Some(text) => [b"=", text.bytes()].concat(),
    }
}

/// Decodes a text, or NULL, that another node has encoded.
pub fn decoded(coded: Text) -> Option<Text> {
    coded.bytes().strip_prefix(b"=").map(Text::new)
}

/// Runs a call on this node, on one relation, and returns its rows. Each argument has the declared type, so that
/// Postgres resolves the call to pgcache's function and never to a user-defined function with the same name. The plan
/// is kept, because a call on all entries visits each shard.
pub fn here(function: &'static str, arguments: &Arguments) -> Result<Vec<TextRow>, Error> {
    let plan = declared(function, arguments.len())?;
    let arguments: Vec<Typed> = arguments.iter().copied().map(Typed::from).collect();
    Ok(plan.run(&arguments, rows))
}

/// Makes a backslash in a literal an ordinary character while the returned value lives.
pub fn literals() -> Held {
    Held::set(c"standard_conforming_strings", c"on")
}

/// The plan of a call, built from the declaration of its function.
struct Declared {
    /// The state of functions and schemas when the declaration was read.
    found: Functions,
    plan: Rc<Plan>,
}

thread_local! {
    /// Never dropped, like the registry of caches.
    static DECLARED: ManuallyDrop<RefCell<BTreeMap<&'static str, Declared>>> = ManuallyDrop::default();
}

/// Returns the plan of a call of the extension's function with this name and number of arguments. The arguments are
/// texts.
fn declared(function: &'static str, arguments: usize) -> Result<Rc<Plan>, Error> {
    let is_current = |known: &&Declared| known.found == Functions::now();
    let known = |known: &Declared| Rc::clone(&known.plan);
    if let Some(plan) =
        DECLARED.with(|all| all.borrow().get(function).filter(is_current).map(known))
    {
        return Ok(plan);
    }
    let sql =
        format!("{DECLARATION} '{function}' AND p.pronargs OPERATOR(pg_catalog.=) {arguments}");
    let sql = std::ffi::CString::new(sql).unwrap_or_default();
    let found = query_once(&sql, &[], &[], |output| {
        Some((output.text(0, 0)?, output.texts(0, 1)?))
    });
    let (name, types) = found.ok_or(Error::DroppedExtension)?;
    let found = Functions::now();
    let mut sql: Vec<u8> = b"SELECT x.* FROM ".to_vec();
    sql.extend_from_slice(name.bytes());
    for (at, of) in types.elements("types")?.into_iter().enumerate() {
        sql.push(if at == 0 { b'(' } else { b',' });
        sql.extend_from_slice(&read_as(at + 1, of.bytes()));
    }
    sql.extend_from_slice(b") AS x");
    let sql = std::ffi::CString::new(sql).unwrap_or_default();
    let plan = Rc::new(Plan::prepare(&sql, &vec![TEXTOID; arguments], Paths::Any));
    let declared = Declared {
        found,
        plan: Rc::clone(&plan),
    };
    let former = DECLARED.with(|all| all.borrow_mut().insert(function, declared));
    drop(former);
    Ok(plan)
}

/// Returns an expression that reads a text parameter as a value of this type. For regclass it calls the input
/// function, because a cast from text treats numbers differently.
fn read_as(parameter: usize, of: &[u8]) -> Vec<u8> {
    match of {
        b"pg_catalog.regclass" => {
            format!("pg_catalog.regclassin(pg_catalog.textout(${parameter}))").into_bytes()
        }
        _ => [format!("${parameter}::").as_bytes(), of].concat(),
    }
}

const DECLARATION: &str = "SELECT pg_catalog.concat(pg_catalog.quote_ident(n.nspname), '.', pg_catalog.quote_ident(p.proname)), \
    ARRAY(SELECT pg_catalog.concat('pg_catalog.', pg_catalog.quote_ident(t.typname)) \
    FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS a(type, place) \
    JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.type ORDER BY a.place) \
    FROM pg_catalog.pg_proc AS p \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
    JOIN pg_catalog.pg_depend AS d ON d.objid OPERATOR(pg_catalog.=) p.oid \
    AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass \
    AND d.deptype OPERATOR(pg_catalog.=) 'e' \
    JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid \
    AND e.extname OPERATOR(pg_catalog.=) 'pgcache' WHERE p.proname OPERATOR(pg_catalog.=)";

/// Returns the relation with this name, resolved as for the caller. Raises 42P01 if the relation does not exist, as the
/// function itself does.
pub fn relation(name: Text) -> Option<Oid> {
    let mut sql = b"SELECT ".to_vec();
    sql.extend_from_slice(&name::literal(name.bytes()));
    sql.extend_from_slice(b"::pg_catalog.regclass::pg_catalog.oid");
    let sql = std::ffi::CString::new(sql).unwrap_or_default();
    let _literals = literals();
    query_once(&sql, &[], &[], |output| output.oid(0, 0))
}

fn rows(output: &Output) -> Vec<TextRow> {
    let columns = output.columns();
    memory::collect((0..output.rows()).map(|row| {
        (0..columns)
            .map(|column| output.printed(row, column))
            .collect()
    }))
}

/// Returns the arguments with this relation in the position `place`, which names the cache.
pub fn on(arguments: &Arguments, place: usize, relation: &CStr) -> Arguments {
    let mut arguments = arguments.clone();
    if let Some(argument) = arguments.get_mut(place) {
        *argument = Some(Text::new(relation.to_bytes()));
    }
    arguments
}

/// Returns the arguments with the qualified name of the cache, which resolves to the cache on every node.
pub fn elsewhere(arguments: &Arguments, place: usize, spread: &Spread) -> Arguments {
    on(arguments, place, &spread.name)
}
