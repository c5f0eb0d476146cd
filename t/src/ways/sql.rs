//! Runs operations through SQL: functions and plain statements.

use postgres::{Client, Error};

use super::{
    Cache, Call, CallResult, Clock, Fate, Request, Shape, Way, left, plain_gets, plain_sets,
};
use crate::ask::Ask;
use crate::linear::{Answer, Command, Until, When};
use crate::refusal::sqlstate;
use crate::rng::Rng;

/// A session.
pub struct Sql {
    session: Client,
    is_broken: bool,
    /// Chooses among the ways to write a call.
    rng: Rng,
}

impl Sql {
    pub fn over(session: Client, seed: u64) -> Sql {
        Sql {
            session,
            is_broken: false,
            rng: Rng::seeded(seed),
        }
    }

    /// Runs a statement, and returns the first column of its first row. After an error, returns the outcome of the
    /// statement as an error.
    fn query(&mut self, sql: &str) -> Result<Option<String>, Fate> {
        self.session.try_value(sql).map_err(|error| {
            let fate = self.fate(sql, &error);
            self.is_broken |= fate == Fate::Perhaps;
            fate
        })
    }

    fn fate(&self, sql: &str, error: &Error) -> Fate {
        if self.session.is_closed() || error.as_db_error().is_none() {
            return Fate::Perhaps;
        }
        match sqlstate(error) {
            // A deadlock. While a session waits for a lock, Postgres may report a serialization failure instead.
            "40P01" | "40001" => Fate::NotDone,
            // The server ended the session because it is shutting down.
            "57P01" | "57P02" | "57P03" => Fate::Perhaps,
            _ => panic!("{sql}: {error:?}"),
        }
    }

    fn call(&mut self, cache: Cache, call: &Call, clock: &Clock) -> CallResult {
        let began = clock.now();
        let said = match self.words(cache, call) {
            Some(sql) => self.query(&sql),
            None => panic!("{call:?} of {cache:?} was not asked for"),
        };
        let (answer, fate) = match said {
            Ok(said) => (answer(&call.command, said), Fate::Done),
            Err(fate) => (Answer::Unknown, fate),
        };
        CallResult {
            began,
            ended: clock.now(),
            answer,
            fate,
        }
    }

    /// Runs all calls in one transaction.
    fn transaction(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        let failed = |results: &[CallResult]| {
            results
                .iter()
                .find(|result| result.fate != Fate::Done)
                .copied()
        };
        let savepoint = request.shape == Shape::Undone && self.rng.below(2) == 0;
        let mut results = Vec::new();
        let begin = if savepoint {
            "BEGIN; SAVEPOINT s"
        } else {
            "BEGIN"
        };
        let mut end = self.query(begin).err();
        for call in &request.calls {
            if end.is_some() || failed(&results).is_some() {
                break;
            }
            results.push(self.call(request.cache, call, clock));
        }
        let fails = end.is_some() || failed(&results).is_some();
        if !self.is_broken {
            let verb = match (request.shape, savepoint) {
                (Shape::Together, _) => "COMMIT",
                (_, true) => "ROLLBACK TO s; COMMIT",
                (_, false) => "ROLLBACK",
            };
            end = self.query(if fails { "ROLLBACK" } else { verb }).err();
        }
        let ended = clock.now();
        let fate = match (fails, end) {
            // The transaction ended before its COMMIT.
            (true, _) => Fate::NotDone,
            (false, None) => Fate::Done,
            (false, Some(fate)) => fate,
        };
        while results.len() < request.calls.len() {
            results.push(CallResult {
                began: ended,
                ended,
                answer: Answer::Unknown,
                fate: Fate::NotDone,
            });
        }
        if request.cache.is_table() {
            for (result, call) in results.iter_mut().zip(&request.calls) {
                result.fate = fate;
                if call.command != Command::Get {
                    result.ended = ended;
                }
            }
        }
        results
    }

