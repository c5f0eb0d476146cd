//! The counters of a network process. It publishes them in the client registry, and INFO shows them.

use crate::cache::memory::raw;
use crate::pg::resp::client_registry::{self, Counter};
use crate::pg::resp::system;

/// The counters of a network process. They continue the counters of its predecessor. The client registry sums them over
/// all network processes.
#[derive(Default)]
pub struct Counters {
    pub connections: u64,
    pub rejected: u64,
    pub commands: u64,
    /// The number of turns of clients in which commands ran.
    pub batches: u64,
    /// The largest number of commands in one turn since this number was last published.
    pub largest_batch: u64,
    pub input: u64,
    pub output: u64,
    pub failed_authentications: u64,
    pub failed_handshakes: u64,
    pub cut_off: u64,
    pub killed: u64,
    pub questions: u64,
    pub queue_full: u64,
    pub messages: u64,
    pub overflows: u64,
    /// Hits and misses of the predecessor. The code that reads entries counts the hits and misses of this process.
    former_reads: (u64, u64),
    /// User and system time of the predecessor's processor use, in microseconds.
    former_cpu: (u64, u64),
    /// User and system time of the predecessor and of this process together, in microseconds.
    cpu: (u64, u64),
}

impl Counters {
    pub(super) fn going_on_from(former: &client_registry::Counters) -> Counters {
        let was = |counter: Counter| former.get(counter as usize).copied().unwrap_or(0);
        Counters {
            connections: was(Counter::Connections),
            rejected: was(Counter::Rejected),
            commands: was(Counter::Commands),
            batches: was(Counter::Batches),
            largest_batch: 0,
            input: was(Counter::Input),
            output: was(Counter::Output),
            failed_authentications: was(Counter::FailedAuthentications),
            cut_off: was(Counter::CutOff),
            killed: was(Counter::Killed),
            questions: was(Counter::Questions),
            queue_full: was(Counter::QueueFull),
            messages: was(Counter::Messages),
            overflows: was(Counter::Overflows),
            failed_handshakes: was(Counter::FailedHandshakes),
            former_reads: (was(Counter::Hits), was(Counter::Misses)),
            former_cpu: (was(Counter::CpuUser), was(Counter::CpuSystem)),
            cpu: (was(Counter::CpuUser), was(Counter::CpuSystem)),
        }
    }

    /// Reads the processor time of this process.
    pub(super) fn read_cpu(&mut self) {
        let (user, system) = system::cpu_time();
        self.cpu = (self.former_cpu.0 + user, self.former_cpu.1 + system);
    }

    /// Returns the counters in the order of [`Counter`].
    pub(super) fn for_registry(&self, evicted: u64) -> client_registry::Counters {
        let (hits, misses) = raw::reads();
        [
            self.connections,
            self.rejected,
            self.commands,
            self.batches,
            self.former_reads.0 + hits,
            self.former_reads.1 + misses,
            self.input,
            self.output,
            self.failed_authentications,
            self.cut_off,
            self.killed,
            self.questions,
            self.queue_full,
            self.messages,
            self.overflows,
            self.failed_handshakes,
            evicted,
            self.cpu.0,
            self.cpu.1,
        ]
    }
}
