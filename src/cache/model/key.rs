//! Keys: 1 to 2,048 bytes in the server's encoding.
//!
//! The limit leaves room in a btree page (2,704 bytes per index row) and bounds the cost of a key in shared memory.

use crate::error::Error;
use crate::pg::value::datum::Text;

/// The longest key in bytes that the store accepts.
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

    /// Checks the key of a read. NULL stays NULL.
    pub fn of_read(key: Option<Text>) -> Result<Option<Key>, Error> {
        key.map(Key::new).transpose()
    }

    /// Checks the key of a write. NULL is an error.
    pub fn of_write(key: Option<Text>) -> Result<Key, Error> {
        Key::new(key.ok_or(Error::NullArgument("key"))?)
    }

    /// Wraps a key that was read from the table, where plain SQL may have stored any text.
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

/// Returns the smallest byte string above every string with this prefix in the order of collation "C". Returns None if
/// no such string exists, because the prefix is empty or has only bytes 0xFF.
///
/// The result need not be valid text, because it is only compared.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xFF)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above)
}
