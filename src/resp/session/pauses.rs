//! Runs CLIENT PAUSE, which holds back commands of all clients of the server. A client whose command is held back waits
//! with this command, so that its commands keep their order. Clients whose commands the pause does not cover are not
//! affected.

use std::time::{Duration, Instant};

use pgcache_resp::{Args, Command, Failure, Writer, integer, rule};

use crate::pg::resp::client_registry::{ClientRegistry, Pause};
use crate::pg::session::clock;
use crate::resp::session::{Session, Waits};

/// The longest pause in milliseconds, a limit of Redis.
const LONGEST: i64 = i64::MAX / 4000;

/// The current pause as this network process knows it, and the clients that it holds back.
#[derive(Default)]
pub struct Pauses {
    now: Option<Pause>,
    waiting: Vec<u64>,
}

impl Pauses {
    /// Reads the current pause from the client registry. Returns the clients that resume, and the time at which the
    /// pause ends.
    pub fn look(&mut self, registry: &ClientRegistry) -> (Vec<u64>, Option<Instant>) {
        let said = registry.pause();
        if said.is_none() && self.now.is_none() {
            return (Vec::new(), None);
        }
        let now = clock::now();
        let before = std::mem::replace(&mut self.now, said.filter(|pause| pause.until > now));
        // If a pause of writes follows a pause of all commands, the clients that were held may resume.
        let still_holds = |pause: Pause| pause.all || before.is_some_and(|before| !before.all);
        let goes_on = match self.now {
            Some(pause) if still_holds(pause) => Vec::new(),
            _ => std::mem::take(&mut self.waiting),
        };
        let ends = self.now.and_then(|pause| {
            let left = u64::try_from(pause.until - now).unwrap_or(0);
            Instant::now().checked_add(Duration::from_micros(left))
        });
        (goes_on, ends)
    }

    /// Returns the number of clients that are held back.
    pub fn holds(&self) -> usize {
        self.waiting.len()
    }

    /// Removes a client that has ended.
    pub fn forget(&mut self, id: u64) {
        self.waiting.retain(|waiting| *waiting != id);
    }

    /// Returns whether a pause is in effect, so that commands may be held back.
    pub fn is_on(&self) -> bool {
        self.now.is_some()
    }

    /// Holds a command back, by making its client wait, if the pause covers the command. Returns whether the command is
    /// held back.
    #[inline]
    pub fn hold(&mut self, session: &mut Session, args: Args<'_>) -> bool {
        match self.now {
            None => false,
            Some(pause) => self.hold_by(pause, session, args),
        }
    }

    #[cold]
    fn hold_by(&mut self, pause: Pause, session: &mut Session, args: Args<'_>) -> bool {
        // An invalid request is answered at once, as in Redis.
        let entry = Command::check(args).ok();
        let held = match pause.all {
            true => entry.is_none_or(|entry| !entry.has(rule::UNPAUSED)),
            false => entry.is_some_and(|entry| match entry.has(rule::RUNS_QUEUE) {
                true => session.state.collects_writes(),
                false => entry.may_write(),
            }),
        };
        // A command that has begun continues.
        if !held || session.unfinished.continued.is_some() {
            return false;
        }
        session.wait_for(Waits::Pause);
        self.waiting.push(session.id);
        true
    }
}

/// Runs CLIENT PAUSE. The caller has checked that the client may run it.
pub fn begin(registry: &ClientRegistry, options: Args<'_>, replies: &mut Writer) {
    let mode = options.get(1);
    let all = match mode {
        None => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"all") => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"write") => false,
        Some(_) => return replies.error(&[b"ERR CLIENT PAUSE mode must be WRITE or ALL"]),
    };
    if options.len() > 2 {
        return Failure::Syntax.write(replies);
    }
    match options.get(0).and_then(integer) {
        Some(time) if time < 0 => replies.error(&[b"ERR timeout is negative"]),
        Some(time) if time <= LONGEST => {
            let until = clock::now().saturating_add(time.saturating_mul(1000));
            registry.begin_pause(until.min(i64::MAX / 4), all);
            replies.simple("OK");
        }
        _ => replies.error(&[b"ERR timeout is not an integer or out of range"]),
    }
}

/// Runs CLIENT UNPAUSE. The caller has checked that the client may run it.
pub fn end(registry: &ClientRegistry, replies: &mut Writer) {
    registry.end_pause();
    replies.simple("OK");
}
