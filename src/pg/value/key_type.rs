//! The types of a cache's key column, and the canonical text of each key.
//!
//! Outside the table a key is always a text: in calls, in the hot tier, and in the list of changed keys for the commit.
//! Each row must have exactly one canonical text, even if callers spell the key differently, and two keys may have the
//! same text only if the table considers them equal. Otherwise a write would not invalidate the hot tier's copy of its
//! own row. So pgcache compares texts bytewise, and converts a uuid or a bigint from and to text with Postgres' own
//! functions.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::num::NonZeroU32;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, Oid};

use super::datum::{Text, Value, new_c_string, new_varlena, varlena_bytes};
use crate::error::Error;
use crate::pg::session::failure;

/// The type of a key column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    Text,
    /// A varchar without a length.
    Varchar,
    /// A varchar of at most this many characters.
    Limited(u32),
    Uuid,
    Bigint,
}

/// The SQLSTATEs that Postgres raises for a text that is not a uuid or not a bigint.
const NO_KEY: [PgSqlErrorCode; 2] = [
    PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION,
    PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
];

/// HASH_PARTITION_SEED from Postgres' catalog/partition.h.
const PARTITION_SEED: u64 = 0x7A5B_2236_7996_DCFD;
/// The constant that Postgres' hash_combine64 adds.
const MIXED_IN: u64 = 0x49A0_F4DD_15E5_A8E3;

/// The number of bytes of a uuid.
const UUID: usize = 16;

unsafe extern "C-unwind" {
    // Reads bytes and raises no error, so it needs no pgrx guard.
    fn hash_bytes(key: *const u8, length: std::ffi::c_int) -> u32;
}

/// Returns the hash of a text, as the default hash operator class of the type computes it under a deterministic
/// collation.
#[inline]
pub fn hash_of_text(key: Text) -> i32 {
    let bytes = key.bytes();
    // SAFETY: the pointer and the length describe the slice.
    unsafe { hash_bytes(bytes.as_ptr(), bytes.len() as i32) as i32 }
}

impl KeyType {
    /// Returns the type of a column; None for a type that no key can have.
    pub fn of(type_oid: Oid, modifier: i32) -> Option<KeyType> {
        let length = modifier - pg_sys::VARHDRSZ as i32;
        match (type_oid, u32::try_from(length)) {
            (pg_sys::TEXTOID, _) => Some(KeyType::Text),
            (pg_sys::VARCHAROID, Ok(length)) => Some(KeyType::Limited(length)),
            (pg_sys::VARCHAROID, Err(_)) => Some(KeyType::Varchar),
            (pg_sys::UUIDOID, _) => Some(KeyType::Uuid),
            (pg_sys::INT8OID, _) => Some(KeyType::Bigint),
            _ => None,
        }
    }

    /// Returns the OID of the column's type.
    pub fn oid(self) -> Oid {
        match self {
            KeyType::Text => pg_sys::TEXTOID,
            KeyType::Varchar | KeyType::Limited(_) => pg_sys::VARCHAROID,
            KeyType::Uuid => pg_sys::UUIDOID,
            KeyType::Bigint => pg_sys::INT8OID,
        }
    }

    /// Returns whether keys are of a character type; only such keys have prefixes.
    #[inline(always)]
    pub fn is_text(self) -> bool {
        !matches!(self, KeyType::Uuid | KeyType::Bigint)
    }

    /// Returns the OID of the function that compares two keys of the index for equality.
    #[inline(always)]
    pub fn equality(self) -> u32 {
        match self {
            KeyType::Text | KeyType::Varchar | KeyType::Limited(_) => pg_sys::F_TEXTEQ,
            KeyType::Uuid => pg_sys::F_UUID_EQ,
            KeyType::Bigint => pg_sys::F_INT8EQ,
        }
    }

    /// Returns the canonical text of the key. Raises 22P02 for a text that is not a uuid, or not an integer, and
    /// 22003 for an integer beyond bigint.
    #[inline]
    pub fn canonical(self, key: Text) -> Text {
        match self {
            KeyType::Text | KeyType::Varchar | KeyType::Limited(_) => key,
            KeyType::Uuid | KeyType::Bigint => failure::replacing(
                || self.printed(self.parsed(key)),
                |error| self.refusal(error.sql_error_code()),
            ),
        }
    }

    /// Returns the canonical text of a key that a user-defined expression computed. Returns None for a text that is not
    /// a key of this type, because no entry can have such a key.
    pub fn canonical_if_any(self, key: Text) -> Option<Text> {
        match self.is_text() {
            true => Some(key),
            false => failure::unless(&NO_KEY, || self.printed(self.parsed(key))),
        }
    }

