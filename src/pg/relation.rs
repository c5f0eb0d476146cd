//! What Postgres' catalogs say of a relation: names, kind, columns, triggers.
//!
//! Not what it means: whether the relation makes a good cache is judged in `cache::registry`.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::datum::ValueType;
use super::table_target::{self, Target};

/// The facts about a relation that decide whether and how it is a cache.
pub struct Shape {
    /// `schema.name`, quoted as a statement needs it, in the server's encoding.
    pub qualified: CString,
    /// Tables of the ordinary kind; not partitions' parents, views, foreign tables.
    pub ordinary_table: bool,
    /// A view, as memory caches have.
    pub view: bool,
    /// `UNLOGGED`.
    pub unlogged: bool,
    /// Row-level security is enabled, for whomever.
    pub row_security: bool,
    /// Both of pgcache's triggers fire for every session, replicas and apply workers included.
    pub triggers_always: bool,
    /// `TEMPORARY`: other sessions must not read it, whatever they may.
    pub temporary: bool,
    /// A column `key text COLLATE "C"` that an immediate unique index covers alone.
    pub has_key: bool,
    /// The type of the column `value`, when it is one that a cache can have.
    pub value_type: Option<ValueType>,
    /// A column `expires_at timestamptz`.
    pub has_deadline: bool,
    /// The arguments of pgcache's row trigger, or of the function behind a memory cache's view; None
    /// when there is neither.
    pub settings: Option<Vec<Vec<u8>>>,
    /// The table as a direct access sees it.
    pub target: Option<Target>,
}

/// Reads a relation's facts; None when it is gone. The caller holds a lock on it.
pub fn shape(relation: pg_sys::Oid) -> Option<Shape> {
    let rows = internal_function(c"record");
    let truncate = internal_function(c"record_truncate");
    // SAFETY: try_relation_open gives NULL for a relation that is gone, else an entry that stays
    // valid until the close below. Nothing in between keeps a pointer into it.
    unsafe {
        let open = pg_sys::try_relation_open(relation, pg_sys::AccessShareLock as i32);
        if open.is_null() {
            return None;
        }
        let class = &*(*open).rd_rel;
        let settings = trigger_arguments(open, rows).or_else(|| view_settings(open));
        let shape = Shape {
            qualified: qualified_name(relation),
            ordinary_table: class.relkind == pg_sys::RELKIND_RELATION as i8,
            view: class.relkind == pg_sys::RELKIND_VIEW as i8,
            unlogged: class.relpersistence == pg_sys::RELPERSISTENCE_UNLOGGED as i8,
            row_security: class.relrowsecurity,
            temporary: class.relpersistence == pg_sys::RELPERSISTENCE_TEMP as i8,
            triggers_always: fires_always(open, rows, EVERY_ROW)
                && fires_always(open, truncate, EVERY_TRUNCATE),
            has_key: has_key(open),
            value_type: column(relation, c"value").and_then(|c| ValueType::from_oid(c.type_oid)),
            has_deadline: column(relation, c"expires_at")
                .is_some_and(|c| c.type_oid == pg_sys::TIMESTAMPTZOID),
            target: match settings {
                Some(_) => table_target::target(open),
                None => None,
            },
            settings,
        };
        pg_sys::relation_close(open, pg_sys::AccessShareLock as i32);
        Some(shape)
    }
}

/// Whether there is such a relation, as far as this session has heard.
pub fn is_there(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up, which gives 0 for a relation that is gone.
    unsafe { pg_sys::get_rel_relkind(relation) != 0 }
}

/// Postgres' fixed oid of `pg_catalog."C"`.
const C_COLLATION: pg_sys::Oid = pg_sys::Oid::from_u32(950);

struct Column {
    number: i16,
    type_oid: pg_sys::Oid,
    collation: pg_sys::Oid,
}

