//! The settings `pgcache.*`: names, ranges, defaults and the reason for each default.

pub mod resp;

use std::time::Duration;

use crate::pg::hooks::expired_rows::begun::SHOW_EXPIRED;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

/// On by default. In an emergency an administrator turns it off without a restart.
static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);

/// In kilobytes. The default of 64 MB holds some 400,000 small entries, and is little on any server that runs Postgres.
static HOT_SIZE: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);
/// The largest size that the store can address, in kilobytes.
const LARGEST_HOT_SIZE: i32 = (pgcache_store::MAX_REGION / 1024) as i32;
/// The average size of key and value in bytes. The default of 0 means the average size in the tier when the server
/// stopped.
static HOT_ENTRY_SIZE: GucSetting<i32> = GucSetting::<i32>::new(0);
/// In kilobytes. A page fragment or an image fits into the default. A value that does not fit would evict thousands of
/// entries.
static HOT_MAX_VALUE: GucSetting<i32> = GucSetting::<i32>::new(1024);
/// On by default. A user who doubts a value turns it off in one session and compares.
static HOT_TIER: GucSetting<bool> = GucSetting::<bool>::new(true);

/// Off by default, because it writes values in clear text to a file in the data directory.
static SAVE_MEMORY: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Returns whether a clean shutdown saves the entries of memory caches for the next start.
pub fn save_memory() -> bool {
    SAVE_MEMORY.get()
}

/// In milliseconds. Expired rows cost only space, and within the default of 10 s little of it. A visit costs some
/// milliseconds of a database's time.
static EXPIRE_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(10_000);
/// In rows. Deleting the default number takes some tens of milliseconds, and a transaction has few enough keys to be
/// marked one by one in the hot tier.
static EXPIRE_BATCH: GucSetting<i32> = GucSetting::<i32>::new(5_000);

/// Returns whether the hot tier is read and filled, the Redis protocol answers, and workers sweep. Only the code of
/// these three may check it. Code that records a change, marks it or removes dependent entries must not check it:
/// processes see a reload at different times, and a process that still has `on` reads the copies of all sessions.
#[inline]
pub fn enabled() -> bool {
    ENABLED.get()
}

/// Returns the time between two visits of the worker to a database; None if the worker is off.
pub fn expire_interval() -> Option<Duration> {
    let milliseconds = u64::try_from(EXPIRE_INTERVAL.get()).unwrap_or(0);
    (milliseconds > 0 && enabled()).then(|| Duration::from_millis(milliseconds))
}

/// Returns the number of rows that the worker removes in one transaction.
pub fn expire_batch() -> i64 {
    i64::from(EXPIRE_BATCH.get())
}

/// In milliseconds. The default is longer than most loaders take, and shorter than most callers are willing to wait.
static FETCH_WAIT: GucSetting<i32> = GucSetting::<i32>::new(5_000);
/// In milliseconds. The default is twice the wait: a session that waits for a slow holder gives up before a second
/// holder begins.
static LEASE_TIME: GucSetting<i32> = GucSetting::<i32>::new(10_000);

const HOUR: i32 = 3_600_000;

/// Returns how long `cache_fetch` waits for another session's value.
pub fn fetch_wait() -> Duration {
    Duration::from_millis(FETCH_WAIT.get().unsigned_abs().into())
}

/// Returns how many milliseconds a lease lasts.
pub fn lease_time() -> i64 {
    LEASE_TIME.get().into()
}

/// Auto by default. A user who doubts direct access compares it with the plans.
static TABLE_PATH: GucSetting<TablePath> = GucSetting::<TablePath>::new(TablePath::Auto);

/// How calls access the rows of a table cache.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum TablePath {
    /// Directly through the index if the table is plain enough; otherwise through plans.
    #[name = c"auto"]
    Auto,
    /// Only through saved plans.
    #[name = c"plan"]
    Plan,
}

/// Returns whether this session uses direct access where it can.
pub fn table_path_is_direct() -> bool {
    TABLE_PATH.get() == TablePath::Auto
}

/// Returns the bytes of shared memory for the hot tier, including its bookkeeping.
pub fn hot_size() -> usize {
    usize::try_from(HOT_SIZE.get()).unwrap_or(0) * 1024
}

/// Returns the bytes of key and value that the layout of the tier's index assumes. None means the average of the last
/// run.
pub fn hot_entry_size() -> Option<usize> {
    usize::try_from(HOT_ENTRY_SIZE.get())
        .ok()
        .filter(|size| *size > 0)
}

