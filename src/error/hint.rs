//! The hint of each error: what can be done.

use super::Error;

impl Error {
    pub(super) fn hint(&self) -> String {
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
            Error::OverShards(_) => {
                "The page docs/scaling.md lists the functions that work on distributed caches."
            }
            Error::Undistributable(..) => {
                "The page docs/scaling.md says which caches can be distributed."
            }
            Error::NoCitus => {
                "Add citus in front of pgcache to shared_preload_libraries, restart the server, and run CREATE EXTENSION citus; without Citus, docs/scaling.md says how caches are spread over servers."
            }
            Error::NotSpreadBefore => {
                "Have a superuser distribute a cache first: that makes the table pgcache.distributed, by which all nodes know such caches."
            }
            Error::OtherShards(_) => {
                "Leave shard_count out: all distributed caches of a database have as many shards."
            }
            Error::NoNode(_) => {
                "Run the statement again if a shard was being moved; do not call it for rows of a distributed table, which Citus computes on shards."
            }
            Error::NotSent => "Leave it to the functions of pgcache.",
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
