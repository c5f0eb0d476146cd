//! Computes the fingerprints of entries for WATCH, and takes the locks with which EXEC keeps watched keys from
//! changing.

use pgcache_store::NO_DEADLINE;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cache::commit::watched;
use crate::cache::entries;
use crate::cache::entries::buffers::{value, with_buffers};
use crate::cache::entries::store::{EntryMeta, If, NewEntry, Store};
use crate::cache::entries::table::Rows;
use crate::cache::tier::hashed_key::HashedKey;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::watched_rows::ABSENT;
use crate::resp::executor::tables::open_table::Table;

/// Keeps other sessions from storing entries under these absent keys until the transaction ends. For a role without
/// write privileges it locks nothing, so the commands of the EXEC may find entries that were stored after the check.
pub fn hold_absent<'a>(table: &Table, keys: &[&[u8]]) -> Done<'a> {
    if keys.is_empty() || !table.target.privileges.has(Privileges::MOVE) {
        return Ok(());
    }
    let call = table.call();
    let rows = call.to_write(Privileges::MOVE)?;
    let keys = keys.iter().filter_map(|key| rows.key(key));
    let mut keys: Vec<HashedKey> = memory::collect(keys);
    keys.sort_unstable_by(|one, other| one.bytes().cmp(other.bytes()));
    keys.dedup_by(|one, other| one.bytes() == other.bytes());
    if !watched::hold(table.relation(), &keys) {
        for key in keys {
            hold(table, rows, &Some(key))?;
        }
    }
    Ok(())
}

/// Returns the fingerprint of the entry that a key has now; an entry with another value or deadline has another
/// fingerprint. With `lock`, no other session changes the entry until the transaction ends; for a role without write
/// privileges, `lock` has no effect.
pub fn fingerprint<'a>(table: &Table, key: &[u8], lock: bool) -> Done<'a, u64> {
    let call = table.call();
    let locks = lock && table.target.privileges.has(Privileges::MOVE);
    call.needs(Privileges::READ)?;
    let unlocked = table.rows();
    let rows = match locks {
        true => call.to_write(Privileges::MOVE)?,
        false => &unlocked,
    };
    let key = rows.key(key);
    if locks && key.is_some() && !fault::on(Fault::WatchedRowNotLocked) {
        rows.hold_key(&key)?;
    }
    with_buffers(|buffers| {
        let seen = rows.get(&key, &mut buffers.found)?;
        Ok(seen.map_or(ABSENT, |seen| number(&seen, value(&seen, &buffers.found))))
    })
}

fn number(seen: &EntryMeta, value: &[u8]) -> u64 {
    let seed = (seen.deadline as u64).rotate_left(1) ^ u64::from(seen.negative);
    xxh3_64_with_seed(value, seed) | 1
}

/// Keeps other sessions from storing this key: stores a row and removes it at once, so that Postgres makes other
/// writers of the key wait for this transaction. Used if there is no hot tier, because marks do not exist then.
fn hold<'a>(table: &Table, rows: &Rows<'_>, key: &Option<HashedKey>) -> Done<'a> {
    let new = NewEntry::spelled(rows.smallest(), NO_DEADLINE);
    if rows.put(key, new, If::Absent)?
        && let (Some(cache), Some(key)) = (table.changed.get(), key)
    {
        entries::delete(cache, key.key).map_err(CommandError::from)?;
    }
    Ok(())
}
