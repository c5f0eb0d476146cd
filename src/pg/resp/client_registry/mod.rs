//! The client registry: a shared-memory list of the Redis clients, with a place for each client, and the counters of
//! the network processes. All sessions can read it.
//!
//! The registry contains no keys and no values, and its only effect on a client is a request to disconnect it. A place
//! belongs to the network process that claimed it. Only this process writes the client's information, and takes no
//! lock: during a write the version of the place is odd, and a reader that finds the version odd or changed reads
//! again.
//!
//! A network process that ends leaves its places and counters behind. Its successor, which has the same index, frees
//! the places and continues the counters.

mod claims;
mod client_pause;
mod counters;
mod list_and_kill;
mod network_processes;
mod place;
mod registry_layout;

pub use claims::Claimed;
pub use client_pause::Pause;
pub use counters::Now;
pub use network_processes::LoggedIn;
pub use place::Shown;
pub use registry_layout::{ClientRegistry, Counter, Counters, bytes};