    /// Replaces Postgres' error for an invalid key, because its message would show the key.
    fn refusal(self, code: PgSqlErrorCode) -> Option<ErrorReport> {
        let name = match self {
            KeyType::Bigint => "bigint",
            _ => "uuid",
        };
        match code {
            PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION => {
                Some(Error::KeyNotOfType(name).into())
            }
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE => {
                Some(Error::KeyOutOfRange(name).into())
            }
            _ => None,
        }
    }

    /// Compares keys in the order of a scan: the order of the column's type, and for text the order of bytes.
    pub fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        let number = |key: &[u8]| std::str::from_utf8(key).ok()?.parse::<i64>().ok();
        match self {
            KeyType::Bigint => number(one).cmp(&number(other)),
            _ => one.cmp(other),
        }
    }

    /// Returns the remainder that selects a key's hash partition, as in `FOR VALUES WITH (MODULUS, REMAINDER)` of a
    /// table with this many partitions by this column. `key` is canonical.
    ///
    /// Postgres can never change the hash function, because it determines the partitions of rows that are on disk.
    pub fn remainder(self, key: Text, partitions: NonZeroU32) -> i32 {
        let hash = match self {
            KeyType::Text | KeyType::Varchar | KeyType::Limited(_) => pg_sys::F_HASHTEXTEXTENDED,
            KeyType::Uuid => pg_sys::F_UUID_HASH_EXTENDED,
            KeyType::Bigint => pg_sys::F_HASHINT8EXTENDED,
        };
        // SAFETY: the function is the second support function of the type's default hash operator class, which
        // partitions use. It takes a key of this type and an int64, and returns an int64. Every deterministic collation
        // has the same hashes as "C".
        let hash = unsafe {
            pg_sys::OidFunctionCall2Coll(
                Oid::from_u32(hash),
                pg_sys::C_COLLATION_OID,
                self.datum(key),
                Datum::from(PARTITION_SEED as i64),
            )
        };
        // For a key of one column, Postgres combines the column's hash with 0.
        let mixed = (hash.value() as u64).wrapping_add(MIXED_IN);
        (mixed % u64::from(partitions.get())) as i32
    }

    /// Returns whether the column is long enough for the key.
    pub fn has_room_for(self, key: Text) -> bool {
        let KeyType::Limited(most) = self else {
            return true;
        };
        let bytes = key.bytes();
        // SAFETY: reads the bytes of a text, which is valid in the server's encoding.
        let characters =
            unsafe { pg_sys::pg_mbstrlen_with_len(bytes.as_ptr().cast(), bytes.len() as i32) };
        i64::from(characters) <= i64::from(most)
    }

    /// Returns the key as a datum of the column's type. `key` is canonical.
    #[inline]
    pub(in crate::pg) fn datum(self, key: Text) -> Datum {
        match self.is_text() {
            true => key.raw(),
            false => self.parsed(key),
        }
    }

    /// Returns the bytes of the canonical text of a row's key.
    ///
    /// # Safety
    /// The datum is of this type, and not NULL.
    pub(in crate::pg) unsafe fn bytes_of<'a>(self, key: Datum) -> &'a [u8] {
        match self.is_text() {
            true => varlena_bytes(key),
            false => varlena_bytes(self.printed(key).raw()),
        }
    }

    fn parsed(self, key: Text) -> Datum {
        let input = Some(new_c_string(key.bytes()));
        // SAFETY: both functions take a C string and return a datum of their type, or raise an error; neither returns
        // NULL.
        let datum = unsafe {
            match self {
                KeyType::Bigint => pgrx::direct_function_call_as_datum(pg_sys::int8in, &[input]),
                _ => pgrx::direct_function_call_as_datum(pg_sys::uuid_in, &[input]),
            }
        };
        datum.unwrap_or(Datum::null())
    }

    fn printed(self, key: Datum) -> Text {
        match self {
            KeyType::Bigint => Text::new((key.value() as i64).to_string().as_bytes()),
            _ => {
                // SAFETY: the key is a uuid; the function returns the text of its 16 bytes as a palloc'd C string.
                let printed =
                    unsafe { pgrx::direct_function_call_as_datum(pg_sys::uuid_out, &[Some(key)]) };
                let text = printed.map_or(new_varlena(&[0; UUID]), |c| {
                    // SAFETY: uuid_out returns a C string.
                    new_varlena(unsafe { CStr::from_ptr(c.cast_mut_ptr()) }.to_bytes())
                });
                // SAFETY: a varlena of ASCII characters.
                unsafe { Text::from_raw(text) }
            }
        }
    }
}
