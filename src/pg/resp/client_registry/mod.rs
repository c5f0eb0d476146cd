//! The client registry: the clients of the Redis protocol, and what was counted, for all sessions to see.
//!
//! What it is not: nothing is decided by it but who is to be ended. A place belongs to the network process that
//! has claimed it, which alone writes it, without a lock: its number is odd meanwhile, and who reads
//! begins again when it has changed. No key and no value comes here.
//!
//! A network process that ends leaves places and figures: its successor, which has the same number, gives the
//! places back and goes on counting from the figures.

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
