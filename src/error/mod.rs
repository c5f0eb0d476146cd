//! Every error that pgcache itself raises: one variant, one SQLSTATE, one message.
//!
//! Errors of Postgres (a failed cast, a serialization failure, a missing privilege) keep their words;
//! they are not listed here. `pg::session::failure` says where they lose what they show of a row,
//! and `pg::session::hint` where they gain a hint. Messages follow the style of Postgres: lower
//! case, no full stop, nothing of a key or a value, because messages end up in logs. Each has a hint,
//! which docs/reference.md repeats.
//!
//! Here is what can go wrong; beside it, a file each, are the code, the text and the hint of each, and the report that
//! Postgres gets.

mod code;
mod hint;
mod report;
mod text;

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
    /// A number of shards is zero or negative.
    ShardCountNotPositive,
    /// The relation is there, but is no cache.
    NotACache(String),
    /// Citus keeps the table's rows on other relations, its shards.
    Distributed(String),
    /// A function that does not work on caches that `cache_distribute` has spread.
    OverShards(String),
    /// A cache cannot be spread: its name, and why.
    Undistributable(String, &'static str),
    /// `cache_distribute` where there is no Citus.
    NoCitus,
    /// The first `cache_distribute` of a database is not a superuser's.
    NotSpreadBefore,
    /// Another number of shards than caches have that were spread before.
    OtherShards(i64),
    /// The node of a key cannot be asked from here.
    NoNode(String),
    /// A function that other nodes call got what none of them sends.
    NotSent,
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
    /// A channel whose name has so many bytes.
    LongChannel(usize),
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
    /// The key of a dependency calls this, whose result follows the moment, the user or the catalogs.
    UnsteadyKey(String),
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
