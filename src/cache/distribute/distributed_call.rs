//! [`Request`]: a call on a distributed cache, with its function's kind, the node that it is addressed to, and whether
//! another node has sent it. Runs the calls that other nodes of Citus have sent, on the shards of this node
//! ([`answer`]).

use std::cell::Cell;
use std::ffi::CString;
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use super::calls::{self, Arguments};
use super::two_phases;
use crate::cache::catalog::shard_metadata::{self, Shard, Spread};
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::catalog::{distributed, relation};
use crate::pg::session::temporary_settings::Held;
use crate::pg::session::{shard_lock, subtransaction};
use crate::pg::value::call::{Call, TextRow, Way};
use crate::pg::value::datum::Text;

/// The maximum number of attempts of a call that finds its shard being moved.
pub const ATTEMPTS: usize = 50;
/// Milliseconds between two attempts.
pub const PAUSE: i64 = 20;

/// A function that is routed: its name in SQL, and the positions of its arguments.
pub struct Route {
    pub function: &'static str,
    pub cache: usize,
    pub kind: Kind,
    /// The privileges on the cache that the caller needs.
    pub needs: Privileges,
}

impl Route {
    /// Returns whether the function changes no entry.
    pub fn only_reads(&self) -> bool {
        match self.kind {
            Kind::Write { .. } | Kind::Fetch { .. } | Kind::WriteMany { .. } | Kind::Clear => false,
            Kind::Sum { writes, .. } => !writes,
            Kind::Read { .. }
            | Kind::Lease { .. }
            | Kind::ReadMany { .. }
            | Kind::Page { .. }
            | Kind::Rows => true,
        }
    }
}

/// The kind of a function. The fields are positions of arguments, except `writes`.
pub enum Kind {
    /// Reads one entry.
    Read { key: usize },
    /// Writes one entry.
    Write { key: usize },
    /// Returns one entry, or computes it on the caller's node and stores it.
    Fetch { key: usize },
    /// Returns the lease of one entry, which outlives the transaction. The argument `wait` limits the wait for another
    /// holder's lease.
    Lease { key: usize, wait: usize },
    /// Reads several entries, and returns a row for each key, in the order of the keys.
    ReadMany { keys: usize },
    /// Writes several entries, with values if given, and returns their number.
    WriteMany { keys: usize, values: Option<usize> },
    /// Works on all entries and returns a count. `most` limits the count. `writes` is true if the function changes
    /// entries.
    Sum { most: Option<usize>, writes: bool },
    /// Returns a page of all entries in key order; the key is the first column.
    Page { most: usize },
    /// Returns all rows, in any order.
    Rows,
    /// Removes all entries, with a Citus statement.
    Clear,
}

/// A call that another node has sent.
#[derive(Clone, Copy)]
pub struct SentCall {
    /// The node that the call was sent to.
    pub node: i64,
    pub function: &'static str,
    pub cache: Oid,
    /// The hash of the key that routed the call. It identifies the target shard, even for a call on all entries.
    pub hash: i64,
    /// The checksum of the node's shards, if the call is for all of them.
    pub all: Option<i64>,
}

/// The node that a call is sent to, and whether the call is for one of the node's shards or for all of them.
#[derive(Clone, Copy)]
pub struct Addressee(i64);

impl Addressee {
    /// The bits of the node's group id. The checksum is stored in the bits above it.
    const NODE: i64 = 0xffff_ffff;

    /// Addresses the shard of a node that contains the key of the call.
    pub fn of_key(node: i64) -> Addressee {
        Addressee(node)
    }

    /// Addresses all shards of a node. The node answers only if its shards have the same checksum, because a move is
    /// not committed on all nodes at once.
    pub fn all_of(spread: &Spread, node: i64) -> Addressee {
        Addressee(node | spread.sum_of_shards(node) << 32)
    }

    /// Returns the address as the number that a call carries.
    pub fn number(self) -> i64 {
        self.0
    }

    /// Splits the number that a call carries into the node and the checksum. The checksum is None if the call is for a
    /// single shard.
    pub fn parts(number: i64) -> (i64, Option<i64>) {
        let sum = number >> 32;
        (number & Addressee::NODE, (sum != 0).then_some(sum))
    }
}

thread_local! {
    /// Set if another node has sent the next call. If the key of the call is not on this node, the call is not sent on.
    /// Calls of other functions or on other caches, for example from a trigger, do not match.
    static SENT: Cell<Option<SentCall>> = const { Cell::new(None) };
    /// Set if the key of the sent call is not on this node.
    static MISSED: Cell<bool> = const { Cell::new(false) };
}

/// Announces that another node has sent the next call. Dropping the value withdraws the announcement.
pub struct Sent(());

impl Sent {
    pub fn begin(call: SentCall) -> Sent {
        SENT.set(Some(call));
        MISSED.set(false);
        Sent(())
    }

    /// Returns whether the key of the call is not on this node.
    pub fn has_missed(&self) -> bool {
        MISSED.get()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        SENT.set(None);
        MISSED.set(false);
    }
}

/// Takes the announcement if it is for this function and this cache; otherwise returns None.
pub fn take_sent(cache: Oid, function: &str) -> Option<SentCall> {
    let sent = SENT.get();
    let sent = sent.filter(|sent| sent.cache == cache && sent.function == function)?;
    SENT.set(None);
    Some(sent)
}

