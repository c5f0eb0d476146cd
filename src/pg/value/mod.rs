//! Values with their types: datums, rows, conversions.

pub mod call;
pub mod convert;
pub mod datum;
pub mod entry;
pub mod key_type;
pub mod moment;
pub mod rows;
pub mod stored;
pub mod typed;
