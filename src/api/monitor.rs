//! SQL functions for monitoring: statistics of caches, of the hot tier and of sweeps, the rows of a memory cache's
//! view, and the comparison of copies in the tier with their tables.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgrx::Internal;
use pgrx::pg_sys::{Oid, TIMESTAMPTZOID};
use pgrx::prelude::*;

use super::read::columns;
use super::{Answer, TO_READ};
use crate::cache::commit::setup;
use crate::cache::definition::{declare, view};
use crate::cache::distribute::distributed_call::Kind;
use crate::cache::expiry::upkeep;
use crate::cache::memory::tier_ops as memory_cache;
use crate::cache::open;
use crate::cache::table::{access_path, verify as copies};
use crate::cache::tier::slots;
use crate::error::Error;
use crate::pg::catalog::row_estimate;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::session::{self, clock};
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::rows::{OutRow, QueryStream, Rows, Stream};
use crate::pg::value::typed::Typed;

/// Returns the live entries of a memory cache, in no order. The view of the cache calls this function.
#[pg_extern]
fn memory_entries(settings: Option<Text>) -> Answer<QueryStream<3>> {
    let settings = settings.ok_or(Error::NullArgument("settings"))?;
    Ok(QueryStream::new(move |sink| {
        let cache = view::cache_behind(settings)?;
        sink.require([
            ValueType::Text.oid(),
            cache.value_type.oid(),
            TIMESTAMPTZOID,
        ])?;
        memory_cache::all(&cache, &mut |copy_out| {
            sink.row(|| {
                let (key, entry) = copy_out()?;
                Some([
                    key.into(),
                    entry.value.into(),
                    Typed::moment(entry.deadline),
                ])
            });
        })
    }))
}

/// The SUPPORT function of `pgcache.memory_entries`: estimates for the planner how many entries a memory cache has.
#[pg_extern]
fn memory_entries_support(request: Option<Internal>) -> Internal {
    row_estimate::answer(request, view::estimated_entries)
}

/// Raises a notice at the commit if the server lacks settings that pgcache needs. The script of CREATE EXTENSION calls
/// this function.
#[pg_extern]
fn tell_what_is_missing() {
    setup::request();
}

/// Returns the counters of the caches of this database that have a slot in the tier: cache, hot_hits, table_hits,
/// misses, sets, deletes, expired, evicted, invalidated, hot_entries, hot_bytes.
#[pg_extern]
fn figures() -> Rows<11> {
    let Some(tier) = tier() else {
        return Rows(Vec::new());
    };
    let rows = slots::of_database(tier, session::database())
        .map(|(relation, number)| cache_row(tier, relation, number))
        .collect();
    Rows(rows)
}

fn cache_row(tier: &Tier, relation: Oid, number: u32) -> [Typed; 11] {
    let slot = tier.slot(number);
    let counted = |counter| Typed::number(slot.counter(counter) as i64);
    [
        Typed::oid(relation),
        counted(Counter::HotHits),
        counted(Counter::TableHits),
        counted(Counter::Misses),
        counted(Counter::Sets),
        counted(Counter::Deletes),
        counted(Counter::Expired),
        Typed::number(slot.evicted() as i64),
        Typed::number(slot.invalidated() as i64),
        Typed::number(slot.entries.load(Relaxed)),
        Typed::number(slot.bytes.load(Relaxed)),
    ]
}

/// Returns the results of sweeps for the caches of this database that have been swept: cache, trimmed, last_sweep,
/// sweep_lag, waiting.
#[pg_extern]
fn sweep_figures() -> Rows<5> {
    Rows(upkeep::counters().into_iter().map(sweep_row).collect())
}

fn sweep_row(counters: upkeep::Counters) -> [Typed; 5] {
    let swept = counters.last_sweep.is_some();
    [
        Typed::oid(counters.relation),
        Typed::number(counters.trimmed),
        Typed::moment(counters.last_sweep),
        Typed::of(clock::interval(0, 0, counters.lag).filter(|_| swept)),
        Typed::number(counters.waiting),
    ]
}

/// Returns how many calls of this session accessed a table directly, and how many ran a plan.
#[pg_extern]
fn table_path_taken() -> OutRow<2> {
    let taken = access_path::taken();
    OutRow([taken.direct, taken.plan].map(Typed::number))
}

