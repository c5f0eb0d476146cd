//! Reads the properties of a relation that determine whether it is a cache, and which kind: its columns, pgcache's
//! triggers or view, and the settings in them.
//!
//! `cache::catalog::registry` decides from them whether the relation is a valid cache.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::target::{self, Target};
use crate::pg::catalog::columns::{self, Columns, Misfit};
use crate::pg::catalog::{own, relation};
use crate::pg::memory::pg_list;
use crate::pg::value::datum::ValueType;

/// The properties of a relation that decide whether it is a cache.
pub struct Shape {
    /// `schema.name`, quoted as a statement needs it, in the server's encoding.
    pub qualified: CString,
    /// Whether the relation is an ordinary table, not a partitioned table, view or foreign table.
    pub ordinary_table: bool,
    /// Whether the relation is a partitioned table, which stores no rows itself.
    pub partitioned: bool,
    /// Whether the relation is a view; every memory cache is one.
    pub view: bool,
    pub unlogged: bool,
    /// Whether row-level security is enabled, for any role.
    pub row_security: bool,
    /// Whether an update of a row runs no user-defined trigger, rule or policy of the table.
    pub updates_alone: bool,
    /// Whether both of pgcache's triggers fire in every session, including apply workers and sessions with
    /// `session_replication_role = replica`.
    pub triggers_always: bool,
    /// Whether the relation is TEMPORARY: other sessions must not read it, whatever their privileges.
    pub temporary: bool,
    /// The columns of a table's keys, values and deadlines, or the reason why it cannot be a cache.
    pub columns: Result<Columns, Misfit>,
    /// The type of a view's column `value`, if a cache can have this type.
    pub view_value: Option<ValueType>,
    /// Whether the view has a column `expires_at timestamptz`.
    pub view_has_deadline: bool,
    /// The arguments of pgcache's row trigger, or of the function in a memory cache's view; None if the relation has
    /// neither.
    pub settings: Option<Vec<Vec<u8>>>,
    /// The arguments of the trigger that carries the cache's reserve.
    pub reserve: Option<Vec<Vec<u8>>>,
    /// The data for direct access to the table; None if the table does not allow it.
    pub target: Option<Target>,
    /// The OIDs of the table and its indexes; empty if a statement that reads the table may run user-defined code.
    pub own_relations: Vec<pg_sys::Oid>,
}

/// Returns the shape of a relation, which the caller has locked; None if the relation was dropped.
pub fn shape(relation: pg_sys::Oid) -> Option<Shape> {
    let rows = own::RECORD.oid();
    let truncate = own::RECORD_TRUNCATE.oid();
    // SAFETY: try_relation_open returns NULL for a dropped relation, otherwise an entry that stays valid until the
    // close below. The code keeps no pointer into it.
    unsafe {
        let open = pg_sys::try_relation_open(relation, pg_sys::AccessShareLock as i32);
        if open.is_null() {
            return None;
        }
        let class = &*(*open).rd_rel;
        let settings = trigger_arguments(open, rows).or_else(|| view_settings(open));
        let columns = columns::of_cache(open);
        let shape = Shape {
            qualified: relation::qualified(relation),
            ordinary_table: class.relkind == pg_sys::RELKIND_RELATION as i8,
            partitioned: class.relkind == pg_sys::RELKIND_PARTITIONED_TABLE as i8,
            view: class.relkind == pg_sys::RELKIND_VIEW as i8,
            unlogged: class.relpersistence == pg_sys::RELPERSISTENCE_UNLOGGED as i8,
            row_security: class.relrowsecurity,
            updates_alone: target::updates_alone(open),
            temporary: class.relpersistence == pg_sys::RELPERSISTENCE_TEMP as i8,
            triggers_always: fires_always(open, rows, EVERY_ROW)
                && fires_always(open, truncate, EVERY_TRUNCATE),
            view_value: type_of_column(relation, c"value").and_then(ValueType::from_oid),
            view_has_deadline: type_of_column(relation, c"expires_at")
                == Some(pg_sys::TIMESTAMPTZOID),
            target: match (&settings, &columns) {
                (Some(_), Ok(columns)) => target::target(open, columns),
                _ => None,
            },
            columns,
            own_relations: target::relations_read_alone(open),
            reserve: trigger_arguments(open, own::RESERVE.oid()),
            settings,
        };
        pg_sys::relation_close(open, pg_sys::AccessShareLock as i32);
        Some(shape)
    }
}

