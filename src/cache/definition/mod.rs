//! Creates, alters and drops caches, attaches tables as caches, and declares dependencies.

pub mod attach;
pub mod declare;
pub mod default;
pub mod define;
pub mod routed;
pub mod view;
