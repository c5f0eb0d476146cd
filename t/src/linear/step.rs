//! The model against which servers are checked: the effect of a command on an entry, and the command's answer.

use super::Moment;

/// The content of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    pub value: i64,
    pub deadline: Deadline,
}

/// The deadline of an entry. A far deadline is a number of hours; a near deadline is only known to be between two
/// moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deadline {
    Never,
    Hours(u8),
    Soon(Moment, Moment),
}

/// The deadline that a command requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The deadline of the existing entry.
    Keep,
    Never,
    Hours(u8),
    Millis(u16),
}

/// The condition under which a value is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    Absent,
    Present,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Get,
    /// Returns the deadline.
    Left,
    Set {
        value: i64,
        when: When,
        until: Until,
    },
    /// Sets a value without a deadline, and returns the old value.
    Swap(i64),
    /// Removes the entry, and returns its value.
    Take,
    Delete,
    Add {
        by: i64,
        /// Whether the command creates a missing counter.
        creates: bool,
    },
    /// Sets a new deadline, in hours.
    Expire(u8),
}

/// The answer to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Value(Option<i64>),
    /// Whether the command did its work.
    Done(bool),
    /// The deadline of the entry, or None if no entry exists.
    Left(Option<Deadline>),
    /// An answer without information.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub command: Command,
    pub answer: Answer,
}

/// The largest difference between the clients' clock and the clock with which a server compares deadlines.
const SLACK: Moment = 100_000_000;

impl Step {
    pub fn only_reads(&self) -> bool {
        match (self.command, self.answer) {
            (Command::Get | Command::Left, _) => true,
            (_, Answer::Done(done)) => !done,
            (Command::Take | Command::Add { creates: false, .. }, Answer::Value(None)) => true,
            _ => false,
        }
    }

    /// Returns the content after the command, which ran between these moments, or None if the command would have given
    /// a different answer.
    pub fn after(
        &self,
        held: Option<Entry>,
        (began, ended): (Moment, Moment),
    ) -> Option<Option<Entry>> {
        let millis = |n: u16| Moment::from(n) * 1_000_000;
        let deadline = |until| match (until, held) {
            (Until::Keep, Some(entry)) => entry.deadline,
            (Until::Keep | Until::Never, _) => Deadline::Never,
            (Until::Hours(hours), _) => Deadline::Hours(hours),
            (Until::Millis(n), _) => Deadline::Soon(
                (began + millis(n)).saturating_sub(SLACK),
                ended + millis(n) + SLACK,
            ),
        };
        let value = held.map(|entry| entry.value);
        let (after, says) = match self.command {
            Command::Get => (held, Answer::Value(value)),
            Command::Left => {
                let reported = |entry: Entry| match entry.deadline {
                    Deadline::Soon(..) => Deadline::Soon(0, 0),
                    other => other,
                };
                (held, Answer::Left(held.map(reported)))
            }
            Command::Set { value, when, until } => {
                let sets = match when {
                    When::Always => true,
                    When::Absent => held.is_none(),
                    When::Present => held.is_some(),
                };
                let entry = Entry {
                    value,
                    deadline: deadline(until),
                };
                (if sets { Some(entry) } else { held }, Answer::Done(sets))
            }
            Command::Swap(new) => {
                let deadline = Deadline::Never;
                let entry = Entry {
                    value: new,
                    deadline,
                };
                (Some(entry), Answer::Value(value))
            }
            Command::Take => (None, Answer::Value(value)),
            Command::Delete => (None, Answer::Done(held.is_some())),
            Command::Add { creates: false, .. } if held.is_none() => (None, Answer::Value(None)),
            Command::Add { by, .. } => {
                let entry = Entry {
                    value: value.unwrap_or(0) + by,
                    deadline: deadline(Until::Keep),
                };
                (Some(entry), Answer::Value(Some(entry.value)))
            }
            Command::Expire(hours) => {
                let deadline = Deadline::Hours(hours);
                (
                    held.map(|entry| Entry { deadline, ..entry }),
                    Answer::Done(held.is_some()),
                )
            }
        };
        (self.answer == Answer::Unknown || self.answer == says).then_some(after)
    }
}

impl Entry {
    /// Returns two booleans for an operation between these moments: whether the entry may be live, and whether it may
    /// have expired.
    pub fn lives_or_has_ended(&self, (began, ended): (Moment, Moment)) -> (bool, bool) {
        match self.deadline {
            Deadline::Soon(earliest, latest) => (began <= latest, ended >= earliest),
            _ => (true, false),
        }
    }

    /// Returns the entry after an answer at `moment` showed that it had expired. All later operations must then find it
    /// expired.
    pub fn seen_ended_by(self, moment: Moment) -> Entry {
        match self.deadline {
            Deadline::Soon(earliest, latest) => Entry {
                deadline: Deadline::Soon(earliest, latest.min(moment)),
                ..self
            },
            _ => self,
        }
    }
}
