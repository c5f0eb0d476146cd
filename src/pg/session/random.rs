//! Random numbers for ids. They are not meant for secrets.

use pgrx::pg_sys;

/// Returns a random fraction above 0 and at most 1.
pub fn fraction() -> f64 {
    (number() + 1) as f64 / (1_u64 << 63) as f64
}

/// Returns a random number below 2^63. Two equal numbers are so unlikely that callers ignore the case.
pub fn number() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: writes eight bytes; on failure (no source of randomness) the clock replaces them.
    let filled = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    let number = match filled {
        true => u64::from_le_bytes(bytes),
        false => crate::pg::session::clock::now() as u64,
    };
    number >> 1
}
