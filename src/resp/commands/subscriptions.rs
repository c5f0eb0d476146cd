//! The subscribers of each channel and pattern among this process's clients.
//!
//! No list may name a closed connection, so a connection is removed from all lists when its [`Subscriptions`] are
//! dropped.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;

use crate::resp::commands::remote_subscribers::{self, Sort};

/// The clients of each channel, or of each pattern. The map is ordered, so that a pass over all patterns can stop and
/// continue later.
pub type Readers = BTreeMap<Box<[u8]>, Vec<u64>>;

/// The clients of this process that have subscribed to each channel and each pattern.
#[derive(Default)]
pub struct Table {
    pub channels: Readers,
    pub patterns: Readers,
}

thread_local! {
    /// Never dropped, because connections may end after thread-local values are dropped.
    static TABLE: ManuallyDrop<RefCell<Table>> = ManuallyDrop::default();
}

/// Reads or changes the lists.
pub fn with<R>(act: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.with(|table| act(&mut table.borrow_mut()))
}

fn readers_of(sort: Sort, table: &mut Table) -> &mut Readers {
    match sort {
        Sort::Channel => &mut table.channels,
        Sort::Pattern => &mut table.patterns,
    }
}

/// The subscriptions of a connection.
pub struct Subscriptions {
    client: u64,
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    /// The bytes of all names.
    bytes: usize,
}

impl Subscriptions {
    pub fn of(client: u64) -> Subscriptions {
        Subscriptions {
            client,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Returns the bytes of the names.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of memory that the names take, which are stored both here and in the table.
    pub fn held(&self) -> usize {
        2 * (self.bytes + self.count() * size_of::<Box<[u8]>>())
    }

    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns the numbers of channels and of patterns.
    pub fn counts(&self) -> (usize, usize) {
        (self.channels.len(), self.patterns.len())
    }

    pub fn names(&mut self, sort: Sort) -> &mut BTreeSet<Box<[u8]>> {
        match sort {
            Sort::Channel => &mut self.channels,
            Sort::Pattern => &mut self.patterns,
        }
    }

    pub fn add(&mut self, sort: Sort, name: &[u8]) {
        if !self.names(sort).insert(name.into()) {
            return;
        }
        self.bytes += name.len();
        let client = self.client;
        with(|table| {
            let readers = readers_of(sort, table);
            readers.entry(name.into()).or_default().push(client);
            publish_count(sort, name, readers);
        });
    }

    /// Removes a name, and returns whether the connection had subscribed to it.
    pub fn remove(&mut self, sort: Sort, name: &[u8]) -> bool {
        let was_there = self.names(sort).remove(name);
        if was_there {
            self.forget(sort, name);
        }
        was_there
    }

    /// Removes the connection from the clients of a name in the table. The caller has removed the name from the
    /// connection's set.
    pub fn forget(&mut self, sort: Sort, name: &[u8]) {
        self.bytes = self.bytes.saturating_sub(name.len());
        with(|table| {
            let readers = readers_of(sort, table);
            if let Some(clients) = readers.get_mut(name) {
                clients.retain(|client| *client != self.client);
                if clients.is_empty() {
                    readers.remove(name);
                }
            }
            publish_count(sort, name, readers);
        });
    }
}

/// Publishes to the other network processes how many clients have subscribed to a name.
fn publish_count(sort: Sort, name: &[u8], readers: &Readers) {
    let count = readers.get(name).map_or(0, Vec::len);
    let all = || {
        readers
            .iter()
            .map(|(name, clients)| (&**name, clients.len()))
    };
    remote_subscribers::note(sort, name, count, all);
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for sort in [Sort::Channel, Sort::Pattern] {
            for name in std::mem::take(self.names(sort)) {
                self.forget(sort, &name);
            }
        }
    }
}
