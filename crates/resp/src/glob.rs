//! Matches the patterns of KEYS, SCAN MATCH and PSUBSCRIBE as Redis does: `*`, `?`, `[a-c]`, `[^a]`, `\x`.
//!
//! Each star first tries the shortest match. Backtracking to the last star is enough: the last star can match any text
//! that an earlier star could match in addition. So the time is at most the product of the lengths of pattern and text,
//! whereas a matcher that backtracks to all stars takes exponential time on `*a*a*a*b`.
//!
//! Pattern and text may be megabytes long. Even the product of such lengths means hours, during which one client would
//! block all other clients. So a comparison reads a limited number of bytes, far more than any useful pattern needs. If
//! it reaches the limit, the pattern counts as not matching.

/// The number of bytes of the pattern that a comparison may read, besides `LOOKS_A_BYTE`.
const LOOKS: usize = 64 << 10;
/// The additional number of bytes for each byte of the text.
const LOOKS_A_BYTE: usize = 8;

/// Returns whether `text` matches `pattern`, byte by byte.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut left = usize::MAX;
    matches_within(pattern, text, &mut left).unwrap_or(false)
}

/// Returns whether `text` matches `pattern`, for one of many comparisons that together may read `left` bytes. Returns
/// None if these bytes are used up.
pub fn matches_within(pattern: &[u8], text: &[u8], left: &mut usize) -> Option<bool> {
    let bound = LOOKS + LOOKS_A_BYTE * text.len();
    let (matched, looks) = compare(pattern, text, bound.min(*left));
    let is_cut = matched.is_none() && *left <= bound;
    *left -= looks;
    if is_cut {
        *left = 0;
        return None;
    }
    Some(matched.unwrap_or(false))
}

/// Compares pattern and text. Returns whether they match, or None if the comparison needs more than `most` bytes; also
/// returns the number of bytes read.
fn compare(pattern: &[u8], text: &[u8], most: usize) -> (Option<bool>, usize) {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    let mut looks = 0;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            if p == pattern.len() {
                return (Some(true), looks);
            }
            star = Some((p, t));
            continue;
        }
        let Some(&byte) = text.get(t) else {
            return (Some(p >= pattern.len()), looks);
        };
        // A class may be as long as a request, so only the part that may be read is searched.
        let end = pattern.len().min(p + (most - looks) + 1);
        let (length, matched) = one(pattern.get(p..end).unwrap_or_default(), byte);
        if looks + length.max(1) > most {
            return (None, looks);
        }
        looks += length.max(1);
        match matched {
            true => (p, t) = (p + length, t + 1),
            false => match star {
                Some((after, from)) => {
                    (p, t) = (after, from + 1);
                    star = Some((p, t));
                }
                None => return (Some(false), looks),
            },
        }
    }
}

/// Returns the length of the pattern's first element, and whether it matches this byte.
fn one(pattern: &[u8], byte: u8) -> (usize, bool) {
    match *pattern {
        [] => (0, false),
        [b'?', ..] => (1, true),
        [b'[', ref class @ ..] => {
            let (length, matched) = in_class(class, byte);
            (1 + length, matched)
        }
        [b'\\', escaped, ..] => (2, escaped == byte),
        [plain, ..] => (1, plain == byte),
    }
}

/// Parses a class after its `[`. Returns its length including the `]`, and whether the class contains the byte. Without
/// a `]` the class ends with the pattern. A range may be written backwards, and a minus sign at the end of the pattern
/// is literal.
fn in_class(class: &[u8], byte: u8) -> (usize, bool) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match class.get(at..).unwrap_or_default() {
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [one, b'-', other, ..] => {
                found |= (*one.min(other)..=*one.max(other)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= *plain == byte;
                at += 1;
            }
        }
    }
    (at, found != negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes: [(&str, &str); 16] = [
            ("*", ""),
            ("**", "abc"),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("a*b*c", "aXbYbZc"),
            ("[abc", "b"),
            ("a\\", "a\\"),
            ("", ""),
            ("user:*:name", "user:1:2:name"),
            ("[^]", "x"),
        ];
        for (pattern, text) in yes {
            assert!(
                matches(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        let no: [(&str, &str); 9] = [
            ("", "a"),
            ("?", ""),
            ("h[^e]llo", "hello"),
            ("a*b", "abc"),
            ("\\*", "a"),
            ("[a-c]", "d"),
            ("abc", "ab"),
            ("ab", "abc"),
            ("[]a]", "a"),
        ];
        for (pattern, text) in no {
            assert!(
                !matches(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_comparison_has_a_bound() {
        let length = if cfg!(miri) { 1 << 10 } else { 1 << 20 };
        let text = vec![b'a'; length];
        // Without the limit, the whole class would be searched for each byte of the text.
        let mut pattern = b"*[".to_vec();
        pattern.resize(length, b'b');
        pattern.extend_from_slice(b"]");
        assert!(!matches(&pattern, &text));
        // A long comparison that never backtracks is never cut off.
        assert!(matches(&text, &text));
        assert!(matches(b"*", &text));
        assert!(matches(&[&text[..], b"*"].concat(), &text));
        assert!(!matches(b"*b", &text));
        assert!(matches(b"*?a", &text));
    }

    #[test]
    fn many_comparisons_have_a_bound_together() {
        let mut left = 100;
        assert_eq!(matches_within(b"*b", &[b'a'; 60], &mut left), Some(false));
        assert_eq!(left, 40);
        // A star at the end reads nothing.
        assert_eq!(matches_within(b"aa*", &[b'a'; 60], &mut left), Some(true));
        assert_eq!(left, 38);
        assert_eq!(matches_within(b"*b", &[b'a'; 60], &mut left), None);
        assert_eq!(matches_within(b"*b", &[b'a'; 60], &mut left), None);
        assert_eq!(
            (left, matches_within(b"*", b"a", &mut left)),
            (0, Some(true))
        );
        // The bytes of a class count, too. A class that is cut off at the limit is not mistaken for a class that ends
        // with the pattern.
        let class = [&b"["[..], &[b'b'; 98], b"a"].concat();
        assert_eq!(matches_within(&class, b"a", &mut 100), Some(true));
        assert_eq!(matches_within(&class, b"a", &mut 99), None);
        assert_eq!(matches_within(&class, b"b", &mut 50), None);
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let length = if cfg!(miri) { 50 } else { 5_000 };
        assert!(!matches("*a".repeat(30).as_bytes(), &vec![b'b'; length]));
        assert!(!matches(
            format!("{}b", "*a".repeat(30)).as_bytes(),
            &vec![b'a'; length]
        ));
    }
}
