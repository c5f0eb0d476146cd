//! The message of each error, and its detail where it has one.

use super::Error;

impl Error {
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
            Error::OverShards(name) => {
                format!("function is not supported on distributed cache \"{name}\"")
            }
            Error::Undistributable(name, _) => format!("cache \"{name}\" cannot be distributed"),
            Error::NoCitus => "Citus is not installed in this database".into(),
            Error::NotSpreadBefore => {
                "permission denied to distribute the first cache of this database".into()
            }
            Error::OtherShards(shards) => {
                format!(
                    "shard_count must be {shards}, as for the other distributed caches of this database"
                )
            }
            Error::NoNode(name) => {
                format!("cannot call the node that holds the entries of cache \"{name}\" from here")
            }
            Error::NotSent => {
                "call does not have the form that Citus nodes send to each other".into()
            }
            Error::BrokenCache(name, _) => format!("\"{name}\" no longer works as a cache"),
            Error::Unattachable(name, ..) | Error::AttachedKind(name, ..) => {
                format!("table \"{name}\" cannot become a cache")
            }
            Error::AttachedAlready(name) => format!("\"{name}\" is already a cache"),
            Error::NoSuchColumn { column, table, .. } => {
                format!("column \"{column}\" of table \"{table}\" does not exist")
            }
            Error::UnknownUnit(name) => format!("unknown expires_unit \"{name}\""),
            Error::DetachedView(name) => format!("memory cache \"{name}\" has no table"),
            Error::DetachedMain => "pgcache.main cannot be detached".into(),
            Error::GeneratedColumns => {
                "cannot write to a cache whose value or deadline column is generated".into()
            }
            Error::GeneratedTtl => {
                "cache whose value or deadline column is generated cannot have a default ttl".into()
            }
            Error::KeyBeyondColumn => "key is too long for the table's column".into(),
            Error::KeyNotOfType(name) => format!("key is not a value of type {name}"),
            Error::KeyOutOfRange(name) => format!("key is out of range for type {name}"),
            Error::NoPrefixes => "prefix must be empty for a cache whose keys are not text".into(),
            Error::NoSuchRelation(oid) => format!("relation with OID {oid} does not exist"),
            Error::NameTaken(name) => {
                format!("relation \"{name}\" already exists and is not a cache")
            }
            Error::CacheExists(name) => format!("cache \"{name}\" already exists"),
            Error::UnknownStorage(name) => format!("unknown storage \"{name}\""),
            Error::NoTier => "memory caches need pgcache's shared memory".into(),
            Error::OlderExtension => {
                "extension \"pgcache\" in this database is older than the server's library".into()
            }
            Error::DroppedExtension => {
                "extension \"pgcache\" was dropped while the statement ran".into()
            }
            Error::NoSuchView => "memory cache with these settings does not exist".into(),
            Error::LockTimeout => "canceling statement due to lock timeout".into(),
            Error::DefinitionChanged => {
                "definition of the cache changed while a statement used it".into()
            }
            Error::WrongColumns => {
                "column definition list does not match the function's result".into()
            }
            Error::NoSharedMemory(bytes) => format!(
                "pgcache.hot_size requests {} MB of shared memory, which the system cannot provide",
                bytes >> 20
            ),
            Error::OutOfMemory(_) => "out of memory".into(),
            Error::NoSlot => "too many caches for the hot tier".into(),
            Error::EntryTooLarge(_) => "entry does not fit in the hot tier".into(),
            Error::UnknownValueType => "value_type is not supported".into(),
            Error::NotJson => "value is not valid JSON".into(),
            Error::UnknownCharacter => {
                "value contains a character that is not valid in jsonb or in the server encoding"
                    .into()
            }
            Error::NotText => "value is not valid text in the server encoding".into(),
            Error::NotAnInteger => "counter value is not an integer".into(),
            Error::HexLiteralAsText => {
                "text that looks like a bytea literal is interpreted as plain text".into()
            }
            Error::CounterOverflow => "counter is out of range for type bigint".into(),
            Error::PreparedWrite => {
                "rows on which entries depend were changed while the transaction was being prepared"
                    .into()
            }
            Error::TooManyPrepared => {
                "too many prepared transactions have written to caches".into()
            }
            Error::PreparedMessages => {
                "cannot PREPARE a transaction that has published messages".into()
            }
            Error::LongChannel(_) => "name of the channel is too long".into(),
            Error::TooMuchPublished(_) => "too many messages in one transaction".into(),
            Error::ClientOfAnother => {
                "permission denied to terminate a client of the Redis protocol".into()
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
            Error::NotAnExpression => "key_expression must be a single expression".into(),
            Error::KeyNotText(kind) => {
                format!("key_expression must be of type text, not {kind}")
            }
            Error::VolatileKey => "key_expression must not contain volatile functions".into(),
            Error::UnsteadyKey(what) => {
                format!(
                    "key_expression must not contain {what}, whose result does not depend on the row alone"
                )
            }
            Error::SourceNotATable(name) => format!("\"{name}\" is not a table"),
            Error::DependencyOfMain => "pgcache.main cannot depend on a table".into(),
            Error::DependencyUnderPolicies => {
                "row-level security of the cache applies to the owner of the source table".into()
            }
            Error::ChildOfAnother(name) => {
                format!(
                    "table \"{name}\" has a different owner than its parent table, on which a cache depends"
                )
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
                    "condition of trigger \"{trigger}\" may run code of any role as the owner of cache \"{cache}\""
                )
            }
            Error::NoDependency(name) => {
                format!("cache does not depend on table \"{name}\"")
            }
            Error::NotADependency => "trigger does not name a cache and a key".into(),
            Error::LimitNotPositive => "max_hits must be positive".into(),
            Error::ShardCountNotPositive => "shard_count must be positive".into(),
            Error::NodesNotPositive => "nodes must be positive".into(),
            Error::WindowNotPositive => "per must be positive".into(),
            Error::NoCron => "pg_cron is not installed".into(),
            Error::CronElsewhere { database, .. } => {
                format!("pg_cron is installed only in database \"{database}\"")
            }
        }
    }

    pub(super) fn detail(&self) -> Option<String> {
        match self {
            Error::LongKey(bytes) => Some(format!(
                "The key has {bytes} bytes, and the limit is {} bytes.",
                pgcache_store::MAX_KEY
            )),
            Error::BrokenCache(_, why) | Error::Unattachable(_, why, _) => Some(why.clone()),
            Error::AttachedKind(_, why, _) | Error::Undistributable(_, why) => Some((*why).into()),
            Error::Distributed(_) => {
                Some("The rows of the table are on shards, which the functions of pgcache do not search.".into())
            }
            Error::TemporaryView(_) => Some("A temporary view has no entries.".into()),
            Error::LoaderNoQuery(text) | Error::LoaderColumns(text) | Error::LoaderRows(text) => {
                Some(format!("The loader is: {text}"))
            }
            Error::HexLiteralAsText => {
                Some("The cache holds bytea values, and a text argument means the bytes of its characters.".into())
            }
            Error::OutOfMemory(bytes) => Some(format!("Failed on request of size {bytes}.")),
            Error::EntryTooLarge(bytes) => Some(format!("The value has {bytes} bytes.")),
            Error::LongChannel(bytes) => Some(format!(
                "The name has {bytes} bytes; 2048 bytes are the maximum."
            )),
            Error::TooMuchPublished(bytes) => {
                Some(format!("The messages of one transaction may take {bytes} bytes in total."))
            }
            _ => None,
        }
    }
}
