//! Runs the commands on all entries of a table: SCAN, KEYS, RANDOMKEY, DBSIZE, FLUSHDB.
//!
//! A scan walks the keys in their sort order, which never changes for a key. So the scan returns each key that exists
//! from the scan's start to its end. The cursor stands for a key that is kept in shared memory.

use pgcache_resp::{Failure, Scan, Writer, matches};
use pgrx::PgLogLevel;
use pgrx::pg_sys::panic::ErrorReport;

use crate::cache::catalog::reading::Reading;
use crate::cache::definition::define;
use crate::cache::entries::table::Rows;
use crate::cache::model::entry::Page;
use crate::cache::model::statement::Statement;
use crate::cache::{entries, open};
use crate::pg::catalog::privilege::Privileges;
use crate::pg::catalog::relation;
use crate::pg::memory;
use crate::pg::resp::cursors::{self, Scanner};
use crate::pg::session::{self, random};
use crate::pg::value::datum::Text;
use crate::pg::value::typed::Typed;
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::entry_access::Call;
use crate::resp::executor::tables::open_table::Table;

/// The maximum number of keys that one page holds and one SCAN reads.
const PAGE: usize = 10_000;
/// The number of bytes of keys after which a SCAN reads no more and replies.
const LONGEST_REPLY: usize = 1 << 20;

fn to_read<'a>(call: &Call<'_, Rows<'_>>, table: &Table) -> Done<'a, Reading> {
    call.needs(Privileges::READ)?;
    open::lock_to_read(table.relation(), Privileges::SELECT).map_err(CommandError::from)
}

/// Runs DBSIZE.
pub fn count<'a>(call: &Call<'_, Rows<'_>>, table: &Table, out: &mut Writer) -> Done<'a> {
    let reading = to_read(call, table)?;
    out.integer(entries::count(&reading).map_err(CommandError::from)?);
    Ok(())
}

/// Returns the prefix that all keys matching a pattern share; only keys with this prefix are read. The prefix is empty
/// if the key type has no prefixes.
fn prefix<'p>(reading: &Reading, pattern: &'p [u8]) -> &'p [u8] {
    let special = |byte: &u8| b"*?[\\".contains(byte);
    match reading.cache.key_type.is_text() {
        true => pattern.split(special).next().unwrap_or_default(),
        false => b"",
    }
}

/// Returns a page of keys that follow `after`.
fn page<'a>(
    reading: &Reading,
    prefix: &[u8],
    after: Option<Text>,
    max_rows: usize,
) -> Done<'a, Vec<Text>> {
    let page = Page {
        prefix: Text::new(prefix),
        after,
        max_rows,
    };
    let mut found = memory::list(0);
    entries::keys(reading, &page, &mut |copy_out| {
        if let Some(key) = copy_out() {
            memory::push(&mut found, key);
        }
    })
    .map_err(CommandError::from)?;
    Ok(found)
}

/// Runs SCAN. COUNT bounds the number of keys that it reads, and all of these begin with the pattern's prefix.
pub fn scan<'a>(
    call: &Call<'_, Rows<'_>>,
    table: &Table,
    scan: &Scan<'a>,
    out: &mut Writer,
) -> Done<'a> {
    let reading = to_read(call, table)?;
    let scanner = Scanner {
        relation: table.relation(),
        role: session::user(),
    };
    let after = match scan.cursor {
        0 => None,
        cursor => {
            let key = cursors::find(scanner, cursor).ok_or(Failure::InvalidCursor)?;
            Some(Text::new(&key))
        }
    };
    let pattern = scan.pattern.unwrap_or(b"*");
    let most = usize::try_from(scan.count).unwrap_or(PAGE).clamp(1, PAGE);
    let mut keys = page(&reading, prefix(&reading, pattern), after, most)?;
    let mut bytes = 0;
    let mut fits = |key: &Text| {
        bytes += key.bytes().len();
        bytes <= LONGEST_REPLY
    };
    let count = keys.iter().take_while(|key| fits(key)).count().max(1);
    let goes_on = count < keys.len() || keys.len() == most;
    keys.truncate(count);
    let next = match keys.last().filter(|_| goes_on) {
        Some(last) => cursors::keep(scanner, last.bytes()).ok_or(CommandError::OutOfMemory)?,
        None => 0,
    };
    let strings = scan
        .kind
        .is_none_or(|kind| kind.eq_ignore_ascii_case(b"string"));
    keys.retain(|key| strings && matches(pattern, key.bytes()));
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(keys.len());
    keys.iter().for_each(|key| out.bulk(key.bytes()));
    Ok(())
}