/// Returns whether the catalogs mark the relation as a cache. Takes no lock on the relation. The cache may be invalid.
pub fn is_marked_as_cache(relation: pg_sys::Oid) -> bool {
    relation::has_trigger(relation, own::RECORD.oid()) || settings_of_view(relation).is_some()
}

/// The properties of a cache that can be read from the catalogs without a lock on the cache.
pub struct Outline {
    pub view: bool,
    pub unlogged: bool,
    pub value_type: ValueType,
    pub settings: Vec<Vec<u8>>,
    pub reserve: Option<Vec<Vec<u8>>>,
}

/// Returns the committed properties of a relation that another session may be altering; None if it is not a cache.
pub fn outline(relation: pg_sys::Oid) -> Option<Outline> {
    let view = relation::is_view(relation);
    let settings = match view {
        true => settings_of_view(relation),
        false => relation::trigger_arguments(relation, own::RECORD.oid()),
    };
    Some(Outline {
        view,
        unlogged: relation::persistence(relation)? == pg_sys::RELPERSISTENCE_UNLOGGED,
        value_type: value_type(relation)?,
        settings: settings?,
        reserve: relation::trigger_arguments(relation, own::RESERVE.oid()),
    })
}

/// Returns the type of the values of a relation that the caller has not locked.
fn value_type(relation: pg_sys::Oid) -> Option<ValueType> {
    let Some(numbers) = relation::trigger_columns(relation, own::COLUMNS.oid()) else {
        return ValueType::from_oid(type_of_column(relation, c"value")?);
    };
    // SAFETY: a syscache lookup, which returns 0 for a column that was dropped.
    ValueType::of_column(unsafe { pg_sys::get_atttype(relation, *numbers.get(1)?) })
}

/// Returns the type of the column with this name; None if no such column exists.
fn type_of_column(relation: pg_sys::Oid, name: &CStr) -> Option<pg_sys::Oid> {
    let number = relation::column_number(relation, name)?;
    // SAFETY: a syscache lookup of a column that exists.
    Some(unsafe { pg_sys::get_atttype(relation, number) })
}

/// The properties of a cache's partition that access to the partition alone needs.
pub struct Partition {
    /// The cache to which it belongs.
    pub whole: pg_sys::Oid,
    /// `schema.name`, quoted as a statement needs it.
    pub qualified: CString,
    pub columns: Columns,
    /// The arguments of its copy of the cache's trigger.
    pub settings: Vec<Vec<u8>>,
    pub row_security: bool,
    /// [`Shape::updates_alone`] for the partition.
    pub updates_alone: bool,
    /// The data for direct access to the partition, which may only read; None if the partition does not allow it.
    pub target: Option<Target>,
}

/// Returns the properties of a partition, which the caller has locked, from its own catalog rows. Neither reads nor
/// locks the whole cache. Returns None if the table is not a partition of a cache.
pub fn partition(partition: pg_sys::Oid) -> Option<Partition> {
    let rows = own::RECORD.oid();
    let whole = relation::above(partition, rows)?;
    let settings = relation::trigger_arguments(partition, rows)?;
    // SAFETY: try_relation_open returns NULL for a dropped relation, otherwise an entry that stays valid
    // until the close below; only copies are kept.
    unsafe {
        let open = pg_sys::try_relation_open(partition, pg_sys::NoLock as i32);
        if open.is_null() {
            return None;
        }
        let columns = columns::of_cache(open);
        let target = columns
            .as_ref()
            .ok()
            .and_then(|columns| target::target(open, columns));
        let row_security = (*(*open).rd_rel).relrowsecurity;
        let updates_alone = target::updates_alone(open);
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        Some(Partition {
            whole,
            qualified: relation::spelled(partition)?,
            columns: columns.ok()?,
            settings,
            row_security,
            updates_alone,
            target,
        })
    }
}

