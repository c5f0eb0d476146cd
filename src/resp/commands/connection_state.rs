//! The state that a connection keeps between commands: the transaction that it collects (MULTI), the keys that it
//! watches (WATCH), and the channels to which it has subscribed.
//!
//! It does not run the transaction: EXEC returns the collected requests, and `dispatch` runs them one after the other.
//! No other client's command runs in between, because this process serves one client at a time, and `pg::resp::gate`
//! excludes the other network processes. But SQL sessions may change entries of memory caches between two of the
//! requests.
//!
//! A watched key counts as changed if any session has written, removed, cleared or evicted it, or if it has expired.
//! With a probability of about 1 in 16,384, a change of another key counts, too. Such a change aborts the transaction
//! without need, and its client tries again, as after any abort.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use pgcache_resp::{Args, Batch, Command, Entry, Failure, Writer, rule, write_verbatim_error};
use pgrx::pg_sys::Oid;

use super::entry_access::Call;
use super::subscriptions::Subscriptions;
use super::watched_rows::WatchedRows;
use crate::cache::catalog::registry::Cache;
use crate::cache::memory::raw::{Entries, Sight, Watching};
use crate::cache::model::key;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock::Timestamp;
use crate::pg::shmem::cache_id::CacheId;
use crate::resp::commands::command_error::{CommandError, Done};

/// The number of keys that one connection may watch.
const MOST_WATCHED: usize = 4096;

/// The state of a connection. It is usually empty, and takes only eight bytes while it is.
#[derive(Default)]
pub struct State(Option<Box<Kept>>);

#[derive(Default)]
struct Kept {
    /// The requests that wait for EXEC.
    collected: Option<Collected>,
    /// Whether a command of the transaction was refused, so that EXEC fails.
    refused: bool,
    watched: HashMap<WatchedKey, Watched>,
    /// The watched keys of a table.
    rows: WatchedRows,
    /// Makes writers count changes, as long as keys are watched.
    watching: Option<Watching>,
    subscriptions: Option<Subscriptions>,
    /// Messages that the client has published to itself. They are sent after its reply.
    own_messages: Vec<u8>,
}

#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    requests: usize,
    /// Whether one of the requests may write, so that CLIENT PAUSE WRITE holds EXEC back.
    writes: bool,
    /// Whether one of the requests may name another database.
    names_database: bool,
}

/// A cache and a key in it.
type WatchedKey = (CacheId, Vec<u8>);

/// A key as it was when the connection began to watch it.
struct Watched {
    cache: Rc<Cache>,
    /// The entry under the key at that time; None if the cache had no slot in the tier, and so no entries.
    sight: Option<Sight>,
}

/// Whether to run a request, as decided before its arguments are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The caller must run the request.
    Run,
    /// The request was collected or refused, and its reply is written.
    Answered,
}

