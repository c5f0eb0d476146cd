//! The caches that this session has used: settings and kept plans, by the relation's oid.
//!
//! Not a source of truth: each is rebuilt from the catalogs when its relation may have changed.
//! The relation is locked first and looked up afterwards, so what is found here holds for as long
//! as the lock does.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::model::deadline::{self, Deadline};
use crate::cache::model::dialect::{Dialect, Rows};
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::model::settings::Settings;
use crate::cache::model::statement::{Form, Parameter, Statement};
use crate::cache::tier::hashed_key::HashedKey;
use crate::cache::tier::slots;
use crate::error::Error;
use crate::pg::catalog::columns::Columns;
use crate::pg::catalog::invalidation::Watch;
use crate::pg::catalog::{distributed, inheritance, relation};
use crate::pg::session::lock;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::slot::Figure;
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::spi::plan::{Plan, query_once};
use crate::pg::table::shape::{self, Shape};
use crate::pg::table::target::Target;
use crate::pg::value::convert;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::key_type::KeyType;
use crate::pg::value::stored::Stored;

thread_local! {
    /// Never dropped: at the end of the process the plans' memory is gone before thread-locals are.
    static CACHES: ManuallyDrop<RefCell<BTreeMap<u32, Rc<Cache>>>> = ManuallyDrop::default();
    /// Partitions of caches, for what is done with one of them alone.
    static PARTITIONS: ManuallyDrop<RefCell<BTreeMap<u32, Rc<Cache>>>> = ManuallyDrop::default();
}

/// Where a cache's entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// In a table that is emptied by a crash.
    Unlogged,
    /// In a table that survives one.
    Logged,
    /// In the hot tier alone.
    Memory,
}

/// A cache as this session knows it.
pub struct Cache {
    pub relation: Oid,
    pub id: CacheId,
    pub settings: Settings,
    pub value_type: ValueType,
    pub storage: Storage,
    /// Row-level security is enabled: policies may hide rows, so copies are not used.
    pub row_security: bool,
    /// The triggers see every row that changes, so copies stay coherent; and whoever has the
    /// privilege may read them, which is not so of a temporary table.
    pub may_be_copied: bool,
    /// A temporary table that somebody made a cache by hand. Anybody may, so it gets nothing of
    /// what all share: no slot, no lease, no record.
    pub temporary: bool,
    /// Where keys, values and deadlines are in the table; None for a memory cache.
    pub columns: Option<Columns>,
    /// What a key must be made before it is hashed.
    pub key_type: KeyType,
    /// The table as a direct access sees it; `access_path` says when that way is taken.
    pub target: Option<Target>,
    /// Its rows are those of partitions. It has no copies in the tier: a partition that comes or goes brings or
    /// takes rows past every trigger.
    pub partitioned: bool,
    /// The table and its indexes, whose locks a read gives back; none if a statement that reads the
    /// table may run somebody else's code.
    pub own_relations: Vec<Oid>,
    /// The slot it had when last asked; see `slots` for why it is checked at each use.
    slot: Cell<Option<u32>>,
    qualified: std::ffi::CString,
    dialect: OnceCell<Dialect>,
    plans: RefCell<HashMap<(Statement, Form), Rc<Plan>>>,
    watch: Watch,
}

/// A cache that this session knows and that has not changed, as far as the session has heard.
pub fn remembered(relation: Oid) -> Option<Rc<Cache>> {
    CACHES.with(|caches| {
        let caches = caches.borrow();
        let cache = caches.get(&relation.to_u32())?;
        cache.is_present().then(|| Rc::clone(cache))
    })
}

/// Looks up a cache of which the caller holds a lock already.
pub fn find(relation: Oid) -> Result<Rc<Cache>, Error> {
    if let Some(cache) = remembered(relation) {
        return Ok(cache);
    }
    let loaded = load(relation).map(Rc::new);
    let former = forget_changed();
    if let Ok(cache) = &loaded {
        CACHES.with(|caches| {
            caches
                .borrow_mut()
                .insert(relation.to_u32(), Rc::clone(cache))
        });
    }
    drop(former); // frees their plans, outside of the borrow
    loaded
}

/// A cache as another process of the server has found it, for one that must not look into the
/// catalogs itself. The caller has heard of no change since that look. Of a table it is good for
/// looks into the hot tier alone, and only where keys are text and no policy hides rows.
pub fn adopt(
    relation: Oid,
    settings: Settings,
    value_type: ValueType,
    storage: Storage,
) -> Rc<Cache> {
    if let Some(cache) = remembered(relation)
        && (cache.settings, cache.value_type, cache.storage) == (settings, value_type, storage)
    {
        return cache;
    }
    let cache = Rc::new(Cache {
        relation,
        id: CacheId::of(relation),
        settings,
        value_type,
        storage,
        row_security: false,
        may_be_copied: false,
        partitioned: false,
        temporary: false,
        columns: None,
        key_type: KeyType::Text,
        target: None,
        own_relations: Vec::new(),
        slot: Cell::new(None),
        qualified: Default::default(),
        dialect: OnceCell::new(),
        plans: RefCell::default(),
        watch: Watch::over(relation),
    });
    let former = forget_changed();
    CACHES.with(|caches| {
        caches
            .borrow_mut()
            .insert(relation.to_u32(), Rc::clone(&cache))
    });
    drop(former); // frees their plans, outside of the borrow
    cache
}

