//! Handles a key that comes twice in one COPY when the first of its rows has expired. pgcache holds the later row back;
//! after COPY ends, an ordinary INSERT stores it and replaces the expired row.
//!
//! COPY collects rows in a batch before it writes them, so no lookup finds the earlier row, and the later row would
//! fail at the unique index (23505). A row is held back only if an expired row with its key precedes it in the COPY.
//! This never happens in a restore, because a dump has no key twice.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

use crate::pg::catalog::own;
use crate::pg::events;
use crate::pg::hooks::expired_rows::renew::place_of;
use crate::pg::hooks::expired_rows::writes::OURS;
use crate::pg::memory;
use crate::pg::memory::pg_list;
use crate::pg::session::fault::{self, Fault};
use crate::pg::value::call::V1;
use crate::pg::value::datum::varlena_bytes;
use crate::pg::version;

/// The maximum number of expired keys that pgcache remembers for one COPY. If a COPY has more, a later row with an
/// expired key that is not remembered fails (23505).
const MOST_KEYS: usize = 1_000_000;

/// A running COPY.
struct Copy {
    number: i32,
    /// Hashes of the keys of its expired rows. If two keys have the same hash, a row may be held back needlessly.
    expired: HashSet<u64>,
    /// The rows that are held back, in the memory of the transaction or savepoint.
    rows: Vec<Datum>,
}

thread_local! {
    static NUMBER: Cell<i32> = const { Cell::new(0) };
    static COPIES: ManuallyDrop<RefCell<Vec<Copy>>> = ManuallyDrop::default();
}

/// Runs `change` on the running COPYs and returns its result; None if called inside `change`, which pgcache never does.
fn with<R>(change: impl FnOnce(&mut Vec<Copy>) -> R) -> Option<R> {
    COPIES.with(|copies| Some(change(&mut *copies.try_borrow_mut().ok()?)))
}

fn of_copy<R>(number: i32, change: impl FnOnce(&mut Copy) -> R) -> Option<R> {
    with(|copies| {
        let copy = copies.iter_mut().rev().find(|copy| copy.number == number)?;
        Some(change(copy))
    })
    .flatten()
}

/// Returns whether the database has `copied_first` and `copied_again`, which older versions of the extension lack.
pub fn has_functions() -> bool {
    own::COPIED_AGAIN.oid() != pg_sys::InvalidOid
}

/// Returns whether no row of a COPY into the table may be held back. This is true for a table with a generated column,
/// because COPY does not allow a condition to read the whole row of such a table. It is also true for a table with a
/// rule, because the rule would change the effect of the later INSERT, while COPY ignores rules.
///
/// # Safety
/// The table is locked.
pub unsafe fn holds_nothing_back(table: Oid) -> bool {
    // SAFETY: the table is open while its columns and its rules flag are read.
    unsafe {
        let open = pg_sys::table_open(table, pg_sys::NoLock as i32);
        let constraints = (*(*open).rd_att).constr;
        let is_generated = !constraints.is_null() && version::has_generated(constraints);
        let has_rules = (*(*open).rd_rel).relhasrules;
        pg_sys::table_close(open, pg_sys::NoLock as i32);
        is_generated || has_rules
    }
}

/// Begins a COPY. Returns a number that identifies the COPY among the running COPYs.
pub fn begin() -> i32 {
    let number = NUMBER.get().wrapping_add(1).max(1);
    NUMBER.set(number);
    // SAFETY: Postgres calls the callback at the end of the transaction or savepoint in which COPY runs, before it
    // frees the context.
    unsafe {
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let context = pg_sys::CurTransactionContext;
        let callback: *mut pg_sys::MemoryContextCallback =
            pg_sys::MemoryContextAllocZero(context, size).cast();
        (*callback).func = Some(forget);
        (*callback).arg = number as usize as *mut c_void;
        pg_sys::MemoryContextRegisterResetCallback(context, callback);
    }
    with(|copies| {
        let (expired, rows) = (HashSet::new(), Vec::new());
        memory::push(
            copies,
            Copy {
                number,
                expired,
                rows,
            },
        );
    });
    number
}

unsafe extern "C-unwind" fn forget(number: *mut c_void) {
    with(|copies| copies.retain(|copy| copy.number != number as usize as i32));
}

/// Ends a COPY: inserts the rows that were held back, in their order, and returns their number.
///
/// # Safety
/// `statement` is the COPY with this number, and `table` its target.
pub unsafe fn end(number: i32, statement: *mut pg_sys::PlannedStmt, table: Oid) -> u64 {
    let rows = with(|copies| {
        let place = copies.iter().position(|copy| copy.number == number)?;
        Some(copies.remove(place).rows)
    });
    let rows = rows.flatten().unwrap_or_default();
    if rows.is_empty() {
        return 0;
    }
    // SAFETY: by the caller's contract.
    unsafe {
        let insert = insert(statement, table);
        let kind = pg_sys::get_rel_type_id(table);
        events::emit(|observer| (observer.held_back)(table, &insert, kind, &rows));
    }
    rows.len() as u64
}

