//! Checks whether a table's triggers are safe to fire while the extension removes rows as the table's owner.
//!
//! Any role with the TRIGGER privilege on a table can create triggers on it, and no catalog records which role created
//! a trigger. So the check examines the code that the trigger runs. The trigger's function must belong to a role that
//! has the owner's privileges anyway. The trigger's condition may call only functions that cannot run another role's
//! code, whatever their arguments are.
//!
//! The check runs under a lock that blocks new triggers until the transaction ends. The lock does not block CREATE OR
//! REPLACE FUNCTION, which keeps the function's owner. SECURITY DEFINER does not make a function trusted: its owner may
//! remove that property between the check and the call, and no lock prevents this.

use std::ffi::{CStr, c_void};

use pgrx::PgLogLevel;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Node, Oid};

use crate::error::Error;
use crate::pg::catalog::called_functions::{is_of_a_user, shows_its_functions};
use crate::pg::catalog::{inheritance, name, own, relation};
use crate::pg::encoding;
use crate::pg::memory::unguarded;
use crate::pg::session::lock::Mode;
use crate::pg::version;

/// The bits of `tgtype` for triggers that fire when rows are removed.
const REMOVES: u32 = pg_sys::TRIGGER_TYPE_DELETE | pg_sys::TRIGGER_TYPE_TRUNCATE;

/// Functions that are not immutable, but run no user-defined code, whatever their arguments are.
const HARMLESS: [u32; 11] = [
    pg_sys::F_NOW,
    pg_sys::F_TRANSACTION_TIMESTAMP,
    pg_sys::F_STATEMENT_TIMESTAMP,
    pg_sys::F_CLOCK_TIMESTAMP,
    pg_sys::F_PG_TRIGGER_DEPTH,
    pg_sys::F_CURRENT_SETTING_TEXT,
    pg_sys::F_CONCAT,
    pg_sys::F_CONCAT_WS,
    pg_sys::F_FORMAT_TEXT,
    pg_sys::F_FORMAT_TEXT_ANY,
    pg_sys::F_TO_CHAR_TIMESTAMPTZ_TEXT,
];

/// Raises 42501 if the removal of rows as the table's owner would run code of a role that lacks the owner's privileges.
/// The caller holds a writer's lock on the table.
///
/// The triggers of a partitioned table's partitions run, too, so this function locks all partitions.
pub fn refuse(table: Oid) {
    let owner = relation::owner(table);
    let all = match relation::is_partitioned(table) {
        true => inheritance::family(table, Mode::Write),
        false => vec![table],
    };
    let found = all.into_iter().find_map(|one| first_of_others(one, owner));
    if let Some(error) = found {
        ErrorReport::from(error).report(PgLogLevel::ERROR);
    }
}

fn first_of_others(table: Oid, owner: Oid) -> Option<Error> {
    // SAFETY: the relation is open while its triggers are copied.
    unsafe {
        let open = pg_sys::try_relation_open(table, pg_sys::AccessShareLock as i32);
        if open.is_null() {
            return None;
        }
        let found = relation::copied_triggers(open)
            .iter()
            .filter(|trigger| trigger.tgenabled != pg_sys::TRIGGER_DISABLED as i8)
            .filter(|trigger| trigger.tgtype as u32 & REMOVES != 0)
            .find_map(|trigger| judge(trigger, table, owner));
        pg_sys::relation_close(open, pg_sys::AccessShareLock as i32);
        found
    }
}

/// # Safety
/// `trigger` is a copy, because this function reads catalogs.
unsafe fn judge(trigger: &pg_sys::Trigger, table: Oid, owner: Oid) -> Option<Error> {
    let names = || {
        // SAFETY: every trigger has a name.
        let name = unsafe { CStr::from_ptr(trigger.tgname) };
        (
            encoding::decode(name.to_bytes()),
            relation::display_name(table),
        )
    };
    if !is_trusted(trigger.tgfoid, owner) {
        let (trigger_name, cache) = names();
        return Some(Error::TriggerOfAnother {
            trigger: trigger_name,
            cache,
            role: name::of_role(owner_of(trigger.tgfoid))
                .map_or(String::new(), |role| encoding::decode(role.to_bytes())),
        });
    }
    // SAFETY: tgqual is NULL or the text of an expression.
    let condition = unsafe {
        match trigger.tgqual.is_null() {
            true => return None,
            false => pg_sys::stringToNode(trigger.tgqual).cast(),
        }
    };
    // SAFETY: an expression that was just read.
    let called = unsafe { Called::of(condition) };
    let harmless = |&function: &Oid| {
        HARMLESS.contains(&function.to_u32())
            || function == own::DEPENDS.oid()
            || function == own::DEPENDS_UNDER.oid()
            || (is_immutable(function) && is_trusted(function, owner))
    };
    if called.shown && called.functions.iter().all(harmless) {
        return None;
    }
    let (trigger, cache) = names();
    Some(Error::ConditionOfAnother { trigger, cache })
}

