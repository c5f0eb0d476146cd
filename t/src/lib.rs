//! Code that the tests with several sessions share: clusters, databases, sessions, and checkers of the results that the
//! sessions received. The tests themselves are in `tests/`, one file for each subject.
//!
//! - [`stage`]: the server under test, from the environment.
//! - [`cluster`], [`template`], [`reaper`], [`upgrade`]: a throwaway cluster, from its creation to its removal, or to
//!   its upgrade to another major version.
//! - [`pool`], [`handback`]: servers that tests use one after the other, and the checks when a test returns its server.
//! - [`database`]: a database for one test, with the extension; [`source`]: a database with a table on which a cache
//!   depends; [`pooler`]: pgbouncer in front of a database.
//! - [`ask`], [`refusal`], [`assert_lines`], [`wait`]: short queries in a session, errors that must occur, comparisons
//!   of long answers, waits for a state.
//! - [`needs`]: the privileges that each function requires of its caller, as a table.
//! - [`catalog`]: the extension's objects in the catalog; [`dump_contents`]: caches of all kinds, and the definitions
//!   and entries that must survive dump, restore and upgrade.
//! - [`tier`]: servers with the hot tier, and checks of its consistency; [`amcheck`]: checks of a table.
//! - [`native`]: modules in C that bring a server into states that SQL cannot reach.
//! - [`history`], [`linear`], [`exclusion`]: checkers without a server, tested with histories that they must reject:
//!   for writes whose order is known, for any writes, and for leases.
//! - [`ways`]: operations that are described once and run through SQL or the Redis protocol.
//! - [`storm`]: SQL sessions and Redis clients at once, and their history.
//! - [`rng`]: random numbers; [`fuzz`], [`fuzz_arguments`]: random calls of every function; [`differential`]: random
//!   statements that must give equal answers in two databases.
//! - [`parallel`]: queries with a parallel plan.
//! - [`resp`]: a server that serves the Redis protocol, and a client for it.
//! - [`readme`], [`reference`]: the claims of README.md and docs/reference.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test reports a failure by a panic"
)]

pub mod amcheck;
pub mod ask;
pub mod assert_lines;
pub mod catalog;
pub mod cluster;
pub mod database;
pub mod differential;
pub mod dump_contents;
pub mod exclusion;
pub mod fuzz;
pub mod fuzz_arguments;
pub mod handback;
pub mod history;
pub mod keys;
pub mod linear;
pub mod native;
pub mod needs;
pub mod network_processes;
pub mod parallel;
pub mod pool;
pub mod pooler;
pub mod readme;
pub mod reaper;
pub mod reference;
pub mod refusal;
pub mod resp;
pub mod rng;
pub mod source;
pub mod stage;
pub mod storm;
pub mod tables;
pub mod template;
pub mod tier;
pub mod upgrade;
pub mod wait;
pub mod ways;
pub mod windows;