/// Returns the counters of the whole tier: size, used, entries, evictions, rejected, lock_waits, bookkeeping, holes,
/// free, pending. All but the counts are in bytes; size = bookkeeping + entries' bytes + holes + free.
#[pg_extern]
fn tier_figures() -> OutRow<10> {
    let Some(tier) = tier() else {
        return OutRow([Typed::number(0); 10]);
    };
    let (usage, stats, control) = (tier.region().usage(), tier.region().stats(), tier.control());
    let size = tier.size() as u64;
    let bookkeeping = size - usage.entries - usage.holes - usage.free;
    let numbers = [
        size,
        size - usage.free,
        stats.entries,
        stats.evicted,
        control.rejected.load(Relaxed),
        control.waits.load(Relaxed),
        bookkeeping,
        usage.holes,
        usage.free,
        pending(tier),
    ];
    OutRow(numbers.map(|number| Typed::number(number as i64)))
}

/// Returns how the tier is shared: slots and slots_used, leases and leases_used, and elsewhere_bytes, the bytes of
/// entries in caches of other databases.
#[pg_extern]
fn tier_shares() -> OutRow<5> {
    let Some(tier) = tier() else {
        return OutRow([Typed::number(0); 5]);
    };
    let (leases_used, leases) = tier.leases().use_of_records();
    let (mut slots_used, mut elsewhere_bytes) = (0, 0);
    for (slot, cache) in tier.caches().iter().enumerate() {
        if let Some(cache) = cache.load(SeqCst) {
            slots_used += 1;
            if cache.database() != session::database() {
                elsewhere_bytes += tier.slot(slot as u32).bytes.load(Relaxed);
            }
        }
    }
    OutRow([
        Typed::number(tier.caches().len() as i64),
        Typed::number(slots_used),
        Typed::number(leases as i64),
        Typed::number(leases_used as i64),
        Typed::number(elsewhere_bytes),
    ])
}

/// Returns the number of marks in the tier. It is 0 while no transaction is committing or prepared.
fn pending(tier: &Tier) -> u64 {
    let slots: u64 = (0..tier.caches().len() as u32)
        .map(|number| u64::from(tier.slot(number).pending_writers.load(SeqCst)))
        .sum();
    slots + tier.marks().standing()
}

/// Resets the statistics of one cache to 0. Without a cache, resets the statistics of all caches in this database, of
/// the tier and of the Redis protocol.
#[pg_extern]
fn reset_stats(cache: Option<Oid>) -> Answer<()> {
    if let (None, Some(board)) = (cache, ClientRegistry::of_server()) {
        board.reset();
    }
    let Some(tier) = tier() else {
        return Ok(());
    };
    for (relation, number) in slots::of_database(tier, session::database()) {
        if cache.is_none_or(|cache| cache == relation) {
            tier.slot(number).reset_figures();
        }
    }
    if cache.is_none() {
        tier.region().reset_stats();
        tier.control().rejected.store(0, Relaxed);
        tier.control().waits.store(0, Relaxed);
    }
    Ok(())
}

/// Returns the dependencies whose key expression is evaluated under the settings of the session that changes a row
/// (DateStyle, TimeZone and the like), so that the key may differ. Columns: source, cache, and the statement that
/// repairs the dependency, or NULL.
#[pg_extern]
fn verify_dependencies() -> Rows<3> {
    let rows = declare::follow_writers(None).into_iter().map(|found| {
        [
            Typed::oid(found.source),
            Typed::oid(found.cache),
            found.statement.map(|sql| Text::new(&sql)).into(),
        ]
    });
    Rows(rows.collect())
}

functions! {
    /// Returns the copies in the hot tier that differ from the rows of the table. Every returned row shows a bug in
    /// pgcache. Columns: key, hot_value, table_value.
    [0, Kind::Rows, TO_READ]
    fn verify: fn(cache: Option<Oid>) -> Answer<Stream<3>> {
        Ok(Stream::new(move |sink| {
            let cache = open::to_read(cache, TO_READ)?;
            declare::follow_writers(Some(cache.relation));
            copies::each(&cache, &mut |compare| {
                sink.row(|| {
                    let (key, copy, row) = compare()?;
                    let [hot_value, _] = columns::<Text>(&copy);
                    let row_value = row.map_or(Typed::NULL, |row| columns::<Text>(&row)[0]);
                    Some([key.into(), hot_value, row_value])
                });
            });
            Ok(())
        }))
    }
}
