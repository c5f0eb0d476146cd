//! Runs key-value loads on pgcache or etcd. Each client is a thread with its own connection and one operation in
//! flight.

mod etcd;
mod store;

use std::collections::HashMap;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::latency::Latency;
use crate::random::Random;
use crate::{Options, Result};
use etcd::Etcd;
use store::{Entries, Pgcache, Store};

// Entries are key:00000 to key:09999. Each value begins with its key, so that a wrong answer is detected.
const KEYS: u64 = 10_000;
const PER_SCAN: u32 = 100;
const GROUPS: u64 = 20;
/// The writers that cause the watchers' events. One writer causes all events of a watcher, so that they must arrive in
/// order.
const WRITERS: usize = 10;
const WARM_UP: usize = 20; // operations of each client, which are not counted
const AT_ONCE: u64 = 100; // entries of a preload in one transaction; etcd allows 128
/// The maximum wait for an event, which ends the wait if an event is lost. It is longer than any load.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Tally {
    latency: Latency,
    errors: Vec<String>,
    wrong: u64,
    lost: u64,
}

impl Tally {
    fn add(&mut self, mut other: Tally) {
        self.latency.merge(&other.latency);
        self.errors.append(&mut other.errors);
        self.wrong += other.wrong;
        self.lost += other.lost;
    }

    fn judge(&mut self, done: Result<bool>) {
        match done {
            Ok(wrong) => self.wrong += u64::from(wrong),
            Err(reason) => self.errors.push(reason.to_string()),
        }
    }

    fn to_json(&self, seconds: f64) -> String {
        format!(
            "{{\"operations\":{},\"seconds\":{seconds:.3},\"errors\":{},\"first_error\":{:?},\"wrong\":{},\
             \"lost\":{},{}}}",
            self.latency.count(),
            self.errors.len(),
            self.errors.first().map_or("", |text| text),
            self.wrong,
            self.lost,
            self.latency.figures()
        )
    }
}

/// An operation, which a client repeats. Returns true if the store's answer is wrong.
type Operation<'a> = Box<dyn FnMut(&mut dyn Store) -> Result<bool> + 'a>;

struct Plan {
    store: String,
    address: String,
    clients: usize,
    /// The number of operations of each client. In the load `watchers`, the number of events of all clients together.
    operations: usize,
    /// The duration of a load whose number of operations is not fixed.
    seconds: f64,
}

impl Plan {
    fn open(&self) -> Result<Box<dyn Store>> {
        Ok(match self.store.as_str() {
            "etcd" => Box::new(Etcd::open(&self.address)?),
            _ => Box::new(Pgcache::open(&self.address)?),
        })
    }
}

pub fn main(options: &Options) -> Result<String> {
    let plan = Plan {
        store: options.get("store")?,
        address: options.get("socket")?,
        clients: options.get("clients")?,
        operations: options.or("operations", 0)?,
        seconds: options.or("seconds", 0.0)?,
    };
    let operation: fn(usize) -> Operation<'static> = match options.get::<String>("load")?.as_str() {
        "watchers" => return watchers(&plan),
        "half-puts" => half_puts,
        "puts" => only_puts,
        "everything" => everything,
        "transactions" => transactions,
        other => return Err(format!("no load is called {other}").into()),
    };
    let mut store = plan.open()?;
    for first in (0..KEYS).step_by(AT_ONCE as usize) {
        let some: Entries = (first..first + AT_ONCE).map(|n| (key(n), value_of(&key(n)))).collect();
        store.put_all(&some)?;
    }
    let (tally, seconds) = drive(&plan, plan.clients, plan.operations, operation);
    Ok(tally.to_json(seconds))
}

