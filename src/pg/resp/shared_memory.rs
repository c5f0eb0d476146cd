//! Shared memory of the Redis protocol that sessions of SQL look at, too: the client registry of clients and
//! figures, and the ring of messages; and what several network processes share. Asked for at the start, and only
//! where something listens.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::NonNull;

use pgrx::pg_sys;

use crate::pg::shmem::zeroed::{self, LINE, Piece};
use crate::pg::version;

/// The name of the lock of those who put messages into the ring, in pg_stat_activity.
const LOCK: &CStr = c"PgcacheMessages";

/// How large the parts are.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Clients that the client registry has places for.
    pub clients: usize,
    /// Bytes of the client registry, and of the ring of messages.
    pub registry: usize,
    pub messages: usize,
    /// What several network processes share; 0: there is one.
    pub networks: usize,
}

/// Where the parts lie.
#[derive(Clone, Copy)]
pub struct Area {
    pub registry: NonNull<u8>,
    /// Clients that the client registry has places for.
    pub clients: usize,
    pub messages: NonNull<u8>,
    /// None: there is one network process.
    pub networks: Option<NonNull<u8>>,
    pub lock: NonNull<pg_sys::LWLock>,
}

thread_local! {
    // Both set by the postmaster before it forks; every process inherits them.
    static SIZES: Cell<Sizes> = const { Cell::new(Sizes { clients: 0, registry: 0, messages: 0, networks: 0 }) };
    static AREA: Cell<Option<Area>> = const { Cell::new(None) };
}

/// Where the ring of messages begins: behind the client registry, at a line of the processor's cache.
fn messages_at(sizes: Sizes) -> usize {
    sizes.registry.next_multiple_of(LINE)
}

/// Where what several network processes share begins.
fn networks_at(sizes: Sizes) -> usize {
    messages_at(sizes) + sizes.messages.next_multiple_of(LINE)
}

/// Asks for room at the start of the server; only while preloading, once. Zeros are a client registry without
/// clients, and a ring without messages.
pub fn register(sizes: Sizes) {
    SIZES.set(sizes);
    zeroed::register(Piece {
        name: c"pgcache resp client registry",
        bytes: networks_at(sizes) + sizes.networks,
        unmade: 0,
        request,
        given,
    });
}

fn request() {
    // SAFETY: called in the hook where locks and wait events may be asked for. The name is copied.
    unsafe {
        pg_sys::RequestNamedLWLockTranche(LOCK.as_ptr(), 1);
        version::request_wait_event(version::RESP_WAIT_EVENT);
    }
}

fn given(registry: NonNull<u8>) {
    let sizes = SIZES.get();
    // SAFETY: both lie within the bytes that were asked for. The tranche was requested, so it has its
    // one lock.
    let (messages, networks, lock) = unsafe {
        let lock = &raw mut (*pg_sys::GetNamedLWLockTranche(LOCK.as_ptr())).lock;
        let at = |place: usize| registry.add(place);
        (at(messages_at(sizes)), at(networks_at(sizes)), lock)
    };
    AREA.set(NonNull::new(lock).map(|lock| Area {
        registry,
        clients: sizes.clients,
        messages,
        networks: (sizes.networks > 0).then_some(networks),
        lock,
    }));
}

/// None where nothing listens.
pub fn of_server() -> Option<Area> {
    AREA.get()
}
