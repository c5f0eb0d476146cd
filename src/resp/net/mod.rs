//! The network side of one connection, without any command: poll registration, TLS, and the names in a client's
//! certificate.
//!
//! It knows no session and no role. `bounded_text` holds texts of a bounded length for shared memory, too.

pub mod bounded_text;
pub mod certificate;
pub mod registration;
pub mod tls;