/// Takes out every cache that has changed: what was dropped is asked for by nobody again, and a
/// session that makes and drops caches must not remember them all.
fn forget_changed() -> Vec<Rc<Cache>> {
    CACHES.with(|caches| {
        let mut caches = caches.borrow_mut();
        let changed: Vec<u32> = caches
            .iter()
            .filter(|(_, cache)| !cache.is_present())
            .map(|(&relation, _)| relation)
            .collect();
        changed
            .iter()
            .filter_map(|relation| caches.remove(relation))
            .collect()
    })
}

fn load(relation: Oid) -> Result<Cache, Error> {
    let watch = Watch::over(relation);
    let shape = shape::shape(relation).ok_or(Error::NoSuchRelation(relation.to_u32()))?;
    let name = || relation::display_name(relation);
    let Some(arguments) = &shape.settings else {
        return Err(Error::NotACache(name()));
    };
    if shape.view && shape.temporary {
        return Err(Error::TemporaryView(name()));
    }
    if !shape.view && distributed::is_distributed(relation) {
        return Err(Error::Distributed(name()));
    }
    let broken = |why: String| Error::BrokenCache(name(), why);
    let settings = Settings::from_arguments(arguments).map_err(broken)?;
    let (value_type, columns) = check_columns(&shape).map_err(broken)?;
    Ok(Cache {
        relation,
        id: CacheId::of(relation),
        settings,
        value_type,
        storage: storage(
            shape.view,
            shape.unlogged || has_unlogged_partition(&shape, relation),
        ),
        row_security: shape.row_security,
        may_be_copied: shape.triggers_always && !shape.temporary && !shape.partitioned,
        partitioned: shape.partitioned,
        temporary: shape.temporary,
        key_type: columns.as_ref().map_or(KeyType::Text, |c| c.key_type),
        columns,
        target: shape.target,
        own_relations: shape.own_relations,
        slot: Cell::new(None),
        qualified: shape.qualified,
        dialect: OnceCell::new(),
        plans: RefCell::default(),
        watch,
    })
}

/// A partition of a cache as a cache of its own, with the settings and the place in the tier of the cache. None
/// for what is none. The caller holds a lock on it; of the whole nothing is asked, so who writes into a partition
/// alone need not lock that: DETACH PARTITION locks it before its partitions.
pub fn partition(table: Oid) -> Option<Rc<Cache>> {
    let known = PARTITIONS.with(|known| known.borrow().get(&table.to_u32()).cloned());
    if let Some(known) = known.filter(|known| known.is_present()) {
        return Some(known);
    }
    let found = load_partition(table).map(Rc::new);
    let former = PARTITIONS.with(|known| {
        let mut known = known.borrow_mut();
        let changed = known.extract_if(.., |_, known| !known.is_present());
        let changed: Vec<(u32, Rc<Cache>)> = changed.collect();
        if let Some(found) = &found {
            known.insert(table.to_u32(), Rc::clone(found));
        }
        changed
    });
    drop(former); // frees their plans, outside of the borrow
    found
}

fn load_partition(table: Oid) -> Option<Cache> {
    let watch = Watch::over(table);
    let partition = shape::partition(table)?;
    let persistence = relation::persistence(table);
    Some(Cache {
        relation: table,
        id: CacheId::of(partition.whole),
        settings: Settings::from_arguments(&partition.settings).ok()?,
        value_type: partition.columns.value_type,
        storage: storage(
            false,
            persistence == Some(pgrx::pg_sys::RELPERSISTENCE_UNLOGGED),
        ),
        row_security: partition.row_security,
        may_be_copied: false,
        partitioned: false,
        temporary: persistence == Some(pgrx::pg_sys::RELPERSISTENCE_TEMP),
        key_type: partition.columns.key_type,
        columns: Some(partition.columns),
        target: partition.target,
        own_relations: Vec::new(),
        slot: Cell::new(None),
        qualified: partition.qualified,
        dialect: OnceCell::new(),
        plans: RefCell::default(),
        watch,
    })
}

/// Whether a crash takes rows of a partitioned cache, and a standby has none of them.
fn has_unlogged_partition(shape: &Shape, relation: Oid) -> bool {
    let is_unlogged =
        |&leaf: &Oid| relation::persistence(leaf) == Some(pgrx::pg_sys::RELPERSISTENCE_UNLOGGED);
    shape.partitioned && inheritance::leaves(relation).iter().any(is_unlogged)
}

