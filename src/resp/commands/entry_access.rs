//! Gives one command access to the entries of a cache. Checks privileges, keys, values and deadlines before any entry
//! is changed.

use pgcache_resp::{Expiry, Failure, Lifetime};
use pgcache_store::NO_DEADLINE;

use super::served::Served;
use crate::cache::entries::buffers::Buffers;
use crate::cache::entries::store::{self, Change, Copied, EntryMeta};
use crate::cache::memory::raw::{self, Entries};
use crate::cache::model::key;
use crate::cache::model::settings::Settings;
use crate::guc;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::encoding;
use crate::pg::session;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::shmem::slot::Counter;
use crate::pg::value::moment;
use crate::resp::auth::command_target::Target;
use crate::resp::commands::command_error::{CommandError, Done};

/// The longest string of Redis.
pub const LONGEST: i64 = 512 << 20;

/// A command on a cache at one moment.
pub struct Call<'t, S = Entries<'t>> {
    pub target: &'t Target,
    entries: Option<S>,
    now: Timestamp,
}

impl<'t> Call<'t> {
    pub fn new(target: &'t Target, now: Timestamp) -> Call<'t> {
        Call {
            target,
            entries: entries_of(target, now),
            now,
        }
    }
}

impl<'t, S: Served> Call<'t, S> {
    /// Returns a call on these entries of the target.
    pub fn on(target: &'t Target, entries: S, now: Timestamp) -> Call<'t, S> {
        let entries = Some(entries);
        Call {
            target,
            entries,
            now,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.target.cache.settings
    }

    /// Returns an error if the client lacks these privileges, or if this protocol cannot serve the cache.
    #[inline]
    pub fn needs<'a>(&self, privileges: Privileges) -> Done<'a> {
        if !self.target.privileges.has(privileges) {
            return Err(CommandError::NoRight);
        }
        S::admits(self.target, privileges)
    }

    /// Returns the entries for reading; None if the cache has none.
    #[inline]
    pub fn to_read<'a>(&self, privileges: Privileges) -> Done<'a, Option<&S>> {
        self.needs(privileges)?;
        match &self.entries {
            None if S::is_partial(self.target) => Err(CommandError::Table),
            entries => Ok(entries.as_ref()),
        }
    }

    /// Returns the entries for changing them.
    #[inline]
    pub fn to_write<'a>(&self, privileges: Privileges) -> Done<'a, &S> {
        self.needs(privileges)?;
        let entries = self.entries.as_ref().ok_or(CommandError::Gone)?;
        entries.open(privileges)?;
        Ok(entries)
    }

    /// Returns an error for a key under which no entry can be stored, because SQL could not read it.
    #[inline]
    pub fn check_key<'a>(&self, key: &[u8]) -> Done<'a> {
        let fits = (1..=key::MAX_BYTES).contains(&key.len());
        match fits && (is_plain(key) || encoding::is_text(key)) {
            true => Ok(()),
            false => Err(CommandError::Key),
        }
    }

    /// Returns an error for a value that is not valid in the cache's type.
    #[inline]
    pub fn check_value<'a>(&self, value: &[u8]) -> Done<'a> {
        Ok(store::check_value(self.target.cache.value_type, value)?)
    }

    /// Returns the milliseconds since 1970.
    pub fn unix_now(&self) -> i64 {
        moment::to_unix_time(self.now, 1000)
    }

    /// Returns the deadline of an entry for which the command gives no deadline: the default of the cache.
    #[inline]
    pub fn default_deadline<'a>(&self) -> Done<'a, Timestamp> {
        match self.settings().ttl {
            None => Ok(NO_DEADLINE),
            Some(_) => match self.target.cache.deadline(None) {
                Ok(deadline) => Ok(deadline.unwrap_or(NO_DEADLINE)),
                Err(_) => Err(CommandError::Gone),
            },
        }
    }

    /// Returns the deadline that a lifetime gives. Returns an error if the lifetime is not above zero.
    pub fn deadline<'a>(
        &self,
        lifetime: &Lifetime<'a>,
        command: &'static str,
    ) -> Done<'a, Timestamp> {
        let moment = lifetime.deadline(self.unix_now(), command)?;
        Ok(self.moment(moment, lifetime.absolute))
    }

    /// Converts a Redis time to a deadline. A relative time is counted from now, including now's fraction of a
    /// millisecond. A time beyond the range of timestamptz means no deadline.
    pub fn moment(&self, milliseconds: i64, absolute: bool) -> Timestamp {
        let fraction = match absolute {
            true => 0,
            false => self.now.rem_euclid(1000),
        };
        let deadline = (i128::from(milliseconds) - EPOCH) * 1000 + i128::from(fraction);
        if deadline >= i128::from(clock::END) {
            return NO_DEADLINE;
        }
        i64::try_from(deadline).unwrap_or(clock::BEGIN)
    }

