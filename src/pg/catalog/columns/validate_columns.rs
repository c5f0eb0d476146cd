//! Checks whether a table's columns can hold the entries of a cache. If they cannot, returns the reason and a hint.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::columns::marker::marked;
use crate::pg::catalog::columns::single::attribute;
use crate::pg::catalog::relation;
use crate::pg::encoding;
use crate::pg::value::datum::ValueType;
use crate::pg::value::key_type::KeyType;
use crate::pg::value::moment::{DeadlineForm, DeadlineKind};
use crate::pg::version;

/// A column: its number, from 1, and its name, quoted if SQL requires it.
#[derive(Clone)]
pub struct Column {
    pub number: i16,
    pub name: CString,
}

/// The columns of a cache's table.
#[derive(Clone)]
pub struct Columns {
    pub key: Column,
    pub value: Column,
    pub deadline: Column,
    pub key_type: KeyType,
    /// The collation of the key column; InvalidOid for keys that are not text.
    pub key_collation: Oid,
    /// The type of the value column.
    pub value_oid: Oid,
    /// The type of the values that callers receive.
    pub value_type: ValueType,
    /// Whether a negative entry can be stored.
    pub value_nullable: bool,
    pub deadline_form: DeadlineForm,
    /// Whether the value or the deadline is a generated column, so that pgcache cannot write entries.
    pub generated: bool,
    /// Whether `cache_attach` made the table a cache, instead of `cache_create`.
    pub attached: bool,
}

/// The column that does not fit a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Value,
    Deadline,
}

/// The reason why a table cannot be a cache, with a hint about the necessary change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    part: Part,
    pub why: String,
    pub hint: Option<String>,
}

impl Misfit {
    fn new(part: Part, why: impl Into<String>) -> Misfit {
        Misfit {
            part,
            why: why.into(),
            hint: None,
        }
    }

    /// Describes a missing column of a table that `cache_create` has created.
    fn native(part: Part) -> Misfit {
        let why = match part {
            Part::Key => "The table has no column key text COLLATE \"C\" that is its primary key.",
            Part::Value => "The table has no column value of type text, jsonb or bytea.",
            Part::Deadline => "The table has no column expires_at of type timestamptz.",
        };
        Misfit::new(part, why)
    }