/// A live column by name.
fn column(relation: pg_sys::Oid, name: &CStr) -> Option<Column> {
    let (mut type_oid, mut modifier, mut collation) = (pg_sys::InvalidOid, 0, pg_sys::InvalidOid);
    // SAFETY: syscache look-ups that copy what they find; get_attnum gives 0 for a column that is
    // not there or was dropped.
    unsafe {
        let number = pg_sys::get_attnum(relation, name.as_ptr());
        if number == pg_sys::InvalidAttrNumber as i16 {
            return None;
        }
        pg_sys::get_atttypetypmodcoll(
            relation,
            number,
            &mut type_oid,
            &mut modifier,
            &mut collation,
        );
        Some(Column {
            number,
            type_oid,
            collation,
        })
    }
}

/// The number of a live column.
pub(super) fn column_number(relation: pg_sys::Oid, name: &CStr) -> Option<i16> {
    column(relation, name).map(|column| column.number)
}

/// Whether `key text COLLATE "C"` is there and is the whole primary key.
///
/// # Safety
/// `relation` must be open.
unsafe fn has_key(relation: pg_sys::Relation) -> bool {
    // SAFETY: the bitmap is a copy; a deferrable primary key does not appear in it.
    unsafe {
        let Some(key) = column((*relation).rd_id, c"key") else {
            return false;
        };
        let primary = pg_sys::RelationGetIndexAttrBitmap(
            relation,
            pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_PRIMARY_KEY,
        );
        key.type_oid == pg_sys::TEXTOID
            && key.collation == C_COLLATION
            && pg_sys::bms_num_members(primary) == 1
            && pg_sys::bms_is_member(
                i32::from(key.number) - pg_sys::FirstLowInvalidHeapAttributeNumber,
                primary,
            )
    }
}

/// The trigger that calls `function`.
///
/// # Safety
/// `relation` must be open for as long as the result is used.
unsafe fn trigger_calling<'a>(
    relation: pg_sys::Relation,
    function: pg_sys::Oid,
) -> Option<&'a pg_sys::Trigger> {
    // SAFETY: trigdesc is NULL or has numtriggers triggers.
    unsafe {
        let descriptor = (*relation).trigdesc;
        if descriptor.is_null() || function == pg_sys::InvalidOid {
            return None;
        }
        std::slice::from_raw_parts((*descriptor).triggers, (*descriptor).numtriggers as usize)
            .iter()
            .find(|trigger| trigger.tgfoid == function)
    }
}

/// The oids in a list; none for NULL.
///
/// # Safety
/// `list` is NULL or a list of oids.
pub(super) unsafe fn oids(list: *mut pg_sys::List) -> Vec<pg_sys::Oid> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: a list has `length` cells, here each with an oid.
    unsafe {
        (0..(*list).length as usize)
            .map(|i| (*(*list).elements.add(i)).oid_value)
            .collect()
    }
}

/// The arguments of the trigger that calls `function`.
///
/// # Safety
/// `relation` must be open.
unsafe fn trigger_arguments(
    relation: pg_sys::Relation,
    function: pg_sys::Oid,
) -> Option<Vec<Vec<u8>>> {
    // SAFETY: a trigger has tgnargs C strings.
    unsafe {
        let trigger = trigger_calling(relation, function)?;
        let arguments = (0..trigger.tgnargs as usize)
            .map(|i| CStr::from_ptr(*trigger.tgargs.add(i)).to_bytes().to_vec())
            .collect();
        Some(arguments)
    }
}

/// AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW.
const EVERY_ROW: u32 = pg_sys::TRIGGER_TYPE_ROW
    | pg_sys::TRIGGER_TYPE_INSERT
    | pg_sys::TRIGGER_TYPE_UPDATE
    | pg_sys::TRIGGER_TYPE_DELETE;
/// BEFORE TRUNCATE, FOR EACH STATEMENT.
const EVERY_TRUNCATE: u32 = pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_TRUNCATE;

