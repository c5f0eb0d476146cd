//! Runs several processes at the same time, and collects their measurements.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use super::work::{BATCH, Tier, Work};
use super::{from, shared};
use crate::Result;

/// The shared memory through which the processes coordinate.
struct Board {
    ready: AtomicUsize,
    /// 1 makes the processes begin, 2 makes them end.
    signal: AtomicUsize,
    done: AtomicU64,
    /// The processor time of all processes, in nanoseconds.
    busy: AtomicU64,
    waits: AtomicU64,
}

pub struct Found {
    /// The operations per second of all processes together.
    pub per_second: f64,
    /// The processor time of one operation. It does not depend on other programs' load on the machine.
    pub nanoseconds: f64,
    /// The number of waits for a lock, per operation.
    pub waits: f64,
}

pub fn measure(tier: &Tier, draws: &[u32], work: Work, processes: usize, time: Duration) -> Result<Found> {
    // SAFETY: a `Board` consists of atomics, which are valid as zeroes and may be used by several processes.
    let board: &Board = unsafe { &shared::array(1)?[0] };
    let children: Vec<i32> = (0..processes)
        .map(|number| fork(|| child(board, tier, draws, work, number)))
        .collect::<Result<_>>()?;
    while board.ready.load(SeqCst) < processes {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    board.signal.store(1, SeqCst);
    std::thread::sleep(time);
    board.signal.store(2, SeqCst);
    let seconds = began.elapsed().as_secs_f64();
    children.into_iter().try_for_each(wait)?;
    let done = board.done.load(SeqCst) as f64;
    Ok(Found {
        per_second: done / seconds,
        nanoseconds: board.busy.load(SeqCst) as f64 / done,
        waits: board.waits.load(SeqCst) as f64 / done,
    })
}

fn child(board: &Board, tier: &Tier, draws: &[u32], work: Work, number: usize) {
    let mut draws = from(draws, number);
    let mut next = || std::array::from_fn::<u32, BATCH, _>(|_| draws.next().unwrap_or(0));
    // The warm-up touches the shared pages, because a new process maps each page at its first use.
    (0..1500).for_each(|_| tier.run(work, &next()));
    board.ready.fetch_add(1, SeqCst);
    while board.signal.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    let (began, waits, mut done) = (on_processor(), tier.waits(), 0);
    loop {
        (0..8).for_each(|_| tier.run(work, &next()));
        done += 8 * BATCH as u64;
        if board.signal.load(SeqCst) != 1 {
            break;
        }
    }
    board.done.fetch_add(done, SeqCst);
    board.busy.fetch_add(on_processor() - began, SeqCst);
    board.waits.fetch_add(tier.waits() - waits, SeqCst);
}

fn fork(run: impl FnOnce()) -> Result<i32> {
    // SAFETY: this process has one thread in the mode `scaling`, so the child finds no lock taken; it ends without
    // returning.
    unsafe {
        let pid = libc::fork();
        if pid < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if pid == 0 {
            run();
            libc::_exit(0);
        }
        Ok(pid)
    }
}

fn wait(pid: i32) -> Result<()> {
    let mut status = 0;
    // SAFETY: the status belongs to this function; no other thread waits for the child process.
    let ended = unsafe { libc::waitpid(pid, &mut status, 0) };
    if ended == pid && status == 0 { Ok(()) } else { Err("a process failed".into()) }
}

/// Returns this process's processor time in nanoseconds.
fn on_processor() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: every Linux has this clock, and the time belongs to this function.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
