//! Leases: of all who miss a key, one computes its entry. Who has the lease, who waits, when it ends.
//!
//! - A lease of `cache_fetch` belongs to a session. On a memory cache it ends when the value is stored;
//!   on a table cache with the transaction (commit or rollback), because others see the value from then on.
//! - A lease of `cache_lease` belongs to whoever knows its number, and ends when the value is stored (on
//!   a table cache: committed), when it is given up, or by time.
//! - Any change of the key by others voids it: `void` is called where entries of memory caches change,
//!   and by `commit` before and after the commit of a change to a table.
//!
//! Records lie in the tier (`pg::shmem::lease`). Without it `cache_fetch` takes a lock of Postgres' lock table
//! instead, which others only try; nobody can take it over, so who waits too long computes by himself.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::load_token::{self, LoadToken};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::key::Key;
use crate::cache::model::key_set::Keys;
use crate::cache::tier::io;
use crate::error::Error;
use crate::guc;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::transaction_local::Kept;
use crate::pg::session::{self, advisory, random, transaction, wait};
use crate::pg::shmem::lease::{Asked, Claim, Other, my_process};
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::{events, memory};

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
    /// Compute it without a lease; what is computed may be stored as long as this lasts. None where the server
    /// has no tier and a lock keeps writers of the source waiting.
    Untracked(Option<LoadToken>),
    /// Somebody changes the key, or the cache, and his commit is not visible yet: what is computed now may be
    /// out of date, and must not be stored.
    Pending,
}

/// A lease that ends, or comes back, with this session's transaction.
#[derive(Clone, Copy)]
struct Held {
    lease: Lease,
    level: i32,
    /// A client's lease is good again when the transaction rolls back.
    outlives_rollback: bool,
}

/// The transaction has stored loaded values in this cache.
#[derive(Clone, Copy)]
struct Open {
    owner: u64,
    level: i32,
}

impl Open {
    fn end(&self) {
        if let Some(tier) = tier() {
            tier.stores(self.owner).fetch_sub(1, SeqCst);
        }
    }
}

#[derive(Default)]
struct Session {
    held: Vec<Held>,
    open: Vec<Open>,
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
    io::hash(tier, cache.owner, key.text().bytes())
}

/// Asks for the lease of a key, for `cache_fetch`.
pub fn ask_to_fetch(cache: &Cache, key: Key) -> Turn {
    let Some(tier) = tier() else {
        return ask_by_lock(cache, key);
    };
    if held() >= MOST_AT_ONCE || cache.temporary {
        return untracked(tier, cache, key);
    }
    let (lease, asked) = ask(tier, cache, key, For::Session);
    if matches!(asked, Asked::Won) {
        hold(lease, false);
    }
    turn(tier, cache, key, lease, asked)
}

fn untracked(tier: &'static Tier, cache: &Cache, key: Key) -> Turn {
    match LoadToken::take(tier, cache, key) {
        None => Turn::Pending,
        token => Turn::Untracked(token),
    }
}

/// The same for `cache_lease`.
pub fn ask_to_lease(cache: &Cache, key: Key) -> Result<Turn, Error> {
    let tier = tier().ok_or(Error::NoLeases)?;
    if cache.temporary {
        return Ok(untracked(tier, cache, key));
    }
    let (lease, asked) = ask(tier, cache, key, For::Client);
    Ok(turn(tier, cache, key, lease, asked))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Session,
    /// Who computes elsewhere is told to do so in any case: also while a change is being committed, but
    /// then what he computes cannot be stored.
    Client,
}

fn ask(tier: &Tier, cache: &Cache, key: Key, whom: For) -> (Lease, Asked) {
    let hash = hash(tier, cache, key);
    let now = clock::now();
    let client = whom == For::Client;
    let mut claim = Claim {
        id: random::number().max(1),
        owner: cache.owner,
        holder: if client { 0 } else { my_process() },
        now,
        deadline: now.saturating_add(guc::lease_time() * 1000),
        over_stored: client,
        doomed: false,
    };
    let partition = tier.region().partition_of(hash);
    let leases = tier.leases().of(partition);
    let asked = tier.change(partition, |partition| {
        claim.doomed = load_token::pends(tier, cache, partition.stripe(hash));
        match claim.doomed && !client {
            true => Asked::Pending,
            false => leases.ask(hash, &claim),
        }
    });
    let id = claim.id;
    (Lease { hash, id }, asked)
}

