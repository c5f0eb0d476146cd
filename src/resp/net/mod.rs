//! The network side of a client's connection: registration with epoll, TLS, the names in certificates, texts of
//! limited length. It neither reads requests nor checks passwords (`session::connection`, `auth`). No call on a
//! socket may block here, because it would stop all clients of the network process.

pub mod bounded_text;
pub mod certificate;
pub mod registration;
pub mod tls;
