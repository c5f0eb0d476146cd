//! Stores the dependencies of caches on tables, as triggers of the table whose condition names the cache and the
//! key.
//!
//! The condition is `WHEN (true OR pgcache.depends('cache'::regclass, key))`, or `pgcache.depends('cache'::regclass,
//! key, 'settings')` if the key depends on settings. The condition is always true and never evaluated; it only stores
//! the dependency in the catalog. So Postgres itself follows renames of columns and of the cache, refuses to drop
//! objects that the key needs, copies the trigger to partitions, and dumps and restores the trigger. The trigger's
//! function reads the key's expression from the condition and evaluates it over the old and the new row.
//!
//! The trigger acts with the rights of the owner of the table on which it was declared. Whenever the trigger runs, that
//! owner must be allowed to delete from the cache. Otherwise a role could create a trigger on its own table that names
//! another role's cache, and so remove that cache's entries.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

use super::dependency_key::RowKey;
use super::trigger::called_as_trigger;
use crate::error::Error;
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::catalog::steady_functions::{Steadiness, steadiness};
use crate::pg::catalog::{columns, own, relation};
use crate::pg::memory::pg_list;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::temporary_settings::{Held, Texts};
use crate::pg::value::call::V1;
use crate::pg::value::datum::{Text, Value};
use crate::pg::value::key_type::KeyType;
use crate::pg::{events, session, version};

/// Returns the calling convention of `pgcache.invalidate()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_invalidate_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.invalidate_all()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_invalidate_all_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// The row trigger's state for all rows of one statement, in the memory of the call's FmgrInfo.
struct Prepared {
    cache: Oid,
    /// The table whose owner evaluates the key; None if the result is the same for any role.
    as_owner_of: Option<Oid>,
    key: RowKey,
    /// The settings of the session that declared the trigger; None if the key depends on no settings.
    settings: Option<Texts>,
    /// The type of the cache's keys. It cannot change during the statement: detaching a cache drops its triggers, and
    /// waits for the writers of their tables.
    key_type: KeyType,
}

/// Runs as `pgcache.invalidate()`: AFTER INSERT, or AFTER UPDATE OR DELETE, FOR EACH ROW. Reports the keys of the
/// changed row.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn invalidate_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    let trigger = called_as_trigger(call, "invalidate");
    // SAFETY: Postgres fills TriggerData for a row trigger: the slots hold the rows that the event has. fn_extra is
    // NULL or the pointer that `prepare` has stored there, which lives as long as the FmgrInfo.
    unsafe {
        if (*trigger).tg_event & pg_sys::TRIGGER_EVENT_ROW == 0 {
            ErrorReport::from(Error::NotATrigger("invalidate")).report(PgLogLevel::ERROR);
        }
        let function = (*call).flinfo;
        if (*function).fn_extra.is_null() {
            (*function).fn_extra = prepare(&*trigger, (*function).fn_mcxt).cast();
        }
        let prepared: &Prepared = &*(*function).fn_extra.cast();
        let _owner = prepared.as_owner_of.map(AsOwner::to_maintain);
        let _settings = hold(prepared.settings.as_ref());
        let keys = (prepared.key).of_rows((*trigger).tg_trigslot, (*trigger).tg_newslot);
        for key in keys.into_iter().flatten() {
            // A value that is not a key raises no error, because the role that writes the row is not responsible for
            // the key.
            let key = prepared.key_type.canonical_if_any(Text::from_raw(key));
            if let Some(key) = key {
                events::emit(|observer| (observer.depended_on)(prepared.cache, key.bytes()));
            }
        }
    }
    Datum::null()
}

