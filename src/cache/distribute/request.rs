//! A call on a distributed cache: what it asks for, and of whom.

use std::cell::Cell;
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use super::ask::{self, Arguments};
use super::two_phases;
use crate::cache::catalog::shard_metadata::{self, Shard, Spread};
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::catalog::{distributed, relation};
use crate::pg::session::settings::Held;
use crate::pg::session::{shard_lock, subtransaction};
use crate::pg::value::call::{Call, TextRow, Way};
use crate::pg::value::datum::Text;

/// How often a call is tried that meets shards which move.
pub const ATTEMPTS: usize = 50;
/// Milliseconds between two of them.
pub const PAUSE: i64 = 20;

/// A function with a way: its name in SQL, and where its arguments are.
pub struct Route {
    pub function: &'static str,
    pub cache: usize,
    pub kind: Kind,
    /// What its caller needs on the cache.
    pub needs: Privileges,
}

impl Route {
    /// Whether it changes no entry.
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

/// What a function is asked for.
pub enum Kind {
    /// One entry, which is not changed.
    Read { key: usize },
    /// One entry.
    Write { key: usize },
    /// One entry, which may be stored, and is computed where the caller is.
    Fetch { key: usize },
    /// The lease of one entry, which no transaction ends; waits so long for another's.
    Lease { key: usize, wait: usize },
    /// Several entries: a row for each key, in order.
    ReadMany { keys: usize },
    /// Several entries, and for each a value, if any: how many.
    WriteMany { keys: usize, values: Option<usize> },
    /// All entries: how many.
    Sum { most: Option<usize>, writes: bool },
    /// A page of all entries in the order of their keys, which come first.
    Page { most: usize },
    /// All rows, in any order.
    Rows,
    /// Removes all entries, by a statement of Citus'.
    Clear,
}

/// A call that another node has sent.
#[derive(Clone, Copy)]
pub struct SentCall {
    /// To this node.
    pub node: i64,
    pub function: &'static str,
    pub cache: Oid,
    /// Of the key by which it was sent: its shard is meant, also by a call on all entries.
    pub hash: i64,
    /// All shards of the node are meant, which these are by their sum.
    pub all: Option<i64>,
}

/// To which node a call goes, and whether it is for one shard of it or for all.
#[derive(Clone, Copy)]
pub struct Addressee(i64);

impl Addressee {
    /// The sum stands beside the number of the node, which has 32 bits.
    const NODE: i64 = 0xffff_ffff;

    /// The node, for the shard of the key by which Citus finds it.
    pub fn of_key(node: i64) -> Addressee {
        Addressee(node)
    }

    /// The node, for all of its shards. It answers if it has the same: a move is not committed on all nodes at once.
    pub fn all_of(spread: &Spread, node: i64) -> Addressee {
        Addressee(node | spread.sum_of_shards(node) << 32)
    }

    /// As a call names it.
    pub fn number(self) -> i64 {
        self.0
    }

    /// The node that such a number names, and the sum where all of its shards are meant.
    pub fn parts(number: i64) -> (i64, Option<i64>) {
        let sum = number >> 32;
        (number & Addressee::NODE, (sum != 0).then_some(sum))
    }
}

thread_local! {
    /// The call that comes next was sent by another node: what is not here is not sent on. Calls of others on other
    /// caches, as of a trigger, are not it.
    static SENT: Cell<Option<SentCall>> = const { Cell::new(None) };
    /// The key of the call that was sent is on another node.
    static MISSED: Cell<bool> = const { Cell::new(false) };
}

/// Says what the next call is, and at its end that no call comes.
pub struct Sent(());

impl Sent {
    pub fn begin(call: SentCall) -> Sent {
        SENT.set(Some(call));
        MISSED.set(false);
        Sent(())
    }

    /// Whether the call was for a key that is not here.
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

/// What was sent, if it is this call of this function.
pub fn take_sent(cache: Oid, function: &str) -> Option<SentCall> {
    let sent = SENT.get();
    let sent = sent.filter(|sent| sent.cache == cache && sent.function == function)?;
    SENT.set(None);
    Some(sent)
}

/// A call on a distributed cache.
pub struct Request<'r> {
    pub call: Call,
    pub route: &'r Route,
    pub cache: Oid,
    /// By another node.
    pub sent: Option<SentCall>,
}

impl Request<'_> {
    /// What Citus says now.
    pub fn present(&self, spread: Rc<Spread>) -> Result<Rc<Spread>, Error> {
        shard_lock::hear();
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

    /// Has the node of a key make a call.
    pub fn ask(
        &self,
        spread: &Spread,
        to: Addressee,
        key: Text,
        arguments: &Arguments,
    ) -> Option<Vec<TextRow>> {
        let arguments = ask::elsewhere(arguments, self.route.cache, spread);
        // Alone it is one message to the other node, and else three. What the transaction has written there it must see.
        let alone = self.route.only_reads() && !two_phases::has_written_elsewhere();
        let block = if alone { c"off" } else { c"on" };
        let _block = Held::set(c"citus.function_opens_transaction_block", block);
        let ask = || {
            ask::node_of_key(
                to.number(),
                key,
                self.route.function,
                &arguments,
                self.call.columns(),
            )
        };
        if self.route.only_reads() || !distributed::commits_at_once() {
            return ask();
        }
        // Citus takes a call for a write where it sees a block, as a subtransaction is one.
        subtransaction::attempt(ask).unwrap_or_else(|failure| failure.raise())
    }

    /// Whether one call may ask a node for all of its shards: where it reads, and no transaction over nodes is open or
    /// begins by it, in which another connection could have written one of the shards, or could wait for it.
    pub fn asks_nodes(&self, spread: &Spread) -> bool {
        self.route.only_reads()
            && self.sent.is_none()
            && !distributed::is_in_block()
            && !two_phases::has_written_elsewhere()
            && !distributed::coordinates(spread.here)
    }

    /// The arguments, as texts.
    pub fn printed(&self) -> Arguments {
        (0..self.call.len())
            .map(|place| match place == self.route.cache {
                true => None,
                false => self.call.printed(place),
            })
            .collect()
    }

    /// The answer to a node that has sent what is not here.
    pub fn missed(&self) -> Way {
        MISSED.set(true);
        Way::Answered(self.call.give(&[vec![None; self.call.columns()]]))
    }

    /// The error where no node answers for a key.
    pub fn no_node(&self) -> Error {
        match relation::spelled(self.cache) {
            Some(_) => Error::NoNode(relation::display_name(self.cache)),
            None => Error::NoSuchRelation(self.cache.to_u32()),
        }
    }
}

impl Spread {
    /// A shard for a call without a key: one of this node, where it has any.
    pub fn any(&self) -> Shard {
        let here = self.shards.iter().find(|shard| self.is_here(shard));
        *here.unwrap_or(&self.shards[0])
    }

    /// The table of a shard of this node; None for one of another.
    pub fn table(&self, shard: &Shard) -> Result<Option<Oid>, Error> {
        match (self.is_here(shard), shard.table) {
            (false, _) => Ok(None),
            (true, Some(table)) => Ok(Some(table)),
            (true, None) => Err(Error::NoNode(self.name.to_string_lossy().into_owned())),
        }
    }
}
