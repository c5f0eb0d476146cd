//! A pool of servers. It exists because starting a server takes longer than most tests.
//!
//! A test requests a configuration and gets an idle server with it. The server belongs to that test until the test's
//! thread ends. Then [`handback`](crate::handback) checks what the test has left behind. A server that a test stopped,
//! killed or configured is discarded, as is the server of a failed test. If a test passes but leaves something behind,
//! a line in the file `leftovers` says so, and the run fails. A server of the Redis protocol is checked, too, but not
//! reused.
//!
//! libtest gives each test its own thread when it runs two or more tests at a time. So the end of the thread marks the
//! end of the test, even if the test's body has left sessions and handles open.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic;
use std::sync::{Mutex, Once};
use std::thread;

use crate::cluster::Cluster;
use crate::handback::{self, Taken};
use crate::resp::Door;
use crate::stage::Stage;

/// The number of idle servers that the pool keeps. More idle servers would only take memory and processes, because
/// tests seldom request them.
const IDLE: usize = 10;
/// The number of lines of a server's log that a failed test prints.
const LAST_LINES: usize = 40;

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipe {
    /// Whether the server serves the Redis protocol.
    pub(crate) is_door: bool,
    lines: Vec<String>,
}

impl Recipe {
    pub fn server(lines: &[&str]) -> Recipe {
        Recipe::new(false, lines)
    }

    pub fn door(lines: &[&str]) -> Recipe {
        Recipe::new(true, lines)
    }

    fn new(is_door: bool, lines: &[&str]) -> Recipe {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        Recipe { is_door, lines }
    }

    fn start(&self) -> Cluster {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        let cluster = match self.is_door {
            true => Door::server(Cluster::for_pool(&[]), &lines),
            false => Cluster::for_pool(&lines),
        };
        cluster.up();
        cluster
    }
}

/// An idle server, and its state when it was new.
struct Idle {
    recipe: Recipe,
    cluster: &'static Cluster,
    settings: String,
}

/// The idle servers, in the order in which they became idle.
static POOL: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

thread_local! {
    /// The servers that this test has taken.
    static SCOPE: RefCell<Scope> = const { RefCell::new(Scope { test: String::new(), taken: Vec::new() }) };
    /// Whether the test has panicked.
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

struct Scope {
    test: String,
    taken: Vec<Taken>,
}

/// Returns the server of this recipe that the test has already taken, or takes one.
pub fn same(recipe: Recipe) -> &'static Cluster {
    let known = SCOPE.with_borrow(|scope| {
        let mut taken = scope.taken.iter();
        taken
            .find(|taken| taken.recipe.as_ref() == Some(&recipe) && taken.is_same)
            .map(|taken| taken.cluster)
    });
    known.unwrap_or_else(|| take(recipe, true))
}

/// Takes a different server of this recipe.
pub fn another(recipe: Recipe) -> &'static Cluster {
    take(recipe, false)
}

/// Reserves a server for this test until the test ends.
pub fn keep(cluster: Cluster) -> &'static Cluster {
    let cluster = Box::leak(Box::new(cluster));
    cluster.spoil();
    remember(Taken {
        recipe: None,
        is_same: false,
        cluster,
        settings: String::new(),
    });
    cluster
}

fn take(recipe: Recipe, is_same: bool) -> &'static Cluster {
    let idle = {
        let mut pool = POOL.lock().expect("no thread panics with the pool locked");
        let at = pool.iter().rposition(|idle| idle.recipe == recipe);
        at.map(|at| pool.remove(at))
    };
    let (cluster, settings) = match idle {
        Some(idle) => (idle.cluster, idle.settings),
        None => {
            let cluster = &*Box::leak(Box::new(recipe.start()));
            (cluster, handback::settings_of(cluster))
        }
    };
    cluster.taken();
    remember(Taken {
        recipe: Some(recipe),
        is_same,
        cluster,
        settings,
    });
    cluster
}

fn remember(taken: Taken) {
    note_failures();
    SCOPE.with_borrow_mut(|scope| {
        if scope.test.is_empty() {
            scope.test = thread::current().name().unwrap_or("a thread").to_owned();
        }
        scope.taken.push(taken);
    });
}

/// Installs a panic hook that records the failure of a test, because the destructor of a thread-local value cannot see
/// that its thread has panicked.
fn note_failures() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            FAILED.set(true);
            report(what);
        }));
    });
}

impl Drop for Scope {
    /// Returns all servers to the pool, in a separate thread, because no client can be created while this thread's
    /// local values are being destroyed.
    fn drop(&mut self) {
        let (test, taken) = (
            std::mem::take(&mut self.test),
            std::mem::take(&mut self.taken),
        );
        let failed = FAILED.get();
        let done = thread::spawn(move || {
            for taken in taken.into_iter().rev() {
                hand_back(&test, taken, failed);
            }
        });
        if done.join().is_err() {
            report("a thread", "a server could not be handed back");
        }
    }
}

fn hand_back(test: &str, taken: Taken, failed: bool) {
    let left = match failed {
        true => {
            show_log(test, &taken);
            None
        }
        false => handback::find_fault(&taken),
    };
    if let Some(left) = &left {
        report(test, left);
    }
    let Taken {
        recipe: Some(recipe),
        cluster,
        settings,
        ..
    } = taken
    else {
        return taken.cluster.retire();
    };
    // A server of the Redis protocol is not reused, because processes that a test has ended may still be restarting.
    if failed || left.is_some() || cluster.is_spoiled() || recipe.is_door {
        return cluster.retire();
    }
    let oldest = {
        let mut pool = POOL.lock().expect("no thread panics with the pool locked");
        pool.push(Idle {
            recipe,
            cluster,
            settings,
        });
        (pool.len() > IDLE).then(|| pool.remove(0))
    };
    if let Some(oldest) = oldest {
        oldest.cluster.retire();
    }
}

/// Prints the end of the log of a server that a failed test has used.
fn show_log(test: &str, taken: &Taken) {
    let log = taken.cluster.log_text();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LAST_LINES)..);
    let last = last.unwrap_or_default().join("\n");
    eprintln!("the end of the server's log after {test}:\n{last}");
}

/// Reports what a test has left behind, in the file that `make test` reads.
fn report(test: &str, left: &str) {
    let file = Stage::current().run.join("leftovers");
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file)
        .expect("PGCACHE_RUN is writable");
    writeln!(file, "{test}: {left}").expect("PGCACHE_RUN is writable");
}
