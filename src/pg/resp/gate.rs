//! Lets one network process run a command while no other runs any: EXEC, and commands on several keys that act
//! atomically. With one network process no gate is needed, because it runs one command after the other.
//!
//! Before it serves a client, a network process marks itself as inside, in a word of its own, and then looks whether
//! another process is alone. A process that wants to be alone marks that, and then waits until no other process is
//! inside. Each writes before it looks, so one of two always sees the other. A process that waits is not inside
//! itself; otherwise two that want to be alone would wait for each other.
//!
//! A network process that ends early leaves its words: a process that waits for it checks whether it still runs, and
//! its successor clears them.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use crate::pg::resp::process::MOST_PROCESSES;
use crate::pg::worker::background;

/// Looks before a network process that waits yields the processor.
const SPINS: usize = 500;
/// The sleep after these looks; other processes are inside only for a short time.
const NAP: Duration = Duration::from_micros(50);
/// The interval at which a waiting process checks whether the other one still runs.
const LOOK: Duration = Duration::from_millis(2);

#[repr(C, align(64))]
struct Inside {
    /// 1: the process is inside.
    word: AtomicU32,
    /// The process id.
    pid: AtomicU32,
}

#[repr(C, align(64))]
pub(super) struct Shared {
    /// The number of the network process that is alone, plus 1; 0: none.
    alone: AtomicU32,
    networks: [Inside; MOST_PROCESSES],
}

/// One network process's access to the gate.
#[derive(Clone, Copy)]
pub struct Gate {
    shared: &'static Shared,
    number: usize,
}

/// Keeps the network process inside while it lives.
pub struct Entered(Gate);

/// Keeps other processes outside while it lives. None: this process was alone already.
pub struct Alone(Option<Gate>);

impl Gate {
    /// Begins as the network process of this number.
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

    /// Ends the exclusive state of the network process of this number.
    fn free(&self, number: usize) {
        let mark = number as u32 + 1;
        let alone = &self.shared.alone;
        alone.compare_exchange(mark, 0, SeqCst, Relaxed).ok();
    }

    /// Goes inside; waits while another process is alone.
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

    /// Waits until all other processes are outside. Called inside.
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

    /// Waits until no process is alone; returns false if this process is to end and waits no longer.
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

/// Waits until `is_done`, and calls `look` now and then to check on the other process; returns false if this process
/// is to end.
fn wait(is_done: impl Fn() -> bool, look: impl Fn()) -> bool {
    for _ in 0..SPINS {
        if is_done() {
            return true;
        }
        std::hint::spin_loop();
    }
    let mut looked = Instant::now();
    while !is_done() {
        if background::asked_to_end() {
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
