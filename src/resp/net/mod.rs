//! The network side of a client's connection: registration with epoll, TLS, the names in certificates, and texts of
//! limited length. Requests are read in `session::connection`, passwords are checked in `auth`. No call on a socket may
//! block here, because it would stop all clients of the network process.

pub mod bounded_text;
pub mod certificate;
pub mod registration;
pub mod tls;