/// Runs the clients. The clock starts when all clients have warmed up.
fn drive<'a>(
    plan: &Plan,
    clients: usize,
    operations: usize,
    of: impl Fn(usize) -> Operation<'a> + Sync,
) -> (Tally, f64) {
    let (ready, of) = (&Barrier::new(clients + 1), &of);
    thread::scope(|scope| {
        let work = move |client| {
            let (mut tally, opened) = (Tally::default(), plan.open());
            let Ok(mut store) = opened else {
                tally.judge(opened.map(|_| false));
                ready.wait();
                return tally;
            };
            let mut next = of(client);
            (0..WARM_UP).for_each(|_| tally.judge(next(&mut *store)));
            ready.wait();
            let (start, mut done) = (Instant::now(), 0);
            while done < operations || operations == 0 && start.elapsed().as_secs_f64() < plan.seconds {
                let from = Instant::now();
                let answer = next(&mut *store);
                tally.latency.add(from.elapsed());
                tally.judge(answer);
                done += 1;
            }
            tally
        };
        let running: Vec<_> = (0..clients).map(|client| scope.spawn(move || work(client))).collect();
        ready.wait();
        let (start, mut all) = (Instant::now(), Tally::default());
        for one in running {
            match one.join() {
                Ok(tally) => all.add(tally),
                Err(_) => all.errors.push("a client died".into()),
            }
        }
        (all, start.elapsed().as_secs_f64())
    })
}

fn key(number: u64) -> String {
    format!("key:{number:05}")
}

fn value_of(key: &str) -> String {
    format!("{key} {}", "v".repeat(100))
}

fn belongs(key: &str, value: &str) -> bool {
    value.strip_prefix(key).is_some_and(|rest| rest.starts_with(' '))
}

fn put(store: &mut dyn Store, key: &str) -> Result<bool> {
    store.put(key, &value_of(key)).map(|()| false)
}

/// Reads a key. If `must` is true, the key must exist, because the load deletes nothing.
fn get(store: &mut dyn Store, key: &str, must: bool) -> Result<bool> {
    Ok(store.get(key)?.map_or(must, |value| !belongs(key, &value)))
}

fn scan(store: &mut dyn Store, prefix: &str) -> Result<bool> {
    let found = store.scan(prefix, PER_SCAN)?;
    let ordered = found.windows(2).all(|pair| pair[0].0 < pair[1].0);
    Ok(!ordered || !found.iter().all(|(key, value)| key.starts_with(prefix) && belongs(key, value)))
}

/// Returns a client's generator of random numbers. Each client has different numbers, which are the same in every run.
fn random(client: usize) -> Random {
    Random(7 << 32 | client as u64)
}

fn half_puts(client: usize) -> Operation<'static> {
    let mut random = random(client);
    Box::new(move |store| {
        let key = key(random.below(KEYS));
        if random.below(2) == 0 { put(store, &key) } else { get(store, &key, true) }
    })
}

fn only_puts(client: usize) -> Operation<'static> {
    let mut random = random(client);
    Box::new(move |store| put(store, &key(random.below(KEYS))))
}

/// Returns an operation that mixes 40 % PUT, 40 % GET, 10 % RANGE and 10 % DELETE.
fn everything(client: usize) -> Operation<'static> {
    let mut random = random(client);
    Box::new(move |store| {
        let key = key(random.below(KEYS));
        match random.below(10) {
            0..4 => put(store, &key),
            4..8 => get(store, &key, false),
            8 => scan(store, &key[..key.len() - 2]),
            _ => store.delete(&key).map(|()| false),
        }
    })
}

/// Returns an operation that puts a group of three entries, all or none. Every tenth operation also reads a group while
/// other clients change it.
fn transactions(client: usize) -> Operation<'static> {
    let (mut random, mut done) = (random(client), 0);
    Box::new(move |store| {
        done += 1;
        let group = format!("group:{:02}:", random.below(GROUPS));
        let value = format!("{client}/{done}");
        store.put_all(&["a", "b", "c"].map(|end| (format!("{group}{end}"), value.clone())))?;
        Ok(done % 10 == 0 && torn(&store.scan(&group, PER_SCAN)?))
    })
}

