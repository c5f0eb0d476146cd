//! What a key may be: 1 to 2,048 bytes in the server's encoding.
//!
//! The limit leaves room in a btree page (2,704 bytes an index row) and bounds what a key can cost
//! in shared memory.

use crate::error::Error;
use crate::pg::value::datum::Text;

/// The longest key, in bytes: what the store takes.
pub const MAX_BYTES: usize = pgcache_store::MAX_KEY;

/// A key that has been checked.
#[derive(Clone, Copy)]
pub struct Key(Text);

impl Key {
    #[inline]
    pub fn new(text: Text) -> Result<Key, Error> {
        match text.bytes().len() {
            0 => Err(Error::EmptyKey),
            bytes if bytes > MAX_BYTES => Err(Error::LongKey(bytes)),
            _ => Ok(Key(text)),
        }
    }

    /// The key that a read was given: NULL stays NULL.
    pub fn of_read(key: Option<Text>) -> Result<Option<Key>, Error> {
        key.map(Key::new).transpose()
    }

    /// The key that a write was given: NULL is an error.
    pub fn of_write(key: Option<Text>) -> Result<Key, Error> {
        Key::new(key.ok_or(Error::NullArgument("key"))?)
    }

    /// A key that came from the table, where plain SQL may have put any text.
    pub fn stored(text: Text) -> Key {
        Key(text)
    }

    #[inline]
    pub fn text(self) -> Text {
        self.0
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The smallest byte string above every string with this prefix in the order of collation "C";
/// None when there is none (an empty prefix, or nothing but 0xFF).
///
/// It need not be valid text: it is only ever compared.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xFF)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above)
}