    /// Changes an entry depending on its current state; see [`store::Store::change`].
    #[inline]
    pub fn change<'a, R>(
        &self,
        entries: &S,
        key: &S::Key<'_>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Done<'a, (Change, R)>,
    ) -> Done<'a, R> {
        entries.change(key, buffers, decide)
    }

    /// Returns the change that gives an entry this deadline, or removes the entry if the deadline is in the past.
    pub fn touch(&self, deadline: Timestamp) -> Change {
        match self.is_past(deadline) {
            true => Change::Remove,
            false => Change::Touch(deadline),
        }
    }

    /// Returns the deadline of an expiry that is given as a ttl from now; None for any other expiry.
    pub fn sliding(&self, expiry: &Expiry<'_>, command: &'static str) -> Option<Timestamp> {
        match expiry {
            Expiry::At(lifetime) if !lifetime.absolute => self.deadline(lifetime, command).ok(),
            _ => None,
        }
    }

    /// Returns whether a deadline has passed.
    pub fn is_past(&self, deadline: Timestamp) -> bool {
        deadline <= self.now
    }

    /// Returns the length of a live value, without counting a read of a memory cache; None if these entries do not have
    /// the value.
    pub fn length_of(&self, key: &[u8]) -> Option<usize> {
        self.needs(Privileges::READ).ok()?;
        let entries = self.entries.as_ref()?;
        let seen = entries.look(&entries.key(key)).ok()??;
        Some(seen.length)
    }

    /// Copies a value to the start of `found`, and counts the read.
    #[inline]
    pub fn get<'a>(
        &self,
        entries: &S,
        key: &S::Key<'_>,
        found: &mut Vec<u8>,
    ) -> Done<'a, Option<EntryMeta>> {
        let seen = entries.get(key, found)?;
        self.counted(entries, seen)
    }

    /// Counts a read, and returns its result. Returns an error if the table may have the entry that the copies lack.
    #[inline]
    pub fn counted<'a>(&self, entries: &S, seen: Option<EntryMeta>) -> Done<'a, Option<EntryMeta>> {
        // The copies lack the entry, but the table may have it.
        if seen.is_none() && S::is_partial(self.target) {
            return Err(CommandError::Table);
        }
        self.count_read(entries, seen.is_some());
        Ok(seen)
    }

    /// Counts a read by a command, even if the command has changed the entry that it found.
    #[inline]
    pub fn count_read(&self, entries: &S, is_hit: bool) {
        let counter = if is_hit {
            Counter::HotHits
        } else {
            Counter::Misses
        };
        entries.tally(counter, 1);
    }

    /// Returns the keys in the order in which they are changed.
    pub fn in_order<'a>(
        &self,
        entries: &S,
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Done<'a, Vec<&'a [u8]>> {
        let mut all = Vec::new();
        all.try_reserve_exact(keys.len())
            .map_err(|_| CommandError::OutOfMemory)?;
        all.extend(keys);
        entries.in_order(&mut all);
        Ok(all)
    }

    /// Returns the deadline of a write, from its expiry and the current entry.
    pub fn deadline_of<'a>(
        &self,
        expiry: &Expiry<'a>,
        present: Option<&EntryMeta>,
        command: &'static str,
    ) -> Done<'a, Timestamp> {
        match (expiry, present) {
            (Expiry::At(lifetime), _) => self.deadline(lifetime, command),
            (Expiry::Keep, Some(seen)) => Ok(seen.deadline),
            (Expiry::Remove, _) => Ok(NO_DEADLINE),
            (Expiry::Keep | Expiry::Unsaid, _) => self.default_deadline(),
        }
    }
}

/// Returns the entries of a cache at this moment. For a table these are the copies in the tier, and only if a session
/// could use copies now (see `cache::table::copies`). Copies may be used here, because a network process changes no
/// rows, and each iteration of its event loop counts as a new statement.
fn entries_of(target: &Target, now: Timestamp) -> Option<Entries<'_>> {
    if target.is_table() && (!guc::hot_tier() || session::in_recovery()) {
        return None;
    }
    Entries::of(&target.cache, now)
}

/// Returns a deadline in Redis' form; None if the entry has no deadline.
pub fn unix_deadline(seen: &EntryMeta) -> Option<i64> {
    raw::has_deadline(seen).then(|| moment::to_unix_time(seen.deadline, 1000))
}

/// Returns whether the bytes are text in every server encoding: ASCII without NUL.
fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| (1..0x80).contains(byte))
}

/// Returns Redis' error for a value that is not an integer.
pub fn not_an_integer<'a>() -> CommandError<'a> {
    CommandError::Redis(Failure::NotInteger)
}

/// Milliseconds from 1970 to 2000, from which Postgres counts timestamps.
const EPOCH: i128 = 946_684_800_000;
