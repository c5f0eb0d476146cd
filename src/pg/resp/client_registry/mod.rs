//! The client registry: the clients of the Redis protocol and the counters of its network processes, in shared memory
//! for all sessions to see.
//!
//! It holds no key and no value, and decides nothing except which clients are to end. A place belongs to the network
//! process that has claimed it. That process alone writes the place, without a lock: the version is odd meanwhile,
//! and a reader that finds it changed starts again.
//!
//! A network process that ends leaves places and counters. Its successor, which has the same number, frees the places
//! and continues the counters.

mod claims;
mod clients;
mod counters;
mod layout;
mod pause;
mod place;
mod processes;

pub use claims::Claimed;
pub use counters::Now;
pub use layout::{ClientRegistry, Counter, Counters, bytes};
pub use pause::Pause;
pub use place::Shown;
pub use processes::LoggedIn;
