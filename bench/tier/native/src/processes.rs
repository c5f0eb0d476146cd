//! Processes that work at the same time, and what they report.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use crate::draws::Draws;
use crate::shared;
use crate::work::{BATCH, Tier, Work};

/// What the processes tell each other.
struct Board {
    ready: AtomicUsize,
    /// 1: begin; 2: end.
    signal: AtomicUsize,
    done: AtomicU64,
    /// Nanoseconds on a processor.
    busy: AtomicU64,
    waits: AtomicU64,
}

pub struct Found {
    /// In all.
    pub per_second: f64,
    /// On a processor, for one; the load of others on the machine is not in it.
    pub nanoseconds: f64,
    /// How many of them had to wait for a lock.
    pub waits: f64,
}

pub fn measure(tier: &Tier, draws: &Draws, work: Work, processes: usize, time: Duration) -> Found {
    // SAFETY: atomics, for which zeroes are valid.
    let board: &Board = unsafe { &shared::array(1)[0] };
    let children: Vec<i32> =
        (0..processes).map(|number| fork(|| child(board, tier, draws, work, number))).collect();
    while board.ready.load(SeqCst) < processes {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    board.signal.store(1, SeqCst);
    std::thread::sleep(time);
    board.signal.store(2, SeqCst);
    let seconds = began.elapsed().as_secs_f64();
    children.into_iter().for_each(wait);
    let done = board.done.load(SeqCst) as f64;
    Found {
        per_second: done / seconds,
        nanoseconds: board.busy.load(SeqCst) as f64 / done,
        waits: board.waits.load(SeqCst) as f64 / done,
    }
}

fn child(board: &Board, tier: &Tier, draws: &Draws, work: Work, number: usize) {
    let mut draws = draws.from(number);
    let mut next = || std::array::from_fn::<u32, BATCH, _>(|_| draws.next().unwrap_or(0));
    // A new process has touched none of the shared pages yet: that is not what is asked here.
    (0..1500).for_each(|_| tier.run(work, &next()));
    board.ready.fetch_add(1, SeqCst);
    while board.signal.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    let (began, waits, mut done) = (on_processor(), tier.waits(), 0);
    while board.signal.load(SeqCst) == 1 {
        (0..8).for_each(|_| tier.run(work, &next()));
        done += 8 * BATCH as u64;
    }
    board.done.fetch_add(done, SeqCst);
    board.busy.fetch_add(on_processor() - began, SeqCst);
    board.waits.fetch_add(tier.waits() - waits, SeqCst);
}

fn fork(run: impl FnOnce()) -> i32 {
    // SAFETY: this process has one thread; the child ends without returning.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            run();
            libc::_exit(0);
        }
        pid
    }
}

fn wait(pid: i32) {
    let mut status = 0;
    // SAFETY: a child of ours that nobody else waits for.
    let ended = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert!(ended == pid && status == 0, "a process failed");
}

/// Nanoseconds that this process has been on a processor.
fn on_processor() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
