//! SQL values and their types: arguments and results of functions, keys, deadlines, rows, and conversions.

pub mod call;
pub mod convert;
pub mod datum;
pub mod key_type;
pub mod moment;
pub mod rows;
pub mod stored;
pub mod typed;
