//! The client registry: the clients of the Redis protocol, and the counters of its network processes, in shared
//! memory where all sessions can read them.
//!
//! The registry contains no keys and no values, and its only effect on a client is a request to end. A place belongs to
//! the network process that claimed it. Only the owner writes the facts in a place, without a lock: during a write the
//! version of the place is odd, and a reader that finds the version odd or changed reads again.
//!
//! A network process that ends leaves its places and counters behind. Its successor, which has the same number,
//! frees the places and continues the counters.

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