/// Whether the trigger that calls `function` is enabled ALWAYS and fires for all of these events,
/// without a WHEN and without a list of columns.
///
/// # Safety
/// `relation` must be open.
unsafe fn fires_always(relation: pg_sys::Relation, function: pg_sys::Oid, events: u32) -> bool {
    // SAFETY: the relation is open.
    unsafe {
        trigger_calling(relation, function).is_some_and(|trigger| {
            trigger.tgenabled == pg_sys::TRIGGER_FIRES_ALWAYS as i8
                && trigger.tgtype as u32 == events
                && trigger.tgnattr == 0
                && trigger.tgqual.is_null()
        })
    }
}

/// The settings in a memory cache's view: the words of the one argument of the function behind it.
///
/// # Safety
/// `relation` must be open.
unsafe fn view_settings(relation: pg_sys::Relation) -> Option<Vec<Vec<u8>>> {
    let function = internal_function(c"memory_entries");
    // SAFETY: a view has one rule for SELECT (and may have others) with one query, whose range table
    // is a list of entries; nodes are looked at only after their tag. rd_rules belongs to the
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
        let query: *mut pg_sys::Query = *pointers((**rule).actions).first()?;
        pointers::<pg_sys::RangeTblEntry>((*query).rtable)
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

/// The constant text that a call of `function` in FROM is given.
///
/// # Safety
/// `functions` is a list of RangeTblFunction nodes.
unsafe fn text_argument(functions: *mut pg_sys::List, function: pg_sys::Oid) -> Option<Vec<u8>> {
    // SAFETY: each node is looked at only after its tag was; a non-null constant of type text holds
    // a varlena.
    unsafe {
        let function_in_from: *mut pg_sys::RangeTblFunction = *pointers(functions).first()?;
        let call: *mut pg_sys::FuncExpr = (*function_in_from).funcexpr.cast();
        if (*call).xpr.type_ != pg_sys::NodeTag::T_FuncExpr || (*call).funcid != function {
            return None;
        }
        let constant: *mut pg_sys::Const = *pointers((*call).args).first()?;
        let is_text = (*constant).xpr.type_ == pg_sys::NodeTag::T_Const
            && !(*constant).constisnull
            && (*constant).consttype == pg_sys::TEXTOID;
        is_text.then(|| super::datum::varlena_bytes((*constant).constvalue).to_vec())
    }
}

/// The elements of a list of pointers; none for NULL.
///
/// # Safety
/// `list` is NULL or a list of pointers to `T`.
pub unsafe fn pointers<T>(list: *mut pg_sys::List) -> Vec<*mut T> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: a list has `length` cells, here each with a pointer.
    unsafe {
        (0..(*list).length as usize)
            .map(|i| (*(*list).elements.add(i)).ptr_value.cast())
            .collect()
    }
}

/// The oid of a function in schema pgcache; InvalidOid where the extension is not installed.
pub fn internal_function(name: &CStr) -> pg_sys::Oid {
    // SAFETY: the list and its strings live in the current memory context; with missing_ok the
    // look-up gives InvalidOid. -1: any number of arguments, there is one function of each name.
    unsafe {
        let schema = pg_sys::makeString(c"pgcache".as_ptr().cast_mut()).cast();
        let name = pg_sys::makeString(name.as_ptr().cast_mut()).cast();
        let names = pg_sys::lappend(pg_sys::lappend(std::ptr::null_mut(), schema), name);
        pg_sys::LookupFuncName(names, -1, std::ptr::null(), true)
    }
}

/// `schema.name`, each part quoted where it needs to be.
///
/// # Safety
/// The relation must exist, and a lock on it must be held.
unsafe fn qualified_name(relation: pg_sys::Oid) -> CString {
    // SAFETY: the relation exists, so it has a name and a schema; the results are palloc'd copies.
    unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        let name = pg_sys::get_rel_name(relation);
        CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, name)).to_owned()
    }
}

/// The same for a relation that the caller has locked.
pub fn qualified(relation: pg_sys::Oid) -> CString {
    // SAFETY: it exists and is locked.
    unsafe { qualified_name(relation) }
}

