//! Which columns of a table a cache's key, value and deadline are in, and what these columns hold.
//!
//! A table that `cache_create` has made has them under their names. One that was made a cache by
//! `cache_attach` says so by a trigger that never fires:
//!
//! `BEFORE UPDATE OF <key>, <value>, <deadline> ... EXECUTE FUNCTION pgcache.columns('unit=s', ...)`
//!
//! Postgres keeps the three by their numbers, in this order. So they follow RENAME COLUMN, hold back
//! DROP COLUMN, and come back under their names from a dump. The trigger is for statements, so no
//! partition inherits it, and is disabled, so it costs nothing.

use std::ffi::{CStr, CString};

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Oid};

use super::{name, own, relation};
use crate::pg::encoding;
use crate::pg::value::datum::ValueType;
use crate::pg::value::key_type::KeyType;
use crate::pg::value::moment::{DeadlineForm, DeadlineKind};
use crate::pg::version;

/// A column by its number, from 1, and its name, quoted where SQL needs it.
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
    /// InvalidOid for keys that are no text.
    pub key_collation: Oid,
    /// The type of the column of the values.
    pub value_oid: Oid,
    /// What the values are to callers.
    pub value_type: ValueType,
    /// A negative entry can be stored.
    pub value_nullable: bool,
    pub deadline_form: DeadlineForm,
    /// The value or the deadline is generated: entries cannot be written.
    pub generated: bool,
    /// The table was made by somebody else.
    pub attached: bool,
}

/// Which of the three columns is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Value,
    Deadline,
}

