//! Collects the messages that a transaction publishes to channels of the Redis protocol, and sends them after its
//! commit.
//!
//! No rolled-back message is sent, and the messages of a transaction keep their order. The messages of different
//! transactions have the order in which they reach the ring: if a transaction begins after the COMMIT of another has
//! returned, its messages come later.

use crate::cache::model::savepoints::{Join, Savepoints};
use crate::error::Error;
use crate::pg::events;
use crate::pg::memory;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::messages::{self, Messages};
use crate::pg::session;
use crate::pg::session::transaction_local::TransactionLocal;

/// The longest name of a channel in bytes: no client can subscribe to a longer name.
pub const LONGEST_CHANNEL: usize = 2048;

/// Messages, and the number of bytes that they take in the ring.
#[derive(Default)]
struct Published {
    messages: Vec<(Vec<u8>, Vec<u8>)>,
    cost: usize,
}

impl Join for Published {
    fn join(&mut self, later: Published) {
        self.messages.join(later.messages);
        self.cost += later.cost;
    }
}

thread_local! {
    static PUBLISHED: TransactionLocal<Savepoints<Published>> = TransactionLocal::default();
}

/// Notes a message. Drops it if the server does not speak the Redis protocol for this database, because no client
/// could receive it. Raises an error if the name of the channel is too long, or if the messages of the transaction
/// exceed `messages::MOST` bytes.
pub fn publish(channel: &[u8], text: &[u8]) -> Result<(), Error> {
    let database = ClientRegistry::of_server().map(|registry| registry.database());
    if database != Some(session::database()) {
        return Ok(());
    }
    if channel.len() > LONGEST_CHANNEL {
        return Err(Error::LongChannel(channel.len()));
    }
    let cost = messages::cost(channel, text);
    let noted: usize = PUBLISHED.with(|all| all.look(|all| all.iter().map(|one| one.cost).sum()));
    if noted.saturating_add(cost) > messages::MOST {
        return Err(Error::TooMuchPublished(messages::MOST));
    }
    let copy = |bytes: &[u8]| {
        let mut copy = memory::list(bytes.len());
        copy.extend_from_slice(bytes);
        copy
    };
    let message = (copy(channel), copy(text));
    with(|all| {
        let own = all.at(events::nesting_level());
        memory::push(&mut own.messages, message);
        own.cost += cost;
    });
    Ok(())
}

fn with<R>(change: impl FnOnce(&mut Savepoints<Published>) -> R) -> R {
    PUBLISHED.with(|published| published.change(change))
}

/// Raises an error for PREPARE TRANSACTION if the transaction has messages, because the session that later commits the
/// transaction does not have its messages.
pub fn refuse_to_prepare() -> Result<(), Error> {
    let is_empty = PUBLISHED.with(|all| all.look(Savepoints::is_empty));
    match is_empty {
        true => Ok(()),
        false => Err(Error::PreparedMessages),
    }
}

/// Sends all messages after the commit. Allocates nothing.
pub fn send() {
    PUBLISHED.with(|all| {
        all.look(|all| {
            if let Some(ring) = Messages::of_server().filter(|_| !all.is_empty()) {
                let messages = all.iter().flat_map(|part| &part.messages);
                ring.send(messages.map(|(channel, text)| (&channel[..], &text[..])));
            }
        });
    });
    forget();
}

/// Drops all messages at the end of the transaction.
pub fn forget() {
    with(|all| *all = Savepoints::default());
}

/// Merges the messages of a released savepoint into its parent.
pub fn release_savepoint(level: i32) {
    with(|all| all.release(level));
}

/// Drops the messages of a savepoint that was rolled back.
pub fn roll_back_savepoint(level: i32) {
    drop(with(|all| all.roll_back(level)));
}
