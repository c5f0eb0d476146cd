//! Simulates visitors of a shop, who look up products in a cache that is empty at first, and the slow database behind
//! the cache.
//!
//! The database is a pool of P connections, and a query takes the time L. In the modes `lease` and `none` this program
//! simulates the pool with a semaphore and the query with a sleep. In the mode `fetch` the loader in the server
//! simulates both. A visitor is a thread with a connection.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::latency::Latency;
use crate::postgres::Session;
use crate::random::Random;
use crate::{Options, Result};

/// The number of ids, from 10,001 on, whose products do not exist. The published load does not state this number.
const ABSENT: u64 = 1_000;
const PRODUCTS: u64 = 10_000;
const STACK: usize = 256 * 1024; // small, because there are hundreds of visitors

const STORE: &str = "CASE WHEN $2::text IS NULL THEN absent_ttl() END, 'products')";

/// The way in which a visitor handles a miss.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Calls cache_get, then cache_lease: one visitor loads, and the other visitors wait or use the stale value.
    Lease,
    /// Calls cache_fetch with a loader that runs in the server.
    Fetch,
    /// Calls cache_get; after a miss every visitor loads.
    None,
}

pub fn main(options: &Options) -> Result<String> {
    let mode = match options.get::<String>("mode")?.as_str() {
        "lease" => Mode::Lease,
        "fetch" => Mode::Fetch,
        "none" => Mode::None,
        other => return Err(format!("unknown mode {other}").into()),
    };
    let latency = Duration::from_millis(options.get("latency-ms")?);
    let backend = &Backend::new(options.get("pool")?, latency);
    let (socket, seconds) = (options.get::<String>("socket")?, options.get("seconds")?);
    let visitors: Vec<_> = (0..options.get("clients")?)
        .map(|number| Visitor::connect(&socket, mode, number, backend))
        .collect::<Result<_>>()?;
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    let all = thread::scope(|scope| -> Result<Vec<Counts>> {
        let thread = || thread::Builder::new().stack_size(STACK);
        let running = visitors
            .into_iter()
            .map(|visitor| thread().spawn_scoped(scope, move || visitor.visit_until(end)))
            .collect::<std::io::Result<Vec<_>>>()?;
        running.into_iter().map(|one| one.join().map_err(|_| "a visitor died".into())).collect()
    })?;
    Ok(to_json(&all, begin.elapsed(), backend))
}

#[derive(Default)]
struct Counts {
    latency: Latency,
    stale: u64,
    errors: u64,
    /// The number of answers that differ from the database's value.
    wrong: u64,
    first_error: String,
}

fn to_json(all: &[Counts], took: Duration, backend: &Backend) -> String {
    let mut latency = Latency::default();
    all.iter().for_each(|one| latency.merge(&one.latency));
    let sum = |field: fn(&Counts) -> u64| all.iter().map(field).sum::<u64>();
    let first_error = all.iter().map(|one| &one.first_error).find(|text| !text.is_empty());
    let pool = backend.state();
    format!(
        "{{\"requests\":{},\"seconds\":{:.3},\"queries\":{},\"most_at_once\":{},\"stale\":{},\"errors\":{},\
         \"first_error\":{:?},\"wrong\":{},{}}}",
        latency.count(),
        took.as_secs_f64(),
        pool.queries,
        pool.most,
        sum(|one| one.stale),
        sum(|one| one.errors),
        first_error.map_or("", |text| text),
        sum(|one| one.wrong),
        latency.figures()
    )
}

struct Visitor<'a> {
    session: Session,
    mode: Mode,
    random: Random,
    backend: &'a Backend,
    counts: Counts,
}

impl<'a> Visitor<'a> {
    fn connect(socket: &str, mode: Mode, number: u64, backend: &'a Backend) -> Result<Self> {
        let statements = [
            ("get", "SELECT cache_get($1, 'products')"),
            ("lookup", "SELECT found, value FROM cache_lookup($1, 'products')"),
            ("lease", "SELECT value, state, lease FROM cache_lease($1, '10 seconds', 'products')"),
            ("set_leased", &format!("SELECT cache_set_leased($1, $2, $3, {STORE}")),
            ("release", "SELECT cache_release($1, $2, 'products')"),
            ("set", &format!("SELECT cache_set($1, $2, {STORE}")),
            ("fetch", "SELECT cache_fetch($1, 'SELECT load_product($1)', cache => 'products')"),
        ];
        let session = Session::open(socket, "bench", &statements)?;
        Ok(Visitor { session, mode, random: Random(number << 20), backend, counts: Counts::default() })
    }

    fn visit_until(mut self, end: Instant) -> Counts {
        let mut now = Instant::now();
        while now < end {
            let id = next_product(&mut self.random);
            match self.ask(id) {
                Ok(answer) => self.counts.wrong += u64::from(answer != product(id)),
                Err(error) => {
                    self.counts.errors += 1;
                    self.counts.first_error = error.to_string();
                }
            }
            let after = Instant::now();
            self.counts.latency.add(after - now);
            now = after;
        }
        self.counts
    }

