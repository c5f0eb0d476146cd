//! Texts of a bounded length, as they lie in shared memory.

/// Bytes of a text that has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Short<const N: usize> {
    length: u16,
    bytes: [u8; N],
}

impl<const N: usize> Short<N> {
    /// None for a text that is longer.
    pub fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; N];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Short {
            length: u16::try_from(text.len()).ok()?,
            bytes,
        })
    }

    /// No text.
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
