//! Every error that pgcache itself raises: one variant, one SQLSTATE, one message.
//!
//! Errors of Postgres (a failed cast, a serialization failure, a missing privilege) keep their words;
//! they are not listed here. `pg::session::failure` says where they lose what they show of a row,
//! and `pg::session::hint` where they gain a hint. Messages follow the style of Postgres: lower
//! case, no full stop, nothing of a key or a value, because messages end up in logs. Each has a hint,
//! which docs/reference.md repeats.

use pgrx::PgSqlErrorCode as Code;
use pgrx::pg_sys::panic::ErrorReport;

use crate::pg::encoding::printable;

/// What can go wrong, in the words of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An argument that must be given is NULL.
    NullArgument(&'static str),
    /// An array argument has a NULL element.
    NullElement(&'static str),
    /// The key has no characters.
    EmptyKey,
    /// The key has more bytes than [`pgcache_store::MAX_KEY`].
    LongKey(usize),
    /// A ttl is zero or negative.
    TtlNotPositive,
    /// A grace is negative.
    NegativeGrace,
    /// A count that must not be negative is.
    NegativeCount(&'static str),
    /// Two arrays that belong together differ in length.
    UnequalArrays,
    /// An array has more than one dimension.
    ArrayDimensions(&'static str),
    /// A number of servers is zero or negative.
    NodesNotPositive,
    /// The relation is there, but is no cache.
    NotACache(String),
    /// Citus keeps the table's rows on other relations, its shards.
    Distributed(String),
    /// A temporary view over the entries of a memory cache, made by hand.
    TemporaryView(String),
    /// The relation carries pgcache's trigger, but lacks what a cache needs.
    BrokenCache(String, String),
    /// A table cannot become a cache: its name, why, and what can be done.
    Unattachable(String, String, Option<String>),
    /// The relation that is to be attached is no table of a user's own: its name, why, and what can be
    /// done, if anything.
    AttachedKind(String, &'static str, Option<&'static str>),
    /// `cache_attach` of a relation that is a cache.
    AttachedAlready(String),
    /// `cache_attach` names a column that the table has not, or is told of none where the table has
    /// no column of the usual name.
    NoSuchColumn {
        column: String,
        table: String,
        argument: &'static str,
        holds: &'static str,
    },
    /// `expires_unit` is none of the known words.
    UnknownUnit(String),
    /// `cache_detach` of a cache that has no table.
    DetachedView(String),
    /// `cache_detach` of the cache that the extension itself has made.
    DetachedMain,
    /// An entry is to be written where Postgres computes its value or deadline.
    GeneratedColumns,
    /// The same of a default ttl, which only what is written would get.
    GeneratedTtl,
    /// The table's key column has no room for a key.
    KeyBeyondColumn,
    /// A key is no value of the type of the table's key column.
    KeyNotOfType(&'static str),
    /// The same, because the type ends before it.
    KeyOutOfRange(&'static str),
    /// A prefix is asked for of keys that are no text.
    NoPrefixes,
    /// No relation has this oid.
    NoSuchRelation(u32),
    /// A name is taken by a relation that is no cache.
    NameTaken(String),
    /// A name is taken by a relation that is a cache already.
    CacheExists(String),
    /// `storage` is none of the known words.
    UnknownStorage(String),
    /// A memory cache on a server without a hot tier.
    NoTier,
    /// The extension's scripts in this database lack something that came later, and the library
    /// needs.
    OlderExtension,
    /// The extension is gone, and one of its functions still runs.
    DroppedExtension,
    /// `pgcache.memory_entries` was called with settings that no memory cache has.
    NoSuchView,
    /// A cache's definition changed while a statement was at work on it.
    DefinitionChanged,
    /// `lock_timeout` has passed while a writer waited for loaders.
    LockTimeout,
    /// A query names other columns than a function gives.
    WrongColumns,
    /// An allocation of so many bytes failed.
    OutOfMemory(usize),
    /// All slots of the hot tier are taken by other caches.
    NoSlot,
    /// The system has not got the shared memory that the hot tier asks for, in bytes.
    NoSharedMemory(usize),
    /// An entry of a memory cache that the hot tier cannot hold.
    EntryTooLarge(usize),
    /// `value_type` is none of text, jsonb, bytea.
    UnknownValueType,
    /// A value that is to be jsonb is no JSON.
    NotJson,
    /// JSON with a character that jsonb, or the server's encoding, has not.
    UnknownCharacter,
    /// Bytes that are to be text are none in the server's encoding.
    NotText,
    /// The stored value of a counter is no integer.
    NotAnInteger,
    /// A counter would leave the range of bigint.
    CounterOverflow,
    /// A warning: a text for a bytea cache is what bytea prints, and means other bytes there.
    HexLiteralAsText,
    /// PREPARE TRANSACTION was let pass, and another extension's callback changes what entries depend on,
    /// without a tier.
    PreparedWrite,
    /// PREPARE TRANSACTION while others that are not decided take all there is for them.
    TooManyPrepared,
    /// Entries go with the commit, at a moment when triggers of a cache's own would come too late.
    TooLateForTriggers(String),
    /// PREPARE TRANSACTION after `pgcache.publish`.
    PreparedMessages,
    /// One transaction has published more than this many bytes.
    TooMuchPublished(usize),
    /// `pgcache.resp_kill` of a client of somebody else's.
    ClientOfAnother,
    /// A trigger function of pgcache was called in a way no trigger calls it.
    NotATrigger(&'static str),
    /// The loader of a fetch fetches the key that it loads.
    LoaderRecursion,
    /// The loader is no single query.
    LoaderNoQuery(String),
    /// The loader gives several columns, or none.
    LoaderColumns(String),
    /// The loader has given more than one row.
    LoaderRows(String),
    /// `cache_depend` of a logged cache on a table that a crash empties.
    UnloggedSource(String),
    /// A removal as a cache's owner would fire a trigger whose function belongs to somebody else.
    TriggerOfAnother {
        trigger: String,
        cache: String,
        role: String,
    },
    /// The same of a trigger whose condition may run anything.
    ConditionOfAnother { trigger: String, cache: String },
    /// `cache_lease` and its kin on a server without a hot tier.
    NoLeases,
    /// `cache_lease` with a negative wait.
    NegativeWait,
    /// A share of the ttl that is below 0 or above 1.
    JitterOutOfRange,
    /// A factor of early refresh that is negative or no number.
    EarlyRefreshOutOfRange,
    /// A key expression that is something else, or several.
    NotAnExpression,
    /// A key expression gives another type than text.
    KeyNotText(String),
    /// A key expression gives another key each time.
    VolatileKey,
    /// The relation is there, but has no rows that could change.
    SourceNotATable(String),
    /// TRUNCATE of the source would clear `pgcache.main`.
    DependencyOfMain,
    /// Row-level security would hide entries from whoever declares the dependency.
    DependencyUnderPolicies,
    /// A table inherits from one on which a cache depends, has another owner, and does not depend
    /// itself.
    ChildOfAnother(String),
    /// No dependency of this cache was declared on the table.
    NoDependency(String),
    /// A trigger calls a dependency's function and was not made by `cache_depend`.
    NotADependency,
    /// A rate limit of no hits.
    LimitNotPositive,
    /// A rate limit's window is zero or negative.
    WindowNotPositive,
    /// pg_cron is not installed on this server, or not in any database that we can reach.
    NoCron,
    /// pg_cron lives in another database of this server.
    CronElsewhere { database: String, command: String },
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Error::NullArgument(_) | Error::NullElement(_) => Code::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            Error::LockTimeout => Code::ERRCODE_LOCK_NOT_AVAILABLE,
            Error::LongKey(_) | Error::KeyBeyondColumn => {
                Code::ERRCODE_STRING_DATA_RIGHT_TRUNCATION
            }
            Error::Unattachable(..) | Error::AttachedKind(..) => Code::ERRCODE_DATATYPE_MISMATCH,
            Error::NoSuchColumn { .. } => Code::ERRCODE_UNDEFINED_COLUMN,
            Error::DetachedView(_)
            | Error::DetachedMain
            | Error::GeneratedColumns
            | Error::GeneratedTtl
            | Error::NoPrefixes => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::EmptyKey
            | Error::TtlNotPositive
            | Error::NegativeGrace
            | Error::NegativeCount(_)
            | Error::UnequalArrays
            | Error::ArrayDimensions(_)
            | Error::NegativeWait
            | Error::JitterOutOfRange
            | Error::EarlyRefreshOutOfRange
            | Error::UnknownStorage(_)
            | Error::UnknownUnit(_)
            | Error::LimitNotPositive
            | Error::WindowNotPositive
            | Error::NodesNotPositive
            | Error::UnknownValueType => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            Error::NotAnExpression => Code::ERRCODE_SYNTAX_ERROR,
            Error::KeyNotText(_) => Code::ERRCODE_DATATYPE_MISMATCH,
            Error::VolatileKey => Code::ERRCODE_INVALID_OBJECT_DEFINITION,
            Error::SourceNotATable(_) => Code::ERRCODE_WRONG_OBJECT_TYPE,
            Error::DependencyOfMain => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::DependencyUnderPolicies
            | Error::ChildOfAnother(_)
            | Error::TriggerOfAnother { .. }
            | Error::ConditionOfAnother { .. }
            | Error::ClientOfAnother => Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            Error::NoDependency(_) => Code::ERRCODE_UNDEFINED_OBJECT,
            Error::NotADependency => Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
            Error::NotACache(_)
            | Error::Distributed(_)
            | Error::TemporaryView(_)
            | Error::NameTaken(_)
            | Error::BrokenCache(..) => Code::ERRCODE_WRONG_OBJECT_TYPE,
            Error::NoSuchRelation(_) | Error::NoSuchView => Code::ERRCODE_UNDEFINED_TABLE,
            Error::CacheExists(_) | Error::AttachedAlready(_) => Code::ERRCODE_DUPLICATE_TABLE,
            Error::HexLiteralAsText => Code::ERRCODE_WARNING,
            Error::NotAnInteger | Error::NotJson | Error::KeyNotOfType(_) => {
                Code::ERRCODE_INVALID_TEXT_REPRESENTATION
            }
            Error::UnknownCharacter => Code::ERRCODE_UNTRANSLATABLE_CHARACTER,
            Error::NotText => Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
            Error::CounterOverflow | Error::KeyOutOfRange(_) => {
                Code::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE
            }
            Error::LoaderRecursion => Code::ERRCODE_INVALID_RECURSION,
            Error::LoaderNoQuery(_) | Error::LoaderColumns(_) => Code::ERRCODE_SYNTAX_ERROR,
            Error::LoaderRows(_) => Code::ERRCODE_CARDINALITY_VIOLATION,
            Error::NoTier
            | Error::NoLeases
            | Error::OlderExtension
            | Error::DroppedExtension
            | Error::DefinitionChanged
            | Error::UnloggedSource(_) => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            Error::NoSharedMemory(_) | Error::OutOfMemory(_) => Code::ERRCODE_OUT_OF_MEMORY,
            Error::NoSlot | Error::TooManyPrepared => Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            Error::EntryTooLarge(_) | Error::TooMuchPublished(_) => {
                Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED
            }
            Error::PreparedWrite
            | Error::PreparedMessages
            | Error::TooLateForTriggers(_)
            | Error::NoCron
            | Error::CronElsewhere { .. } => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::WrongColumns => Code::ERRCODE_DATATYPE_MISMATCH,
            Error::NotATrigger(_) => Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
        }
    }

    /// The message alone.
    pub fn message(&self) -> String {
        match self {
            Error::NullArgument(name) => format!("{name} must not be null"),
            Error::NullElement(name) => format!("{name} must not contain nulls"),
            Error::EmptyKey => "key must not be empty".into(),
            Error::LongKey(_) => "key is too long".into(),
            Error::TtlNotPositive => "ttl must be positive".into(),
            Error::NegativeGrace => "grace must not be negative".into(),
            Error::NegativeCount(name) => format!("{name} must not be negative"),
            Error::UnequalArrays => "keys and vals must have the same length".into(),
            Error::ArrayDimensions(name) => format!("{name} must be a one-dimensional array"),
            Error::NotACache(name) | Error::TemporaryView(name) => {
                format!("\"{name}\" is not a cache")
            }
            Error::Distributed(name) => format!("\"{name}\" is distributed by Citus"),
            Error::BrokenCache(name, _) => format!("\"{name}\" no longer works as a cache"),
            Error::Unattachable(name, ..) | Error::AttachedKind(name, ..) => {
                format!("table \"{name}\" cannot become a cache")
            }
            Error::AttachedAlready(name) => format!("\"{name}\" is a cache already"),
            Error::NoSuchColumn { column, table, .. } => {
                format!("column \"{column}\" of table \"{table}\" does not exist")
            }
            Error::UnknownUnit(name) => format!("unknown expires_unit \"{name}\""),
            Error::DetachedView(name) => format!("memory cache \"{name}\" has no table"),
            Error::DetachedMain => "pgcache.main cannot be detached".into(),
            Error::GeneratedColumns => {
                "the values or deadlines of this cache are generated columns".into()
            }
            Error::GeneratedTtl => {
                "a cache of generated values or deadlines has no default ttl".into()
            }
            Error::KeyBeyondColumn => "key is too long for the table's column".into(),
            Error::KeyNotOfType(name) => format!("key is not a value of type {name}"),
            Error::KeyOutOfRange(name) => format!("key is out of range for type {name}"),
            Error::NoPrefixes => "keys of this cache are not text and have no prefixes".into(),
            Error::NoSuchRelation(oid) => format!("relation with OID {oid} does not exist"),
            Error::NameTaken(name) => format!("\"{name}\" is there and is not a cache"),
            Error::CacheExists(name) => format!("cache \"{name}\" already exists"),
            Error::UnknownStorage(name) => format!("unknown storage \"{name}\""),
            Error::NoTier => "memory caches need pgcache's shared memory".into(),
            Error::OlderExtension => {
                "extension \"pgcache\" of this database is older than the library of the server"
                    .into()
            }
            Error::DroppedExtension => "extension \"pgcache\" was dropped meanwhile".into(),
            Error::NoSuchView => "there is no memory cache with these settings".into(),
            Error::LockTimeout => "canceling statement due to lock timeout".into(),
            Error::DefinitionChanged => {
                "definition of the cache changed while a statement used it".into()
            }
            Error::WrongColumns => "query names other columns than the function gives".into(),
            Error::NoSharedMemory(bytes) => format!(
                "pgcache.hot_size asks for {} MB of shared memory, which the system does not give",
                bytes >> 20
            ),
            Error::OutOfMemory(_) => "out of memory".into(),
            Error::NoSlot => "too many caches for the hot tier".into(),
            Error::EntryTooLarge(_) => "entry does not fit in the hot tier".into(),
            Error::UnknownValueType => "value_type is not supported".into(),
            Error::NotJson => "value is not valid JSON".into(),
            Error::UnknownCharacter => {
                "value has a character that jsonb or the server's encoding has not".into()
            }
            Error::NotText => "value is not valid text in the server's encoding".into(),
            Error::NotAnInteger => "value of the counter is not an integer".into(),
            Error::HexLiteralAsText => {
                "text that looks like a bytea literal is taken as text".into()
            }
            Error::CounterOverflow => "counter is out of range for type bigint".into(),
            Error::PreparedWrite => {
                "entries depend on rows that are changed while the transaction is being prepared"
                    .into()
            }
            Error::TooManyPrepared => {
                "too many prepared transactions have written to caches".into()
            }
            Error::PreparedMessages => {
                "cannot PREPARE a transaction that has published messages".into()
            }
            Error::TooMuchPublished(_) => "too many messages in one transaction".into(),
            Error::ClientOfAnother => {
                "permission denied to end a client of the Redis protocol".into()
            }
            Error::TooLateForTriggers(name) => {
                format!(
                    "entries of cache \"{name}\" depend on changed rows and can no longer be removed"
                )
            }
            Error::NotATrigger(name) => {
                format!("function \"pgcache.{name}\" was not called by its trigger")
            }
            Error::LoaderRecursion => "loader fetches the key that it loads".into(),
            Error::LoaderNoQuery(_) => "loader is not a query that returns rows".into(),
            Error::LoaderColumns(_) => "loader must return one column".into(),
            Error::LoaderRows(_) => "loader returned more than one row".into(),
            Error::NoLeases => "leases need pgcache's shared memory".into(),
            Error::NegativeWait => "wait must not be negative".into(),
            Error::JitterOutOfRange => "ttl_jitter must be between 0 and 1".into(),
            Error::EarlyRefreshOutOfRange => "early_refresh must not be negative".into(),
            Error::NotAnExpression => "key_expression is not one expression".into(),
            Error::KeyNotText(kind) => {
                format!("key_expression must be of type text, not {kind}")
            }
            Error::VolatileKey => "key_expression must not contain volatile functions".into(),
            Error::SourceNotATable(name) => format!("\"{name}\" is not a table"),
            Error::DependencyOfMain => "pgcache.main cannot depend on a table".into(),
            Error::DependencyUnderPolicies => {
                "row-level security of the cache applies to the owner of the source".into()
            }
            Error::ChildOfAnother(name) => {
                format!("table \"{name}\" has another owner than the table that a cache depends on")
            }
            Error::UnloggedSource(name) => {
                format!("a logged cache cannot depend on unlogged table \"{name}\"")
            }
            Error::TriggerOfAnother {
                trigger,
                cache,
                role,
            } => {
                format!(
                    "trigger \"{trigger}\" would run code of role \"{role}\" as the owner of cache \"{cache}\""
                )
            }
            Error::ConditionOfAnother { trigger, cache } => {
                format!(
                    "the condition of trigger \"{trigger}\" may run anybody's code as the owner of cache \"{cache}\""
                )
            }
            Error::NoDependency(name) => {
                format!("the cache does not depend on table \"{name}\"")
            }
            Error::NotADependency => "the trigger does not name a cache and a key".into(),
            Error::LimitNotPositive => "max_hits must be positive".into(),
            Error::NodesNotPositive => "nodes must be positive".into(),
            Error::WindowNotPositive => "per must be positive".into(),
            Error::NoCron => "pg_cron is not installed".into(),
            Error::CronElsewhere { database, .. } => {
                format!("pg_cron is installed in database \"{database}\" only")
            }
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Error::LongKey(bytes) => Some(format!(
                "The key has {bytes} bytes, the limit is {}.",
                pgcache_store::MAX_KEY
            )),
            Error::BrokenCache(_, why) | Error::Unattachable(_, why, _) => Some(why.clone()),
            Error::AttachedKind(_, why, _) => Some((*why).into()),
            Error::Distributed(_) => {
                Some("Its rows are on shards, which no function of pgcache looks for.".into())
            }
            Error::TemporaryView(_) => Some("A temporary view has no entries.".into()),
            Error::LoaderNoQuery(text) | Error::LoaderColumns(text) | Error::LoaderRows(text) => {
                Some(format!("The loader is: {text}"))
            }
            Error::HexLiteralAsText => {
                Some("The cache holds bytea; a text stands for the bytes of its characters.".into())
            }
            Error::OutOfMemory(bytes) => Some(format!("Failed on request of size {bytes}.")),
            Error::EntryTooLarge(bytes) => Some(format!("The value has {bytes} bytes.")),
            Error::TooMuchPublished(bytes) => {
                Some(format!("All of them may take {bytes} bytes together."))
            }
            _ => None,
        }
    }

    fn hint(&self) -> String {
        let hint = match self {
            Error::NullArgument(_) => "Give it a value that is not NULL.",
            Error::NullElement(_) => "Filter them out; negative entries are set one by one.",
            Error::EmptyKey => "Give a key of at least one character.",
            Error::LongKey(_) => "Use a hash of the key, for instance sha256().",
            Error::TtlNotPositive => {
                "Use cache_forever() for an entry that does not expire, and cache_delete() to remove one."
            }
            Error::NegativeGrace => "An interval of 0 removes the grace.",
            Error::NegativeCount(_) => "0 is no limit for max_entries, and nothing for max_rows.",
            Error::UnequalArrays => "Give one value for each key.",
            Error::ArrayDimensions(_) => "Give its elements as one list.",
            Error::NotACache(_) | Error::TemporaryView(_) => {
                "The view pgcache.caches lists the caches that you may read; cache_create() makes one, cache_attach() makes one of a table."
            }
            Error::Distributed(_) => {
                "Make a table of this node of it, with undistribute_table(), or work on it in plain SQL; the page docs/scaling.md says how caches are spread over servers."
            }
            Error::BrokenCache(..) => {
                "A cache needs key text COLLATE \"C\" as its primary key, value of type text, jsonb or bytea, and expires_at timestamptz; another table is made one by cache_attach()."
            }
            Error::NoSuchRelation(_) => {
                "If the cache was made anew meanwhile, run the statement again. The view pgcache.caches lists the caches that you may read."
            }
            Error::NoSuchView => {
                "Make the cache with cache_create(), or run cache_alter() on it after a restore."
            }
            Error::NameTaken(_) => "Give the cache another name.",
            Error::CacheExists(_) => "Use if_not_exists => true to leave it as it is.",
            Error::Unattachable(_, _, Some(hint)) => return hint.clone(),
            Error::AttachedKind(_, _, Some(hint)) => hint,
            Error::Unattachable(_, _, None) | Error::AttachedKind(_, _, None) => {
                "The page docs/attach.md says what a table needs."
            }
            Error::AttachedAlready(_) => {
                "Change its settings with cache_alter(); for other columns detach it first, with cache_detach()."
            }
            Error::NoSuchColumn {
                argument, holds, ..
            } => {
                return format!("Say which column holds the {holds}: {argument} => 'its name'.");
            }
            Error::UnknownUnit(_) => {
                "It is s or ms, for a Unix time; without one the column is of type timestamptz."
            }
            Error::DetachedView(_) => "Drop it with cache_drop().",
            Error::DetachedMain => "It belongs to the extension; use a cache of your own.",
            Error::GeneratedColumns => "Write to the table by SQL.",
            Error::GeneratedTtl => {
                "Leave ttl out, or change the expression by which the deadline is made."
            }
            Error::KeyBeyondColumn => "Use a shorter key, or make the column longer.",
            Error::KeyNotOfType(_) | Error::KeyOutOfRange(_) => {
                "Give a key of the type that the table's key column has."
            }
            Error::NoPrefixes => "Use an empty prefix.",
            Error::UnknownStorage(_) => "Storage is one of unlogged, logged, memory.",
            Error::LoaderNoQuery(_) => {
                "A loader is one SELECT, VALUES, or other statement with RETURNING; $1 is the key."
            }
            Error::LoaderColumns(_) => "Select one; to_jsonb(t) makes one of a row.",
            Error::LoaderRows(_) => "Add LIMIT 1, or an aggregate.",
            Error::LoaderRecursion => "Let the loader fetch other keys, or none.",
            Error::NoTier | Error::NoLeases => {
                "Add pgcache to shared_preload_libraries in postgresql.conf, keep pgcache.hot_size above 0, and restart the server."
            }
            Error::DefinitionChanged => "Run the statement again.",
            Error::LockTimeout => "End the transaction that has fetched, or raise lock_timeout.",
            Error::WrongColumns => "Read the memory cache's view.",
            Error::OlderExtension => "Run ALTER EXTENSION pgcache UPDATE in this database.",
            Error::DroppedExtension => "Run CREATE EXTENSION pgcache, and the statement again.",
            Error::OutOfMemory(_) => "Use smaller batches, or give the machine more memory.",
            Error::NoSharedMemory(_) => {
                "Lower pgcache.hot_size in postgresql.conf; 0 starts the server without a hot tier."
            }
            Error::NoSlot => "Raise pgcache.hot_size: each 512 kB carry one cache.",
            Error::EntryTooLarge(_) => "Raise pgcache.hot_max_value, or pgcache.hot_size.",
            Error::UnknownValueType => "A value is of type text, jsonb or bytea.",
            Error::NotJson => "Give JSON, or use a text cache and the functions without _json.",
            Error::UnknownCharacter => {
                "Leave the character out, or use a text or bytea cache and the functions without _json."
            }
            Error::NotText => "Use the functions whose names end in _bytes.",
            Error::NotAnInteger => "Delete the entry first to start the counter at 0.",
            Error::CounterOverflow => "Delete the entry, or count in smaller steps.",
            Error::NegativeWait => "An interval of 0 does not wait.",
            Error::JitterOutOfRange => "It is a share: 0.1 is a tenth.",
            Error::EarlyRefreshOutOfRange => "0 turns it off, 1 is the usual factor.",
            Error::NotAnExpression => "Give one expression over the columns of the source.",
            Error::KeyNotText(_) => "Cast it to text.",
            Error::VolatileKey => "Use what the row holds.",
            Error::SourceNotATable(_) => "Depend on the tables behind it.",
            Error::DependencyOfMain => {
                "TRUNCATE of the table would clear it. Make a cache of its own with cache_create()."
            }
            Error::DependencyUnderPolicies => {
                "Make somebody the owner to whom the policies do not apply, or use a cache without policies."
            }
            Error::ChildOfAnother(_) => {
                "Let its owner declare the dependency on it with cache_depend() first."
            }
            Error::UnloggedSource(_) => {
                "A crash empties the table and leaves the entries. ALTER TABLE ... SET LOGGED on the table, or SET UNLOGGED on the cache."
            }
            Error::TriggerOfAnother { .. } => {
                "Drop the trigger and revoke TRIGGER on the cache from whoever has made it, or make the cache's owner the owner of its function."
            }
            Error::ConditionOfAnother { .. } => {
                "Drop the trigger and revoke TRIGGER on the cache from whoever has made it, or move the condition into a function that the cache's owner owns."
            }
            Error::HexLiteralAsText => {
                "If bytes were meant, use cache_set_bytes(), or another function whose name ends in _bytes."
            }
            Error::NoDependency(_) => "Name the table on which it was declared.",
            Error::NotADependency => "Declare dependencies with cache_depend().",
            Error::NotATrigger(_) => "Leave it to cache_create() and cache_depend().",
            Error::PreparedWrite => {
                "Change them in a statement of the transaction, or without PREPARE TRANSACTION."
            }
            Error::TooManyPrepared => {
                "Commit or roll back the others (pgcache.prepared lists them), or raise pgcache.hot_size and restart the server."
            }
            Error::PreparedMessages => "Publish outside of the two-phase transaction.",
            Error::TooMuchPublished(_) => "Publish in several transactions, or shorter messages.",
            Error::ClientOfAnother => {
                "Only its role, members of that and of pg_signal_backend may do it; only a superuser where its role is one."
            }
            Error::TooLateForTriggers(_) => {
                "Where the cache has triggers, foreign keys, rules or policies of its own, do not CLOSE ALL after a change of its source."
            }
            Error::LimitNotPositive => "Give a limit of at least 1.",
            Error::NodesNotPositive => "Say over how many servers the keys are spread.",
            Error::WindowNotPositive => "Give the length of the window, such as '1 minute'.",
            Error::NoCron => {
                "The built-in worker already does it where pgcache is in shared_preload_libraries, every pgcache.expire_interval. Elsewhere install pg_cron, or call cache_expire() from a scheduler of your own."
            }
            Error::CronElsewhere { command, .. } => {
                return format!("Run there as a superuser: {command}");
            }
        };
        hint.into()
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> ErrorReport {
        let report = ErrorReport::new(error.code(), printable(error.message()), "pgcache")
            .set_hint(printable(error.hint()));
        match error.detail() {
            Some(detail) => report.set_detail(printable(detail)),
            None => report,
        }
    }
}
