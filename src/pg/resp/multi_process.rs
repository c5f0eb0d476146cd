//! Shared state that exists only with several network processes: the gate, and for each process the channels and
//! patterns to which its clients have subscribed.

use crate::pg::resp::gate::{self, Gate};
use crate::pg::resp::process::MOST_PROCESSES;
use crate::pg::resp::shared_memory;
use crate::pg::resp::subscribed_channels::Readers;

/// Returns the bytes of shared memory for this number of network processes.
pub fn bytes(networks: usize) -> usize {
    match networks {
        0 | 1 => 0,
        _ => readers_at() + networks.min(MOST_PROCESSES) * size_of::<Readers>(),
    }
}

fn readers_at() -> usize {
    size_of::<gate::Shared>().next_multiple_of(align_of::<Readers>())
}

/// One network process's access to the shared state.
#[derive(Clone, Copy)]
pub struct MultiProcess {
    pub gate: Gate,
    /// One element for each network process, in the order of their indexes.
    pub readers: &'static [Readers],
}

/// Opens the shared state for this process, which has the index `number` among `networks` network processes. Returns
/// None if it is the only network process.
pub fn begin(number: usize, networks: usize) -> Option<MultiProcess> {
    let memory = shared_memory::of_server()?.networks?;
    // SAFETY: the memory begins at an aligned address and has the bytes that `bytes` returns for the same number of
    // network processes, which does not change while the server lives; zeros are an open gate and tables without names,
    // and everything is atomic.
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
