//! The steps of the network process and its client, and of the executor that reads for it.

use super::model::{
    Clause, Invalidation, KEYS, LINE, Message, Model, Moves, RING, Request, Serving, State,
};

/// The maximum number of messages that one step of the network process sends.
const MOST: usize = 2 * KEYS + 2;

impl Moves<'_> {
    pub fn front(&mut self) {
        self.client();
        if self.from.room() < MOST {
            return; // the client reads first
        }
        let m = self.m;
        if self.from.head != self.from.tail {
            self.goes("reads the ring", |state| m.drain(state));
        }
        match self.from.serving {
            Serving::Nothing => {}
            Serving::Noting(key) => self.goes("notes the read", |state| m.note(state, key)),
            Serving::Looking(key) => {
                self.goes("looks for a copy", |state| match state.copies[key] {
                    Some(copy) => state.serving = Serving::Answered(key, copy),
                    None => state.serving = Serving::Handed(key, state.token()),
                })
            }
            Serving::Handed(key, token) => self.goes("has the back read", |state| {
                state.serving = Serving::Waiting(key, state.rows[key], token);
            }),
            Serving::Waiting(..) if m.keeps(Clause::BackWaits) && self.from.unrecorded > 0 => {}
            Serving::Waiting(key, value, token) => self.goes("is answered by the back", |state| {
                state.fill(key, value, token);
                state.serving = Serving::Answered(key, value);
            }),
            Serving::Answered(key, value) => {
                self.goes("reads the ring before the reply", |state| {
                    state.registered = true;
                    state.noted[key] |= !m.keeps(Clause::NotedBeforeRead);
                    if m.keeps(Clause::DrainedBeforeReply) {
                        m.drain(state);
                    }
                    state.serving = Serving::Drained(key, value);
                })
            }
            Serving::Drained(key, value) => {
                self.goes("replies", |state| m.reply(state, key, value));
            }
            Serving::Pinged(acknowledged) => self.goes("reads the ring and replies", |state| {
                m.drain(state);
                state.say(Message::Pong(acknowledged));
                state.serving = Serving::Nothing;
            }),
        }
    }

    fn client(&mut self) {
        let m = self.m;
        if let Some(message) = self.from.line[0] {
            self.goes("is read by the client", |state| {
                state.line.rotate_left(1);
                state.line[LINE - 1] = None;
                m.receive(state, message);
            });
        }
        let next = m.script.get(self.from.sent as usize);
        if let (Some(&request), Serving::Nothing) = (next, self.from.serving) {
            self.goes("is sent something", |state| {
                state.sent += 1;
                state.serving = match request {
                    Request::Read(key) => Serving::Noting(key),
                    Request::Ping => Serving::Pinged(state.acknowledged),
                };
            });
        }
    }
}

impl Model {
    fn note(&self, state: &mut State, key: usize) {
        state.registered |= self.keeps(Clause::RegistersBeforeRead);
        state.noted[key] |= self.keeps(Clause::NotedBeforeRead);
        state.owed = state.unproven && self.keeps(Clause::UnprovenOwes);
        state.serving = Serving::Looking(key);
    }

    fn drain(&self, state: &mut State) {
        if (state.head - state.tail) as usize > RING {
            state.tail = state.head;
            if self.keeps(Clause::LostInvalidatesAll) {
                pass_on(state, Invalidation::All);
            }
        }
        while state.tail != state.head {
            let invalidation = state.ring[state.tail as usize % RING];
            state.tail += 1;
            pass_on(state, invalidation);
        }
    }

    fn reply(&self, state: &mut State, key: usize, value: u8) {
        state.say(Message::Value(key, value));
        let passed = std::mem::take(&mut state.passed);
        if std::mem::take(&mut state.owed) {
            state.say(Message::Changed(Invalidation::All));
        }
        for (key, passed) in passed.into_iter().enumerate() {
            if passed && self.keeps(Clause::SentAgain) {
                state.say(Message::Changed(Invalidation::Key(key)));
            }
        }
        state.serving = Serving::Nothing;
    }
}

/// Sends the client an invalidation for each changed key that it has read.
fn pass_on(state: &mut State, invalidation: Invalidation) {
    let fits =
        |key: usize| invalidation == Invalidation::All || invalidation == Invalidation::Key(key);
    let is_read = matches!(
        state.serving,
        Serving::Looking(_)
            | Serving::Handed(..)
            | Serving::Waiting(..)
            | Serving::Answered(..)
            | Serving::Drained(..)
    );
    for key in 0..KEYS {
        if fits(key) && std::mem::take(&mut state.noted[key]) {
            state.say(Message::Changed(Invalidation::Key(key)));
            state.passed[key] |= is_read;
        }
    }
}