/// Returns the relation's own trigger that calls `function`, or None. A partition's copies of its parent's triggers do
/// not count, because they do not make the partition a cache.
///
/// # Safety
/// `relation` must be open as long as the result is used.
unsafe fn trigger_calling<'a>(
    relation: pg_sys::Relation,
    function: pg_sys::Oid,
) -> Option<&'a pg_sys::Trigger> {
    if function == pg_sys::InvalidOid {
        return None;
    }
    // SAFETY: the relation is open, by the caller's contract.
    let triggers = unsafe { relation::triggers(relation) };
    triggers
        .iter()
        .find(|trigger| trigger.tgfoid == function && !trigger.tgisclone)
}

/// Returns the names of the triggers that make a table a cache or carry its settings.
pub fn own_triggers(relation: pg_sys::Oid) -> Vec<CString> {
    let ours = own::OF_A_CACHE.map(|function| function.oid());
    // SAFETY: the caller holds a lock on the relation, so it can be opened, and is open while the
    // triggers' names are copied.
    unsafe {
        let open = pg_sys::relation_open(relation, pg_sys::NoLock as i32);
        let names = relation::triggers(open)
            .iter()
            .filter(|trigger| ours.contains(&trigger.tgfoid))
            .map(|trigger| CStr::from_ptr(trigger.tgname).to_owned())
            .collect();
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        names
    }
}

/// Returns the arguments of the relation's own trigger that calls `function`; None if it has no such trigger.
///
/// # Safety
/// `relation` must be open.
unsafe fn trigger_arguments(
    relation: pg_sys::Relation,
    function: pg_sys::Oid,
) -> Option<Vec<Vec<u8>>> {
    // SAFETY: the relation is open, by the caller's contract, so its triggers stay; each has tgnargs C strings, which
    // are copied.
    unsafe {
        let trigger = trigger_calling(relation, function)?;
        let arguments = (0..trigger.tgnargs as usize)
            .map(|i| CStr::from_ptr(*trigger.tgargs.add(i)).to_bytes().to_vec())
            .collect();
        Some(arguments)
    }
}

/// The type of a trigger AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW.
const EVERY_ROW: u32 = pg_sys::TRIGGER_TYPE_ROW
    | pg_sys::TRIGGER_TYPE_INSERT
    | pg_sys::TRIGGER_TYPE_UPDATE
    | pg_sys::TRIGGER_TYPE_DELETE;
/// The type of a trigger BEFORE TRUNCATE, FOR EACH STATEMENT.
const EVERY_TRUNCATE: u32 = pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_TRUNCATE;

/// Returns whether the trigger that calls `function` is enabled ALWAYS and fires for all of these events, without a
/// WHEN condition and without a list of columns.
///
/// # Safety
/// `relation` must be open.
unsafe fn fires_always(relation: pg_sys::Relation, function: pg_sys::Oid, events: u32) -> bool {
    // SAFETY: the relation is open, by the caller's contract, so its triggers stay while the code reads plain fields of
    // one.
    unsafe {
        trigger_calling(relation, function).is_some_and(|trigger| {
            trigger.tgenabled == pg_sys::TRIGGER_FIRES_ALWAYS as i8
                && trigger.tgtype as u32 == events
                && trigger.tgnattr == 0
                && trigger.tgqual.is_null()
        })
    }
}

/// The name of the SELECT rule of every view.
const SELECT_RULE: &CStr = c"_RETURN";
/// The number of pg_rewrite's column ev_action, from Postgres' catalog/pg_rewrite.h.
const EV_ACTION: i16 = 8;

