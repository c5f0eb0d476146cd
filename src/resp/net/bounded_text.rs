//! Texts of a limited length, stored in place so that they can be in shared memory. A text that is too long is refused
//! and never truncated, because a truncated name would be a different name.

/// A text of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Short<const N: usize> {
    length: u16,
    bytes: [u8; N],
}

impl<const N: usize> Short<N> {
    /// Stores a text; returns None if it has more than `N` bytes.
    pub fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; N];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Short {
            length: u16::try_from(text.len()).ok()?,
            bytes,
        })
    }

    /// Returns the empty text.
    pub fn empty() -> Self {
        Short {
            length: 0,
            bytes: [0; N],
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}
