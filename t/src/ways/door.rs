//! Runs operations through the Redis protocol.

use super::{
    Cache, Call, CallResult, Clock, Fate, Request, Shape, Way, left, plain_gets, plain_sets,
};
use crate::linear::{Answer, Command, Moment, Until, When};
use crate::resp::{Client, Reply};
use crate::rng::Rng;

/// A Redis client that runs operations.
pub struct Door {
    client: Client,
    /// The cache whose database is selected.
    cache: Option<Cache>,
    rng: Rng,
    /// Whether the test expects errors, which leave the outcome of an operation unknown.
    expects_errors: bool,
    is_broken: bool,
}

type Words = Vec<String>;

impl Door {
    pub fn over(client: Client, seed: u64) -> Door {
        Door {
            client,
            cache: None,
            rng: Rng::seeded(seed),
            expects_errors: false,
            is_broken: false,
        }
    }

    /// Makes the client expect errors, because the test kills the server's processes.
    pub fn expecting_errors(self) -> Door {
        Door {
            expects_errors: true,
            ..self
        }
    }

    /// Selects the cache's database. Returns whether the server did so.
    fn select(&mut self, cache: Cache) -> bool {
        if self.cache != Some(cache) {
            let words = ["SELECT".to_owned(), cache.number.to_string()];
            let selected = match self.send(&[words.to_vec()]).then(|| self.reply()).flatten() {
                Some(Reply::Status(_)) => true,
                Some(Reply::Error(_)) if self.expects_errors => false,
                None => false,
                Some(other) => panic!("no database was selected: {other:?}"),
            };
            self.cache = selected.then_some(cache);
        }
        self.cache.is_some()
    }

    fn send(&mut self, requests: &[Words]) -> bool {
        let request = |words: &Words| {
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            Client::request(&words)
        };
        let bytes: Vec<u8> = requests.iter().flat_map(request).collect();
        self.is_broken |= !self.client.send(&bytes);
        !self.is_broken
    }

    fn reply(&mut self) -> Option<Reply> {
        let reply = match self.is_broken {
            true => None,
            false => self.client.reply(),
        };
        self.is_broken |= reply.is_none();
        reply
    }

    /// Translates a reply to the answer and the outcome of a call.
    fn said(&self, command: &Command, reply: Option<Reply>) -> (Answer, Fate) {
        let number = |text: String| text.parse::<i64>().expect("only numbers are written");
        match (command, reply) {
            (_, None) => (Answer::Unknown, Fate::Perhaps),
            (_, Some(Reply::Error(words))) => (Answer::Unknown, self.fate(&words)),
            (Command::Left, Some(Reply::Integer(millis))) => (left(millis), Fate::Done),
            (Command::Get | Command::Take | Command::Swap(_), Some(Reply::Null)) => {
                (Answer::Value(None), Fate::Done)
            }
            (Command::Get | Command::Take | Command::Swap(_), Some(Reply::Bulk(bytes))) => {
                let text = String::from_utf8(bytes).expect("only numbers are written");
                (Answer::Value(Some(number(text))), Fate::Done)
            }
            (Command::Add { .. }, Some(Reply::Integer(sum))) => {
                (Answer::Value(Some(sum)), Fate::Done)
            }
            (Command::Set { .. }, Some(Reply::Null)) => (Answer::Done(false), Fate::Done),
            (Command::Set { .. }, Some(Reply::Status(_))) => (Answer::Done(true), Fate::Done),
            (_, Some(Reply::Integer(done))) => (Answer::Done(done == 1), Fate::Done),
            (_, Some(other)) => panic!("{command:?} was answered by {other:?}"),
        }
    }

    fn fate(&self, words: &str) -> Fate {
        match words.starts_with("TRYAGAIN ") || words.contains("deadlock detected") {
            true => Fate::NotDone,
            false if self.expects_errors => Fate::Perhaps,
            false => panic!("{words}"),
        }
    }

    fn one_by_one(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        let words: Vec<Words> = request.calls.iter().map(|call| self.words(call)).collect();
        let began = clock.now();
        self.send(&words);
        let mut results = Vec::new();
        for call in &request.calls {
            let reply = self.reply();
            let (answer, fate) = self.said(&call.command, reply);
            let ended = clock.now();
            results.push(CallResult {
                began,
                ended,
                answer,
                fate,
            });
        }
        results
    }

    /// Sends one command for all keys if Redis has a suitable one, otherwise an EXEC.
    fn together(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        let (calls, began) = (&request.calls, clock.now());
        if let Some(sets) = plain_sets(calls) {
            let mut words = vec!["MSET".to_owned()];
            for (key, value) in sets {
                words.extend([format!("k{key}"), value.to_string()]);
            }
            self.send(&[words]);
            let reply = self.reply();
            let all = self.said(&calls[0].command, reply);
            return all_results(began, clock.now(), vec![all; calls.len()]);
        }
        if plain_gets(calls) {
            let keys = calls.iter().map(|call| format!("k{}", call.key));
            self.send(&[std::iter::once("MGET".to_owned()).chain(keys).collect()]);
            let reply = self.reply();
            return all_results(began, clock.now(), self.elements(calls, reply));
        }
        let mut words = vec![vec!["MULTI".to_owned()]];
        words.extend(calls.iter().map(|call| self.words(call)));
        words.push(vec!["EXEC".to_owned()]);
        let at_once = self.rng.below(2) == 0;
        let last = self.in_turn(&words, at_once);
        all_results(began, clock.now(), self.elements(calls, last))
    }