/// Runs as `pgcache.invalidate_all()`: BEFORE TRUNCATE, FOR EACH STATEMENT. Reports that all dependent entries are
/// invalid.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn invalidate_all_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    let trigger = called_as_trigger(call, "invalidate_all");
    // SAFETY: a running trigger has its Trigger.
    let condition = unsafe { Condition::of((*trigger).tg_trigger) };
    let Some(condition) = condition else {
        ErrorReport::from(Error::NotADependency).report(PgLogLevel::ERROR);
        return Datum::null();
    };
    // SAFETY: Postgres keeps the relation open while its trigger runs.
    let declared_on = unsafe { (*(*trigger).tg_relation).rd_id };
    require_rights(condition.cache, declared_on);
    events::emit(|observer| (observer.depended_on_all)(condition.cache));
    Datum::null()
}

/// Invalidates the caches that depend on a truncated partition. TRUNCATE of a partition fires no trigger of the
/// parent, but the partition has copies of the parent's row triggers, which name the caches.
pub fn partition_truncated(partition: Oid) {
    for DependencyTrigger { cache, trigger, .. } in on_table(partition) {
        if let Some(declared_on) = declared_on(trigger).filter(|&table| table != partition) {
            require_rights(cache, declared_on);
            events::emit(|observer| (observer.depended_on_all)(cache));
        }
    }
}

/// # Safety
/// `trigger` is Postgres' own; `memory` lives as long as the result is used.
unsafe fn prepare(trigger: &pg_sys::TriggerData, memory: pg_sys::MemoryContext) -> *mut Prepared {
    // SAFETY: the former memory context is restored; after an error the abort does it.
    unsafe {
        let former = pg_sys::MemoryContextSwitchTo(memory);
        let Some(condition) = Condition::of(trigger.tg_trigger) else {
            ErrorReport::from(Error::NotADependency).report(PgLogLevel::ERROR);
            return std::ptr::null_mut();
        };
        let declared_on = match (*trigger.tg_trigger).tgisclone {
            true => require_declared_on((*trigger.tg_trigger).tgoid),
            false => (*trigger.tg_relation).rd_id,
        };
        require_rights(condition.cache, declared_on);
        // Planning looks up names and inlines SQL functions, so it runs with the owner's rights and a fixed
        // search_path. Otherwise the role that writes the row could choose the objects to which the names refer.
        let stranger = relation::owner(declared_on) != session::user();
        let settings = condition.settings.map(|text| Texts::read(text.bytes()));
        let key = {
            let _owner = stranger.then(|| AsOwner::to_maintain(declared_on));
            let _settings = hold(settings.as_ref());
            RowKey::prepare(condition.key, trigger.tg_relation)
        };
        let by_anybody = key.is_plain || !stranger;
        let prepared: *mut Prepared = pg_sys::palloc(size_of::<Prepared>()).cast();
        prepared.write(Prepared {
            cache: condition.cache,
            as_owner_of: (!by_anybody).then_some(declared_on),
            key,
            settings,
            key_type: columns::key_type(condition.cache),
        });
        pg_sys::MemoryContextSwitchTo(former);
        prepared
    }
}

/// Applies the settings of the session that declared the key, while the key is evaluated.
fn hold(settings: Option<&Texts>) -> Option<Held> {
    settings
        .filter(|_| !fault::on(Fault::KeyUnderWritersSettings))
        .and_then(Texts::hold)
}

/// Raises 42501 unless the table's owner may delete any entry of the cache.
pub fn require_rights(cache: Oid, declared_on: Oid) {
    let _owner = AsOwner::to_maintain(declared_on);
    privilege::require(cache, Privileges::DELETE, may_be_a_cache);
    if privilege::row_security_applies(cache) {
        ErrorReport::from(Error::DependencyUnderPolicies).report(PgLogLevel::ERROR);
    }
}

/// Returns whether an error's hint may name the relation. A trigger that a user created by hand may refer to any
/// relation, whose name the hint would reveal.
fn may_be_a_cache(relation: Oid) -> bool {
    relation::has_trigger(relation, own::RECORD.oid()) || relation::is_view(relation)
}

