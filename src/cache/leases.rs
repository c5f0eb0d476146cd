//! Leases: of all who miss a key, one computes its entry. Who has the lease, who waits, when it ends.
//!
//! - A lease of `cache_fetch` belongs to a session. On a memory cache it ends when the value is stored;
//!   on a table cache with the transaction (commit or rollback), because others see the value from then on.
//! - A lease of `cache_lease` belongs to whoever knows its number, and ends when the value is stored (on
//!   a table cache: committed), when it is given up, or by time.
//! - Any change of the key by others voids it: `void` is called where entries of memory caches change,
//!   and by `coherence` before and after the commit of a change to a table.
//!
//! Records lie in the tier (`pg::lease`). Without it `cache_fetch` takes a lock of Postgres' lock table
//! instead, which others only try; nobody can take it over, so who waits too long computes by himself.

use std::time::{Duration, Instant};

use super::hot;
use super::key::Key;
use super::registry::Cache;
use crate::error::Error;
use crate::guc;
use crate::pg::clock::{self, Timestamp};
use crate::pg::kept::Kept;
use crate::pg::lease::{Asked, Claim, Other, my_process};
use crate::pg::tier::{Tier, tier};
use crate::pg::{events, lock, random, session, transaction, wait};

/// Leases that a session keeps until its transaction ends; one statement that fetches thousands of
/// keys must not take the records of all others. What it fetches beyond, it fetches without.
const MOST_AT_ONCE: usize = 64;
/// The longest sleep at a stretch: then it is asked whether the holder waits for us.
const LONGEST_SLEEP: i64 = 1_000;
/// Without shared memory nobody wakes us.
const POLL: i64 = 20;

/// Names a lease in the tier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    hash: u64,
    pub id: u64,
}

/// What a caller who has missed a key is to do.
pub enum Turn {
    /// Compute it; None where the server has no tier and a lock stands for the lease.
    Mine(Option<Lease>),
    /// Somebody else does.
    Theirs(Option<Other>),
    /// Compute it without a lease.
    Untracked,
}

/// A lease that ends, or comes back, with this session's transaction.
#[derive(Clone, Copy)]
struct Held {
    lease: Lease,
    level: i32,
    /// A client's lease is good again when the transaction rolls back.
    outlives_rollback: bool,
}

#[derive(Default)]
struct Session {
    held: Vec<Held>,
    /// Locks that stand for leases, and the level of the first.
    locks: usize,
}

thread_local! {
    static SESSION: Kept<Session> = Kept::default();
}

fn with<R>(change: impl FnOnce(&mut Session) -> R) -> R {
    SESSION.with(|session| session.change(change))
}

/// How many leases this session has, locks that stand for one among them.
fn held() -> usize {
    SESSION.with(|session| session.look(|session| session.held.len() + session.locks))
}

/// How long a call still waits, by a clock that nobody sets.
pub struct Patience {
    began: Instant,
    longest: Duration,
}

impl Patience {
    pub fn of(longest: Duration) -> Patience {
        let began = Instant::now();
        Patience { began, longest }
    }

    /// What is left of it, in microseconds.
    fn left(&self) -> i64 {
        let left = self.longest.saturating_sub(self.began.elapsed());
        left.as_micros().try_into().unwrap_or(i64::MAX)
    }
}

/// The hash of a key, by which its lease is known.
fn hash(tier: &Tier, cache: &Cache, key: Key) -> u64 {
    hot::hash(tier, cache.owner, key.text().bytes())
}

/// Asks for the lease of a key, for `cache_fetch`.
pub fn ask_to_fetch(cache: &Cache, key: Key) -> Turn {
    if held() >= MOST_AT_ONCE {
        return Turn::Untracked;
    }
    let Some(tier) = tier() else {
        return ask_by_lock(cache, key);
    };
    let (lease, asked) = ask(tier, cache, key, my_process(), false);
    if matches!(asked, Asked::Won) {
        hold(lease, false);
    }
    turn(lease, asked)
}

/// The same for `cache_lease`.
pub fn ask_to_lease(cache: &Cache, key: Key) -> Result<Turn, Error> {
    let tier = tier().ok_or(Error::NoLeases)?;
    let (lease, asked) = ask(tier, cache, key, 0, true);
    Ok(turn(lease, asked))
}

fn ask(tier: &Tier, cache: &Cache, key: Key, holder: i32, over_stored: bool) -> (Lease, Asked) {
    let hash = hash(tier, cache, key);
    let now = clock::now();
    let claim = Claim {
        id: random::number().max(1),
        owner: cache.owner,
        holder,
        now,
        deadline: now.saturating_add(guc::lease_time() * 1000),
        over_stored,
    };
    let partition = tier.region().partition_of(hash);
    let leases = tier.leases().of(partition);
    let asked = tier.change(partition, |_| leases.ask(hash, &claim));
    let id = claim.id;
    (Lease { hash, id }, asked)
}

fn turn(lease: Lease, asked: Asked) -> Turn {
    match asked {
        Asked::Won => Turn::Mine(Some(lease)),
        Asked::Busy(other) => Turn::Theirs(Some(other)),
        Asked::Full => Turn::Untracked,
    }
}

fn ask_by_lock(cache: &Cache, key: Key) -> Turn {
    let name = xxhash_rust::xxh3::xxh3_64_with_seed(key.text().bytes(), cache.owner);
    if !lock::try_lease(name) {
        return Turn::Theirs(None);
    }
    with(|session| session.locks += 1);
    Turn::Mine(None)
}

fn hold(lease: Lease, outlives_rollback: bool) {
    let level = events::nesting_level();
    with(|session| {
        session.held.push(Held {
            lease,
            level,
            outlives_rollback,
        });
    });
}

