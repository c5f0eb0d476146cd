//! Parses and quotes SQL names, and finds the schema in which a new relation is created.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use crate::error::Error;
use crate::pg::value::datum::{Text, Value};

/// The name of a relation that is to be created.
pub struct NewRelation {
    pub schema: pg_sys::Oid,
    /// The bare name, folded, truncated to 63 bytes, in the server's encoding.
    pub name: CString,
    /// `schema.name`, quoted.
    pub qualified: CString,
    /// How the name differs from the given name; None if they are equal.
    pub change: Option<NameChange>,
}

/// Why a name differs from the given name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NameChange {
    /// The name had no quotes, so Postgres folded its letters to lower case.
    Folded,
    /// The name was longer than Postgres allows.
    Truncated,
}

/// Parses the name of a new relation as SQL does: the name may be qualified or quoted, and unquoted letters fold to
/// lower case.
///
/// Raises 42602 for a malformed name, 3F000 for a missing schema, 42501 without CREATE on the schema, and 42P16 for the
/// schema of temporary tables.
pub fn parse_new_relation(text: Text) -> NewRelation {
    // SAFETY: textToQualifiedNameList returns a list of at least one name; everything is palloc'd in the call's
    // memory context and copied out.
    unsafe {
        let names = pg_sys::textToQualifiedNameList(text.raw().cast_mut_ptr());
        let range = pg_sys::makeRangeVarFromNameList(names);
        // Makes the next call refuse pg_temp, because a cache must be visible to other sessions.
        (*range).relpersistence = pg_sys::RELPERSISTENCE_UNLOGGED as i8;
        let schema = pg_sys::RangeVarGetAndCheckCreationNamespace(
            range,
            pg_sys::NoLock as i32,
            std::ptr::null_mut(),
        );
        let mut name = CStr::from_ptr((*range).relname).to_bytes().to_vec();
        name.truncate(longest_prefix(&name));
        let change = change_of(text.bytes(), &name);
        let name = CString::new(name).unwrap_or_default();
        let qualified =
            pg_sys::quote_qualified_identifier(pg_sys::get_namespace_name(schema), name.as_ptr());
        NewRelation {
            schema,
            name,
            qualified: CStr::from_ptr(qualified).to_owned(),
            change,
        }
    }
}

/// Returns how `name`, as Postgres parsed it, differs from the last name in the text; None if they are equal.
fn change_of(text: &[u8], name: &[u8]) -> Option<NameChange> {
    let given = last_name(text);
    match given.len() > name.len() {
        true => Some(NameChange::Truncated),
        false => (given != name).then_some(NameChange::Folded),
    }
}

/// Returns the last of several names separated by dots, without its quotes. Searching for single bytes is safe: in
/// every server encoding, the bytes of quotes, dots and spaces encode only these characters.
fn last_name(text: &[u8]) -> Vec<u8> {
    let mut quoted = false;
    let is_dot = |&byte: &u8| {
        quoted ^= byte == b'"';
        byte == b'.' && !quoted
    };
    let last = text.split(is_dot).next_back().unwrap_or_default();
    let last = last.trim_ascii();
    match last
        .strip_prefix(b"\"")
        .and_then(|name| name.strip_suffix(b"\""))
    {
        Some(inside) => without_doubled_quotes(inside),
        None => last.to_vec(),
    }
}

fn without_doubled_quotes(name: &[u8]) -> Vec<u8> {
    let mut after_quote = false;
    let keeps = |byte: &u8| {
        after_quote = *byte == b'"' && !after_quote;
        *byte != b'"' || after_quote
    };
    name.iter().copied().filter(keeps).collect()
}

/// Returns the length in bytes to which Postgres truncates a name, at the end of a character.
fn longest_prefix(name: &[u8]) -> usize {
    // SAFETY: reads at most name.len() bytes, clipped to NAMEDATALEN - 1.
    unsafe {
        pg_sys::pg_mbcliplen(
            name.as_ptr().cast(),
            name.len() as i32,
            pg_sys::NAMEDATALEN as i32 - 1,
        ) as usize
    }
}