    /// Runs calls on several keys as one statement if a function for several keys exists. Otherwise returns None.
    fn many(&mut self, request: &Request, clock: &Clock) -> Option<Vec<CallResult>> {
        let cache = request.cache.name;
        let began = clock.now();
        let list = |texts: Vec<String>| texts.join(",");
        let keys = list(
            request
                .calls
                .iter()
                .map(|call| format!("k{}", call.key))
                .collect(),
        );
        let said = if let Some(sets) = plain_sets(&request.calls) {
            let values = list(sets.iter().map(|(_, value)| value.to_string()).collect());
            let sql = match self.rng.below(2) == 0 || !request.cache.is_table() {
                true => format!(
                    "SELECT cache_set_many('{{{keys}}}', '{{{values}}}', cache => '{cache}')"
                ),
                false => format!(
                    "INSERT INTO {cache} SELECT * FROM unnest('{{{keys}}}'::text[], '{{{values}}}'::text[]) \
                     ORDER BY 1 ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = NULL"
                ),
            };
            self.query(&sql)
                .map(|_| vec![Answer::Done(true); request.calls.len()])
        } else if plain_gets(&request.calls) {
            let sql = format!(
                "SELECT string_agg(coalesce(g.value, ''), ',' ORDER BY k.n) \
                 FROM unnest('{{{keys}}}'::text[]) WITH ORDINALITY AS k (key, n) \
                 LEFT JOIN cache_get_many('{{{keys}}}', '{cache}') AS g USING (key)"
            );
            let value = |text: &str| Answer::Value(text.parse().ok());
            self.query(&sql)
                .map(|said| said.unwrap_or_default().split(',').map(value).collect())
        } else {
            return None;
        };
        let ended = clock.now();
        let result = |answer: Answer, fate: Fate| CallResult {
            began,
            ended,
            answer,
            fate,
        };
        Some(match said {
            Ok(answers) => answers
                .into_iter()
                .map(|answer| result(answer, Fate::Done))
                .collect(),
            Err(fate) => vec![result(Answer::Unknown, fate); request.calls.len()],
        })
    }

    fn clear(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        let began = clock.now();
        let name = request.cache.name;
        let sql = match self.rng.below(2) == 0 && request.cache.is_table() {
            true => format!("TRUNCATE {name}"),
            false => format!("SELECT cache_clear('{name}')"),
        };
        let result = CallResult {
            began,
            fate: self.query(&sql).err().unwrap_or(Fate::Done),
            ended: clock.now(),
            answer: Answer::Unknown,
        };
        vec![result; request.calls.len()]
    }

    /// Returns the call's SQL in one of several equivalent forms, or None if SQL cannot express it.
    fn words(&mut self, cache: Cache, call: &Call) -> Option<String> {
        let (name, key) = (cache.name, format!("k{}", call.key));
        let plain = cache.is_table() && self.rng.below(2) == 0;
        Some(match call.command {
            Command::Get
                if let Some(source) = cache.source
                    && self.rng.below(2) == 0 =>
            {
                let loader = format!("SELECT value FROM {} WHERE key = $1", source.name);
                format!("SELECT cache_fetch('{key}', '{loader}', cache => '{name}')")
            }
            Command::Get => match self.rng.below(5) {
                0..2 => format!("SELECT cache_get('{key}', '{name}')"),
                2 => format!("SELECT value FROM cache_lookup('{key}', '{name}')"),
                3 => format!("SELECT value FROM cache_get_many('{{{key}}}', '{name}')"),
                _ => format!("SELECT value FROM {name} WHERE key = '{key}'"),
            },
            Command::Left => format!(
                "SELECT CASE WHEN NOT found THEN -2 WHEN expires_at IS NULL THEN -1 \
                 ELSE greatest(0, extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint END \
                 FROM cache_lookup('{key}', '{name}')"
            ),
            Command::Set { value, when, until } => self.set(cache, &key, (value, when, until))?,
            Command::Swap(_) => return None,
            Command::Take if plain => {
                format!("DELETE FROM {name} WHERE key = '{key}' RETURNING value")
            }
            Command::Take => format!("SELECT cache_take('{key}', '{name}')"),
            Command::Delete if plain => {
                format!("DELETE FROM {name} WHERE key = '{key}' RETURNING true")
            }
            Command::Delete => match self.rng.below(2) {
                0 => format!("SELECT cache_delete('{key}', '{name}')"),
                _ => format!("SELECT cache_delete_many('{{{key}}}', '{name}') = 1"),
            },
            Command::Add { by, creates: true } => {
                format!("SELECT cache_incr('{key}', {by}, cache => '{name}')")
            }
            Command::Add { by, .. } if plain => format!(
                "UPDATE {name} SET value = (value::bigint + {by})::text WHERE key = '{key}' RETURNING value"
            ),
            Command::Add { by, .. } => {
                format!("SELECT cache_incr_existing('{key}', {by}, cache => '{name}')")
            }
            Command::Expire(hours) if plain => format!(
                "UPDATE {name} SET expires_at = clock_timestamp() + '{hours} hours' \
                 WHERE key = '{key}' RETURNING true"
            ),
            Command::Expire(hours) => {
                format!("SELECT cache_touch('{key}', '{hours} hours', '{name}')")
            }
        })
    }