/// Returns whether the owner may run a function without running another role's code: the function is Postgres' own or
/// pgcache's, or belongs to a role that has the owner's privileges.
fn is_trusted(function: Oid, owner: Oid) -> bool {
    // pgcache's functions are written in C. The role that created them was a superuser at that time, but need not be
    // one now.
    let ours = || {
        let ours = [own::RECORD, own::RECORD_TRUNCATE];
        let of_sources = [own::INVALIDATE, own::INVALIDATE_ALL];
        ours.iter().chain(&of_sources).any(|f| f.oid() == function)
    };
    // SAFETY: syscache lookups inside a transaction.
    let has_privileges = || unsafe { pg_sys::has_privs_of_role(owner_of(function), owner) };
    !is_of_a_user(function) || ours() || has_privileges()
}

/// Returns the owner of a function. For a dropped function returns InvalidOid, which has no role's privileges.
pub(super) fn owner_of(function: Oid) -> Oid {
    // SAFETY: a syscache lookup inside a transaction; the tuple is released after its one field has been copied.
    unsafe {
        let kind = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let tuple = pg_sys::SearchSysCache1(kind, pg_sys::Datum::from(function));
        if tuple.is_null() {
            return pg_sys::InvalidOid;
        }
        let row: pg_sys::Form_pg_proc = pg_sys::GETSTRUCT(tuple).cast();
        let owner = (*row).proowner;
        pg_sys::ReleaseSysCache(tuple);
        owner
    }
}

fn is_immutable(function: Oid) -> bool {
    // SAFETY: a syscache lookup; the function exists, because the trigger depends on it.
    unsafe { pg_sys::func_volatile(function) as u8 == pg_sys::PROVOLATILE_IMMUTABLE }
}

/// The functions that an expression calls.
struct Called {
    functions: Vec<Oid>,
    /// Whether Postgres' walker reports all of them.
    shown: bool,
}

impl Called {
    /// # Safety
    /// `node` is an expression.
    unsafe fn of(node: *mut Node) -> Called {
        let mut called = Called {
            functions: Vec::new(),
            shown: true,
        };
        // SAFETY: the sequence is one walk over the caller's expression; `called` outlives it.
        unsafe {
            let context: *mut Called = &raw mut called;
            unguarded::guarded(|| note_functions(node, context.cast()));
        }
        called
    }
}

/// Records the functions that a node calls. Postgres' walker calls this for each node, and continues while it returns
/// false.
unsafe extern "C-unwind" fn note_functions(node: *mut Node, context: *mut c_void) -> bool {
    // SAFETY: inside `guarded`; the node is read after the test for NULL, the context is the Called of `Called::of`.
    unsafe {
        if node.is_null() {
            return false;
        }
        let tag = (*node).type_;
        if tag != pg_sys::NodeTag::T_SQLValueFunction && !shows_its_functions(tag) {
            (*context.cast::<Called>()).shown = false;
            return true;
        }
        unguarded::check_functions_in_node(node, Some(note_function), context)
            || version::expression_tree_walker(node, Some(note_functions), context)
    }
}

unsafe extern "C-unwind" fn note_function(function: Oid, context: *mut c_void) -> bool {
    // SAFETY: as in `note_functions`.
    let called = unsafe { &mut *context.cast::<Called>() };
    // No error may unwind through Postgres' walker. So if memory runs out, the functions count as not shown.
    called.shown &= called.functions.try_reserve(1).is_ok();
    if called.shown {
        called.functions.push(function);
    }
    !called.shown
}