    /// Sends requests all at once or one after the other. Returns the last reply.
    fn in_turn(&mut self, requests: &[Words], at_once: bool) -> Option<Reply> {
        let mut last = None;
        match at_once {
            true => {
                self.send(requests);
                requests.iter().for_each(|_| last = self.reply());
            }
            false => {
                for words in requests {
                    self.send(std::slice::from_ref(words));
                    last = self.reply();
                }
            }
        }
        last
    }

    /// Splits a reply that has one element for each call.
    fn elements(&self, calls: &[Call], reply: Option<Reply>) -> Vec<(Answer, Fate)> {
        match reply {
            Some(Reply::Array(elements)) => {
                assert_eq!(elements.len(), calls.len(), "{calls:?}: {elements:?}");
                let pairs = calls.iter().zip(elements);
                pairs
                    .map(|(call, reply)| self.said(&call.command, Some(reply)))
                    .collect()
            }
            Some(Reply::Error(words)) => vec![(Answer::Unknown, self.fate(&words)); calls.len()],
            None => vec![(Answer::Unknown, Fate::Perhaps); calls.len()],
            Some(other) => panic!("{calls:?} were answered by {other:?}"),
        }
    }

    fn undone(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        let began = clock.now();
        let mut words = vec![vec!["MULTI".to_owned()]];
        words.extend(request.calls.iter().map(|call| self.words(call)));
        words.push(vec!["DISCARD".to_owned()]);
        self.in_turn(&words, true);
        let none = (Answer::Unknown, Fate::NotDone);
        all_results(began, clock.now(), vec![none; request.calls.len()])
    }

    fn clear(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        let began = clock.now();
        self.send(&[vec!["FLUSHDB".to_owned()]]);
        let fate = match self.reply() {
            Some(Reply::Status(_)) => Fate::Done,
            Some(Reply::Error(words)) => self.fate(&words),
            None => Fate::Perhaps,
            Some(other) => panic!("{other:?}"),
        };
        all_results(
            began,
            clock.now(),
            vec![(Answer::Unknown, fate); request.calls.len()],
        )
    }

    /// Returns the call in one of several equivalent forms.
    fn words(&mut self, call: &Call) -> Words {
        let key = format!("k{}", call.key);
        let other = self.rng.below(2) == 0;
        let text = match call.command {
            Command::Get => format!("GET {key}"),
            Command::Left => format!("PTTL {key}"),
            Command::Set { value, when, until } => return set(&key, (value, when, until), other),
            Command::Swap(value) if other => format!("GETSET {key} {value}"),
            Command::Swap(value) => format!("SET {key} {value} GET"),
            Command::Take => format!("GETDEL {key}"),
            Command::Delete if other => format!("DEL {key}"),
            Command::Delete => format!("UNLINK {key}"),
            Command::Add { by: 1, .. } if other => format!("INCR {key}"),
            Command::Add { by, .. } if other => format!("DECRBY {key} {}", -by),
            Command::Add { by, .. } => format!("INCRBY {key} {by}"),
            Command::Expire(hours) if other => format!("EXPIRE {key} {}", 3600 * i64::from(hours)),
            Command::Expire(hours) => format!("PEXPIRE {key} {}", 3_600_000 * i64::from(hours)),
        };
        text.split(' ').map(str::to_owned).collect()
    }
}

fn set(key: &str, (value, when, until): (i64, When, Until), other: bool) -> Words {
    let mut text = match until {
        Until::Hours(hours) if other && when == When::Always => {
            format!("SETEX {key} {} {value}", 3600 * u32::from(hours))
        }
        _ => format!("SET {key} {value}"),
    };
    if text.starts_with("SET ") {
        text += match when {
            When::Always => "",
            When::Absent => " NX",
            When::Present => " XX",
        };
        match until {
            Until::Keep => text += " KEEPTTL",
            Until::Never => {}
            Until::Hours(hours) => text += &format!(" EX {}", 3600 * u32::from(hours)),
            Until::Millis(millis) => text += &format!(" PX {millis}"),
        }
    }
    text.split(' ').map(str::to_owned).collect()
}

fn all_results(began: Moment, ended: Moment, said: Vec<(Answer, Fate)>) -> Vec<CallResult> {
    let result = |(answer, fate)| CallResult {
        began,
        ended,
        answer,
        fate,
    };
    said.into_iter().map(result).collect()
}

impl Way for Door {
    fn can(&self, _: Cache, command: &Command) -> bool {
        !matches!(command, Command::Add { creates: false, .. })
    }

    fn run(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        if !self.select(request.cache) {
            let none = (Answer::Unknown, Fate::NotDone);
            let now = clock.now();
            return all_results(now, now, vec![none; request.calls.len()]);
        }
        match request.shape {
            Shape::OneByOne => self.one_by_one(request, clock),
            Shape::Together => self.together(request, clock),
            Shape::Undone => self.undone(request, clock),
            Shape::Clear => self.clear(request, clock),
        }
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }
}