/// Makes the `INSERT` that writes one row, its first parameter, into the columns that COPY has written.
///
/// # Safety
/// The statement is a COPY into the table.
unsafe fn insert(statement: *mut pg_sys::PlannedStmt, table: Oid) -> CString {
    // SAFETY: a list of columns has names; the table is locked, and open while its columns are read.
    unsafe {
        let copy: *mut pg_sys::CopyStmt = (*statement).utilityStmt.cast();
        let quoted = |name: *const std::ffi::c_char| {
            let quoted = CStr::from_ptr(pg_sys::quote_identifier(name));
            quoted.to_bytes().to_vec()
        };
        let named = pg_list::pointers::<pg_sys::String>((*copy).attlist);
        let columns: Vec<Vec<u8>> = match named.is_empty() {
            false => named.iter().map(|&name| quoted((*name).sval)).collect(),
            true => {
                let open = pg_sys::table_open(table, pg_sys::NoLock as i32);
                let columns = pgrx::PgTupleDesc::from_pg_unchecked((*open).rd_att);
                let kept = columns.iter().filter(|column| !column.attisdropped);
                let names = kept
                    .map(|column| quoted(column.attname.data.as_ptr()))
                    .collect();
                pg_sys::table_close(open, pg_sys::NoLock as i32);
                names
            }
        };
        let values: Vec<Vec<u8>> = columns
            .iter()
            .map(|column| [b"($1).", column.as_slice()].concat())
            .collect();
        let relation = (*copy).relation;
        let table = [quoted((*relation).schemaname), quoted((*relation).relname)].join(&b'.');
        let text = [
            b"INSERT INTO ".as_slice(),
            &table,
            b" (",
            &columns.join(b", ".as_slice()),
            b") OVERRIDING SYSTEM VALUE VALUES (",
            &values.join(b", ".as_slice()),
            b")",
        ];
        CString::new(text.concat()).unwrap_or_default()
    }
}

/// Returns the calling convention of `pgcache.copied_first()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_copied_first_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.copied_again()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_copied_again_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.copied_first(key text, copy integer, is_live boolean) -> boolean`, STABLE: returns false for a key that
/// came before with an expired deadline. Remembers a key whose deadline has passed.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn copied_first_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres passes a valid call with three arguments of these types.
    unsafe {
        let arguments = (*call).args.as_slice(3);
        let [key, copy, is_live] = [&arguments[0], &arguments[1], &arguments[2]];
        (*call).isnull = false;
        let is_checked = !key.isnull && !copy.isnull && place_of((*call).flinfo) == OURS;
        let is_live = is_live.isnull || is_live.value.value() != 0;
        let is_first = !is_checked
            || of_copy(copy.value.value() as i32, |copy| {
                copy.is_first(key.value, is_live)
            })
            .unwrap_or(true);
        Datum::from(is_first)
    }
}

impl Copy {
    /// # Safety
    /// The key is a text.
    unsafe fn is_first(&mut self, key: Datum, is_live: bool) -> bool {
        if is_live && self.expired.is_empty() || fault::on(Fault::CopiedTwiceNotHeld) {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        varlena_bytes(key).hash(&mut hasher);
        let hash = hasher.finish();
        if self.expired.contains(&hash) {
            return false;
        }
        if !is_live && self.expired.len() < MOST_KEYS && self.expired.try_reserve(1).is_ok() {
            self.expired.insert(hash);
        }
        true
    }
}

/// `pgcache.copied_again(copied record, copy integer) -> boolean`, STABLE: holds the row back, and returns false so
/// that COPY skips it.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn copied_again_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres passes a valid call with two arguments of these types. A row is one piece of memory that begins
    // with its length; the copy is aligned like all memory that Postgres allocates.
    unsafe {
        let arguments = (*call).args.as_slice(2);
        let [row, copy] = [&arguments[0], &arguments[1]];
        (*call).isnull = false;
        if !row.isnull && !copy.isnull && place_of((*call).flinfo) == OURS {
            let former = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = pg_sys::CurTransactionContext;
            let kept = pg_sys::datumCopy(row.value, false, -1);
            pg_sys::CurrentMemoryContext = former;
            of_copy(copy.value.value() as i32, |copy| {
                memory::push(&mut copy.rows, kept);
            });
        }
        Datum::from(false)
    }
}
