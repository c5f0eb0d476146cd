//! Random numbers for identities; nothing secret depends on them.

use pgrx::pg_sys;

/// A fraction above 0, at most 1.
pub fn fraction() -> f64 {
    (number() + 1) as f64 / (1_u64 << 63) as f64
}

/// A number that will not come twice by chance. Below 2^63.
pub fn number() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: writes eight bytes; on failure (no source of randomness) the clock stands in.
    let filled = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    let number = match filled {
        true => u64::from_le_bytes(bytes),
        false => crate::pg::session::clock::now() as u64,
    };
    number >> 1
}