/// Runs KEYS.
pub fn keys<'a>(
    call: &Call<'_, Rows<'_>>,
    table: &Table,
    pattern: &[u8],
    out: &mut Writer,
) -> Done<'a> {
    let reading = to_read(call, table)?;
    let prefix = prefix(&reading, pattern);
    let (mut found, mut bytes, mut after) = (memory::list(0), 0, None);
    loop {
        let keys = page(&reading, prefix, after, PAGE)?;
        let is_last = keys.len() < PAGE;
        after = keys.last().copied();
        for key in keys {
            if matches(pattern, key.bytes()) {
                bytes += key.bytes().len();
                memory::push(&mut found, key);
            }
        }
        session::check_for_interrupts();
        // A reply that is too long ends the connection, as in Redis.
        if is_last || bytes > out.room() {
            break;
        }
    }
    out.array(found.len());
    found.iter().for_each(|key| out.bulk(key.bytes()));
    Ok(())
}

/// The number of random blocks from whose keys RANDOMKEY chooses. A table of at most this many blocks is read whole.
/// With eight blocks, and half of the table's blocks full, a key of a sparse block is chosen less than twice as often
/// as a key of a full block.
const SAMPLED: u64 = 8;
/// The number of attempts to find random blocks that have keys.
const ROUNDS: u32 = 8;

/// Runs RANDOMKEY: replies with a random key of some random blocks.
pub fn random_key<'a>(call: &Call<'_, Rows<'_>>, table: &Table, out: &mut Writer) -> Done<'a> {
    let reading = to_read(call, table)?;
    let key = match reading.is_out_of_reach() {
        true => None,
        false => random_of(&reading),
    };
    out.bulk_or_null(key.as_ref().map(|key| key.bytes()));
    Ok(())
}

fn random_of(reading: &Reading) -> Option<Text> {
    let blocks = match reading.partitioned {
        true => 0,
        false => u64::from(relation::blocks(reading.relation)),
    };
    let mut found = memory::list(0);
    if !reading.partitioned && blocks <= SAMPLED {
        add_keys(reading, 0, blocks as u32, &mut found);
    }
    for _ in 0..ROUNDS {
        if blocks <= SAMPLED || !found.is_empty() {
            break;
        }
        let mut sampled = [0; SAMPLED as usize];
        sampled.fill_with(|| (random::number() % blocks) as u32);
        sampled.sort_unstable();
        for (at, &block) in sampled.iter().enumerate() {
            if at == 0 || sampled.get(at - 1) != Some(&block) {
                add_keys(reading, block, block + 1, &mut found);
            }
        }
    }
    let chosen = random::number() % (found.len() as u64).max(1);
    found.get(chosen as usize).copied().or_else(|| {
        // The table is nearly empty or partitioned: take the first key at or after a random block.
        let plan = reading.plan(Statement::KeyFrom);
        let from = |block| plan.run(&[Typed::address(block)], |output| output.text(0, 0));
        from((random::number() % blocks.max(1)) as u32).or_else(|| from(0))
    })
}

/// Adds the keys of these blocks.
fn add_keys(reading: &Reading, from: u32, until: u32, found: &mut Vec<Text>) {
    let plan = reading.plan(Statement::KeysOfBlocks);
    plan.run(&[Typed::address(from), Typed::address(until)], |output| {
        let keys = (0..output.rows()).filter_map(|row| output.text(row, 0));
        keys.for_each(|key| memory::push(found, key));
    });
}

/// Clears one of several tables. Raises its errors, so that the other tables stay as they were.
pub fn clear_one(table: &Table) {
    let done = open::to_clear(Some(table.relation()), c"FLUSHALL");
    if let Err(error) = done.and_then(|cache| define::clear(&cache)) {
        ErrorReport::from(error).report(PgLogLevel::ERROR);
    }
}

/// Runs FLUSHDB, under the lock that TRUNCATE takes.
pub fn clear<'a>(call: &Call<'_, Rows<'_>>, table: &Table, out: &mut Writer) -> Done<'a> {
    call.needs(Privileges::CLEAR)?;
    let cache = open::to_clear(Some(table.relation()), c"FLUSHDB").map_err(CommandError::from)?;
    define::clear(&cache).map_err(CommandError::from)?;
    out.simple("OK");
    Ok(())
}
