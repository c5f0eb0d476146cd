//! The arithmetic of INCRBYFLOAT and INCREX, with the same results as Redis. Redis computes with the 80-bit
//! floating-point numbers of x86, for which Rust has no type.
//!
//! A number is a mantissa of 64 bits times a power of two. Input is rounded correctly to this form, sums are rounded to
//! the nearest number (ties to even), and output has the 17 decimal places of C's `%.17Lf`, without trailing zeros. C's
//! hexadecimal numbers are not accepted.

use crate::redis_error::Failure;

/// The maximum length of a number's text in Redis, including the byte that ends it.
const LONGEST: usize = 5 * 1024;
/// All numbers are below two to this power.
const LARGEST: i64 = 16_384;
/// The smallest number above zero is two to this power.
const LEAST: i64 = -16_445;
/// The number of decimal places of the output.
const PLACES: usize = 17;
/// Ten to the power of [`PLACES`].
const SCALE: u128 = 100_000_000_000_000_000;

/// The number `mantissa * 2^exponent`. The mantissa is zero or has its top bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Float {
    negative: bool,
    mantissa: u64,
    exponent: i64,
}

/// Returns the sum of the current value and the argument of INCRBYFLOAT.
pub fn add_floats(value: &[u8], by: &[u8]) -> Result<String, Failure<'static>> {
    let (value, by) = (read(value)?, read(by)?);
    match (value, by) {
        (Some(value), Some(by)) => {
            let sum = add(value, by);
            match sum.is_infinite() {
                true => Err(Failure::NotFinite),
                false => Ok(write(sum)),
            }
        }
        _ => Err(Failure::NotFinite),
    }
}

/// A number to add, and the bounds for the sum.
#[derive(Clone, Copy, Debug)]
pub struct FloatSum {
    by: Float,
    lower: Float,
    upper: Float,
}

/// The result of an addition within bounds.
#[derive(Debug, PartialEq, Eq)]
pub struct Summed {
    /// The new value, or the former value if the sum was out of bounds.
    pub value: String,
    /// The number that was added.
    pub applied: String,
    pub is_new: bool,
}

impl FloatSum {
    /// Parses the number and the bounds.
    pub fn read(
        by: &[u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<FloatSum, Failure<'static>> {
        let bound = |text: Option<&[u8]>, name, negative| match text.map(read) {
            None => Ok(Float {
                negative,
                ..LARGEST_FLOAT
            }),
            Some(Ok(Some(bound))) => Ok(bound),
            Some(_) => Err(Failure::BoundNotFloat(name)),
        };
        let sum = FloatSum {
            by: read(by)?.ok_or(Failure::NotFinite)?,
            lower: bound(lower, "LBOUND", true)?,
            upper: bound(upper, "UBOUND", false)?,
        };
        match sum.lower.is_above(sum.upper) {
            true => Err(Failure::Bounds),
            false => Ok(sum),
        }
    }

    /// Adds the number to a value. If the sum is outside the bounds, the result is the bound if `saturates` is true;
    /// otherwise the value stays unchanged.
    pub fn of(&self, value: &[u8], saturates: bool) -> Result<Summed, Failure<'static>> {
        let former = read(value)?.ok_or(Failure::NotFinite)?;
        let sum = add(former, self.by);
        let within = match () {
            () if sum.is_above(self.upper) => self.upper,
            () if self.lower.is_above(sum) => self.lower,
            () => sum,
        };
        if within == sum {
            return Ok(Summed {
                value: write(sum),
                applied: write(self.by),
                is_new: true,
            });
        }
        if !saturates {
            return Ok(Summed {
                value: write(former),
                applied: "0".into(),
                is_new: false,
            });
        }
        let applied = add(within, former.negated());
        match applied.is_infinite() {
            true => Err(Failure::NotFinite),
            false => Ok(Summed {
                value: write(within),
                applied: write(applied),
                is_new: true,
            }),
        }
    }
}