/// What a cache is, for who only asks for that.
pub struct Outline {
    pub storage: Storage,
    pub value_type: ValueType,
    pub settings: Settings,
}

/// The same of any cache, and waits for nobody: while somebody holds a lock on it that keeps readers
/// off, what the catalogs say without one. None for a relation that does not work as a cache.
pub fn outline(relation: Oid) -> Option<Outline> {
    if let Some(_lock) = lock::Brief::try_on(relation, lock::Mode::Read) {
        let cache = find(relation).ok()?;
        return Some(Outline {
            storage: cache.storage,
            value_type: cache.value_type,
            settings: cache.settings,
        });
    }
    let outline = shape::outline(relation)?;
    Some(Outline {
        storage: storage(outline.view, outline.unlogged),
        value_type: outline.value_type,
        settings: Settings::from_arguments(&outline.settings).ok()?,
    })
}

fn storage(view: bool, unlogged: bool) -> Storage {
    match (view, unlogged) {
        (true, _) => Storage::Memory,
        (_, true) => Storage::Unlogged,
        (_, false) => Storage::Logged,
    }
}

/// The type of the values, and the columns of a table, when the relation has all that is needed.
fn check_columns(shape: &Shape) -> Result<(ValueType, Option<Columns>), String> {
    if shape.view {
        let value_type = shape
            .view_value
            .filter(|_| shape.view_has_deadline)
            .ok_or("Its view is not one of a memory cache.")?;
        return Ok((value_type, None));
    }
    if !shape.ordinary_table && !shape.partitioned {
        return Err("It is not an ordinary table.".into());
    }
    match &shape.columns {
        Ok(columns) => Ok((columns.value_type, Some(columns.clone()))),
        Err(misfit) => Err(misfit.why.clone()),
    }
}

impl Cache {
    /// Whether it is what the catalogs say now, as far as the session has heard.
    fn is_present(&self) -> bool {
        !(self.watch.is_stale() || self.row_security && self.watch.has_other_roles())
    }

    /// Whether a change of its rows runs nobody's code but ours.
    pub fn changes_alone(&self) -> bool {
        let plain = self.target.as_ref().is_some_and(|target| target.writable);
        plain || self.storage == Storage::Memory
    }

    /// Whether reading or changing its rows may run code that is not ours.
    pub fn runs_others_code(&self) -> bool {
        self.row_security || !self.changes_alone()
    }

    /// The kept plan of a statement over this cache's table; planned at its first use.
    pub fn plan(&self, statement: Statement) -> Rc<Plan> {
        self.plan_in(statement, Form::Plain)
    }

    /// The kept plan of a statement in this form, for a transaction that may see two versions of a
    /// key.
    pub fn plan_in(&self, statement: Statement, form: Form) -> Rc<Plan> {
        if let Some(plan) = self.plans.borrow().get(&(statement, form)) {
            return Rc::clone(plan);
        }
        let sql = statement.sql(self.qualified.as_bytes(), self.dialect(), form);
        let address = (form == Form::Address).then_some(Parameter::Address);
        let types: Vec<Oid> = statement
            .parameters()
            .iter()
            .copied()
            .chain(address)
            .map(|parameter| self.type_of(parameter))
            .collect();
        let plan = Rc::new(Plan::over(self.relation, sql, &types, statement.paths()));
        self.plans
            .borrow_mut()
            .insert((statement, form), Rc::clone(&plan));
        plan
    }

    /// How statements speak to this cache's table. A memory cache has none, and no statements.
    pub fn dialect(&self) -> &Dialect {
        self.dialect.get_or_init(|| {
            self.columns
                .as_ref()
                .map_or_else(Dialect::default, |columns| {
                    let rows = match self.partitioned {
                        true => Rows::OfPartitions,
                        false => Rows::Own,
                    };
                    Dialect::of(columns, rows)
                })
        })
    }

    /// The key as the table prints it: what is hashed, noted and compared. Raises 22P02 for what is
    /// no value of the key's column.
    #[inline]
    pub fn key(&self, key: Key) -> Key {
        match self.key_type.is_text() {
            true => key,
            false => Key::stored(self.key_type.canonical(key.text())),
        }
    }

    /// Raises 22001 for a key that the table's column is too short for.
    #[inline]
    pub fn check_room(&self, key: Key) -> Result<(), Error> {
        match self.key_type.has_room_for(key.text()) {
            true => Ok(()),
            false => Err(Error::KeyBeyondColumn),
        }
    }

