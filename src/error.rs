//! The errors that pgcache itself raises, each declared once with its SQLSTATE, message, detail and hint.
//!
//! Postgres errors (a failed cast, a serialization failure, a missing privilege) keep their texts and are not listed
//! here. `pg::session::failure` removes a detail that would show a row, and `pg::session::hint` adds hints to some
//! errors. Messages follow the style of Postgres: lower case, no full stop. They contain no part of a key or a value,
//! because messages are written to logs. Each error has a hint, which docs/reference.md repeats.

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::panic::ErrorReport;

use crate::pg::encoding::printable;

/// The parts of an error report.
struct Words {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: String,
}

impl Error {
    /// Returns the message without detail and hint.
    pub fn message(&self) -> String {
        self.words().message
    }
}

/// Builds a report whose texts are in the server's encoding.
impl From<Error> for ErrorReport {
    fn from(error: Error) -> ErrorReport {
        let words = error.words();
        let report = ErrorReport::new(words.code, printable(words.message), "pgcache")
            .set_hint(printable(words.hint));
        match words.detail {
            Some(detail) => report.set_detail(printable(detail)),
            None => report,
        }
    }
}

/// Declares the enum `Error` and the texts of its variants. The texts are format strings of `format!` and may name the
/// fields of the variant.
macro_rules! errors {
    ($(
        $(#[$doc:meta])*
        $variant:ident $(($($field:ident: $kind:ty),*))? $({ $($part:ident: $part_kind:ty),* })? => $code:ident {
            message $message:literal $(, $message_value:expr)?;
            $(detail $detail:literal $(, $detail_value:expr)?;)?
            hint $hint:literal $(, $hint_value:expr)?;
        }
    )*) => {
        /// An error that pgcache raises.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Error {
            $(
                $(#[$doc])*
                $variant $(($($kind),*))? $({ $($part: $part_kind),* })?,
            )*
        }

        impl Error {
            fn words(&self) -> Words {
                match self {$(
                    Error::$variant $(($($field),*))? $({ $($part),* })? => Words {
                        code: PgSqlErrorCode::$code,
                        message: format!($message $(, $message_value)?),
                        detail: None $(.or(Some(format!($detail $(, $detail_value)?))))?,
                        hint: format!($hint $(, $hint_value)?),
                    },
                )*}
            }
        }
    };
}

errors! {
    /// An argument is NULL but must not be.
    NullArgument(name: &'static str) => ERRCODE_NULL_VALUE_NOT_ALLOWED {
        message "{name} must not be null";
        hint "Pass a value that is not NULL.";
    }

    /// An array argument contains a NULL element.
    NullElement(name: &'static str) => ERRCODE_NULL_VALUE_NOT_ALLOWED {
        message "{name} must not contain nulls";
        hint "Remove the nulls from the array, and set negative entries one at a time.";
    }

    /// The key is the empty string.
    EmptyKey => ERRCODE_INVALID_PARAMETER_VALUE {
        message "key must not be empty";
        hint "Pass a key of at least one character.";
    }

    /// The key is longer than [`pgcache_store::MAX_KEY`] bytes.
    LongKey(bytes: usize) => ERRCODE_STRING_DATA_RIGHT_TRUNCATION {
        message "key is too long";
        detail "The key has {bytes} bytes, and the limit is {} bytes.", pgcache_store::MAX_KEY;
        hint "Use a hash of the key, for instance sha256().";
    }

    /// A ttl is zero or negative.
    TtlNotPositive => ERRCODE_INVALID_PARAMETER_VALUE {
        message "ttl must be positive";
        hint "Use cache_forever() for an entry that does not expire, and cache_delete() to remove one.";
    }

    /// A grace is negative.
    NegativeGrace => ERRCODE_INVALID_PARAMETER_VALUE {
        message "grace must not be negative";
        hint "An interval of 0 removes the grace.";
    }

    /// A count is negative.
    NegativeCount(name: &'static str) => ERRCODE_INVALID_PARAMETER_VALUE {
        message "{name} must not be negative";
        hint "For max_entries, 0 means no limit; for max_rows, 0 means no rows.";
    }

    /// Two arrays that belong together differ in length.
    UnequalArrays => ERRCODE_INVALID_PARAMETER_VALUE {
        message "keys and vals must have the same length";
        hint "Pass one value for each key.";
    }

    /// An array has more than one dimension.
    ArrayDimensions(name: &'static str) => ERRCODE_INVALID_PARAMETER_VALUE {
        message "{name} must be a one-dimensional array";
        hint "Pass an array of one dimension.";
    }

    /// A number of servers is zero or negative.
    NodesNotPositive => ERRCODE_INVALID_PARAMETER_VALUE {
        message "nodes must be positive";
        hint "Pass the number of servers over which the keys are spread.";
    }

    /// A number of shards is zero or negative.
    ShardCountNotPositive => ERRCODE_INVALID_PARAMETER_VALUE {
        message "shard_count must be positive";
        hint "Omit shard_count for the number of shards that citus.shard_count says.";
    }

    /// The relation exists but is not a cache.
    NotACache(name: String) => ERRCODE_WRONG_OBJECT_TYPE {
        message "\"{name}\" is not a cache";
        hint "The view pgcache.caches lists the caches that you may read. To create a cache use cache_create(), and to turn a table into a cache use cache_attach().";
    }

    /// Citus keeps the rows of the table in other relations, its shards.
    Distributed(name: String) => ERRCODE_WRONG_OBJECT_TYPE {
        message "\"{name}\" is distributed by Citus";
        detail "The rows of the table are on shards, which the functions of pgcache do not search.";
        hint "Turn the table into a local table with undistribute_table(), or use plain SQL. The page docs/scaling.md describes how to spread caches over servers.";
    }

    /// A function that does not support distributed caches was called on one.
    OverShards(name: String) => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "function is not supported on distributed cache \"{name}\"";
        hint "The page docs/scaling.md lists the functions that work on distributed caches.";
    }

    /// A cache cannot be distributed. Fields: its name, the reason.
    Undistributable(name: String, why: &'static str) => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "cache \"{name}\" cannot be distributed";
        detail "{why}";
        hint "The page docs/scaling.md lists which caches can be distributed.";
    }

    /// `cache_distribute` was called without Citus.
    NoCitus => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "Citus is not installed in this database";
        hint "Add citus before pgcache in shared_preload_libraries, restart the server, and run CREATE EXTENSION citus. The page docs/scaling.md describes how to spread caches over servers without Citus.";
    }

    /// A role that is not a superuser has called the first `cache_distribute` of a database.
    NotSpreadBefore => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "permission denied to distribute the first cache of this database";
        hint "A superuser must distribute the first cache, because this creates the table pgcache.distributed, by which all nodes recognize distributed caches.";
    }

    /// The number of shards differs from the number of shards of the existing distributed caches.
    OtherShards(shards: i64) => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "shard_count must be {shards}, as for the other distributed caches of this database";
        hint "Omit shard_count, because all distributed caches of a database have the same number of shards.";
    }

    /// The node of a key cannot be called from this node, or from this kind of statement.
    NoNode(name: String) => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "cannot call the node that holds the entries of cache \"{name}\" from here";
        hint "If a shard was being moved, run the statement again. Do not call the function for rows of a distributed table, because Citus evaluates such calls on the shards.";
    }

    /// A function that other nodes call received arguments that no node sends.
    NotSent => ERRCODE_INVALID_PARAMETER_VALUE {
        message "call does not have the form that Citus nodes send to each other";
        hint "Do not call this function directly; the functions of pgcache call it.";
    }

    /// The view is a temporary view over the entries of a memory cache, made by hand.
    TemporaryView(name: String) => ERRCODE_WRONG_OBJECT_TYPE {
        message "\"{name}\" is not a cache";
        detail "A temporary view has no entries.";
        hint "The view pgcache.caches lists the caches that you may read. To create a cache use cache_create(), and to turn a table into a cache use cache_attach().";
    }

    /// The relation has the trigger of pgcache, but lacks a feature that a cache needs.
    BrokenCache(name: String, why: String) => ERRCODE_WRONG_OBJECT_TYPE {
        message "\"{name}\" no longer works as a cache";
        detail "{why}";
        hint "A cache needs the columns key text COLLATE \"C\" as its primary key, value of type text, jsonb or bytea, and expires_at timestamptz. For a table with other columns use cache_attach().";
    }

    /// A table cannot become a cache. Fields: its name, the reason, a hint.
    Unattachable(name: String, why: String, hint: Option<String>) => ERRCODE_DATATYPE_MISMATCH {
        message "table \"{name}\" cannot become a cache";
        detail "{why}";
        hint "{}", hint.as_deref().unwrap_or("The page docs/attach.md lists what a table needs.");
    }

    /// A relation cannot become a cache because of its kind. Fields: its name, the reason, a hint if one helps.
    AttachedKind(name: String, why: &'static str, hint: Option<&'static str>) => ERRCODE_DATATYPE_MISMATCH {
        message "table \"{name}\" cannot become a cache";
        detail "{why}";
        hint "{}", hint.unwrap_or("The page docs/attach.md lists what a table needs.");
    }

    /// `cache_attach` was called for a relation that is already a cache.
    AttachedAlready(name: String) => ERRCODE_DUPLICATE_TABLE {
        message "\"{name}\" is already a cache";
        hint "Change its settings with cache_alter(). To use other columns, detach it first with cache_detach().";
    }

    /// `cache_attach` names a column that the table lacks. Or it names no column, and the table lacks the column with
    /// the default name.
    NoSuchColumn { column: String, table: String, argument: &'static str, holds: &'static str } => ERRCODE_UNDEFINED_COLUMN {
        message "column \"{column}\" of table \"{table}\" does not exist";
        hint "Name the column that holds the {holds}: {argument} => 'column name'.";
    }

    /// `expires_unit` is neither `s` nor `ms`.
    UnknownUnit(name: String) => ERRCODE_INVALID_PARAMETER_VALUE {
        message "unknown expires_unit \"{name}\"";
        hint "Use s or ms for a column that holds a Unix time, and omit expires_unit for a column of type timestamptz.";
    }

    /// `cache_detach` was called for a memory cache, which has no table.
    DetachedView(name: String) => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "memory cache \"{name}\" has no table";
        hint "Drop the memory cache with cache_drop().";
    }

    /// `cache_detach` was called for the cache that the extension itself has created.
    DetachedMain => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "pgcache.main cannot be detached";
        hint "pgcache.main belongs to the extension; use another cache.";
    }

    /// A function was called to write to a cache whose value or deadline Postgres computes.
    GeneratedColumns => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "cannot write to a cache whose value or deadline column is generated";
        hint "Write to the table with SQL.";
    }

    /// A default ttl was set for a cache whose value or deadline Postgres computes. SQL functions cannot write to the
    /// cache.
    GeneratedTtl => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "cache whose value or deadline column is generated cannot have a default ttl";
        hint "Omit ttl, or change the expression that computes the deadline.";
    }

    /// The key column of the table is too short for a key.
    KeyBeyondColumn => ERRCODE_STRING_DATA_RIGHT_TRUNCATION {
        message "key is too long for the table's column";
        hint "Use a shorter key, or make the column longer.";
    }

    /// A key is not a value of the type of the table's key column.
    KeyNotOfType(name: &'static str) => ERRCODE_INVALID_TEXT_REPRESENTATION {
        message "key is not a value of type {name}";
        hint "Pass a key of the type of the table's key column.";
    }

    /// A key is out of range for the type of the table's key column.
    KeyOutOfRange(name: &'static str) => ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE {
        message "key is out of range for type {name}";
        hint "Pass a key of the type of the table's key column.";
    }

    /// A prefix was passed for keys that are not text.
    NoPrefixes => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "prefix must be empty for a cache whose keys are not text";
        hint "Pass an empty prefix.";
    }

    /// No relation has this OID.
    NoSuchRelation(oid: u32) => ERRCODE_UNDEFINED_TABLE {
        message "relation with OID {oid} does not exist";
        hint "If the cache was dropped and created again, run the statement again. The view pgcache.caches lists the caches that you may read.";
    }

    /// A relation that is not a cache has this name.
    NameTaken(name: String) => ERRCODE_WRONG_OBJECT_TYPE {
        message "relation \"{name}\" already exists and is not a cache";
        hint "Choose another name for the cache. To turn an existing table into a cache use cache_attach().";
    }

    /// A cache with this name already exists.
    CacheExists(name: String) => ERRCODE_DUPLICATE_TABLE {
        message "cache \"{name}\" already exists";
        hint "Use if_not_exists => true to keep the existing cache unchanged.";
    }

    /// `storage` is none of unlogged, logged and memory.
    UnknownStorage(name: String) => ERRCODE_INVALID_PARAMETER_VALUE {
        message "unknown storage \"{name}\"";
        hint "The storage must be unlogged, logged or memory.";
    }

    /// A memory cache was used on a server without a hot tier.
    NoTier => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "memory caches need pgcache's shared memory";
        hint "Add pgcache to shared_preload_libraries in postgresql.conf, keep pgcache.hot_size above 0, and restart the server.";
    }

    /// A memory cache was used while `pgcache.enabled` is off.
    Disabled => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "memory caches are disabled";
        detail "pgcache.enabled is off on this server.";
        hint "Set pgcache.enabled to on and reload the configuration, or use a table cache.";
    }

    /// The extension in this database is older than the library and lacks an object that the library needs.
    OlderExtension => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "extension \"pgcache\" in this database is older than the server's library";
        hint "Run ALTER EXTENSION pgcache UPDATE in this database.";
    }

    /// The extension was dropped while one of its functions runs.
    DroppedExtension => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "extension \"pgcache\" was dropped while the statement ran";
        hint "Run CREATE EXTENSION pgcache, then run the statement again.";
    }

    /// No memory cache has the settings that `pgcache.memory_entries` was called with.
    NoSuchView => ERRCODE_UNDEFINED_TABLE {
        message "memory cache with these settings does not exist";
        hint "Create the cache with cache_create(), or run cache_alter() on it after a restore.";
    }

    /// A cache's definition changed while a statement used it.
    DefinitionChanged => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "definition of the cache changed while a statement used it";
        hint "Run the statement again.";
    }

    /// `lock_timeout` has passed while a commit waited for an EXEC, or an EXEC waited for a commit.
    LockTimeout => ERRCODE_LOCK_NOT_AVAILABLE {
        message "canceling statement due to lock timeout";
        hint "Run the transaction again, or raise lock_timeout.";
    }

    /// A query names columns that the function does not return.
    WrongColumns => ERRCODE_DATATYPE_MISMATCH {
        message "column definition list does not match the function's result";
        hint "Query the view of the memory cache.";
    }

    /// An allocation of this many bytes failed.
    OutOfMemory(bytes: usize) => ERRCODE_OUT_OF_MEMORY {
        message "out of memory";
        detail "Failed on request of size {bytes}.";
        hint "Use smaller batches, or give the machine more memory.";
    }

    /// Other caches take all slots of the hot tier.
    NoSlot => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED {
        message "too many caches for the hot tier";
        hint "Raise pgcache.hot_size: the hot tier has a place for one cache per 512 kB.";
    }

    /// The system lacks the shared memory that the hot tier requests. Field: the requested bytes.
    NoSharedMemory(bytes: usize) => ERRCODE_OUT_OF_MEMORY {
        message "pgcache.hot_size requests {} MB of shared memory, which the system cannot provide", bytes >> 20;
        hint "Lower pgcache.hot_size in postgresql.conf; 0 starts the server without a hot tier.";
    }

    /// With `huge_pages = on`, the system lacks the huge pages that the hot tier requests. Field: the requested bytes.
    NoHugePages(bytes: usize) => ERRCODE_OUT_OF_MEMORY {
        message "pgcache.hot_size requests {} MB of huge pages, which the system cannot provide", bytes >> 20;
        hint "Reserve more huge pages (vm.nr_hugepages), set huge_pages = try, or lower pgcache.hot_size in postgresql.conf; 0 starts the server without a hot tier.";
    }

    /// An entry of a memory cache is too large for the hot tier. Field: the bytes of its value.
    EntryTooLarge(bytes: usize) => ERRCODE_PROGRAM_LIMIT_EXCEEDED {
        message "entry does not fit in the hot tier";
        detail "The value has {bytes} bytes.";
        hint "Raise pgcache.hot_max_value, and pgcache.hot_size if the value takes more than half of it, or use a table cache.";
    }

    /// `value_type` is not text, jsonb or bytea.
    UnknownValueType => ERRCODE_INVALID_PARAMETER_VALUE {
        message "value_type is not supported";
        hint "The value type must be text, jsonb or bytea.";
    }

    /// A value is not valid JSON.
    NotJson => ERRCODE_INVALID_TEXT_REPRESENTATION {
        message "value is not valid JSON";
        hint "Pass JSON, or use a text cache and the functions without _json.";
    }

    /// JSON contains a character that is not valid in jsonb or in the server encoding.
    UnknownCharacter => ERRCODE_UNTRANSLATABLE_CHARACTER {
        message "value contains a character that is not valid in jsonb or in the server encoding";
        hint "Remove the character, or use a text or bytea cache and the functions without _json.";
    }

    /// A value is not valid text in the server's encoding.
    NotText => ERRCODE_CHARACTER_NOT_IN_REPERTOIRE {
        message "value is not valid text in the server encoding";
        hint "Use the functions whose names end in _bytes.";
    }

    /// The stored value of a counter is not an integer.
    NotAnInteger => ERRCODE_INVALID_TEXT_REPRESENTATION {
        message "counter value is not an integer";
        hint "Delete the entry first to start the counter at 0.";
    }

    /// A counter would leave the range of bigint.
    CounterOverflow => ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE {
        message "counter is out of range for type bigint";
        hint "Delete the entry, or count in smaller steps.";
    }

    /// A warning: a text for a bytea cache looks like the text form of a bytea, but the bytes of its characters are
    /// stored.
    HexLiteralAsText => ERRCODE_WARNING {
        message "text that looks like a bytea literal is interpreted as plain text";
        detail "The cache holds bytea values, and a text argument means the bytes of its characters.";
        hint "If bytes were meant, use cache_set_bytes(), or another function whose name ends in _bytes.";
    }

    /// During PREPARE TRANSACTION, the callback of another extension has changed rows on which entries depend, after
    /// pgcache's callback had run.
    PreparedWrite => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "rows on which entries depend were changed while the transaction was being prepared";
        hint "Change the rows in a statement of the transaction, or do not use PREPARE TRANSACTION.";
    }

    /// PREPARE TRANSACTION was called while other prepared transactions use all records.
    TooManyPrepared => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED {
        message "too many prepared transactions have written to caches";
        hint "Commit or roll back other prepared transactions, which pgcache.prepared lists, or raise pgcache.hot_size and restart the server.";
    }

    /// The commit must remove entries of a cache with user-defined triggers or policies, which can no longer run.
    TooLateForTriggers(name: String) => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "entries of cache \"{name}\" depend on changed rows and can no longer be removed";
        hint "If the cache has its own triggers, foreign keys, rules or policies, do not run CLOSE ALL after a change of the source table.";
    }

    /// PREPARE TRANSACTION was called after `pgcache.publish`.
    PreparedMessages => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "cannot PREPARE a transaction that has published messages";
        hint "Publish messages outside of the two-phase transaction.";
    }

    /// The name of a channel is too long. Field: its length in bytes.
    LongChannel(bytes: usize) => ERRCODE_PROGRAM_LIMIT_EXCEEDED {
        message "name of the channel is too long";
        detail "The name has {bytes} bytes; 2048 bytes are the maximum.";
        hint "Publish to a channel with a shorter name.";
    }

    /// A transaction has published too many bytes. Field: the limit in bytes.
    TooMuchPublished(bytes: usize) => ERRCODE_PROGRAM_LIMIT_EXCEEDED {
        message "too many messages in one transaction";
        detail "The messages of one transaction may take {bytes} bytes in total.";
        hint "Publish the messages in several transactions, or publish shorter messages.";
    }

    /// `pgcache.resp_kill` was called for a client that the caller's role may not end.
    ClientOfAnother => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "permission denied to terminate a client of the Redis protocol";
        hint "Only roles with privileges of the client's role or of pg_signal_backend may terminate it, and only superusers if the client's role is a superuser.";
    }

    /// A trigger function of pgcache was called, but not by the trigger that it is for.
    NotATrigger(name: &'static str) => ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED {
        message "function \"pgcache.{name}\" was not called by its trigger";
        hint "Use cache_create() or cache_depend(), which create such triggers.";
    }

    /// The loader of a fetch fetches the key that it loads.
    LoaderRecursion => ERRCODE_INVALID_RECURSION {
        message "loader fetches the key that it loads";
        hint "Let the loader fetch other keys or no keys.";
    }

    /// The loader is not a single query that returns rows.
    LoaderNoQuery(text: String) => ERRCODE_SYNTAX_ERROR {
        message "loader is not a query that returns rows";
        detail "The loader is: {text}";
        hint "A loader must be one SELECT, VALUES or another statement with RETURNING; $1 is the key.";
    }

    /// The loader returns several columns, or none.
    LoaderColumns(text: String) => ERRCODE_SYNTAX_ERROR {
        message "loader must return one column";
        detail "The loader is: {text}";
        hint "Select one column; to_jsonb(t) turns a row into one.";
    }

    /// The loader returned more than one row.
    LoaderRows(text: String) => ERRCODE_CARDINALITY_VIOLATION {
        message "loader returned more than one row";
        detail "The loader is: {text}";
        hint "Add LIMIT 1, or an aggregate.";
    }

    /// `cache_depend` was called for a logged cache and a table that a crash empties.
    UnloggedSource(name: String) => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "a logged cache cannot depend on unlogged table \"{name}\"";
        hint "A crash empties the table but keeps the entries. Run ALTER TABLE ... SET LOGGED on the table, or SET UNLOGGED on the cache.";
    }

    /// A removal as the owner of a cache would fire a trigger whose function belongs to another role.
    TriggerOfAnother { trigger: String, cache: String, role: String } => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "trigger \"{trigger}\" would run code of role \"{role}\" as the owner of cache \"{cache}\"";
        hint "Drop the trigger and revoke TRIGGER on the cache from the role that created it, or make the owner of the cache the owner of the trigger's function.";
    }

    /// A removal as the owner of a cache would evaluate the condition of a trigger, which may run code of any role.
    ConditionOfAnother { trigger: String, cache: String } => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "condition of trigger \"{trigger}\" may run code of any role as the owner of cache \"{cache}\"";
        hint "Drop the trigger and revoke TRIGGER on the cache from the role that created it, or move the condition into a function that the owner of the cache owns.";
    }

    /// A function for leases was called on a server without a hot tier.
    NoLeases => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE {
        message "leases need pgcache's shared memory";
        hint "Add pgcache to shared_preload_libraries in postgresql.conf, keep pgcache.hot_size above 0, and restart the server.";
    }

    /// `cache_lease` was called with a negative wait.
    NegativeWait => ERRCODE_INVALID_PARAMETER_VALUE {
        message "wait must not be negative";
        hint "An interval of 0 does not wait.";
    }

    /// `ttl_jitter` is below 0 or above 1.
    JitterOutOfRange => ERRCODE_INVALID_PARAMETER_VALUE {
        message "ttl_jitter must be between 0 and 1";
        hint "The value is a fraction of the ttl: 0.1 is a tenth.";
    }

    /// `early_refresh` is negative or not a finite number.
    EarlyRefreshOutOfRange => ERRCODE_INVALID_PARAMETER_VALUE {
        message "early_refresh must not be negative";
        hint "0 turns early refresh off, and 1 is the usual factor.";
    }

    /// `touch_after` is below 0 or above a half.
    TouchAfterOutOfRange => ERRCODE_INVALID_PARAMETER_VALUE {
        message "touch_after must be between 0 and 0.5";
        hint "The value is a fraction of the ttl: 0.1 is a tenth.";
    }

    /// `touch_after` was set for a memory cache, whose touches write no row.
    TouchAfterInMemory => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "touch_after is for table caches";
        hint "Leave touch_after at 0: a touch in a memory cache writes no row and takes no transaction id.";
    }

    /// A number of bytes is negative.
    NegativeBytes(name: &'static str) => ERRCODE_INVALID_PARAMETER_VALUE {
        message "{name} is a number of bytes and must not be negative";
        hint "0 removes max_bytes or the reserve.";
    }

    /// The reserve of a cache is larger than its `max_bytes`, so the cache could not fill it.
    ReserveAboveBound => ERRCODE_INVALID_PARAMETER_VALUE {
        message "reserve must not be larger than max_bytes";
        hint "Raise max_bytes, or lower the reserve.";
    }

    /// The reserves of all caches would be too large. Field: the bytes that can still be reserved.
    ReserveTooLarge(left: u64) => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED {
        message "reserves must not hold more than half of the hot tier";
        detail "{left} bytes can still be reserved.";
        hint "Lower this reserve or others (see pgcache.shares), or raise pgcache.hot_size.";
    }

    /// The role may not reserve a part of the tier.
    MayNotReserve => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "permission denied to reserve a part of the hot tier";
        hint "A superuser can allow it: GRANT SET ON PARAMETER pgcache.hot_size TO the role.";
    }

    /// A key expression is not a single expression.
    NotAnExpression => ERRCODE_SYNTAX_ERROR {
        message "key_expression must be a single expression";
        hint "Pass one expression over the columns of the source table.";
    }

    /// A key expression is not of type text.
    KeyNotText(kind: String) => ERRCODE_DATATYPE_MISMATCH {
        message "key_expression must be of type text, not {kind}";
        hint "Cast the expression to text.";
    }

    /// A key expression contains a volatile function.
    VolatileKey => ERRCODE_INVALID_OBJECT_DEFINITION {
        message "key_expression must not contain volatile functions";
        hint "Compute the key from the columns of the row.";
    }

    /// A key expression calls a function whose result depends on the time, the user or the catalogs.
    UnsteadyKey(what: String) => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "key_expression must not contain {what}, whose result does not depend on the row alone";
        hint "Wrap the call in an IMMUTABLE function that sets what the result depends on, and call that function.";
    }

    /// The source of a dependency is not a table.
    SourceNotATable(name: String) => ERRCODE_WRONG_OBJECT_TYPE {
        message "\"{name}\" is not a table";
        hint "Declare dependencies on the underlying tables.";
    }

    /// TRUNCATE of a source would clear `pgcache.main`.
    DependencyOfMain => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "pgcache.main cannot depend on a table";
        hint "TRUNCATE of the table would clear pgcache.main. Create a separate cache with cache_create().";
    }

    /// Row-level security would hide entries from the role that declares the dependency.
    DependencyUnderPolicies => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "row-level security of the cache applies to the owner of the source table";
        hint "Change the owner of the source table to a role to which the policies do not apply, or use a cache without policies.";
    }

    /// A child of a table on which a cache depends has another owner and lacks the dependency.
    ChildOfAnother(name: String) => ERRCODE_INSUFFICIENT_PRIVILEGE {
        message "table \"{name}\" has a different owner than its parent table, on which a cache depends";
        hint "The owner of the table must declare the dependency on it with cache_depend() first.";
    }

    /// The cache has no dependency on the table.
    NoDependency(name: String) => ERRCODE_UNDEFINED_OBJECT {
        message "cache does not depend on table \"{name}\"";
        hint "Name the table on which the dependency was declared.";
    }

    /// A trigger that calls a dependency's function was not created by `cache_depend`.
    NotADependency => ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED {
        message "trigger does not name a cache and a key";
        hint "Declare dependencies with cache_depend().";
    }

    /// `max_hits` of a rate limit is zero or negative.
    LimitNotPositive => ERRCODE_INVALID_PARAMETER_VALUE {
        message "max_hits must be positive";
        hint "Pass a limit of at least 1.";
    }

    /// The window of a rate limit is zero or negative.
    WindowNotPositive => ERRCODE_INVALID_PARAMETER_VALUE {
        message "per must be positive";
        hint "Pass the length of the window, such as '1 minute'.";
    }

    /// pg_cron is not installed on this server, or its database cannot be found from this one.
    NoCron => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "pg_cron is not installed";
        hint "If pgcache is in shared_preload_libraries, its worker removes expired entries every pgcache.expire_interval. Otherwise install pg_cron, or call cache_expire() from your own scheduler.";
    }

    /// pg_cron is installed in another database of this server.
    CronElsewhere { database: String, command: String } => ERRCODE_FEATURE_NOT_SUPPORTED {
        message "pg_cron is installed only in database \"{database}\"";
        hint "Run this statement there as a superuser: {command}";
    }
}
