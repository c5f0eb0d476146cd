//! The hint of each error: what can be done.

use super::Error;

impl Error {
    pub(super) fn hint(&self) -> String {
        let hint = match self {
            Error::NullArgument(_) => "Pass a value that is not NULL.",
            Error::NullElement(_) => {
                "Remove the nulls from the array, and set negative entries one at a time."
            }
            Error::EmptyKey => "Pass a key of at least one character.",
            Error::LongKey(_) => "Use a hash of the key, for instance sha256().",
            Error::TtlNotPositive => {
                "Use cache_forever() for an entry that does not expire, and cache_delete() to remove one."
            }
            Error::NegativeGrace => "An interval of 0 removes the grace.",
            Error::NegativeCount(_) => {
                "For max_entries, 0 means no limit; for max_rows, 0 means no rows."
            }
            Error::UnequalArrays => "Pass one value for each key.",
            Error::ArrayDimensions(_) => "Pass an array of one dimension.",
            Error::NotACache(_) | Error::TemporaryView(_) => {
                "The view pgcache.caches lists the caches that you may read. To create a cache use cache_create(), and to turn a table into a cache use cache_attach()."
            }
            Error::Distributed(_) => {
                "Turn the table into a local table with undistribute_table(), or use plain SQL. The page docs/scaling.md describes how to spread caches over servers."
            }
            Error::OverShards(_) => {
                "The page docs/scaling.md lists the functions that work on distributed caches."
            }
            Error::Undistributable(..) => {
                "The page docs/scaling.md lists which caches can be distributed."
            }
            Error::NoCitus => {
                "Add citus before pgcache in shared_preload_libraries, restart the server, and run CREATE EXTENSION citus. The page docs/scaling.md describes how to spread caches over servers without Citus."
            }
            Error::NotSpreadBefore => {
                "A superuser must distribute the first cache, because this creates the table pgcache.distributed, by which all nodes recognize distributed caches."
            }
            Error::OtherShards(_) => {
                "Omit shard_count, because all distributed caches of a database have the same number of shards."
            }
            Error::NoNode(_) => {
                "If a shard was being moved, run the statement again. Do not call the function for rows of a distributed table, because Citus evaluates such calls on the shards."
            }
            Error::NotSent => {
                "Do not call this function directly; the functions of pgcache call it."
            }
            Error::BrokenCache(..) => {
                "A cache needs the columns key text COLLATE \"C\" as its primary key, value of type text, jsonb or bytea, and expires_at timestamptz. For a table with other columns use cache_attach()."
            }
            Error::NoSuchRelation(_) => {
                "If the cache was dropped and created again, run the statement again. The view pgcache.caches lists the caches that you may read."
            }
            Error::NoSuchView => {
                "Create the cache with cache_create(), or run cache_alter() on it after a restore."
            }
            Error::NameTaken(_) => "Choose another name for the cache.",
            Error::CacheExists(_) => {
                "Use if_not_exists => true to keep the existing cache unchanged."
            }
            Error::Unattachable(_, _, Some(hint)) => return hint.clone(),
            Error::AttachedKind(_, _, Some(hint)) => hint,
            Error::Unattachable(_, _, None) | Error::AttachedKind(_, _, None) => {
                "The page docs/attach.md lists what a table needs."
            }
            Error::AttachedAlready(_) => {
                "Change its settings with cache_alter(). To use other columns, detach it first with cache_detach()."
            }
            Error::NoSuchColumn {
                argument, holds, ..
            } => {
                return format!(
                    "Name the column that holds the {holds}: {argument} => 'column name'."
                );
            }
            Error::UnknownUnit(_) => {
                "Use s or ms for a column that holds a Unix time, and omit expires_unit for a column of type timestamptz."
            }
            Error::DetachedView(_) => "Drop the memory cache with cache_drop().",
            Error::DetachedMain => "pgcache.main belongs to the extension; use another cache.",
            Error::GeneratedColumns => "Write to the table with SQL.",
            Error::GeneratedTtl => "Omit ttl, or change the expression that computes the deadline.",
            Error::KeyBeyondColumn => "Use a shorter key, or make the column longer.",
            Error::KeyNotOfType(_) | Error::KeyOutOfRange(_) => {
                "Pass a key of the type of the table's key column."
            }
            Error::NoPrefixes => "Pass an empty prefix.",
            Error::UnknownStorage(_) => "The storage must be unlogged, logged or memory.",
            Error::LoaderNoQuery(_) => {
                "A loader must be one SELECT, VALUES or another statement with RETURNING; $1 is the key."
            }
            Error::LoaderColumns(_) => "Select one column; to_jsonb(t) turns a row into one.",
            Error::LoaderRows(_) => "Add LIMIT 1, or an aggregate.",
            Error::LoaderRecursion => "Let the loader fetch other keys or no keys.",
            Error::NoTier | Error::NoLeases => {
                "Add pgcache to shared_preload_libraries in postgresql.conf, keep pgcache.hot_size above 0, and restart the server."
            }
            Error::DefinitionChanged => "Run the statement again.",
            Error::LockTimeout => {
                "End the transaction that called cache_fetch(), or raise lock_timeout."
            }
            Error::WrongColumns => "Query the view of the memory cache.",
            Error::OlderExtension => "Run ALTER EXTENSION pgcache UPDATE in this database.",
            Error::DroppedExtension => {
                "Run CREATE EXTENSION pgcache, then run the statement again."
            }
            Error::OutOfMemory(_) => "Use smaller batches, or give the machine more memory.",
            Error::NoSharedMemory(_) => {
                "Lower pgcache.hot_size in postgresql.conf; 0 starts the server without a hot tier."
            }
            Error::NoSlot => {
                "Raise pgcache.hot_size: the hot tier has a place for one cache per 512 kB."
            }
            Error::EntryTooLarge(_) => {
                "Raise pgcache.hot_max_value, and pgcache.hot_size if the value takes more than half of it, or use a table cache."
            }
            Error::UnknownValueType => "The value type must be text, jsonb or bytea.",
            Error::NotJson => "Pass JSON, or use a text cache and the functions without _json.",
            Error::UnknownCharacter => {
                "Remove the character, or use a text or bytea cache and the functions without _json."
            }
            Error::NotText => "Use the functions whose names end in _bytes.",
            Error::NotAnInteger => "Delete the entry first to start the counter at 0.",
            Error::CounterOverflow => "Delete the entry, or count in smaller steps.",
            Error::NegativeWait => "An interval of 0 does not wait.",
            Error::JitterOutOfRange => "The value is a fraction of the ttl: 0.1 is a tenth.",
            Error::EarlyRefreshOutOfRange => {
                "0 turns early refresh off, and 1 is the usual factor."
            }
            Error::NotAnExpression => "Pass one expression over the columns of the source table.",
            Error::KeyNotText(_) => "Cast the expression to text.",
            Error::VolatileKey => "Compute the key from the columns of the row.",
            Error::UnsteadyKey(_) => {
                "Wrap the call in an IMMUTABLE function that sets what the result depends on, and call that function."
            }
            Error::SourceNotATable(_) => "Declare dependencies on the underlying tables.",
            Error::DependencyOfMain => {
                "TRUNCATE of the table would clear pgcache.main. Create a separate cache with cache_create()."
            }
            Error::DependencyUnderPolicies => {
                "Change the owner of the source table to a role to which the policies do not apply, or use a cache without policies."
            }
            Error::ChildOfAnother(_) => {
                "The owner of the table must declare the dependency on it with cache_depend() first."
            }
            Error::UnloggedSource(_) => {
                "A crash empties the table but keeps the entries. Run ALTER TABLE ... SET LOGGED on the table, or SET UNLOGGED on the cache."
            }
            Error::TriggerOfAnother { .. } => {
                "Drop the trigger and revoke TRIGGER on the cache from the role that created it, or make the owner of the cache the owner of the trigger's function."
            }
            Error::ConditionOfAnother { .. } => {
                "Drop the trigger and revoke TRIGGER on the cache from the role that created it, or move the condition into a function that the owner of the cache owns."
            }
            Error::HexLiteralAsText => {
                "If bytes were meant, use cache_set_bytes(), or another function whose name ends in _bytes."
            }
            Error::NoDependency(_) => "Name the table on which the dependency was declared.",
            Error::NotADependency => "Declare dependencies with cache_depend().",
            Error::NotATrigger(_) => {
                "Use cache_create() or cache_depend(), which create such triggers."
            }
            Error::PreparedWrite => {
                "Change the rows in a statement of the transaction, or do not use PREPARE TRANSACTION."
            }
            Error::TooManyPrepared => {
                "Commit or roll back other prepared transactions, which pgcache.prepared lists, or raise pgcache.hot_size and restart the server."
            }
            Error::PreparedMessages => "Publish messages outside of the two-phase transaction.",
            Error::LongChannel(_) => "Publish to a channel with a shorter name.",
            Error::TooMuchPublished(_) => {
                "Publish the messages in several transactions, or publish shorter messages."
            }
            Error::ClientOfAnother => {
                "Only roles with privileges of the client's role or of pg_signal_backend may terminate it, and only superusers if the client's role is a superuser."
            }
            Error::TooLateForTriggers(_) => {
                "If the cache has its own triggers, foreign keys, rules or policies, do not run CLOSE ALL after a change of the source table."
            }
            Error::LimitNotPositive => "Pass a limit of at least 1.",
            Error::ShardCountNotPositive => {
                "Omit shard_count for the number of shards that citus.shard_count says."
            }
            Error::NodesNotPositive => "Pass the number of servers over which the keys are spread.",
            Error::WindowNotPositive => "Pass the length of the window, such as '1 minute'.",
            Error::NoCron => {
                "If pgcache is in shared_preload_libraries, its worker removes expired entries every pgcache.expire_interval. Otherwise install pg_cron, or call cache_expire() from your own scheduler."
            }
            Error::CronElsewhere { command, .. } => {
                return format!("Run this statement there as a superuser: {command}");
            }
        };
        hint.into()
    }
}