    /// Raises 0A000 for a prefix of keys that have none.
    pub fn check_prefix(&self, prefix: Text) -> Result<(), Error> {
        match self.key_type.is_text() || prefix.bytes().is_empty() {
            true => Ok(()),
            false => Err(Error::NoPrefixes),
        }
    }

    /// Raises 0A000 where the table's values or deadlines are generated.
    pub fn check_writable(&self) -> Result<(), Error> {
        match self
            .columns
            .as_ref()
            .is_some_and(|columns| columns.generated)
        {
            true => Err(Error::GeneratedColumns),
            false => Ok(()),
        }
    }

    /// Whether somebody else has made its table.
    pub fn is_attached(&self) -> bool {
        self.columns
            .as_ref()
            .is_some_and(|columns| columns.attached)
    }

    /// Whether a negative entry can be stored.
    pub fn takes_null(&self) -> bool {
        let columns = self.columns.as_ref();
        columns.is_none_or(|columns| columns.value_nullable)
    }

    /// A key of this cache with its hash.
    #[inline]
    pub fn hashed(&self, key: Key) -> HashedKey {
        HashedKey::of(self.id, key)
    }

    /// The same for a key as a caller spells it.
    #[inline]
    pub fn rehashed(&self, key: HashedKey) -> HashedKey {
        match self.key_type.is_text() {
            true => key,
            false => self.hashed(self.key(key.key)),
        }
    }

    /// The cache's slot in the tier, if it has one.
    #[inline]
    pub fn slot(&self, tier: &Tier) -> Option<u32> {
        let known = self
            .slot
            .get()
            .filter(|&slot| tier.cache_of(slot).is(self.id, SeqCst));
        if known.is_none() {
            let found = slots::find(tier, self.id);
            self.slot.set(found.filter(|&slot| self.is_own(tier, slot)));
        }
        self.slot.get()
    }

    /// The cache's slot; assigns one if it has none. None when all are taken, and for a temporary
    /// table.
    pub fn slot_or_new(&self, tier: &Tier) -> Option<u32> {
        if self.temporary {
            return None;
        }
        self.slot(tier).or_else(|| {
            if slots::find(tier, self.id).is_some_and(|slot| !self.is_own(tier, slot)) {
                slots::free(tier, self.id);
            }
            slots::assign(tier, self.id, self.memory_id())
        })
    }

    /// A standby is not told when a relation is dropped, and another one may get its oid.
    fn is_own(&self, tier: &Tier, slot: u32) -> bool {
        tier.slot(slot).memory_id.load(SeqCst) == self.memory_id()
    }

    /// By which a slot knows a memory cache; 0 for a table.
    fn memory_id(&self) -> u64 {
        match self.storage {
            Storage::Memory => self.settings.id.unwrap_or(0).max(1),
            _ => 0,
        }
    }

    /// Counts something that happened to this cache.
    pub fn count(&self, figure: Figure, times: u64) {
        let Some(tier) = tier() else {
            return;
        };
        // A memory cache has one by now, or was dropped meanwhile and must not get another.
        let slot = match self.storage {
            Storage::Memory => self.slot(tier),
            _ => self.slot_or_new(tier),
        };
        if let Some(slot) = slot {
            tier.slot(slot).count(figure, times);
        }
    }

    /// Whether the relation may have changed since it was looked at.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.watch.is_stale()
    }

    /// An entry that is written now: the value in the cache's own type.
    pub fn entry(&self, value: Option<Stored>, ttl: Option<Interval>) -> Result<Entry, Error> {
        Ok(Entry {
            deadline: self.deadline(ttl)?,
            value: value.map(|value| convert::given(value, self.value_type)),
        })
    }

    /// The deadline of an entry that is written now.
    pub fn deadline(&self, ttl: Option<Interval>) -> Result<Deadline, Error> {
        deadline::with_jitter(ttl, self.settings.ttl, self.settings.ttl_jitter)
    }

    /// `schema.name`, quoted, for a definition statement.
    pub fn qualified_name(&self) -> &std::ffi::CStr {
        &self.qualified
    }

    fn type_of(&self, parameter: Parameter) -> Oid {
        match parameter {
            Parameter::Key => ValueType::Text.oid(),
            Parameter::Keys => ValueType::Text.array_oid(),
            Parameter::Value => self.value_type.oid(),
            Parameter::Values => self.value_type.array_oid(),
            Parameter::Deadline => pgrx::pg_sys::TIMESTAMPTZOID,
            Parameter::Number => pgrx::pg_sys::INT8OID,
            Parameter::Address => pgrx::pg_sys::TIDOID,
        }
    }
}

/// Every cache of the database.
pub fn all_caches() -> Vec<Oid> {
    query_once(
        c"SELECT c.cache FROM pgcache.all_caches AS c ORDER BY c.cache",
        &[],
        &[],
        |output| {
            (0..output.rows())
                .filter_map(|row| output.oid(row, 0))
                .collect()
        },
    )
}
