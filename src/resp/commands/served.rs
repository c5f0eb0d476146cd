//! The trait [`Served`]: the methods that a Redis command needs beyond those of a [`Store`], mainly the check whether
//! these entries can serve the command.

use crate::cache::catalog::registry::Storage;
use crate::cache::entries::store::Store;
use crate::cache::memory::raw::Entries;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::value::datum::ValueType;
use crate::resp::auth::command_target::Target;
use crate::resp::commands::command_error::{CommandError, Done};

/// Entries that commands read and change.
pub trait Served: Store {
    /// The number of keys of one piece of a command. Other clients are served between two pieces.
    const PIECE: usize;

    /// Returns an error if these entries cannot serve a command that needs these privileges. In shared memory: the
    /// values are JSON, or the command changes a table or a watched cache. In a table: the transaction is read-only, or
    /// the table has generated values or deadlines. The caller has checked the privileges.
    fn admits<'a>(target: &Target, privileges: Privileges) -> Done<'a>;
    /// Prepares the entries for a change. For a table: takes the lock and checks these privileges again.
    fn open<'a>(&self, privileges: Privileges) -> Done<'a>;
    /// Returns whether an entry that is absent here may exist elsewhere.
    fn is_partial(target: &Target) -> bool;
}

/// The number of keys of one piece, which take some 20 µs.
pub const PIECE: usize = 128;

impl Served for Entries<'_> {
    const PIECE: usize = PIECE;

    #[inline]
    fn admits<'a>(target: &Target, privileges: Privileges) -> Done<'a> {
        let cache = &target.cache;
        let (is_table, changes) = (target.is_table(), privileges != Privileges::READ);
        if cache.value_type == ValueType::Json {
            return Err(if is_table {
                CommandError::Table
            } else {
                CommandError::Json
            });
        }
        if changes && is_table {
            return Err(CommandError::Table);
        }
        if changes && cache.settings.watch.is_some() {
            return Err(CommandError::Watched);
        }
        Ok(())
    }

    #[inline]
    fn open<'a>(&self, _: Privileges) -> Done<'a> {
        Ok(())
    }

    #[inline]
    fn is_partial(target: &Target) -> bool {
        target.cache.storage != Storage::Memory
    }
}