/// Returns whether the cache exists and the table's owner may delete any entry of it.
pub fn has_rights(cache: Oid, declared_on: Oid) -> bool {
    let _owner = AsOwner::to_maintain(declared_on);
    relation::is_there(cache)
        && privilege::has(cache, Privileges::DELETE)
        && !privilege::row_security_applies(cache)
}

/// The cache, key and settings in a trigger's condition.
struct Condition {
    cache: Oid,
    key: *mut pg_sys::Node,
    settings: Option<Text>,
}

impl Condition {
    /// # Safety
    /// `trigger` is a copy of a relcache trigger, like the triggers in TriggerData.
    unsafe fn of(trigger: *const pg_sys::Trigger) -> Option<Condition> {
        // SAFETY: tgqual is NULL or the text of a node tree.
        unsafe {
            let text = (*trigger).tgqual;
            (!text.is_null()).then(|| Condition::read(pg_sys::stringToNode(text).cast()))?
        }
    }

    /// Extracts the parts of `true OR pgcache.depends(cache, key)`, with settings or without; None for any other
    /// node.
    ///
    /// # Safety
    /// `node` is a node.
    unsafe fn read(node: *mut pg_sys::Node) -> Option<Condition> {
        // SAFETY: each node is read after its tag.
        unsafe {
            let either: *mut pg_sys::BoolExpr = node.cast();
            if (*node).type_ != pg_sys::NodeTag::T_BoolExpr {
                return None;
            }
            let [_, call] = pg_list::pointers::<pg_sys::FuncExpr>((*either).args)[..] else {
                return None;
            };
            if (*call).xpr.type_ != pg_sys::NodeTag::T_FuncExpr {
                return None;
            }
            let (cache, key, settings) = match pg_list::pointers::<pg_sys::Node>((*call).args)[..] {
                [cache, key] if (*call).funcid == own::DEPENDS.oid() => (cache, key, None),
                [cache, key, settings] if (*call).funcid == own::DEPENDS_UNDER.oid() => {
                    (cache, key, Some(Text::from_raw(constant(settings)?)))
                }
                _ => return None,
            };
            Some(Condition {
                cache: Oid::from_u32(constant(cache)?.value() as u32),
                key,
                settings,
            })
        }
    }
}

/// Returns the cache in the condition of a dependency trigger, which is text from pg_trigger; None unless the key
/// follows the settings of the session that writes the row. Needs no lock on the trigger's table.
pub fn follows_writers(condition: Text) -> Option<Oid> {
    let text = CString::new(condition.bytes()).ok()?;
    // SAFETY: pg_trigger holds conditions as the text of a node tree.
    let condition = unsafe { Condition::read(pg_sys::stringToNode(text.as_ptr()).cast()) }?;
    (condition.settings.is_none() && !is_steady(condition.key)).then_some(condition.cache)
}

fn is_steady(key: *mut pg_sys::Node) -> bool {
    // SAFETY: the key of a condition, an expression that Postgres has analysed.
    matches!(unsafe { steadiness(key) }, Steadiness::Steady)
}

/// Returns the value of a constant that is not NULL.
///
/// # Safety
/// `node` is a node.
unsafe fn constant(node: *mut pg_sys::Node) -> Option<Datum> {
    let constant: *mut pg_sys::Const = node.cast();
    // SAFETY: read after the tag.
    unsafe {
        let is_constant = (*node).type_ == pg_sys::NodeTag::T_Const && !(*constant).constisnull;
        is_constant.then(|| (*constant).constvalue)
    }
}

/// A dependency's trigger on a table.
pub struct DependencyTrigger {
    pub trigger: Oid,
    /// The trigger's name, without SQL quotes.
    pub name: CString,
    pub cache: Oid,
    /// Whether this is a partition's copy of its parent's trigger, which Postgres drops together with the original.
    pub is_clone: bool,
    /// Whether the trigger is ENABLE ALWAYS, the state in which pgcache creates it. It then fires under any
    /// session_replication_role.
    pub is_always: bool,
    /// Whether the trigger fires only while session_replication_role is not replica, the state after ENABLE TRIGGER.
    pub is_at_origin: bool,
    /// The settings under which the key is evaluated; None means the settings of each session that writes a row.
    pub settings: Option<Vec<u8>>,
    /// The key's expression from the trigger's condition.
    key: *mut pg_sys::Node,
    /// The bits of `tgtype` for the events that fire the trigger.
    kind: i16,
}

