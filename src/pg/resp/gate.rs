//! The gate: a lock that lets one network process run a command while all other network processes run none. EXEC and
//! atomic commands on several keys need it. A single network process needs no gate, because it runs one command after
//! the other.
//!
//! Before a network process serves a client, it enters the gate: it marks itself as inside in its own word, and then
//! checks whether another process has claimed exclusive use. A process that needs exclusive use first claims it, and
//! then waits until no other process is inside. Each side writes before it reads, so at least one of two processes sees
//! the other. A waiting process is not inside; otherwise two processes that both need exclusive use would wait for each
//! other.
//!
//! A network process that crashes leaves its words set. A process that waits for another process checks every few
//! milliseconds whether that process still runs. The successor of a crashed process clears the words.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use crate::pg::resp::process::MOST_PROCESSES;
use crate::pg::worker::background;

/// The number of checks before a waiting network process yields the processor.
const SPINS: usize = 500;
/// The sleep between later checks. It is short, because processes are inside only for a short time.
const NAP: Duration = Duration::from_micros(50);
/// The interval at which a waiting process checks whether the process for which it waits still runs.
const LOOK: Duration = Duration::from_millis(2);

#[repr(C, align(64))]
struct Inside {
    /// 1 while the process is inside.
    word: AtomicU32,
    /// The id of the process.
    pid: AtomicU32,
}

/// The gate in shared memory.
#[repr(C, align(64))]
pub(super) struct Shared {
    /// The index of the network process with exclusive use, plus 1; 0 if no process has exclusive use.
    alone: AtomicU32,
    networks: [Inside; MOST_PROCESSES],
}

/// One network process's access to the gate.
#[derive(Clone, Copy)]
pub struct Gate {
    shared: &'static Shared,
    number: usize,
}

/// Marks the network process as inside while it lives.
pub struct Entered(Gate);

/// Keeps the other network processes outside while it lives. Holds None if this process already had exclusive use; in
/// that case, dropping the value does not end the exclusive use.
pub struct Alone(Option<Gate>);

impl Gate {
    /// Opens the gate for this process, whose index is `number`, and clears the words that its predecessor left set.
    pub(super) fn begin(shared: &'static Shared, number: usize) -> Gate {
        let gate = Gate { shared, number };
        gate.own().word.store(0, SeqCst);
        gate.free(number);
        gate.own().pid.store(background::own_pid(), SeqCst);
        gate
    }

    fn own(&self) -> &'static Inside {
        &self.shared.networks[self.number % MOST_PROCESSES]
    }

    fn mark(&self) -> u32 {
        self.number as u32 + 1
    }

    /// Ends the exclusive use of the network process with this index, if that process has it.
    fn free(&self, number: usize) {
        let mark = number as u32 + 1;
        let alone = &self.shared.alone;
        alone.compare_exchange(mark, 0, SeqCst, Relaxed).ok();
    }

    /// Enters the gate. Waits while another process has exclusive use, unless this process is requested to exit.
    #[inline]
    pub fn enter(self) -> Entered {
        loop {
            self.own().word.store(1, SeqCst);
            if self.shared.alone.load(SeqCst) == 0 {
                return Entered(self);
            }
            self.own().word.store(0, SeqCst);
            if !self.wait_for_alone() {
                return Entered(self);
            }
        }
    }

    /// Claims exclusive use, and waits until all other processes are outside. The caller is inside. Stops waiting if
    /// this process is requested to exit.
    pub fn alone(self) -> Alone {
        let mark = self.mark();
        let alone = &self.shared.alone;
        if alone.load(Relaxed) == mark {
            return Alone(None);
        }
        self.own().word.store(0, SeqCst);
        while alone.compare_exchange(0, mark, SeqCst, Relaxed).is_err() {
            if !self.wait_for_alone() {
                break;
            }
        }
        let others = self.shared.networks.iter().enumerate();
        for (_, other) in others.filter(|(number, _)| *number != self.number) {
            let is_outside = || other.word.load(SeqCst) == 0;
            wait(is_outside, || {
                let lives = background::is_there(other.pid.load(Acquire));
                if !lives {
                    other.word.store(0, SeqCst);
                }
            });
        }
        self.own().word.store(1, SeqCst);
        Alone(Some(self))
    }

    /// Waits until no process has exclusive use. Stops waiting and returns false if this process was requested to exit.
    #[cold]
    fn wait_for_alone(&self) -> bool {
        let alone = &self.shared.alone;
        wait(
            || alone.load(Acquire) == 0,
            || {
                let Some(number) = alone.load(Acquire).checked_sub(1) else {
                    return;
                };
                let holder = &self.shared.networks[number as usize % MOST_PROCESSES];
                if !background::is_there(holder.pid.load(Acquire)) {
                    self.free(number as usize);
                }
            },
        )
    }
}

/// Waits until `is_done` returns true, and calls `look` every few milliseconds to check whether the other process still
/// runs. Returns false if this process was requested to exit.
fn wait(is_done: impl Fn() -> bool, look: impl Fn()) -> bool {
    for _ in 0..SPINS {
        if is_done() {
            return true;
        }
        std::hint::spin_loop();
    }
    let mut looked = Instant::now();
    while !is_done() {
        if background::is_end_requested() {
            return false;
        }
        std::thread::sleep(NAP);
        if looked.elapsed() > LOOK {
            look();
            looked = Instant::now();
        }
    }
    true
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.own().word.store(0, Release);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.free(gate.number);
        }
    }
}