/// Whether this session may wait for another one where the deadlock detector does not see it: not with
/// an xid, because others may wait for its rows, and not with a lease, because others may wait for that.
pub fn may_wait() -> bool {
    !transaction::has_xid() && held() == 0
}

/// Waits a while for the end of somebody else's lease; false when there is no point in more waiting.
pub fn wait(cache: &Cache, key: Key, other: Option<Other>, patience: &Patience) -> bool {
    let left = patience.left();
    if left == 0 || !may_wait() {
        return false;
    }
    let (Some(tier), Some(other)) = (tier(), other) else {
        wait::pause(POLL.min(left / 1000 + 1));
        return true;
    };
    // Past its deadline a lease is taken over; if its value is written already, nothing is gained.
    let now = clock::now();
    if other.stored && other.deadline <= now {
        return false;
    }
    let hash = hash(tier, cache, key);
    let partition = tier.region().partition_of(hash);
    let micros = left.min(other.deadline.max(now) - now);
    let millis = (micros / 1000 + 1).min(LONGEST_SLEEP);
    let asleep = Instant::now();
    tier.leases().sleep(partition, millis, || {
        let present = tier.read(hash, |_| tier.leases().of(partition).present(hash));
        present.is_some_and(|present| present.id == other.id)
    });
    session::check_for_interrupts();
    let overslept = asleep.elapsed() >= Duration::from_millis(LONGEST_SLEEP as u64);
    !(overslept && other.holder != 0 && wait::waits_for_us(other.holder))
}

/// The lease of a key that a caller names by its number.
pub fn named(cache: &Cache, key: Key, id: i64) -> Result<Option<Lease>, Error> {
    let tier = tier().ok_or(Error::NoLeases)?;
    let hash = hash(tier, cache, key);
    let id = u64::try_from(id).ok().filter(|&id| id != 0);
    Ok(id.map(|id| Lease { hash, id }))
}

/// Notes that this transaction writes the value; false when the lease is lost.
pub fn store(lease: Lease) -> bool {
    let now = clock::now();
    at(lease, |leases| {
        leases.store(lease.hash, lease.id, my_process(), now)
    })
}

/// The same for a client's lease, which comes back if the transaction is rolled back.
pub fn store_for_client(lease: Lease) -> bool {
    let stores = store(lease);
    if stores {
        hold(lease, true);
    }
    stores
}

/// Whether somebody has changed the entry since [`store`].
pub fn is_void(lease: Lease) -> bool {
    at(lease, |leases| leases.is_void(lease.hash, lease.id))
}

/// Whether a lease may still be used; asked under the partition's lock.
pub fn holds(tier: &Tier, lease: Lease, now: Timestamp) -> bool {
    let partition = tier.region().partition_of(lease.hash);
    let leases = tier.leases().of(partition);
    leases.holds(lease.hash, lease.id, now)
}

/// Ends a lease before the transaction does; whether it was good.
pub fn release(lease: Lease) -> bool {
    with(|session| session.held.retain(|held| held.lease != lease));
    let now = clock::now();
    let good = at(lease, |leases| {
        let good = leases.holds(lease.hash, lease.id, now);
        leases.release(lease.hash, lease.id);
        good
    });
    wake(lease);
    good
}

fn at<R>(lease: Lease, change: impl FnOnce(&crate::pg::lease::Partition) -> R) -> R
where
    R: Default,
{
    let Some(tier) = tier() else {
        return R::default();
    };
    let partition = tier.region().partition_of(lease.hash);
    let leases = tier.leases().of(partition);
    tier.change(partition, |_| change(&leases))
}

fn wake(lease: Lease) {
    if let Some(tier) = tier() {
        let partition = tier.region().partition_of(lease.hash);
        tier.leases().wake(partition);
    }
}

/// Voids the lease of a key; the caller holds its partition's lock exclusively, and calls
/// [`wake_waiting`] after it if this says so.
pub fn void(tier: &Tier, hash: u64) -> bool {
    tier.leases()
        .of(tier.region().partition_of(hash))
        .void(hash)
}

/// Wakes whoever waits for the lease of a key.
pub fn wake_waiting(tier: &Tier, hash: u64) {
    tier.leases().wake(tier.region().partition_of(hash));
}

/// Voids all leases of a cache.
pub fn void_all(tier: &Tier, owner: u64) {
    for partition in 0..tier.partitions() {
        let leases = tier.leases().of(partition);
        if !leases.is_empty() && tier.change(partition, |_| leases.void_all(owner)) {
            tier.leases().wake(partition);
        }
    }
}

/// The transaction has ended: others see what it stored, or never will.
pub fn end(committed: bool) {
    let held = with(|session| {
        session.locks = 0;
        std::mem::take(&mut session.held)
    });
    held.iter().for_each(|held| held.end(committed));
}

/// A savepoint was released: its leases count for the level above.
pub fn raise(level: i32) {
    with(|session| {
        for held in &mut session.held {
            held.level = held.level.min(level - 1);
        }
    });
}

/// A savepoint was rolled back, and with it what was stored under it.
pub fn forget(level: i32) {
    let gone: Vec<Held> = with(|session| {
        let all = std::mem::take(&mut session.held);
        let (gone, kept) = all.into_iter().partition(|held| held.level >= level);
        session.held = kept;
        gone
    });
    gone.iter().for_each(|held| held.end(false));
}

impl Held {
    fn end(&self, committed: bool) {
        let lease = self.lease;
        at(lease, |leases| match self.outlives_rollback && !committed {
            true => leases.take_back(lease.hash, lease.id),
            false => drop(leases.release(lease.hash, lease.id)),
        });
        wake(lease);
    }
}
