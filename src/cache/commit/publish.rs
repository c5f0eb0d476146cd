//! Messages to the channels of the Redis protocol: what a transaction has published, sent when it has
//! committed.
//!
//! Guards that nothing is sent of what was rolled back, and that a transaction's messages stay in
//! their order. The order between transactions is that in which they reach the ring; one that begins
//! after another's commit has returned comes behind it.

use crate::cache::model::savepoints::{Join, Savepoints};
use crate::error::Error;
use crate::pg::events;
use crate::pg::memory;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::messages::{self, Messages};
use crate::pg::session;
use crate::pg::session::transaction_local::TransactionLocal;

/// Bytes of the name of a channel: no client can subscribe to a longer one.
pub const LONGEST_CHANNEL: usize = 2048;

/// Messages, and the bytes that they take of the ring.
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

/// Notes a message. Where nothing listens, or not to this database, nobody could read it.
pub fn publish(channel: &[u8], text: &[u8]) -> Result<(), Error> {
    let database = ClientRegistry::of_server().map(|registry| registry.database());
    if database != Some(session::database()) {
        return Ok(());
    }
    if channel.len() > LONGEST_CHANNEL {
        return Err(Error::LongChannel(channel.len()));
    }
    let cost = messages::cost(channel.len(), text.len());
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

/// Before PREPARE TRANSACTION: another session would commit it, which knows of no messages.
pub fn refuse_to_prepare() -> Result<(), Error> {
    let is_empty = PUBLISHED.with(|all| all.look(Savepoints::is_empty));
    match is_empty {
        true => Ok(()),
        false => Err(Error::PreparedMessages),
    }
}

/// The transaction has committed: sends everything. Takes no memory.
pub fn send() {
    PUBLISHED.with(|all| {
        all.look(|all| {
            if let Some(ring) = Messages::of_server().filter(|_| !all.is_empty()) {
                ring.send(|| {
                    let messages = all.iter().flat_map(|part| &part.messages);
                    messages.map(|(channel, text)| (&channel[..], &text[..]))
                });
            }
        });
    });
    forget();
}

/// The transaction has ended.
pub fn forget() {
    with(|all| *all = Savepoints::default());
}

/// The savepoint of this level was released.
pub fn release_savepoint(level: i32) {
    with(|all| all.release(level));
}

/// The savepoint of this level was rolled back.
pub fn roll_back_savepoint(level: i32) {
    drop(with(|all| all.roll_back(level)));
}