impl DependencyTrigger {
    /// Returns whether the trigger fires for INSERT; each dependency has exactly one such trigger.
    pub fn is_of_inserts(&self) -> bool {
        self.kind as u32 & pg_sys::TRIGGER_TYPE_INSERT != 0
    }

    /// Returns the key as SQL, with `prefix.` before each column of the table.
    pub fn print_key(&self, table: Oid, prefix: &CStr) -> Vec<u8> {
        self.print(table, prefix, true)
    }

    /// Returns the key in the syntax of `cache_depend`.
    pub fn key_expression(&self, table: Oid) -> Vec<u8> {
        self.print(table, c"row", false)
    }

    fn print(&self, table: Oid, prefix: &CStr, is_prefixed: bool) -> Vec<u8> {
        // SAFETY: a copy of the nodes, changed to refer to one row of the table; the result is palloc'd.
        unsafe {
            let key = pg_sys::copyObjectImpl(self.key.cast()).cast();
            for row in [pg_sys::PRS2_OLD_VARNO, pg_sys::PRS2_NEW_VARNO] {
                pg_sys::ChangeVarNodes(key, row as i32, 1, 0);
            }
            let context = pg_sys::deparse_context_for(prefix.as_ptr(), table);
            let text = pg_sys::deparse_expression(key, context, is_prefixed, false);
            CStr::from_ptr(text).to_bytes().to_vec()
        }
    }

    /// Returns whether the key depends on the settings of the session that writes the row. Such keys exist only in
    /// dependencies from before 0.5.0.
    pub fn follows_writers(&self) -> bool {
        self.settings.is_none() && !is_steady(self.key)
    }

    /// Returns whether fixed settings would make the key depend on nothing but the row, so that `cache_depend` accepts
    /// the key.
    pub fn can_be_fixed(&self) -> bool {
        // SAFETY: an expression that Postgres has analysed.
        !matches!(unsafe { steadiness(self.key) }, Steadiness::Unsteady(_))
    }

    /// Returns whether both triggers name the same cache and compute the key by the same expression at the same events.
    /// Ignores their settings.
    pub fn equals(&self, other: &DependencyTrigger) -> bool {
        // SAFETY: both are node trees in the memory context of the call, and only compared.
        self.cache == other.cache
            && self.kind == other.kind
            && unsafe { pg_sys::equal(self.key.cast(), other.key.cast()) }
    }
}

/// Returns the functions that dependency triggers call, for rows and for TRUNCATE; InvalidOid if the extension is not
/// installed.
pub fn functions() -> [Oid; 2] {
    [own::INVALIDATE.oid(), own::INVALIDATE_ALL.oid()]
}

/// Returns the dependencies' triggers on a table.
pub fn on_table(table: Oid) -> Vec<DependencyTrigger> {
    let functions = functions();
    // SAFETY: the relation is open while its triggers are copied; parsing their conditions reads catalogs.
    unsafe {
        let open = pg_sys::try_relation_open(table, pg_sys::AccessShareLock as i32);
        if open.is_null() {
            return Vec::new();
        }
        let found = relation::copied_triggers(open)
            .iter()
            .filter(|trigger| functions.contains(&trigger.tgfoid))
            .filter_map(|trigger| {
                let condition = Condition::of(trigger)?;
                Some(DependencyTrigger {
                    trigger: trigger.tgoid,
                    name: CStr::from_ptr(trigger.tgname).to_owned(),
                    cache: condition.cache,
                    is_clone: trigger.tgisclone,
                    is_always: trigger.tgenabled == pg_sys::TRIGGER_FIRES_ALWAYS as i8,
                    is_at_origin: trigger.tgenabled == pg_sys::TRIGGER_FIRES_ON_ORIGIN as i8,
                    settings: condition.settings.map(|text| text.bytes().to_vec()),
                    key: condition.key,
                    kind: trigger.tgtype,
                })
            })
            .collect();
        pg_sys::relation_close(open, pg_sys::AccessShareLock as i32);
        found
    }
}