impl State {
    /// Returns whether the connection is in a transaction, which MULTI begins and EXEC or DISCARD ends.
    pub fn in_transaction(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| kept.collected.is_some())
    }

    /// Decides whether to run a request of a client that may send commands. In a transaction, collects the request
    /// instead; all collected requests may take at most `limit` bytes.
    pub fn admit(&mut self, args: Args<'_>, limit: usize, out: &mut Writer) -> Admitted {
        let entry = match Command::check(args) {
            Ok(entry) => entry,
            Err(failure) => {
                self.refuse();
                if matches!(failure, Failure::ExecRefused) {
                    self.end();
                }
                failure.write(out);
                return Admitted::Answered;
            }
        };
        if !self.in_transaction() || entry.has(rule::UNQUEUED) {
            return Admitted::Run;
        }
        // The command cannot be queued, because EXEC cannot wait for the executor that checks the role.
        if Command::names_role(entry, args) {
            self.refuse();
            Failure::NotInMulti.write(out);
            return Admitted::Answered;
        }
        self.collect(args, entry, limit, out);
        Admitted::Answered
    }

    /// Records that a command was refused, so that the EXEC of the connection's transaction, if any, fails.
    pub fn refuse(&mut self) {
        if let Some(kept) = self.0.as_mut().filter(|kept| kept.collected.is_some()) {
            kept.refused = true;
        }
    }

    /// Returns whether a command of the transaction may write.
    pub fn collects_writes(&self) -> bool {
        let collected = self.0.as_ref().and_then(|kept| kept.collected.as_ref());
        collected.is_some_and(|collected| collected.writes)
    }

    /// Returns the databases that commands of the transaction name, of a server that has this many.
    pub fn named_databases(&self, databases: usize) -> BTreeSet<u32> {
        let mut named = BTreeSet::new();
        let collected = self.0.as_ref().and_then(|kept| kept.collected.as_ref());
        let Some(collected) = collected.filter(|collected| collected.names_database) else {
            return named;
        };
        let mut cuts = Batch::default();
        cuts.append(&collected.bytes, 0);
        for args in cuts.all(&collected.bytes) {
            match Command::read(args) {
                Ok(Command::Select { database }) => named.extend(u32::try_from(database)),
                Ok(Command::Copy { options, .. }) => {
                    let read = options.read(databases);
                    named.extend(read.ok().and_then(|(to, _)| to).map(|to| to as u32));
                }
                _ => {}
            }
        }
        named.retain(|database| (*database as usize) < databases);
        named
    }

    fn collect(&mut self, args: Args<'_>, entry: &Entry, limit: usize, out: &mut Writer) {
        let collected = self.0.as_mut().and_then(|kept| kept.collected.as_mut());
        let added = collected.map(|collected| {
            collected.writes |= entry.may_write();
            collected.names_database |= entry.has(rule::NAMES_DATABASE);
            collected.add(args, limit)
        });
        match added {
            Some(Err(error)) => {
                error.write(out);
                self.refuse();
            }
            _ => out.simple("QUEUED"),
        }
    }

    /// Runs MULTI.
    pub(super) fn begin<'a>(&mut self, out: &mut Writer) -> Done<'a> {
        if self.in_transaction() {
            return Err(Failure::NestedMulti.into());
        }
        self.kept().collected = Some(Collected::default());
        out.simple("OK");
        Ok(())
    }

    fn kept(&mut self) -> &mut Kept {
        self.0.get_or_insert_default()
    }

    /// Runs DISCARD.
    pub(super) fn discard<'a>(&mut self, out: &mut Writer) -> Done<'a> {
        if !self.in_transaction() {
            return Err(Failure::DiscardWithoutMulti.into());
        }
        self.end();
        out.simple("OK");
        Ok(())
    }

    /// Runs EXEC. Returns the collected requests, whose replies must follow; None if EXEC is already answered.
    pub fn exec(&mut self, clock: Timestamp, out: &mut Writer) -> Option<Queue> {
        let kept = self.0.as_mut().filter(|kept| kept.collected.is_some());
        let Some(kept) = kept else {
            Failure::ExecWithoutMulti.write(out);
            return None;
        };
        let refused = kept.refused;
        let elsewhere = !kept.rows.is_empty();
        let changed = kept
            .watched
            .iter()
            .any(|((_, key), watched)| watched.has_changed(key, clock));
        let collected = kept.collected.take();
        self.end();
        if refused {
            Failure::ExecAbort.write(out);
            return None;
        }
        if elsewhere {
            write_verbatim_error(
                "EXECABORT",
                "Transaction discarded because the watched keys belong to another cache, which is a table",
                out,
            );
            return None;
        }
        if changed {
            out.null_array();
            return None;
        }
        let collected = collected?;
        out.array(collected.requests);
        let mut cuts = Batch::default();
        cuts.append(&collected.bytes, 0);
        Some(Queue {
            cuts,
            bytes: collected.bytes,
        })
    }

    /// Runs WATCH.
    pub(super) fn watch<'a>(&mut self, call: &Call, keys: Args<'a>, out: &mut Writer) -> Done<'a> {
        if self.in_transaction() {
            return Err(Failure::WatchInsideMulti.into());
        }
        let entries = call.to_read(Privileges::READ)?;
        let kept = self.kept();
        if kept.watched.len() + keys.len() > MOST_WATCHED
            || kept.watched.try_reserve(keys.len()).is_err()
        {
            return Err(CommandError::TooManyWatched);
        }
        if kept.watching.is_none() {
            kept.watching = Watching::begin(); // must precede the first read of a key
        }
        // A longer key can have no entry, so it need not be watched.
        let keys = keys.iter().filter(|key| key.len() <= key::MAX_BYTES);
        for key in keys {
            let sight = entries.map(|entries| entries.sight(&entries.key(key)));
            // A key that is already watched keeps the state of its first WATCH.
            let name = (call.target.cache.id, key.to_vec());
            kept.watched.entry(name).or_insert_with(|| Watched {
                cache: Rc::clone(&call.target.cache),
                sight,
            });
        }
        out.simple("OK");
        Ok(())
    }

    /// Takes an executor's reply to a WATCH on a table: stores the fingerprint of each key, or passes the error to the
    /// client.
    pub fn watch_rows(&mut self, mut rows: WatchedRows, numbers: &[u8], out: &mut Writer) {
        if !rows.learn(numbers) {
            return out.append(numbers);
        }
        let kept = self.kept();
        if kept.rows.len() + rows.len() > MOST_WATCHED {
            return CommandError::TooManyWatched.write(out);
        }
        match kept.rows.add(rows) {
            true => out.simple("OK"),
            false => write_verbatim_error(
                "ERR",
                "a connection can watch keys of only one table cache at a time",
                out,
            ),
        }
    }

    /// Removes and returns the watched keys of this table. Keys of another table stay, and make EXEC fail.
    pub fn take_watched_rows(&mut self, relation: Oid) -> WatchedRows {
        match &mut self.0 {
            Some(kept) if kept.rows.is_of(relation) => std::mem::take(&mut kept.rows),
            _ => WatchedRows::default(),
        }
    }

    /// Runs UNWATCH.
    pub(super) fn unwatch(&mut self, out: &mut Writer) {
        if let Some(kept) = &mut self.0 {
            kept.watched = HashMap::new();
            kept.rows = WatchedRows::default();
            kept.watching = None;
        }
        out.simple("OK");
    }

    /// Ends the transaction and all watches.
    fn end(&mut self) {
        let subscriptions = self.0.take().and_then(|kept| kept.subscriptions);
        if subscriptions.is_some() {
            self.kept().subscriptions = subscriptions;
        }
    }

    /// Keeps messages of a client to itself until its reply is written. Returns false if they exceed `room`.
    pub(super) fn keep_own_messages(&mut self, messages: &[u8], room: usize) -> bool {
        if messages.is_empty() {
            return true;
        }
        let own = &mut self.kept().own_messages;
        let fits = own.len() + messages.len() <= room && own.try_reserve(messages.len()).is_ok();
        if fits {
            own.extend_from_slice(messages);
        }
        fits
    }

    /// Writes the messages that the client has published to itself.
    #[inline]
    pub fn write_own_messages(&mut self, out: &mut Writer) {
        if let Some(kept) = &mut self.0
            && !kept.own_messages.is_empty()
        {
            out.append(&std::mem::take(&mut kept.own_messages));
        }
    }

    /// Returns whether the connection has subscriptions.
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions().is_some()
    }

    pub(super) fn subscriptions(&self) -> Option<&Subscriptions> {
        self.0.as_ref()?.subscriptions.as_ref()
    }

    pub(super) fn subscriptions_mut(&mut self) -> &mut Option<Subscriptions> {
        &mut self.kept().subscriptions
    }

    /// Returns the numbers of subscribed channels, subscribed patterns and watched keys.
    pub fn counts(&self) -> (usize, usize, usize) {
        self.0.as_ref().map_or((0, 0, 0), |kept| {
            let subscriptions = kept.subscriptions.as_ref();
            let (channels, patterns) = subscriptions.map_or((0, 0), Subscriptions::counts);
            (channels, patterns, kept.watched.len() + kept.rows.len())
        })
    }

    /// Returns the bytes of memory that the state holds besides the struct itself.
    pub fn held(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| {
            let collected = kept.collected.as_ref();
            let subscriptions = kept.subscriptions.as_ref();
            size_of::<Kept>()
                + subscriptions.map_or(0, Subscriptions::held)
                + collected.map_or(0, |collected| collected.bytes.capacity())
                + kept.watched.capacity() * size_of::<(WatchedKey, Watched)>()
        })
    }
}