/// The largest number.
const LARGEST_FLOAT: Float = Float {
    negative: false,
    mantissa: u64::MAX,
    exponent: LARGEST - 64,
};

impl Float {
    fn negated(self) -> Float {
        Float {
            negative: !self.negative,
            ..self
        }
    }

    fn is_infinite(self) -> bool {
        self.exponent + 64 > LARGEST && self.mantissa != 0
    }

    fn is_above(self, other: Float) -> bool {
        let is_positive = |float: Float| float.mantissa != 0 && !float.negative;
        let is_negative = |float: Float| float.mantissa != 0 && float.negative;
        let size = |float: Float| (float.exponent, float.mantissa);
        match () {
            () if is_positive(self) && is_positive(other) => size(self) > size(other),
            () if is_negative(self) && is_negative(other) => size(self) < size(other),
            () => {
                is_positive(self) && !is_positive(other) || is_negative(other) && !is_negative(self)
            }
        }
    }
}

/// Parses a number as C's `strtold` does, but accepts nothing after the number. Returns None for infinity.
fn read(text: &[u8]) -> Result<Option<Float>, Failure<'static>> {
    let refused = Err(Failure::NotFloat);
    if text.len() >= LONGEST {
        return refused;
    }
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Ok(None);
    }
    let Some((digits, power)) = decimal(rest) else {
        return refused;
    };
    match round(&digits, power) {
        Some(float) => Ok(Some(Float { negative, ..float })),
        None => refused,
    }
}

/// Returns the digits of a decimal number without leading zeros, and the power of ten of the last digit; None if the
/// text is not a decimal number.
fn decimal(text: &[u8]) -> Option<(Vec<u8>, i64)> {
    let end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (number, exponent) = match end {
        Some(at) => (text.get(..at)?, power(text.get(at + 1..)?)?),
        None => (text, 0),
    };
    let point = number.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (number.get(..at)?, number.get(at + 1..)?),
        None => (number, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut digits = Vec::with_capacity(number.len());
    for byte in whole.iter().chain(fraction) {
        match byte {
            b'0' if digits.is_empty() => {}
            b'0'..=b'9' => digits.push(byte - b'0'),
            _ => return None,
        }
    }
    Some((digits, exponent - fraction.len() as i64))
}

/// Parses the power of ten after an `e`. Any power far beyond the range is parsed as a power out of range, however many
/// digits it has.
fn power(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0, |size: i64, digit| {
        (size * 10 + i64::from(digit - b'0')).min(1 << 40)
    });
    Some(if negative { -size } else { size })
}

/// Returns the number nearest to `digits * 10^power`. Returns None if it is too large, or too small to be distinguished
/// from zero.
fn round(digits: &[u8], power: i64) -> Option<Float> {
    let zero = Float {
        negative: false,
        mantissa: 0,
        exponent: 0,
    };
    if digits.is_empty() {
        return Some(zero);
    }
    // Ten to a power outside these bounds is out of range, so it need not be computed.
    let tens = digits.len() as i64 + power;
    if !(-5_000..5_000).contains(&tens) {
        return None;
    }
    let (mut above, mut below) = (Big::of(digits), Big::one());
    match usize::try_from(power) {
        Ok(power) => above.times_ten_to(power),
        Err(_) => below.times_ten_to(power.unsigned_abs() as usize),
    }
    // Shifts so that the quotient has two or three bits more than the result keeps.
    let shift = 66 - (above.bits() as i64 - below.bits() as i64);
    match usize::try_from(shift) {
        Ok(shift) => above.shift(shift),
        Err(_) => below.shift(shift.unsigned_abs() as usize),
    }
    let (quotient, is_exact) = divide(above, &below);
    rounded(quotient, !is_exact, -shift)
}

