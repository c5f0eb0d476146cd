//! A model of Redis with one connection, and with its data in memory. It runs the commands that the crate has parsed.

use std::collections::HashMap;

use pgcache_resp::{
    Args, Command, Condition, CopyOptions, Expiry, Failure, Limits, Parser, Scan, Set, Unit, When,
    Writer, add_floats, integer, matches, rule,
};

const DATABASES: usize = 16;
const LONGEST_VALUE: i64 = 512 << 20;

struct Entry {
    value: Vec<u8>,
    deadline: Option<i64>,
}

pub struct Model {
    databases: Vec<HashMap<Vec<u8>, Entry>>,
    selected: usize,
    now: i64,
    /// The requests queued for EXEC.
    queued: Option<Vec<Vec<u8>>>,
    /// Whether a queued request was refused.
    refused: bool,
    watched: Vec<(usize, Vec<u8>)>,
    /// Whether a watched key has changed.
    changed: bool,
}

impl Model {
    pub fn new() -> Self {
        Self {
            databases: (0..DATABASES).map(|_| HashMap::new()).collect(),
            selected: 0,
            now: 0,
            queued: None,
            refused: false,
            watched: Vec::new(),
            changed: false,
        }
    }

    pub fn in_transaction(&self) -> bool {
        self.queued.is_some()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.databases[self.selected].keys()
    }

    /// Writes the reply to one request.
    pub fn answer(&mut self, request: &[u8], now: i64, replies: &mut Writer) {
        self.now = now;
        let mut parser = Parser::new(Limits::default());
        let args = parser.next(request).unwrap().unwrap().args;
        let entry = match Command::check(args) {
            Ok(entry) => entry,
            Err(failure) => {
                self.refused |= self.in_transaction();
                if matches!(failure, Failure::ExecRefused) {
                    self.queued = None;
                    self.end();
                }
                return failure.write(replies);
            }
        };
        let at_once = entry.has(rule::UNQUEUED);
        match &mut self.queued {
            Some(queued) if !at_once => {
                queued.push(request.to_vec());
                replies.simple("QUEUED");
            }
            _ => self.run(args, replies),
        }
    }

