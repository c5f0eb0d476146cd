//! Moves the marks of a transaction to a record in shared memory at PREPARE TRANSACTION. Another session commits or
//! rolls back the prepared transaction, and Postgres calls no callback of an extension there.
//!
//! Each mark has one owner at any time: the session's list, or the record. Steps that may fail come first, so that an
//! error here is an ordinary rollback of the transaction.

use std::sync::atomic::Ordering::SeqCst;

use crate::cache::lease::undo_marks::{self, Mark, NO_SLOT};
use crate::error::Error;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, transaction};
use crate::pg::shmem::prepared::Record;
use crate::pg::shmem::tier::Tier;

/// Creates a record for this transaction. Raises 53400 if undecided transactions use all records.
pub fn make_record(tier: &Tier) -> Result<Record, Error> {
    let xid = transaction::full_xid();
    undo_marks::lower_decided();
    tier.prepared().make(xid).ok_or(Error::TooManyPrepared)
}

/// Moves marks to the record, in their order. If the record has no room for the mark of a single key, the mark becomes
/// a mark of its whole cache. Returns false if that cache has no slot; in that case, as after an error, the mark and
/// the rest of the list still belong to the session. Raises 53400 if the record has no room at all.
pub fn hand_over(tier: &Tier, record: Record, marks: &mut Vec<Mark>) -> Result<bool, Error> {
    hand(tier, record, marks, false)
}

/// Moves the remaining marks, like [`hand_over`], once locks keep readers off the caches without a slot.
pub fn hand_over_covered(tier: &Tier, record: Record, marks: &mut Vec<Mark>) -> Result<(), Error> {
    hand(tier, record, marks, true).map(drop)
}

fn hand(tier: &Tier, record: Record, marks: &mut Vec<Mark>, covered: bool) -> Result<bool, Error> {
    let mut handed = 0;
    let mut result = Ok(true);
    for &mark in marks.iter() {
        result = hand_one(tier, record, mark, covered);
        if !matches!(result, Ok(true)) {
            break;
        }
        handed += 1;
    }
    marks.drain(..handed);
    result
}

fn hand_one(tier: &Tier, record: Record, mark: Mark, covered: bool) -> Result<bool, Error> {
    if put(tier, record, mark) {
        return Ok(true);
    }
    match mark {
        Mark::Key { .. } if fault::on(Fault::OverflowDoesNotStand) => {}
        Mark::Key { slot: NO_SLOT, .. } if !covered => return Ok(false),
        Mark::Key { slot: NO_SLOT, .. } => {}
        // Entries with a copy keep the copy. Nothing is filled in, leased or stored while the mark of the cache is set.
        Mark::Key { slot, .. } => {
            if put_whole(tier, record, Mark::Pending(slot))? {
                tier.slot(slot).pending_writers.fetch_add(1, SeqCst);
            }
            if let Some(cache) = tier.cache_of(slot).load(SeqCst) {
                put_whole(tier, record, Mark::Leases(cache))?;
            }
        }
        // No other kind of mark can replace this mark. If the record already holds an equal mark, that one is enough:
        // undo what this mark has counted.
        _ => {
            let is_counted = matches!(mark, Mark::Cache(_) | Mark::Pending(_) | Mark::Stores(_));
            if put_whole(tier, record, mark)? || !is_counted {
                return Ok(true);
            }
        }
    }
    mark.undo(tier, None);
    Ok(true)
}

/// Puts a mark into the record. Returns false if neither the record nor a further piece of it has room.
fn put(tier: &Tier, record: Record, mark: Mark) -> bool {
    let (records, item) = (tier.prepared(), mark.item(tier));
    let add_piece = || records.add_piece(record, session::own_role());
    records.put(record, item) || (tier.assigning(add_piece) && records.put(record, item))
}

/// Puts the mark of a whole cache into the reserved items at the end of the record, or joins it with a mark of the same
/// cache there. Returns whether the record has changed. Raises 53400 if these items are full.
fn put_whole(tier: &Tier, record: Record, mark: Mark) -> Result<bool, Error> {
    let item = mark.item(tier);
    let mut is_new = true;
    let put = tier.prepared().put_last(record, item, |known| {
        let joined = undo_marks::joined(known, item)?;
        is_new = joined != known;
        Some(joined)
    });
    match put {
        true => Ok(is_new),
        false => Err(Error::TooManyPrepared),
    }
}
