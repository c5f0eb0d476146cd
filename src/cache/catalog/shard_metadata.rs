//! The shards of caches that `cache_distribute` has distributed over Citus nodes, and the node of each shard.
//!
//! A distributed cache is in the colocation group of the table `pgcache.distributed`, which pgcache creates. Only the
//! colocation group marks a cache as distributed, so every node with Citus metadata recognizes it. A session keeps the
//! metadata until Citus invalidates the table. Citus does so on each node with the commit that moves or splits a shard
//! there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::mem::ManuallyDrop;
use std::rc::Rc;

use pgrx::pg_sys::{OIDOID, Oid};

use crate::cache::model::key_of_hash::key_of_hash;
use crate::pg::catalog::invalidation::Watch;
use crate::pg::catalog::{distributed, relation};
use crate::pg::session::shard_lock::Place;
use crate::pg::spi::plan::{Paths, Plan};
use crate::pg::value::datum::Text;
use crate::pg::value::key_type;
use crate::pg::value::typed::Typed;

/// A shard: a range of key hashes, and the node that holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// The lock that keeps the shard on its node.
    pub lock: Place,
    /// The lowest hash of the shard. The shard ends where the next shard begins.
    from: i64,
    /// The Citus group id of the node.
    pub node: i64,
    /// The shard's table, if the shard is on this node.
    pub table: Option<Oid>,
}

/// The shards of a distributed cache.
pub struct Spread {
    /// `schema.name` of the cache, quoted.
    pub name: CString,
    /// The Citus group id of this node.
    pub here: i64,
    /// Sorted by hash.
    pub shards: Vec<Shard>,
    watch: Watch,
}

/// The session's knowledge of a relation: its shards, or that the relation is not distributed.
#[derive(Clone)]
enum Known {
    Other(Rc<Watch>),
    Spread(Rc<Spread>),
}

thread_local! {
    /// Never dropped, like the registry of caches.
    static KNOWN: ManuallyDrop<RefCell<BTreeMap<u32, Known>>> = ManuallyDrop::default();
}

/// The shards of cache $1.
const SHARDS: &CStr = c"SELECT s.shardminvalue::pg_catalog.int8, p.groupid::pg_catalog.int8, \
    l.groupid::pg_catalog.int8, \
    pg_catalog.to_regclass(pg_catalog.shard_name(s.logicalrelid, s.shardid, false))::pg_catalog.oid, \
    d.colocationid::pg_catalog.int8 \
    FROM pg_catalog.pg_dist_partition AS ours \
    JOIN pg_catalog.pg_dist_partition AS d ON d.colocationid OPERATOR(pg_catalog.=) ours.colocationid \
    JOIN pg_catalog.pg_dist_shard AS s ON s.logicalrelid OPERATOR(pg_catalog.=) d.logicalrelid \
    JOIN pg_catalog.pg_dist_placement AS p ON p.shardid OPERATOR(pg_catalog.=) s.shardid \
    CROSS JOIN pg_catalog.pg_dist_local_group AS l \
    WHERE ours.logicalrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('pgcache.distributed') \
    AND d.logicalrelid OPERATOR(pg_catalog.=) $1 AND d.partmethod OPERATOR(pg_catalog.=) 'h' \
    ORDER BY 1";

/// Returns the shards of a cache that `cache_distribute` has distributed. Returns None for any other relation.
pub fn of(cache: Oid) -> Option<Rc<Spread>> {
    if !distributed::citus_is_loaded() {
        return None;
    }
    let known = KNOWN.with(|known| known.borrow().get(&cache.to_u32()).cloned());
    let known = match known {
        Some(Known::Other(watch)) if !watch.is_stale() => return None,
        Some(Known::Spread(spread)) if !spread.is_stale() => return Some(spread),
        _ => look(cache),
    };
    let former = KNOWN.with(|all| {
        let mut all = all.borrow_mut();
        let gone = all.extract_if(.., |_, known| known.is_stale());
        let gone: Vec<(u32, Known)> = gone.collect();
        all.insert(cache.to_u32(), known.clone());
        gone
    });
    drop(former);
    match known {
        Known::Spread(spread) => Some(spread),
        Known::Other(_) => None,
    }
}

fn look(cache: Oid) -> Known {
    let watch = Watch::over(cache);
    if !distributed::is_distributed(cache) {
        return Known::Other(Rc::new(watch));
    }
    let mut here = 0;
    let plan = Plan::prepare(SHARDS, &[OIDOID], Paths::Any);
    // The transaction's snapshot may be older than the change that Citus reported, so read with a new one.
    let shards = plan.run_as_of_now(&[Typed::oid(cache)], |output| {
        let shard = |row| {
            here = output.number(row, 2)?;
            Some(Shard {
                lock: Place {
                    index: row as u32,
                    group: output.number(row, 4)? as u32,
                },
                from: output.number(row, 0)?,
                node: output.number(row, 1)?,
                table: output.oid(row, 3),
            })
        };
        (0..output.rows())
            .map(shard)
            .collect::<Option<Vec<Shard>>>()
    });
    let shards = shards.unwrap_or_default();
    // A shard with placements on two nodes would have to be written on both, so pgcache does not support it.
    let replicated = shards.windows(2).any(|two| two[0].from == two[1].from);
    match relation::spelled(cache).filter(|_| !shards.is_empty() && !replicated) {
        Some(name) => Known::Spread(Rc::new(Spread {
            name,
            here,
            shards,
            watch,
        })),
        None => Known::Other(Rc::new(watch)),
    }
}

/// Returns the hash that Citus uses to find the shard of a key.
pub fn hash_of(key: Text) -> i64 {
    i64::from(key_type::hash_of_text(key))
}

impl Known {
    fn is_stale(&self) -> bool {
        match self {
            Known::Other(watch) => watch.is_stale(),
            Known::Spread(spread) => spread.is_stale(),
        }
    }
}

impl Spread {
    /// Returns whether Citus may have changed the shards since they were read.
    pub fn is_stale(&self) -> bool {
        self.watch.is_stale()
    }

    /// Returns the shard of a key.
    pub fn shard(&self, key: Text) -> Shard {
        self.shard_of(hash_of(key))
    }

    /// Returns the shard of the keys with this hash.
    pub fn shard_of(&self, hash: i64) -> Shard {
        let after = self.shards.partition_point(|shard| shard.from <= hash);
        self.shards[after.saturating_sub(1)]
    }

    /// Returns whether a shard is on this node.
    pub fn is_here(&self, shard: &Shard) -> bool {
        shard.node == self.here
    }

    /// Returns a checksum of the shards of a node, never 0. Two nodes compare their checksums to learn whether they
    /// know the same shards.
    pub fn sum_of_shards(&self, node: i64) -> i64 {
        let shards = self.shards.iter().filter(|shard| shard.node == node);
        let sum = shards.fold(0x811c_9dc5_u32, |sum, shard| {
            (sum ^ shard.from as u32)
                .wrapping_mul(0x0100_0193)
                .rotate_left(5)
        });
        i64::from(sum >> 2 | 1)
    }

    /// Returns a key of another shard, on the same node if possible. If the cache has only one shard, returns a key of
    /// that shard.
    pub fn key_beside(&self, shard: &Shard) -> Text {
        let others = || self.shards.iter().filter(|other| *other != shard);
        let same = others().find(|other| other.node == shard.node);
        self.key_in(same.or_else(|| others().next()).unwrap_or(shard))
    }

    /// Returns a key that Citus routes to a shard, even if the shard covers a single hash.
    pub fn key_in(&self, shard: &Shard) -> Text {
        Text::new(&key_of_hash(shard.from as u32))
    }
}
