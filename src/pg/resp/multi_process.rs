//! What several network processes share beside the client registry: the gate, and who reads which channels. There is nothing of
//! it where there is one network process.

use crate::pg::resp::catalog_requests::MOST_PROCESSES;
use crate::pg::resp::gate::{self, Gate};
use crate::pg::resp::readers::Readers;
use crate::pg::resp::shared_memory;

/// Bytes of shared memory for so many network processes.
pub fn bytes(networks: usize) -> usize {
    match networks {
        0 | 1 => 0,
        _ => readers_at() + networks.min(MOST_PROCESSES) * size_of::<Readers>(),
    }
}

fn readers_at() -> usize {
    size_of::<gate::Shared>().next_multiple_of(align_of::<Readers>())
}

/// What a network process has of it.
#[derive(Clone, Copy)]
pub struct MultiProcess {
    pub gate: Gate,
    /// By the network processes' numbers.
    pub readers: &'static [Readers],
}

/// This process is the network process of this number, of so many; None: it is the only one.
pub fn begin(number: usize, networks: usize) -> Option<MultiProcess> {
    let memory = shared_memory::of_server()?.networks?;
    // SAFETY: as many bytes lie there from an aligned address on as `bytes` has said for the same number of
    // network processes, which is the server's as long as it lives; zeros are an open gate and tables without names,
    // and all is atomic.
    let (gate, readers) = unsafe {
        let readers = memory.add(readers_at()).cast();
        (
            memory.cast().as_ref(),
            std::slice::from_raw_parts(readers.as_ptr(), networks.min(MOST_PROCESSES)),
        )
    };
    Some(MultiProcess {
        gate: Gate::begin(gate, number),
        readers,
    })
}