/// Returns the maximum length in bytes of a value in the hot tier.
pub fn hot_max_value() -> usize {
    usize::try_from(HOT_MAX_VALUE.get()).unwrap_or(0) * 1024
}

/// Returns whether this session reads table entries from the hot tier.
pub fn hot_tier() -> bool {
    HOT_TIER.get() && enabled()
}

/// Defines the settings. `preloading` is true while the server starts, when shared memory can still be requested.
pub fn define(preloading: bool) {
    GucRegistry::define_bool_guc(
        c"pgcache.enabled",
        c"Turns the Redis protocol, the hot tier and the workers on.",
        c"Off, clients of the Redis protocol are disconnected, memory caches raise an error, and nothing is swept; changes are recorded all the same.",
        &ENABLED,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgcache.hot_size",
        c"Sets the amount of shared memory for the hot tier.",
        c"The memory holds copies of hot entries, memory caches and bookkeeping; 0 turns the hot tier off.",
        &HOT_SIZE,
        0,
        LARGEST_HOT_SIZE,
        // Without preloading it is too late for a postmaster setting. The setting is defined nevertheless, because
        // otherwise each session would warn of it if the configuration file contains it.
        match preloading {
            true => GucContext::Postmaster,
            false => GucContext::Sighup,
        },
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"pgcache.hot_entry_size",
        c"Sets the average size of key and value for which the hot tier's index is made.",
        c"Smaller entries need a larger share of the memory as index. 0 takes the size that the tier held when the server was last stopped.",
        &HOT_ENTRY_SIZE,
        0,
        1024 * 1024,
        match preloading {
            true => GucContext::Postmaster,
            false => GucContext::Sighup,
        },
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_int_guc(
        c"pgcache.hot_max_value",
        c"Sets the size of the longest value that the hot tier holds.",
        c"Longer values of table caches are read from the table, and memory caches reject them.",
        &HOT_MAX_VALUE,
        1,
        1024 * 1024,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"pgcache.save_memory",
        c"Saves the entries of memory caches at a clean shutdown, and restores them at the next start.",
        c"The file with the entries is in the directory pg_stat of the data directory while the server is down.",
        &SAVE_MEMORY,
        match preloading {
            true => GucContext::Postmaster,
            false => GucContext::Sighup,
        },
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pgcache.hot_tier",
        c"Lets this session read entries of table caches from the hot tier.",
        c"Turning it off bypasses the copies, for comparison or diagnosis. Memory caches are not affected.",
        &HOT_TIER,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"pgcache.table_path",
        c"Selects how this session reads and writes the tables of table caches.",
        c"auto accesses a table directly by its index if the table has nothing but pgcache's own triggers; plan runs kept plans, for comparison or diagnosis.",
        &TABLE_PATH,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgcache.expire_interval",
        c"Sets the time between two visits of the worker that removes expired entries.",
        c"The worker visits each database with the extension separately. 0 turns the worker off.",
        &EXPIRE_INTERVAL,
        0,
        24 * 60 * 60 * 1000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pgcache.expire_batch",
        c"Sets the number of rows that the worker removes in one transaction.",
        c"A larger number is faster; a smaller number holds row locks and a snapshot for a shorter time.",
        &EXPIRE_BATCH,
        100,
        10_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pgcache.show_expired",
        c"Shows expired rows of table caches to plain SQL of this session.",
        c"The rows are those that no sweep has removed yet. The functions of pgcache are not affected.",
        &SHOW_EXPIRED,
        GucContext::Userset,
        GucFlags::default(),
    );
    define_leases();
    resp::define(preloading);
    #[cfg(feature = "pauses")]
    {
        crate::pg::session::pause::define();
        crate::pg::session::fault::define(preloading);
    }
    // Makes Postgres warn of a misspelt `pgcache.*` in a configuration file, instead of ignoring it.
    crate::pg::session::reserve_settings_prefix(c"pgcache");
}

fn define_leases() {
    GucRegistry::define_int_guc(
        c"pgcache.fetch_wait",
        c"Sets how long cache_fetch() waits for a value that another session is loading.",
        c"After this time cache_fetch() loads the value itself. 0 means that it never waits.",
        &FETCH_WAIT,
        0,
        HOUR,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pgcache.lease_time",
        c"Sets how long a lease lasts.",
        c"A caller that takes longer to load or compute a value may be overtaken, and its value is not stored.",
        &LEASE_TIME,
        1,
        24 * HOUR,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
}
