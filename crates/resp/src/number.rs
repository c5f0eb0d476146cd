//! Parses and formats integers in Redis' format, in which each integer has exactly one spelling: no blanks, no plus
//! sign, no leading zeros.

/// Parses a 64-bit integer in exactly this format; returns None for any other text.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) || digits.len() > 19 {
        return None;
    }
    let mut size: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits are at most 9,999,999,999,999,999,999, which fits in 64 bits.
        size = size * 10 + u64::from(digit - b'0');
    }
    match negative {
        true if size <= i64::MIN.unsigned_abs() => Some((size as i64).wrapping_neg()),
        false if size <= i64::MAX as u64 => Some(size as i64),
        _ => None,
    }
}

/// Parses a cursor of SCAN, a nonnegative integer, as Redis has done since 7.4. Parses any other text as `strtoull`
/// does, which accepts leading blanks, a sign and leading zeros, and stops at a NUL. Returns None if the text has no
/// digits, has another character, or exceeds 64 bits.
pub(crate) fn cursor(text: &[u8]) -> Option<u64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if let Some(value) = integer(text) {
        return u64::try_from(value).ok();
    }
    let blanks = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().take_while(|byte| blanks(byte)).count();
    let (negative, digits) = match text.split_at(start).1 {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut size: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        size = size.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(if negative { size.wrapping_neg() } else { size })
}

/// An integer as text, without an allocation.
pub struct Digits(itoa::Buffer);

impl Default for Digits {
    fn default() -> Self {
        Self::new()
    }
}

impl Digits {
    pub fn new() -> Self {
        Self(itoa::Buffer::new())
    }

    pub fn of(&mut self, number: i64) -> &[u8] {
        self.0.format(number).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_one_way_to_be_written() {
        let taken: [(&[u8], i64); 7] = [
            (b"0", 0),
            (b"7", 7),
            (b"-1", -1),
            (b"1234567890123456789", 1_234_567_890_123_456_789),
            (b"9223372036854775807", i64::MAX),
            (b"-9223372036854775808", i64::MIN),
            (b"-9223372036854775807", -i64::MAX),
        ];
        for (text, number) in taken {
            assert_eq!(integer(text), Some(number));
        }
        let refused: [&[u8]; 14] = [
            b"",
            b"-",
            b"-0",
            b"00",
            b"01",
            b"+1",
            b" 1",
            b"1 ",
            b"1.0",
            b"1e3",
            b"9223372036854775808",
            b"-9223372036854775809",
            b"99999999999999999999",
            b"1\0",
        ];
        for text in refused {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_cursor_is_any_number_that_strtoull_takes_but_no_negative_one() {
        let taken: [(&[u8], u64); 12] = [
            (b"0", 0),
            (b"7", 7),
            (b"007", 7),
            (b"-0", 0),
            (b"+1", 1),
            (b" 1", 1),
            (b"\t\n\x0b\x0c\r 1", 1),
            (b"1\0x", 1),
            (b"18446744073709551615", u64::MAX),
            // These texts are not integers, so they go to strtoull, which negates them.
            (b" -1", u64::MAX),
            (b"-01", u64::MAX),
            (b"-9223372036854775809", i64::MAX as u64),
        ];
        for (text, value) in taken {
            assert_eq!(cursor(text), Some(value), "{text:?}");
        }
        let refused: [&[u8]; 12] = [
            b"",
            b" ",
            b"\0",
            b"-1",
            b"-9223372036854775808",
            b"18446744073709551616",
            b"-",
            b"+",
            b" -",
            b"1x",
            b"1 ",
            b"x",
        ];
        for text in refused {
            assert_eq!(cursor(text), None, "{text:?}");
        }
    }
}
