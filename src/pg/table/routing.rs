//! Finds the partition that holds the row of a key.
//!
//! A cache's key is its whole primary key, so it is also the only partition key at each level. This file calls the
//! Postgres functions with which the executor finds the partition of a row. So pgcache reads or removes a row in the
//! row's own partition, and neither reads nor locks any other partition.
//!
//! It takes locks in the order in which the statement would take them: downwards from the table that the statement
//! names.

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::session::lock::{self, Mode};
use crate::pg::value::datum::Text;
use crate::pg::value::key_type::KeyType;
use crate::pg::version::{self, PartitionKey};

/// One step down the partition tree.
#[derive(Clone, Copy)]
struct Part {
    table: Oid,
    is_leaf: bool,
}

/// Returns the partition for rows with this key. Locks it, and the partitioned tables above it, for writing. Returns
/// None if no partition accepts the key. The caller has locked the table itself, which is partitioned.
pub fn leaf(table: Oid, key: Text) -> Option<Oid> {
    let mut above = table;
    loop {
        let part = part_of(above, key)?;
        lock::relation(part.table, Mode::Write);
        if part.is_leaf {
            return Some(part.table);
        }
        above = part.table;
    }
}

fn part_of(table: Oid, key: Text) -> Option<Part> {
    // SAFETY: the table is locked, and stays open until the description of its partitions, which belongs to the
    // relation, has been read. The arrays of a key of one column have one element each.
    unsafe {
        let open = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let by = version::partition_key(open).filter(|by| by.columns == 1 && by.column != 0);
        let part = by.and_then(|by| {
            let key_type = KeyType::of(*by.kind, *by.modifier)?;
            part_in(open, by, key_type.datum(key))
        });
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        part
    }
}

/// # Safety
/// The table is open, `by` is its partition key, of one column, and the datum `key` has the column's type.
unsafe fn part_in(table: pg_sys::Relation, by: PartitionKey, mut key: Datum) -> Option<Part> {
    let PartitionKey {
        functions,
        collations,
        ..
    } = by;
    // SAFETY: the description of the partitions belongs to the relation, and stays while the relation is open; its
    // bounds are compared with one datum, because the key has one column.
    unsafe {
        // Excludes partitions that are being detached, in the same cases as the executor does.
        let leaves_out = !lock::one_snapshot_per_transaction();
        let parts = pg_sys::RelationGetPartitionDesc(table, leaves_out);
        let bounds = (*parts).boundinfo;
        if (*parts).nparts == 0 || bounds.is_null() {
            return None;
        }
        let (mut null, mut is_equal) = (false, false);
        let indexes = (*bounds).indexes;
        let found = match (*bounds).strategy as u8 {
            b'h' => {
                let hash = pg_sys::compute_partition_hash_value(
                    1, functions, collations, &mut key, &mut null,
                );
                let place = hash % (*bounds).nindexes.max(1) as u64;
                return at(parts, *indexes.add(place as usize));
            }
            b'l' => {
                let place = pg_sys::partition_list_bsearch(
                    functions,
                    collations,
                    bounds,
                    key,
                    &mut is_equal,
                );
                match place >= 0 && is_equal {
                    true => *indexes.add(place as usize),
                    false => -1,
                }
            }
            _ => {
                let place = pg_sys::partition_range_datum_bsearch(
                    functions,
                    collations,
                    bounds,
                    1,
                    &mut key,
                    &mut is_equal,
                );
                *indexes.add((place + 1) as usize)
            }
        };
        match found {
            0.. => at(parts, found),
            _ => at(parts, (*bounds).default_index),
        }
    }
}

/// # Safety
/// The description is valid, and the number is that of one of its parts, or negative.
unsafe fn at(parts: pg_sys::PartitionDesc, number: i32) -> Option<Part> {
    let number = usize::try_from(number).ok()?;
    // SAFETY: by the caller's contract: both arrays have an element for each part.
    unsafe {
        Some(Part {
            table: *(*parts).oids.add(number),
            is_leaf: *(*parts).is_leaf.add(number),
        })
    }
}
