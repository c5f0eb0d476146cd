//! Delivers the messages of `pgcache.publish`, and of clients of other network processes, to the subscribers of this
//! network process.
//!
//! No subscriber may miss a message unnoticed. So if the ring was overwritten before it was read, all subscribers are
//! disconnected.

use crate::pg::resp::messages::{Found, Message, Reader};
use crate::resp::commands::channels::{self};
use crate::resp::shared::Core;

/// The maximum number of messages that are delivered in one round of the event loop.
const PUBLISHED: usize = 1024;
/// The number of bytes that may be compared in one round to match channels with patterns. This takes about a
/// millisecond, and is more than a single comparison needs.
const PUBLISHED_LOOKS: usize = channels::LOOKS / 8;

impl Core {
    /// Delivers the published messages. If messages were lost, disconnects all subscribers, so that they notice the
    /// loss; a subscriber that reads too slowly is disconnected for the same reason.
    pub fn take_published(&mut self) {
        let Some(mut published) = self.published.take() else {
            return;
        };
        if published.has_more() || self.partly_published.is_some() {
            self.hand_out(&mut published);
        }
        self.published = Some(published);
    }

    pub(super) fn hand_out(&mut self, published: &mut Reader) {
        if !channels::has_readers() {
            self.partly_published = None;
            return published.pass();
        }
        let mut looks = PUBLISHED_LOOKS;
        if let Some((message, after)) = self.partly_published.take() {
            self.hand_out_one(message, Some(&after), &mut looks);
        }
        for _ in 0..PUBLISHED {
            if self.partly_published.is_some() {
                return;
            }
            match published.next() {
                None => return,
                Some(Found::Message(message)) => {
                    self.counters.messages += 1;
                    self.hand_out_one(message, None, &mut looks);
                }
                Some(Found::Lost) => {
                    self.counters.overflows += 1;
                    for id in channels::readers() {
                        self.cut_off(id);
                    }
                }
            }
        }
    }

    /// Delivers one message to all subscribers or, if `after` is given, to subscribers of the patterns after it. If
    /// this takes too long, the rest follows in the next round.
    fn hand_out_one(&mut self, message: Message, after: Option<&[u8]>, looks: &mut usize) {
        let (channel, text) = (&message.channel, &message.text);
        let rest = channels::publish_from_outside(channel, text, after, looks, self);
        self.partly_published = rest.map(|after| (message, after));
    }

    /// Returns whether published messages wait.
    pub fn has_published(&self) -> bool {
        self.partly_published.is_some() || self.published.as_ref().is_some_and(Reader::is_ready)
    }

    pub(super) fn cut_off(&mut self, id: u64) {
        if let Some(place) = self.clients.place_of(id) {
            if let Some(client) = self.clients.get_mut(place) {
                client.killed = true;
            }
            self.counters.cut_off += 1;
            self.enqueue(place);
        }
    }
}