    fn set(&mut self, cache: Cache, key: &str, how: (i64, When, Until)) -> Option<String> {
        let (name, (value, when, until)) = (cache.name, how);
        let ttl = match until {
            Until::Keep | Until::Never => None,
            Until::Hours(hours) => Some(format!("'{hours} hours'")),
            Until::Millis(millis) => Some(format!("'{millis} ms'")),
        };
        let keeps = until == Until::Keep && when != When::Absent;
        if keeps && !cache.is_table() {
            return None;
        }
        if keeps || cache.is_table() && self.rng.below(2) == 0 {
            let deadline = match &ttl {
                Some(ttl) => format!("clock_timestamp() + {ttl}"),
                None => "NULL".to_owned(),
            };
            let sets = match keeps {
                true => "value = excluded.value",
                false => "value = excluded.value, expires_at = excluded.expires_at",
            };
            let row = format!("('{key}', '{value}', {deadline})");
            let insert = format!("INSERT INTO {name} (key, value, expires_at) VALUES {row}");
            return Some(match when {
                When::Always => {
                    format!("{insert} ON CONFLICT (key) DO UPDATE SET {sets} RETURNING true")
                }
                When::Absent => format!("{insert} ON CONFLICT DO NOTHING RETURNING true"),
                When::Present => {
                    let deadline = match keeps {
                        true => String::new(),
                        false => format!(", expires_at = {deadline}"),
                    };
                    format!(
                        "UPDATE {name} SET value = '{value}'{deadline} WHERE key = '{key}' RETURNING true"
                    )
                }
            });
        }
        let ttl = ttl.map(|ttl| format!(", ttl => {ttl}")).unwrap_or_default();
        let arguments = format!("('{key}', '{value}'{ttl}, cache => '{name}')");
        Some(match when {
            When::Always => format!("SELECT cache_set{arguments}"),
            When::Absent => format!("SELECT cache_add{arguments}"),
            When::Present => format!("SELECT cache_replace{arguments}"),
        })
    }
}

impl Way for Sql {
    fn can(&self, cache: Cache, command: &Command) -> bool {
        match command {
            Command::Swap(_) => false,
            Command::Set {
                when,
                until: Until::Keep,
                ..
            } => cache.is_table() || *when == When::Absent,
            _ => true,
        }
    }

    fn run(&mut self, request: &Request, clock: &Clock) -> Vec<CallResult> {
        match request.shape {
            Shape::OneByOne => {
                let calls = request.calls.iter();
                calls
                    .map(|call| self.call(request.cache, call, clock))
                    .collect()
            }
            Shape::Together => match self.many(request, clock) {
                Some(result) => result,
                None => self.transaction(request, clock),
            },
            Shape::Undone => self.transaction(request, clock),
            Shape::Clear => self.clear(request, clock),
        }
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }
}

/// Translates a statement's result to an answer.
fn answer(command: &Command, said: Option<String>) -> Answer {
    let number = |text: &str| -> i64 { text.parse().expect("only numbers are written") };
    let done = said.as_deref() == Some("t");
    match command {
        Command::Get | Command::Take | Command::Add { .. } | Command::Swap(_) => {
            Answer::Value(said.as_deref().map(number))
        }
        Command::Left => left(number(said.as_deref().expect("it says always"))),
        // `cache_set` returns nothing.
        Command::Set {
            when: When::Always, ..
        } => Answer::Done(true),
        Command::Set { .. } | Command::Delete | Command::Expire(_) => Answer::Done(done),
    }
}