/// Returns the relation that SQL would find under this name; None if no relation has the name. Raises 42602 for a
/// malformed name, and 0A000 for a name in another database.
pub fn relation_named(text: Text) -> Option<pg_sys::Oid> {
    let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
    // SAFETY: textToQualifiedNameList returns a list of at least one name; everything is palloc'd in the call's memory
    // context. The call takes no lock and calls no callback.
    let relation = unsafe {
        let names = pg_sys::textToQualifiedNameList(text.raw().cast_mut_ptr());
        let range = pg_sys::makeRangeVarFromNameList(names);
        let lock = pg_sys::NoLock as i32;
        pg_sys::RangeVarGetRelidExtended(range, lock, missing_ok, None, std::ptr::null_mut())
    };
    (relation != pg_sys::InvalidOid).then_some(relation)
}

/// Returns the relation that already has the new relation's schema and name, if one exists.
pub fn lookup(new: &NewRelation) -> Option<pg_sys::Oid> {
    // SAFETY: a syscache lookup inside a transaction; the name lives through it.
    let oid = unsafe { pg_sys::get_relname_relid(new.name.as_ptr(), new.schema) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Returns a role's bare name; None if the role is dropped.
pub fn of_role(role: pg_sys::Oid) -> Option<CString> {
    // SAFETY: a syscache lookup inside a transaction, which returns NULL or a palloc'd copy.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
    }
}

/// Quotes a name if SQL requires it.
pub fn quote_identifier(name: &CStr) -> CString {
    // SAFETY: returns the name itself or a palloc'd copy; it is copied out.
    unsafe { CStr::from_ptr(pg_sys::quote_identifier(name.as_ptr())).to_owned() }
}

/// Returns a string literal for a statement that is valid under any `standard_conforming_strings`.
pub fn quote_literal(text: &str) -> String {
    String::from_utf8(literal(text.as_bytes())).unwrap_or_default()
}

/// Returns a string literal of a text in the server's encoding. Searching for single bytes is safe, because in every
/// server encoding ASCII bytes encode only ASCII characters.
pub fn literal(text: &[u8]) -> Vec<u8> {
    let quotes: &[u8] = match text.contains(&b'\\') {
        true => b"E'",
        false => b"'",
    };
    let mut literal = quotes.to_vec();
    for &byte in text {
        if let b'\'' | b'\\' = byte {
            literal.push(byte);
        }
        literal.push(byte);
    }
    literal.push(b'\'');
    literal
}

/// Returns the name of the current database.
pub fn current_database() -> String {
    // SAFETY: the connected database exists; the result is a palloc'd copy.
    unsafe {
        CStr::from_ptr(pg_sys::get_database_name(pg_sys::MyDatabaseId))
            .to_string_lossy()
            .into_owned()
    }
}

/// Returns `schema.name` for a function in the schema of the running function. Returns an error if the running function
/// was dropped, which is possible because no lock protects it.
pub fn beside_running_function(
    call: pg_sys::FunctionCallInfo,
    name: &str,
) -> Result<String, Error> {
    // SAFETY: Postgres passes a valid call whose flinfo names the running function. For a dropped function the schema
    // is InvalidOid, whose name is NULL; otherwise the name is a palloc'd copy, and its quoted form is the name or
    // another copy.
    unsafe {
        let function = (*(*call).flinfo).fn_oid;
        let schema = pg_sys::get_namespace_name(pg_sys::get_func_namespace(function));
        if schema.is_null() {
            return Err(Error::DroppedExtension);
        }
        let quoted = CStr::from_ptr(pg_sys::quote_identifier(schema));
        Ok(format!("{}.{name}", quoted.to_string_lossy()))
    }
}