/// Rounds a number to its 64 top bits. `more` says whether nonzero bits follow below its last bit. Returns None if the
/// result is out of range.
fn rounded(bits: u128, more: bool, exponent: i64) -> Option<Float> {
    let float = nearest(bits, more, exponent);
    let top = float.exponent + 64;
    let fits = top <= LARGEST && top > LEAST - 1;
    (float.mantissa == 0 || fits).then_some(float)
}

fn nearest(bits: u128, more: bool, exponent: i64) -> Float {
    let length = 128 - i64::from(bits.leading_zeros());
    let surplus = (length - 64).max(0);
    let kept = bits >> surplus;
    let (rest, half) = match surplus {
        0 => (0, 1),
        _ => (bits & ((1 << surplus) - 1), 1 << (surplus - 1)),
    };
    let up = rest > half || rest == half && (more || kept & 1 == 1);
    let mut mantissa = kept + u128::from(up);
    let mut exponent = exponent + surplus;
    if mantissa >> 64 != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    let mantissa = mantissa as u64;
    if mantissa == 0 {
        exponent = 0;
    }
    let lift = if mantissa == 0 {
        0
    } else {
        mantissa.leading_zeros()
    };
    Float {
        negative: false,
        mantissa: mantissa << lift,
        exponent: exponent - i64::from(lift),
    }
}

fn add(one: Float, other: Float) -> Float {
    let (large, small) = match (one.mantissa, other.mantissa) {
        (_, 0) => return one,
        (0, _) => return other,
        _ if (one.exponent, one.mantissa) >= (other.exponent, other.mantissa) => (one, other),
        _ => (other, one),
    };
    // Keeps 63 bits below the last bit of the larger number, and one bit above for the sum.
    let wide = |float: Float| u128::from(float.mantissa) << 63;
    let distance = large.exponent - small.exponent;
    let (shifted, lost) = match distance {
        0..127 => (
            wide(small) >> distance,
            wide(small) & ((1 << distance) - 1) != 0,
        ),
        _ => (0, true),
    };
    let sum = match large.negative == small.negative {
        true => wide(large) + shifted,
        // The lost bits are part of the number to subtract. So the difference is one less, plus a fraction, which
        // `lost` reports.
        false => wide(large) - shifted - u128::from(lost),
    };
    let float = nearest(sum, lost, large.exponent - 63);
    Float {
        negative: large.negative,
        ..float
    }
}

/// Returns a number as text with 17 decimal places, without trailing zeros, and without a minus sign before a zero.
fn write(float: Float) -> String {
    let (whole, places) = match usize::try_from(float.exponent) {
        Ok(exponent) => {
            let mut whole = Big::of_bits(float.mantissa);
            whole.shift(exponent);
            (whole.decimal(), 0)
        }
        Err(_) => {
            let scaled = scaled(float.mantissa, float.exponent.unsigned_abs());
            ((scaled / SCALE).to_string(), scaled % SCALE)
        }
    };
    let fraction = format!("{places:0PLACES$}");
    let fraction = fraction.trim_end_matches('0');
    let sign = if float.negative && !(whole == "0" && fraction.is_empty()) {
        "-"
    } else {
        ""
    };
    match fraction {
        "" => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{fraction}"),
    }
}

/// Returns `mantissa / 2^below` in units of the last decimal place, rounded to the nearest unit.
fn scaled(mantissa: u64, below: u64) -> u128 {
    let all = u128::from(mantissa) * SCALE; // 121 bits
    if below >= 127 {
        return 0;
    }
    let (kept, rest, half) = (all >> below, all & ((1 << below) - 1), 1 << (below - 1));
    kept + u128::from(rest > half || rest == half && kept & 1 == 1)
}

/// An integer of any size: 32-bit words, the lowest first, without zero words at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Big(Vec<u32>);

impl Big {
    fn one() -> Self {
        Self(vec![1])
    }

    fn of_bits(bits: u64) -> Self {
        let mut big = Self(vec![bits as u32, (bits >> 32) as u32]);
        big.trim();
        big
    }

