//! [`Failed`]: the reason why an entry was not read or changed.

use crate::cache::memory::raw::OutOfMemory;
use crate::error::Error;

/// The reason why an entry was not read or changed.
#[derive(Debug)]
pub enum Failed {
    /// The cache was dropped, or has lost its slot in the tier.
    Gone,
    /// No entry can have this key.
    Key,
    OutOfMemory,
    /// A policy or a trigger of the table has kept the entry from being written.
    NotCarriedOut,
    /// The cache is not open for writing.
    NotOpen,
    Error(Error),
}

impl From<OutOfMemory> for Failed {
    fn from(_: OutOfMemory) -> Failed {
        Failed::OutOfMemory
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::Error(error) => error,
            Failed::Key => Error::KeyBeyondColumn,
            Failed::OutOfMemory => Error::OutOfMemory(0),
            Failed::Gone | Failed::NotOpen | Failed::NotCarriedOut => Error::DefinitionChanged,
        }
    }
}
