//! TODO

pub mod bounded_text;
pub mod certificate;
pub mod registration;
pub mod tls;