    fn of(digits: &[u8]) -> Self {
        let mut big = Self(Vec::new());
        for nine in digits.chunks(9) {
            let number = nine
                .iter()
                .fold(0, |number, digit| number * 10 + u32::from(*digit));
            big.times_and(10_u32.pow(nine.len() as u32), number);
        }
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn times_and(&mut self, by: u32, plus: u32) {
        let mut carry = u64::from(plus);
        for word in &mut self.0 {
            let product = u64::from(*word) * u64::from(by) + carry;
            *word = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_ten_to(&mut self, power: usize) {
        for _ in 0..power / 9 {
            self.times_and(1_000_000_000, 0);
        }
        self.times_and(10_u32.pow((power % 9) as u32), 0);
    }

    fn bits(&self) -> usize {
        let top = self
            .0
            .last()
            .map_or(0, |word| word.leading_zeros() as usize);
        self.0.len() * 32 - top
    }

    fn shift(&mut self, by: usize) {
        if self.0.is_empty() {
            return;
        }
        let (words, bits) = (by / 32, (by % 32) as u32);
        self.times_and(1 << bits, 0);
        self.0.splice(0..0, std::iter::repeat_n(0, words));
    }

    fn is_at_least(&self, other: &Self) -> bool {
        let by_words = || self.0.iter().rev().cmp(other.0.iter().rev());
        self.0.len().cmp(&other.0.len()).then_with(by_words).is_ge()
    }

    fn minus(&mut self, other: &Self) {
        let mut borrow = 0;
        let others = other.0.iter().chain(std::iter::repeat(&0));
        for (word, other) in self.0.iter_mut().zip(others) {
            let difference = i64::from(*word) - i64::from(*other) - borrow;
            *word = difference as u32;
            borrow = i64::from(difference < 0);
        }
        self.trim();
    }

    fn decimal(mut self) -> String {
        let mut nines = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0;
            for word in self.0.iter_mut().rev() {
                let number = rest << 32 | u64::from(*word);
                *word = (number / 1_000_000_000) as u32;
                rest = number % 1_000_000_000;
            }
            self.trim();
            nines.push(rest);
        }
        let mut text = nines.pop().unwrap_or(0).to_string();
        for nine in nines.iter().rev() {
            text.push_str(&format!("{nine:09}"));
        }
        text
    }
}

/// Returns a quotient of at most 67 bits, and whether the division is exact.
fn divide(mut above: Big, below: &Big) -> (u128, bool) {
    let mut quotient = 0;
    let steps = 1 + above.bits().saturating_sub(below.bits());
    let mut shifted = below.clone();
    shifted.shift(steps - 1);
    for step in 0..steps {
        quotient <<= 1;
        if above.is_at_least(&shifted) {
            above.minus(&shifted);
            quotient |= 1;
        }
        if step + 1 < steps {
            shifted.halve();
        }
    }
    (quotient, above.0.is_empty())
}

impl Big {
    fn halve(&mut self) {
        let mut carry = 0;
        for word in self.0.iter_mut().rev() {
            let low = *word & 1;
            *word = *word >> 1 | carry << 31;
            carry = low;
        }
        self.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(value: &str, by: &str) -> String {
        add_floats(value.as_bytes(), by.as_bytes()).unwrap_or_else(|failure| format!("{failure:?}"))
    }

    #[test]
    fn sums_are_those_of_redis() {
        for (value, by, expected) in [
            ("0", "0", "0"),
            ("10.5", "0.1", "10.6"),
            ("10.6", "-5", "5.6"),
            ("5.0e3", "200", "5200"),
            ("3.0e3", "1.5", "3001.5"),
            ("-0", "0", "0"),
            ("1", "-1", "0"),
            ("-1.5", "1", "-0.5"),
            ("1e17", "1", "100000000000000001"),
            ("0.00000000000000001", "0", "0.00000000000000001"),
            ("0.000000000000000001", "0", "0"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("36893488147419103233", "0", "36893488147419103232"),
            ("1e30", "0", "1000000000000000000024696061952"),
            (".5", "1.", "1.5"),
            ("+1", "1E0", "2"),
        ] {
            assert_eq!(sum(value, by), expected, "{value} + {by}");
        }
    }

    #[test]
    fn sums_stay_within_bounds() {
        let largest = write(LARGEST_FLOAT);
        let within = |value: &str, by: &str, bounds: [&str; 2], saturates| {
            let [lower, upper] =
                bounds.map(|text| Some(text.as_bytes()).filter(|text| !text.is_empty()));
            let sum = FloatSum::read(by.as_bytes(), lower, upper);
            match sum.and_then(|sum| sum.of(value.as_bytes(), saturates)) {
                Ok(summed) => format!("{} {} {}", summed.value, summed.applied, summed.is_new),
                Err(failure) => format!("{failure:?}"),
            }
        };
        for (value, by, bounds, kept, saturated) in [
            ("1.5", "0.25", ["", ""], "1.75 0.25 true", "1.75 0.25 true"),
            ("1.50", "1", ["", "2"], "1.5 0 false", "2 0.5 true"),
            ("1", "1", ["-5", "2"], "2 1 true", "2 1 true"),
            ("1", "-3", ["-1.5", ""], "1 0 false", "-1.5 -2.5 true"),
            ("-1", "1", ["0", "0"], "0 1 true", "0 1 true"),
            ("5", "-1", ["", "-1"], "5 0 false", "-1 -6 true"),
            ("1000", "-1", ["", "200"], "1000 0 false", "200 -800 true"),
            ("-7", "1", ["-3", "-2"], "-7 0 false", "-3 4 true"),
            ("0", "0", ["2", "1"], "Bounds", "Bounds"),
            ("0", "inf", ["", ""], "NotFinite", "NotFinite"),
            ("0", "x", ["", ""], "NotFloat", "NotFloat"),
            ("x", "1", ["", ""], "NotFloat", "NotFloat"),
            (
                "0",
                "1",
                ["x", ""],
                "BoundNotFloat(\"LBOUND\")",
                "BoundNotFloat(\"LBOUND\")",
            ),
            (
                "0",
                "1",
                ["", "inf"],
                "BoundNotFloat(\"UBOUND\")",
                "BoundNotFloat(\"UBOUND\")",
            ),
        ] {
            assert_eq!(
                within(value, by, bounds, false),
                kept,
                "{value} {by} {bounds:?}"
            );
            assert_eq!(
                within(value, by, bounds, true),
                saturated,
                "{value} {by} {bounds:?}"
            );
        }
        assert_eq!(
            within(&largest, &largest, ["", ""], true),
            format!("{largest} 0 true")
        );
        assert_eq!(
            within(&largest, &largest, ["", ""], false),
            format!("{largest} 0 false")
        );
        let least = format!("-{largest}");
        assert_eq!(within(&least, "1", [&largest, ""], true), "NotFinite");
    }

    #[test]
    fn texts_that_are_no_number_are_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "e1",
            ".",
            "1e",
            "1e+",
            "--1",
            "0x10",
            "1_0",
            "1,5",
            "nan",
            "1\0",
            "1e99999999999999999999",
        ] {
            assert_eq!(sum(text, "1"), "NotFloat", "{text:?}");
        }
        assert_eq!(sum("inf", "1"), "NotFinite");
    }

    #[test]
    #[cfg_attr(miri, ignore = "numbers of thousands of digits take Miri minutes")]
    fn numbers_out_of_range_are_refused() {
        for text in ["1e5000", "1e-5000", &"9".repeat(LONGEST)] {
            assert_eq!(sum(text, "1"), "NotFloat", "{text:?}");
        }
        assert_eq!(sum("1e4932", "1e4932"), "NotFinite");
    }
}
