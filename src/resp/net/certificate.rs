//! Reads the names in a client's certificate: its common name, and its distinguished name in Postgres' format (RFC
//! 2253).
//!
//! It does not verify the certificate: rustls has already done so. If a name cannot be written exactly as OpenSSL
//! writes it, the result is empty, so that it matches no user and admits no client.

use crate::resp::net::bounded_text::Short;

/// The short names of the attributes of a distinguished name, by their encoded object identifiers.
const KINDS: [(&[u8], &str); 15] = [
    (COMMON_NAME, "CN"),
    (&[85, 4, 4], "SN"),
    (&[85, 4, 5], "serialNumber"),
    (&[85, 4, 6], "C"),
    (&[85, 4, 7], "L"),
    (&[85, 4, 8], "ST"),
    (&[85, 4, 9], "street"),
    (&[85, 4, 10], "O"),
    (&[85, 4, 11], "OU"),
    (&[85, 4, 12], "title"),
    (&[85, 4, 42], "GN"),
    (&[85, 4, 43], "initials"),
    (&[42, 134, 72, 134, 247, 13, 1, 9, 1], "emailAddress"),
    (&[9, 146, 38, 137, 147, 242, 44, 100, 1, 25], "DC"),
    (&[9, 146, 38, 137, 147, 242, 44, 100, 1, 1], "UID"),
];
const COMMON_NAME: &[u8] = &[85, 4, 3];

const OBJECT_IDENTIFIER: u8 = 6;
const SEQUENCE: u8 = 48;
const SET: u8 = 49;
/// The tag of the version, which certificates of version 1 lack.
const VERSION: u8 = 160;

/// The names in a verified client certificate. A name is empty if the certificate lacks it.
#[derive(Clone, Copy)]
pub struct Certificate {
    pub common_name: Short<256>,
    pub distinguished_name: Short<1024>,
}

/// Returns the names in a certificate. A name is empty if the certificate lacks it, or if it cannot be written.
pub fn names(certificate: &[u8]) -> Certificate {
    let parts = subject(certificate).unwrap_or_default();
    let common = parts.iter().flatten().find(|part| part.kind == COMMON_NAME);
    // A name with a NUL byte is refused, because C code that compares names would stop there.
    let common = common.filter(|part| part.is_text() && !part.value.contains(&0));
    let distinguished = distinguished(&parts).unwrap_or_default();
    Certificate {
        common_name: short(common.map_or(&[], |part| part.value)),
        distinguished_name: short(distinguished.as_bytes()),
    }
}

/// Returns the text, or the empty text if `text` is too long, because a truncated name would be a different name.
fn short<const N: usize>(text: &[u8]) -> Short<N> {
    Short::new(text).unwrap_or_else(Short::empty)
}

/// A part of a distinguished name.
struct Part<'c> {
    kind: &'c [u8],
    form: u8,
    value: &'c [u8],
}

impl Part<'_> {
    /// Returns whether the value is text that needs no conversion.
    fn is_text(&self) -> bool {
        match self.form {
            // UTF8String.
            12 => std::str::from_utf8(self.value).is_ok(),
            // NumericString, PrintableString, IA5String, VisibleString.
            18 | 19 | 22 | 26 => self.value.is_ascii(),
            _ => false,
        }
    }
}

/// Returns the parts of the subject's name, in their order. Each inner list holds the parts of one relative name.
fn subject(certificate: &[u8]) -> Option<Vec<Vec<Part<'_>>>> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    let (first, _, after) = element(fields)?;
    if first == VERSION {
        fields = after;
    }
    // Skips the serial number, the signature's algorithm, the issuer and the validity.
    for _ in 0..4 {
        (_, _, fields) = element(fields)?;
    }
    let (_, mut sets, _) = element(fields).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let mut names = Vec::new();
    while !sets.is_empty() {
        let (tag, mut set, after) = element(sets)?;
        sets = after;
        let mut name = Vec::new();
        while !set.is_empty() {
            let (inner, part, after) = element(set)?;
            set = after;
            let (identifier, kind, rest) = element(part)?;
            let (form, value, _) = element(rest)?;
            if (tag, inner, identifier) != (SET, SEQUENCE, OBJECT_IDENTIFIER) {
                return None;
            }
            name.push(Part { kind, form, value });
        }
        names.push(name);
    }
    Some(names)
}

/// Returns the first DER element of these bytes: its tag, its contents, and the bytes after it. Returns None if the
/// bytes are not valid DER.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=127 => (usize::from(first), rest),
        // An indefinite length, which no certificate has.
        128 => return None,
        // The number of bytes of the length; no certificate needs more than three.
        129..=131 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 127))?;
            let length = digits
                .iter()
                .fold(0, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((tag, inside, after))
}

/// Writes the distinguished name with the last part first, commas between the parts, and a plus sign within a part.
/// Returns None if OpenSSL would write one of its parts differently.
fn distinguished(names: &[Vec<Part<'_>>]) -> Option<String> {
    let mut text = String::new();
    for name in names.iter().rev() {
        for (at, part) in name.iter().rev().enumerate() {
            text.push_str(match (text.is_empty(), at) {
                (true, _) => "",
                (false, 0) => ",",
                (false, _) => "+",
            });
            let (_, kind) = KINDS.iter().find(|(number, _)| *number == part.kind)?;
            text.push_str(kind);
            text.push('=');
            escape(part.value, &mut text);
            if !part.is_text() {
                return None;
            }
        }
    }
    Some(text)
}

fn escape(value: &[u8], text: &mut String) {
    for (at, &byte) in value.iter().enumerate() {
        let (first, last) = (at == 0, at + 1 == value.len());
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.extend(['\\', char::from(byte)]);
            }
            b'#' if first => text.push_str("\\#"),
            b' ' if first || last => text.push_str("\\ "),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:02X}")),
        }
    }
}
