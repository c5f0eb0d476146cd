//! Converts values between the three types of a cache: text, jsonb and bytea.
//!
//! A conversion between text and bytea leaves the bytes unchanged, in the server's encoding. A conversion to jsonb
//! parses JSON text; a conversion from jsonb returns JSON text.

use std::cell::Cell;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportWithLevel};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use super::datum::{Text, Value, ValueType, new_c_string, new_varlena, varlena_bytes};
use super::stored::Stored;
use crate::error::Error;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::failure;

/// Converts the value to another type. Raises 22P02 for text that is not JSON, 22P05 for JSON with a character that
/// jsonb cannot hold, and 22021 for bytes that are not valid text. pgcache raises its own errors, because Postgres'
/// messages show a part of the value.
pub fn convert(stored: Stored, to: ValueType) -> Stored {
    let converted = datum(stored.raw(), stored.value_type(), to);
    // SAFETY: each conversion returns a varlena of the requested type.
    unsafe { Stored::new(converted, to) }
}

fn datum(datum: pg_sys::Datum, from: ValueType, to: ValueType) -> pg_sys::Datum {
    use ValueType::*;
    match (from, to) {
        (Text, Text) | (Json, Json) | (Bytes, Bytes) | (Text, Bytes) => datum,
        (Bytes, Text) => valid_text(datum),
        (Text, Json) => parse_json(datum),
        (Bytes, Json) => parse_json(valid_text(datum)),
        (Json, Text | Bytes) => print_json(datum),
    }
}

/// Converts an argument to the type of a cache; raises the errors of [`convert`].
pub fn argument<V: Value>(value: V, to: ValueType) -> Stored {
    given(Stored::of(value), to)
}

/// Converts a caller's value to the type of a cache; raises the errors of [`convert`]. Warns if a text that looks like
/// a bytea literal (`\x...`) is stored as bytes, because the literal's characters are stored, not the bytes that it
/// stands for.
#[inline]
pub fn given(stored: Stored, to: ValueType) -> Stored {
    if to == ValueType::Bytes && stored.value_type() == ValueType::Text {
        warn_if_hex_literal(stored);
    }
    convert(stored, to)
}

#[inline(never)]
fn warn_if_hex_literal(text: Stored) {
    if is_hex_literal(text.bytes()) {
        warn_of_hex_literal();
    }
}

/// Returns whether a text looks like a bytea literal in hex format.
fn is_hex_literal(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"\\x");
    digits.is_some_and(|digits| {
        digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit)
    })
}

/// Warns that a text looks like a bytea literal. Warns once for each statement, even if the statement stores many such
/// values.
#[cold]
fn warn_of_hex_literal() {
    thread_local! {
        static WARNED: Cell<Timestamp> = const { Cell::new(0) };
    }
    let statement = clock::statement_start();
    if WARNED.replace(statement) != statement {
        ErrorReport::from(Error::HexLiteralAsText).report(PgLogLevel::WARNING);
    }
}

/// Converts a stored value to the type of a function's result; raises the errors of [`convert`].
pub fn result<V: Value>(stored: Stored) -> V {
    // SAFETY: `convert` returned a value of V's type.
    unsafe { V::from_raw(convert(stored, V::TYPE).raw()) }
}

/// Returns the datum; raises 22021 if its bytes are not valid in the server's encoding.
fn valid_text(datum: pg_sys::Datum) -> pg_sys::Datum {
    let bytes = varlena_bytes(datum);
    // SAFETY: reads the bytes; with `noError` it returns false for invalid bytes.
    let valid = unsafe { pg_sys::pg_verifymbstr(bytes.as_ptr().cast(), bytes.len() as i32, true) };
    if !valid {
        ErrorReport::from(Error::NotText).report(PgLogLevel::ERROR);
    }
    datum
}

fn parse_json(text: pg_sys::Datum) -> pg_sys::Datum {
    let input = new_c_string(varlena_bytes(text));
    // SAFETY: jsonb_in takes a C string, copies the parts that it keeps, and returns a jsonb or an error.
    let parse = || unsafe { pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(input)]) };
    failure::replacing(parse, no_json).unwrap_or(text)
}

/// Parses a text as jsonb. Returns an error instead of raising it if the text is not JSON or has a character that jsonb
/// cannot hold.
pub fn json(text: Text) -> Result<Stored, Error> {
    let no_json = [PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION];
    let unknown = [PgSqlErrorCode::ERRCODE_UNTRANSLATABLE_CHARACTER];
    let input = new_c_string(text.bytes());
    // SAFETY: jsonb_in takes a C string, copies the parts that it keeps, and returns a jsonb or an error.
    let parse = || unsafe { pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(input)]) };
    let parsed = failure::unless(&unknown, || failure::unless(&no_json, parse));
    let parsed = parsed.ok_or(Error::UnknownCharacter)?;
    let json = parsed.flatten().ok_or(Error::NotJson)?;
    // SAFETY: the function returns a jsonb.
    Ok(unsafe { Stored::new(json, ValueType::Json) })
}

/// Replaces Postgres' error for invalid JSON, whose message shows a part of the value.
fn no_json(error: &ErrorReportWithLevel) -> Option<ErrorReport> {
    match error.sql_error_code() {
        PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION => Some(Error::NotJson.into()),
        PgSqlErrorCode::ERRCODE_UNTRANSLATABLE_CHARACTER => Some(Error::UnknownCharacter.into()),
        _ => None,
    }
}

fn print_json(json: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: jsonb_out takes a jsonb and returns a palloc'd C string.
    unsafe {
        let printed = pgrx::direct_function_call_as_datum(pg_sys::jsonb_out, &[Some(json)]);
        printed.map_or(json, |c| {
            new_varlena(std::ffi::CStr::from_ptr(c.cast_mut_ptr()).to_bytes())
        })
    }
}

/// Returns whether SQL's `=` finds two values equal. Values of different types are never equal.
pub fn equal(one: Stored, other: Stored) -> bool {
    if one.value_type() != other.value_type() {
        return false;
    }
    if one.value_type() != ValueType::Json {
        return one.bytes() == other.bytes();
    }
    let arguments = [Some(one.raw()), Some(other.raw())];
    // SAFETY: jsonb_eq takes two jsonb and returns a boolean.
    let equal = unsafe { pgrx::direct_function_call_as_datum(pg_sys::jsonb_eq, &arguments) };
    equal.is_some_and(|datum| datum.value() != 0)
}