/// Makes a trigger of a table fire in all sessions, as ALTER TABLE ONLY ... ENABLE ALWAYS TRIGGER does. Does not run
/// that command, which would look up the table by its name, as a role that may lack USAGE on the schema, and would run
/// event triggers.
pub fn enable_always(table: Oid, trigger: &CStr) {
    // SAFETY: inside a transaction. The relation is open, under the lock of ALTER TABLE, until it is closed; the lock
    // is kept. The change of the trigger's row notifies other sessions.
    unsafe {
        let lock = pg_sys::ShareRowExclusiveLock as i32;
        let open = pg_sys::try_relation_open(table, lock);
        if open.is_null() {
            return;
        }
        version::enable_always(open, trigger);
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        pg_sys::CommandCounterIncrement();
    }
}

/// Returns the table on which a partition's trigger was declared, or None if the original trigger does not exist.
pub fn declared_on(trigger: Oid) -> Option<Oid> {
    relation::made_on(trigger)
}

/// Returns the table on which a partition's trigger was declared; raises 39P01 if the original trigger does not exist.
/// Postgres drops copies before their original, so this happens only in a damaged catalog. The partition cannot stand
/// in for the table, because its owner may be another role with other rights.
pub fn require_declared_on(trigger: Oid) -> Oid {
    declared_on(trigger).unwrap_or_else(|| {
        ErrorReport::from(Error::NotADependency).report(PgLogLevel::ERROR);
        pg_sys::InvalidOid
    })
}

/// Drops triggers of a cache's dependencies, together with the partitions' copies. Like DROP of the cache, checks no
/// privilege on the triggers' tables.
pub fn drop_triggers(triggers: &[Oid]) {
    // SAFETY: catalog changes inside a transaction; the list of addresses is made and freed here, and stores copies.
    unsafe {
        let all = pg_sys::new_object_addresses();
        for &trigger in triggers {
            let address = pg_sys::ObjectAddress {
                classId: pg_sys::TriggerRelationId,
                objectId: trigger,
                objectSubId: 0,
            };
            pg_sys::add_exact_object_address(&address, all);
        }
        pg_sys::performMultipleDeletions(all, pg_sys::DropBehavior::DROP_RESTRICT, 0);
        pg_sys::free_object_addresses(all);
        pg_sys::CommandCounterIncrement();
    }
}

/// Makes the trigger depend on its cache, so that DROP of the cache also drops the trigger, as it drops the cache's
/// indexes, instead of requiring CASCADE.
pub fn goes_with(trigger: Oid, cache: Oid) {
    // SAFETY: catalog changes inside a transaction; the addresses live through the call.
    unsafe {
        let normal = pg_sys::DependencyType::DEPENDENCY_NORMAL as u8 as std::ffi::c_char;
        let address = |class: Oid, object: Oid| pg_sys::ObjectAddress {
            classId: class,
            objectId: object,
            objectSubId: 0,
        };
        let removed = pg_sys::deleteDependencyRecordsForSpecific(
            pg_sys::TriggerRelationId,
            trigger,
            normal,
            pg_sys::RelationRelationId,
            cache,
        );
        if removed > 0 {
            pg_sys::recordDependencyOn(
                &address(pg_sys::TriggerRelationId, trigger),
                &address(pg_sys::RelationRelationId, cache),
                pg_sys::DependencyType::DEPENDENCY_AUTO,
            );
            pg_sys::CommandCounterIncrement();
        }
    }
}
