//! Making, changing and dropping caches, and declaring what they depend on.

pub mod attach;
pub mod declare;
pub mod default;
pub mod define;
pub mod routed;
pub mod view;
