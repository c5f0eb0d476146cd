//! Runs `cache_fetch` for a key that is on another node of Citus. Also answers `cache_lease` for such a key under
//! REPEATABLE READ and SERIALIZABLE.
//!
//! A loader is SQL of the caller, and runs on the caller's node. So a fetch works like a program that computes a value
//! itself: it requests the value or a lease from the key's node, runs the loader on this node, and stores the value on
//! the key's node under the lease. Each of the three calls is routed separately and checks the caller's privileges.
//! Through the lease, the key's node notices each write between the request and the store. After the load, the fetch
//! reads the cache's settings again. It keeps only the cache's name, so its store fails if the loader renames the
//! cache.

use pgrx::datum::Interval;

use crate::cache::catalog::registry;
use crate::cache::catalog::shard_metadata::Spread;
use crate::cache::distribute::calls::{self, Arguments};
use crate::cache::distribute::distributed_call::{Kind, Request};
use crate::cache::distribute::two_phases;
use crate::cache::fetch::loaders;
use crate::cache::lease::held;
use crate::cache::model::deadline;
use crate::cache::model::key::Key;
use crate::error::Error;
use crate::guc;
use crate::pg::session::{lock, subtransaction, transaction};
use crate::pg::spi::loader::{Loaded, raise_from};
use crate::pg::value::call::{self, TextRow, Way};
use crate::pg::value::datum::{Bytes, Text};
use crate::pg::value::{convert, stored::Stored};

/// The functions that a fetch calls.
struct Steps {
    lookup: &'static str,
    lease: &'static str,
    store: &'static str,
    bytes: bool,
}

const TEXTS: Steps = Steps {
    lookup: "cache_lookup",
    lease: "cache_lease",
    store: "cache_set_leased",
    bytes: false,
};
const BYTES: Steps = Steps {
    lookup: "cache_lookup_bytes",
    lease: "cache_lease_bytes",
    store: "cache_set_leased_bytes",
    bytes: true,
};

impl Steps {
    fn of(function: &str) -> &'static Steps {
        match function.ends_with("_bytes") {
            true => &BYTES,
            false => &TEXTS,
        }
    }
}

/// Returns whether this node itself answers a call for a key of another node.
pub fn is_made_here(request: &Request) -> bool {
    match request.route.kind {
        Kind::Fetch { .. } => true,
        Kind::Lease { .. } => lock::one_snapshot_per_transaction(),
        _ => false,
    }
}

/// Answers a call for a key that is on another node.
pub fn answer(request: &Request, spread: &Spread, key: Option<Text>) -> Result<Way, Error> {
    let row = match (&request.route.kind, key) {
        (Kind::Fetch { .. }, key) => vec![fetch(request, spread, key)?],
        (_, Some(key)) => lease_of_old_snapshot(request, spread, key)?,
        (_, None) => vec![None; request.call.columns()],
    };
    Ok(Way::Answered(request.call.give(&[row])))
}

/// Sets `wait` to 0 in a lease request to another node if other sessions may be waiting for this session: Postgres
/// would not detect a deadlock across nodes. `cache_lease` on a single server has the same rule.
pub fn patience(request: &Request, arguments: &mut Arguments) {
    if let Kind::Lease { wait, .. } = request.route.kind
        && !may_wait()
        && let Some(Some(given)) = arguments.get_mut(wait)
        && !given.bytes().contains(&b'-')
    {
        *given = Text::new(b"0");
    }
}

fn may_wait() -> bool {
    held::may_wait() && !two_phases::has_written_elsewhere()
}

/// Answers a lease request without granting a lease. The key's node does not know the age of this snapshot, so data
/// read with it may be out of date.
fn lease_of_old_snapshot(request: &Request, spread: &Spread, key: Text) -> Result<TextRow, Error> {
    let steps = Steps::of(request.route.function);
    let (value, state) = match look(steps, spread, key)? {
        Some(value) => (value, "hit"),
        None => (None, "win"),
    };
    Ok(vec![value, Some(Text::new(state.as_bytes())), None])
}

/// Returns the live value, None for a miss, or Some(None) for a negative entry.
fn look(steps: &Steps, spread: &Spread, key: Text) -> Result<Option<Option<Text>>, Error> {
    let cache = Text::new(spread.name.to_bytes());
    let row = one_row(steps.lookup, &vec![Some(key), Some(cache)])?;
    Ok(match row[..] {
        [Some(found), value, ..] if is_true(found) => Some(value),
        _ => None,
    })
}

