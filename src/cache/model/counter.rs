//! Reads and adds counters: the decimal integers that `cache_incr` and rate limits store as values.

use crate::error::Error;
use crate::pg::value::datum::Text;

/// Reads a counter: a decimal integer without blanks, plus sign or exponent. Raises 22P02 for any other text, and 22003
/// if the number is beyond the range of bigint.
pub fn parse(bytes: &[u8]) -> Result<i64, Error> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Error::NotAnInteger);
    }
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Error::CounterOverflow)
}

/// Returns `counter + delta`; a missing counter, or a counter without a value, counts as 0.
pub fn add(counter: Option<&[u8]>, delta: i64) -> Result<i64, Error> {
    let former = counter.map_or(Ok(0), parse)?;
    former.checked_add(delta).ok_or(Error::CounterOverflow)
}

/// Returns the text of `counter + delta`.
pub fn sum(counter: Option<Text>, delta: i64) -> Result<Text, Error> {
    let sum = add(counter.as_ref().map(|counter| counter.bytes()), delta)?;
    Ok(Text::new(sum.to_string().as_bytes()))
}
