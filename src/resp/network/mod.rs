//! The network process: one thread that owns client connections and never waits for a table or a lock.
//!
//! - `event_loop` polls sockets and wakes clients.
//! - `serve` runs one client's requests within a bound of time.
//! - `listen`, `balance`, `handshake` accept a connection: listeners, the choice of a process, TLS.

mod balance;
pub mod event_loop;
mod handshake;
mod listen;
mod serve;