    fn with_hint(self, hint: impl Into<String>) -> Misfit {
        Misfit {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// The column names in a table that `cache_create` creates.
const NATIVE: [&CStr; 3] = [c"key", c"value", c"expires_at"];

/// The OID of `pg_catalog."C"`, fixed in Postgres' pg_collation.dat.
const C_COLLATION: Oid = Oid::from_u32(950);

/// Returns the columns of a cache, or the reason why they do not fit.
///
/// # Safety
/// `table` must be open and locked.
pub unsafe fn of_cache(table: pg_sys::Relation) -> Result<Columns, Misfit> {
    // SAFETY: the table is open and locked, by the caller's contract.
    unsafe {
        match marked(table) {
            Some(marked) => {
                let numbers = [marked.key, marked.value, marked.deadline];
                judge(table, numbers, marked.unit.as_deref(), true)
            }
            None => {
                let oid = (*table).rd_id;
                let number = |name: &CStr| relation::column_number(oid, name).unwrap_or(0);
                let columns = judge(table, NATIVE.map(number), None, false)
                    .map_err(|misfit| Misfit::native(misfit.part))?;
                let is_text = columns.key_type == KeyType::Text;
                if !is_text || columns.key_collation != C_COLLATION {
                    return Err(Misfit::native(Part::Key));
                }
                ValueType::from_oid(columns.value_oid)
                    .map(|_| columns)
                    .ok_or(Misfit::native(Part::Value))
            }
        }
    }
}

/// Returns the columns with these names of a table that is to become a cache, or the reason why they do not fit.
pub fn of_table(table: Oid, names: [&CStr; 3], unit: Option<&[u8]>) -> Result<Columns, Misfit> {
    let number = |name: &CStr| relation::column_number(table, name).unwrap_or(0);
    // SAFETY: the caller holds a lock on the table, so it can be opened, and stays open while its columns are checked.
    unsafe {
        let open = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let columns = judge(open, names.map(number), unit, true);
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        columns
    }
}

/// Checks that the columns with these numbers can hold a cache's entries; the number 0 means a missing column.
///
/// # Safety
/// `table` must be open and locked.
unsafe fn judge(
    table: pg_sys::Relation,
    [key, value, deadline]: [i16; 3],
    unit: Option<&[u8]>,
    attached: bool,
) -> Result<Columns, Misfit> {
    // SAFETY: the table is open and locked, by the caller's contract.
    unsafe {
        let missing =
            |part, what| Misfit::new(part, format!("The table has no column for the {what}."));
        let key_column = attribute(table, key).ok_or_else(|| missing(Part::Key, "key"))?;
        let value_column = attribute(table, value).ok_or_else(|| missing(Part::Value, "value"))?;
        let deadline_column =
            attribute(table, deadline).ok_or_else(|| missing(Part::Deadline, "deadline"))?;
        if key == value || key == deadline || value == deadline {
            let why = "Key, value and deadline must be three different columns.";
            return Err(Misfit::new(Part::Value, why));
        }
        let key_type = judge_key(table, &key_column)?;
        let value_type = ValueType::of_column(value_column.atttypid).ok_or_else(|| {
            let name = relation::type_name(value_column.atttypid);
            Misfit::new(Part::Value, format!("The value column is of type {name}."))
                .with_hint("The value column must be of type text, varchar, json, jsonb or bytea.")
        })?;
        let kind = DeadlineKind::of(deadline_column.atttypid, unit)
            .ok_or_else(|| wrong_deadline(table, &deadline_column, unit))?;
        Ok(Columns {
            key: column(&key_column),
            value: column(&value_column),
            deadline: column(&deadline_column),
            key_type,
            key_collation: key_column.attcollation,
            value_oid: value_column.atttypid,
            value_type,
            value_nullable: !value_column.attnotnull,
            deadline_form: DeadlineForm {
                kind,
                nullable: !deadline_column.attnotnull,
            },
            generated: is_generated(&value_column) || is_generated(&deadline_column),
            attached,
        })
    }
}

fn column(attribute: &pg_sys::FormData_pg_attribute) -> Column {
    // SAFETY: a column's name ends with a NUL; the result is the name or a palloc'd copy, and is
    // copied.
    let name = unsafe {
        CStr::from_ptr(pg_sys::quote_identifier(attribute.attname.data.as_ptr())).to_owned()
    };
    Column {
        number: attribute.attnum,
        name,
    }
}

fn is_generated(column: &pg_sys::FormData_pg_attribute) -> bool {
    column.attgenerated != 0 || column.attidentity as u8 == pg_sys::ATTRIBUTE_IDENTITY_ALWAYS
}

/// Checks that the column is the whole primary key, and that equal keys have equal bytes.
///
/// # Safety
/// `table` must be open and locked.
unsafe fn judge_key(
    table: pg_sys::Relation,
    key: &pg_sys::FormData_pg_attribute,
) -> Result<KeyType, Misfit> {
    let key_type = KeyType::of(key.atttypid, key.atttypmod).ok_or_else(|| {
        let name = relation::type_name(key.atttypid);
        Misfit::new(Part::Key, format!("The key column is of type {name}.")).with_hint(
            "The key column must be of type text, varchar, uuid or bigint; ALTER COLUMN ... TYPE changes the type.",
        )
    })?;
    if is_generated(key) {
        let misfit = Misfit::new(Part::Key, "The key column is generated.");
        return Err(match key.attidentity {
            0 => misfit.with_hint("Pass a column that can be written as key_column."),
            _ => misfit.with_hint(
                "Run ALTER COLUMN ... SET GENERATED BY DEFAULT so that keys can be written.",
            ),
        });
    }
    // SAFETY: a syscache lookup of a column's collation. The bitmap is a copy; from Postgres 18 on it also holds a
    // deferrable primary key. The index exists as long as its table is locked, and is open while its collation is read.
    unsafe {
        if key.attcollation != pg_sys::InvalidOid
            && !pg_sys::get_collation_isdeterministic(key.attcollation)
        {
            let why = "The key column has a nondeterministic collation.";
            return Err(Misfit::new(Part::Key, why).with_hint(
                "Use a collation in which equal keys have equal bytes, such as \"C\".",
            ));
        }
        let index = version::primary_key_index(table);
        let primary = pg_sys::RelationGetIndexAttrBitmap(
            table,
            pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_PRIMARY_KEY,
        );
        let number = i32::from(key.attnum) - pg_sys::FirstLowInvalidHeapAttributeNumber;
        let is_primary = index != pg_sys::InvalidOid
            && pg_sys::bms_num_members(primary) == 1
            && pg_sys::bms_is_member(number, primary);
        if !is_primary {
            return Err(Misfit::new(
                Part::Key,
                "The key column is not the whole primary key, or the primary key is deferrable.",
            )
            .with_hint("Pass the only column of the primary key as key_column, or recreate the primary key."));
        }
        let open = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let collation = *(*open).rd_indcollation;
        pg_sys::index_close(open, pg_sys::AccessShareLock as i32);
        match collation == key.attcollation {
            true => Ok(key_type),
            false => Err(Misfit::new(
                Part::Key,
                "The primary key has a different collation than the key column.",
            )),
        }
    }
}

/// # Safety
/// `table` must be open and locked.
unsafe fn wrong_deadline(
    table: pg_sys::Relation,
    column: &pg_sys::FormData_pg_attribute,
    unit: Option<&[u8]>,
) -> Misfit {
    let name = relation::type_name(column.atttypid);
    let misfit = Misfit::new(
        Part::Deadline,
        format!("The deadline column is of type {name}."),
    );
    match (column.atttypid, unit) {
        (pg_sys::TIMESTAMPOID, _) => {
            // SAFETY: the table is open and locked, so its name and the column's exist.
            let (table, name) = unsafe {
                let table = relation::qualified((*table).rd_id);
                (table, pg_sys::quote_identifier(column.attname.data.as_ptr()))
            };
            // SAFETY: quote_identifier returns the name or a copy, both C strings.
            let name = encoding::decode(unsafe { CStr::from_ptr(name) }.to_bytes());
            misfit.with_hint(format!(
                "State the time zone of its values: ALTER TABLE {} ALTER COLUMN {name} TYPE timestamptz USING {name} AT TIME ZONE 'UTC';",
                encoding::decode(table.to_bytes())
            ))
        }
        (pg_sys::INT4OID | pg_sys::INT8OID, None) => {
            misfit.with_hint("If the column holds a Unix time, pass expires_unit => 's' or 'ms'.")
        }
        (pg_sys::TIMESTAMPTZOID, Some(_)) => {
            misfit.with_hint("Use expires_unit only with a column of type integer or bigint.")
        }
        _ => misfit.with_hint(
            "The deadline column must be of type timestamptz, or with expires_unit a Unix time of type integer or bigint.",
        ),
    }
}