/// Runs a call with the caller's own privileges on the function and on the cache, and returns its rows. Returns None
/// if the key of the call is not on this node, or if the call was addressed to another node. Accepts only calls on
/// distributed caches: a role that may call a function may also call `pgcache.at_key`, and the call then does no more
/// than the function itself.
pub fn answer(
    key: Text,
    node: i64,
    route: &'static Route,
    arguments: &Arguments,
) -> Result<Option<Vec<TextRow>>, Error> {
    let name = arguments.get(route.cache).copied().flatten();
    let cache = calls::relation(name.ok_or(Error::NotSent)?).ok_or(Error::NotSent)?;
    shard_metadata::of(cache).ok_or(Error::DefinitionChanged)?;
    let (node, all) = Addressee::parts(node);
    let sent = Sent::begin(SentCall {
        node,
        all,
        function: route.function,
        cache,
        hash: shard_metadata::hash_of(key),
    });
    let named = CString::new(cache.to_u32().to_string()).unwrap_or_default();
    let rows = calls::here(route.function, &calls::on(arguments, route.cache, &named));
    let rows = rows.map_err(|error| match error {
        Error::DroppedExtension => Error::NotSent, // the extension has no function with this many arguments
        other => other,
    })?;
    Ok((!sent.has_missed()).then_some(rows))
}

/// A call on a distributed cache.
pub struct Request<'r> {
    pub call: Call,
    pub route: &'r Route,
    pub cache: Oid,
    /// Set if another node has sent the call.
    pub sent: Option<SentCall>,
}

impl Request<'_> {
    /// Returns the current shards of the cache, as Citus reports them.
    pub fn present(&self, spread: Rc<Spread>) -> Result<Rc<Spread>, Error> {
        shard_lock::receive();
        match spread.is_stale() {
            false => Ok(spread),
            true => {
                shard_metadata::of(self.cache).ok_or_else(|| match relation::spelled(self.cache) {
                    Some(_) => Error::DefinitionChanged,
                    None => Error::NoSuchRelation(self.cache.to_u32()),
                })
            }
        }
    }

    /// Sends the call to the node of a key and returns its rows. Returns None if that node does not have the key or
    /// cannot be reached.
    pub fn send(
        &self,
        spread: &Spread,
        to: Addressee,
        key: Text,
        arguments: &Arguments,
    ) -> Option<Vec<TextRow>> {
        let arguments = calls::elsewhere(arguments, self.route.cache, spread);
        // Outside a transaction block the call costs one message to the other node; in a block it costs three. But
        // without the block the call does not see the transaction's own writes on the other node.
        let alone = self.route.only_reads() && !two_phases::has_written_elsewhere();
        let block = if alone { c"off" } else { c"on" };
        let _block = Held::set(c"citus.function_opens_transaction_block", block);
        let send = || {
            calls::node_of_key(
                to.number(),
                key,
                self.route.function,
                &arguments,
                self.call.columns(),
            )
        };
        if self.route.only_reads() || !distributed::commits_at_once() {
            return send();
        }
        // Citus treats a call as a write if it sees a transaction block, and a subtransaction counts as one.
        subtransaction::attempt(send).unwrap_or_else(|failure| failure.raise())
    }

    /// Returns whether one call may read all shards of a node. The call must only read, and no transaction over nodes
    /// may be open or begin with the call: in such a transaction another connection could have written one of the
    /// shards, or could wait for it.
    pub fn reads_whole_nodes(&self, spread: &Spread) -> bool {
        self.route.only_reads()
            && self.sent.is_none()
            && !distributed::is_in_block()
            && !two_phases::has_written_elsewhere()
            && !distributed::coordinates(spread.here)
    }

    /// Returns the arguments as texts, without the cache.
    pub fn printed(&self) -> Arguments {
        (0..self.call.len())
            .map(|place| match place == self.route.cache {
                true => None,
                false => self.call.printed(place),
            })
            .collect()
    }

    /// Tells the sending node that the key of the call is not on this node.
    pub fn missed(&self) -> Way {
        MISSED.set(true);
        Way::Answered(self.call.give(&[vec![None; self.call.columns()]]))
    }

    /// Returns the error for a call that no node answers.
    pub fn no_node(&self) -> Error {
        match relation::spelled(self.cache) {
            Some(_) => Error::NoNode(relation::display_name(self.cache)),
            None => Error::NoSuchRelation(self.cache.to_u32()),
        }
    }
}

impl Spread {
    /// Returns a shard for a call without a key: a shard of this node, if the node has one.
    pub fn any(&self) -> Shard {
        let here = self.shards.iter().find(|shard| self.is_here(shard));
        *here.unwrap_or(&self.shards[0])
    }

    /// Returns the table of a shard of this node; None for a shard of another node.
    pub fn table(&self, shard: &Shard) -> Result<Option<Oid>, Error> {
        match (self.is_here(shard), shard.table) {
            (false, _) => Ok(None),
            (true, Some(table)) => Ok(Some(table)),
            (true, None) => Err(Error::NoNode(self.name.to_string_lossy().into_owned())),
        }
    }
}
