//! Parses inline commands, which a person types: one line, with words separated by blanks, and quotes as in a shell.

use crate::args::Place;

/// The error for quotes that are not closed, or are closed in the middle of a word.
pub(crate) struct Unbalanced;

/// Splits a line into words, and appends their bytes to `words`. The words together are at most as long as the line,
/// because an escape is longer than its character. A line has at most 64 kB.
pub(crate) fn split(
    line: &[u8],
    words: &mut Vec<u8>,
    places: &mut Vec<Place>,
) -> Result<(), Unbalanced> {
    // Redis keeps the line as a C string, so a NUL ends it.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut rest = line;
    loop {
        rest = skip_blanks(rest);
        if rest.is_empty() {
            return Ok(());
        }
        let from = words.len();
        rest = word(rest, words)?;
        places.push(Place {
            from: from as u32,
            to: words.len() as u32,
        });
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn skip_blanks(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
    line.get(blanks..).unwrap_or_default()
}

/// Reads one word, and returns the rest of the line. A quoted part may follow unquoted bytes, and ends the word.
fn word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            // Redis ends an unquoted word only at these blanks.
            [b' ' | b'\n' | b'\r' | b'\t', after @ ..] => return Ok(after),
            [b'"', after @ ..] => return ended(double_quoted(after, words)?),
            [b'\'', after @ ..] => return ended(single_quoted(after, words)?),
            [plain, after @ ..] => {
                words.push(*plain);
                after
            }
        }
    }
}

fn ended(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    match rest.first() {
        Some(byte) if !is_blank(*byte) => Err(Unbalanced),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(Unbalanced),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                (hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0), after)
            }
            [b'\\', escaped, after @ ..] => (unescaped(*escaped), after),
            [plain, after @ ..] => (*plain, after),
        };
        words.push(byte);
        rest = after;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(Unbalanced),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [plain, after @ ..] => (*plain, after),
        };
        words.push(byte);
        rest = after;
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn unescaped(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        split(line, &mut bytes, &mut places).ok()?;
        Some(
            places
                .iter()
                .map(|place| bytes[place.from as usize..place.to as usize].to_vec())
                .collect(),
        )
    }

    #[test]
    fn lines_are_cut_as_by_redis() {
        let list =
            |words: &[&[u8]]| Some(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
        assert_eq!(words(b"  get\t a "), list(&[b"get", b"a"]));
        assert_eq!(words(b""), list(&[]));
        assert_eq!(
            words(br#"set "a b" 'c d'"#),
            list(&[b"set", b"a b", b"c d"])
        );
        assert_eq!(
            words(br#""\x41\n\"\q" '\'\n'"#),
            list(&[b"A\n\"q", br"'\n"])
        );
        assert_eq!(words(br#"a"b""#), list(&[b"ab"]));
        assert_eq!(words(b"get \"\" ''"), list(&[b"get", b"", b""]));
        for line in [&br#""a"#[..], br#""a"b"#, b"'a", b"'a'b", br#""a\"#] {
            assert_eq!(words(line), None, "{line:?}");
        }
    }
}