/// Why a table cannot be a cache: what is wrong, and what can be done.
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

    /// What a table lacks that `cache_create` has made.
    fn native(part: Part) -> Misfit {
        let why = match part {
            Part::Key => "It has no column key text COLLATE \"C\" that is its primary key.",
            Part::Value => "It has no column value of type text, jsonb or bytea.",
            Part::Deadline => "It has no column expires_at of type timestamptz.",
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

/// The names that `cache_create` gives.
const NATIVE: [&CStr; 3] = [c"key", c"value", c"expires_at"];

/// BEFORE UPDATE, FOR EACH STATEMENT.
const MARKER: u32 = pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_UPDATE;

/// The oid of `pg_catalog."C"`, fixed in Postgres' pg_collation.dat.
const C_COLLATION: Oid = Oid::from_u32(950);

/// The columns of a cache.
///
/// # Safety
/// `table` must be open and locked.
pub unsafe fn of_cache(table: pg_sys::Relation) -> Result<Columns, Misfit> {
    // SAFETY: the table is open and locked, by the caller's word.
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

/// The columns of a table that is to become a cache, by their names.
pub fn of_table(table: Oid, names: [&CStr; 3], unit: Option<&[u8]>) -> Result<Columns, Misfit> {
    let number = |name: &CStr| relation::column_number(table, name).unwrap_or(0);
    // SAFETY: the caller holds a lock on the table, so it can be opened, and is open meanwhile.
    unsafe {
        let open = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let columns = judge(open, names.map(number), unit, true);
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        columns
    }
}

/// The default that the deadline's column of an attached table had before, if any. Only from a marker
/// that is disabled, as only the table's owner leaves one: the default is a text that runs code while
/// it is read, and with TRIGGER anybody makes a marker where the library is not loaded.
pub fn former_default(table: Oid) -> Option<Vec<u8>> {
    // SAFETY: the caller holds a lock on the table, so it can be opened, and is open meanwhile.
    unsafe {
        let open = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let former = marker(open, |marker| {
            let is_disabled = marker.tgenabled == pg_sys::TRIGGER_DISABLED as i8;
            argument(marker, b"default=").filter(|_| is_disabled)
        })
        .flatten();
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        former
    }
}

/// The number and type of the key's column, where there is one that a cache can have. For a row
/// trigger, which anybody may put on their own table: nothing else about the table is looked at.
///
/// # Safety
/// `table` must be open.
pub unsafe fn key_column(table: pg_sys::Relation) -> Option<(i16, KeyType)> {
    // SAFETY: the table is open, by the caller's word.
    unsafe {
        match marker(table, |marker| attached_numbers(marker)) {
            Some([key, ..]) => {
                let column = attribute(table, key)?;
                Some((key, KeyType::of(column.atttypid, column.atttypmod)?))
            }
            None => {
                let key = relation::column_number((*table).rd_id, c"key")?;
                let descriptor = (*table).rd_att;
                let is_text = pg_sys::SPI_gettypeid(descriptor, i32::from(key)) == pg_sys::TEXTOID;
                is_text.then_some((key, KeyType::Text))
            }
        }
    }
}

/// The name of the key's column, quoted as a statement needs it. The caller holds a lock on the table.
pub fn key_name(table: Oid) -> Option<CString> {
    // SAFETY: the caller holds a lock on the table, so it can be opened, and is open meanwhile.
    unsafe {
        let open = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let key = key_column(open);
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        let name = relation::column_name(table, key?.0)?;
        Some(name::quote_identifier(&name))
    }
}

/// The type of a cache's keys as the catalogs have it, without a lock on the cache. Text for what no
/// marker speaks of: a cache of our own, or no cache at all.
pub fn key_type(cache: Oid) -> KeyType {
    let numbers = relation::trigger_columns(cache, own::COLUMNS.oid());
    let key = numbers.and_then(|numbers| numbers.first().copied());
    // SAFETY: a syscache look-up, which gives 0 for a column that is gone. A modifier does not
    // matter to how a key is spelled.
    let type_oid = key.map(|key| unsafe { pg_sys::get_atttype(cache, key) });
    let found = type_oid.and_then(|type_oid| KeyType::of(type_oid, -1));
    found.unwrap_or(KeyType::Text)
}

/// The number of the value's column, if it has a type that a cache's may have: all are varlenas.
///
/// # Safety
/// `table` must be open.
pub unsafe fn value_column(table: pg_sys::Relation) -> Option<i16> {
    // SAFETY: the table is open, by the caller's word.
    unsafe {
        let value = match marker(table, |marker| attached_numbers(marker)) {
            Some([_, value, _]) => value,
            None => relation::column_number((*table).rd_id, c"value")?,
        };
        let value_oid = attribute(table, value)?.atttypid;
        ValueType::of_column(value_oid).map(|_| value)
    }
}

/// What the marker of an attached table says: numbers of columns, and the unit of its deadlines.
pub struct Marked {
    pub key: i16,
    pub value: i16,
    pub deadline: i16,
    pub unit: Option<Vec<u8>>,
}

/// The columns of an attached table as its marker has them, and of its partitions; None for another table.
///
/// # Safety
/// `table` must be open.
pub unsafe fn marked(table: pg_sys::Relation) -> Option<Marked> {
    // SAFETY: the table is open, by the caller's word; what is read are copies.
    unsafe {
        let own = marker(table, |marker| {
            let [key, value, deadline] = attached_numbers(marker);
            Marked {
                key,
                value,
                deadline,
                unit: argument(marker, b"unit="),
            }
        });
        match own {
            None if (*(*table).rd_rel).relispartition => marked_above((*table).rd_id),
            own => own,
        }
    }
}

/// The columns of a partition, by the marker of the cache above it. They have the same names there; their
/// numbers may be others.
fn marked_above(partition: Oid) -> Option<Marked> {
    let cache = relation::above(partition, own::RECORD.oid())?;
    let numbers = relation::trigger_columns(cache, own::COLUMNS.oid())?;
    let arguments = relation::trigger_arguments(cache, own::COLUMNS.oid())?;
    let unit = arguments
        .iter()
        .find_map(|text| text.strip_prefix(b"unit="));
    let number = |at: usize| {
        let name = relation::column_name(cache, *numbers.get(at)?)?;
        relation::column_number(partition, &name)
    };
    Some(Marked {
        key: number(0)?,
        value: number(1)?,
        deadline: number(2)?,
        unit: unit.map(<[u8]>::to_vec),
    })
}

/// The columns of the key in a partition of a cache: its number there, and type.
///
/// # Safety
/// `partition` must be open.
pub unsafe fn key_in_partition(partition: pg_sys::Relation) -> Option<(i16, KeyType)> {
    // SAFETY: the partition is open, by the caller's word.
    unsafe {
        let Some(marked) = marked(partition) else {
            return key_column(partition);
        };
        let column = attribute(partition, marked.key)?;
        Some((marked.key, KeyType::of(column.atttypid, column.atttypmod)?))
    }
}

/// What `read` makes of the trigger that names the columns; it looks at no catalog. The trigger's shape is
/// looked at first: the function's oid is a look-up, and this is asked at each row that changes. After
/// that look-up the triggers may be others.
///
/// # Safety
/// `table` must be open.
unsafe fn marker<R>(
    table: pg_sys::Relation,
    read: impl FnOnce(&pg_sys::Trigger) -> R,
) -> Option<R> {
    let is_formed =
        |trigger: &&pg_sys::Trigger| trigger.tgnattr == 3 && trigger.tgtype as u32 == MARKER;
    // SAFETY: the table is open, by the caller's word. No catalog is looked at while a list of triggers is
    // used.
    unsafe {
        relation::triggers(table).iter().find(is_formed)?;
        let columns = own::COLUMNS.oid();
        relation::triggers(table)
            .iter()
            .filter(is_formed)
            .find(|trigger| trigger.tgfoid == columns)
            .map(read)
    }
}

/// # Safety
/// A trigger of an open table, on three columns.
unsafe fn attached_numbers(marker: &pg_sys::Trigger) -> [i16; 3] {
    // SAFETY: it has as many columns as it says, which `marker` has seen to be three.
    std::array::from_fn(|at| unsafe { *marker.tgattr.add(at) })
}

/// The rest of the trigger's argument that begins so.
///
/// # Safety
/// A trigger of an open table.
unsafe fn argument(marker: &pg_sys::Trigger, begins: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: each trigger has tgnargs C strings.
    (0..marker.tgnargs as usize).find_map(|at| unsafe {
        let argument = CStr::from_ptr(*marker.tgargs.add(at));
        argument.to_bytes().strip_prefix(begins).map(<[u8]>::to_vec)
    })
}

/// A column that is there, and was not dropped.
///
/// # Safety
/// `table` must be open.
unsafe fn attribute(table: pg_sys::Relation, number: i16) -> Option<pg_sys::FormData_pg_attribute> {
    // SAFETY: an open relation has a descriptor, of which the column is a copy.
    unsafe {
        let descriptor = PgTupleDesc::from_pg_unchecked((*table).rd_att);
        let column = descriptor.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        (!column.attisdropped).then_some(*column)
    }
}

/// Whether the columns with these numbers can hold a cache's entries; 0 is a column that is not
/// there.
///
/// # Safety
/// `table` must be open and locked.
unsafe fn judge(
    table: pg_sys::Relation,
    [key, value, deadline]: [i16; 3],
    unit: Option<&[u8]>,
    attached: bool,
) -> Result<Columns, Misfit> {
    // SAFETY: the table is open and locked, by the caller's word.
    unsafe {
        let missing = |part, what| Misfit::new(part, format!("It has no column for the {what}."));
        let key_column = attribute(table, key).ok_or_else(|| missing(Part::Key, "key"))?;
        let value_column = attribute(table, value).ok_or_else(|| missing(Part::Value, "value"))?;
        let deadline_column =
            attribute(table, deadline).ok_or_else(|| missing(Part::Deadline, "deadline"))?;
        if key == value || key == deadline || value == deadline {
            let why = "Key, value and deadline are three columns.";
            return Err(Misfit::new(Part::Value, why));
        }
        let key_type = judge_key(table, &key_column)?;
        let value_type = ValueType::of_column(value_column.atttypid).ok_or_else(|| {
            let name = relation::type_name(value_column.atttypid);
            Misfit::new(Part::Value, format!("Its value column is of type {name}."))
                .with_hint("A value is of type text, varchar, json, jsonb or bytea.")
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

/// Whether the column is the whole primary key, and equal keys are equal bytes.
///
/// # Safety
/// `table` must be open and locked.
unsafe fn judge_key(
    table: pg_sys::Relation,
    key: &pg_sys::FormData_pg_attribute,
) -> Result<KeyType, Misfit> {
    let key_type = KeyType::of(key.atttypid, key.atttypmod).ok_or_else(|| {
        let name = relation::type_name(key.atttypid);
        Misfit::new(Part::Key, format!("Its key column is of type {name}.")).with_hint(
            "A key is of type text, varchar, uuid or bigint; ALTER COLUMN ... TYPE changes it.",
        )
    })?;
    if is_generated(key) {
        let misfit = Misfit::new(Part::Key, "Its key column is generated.");
        return Err(match key.attidentity {
            0 => misfit.with_hint("Name a column that can be written as key_column."),
            _ => {
                misfit.with_hint("ALTER COLUMN ... SET GENERATED BY DEFAULT lets keys be written.")
            }
        });
    }
    // SAFETY: a syscache look-up of a collation that a column has. The bitmap is a copy; from 18 on
    // a deferrable primary key appears in it. The index exists as long as its table is locked, and
    // is open while its collation is read.
    unsafe {
        if key.attcollation != pg_sys::InvalidOid
            && !pg_sys::get_collation_isdeterministic(key.attcollation)
        {
            let why = "Its key column has a nondeterministic collation.";
            return Err(Misfit::new(Part::Key, why)
                .with_hint("Give it one in which equal keys are equal bytes, such as \"C\"."));
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
                "Its key column is not the whole primary key, or that is deferrable.",
            )
            .with_hint("Name the one column that is the primary key as key_column, or make the primary key anew."));
        }
        let open = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let collation = *(*open).rd_indcollation;
        pg_sys::index_close(open, pg_sys::AccessShareLock as i32);
        match collation == key.attcollation {
            true => Ok(key_type),
            false => Err(Misfit::new(
                Part::Key,
                "Its primary key has a collation of its own.",
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
        format!("Its deadline column is of type {name}."),
    );
    match (column.atttypid, unit) {
        (pg_sys::TIMESTAMPOID, _) => {
            // SAFETY: the table is open and locked, so its name is there, and so is the column's.
            let (table, name) = unsafe {
                let table = relation::qualified((*table).rd_id);
                (table, pg_sys::quote_identifier(column.attname.data.as_ptr()))
            };
            // SAFETY: quote_identifier gives the name or a copy, both C strings.
            let name = encoding::decode(unsafe { CStr::from_ptr(name) }.to_bytes());
            misfit.with_hint(format!(
                "Say of which time zone it is: ALTER TABLE {} ALTER COLUMN {name} TYPE timestamptz USING {name} AT TIME ZONE 'UTC';",
                encoding::decode(table.to_bytes())
            ))
        }
        (pg_sys::INT4OID | pg_sys::INT8OID, None) => {
            misfit.with_hint("For a Unix time say expires_unit => 's' or 'ms'.")
        }
        (pg_sys::TIMESTAMPTZOID, Some(_)) => {
            misfit.with_hint("expires_unit is for columns of type integer or bigint.")
        }
        _ => misfit.with_hint(
            "A deadline is of type timestamptz, or with expires_unit a Unix time of type integer or bigint.",
        ),
    }
}
