//! A back process: does what can wait, for the fronts. It answers questions, each in a transaction of its
//! own, and works on tables. The one of number 0 is the quick lane.

use std::time::Duration;

use super::auth::{self, DecideFailure};
use super::question::{Answer, Question};
use super::work::Bench;
use crate::guc;
use crate::pg::resp::desk::Desk;
use crate::pg::resp::queue::{Kind, Queue};
use crate::pg::worker::{as_role, background, connect};

/// How long the quick lane waits for a lock of a catalog.
const QUICK: Duration = Duration::from_millis(10);
/// After so long without work what was done is reported.
const REPORT: Duration = Duration::from_secs(1);

/// The life of a back.
pub fn run(number: usize) {
    let (Some(queue), Some(desk)) = (Queue::of_server(), Desk::of_server()) else {
        background::end(0);
    };
    let search_path = connect::as_server(queue.database(), c"pgcache resp back");
    reload();
    let mut back = Back {
        number,
        has_slow: number != 0 || guc::resp::backs() == 1,
        bench: Bench::new(number, desk, search_path),
        queue,
    };
    back.queue.begin_back(number, Answer::Failed);
    back.bench.answer_lost(&back.queue);
    while !background::asked_to_end() {
        if background::reload_if_asked() {
            reload();
        }
        back.turn();
    }
    back.queue.end(Kind::Back, number);
    background::end(0);
}

struct Back {
    number: usize,
    /// It takes what may wait.
    has_slow: bool,
    queue: Queue<Question, Answer>,
    bench: Bench,
}

impl Back {
    /// Works until there is nothing to do, and sleeps.
    fn turn(&mut self) {
        self.queue.set_busy(self.number, true);
        if self.has_work() {
            background::show(Some("working for clients of the Redis protocol"));
        }
        while self.work() && !background::asked_to_end() {
            // A cancel is for nobody here, and what else a signal asks for is done.
            let _ = background::obey_interrupts();
            if background::reload_if_asked() {
                reload();
            }
        }
        // What came before this was said is seen by the look after it.
        self.queue.set_busy(self.number, false);
        if self.has_work() || background::asked_to_end() {
            return;
        }
        background::show(None);
        let _ = background::obey_interrupts();
        match self.bench.unreported {
            false => background::rest(),
            true if background::rest_for(REPORT) => {}
            true => {
                background::report_statistics(true);
                self.bench.unreported = false;
            }
        }
    }

    /// One batch, one job, one question; whether there was any.
    fn work(&mut self) -> bool {
        let mut worked = self.number == 0 && self.bench.quick(&self.queue);
        worked |= self.has_slow && self.bench.slow(&self.queue);
        if self.may_answer()
            && let Some(asked) = self.queue.next(self.number, self.has_slow)
        {
            let patience = (!self.has_slow).then_some(QUICK);
            self.queue
                .answer(asked.place, answer(&asked.question, patience));
            worked = true;
        }
        worked
    }

    fn has_work(&self) -> bool {
        self.bench.has_work(self.has_slow)
            || self.may_answer() && self.queue.is_asked(self.has_slow)
    }

    /// Whether it takes questions now: the quick one only where no other can, and none with a password.
    fn may_answer(&self) -> bool {
        self.has_slow || !self.queue.has_idle_slow()
    }
}

/// Reads pg_hba.conf. Where that fails nobody comes in, or the lines that were read before count.
fn reload() {
    if let Err(error) = background::in_transaction(auth::reload) {
        error.warn(
            "the Redis protocol could not read pg_hba.conf".into(),
            "Mend it and reload the configuration.",
        );
    }
}

/// An error ends the transaction, not the process.
fn answer(question: &Question, patience: Option<Duration>) -> Answer {
    let work = || match question {
        Question::Authenticate {
            user,
            password,
            peer,
            certificate,
        } => {
            let password = password.as_ref().map(|password| password.as_bytes());
            Answer::Authenticated(auth::authenticate(
                user.as_bytes(),
                password,
                peer,
                certificate.as_ref(),
            ))
        }
        Question::Decide { role, cache } => Answer::Decided(auth::decide(*role, cache.as_bytes())),
        Question::Powers { role } => Answer::Powers(auth::powers(*role)),
    };
    let ask = || match patience {
        None => background::in_transaction(work),
        Some(patience) => as_role::within(patience, || background::in_transaction(work)),
    };
    // Whoever cancels means no client of ours: once more.
    let done = ask().or_else(|failure| match failure.cancelled && !failure.locked {
        true => ask(),
        false => Err(failure),
    });
    done.unwrap_or_else(|failure| match question {
        Question::Decide { .. } if failure.locked => Answer::Decided(Err(DecideFailure::Locked)),
        _ => Answer::Failed,
    })
}