impl Watched {
    fn has_changed(&self, key: &[u8], clock: Timestamp) -> bool {
        let now = Entries::of(&self.cache, clock);
        let sight = now.map(|entries| entries.sight(&entries.key(key)));
        match (self.sight, sight) {
            // The cache had no slot at WATCH and has a slot now, so any entry is new.
            (None, Some(sight)) => sight.is_present(),
            (Some(before), Some(now)) => before.differs(&now),
            (before, now) => before.is_some() != now.is_some(),
        }
    }
}

impl Collected {
    /// Collects a request, in the form in which clients send it.
    fn add<'a>(&mut self, args: Args<'_>, limit: usize) -> Done<'a> {
        let size: usize = 24
            + args
                .iter()
                .map(|argument| argument.len() + 24)
                .sum::<usize>();
        if self.bytes.len().saturating_add(size) > limit {
            return Err(CommandError::TooMuchKept);
        }
        self.bytes
            .try_reserve(size)
            .map_err(|_| CommandError::OutOfMemory)?;
        args.encode(&mut self.bytes);
        self.requests += 1;
        Ok(())
    }
}

/// The requests of a transaction that EXEC runs.
pub struct Queue {
    cuts: Batch,
    bytes: Vec<u8>,
}

impl Queue {
    /// Returns all requests, in the form in which clients send them.
    pub fn into_requests(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the arguments of each request. Each was checked when it was collected.
    pub fn iter(&self) -> impl Iterator<Item = Args<'_>> {
        self.cuts.all(&self.bytes)
    }
}
