//! Reserves the Redis protocol's shared memory, and divides it into parts: the client registry, the ring of
//! messages, and the state that several network processes share.
//!
//! The server requests the memory at its start, and only if the protocol is on. The files of the parts define their
//! contents.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::pg::shmem::zeroed::{self, LINE, Piece};
use crate::pg::version;

/// The sizes of the parts.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// The number of clients for which the client registry has places.
    pub clients: usize,
    /// Bytes of the client registry.
    pub registry: usize,
    /// Bytes of the ring of messages.
    pub messages: usize,
    /// Bytes of the state that several network processes share; 0 if only one network process runs.
    pub networks: usize,
}

/// The addresses of the parts.
#[derive(Clone, Copy)]
pub struct Area {
    pub registry: NonNull<u8>,
    /// The number of clients for which the client registry has places.
    pub clients: usize,
    pub messages: NonNull<u8>,
    /// The state that several network processes share; None if only one network process runs.
    pub networks: Option<NonNull<u8>>,
}

thread_local! {
    // The postmaster sets both before it forks; every process inherits them.
    static SIZES: Cell<Sizes> = const { Cell::new(Sizes { clients: 0, registry: 0, messages: 0, networks: 0 }) };
    static AREA: Cell<Option<Area>> = const { Cell::new(None) };
}

/// Returns the offset of the ring of messages: after the client registry, at a cache line.
fn messages_at(sizes: Sizes) -> usize {
    sizes.registry.next_multiple_of(LINE)
}

/// Returns the offset of the state that several network processes share.
fn networks_at(sizes: Sizes) -> usize {
    messages_at(sizes) + sizes.messages.next_multiple_of(LINE)
}

/// Requests the shared memory; called once, while preloading. The memory needs no initialization, because zeros are a
/// client registry without clients and a ring without messages.
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
    // SAFETY: Postgres calls this in the hook that may request wait events.
    unsafe { version::request_wait_event(version::RESP_WAIT_EVENT) };
}

fn given(registry: NonNull<u8>) {
    let sizes = SIZES.get();
    // SAFETY: both addresses are within the requested bytes.
    let (messages, networks) = unsafe {
        (
            registry.add(messages_at(sizes)),
            registry.add(networks_at(sizes)),
        )
    };
    AREA.set(Some(Area {
        registry,
        clients: sizes.clients,
        messages,
        networks: (sizes.networks > 0).then_some(networks),
    }));
}

/// Returns the addresses of the parts; None if the Redis protocol is off.
pub fn of_server() -> Option<Area> {
    AREA.get()
}