fn turn(tier: &'static Tier, cache: &Cache, key: Key, lease: Lease, asked: Asked) -> Turn {
    match asked {
        Asked::Won => Turn::Mine(Some(lease)),
        Asked::Busy(other) => Turn::Theirs(Some(other)),
        Asked::Full => untracked(tier, cache, key),
        Asked::Pending => Turn::Pending,
    }
}

fn lock_name(owner: u64, key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, owner)
}

fn ask_by_lock(cache: &Cache, key: Key) -> Turn {
    if held() >= MOST_AT_ONCE {
        return match advisory::try_all_leases(cache.relation) {
            true => Turn::Untracked(None),
            false => Turn::Pending,
        };
    }
    match advisory::try_lease(cache.relation, lock_name(cache.owner, key.text().bytes())) {
        advisory::Leased::Won => {
            with(|session| session.locks += 1);
            Turn::Mine(None)
        }
        advisory::Leased::Busy => Turn::Theirs(None),
        advisory::Leased::Pending => Turn::Pending,
    }
}

/// Keys whose locks a writer takes one by one; past that, one for the whole cache.
const MOST_LOCKS: usize = 64;

/// Without shared memory: waits for whoever loads one of these keys, or any key of the cache, and keeps
/// others from it until the commit is visible. `keys`: None is all. False when somebody could not be waited
/// for, because he waits for us.
pub fn keep_loaders_out(cache: &Cache, keys: Option<&Keys>) -> bool {
    let named = keys.filter(|keys| keys.len() <= MOST_LOCKS).map(|keys| {
        let mut names = memory::collect(keys.iter().map(|key| lock_name(cache.owner, key)));
        names.sort_unstable(); // two writers in one order
        names
    });
    advisory::keep_leases(cache.relation, named.as_deref())
}

/// How long a fetch waits for a commit that does not become visible before it computes for itself.
const COMMIT_TAKES: Duration = Duration::from_millis(10);

impl Patience {
    /// For a commit that is under way.
    pub fn for_a_commit() -> Patience {
        Patience::of(COMMIT_TAKES)
    }
}

/// Waits a moment for a commit to become visible; false when there is no point in more waiting.
pub fn wait_for_commit(patience: &Patience) -> bool {
    let waits = patience.left() > 0 && may_wait();
    if waits {
        wait::pause(1);
    }
    waits
}

/// Notes that this transaction stores a loaded value in a table, before it does: whoever removes the row of
/// its key looks for it then. A temporary table has no other sessions.
pub fn note_store(cache: &Cache) {
    let Some(tier) = tier().filter(|_| !cache.temporary) else {
        return;
    };
    let owner = cache.owner;
    let level = events::nesting_level();
    with(|session| {
        let known = |open: &Open| open.owner == owner && open.level <= level;
        if !session.open.iter().any(known) {
            memory::push(&mut session.open, Open { owner, level });
            tier.stores(owner).fetch_add(1, SeqCst);
        }
    });
}

/// Whether a value that was loaded for this cache may lie in a row that nobody else can see yet.
pub fn has_open_stores(tier: &Tier, owner: u64) -> bool {
    tier.stores(owner).load(SeqCst) > 0
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

fn at<R>(lease: Lease, change: impl FnOnce(&crate::pg::shmem::lease::Partition) -> R) -> R
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
    let ended = with(std::mem::take);
    ended.held.iter().for_each(|held| held.end(committed));
    ended.open.iter().for_each(Open::end);
}

/// A savepoint was released: its leases count for the level above.
pub fn release_savepoint(level: i32) {
    with(|session| {
        for held in &mut session.held {
            held.level = held.level.min(level - 1);
        }
        for open in &mut session.open {
            open.level = open.level.min(level - 1);
        }
    });
}

/// A savepoint was rolled back, and with it what was stored under it.
pub fn roll_back_savepoint(level: i32) {
    let (held, open) = with(|session| {
        let held = rolled_back(&mut session.held, |held| held.level >= level);
        let open = rolled_back(&mut session.open, |open| open.level >= level);
        (held, open)
    });
    held.iter().for_each(|held| held.end(false));
    open.iter().for_each(Open::end);
}

fn rolled_back<T>(all: &mut Vec<T>, goes: impl Fn(&T) -> bool) -> Vec<T> {
    let (gone, kept) = std::mem::take(all).into_iter().partition(goes);
    *all = kept;
    gone
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
