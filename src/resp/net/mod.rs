//! The network side of a client's connection: registration with epoll, TLS, the names in certificates, and texts of
//! limited length. `session::connection` reads requests, and `auth` checks passwords. No call on a socket may block,
//! because it would stop all clients of the network process.

pub mod bounded_text;
pub mod certificate;
pub mod registration;
pub mod tls;