/// Tables whose rows' changes fire row triggers: ordinary ones and partitions' parents.
pub fn is_table(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up.
    let kind = unsafe { pg_sys::get_rel_relkind(relation) } as u8;
    kind == pg_sys::RELKIND_RELATION || kind == pg_sys::RELKIND_PARTITIONED_TABLE
}

/// A type's name for an error message.
pub fn type_name(type_oid: pg_sys::Oid) -> String {
    // SAFETY: the type exists; the result is palloc'd.
    unsafe {
        CStr::from_ptr(pg_sys::format_type_be(type_oid))
            .to_string_lossy()
            .into_owned()
    }
}

/// The bare name for an error message; empty when the relation is gone.
pub fn display_name(relation: pg_sys::Oid) -> String {
    // SAFETY: get_rel_name gives NULL or a palloc'd copy.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        match name.is_null() {
            true => String::new(),
            false => super::encoding::decode(CStr::from_ptr(name).to_bytes()),
        }
    }
}

/// The role that owns the relation; InvalidOid when it is gone.
pub fn owner(relation: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: the tuple is released after its one field has been copied.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::RELOID as i32,
            pg_sys::Datum::from(relation),
        );
        if tuple.is_null() {
            return pg_sys::InvalidOid;
        }
        let class: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(tuple).cast();
        let owner = (*class).relowner;
        pg_sys::ReleaseSysCache(tuple);
        owner
    }
}

/// What error messages call the relation: table, view, sequence ...
pub fn object_type(relation: pg_sys::Oid) -> pg_sys::ObjectType::Type {
    // SAFETY: a syscache look-up; relkind 0 (gone) counts as a table.
    unsafe { pg_sys::get_relkind_objtype(pg_sys::get_rel_relkind(relation)) }
}

/// Whether it is a temporary table of another session, which nobody else can read.
pub fn is_temporary_elsewhere(relation: pg_sys::Oid) -> bool {
    // SAFETY: syscache look-ups; no schema of a relation that is gone is a temporary one.
    unsafe { pg_sys::isOtherTempNamespace(pg_sys::get_rel_namespace(relation)) }
}

/// Whether it is a view.
pub fn is_view(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up; relkind 0 (gone) is none.
    unsafe { pg_sys::get_rel_relkind(relation) == pg_sys::RELKIND_VIEW as i8 }
}

/// What the catalog says of a trigger.
pub struct TriggerRow {
    pub table: pg_sys::Oid,
    /// The trigger of the partition's parent that it was copied from, or InvalidOid.
    pub parent: pg_sys::Oid,
}

/// The relation that a trigger belongs to.
pub fn of_trigger(trigger: pg_sys::Oid) -> Option<pg_sys::Oid> {
    Some(trigger_row(trigger)?.table)
}

/// A trigger by its oid. Also finds one that this very command has made.
pub fn trigger_row(trigger: pg_sys::Oid) -> Option<TriggerRow> {
    // SAFETY: a scan of pg_trigger by its oid index; the tuple is read before the scan ends. The
    // static snapshot "self" sees rows of the present command.
    unsafe {
        let catalog = pg_sys::table_open(
            pg_sys::TriggerRelationId,
            pg_sys::AccessShareLock as pg_sys::LOCKMODE,
        );
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_trigger_oid as i16,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from_u32(pg_sys::F_OIDEQ),
            pg_sys::Datum::from(trigger),
        );
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::Oid::from_u32(pg_sys::TriggerOidIndexId),
            true,
            &raw mut pg_sys::SnapshotSelfData,
            1,
            &mut key,
        );
        let tuple = pg_sys::systable_getnext(scan);
        let row = (!tuple.is_null()).then(|| {
            let form: pg_sys::Form_pg_trigger = pg_sys::GETSTRUCT(tuple).cast();
            TriggerRow {
                table: (*form).tgrelid,
                parent: (*form).tgparentid,
            }
        });
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        row
    }
}
