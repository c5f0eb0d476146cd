//! The disabled trigger that names an attached table's key, value and deadline columns, and the unit of its deadlines.
//! [`super`] explains why a trigger stores them.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::{own, relation};

/// The type of the marker: BEFORE UPDATE, FOR EACH STATEMENT.
const MARKER: u32 = pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_UPDATE;

/// The content of an attached table's marker: column numbers, and the unit of its deadlines.
pub struct Marked {
    pub key: i16,
    pub value: i16,
    pub deadline: i16,
    pub unit: Option<Vec<u8>>,
}

/// Returns the columns of an attached table, or of one of its partitions, from the marker. Returns None for any other
/// table.
///
/// # Safety
/// `table` must be open.
pub unsafe fn marked(table: pg_sys::Relation) -> Option<Marked> {
    // SAFETY: the table is open, by the caller's contract; the results are copies.
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

/// Returns the columns of a partition, read from the marker of its cache. A partition's columns have the cache's names,
/// but may have other numbers.
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

/// Returns the default that an attached table's deadline column had before it became a cache; None if it had none. The
/// default is a text whose parsing runs code, and any role with the TRIGGER privilege can create a marker in a session
/// without the library. So this function reads the default only from a disabled marker, because only the table's owner
/// can disable a trigger.
pub fn former_default(table: Oid) -> Option<Vec<u8>> {
    // SAFETY: the caller holds a lock on the table, so it can be opened, and stays open while its marker is read.
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

/// Returns the result of `read` for a table's marker trigger; None for a table without a marker. `read` must read no
/// catalog. Runs for each changed row, so it compares the trigger's type and columns first, and looks up the OID of the
/// function only for a trigger that matches. The lookup may replace the table's list of triggers, so the code reads the
/// list again afterwards.
///
/// # Safety
/// `table` must be open.
pub(super) unsafe fn marker<R>(
    table: pg_sys::Relation,
    read: impl FnOnce(&pg_sys::Trigger) -> R,
) -> Option<R> {
    let is_formed =
        |trigger: &&pg_sys::Trigger| trigger.tgnattr == 3 && trigger.tgtype as u32 == MARKER;
    // SAFETY: the table is open, by the caller's contract. No catalog is read while a list of triggers is used.
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
/// `marker` is a trigger of an open table, on three columns.
pub(super) unsafe fn attached_numbers(marker: &pg_sys::Trigger) -> [i16; 3] {
    // SAFETY: the array has as many columns as the trigger's count says; the function `marker` has checked that it is
    // three.
    std::array::from_fn(|at| unsafe { *marker.tgattr.add(at) })
}

/// Returns the trigger's argument that begins with this prefix, without the prefix; None if no argument does.
///
/// # Safety
/// `marker` is a trigger of an open table.
unsafe fn argument(marker: &pg_sys::Trigger, begins: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: each trigger has tgnargs C strings.
    (0..marker.tgnargs as usize).find_map(|at| unsafe {
        let argument = CStr::from_ptr(*marker.tgargs.add(at));
        argument.to_bytes().strip_prefix(begins).map(<[u8]>::to_vec)
    })
}
