//! The network process: one thread that owns client connections and never waits for a table or a lock.
//!
//! - `event_loop` polls sockets and wakes clients.
//! - `serve` runs one client's requests within a bound of time.
//! - `accept` accepts connections, with `listen` (listeners) and `balance` (the choice of a process); `handshake` begins
//!   TLS.

mod accept;
mod balance;
pub mod event_loop;
mod handshake;
mod listen;
mod serve;