    fn ask(&mut self, id: u64) -> Result<Option<String>> {
        let key = format!("p:{id}");
        let key = key.as_bytes();
        if self.mode == Mode::Fetch {
            return self.session.one("fetch", &[Some(key)]);
        }
        match self.session.one("get", &[Some(key)])? {
            Some(hit) => Ok(Some(hit)),
            None if self.mode == Mode::Lease => self.ask_with_lease(id, key),
            None => self.ask_without(id, key),
        }
    }

    fn ask_with_lease(&mut self, id: u64, key: &[u8]) -> Result<Option<String>> {
        let row = self.session.call("lease", &[Some(key)])?.pop().unwrap_or_default();
        let [value, Some(state), lease] = <[_; 3]>::try_from(row).unwrap_or_default() else {
            return Err("cache_lease gave no state".into());
        };
        match state.as_str() {
            "hit" => return Ok(value),
            "stale" => {
                self.counts.stale += 1;
                return Ok(value);
            }
            _ => {}
        }
        let lease = lease.as_ref().map(|text| text.as_bytes());
        // If a stale value exists and the pool is busy, the visitor uses the stale value, which another visitor will
        // soon refresh.
        let loaded = match value {
            Some(stale) => match self.backend.load_if_free(id) {
                Some(loaded) => loaded,
                None => {
                    self.session.call("release", &[Some(key), lease])?;
                    self.counts.stale += 1;
                    return Ok(Some(stale));
                }
            },
            None => self.backend.load(id),
        };
        if state == "win" {
            self.session.call("set_leased", &[Some(key), loaded.as_deref().map(str::as_bytes), lease])?;
        }
        Ok(loaded)
    }

    fn ask_without(&mut self, id: u64, key: &[u8]) -> Result<Option<String>> {
        let row = self.session.call("lookup", &[Some(key)])?.pop().unwrap_or_default();
        if let [Some(found), value] = &row[..]
            && found == "t"
        {
            return Ok(value.clone());
        }
        let loaded = self.backend.load(id);
        self.session.call("set", &[Some(key), loaded.as_deref().map(str::as_bytes)])?;
        Ok(loaded)
    }
}

/// Draws a product: with 80 % one of 1-50, with 15 % of 51-500, with 4 % of 501-5,000, with 1 % a product that does not
/// exist. `bench/stampede.py` has the same numbers.
fn next_product(random: &mut Random) -> u64 {
    match random.below(100) {
        0..80 => 1 + random.below(50),
        80..95 => 51 + random.below(450),
        95..99 => 501 + random.below(4_500),
        _ => PRODUCTS + 1 + random.below(ABSENT),
    }
}

/// Returns the database's value of a product.
fn product(id: u64) -> Option<String> {
    (id <= PRODUCTS).then(|| format!("product {id}"))
}

/// A pool of connections. A query occupies its connection for a fixed time.
struct Backend {
    size: usize,
    latency: Duration,
    pool: Mutex<Pool>,
    freed: Condvar,
}

#[derive(Default)]
struct Pool {
    busy: usize,
    most: usize,
    queries: u64,
}

impl Backend {
    fn new(size: usize, latency: Duration) -> Backend {
        Backend { size, latency, pool: Mutex::default(), freed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a product. Waits for a free connection.
    fn load(&self, id: u64) -> Option<String> {
        let full = |pool: &mut Pool| pool.busy == self.size;
        let pool = self.freed.wait_while(self.state(), full).unwrap_or_else(PoisonError::into_inner);
        self.query(pool, id)
    }

    /// Loads a product if a connection is free; otherwise returns None.
    fn load_if_free(&self, id: u64) -> Option<Option<String>> {
        let pool = self.state();
        (pool.busy < self.size).then(|| self.query(pool, id))
    }

    fn query(&self, mut pool: MutexGuard<Pool>, id: u64) -> Option<String> {
        pool.busy += 1;
        pool.queries += 1;
        pool.most = pool.most.max(pool.busy);
        drop(pool);
        thread::sleep(self.latency);
        self.state().busy -= 1;
        self.freed.notify_one();
        product(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_get_their_shares() {
        let mut random = Random(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| next_product(&mut random)).collect();
        for (first, last, share) in [(1, 50, 80), (51, 500, 15), (501, 5_000, 4), (10_001, 11_000, 1)] {
            let found = drawn.iter().filter(|id| (first..=last).contains(*id)).count();
            assert!(found.abs_diff(share * 1000) < 600, "{first}: {found}");
        }
    }

    #[test]
    fn a_busy_pool_gives_nothing_at_once() {
        let backend = Backend::new(0, Duration::ZERO);
        assert_eq!(backend.load_if_free(1), None);
        let backend = Backend::new(1, Duration::ZERO);
        assert_eq!(backend.load_if_free(1), Some(Some("product 1".into())));
        assert_eq!(backend.load(PRODUCTS + 1), None);
    }
}