/// Returns the settings in a memory cache's view, from the catalogs alone. The caller may pass any OID, so this
/// function must neither lock the relation nor wait for it. Returns None for a relation without settings, and for a
/// temporary view, which is not a cache.
pub fn settings_of_view(relation: pg_sys::Oid) -> Option<Vec<Vec<u8>>> {
    if !relation::is_view(relation) || relation::is_temporary(relation) {
        return None;
    }
    // SAFETY: a syscache lookup; the attribute is copied before the tuple is released. The action of a view's rule is
    // the text of a list of queries.
    unsafe {
        let rule = pg_sys::SearchSysCache2(
            pg_sys::SysCacheIdentifier::RULERELNAME as i32,
            pg_sys::Datum::from(relation),
            pg_sys::Datum::from(SELECT_RULE.as_ptr()),
        );
        if rule.is_null() {
            return None;
        }
        let mut null = false;
        let action = pg_sys::SysCacheGetAttr(
            pg_sys::SysCacheIdentifier::RULERELNAME as i32,
            rule,
            EV_ACTION,
            &mut null,
        );
        let text = (!null).then(|| pg_sys::text_to_cstring(action.cast_mut_ptr()));
        pg_sys::ReleaseSysCache(rule);
        settings_in(pg_sys::stringToNode(text?).cast())
    }
}

/// Returns the settings in a memory cache's view: the function that the view calls has one argument, whose words are
/// the settings.
///
/// # Safety
/// `relation` must be open.
unsafe fn view_settings(relation: pg_sys::Relation) -> Option<Vec<Vec<u8>>> {
    // SAFETY: a view has one rule for SELECT, and may have others. rd_rules belongs to the
    // relation, which is open.
    unsafe {
        if (*(*relation).rd_rel).relkind != pg_sys::RELKIND_VIEW as i8
            || (*relation).rd_rules.is_null()
        {
            return None;
        }
        let rules = &*(*relation).rd_rules;
        let rule = std::slice::from_raw_parts(rules.rules, rules.numLocks as usize)
            .iter()
            .find(|&&rule| (*rule).event == pg_sys::CmdType::CMD_SELECT)?;
        settings_in((**rule).actions)
    }
}

/// # Safety
/// `actions` are the actions of a view's rule for SELECT.
unsafe fn settings_in(actions: *mut pg_sys::List) -> Option<Vec<Vec<u8>>> {
    let function = own::MEMORY_ENTRIES.oid();
    // SAFETY: the list has one query, whose range table is a list of entries; nodes are read only after
    // their tag.
    unsafe {
        let query: *mut pg_sys::Query = *pg_list::pointers(actions).first()?;
        pg_list::pointers::<pg_sys::RangeTblEntry>((*query).rtable)
            .into_iter()
            .filter(|&table| (*table).rtekind == pg_sys::RTEKind::RTE_FUNCTION)
            .find_map(|table| text_argument((*table).functions, function))
            .map(|text| {
                text.split(|&byte| byte == b' ')
                    .map(<[u8]>::to_vec)
                    .collect()
            })
    }
}

/// Returns the constant text argument of a call of `function` in FROM; None if FROM does not call it or the argument is
/// not constant.
///
/// # Safety
/// `functions` is a list of RangeTblFunction nodes.
unsafe fn text_argument(functions: *mut pg_sys::List, function: pg_sys::Oid) -> Option<Vec<u8>> {
    // SAFETY: each node is read only after its tag; a non-null constant of type text holds a varlena.
    unsafe {
        let function_in_from: *mut pg_sys::RangeTblFunction =
            *pg_list::pointers(functions).first()?;
        let call: *mut pg_sys::FuncExpr = (*function_in_from).funcexpr.cast();
        if (*call).xpr.type_ != pg_sys::NodeTag::T_FuncExpr || (*call).funcid != function {
            return None;
        }
        let constant: *mut pg_sys::Const = *pg_list::pointers((*call).args).first()?;
        let is_text = (*constant).xpr.type_ == pg_sys::NodeTag::T_Const
            && !(*constant).constisnull
            && (*constant).consttype == pg_sys::TEXTOID;
        is_text.then(|| crate::pg::value::datum::varlena_bytes((*constant).constvalue).to_vec())
    }
}
