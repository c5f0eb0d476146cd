//! Runs commands on the entries of table caches, in a transaction of an executor process.
//!
//! The commands run the same code as on memory caches (`commands`). This folder holds a table and its entries
//! ([`open_table`]), and the walks over all entries, which memory caches implement differently.
//!
//! A command must behave like the SQL function that does the same: `cache` checks its privileges and policies, runs its
//! triggers, takes its locks, and sets its marks and sends its notifications.
//!
//! A command that is refused has changed nothing, and returns its error. A command that fails after its first change
//! raises a Postgres error, which rolls the transaction back.

mod open_table;
mod ordered_walks;
mod overwritten_writes;
mod watch;

use pgcache_resp::{Command, Parsed, Writer};

use crate::cache::entries::buffers::with_buffers;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock;
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::entry_access::Call;
use crate::resp::commands::{self, Piece, many};
pub use crate::resp::executor::tables::open_table::{Table, take_surprise};
pub use crate::resp::executor::tables::overwritten_writes::{FEW, Plan, plan};
pub use crate::resp::executor::tables::watch::{fingerprint, hold_absent};

/// Runs one command.
pub fn run<'a>(command: &Parsed<'a>, table: &Table, out: &mut Writer) -> Done<'a> {
    let call = table.call();
    match &command.command {
        Command::Count => ordered_walks::count(&call, table, out),
        Command::Scan(scan) => ordered_walks::scan(&call, table, scan, out),
        Command::Keys { pattern } => ordered_walks::keys(&call, table, pattern, out),
        Command::RandomKey => ordered_walks::random_key(&call, table, out),
        Command::Clear { .. } => ordered_walks::clear(&call, table, out),
        _ => with_buffers(|buffers| {
            let mut progress = many::Position::default();
            loop {
                match commands::on_keys(command, &call, &mut progress, buffers, out)? {
                    Piece::Last => return Ok(()),
                    Piece::More(()) => {}
                    Piece::NotOurs => return Err(CommandError::Table),
                }
            }
        }),
    }
}

/// Runs FLUSHDB on several tables. A failure is raised, so that the transaction clears all tables or none.
pub fn clear_all(tables: &[Table]) -> Done<'static> {
    for table in tables {
        table.call().needs(Privileges::CLEAR)?;
    }
    for table in tables {
        ordered_walks::clear_one(table);
    }
    Ok(())
}

/// Runs COPY to the cache of another database, where at least one of the two caches is a table.
pub fn copy_between<'a>(
    (from, to): (&'a [u8], &'a [u8]),
    (table, other): (&Table, &Table),
    replace: bool,
    out: &mut Writer,
) -> Done<'a> {
    let now = clock::now();
    let is_table = |table: &Table| table.target.is_table();
    with_buffers(|buffers| match (is_table(table), is_table(other)) {
        (true, true) => {
            let (call, other) = (table.call(), other.call());
            commands::copy(&call, from, &other, to, replace, buffers, out)
        }
        (true, false) => {
            let (call, other) = (table.call(), Call::new(&other.target, now));
            commands::copy(&call, from, &other, to, replace, buffers, out)
        }
        (false, _) => {
            let (call, other) = (Call::new(&table.target, now), other.call());
            commands::copy(&call, from, &other, to, replace, buffers, out)
        }
    })
}