/// Returns whether a group that was read mixes entries of different transactions, or is incomplete.
fn torn(found: &[(String, String)]) -> bool {
    found.len() != 3 || found.iter().any(|(_, value)| *value != found[0].1)
}

type Sent = Mutex<HashMap<String, Instant>>;

fn prefix(watcher: usize) -> String {
    format!("watch:{watcher:03}:")
}

/// Measures the latency from the start of the put to the arrival of the event, and the rate of the events that arrived.
fn watchers(plan: &Plan) -> Result<String> {
    let (each, count, sent) = (plan.operations / plan.clients, plan.clients, &Sent::default());
    let ready = &Barrier::new(count + 1);
    thread::scope(|scope| {
        let listening: Vec<_> =
            (0..count).map(|number| scope.spawn(move || listen(plan, number, each, sent, ready))).collect();
        ready.wait();
        let start = Instant::now();
        let (made, _) = drive(plan, WRITERS, plan.operations / WRITERS, |writer| changes(writer, each, sent));
        let mut all = Tally { latency: Latency::default(), ..made };
        for one in listening {
            all.add(one.join().map_err(|_| "a watcher died")?);
        }
        Ok(all.to_json(start.elapsed().as_secs_f64()))
    })
}

/// Returns an operation that changes watched keys. During the warm-up it changes keys that no client watches.
fn changes(writer: usize, each: usize, sent: &Sent) -> Operation<'_> {
    let mut turn = 0usize;
    Box::new(move |store| {
        turn += 1;
        let Some(event) = turn.checked_sub(WARM_UP + 1).filter(|_| each > 0) else {
            return store.put("unwatched", "warm-up").map(|()| false);
        };
        let key = format!("{}{:04}", prefix(writer + WRITERS * (event / each)), event % each);
        sent.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), Instant::now());
        store.put(&key, "event").map(|()| false)
    })
}

/// Receives events until all have arrived.
fn listen(plan: &Plan, number: usize, each: usize, sent: &Sent, ready: &Barrier) -> Tally {
    let (mut tally, mut came, prefix) = (Tally::default(), Vec::new(), prefix(number));
    let opened = plan.open().and_then(|mut store| store.watch(&prefix, PATIENCE).map(|()| store));
    ready.wait();
    let outcome = opened.and_then(|mut store| {
        while came.len() < each {
            for key in store.changed()?.into_iter().filter(|key| key.starts_with(&prefix)) {
                if let Some(from) = sent.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
                    tally.latency.add(from.elapsed());
                }
                came.push(key);
            }
        }
        Ok(false)
    });
    tally.judge(outcome);
    tally.lost = (each - came.len().min(each)) as u64;
    // An event that arrived twice, or out of order, counts as wrong.
    tally.wrong += u64::from(!came.is_sorted_by(|one, next| one < next));
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_key_is_wrong() {
        assert!(belongs(&key(7), &value_of(&key(7))));
        assert!(!belongs(&key(7), &value_of(&key(8))));
        assert!(!belongs("key:0000", &value_of(&key(1))));
    }

    #[test]
    fn a_group_of_two_transactions_is_torn() {
        let group = |values: [&str; 3]| values.map(|value| (String::new(), value.to_string()));
        assert!(!torn(&group(["1", "1", "1"])));
        assert!(torn(&group(["1", "2", "1"])));
        assert!(torn(&group(["1", "1", "1"])[..2]));
    }

    #[test]
    fn errors_and_lost_events_are_reported() {
        let mut tally = Tally { lost: 2, ..Tally::default() };
        tally.judge(Err("why".into()));
        tally.judge(Ok(true));
        let json = tally.to_json(1.0);
        assert!(json.contains("\"errors\":1,\"first_error\":\"why\",\"wrong\":1,\"lost\":2,"), "{json}");
    }
}
