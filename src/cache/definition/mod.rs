//! Creating, changing and dropping caches, and declaring their dependencies.

pub mod attach;
pub mod declare;
pub mod default;
pub mod define;
pub mod published;
pub mod routed;
pub mod view;