/// Returns the row of a function that returns one row. Returns an empty row if the function returns none.
fn one_row(function: &'static str, arguments: &Arguments) -> Result<TextRow, Error> {
    let rows = calls::here(function, arguments)?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

/// Reads a boolean from its text form.
fn is_true(printed: Text) -> bool {
    printed.bytes() == b"t"
}

fn fetch(request: &Request, spread: &Spread, key: Option<Text>) -> Result<Option<Text>, Error> {
    let key = Key::of_write(key)?;
    let call = &request.call;
    let (loader, ttl) = (call.text(1), call.interval(2));
    let fetch = Fetch {
        request,
        cache: Text::new(spread.name.to_bytes()),
        steps: Steps::of(request.route.function),
        key,
        loader: loader.ok_or(Error::NullArgument("loader"))?,
        ttl,
    };
    if let Some(ttl) = &ttl {
        deadline::check_ttl(ttl)?;
    }
    loaders::check_recursion(request.cache, key)?;
    // The limit of leases per transaction also protects the lease records of the other node.
    let may_store = transaction::is_writable() && !lock::one_snapshot_per_transaction();
    if !may_store || held::is_full() {
        return match look(fetch.steps, spread, key.text())? {
            Some(value) => Ok(value),
            None => fetch.load(None),
        };
    }
    let wait = match may_wait() {
        true => guc::fetch_wait(),
        false => std::time::Duration::ZERO,
    };
    let wait = format!("{} microseconds", wait.as_micros());
    let arguments = [key.text(), Text::new(wait.as_bytes()), fetch.cache].map(Some);
    match one_row(fetch.steps.lease, &arguments.to_vec())?[..] {
        [value, Some(state), _] if matches!(state.bytes(), b"hit" | b"stale") => Ok(value),
        [_, _, lease] => {
            held::count_lock();
            fetch.load(lease)
        }
        _ => fetch.load(None),
    }
}

/// A fetch of a key that is on another node.
struct Fetch<'f> {
    request: &'f Request<'f>,
    /// The name of the cache, qualified and quoted.
    cache: Text,
    steps: &'static Steps,
    key: Key,
    loader: Text,
    ttl: Option<Interval>,
}

impl Fetch<'_> {
    /// Runs the loader, and stores the value if a lease is given. Returns the value.
    fn load(&self, lease: Option<Text>) -> Result<Option<Text>, Error> {
        let loaded = self.run(lease)?;
        let definition = registry::definition(self.request.cache)?;
        let value = match loaded {
            Loaded::NoRow => None,
            Loaded::Value(value) => value,
        };
        let value = value.map(|value| self.printed(convert::given(value, definition.value_type)));
        let ttl = match value {
            None => definition.settings.negative_ttl.or(self.ttl),
            Some(_) => self.ttl,
        };
        let may_store = lease.is_some() && (value.is_some() || definition.takes_null());
        let stored = may_store && {
            let arguments = vec![
                Some(self.key.text()),
                value,
                lease,
                ttl.and_then(call::print_interval),
                Some(self.cache),
            ];
            let row = one_row(self.steps.store, &arguments)?;
            matches!(row[..], [Some(done)] if is_true(done))
        };
        if !stored {
            loaders::note_unstored();
        }
        Ok(value)
    }

    /// Runs the loader. If the loader fails, releases the lease so that the next caller tries at once, as on a single
    /// server. Rolls back the failed loader first, because an aborted transaction cannot send the release.
    fn run(&self, lease: Option<Text>) -> Result<Loaded, Error> {
        let run = || loaders::run(self.request.cache, self.key, self.loader);
        if lease.is_none() {
            return run();
        }
        let loaded = subtransaction::attempt(run);
        if !matches!(loaded, Ok(Ok(_))) {
            let arguments = vec![Some(self.key.text()), lease, Some(self.cache)];
            // The loader's error is reported, whatever the release returns.
            drop(subtransaction::attempt(|| {
                calls::here("cache_release", &arguments).map(drop)
            }));
        }
        loaded.unwrap_or_else(|failure| raise_from(self.loader, failure))
    }

    /// Returns the value as text, in the output format of the function's return type.
    fn printed(&self, value: Stored) -> Text {
        match self.steps.bytes {
            true => call::print_bytes(convert::result::<Bytes>(value)),
            false => convert::result::<Text>(value),
        }
    }
}