    fn run(&mut self, args: Args<'_>, replies: &mut Writer) {
        let done = match Command::read(args) {
            Ok(command) => self.perform(command, replies),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = done {
            failure.write(replies);
        }
    }

    fn perform<'a>(
        &mut self,
        command: Command<'a>,
        replies: &mut Writer,
    ) -> Result<(), Failure<'a>> {
        match command {
            Command::Get { key } => replies.bulk_or_null(self.value(key)),
            Command::Set(set) => self.set(set, replies)?,
            Command::SetIfAbsent { key, value } => {
                let absent = self.value(key).is_none();
                if absent {
                    self.put(key, value.to_vec(), None);
                }
                replies.integer(i64::from(absent));
            }
            Command::GetSet { key, value } => {
                replies.bulk_or_null(self.value(key));
                self.put(key, value.to_vec(), None);
            }
            Command::GetDelete { key } => {
                replies.bulk_or_null(self.value(key));
                self.remove(key);
            }
            Command::GetExpire { key, expiry } => self.get_expire(key, expiry, replies)?,
            Command::GetMany { keys } => {
                replies.array(keys.len());
                keys.iter()
                    .for_each(|key| replies.bulk_or_null(self.value(key)));
            }
            Command::SetMany { pairs, if_absent } => self.set_many(pairs, if_absent, replies),
            Command::Append { key, value } => {
                let value = [self.value(key).unwrap_or_default(), value].concat();
                replies.integer(value.len() as i64);
                self.put(key, value, self.deadline(key));
            }
            Command::Length { key } => {
                replies.integer(self.value(key).map_or(0, |value| value.len() as i64))
            }
            Command::GetRange { key, from, to } => {
                replies.bulk(range(self.value(key).unwrap_or_default(), from, to));
            }
            Command::SetRange { key, offset, value } => {
                self.set_range(key, offset, value, replies)?
            }
            Command::Increment { key, by } => self.increment(key, by, replies)?,
            Command::IncrementFloat { key, by } => {
                let sum = add_floats(self.value(key).unwrap_or(b"0"), by)?;
                replies.bulk(sum.as_bytes());
                self.put(key, sum.into_bytes(), self.deadline(key));
            }
            Command::Delete { keys } => {
                let removed = keys.iter().filter(|key| self.remove(key)).count();
                replies.integer(removed as i64);
            }
            Command::Exists { keys } | Command::Touch { keys } => {
                replies.integer(keys.iter().filter(|key| self.value(key).is_some()).count() as i64);
            }
            Command::Type { key } => replies.simple(if self.value(key).is_some() {
                "string"
            } else {
                "none"
            }),
            Command::Expire {
                key,
                lifetime,
                when,
                command,
            } => {
                let deadline = lifetime.any_deadline(self.now, command)?;
                replies.integer(i64::from(self.expire(key, deadline, when)));
            }
            Command::TimeLeft { key, unit } => self.moment(key, unit, self.now, replies),
            Command::Deadline { key, unit } => self.moment(key, unit, 0, replies),
            Command::Persist { key } => {
                let had = self.deadline(key).is_some();
                if had {
                    self.set_deadline(key, None);
                }
                replies.integer(i64::from(had));
            }
            Command::Rename {
                from,
                to,
                if_absent,
            } => self.rename(from, to, if_absent, replies)?,
            Command::Copy { from, to, options } => self.copy(from, to, options, replies)?,
            Command::RandomKey => replies.bulk_or_null(self.keys().next().map(Vec::as_slice)),
            Command::Scan(scan) => self.scan(scan, replies),
            Command::Keys { pattern } => self.list(|key| matches(pattern, key), replies),
            Command::Count => replies.integer(self.keys().count() as i64),
            Command::Clear { all_databases } => self.clear(all_databases, replies),
            Command::Multi if self.in_transaction() => return Err(Failure::NestedMulti),
            Command::Multi => {
                self.queued = Some(Vec::new());
                replies.simple("OK");
            }
            Command::Exec => self.exec(replies)?,
            Command::Discard => {
                self.queued.take().ok_or(Failure::DiscardWithoutMulti)?;
                self.end();
                replies.simple("OK");
            }
            Command::Watch { .. } if self.in_transaction() => {
                return Err(Failure::WatchInsideMulti);
            }
            Command::Watch { keys } => {
                self.watched
                    .extend(keys.iter().map(|key| (self.selected, key.to_vec())));
                replies.simple("OK");
            }
            Command::Unwatch => {
                self.end();
                replies.simple("OK");
            }
            Command::Ping { message: None } => replies.simple("PONG"),
            Command::Ping {
                message: Some(message),
            }
            | Command::Echo { message } => replies.bulk(message),
            Command::Select { database } => {
                self.selected = index(database)?;
                replies.simple("OK");
            }
            other => panic!("the model does not know {other:?}"),
        }
        Ok(())
    }

    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.databases[self.selected]
            .get(key)
            .map(|entry| entry.value.as_slice())
    }

    fn deadline(&self, key: &[u8]) -> Option<i64> {
        self.databases[self.selected].get(key)?.deadline
    }

    fn touch(&mut self, database: usize, key: &[u8]) {
        self.changed |= self
            .watched
            .iter()
            .any(|(other, watched)| *other == database && watched == key);
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, deadline: Option<i64>) {
        self.put_in(self.selected, key, value, deadline);
    }

    fn put_in(&mut self, database: usize, key: &[u8], value: Vec<u8>, deadline: Option<i64>) {
        self.databases[database].insert(key.to_vec(), Entry { value, deadline });
        self.touch(database, key);
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let was = self.databases[self.selected].remove(key).is_some();
        if was {
            self.touch(self.selected, key);
        }
        was
    }

    fn set_deadline(&mut self, key: &[u8], deadline: Option<i64>) {
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            self.remove(key);
        } else if let Some(entry) = self.databases[self.selected].get_mut(key) {
            entry.deadline = deadline;
            self.touch(self.selected, key);
        }
    }

    fn set<'a>(&mut self, set: Set<'a>, replies: &mut Writer) -> Result<(), Failure<'a>> {
        let deadline = match set.expiry {
            Expiry::At(lifetime) => Some(lifetime.deadline(self.now, set.command)?),
            Expiry::Keep => self.deadline(set.key),
            Expiry::Unsaid | Expiry::Remove => None,
        };
        let present = self.value(set.key).is_some();
        if set.get {
            replies.bulk_or_null(self.value(set.key));
        }
        let acts = match set.condition {
            Condition::Absent => !present,
            Condition::Present => present,
            _ => true,
        };
        if acts {
            self.put(set.key, set.value.to_vec(), deadline);
        }
        match (set.get, acts) {
            (true, _) => {}
            (false, true) => replies.simple("OK"),
            (false, false) => replies.null(),
        }
        Ok(())
    }

    fn get_expire<'a>(
        &mut self,
        key: &[u8],
        expiry: Expiry<'a>,
        replies: &mut Writer,
    ) -> Result<(), Failure<'a>> {
        let Some(value) = self.value(key).map(<[u8]>::to_vec) else {
            replies.null();
            return Ok(());
        };
        match expiry {
            Expiry::At(lifetime) => {
                self.set_deadline(key, Some(lifetime.deadline(self.now, "getex")?))
            }
            Expiry::Remove if self.deadline(key).is_some() => self.set_deadline(key, None),
            _ => {}
        }
        replies.bulk(&value);
        Ok(())
    }

    fn set_many(&mut self, pairs: Args<'_>, if_absent: bool, replies: &mut Writer) {
        if if_absent && pairs.pairs().any(|(key, _)| self.value(key).is_some()) {
            return replies.integer(0);
        }
        for (key, value) in pairs.pairs() {
            self.put(key, value.to_vec(), None);
        }
        if if_absent {
            replies.integer(1)
        } else {
            replies.simple("OK")
        }
    }

    fn set_range<'a>(
        &mut self,
        key: &[u8],
        offset: i64,
        piece: &[u8],
        replies: &mut Writer,
    ) -> Result<(), Failure<'a>> {
        let mut value = self.value(key).unwrap_or_default().to_vec();
        if !piece.is_empty() {
            if offset
                .checked_add(piece.len() as i64)
                .is_none_or(|end| end > LONGEST_VALUE)
            {
                return Err(Failure::TooLong);
            }
            let (from, to) = (offset as usize, offset as usize + piece.len());
            value.resize(value.len().max(to), 0);
            value[from..to].copy_from_slice(piece);
        }
        replies.integer(value.len() as i64);
        if !piece.is_empty() {
            self.put(key, value, self.deadline(key));
        }
        Ok(())
    }

    fn increment<'a>(
        &mut self,
        key: &[u8],
        by: i64,
        replies: &mut Writer,
    ) -> Result<(), Failure<'a>> {
        let before = self
            .value(key)
            .map_or(Some(0), integer)
            .ok_or(Failure::NotInteger)?;
        let after = before.checked_add(by).ok_or(Failure::IncrementOverflow)?;
        self.put(key, after.to_string().into_bytes(), self.deadline(key));
        replies.integer(after);
        Ok(())
    }

    fn expire(&mut self, key: &[u8], deadline: i64, when: When) -> bool {
        let acts = self.value(key).is_some() && when.allows(self.deadline(key), deadline);
        if acts {
            self.set_deadline(key, Some(deadline));
        }
        acts
    }

    fn moment(&self, key: &[u8], unit: Unit, from: i64, replies: &mut Writer) {
        replies.integer(match (self.value(key), self.deadline(key), unit) {
            (None, ..) => -2,
            (Some(_), None, _) => -1,
            (_, Some(deadline), Unit::Milliseconds) => deadline - from,
            (_, Some(deadline), Unit::Seconds) => (deadline - from + 500) / 1000,
        });
    }

    fn rename<'a>(
        &mut self,
        from: &[u8],
        to: &[u8],
        if_absent: bool,
        replies: &mut Writer,
    ) -> Result<(), Failure<'a>> {
        let value = self.value(from).ok_or(Failure::NoSuchKey)?.to_vec();
        let renames = from != to && !(if_absent && self.value(to).is_some());
        if renames {
            let deadline = self.deadline(from);
            self.remove(from);
            self.put(to, value, deadline);
        }
        if if_absent {
            replies.integer(i64::from(renames))
        } else {
            replies.simple("OK")
        }
        Ok(())
    }

    fn copy<'a>(
        &mut self,
        from: &[u8],
        to: &[u8],
        options: CopyOptions<'a>,
        replies: &mut Writer,
    ) -> Result<(), Failure<'a>> {
        let (database, replace) = options.read(DATABASES)?;
        let database = database.unwrap_or(self.selected);
        if database == self.selected && from == to {
            return Err(Failure::SameObject);
        }
        let there = self.databases[database].contains_key(to);
        let copies = self.value(from).is_some() && (replace || !there);
        if copies {
            let value = self.value(from).unwrap_or_default().to_vec();
            self.put_in(database, to, value, self.deadline(from));
        }
        replies.integer(i64::from(copies));
        Ok(())
    }

    fn scan(&self, scan: Scan<'_>, replies: &mut Writer) {
        assert!(
            scan.cursor == 0 && scan.count >= 10_000,
            "only whole scans have one answer"
        );
        replies.array(2);
        replies.bulk(b"0");
        let strings = scan
            .kind
            .is_none_or(|kind| kind.eq_ignore_ascii_case(b"string"));
        self.list(
            |key| strings && scan.pattern.is_none_or(|pattern| matches(pattern, key)),
            replies,
        );
    }

    fn list(&self, which: impl Fn(&[u8]) -> bool, replies: &mut Writer) {
        let keys: Vec<_> = self.keys().filter(|key| which(key)).collect();
        replies.array(keys.len());
        keys.into_iter().for_each(|key| replies.bulk(key));
    }

    fn clear(&mut self, all: bool, replies: &mut Writer) {
        let which = if all {
            0..DATABASES
        } else {
            self.selected..self.selected + 1
        };
        for database in which {
            for key in std::mem::take(&mut self.databases[database]).into_keys() {
                self.touch(database, &key);
            }
        }
        replies.simple("OK");
    }

    fn exec<'a>(&mut self, replies: &mut Writer) -> Result<(), Failure<'a>> {
        let queued = self.queued.take().ok_or(Failure::ExecWithoutMulti)?;
        let (refused, changed) = (self.refused, self.changed);
        self.end();
        if refused {
            return Err(Failure::ExecAbort);
        }
        if changed {
            replies.null_array();
            return Ok(());
        }
        replies.array(queued.len());
        for request in queued {
            let mut parser = Parser::new(Limits::default());
            self.run(parser.next(&request).unwrap().unwrap().args, replies);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.refused = false;
        self.changed = false;
        self.watched.clear();
    }
}

fn index<'a>(database: i32) -> Result<usize, Failure<'a>> {
    usize::try_from(database)
        .ok()
        .filter(|index| *index < DATABASES)
        .ok_or(Failure::NoSuchDatabase)
}

fn range(value: &[u8], from: i64, to: i64) -> &[u8] {
    let length = value.len() as i64;
    if from < 0 && to < 0 && from > to {
        return b"";
    }
    let from_start = |place: i64| {
        if place < 0 {
            length.saturating_add(place).max(0)
        } else {
            place
        }
    };
    let (from, to) = (from_start(from), from_start(to).min(length - 1));
    if from > to {
        b""
    } else {
        &value[from as usize..=to as usize]
    }
}
